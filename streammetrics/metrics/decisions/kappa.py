"""Cohen's kappa: agreement beyond chance, for classes with or without an order."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics.exact import Limits, to_float, weights_in_units
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Quotient
from ...statistics.classes import Margins, PairCounts
from ..standard_errors import from_counts
from .agreement import Agreement, difference_slack, product_of_margins

__all__ = ["CohenKappa"]


class ClassSteps(NamedTuple):
    """Observed and expected disagreement for weighted kappa, where errors are weighted by the distance between classes.

    Parameters
    ----------
    cells : array of int
        The number of rows (or their weight, in units of 2**-60) for each true class and decision.
    apart : int64 array of the same shape
        The distance between the true class and the decision: |j - k| or (j - k)^2.
    off : int
        The observed disagreement: the sum of the distances of all rows, times the number of rows.
    by_chance : int
        The disagreement expected by chance, in the same unit as `off`.
    """

    cells: NDArray[Any]
    apart: NDArray[np.int64]
    off: int
    by_chance: int

    @classmethod
    def of(cls, state: PairCounts, how: str) -> ClassSteps:
        """Compute the distances and both disagreements from the counts in a state; `how` is "linear" or "quadratic"."""
        cells = weights_in_units(*state.confusion_matrix())
        every = np.arange(len(cells))
        steps = np.abs(np.subtract.outer(every, every))
        apart = np.asarray(steps if how == "linear" else steps * steps)
        true, predicted = cells.sum(axis=1), cells.sum(axis=0)
        off, by_chance = (apart * cells).sum() * cells.sum(), (apart * np.multiply.outer(true, predicted)).sum()
        return cls(cells, apart, int(off), int(by_chance))

    def gradient(self) -> NDArray[np.float64]:
        """Return the derivative of kappa with respect to each confusion-matrix count, times the number of rows."""
        total, apart = self.cells.sum(), self.apart.astype(np.float64)
        shares = to_float(self.cells, np.full(self.cells.shape, total, object))
        true, predicted = (to_float(n, np.full(n.shape, total, object)) for n in (self.cells.sum(1), self.cells.sum(0)))
        off = math.fsum((apart * shares).ravel())
        # `row` is the mean distance from each true class to a random decision, and `column` the mean distance from each
        # decision to a random true class. The derivative of the chance disagreement depends on both.
        row = np.array([math.fsum(a * predicted) for a in apart])
        column = np.array([math.fsum(a * true) for a in apart])
        by_chance = np.float64(math.fsum(row * true))
        return np.asarray((off / by_chance * (row[:, None] + column[None, :] - by_chance) - apart) / by_chance)


class CohenKappa(Agreement, tag="cohen_kappa"):
    """Cohen's kappa: the agreement between labels and decisions beyond chance, at most 1.

    Formula: (po - pe) / (1 - pe), where po is the observed agreement and pe the agreement expected by chance. For two
    classes, it is 2 * (TP * TN - FP * FN) / ((TP + FP) * (FP + TN) + (TP + FN) * (FN + TN)). For several classes, it is
    (n * c - sum(t_k * p_k)) / (n^2 - sum(t_k * p_k)). Of the n rows, c are predicted correctly, t_k belong to class k,
    and p_k are predicted to belong to class k. With `weights`, it is 1 - n * sum(d_jk * n_jk) / sum(d_jk * t_j * p_k).
    Here n_jk rows of class j are predicted to belong to class k, and d_jk is |j - k| or (j - k)^2.

    Parameters
    ----------
    weights : {None, "linear", "quadratic"}
        How to weight errors. None: all errors count equally. "linear": in proportion to the distance between the two
        classes in their order. "quadratic": in proportion to the square of this distance.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. The definition matches
    scikit-learn's `cohen_kappa_score`. Discovered classes are in ascending order, as in scikit-learn.

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
        """Return whether errors are weighted by distance.

        Weights have no effect with two classes, because every error then has distance 1.
        """
        return self.weights is not None and isinstance(state, PairCounts)

    def of(self, margins: Margins | ClassSteps) -> Quotient:
        if isinstance(margins, ClassSteps):
            return Quotient(margins.by_chance - margins.off, margins.by_chance)
        total, chance = margins.total, product_of_margins(margins)
        return Quotient(total * sum(margins.correct) - chance, total * total - chance)

    def slack(self, margins: Margins | ClassSteps, limits: Limits, rounding: Fraction) -> Fraction:
        if isinstance(margins, ClassSteps):
            return 8 * rounding * Fraction(margins.off, margins.by_chance or 1)
        total, chance = margins.total, product_of_margins(margins)
        products, divisor = total * sum(margins.correct) + chance, Fraction(total * total - chance or 1)
        return difference_slack(products, divisor, limits, rounding)

    def gradient(self, right: Any, true: Any, predicted: Any) -> Any:
        agreed, by_chance = math.fsum(right), math.fsum(true * predicted)
        left = np.float64(1 - by_chance)
        of_chance = predicted[:, None] + true[None, :] - 2 * by_chance
        return (np.eye(len(true)) - agreed) / left - (1 - agreed) / left / left * of_chance

    def estimate(self, reading: Any, method: str) -> Estimate:
        steps = reading.view
        if not isinstance(steps, ClassSteps):
            return super().estimate(reading, method)
        with np.errstate(divide="ignore", invalid="ignore"):
            return from_counts(
                reading.value, steps.cells.astype(np.int64), steps.gradient(), about_of(self).interval_scale
            )
