"""Complete the docstring of a metric: add the parameters that only its base classes document, and its cost."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from inspect import cleandoc
from textwrap import fill
from typing import Any

__all__ = ["inherit_parameter_docs", "settable_names"]

HEADING = "Parameters\n----------\n"
NOTES = "Notes\n-----\n"
# The maximum number of characters in a line of a docstring, excluding indentation.
WIDTH = 116
NEXT_SECTION = re.compile(r"^\w[\w ]*\n-{3,}$", re.MULTILINE)


class InheritedDocs:
    """The docstring of a class, plus the parameters that only its base classes document and, for a metric, its cost.

    A setting that many metrics share is documented once, in the base class that declares it, and a cost is declared
    once, in `about`. The help of every metric still shows both. The text is assembled only when it is read, so it
    does not slow down the import.
    """

    def __init__(self, own: str) -> None:
        self.own = own

    def __get__(self, instance: object, cls: Any) -> str:
        return _add_cost(cls, _complete_docs(cls, self.own)) if vars(cls).get("__doc__") is self else self.own


def inherit_parameter_docs(cls: Any) -> None:
    """Add to a class's docstring the parameters that only its base classes document and, for a metric, its cost."""
    text = vars(cls).get("__doc__")
    if text:
        cls.__doc__ = InheritedDocs(text)


def _complete_docs(cls: Any, text: str) -> str:
    """Return a class's docstring `text`, extended by the parameters that only its base classes document."""
    before, own, after = _split_docstring(text)
    missing = settable_names(cls).difference(*(names for names, _ in own))
    added = []
    for base in cls.__mro__[1:]:
        for names, entry in _split_docstring(_own_docs(base))[1]:
            if missing.intersection(names):
                missing.difference_update(names)
                added.append(entry)
    if not added:
        return text
    added.sort(key=lambda entry: entry.startswith("on_invalid"))  # the parameter that all metrics share comes last
    entries = "\n".join([entry for _, entry in own] + added)
    return "\n\n".join(part for part in (before, HEADING + entries, after) if part)


def _add_cost(cls: Any, text: str) -> str:
    """Return the docstring of a metric with its cost (memory and time) at the end of the Notes section."""
    before, heading, rest = cleandoc(text).partition(NOTES)
    if not heading or not cls.about.cost:
        return text
    following = NEXT_SECTION.search(rest)
    end = following.start() if following else len(rest)
    cost = fill(f"Memory and time: {cls.about.cost}.", WIDTH, break_on_hyphens=False)
    return "\n\n".join([before + heading + rest[:end].rstrip(), cost, rest[end:]]).rstrip()


def _own_docs(cls: type) -> str:
    """Return the docstring of the class itself, without inherited parameters."""
    text = vars(cls).get("__doc__")
    return text.own if isinstance(text, InheritedDocs) else text or ""


def settable_names(cls: Any) -> set[str]:
    """Return the names of the settings that a caller can choose. A setting with only one allowed value is omitted."""
    return {f.name for f in fields(cls) if len(f.metadata.get("rules", {}).get("choices") or "any") > 1}


@cache
def _split_docstring(text: str) -> tuple[str, list[tuple[list[str], str]], str]:
    """Split a docstring at its parameters section.

    Return the text before the section, a list of (names, text) with an item for each parameter, and the text after the
    section.
    """
    before, heading, rest = cleandoc(text).partition(HEADING)
    if not heading:
        rest, before = before, ""
    following = NEXT_SECTION.search(rest)
    end = following.start() if following else len(rest)
    if not heading:
        return rest[:end].rstrip(), [], rest[end:]
    entries = [entry.rstrip() for entry in re.split(r"^(?=[\w*])", rest[:end], flags=re.MULTILINE) if entry.strip()]
    named = [(re.findall(r"\w+", entry.partition("\n")[0].partition(" : ")[0]), entry) for entry in entries]
    return before.rstrip(), named, rest[end:]
