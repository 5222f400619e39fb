"""Metrics of decisions: the confusion matrix of two classes and what is read from it.

All read one `DecisionCounts`, formed as exact integers and rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..exact import UNIT, to_float
from ..metric import Metric, T, named
from ..settings import setting
from ..states.labels import DecisionCounts

__all__ = [
    "F1",
    "Accuracy",
    "BalancedAccuracy",
    "CohenKappa",
    "ConfusionMatrix",
    "ErrorRate",
    "FBeta",
    "FalsePositiveRate",
    "Jaccard",
    "MatthewsCorrcoef",
    "Precision",
    "Recall",
    "Specificity",
]

NAN = float("nan")
HARD = 0.5  # hard predictions, 0 or 1, are read as scores at this threshold


class DecisionMetric(Metric[DecisionCounts, T]):
    """A metric that reads true and false positives and negatives."""

    threshold: float | None = setting(default=0.5)

    best: ClassVar[str | None] = "high"
    cost = "64 bytes a threshold; under 1 ns a row"
    bound = "exact: counts, rounded once"

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            0 or 1. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_score : array-like of shape (n,)
            Any finite score, positive where `score >= threshold`; 0/1 predictions named `y_pred` if `threshold=None`.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. The others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is bad, or lengths differ; the message names column, row and count, and nothing was counted.
        """
        if not columns and self._fed_quickly(y_true, y_score):
            return self
        roles = ("y_true", "y_pred" if self.threshold is None else "y_score")
        return self._feed(named(type(self).__name__, roles, (y_true, y_score), columns, ("sample_weight",)))

    def make_state(self) -> DecisionCounts:
        return DecisionCounts(thresholds=(self._cut,), column="y_pred" if self.threshold is None else "y_score")

    @property
    def _cut(self) -> float:
        return HARD if self.threshold is None else self.threshold

    @property
    def name(self) -> str:
        return self.tag if self._cut == HARD else f"{self.tag}@{self.threshold:g}"


class DecisionRatio(DecisionMetric[float]):
    """A quotient of counts."""

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))

    def of(self, state: DecisionCounts) -> float:
        numerator, denominator = self.quotient(*state.cells(self._cut))
        return to_float(numerator, denominator) if denominator else self.zero_division

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int | Fraction, int | Fraction]:
        """Numerator and denominator of the value."""
        raise NotImplementedError

    def reason_of(self, state: DecisionCounts) -> str | None:
        return super().reason_of(state) or (None if self.of(state) == self.of(state) else "0/0: no such rows")


class ConfusionMatrix(DecisionMetric[NDArray[Any]], tag="confusion_matrix"):
    """The confusion matrix [[TN, FP], [FN, TP]]: rows by true label, columns by decision.

    Parameters
    ----------
    threshold : float or None
        A score is a positive decision where `score >= threshold`. None reads 0/1 decisions from `y_pred`.
    normalize : {None, "true", "pred", "all"}
        Divide by the rows of a true label, of a decision, or by all (as scikit-learn's `confusion_matrix`).
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Exact: int64 counts; float64 where rows are weighted or normalised. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ConfusionMatrix().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    array([[1, 1],
           [1, 1]])
    """

    normalize: str | None = setting(default=None, choices=(None, "true", "pred", "all"))

    best = None
    formula = "[[TN, FP], [FN, TP]]"

    def of(self, state: DecisionCounts) -> NDArray[Any]:
        cells = np.array(state.cells(self._cut), object).reshape(2, 2)
        if self.normalize is None:
            plain = state.excess is None
            return cells.astype(np.int64) if plain else np.array([[to_float(c, UNIT) for c in row] for row in cells])
        totals = {"true": cells.sum(1)[:, None], "pred": cells.sum(0)[None, :], "all": cells.sum()}[self.normalize]
        totals = np.broadcast_to(np.asarray(totals, object), (2, 2))
        return np.array(
            [[to_float(c, t) for c, t in zip(*rows, strict=True)] for rows in zip(cells, totals, strict=True)]
        )


class Accuracy(DecisionRatio, tag="accuracy"):
    """Accuracy: the share of decisions that are right, (TP + TN) / all.

    Parameters
    ----------
    threshold, on_invalid
        As for ConfusionMatrix.
    zero_division : {nan, 0.0, 1.0}
        The value of 0/0.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Accuracy().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    formula = "(TP + TN) / all"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp + tn, tn + fp + fn + tp


class ErrorRate(DecisionRatio, tag="error_rate"):
    """Error rate: the share of decisions that are wrong, (FP + FN) / all.

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ErrorRate().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    best = "low"
    formula = "(FP + FN) / all"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return fp + fn, tn + fp + fn + tp


class Precision(DecisionRatio, tag="precision"):
    """Precision: the share of positive decisions that are right, TP / (TP + FP).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Precision(threshold=0.3).update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.6666666666666666
    """

    formula = "TP / (TP + FP)"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp, tp + fp


class Recall(DecisionRatio, tag="recall"):
    """Recall, true positive rate or sensitivity: the share of positives found, TP / (TP + FN).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Recall().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.5
    """

    formula = "TP / (TP + FN)"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp, tp + fn


class FBeta(DecisionRatio, tag="fbeta"):
    """F-beta: the harmonic mean of precision and recall, recall counting beta times as much.

    Formula: (1 + beta^2) TP / ((1 + beta^2) TP + beta^2 FN + FP). Definition as scikit-learn's `fbeta_score`.

    Parameters
    ----------
    beta : float
        The weight of recall.
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FBeta(beta=2).update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    beta: float = setting(default=1.0, above=0.0)

    formula = "(1 + b^2) TP / ((1 + b^2) TP + b^2 FN + FP)"

    @property
    def name(self) -> str:
        return super().name.replace("fbeta", f"f{self.beta:g}")

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int | Fraction, int | Fraction]:
        square = Fraction(self.beta) ** 2
        return (1 + square) * tp, (1 + square) * tp + square * fn + fp


class F1(DecisionRatio, tag="f1"):
    """F1: the harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row. Definition as scikit-learn's `f1_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.F1().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    formula = "2 TP / (2 TP + FP + FN)"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return 2 * tp, 2 * tp + fp + fn


class FalsePositiveRate(DecisionRatio, tag="false_positive_rate"):
    """False positive rate, or fall-out: the share of negatives called positive, FP / (FP + TN).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalsePositiveRate().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    best = "low"
    formula = "FP / (FP + TN)"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return fp, fp + tn


class Specificity(DecisionRatio, tag="specificity"):
    """Specificity, or true negative rate: the share of negatives called negative, TN / (TN + FP).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Specificity().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    formula = "TN / (TN + FP)"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tn, tn + fp


class BalancedAccuracy(DecisionMetric[float], tag="balanced_accuracy"):
    """Balanced accuracy: the mean of recall and specificity; a class without rows is left out.

    Parameters
    ----------
    threshold, on_invalid
        As for ConfusionMatrix.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row. Definition as scikit-learn's `balanced_accuracy_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.BalancedAccuracy().update([0, 0, 0, 1], [0.1, 0.2, 0.6, 0.8]).compute()
    0.8333333333333334
    """

    formula = "(TP / (TP + FN) + TN / (TN + FP)) / 2"

    def of(self, state: DecisionCounts) -> float:
        tn, fp, fn, tp = state.cells(self._cut)
        rates = [Fraction(right, right + wrong) for right, wrong in ((tn, fp), (tp, fn)) if right + wrong]
        return to_float(sum(rates, Fraction(0)), len(rates))


class MatthewsCorrcoef(DecisionMetric[float], tag="matthews_corrcoef"):
    """Matthews correlation coefficient between labels and decisions, from -1 to 1.

    Formula: (TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN)).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy. scikit-learn's `matthews_corrcoef` returns 0 where a row or column is empty.

    Notes
    -----
    Exact integers, one square root. 64 bytes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MatthewsCorrcoef().update([0, 0, 1, 1], [0.1, 0.2, 0.6, 0.8]).compute()
    1.0
    """

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))

    formula = "(TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN))"

    def of(self, state: DecisionCounts) -> float:
        tn, fp, fn, tp = state.cells(self._cut)
        square = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        covariance = tp * tn - fp * fn
        if not square:
            return self.zero_division
        return math.copysign(math.sqrt(Fraction(covariance * covariance, square)), covariance) if covariance else 0.0

    def reason_of(self, state: DecisionCounts) -> str | None:
        return super().reason_of(state) or (None if self.of(state) == self.of(state) else "one class, or one decision")


class CohenKappa(DecisionRatio, tag="cohen_kappa"):
    """Cohen's kappa: agreement of labels and decisions beyond chance, at most 1.

    Formula: (po - pe) / (1 - pe) = 2 (TP TN - FP FN) / ((TP + FP)(FP + TN) + (TP + FN)(FN + TN)).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row. Definition as scikit-learn's `cohen_kappa_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CohenKappa().update([0, 0, 1, 1], [0.1, 0.2, 0.6, 0.8]).compute()
    1.0
    """

    formula = "2 (TP TN - FP FN) / ((TP + FP)(FP + TN) + (TP + FN)(FN + TN))"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return 2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn)


class Jaccard(DecisionRatio, tag="jaccard"):
    """Jaccard index, or intersection over union, of positives and positive decisions: TP / (TP + FP + FN).

    Parameters
    ----------
    threshold, zero_division, on_invalid
        As for Accuracy.

    Notes
    -----
    Exact integers, one division. 64 bytes; under 1 ns a row. Definition as scikit-learn's `jaccard_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Jaccard().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.3333333333333333
    """

    formula = "TP / (TP + FP + FN)"

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int, int]:
        return tp, tp + fp + fn
