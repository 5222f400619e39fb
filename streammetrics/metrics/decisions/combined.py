"""Numbers that combine rates of one class against the rest: differences, quotients and roots of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ...collect.interval import Estimate
from ...numerics.exact import Limits
from ...statistics.classes import Table
from ...statistics.labels import DecisionCounts
from .counted import DecisionRatio, instead

__all__ = [
    "DiagnosticOddsRatio",
    "FowlkesMallows",
    "Informedness",
    "Markedness",
    "NegativeLikelihoodRatio",
    "PositiveLikelihoodRatio",
    "PrevalenceThreshold",
]

NAN = float("nan")


class CombinedRates(DecisionRatio):
    """A function of rates whose standard error is that of its tangent."""

    methods: ClassVar[tuple[str, ...]] = ("delta",)

    def relative_variance(self, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        """Return the variance of the logarithm of the value, from counts; for values on a scale of ratios."""
        raise NotImplementedError

    def chance(self, state: Any, value: Any, method: str) -> Estimate:
        cells = [np.asarray(n, np.float64) for n in state.cells_at(self._cut)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return Estimate(value, self.error(np.asarray(value, np.float64), *cells), self.interval_scale)

    def error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        """Return the standard error from counts of rows."""
        return value * np.sqrt(self.relative_variance(tn, fp, fn, tp))


class Contrast(CombinedRates):
    """The sum of two shares, less 1: (TP TN - FP FN) over the product of the divisors of both."""

    within = (-1, 1)
    interval_scale = "fisher"

    def slack(self, state: Any, found: Limits, slip: Fraction) -> Fraction:
        return 16 * slip  # of each of both products over the divisors, which are 1 at most


class Informedness(Contrast, tag="informedness"):
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

    formula = "TP / (TP + FN) + TN / (TN + FP) - 1"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp * tn - fp * fn, (tp + fn) * (tn + fp)

    def error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return np.sqrt(tp * fn / (tp + fn) ** 3 + tn * fp / (tn + fp) ** 3)


class Markedness(Contrast, tag="markedness"):
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

    formula = "TP / (TP + FP) + TN / (TN + FN) - 1"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp * tn - fp * fn, (tp + fp) * (tn + fn)

    def error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return np.sqrt(tp * fp / (tp + fp) ** 3 + tn * fn / (tn + fn) ** 3)


class Odds(CombinedRates):
    """A quotient of rates, from 0 up."""

    within = (0, None)
    interval_scale = "log"


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

    formula = "recall / false positive rate"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp * (fp + tn), fp * (tp + fn)

    def relative_variance(self, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return fn / tp / (tp + fn) + tn / fp / (fp + tn)


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

    best = "low"
    formula = "false negative rate / specificity"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return fn * (fp + tn), tn * (tp + fn)

    def relative_variance(self, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return tp / fn / (tp + fn) + fp / tn / (fp + tn)


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

    formula = "TP TN / (FP FN)"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp * tn, fp * fn

    def relative_variance(self, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        return 1 / tn + 1 / fp + 1 / fn + 1 / tp


class Rooted(CombinedRates):
    """A function of roots, which no quotient of integers is."""

    stacks = False
    interval_scale = "logit"

    def limits_of(self, tn: int, fp: int, fn: int, tp: int) -> Limits | None:
        """Return the value from the cells, before rounding; None if it is undefined."""
        raise NotImplementedError

    def limits_binary(self, state: DecisionCounts | Table) -> Limits | None:
        return self.limits_of(*state.cells_at(self._cut)) or instead(self.zero_division)

    def of_binary(self, state: Any) -> float:
        found = self.limits_binary(state)
        return NAN if found is None else found.rounded()


class FowlkesMallows(Rooted, tag="fowlkes_mallows"):
    """Fowlkes-Mallows index of decisions, or G-measure: the geometric mean of precision and recall.

    Formula: TP / sqrt((TP + FP)(TP + FN)).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for FalsePositiveRate.

    Notes
    -----
    river's `FowlkesMallows`, and F-beta's geometric kin; of two clusterings it is `FowlkesMallowsIndex`, which
    scikit-learn's `fowlkes_mallows_score` is. Exact integers, one square root. 64 bytes, 8 a pair of classes; under 1 ns a
    row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FowlkesMallows().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    formula = "TP / sqrt((TP + FP)(TP + FN))"

    def limits_of(self, tn: int, fp: int, fn: int, tp: int) -> Limits | None:
        both = (tp + fp) * (tp + fn)
        return Limits.root(Fraction(tp * tp, both)) if both else None

    def relative_variance(self, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        p, r = tp + fp, tp + fn  # d log = dTP / TP - (dTP + dFP) / 2p - (dTP + dFN) / 2r
        return tp * (1 / tp - 0.5 / p - 0.5 / r) ** 2 + fp * (0.5 / p) ** 2 + fn * (0.5 / r) ** 2


class PrevalenceThreshold(Rooted, tag="prevalence_threshold"):
    """Prevalence threshold: the prevalence below which the precision of such decisions falls off most steeply.

    Formula: sqrt(FPR) / (sqrt(TPR) + sqrt(FPR)) = (sqrt(TPR FPR) - FPR) / (TPR - FPR).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for FalsePositiveRate.

    Notes
    -----
    Source: Balayla, "Prevalence threshold and the geometry of screening curves" (2020). Undefined without positives,
    without negatives, and where nothing is called positive. Exact integers, two square roots. 64 bytes, 8 a pair of
    classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PrevalenceThreshold().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    best = "low"
    formula = "sqrt(FPR) / (sqrt(TPR) + sqrt(FPR))"

    def limits_of(self, tn: int, fp: int, fn: int, tp: int) -> Limits | None:
        negatives, positives = tn + fp, fn + tp
        if not negatives or not positives or not fp + tp:
            return None
        if not fp or not tp:
            return Limits.exactly(int(not tp))
        odds = Limits.root(Fraction(tp * negatives, fp * positives))  # 1 / (1 + sqrt(TPR / FPR))
        return Limits(*(1 / (1 + x) for x in (odds.high, odds.value, odds.low)))

    def error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        rates = fn / tp / (tp + fn) + tn / fp / (fp + tn)  # the variance of log(TPR / FPR)
        return value * (1 - value) / 2 * np.sqrt(rates)
