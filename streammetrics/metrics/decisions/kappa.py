"""Cohen's kappa: agreement beyond chance, of classes or of steps on a scale."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.interval import Estimate
from ...numerics.exact import Limits, to_float, weights
from ...numerics.settings import setting
from ...statistics.classes import Margins, PairCounts
from ..chance import from_counts
from .agreement import Agreement, crossed, difference_slack

__all__ = ["CohenKappa"]


class CohenKappa(Agreement, tag="cohen_kappa"):
    """Cohen's kappa: agreement of labels and decisions beyond chance, at most 1.

    Formula: (po - pe) / (1 - pe) = 2 (TP TN - FP FN) / ((TP + FP)(FP + TN) + (TP + FN)(FN + TN)); of several classes, in
    the notation of MatthewsCorrcoef, (n c - sum t_k p_k) / (n^2 - sum t_k p_k). With weights, of n_jk rows of class j
    called k, 1 - n sum d_jk n_jk / sum d_jk t_j p_k, where d_jk is |j - k| or (j - k)^2.

    Parameters
    ----------
    weights : {None, "linear", "quadratic"}
        How wrong it is to take one class for another: all alike; or by how many classes lie between, in their order.
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.
    Definition as scikit-learn's `cohen_kappa_score`. Found classes are in ascending order, as there.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CohenKappa().update([0, 0, 1, 1], [0.1, 0.2, 0.6, 0.8]).compute()
    1.0
    >>> sm.CohenKappa(weights="linear", labels="discover").update([1, 2, 3, 3], [1, 2, 2, 3]).compute()
    0.7142857142857143
    """

    weights: str | None = setting(default=None, choices=(None, "linear", "quadratic"))

    formula = "2 (TP TN - FP FN) / ((TP + FP)(FP + TN) + (TP + FN)(FN + TN))"

    within = (None, 1)
    interval_scale = "fisher"

    @property
    def name(self) -> str:
        return super().name + (f"_{self.weights}" if self.weights else "")

    def influence(self, right: Any, true: Any, predicted: Any) -> Any:
        agreed, by_chance = math.fsum(right), math.fsum(true * predicted)
        left = np.float64(1 - by_chance)
        of_chance = predicted[:, None] + true[None, :] - 2 * by_chance
        return (np.eye(len(true)) - agreed) / left - (1 - agreed) / left / left * of_chance

    def limits_of_margins(self, margins: Margins) -> Limits | None:
        total, chance = margins.total, crossed(margins)
        return self.over(total * sum(margins.right) - chance, total * total - chance)

    def slack_of_margins(self, margins: Margins, found: Limits, slip: Fraction) -> Fraction:
        total, chance = margins.total, crossed(margins)
        return difference_slack(total * sum(margins.right) + chance, Fraction(total * total - chance or 1), found, slip)

    # -- steps on a scale: of two classes there is one ----------------------------------------------------------------

    def _steps(self, state: Any) -> bool:
        return self.weights is not None and isinstance(state, PairCounts)

    def _apart(self, state: PairCounts) -> tuple[int, int]:
        """The rows times how far decisions are off, and what that would be by chance."""
        cells = weights(*state.square())
        apart = self._distances(len(cells)).astype(object)
        true, predicted = cells.sum(axis=1), cells.sum(axis=0)
        return int((apart * cells).sum() * cells.sum()), int((apart * np.multiply.outer(true, predicted)).sum())

    def _distances(self, classes: int) -> NDArray[np.int64]:
        steps = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes)))
        return np.asarray(steps if self.weights == "linear" else steps * steps)

    def limits_binary(self, state: Any) -> Limits | None:
        if not self._steps(state):
            return super().limits_binary(state)
        off, by_chance = self._apart(state)
        return self.over(by_chance - off, by_chance)

    def slack(self, state: Any, found: Limits, slip: Fraction) -> Fraction:
        if not self._steps(state):
            return super().slack(state, found, slip)
        off, by_chance = self._apart(state)
        return 8 * slip * Fraction(off, by_chance or 1)

    def chance(self, state: Any, value: Any, method: str) -> Estimate:
        if not self._steps(state) or math.isnan(value):
            return super().chance(state, value, method)
        rows, _ = state.square()
        shares = np.array([[to_float(n, int(rows.sum())) for n in row] for row in rows.tolist()])
        apart = self._distances(len(rows)).astype(np.float64)
        _, true, predicted = (np.array([to_float(n, int(rows.sum())) for n in part]) for part in self._margins(state))
        off = math.fsum((apart * shares).ravel())
        row = np.array([math.fsum(a * predicted) for a in apart])  # how far a class is off by chance
        column = np.array([math.fsum(a * true) for a in apart])
        by_chance = np.float64(math.fsum(row * true))
        with np.errstate(divide="ignore", invalid="ignore"):
            tangent = (off / by_chance * (row[:, None] + column[None, :] - by_chance) - apart) / by_chance
            return from_counts(value, rows, tangent, self.interval_scale)
