"""What changes say: intervals, p-values, which side is better, and what limits that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..collect.interval import Interval
from .changes import Changes
from .measured import Measured, checked_confidence, interval, p_value, settled
from .multiple import adjusted, e_benjamini_hochberg
from .reasons import Reasons, add, as_reasons, known
from .sequential import Look, always_valid, e_value, p_of_e
from .verdict import Compared, Progress, not_worse, worse

__all__ = ["BOUND", "SAMPLING", "Reading", "Settings", "better_side", "limits_of", "read"]

SAMPLING, BOUND = "sampling", "certified bound"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reading:
    """What the comparisons of one number say, cell by cell."""

    changes: Changes
    difference: Interval
    relative: Interval
    p: Floats
    e: Floats | None


@dataclass(frozen=True)
class Settings:
    """How comparisons are asked for.

    Parameters
    ----------
    confidence : float
        Of the intervals.
    look : Look or None
        How far an experiment is, for intervals valid at all looks.
    relative : bool
        Whether p-values, and which side is better, are of the relative difference.
    adjust : str or None
        How p-values are adjusted for all rows together.
    """

    confidence: float = 0.95
    look: Look | None = None
    relative: bool = False
    adjust: str | None = None

    def between(self, found: Measured) -> Interval:
        """Return the interval that is read."""
        if self.look is None:
            return interval(found, self.confidence)
        return always_valid(found, self.look, self.confidence)

    def adjusted(self, readings: Sequence[Reading]) -> list[Floats]:
        """Return the p-values of every number, adjusted for all of them together."""
        if self.adjust is None:
            return [r.p for r in readings]
        sizes = [r.p.size for r in readings]
        if self.look is not None and self.adjust == "bh":
            found = e_benjamini_hochberg(_chain([cast(Floats, r.e) for r in readings]))
        else:
            found = adjusted(_chain([r.p for r in readings]), self.adjust)
        ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        return [found[a:b] for a, b in pairwise(ends)]


def _chain(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def read(changes: Changes, settings: Settings) -> Reading:
    """Return what changes say: intervals and p-values; none where there is too little data."""
    difference, relative = (_withheld(m, changes.reasons) for m in (changes.difference, changes.relative))
    chosen = relative if settings.relative else difference
    e = None if settings.look is None else np.asarray(e_value(chosen, settings.look))
    p = np.asarray(p_value(chosen) if e is None else p_of_e(e))
    return Reading(changes, settings.between(difference), settings.between(relative), p, e)


def _withheld(found: Measured, reasons: Reasons) -> Measured:
    """The same, without errors where there is another reason for none."""
    mine = as_reasons(reasons, reasons.shape)
    own = as_reasons(found.reason, reasons.shape)
    add(mine, known(own), lambda i: str(own[i]))
    return settled(*found[:7], reasons=mine, reduction=found.reduction)


def better_side(reading: Reading, p: Floats, settings: Settings) -> NDArray[Any]:
    """Return which side is better in each cell, beyond both kinds of error; None where neither is shown to be."""
    changes, best = reading.changes, reading.changes.pair.metric.best
    out = np.full(p.shape, None, object)
    alpha = checked_confidence(settings.confidence)
    if best is None:
        return out
    if changes.contrasts is not None:
        look = settings.look
        progress = Progress() if look is None else Progress(look.users, look.planned, sequential=True)
        compared = Compared(changes.pair.name, changes.contrasts, "one")
        first, second = not_worse(compared, progress, alpha), worse(compared, progress, alpha)
    else:
        a, b = changes.pair.a, changes.pair.b
        found, unit = (reading.relative, np.abs(b.values)) if settings.relative else (reading.difference, 1.0)
        with np.errstate(all="ignore"):  # of NaN, and of 0
            above = found.low - ((a.values - a.low) + (b.high - b.values)) / unit > 0.0
            under = found.high + ((a.high - a.values) + (b.values - b.low)) / unit < 0.0
        first, second = (above, under) if best == "high" else (under, above)
    shown = ~known(changes.reasons)
    if settings.adjust is not None:
        shown = shown & (p <= alpha)
    out[first & shown], out[second & shown] = "a", "b"
    return out


def limits_of(reading: Reading) -> NDArray[Any]:
    """Return what limits each cell: the certified bound where it is wider than the interval, else sampling."""
    a, b = reading.changes.pair.a, reading.changes.pair.b
    found = reading.difference
    with np.errstate(invalid="ignore"):
        bound = (a.high - a.low) + (b.high - b.low) > found.high - found.low
        some = np.isfinite(found.high - found.low)
    out = np.full(some.shape, None, object)
    out[some & bound], out[some & ~bound] = BOUND, SAMPLING
    return out
