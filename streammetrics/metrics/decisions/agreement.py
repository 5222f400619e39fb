"""Metrics of the whole confusion matrix: the matrix, accuracy, balanced accuracy, agreement beyond chance."""

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
# The quotients of at most this many classes are summed as exact fractions.
FEW = 16
# More quotients are summed as fixed-point numbers with this many fractional bits: their common denominator is huge.
EXTRA = 128


class ConfusionMatrix(DecisionMetric[NDArray[Any]], tag="confusion_matrix"):
    """Confusion matrix: the number of rows by true label (rows) and decision (columns); two classes: [[TN, FP], [FN, TP]].

    Parameters
    ----------
    num_labels : int
        The number of 0/1 labels of a row. The value is then a matrix for each label, labels x 2 x 2 (as in scikit-learn's
        `multilabel_confusion_matrix`).
    normalize : {None, "true", "pred", "all"}
        The divisor of each count: the number of rows with its true label ("true"), of rows with its decision ("pred"), or
        of all rows ("all"), as in scikit-learn's `confusion_matrix`.

    Notes
    -----
    Counts are exact int64 numbers; they are float64 if rows are weighted or counts are normalised. The state takes 64
    bytes, or 8 bytes per pair of classes; a row takes under 1 ns. With `labels="discover"` the cost is 100 bytes per pair
    that occurs, and 10 ns a row.

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
        no_interval_reason="a matrix has no one standard error; Accuracy, Recall and Precision have intervals",
        formula="rows by true label and decision: [[TN, FP], [FN, TP]]",
        # Counts grow with the number of rows; normalised counts do not.
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
        """Return the matrices of all thresholds, or of all labels, as one array."""
        return Reading(state, lambda: np.array([one.value for one in parts]), reason=partial(self.reason, state))


class OfMatrix(OwnReading):
    """Value and details of a confusion matrix; the details contain the class names."""

    def _details(self) -> dict[str, Any]:
        return {"names": self.metric.names_of(self.state)} if isinstance(self.state, PairCounts) else {}


class Agreement(WholeMatrix):
    """A quotient that is computed from the whole confusion matrix.

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value of 0/0.
    """

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))


def product_of_margins(margins: Margins) -> int:
    """Return the sum over classes of true times predicted rows: n times the number of agreements expected by chance."""
    return sum(t * p for t, p in zip(margins.true, margins.predicted, strict=True))


def difference_slack(products: int, divisor: Fraction, limits: Limits, rounding: Fraction) -> Fraction:
    """Return an error bound of a difference of products of weights, divided by `divisor`.

    `rounding` bounds the error of each weight, and `products` is the sum of the products.
    """
    return rounding * (4 * products / divisor + 8 * max(abs(limits.low), abs(limits.high)))


class DecisionShare(Agreement):
    """A metric that is a share of all decisions, such as accuracy."""

    about = About(read_cells=read_decisions_side_by_side, interval_methods=("wilson", "delta"))


class Accuracy(DecisionShare, tag="accuracy"):
    """Accuracy: the share of decisions that are right, (TP + TN) / all; several classes: the share of right predictions.

    Parameters
    ----------
    average : {"macro", "micro", "weighted", None}
        How the values of several labels become one: their mean, the value of all labels together, their mean weighted by
        positives, or an array of one value each (None). Several classes have one value together.

    Notes
    -----
    The value is exact: integer counts are divided once. The state takes 64 bytes, or 8 bytes per pair of classes; a row
    takes under 1 ns.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Accuracy().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(formula="(TP + TN) / all")

    def of(self, margins: Margins) -> Quotient:
        return Quotient(sum(margins.correct), margins.total)


class ErrorRate(DecisionShare, tag="error_rate"):
    """Error rate: the share of decisions that are wrong, (FP + FN) / all.

    Notes
    -----
    The value is exact: integer counts are divided once. The state takes 64 bytes, or 8 bytes per pair of classes; a row
    takes under 1 ns.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ErrorRate().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(best="low", formula="(FP + FN) / all")

    def of(self, margins: Margins) -> Quotient:
        return Quotient(margins.total - sum(margins.correct), margins.total)


class BalancedAccuracy(WholeMatrix, tag="balanced_accuracy"):
    """Balanced accuracy: the mean recall over classes that have rows; two classes: the mean of recall and specificity.

    Parameters
    ----------
    adjusted : bool
        Whether the value A is adjusted for chance: (A - 1/K) / (1 - 1/K) for K classes, which is Informedness for two
        classes.

    Notes
    -----
    The value is exact: integer counts, rounded once. The state takes 64 bytes, or 8 bytes per pair of classes; a row takes
    under 1 ns. The definition is that of scikit-learn's `balanced_accuracy_score`. The adjusted value is undefined for
    rows of one class.

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
        # The adjusted value (count A - 1) / (count - 1) has a steeper gradient.
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
        return "rows of one class" if self.adjusted and margins.total else super().reason(margins)

    def _mean(self, quotients: list[tuple[int, int]]) -> Limits | None:
        if len(quotients) <= FEW:
            return Limits.exactly(sum((Fraction(*pair) for pair in quotients), Fraction(0)), len(quotients))
        # Each quotient is rounded down by less than 1 in the last digit, which gives the lower and the upper limit.
        whole = len(quotients) << EXTRA
        low = sum((right << EXTRA) // true for right, true in quotients)
        return Limits(
            Fraction(low, whole), Fraction(2 * low + len(quotients), 2 * whole), Fraction(low + len(quotients), whole)
        )


class MatthewsCorrcoef(Agreement, tag="matthews_corrcoef"):
    """Matthews correlation coefficient: the correlation between labels and decisions, from -1 to 1.

    Formula: (TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN)). For several classes it is (n c - sum t_k p_k) /
    sqrt((n^2 - sum t_k^2)(n^2 - sum p_k^2)), for n rows, of which c are predicted correctly, t_k are of class k, and p_k
    are predicted to be of class k.

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value if a row or column of the matrix is empty; scikit-learn's `matthews_corrcoef` returns 0.

    Notes
    -----
    The value is exact: integer counts, with one square root. The state takes 64 bytes, or 8 bytes per pair of classes; a
    row takes under 1 ns.

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
        # The square of the coefficient is an exact fraction: only its root is rounded.
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
        return "one class, or one decision"
