"""Numbers that combine rates of one class against the rest: sums and quotients of them."""

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
    """A function of rates whose standard error is that of its tangent."""

    about = About(interval_methods=("delta",))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        """Return the standard error from counts of rows; of cells side by side an array."""
        raise NotImplementedError

    def estimate(self, found: Any, method: str) -> Estimate:
        cells = [np.asarray(n, np.float64) for n in found.view]
        with np.errstate(divide="ignore", invalid="ignore"):
            error = self._error(np.asarray(found.value, np.float64), *cells)
        return Estimate(found.value, error, about_of(self).interval_scale)


class SumOfShares(CombinedRates):
    """The sum of two shares, less 1: (TP TN - FP FN) over the product of the divisors of both."""

    about = About(value_range=(-1, 1), interval_scale="fisher")

    def slack(self, cells: ClassTable, found: Limits, rounding: Fraction) -> Fraction:
        return 16 * rounding  # of each of both products over the divisors, which are 1 at most


class Informedness(SumOfShares, tag="informedness"):
    """Informedness, or Youden's J: recall plus specificity less 1, from -1 to 1; 0 by chance.

    Formula: TP / (TP + FN) + TN / (TN + FP) - 1 = (TP TN - FP FN) / ((TP + FN)(TN + FP)).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for FalsePositiveRate.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row. Undefined without positives or without
    negatives. Of several classes together it is `BalancedAccuracy(adjusted=True)`.

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
    """Markedness: precision plus negative predictive value less 1, from -1 to 1; 0 by chance.

    Formula: TP / (TP + FP) + TN / (TN + FN) - 1 = (TP TN - FP FN) / ((TP + FP)(TN + FN)).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for FalsePositiveRate.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row. Undefined where all rows are decided
    alike.

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
    """Of a share of x in x + y rows; without numpy's power, whose bits differ between processors."""
    n = x + y
    return x * y / (n * n * n)


class Odds(CombinedRates):
    """A quotient of rates, from 0 up."""

    about = About(value_range=(0, None), interval_scale="log")


class PositiveLikelihoodRatio(Odds, tag="positive_likelihood_ratio"):
    """Positive likelihood ratio: how many times as often positives are called positive as negatives are.

    Formula: recall / false positive rate = TP (FP + TN) / (FP (TP + FN)).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, on_invalid
        As for FalsePositiveRate.
    zero_division : {nan, 0.0, 1.0}
        The value where there are no positives, or no false ones: a quotient by 0.

    Notes
    -----
    The first of scikit-learn's `class_likelihood_ratios`, whose `replace_undefined_by` is `zero_division`. Exact
    integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PositiveLikelihoodRatio().update([0, 0, 1, 1], [0.1, 0.6, 0.7, 0.8]).compute()
    2.0
    """

    about = About(formula="recall / false positive rate")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp * (cells.fp + cells.tn), cells.fp * (cells.tp + cells.fn))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return value * np.sqrt(fn / tp / (tp + fn) + tn / fp / (fp + tn))


class NegativeLikelihoodRatio(Odds, tag="negative_likelihood_ratio"):
    """Negative likelihood ratio: how many times as often positives are called negative as negatives are.

    Formula: false negative rate / specificity = FN (FP + TN) / (TN (TP + FN)).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for PositiveLikelihoodRatio.

    Notes
    -----
    The second of scikit-learn's `class_likelihood_ratios`. Exact integers, one division. 64 bytes, 8 a pair of classes;
    under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NegativeLikelihoodRatio().update([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.8]).compute()
    0.5
    """

    about = About(best="low", formula="false negative rate / specificity")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.fn * (cells.fp + cells.tn), cells.tn * (cells.tp + cells.fn))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return value * np.sqrt(tp / fn / (tp + fn) + fp / tn / (fp + tn))


class DiagnosticOddsRatio(Odds, tag="diagnostic_odds_ratio"):
    """Diagnostic odds ratio: the odds of a positive decision on positives over those on negatives.

    Formula: TP TN / (FP FN), the positive over the negative likelihood ratio.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for PositiveLikelihoodRatio.

    Notes
    -----
    Undefined where nothing is wrong of one kind. Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a
    row.

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
