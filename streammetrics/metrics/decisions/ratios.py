"""Precision, recall, F-beta and related metrics of one class, averaged over classes and labels."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading
from ...statistics.classes import ClassTable
from ...statistics.covariance import estimate_means
from ...statistics.row_means import LabelRows, cut_term
from ..averages import AVERAGES
from ..standard_errors import delta
from .base_decisions import DecisionRatio

__all__ = ["F1", "FBeta", "FalsePositiveRate", "Jaccard", "Precision", "Recall", "Specificity"]


class SampledRatio(DecisionRatio):
    """Base class for ratios that can also be computed from the labels of each row (`average="samples"`).

    Parameters
    ----------
    average : {"macro", "micro", "weighted", "samples", None}
        How to combine the values of several classes (each against the rest) or labels. "macro": their mean. "micro":
        one value for the rows of all classes or labels together. "weighted": their mean, weighted by the number of
        positives of each class or label. "samples", for labels only: the mean over rows of a value computed from the
        labels of each row. None: an array with one value for each class or label. Means leave out undefined values, and
        `explain()` counts them. With "samples", the state takes 2 kB, and an update takes about 3 ns per label; the
        value of each row is rounded once, and these values are summed exactly.
    """

    average: str | None = setting(default="macro", choices=(*AVERAGES, "samples"))

    row_term: ClassVar[str] = "row_f"
    """For `average="samples"`: the name of the quantity of each row (such as its F-beta) that the state sums over rows."""
    row_beta: ClassVar[float] = 1.0
    """For `average="samples"`: the beta for which F-beta equals the metric. For Jaccard, it is a beta for which F-beta
    is undefined for the same rows. A metric with a `beta` setting uses that setting instead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "samples" and self.num_labels is None:
            raise ValueError(
                f'{type(self).__name__}: average="samples" averages over rows with several 0/1 labels; pass the number '
                f"of labels as num_labels="
            )

    def make_state(self) -> Any:
        if self.average != "samples":
            return super().make_state()
        assert self.num_labels is not None
        terms = tuple(term for one in self.at_each or [self] for term in one._row_terms)
        return LabelRows(terms=terms, num_labels=self.num_labels, column=self._column)

    @property
    def _row_terms(self) -> tuple[str, str]:
        """The names of two quantities that the state sums over rows.

        The first is the value of a row. The second is 1 if this value is undefined, and 0 otherwise.
        """
        cut = cut_term(self._cut, self.top_k, above=self._cuts_top)
        beta = float(getattr(self, "beta", self.row_beta))
        first = f"row_f@{beta!r}" if self.row_term == "row_f" else self.row_term
        return f"{first}@{cut}", f"lack_f@{beta!r}@{cut}"

    def reading(self, state: Any) -> Reading:
        by_rows = isinstance(state, LabelRows) and not self.at_each
        return mean_over_rows(self, state) if by_rows else super().reading(state)


def mean_over_rows(metric: SampledRatio, state: LabelRows) -> Reading:
    """Return the reading (value and interval) for `average="samples"`, the mean of one value per row."""
    total, weight = _sums(metric, state)
    value = to_float(total, weight)

    def reason() -> str | None:
        return None if weight else "no rows" if not state.rows else "0/0 in every row"

    return Reading(
        state,
        value,
        reason=reason,
        estimate=lambda method: _estimate(metric, state, value),
        details=lambda: {"undefined": to_float(state.total(metric._row_terms[1]))},
    )


def _sums(metric: SampledRatio, state: LabelRows) -> tuple[Any, Any]:
    """Return the sum of the row values and the total weight of the rows in that sum.

    Rows with an undefined value count as `zero_division`. If `zero_division` is NaN, they are left out.
    """
    total, lacking = (state.total(term) for term in metric._row_terms)
    if math.isnan(metric.zero_division):
        return total, state.weight() - lacking
    return total + int(metric.zero_division) * lacking, state.weight()


def _estimate(metric: SampledRatio, state: LabelRows, value: float) -> Estimate:
    """Return the mean over rows with its standard error, computed from the squares of the row values."""
    terms = metric._row_terms
    # `products` contains sums over rows of the product of two quantities. Each key is a pair of quantity indexes: -1 is
    # the weight, and 0 and 1 are the two `terms`. The sum for the key (0, 1) is 0, because the first term is 0 in every
    # row in which the second is 1.
    products = {(-1, -1): state.weight_squared(), (0, 1): 0}
    for i, term in enumerate(terms):
        products |= {(-1, i): state.weight_squared(term), (i, i): state.square(term)}
    found = estimate_means(state.weight(), [state.total(term) for term in terms], products)

    def gradient(ratio: Any, lacking: Any) -> tuple[Any, Any]:
        """Return the partial derivatives of the value with respect to two means over rows.

        `ratio` is the mean of the row values, with undefined values counted as 0. `lacking` is the share of rows with an
        undefined value.
        """
        if math.isnan(metric.zero_division):
            return 1 / (1 - lacking), ratio / (1 - lacking) / (1 - lacking)
        return 1.0, metric.zero_division

    return delta(value, found, gradient, about_of(metric).interval_scale, "delta")


class Precision(SampledRatio, tag="precision"):
    """Precision: the share of positive decisions that are right, TP / (TP + FP).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Precision(threshold=0.3).update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.6666666666666666
    >>> sm.Precision(labels="discover", average=None).update(["a", "b", "c", "b"], ["a", "b", "c", "a"]).compute()
    array([0.5, 1. , 1. ])
    """

    about = About(formula="TP / (TP + FP)")

    row_beta = 0.0

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp, cells.tp + cells.fp)


class Recall(SampledRatio, tag="recall"):
    """Recall, true positive rate or sensitivity: the share of positives that are predicted positive, TP / (TP + FN).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Recall().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.5
    """

    about = About(formula="TP / (TP + FN)")

    row_beta = math.inf

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp, cells.tp + cells.fn)


class FBeta(SampledRatio, tag="fbeta"):
    """F-beta: the weighted harmonic mean of precision and recall, where recall has beta^2 times the weight of precision.

    Formula: (1 + beta^2) * TP / ((1 + beta^2) * TP + beta^2 * FN + FP). The definition matches scikit-learn's
    `fbeta_score`.

    Parameters
    ----------
    beta : float
        The importance of recall relative to precision; 0 gives precision.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FBeta(beta=2).update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(interval_methods=("delta",), formula="(1 + beta^2) TP / ((1 + beta^2) TP + beta^2 FN + FP)")

    beta: float = setting(default=1.0, low=0.0, high=1e100)

    @property
    def name(self) -> str:
        return super().name.replace("fbeta", f"f{self.beta:g}")

    def of(self, cells: ClassTable) -> Quotient:
        square = Fraction(self.beta) ** 2
        return Quotient((1 + square) * cells.tp, (1 + square) * cells.tp + square * cells.fn + cells.fp)


class F1(SampledRatio, tag="f1"):
    """F1: the harmonic mean of precision and recall, 2 * TP / (2 * TP + FP + FN).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. The definition matches
    scikit-learn's `f1_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.F1().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(interval_methods=("delta",), formula="2 TP / (2 TP + FP + FN)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(2 * cells.tp, 2 * cells.tp + cells.fp + cells.fn)


class FalsePositiveRate(DecisionRatio, tag="false_positive_rate"):
    """False positive rate, or fall-out: the share of negatives that are predicted positive, FP / (FP + TN).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalsePositiveRate().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(best="low", formula="FP / (FP + TN)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.fp, cells.fp + cells.tn)


class Specificity(DecisionRatio, tag="specificity"):
    """Specificity, or true negative rate: the share of negatives that are predicted negative, TN / (TN + FP).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Specificity().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(formula="TN / (TN + FP)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tn, cells.tn + cells.fp)


class Jaccard(SampledRatio, tag="jaccard"):
    """Jaccard index, or intersection over union, of positives and positive decisions: TP / (TP + FP + FN).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. The definition matches
    scikit-learn's `jaccard_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Jaccard().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.3333333333333333
    """

    about = About(formula="TP / (TP + FP + FN)")

    row_term = "row_jaccard"

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp, cells.tp + cells.fp + cells.fn)
