"""What changes say: intervals, p-values, which side is better, and what limits that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.elementary import log
from ..reading.interval import Interval, alpha_of
from .differences import RATIO, Changes
from .estimates import Measured, interval, p_value, settled
from .multiple import adjusted, e_benjamini_hochberg
from .reasons import Reasons, add, as_reasons, known
from .sequential import Look, always_valid, e_value, p_of_e
from .verdict import Compared, Progress, evidence, not_worse, worse

__all__ = [
    "BOUND",
    "SAMPLING",
    "ComparisonSettings",
    "Interpretation",
    "better_side",
    "compared_of",
    "limits_of",
    "read",
]

SAMPLING, BOUND = "sampling", "certified bound"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Interpretation:
    """What the comparisons of one number say, cell by cell."""

    changes: Changes
    difference: Interval
    relative: Interval
    p: Floats
    compared: Compared


@dataclass(frozen=True)
class ComparisonSettings:
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

    @property
    def progress(self) -> Progress:
        """The look, as verdicts take it."""
        look = self.look
        return (
            Progress() if look is None else Progress(look.users, look.planned, sequential=True, tuned=look.confidence)
        )

    def evidence(self, reading: Interpretation, margin: float | None = None) -> Floats:
        """Return the evidence for what is said of each cell; none where there is too little data."""
        found = evidence(reading.compared, self.progress, margin)
        return np.where(known(reading.changes.reasons), np.nan, found)

    def adjusted(
        self, readings: Sequence[Interpretation], margins: Sequence[float | None] | None = None
    ) -> list[Floats]:
        """Return the p-values of every number; if asked for, of what is said of it, adjusted for all of them together.

        Parameters
        ----------
        readings : sequence of Reading
            Of each number.
        margins : sequence, optional
            Of those that are guardrails; None of others.
        """
        if self.adjust is None:
            return [r.p for r in readings]
        sizes, by = [r.p.size for r in readings], margins or [None] * len(readings)
        said = _chain([self.evidence(r, m) for r, m in zip(readings, by, strict=True)])
        if self.look is not None and self.adjust == "bh":
            found = e_benjamini_hochberg(said)
        else:
            found = adjusted(said if self.look is None else p_of_e(said), self.adjust)
        ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        return [found[a:b] for a, b in pairwise(ends)]


def _chain(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def read(changes: Changes, settings: ComparisonSettings) -> Interpretation:
    """Return what changes say: intervals and p-values; none where there is too little data."""
    difference, relative = (_withheld(m, changes.reasons) for m in (changes.difference, changes.relative))
    chosen = relative if settings.relative else difference
    p = np.asarray(p_value(chosen) if settings.look is None else p_of_e(e_value(chosen, settings.look)))
    return Interpretation(
        changes, settings.between(difference), settings.between(relative), p, compared_of(changes, settings.relative)
    )


def certain(side: Any) -> Any:
    """Whether values are exact."""
    return side.low == side.high


def compared_of(changes: Changes, relative: bool, better: str | None = None, margin: float | None = None) -> Compared:
    """Return what a verdict reads of changes, of all their cells.

    Parameters
    ----------
    changes : Changes
        Of a number.
    relative : bool
        Whether it reads the relative difference.
    better : {"high", "low", "one"}, optional
        Which values are good; by default the metric says it, or else high.
    margin : float, optional
        Of a guardrail.
    """
    a, b = changes.pair.a, changes.pair.b
    of_both = changes.contrasts is not None and better in (None, "one")
    change: Any = changes.contrasts if of_both else changes.relative if relative else changes.difference
    side = "one" if of_both else better or ("low" if changes.pair.metric.about.best == "low" else "high")
    slack: tuple[Any, ...]
    with np.errstate(all="ignore"):  # of NaN, of a control of 0, and of what has no logarithm
        if of_both:
            held = [(s.low > 0.0) & np.isfinite(s.high) for s in (a, b)]
            apart = sum(
                log(np.where(h, s.high, 1.0)) - log(np.where(h, s.low, 1.0)) for h, s in zip(held, (a, b), strict=True)
            )
            slack = (np.where(held[0] & held[1], apart, np.inf),) * 2
        elif relative:
            ratio, exact = a.values / b.values, certain(a) & certain(b)
            known_ones = (a.low >= 0.0) & (b.low > 0.0)
            ends = ratio - a.low / b.high, a.high / b.low - ratio
            slack = tuple(np.where(known_ones, end, np.where(exact, 0.0, np.inf)) for end in ends)
        else:
            slack = (a.values - a.low) + (b.high - b.values), (a.high - a.values) + (b.values - b.low)
    return Compared(changes.pair.name, change, side, margin, changes.reasons, slack)  # type: ignore[arg-type]


def _withheld(found: Measured, reasons: Reasons) -> Measured:
    """The same, without errors where there is another reason for none."""
    mine = as_reasons(reasons, reasons.shape)
    own = as_reasons(found.reason, reasons.shape)
    add(mine, known(own), lambda i: str(own[i]))
    return settled(*found[:7], reasons=mine, reduction=found.reduction)


def better_side(reading: Interpretation, p: Floats, settings: ComparisonSettings) -> NDArray[Any]:
    """Return which side is better in each cell, beyond both kinds of error; None where neither is shown to be."""
    changes, best = reading.changes, reading.changes.pair.metric.about.best
    out = np.full(p.shape, None, object)
    alpha = alpha_of(settings.confidence)
    if best is None or (best == RATIO and changes.contrasts is None):
        return out
    progress = settings.progress
    first, second = not_worse(reading.compared, progress, alpha), worse(reading.compared, progress, alpha)
    shown = ~known(changes.reasons)
    if settings.adjust is not None:
        shown = shown & (p <= alpha)
    out[first & shown], out[second & shown] = "a", "b"
    return out


def limits_of(reading: Interpretation) -> NDArray[Any]:
    """Return what limits each cell: the certified bound where it is wider than the interval, else sampling."""
    a, b = reading.changes.pair.a, reading.changes.pair.b
    found = reading.difference
    with np.errstate(invalid="ignore"):
        bound = (a.high - a.low) + (b.high - b.low) > found.high - found.low
        some = np.isfinite(found.high - found.low)
    out = np.full(some.shape, None, object)
    out[some & bound], out[some & ~bound] = BOUND, SAMPLING
    return out
