"""The optional dependencies of the command line, and the extra that installs each of them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["explain_missing_package"]

COMMAND_LINE = ("click", "pyarrow", "rich", "typer")
REPORT = ("jinja2", "markupsafe")
WEBSITE = ("myst_nb", "pydata_sphinx_theme", "sphinx", "sphinx_copybutton")
DASHBOARD = (
    "anyio", "h11", "httptools", "prometheus_client", "python_multipart", "starlette", "uvicorn", "uvloop",
)  # fmt: skip


def explain_missing_package(module: str | None, arguments: Sequence[str]) -> str | None:
    """Return a message that names the extra to install for a package that a command could not import.

    Parameters
    ----------
    module : str or None
        The module that was not found.
    arguments : sequence of str
        The command-line arguments. For the dashboard commands, the message names the extra `serve`, whichever package
        is missing, because `serve` includes the packages of the extras `cli` and `report`.

    Returns
    -------
    str or None
        A one-line message. None if no extra includes the package, which means that the error is a bug in the library.
    """
    package = (module or "").partition(".")[0]
    if package not in (*COMMAND_LINE, *REPORT, *DASHBOARD, *WEBSITE):
        return None
    if package in DASHBOARD or _starts_the_dashboard(arguments):
        who, extra = "the dashboard", "serve"
    elif package in REPORT:
        who, extra = "a report", "report"
    elif package in WEBSITE:
        who, extra = "the website", "docs"
    else:
        who, extra = "the command line", "cli"
    return f"{who} needs {package}: pip install 'streammetrics[{extra}]'"


def _starts_the_dashboard(arguments: Sequence[str]) -> bool:
    return arguments[:1] == ["serve"] or (arguments[:1] == ["demo"] and "--live" in arguments)
