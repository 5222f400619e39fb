"""Curves of a score over all thresholds: ROC, precision-recall, error trade-off, cumulative gain; thinned for plots.

Their points lie on the true curve: they are edges of buckets, where nothing is approximate. Between two neighbours the
true curve runs inside the rectangle that they span.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics.exact import Mass, ratios
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN, OwnReading, Reading
from ...statistics.by_label import ByLabel, by_label
from ...statistics.scores import ScoresByLabel
from ..averages import OfClasses, of_each
from .scored import ScoredMetric, no_positives, one_class
from .thresholds import occupied

__all__ = [
    "DETCurve",
    "DETPoints",
    "GainCurve",
    "GainPoints",
    "PRCurve",
    "PRPoints",
    "PerClass",
    "ROCCurve",
    "ROCPoints",
]

Floats = NDArray[np.float64]


class ROCPoints(NamedTuple):
    """Points of an ROC curve, from threshold infinity down.

    Parameters
    ----------
    fpr, tpr : float64 arrays
        False and true positive rate of `score >= threshold`.
    thresholds : float64 array
        Descending; the first is infinity.
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats


class PRPoints(NamedTuple):
    """Points of a precision-recall curve, from the smallest threshold up, as scikit-learn gives them.

    Parameters
    ----------
    precision, recall : float64 arrays
        Of `score >= threshold`; one more point than thresholds: the last is (1, 0).
    thresholds : float64 array
        Ascending.
    """

    precision: Floats
    recall: Floats
    thresholds: Floats


class GainPoints(NamedTuple):
    """Points of a cumulative gain curve, from the highest scores down.

    Parameters
    ----------
    fraction : float64 array
        Share of all rows (or weight) that score at least the threshold.
    gain : float64 array
        Share of all positives among them; `gain / fraction` is the lift.
    thresholds : float64 array
        Descending; the first is infinity.
    """

    fraction: Floats
    gain: Floats
    thresholds: Floats


class DETPoints(NamedTuple):
    """Points of a detection error trade-off curve, from the smallest threshold up, as scikit-learn gives them.

    Parameters
    ----------
    fpr, fnr : float64 arrays
        False positive and false negative rate of `score >= threshold`.
    thresholds : float64 array
        Ascending.
    """

    fpr: Floats
    fnr: Floats
    thresholds: Floats


class PerClass(tuple[Any, ...]):
    """A curve for each class or label, in their order."""

    def __new__(cls, *curves: Any) -> PerClass:
        """Hold these."""
        return super().__new__(cls, curves)


class ScoreSteps(NamedTuple):
    """What lies at and above each occupied cell of scores, from the highest down; each quotient of it rounded once."""

    tp: Mass
    fp: Mass
    cells: NDArray[np.int64]

    @classmethod
    def of(cls, state: ScoresByLabel) -> ScoreSteps:
        """Read a state."""
        cells = occupied(state)
        tp, fp = (Mass(m.digits[:, cells]).through() for m in (state.positives, state.negatives))
        return cls(tp, fp, cells)

    def shares(self) -> tuple[Floats, Floats]:
        """True and false positive rates."""
        tpr, fpr = (ratios(m, m[-1:]) if len(self.cells) else np.zeros(0) for m in (self.tp, self.fp))
        return tpr, fpr

    def missed(self) -> Floats:
        """False negative rates."""
        if not len(self.cells):
            return np.zeros(0)
        held = self.tp[-1:].padded(len(self.tp.digits)) - self.tp.digits
        return ratios(Mass.of_digits(held), self.tp[-1:])


def from_none(shares: Floats) -> Floats:
    """Shares of a whole, and before them that of no row; NaN if there is no whole."""
    return np.concatenate([[0.0 if len(shares) and shares[-1] == 1 else NAN], shares])


class Curve(OfClasses[Any, Any], ScoredMetric[Any]):
    """A curve over all thresholds; of classes or labels, one for each."""

    about = About(
        best=None,
        no_interval_reason="a curve has no one standard error; AUC, and Recall at a threshold, have intervals",
        cost="that of AUC; some ms to compute",
        bound="points exact; between them inside the rectangle that two span",
    )

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    tolerance: float = setting(default=2.0**-12, low=0.0, high=0.1)

    def make_state(self) -> Any:
        one = super().make_state()
        return by_label(one, memory_limit=self.memory_limit, **self._class_settings) if self._class_settings else one

    def read(self, state: ScoresByLabel) -> Reading:
        return OfCurve(self, state)

    def reading(self, state: Any) -> Reading:
        return curves_of(self, state) if isinstance(state, ByLabel) else self.read(state)


class OfCurve(OwnReading):
    """The reading of a curve of two classes; the details have its largest distance from a line between points."""

    def _details(self) -> dict[str, Any]:
        return {"gap": gap_of(self.state)}


def curves_of(metric: Curve, state: Any) -> Reading:
    """Return what a metric of two classes says about several classes or labels: the curve of each."""
    each: list[Reading] = of_each(metric.read, state.each())

    def reason() -> str | None:
        reasons = [one.reason for one in each]
        return None if None in reasons else f"undefined for every class: {reasons[0]}"

    return Reading(
        state,
        lambda: PerClass(*(one.value for one in each)),
        reason=reason,
        details=lambda: {"gap": np.array([one.details["gap"] for one in each])},
    )


def gap_of(state: ScoresByLabel) -> float:
    """Return how far a curve can be from the line between two points."""
    if state.is_exact or one_class(state) is not None:
        return 0.0
    a, c = (np.diff(v, prepend=0.0) for v in ScoreSteps.of(state).shares())
    return float(np.minimum(a, c).max(initial=0.0))


class ROCCurve(Curve, tag="roc_curve"):
    """ROC curve: true positive rate over false positive rate, for all thresholds.

    Formula: TPR = TP / P, FPR = FP / N, of the rows with score >= threshold.

    Parameters
    ----------
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, on_invalid
        As for AUC; of classes or labels the value is a `PerClass` of a curve for each.
    tolerance : float
        Points are left out where the line through those that stay passes within this distance (1 / 4096 of the axes by
        default); 0 keeps them all.

    Notes
    -----
    Points as scikit-learn's `roc_curve`: from (0, 0) at threshold infinity. A point is where a bucket ends, so it lies on
    the true curve; how far the curve between two can be from the line is `explain()["gap"]`. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> fpr, tpr, thresholds = sm.ROCCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> fpr.tolist(), tpr.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    >>> thresholds.tolist()
    [inf, 0.75, 0.5, 0.25, 0.125]
    """

    about = About(formula="(FP / N, TP / P) over all thresholds")

    def of(self, state: ScoresByLabel) -> ROCPoints:
        steps = ScoreSteps.of(state)
        tpr, fpr = map(from_none, steps.shares())
        thresholds = np.r_[np.inf, state.thresholds(steps.cells)]
        keep = corners(fpr, tpr, self.tolerance)
        return ROCPoints(fpr[keep], tpr[keep], thresholds[keep])


class PRCurve(Curve, tag="pr_curve"):
    """Precision-recall curve, for all thresholds.

    Formula: precision = TP / (TP + FP), recall = TP / P, of the rows with score >= threshold.

    Parameters
    ----------
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, on_invalid, tolerance
        As for ROCCurve.

    Notes
    -----
    Points as scikit-learn's `precision_recall_curve`: ascending thresholds, then (1, 0). Straight lines between points
    are a drawing, not what a threshold reaches: the area is AveragePrecision. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> points = sm.PRCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> points.recall.tolist()
    [1.0, 1.0, 0.5, 0.5, 0.0]
    >>> points.precision.round(3).tolist()
    [0.5, 0.667, 0.5, 1.0, 1.0]
    """

    about = About(formula="(TP / P, TP / (TP + FP)) over all thresholds")

    def of(self, state: ScoresByLabel) -> PRPoints:
        steps = ScoreSteps.of(state)
        recall, _ = steps.shares()
        precision = ratios(steps.tp, steps.tp.plus(steps.fp))
        keep = corners(np.r_[0.0, recall], np.r_[1.0, precision], self.tolerance)
        keep = keep[keep > 0][::-1] - 1
        thresholds = state.thresholds(steps.cells)[keep]
        return PRPoints(np.r_[precision[keep], 1.0], np.r_[recall[keep], 0.0], thresholds)

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)


class DETCurve(Curve, tag="det_curve"):
    """Detection error trade-off: the false negative rate over the false positive rate, for all thresholds.

    Formula: FNR = FN / P, FPR = FP / N, of the rows with score >= threshold.

    Parameters
    ----------
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, on_invalid, tolerance
        As for ROCCurve.

    Notes
    -----
    Points as scikit-learn's `det_curve`: ascending thresholds, from the last without a false negative to the first without
    a false positive; scikit-learn's own `drop_intermediate=True` leaves out others than `tolerance` does. Where the rates
    are equal: EqualErrorRate. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> points = sm.DETCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> points.fpr.tolist(), points.fnr.tolist(), points.thresholds.tolist()
    ([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.25, 0.5, 0.75])
    """

    about = About(formula="(FP / N, FN / P) over all thresholds")

    def of(self, state: ScoresByLabel) -> DETPoints:
        steps = ScoreSteps.of(state)
        tpr, fpr = map(from_none, steps.shares())
        fnr = from_none(steps.missed())
        fnr[0] = tpr[0] + 1  # all are missed; NaN without positives
        thresholds = np.r_[np.inf, state.thresholds(steps.cells)]
        first = max(int(np.count_nonzero(fpr == 0)) - 1, 0)
        # of what is missed no share is 0 but that of nothing, while 1 less a small share is 1
        part = slice(first, int(np.count_nonzero(fnr > 0)) + 1) if self.reason(state) is None else slice(None)
        fpr, fnr, thresholds = fpr[part], fnr[part], thresholds[part]
        keep = corners(fpr, fnr, self.tolerance)[::-1]
        return DETPoints(fpr[keep], fnr[keep], thresholds[keep])


class GainCurve(Curve, tag="gain_curve"):
    """Cumulative gain: the share of positives found among the highest scores, over the share of rows looked at.

    Formula: gain = TP / P over fraction = (TP + FP) / (P + N); lift = gain / fraction.

    Parameters
    ----------
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, on_invalid, tolerance
        As for ROCCurve.

    Notes
    -----
    Also called lift or gains chart. At one fraction: Lift. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> points = sm.GainCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> points.fraction.tolist(), points.gain.tolist()
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """

    about = About(formula="((TP + FP) / (P + N), TP / P) over all thresholds")

    def of(self, state: ScoresByLabel) -> GainPoints:
        steps = ScoreSteps.of(state)
        above, (found, _) = steps.tp.plus(steps.fp), steps.shares()
        fraction, gain = from_none(ratios(above, above[-1:]) if len(steps.cells) else found), from_none(found)
        keep = corners(fraction, gain, self.tolerance)
        thresholds = np.r_[np.inf, state.thresholds(steps.cells)]
        return GainPoints(fraction[keep], gain[keep], thresholds[keep])

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)


def corners(x: Floats, y: Floats, tolerance: float) -> NDArray[np.int64]:
    """Return which points of a line to keep, so that no other is farther than `tolerance` from the line through them.

    Douglas and Peucker (1973): of a stretch the farthest point stays, and both halves are looked at in turn.
    """
    last = len(x) - 1
    if not tolerance or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return np.arange(last + 1)
    keep = np.zeros(len(x), bool)
    keep[[0, last]] = True
    open_ = [(0, last)]
    while open_:
        i, j = open_.pop()
        if j - i < 2:
            continue
        dx, dy = x[j] - x[i], y[j] - y[i]
        off = np.abs((x[i + 1 : j] - x[i]) * dy - (y[i + 1 : j] - y[i]) * dx)
        k = int(off.argmax())
        length = math.sqrt(dx * dx + dy * dy)
        if not length:  # a closed stretch: the farthest point from where it begins and ends
            off = np.maximum(np.abs(x[i + 1 : j] - x[i]), np.abs(y[i + 1 : j] - y[i]))
            k, length = int(off.argmax()), 1.0
        if off[k] > tolerance * length:
            keep[i + 1 + k] = True
            open_ += [(i, i + 1 + k), (i + 1 + k, j)]
    return np.flatnonzero(keep)
