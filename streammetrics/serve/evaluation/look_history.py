"""What was shown at each look, as the store keeps it: the band over time is the log of these, never computed anew."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..store.part_keys import HOUR
from .evaluation import ShownLook

__all__ = ["looks_of_json", "looks_to_json", "same_look"]


def looks_to_json(looks: Iterable[ShownLook]) -> str:
    """Return looks as text."""
    return json.dumps([look._asdict() for look in looks], allow_nan=False)


def looks_of_json(text: str) -> list[ShownLook]:
    """Return what `looks_to_json` wrote.

    Examples
    --------
    >>> look = ShownLook(3600.0, "new", "ship", 0.1, 0.05, 0.15, 1000.0)
    >>> looks_of_json(looks_to_json([look])) == [look]
    True
    """
    return [ShownLook(**look) for look in json.loads(text)]


def same_look(one: Iterable[ShownLook], other: Iterable[ShownLook]) -> bool:
    """Whether both are of the same hour, and decide the same."""
    first, second = ([(look.at // HOUR, look.treatment, look.decision) for look in looks] for looks in (one, other))
    return first == second
