"""Metrics of how well probabilities are probabilities, bin by bin: calibration error, reliability curve.

Bins of equal width have sums of their own. Bins of equal mass and of equal ratio are unions of the buckets of the score
histogram that AUC reads; the sum of p in a bucket lies between its ends times its weight, which is what is certified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import T, nothing_counted
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
NEAR = 2.0**-50
SMALL = 1 << 10  # of a mean of p below one over this 2**-60 is more than 2 ulp


class Bin(NamedTuple):
    """One bin: its weight, its positives, and what is known of its sum of p."""

    weight: Fraction
    positives: Fraction
    low: Fraction
    predicted: Fraction
    high: Fraction

    @property
    def known(self) -> bool:
        """Whether the sum of p is known, not between limits."""
        return self.low is self.high or self.low == self.high

    @property
    def small(self) -> bool:
        """Whether the mean of p is below 1 / `SMALL`; thousands of bins are asked, so without fractions."""
        (p, of), (w, unit) = self.predicted.as_integer_ratio(), self.weight.as_integer_ratio()
        return p * unit * SMALL < w * of

    def gap(self) -> Fraction:
        """How far the predicted positives are from the true ones."""
        return abs(self.predicted - self.positives)

    def gaps(self) -> tuple[Fraction, Fraction]:
        """The least and the most that the gap can be."""
        if self.known:
            return (gap := self.gap()), gap
        above, below = self.low - self.positives, self.positives - self.high
        return max(Fraction(0), above, below), max(abs(above), abs(below))

    def wider(self, off: Fraction) -> Bin:
        """The same where the sum of p may be off by so much."""
        return self._replace(low=max(self.low - off, Fraction(0)), high=min(self.high + off, self.weight))

    def means(self) -> tuple[float, float]:
        """The least and the most that the mean of p can be; NaN without rows."""
        if self.known:
            value: float = to_float(self.predicted, self.weight)
            return value, value
        return enclose(self.low / self.weight, self.high / self.weight)


class Reliability(NamedTuple):
    """What was predicted and what came, bin by bin; empty bins are NaN.

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
        """Predicted over observed, as `Calibration` has it: NaN where nothing was observed."""
        seen = self.prob_true > 0
        return np.where(seen, self.prob_pred / np.where(seen, self.prob_true, 1.0), NAN)

    def __repr__(self) -> str:
        head = ("from", "to", "weight", "mean p", "CTR", "ratio")
        columns = self.edges[:-1], self.edges[1:], self.weight, self.prob_pred, self.prob_true, self.ratio
        lines = [head, *([f"{v:.6g}" for v in row] for row in zip(*columns, strict=True))]
        return "\n".join("".join(f"{text:>13}" for text in line) for line in lines)

    def __str__(self) -> str:
        found = np.abs(self.prob_pred - self.prob_true)[self.weight > 0]
        return f"{len(self.weight)} bins" + (f", largest gap {found.max():.2g}" if len(found) else ", no rows")


class BinnedMetric(OfClasses[Binned, T]):
    """A metric that reads what was predicted and what came, bin by bin."""

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
        return nothing_counted(state)

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
        """Return whether weights that are off by a share could begin a bin with another bucket."""
        if isinstance(state, ScoreBins) or self.strategy != "quantile":
            return False
        first, last = _about_equal(_buckets(state)[0], self.n_bins, 4 * float(rounding))
        return bool((first < last).any())


def _buckets(state: ScoreHistogram) -> tuple[Mass, Mass, Floats, Floats, Floats]:
    """What the buckets weigh, of that the positives, and their `ends` as probabilities."""
    low, grid, high = _probabilities(state)
    masses, positives = state.masses, state.positives
    if not state.folded:  # a row of weight 0 makes no edge, as an empty bucket makes none
        some = masses.digits.any(axis=0)
        low, grid, high = low[some], grid[some], high[some]
        masses, positives = Mass(masses.digits[:, some]), Mass(positives.digits[:, some])
    return masses, positives, low, grid, high


def _own_bins(state: ScoreBins) -> list[Bin]:
    if state.rows.ndim == 2:  # of one cell: thousands of bins at once
        unit, sums = state.unit, state.predicted_units()
        columns = zip(*state.masses(np.arange(state.n_bins)), sums, strict=True)
        return [
            Bin(Fraction(no + yes, unit), Fraction(yes, unit), p := Fraction(of_p, UNIT), p, p)
            for no, yes, of_p in columns
        ]
    made = []
    for i in range(state.n_bins):
        positives, p = state.mass(1, i), state.predicted(i)
        made.append(Bin(state.mass(0, i) + positives, positives, p, p, p))
    return made


def _grained(bins: list[Bin], state: Binned) -> list[Bin]:
    """Bins, their sum of p half a unit of 2**-60 a row wider, twice, where that is more than the 2 ulp of p itself."""
    if not isinstance(state, ScoreBins):
        return bins
    rows = state.rows.sum(axis=0).tolist()
    return [b.wider(Fraction(n, UNIT)) if b.small else b for b, n in zip(bins, rows, strict=True)]


def _probabilities(state: ScoreHistogram) -> tuple[Floats, Floats, Floats]:
    """Return `ends` as probabilities, those of a logit a little wider than the sigmoid's error."""
    low, grid, high = state.ends()
    if state.scale == "probability":
        return low, grid, high
    low, grid, high = (elementary.sigmoid(np.clip(z, -800.0, 800.0)) for z in (low, grid, high))
    return low * (1 - 2.0**-50), grid, np.minimum(high * (1 + 2.0**-50), 1.0)


def _equal_masses(masses: Mass, n_bins: int) -> list[int]:
    """Return where bins 1, 2, ... begin: a bucket is of bin i if its middle row is, i/n <= (before + its own/2) / all."""
    first, last = _about_equal(masses, n_bins, NEAR)
    before, total = masses.before(), masses.total()

    def begins(i: int) -> int:
        low, high = int(first[i - 1]), int(last[i - 1])
        while low < high:
            k = (low + high) // 2
            middle = 2 * before.cell(k) + masses.cell(k)
            low, high = (low, k) if n_bins * middle >= 2 * total * i else (k + 1, high)
        return low

    made: list[int] = first.tolist()
    for i in (np.flatnonzero(first < last) + 1).tolist():
        made[i - 1] = begins(i)
    return made


def _about_equal(masses: Mass, n_bins: int, slack: float) -> tuple[Ints, Ints]:
    """Return the least and the last buckets with which those bins may begin, if weights are off by a share."""
    own = masses.floats()
    middles = np.cumsum(own) - own / 2
    shares = np.arange(1, n_bins) / n_bins * float(masses.total())
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
    """Return the bins from each cut to the next."""
    unit, at = UNIT if state.weighted else 1, np.array(cuts)
    if state.is_exact:
        least = most = _sums(masses, grid, at)
    else:
        least, most = (
            masses.dots(Mass.of(_fixed(p, up)), at) * Fraction(1, UNIT) for p, up in ((low, False), (high, True))
        )
    columns = (x.tolist() for x in (masses.totals(at), positives.totals(at), least, most))
    made = []
    for weight, positive, a, b in zip(*columns, strict=True):
        if unit != 1:
            a, b = a / unit, b / unit
        made.append(Bin(Fraction(weight, unit), Fraction(positive, unit), a, a if a == b else (a + b) / 2, b))
    return made


def _sums(masses: Mass, p: Floats, cuts: Ints) -> NDArray[Any]:
    """The sums of masses times floats from each cut to the next, unrounded: of each exponent, mantissas are whole."""
    mantissas, exponents = np.frexp(p)
    bins = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    order = np.lexsort([exponents, bins])
    bins, exponents = bins[order], exponents[order]
    fresh = np.flatnonzero((np.diff(bins, prepend=-1) != 0) | (np.diff(exponents, prepend=0) != 0))
    whole = Mass.of((mantissas[order] * 2.0**53).astype(np.int64))
    found = masses[order].dots(whole, np.append(fresh, len(order)))
    out = np.full(len(cuts) - 1, Fraction(0))
    for i, e, x in zip(bins[fresh].tolist(), exponents[fresh].tolist(), found.tolist(), strict=True):
        out[i] += x * Fraction(2) ** (e - 53)
    return out


def _fixed(p: Floats, up: bool) -> Ints:
    """Probabilities in units of 2**-60, rounded down or up: those of a bucket of probabilities are whole."""
    scaled = p * float(UNIT)
    whole = np.ceil(scaled) if up else np.floor(scaled)
    return whole.astype(np.int64)


def _total(parts: Iterable[Fraction]) -> Fraction:
    """The sum of fractions of few divisors: those of each are added as whole numbers."""
    sums: dict[int, int] = {}
    for part in parts:
        top, bottom = part.as_integer_ratio()
        sums[bottom] = sums.get(bottom, 0) + top
    return sum((Fraction(top, bottom) for bottom, top in sums.items()), Fraction(0))


class CalibrationError(Several[Binned], BinnedMetric[Any]):
    """A metric of the gaps between predicted and true positives."""

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

    def slack(self, state: Binned, found: Limits, rounding: Fraction) -> Fraction:
        # of a difference of sums, to which each row brings w p as a multiple of 2**-60
        return Fraction(1) if self.moves(state, rounding) else 8 * rounding

    def _filled(self, state: Binned) -> list[Bin]:
        """Return the bins that have rows."""
        return [b for b in _grained(self.bins(state)[0], state) if b.weight]


def _of_gaps(bins: Sequence[Bin], made: Callable[[Sequence[Fraction], Sequence[Bin]], Limits]) -> Limits | None:
    """Return what is made of the gaps of bins, and of the least and the largest that they can be; None without bins."""
    if not bins:
        return None
    found = made([b.gap() for b in bins], bins)
    if all(b.known for b in bins):
        return found
    least, most = zip(*(b.gaps() for b in bins), strict=True)
    return Limits(made(least, bins).low, found.value, made(most, bins).high)


def _read_uniform_bins(metric: ExpectedCalibrationError, state: Any) -> Reading | None:
    """Return the reading of all cells as arrays, if the bins have fixed edges and the value is a mean."""
    if not (state.stacks and metric.strategy == "uniform" and metric.norm == "l1"):
        return None
    side = state.stacked()
    bins: Any = metric.bins(side)[0]
    found = Reading(side, to_float(sum(b.gap() for b in bins), sum(b.weight for b in bins)))
    return found.having(bounds=partial(metric._bounds_of_cells, state, found, bins))


class ExpectedCalibrationError(CalibrationError, tag="expected_calibration_error"):
    """Expected calibration error: the mean distance between predicted probability and share of positives, over bins.

    Formula: sum over bins of W_b / W |mean p - share of positives|; `norm="l2"` the root of the mean square.

    Parameters
    ----------
    n_bins : int
        How many bins; 15 as in Guo et al. (2017) and torchmetrics.
    strategy : {"uniform", "quantile", "log"}
        `uniform`: i/n <= p < (i + 1)/n, the last bin closed, decided exactly. `quantile`: bins of equal weight, made of
        buckets of the score histogram; a bucket belongs where its middle row does. `log`: each bin from half to the whole
        of the next: 0, 2**-(n - 1), ..., 1/4, 1/2, 1.
    norm : {"l1", "l2"}
        Mean distance, or root of the mean square.
    scale : {"probability", "logit"}
        A logit is turned into the probability first; of classes by softmax.
    num_classes, labels : int, or tuple
        Of classes (see AUC) only the one with the highest probability counts: is it the true one? (Guo et al.)
    num_labels, average
        Of labels as for AUC.
    bits : int, optional
        Resolution of the score histogram, as for AUC; `uniform` does not use it.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    `uniform` is exact: sums of p by bin, rounded once; 48 bytes a bin, about 4 ns a row. The others read the state of AUC,
    with a bound: the sum of p of a bucket lies between its ends times its weight; the value takes their middle, and is
    exact for half-precision scores; milliseconds to compute. Bins as in torchmetrics, which gives p = 1 a bin of
    its own, and whose float32 edges move a few rows; scikit-learn's `calibration_curve` closes bins on the right instead.
    Undefined without rows.

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
        return _of_gaps(self._filled(state), _mean_gap if self.norm == "l1" else _root_of_mean_square)

    def _bounds_of_cells(self, state: Any, found: Reading, bins: Sequence[Any]) -> tuple[Any, Any]:
        """Return the bounds of all cells; those with a bin whose mean of p is small are read alone."""
        means = [to_float(b.predicted, b.weight) for b in bins]
        return bounds_of_some(self, state, found.value, np.logical_or.reduce([mean * SMALL < 1 for mean in means]))


def _mean_gap(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the mean of the gaps of the means."""
    value = _total(gaps) / _total(b.weight for b in bins)
    return Limits(value, value, value)


def _root_of_mean_square(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the root of the mean square of the gaps of the means."""
    total = _total(b.weight for b in bins)
    # g**2 / w in whole numbers, not reduced: thousands of bins are fast
    ratios = [(*g.as_integer_ratio(), *b.weight.as_integer_ratio()) for g, b in zip(gaps, bins, strict=True)]
    mean = Limits.quotients([(top * top * unit, bottom * bottom * w) for top, bottom, w, unit in ratios], total)
    least, most = Limits.root(mean.low), Limits.root(mean.high)
    return Limits(least.low, (least.value + most.value) / 2, most.high)


class MaximumCalibrationError(CalibrationError, tag="maximum_calibration_error"):
    """Maximum calibration error: the largest distance between predicted probability and share of positives of a bin.

    Formula: max over bins of |mean p - share of positives|.

    Parameters
    ----------
    n_bins, strategy, scale, num_classes, labels, num_labels, average, bits, on_invalid
        As for ExpectedCalibrationError.

    Notes
    -----
    Exact or certified, and at the cost of, ExpectedCalibrationError; torchmetrics' `norm="max"`. A bin of few rows can
    decide it: "quantile" has none. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaximumCalibrationError(n_bins=2).update([0, 0, 1, 1], [0.125, 0.25, 0.25, 0.75]).compute()
    0.25
    """

    about = About(value_range=(0.0, 1.0), formula="max over bins of |mean p - share of positives|")

    def of(self, state: Binned) -> Limits | None:
        return _of_gaps(self._filled(state), _largest_gap)


def _largest_gap(gaps: Sequence[Fraction], bins: Sequence[Bin]) -> Limits:
    """Return the largest of the gaps of the means."""
    value = max(g / b.weight for g, b in zip(gaps, bins, strict=True))
    return Limits(value, value, value)


class CalibrationCurve(BinnedMetric[Reliability], tag="calibration_curve"):
    """Reliability curve: mean predicted probability and share of positives, bin by bin.

    Formula: by bin sum w p / W_b and sum w y / W_b. The result names its arrays: prob_pred, prob_true, weight, edges.

    Parameters
    ----------
    n_bins, strategy, scale, num_classes, labels, bits, on_invalid
        As for ExpectedCalibrationError, with 10 bins.

    Notes
    -----
    Exact or certified, and at the cost of, ExpectedCalibrationError. scikit-learn's `calibration_curve` leaves empty bins
    out; here they are NaN with a weight of 0. `reports.plots.plot` draws it, with the weight of each bin below.

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
        """Return the least and the largest curve that the state allows."""
        bins, edges = self.bins(state)
        bins = _grained(bins, state)
        if state.slip:
            return self._widened(bins, edges, state)
        return self._limits(bins, edges)

    def _widened(self, bins: list[Bin], edges: Floats, state: Binned) -> tuple[Reliability, Reliability]:
        """Return limits that hold of weights as they were before they were rounded."""
        low, high = self._limits(bins, edges)
        slip = 8 * float(state.slip)

        def below(shares: Floats) -> Floats:
            return np.maximum(shares - slip, 0.0)

        def above(shares: Floats) -> Floats:
            return np.minimum(shares + slip, 1.0)

        if self.moves(state, state.slip):
            total = float(sum(b.weight for b in bins)) * (1 + slip)
            some = np.where(low.weight > 0, 0.0, NAN)
            inner = np.r_[False, np.ones(len(bins) - 1, bool), False]
            return (
                Reliability(some, some, low.weight * 0.0, np.where(inner, 0.0, edges)),
                Reliability(some + 1, some + 1, low.weight * 0.0 + total, np.where(inner, 1.0, edges)),
            )
        return (
            Reliability(below(low.prob_pred), below(low.prob_true), low.weight * (1 - slip), edges),
            Reliability(above(high.prob_pred), above(high.prob_true), high.weight * (1 + slip), edges),
        )

    def _limits(self, bins: list[Bin], edges: Floats) -> tuple[Reliability, Reliability]:
        """Return limits that hold of weights as they were counted."""
        limits = [b.means() for b in bins]
        low, high = ([pair[k] for pair in limits] for k in (0, 1))
        return _curve(bins, low, edges), _curve(bins, high, edges)


def _curve(bins: Sequence[Bin], predicted: Sequence[float], edges: Floats) -> Reliability:
    true = [to_float(b.positives, b.weight) for b in bins]
    return Reliability(np.array(predicted), np.array(true), np.array([float(b.weight) for b in bins]), edges)


class CalibrationTable(CalibrationCurve, tag="calibration_table"):
    """Decile table: rows, mean predicted probability, click-through rate and their ratio, in bins of equal weight.

    Formula: that of CalibrationCurve with `strategy="quantile"`; the result prints as a table, `ratio` is a property.

    Parameters
    ----------
    n_bins, strategy, scale, bits, on_invalid
        As for CalibrationCurve.

    Notes
    -----
    Reads the score histogram of AUC, and certifies the means of p as ExpectedCalibrationError does.

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
