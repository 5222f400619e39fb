"""The entry point of `python -m streammetrics`, which runs the command line."""

from streammetrics.cli import main

if __name__ == "__main__":
    main()
