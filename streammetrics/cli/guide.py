"""`streammetrics guide`: show the pages of the guide, which are part of the package."""

from __future__ import annotations

import sys
from importlib import resources

from streammetrics.cli.messages import unknown_name_error

__all__ = ["load_pages", "show_page"]

PAGE_ORDER = (
    "tour", "training", "compilation", "logs", "engines", "machines", "compare", "dashboard", "streaming", "choose",
    "moving", "metrics",
    "decisions", "probabilities", "curves", "groups", "regression", "ranking", "values",
)  # fmt: skip


def load_pages() -> dict[str, str]:
    """Return the text of every page by name, in reading order."""
    folder = resources.files("streammetrics") / "guide"
    return {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in PAGE_ORDER}


def show_page(name: str | None) -> None:
    """Print a page, rendered on a terminal and as Markdown otherwise; without a name, list all pages."""
    texts = load_pages()
    if name is None:
        for page, text in texts.items():
            title, _, summary, *_ = text.splitlines()
            print(f"{page:15}{title[2:]}\n{'':15}{summary}")
        return
    if name not in texts:
        raise unknown_name_error("page", name, texts)
    if not sys.stdout.isatty():
        print(texts[name], end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True, links=True):
        console.print(Markdown(texts[name], code_theme="ansi_dark"))
