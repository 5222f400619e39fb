"""Metrics that are computed from square roots of rates, such as the geometric mean of precision and recall."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ...numerics.exact import Limits
from ...reading.about import About
from ...statistics.classes import ClassTable
from .combined_rates import CombinedRates

__all__ = ["FowlkesMallows", "PrevalenceThreshold"]


class RootOfRates(CombinedRates):
    """Base class for metrics that contain square roots of rates and are therefore not quotients of integers."""

    about = About(read_cells=None, interval_scale="logit")


class FowlkesMallows(RootOfRates, tag="fowlkes_mallows"):
    """Fowlkes-Mallows index of decisions, or G-measure: the geometric mean of precision and recall.

    Formula: TP / sqrt((TP + FP) * (TP + FN)).

    Notes
    -----
    The definition matches river's `FowlkesMallows`. F1 is the harmonic rather than the geometric mean. For two
    clusterings (scikit-learn's `fowlkes_mallows_score`), use FowlkesMallowsIndex. The value is computed from exact
    integer counts; only the square root is rounded.

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
        # The logarithm of the value is log(TP) - log(p) / 2 - log(r) / 2, with p = TP + FP and r = TP + FN. The delta
        # method needs its derivatives with respect to TP, FP and FN.
        p, r = tp + fp, tp + fn
        return value * np.sqrt(tp * (1 / tp - 0.5 / p - 0.5 / r) ** 2 + fp * (0.5 / p) ** 2 + fn * (0.5 / r) ** 2)


class PrevalenceThreshold(RootOfRates, tag="prevalence_threshold"):
    """Prevalence threshold: the prevalence below which precision falls most steeply as prevalence falls.

    Formula: sqrt(FPR) / (sqrt(TPR) + sqrt(FPR)) = (sqrt(TPR * FPR) - FPR) / (TPR - FPR).

    Notes
    -----
    Source: Balayla, "Prevalence threshold and the geometry of screening curves" (2020). The value is computed from
    exact integer counts; only two square roots are rounded. The value is undefined without positives, without
    negatives, or without positive decisions.

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
        # The value is 1 / (1 + sqrt(TPR / FPR)). The value falls as the root rises, so the upper bound on the root
        # gives the lower bound on the value.
        odds = Limits.root(Fraction(tp * negatives, fp * positives))
        return Limits(*(1 / (1 + x) for x in (odds.high, odds.value, odds.low)))

    def _error(self, value: Any, tn: Any, fp: Any, fn: Any, tp: Any) -> Any:
        # `rates` is the variance of log(TPR / FPR), from which the delta method gives the standard error of the value.
        rates = fn / tp / (tp + fn) + tn / fp / (fp + tn)
        return value * (1 - value) / 2 * np.sqrt(rates)
