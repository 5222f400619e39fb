"""Estimates with standard errors, and the confidence intervals and p-values that follow from them.

An estimate is one number, or an array with a number for each cell (slice). Each element of an array result is the same,
bit for bit, as the result for that cell alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.student_t import t_tail
from ..reading.interval import Interval, alpha_of, critical_value
from ..reading.link_functions import scale_of, unwrap_scalar
from .reasons import Reasons, add_reasons, build_reasons, has_reason, unwrap_reasons

__all__ = [
    "ScaledEstimate",
    "build_estimate",
    "build_interval",
    "divide",
    "estimate_from_error",
    "find_unclear_controls",
    "interval",
    "p_value",
    "split_intervals",
    "statistic",
    "welch",
]

NAN, INF = float("nan"), float("inf")
INDEPENDENT = "units are independent"
DELTA = "delta method"
CURE = "use the absolute difference (relative=False, or --absolute on the command line)"
ZERO_CONTROL = "the control is 0, so a relative difference is undefined"
UNCLEAR_CONTROL = f"the control, {{:.4g}}, is not clearly above 0, so a relative difference has no meaning; {CURE}"
Floats = NDArray[np.float64]


class ScaledEstimate(NamedTuple):
    """A number with its standard error, on a scale where (estimate - truth) / error is approximately t-distributed.

    For a proportion, for example, this holds more closely on the logit scale than on the natural scale.

    Parameters
    ----------
    value : float or float64 array, shape (n,)
        The number on its natural scale, as users see it; for a relative difference of two values a and b, a / b - 1.
    point : float or array
        The number on the scale `scale`, for example its logarithm.
    standard_error : float or array
        Standard error of `point`; NaN if `reason` is set, and 0 only for a difference of sides with equal stored data.
    df : float or array
        Degrees of freedom; inf if the error is assumed to be known.
    scale : str
        Name of the scale, such as "natural", "logit" or "log" (see `SCALES`).
    method, assumption : str
        How the error was computed, and the assumption of that method.
    reason : str or None, or array of these
        Why there is no standard error; None if there is one.
    reduction : float or array
        Share of the variance that the covariates removed.
    sets : QuantileSet or None, or array of these
        For a difference of quantiles that jump between stored values, the set of differences that serves as its interval;
        None for all other estimates.
    """

    value: Any
    point: Any
    standard_error: Any
    df: Any
    scale: str = "natural"
    method: str = ""
    assumption: str = INDEPENDENT
    reason: Any = None
    reduction: Any = 0.0
    sets: Any = None

    @property
    def is_relative(self) -> bool:
        """Whether the number is a relative difference, which is shown as a percentage."""
        return self.scale in ("relative", "ratio")

    def split_cells(self) -> Iterator[ScaledEstimate]:
        """Yield the estimate of each cell (slice), as a `ScaledEstimate` of scalars."""
        shape = np.shape(self.value)
        fields: tuple[Any, ...] = (*self[:4], self.reason, self.reduction, self.sets)
        columns = (np.broadcast_to(np.asarray(f), shape).reshape(-1).tolist() for f in fields)
        for value, point, error, df, reason, reduction, sets in zip(*columns, strict=True):
            yield self._replace(
                value=value, point=point, standard_error=error, df=df, reason=reason, reduction=reduction, sets=sets
            )


def split_intervals(intervals: Interval) -> Iterator[Interval]:
    """Yield the interval of each cell (slice), as an `Interval` of scalars."""
    shape = np.shape(intervals.estimate)
    fields: tuple[Any, ...] = (*intervals[:5], intervals.reason)
    arrays = (np.broadcast_to(np.asarray(f), shape).reshape(-1).tolist() for f in fields)
    for low, high, estimate, error, method, reason in zip(*arrays, strict=True):
        yield intervals._replace(
            low=low, high=high, estimate=estimate, standard_error=error, method=method, reason=reason
        )


def build_estimate(
    value: Any,
    point: Any,
    error: Any,
    df: Any,
    scale: str,
    method: str,
    assumption: str = INDEPENDENT,
    *,
    reasons: Reasons,
    reduction: Any = 0.0,
) -> ScaledEstimate:
    """Return a `ScaledEstimate` whose error is NaN in each cell (slice) where `reasons` is not None.

    The parameters are the fields of `ScaledEstimate`; `error` is the standard error of `point`.
    """
    none = has_reason(reasons)
    error, df, reduction = (
        unwrap_scalar(np.where(none, blank, x)) for x, blank in ((error, NAN), (df, NAN), (reduction, 0.0))
    )
    return ScaledEstimate(
        unwrap_scalar(value),
        unwrap_scalar(point),
        error,
        df,
        scale,
        method,
        assumption,
        unwrap_reasons(reasons),
        reduction,
    )


def estimate_from_error(
    value: Any,
    error: Any,
    scale: str = "natural",
    *,
    df: Any = INF,
    method: str = "",
    assumption: str = INDEPENDENT,
    reason: Any = None,
) -> ScaledEstimate:
    """Return the `ScaledEstimate` of a number, from a standard error in its own units, such as DeLong's error.

    Parameters
    ----------
    value, error : float or array
        The number, and its standard error in its own units.
    scale : str
        The scale on which (estimate - truth) / error is assumed to be t-distributed (see `SCALES`).
    df : float or array
        Degrees of freedom; by default the error is assumed to be known.
    method, assumption : str
        The same as in `ScaledEstimate`.
    reason : str or None, or array of these
        Why there is no error; by default, the function determines the reason, such as a value outside the scale.

    Examples
    --------
    >>> estimate_from_error(0.75, 0.01, "logit").standard_error
    0.05333333333333334
    """
    link = scale_of(scale)
    values, errors = np.asarray(value, np.float64), np.asarray(error, np.float64)
    reasons = build_reasons(reason, values.shape)
    add_reasons(
        reasons,
        ~link.holds(values),
        lambda i: f"the value {values.reshape(-1)[i]:g} is not on the {scale} scale; use the absolute difference",
    )
    add_reasons(
        reasons, ~(errors > 0.0), lambda i: "the value has no standard error; count more rows, or another metric"
    )
    # Suppress warnings about values outside the scale: the reason why they have no interval is already recorded.
    with np.errstate(all="ignore"):
        scaled_errors = errors / link.slope(values)
    return build_estimate(values, link.points(values), scaled_errors, df, scale, method, assumption, reasons=reasons)


def build_interval(estimate: ScaledEstimate, width: Any, confidence: float, method: str) -> Interval:
    """Return the interval of `width` standard errors on either side of the point, mapped to the natural scale.

    `confidence` and `method` only describe the result; the caller has chosen `width` accordingly.
    """
    scale = scale_of(estimate.scale)
    reasons = build_reasons(estimate.reason, np.shape(estimate.value))
    error = np.asarray(estimate.standard_error)
    # An infinite width times an error of 0 is NaN. Suppress the warning, because `np.where` does not use this product.
    with np.errstate(invalid="ignore"):
        half = np.where(error > 0.0, width * error, error)
    # Suppress warnings about cells without an error, whose limits are NaN.
    with np.errstate(all="ignore"):
        low, high = (np.where(has_reason(reasons), NAN, estimate.point + side) for side in (-half, half))
        natural = np.where(has_reason(reasons), NAN, error * scale.slope(estimate.value))
    low, high, why = np.array(scale.value(low)), np.array(scale.value(high)), unwrap_reasons(reasons)
    widths, methods = np.broadcast_to(width, low.shape), build_reasons(method, low.shape)
    for i, one in _iterate_sets(estimate):
        methods.reshape(-1)[i] = method.replace(estimate.method, one.method)
        if reasons.reshape(-1)[i] is None:
            low.reshape(-1)[i], high.reshape(-1)[i] = one.limits(widths.reshape(-1)[i])
    low, high, methods = unwrap_scalar(low), unwrap_scalar(high), unwrap_reasons(methods)
    return Interval(low, high, estimate.value, unwrap_scalar(natural), methods, estimate.assumption, confidence, why)


def interval(estimate: ScaledEstimate, confidence: float = 0.95) -> Interval:
    """Return the confidence interval for a single look at the data: point +- t(df) standard errors.

    The limits are mapped back from the scale of the estimate to the natural scale.

    Parameters
    ----------
    estimate : ScaledEstimate
        A number with its error, or an array of them.
    confidence : float
        Nominal coverage.

    Returns
    -------
    Interval
        If the error is unknown, the limits are NaN and `reason` says why. If you look at the data repeatedly, use
        `always_valid` instead, because repeated looks reduce the coverage of this interval.

    Examples
    --------
    >>> low, high, *_ = interval(ScaledEstimate(0.1, 0.1, 0.01, df=63))
    >>> round(low, 4), round(high, 4)
    (0.08, 0.12)
    """
    alpha_of(confidence)
    return build_interval(estimate, critical_value(confidence, estimate.df), confidence, estimate.method)


def statistic(estimate: ScaledEstimate, null: float = 0.0) -> Any:
    """Return the test statistic (point - null) / error, where `null` is given on the natural scale.

    If point and null are equal, the result is 0, even if the error is 0. Without an error, the result is NaN.
    """
    # Suppress warnings about an error of 0 or an infinite point.
    with np.errstate(all="ignore"):
        distance = np.asarray(estimate.point - scale_of(estimate.scale).point(null))
        statistics = np.array(
            np.where(distance == 0.0, 0.0 * np.asarray(estimate.standard_error), distance / estimate.standard_error)
        )
    nulls = np.broadcast_to(null, statistics.shape).reshape(-1)
    for i, one in _iterate_sets(estimate):
        statistics.reshape(-1)[i] = one.statistic(nulls[i])
    return unwrap_scalar(statistics)


def _iterate_sets(estimate: ScaledEstimate) -> Iterator[tuple[int, Any]]:
    """Yield the flat index and the `QuantileSet` of each cell (slice) that has a `QuantileSet` as its interval."""
    if estimate.sets is not None:
        yield from ((i, one) for i, one in enumerate(np.asarray(estimate.sets).reshape(-1)) if one is not None)


def p_value(estimate: ScaledEstimate, null: float = 0.0) -> Any:
    """Return the two-sided p-value P(|T| > |t|) under the null hypothesis, for a single look at the data.

    The result is NaN if the estimate has no standard error.

    Examples
    --------
    >>> round(p_value(ScaledEstimate(0.1, 0.1, 0.05, df=63)), 4)
    0.0498
    """
    t = np.abs(statistic(estimate, null))
    usual = np.isfinite(t)
    tail = t_tail(np.where(usual, t, 0.0), np.where(usual, estimate.df, 1.0))
    return unwrap_scalar(np.where(usual, 2.0 * tail, np.where(np.isinf(t), 0.0, NAN)))


def welch(a: ScaledEstimate, b: ScaledEstimate) -> ScaledEstimate:
    """Return a - b for two independent estimates, or a / b - 1 if they are on the log scale.

    Parameters
    ----------
    a, b : ScaledEstimate
        Both on the scale "natural", or both on "log" for a relative difference.

    Returns
    -------
    ScaledEstimate
        The difference with variance v_a + v_b and (v_a + v_b)^2 / (v_a^2 / df_a + v_b^2 / df_b) degrees of freedom
        (Welch 1947). Do not use this function for two models on the same rows: they are not independent, and the
        interval would be about twice as wide as necessary.

    Raises
    ------
    InvalidInputError
        If the scales differ, or are neither "natural" nor "log".

    Examples
    --------
    >>> d = welch(ScaledEstimate(0.5, 0.5, 0.03, df=20), ScaledEstimate(0.4, 0.4, 0.04, df=30))
    >>> round(d.standard_error, 4), round(d.df, 1)
    (0.05, 49.7)
    """
    if a.scale != b.scale or a.scale not in ("natural", "log"):
        raise InvalidInputError(
            f"expected two estimates on the scale 'natural' or two on 'log', found {a.scale!r} and {b.scale!r}"
        )
    scale = "natural" if a.scale == "natural" else "relative"
    point = np.asarray(a.point) - b.point
    reasons = build_reasons(a.reason, point.shape)
    theirs = build_reasons(b.reason, point.shape).reshape(-1)
    add_reasons(reasons, has_reason(theirs).reshape(point.shape), lambda i: str(theirs[i]))
    va, vb = (np.asarray(side.standard_error) * side.standard_error for side in (a, b))
    add_reasons(reasons, va + vb == 0.0, lambda i: "the values of both sides do not vary; count more rows")
    df, error = satterthwaite(va, a.df, vb, b.df), np.sqrt(va + vb)
    value = scale_of(scale).value(point)
    return build_estimate(value, point, error, df, scale, "welch", "the two sides are independent", reasons=reasons)


def divide(a: ScaledEstimate, b: ScaledEstimate) -> ScaledEstimate:
    """Return a / b - 1 for two independent estimates on the scale "natural", where `a` may be 0 or negative.

    The standard error comes from the delta method: it is the standard error of a - r * b, divided by b. Here r is the
    observed ratio a / b, which is treated as a constant. Where `b` is not clearly above 0, the result is NaN, with a
    reason.

    Examples
    --------
    >>> d = divide(ScaledEstimate(-0.5, -0.5, 0.03, df=20), ScaledEstimate(0.4, 0.4, 0.04, df=30))
    >>> round(d.value, 4), round(d.standard_error, 4)
    (-2.25, 0.1458)
    """
    reasons = find_unclear_controls(b)
    control = np.where(has_reason(reasons), 1.0, b.value)
    ratio = np.where(has_reason(reasons), NAN, a.value / control)
    linear = welch(a, b._replace(point=ratio * b.point, standard_error=np.abs(ratio) * b.standard_error))
    others = build_reasons(linear.reason, reasons.shape).reshape(-1)
    add_reasons(reasons, has_reason(others).reshape(reasons.shape), lambda i: str(others[i]))
    error = linear.standard_error / control
    method = f"{linear.method}, {DELTA}"
    return build_estimate(
        ratio - 1.0, ratio - 1.0, error, linear.df, "ratio", method, linear.assumption, reasons=reasons
    )


def find_unclear_controls(control: ScaledEstimate) -> Reasons:
    """Return, for each cell (slice), why it has no relative difference; None if its control is clearly above 0.

    A control is clearly above 0 if its whole 95 % interval is above 0.
    """
    values = np.asarray(control.value)
    reasons = build_reasons(None, values.shape)
    low = np.asarray(interval(control).low)
    add_reasons(reasons, ~(values > 0.0) | (low <= 0.0), lambda i: UNCLEAR_CONTROL.format(values.reshape(-1)[i]))
    return reasons


def satterthwaite(va: Any, df_a: Any, vb: Any, df_b: Any) -> Any:
    """Return the Welch-Satterthwaite degrees of freedom of the variance va + vb.

    The degrees of freedom `df_a` and `df_b` are inf for known variances. If both are inf, so is the result.
    """
    variance = va + vb
    # Suppress warnings about a variance of 0 or NaN.
    with np.errstate(all="ignore"):
        # Compute with shares of the total variance, because squares of the variances could overflow or underflow.
        share = np.where(variance == 0.0, 0.5, va / variance)
        spread = share * share / df_a + (1.0 - share) * (1.0 - share) / df_b
        return np.where(spread == 0.0, INF, 1.0 / spread)
