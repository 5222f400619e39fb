"""Metrics at the best threshold, such as the largest F1; they also return that threshold.

The threshold is the smallest score of a histogram bucket, so `score >= threshold` selects whole buckets, and the counts
are exact. A threshold inside a bucket could give a better value. The certified upper bound allows for this: it assumes
the best case, in which the positives of each bucket have its highest scores.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics.exact import Limits, Mass, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN, OwnNumber, Quotient, Reading
from ...statistics.by_label import ByLabel
from ...statistics.scores import ScoresByLabel
from ..averages import of_each
from .scored_metric import ScoredValue, no_positives

__all__ = [
    "MaxFBeta",
    "PrecisionAtRecall",
    "RecallAtPrecision",
    "SensitivityAtSpecificity",
    "SpecificityAtSensitivity",
]

Floats = NDArray[np.float64]
# An upper bound on the relative rounding error of a ratio that is computed in float64.
NEAR = 2.0**-47


class Cut(NamedTuple):
    """The counts at a threshold, or arrays of counts at many thresholds.

    `tp` and `fp` are the true and false positives, and `P` and `N` the total numbers of positives and negatives. The
    counts are exact integers, or float64 approximations for a quick first pass.
    """

    tp: Any
    fp: Any
    P: Any
    N: Any


class AtThreshold(ScoredValue):
    """Base class for metrics that choose a threshold and compute their value from the decisions at that threshold.

    With several classes or labels, each has its own threshold.
    """

    about = About(cost="as for AUC")

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        return 8 * rounding

    def read(self, state: ScoresByLabel) -> Reading:
        return OfThreshold(self, state)

    def reading(self, state: Any) -> Reading:
        found = super().reading(state)
        return found.having(details=lambda: {"threshold": self.threshold_of(state)}) if self._class_settings else found

    def threshold(self) -> Any:
        """Return the threshold that the metric chose.

        If several thresholds give the same value, the highest is chosen. The result is infinity if it is best to select no
        rows.
        """
        return self.threshold_of(self.state)

    def threshold_of(self, state: Any) -> Any:
        """Return the threshold chosen for a state, or NaN if it is undefined.

        For several classes or labels, return an array, unless `average` is "micro".
        """
        if isinstance(state, ByLabel):
            if self.average == "micro":
                return self.threshold_of(state.pool_classes())
            return np.array(of_each(self.threshold_of, state.split_classes()))
        if self.reason(state) is not None:
            return NAN
        cut = self._cut(state)
        return float(state.thresholds(find_occupied_cells(state)[cut - 1 : cut])[0]) if cut else float("inf")

    def _cut(self, state: ScoresByLabel) -> int:
        """Return the number of non-empty buckets that the chosen threshold selects (score >= threshold)."""
        raise NotImplementedError


class OfThreshold(OwnNumber):
    """The reading (value and details) of a two-class metric; its details contain the chosen threshold."""

    def _details(self) -> dict[str, Any]:
        return {"threshold": self.metric.threshold_of(self.state)}


class BestThreshold(AtThreshold):
    """Base class for metrics whose value is the best over all thresholds, such as the largest F1.

    In a subclass, `of` returns the numerator and denominator of the value at a `Cut` (the counts at a threshold). The
    value must never fall as TP grows or rise as FP grows. To find the best threshold, a few candidates are selected by
    their float64 values and then compared as exact fractions.
    """

    about = About(
        no_interval_reason=(
            "the value at the best of many thresholds is biased upward by chance; Recall, Precision and FBeta "
            "at a fixed threshold have intervals"
        ),
        bound=(
            "lower bound: the value if only edges of buckets are thresholds; upper bound: the value if positives come "
            "first in each bucket"
        ),
    )

    def _required_ratio(self, cut: Cut) -> tuple[Any, Any, float]:
        """Return the condition that a threshold has to meet: a numerator, a denominator, and their smallest allowed ratio.

        For example, (TP, TP + FP, 0.9) requires a precision of at least 0.9. A ratio of 0/0 also meets the condition. By
        default every threshold does.
        """
        return 0, 0, 0.0

    def read(self, state: ScoresByLabel) -> Reading:
        return OfBest(self, state)

    def _limits(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        low, _ = self._best(state, False, -4 * state.weight_rounding)
        high = low
        if not state.is_exact or state.weight_rounding:
            high, _ = self._best(state, not state.is_exact, 4 * state.weight_rounding)
        value, _ = self._best(state, False, Fraction(0)) if state.weight_rounding else (low, 0)
        return Limits(low, value, max(high, value))

    def _cut(self, state: ScoresByLabel) -> int:
        return self._best(state, False, Fraction(0))[1]

    def _best(self, state: ScoresByLabel, corners: bool, slip: Fraction) -> tuple[Fraction, int]:
        """Return the best value and the number of non-empty buckets that the highest threshold with that value selects.

        If `corners` is true, the negatives of the lowest of these buckets are left out, which gives an upper bound.
        `slip` allows for the rounding of weights: the ratio of `_required_ratio` is multiplied by 1 + `slip`.
        """
        cells = find_occupied_cells(state)
        a, c = (Mass(m.digits[:, cells]) for m in (state.positives, state.negatives))
        tp, fp = a.sums_through(), c.sums_before() if corners else c.sums_through()
        P, N = a.total(), c.total()
        rough = Cut(np.r_[0.0, tp.to_floats()], np.r_[0.0, fp.to_floats()], float(P), float(N))

        def cut(i: int) -> Cut:
            return Cut(tp.cell(i - 1), fp.cell(i - 1), P, N) if i else Cut(0, 0, P, N)

        value, good = self._rough(rough, lambda i: self._qualifies(cut(i), slip), NEAR + 2 * abs(float(slip)))
        first, best = 0, Fraction(-1)
        near = np.flatnonzero(good & (value >= value[good].max(initial=-1.0) * (1 - NEAR)))
        values: dict[tuple[Any, Any], Fraction] = {}
        for i in near.tolist():
            top, whole = self.of(cut(i))
            here = values.setdefault((top, whole), Fraction(top) / whole)
            if here > best:
                first, best = i, here
        return best, first

    def _rough(self, cuts: Cut, qualifies: Callable[[int], bool], margin: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Return approximate values at all thresholds and a mask of those that meet the condition of `_required_ratio`.

        `cuts` contains the counts at the thresholds. If a ratio is within `margin` of the smallest allowed ratio,
        float64 is not precise enough to decide. The function `qualifies`, called with the index of the threshold, then
        decides with exact numbers.
        """
        top, whole = (np.broadcast_to(x, cuts.tp.shape) for x in self.of(cuts))
        value = np.divide(top, whole, out=np.full(len(top), -1.0), where=whole > 0)
        part, of, least = self._required_ratio(cuts)
        part, of = (np.broadcast_to(np.asarray(x, np.float64), cuts.tp.shape) for x in (part, of))
        share = np.divide(part, of, out=np.full(len(part), np.inf), where=of > 0)
        good = (whole > 0) & (share >= least)
        for i in np.flatnonzero((whole > 0) & (np.abs(share - least) <= margin)).tolist():
            good[i] = qualifies(i)
        return value, good

    def _qualifies(self, cut: Cut, slip: Fraction) -> bool:
        part, of, least = self._required_ratio(cut)
        return not of or to_float(part * (1 + slip), of) >= least


class OfBest(OfThreshold):
    """The reading (value and bounds) of a `BestThreshold` metric.

    The metric's `of` method takes a `Cut` instead of a state, so the value comes from its `_limits` method.
    """

    def _raw_value(self) -> Limits | None:
        found: Limits | None = self.metric._limits(self.state)
        return found


def find_occupied_cells(state: ScoresByLabel) -> NDArray[np.int64]:
    """Return the indexes of the buckets that contain rows, in descending order of score."""
    return np.flatnonzero(state.positives.digits.any(axis=0) | state.negatives.digits.any(axis=0))[::-1]


class MaxFBeta(BestThreshold, tag="max_fbeta"):
    """Maximum F-beta: the largest F-beta score over all thresholds.

    Formula: max over thresholds of (1 + beta^2) * TP / (beta^2 * P + TP + FP).

    Parameters
    ----------
    beta : float
        The importance of recall relative to precision; 1 gives F1.

    Notes
    -----
    `threshold()` returns the best threshold, which is the smallest score of its bucket. The threshold was chosen to fit
    these rows, so expect a lower F-beta on new rows. The upper bound assumes that the positives have the highest scores in
    each bucket. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> best = sm.MaxFBeta().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> best.compute(), best.threshold()
    (0.8, 0.25)
    """

    about = About(formula="max over thresholds of (1 + beta^2) TP / (beta^2 P + TP + FP)")

    beta: float = setting(default=1.0, above=0.0, high=1e100)

    @property
    def name(self) -> str:
        return self._with_average(f"max_f{self.beta:g}")

    def of(self, cut: Cut) -> Quotient:
        b = self.beta * self.beta if isinstance(cut.P, float) else Fraction(self.beta) ** 2
        return Quotient((1 + b) * cut.tp, b * cut.P + cut.tp + cut.fp)

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)


class RecallAtPrecision(BestThreshold, tag="recall_at_precision"):
    """The largest recall among the thresholds whose precision is at least a given value.

    Formula: max TP / P over thresholds with TP / (TP + FP) >= precision, or 0 if there is no such threshold.

    Parameters
    ----------
    precision : float
        The lowest precision allowed.

    Notes
    -----
    If no threshold reaches this precision, the value is 0 and `threshold()` is infinity, as in torchmetrics. The upper
    bound assumes that the positives have the highest scores in each bucket. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> recall = sm.RecallAtPrecision(precision=0.6).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> recall.compute(), recall.threshold()
    (1.0, 0.25)
    """

    about = About(formula="max of TP / P where TP / (TP + FP) >= precision")

    precision: float = setting(default=0.9, low=0.0, high=1.0)

    @property
    def name(self) -> str:
        return self._with_average(f"recall_at_precision@{self.precision:g}")

    def of(self, cut: Cut) -> Quotient:
        return Quotient(cut.tp, cut.P)

    def _required_ratio(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.tp, cut.tp + cut.fp, self.precision

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)


class PrecisionAtRecall(BestThreshold, tag="precision_at_recall"):
    """The largest precision among the thresholds whose recall is at least a given value.

    Formula: max TP / (TP + FP) over thresholds with TP / P >= recall.

    Parameters
    ----------
    recall : float
        The lowest recall allowed.

    Notes
    -----
    A threshold that selects no rows has no precision and is ignored. The upper bound assumes that the positives have the
    highest scores in each bucket. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> precision = sm.PrecisionAtRecall(recall=0.5).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> precision.compute(), precision.threshold()
    (1.0, 0.75)
    """

    about = About(formula="max of TP / (TP + FP) where TP / P >= recall")

    recall: float = setting(default=0.9, low=0.0, high=1.0)

    @property
    def name(self) -> str:
        return self._with_average(f"precision_at_recall@{self.recall:g}")

    def of(self, cut: Cut) -> Quotient:
        return Quotient(cut.tp, cut.tp + cut.fp)

    def _required_ratio(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.tp, cut.P, self.recall

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)


class SensitivityAtSpecificity(BestThreshold, tag="sensitivity_at_specificity"):
    """The largest sensitivity (recall) among the thresholds whose specificity is at least a given value.

    Formula: max TP / P over thresholds with TN / N >= specificity.

    Parameters
    ----------
    specificity : float
        The lowest specificity allowed.

    Notes
    -----
    The value is also called the true positive rate at a false positive rate of 1 - specificity. The upper bound assumes
    that the positives have the highest scores in each bucket. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> best = sm.SensitivityAtSpecificity(specificity=0.5).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> best.compute(), best.threshold()
    (1.0, 0.25)
    """

    about = About(formula="max of TP / P where TN / N >= specificity")

    specificity: float = setting(default=0.9, low=0.0, high=1.0)

    @property
    def name(self) -> str:
        return self._with_average(f"sensitivity_at_specificity@{self.specificity:g}")

    def of(self, cut: Cut) -> Quotient:
        return Quotient(cut.tp, cut.P)

    def _required_ratio(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.N - cut.fp, cut.N, self.specificity


class SpecificityAtSensitivity(BestThreshold, tag="specificity_at_sensitivity"):
    """The largest specificity among the thresholds whose sensitivity (recall) is at least a given value.

    Formula: max TN / N over thresholds with TP / P >= sensitivity.

    Parameters
    ----------
    sensitivity : float
        The lowest sensitivity allowed.

    Notes
    -----
    The definition matches torchmetrics. Keras differs: it compares only `num_thresholds` thresholds. The upper bound
    assumes that the positives have the highest scores in each bucket. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> best = sm.SpecificityAtSensitivity(sensitivity=0.5).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> best.compute(), best.threshold()
    (1.0, 0.75)
    """

    about = About(formula="max of TN / N where TP / P >= sensitivity")

    sensitivity: float = setting(default=0.9, low=0.0, high=1.0)

    @property
    def name(self) -> str:
        return self._with_average(f"specificity_at_sensitivity@{self.sensitivity:g}")

    def of(self, cut: Cut) -> Quotient:
        return Quotient(cut.N - cut.fp, cut.N)

    def _required_ratio(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.tp, cut.P, self.sensitivity
