"""Metrics of the whole confusion matrix: the matrix itself, accuracy, balanced accuracy and agreement beyond chance."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.exact import UNIT, Limits, to_float, weights_in_units
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import OwnReading, Quotient, Reading
from ...statistics.by_label import ByLabel
from ...statistics.classes import Margins, PairCounts
from ..averages import of_each
from .base_decisions import DecisionMetric, read_decisions_side_by_side
from .multiclass import WholeMatrix

__all__ = ["Accuracy", "BalancedAccuracy", "ConfusionMatrix", "ErrorRate", "MatthewsCorrcoef"]

NAN = float("nan")
# For up to this many classes, recalls are summed as exact fractions.
FEW = 16
# For more than FEW classes, the common denominator of the recalls would be huge, so they are summed as fixed-point
# numbers with this many fractional bits.
EXTRA = 128


class ConfusionMatrix(DecisionMetric[NDArray[Any]], tag="confusion_matrix"):
    """Confusion matrix: the number of rows by true class and decision; for two classes, [[TN, FP], [FN, TP]].

    Parameters
    ----------
    num_labels : int
        The number of 0/1 labels per row. The value is then an array of shape (num_labels, 2, 2), with one matrix per
        label, as in scikit-learn's `multilabel_confusion_matrix`.
    normalize : {None, "true", "pred", "all"}
        The divisor of each count, as in scikit-learn's `confusion_matrix`. "true": the number of rows with the same
        true label. "pred": the number of rows with the same decision. "all": the number of all rows. By default, counts
        are not divided.

    Notes
    -----
    Counts are exact int64 numbers, or float64 if rows are weighted or counts are normalized. With `labels="discover"`
    the state takes 100 bytes per pair of classes that occurs, and an update takes 10 ns per row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ConfusionMatrix().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    array([[1, 1],
           [1, 1]])
    >>> sm.ConfusionMatrix(labels=("cat", "dog"), threshold=None).update(["dog", "cat"], ["dog", "dog"]).compute()
    array([[0, 1],
           [0, 1]])
    """

    about = About(
        best=None,
        no_interval_reason="a matrix has no single standard error; Accuracy, Recall and Precision have intervals",
        formula=(
            "element [j, k] is the number of rows of true class j with decision k; [[TN, FP], [FN, TP]] for two classes"
        ),
        # Counts grow with the number of rows; normalized counts do not.
        extensive=About.per_instance(lambda metric: metric.normalize is None),
    )

    normalize: str | None = setting(default=None, choices=(None, "true", "pred", "all"))

    def of(self, state: Any) -> NDArray[Any]:
        rows, excess = state.confusion_matrix() if isinstance(state, PairCounts) else state.counts_at(self._cut)
        if self.normalize is None and excess is None:
            return np.array(rows)
        cells = weights_in_units(rows, excess)
        if self.normalize is None:
            return to_float(cells, np.full(cells.shape, UNIT, object))
        totals = {"true": cells.sum(1)[:, None], "pred": cells.sum(0)[None, :], "all": cells.sum()}[self.normalize]
        return to_float(cells, np.broadcast_to(np.asarray(totals, object), cells.shape))

    def names_of(self, state: Any) -> list[Any]:
        """Return the class names in the order of the rows and columns of the matrix."""
        return state.class_names() if isinstance(state, PairCounts) else [0, 1]

    def read(self, state: Any) -> Reading:
        return OfMatrix(self, state)

    def reading(self, state: Any) -> Reading:
        if self.at_each:
            return self._stack(state, [one.reading(state) for one in self.at_each])
        return (
            self._stack(state, of_each(self.read, state.split_classes()))
            if isinstance(state, ByLabel)
            else self.read(state)
        )

    def _stack(self, state: Any, parts: list[Reading]) -> Reading:
        """Return one reading whose value stacks the matrices in `parts`, one for each threshold or label."""
        return Reading(state, lambda: np.array([one.value for one in parts]), reason=partial(self.reason, state))


class OfMatrix(OwnReading):
    """The reading of a confusion matrix: the matrix, with the class names as details for `explain()`."""

    def _details(self) -> dict[str, Any]:
        return {"names": self.metric.names_of(self.state)} if isinstance(self.state, PairCounts) else {}


class Agreement(WholeMatrix):
    """Base class for metrics that are a quotient of functions of the whole confusion matrix, such as accuracy.

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value if the quotient is 0/0.
    """

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))


def product_of_margins(margins: Margins) -> int:
    """Return the sum over classes of (rows of the class) * (rows predicted as the class).

    The sum, divided by the number of rows, is the number of correct predictions expected by chance.
    """
    return sum(t * p for t, p in zip(margins.true, margins.predicted, strict=True))


def difference_slack(products: int, divisor: Fraction, limits: Limits, rounding: Fraction) -> Fraction:
    """Return how far the rounding of weights can move a quotient whose numerator is a difference of products of weights.

    Parameters
    ----------
    products : int
        The sum of the products in the numerator.
    divisor : Fraction
        The denominator of the quotient.
    limits : Limits
        The value of the quotient, with its bounds.
    rounding : Fraction
        The largest relative error of each weight.
    """
    return rounding * (4 * products / divisor + 8 * max(abs(limits.low), abs(limits.high)))


class DecisionShare(Agreement):
    """Base class for metrics that are a share of all decisions, such as accuracy, with Wilson intervals."""

    about = About(read_cells=read_decisions_side_by_side, interval_methods=("wilson", "delta"))


class Accuracy(DecisionShare, tag="accuracy"):
    """Accuracy: the share of rows for which the decision, or the predicted class, is right.

    Parameters
    ----------
    average : {"macro", "micro", "weighted", None}
        How to combine the values of several labels. "macro": their mean. "micro": one value for all labels together.
        "weighted": their mean, weighted by the number of positives of each label. None: an array with one value for
        each label. For several classes there is a single value, and only "macro" is allowed.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Accuracy().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(formula="(TP + TN) / (TP + TN + FP + FN)")

    def of(self, margins: Margins) -> Quotient:
        return Quotient(sum(margins.correct), margins.total)


class ErrorRate(DecisionShare, tag="error_rate"):
    """Error rate: the share of rows for which the decision, or the predicted class, is wrong; it is 1 - Accuracy.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ErrorRate().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(best="low", formula="(FP + FN) / (TP + TN + FP + FN)")

    def of(self, margins: Margins) -> Quotient:
        return Quotient(margins.total - sum(margins.correct), margins.total)


class BalancedAccuracy(WholeMatrix, tag="balanced_accuracy"):
    """Balanced accuracy: the mean recall of the true classes that occur; for two, the mean of recall and specificity.

    Parameters
    ----------
    adjusted : bool
        Whether the value A is adjusted for chance: (A - 1/K) / (1 - 1/K) if K true classes occur. For two classes, this
        is Informedness.

    Notes
    -----
    The value is computed from exact integer counts and rounded only once. The definition matches scikit-learn's
    `balanced_accuracy_score`. The adjusted value is undefined if all rows are of one class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.BalancedAccuracy().update([0, 0, 0, 1], [0.1, 0.2, 0.6, 0.8]).compute()
    0.8333333333333334
    """

    about = About(
        formula="(TP / (TP + FN) + TN / (TN + FP)) / 2",
        # The adjusted value is negative if the decisions are worse than chance.
        value_range=About.per_instance(lambda metric: (-1 if metric.adjusted else 0, 1)),
    )

    adjusted: bool = setting(default=False)

    @property
    def name(self) -> str:
        return super().name + ("_adjusted" if self.adjusted else "")

    def gradient(self, right: Any, true: Any, predicted: Any) -> Any:
        occurs = true > 0
        of_class, count = np.where(occurs, true, 1.0)[:, None], np.count_nonzero(occurs)
        # The value A is the sum of `count` recalls, divided by `count`. The adjusted value,
        # (count * A - 1) / (count - 1), is the same sum minus 1, divided by `count` - 1. So the gradient of the sum is
        # divided by `count` or `count` - 1.
        over = count - 1 if self.adjusted else count
        return occurs[:, None] * (np.eye(len(true)) - right[:, None] / of_class) / of_class / np.float64(over)

    def of(self, margins: Margins) -> Limits | None:
        known = [(right, true) for right, true in zip(margins.correct, margins.true, strict=True) if true]
        found = self._mean(known)
        if found is None or not self.adjusted:
            return found
        k = len(known)
        return None if k == 1 else Limits(*((k * x - 1) / (k - 1) for x in found))

    def slack(self, margins: Margins, limits: Limits, rounding: Fraction) -> Fraction:
        return 16 * rounding if self.adjusted else super().slack(margins, limits, rounding)

    def reason(self, margins: Margins) -> str | None:
        return "all rows have the same class" if self.adjusted and margins.total else super().reason(margins)

    def _mean(self, quotients: list[tuple[int, int]]) -> Limits | None:
        if len(quotients) <= FEW:
            return Limits.exactly(sum((Fraction(*pair) for pair in quotients), Fraction(0)), len(quotients))
        # Each quotient becomes a fixed-point number, rounded down by less than one unit in the last place. In these
        # units, the true sum is therefore between `low` and `low` plus the number of quotients.
        whole = len(quotients) << EXTRA
        low = sum((right << EXTRA) // true for right, true in quotients)
        return Limits(
            Fraction(low, whole), Fraction(2 * low + len(quotients), 2 * whole), Fraction(low + len(quotients), whole)
        )


class MatthewsCorrcoef(Agreement, tag="matthews_corrcoef"):
    """Matthews correlation coefficient: the correlation between labels and decisions, from -1 to 1.

    Formula: (TP * TN - FP * FN) / sqrt((TP + FP) * (TP + FN) * (TN + FP) * (TN + FN)). For several classes it is (n * c
    - sum(t_k * p_k)) / sqrt((n^2 - sum(t_k^2)) * (n^2 - sum(p_k^2))). Of the n rows, c are predicted correctly, t_k
    belong to class k, and p_k are predicted to belong to class k.

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value if the denominator is 0, because all rows have the same true class or the same decision. scikit-learn's
        `matthews_corrcoef` returns 0.

    Notes
    -----
    The value is computed from exact integer counts; only the square root is rounded.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MatthewsCorrcoef().update([0, 0, 1, 1], [0.1, 0.2, 0.6, 0.8]).compute()
    1.0
    """

    about = About(
        formula="(TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN))",
        value_range=(-1, 1),
        interval_scale="fisher",
    )

    def gradient(self, right: Any, true: Any, predicted: Any) -> Any:
        agreed, crossed = np.float64(math.fsum(right)), math.fsum(true * predicted)
        of_true, of_predicted = (np.float64(1 - math.fsum(x * x)) for x in (true, predicted))
        row, column = true[:, None] - (1 - of_true), predicted[None, :] - (1 - of_predicted)
        both = np.eye(len(true)) - agreed - predicted[:, None] - true[None, :] + 2 * crossed
        root = np.sqrt(of_true * of_predicted)
        return both / root + (agreed - crossed) / root * (row / of_true + column / of_predicted)

    def of(self, margins: Margins) -> Limits | None:
        # The square of the coefficient is computed as an exact fraction. Only its root is rounded.
        covariance = margins.total * sum(margins.correct) - product_of_margins(margins)
        if not (square := self._square(margins)):
            return None
        found = Limits.root(Fraction(covariance * covariance, square))
        return -found if covariance < 0 else found

    def _square(self, margins: Margins) -> int:
        whole = margins.total**2
        return (whole - sum(p * p for p in margins.predicted)) * (whole - sum(t * t for t in margins.true))

    def slack(self, margins: Margins, limits: Limits, rounding: Fraction) -> Fraction:
        products = margins.total * sum(margins.correct) + product_of_margins(margins)
        return difference_slack(products, Fraction(math.isqrt(self._square(margins)) or 1), limits, rounding)

    def reason(self, margins: Margins) -> str:
        return "all rows have the same class or the same decision"
