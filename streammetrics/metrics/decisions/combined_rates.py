"""Metrics that add or divide rates of one class against the rest, such as informedness and the odds ratio."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ...numerics.exact import Limits
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Quotient
from ...statistics.classes import ClassTable
from .base_decisions import DecisionRatio

__all__ = [
    "DiagnosticOddsRatio",
    "Informedness",
    "Markedness",
    "NegativeLikelihoodRatio",
    "PositiveLikelihoodRatio",
]


class CombinedRates(DecisionRatio):
    """Base class for metrics that combine several rates, such as TPR and FPR. Standard errors use the delta method."""

    about = About(interval_methods=("delta",))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        """Compute the standard error from row counts, as an array if there are several cells (such as slices)."""
        raise NotImplementedError

    def estimate(self, reading: Any, method: str) -> Estimate:
        cells = [np.asarray(n, np.float64) for n in reading.view]
        with np.errstate(divide="ignore", invalid="ignore"):
            error = self._error(np.asarray(reading.value, np.float64), *cells)
        return Estimate(reading.value, error, about_of(self).interval_scale)


class SumOfShares(CombinedRates):
    """Base class for metrics that are the sum of two shares minus 1, such as recall + specificity - 1.

    Written as one quotient, the value is (TP * TN - FP * FN) divided by the product of the denominators of the two
    shares.
    """

    about = About(value_range=(-1, 1), interval_scale="fisher")

    def slack(self, cells: ClassTable, limits: Limits, rounding: Fraction) -> Fraction:
        # The value is TP * TN / D - FP * FN / D, where D is the product of the two denominators. Both terms are at most
        # 1, so the absolute error of each is at most its relative error, which is a small multiple of `rounding`.
        return 16 * rounding


class Informedness(SumOfShares, tag="informedness"):
    """Informedness, or Youden's J: recall plus specificity minus 1, from -1 to 1; the value is 0 for random decisions.

    Formula: TP / (TP + FN) + TN / (TN + FP) - 1 = (TP * TN - FP * FN) / ((TP + FN) * (TN + FP)).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. For a single value over
    several classes, use `BalancedAccuracy(adjusted=True)`. The value is undefined without positives or without
    negatives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Informedness().update([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8]).compute()
    0.5
    """

    about = About(formula="TP / (TP + FN) + TN / (TN + FP) - 1")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp * cells.tn - cells.fp * cells.fn, (cells.tp + cells.fn) * (cells.tn + cells.fp))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return np.sqrt(_variance(tp, fn) + _variance(tn, fp))


class Markedness(SumOfShares, tag="markedness"):
    """Markedness: precision plus negative predictive value minus 1, from -1 to 1; it is 0 for random decisions.

    Formula: TP / (TP + FP) + TN / (TN + FN) - 1 = (TP * TN - FP * FN) / ((TP + FP) * (TN + FN)).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. The value is undefined if
    all decisions are the same.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Markedness().update([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.8]).compute()
    0.6666666666666666
    """

    about = About(formula="TP / (TP + FP) + TN / (TN + FN) - 1")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp * cells.tn - cells.fp * cells.fn, (cells.tp + cells.fp) * (cells.tn + cells.fn))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return np.sqrt(_variance(tp, fp) + _variance(tn, fn))


def _variance(x: Any, y: Any) -> Any:
    """Return the variance of the share x / (x + y), which is x * y / (x + y)**3.

    The power is computed as a product, because the last bits of numpy's power function differ between processors.
    """
    n = x + y
    return x * y / (n * n * n)


class Odds(CombinedRates):
    """Base class for metrics that are a quotient of rates: likelihood ratios and the odds ratio."""

    about = About(value_range=(0, None), interval_scale="log")


class PositiveLikelihoodRatio(Odds, tag="positive_likelihood_ratio"):
    """Positive likelihood ratio: the true positive rate (recall) divided by the false positive rate.

    Formula: recall / false positive rate = TP * (FP + TN) / (FP * (TP + FN)).

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value if the denominator is 0 because there are no positives or no false positives.

    Notes
    -----
    The value is the first of the two that scikit-learn's `class_likelihood_ratios` returns; its parameter
    `replace_undefined_by` corresponds to `zero_division`. The value is exact up to one rounding, because exact integer
    counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PositiveLikelihoodRatio().update([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8]).compute()
    2.0
    """

    about = About(formula="(TP / (TP + FN)) / (FP / (FP + TN))")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp * (cells.fp + cells.tn), cells.fp * (cells.tp + cells.fn))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return value * np.sqrt(fn / tp / (tp + fn) + tn / fp / (fp + tn))


class NegativeLikelihoodRatio(Odds, tag="negative_likelihood_ratio"):
    """Negative likelihood ratio: the false negative rate divided by the true negative rate (specificity).

    Formula: false negative rate / specificity = FN * (FP + TN) / (TN * (TP + FN)).

    Notes
    -----
    The value is the second of the two that scikit-learn's `class_likelihood_ratios` returns. The value is exact up to
    one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NegativeLikelihoodRatio().update([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.8]).compute()
    0.5
    """

    about = About(best="low", formula="(FN / (FN + TP)) / (TN / (TN + FP))")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.fn * (cells.fp + cells.tn), cells.tn * (cells.tp + cells.fn))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return value * np.sqrt(tp / fn / (tp + fn) + fp / tn / (fp + tn))


class DiagnosticOddsRatio(Odds, tag="diagnostic_odds_ratio"):
    """Diagnostic odds ratio: the odds of a positive decision for positives, divided by the same odds for negatives.

    Formula: TP * TN / (FP * FN), the positive likelihood ratio over the negative one.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. The value is undefined
    without false positives or without false negatives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.DiagnosticOddsRatio().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.3, 0.7, 0.8]).compute()
    4.0
    """

    about = About(formula="TP TN / (FP FN)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp * cells.tn, cells.fp * cells.fn)

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return value * np.sqrt(1 / tn + 1 / fp + 1 / fn + 1 / tp)
