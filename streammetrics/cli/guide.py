"""`streammetrics guide`: show the pages of the guide, which are part of the package."""

from __future__ import annotations

import difflib
import sys
from importlib import resources

from streammetrics.cli.messages import unknown_name_error

__all__ = ["load_pages", "show_page"]

PAGE_ORDER = (
    "tour", "install", "training", "frameworks", "logs", "machines", "engines", "recipes", "compare", "dashboard",
    "production", "streaming", "choose", "moving", "faq", "capacity", "glossary", "stability", "architecture",
    "contributing", "metrics", "decisions", "probabilities", "curves", "groups", "regression", "ranking", "values",
)  # fmt: skip
MAX_SECTIONS = 12
"""The maximum number of sections that a search for a word lists."""


def load_pages() -> dict[str, str]:
    """Return the text of every page, keyed by name, in reading order."""
    folder = resources.files("streammetrics") / "guide"
    return {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in PAGE_ORDER}


def find_sections(texts: dict[str, str], word: str) -> list[tuple[str, str]]:
    """Return the page and heading of up to `MAX_SECTIONS` sections that contain a word, matches in headings first."""
    in_headings, in_bodies = [], []
    for page, text in texts.items():
        for section in text.split("\n## ")[1:]:
            heading, _, body = section.partition("\n")
            if word.lower() in heading.lower():
                in_headings.append((page, heading))
            elif word.lower() in body.lower():
                in_bodies.append((page, heading))
    return [*in_headings, *in_bodies][:MAX_SECTIONS]


def show_page(name: str | None) -> None:
    """Print a page (rendered on a terminal, as Markdown otherwise); without a name, list all pages.

    If there is no such page, print the sections that contain the name. Raise UsageError instead if a page has a similar
    name or mentions the name in its title or introduction, or if no section contains the name.
    """
    texts = load_pages()
    if name is None:
        for page, text in texts.items():
            title, _, summary, *_ = text.splitlines()
            print(f"{page:15}{title[2:]}\n{'':15}{summary}")
        return
    if name not in texts:
        # A word such as "spark" is not the name of a page, but may occur in the title or introduction of a page.
        pages = [page for page, text in texts.items() if name.lower() in " ".join(text.split("\n\n")[:2]).lower()]
        if (
            not pages
            and not difflib.get_close_matches(name.lower(), texts, 1)
            and (found := find_sections(texts, name))
        ):
            print(f"There is no page {name!r}. These sections contain the word:\n")
            for page, heading in found:
                print(f"{page:15}{heading}")
            return
        raise unknown_name_error("page", name, pages or texts)
    if not sys.stdout.isatty():
        print(texts[name], end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True, links=True):
        console.print(Markdown(texts[name], code_theme="ansi_dark"))
