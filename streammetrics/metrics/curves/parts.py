"""The area under a part of the ROC curve, between two false positive rates."""

from __future__ import annotations

from fractions import Fraction

from ...numerics.exact import Limits, Mass
from ...statistics.scores import ScoresByLabel

__all__ = ["area_between", "standardised"]


def standardised(area: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """An area between two false positive rates, so that chance has 1/2 and the largest 1 (McClish 1989)."""
    chance = (high**2 - low**2) / 2
    return (1 + (area - chance) / (high - low - chance)) / 2


def area_between(state: ScoresByLabel, low: Fraction, high: Fraction) -> Limits | None:
    """The standardised area between two false positive rates; None of one class."""
    positives, negatives = state.positives, state.negatives
    P, N = positives.total(), negatives.total()
    if not P or not N:
        return None
    a, c = Mass(positives.digits[:, ::-1]), Mass(negatives.digits[:, ::-1])
    parts = [upper - lower for lower, upper in zip(_upto(a, c, low * N), _upto(a, c, high * N), strict=True)]
    found = Limits(*(standardised(part / (P * N), low, high) for part in parts))
    return Limits(found.value, found.value, found.value) if state.is_exact else found


def _upto(a: Mass, c: Mass, cut: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """The area up to so many negatives, below, within and above the curve inside buckets: between their two corners."""
    above, before = a.before(), c.before()
    k = _crossing(before, cut)
    base, ties = c[slice(k)].dot(above[slice(k)]), c[slice(k)].dot(a[slice(k)])
    part = cut - before.cell(k)  # negatives of the bucket that the rate cuts
    share = part / c.cell(k) if c.cell(k) else Fraction(0)
    low = base + part * above.cell(k)
    return low, low + Fraction(ties, 2) + part * share * a.cell(k) / 2, low + ties + part * a.cell(k)


def _crossing(before: Mass, cut: Fraction) -> int:
    """Return the last cell that begins before `cut`."""
    low, high = 0, before.digits.shape[1] - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before.cell(middle) < cut else (low, middle - 1)
    return low
