"""Encode the log of looks as JSON. A look records the verdict and the interval at one time, as people saw them.

The chart of looks shows this log, which is never recomputed from the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..part_keys import HOUR
from .evaluation import ShownLook

__all__ = ["decode_looks", "encode_looks", "is_same_look"]


def encode_looks(looks: Iterable[ShownLook]) -> str:
    """Return the looks (shown verdicts) at one time, one for each treatment, as JSON."""
    return json.dumps([look._asdict() for look in looks], allow_nan=False)


def decode_looks(text: str) -> list[ShownLook]:
    """Read looks from the JSON that `encode_looks` returned.

    Examples
    --------
    >>> look = ShownLook(3600.0, "new", "ship", 0.1, 0.05, 0.15, 1000.0)
    >>> decode_looks(encode_looks([look])) == [look]
    True
    """
    return [ShownLook(**look) for look in json.loads(text)]


def is_same_look(one: Iterable[ShownLook], other: Iterable[ShownLook]) -> bool:
    """Return whether the looks at two times fall in the same hour and have the same decisions."""
    first, second = ([(look.at // HOUR, look.treatment, look.decision) for look in looks] for looks in (one, other))
    return first == second
