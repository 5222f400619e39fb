"""Metrics of calibration in score bins: calibration errors and reliability curves.

In bins of equal width, sums are exact. Bins of equal weight ("quantile") and bins whose width doubles ("log") are
unions of buckets of the score histogram. The sum of the predicted probabilities in a bucket is not known exactly, but
it is at least weight * lower edge and at most weight * upper edge. The bounds on the value follow from these two
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import T, no_weight_reason
from ...numerics.exact import Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import Reading, bounds_of_some
from ...statistics.bins import ScoreBins
from ...statistics.by_label import TopBins
from ...statistics.by_label_scores import TopScores
from ...statistics.scores import BITS, ScoreHistogram
from ..averages import OfClasses, Several
from .calibration_bins import (
    SMALL,
    Bin,
    Binned,
    find_cut_ranges,
    find_equal_cuts,
    read_bins,
    read_buckets,
    sum_exactly,
    unite_buckets,
    widen_for_quantization,
)

__all__ = [
    "CalibrationCurve",
    "CalibrationTable",
    "ExpectedCalibrationError",
    "MaximumCalibrationError",
    "Reliability",
]

NAN = float("nan")
Floats = NDArray[np.float64]


class Reliability(NamedTuple):
    """The points of a reliability curve: predicted and observed shares of positives in each bin; NaN for empty bins.

    Parameters
    ----------
    prob_pred : float64 array of shape (n_bins,)
        The mean predicted probability.
    prob_true : float64 array of shape (n_bins,)
        The share of positives (the click-through rate).
    weight : float64 array of shape (n_bins,)
        The number of rows, or their total weight.
    edges : float64 array of shape (n_bins + 1,)
        The edges of the bins. Bin i lies between `edges[i]` and `edges[i + 1]`.
    """

    prob_pred: Floats
    prob_true: Floats
    weight: Floats
    edges: Floats

    @property
    def ratio(self) -> Floats:
        """The ratio of predicted to observed positives in each bin; NaN for bins without positives."""
        observed = self.prob_true > 0
        return np.where(observed, self.prob_pred / np.where(observed, self.prob_true, 1.0), NAN)

    def __repr__(self) -> str:
        head = ("from", "to", "weight", "mean p", "CTR", "ratio")
        columns = self.edges[:-1], self.edges[1:], self.weight, self.prob_pred, self.prob_true, self.ratio
        lines = [head, *([f"{v:.6g}" for v in row] for row in zip(*columns, strict=True))]
        return "\n".join("".join(f"{text:>13}" for text in line) for line in lines)

    def __str__(self) -> str:
        found = np.abs(self.prob_pred - self.prob_true)[self.weight > 0]
        return f"{len(self.weight)} bins" + (f", largest gap {found.max():.2g}" if len(found) else ", no rows")


class BinnedMetric(OfClasses[Binned, T]):
    """Base class for metrics that compare predicted and observed positives in score bins.

    Parameters
    ----------
    n_bins : int
        The number of bins.
    strategy : {"uniform", "quantile", "log"}
        How to form n bins. "uniform": bins of equal width, where bin i contains the rows with a probability p in
        [i/n, (i + 1)/n), and the last bin also contains those with p = 1. "quantile": bins of equal weight, whose
        edges are edges of histogram buckets; a bucket belongs to the bin that contains its median row. "log": the edges
        are 0, 2**-(n - 1), ..., 1/4, 1/2, 1.
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits. Logits are converted by the sigmoid, or by the softmax for several
        classes.
    bits : int, optional
        The base-2 logarithm of the number of histogram buckets. "uniform" bins need no histogram.
    """

    about = About(
        cost="uniform bins: 48 bytes per bin, 4 ns per row; other bins: as for AUC",
        bound=(
            "with uniform bins, exact except for rounding; with other bins, the bounds allow for every possible position "
            "of a score within its histogram bucket, and the value is exact for half-precision scores"
        ),
    )

    n_bins: int = setting(default=15, low=1, high=10_000)
    strategy: str = setting(default="uniform", choices=("uniform", "quantile", "log"))
    scale: str = setting(default="probability", choices=("probability", "logit"))
    bits: int | None = setting(default=None, low=8, high=24)

    @property
    def name(self) -> str:
        default = type(self).__dataclass_fields__["n_bins"].default
        return self.about.tag if self.n_bins == default else f"{self.about.tag}@{self.n_bins}"

    def make_state(self) -> Any:
        top = "num_classes" in self._class_settings or "labels" in self._class_settings
        scale = "probability" if top else self.scale
        shape: dict[str, Any] = {"n_bins": self.n_bins}
        if self.strategy != "uniform":
            shape = {"bits": self.bits if self.bits is not None else BITS[scale]}
        if top:
            kind = TopBins if self.strategy == "uniform" else TopScores
            return kind(**shape, logits=self.scale == "logit", **self._class_settings)
        binary = ScoreBins if self.strategy == "uniform" else ScoreHistogram
        return self.spread(binary(scale=scale, **shape))

    def reason(self, state: Binned) -> str | None:
        return no_weight_reason(state)

    def bins(self, state: Binned) -> tuple[list[Bin], Floats]:
        """Return the `n_bins` bins of a state and an array of their `n_bins` + 1 edges."""
        if isinstance(state, ScoreBins):
            return read_bins(state), np.arange(self.n_bins + 1) / self.n_bins
        masses, positives, low, grid, high = read_buckets(state)
        if self.strategy == "log":
            inner = np.ldexp(1.0, np.arange(1 - self.n_bins, 0))
            cuts = np.searchsorted(grid, inner).tolist()
        else:
            cuts = find_equal_cuts(masses, self.n_bins)
            inner = np.r_[low, 1.0][cuts] if masses.total() else np.full(len(cuts), NAN)
        return unite_buckets(state, masses, positives, [0, *cuts, len(low)], low, grid, high), np.r_[0.0, inner, 1.0]

    def moves(self, state: Binned, rounding: Fraction) -> bool:
        """Return whether the rounding of weights could have put a histogram bucket into the wrong bin.

        `rounding` is the largest relative error of the weights. Only "quantile" bins depend on weights.
        """
        if isinstance(state, ScoreBins) or self.strategy != "quantile":
            return False
        first, last = find_cut_ranges(read_buckets(state)[0], self.n_bins, 4 * float(rounding))
        return bool((first < last).any())


class CalibrationError(Several[Binned], BinnedMetric[Any]):
    """Base class for metrics of the gaps between the predicted and observed numbers of positives in each bin."""

    about = About(
        no_interval_reason=(
            "gaps are never negative, so chance biases their mean upward; Calibration, of all rows or of "
            "slices, has an interval"
        ),
        best="low",
    )

    @property
    def name(self) -> str:
        return self._with_average(super().name)

    def slack(self, state: Binned, limits: Limits, rounding: Fraction) -> Fraction:
        # If the rounding of weights could have put a bucket into the wrong bin, the error can be as large as the range of
        # the value, which is 1. Otherwise the error is a few times `rounding`, because the gap per row is a difference of
        # two weighted means.
        return Fraction(1) if self.moves(state, rounding) else 8 * rounding

    def _filled_bins(self, state: Binned) -> list[Bin]:
        """Return the bins of nonzero weight, with bounds that allow for rounded products of weight and probability."""
        return [b for b in widen_for_quantization(self.bins(state)[0], state) if b.weight]


def _of_gaps(bins: Sequence[Bin], make_limits: Callable[[Sequence[Fraction], Sequence[Bin]], Limits]) -> Limits | None:
    """Return the value of a metric, with bounds, from the gaps of its bins, or None if there are no bins.

    The gap of a bin is the absolute difference between its predicted and observed positives. `make_limits` is the
    function that computes the value from gaps and bins. This value must not fall if a gap grows, because the bounds are
    computed from the smallest and largest possible gaps.
    """
    if not bins:
        return None
    found = make_limits([b.gap() for b in bins], bins)
    if all(b.is_exact for b in bins):
        return found
    least, most = zip(*(b.gaps() for b in bins), strict=True)
    return Limits(make_limits(least, bins).low, found.value, make_limits(most, bins).high)


def _read_uniform_bins(metric: ExpectedCalibrationError, state: Any) -> Reading | None:
    """Return one `Reading` with the values of all cells (such as slices), or None if they must be computed one by one.

    The values can be computed together only for bins of equal width with `norm="l1"`.
    """
    if not (state.can_vectorize and metric.strategy == "uniform" and metric.norm == "l1"):
        return None
    side = state.vectorize()
    bins: Any = metric.bins(side)[0]
    found = Reading(side, to_float(sum(b.gap() for b in bins), sum(b.weight for b in bins)))
    return found.having(bounds=partial(metric._bounds_of_cells, state, found, bins))


class ExpectedCalibrationError(CalibrationError, tag="expected_calibration_error"):
    """Expected calibration error: the mean over bins of the gap between mean predicted probability and share of positives.

    Formula: sum over bins b of (W_b / W) * |mean p - share of positives|, for the weight W_b of a bin and the total
    weight W. With `norm="l2"`, the value is the square root of the weighted mean of the squared gaps.

    Parameters
    ----------
    n_bins : int
        The number of bins. The default, 15, follows Guo et al. (2017) and torchmetrics.
    norm : {"l1", "l2"}
        Whether the value is the mean gap ("l1") or the root mean square of the gaps ("l2").
    num_classes, labels : int, or tuple
        The classes, if there are several. Only the highest probability of each row is then used, and a row is positive
        if the class with this probability is the true class (Guo et al. 2017).

    Notes
    -----
    With `strategy="uniform"`, the value is exact: the sum of p in each bin is exact, and the value is rounded once. The
    state takes 48 bytes per bin; an update takes about 4 ns per row. The other strategies use the same score histogram as
    AUC. With them, the sum of p in a bucket is at least its weight times its lower edge and at most its weight times
    its upper edge. The bounds follow from these two numbers, and the value uses their mean. The value is exact for
    half-precision scores. `compute()` takes milliseconds.

    The bins are the same as in torchmetrics, with two exceptions: torchmetrics puts p = 1 into a separate bin, and it
    computes edges in float32, which moves a few rows to a different bin. In scikit-learn's `calibration_curve`, a row with
    p at an edge belongs to the bin to the left of the edge instead. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> ece = sm.ExpectedCalibrationError(n_bins=2).update([0, 0, 1, 1], [0.125, 0.25, 0.25, 0.75])
    >>> round(ece.compute(), 6)
    0.15625
    """

    about = About(
        read_cells=_read_uniform_bins,
        value_range=(0.0, 1.0),
        formula="mean over bins, weighted by their rows, of |mean predicted probability - share of positives|",
    )

    norm: str = setting(default="l1", choices=("l1", "l2"))

    def of(self, state: Binned) -> Limits | None:
        return _of_gaps(self._filled_bins(state), _mean_gap if self.norm == "l1" else _root_of_mean_square)

    def _bounds_of_cells(self, state: Any, reading: Reading, bins: Sequence[Any]) -> tuple[Any, Any]:
        """Return the bounds of all cells (such as slices), as two arrays.

        The value of most cells is exact, so it equals both bounds. If the mean prediction in any bin of a cell is so
        small that rounding each product of weight and p to a multiple of 2**-60 matters, the bounds of that cell are
        computed separately.
        """
        means = [to_float(b.predicted, b.weight) for b in bins]
        return bounds_of_some(self, state, reading.value, np.logical_or.reduce([mean * SMALL < 1 for mean in means]))


def _mean_gap(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the mean gap per row: the sum of the gaps divided by the total weight of the bins."""
    value = sum_exactly(gaps) / sum_exactly(b.weight for b in bins)
    return Limits(value, value, value)


def _root_of_mean_square(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the root mean square of the gaps per row, where each bin counts in proportion to its weight."""
    total = sum_exactly(b.weight for b in bins)
    # The quotients gap**2 / weight are kept as pairs of integers, because reducing thousands of fractions would be slow.
    ratios = [(*g.as_integer_ratio(), *b.weight.as_integer_ratio()) for g, b in zip(gaps, bins, strict=True)]
    mean = Limits.quotients([(top * top * unit, bottom * bottom * w) for top, bottom, w, unit in ratios], total)
    least, most = Limits.root(mean.low), Limits.root(mean.high)
    return Limits(least.low, (least.value + most.value) / 2, most.high)


class MaximumCalibrationError(CalibrationError, tag="maximum_calibration_error"):
    """Maximum calibration error: the largest gap between mean predicted probability and share of positives in any bin.

    Formula: max over bins of |mean p - share of positives|. It corresponds to `norm="max"` in torchmetrics.

    Notes
    -----
    Bounds, memory and time are the same as for ExpectedCalibrationError. With "uniform" and "log", a bin with only a few
    rows can determine the value. With `strategy="quantile"`, all bins have about the same weight. The value is undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaximumCalibrationError(n_bins=2).update([0, 0, 1, 1], [0.125, 0.25, 0.25, 0.75]).compute()
    0.25
    """

    about = About(value_range=(0.0, 1.0), formula="max over bins of |mean predicted probability - share of positives|")

    def of(self, state: Binned) -> Limits | None:
        return _of_gaps(self._filled_bins(state), _largest_gap)


def _largest_gap(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the largest gap per row of any bin; the gap per row is the gap divided by the bin's weight."""
    value = max(g / b.weight for g, b in zip(gaps, bins, strict=True))
    return Limits(value, value, value)


class CalibrationCurve(BinnedMetric[Reliability], tag="calibration_curve"):
    """Reliability curve: the mean predicted probability and the share of positives in each bin.

    Formula: sum(w * p) / W_b and sum(w * y) / W_b for each bin b. W_b is the total weight of its rows, which have
    weights w, predictions p and labels y. The result contains the named arrays prob_pred, prob_true, weight and edges.

    Parameters
    ----------
    n_bins : int
        The number of bins, 10 by default.

    Notes
    -----
    Bounds, memory and time are the same as for ExpectedCalibrationError. scikit-learn's `calibration_curve` leaves out
    empty bins; in this metric, their values are NaN and their weight is 0. `plot()` draws the curve, with the weight of
    each bin below it.

    Examples
    --------
    >>> import streammetrics as sm
    >>> curve = sm.CalibrationCurve(n_bins=2).update([0, 0, 1, 1], [0.125, 0.25, 0.375, 0.75]).compute()
    >>> curve.prob_pred, curve.weight
    (array([0.25, 0.75]), array([3., 1.]))
    >>> curve
             from           to       weight       mean p          CTR        ratio
                0          0.5            3         0.25     0.333333         0.75
              0.5            1            1         0.75            1         0.75
    """

    about = About(
        extensive=True,
        no_interval_reason=(
            "a table of bins has no single standard error; Calibration, of all rows or of slices, has an interval"
        ),
        formula=(
            "in each bin: (sum of w p) / (sum of w) and (sum of w y) / (sum of w), for weight w, probability p and "
            "label y"
        ),
    )

    n_bins: int = setting(default=10, low=1, high=10_000)

    def of(self, state: Binned) -> Reliability:
        bins, edges = self.bins(state)
        return _curve(bins, [to_float(b.predicted, b.weight) for b in bins], edges)

    def read(self, state: Binned) -> Reading:
        return super().read(state).having(bounds=partial(self._bounds, state))

    def _bounds(self, state: Binned) -> tuple[Reliability, Reliability]:
        """Return two curves: one with the lower bounds of all points, and one with the upper bounds."""
        bins, edges = self.bins(state)
        bins = widen_for_quantization(bins, state)
        if state.weight_rounding:
            return self._widen_limits(bins, edges, state)
        return self._limits(bins, edges)

    def _widen_limits(self, bins: list[Bin], edges: Floats, state: Binned) -> tuple[Reliability, Reliability]:
        """Return the lower and upper curves, widened so that they also hold for the weights before rounding."""
        low, high = self._limits(bins, edges)
        slip = 8 * float(state.weight_rounding)

        def lower_shares(shares: Floats) -> Floats:
            return np.maximum(shares - slip, 0.0)

        def raise_shares(shares: Floats) -> Floats:
            return np.minimum(shares + slip, 1.0)

        if self.moves(state, state.weight_rounding):
            total = float(sum(b.weight for b in bins)) * (1 + slip)
            some = np.where(low.weight > 0, 0.0, NAN)
            inner = np.r_[False, np.ones(len(bins) - 1, bool), False]
            return (
                Reliability(some, some, low.weight * 0.0, np.where(inner, 0.0, edges)),
                Reliability(some + 1, some + 1, low.weight * 0.0 + total, np.where(inner, 1.0, edges)),
            )
        return (
            Reliability(lower_shares(low.prob_pred), lower_shares(low.prob_true), low.weight * (1 - slip), edges),
            Reliability(raise_shares(high.prob_pred), raise_shares(high.prob_true), high.weight * (1 + slip), edges),
        )

    def _limits(self, bins: list[Bin], edges: Floats) -> tuple[Reliability, Reliability]:
        """Return the lower and upper curves, without widening them for the rounding of weights."""
        limits = [b.means() for b in bins]
        low, high = ([pair[k] for pair in limits] for k in (0, 1))
        return _curve(bins, low, edges), _curve(bins, high, edges)


def _curve(bins: Sequence[Bin], predicted: Sequence[float], edges: Floats) -> Reliability:
    true = [to_float(b.positives, b.weight) for b in bins]
    return Reliability(np.array(predicted), np.array(true), np.array([float(b.weight) for b in bins]), edges)


class CalibrationTable(CalibrationCurve, tag="calibration_table"):
    """Decile table: weight, mean prediction, click-through rate, and ratio of prediction to rate, in bins of equal weight.

    Formula: the same as for CalibrationCurve, with `strategy="quantile"` by default. The result prints as a table. Its
    property `ratio` is the ratio of predicted to observed positives.

    Notes
    -----
    By default, the state is the same score histogram as for AUC. `bounds()` gives certified bounds on the mean
    predictions, as for ExpectedCalibrationError.

    Examples
    --------
    >>> import numpy as np
    >>> import streammetrics as sm
    >>> p = np.arange(8, dtype=np.float16) / 16
    >>> sm.CalibrationTable(n_bins=2).update([0, 0, 0, 1, 0, 1, 0, 1], p).compute()
             from           to       weight       mean p          CTR        ratio
                0         0.25            4      0.09375         0.25        0.375
             0.25            1            4      0.34375          0.5       0.6875
    """

    about = About(
        formula=(
            "in each bin: weight W, (sum of w p) / W, (sum of w y) / W, and (sum of w p) / (sum of w y), for "
            "prediction p and label y"
        )
    )

    strategy: str = setting(default="quantile", choices=("uniform", "quantile", "log"))
