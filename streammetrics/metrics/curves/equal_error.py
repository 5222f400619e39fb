"""The equal error rate: the error rate at the threshold where the false positive and false negative rates are equal."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ...numerics.exact import Limits, Mass
from ...reading.about import About
from ...statistics.scores import ScoresByLabel
from .thresholds import AtThreshold, find_occupied_cells

__all__ = ["EqualErrorRate"]


class EqualErrorRate(AtThreshold, tag="equal_error_rate"):
    """Equal error rate: the error rate at the threshold where the false positive and false negative rates are equal.

    Formula: (FPR + FNR) / 2 at the threshold with the smallest |FPR - FNR|, or at the higher threshold if two tie.

    Notes
    -----
    The definition matches torchmetrics' EER. As the threshold falls, FPR rises and FNR falls, so the two cross once.
    The order of the scores inside the bucket where they cross is unknown. The lower bound assumes that the positives of
    this bucket have the highest scores, and the upper bound that they have the lowest. Memory and time are the same as
    for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rate = sm.EqualErrorRate().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> rate.compute(), rate.threshold()
    (0.5, 0.5)
    """

    about = About(
        best="low",
        formula="(FPR + FNR) / 2 at the threshold where |FPR - FNR| is smallest",
        bound="the lowest and the highest possible rate in the bucket where FPR and FNR cross",
    )

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        before, after, nearer = self._crossing(state)
        value = nearer.errors(nearer)
        if not state.weight_rounding and (state.is_exact or after.imbalance() == 0):
            return Limits(value, value, value)
        return Limits(before.errors(after), value, after.errors(before))

    def _cut(self, state: ScoresByLabel) -> int:
        return self._crossing(state)[2].at

    def _crossing(self, state: ScoresByLabel) -> tuple[ROCPoint, ROCPoint, ROCPoint]:
        """Return the two points between which FPR and FNR cross, and the one at which the two rates are closer.

        The first two points are neighbors on the curve. FPR is below FNR at the first point, but not at the second.
        """
        cells = find_occupied_cells(state)
        tp, fp = (Mass(m.digits[:, cells]).sums_through() for m in (state.positives, state.negatives))
        P, N = state.positives.total(), state.negatives.total()

        def point(i: int) -> ROCPoint:
            return ROCPoint(i, tp.cell(i - 1), fp.cell(i - 1), P, N) if i else ROCPoint(0, 0, 0, P, N)

        low, high = 0, len(cells)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if point(middle).imbalance() < 0 else (low, middle)
        before, after = point(low), point(high)
        return before, after, before if abs(before.imbalance()) <= after.imbalance() else after


class ROCPoint(NamedTuple):
    """A point of the ROC curve as integer counts.

    `at` is the number of non-empty buckets that the threshold selects (score >= threshold). `tp` and `fp` count the
    true and false positives, and `P` and `N` are the total numbers of positives and negatives.
    """

    at: int
    tp: int
    fp: int
    P: int
    N: int

    def imbalance(self) -> int:
        """Return FPR - FNR, multiplied by P * N so that the result is an integer."""
        return self.fp * self.P - (self.P - self.tp) * self.N

    def errors(self, other: ROCPoint) -> Fraction:
        """Return the mean of the FPR of this point and the FNR of `other`.

        If `other` is the same point, this is the error rate at the point. If the rates cross between this point and
        `other`, it is a bound on the equal error rate.
        """
        return (Fraction(self.fp, self.N) + Fraction(self.P - other.tp, self.P)) / 2
