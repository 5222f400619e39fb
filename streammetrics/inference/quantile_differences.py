"""Differences between the quantiles of two sides, for data in which a single stored value has much of the weight.

If the data are whole seconds, or only the values 1 and 2, a quantile jumps from one stored value to the next. Such data
have no density, so the standard error of `quantile_replicates` is not valid. Instead, the interval of the difference is
the set of all differences between a value in Woodruff's interval for the quantile of side `a` and a value in Woodruff's
interval for the quantile of side `b`. A higher confidence level gives a larger set. The p-value is 1 minus the lowest
level at which the set contains the difference stated by the null hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.student_t import normal_of_t
from ..reading.about import about_of
from ..reading.interval import critical_value
from ..reading.link_functions import SCALES, scale_of
from ..reading.replicates import Sample
from ..statistics.value_order import BucketWeights
from .estimates import ScaledEstimate, estimate_from_error
from .jackknife import build_contrast, jackknife, jackknife_variance, subtract_replicates, sum_shards
from .pairs import Pair
from .quantiles import compute_share
from .reasons import Reasons, add_reasons, build_reasons, has_reason

__all__ = ["QuantileSet", "QuantileSteps", "insert_quantile_sets"]

Floats = NDArray[np.float64]
NAN, INF = float("nan"), float("inf")
LOGIT = SCALES["logit"]
# A `QuantileSet` replaces the standard error where one stored value holds more than this share of the weight inside the
# interval of either side. Up to this share, the standard error is at most 3 % too small.
STEP_SHARE = 0.15
# A bucket with several values counts as one stored value if it is more than SPIKE times as heavy as each neighbor.
SPIKE = 4.0
SET = "all differences of the values in both Woodruff intervals"
NOT_ADJUSTED = f"{SET}, without covariates, which cannot adjust a quantile of few values"
# A quantile has no interval if fewer rows than this are expected between it and the nearer end of the data.
FEWEST_BEYOND = 5.0
# The confidence level of the intervals that decide whether a `QuantileSet` is used, and the half width of such an
# interval in standard errors.
USUAL = 0.95
USUAL_DEVIATE = float(critical_value(USUAL, INF))


@dataclass(frozen=True, eq=False)
class QuantileSteps:
    """The buckets of one side, with the smallest half width at which the interval of the quantile includes each bucket.

    Parameters
    ----------
    low, high : float64
        The bounds on the values in each bucket, in ascending order.
    down, up : float64
        For each bucket, the smallest half width at which the lower limit of the interval is at or below the bucket
        (`down`), or the upper limit is at or above it (`up`). Half widths are normal deviates (1.96 at 95 %).
    """

    low: Floats
    high: Floats
    down: Floats
    up: Floats

    def limits(self, deviate: float) -> tuple[float, float]:
        """Return the limits of the quantile's interval whose half width is the normal deviate `deviate`."""
        first = int(np.argmax(self.down <= deviate))
        last = len(self.up) - 1 - int(np.argmax(self.up[::-1] <= deviate))
        return float(self.low[first]), float(self.high[last])


@dataclass(frozen=True, eq=False)
class QuantileSet:
    """The set of all differences (or all relative differences) between values in the intervals of sides `a` and `b`."""

    a: QuantileSteps
    b: QuantileSteps
    value: float
    relative: bool
    method: str

    def limits(self, deviate: float) -> tuple[float, float]:
        """Return the smallest and the largest difference in the set, for intervals whose half width is `deviate`."""
        (a_low, a_high), (b_low, b_high) = self.a.limits(deviate), self.b.limits(deviate)
        if not self.relative:
            return min(a_low - b_high, self.value), max(a_high - b_low, self.value)
        high = a_high / b_low - 1.0 if b_low > 0.0 else INF
        return min(max(a_low, 0.0) / b_high - 1.0, self.value), max(high, self.value)

    def statistic(self, null: float) -> float:
        """Return the smallest half width at which the set contains `null`, negated if `value` is below `null`."""
        if self.relative:
            above = _find_reach(self.a, self.b, lambda x: x * (1.0 + null))
            below = _find_reach(self.b, self.a, lambda x: x / (1.0 + null))
        else:
            above = _find_reach(self.a, self.b, lambda x: x + null)
            below = _find_reach(self.b, self.a, lambda x: x - null)
        return above if above > 0.0 else -below


def _find_reach(upper: QuantileSteps, lower: QuantileSteps, shift: Callable[[Floats], Floats]) -> float:
    """Return the smallest half width at which the interval of `upper` reaches down to the interval of `lower`.

    Both intervals have this half width. Before the comparison, `shift` changes the values of `lower`. For example, it
    adds the difference stated by the null hypothesis.
    """
    place = np.searchsorted(shift(lower.high), upper.low)
    return float(np.maximum(upper.down, np.append(lower.up, INF)[place]).min())


def insert_quantile_sets(
    pair: Pair, difference: ScaledEstimate, relative: ScaledEstimate, reasons: Reasons, *, covariates: bool = False
) -> tuple[ScaledEstimate, ScaledEstimate, Reasons, ScaledEstimate | None]:
    """Return differences in a quantile, with a `QuantileSet` in cells (slices) where one value has much of the weight.

    Parameters
    ----------
    pair : Pair
        The samples of both sides.
    difference, relative : ScaledEstimate
        a - b, and a / b - 1, with the errors of `quantile_replicates`.
    reasons : array of str or None
        Why each cell has no interval; None if it has one.
    covariates : bool
        Whether the differences are adjusted by covariates. A `QuantileSet` is not adjusted, and its `method` says so.

    Returns
    -------
    tuple of four
        The new difference; the new relative difference; the new reasons; and the difference a - b in the share of
        weight at or below the stored value at the quantile, or None if no cell has a `QuantileSet`.
    """
    a, b = _QuantileSide(pair.a), _QuantileSide(pair.b)
    known = ~(has_reason(reasons) | has_reason(a.reasons) | has_reason(b.reasons))
    cells = [i for i in np.flatnonzero(known).tolist() if _has_step(a, b, i)]
    if not cells:
        return difference, relative, reasons, None
    steps = dict(zip(cells, zip(a.build_steps(cells), b.build_steps(cells), strict=True), strict=True))
    few = [i for i in cells if min(a.beyond[i], b.beyond[i]) < FEWEST_BEYOND]
    reasons = build_reasons(reasons, reasons.shape)
    add_reasons(
        reasons,
        np.isin(np.arange(len(reasons)), few),
        lambda i: f"fewer than {FEWEST_BEYOND:g} rows are expected beyond this quantile; use a quantile nearer to 0.5",
    )
    method = NOT_ADJUSTED if covariates else SET
    difference, relative = (
        _insert_sets(one, a, b, steps, method, relative=one is relative) for one in (difference, relative)
    )
    return difference, relative, reasons, _compare_shares(a, b)


class _QuantileSide:
    """The two standard errors of one side that determine the interval of a quantile.

    One is the standard error of the share of weight below the stored value at the quantile; the other is the standard
    error of the share up to and including this value. The arrays have one element for each cell (slice).
    """

    def __init__(self, sample: Sample) -> None:
        self.sample, self.q = sample, float(about_of(sample.metric).quantile or 0.0)
        self.beyond = sample.rows * min(self.q, 1.0 - self.q)
        rows = np.maximum(sample.rows, 1)
        self.df: Any = np.full(rows.shape, INF)
        self.reasons = build_reasons(None if 0.0 < self.q < 1.0 else "an end of the data", sample.values.shape)
        add_reasons(self.reasons, np.isnan(sample.values), lambda i: "the value is undefined")
        # Rows of the same unit vary together, so the error is never below the error for independent rows. Without this
        # bound, the error would be 0 if all rows had the same value.
        least = np.sqrt(self.q * (1.0 - self.q) / rows)
        if sample.shards is None:
            estimates = sample.estimates()
            add_reasons(self.reasons, [e.reason is not None for e in estimates], lambda i: str(estimates[i].reason))
            self.errors = [least, least]
        else:
            assert sample.shards.edges is not None
            before, through = (build_contrast(compute_share(x, sample.shards.weights)) for x in sample.shards.edges)
            self.df = through.df
            self.errors = [np.maximum(np.sqrt(jackknife_variance(c)), least) for c in (before, through)]
            own = build_reasons(through.reason, self.reasons.shape)
            add_reasons(self.reasons, has_reason(own), lambda i: str(own[i]))
        if not has_reason(self.reasons).all():
            reach = [critical_value(USUAL, self.df) * error / (self.q * (1.0 - self.q)) for error in self.errors]
            centre = LOGIT.point(self.q)
            self._low_shares, self._high_shares = LOGIT.value(centre - reach[0]), LOGIT.value(centre + reach[1])

    def limits(self, cell: int, buckets: BucketWeights) -> tuple[float, float]:
        """Return the 95 % limits for the quantile in a cell (slice), which decide whether a `QuantileSet` is used."""
        below = _sum_below(buckets.weights)
        first = np.searchsorted(below[1:], self._low_shares[cell])
        last = np.searchsorted(below[:-1], self._high_shares[cell], "right") - 1
        return float(buckets.low[first]), float(buckets.high[last])

    def build_steps(self, cells: Sequence[int]) -> list[QuantileSteps]:
        """Return the buckets of each cell (slice), with the half widths at which the interval includes each bucket."""
        assert self.sample.buckets is not None
        buckets = [self.sample.buckets(i) for i in cells]
        sizes = [len(one.low) for one in buckets]
        below = [_sum_below(one.weights) for one in buckets]
        # Compute the deviates of all cells together, because each of the calls below takes almost a millisecond.
        reaches = []
        for errors, sign, part in zip(self.errors, (-1.0, 1.0), (slice(1, None), slice(None, -1)), strict=True):
            points = sign * (LOGIT.point(np.concatenate([x[part] for x in below])) - LOGIT.point(self.q))
            scale = np.repeat(self.q * (1.0 - self.q) / errors[cells], sizes)
            t, df = np.maximum(points, 0.0) * scale, np.repeat(self.df[cells], sizes)
            known = np.isfinite(t)
            deviates = np.where(known, normal_of_t(np.where(known, t, 0.0), df), INF)
            reaches.append(np.split(deviates, np.add.accumulate(sizes)[:-1]))
        return [QuantileSteps(x.low, x.high, *each) for x, *each in zip(buckets, *reaches, strict=True)]


def _sum_below(weights: Floats) -> Floats:
    """Return the share of the weight below each bucket, and 1 (the share of all buckets) as the last element."""
    sums = np.concatenate([[0.0], np.add.accumulate(weights)])
    shares: Floats = sums / sums[-1]
    return shares


def _is_single(buckets: BucketWeights) -> NDArray[np.bool_]:
    """Return a mask of the buckets that contain a single value, or are much heavier than both neighbors."""
    padded = np.concatenate([[0.0], buckets.weights, [0.0]])
    single: NDArray[np.bool_] = buckets.low == buckets.high
    single |= buckets.weights > SPIKE * np.maximum(padded[:-2], padded[2:])
    return single


def _has_step(a: _QuantileSide, b: _QuantileSide, cell: int) -> bool:
    """Return whether one stored value has more than STEP_SHARE of the weight inside the interval of either side.

    The weights of the two sides are added up.
    """
    both = [(side, side.sample.buckets(cell)) for side in (a, b) if side.sample.buckets is not None]
    low, high, weights = (np.concatenate(x) for x in zip(*(buckets for _, buckets in both), strict=True))
    single = np.concatenate([_is_single(buckets) for _, buckets in both])
    for side, buckets in both:
        least, most = side.limits(cell, buckets)
        inside = (low >= least) & (high <= most)
        # A value may be stored on both sides, so add up its two weights.
        _, places = np.unique(low[inside], return_inverse=True)
        by_value = np.bincount(places, np.where(single, weights, 0.0)[inside], 1)
        if by_value.max() > STEP_SHARE * sum_shards(weights[inside]):
            return True
    return False


def _insert_sets(
    estimate: ScaledEstimate,
    a: _QuantileSide,
    b: _QuantileSide,
    steps: dict[int, tuple[QuantileSteps, QuantileSteps]],
    method: str,
    *,
    relative: bool,
) -> ScaledEstimate:
    """Return the estimate with a `QuantileSet` as the interval in each cell that is a key of `steps`.

    `method` is the name of the method in these cells, and `relative` says whether the estimate is a / b - 1.
    """
    shape = a.sample.values.shape
    value, point, error, df, reduction = (
        np.array(np.broadcast_to(x, shape))
        for x in (estimate.value, estimate.point, estimate.standard_error, estimate.df, estimate.reduction)
    )
    reasons: Reasons = build_reasons(estimate.reason, shape)
    sets = np.full(shape, None, object)
    for i, (first, second) in steps.items():
        x, y = float(a.sample.values[i]), float(b.sample.values[i])
        reduction[i] = 0.0
        if relative and not (first.limits(USUAL_DEVIATE)[0] >= 0.0 and second.limits(USUAL_DEVIATE)[0] > 0.0):
            value[i], error[i], df[i] = NAN, NAN, NAN
            reasons[i] = "the quantile of the second side is not clearly above 0; use the absolute difference"
            continue
        value[i] = x / y - 1.0 if relative else x - y
        sets[i], reasons[i], df[i] = QuantileSet(first, second, value[i], relative, method), None, INF
        ends = np.array([*sets[i].limits(USUAL_DEVIATE), value[i]])
        low, high, point[i] = scale_of(estimate.scale).point(ends)
        error[i] = max(high - point[i], point[i] - low) / USUAL_DEVIATE
    return estimate._replace(
        value=value, point=point, standard_error=error, df=df, reason=reasons, reduction=reduction, sets=sets
    )


def _compare_shares(a: _QuantileSide, b: _QuantileSide) -> ScaledEstimate:
    """Return the difference a - b in the share of weight at or below the stored value at the quantile."""
    sides = a.sample.shards, b.sample.shards
    if sides[0] is not None and sides[1] is not None and sides[0].matches(sides[1]):
        first, second = (compute_share(s.edges[1], s.weights) for s in sides if s is not None and s.edges is not None)
        return jackknife(subtract_replicates(first, second))
    shares = [_share_through(s) for s in (a, b)]
    return estimate_from_error(shares[0] - shares[1], np.sqrt(a.errors[1] * a.errors[1] + b.errors[1] * b.errors[1]))


def _share_through(side: _QuantileSide) -> Floats:
    """Return the share of weight at or below the stored value at the quantile, for each cell (slice)."""
    shares = np.full(side.sample.values.shape, NAN)
    assert side.sample.buckets is not None
    for i in np.flatnonzero(~has_reason(side.reasons)).tolist():
        through = _sum_below(side.sample.buckets(i).weights)[1:]
        shares[i] = through[np.argmax(through >= side.q)]
    return shares
