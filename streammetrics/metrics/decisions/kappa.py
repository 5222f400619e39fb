"""Cohen's kappa: agreement beyond chance, of classes or of steps on a scale."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics.exact import Limits, to_float, weights
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Quotient
from ...statistics.classes import Margins, PairCounts
from ..standard_errors import from_counts
from .agreement import Agreement, crossed, difference_slack

__all__ = ["CohenKappa"]


class ClassSteps(NamedTuple):
    """How far decisions are off, where classes are steps on a scale.

    Parameters
    ----------
    cells : array of int
        Rows, or weight in units of 2**-60, by true class and decision.
    apart : int64 array of the same shape
        How far a class is from another one.
    off, by_chance : int
        The rows times how far decisions are off, times all rows; and what that would be by chance.
    """

    cells: NDArray[Any]
    apart: NDArray[np.int64]
    off: int
    by_chance: int

    @classmethod
    def of(cls, state: PairCounts, how: str) -> ClassSteps:
        """Read a state; steps are "linear" or "quadratic"."""
        cells = weights(*state.square())
        every = np.arange(len(cells))
        steps = np.abs(np.subtract.outer(every, every))
        apart = np.asarray(steps if how == "linear" else steps * steps)
        true, predicted = cells.sum(axis=1), cells.sum(axis=0)
        off, by_chance = (apart * cells).sum() * cells.sum(), (apart * np.multiply.outer(true, predicted)).sum()
        return cls(cells, apart, int(off), int(by_chance))

    def gradient(self) -> NDArray[np.float64]:
        """Return what a row of each cell adds to kappa, times all rows."""
        total, apart = self.cells.sum(), self.apart.astype(np.float64)
        shares = to_float(self.cells, np.full(self.cells.shape, total, object))
        true, predicted = (to_float(n, np.full(n.shape, total, object)) for n in (self.cells.sum(1), self.cells.sum(0)))
        off = math.fsum((apart * shares).ravel())
        row = np.array([math.fsum(a * predicted) for a in apart])  # how far a class is off by chance
        column = np.array([math.fsum(a * true) for a in apart])
        by_chance = np.float64(math.fsum(row * true))
        return np.asarray((off / by_chance * (row[:, None] + column[None, :] - by_chance) - apart) / by_chance)


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

    about = About(
        formula="2 (TP TN - FP FN) / ((TP + FP)(FP + TN) + (TP + FN)(FN + TN))",
        value_range=(None, 1),
        interval_scale="fisher",
    )

    weights: str | None = setting(default=None, choices=(None, "linear", "quadratic"))

    @property
    def name(self) -> str:
        return super().name + (f"_{self.weights}" if self.weights else "")

    def _view(self, state: Any) -> Any:
        return ClassSteps.of(state, str(self.weights)) if self._has_steps(state) else super()._view(state)

    def _has_steps(self, state: Any) -> bool:
        """Return whether classes are steps on a scale; of two classes there is one step."""
        return self.weights is not None and isinstance(state, PairCounts)

    def of(self, margins: Margins | ClassSteps) -> Quotient:
        if isinstance(margins, ClassSteps):
            return Quotient(margins.by_chance - margins.off, margins.by_chance)
        total, chance = margins.total, crossed(margins)
        return Quotient(total * sum(margins.right) - chance, total * total - chance)

    def slack(self, margins: Margins | ClassSteps, found: Limits, rounding: Fraction) -> Fraction:
        if isinstance(margins, ClassSteps):
            return 8 * rounding * Fraction(margins.off, margins.by_chance or 1)
        total, chance = margins.total, crossed(margins)
        products, divisor = total * sum(margins.right) + chance, Fraction(total * total - chance or 1)
        return difference_slack(products, divisor, found, rounding)

    def gradient(self, right: Any, true: Any, predicted: Any) -> Any:
        agreed, by_chance = math.fsum(right), math.fsum(true * predicted)
        left = np.float64(1 - by_chance)
        of_chance = predicted[:, None] + true[None, :] - 2 * by_chance
        return (np.eye(len(true)) - agreed) / left - (1 - agreed) / left / left * of_chance

    def estimate(self, found: Any, method: str) -> Estimate:
        steps = found.view
        if not isinstance(steps, ClassSteps):
            return super().estimate(found, method)
        with np.errstate(divide="ignore", invalid="ignore"):
            return from_counts(
                found.value, steps.cells.astype(np.int64), steps.gradient(), about_of(self).interval_scale
            )
