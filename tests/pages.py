"""Reading pages as a browser, and a screen reader, would."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "hr", "link", "img", "input"}


class Node:
    """An element, with what is in it."""

    def __init__(self, tag: str, attrs: dict[str, str], parent: Node | None) -> None:
        self.tag, self.attrs, self.parent = tag, attrs, parent
        self.children: list[Node | str] = []

    def all(self, tag: str, **attrs: str) -> list[Node]:
        """The elements of a kind below this one, in reading order."""
        found = []
        for child in self.children:
            if isinstance(child, Node):
                fits = child.tag == tag and all(
                    v in child.attrs.get(k.rstrip("_"), "").split() for k, v in attrs.items()
                )
                found += [child, *child.all(tag, **attrs)] if fits else child.all(tag, **attrs)
        return found

    @property
    def text(self) -> str:
        """What is read."""
        if self.tag in ("style", "script"):
            return ""
        return re.sub(r"[ \t\n]+", " ", " ".join(c.text if isinstance(c, Node) else c for c in self.children)).strip(
            " "
        )


class Reader(HTMLParser):
    """Makes a tree of a page; raises where it is not well formed."""

    def __init__(self) -> None:
        super().__init__()
        self.root = self.at = Node("", {}, None)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        node = Node(tag, {k: v or "" for k, v in attrs}, self.at)
        self.at.children.append(node)
        if tag not in VOID:
            self.at = node

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.at.children.append(Node(tag, {k: v or "" for k, v in attrs}, self.at))

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def tree(page: str) -> Node:
    """Parse a page, or a part of one."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.at is reader.root, f"<{reader.at.tag}> is open"
    return reader.root


def read(page: str) -> str:
    """Parse a page; return its text."""
    return tree(page).text


def number(text: str) -> tuple[float, float]:
    """A number of a page, and half of its last digit; of percent as a share."""
    plain = text.replace("−", "-").replace(",", "").replace("\u202f", "").replace("±", "").strip()
    percent = plain.endswith("%")
    plain = plain.rstrip("%")
    digits = len(plain.partition(".")[2])
    scale = 0.01 if percent else 1.0
    return float(plain) * scale, 0.5 * 10.0**-digits * scale


def says(text: str, value: float) -> bool:
    """Whether a text is a number to its last digit."""
    shown, half = number(text)
    return abs(shown - value) <= half * (1 + 1e-6) + 1e-15


def hidden(page: Any) -> list[str]:
    """The cells of tables that nobody sees."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('tbody td, tbody th')].filter(e => !e.closest('details:not([open])') && "
        "e.getClientRects().length == 0).map(e => e.textContent)"
    )
    return found
