"""The threshold at which both errors are equal."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ...numerics.exact import Limits, Mass
from ...reading.about import About
from ...statistics.scores import ScoresByLabel
from .thresholds import AtThreshold, occupied

__all__ = ["EqualErrorRate"]


class EqualErrorRate(AtThreshold, tag="equal_error_rate"):
    """Equal error rate: the share of errors where as many negatives are let in as positives are kept out.

    Formula: (FPR + FNR) / 2 at the threshold where |FPR - FNR| is smallest; of two that are as near, the higher.

    Parameters
    ----------
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    As torchmetrics' EER. FPR rises and FNR falls with each score that is let in, so they cross once. Bound: of the bucket
    where they do, everything first and last. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rate = sm.EqualErrorRate().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> rate.compute(), rate.threshold()
    (0.5, 0.5)
    """

    about = About(
        best="low",
        formula="(FPR + FNR) / 2 where |FPR - FNR| is smallest",
        bound="the corners of the bucket where the rates cross",
    )

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        before, after, nearer = self._crossing(state)
        value = nearer.errors(nearer)
        if not state.slip and (state.is_exact or after.imbalance() == 0):
            return Limits(value, value, value)
        return Limits(before.errors(after), value, after.errors(before))

    def _cut(self, state: ScoresByLabel) -> int:
        return self._crossing(state)[2].at

    def _crossing(self, state: ScoresByLabel) -> tuple[ROCPoint, ROCPoint, ROCPoint]:
        """Return the last point with FPR < FNR, the one after it, and that of both where they are nearer."""
        cells = occupied(state)
        tp, fp = (Mass(m.digits[:, cells]).through() for m in (state.positives, state.negatives))
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
    """A point of the ROC curve, in integers."""

    at: int
    tp: int
    fp: int
    P: int
    N: int

    def imbalance(self) -> int:
        """FPR - FNR, times P N."""
        return self.fp * self.P - (self.P - self.tp) * self.N

    def errors(self, other: ROCPoint) -> Fraction:
        """The mean of this FPR and the FNR of another point."""
        return (Fraction(self.fp, self.N) + Fraction(self.P - other.tp, self.P)) / 2
