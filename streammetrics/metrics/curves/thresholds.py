"""What the best threshold reaches, and which one that is.

All read the rows by score. The value is that of a threshold which exists: the smallest score of a bucket, so that
`score >= threshold` has the counts reported. No threshold inside a bucket can do better than if its positives came first.
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
from .scored import ScoredValue, no_positives

__all__ = [
    "MaxFBeta",
    "PrecisionAtRecall",
    "RecallAtPrecision",
    "SensitivityAtSpecificity",
    "SpecificityAtSensitivity",
]

Floats = NDArray[np.float64]
NEAR = 2.0**-47  # more than the few float64 steps of a ratio can lose


class Cut(NamedTuple):
    """What is above a threshold, or above each of many: integers, or floats near them."""

    tp: Any
    fp: Any
    P: Any
    N: Any


class AtThreshold(ScoredValue):
    """A value that some threshold has, of two classes or of each of several."""

    about = About(cost="that of AUC")

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        return 8 * rounding

    def read(self, state: ScoresByLabel) -> Reading:
        return OfThreshold(self, state)

    def reading(self, state: Any) -> Reading:
        found = super().reading(state)
        return found.having(details=lambda: {"threshold": self.threshold_of(state)}) if self._class_settings else found

    def threshold(self) -> Any:
        """Return the threshold that has the value: of several the highest; infinity if it selects nothing."""
        return self.threshold_of(self.state)

    def threshold_of(self, state: Any) -> Any:
        """Return the threshold, from a state; of several classes or labels an array of each."""
        if isinstance(state, ByLabel):
            if self.average == "micro":
                return self.threshold_of(state.pooled())
            return np.array(of_each(self.threshold_of, state.each()))
        if self.reason(state) is not None:
            return NAN
        cut = self._cut(state)
        return float(state.thresholds(occupied(state)[cut - 1 : cut])[0]) if cut else float("inf")

    def _cut(self, state: ScoresByLabel) -> int:
        """Return how many scores, from the highest down, the threshold selects."""
        raise NotImplementedError


class OfThreshold(OwnNumber):
    """The reading of two classes at a threshold, which is in the details."""

    def _details(self) -> dict[str, Any]:
        return {"threshold": self.metric.threshold_of(self.state)}


class BestThreshold(AtThreshold):
    """The best value that a threshold reaches: `of` is the value at a cut, which rises with TP and falls with FP.

    Floats tell which thresholds may be the best; what these reach is compared as fractions.
    """

    about = About(
        no_interval_reason=(
            "the best of many thresholds is drawn upward; "
            "Recall, Precision or FBeta at one chosen elsewhere have intervals"
        ),
        bound="at least at the edges of buckets; at most with positives first inside each",
    )

    def _kept(self, cut: Cut) -> tuple[Any, Any, float]:
        """Return a quotient that has to reach a limit, or to be 0/0, for a cut to qualify; and the limit."""
        return 0, 0, 0.0

    def read(self, state: ScoresByLabel) -> Reading:
        return OfBest(self, state)

    def _limits(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        low, _ = self._best(state, False, -4 * state.slip)
        high = low
        if not state.is_exact or state.slip:
            high, _ = self._best(state, not state.is_exact, 4 * state.slip)
        value, _ = self._best(state, False, Fraction(0)) if state.slip else (low, 0)
        return Limits(low, value, max(high, value))

    def _cut(self, state: ScoresByLabel) -> int:
        return self._best(state, False, Fraction(0))[1]

    def _best(self, state: ScoresByLabel, corners: bool, slip: Fraction) -> tuple[Fraction, int]:
        """Return the best value, and the first cut from infinity down that reaches it.

        Those at the edges of buckets; or at their corners, positives first. `slip` is what the limit may be missed by.
        """
        cells = occupied(state)
        a, c = (Mass(m.digits[:, cells]) for m in (state.positives, state.negatives))
        tp, fp = a.through(), c.before() if corners else c.through()
        P, N = a.total(), c.total()
        rough = Cut(np.r_[0.0, tp.floats()], np.r_[0.0, fp.floats()], float(P), float(N))

        def cut(i: int) -> Cut:
            return Cut(tp.cell(i - 1), fp.cell(i - 1), P, N) if i else Cut(0, 0, P, N)

        value, good = self._rough(rough, lambda i: self._qualifies(cut(i), slip), NEAR + 2 * abs(float(slip)))
        first, best = 0, Fraction(-1)
        near = np.flatnonzero(good & (value >= value[good].max(initial=-1.0) * (1 - NEAR)))
        seen: dict[tuple[Any, Any], Fraction] = {}
        for i in near.tolist():
            top, whole = self.of(cut(i))
            here = seen.setdefault((top, whole), Fraction(top) / whole)
            if here > best:
                first, best = i, here
        return best, first

    def _rough(self, cuts: Cut, qualifies: Callable[[int], bool], margin: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Return about the value at each cut, and whether it qualifies: where floats cannot tell, as integers say."""
        top, whole = (np.broadcast_to(x, cuts.tp.shape) for x in self.of(cuts))
        value = np.divide(top, whole, out=np.full(len(top), -1.0), where=whole > 0)
        part, of, least = self._kept(cuts)
        part, of = (np.broadcast_to(np.asarray(x, np.float64), cuts.tp.shape) for x in (part, of))
        share = np.divide(part, of, out=np.full(len(part), np.inf), where=of > 0)
        good = (whole > 0) & (share >= least)
        for i in np.flatnonzero((whole > 0) & (np.abs(share - least) <= margin)).tolist():
            good[i] = qualifies(i)
        return value, good

    def _qualifies(self, cut: Cut, slip: Fraction) -> bool:
        part, of, least = self._kept(cut)
        return not of or to_float(part * (1 + slip), of) >= least


class OfBest(OfThreshold):
    """The reading of the best threshold: the metric's `of` takes a cut, not a state."""

    def _found(self) -> Limits | None:
        found: Limits | None = self.metric._limits(self.state)
        return found


def occupied(state: ScoresByLabel) -> NDArray[np.int64]:
    """The cells that hold rows, from the highest score down."""
    return np.flatnonzero(state.positives.digits.any(axis=0) | state.negatives.digits.any(axis=0))[::-1]


class MaxFBeta(BestThreshold, tag="max_fbeta"):
    """The largest F-beta that a threshold reaches.

    Formula: max over thresholds of (1 + beta^2) TP / (beta^2 P + TP + FP).

    Parameters
    ----------
    beta : float
        How much more recall counts than precision; 1 for F1.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    `threshold()` is the threshold: the smallest score of its bucket. It was chosen on these rows: its F on others will be
    lower. Bound: at most that of positives first inside each bucket. Cost as AUC.

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
    """The largest recall that a threshold reaches at this precision, or a higher one.

    Formula: max TP / P over thresholds with TP / (TP + FP) >= precision; 0 if there is none.

    Parameters
    ----------
    precision : float
        The precision to keep.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    Where no threshold is that precise the value is 0, and `threshold()` infinity, as torchmetrics has it. Bound: at most
    that of positives first inside each bucket. Cost as AUC.

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

    def _kept(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.tp, cut.tp + cut.fp, self.precision

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)


class PrecisionAtRecall(BestThreshold, tag="precision_at_recall"):
    """The largest precision that a threshold reaches at this recall, or a higher one.

    Formula: max TP / (TP + FP) over thresholds with TP / P >= recall.

    Parameters
    ----------
    recall : float
        The recall to keep.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    A threshold that selects nothing has no precision. Bound: at most that of positives first inside each bucket. Cost as
    AUC.

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

    def _kept(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.tp, cut.P, self.recall

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)


class SensitivityAtSpecificity(BestThreshold, tag="sensitivity_at_specificity"):
    """The largest sensitivity (recall) that a threshold reaches at this specificity, or a higher one.

    Formula: max TP / P over thresholds with TN / N >= specificity.

    Parameters
    ----------
    specificity : float
        The specificity to keep.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    Also: true positive rate at a false positive rate of 1 - specificity. Bound: at most that of positives first inside
    each bucket. Cost as AUC.

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

    def _kept(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.N - cut.fp, cut.N, self.specificity


class SpecificityAtSensitivity(BestThreshold, tag="specificity_at_sensitivity"):
    """The largest specificity that a threshold reaches at this sensitivity (recall), or a higher one.

    Formula: max TN / N over thresholds with TP / P >= sensitivity.

    Parameters
    ----------
    sensitivity : float
        The sensitivity to keep.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    As torchmetrics; Keras looks at `num_thresholds` thresholds alone. Bound: at most that of positives first inside each
    bucket. Cost as AUC.

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

    def _kept(self, cut: Cut) -> tuple[Any, Any, float]:
        return cut.tp, cut.P, self.sensitivity
