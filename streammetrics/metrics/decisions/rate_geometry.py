"""Numbers that combine rates of one class against the rest by roots."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ...numerics.exact import Limits
from ...reading.about import About
from ...statistics.classes import ClassTable
from .combined import CombinedRates

__all__ = ["FowlkesMallows", "PrevalenceThreshold"]


class Rooted(CombinedRates):
    """A function of roots, which no quotient of integers is."""

    about = About(read_cells=None, interval_scale="logit")


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

    about = About(formula="TP / sqrt((TP + FP)(TP + FN))")

    def of(self, cells: ClassTable) -> Limits | None:
        _, fp, fn, tp = cells
        both = (tp + fp) * (tp + fn)
        return Limits.root(Fraction(tp * tp, both)) if both else None

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        p, r = tp + fp, tp + fn  # d log = dTP / TP - (dTP + dFP) / 2p - (dTP + dFN) / 2r
        return value * np.sqrt(tp * (1 / tp - 0.5 / p - 0.5 / r) ** 2 + fp * (0.5 / p) ** 2 + fn * (0.5 / r) ** 2)


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

    about = About(best="low", formula="sqrt(FPR) / (sqrt(TPR) + sqrt(FPR))")

    def of(self, cells: ClassTable) -> Limits | None:
        tn, fp, fn, tp = cells
        negatives, positives = tn + fp, fn + tp
        if not negatives or not positives or not fp + tp:
            return None
        if not fp or not tp:
            return Limits.exactly(int(not tp))
        odds = Limits.root(Fraction(tp * negatives, fp * positives))  # 1 / (1 + sqrt(TPR / FPR))
        return Limits(*(1 / (1 + x) for x in (odds.high, odds.value, odds.low)))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        rates = fn / tp / (tp + fn) + tn / fp / (fp + tn)  # the variance of log(TPR / FPR)
        return value * (1 - value) / 2 * np.sqrt(rates)
