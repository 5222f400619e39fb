"""Standard errors by the delete-one-shard jackknife.

All rows of a unit (user) are hashed to the same shard. Shards are therefore independent and identically distributed,
even if the rows of a user are correlated. The weight W of a shard is the sum of its row weights. Heavy users make these
weights uneven. The standard error is then only as precise as a standard error from K_eff = (sum W)^2 / sum W^2 shards
of equal weight.

Arrays have shape (K,) for K shards, or (K, n) for K shards and n cells (such as slices). Each element of an array
result is the same, bit for bit, as the result for that cell alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..reading.link_functions import SCALES, scale_of, unwrap_scalar
from .estimates import DELTA, ScaledEstimate, build_estimate, find_unclear_controls, satterthwaite
from .reasons import Reasons, add_reasons, build_reasons, has_reason, unwrap_reasons

__all__ = [
    "Contrast",
    "Replicates",
    "add_replicates",
    "build_contrast",
    "describe_shortage",
    "divide_replicates",
    "effective_shards",
    "jackknife",
    "subtract_replicates",
    "sum_shards",
]

# The smallest number of effective shards (see `effective_shards`) for a reliable interval.
MIN_SHARDS = 6
MIN_EVENTS = 50
MAX_VALUE = 1e150
# If there are enough events, but in too few shards, the message about the missing interval recommends this many shards.
FEW_SHARDS = 16
MORE_UNITS = "collect more units"
NAN = float("nan")
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Replicates:
    """The value of a metric, and its values with each of K shards left out, for one cell (slice) or for n cells.

    Parameters
    ----------
    value : float, or array of shape (n,)
        The value over all shards, at full resolution.
    leave_one_out : array_like, shape (K,) or (K, n)
        The value without shard k; NaN if it is undefined. These values may have a lower resolution than `value`, because
        shards store coarser histograms. For an empty shard, this is the value over all shards at that lower resolution.
    weights : array_like, shape (K,) or (K, n)
        The number of rows of each shard, or the sum of their weights; 0 for an empty shard.
    """

    value: Any
    leave_one_out: Floats
    weights: Floats

    def __init__(self, value: ArrayLike, leave_one_out: ArrayLike, weights: ArrayLike) -> None:
        number = np.array(value, np.float64)
        points, shard_weights = (np.array(x, np.float64, order="C") for x in (leave_one_out, weights))
        if not points.ndim or points.shape != shard_weights.shape or points.shape[1:] != number.shape:
            raise InvalidInputError(
                f"expected one leave-one-out value and one weight for each shard and cell; found arrays of shapes "
                f"{points.shape} and {shard_weights.shape} for values of shape {number.shape}"
            )
        if not (np.isfinite(shard_weights) & (shard_weights >= 0.0)).all():
            raise InvalidInputError("the weights of shards must be finite and not negative")
        for name, array in (
            ("value", unwrap_scalar(number)),
            ("leave_one_out", points),
            ("weights", shard_weights),
        ):
            object.__setattr__(self, name, array)


@dataclass(frozen=True, eq=False)
class Contrast:
    """The input to the jackknife: a value, or the difference of two values, with its leave-one-out values.

    All values are on a scale, such as "log", where they are approximately normally distributed.

    Parameters
    ----------
    scale : str
        Name of the scale.
    point : float or array of shape (n,)
        The value over all shards, on this scale.
    leave_one_out : ndarray, shape (K,) or (K, n)
        The value without shard k, on this scale.
    occupied : ndarray of bool, of the same shape
        Whether each shard has rows.
    df : float or array of shape (n,)
        Degrees of freedom of the standard error.
    reason : str or None, or array of these
        Why there is no standard error; None if there is one.
    """

    scale: str
    point: Any
    leave_one_out: Floats
    occupied: NDArray[np.bool_]
    df: Any
    reason: Any = None

    @property
    def value(self) -> Any:
        """The value on the natural scale."""
        return scale_of(self.scale).value(self.point)


def sum_shards(values: Any) -> Any:
    """Add the values of all shards (the first axis), from the first shard to the last."""
    if not len(values):
        return np.zeros(values.shape[1:])[()]
    # `np.add.reduce` would add a single column in a different order than it adds several columns. Accumulation adds
    # from first to last, so the sum of a cell (slice) is the same, bit for bit, whether it is computed alone or
    # with other cells.
    if values.ndim == 1 or values.shape[1] == 1:
        return np.add.accumulate(values, axis=0)[-1]
    return np.add.reduce(np.ascontiguousarray(values), axis=0)


def effective_shards(weights: ArrayLike) -> Any:
    """Return (sum W)^2 / sum W^2, the number of equally heavy shards that would be as precise; 0 if all weights are 0.

    Examples
    --------
    >>> effective_shards([1, 1, 1, 1]), round(effective_shards([10, 1, 1, 1]), 2)
    (4.0, 1.64)
    """
    shard_weights = np.asarray(weights, np.float64)
    largest = shard_weights.max(axis=0, initial=0.0)
    # Divide the weights by the largest one, so that their squares do not overflow or underflow.
    parts = shard_weights / np.where(largest > 0.0, largest, 1.0)
    weight_sum, squares = sum_shards(parts), sum_shards(parts * parts)
    return unwrap_scalar(weight_sum * weight_sum / np.where(largest > 0.0, squares, 1.0))


def describe_shortage(
    events: ArrayLike, fewest: int = MIN_EVENTS, shards: int | None = None, what: ArrayLike = "positives"
) -> Any:
    """Return a message if there are too few events for a reliable interval, otherwise None.

    For n cells (slices), return an array with one element per cell.

    Parameters
    ----------
    events : array_like, shape (K,) or (K, n)
        Number of events in each shard: positives or negatives, or rows for metrics without positives.
    fewest : int
        Smallest sufficient number of events.
    shards : int, optional
        Smallest sufficient number of shards with events; by default half of the shards.
    what : str or array of str, shape (n,)
        The name of the events in the returned text.

    Examples
    --------
    >>> describe_shortage([1] * 40 + [0] * 24)
    'too few: 40 positives in 40 of 64 groups of units; 50 positives in 32 groups are needed; collect more units'
    """
    counts = np.asarray(events, np.float64)
    needed = len(counts) // 2 if shards is None else shards
    event_count, shards_with_events = np.asarray(sum_shards(counts)), np.asarray(np.count_nonzero(counts, axis=0))
    names = np.broadcast_to(what, event_count.shape).reshape(-1)

    def describe(i: int) -> str:
        count, occupied = event_count.reshape(-1)[i], shards_with_events.reshape(-1)[i]
        name = names[i].removesuffix("s") if count == 1.0 else names[i]
        summary = f"{count:g} {name} in {occupied} of {len(counts)} groups of units"
        # Counting with FEW_SHARDS shards helps only if there are enough events and at least FEW_SHARDS / 2 shards
        # contain events.
        is_enough = count >= fewest and occupied >= FEW_SHARDS // 2
        cure = f"{MORE_UNITS}, or count with shards={FEW_SHARDS}" if is_enough else MORE_UNITS
        return f"too few: {summary}; {fewest} {names[i]} in {needed} groups are needed; {cure}"

    reasons = build_reasons(None, event_count.shape)
    add_reasons(reasons, (event_count < fewest) | (shards_with_events < needed), describe)
    return unwrap_reasons(reasons)


def build_contrast(replicates: Replicates, scale: str = "natural") -> Contrast:
    """Return the replicates of one side on a scale, with a reason for each cell (slice) that has no jackknife error."""
    link = scale_of(scale)
    occupied = replicates.weights > 0.0
    effective = np.asarray(effective_shards(replicates.weights))
    reasons = _collect_reasons(replicates, occupied, effective, scale)
    return Contrast(
        scale,
        link.point(replicates.value),
        link.points(replicates.leave_one_out),
        occupied,
        unwrap_scalar(effective - 1.0),
        unwrap_reasons(reasons),
    )


def _collect_reasons(replicates: Replicates, occupied: NDArray[np.bool_], effective: Floats, scale: str) -> Reasons:
    """Return, for each cell (slice), why it has no jackknife error, or None if it has one.

    `occupied` says which shards have rows, and `effective` is the effective number of shards of each cell.
    """
    link = scale_of(scale)
    values, effective_counts = np.asarray(replicates.value), effective.reshape(-1)
    reasons = build_reasons(None, values.shape)
    add_reasons(reasons, np.isnan(values), lambda i: "the value is undefined")
    add_reasons(reasons, effective < MIN_SHARDS, lambda i: _describe_uneven(effective_counts[i]))
    if scale == "natural":
        large = (occupied & (np.abs(replicates.leave_one_out) > MAX_VALUE)).any(axis=0)
        add_reasons(
            reasons, large, lambda i: f"values above {MAX_VALUE:g} are too large to be squared; divide the column"
        )
    undefined = occupied & np.isnan(replicates.leave_one_out)
    add_reasons(
        reasons,
        undefined.any(axis=0),
        lambda i: f"the value is undefined without one group of units: {TOO_LITTLE}",
    )
    outside = occupied & ~link.holds(replicates.leave_one_out)

    def describe_edge(i: int) -> str:
        value = values.reshape(-1)[i]
        if not link.holds(value):
            end = f"the value is at the end of its range ({value:g})"
            return f"{end}, where its variation cannot be estimated; {MORE_UNITS}"
        shown = _select_cell(replicates.leave_one_out, i)[_select_cell(outside, i).argmax()]
        return (
            f"the value is {shown:g} without some of the units: there are too few events, or all are of one class; "
            f"{MORE_UNITS}"
        )

    add_reasons(reasons, outside.any(axis=0) | ~link.holds(values), describe_edge)
    return reasons


TOO_LITTLE = f"the other groups of units have too little data; {MORE_UNITS}"
CONSTANT = (
    "nothing varies: the value stays the same if units are left out, so the variation cannot be estimated; "
    + MORE_UNITS
)


def _describe_uneven(effective: float) -> str:
    return (
        f"the effective number of groups of units is {effective:.1f}, and {MIN_SHARDS} are needed: "
        f"there are too few units, or one unit has most of the weight; {MORE_UNITS}, or limit the rows of each unit"
    )


def _select_cell(values: Any, i: int) -> Any:
    """Return the values of the i-th cell (slice) in all shards."""
    return values.reshape(len(values), -1)[:, i]


def _combine_sides(a: Replicates, b: Replicates, relative: bool, sign: float) -> Contrast:
    if a.leave_one_out.shape != b.leave_one_out.shape:
        raise InvalidInputError(
            f"the shards differ: {_format_shape(a)} on one side and {_format_shape(b)} on the other; use the same shards= "
            "on both"
        )
    scale = "log" if relative else "natural"
    # Both sides hash a unit to the same shard k. The difference of the leave-one-out values therefore reflects the
    # covariance between the sides, whether they share all, some or no units.
    first, second = build_contrast(a, scale), build_contrast(b, scale)
    occupied = first.occupied | second.occupied
    reasons = build_reasons(None, first.leave_one_out.shape[1:])
    for side, contrast in (("first", first), ("second", second)):
        side_reasons = build_reasons(contrast.reason, reasons.shape)
        texts = side_reasons.reshape(-1)
        add_reasons(reasons, has_reason(side_reasons), lambda i, side=side, texts=texts: f"the {side} side: {texts[i]}")  # type: ignore[misc]
    # Suppress warnings about cells (slices) with an infinite value, which already have a reason why they have no error.
    with np.errstate(invalid="ignore"):
        points, point = first.leave_one_out + sign * second.leave_one_out, first.point + sign * second.point
    # If a shard is empty on one side only, that side may have no leave-one-out value for it. The cell (slice) then
    # gets a reason instead of a standard error.
    undefined = occupied & np.isnan(points)
    add_reasons(
        reasons,
        undefined.any(axis=0),
        lambda i: f"the value of one side is undefined without one group of units; {MORE_UNITS}",
    )
    df = _degrees_of_freedom(first, second, np.count_nonzero(occupied, axis=0))
    result_scale = "relative" if relative else "natural"
    return Contrast(
        result_scale,
        point,
        points,
        occupied,
        unwrap_scalar(np.where(has_reason(reasons), NAN, df)),
        unwrap_reasons(reasons),
    )


def _format_shape(replicates: Replicates) -> str:
    return " x ".join(map(str, replicates.leave_one_out.shape))


def _degrees_of_freedom(a: Contrast, b: Contrast, shards: Any) -> Any:
    """Return the Welch-Satterthwaite degrees of freedom of a + b or a - b, but at most the number of shards minus 1."""
    return np.minimum(satterthwaite(jackknife_variance(a), a.df, jackknife_variance(b), b.df), shards - 1.0)


def subtract_replicates(a: Replicates, b: Replicates, *, relative: bool = False) -> Contrast:
    """Return a - b, or log a - log b, over all shards, and with each shard k left out on both sides.

    Both sides must hash the same units to the same shards. The result is then valid for two models on the same rows,
    for overlapping users and for separate arms.

    Parameters
    ----------
    a, b : Replicates
        The two sides, with the same number of shards.
    relative : bool
        Whether to subtract logarithms; the value is then a / b - 1.

    Raises
    ------
    InvalidInputError
        If the sides have different numbers of shards.
    """
    return _combine_sides(a, b, relative, -1.0)


def divide_replicates(a: Replicates, b: Replicates) -> Contrast:
    """Return a / b - 1 on the scale "ratio", where `a` may be 0 or negative, with its leave-one-out values.

    Let a_k and b_k be the values without shard k, and r = a / b. The delta method replaces a_k / b_k - 1 by r - 1 +
    (a_k - r * b_k) / b. A relative difference from a control b that is not clearly above 0 has no meaning, so cells
    with such a control get a reason instead of a standard error.
    """
    reasons = find_unclear_controls(jackknife(b))
    control = np.where(has_reason(reasons), 1.0, b.value)
    ratio = unwrap_scalar(np.where(has_reason(reasons), NAN, a.value / control))
    linear = subtract_replicates(a, Replicates(ratio * b.value, ratio * b.leave_one_out, b.weights))
    others = build_reasons(linear.reason, reasons.shape)
    texts = others.reshape(-1)
    add_reasons(reasons, has_reason(others), lambda i: str(texts[i]))
    points = ratio - 1.0 + linear.leave_one_out / control
    why = unwrap_reasons(reasons)
    return Contrast("ratio", ratio - 1.0, points, linear.occupied, linear.df, why)


def add_replicates(a: Replicates, b: Replicates) -> Contrast:
    """Return log a + log b, over all shards, and with each shard k left out on both sides.

    Together with log a - log b, this sum shows which of two ratios is closer to 1.
    """
    return _combine_sides(a, b, True, 1.0)


def _centre(points: Floats, occupied: NDArray[np.bool_]) -> Floats:
    """Return the values of occupied shards minus their mean, and 0 for empty shards."""
    count = np.maximum(np.count_nonzero(occupied, axis=0), 1)
    # Subtract the mean twice, because the rounding error of the mean remains after the first subtraction. Suppress
    # warnings about cells (slices) with infinite values.
    with np.errstate(invalid="ignore"):
        for _ in range(2):
            kept = np.where(occupied, points, 0.0)
            points = np.where(occupied, kept - sum_shards(kept) / count, 0.0)
    return points


def _sum_products(x: Floats, y: Floats) -> Any:
    # Suppress warnings about sums that overflow; the results of their cells (slices) are not valid in any case.
    with np.errstate(all="ignore"):
        return sum_shards(x * y)


def jackknife_variance(contrast: Contrast) -> Any:
    """Return the jackknife variance (K - 1) / K * sum (x_k - mean)^2 over the K occupied shards."""
    centred = _centre(contrast.leave_one_out, contrast.occupied)
    count = np.maximum(np.count_nonzero(contrast.occupied, axis=0), 1)
    return (count - 1.0) / count * _sum_products(centred, centred)


def jackknife(
    contrast: Contrast | Replicates,
    covariates: Sequence[Contrast] = (),
    *,
    scale: str = "natural",
    same: Any = False,
) -> ScaledEstimate:
    """Return the estimate of a number or difference with its jackknife standard error.

    Parameters
    ----------
    contrast : Contrast or Replicates
        The result of `subtract_replicates` or `build_contrast`; or the replicates of one side.
    covariates : sequence of Contrast
        At most three differences between the same arms from before the treatment (CUPED). Use them only for randomized
        arms, where these differences are 0 on average. For two models on the same rows, they are not.
    scale : str
        Scale for the replicates of one side: "logit" for areas and proportions, "log" for ratios.
    same : bool or array of shape (n,)
        Whether both sides of a difference have the same stored data. Only then does a difference without variation
        between shards count as certain.

    Returns
    -------
    ScaledEstimate
        Without covariates, se^2 = (K - 1) / K * sum (x_k - mean)^2 with K_eff - 1 degrees of freedom. Here x_k is the
        value without shard k, and K_eff is the effective number of shards. With q covariates, the error is computed
        from the residuals r of the pseudo-values: se^2 = sum r^2 / (K * (K - 1 - q)) * (K - 2) / (K - 2 - q). It has q
        fewer degrees of freedom. `reduction` is the share of the variance that the covariates removed.

    Raises
    ------
    InvalidInputError
        If there are more than three covariates, or their shards differ.

    Notes
    -----
    The coverage of nominal 95 % intervals is 94.4 to 95.4 % if users have similar numbers of rows, and 93.2 to 96.0 %
    if these numbers follow a power law (`python -m benchmarks.coverage`). This holds for single numbers and for
    differences. If there are a few heavy users, most intervals for single numbers that miss the truth miss it on the
    same side. The cause is that a sample without the heaviest users has both a different value and an error that is
    too small. For 10,000 cells, the function takes 5 microseconds per cell.

    Examples
    --------
    >>> clicks, rows = np.arange(10.0, 30.0), np.full(20, 1000.0)
    >>> leave_one_out = (clicks.sum() - clicks) / (rows.sum() - rows)
    >>> rate = jackknife(Replicates(clicks.sum() / rows.sum(), leave_one_out, rows), scale="logit")
    >>> round(rate.value, 4), round(rate.standard_error, 4), round(rate.df, 9)
    (0.0195, 0.0692, 19.0)
    """
    points = build_contrast(contrast, scale) if isinstance(contrast, Replicates) else contrast
    # Take the value on its natural scale from the input, because mapping the point back from another scale would change
    # the last bits.
    value = contrast.value
    method = f"jackknife over {len(points.leave_one_out)} shards" + (f", {DELTA}" if points.scale == "ratio" else "")
    reasons = build_reasons(points.reason, points.leave_one_out.shape[1:])
    variance = jackknife_variance(points)
    if covariates:
        return _adjust_for_covariates(points, covariates, variance, reasons)
    # If all replicates are equal, the error is unknown: two arms without any failures, for example, may still have
    # different failure rates. A difference of 0 is certain only if both sides have the same state.
    add_reasons(reasons, (variance == 0.0) & ~np.asarray(same), lambda i: CONSTANT)
    return build_estimate(value, points.point, np.sqrt(variance), points.df, points.scale, method, reasons=reasons)


def _adjust_for_covariates(
    contrast: Contrast, covariates: Sequence[Contrast], before: Any, reasons: Reasons
) -> ScaledEstimate:
    """Return a difference adjusted by regression on covariates (CUPED), with its error. Each shard is one observation.

    `before` is the variance without covariates. The result contains the share of this variance that the covariates
    remove.
    """
    q = len(covariates)
    if q > 3:
        raise InvalidInputError(
            f"expected at most 3 covariates, found {q}; pass fewer, because each covariate costs a degree of freedom"
        )
    if any(c.leave_one_out.shape != contrast.leave_one_out.shape for c in covariates):
        raise InvalidInputError(
            "covariates must have the same shards as the metric that they adjust; use the same shards="
        )
    occupied = contrast.occupied.copy()
    for covariate in covariates:
        occupied |= covariate.occupied
        covariate_reasons = build_reasons(covariate.reason, reasons.shape)
        texts = covariate_reasons.reshape(-1)
        add_reasons(reasons, has_reason(covariate_reasons), lambda i, texts=texts: f"a covariate: {texts[i]}")  # type: ignore[misc]
    # Regress the difference on the covariates by least squares, with one observation per shard. CUPED is defined for
    # pseudo-values, but these are linear in the leave-one-out values, so the slopes are equal.
    shards = np.count_nonzero(occupied, axis=0)
    y = _centre(contrast.leave_one_out, occupied)
    x = [_centre(c.leave_one_out, occupied) for c in covariates]
    df = np.asarray(contrast.df)
    all_df = df.reshape(-1)
    add_reasons(
        reasons,
        df - q < MIN_SHARDS - 1,
        lambda i: f"{all_df[i]:.1f} degrees of freedom are too few for {q} covariate{'s' if q > 1 else ''}; pass fewer",
    )
    theta, degenerate = solve_cholesky([[_sum_products(u, v) for v in x] for u in x], [_sum_products(u, y) for u in x])
    add_reasons(reasons, degenerate, lambda i: "the covariates are collinear or constant; leave one out")
    residuals, point = y, contrast.point
    # Suppress warnings about cells (slices) that already have a reason: their numbers may be invalid but are not used.
    with np.errstate(all="ignore"):
        for slope, covariate, values in zip(theta, covariates, x, strict=True):
            residuals = residuals - slope * values
            point = point - slope * covariate.point
        # The residual of a pseudo-value K * x - (K - 1) * x_k is K - 1 times the residual of x_k. The last factor of
        # the variance corrects for estimating the slopes from the same shards.
        pseudo = (shards - 1.0) * (shards - 1.0) * _sum_products(residuals, residuals)
        variance = pseudo / (shards * (shards - 1.0 - q)) * ((shards - 2.0) / (shards - 2.0 - q))
        reduction = np.where(np.asarray(before) > 0.0, 1.0 - variance / before, 0.0)
        error = np.sqrt(variance)
        constant = np.where(np.asarray(before) > 0.0, variance <= 1e-12 * before, variance == 0.0)
    add_reasons(reasons, constant, lambda i: f"{CONSTANT}, or the covariates explain all of the variance")
    point = np.where(has_reason(reasons), contrast.point, point)
    return build_estimate(
        SCALES[contrast.scale].value(point),
        point,
        error,
        df - q,
        contrast.scale,
        f"jackknife over {len(y)} shards, {q} covariate{'s' if q > 1 else ''}",
        "units are independent, arms randomised, covariates from before the treatment",
        reasons=reasons,
        reduction=reduction,
    )


def solve_cholesky(matrix: Sequence[Sequence[Any]], right: Sequence[Any]) -> tuple[list[Any], Any]:
    """Solve small symmetric positive definite linear systems by Cholesky decomposition.

    Parameters
    ----------
    matrix : sequence of sequences
        The matrix. Each element is a number, or an array with one number for each of several systems.
    right : sequence
        The right-hand side, with elements of the same form.

    Returns
    -------
    tuple
        The solution, and whether each system is degenerate (not positive definite), in which case its solution is
        meaningless.
    """
    n = len(matrix)
    lower: list[list[Any]] = [[0.0] * n for _ in range(n)]
    degenerate = np.zeros(np.shape(right[0]), bool)
    # Suppress warnings about degenerate systems, whose solutions are not used.
    with np.errstate(all="ignore"):
        for i in range(n):
            for j in range(i + 1):
                remainder = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
                if i == j:
                    degenerate = degenerate | ~((remainder > 1e-12 * matrix[i][i]) & np.isfinite(remainder))
                    lower[i][i] = np.sqrt(np.where(degenerate, 1.0, remainder))
                else:
                    lower[i][j] = remainder / lower[j][j]
        forward: list[Any] = []
        for i in range(n):
            forward.append((right[i] - sum(lower[i][k] * forward[k] for k in range(i))) / lower[i][i])
        solution: list[Any] = [0.0] * n
        for i in reversed(range(n)):
            solution[i] = (forward[i] - sum(lower[k][i] * solution[k] for k in range(i + 1, n))) / lower[i][i]
    return solution, degenerate
