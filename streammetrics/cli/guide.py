"""`streammetrics guide`: the pages that are shipped with the package."""

from __future__ import annotations

import sys
from importlib import resources

from streammetrics.cli.messages import nearest

__all__ = ["pages", "show_page"]

ORDER = (
    "tour", "training", "compilation", "logs", "engines", "machines", "compare", "dashboard", "streaming", "choose",
    "moving", "metrics",
    "decisions", "probabilities", "curves", "groups", "regression", "ranking", "values",
)  # fmt: skip


def pages() -> dict[str, str]:
    """Return the text of every page by name, in the order in which they are read."""
    folder = resources.files("streammetrics") / "guide"
    return {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in ORDER}


def show_page(name: str | None) -> None:
    """Print a page, set for a terminal, or as it is for a pipe; or the list of all."""
    found = pages()
    if name is None:
        for known, text in found.items():
            title, _, about, *_ = text.splitlines()
            print(f"{known:15}{title[2:]}\n{'':15}{about}")
        return
    if name not in found:
        raise nearest("page", name, found)
    if not sys.stdout.isatty():
        print(found[name], end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True, links=True):
        console.print(Markdown(found[name], code_theme="ansi_dark"))
