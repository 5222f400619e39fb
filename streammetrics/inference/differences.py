"""Compute differences between two sides (such as two models), with their standard errors.

Sides with the same shards are compared by the jackknife, and independent sides by Welch's method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..reading.about import about_of, sharded_refusal_of
from ..reading.interval import Estimate
from ..reading.replicates import Sample, Shards
from .calibration import CalibrationContrasts, calibration_contrasts
from .estimates import CURE, ZERO_CONTROL, ScaledEstimate, divide, estimate_from_error, interval, p_value, welch
from .jackknife import (
    Contrast,
    Replicates,
    build_contrast,
    describe_shortage,
    divide_replicates,
    jackknife,
    subtract_replicates,
)
from .number_format import format_p_value
from .pairs import Pair, select_keys
from .quantile_differences import insert_quantile_sets
from .quantiles import quantile_replicates
from .reasons import Reasons, add_reasons, build_reasons, has_reason

__all__ = [
    "MetricDifferences",
    "build_quantile_function",
    "build_replicates",
    "check_balance",
    "compute_differences",
    "compute_half_bounds",
    "estimate_sample",
    "find_refusal",
]

Floats = NDArray[np.float64]
# The best value of a calibration ratio: a ratio is better if it is closer to 1, not if it is higher or lower.
BEST_RATIO = 1.0
# A covariate is rejected if the p-value of its difference between the arms is below this limit. In randomized arms,
# this happens to one in 10,000 covariates.
BALANCE_ALPHA = 1e-4


@dataclass(frozen=True, eq=False)
class MetricDifferences:
    """The differences of one metric between two sides, in n cells (such as slices).

    Parameters
    ----------
    pair : Pair
        The samples of both sides.
    difference, relative : ScaledEstimate
        a - b, and a / b - 1.
    contrasts : CalibrationContrasts or None
        For a ratio whose best value is 1, the contrasts that show which side is closer to 1; None for other metrics.
    reasons : array of str or None, shape (n,)
        Why a cell has no interval, for example too little data.
    share : ScaledEstimate or None
        For a quantile whose interval is a `QuantileSet` in some cells: the difference a - b in the share of weight at
        or below the quantile. None for other metrics.
    """

    pair: Pair
    difference: ScaledEstimate
    relative: ScaledEstimate
    contrasts: CalibrationContrasts | None
    reasons: Reasons
    share: ScaledEstimate | None = None

    @property
    def relative_reasons(self) -> Reasons:
        """For each cell (slice), why its relative difference has no interval; None if it has one.

        If the control is 0, the reason says so first.
        """
        reasons = build_reasons(self.reasons, self.reasons.shape)
        for i in np.flatnonzero(self.pair.b.values == 0.0).tolist():
            reasons[i] = f"{ZERO_CONTROL}; {reasons[i] or CURE}"
        return reasons


def build_replicates(sample: Sample) -> Replicates:
    """Return the jackknife replicates (leave-one-shard-out values) of each cell (slice).

    The jackknife is not valid for quantiles, so their replicates are linear approximations (`quantile_replicates`).
    """
    shards = sample.shards
    assert shards is not None
    if shards.below is None:
        return Replicates(sample.values, shards.leave_one_out, shards.weights)
    one = quantile_replicates(sample.metric.q, shards.below, shards.weights, build_quantile_function(sample))
    # Shift all replicates by the same amount, so that they scatter around the value that users see. For a quantile
    # between two stored values, users see the mean of these two values.
    return Replicates(sample.values, one.leave_one_out + (sample.values - one.value), one.weights)


def build_quantile_function(sample: Sample) -> Callable[[Any], Floats]:
    """Return a function that computes quantiles of a sample, one in each cell (slice).

    The function takes an array with one probability per cell. It returns NaN for cells without a value.
    """
    quantile, known_ones = sample.quantile, np.isfinite(sample.values).tolist()
    assert quantile is not None

    def quantiles_at(shares: Any) -> Floats:
        cells = zip(known_ones, np.broadcast_to(shares, sample.values.shape).tolist(), strict=True)
        return np.array([quantile(i, p) if some else np.nan for i, (some, p) in enumerate(cells)], np.float64)

    return quantiles_at


def find_refusal(metric: Any) -> str | None:
    """Return why a metric has no jackknife standard error, and what to use instead; None if it has one."""
    return sharded_refusal_of(metric) or None


def estimate_sample(sample: Sample, scale: str) -> ScaledEstimate:
    """Return the estimate of each cell (slice) of one side, with its standard error on a scale such as "log".

    The error comes from the jackknife over shards. Without shards, it comes from the metric's formula for independent
    rows.
    """
    if sample.shards is not None:
        return jackknife(build_contrast(build_replicates(sample), scale))
    estimates = sample.estimates()
    fields = (np.array([_read_field(e, name) for e in estimates], np.float64) for name in ("value", "error", "degrees"))
    value, error, degrees = fields
    reasons = build_reasons(None, value.shape)
    add_reasons(reasons, [e.reason is not None for e in estimates], lambda i: str(estimates[i].reason))
    assumption = estimates[0].assumption if estimates else ""
    return estimate_from_error(value, error, scale, df=np.maximum(degrees, 1.0), assumption=assumption, reason=reasons)


def _read_field(estimate: Estimate, name: str) -> float:
    """Return a field of an estimate as a float; None, which stands for infinite degrees of freedom, becomes inf."""
    value = getattr(estimate, name)
    return np.inf if value is None else float(value)


def compute_differences(pair: Pair, *, independent: bool = False, covariates: Sequence[Pair] = ()) -> MetricDifferences:
    """Return the differences of one metric between two sides, with standard errors, in each cell (slice).

    Sides with the same shards are compared shard by shard, which is valid for the same rows, for overlapping users and
    for separate arms. Sides with different or no shards are compared by Welch's method, provided that the caller
    asserts that they are independent.

    Raises
    ------
    InvalidInputError
        If the shards differ and `independent` is False, or if covariates have different shards or belong to two models
        on the same rows.
    """
    a, b = pair.a, pair.b
    if a.shards is not None and b.shards is not None and a.shards.matches(b.shards):
        differences = _compare_by_shard(pair, covariates)
    elif not independent:
        raise InvalidInputError(_describe_mismatch(pair.name, a.shards, b.shards))
    elif covariates:
        raise InvalidInputError(
            f"{pair.name}: covariates need shards of the same units on both sides; "
            f"count both sides with the same Sharded(..., unit=, shards=)"
        )
    else:
        differences = _compare_independent(pair)
    if a.buckets is not None:
        found = insert_quantile_sets(
            pair, differences.difference, differences.relative, differences.reasons, covariates=bool(covariates)
        )
        differences = MetricDifferences(pair, *found[:2], differences.contrasts, *found[2:])
    return replace(differences, relative=_undefine_ratios_to_zero(differences.relative, b.values))


def _undefine_ratios_to_zero(relative: ScaledEstimate, control: Floats) -> ScaledEstimate:
    """Return the relative differences, with NaN rather than infinity in the cells (slices) where the control is 0."""
    zero, reasons = control == 0.0, build_reasons(None, control.shape)
    own = build_reasons(relative.reason, control.shape)
    add_reasons(reasons, zero, lambda i: f"{ZERO_CONTROL}; {CURE}")
    add_reasons(reasons, has_reason(own), lambda i: str(own[i]))
    return relative._replace(value=np.where(zero, np.nan, relative.value), reason=reasons)


def _compare_by_shard(pair: Pair, covariates: Sequence[Pair]) -> MetricDifferences:
    a, b = pair.a.shards, pair.b.shards
    assert a is not None
    assert b is not None
    before = [_build_covariate(pair, c) for c in covariates]
    if before and len(pair.keys) and np.array_equal(a.weights, b.weights):
        raise InvalidInputError(
            f"{pair.name}: covariates= needs two randomised arms, but both sides have the same rows in every shard, like "
            f"two models on one log. The covariates of such sides differ systematically, so leave out covariates="
        )
    first, second = build_replicates(pair.a), build_replicates(pair.b)
    if _may_be_negative(pair.metric, map(jackknife, (first, second))):
        divided = divide_replicates(first, second)
    else:
        divided = subtract_replicates(first, second, relative=True)
    same = _find_same_cells(pair)
    difference, relative = (jackknife(c, before, same=same) for c in (subtract_replicates(first, second), divided))
    ratio = pair.metric.about.best == BEST_RATIO
    contrasts = calibration_contrasts(first, second) if ratio else None
    return MetricDifferences(pair, difference, relative, contrasts, _collect_reasons(pair, a, b))


def _may_be_negative(metric: Any, sides: Iterable[ScaledEstimate]) -> bool:
    """Return whether the true value of a side may be 0 or less, and so have no logarithm, in some cell (slice).

    The result is always False for a metric that cannot be negative.
    """
    least = about_of(metric).value_range[0]
    if least is not None and least >= 0.0:
        return False
    return any(bool(((np.asarray(x.value) <= 0.0) | (np.asarray(interval(x).low) <= 0.0)).any()) for x in sides)


def _find_same_cells(pair: Pair) -> NDArray[np.bool_]:
    """Return a mask of the cells (slices) in which both sides have the same state, so the difference is certainly 0."""
    a, b = pair.a.shards, pair.b.shards
    assert a is not None
    assert b is not None
    # Cells with different values have different states. Compare only the states of the other cells, because comparing
    # states takes longer than comparing values.
    equal = (pair.a.values == pair.b.values) & (a.weights == b.weights).all(axis=0)
    if a.states is None or b.states is None or not equal.any():
        return np.zeros(len(pair.keys), bool)
    return a.states.find_equal(b.states, equal)


def _build_covariate(pair: Pair, before: Pair) -> Contrast:
    """Return the difference a - b of a covariate, with its cells (slices) in the order of the metric that it adjusts.

    The difference is NaN in cells without the covariate.

    Parameters
    ----------
    pair : Pair
        The metric that is adjusted.
    before : Pair
        The covariate: a metric of the same arms before the treatment.
    """
    sides = []
    for sample, target in ((before.a, pair.a), (before.b, pair.b)):
        cells, positions = select_keys(sample, pair.keys)
        if cells.shards is None or target.shards is None or not cells.shards.matches(target.shards):
            raise InvalidInputError(
                f"{pair.name}: the covariate {before.name} must have the same shards as the metric: "
                f"expected {format_shard_plan(target.shards)}, found {format_shard_plan(cells.shards)}; "
                f"count the covariate with the same unit= and shards="
            )
        one, shape = build_replicates(cells), target.shards.weights.shape
        value, leave_one_out, weights = np.full(shape[1], np.nan), np.full(shape, np.nan), np.zeros(shape)
        value[positions], leave_one_out[:, positions], weights[:, positions] = one.value, one.leave_one_out, one.weights
        sides.append(Replicates(value, leave_one_out, weights))
    return subtract_replicates(*sides)


def check_balance(covariates: Iterable[Pair]) -> None:
    """Raise InvalidInputError if a covariate differs between the sides by more than chance explains.

    The covariates of randomized arms differ only by chance. A covariate that truly differs would bias the difference
    that it adjusts. The test corrects for the number of slices (Bonferroni).
    """
    for pair in covariates:
        differences = _compare_by_shard(pair, ())
        p = np.asarray(p_value(differences.difference))[~has_reason(differences.reasons)]
        least = min(p[np.isfinite(p)].tolist(), default=1.0) * len(p)
        if least < BALANCE_ALPHA:
            raise InvalidInputError(
                f"the covariate {pair.name} differs between the sides (p {format_p_value(least)}), so the arms are not "
                f"randomised, or the covariate is not from before the treatment; leave out this covariate, and test the "
                f"split of the users"
            )


def _compare_independent(pair: Pair) -> MetricDifferences:
    sides = [estimate_sample(s, "natural") for s in (pair.a, pair.b)]
    difference = welch(*sides)
    if _may_be_negative(pair.metric, sides):
        relative = divide(*sides)
    else:
        relative = welch(*(estimate_sample(s, "log") for s in (pair.a, pair.b)))
    contrasts = None
    if pair.metric.about.best == BEST_RATIO:
        inverse = _invert(estimate_sample(pair.b, "log"))
        contrasts = CalibrationContrasts(relative, welch(estimate_sample(pair.a, "log"), inverse))
    return MetricDifferences(
        pair, difference, relative, contrasts, _collect_reasons(pair, pair.a.shards, pair.b.shards)
    )


def _invert(estimate: ScaledEstimate) -> ScaledEstimate:
    """Return an estimate of 1 / value on the log scale, by negating `point`; all other fields stay the same."""
    return estimate._replace(point=-estimate.point)


def _collect_reasons(pair: Pair, a: Shards | None, b: Shards | None) -> Reasons:
    """Return, for each cell (slice), why it has no interval: too little data, or a metric without a jackknife error."""
    reasons = build_reasons(find_refusal(pair.metric) if a is not None else None, (len(pair.keys),))
    for name, shards in (("first", a), ("second", b)):
        if shards is not None:
            few = build_reasons(describe_shortage(shards.events, what=shards.events_names), reasons.shape)
            add_reasons(reasons, has_reason(few), _build_side_message(name, few))
    return reasons


def _build_side_message(name: str, texts: Reasons) -> Callable[[int], str]:
    return lambda i: f"the {name} side: {texts[i]}"


def format_shard_plan(shards: Shards | None) -> str:
    """Return a description of the shards, such as "64 shards of user_id"."""
    return "no shards of units" if shards is None else f"{shards.plan[1]} shards of {shards.plan[0]}"


def _describe_mismatch(name: str, a: Shards | None, b: Shards | None) -> str:
    unit, count, _ = next((s.plan for s in (a, b) if s is not None), ("user_id", 64, ""))
    cure = f'Sharded(..., unit="{unit}", shards={count}) on both sides'
    have = f"a has {format_shard_plan(a)}, b has {format_shard_plan(b)}"
    if a is None and b is None:
        have = "neither side has shards of units"
    elif a is not None and b is not None and a.plan[:2] == b.plan[:2]:
        return (
            f"{name}: {unit} has {a.plan[2]} keys in a and {b.plan[2]} keys in b, so the units of both sides cannot "
            f"be matched. Convert the keys of one side to the type of the other, and count again"
        )
    return (
        f"{name}: {have}, so the units of both sides cannot be matched. "
        f"Count with {cure}; or, if no unit is on both sides, pass independent=True"
    )


def compute_half_bounds(pair: Any, relative: bool) -> Floats:
    """Return the largest possible error of the difference in each cell (slice), from the certified bounds of both arms.

    If `relative` is true, the result is a fraction of the control. The certified bounds limit the error from bucketing.
    """
    half = 0.5 * ((pair.a.high - pair.a.low) + (pair.b.high - pair.b.low))
    if not relative:
        return np.asarray(half)
    # Suppress the warning about a division by zero if the control is 0.
    with np.errstate(all="ignore"):
        return np.asarray(half / np.abs(pair.b.values))
