"""Complete the docstring of a metric: list its own parameters, then those that only its base classes document."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from inspect import cleandoc
from typing import Any

__all__ = ["inherit_parameter_docs", "settable_names"]

HEADING = "Parameters\n----------\n"
NEXT_SECTION = re.compile(r"^\w[\w ]*\n-{3,}$", re.MULTILINE)


def inherit_parameter_docs(cls: Any) -> None:
    """Add to the docstring of a class the parameters that only its base classes document.

    A setting that many metrics share is documented once, in the base class that declares it. The help of every metric
    still shows it in full.
    """
    text = vars(cls).get("__doc__")
    if not text:
        return
    before, own, after = _split_docstring(text)
    missing = settable_names(cls).difference(*(names for names, _ in own))
    added = []
    for base in cls.__mro__[1:]:
        for names, entry in _split_docstring(vars(base).get("__doc__") or "")[1]:
            if missing.intersection(names):
                missing.difference_update(names)
                added.append(entry)
    added.sort(key=lambda entry: entry.startswith("on_invalid"))  # the parameter of all metrics comes last
    if added:
        entries = "\n".join([entry for _, entry in own] + added)
        cls.__doc__ = "\n\n".join(part for part in (before, HEADING + entries, after) if part)


def settable_names(cls: Any) -> set[str]:
    """Return the names of the settings that a caller can choose. A setting with only one allowed value is omitted."""
    return {f.name for f in fields(cls) if len(f.metadata.get("rules", {}).get("choices") or "any") > 1}


@cache
def _split_docstring(text: str) -> tuple[str, list[tuple[list[str], str]], str]:
    """Split a docstring at its section of parameters.

    Returns the text before the section, a list of (names, text) with an item for each parameter, and the text after the
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
