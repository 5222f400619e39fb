"""`python -m streammetrics`: the command line."""

from streammetrics.cli import main

if __name__ == "__main__":
    main()
