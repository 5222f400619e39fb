"""Metrics of a whole confusion matrix: the matrix, accuracy, balanced accuracy, and agreement beyond chance."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.exact import UNIT, Limits, to_float, weights
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
FEW = 16  # classes, of which quotients have a common denominator of some length
EXTRA = 128  # bits behind the point: a sum of quotients of many classes, whose common denominator would be huge


class ConfusionMatrix(DecisionMetric[NDArray[Any]], tag="confusion_matrix"):
    """The confusion matrix: rows by true label, columns by decision; of two classes [[TN, FP], [FN, TP]].

    Parameters
    ----------
    threshold : float, tuple of float, or None
        A score is a positive decision where `score >= threshold`. None reads decisions from `y_pred`. Of several classes
        the first with the highest score is predicted. Several thresholds are counted in one pass: the value is an array,
        one for each.
    num_classes, labels : int, or tuple, or "discover"
        Rows are of one of several classes: 0, 1, ...; or these, integers or strings, in this order; or those found in
        `y_true` and `y_pred`, in ascending order (`names_of(state)`; `explain()` shows them).
    num_labels : int
        Rows have so many 0/1 labels: a matrix for each, labels x 2 x 2 (scikit-learn's `multilabel_confusion_matrix`).
    top_k : int
        Of labels those of the k highest scores of a row are decided, of equal ones the first. With a threshold, as in
        Keras, only those of them that reach it.
    ignore_class : int or str
        A row of this true class, which need not be among the classes, is left out and counted.
    max_labels : int
        How many classes may be found; MemoryLimitError beyond, and nothing was counted.
    normalize : {None, "true", "pred", "all"}
        Divide by the rows of a true label, of a decision, or by all (as scikit-learn's `confusion_matrix`).
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Exact: int64 counts; float64 where rows are weighted or normalised. 64 bytes, or 8 a pair of classes (found ones: 100 a
    pair that occurs); under 1 ns a row, 10 of found classes.

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
        # Counts are extensive, shares are not.
        extensive=About.per_instance(lambda metric: metric.normalize is None),
    )

    normalize: str | None = setting(default=None, choices=(None, "true", "pred", "all"))

    def of(self, state: Any) -> NDArray[Any]:
        rows, excess = state.square() if isinstance(state, PairCounts) else state.at_threshold(self._cut)
        if self.normalize is None and excess is None:
            return np.array(rows)
        cells = weights(rows, excess)
        if self.normalize is None:
            return to_float(cells, np.full(cells.shape, UNIT, object))
        totals = {"true": cells.sum(1)[:, None], "pred": cells.sum(0)[None, :], "all": cells.sum()}[self.normalize]
        return to_float(cells, np.broadcast_to(np.asarray(totals, object), cells.shape))

    def names_of(self, state: Any) -> list[Any]:
        """Return the classes in the order of the matrix."""
        return state.names() if isinstance(state, PairCounts) else [0, 1]

    def read(self, state: Any) -> Reading:
        return OfMatrix(self, state)

    def reading(self, state: Any) -> Reading:
        if self.at_each:
            return self._stack(state, [one.reading(state) for one in self.at_each])
        return self._stack(state, of_each(self.read, state.each())) if isinstance(state, ByLabel) else self.read(state)

    def _stack(self, state: Any, parts: list[Reading]) -> Reading:
        """Return the matrices of thresholds, or of labels, one behind the other."""
        return Reading(state, lambda: np.array([one.value for one in parts]), reason=partial(self.reason, state))


class OfMatrix(OwnReading):
    """The reading of a confusion matrix; the details of several classes have their names."""

    def _details(self) -> dict[str, Any]:
        return {"names": self.metric.names_of(self.state)} if isinstance(self.state, PairCounts) else {}


class Agreement(WholeMatrix):
    """A quotient read from a whole confusion matrix."""

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))


def crossed(margins: Margins) -> int:
    """The product of the margins: total times the rows that would be right by chance."""
    return sum(t * p for t, p in zip(margins.true, margins.predicted, strict=True))


def difference_slack(products: int, divisor: Fraction, found: Limits, rounding: Fraction) -> Fraction:
    """How far a difference of products of weights, of this sum, over a divisor is off, if each weight is by `rounding`."""
    return rounding * (4 * products / divisor + 8 * max(abs(found.low), abs(found.high)))


class DecisionShare(Agreement):
    """A share of all decisions."""

    about = About(read_cells=read_decisions_side_by_side, interval_methods=("wilson", "delta"))


class Accuracy(DecisionShare, tag="accuracy"):
    """Accuracy: the share of decisions that are right, (TP + TN) / all; of classes the share predicted rightly.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, max_labels, on_invalid
        As for ConfusionMatrix.
    average : {"macro", "micro", "weighted", None}
        Of labels, as for Precision; classes have one value together.
    zero_division : {nan, 0.0, 1.0}
        The value of 0/0.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Accuracy().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(formula="(TP + TN) / all")

    def of(self, margins: Margins) -> Quotient:
        return Quotient(sum(margins.right), margins.total)


class ErrorRate(DecisionShare, tag="error_rate"):
    """Error rate: the share of decisions that are wrong, (FP + FN) / all.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ErrorRate().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(best="low", formula="(FP + FN) / all")

    def of(self, margins: Margins) -> Quotient:
        return Quotient(margins.total - sum(margins.right), margins.total)


class BalancedAccuracy(WholeMatrix, tag="balanced_accuracy"):
    """Balanced accuracy: the mean recall over classes, for two of recall and specificity; one without rows is left out.

    Parameters
    ----------
    adjusted : bool
        Less what chance would get of so many classes, and over the rest: (A - 1/K) / (1 - 1/K), for two Informedness.
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, rounded once. 64 bytes, 8 a pair of classes; under 1 ns a row.
    Definition as scikit-learn's `balanced_accuracy_score`; adjusted, of rows of one class alone it is undefined.

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
        held = true > 0
        of_class, count = np.where(held, true, 1.0)[:, None], np.count_nonzero(held)
        over = count - 1 if self.adjusted else count  # the divisor stretches, too
        return held[:, None] * (np.eye(len(true)) - right[:, None] / of_class) / of_class / np.float64(over)

    def of(self, margins: Margins) -> Limits | None:
        known = [(right, true) for right, true in zip(margins.right, margins.true, strict=True) if true]
        found = self._mean(known)
        if found is None or not self.adjusted:
            return found
        k = len(known)
        return None if k == 1 else Limits(*((k * x - 1) / (k - 1) for x in found))

    def slack(self, margins: Margins, found: Limits, rounding: Fraction) -> Fraction:
        return 16 * rounding if self.adjusted else super().slack(margins, found, rounding)

    def reason(self, margins: Margins) -> str | None:
        return "rows of one class" if self.adjusted and margins.total else super().reason(margins)

    def _mean(self, known: list[tuple[int, int]]) -> Limits | None:
        if len(known) <= FEW:
            return Limits.exactly(sum((Fraction(*pair) for pair in known), Fraction(0)), len(known))
        whole = len(known) << EXTRA
        low = sum((right << EXTRA) // true for right, true in known)
        return Limits(
            Fraction(low, whole), Fraction(2 * low + len(known), 2 * whole), Fraction(low + len(known), whole)
        )


class MatthewsCorrcoef(Agreement, tag="matthews_corrcoef"):
    """Matthews correlation coefficient between labels and decisions, from -1 to 1.

    Formula: (TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN)); of several classes, with n rows, c right, t_k of
    true class k and p_k predicted so: (n c - sum t_k p_k) / sqrt((n^2 - sum t_k^2)(n^2 - sum p_k^2)).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Accuracy. scikit-learn's `matthews_corrcoef` returns 0 where a row or column is empty.

    Notes
    -----
    Exact integers, one square root. 64 bytes, 8 a pair of classes; under 1 ns a row.

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
        covariance = margins.total * sum(margins.right) - crossed(margins)
        if not (square := self._square(margins)):
            return None
        found = Limits.root(Fraction(covariance * covariance, square))
        return -found if covariance < 0 else found

    def _square(self, margins: Margins) -> int:
        whole = margins.total**2
        return (whole - sum(p * p for p in margins.predicted)) * (whole - sum(t * t for t in margins.true))

    def slack(self, margins: Margins, found: Limits, rounding: Fraction) -> Fraction:
        products = margins.total * sum(margins.right) + crossed(margins)
        return difference_slack(products, Fraction(math.isqrt(self._square(margins)) or 1), found, rounding)

    def reason(self, margins: Margins) -> str:
        return "one class, or one decision"
