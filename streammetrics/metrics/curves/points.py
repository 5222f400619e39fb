"""Curves over all thresholds, with few enough points to plot: ROC, precision-recall, error trade-off, gain.

The points lie exactly on the true curve, because they are at bucket edges. Between two neighboring points, the true
curve stays inside the rectangle that has these points as opposite corners.
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
from ...statistics.by_label import ByLabel, make_label_statistic
from ...statistics.scores import ScoresByLabel
from ..averages import OfClasses, of_each
from .scored_metric import ScoredMetric, no_positives, one_class
from .thresholds import find_occupied_cells

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
    """Points of an ROC curve, in descending order of threshold.

    Parameters
    ----------
    fpr, tpr : float64 arrays
        False and true positive rates of the decisions `score >= threshold`.
    thresholds : float64 array
        The thresholds, descending. The first is infinity, which selects no rows.
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats


class PRPoints(NamedTuple):
    """Points of a precision-recall curve, in ascending order of threshold, as in scikit-learn.

    Parameters
    ----------
    precision, recall : float64 arrays
        Precision and recall of the decisions `score >= threshold`. There is one more point than there are thresholds: the
        last point has precision 1 and recall 0.
    thresholds : float64 array
        The thresholds, ascending.
    """

    precision: Floats
    recall: Floats
    thresholds: Floats


class GainPoints(NamedTuple):
    """Points of a cumulative gain curve, from the highest scores down.

    Parameters
    ----------
    fraction : float64 array
        The share of all rows (or of their total weight) with a score of at least the threshold.
    gain : float64 array
        The share of all positives that are among these rows; `gain / fraction` is the lift.
    thresholds : float64 array
        The thresholds, descending. The first is infinity, which selects no rows.
    """

    fraction: Floats
    gain: Floats
    thresholds: Floats


class DETPoints(NamedTuple):
    """Points of a detection error trade-off curve, in ascending order of threshold, as in scikit-learn.

    Parameters
    ----------
    fpr, fnr : float64 arrays
        False positive and false negative rates of the decisions `score >= threshold`.
    thresholds : float64 array
        The thresholds, ascending.
    """

    fpr: Floats
    fnr: Floats
    thresholds: Floats


class PerClass(tuple[Any, ...]):
    """A tuple with one curve for each class or label, in the order of the classes or labels."""

    def __new__(cls, *curves: Any) -> PerClass:
        """Create the tuple. Each curve is passed as a separate argument, as for a named tuple."""
        return super().__new__(cls, curves)


class ScoreSteps(NamedTuple):
    """True and false positives at the lower edge of each non-empty bucket, from the highest scores down.

    `cells` contains the indexes of these buckets.
    """

    tp: Mass
    fp: Mass
    cells: NDArray[np.int64]

    @classmethod
    def of(cls, state: ScoresByLabel) -> ScoreSteps:
        """Compute the cumulative counts and the bucket indexes from a state."""
        cells = find_occupied_cells(state)
        tp, fp = (Mass(m.digits[:, cells]).sums_through() for m in (state.positives, state.negatives))
        return cls(tp, fp, cells)

    def shares(self) -> tuple[Floats, Floats]:
        """Return the true and false positive rates, each rounded only once."""
        tpr, fpr = (ratios(m, m[-1:]) if len(self.cells) else np.zeros(0) for m in (self.tp, self.fp))
        return tpr, fpr

    def false_negative_rates(self) -> Floats:
        """Return the false negative rates, each rounded only once."""
        if not len(self.cells):
            return np.zeros(0)
        missed = self.tp[-1:].pad_digits(len(self.tp.digits)) - self.tp.digits
        return ratios(Mass.from_digits(missed), self.tp[-1:])


def from_none(shares: Floats) -> Floats:
    """Return cumulative shares preceded by 0, the share at the threshold that selects no rows.

    If the shares are undefined (0/0), they are preceded by NaN instead.
    """
    return np.concatenate([[0.0 if len(shares) and shares[-1] == 1 else NAN], shares])


class Curve(OfClasses[Any, Any], ScoredMetric[Any]):
    """Base class for metrics whose value is a curve over all thresholds. Several classes or labels have one curve each.

    Parameters
    ----------
    num_labels : int, optional
        The number of labels, if each row has several 0/1 labels and a score for each of them. `y_true` and `y_score` are
        then matrices with one column per label.
    tolerance : float
        The largest distance allowed between the curve and the line through the returned points, 1 / 4096 by default.
        Both axes run from 0 to 1. Points that are not needed for this accuracy are left out; 0 keeps all points.
    """

    about = About(
        best=None,
        no_interval_reason="a curve has no single standard error; AUC, and Recall at a fixed threshold, have intervals",
        cost="as for AUC; a few ms to compute",
        bound="the points are exact; between two points, the curve lies in the rectangle that they span",
    )

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    tolerance: float = setting(default=2.0**-12, low=0.0, high=0.1)

    def make_state(self) -> Any:
        one = super().make_state()
        return (
            make_label_statistic(one, memory_limit=self.memory_limit, **self._class_settings)
            if self._class_settings
            else one
        )

    def read(self, state: ScoresByLabel) -> Reading:
        return OfCurve(self, state)

    def reading(self, state: Any) -> Reading:
        return curves_of(self, state) if isinstance(state, ByLabel) else self.read(state)


class OfCurve(OwnReading):
    """The reading (the points and their details) of a curve for two classes.

    Its details, shown by `explain()`, contain `gap`: how far the true curve can be from the line through the points at
    bucket edges.
    """

    def _details(self) -> dict[str, Any]:
        return {"gap": gap_of(self.state)}


def curves_of(metric: Curve, state: Any) -> Reading:
    """Return a `Reading` whose value is a `PerClass` with one curve for each class or label."""
    each: list[Reading] = of_each(metric.read, state.split_classes())

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
    """Return the largest possible distance between the true curve and the line through its points at bucket edges.

    Both axes run from 0 to 1. The result is 0 if scores are exact or the curve is undefined.
    """
    if state.is_exact or one_class(state) is not None:
        return 0.0
    a, c = (np.diff(v, prepend=0.0) for v in ScoreSteps.of(state).shares())
    return float(np.minimum(a, c).max(initial=0.0))


class ROCCurve(Curve, tag="roc_curve"):
    """ROC curve: the true positive rate against the false positive rate, for all thresholds.

    Formula: TPR = TP / P, FPR = FP / N, for the rows with score >= threshold.

    Notes
    -----
    The points are those of scikit-learn's `roc_curve`, starting with (0, 0) at threshold infinity. Each point is at a
    bucket edge, so it lies on the true curve. `explain()["gap"]` says how far the true curve can be from the line
    between two points. For several classes or labels, the value is a tuple (`PerClass`) with a curve for each. Memory and
    time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> fpr, tpr, thresholds = sm.ROCCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> fpr.tolist(), tpr.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    >>> thresholds.tolist()
    [inf, 0.75, 0.5, 0.25, 0.125]
    """

    about = About(formula="points (FPR, TPR) = (FP / N, TP / P) for all thresholds")

    def of(self, state: ScoresByLabel) -> ROCPoints:
        steps = ScoreSteps.of(state)
        tpr, fpr = map(from_none, steps.shares())
        thresholds = np.r_[np.inf, state.thresholds(steps.cells)]
        keep = corners(fpr, tpr, self.tolerance)
        return ROCPoints(fpr[keep], tpr[keep], thresholds[keep])


class PRCurve(Curve, tag="pr_curve"):
    """Precision-recall curve over all thresholds.

    Formula: precision = TP / (TP + FP), recall = TP / P, for the rows with score >= threshold.

    Notes
    -----
    The points are those of scikit-learn's `precision_recall_curve`: ascending thresholds, then precision 1 and recall 0.
    The straight lines between points have no meaning, because no threshold gives the precision and recall of a point on
    them. So compute the area with AveragePrecision rather than with the trapezoidal rule. Memory and time are the same as
    for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> points = sm.PRCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> points.recall.tolist()
    [1.0, 1.0, 0.5, 0.5, 0.0]
    >>> points.precision.round(3).tolist()
    [0.5, 0.667, 0.5, 1.0, 1.0]
    """

    about = About(formula="points (recall, precision) = (TP / P, TP / (TP + FP)) for all thresholds")

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
    """Detection error trade-off curve: the false negative rate against the false positive rate, for all thresholds.

    Formula: FNR = FN / P, FPR = FP / N, for the rows with score >= threshold.

    Notes
    -----
    The points are those of scikit-learn's `det_curve`: ascending thresholds, from the last one without a false negative to
    the first one without a false positive. The points that `tolerance` leaves out differ from those that scikit-learn
    omits with `drop_intermediate=True`. EqualErrorRate is the error rate at the point where the two rates are equal.
    Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> points = sm.DETCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> points.fpr.tolist(), points.fnr.tolist(), points.thresholds.tolist()
    ([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.25, 0.5, 0.75])
    """

    about = About(formula="points (FPR, FNR) = (FP / N, FN / P) for all thresholds")

    def of(self, state: ScoresByLabel) -> DETPoints:
        steps = ScoreSteps.of(state)
        tpr, fpr = map(from_none, steps.shares())
        fnr = from_none(steps.false_negative_rates())
        # The first threshold is infinity, where TPR is 0 and FNR is 1. Without positives TPR is NaN, so FNR becomes NaN
        # as well.
        fnr[0] = tpr[0] + 1
        thresholds = np.r_[np.inf, state.thresholds(steps.cells)]
        first = max(int(np.count_nonzero(fpr == 0)) - 1, 0)
        # Thresholds descend here, and the curve ends at the first one without a false negative. FNR was computed from
        # the number of missed positives, so it is 0 only if none is missed; 1 - TPR could round to 0 earlier.
        part = slice(first, int(np.count_nonzero(fnr > 0)) + 1) if self.reason(state) is None else slice(None)
        fpr, fnr, thresholds = fpr[part], fnr[part], thresholds[part]
        keep = corners(fpr, fnr, self.tolerance)[::-1]
        return DETPoints(fpr[keep], fnr[keep], thresholds[keep])


class GainCurve(Curve, tag="gain_curve"):
    """Cumulative gain curve: the share of all positives among the rows with the highest scores, against the share of rows.

    Formula: gain = TP / P against fraction = (TP + FP) / (P + N); lift = gain / fraction.

    Notes
    -----
    The curve is also called a lift chart or gains chart. The Lift metric is the lift or the gain at a single fraction.
    Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> points = sm.GainCurve().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    >>> points.fraction.tolist(), points.gain.tolist()
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """

    about = About(formula="points (share of rows, gain) = ((TP + FP) / (P + N), TP / P) for all thresholds")

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
    """Simplify a line: return the indexes of the points to keep.

    `x` and `y` are the coordinates of the points. Every point that is not kept is at most `tolerance` away from the
    simplified line. This is the Douglas-Peucker algorithm (1973). Between two points that are kept, it finds the point
    that is farthest from the straight line through them. If this distance exceeds the tolerance, it keeps the point and
    continues on both sides of it.
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
        # If the two end points coincide, they define no straight line, so distances are measured from that point.
        if not length:
            off = np.maximum(np.abs(x[i + 1 : j] - x[i]), np.abs(y[i + 1 : j] - y[i]))
            k, length = int(off.argmax()), 1.0
        if off[k] > tolerance * length:
            keep[i + 1 + k] = True
            open_ += [(i, i + 1 + k), (i + 1 + k, j)]
    return np.flatnonzero(keep)
