"""Metrics of calibration by bins: calibration error, reliability curve.

Bins of equal width have exact sums. Bins of equal weight and of equal ratio are unions of buckets of the score histogram,
where the sum of predicted probabilities p lies between the weight of each bucket times its lower and its upper end. The
bounds allow for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import T, no_weight_reason
from ...numerics import elementary
from ...numerics.exact import UNIT, Ints, Limits, Mass, enclose, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import Reading, bounds_of_some
from ...statistics.bins import ScoreBins
from ...statistics.by_label import TopBins
from ...statistics.by_label_scores import TopScores
from ...statistics.scores import BITS, ScoreHistogram
from ..averages import OfClasses, Several

__all__ = [
    "CalibrationCurve",
    "CalibrationTable",
    "ExpectedCalibrationError",
    "MaximumCalibrationError",
    "Reliability",
]

NAN = float("nan")
Floats = NDArray[np.float64]
Binned = ScoreBins | ScoreHistogram
# If float64 sums differ by less than this share, exact integers decide which bucket is the first of a bin.
NEAR = 2.0**-50
# Rounding to 2**-60 can exceed 2 ulp of a mean of p only if the mean is below 1 / SMALL.
SMALL = 1 << 10


class Bin(NamedTuple):
    """The weight and the positives of a bin, and its sum of predicted probabilities p with lower and upper limits."""

    weight: Fraction
    positives: Fraction
    low: Fraction
    predicted: Fraction
    high: Fraction

    @property
    def is_exact(self) -> bool:
        """Whether the sum of p is known exactly."""
        return self.low is self.high or self.low == self.high

    @property
    def small(self) -> bool:
        """Whether the mean of p is below 1 / `SMALL`."""
        # Integers instead of fractions, because this runs for each of thousands of bins.
        (p, of), (w, unit) = self.predicted.as_integer_ratio(), self.weight.as_integer_ratio()
        return p * unit * SMALL < w * of

    def gap(self) -> Fraction:
        """Return the absolute difference between predicted and observed positives of the bin, in rows (or weight)."""
        return abs(self.predicted - self.positives)

    def gaps(self) -> tuple[Fraction, Fraction]:
        """Return the least and the largest possible gap, for any sum of p between its limits."""
        if self.is_exact:
            return (gap := self.gap()), gap
        above, below = self.low - self.positives, self.positives - self.high
        return max(Fraction(0), above, below), max(abs(above), abs(below))

    def wider(self, off: Fraction) -> Bin:
        """Return the bin with limits that allow for an additional error `off` of the sum of p."""
        return self._replace(low=max(self.low - off, Fraction(0)), high=min(self.high + off, self.weight))

    def means(self) -> tuple[float, float]:
        """Return the least and the largest possible mean of p; NaN without rows."""
        if self.is_exact:
            value: float = to_float(self.predicted, self.weight)
            return value, value
        return enclose(self.low / self.weight, self.high / self.weight)


class Reliability(NamedTuple):
    """Predicted and observed shares of positives, bin by bin; empty bins are NaN.

    Parameters
    ----------
    prob_pred : float64 array of shape (n_bins,)
        Mean predicted probability.
    prob_true : float64 array of shape (n_bins,)
        Share of positives: the click-through rate.
    weight : float64 array of shape (n_bins,)
        Rows, or their weight.
    edges : float64 array of shape (n_bins + 1,)
        Where the bins begin and end.
    """

    prob_pred: Floats
    prob_true: Floats
    weight: Floats
    edges: Floats

    @property
    def ratio(self) -> Floats:
        """Predicted over observed positives of each bin, as in `Calibration`; NaN for bins without positives."""
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
    """A metric that compares predicted and observed positives in bins of the score.

    Parameters
    ----------
    n_bins : int
        The number of bins.
    strategy : {"uniform", "quantile", "log"}
        How bins are made. "uniform": bin i holds i/n <= p < (i + 1)/n, decided exactly; the last bin is closed.
        "quantile": bins of equal weight, made of buckets of the score histogram; a bucket belongs to the bin of its
        middle row. "log": the edges are 0, 2**-(n - 1), ..., 1/4, 1/2, 1.
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits, which are converted by the sigmoid (of classes, by the
        softmax).
    bits : int, optional
        The logarithm, to base 2, of the number of histogram buckets; "uniform" bins do not need them.
    """

    about = About(
        cost="uniform: 48 bytes a bin, 4 ns a row; others: the histogram of AUC",
        bound=(
            "uniform: exact, below 0.001 within 2**-60; others: p between the ends of its bucket; 0 for half precision"
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
        """Return the bins and their edges."""
        if isinstance(state, ScoreBins):
            return _own_bins(state), np.arange(self.n_bins + 1) / self.n_bins
        masses, positives, low, grid, high = _buckets(state)
        if self.strategy == "log":
            inner = np.ldexp(1.0, np.arange(1 - self.n_bins, 0))
            cuts = np.searchsorted(grid, inner).tolist()
        else:
            cuts = _equal_masses(masses, self.n_bins)
            inner = np.r_[low, 1.0][cuts] if masses.total() else np.full(len(cuts), NAN)
        return _unions(state, masses, positives, [0, *cuts, len(low)], low, grid, high), np.r_[0.0, inner, 1.0]

    def moves(self, state: Binned, rounding: Fraction) -> bool:
        """Return whether weights with a relative error `rounding` could put a bucket into another bin."""
        if isinstance(state, ScoreBins) or self.strategy != "quantile":
            return False
        first, last = _about_equal(_buckets(state)[0], self.n_bins, 4 * float(rounding))
        return bool((first < last).any())


def _buckets(state: ScoreHistogram) -> tuple[Mass, Mass, Floats, Floats, Floats]:
    """Return the weight, the positives, and the low, usual and high probability of each bucket."""
    low, grid, high = _probabilities(state)
    masses, positives = state.masses, state.positives
    # Exact scores whose rows all have weight 0 are removed, so that they do not become edges of bins.
    if not state.has_buckets:
        some = masses.digits.any(axis=0)
        low, grid, high = low[some], grid[some], high[some]
        masses, positives = Mass(masses.digits[:, some]), Mass(positives.digits[:, some])
    return masses, positives, low, grid, high


def _own_bins(state: ScoreBins) -> list[Bin]:
    # If the state has one cell, all bins are read at once, because there can be thousands of them.
    if state.rows.ndim == 2:
        unit, sums = state.unit, state.predicted_units()
        columns = zip(*state.masses(np.arange(state.n_bins)), sums, strict=True)
        return [
            Bin(Fraction(no + yes, unit), Fraction(yes, unit), p := Fraction(of_p, UNIT), p, p)
            for no, yes, of_p in columns
        ]
    bins = []
    for i in range(state.n_bins):
        positives, p = state.mass(1, i), state.predicted_sum(i)
        bins.append(Bin(state.mass(0, i) + positives, positives, p, p, p))
    return bins


def _widen_for_grain(bins: list[Bin], state: Binned) -> list[Bin]:
    """Return the bins with limits that allow for rounding to 2**-60, if this error exceeds the 2 ulp of p itself."""
    if not isinstance(state, ScoreBins):
        return bins
    rows = state.rows.sum(axis=0).tolist()
    return [b.wider(Fraction(n, UNIT)) if b.small else b for b, n in zip(bins, rows, strict=True)]


def _probabilities(state: ScoreHistogram) -> tuple[Floats, Floats, Floats]:
    """Return the ends of buckets as probabilities; for logits the error of the sigmoid widens them."""
    low, grid, high = state.value_bounds()
    if state.scale == "probability":
        return low, grid, high
    low, grid, high = (elementary.sigmoid(np.clip(z, -800.0, 800.0)) for z in (low, grid, high))
    return low * (1 - 2.0**-50), grid, np.minimum(high * (1 + 2.0**-50), 1.0)


def _equal_masses(masses: Mass, n_bins: int) -> list[int]:
    """Return the first bucket of bins 1, 2, ...: a bucket belongs to the bin that contains its middle row.

    That is bin i if i/n <= (weight before the bucket + half of its own weight) / total weight.
    """
    # Float64 sums leave few candidates for each bin; a binary search with exact integers decides between them.
    first, last = _about_equal(masses, n_bins, NEAR)
    before, total = masses.sums_before(), masses.total()

    def begins(i: int) -> int:
        low, high = int(first[i - 1]), int(last[i - 1])
        while low < high:
            k = (low + high) // 2
            middle = 2 * before.cell(k) + masses.cell(k)
            low, high = (low, k) if n_bins * middle >= 2 * total * i else (k + 1, high)
        return low

    bins: list[int] = first.tolist()
    for i in (np.flatnonzero(first < last) + 1).tolist():
        bins[i - 1] = begins(i)
    return bins


def _about_equal(masses: Mass, n_bins: int, slack: float) -> tuple[Ints, Ints]:
    """Return the least and the largest possible first bucket of these bins, for weights with a relative error `slack`."""
    own = masses.to_floats()
    middles = np.cumsum(own) - own / 2
    shares = np.arange(1, n_bins) / n_bins * float(masses.total())
    # Each step of the cumulative sum adds a rounding error.
    slack += len(own) * 2.0**-51
    return np.searchsorted(middles, shares * (1 - slack)), np.searchsorted(middles, shares * (1 + slack))


def _unions(
    state: ScoreHistogram,
    masses: Mass,
    positives: Mass,
    cuts: Sequence[int],
    low: Floats,
    grid: Floats,
    high: Floats,
) -> list[Bin]:
    """Return the bins that begin at the buckets `cuts`, each of which ends where the next one begins."""
    unit, at = UNIT if state.has_weights else 1, np.array(cuts)
    if state.is_exact:
        least = most = _sums(masses, grid, at)
    else:
        least, most = (
            masses.segment_dots(Mass.from_rows(_round_to_units(p, up)), at) * Fraction(1, UNIT)
            for p, up in ((low, False), (high, True))
        )
    columns = (x.tolist() for x in (masses.segment_sums(at), positives.segment_sums(at), least, most))
    bins = []
    for weight, positive, a, b in zip(*columns, strict=True):
        if unit != 1:
            a, b = a / unit, b / unit
        bins.append(Bin(Fraction(weight, unit), Fraction(positive, unit), a, a if a == b else (a + b) / 2, b))
    return bins


def _sums(masses: Mass, p: Floats, cuts: Ints) -> NDArray[Any]:
    """Return the exact sum of weights times probabilities for each bin, where `cuts` are the first buckets of bins."""
    # Buckets are sorted by bin and exponent. The buckets with the same bin and exponent need only one integer dot product,
    # scaled by a power of two, so there is one fraction for all of them instead of one for each.
    mantissas, exponents = np.frexp(p)
    bins = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    order = np.lexsort([exponents, bins])
    bins, exponents = bins[order], exponents[order]
    fresh = np.flatnonzero((np.diff(bins, prepend=-1) != 0) | (np.diff(exponents, prepend=0) != 0))
    whole = Mass.from_rows((mantissas[order] * 2.0**53).astype(np.int64))
    found = masses[order].segment_dots(whole, np.append(fresh, len(order)))
    out = np.full(len(cuts) - 1, Fraction(0))
    for i, e, x in zip(bins[fresh].tolist(), exponents[fresh].tolist(), found.tolist(), strict=True):
        out[i] += x * Fraction(2) ** (e - 53)
    return out


def _round_to_units(p: Floats, up: bool) -> Ints:
    """Return probabilities in units of 2**-60, rounded down or up; those at the edges of buckets are whole units."""
    scaled = p * float(UNIT)
    whole = np.ceil(scaled) if up else np.floor(scaled)
    return whole.astype(np.int64)


def _total(parts: Iterable[Fraction]) -> Fraction:
    """Return the sum of fractions; those with the same divisor are added as integers first."""
    sums: dict[int, int] = {}
    for part in parts:
        top, bottom = part.as_integer_ratio()
        sums[bottom] = sums.get(bottom, 0) + top
    return sum((Fraction(top, bottom) for bottom, top in sums.items()), Fraction(0))


class CalibrationError(Several[Binned], BinnedMetric[Any]):
    """A metric of the gaps between predicted and observed positives in each bin."""

    about = About(
        no_interval_reason=(
            "gaps are never negative, so chance alone widens them; "
            "Calibration, over all rows or slices, has an interval"
        ),
        best="low",
    )

    @property
    def name(self) -> str:
        return self._with_average(super().name)

    def slack(self, state: Binned, limits: Limits, rounding: Fraction) -> Fraction:
        # If rounded weights could put a bucket into another bin, the value could be off by up to 1. Otherwise a gap, which
        # is a difference of sums divided by a weight, changes by at most a few times `rounding`.
        return Fraction(1) if self.moves(state, rounding) else 8 * rounding

    def _filled_bins(self, state: Binned) -> list[Bin]:
        """Return the bins with rows, with limits that allow for rounding to 2**-60."""
        return [b for b in _widen_for_grain(self.bins(state)[0], state) if b.weight]


def _of_gaps(bins: Sequence[Bin], make_limits: Callable[[Sequence[Fraction], Sequence[Bin]], Limits]) -> Limits | None:
    """Apply a function to the gaps of bins, and return its value with limits for all possible gaps; None without bins."""
    if not bins:
        return None
    found = make_limits([b.gap() for b in bins], bins)
    if all(b.is_exact for b in bins):
        return found
    least, most = zip(*(b.gaps() for b in bins), strict=True)
    return Limits(make_limits(least, bins).low, found.value, make_limits(most, bins).high)


def _read_uniform_bins(metric: ExpectedCalibrationError, state: Any) -> Reading | None:
    """Return one `Reading` with arrays for all cells (such as slices), if bins have equal width and norm is "l1"."""
    if not (state.can_vectorize and metric.strategy == "uniform" and metric.norm == "l1"):
        return None
    side = state.vectorize()
    bins: Any = metric.bins(side)[0]
    found = Reading(side, to_float(sum(b.gap() for b in bins), sum(b.weight for b in bins)))
    return found.having(bounds=partial(metric._bounds_of_cells, state, found, bins))


class ExpectedCalibrationError(CalibrationError, tag="expected_calibration_error"):
    """Expected calibration error: the mean over bins of the gap between mean predicted probability and share of positives.

    Formula: sum over bins of W_b / W |mean p - share of positives|. With `norm="l2"` the value is the square root of the
    weighted mean of the squared gaps.

    Parameters
    ----------
    n_bins : int
        The number of bins; the default of 15 is that of Guo et al. (2017) and torchmetrics.
    norm : {"l1", "l2"}
        Whether the value is the mean gap ("l1") or the root mean square of the gaps ("l2").
    num_classes, labels : int, or tuple
        For several classes, only the class with the highest probability is used, and the event is a right prediction
        (Guo et al. 2017).

    Notes
    -----
    With `strategy="uniform"` the value is exact: the sums of p by bin are exact, and the value is rounded once. The state
    takes 48 bytes a bin; a row takes about 4 ns. The other strategies read the score histogram of AUC. The bounds follow
    from the sum of p of a bucket, which lies between its weight times its lower and its upper end. The value uses the
    middle of both, and is exact for half-precision scores. `compute()` takes milliseconds.

    Bins are those of torchmetrics, except that torchmetrics puts p = 1 into a bin of its own, and that its float32 edges
    move a few rows. scikit-learn's `calibration_curve` closes bins on the right instead. The value is undefined without
    rows.

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
        formula="sum over bins of W_b / W |mean p - share of positives|",
    )

    norm: str = setting(default="l1", choices=("l1", "l2"))

    def of(self, state: Binned) -> Limits | None:
        return _of_gaps(self._filled_bins(state), _mean_gap if self.norm == "l1" else _root_of_mean_square)

    def _bounds_of_cells(self, state: Any, reading: Reading, bins: Sequence[Any]) -> tuple[Any, Any]:
        """Return the bounds of all cells; a cell that has a bin with a small mean of p is computed by itself."""
        means = [to_float(b.predicted, b.weight) for b in bins]
        return bounds_of_some(self, state, reading.value, np.logical_or.reduce([mean * SMALL < 1 for mean in means]))


def _mean_gap(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the mean absolute gap: the sum of the gaps over the total weight of the bins."""
    value = _total(gaps) / _total(b.weight for b in bins)
    return Limits(value, value, value)


def _root_of_mean_square(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the root of the mean square of the gaps per row, weighted by the weights of the bins."""
    total = _total(b.weight for b in bins)
    # The quotients gap**2 / weight stay pairs of integers that are not reduced, which is fast for thousands of bins.
    ratios = [(*g.as_integer_ratio(), *b.weight.as_integer_ratio()) for g, b in zip(gaps, bins, strict=True)]
    mean = Limits.quotients([(top * top * unit, bottom * bottom * w) for top, bottom, w, unit in ratios], total)
    least, most = Limits.root(mean.low), Limits.root(mean.high)
    return Limits(least.low, (least.value + most.value) / 2, most.high)


class MaximumCalibrationError(CalibrationError, tag="maximum_calibration_error"):
    """Maximum calibration error: the largest gap between mean predicted probability and share of positives in any bin.

    Formula: max over bins of |mean p - share of positives|. It is torchmetrics' `norm="max"`.

    Notes
    -----
    The bound and the cost are those of ExpectedCalibrationError. A bin with few rows can determine the value;
    `strategy="quantile"` has no such bins. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaximumCalibrationError(n_bins=2).update([0, 0, 1, 1], [0.125, 0.25, 0.25, 0.75]).compute()
    0.25
    """

    about = About(value_range=(0.0, 1.0), formula="max over bins of |mean p - share of positives|")

    def of(self, state: Binned) -> Limits | None:
        return _of_gaps(self._filled_bins(state), _largest_gap)


def _largest_gap(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the largest gap per row of any bin."""
    value = max(g / b.weight for g, b in zip(gaps, bins, strict=True))
    return Limits(value, value, value)


class CalibrationCurve(BinnedMetric[Reliability], tag="calibration_curve"):
    """Reliability curve: the mean predicted probability and the share of positives in each bin.

    Formula: sum w p / W_b and sum w y / W_b for each bin. The result has the named arrays prob_pred, prob_true, weight and
    edges.

    Parameters
    ----------
    n_bins : int
        The number of bins, 10 by default.

    Notes
    -----
    The bound and the cost are those of ExpectedCalibrationError. scikit-learn's `calibration_curve` leaves out empty bins;
    here they are NaN and have a weight of 0. `reports.plots.plot` draws the curve, with the weight of each bin below it.

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
        no_interval_reason="bins have no one standard error; Calibration, over all rows or slices, has an interval",
        formula="by bin: sum w p / W_b, sum w y / W_b",
    )

    n_bins: int = setting(default=10, low=1, high=10_000)

    def of(self, state: Binned) -> Reliability:
        bins, edges = self.bins(state)
        return _curve(bins, [to_float(b.predicted, b.weight) for b in bins], edges)

    def read(self, state: Binned) -> Reading:
        return super().read(state).having(bounds=partial(self._bounds, state))

    def _bounds(self, state: Binned) -> tuple[Reliability, Reliability]:
        """Return two curves: the lower and the upper bounds of all points."""
        bins, edges = self.bins(state)
        bins = _widen_for_grain(bins, state)
        if state.weight_rounding:
            return self._widen_limits(bins, edges, state)
        return self._limits(bins, edges)

    def _widen_limits(self, bins: list[Bin], edges: Floats, state: Binned) -> tuple[Reliability, Reliability]:
        """Return the lower and the upper curve for weights as they were before rounding."""
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
        """Return the lower and upper limits, assuming that the weights were not rounded."""
        limits = [b.means() for b in bins]
        low, high = ([pair[k] for pair in limits] for k in (0, 1))
        return _curve(bins, low, edges), _curve(bins, high, edges)


def _curve(bins: Sequence[Bin], predicted: Sequence[float], edges: Floats) -> Reliability:
    true = [to_float(b.positives, b.weight) for b in bins]
    return Reliability(np.array(predicted), np.array(true), np.array([float(b.weight) for b in bins]), edges)


class CalibrationTable(CalibrationCurve, tag="calibration_table"):
    """Decile table: weight, mean predicted probability, click-through rate and their ratio, in bins of equal weight.

    Formula: the same as CalibrationCurve, with `strategy="quantile"` by default. The result prints as a table, and has the
    ratio of predicted to observed as the property `ratio`.

    Notes
    -----
    The table is read from the score histogram of AUC. `bounds()` certifies the mean predictions in the same way as for
    ExpectedCalibrationError.

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

    about = About(formula="by decile: W_b, sum w p / W_b, sum w y / W_b, sum w p / sum w y")

    strategy: str = setting(default="quantile", choices=("uniform", "quantile", "log"))
