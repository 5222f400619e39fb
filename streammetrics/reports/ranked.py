"""Ranking measures by cut-off: a row for each measure, a column for each k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..inference.comparison import Comparison
from .blocks import Figure, Side
from .figures import figure_of, under

__all__ = ["Ranked", "by_cutoff"]


class Ranked(NamedTuple):
    """Measures by cut-off.

    Parameters
    ----------
    sides : tuple of Side
        What is compared.
    ks : list of str
        The cut-offs.
    rows : list of (name, remark, figures, (new, old))
        Of each measure, what it says at every cut-off (None where it was not counted), and both lines of values.
    """

    sides: tuple[Side, Side]
    ks: list[str]
    rows: list[tuple[str, str, list[Figure | None], tuple[list[float], list[float]]]]


def by_cutoff(found: Sequence[Comparison], sides: tuple[Side, Side]) -> Ranked | None:
    """Return comparisons of measures at several cut-offs as one table; None where there are none."""
    named: dict[str, dict[str, Comparison]] = {}
    for one in found:
        name, _, k = one.name.partition("@")
        named.setdefault(name, {})[k] = one
    if not named:
        return None
    ks = sorted({k for some in named.values() for k in some}, key=lambda k: (len(k), k))
    rows = []
    for name, some in named.items():
        chosen = [some.get(k) for k in ks]
        new, old = ([c.a if c else math.nan for c in chosen], [c.b if c else math.nan for c in chosen])
        rows.append(
            (name, under(next(iter(some.values())).metric), [figure_of(c) if c else None for c in chosen], (new, old))
        )
    return Ranked(sides, ks, rows)
