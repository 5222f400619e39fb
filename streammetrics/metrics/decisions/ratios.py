"""Metrics of the decisions on one class: precision, recall, F-beta and their kin; averaged over classes and labels."""

from __future__ import annotations

import math
from fractions import Fraction

from ...collect.about import About
from ...collect.reading import Quotient
from ...numerics.settings import setting
from ...statistics.classes import Table
from .counted import DecisionRatio
from .samples import SampledRatio

__all__ = ["F1", "FBeta", "FalsePositiveRate", "Jaccard", "Precision", "Recall", "Specificity"]


class Precision(SampledRatio, tag="precision"):
    """Precision: the share of positive decisions that are right, TP / (TP + FP).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, ignore_class, max_labels, on_invalid
        As for ConfusionMatrix.
    top_k : int
        Of labels, and of classes, those of the k highest scores of a row are decided, of equal ones the first. With a
        threshold, as in Keras, only those of them that reach it.
    average : {"macro", "micro", "weighted", "samples", None}
        Of classes or labels: the mean of their values (each class against the rest), the value of all their rows together,
        the mean weighted by positives, or an array of each. Undefined values are left out, and counted in `explain()`.
        "samples", of labels: the mean over rows of the value of a row.
    zero_division : {nan, 0.0, 1.0}
        The value of 0/0, of each class; of each row, where NaN leaves it out.

    Notes
    -----
    Exact integers, one division; with "samples" rows are rounded once each and summed exactly. 64 bytes, 8 a pair of
    classes; under 1 ns a row. "samples" takes 2 kB, and some 3 ns a label; top_k some 50 ns a score, to sort them.

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

    def of(self, cells: Table) -> Quotient:
        return Quotient(cells.tp, cells.tp + cells.fp)


class Recall(SampledRatio, tag="recall"):
    """Recall, true positive rate or sensitivity: the share of positives found, TP / (TP + FN).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Precision.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Recall().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.5
    """

    about = About(formula="TP / (TP + FN)")

    row_beta = math.inf

    def of(self, cells: Table) -> Quotient:
        return Quotient(cells.tp, cells.tp + cells.fn)


class FBeta(SampledRatio, tag="fbeta"):
    """F-beta: the harmonic mean of precision and recall, recall counting beta times as much.

    Formula: (1 + beta^2) TP / ((1 + beta^2) TP + beta^2 FN + FP). Definition as scikit-learn's `fbeta_score`.

    Parameters
    ----------
    beta : float
        The weight of recall; 0 makes it precision.
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Precision.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FBeta(beta=2).update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(interval_methods=("delta",), formula="(1 + b^2) TP / ((1 + b^2) TP + b^2 FN + FP)")

    beta: float = setting(default=1.0, low=0.0, high=1e100)

    @property
    def name(self) -> str:
        return super().name.replace("fbeta", f"f{self.beta:g}")

    def of(self, cells: Table) -> Quotient:
        square = Fraction(self.beta) ** 2
        return Quotient((1 + square) * cells.tp, (1 + square) * cells.tp + square * cells.fn + cells.fp)


class F1(SampledRatio, tag="f1"):
    """F1: the harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Precision.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.
    Definition as scikit-learn's `f1_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.F1().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(interval_methods=("delta",), formula="2 TP / (2 TP + FP + FN)")

    def of(self, cells: Table) -> Quotient:
        return Quotient(2 * cells.tp, 2 * cells.tp + cells.fp + cells.fn)


class FalsePositiveRate(DecisionRatio, tag="false_positive_rate"):
    """False positive rate, or fall-out: the share of negatives called positive, FP / (FP + TN).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Precision, without "samples".

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalsePositiveRate().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(best="low", formula="FP / (FP + TN)")

    def of(self, cells: Table) -> Quotient:
        return Quotient(cells.fp, cells.fp + cells.tn)


class Specificity(DecisionRatio, tag="specificity"):
    """Specificity, or true negative rate: the share of negatives called negative, TN / (TN + FP).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Precision.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Specificity().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.5
    """

    about = About(formula="TN / (TN + FP)")

    def of(self, cells: Table) -> Quotient:
        return Quotient(cells.tn, cells.tn + cells.fp)


class Jaccard(SampledRatio, tag="jaccard"):
    """Jaccard index, or intersection over union, of positives and positive decisions: TP / (TP + FP + FN).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, zero_division, on_invalid
        As for Precision.

    Notes
    -----
    Exact integers, one division. 64 bytes, 8 a pair of classes; under 1 ns a row.
    Definition as scikit-learn's `jaccard_score`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Jaccard().update([0, 0, 1, 1], [0.1, 0.6, 0.35, 0.8]).compute()
    0.3333333333333333
    """

    about = About(formula="TP / (TP + FP + FN)")

    row_term = "row_jaccard"

    def of(self, cells: Table) -> Quotient:
        return Quotient(cells.tp, cells.tp + cells.fp + cells.fn)
