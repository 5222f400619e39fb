"""Rates of one class against the rest, other than precision and recall, such as the false discovery rate."""

from __future__ import annotations

from ...reading.about import About
from ...reading.reading import Quotient
from ...statistics.classes import ClassTable
from .base_decisions import DecisionRatio

__all__ = [
    "FalseDiscoveryRate",
    "FalseNegativeRate",
    "FalseOmissionRate",
    "NegativePredictiveValue",
    "Prevalence",
    "SelectionRate",
]


class NegativePredictiveValue(DecisionRatio, tag="negative_predictive_value"):
    """Negative predictive value: the share of negative decisions that are right, TN / (TN + FN).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NegativePredictiveValue().update([0, 0, 1, 1, 1], [0.1, 0.6, 0.35, 0.8, 0.9]).compute()
    0.5
    """

    about = About(formula="TN / (TN + FN)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tn, cells.tn + cells.fn)


class FalseDiscoveryRate(DecisionRatio, tag="false_discovery_rate"):
    """False discovery rate: the share of positive decisions that are wrong, FP / (FP + TP); it is 1 - Precision.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalseDiscoveryRate().update([0, 0, 1, 1, 1], [0.1, 0.6, 0.35, 0.8, 0.9]).compute()
    0.3333333333333333
    """

    about = About(best="low", formula="FP / (FP + TP)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.fp, cells.fp + cells.tp)


class FalseOmissionRate(DecisionRatio, tag="false_omission_rate"):
    """False omission rate: the share of negative decisions that are wrong, FN / (FN + TN).

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalseOmissionRate().update([0, 0, 1, 1, 1], [0.1, 0.6, 0.35, 0.8, 0.9]).compute()
    0.5
    """

    about = About(best="low", formula="FN / (FN + TN)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.fn, cells.fn + cells.tn)


class FalseNegativeRate(DecisionRatio, tag="false_negative_rate"):
    """False negative rate, or miss rate: the share of positives predicted negative, FN / (FN + TP); it is 1 - Recall.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalseNegativeRate().update([0, 0, 1, 1, 1], [0.1, 0.6, 0.35, 0.8, 0.9]).compute()
    0.3333333333333333
    """

    about = About(best="low", formula="FN / (FN + TP)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.fn, cells.fn + cells.tp)


class Prevalence(DecisionRatio, tag="prevalence"):
    """Prevalence: the share of positives; for several classes or labels, the share of rows with each class or label.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. The value equals that
    of the CTR metric, but it is computed from the decision counts that metrics such as Recall also use.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Prevalence().update([0, 0, 1, 1, 1], [0.1, 0.6, 0.35, 0.8, 0.9]).compute()
    0.6
    """

    about = About(best=None, formula="(TP + FN) / (TP + TN + FP + FN)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp + cells.fn, sum(cells))


class SelectionRate(DecisionRatio, tag="selection_rate"):
    """Selection rate: the share of rows with a positive decision.

    Notes
    -----
    The value is exact up to one rounding, because exact integer counts are divided only once. The selection rate
    divided by Prevalence is the bias of the decisions. The definition matches fairlearn's `selection_rate`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SelectionRate().update([0, 0, 1, 1, 1], [0.1, 0.6, 0.35, 0.8, 0.9]).compute()
    0.6
    """

    about = About(best=None, formula="(TP + FP) / (TP + TN + FP + FN)")

    def of(self, cells: ClassTable) -> Quotient:
        return Quotient(cells.tp + cells.fp, sum(cells))
