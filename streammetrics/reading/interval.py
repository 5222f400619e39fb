"""Statistical intervals: estimates with standard errors, and the confidence limits that follow from them.

A metric returns an `Estimate`: a value, its standard error, and the scale on which the error is roughly normal. The
limits are computed here, in the same way for all metrics. They allow only for chance; the certified bounds allow for
computational errors instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.student_t import normal_quantile, t_of_normal
from .link_functions import scale_of, unwrap_scalar

__all__ = [
    "GROUPS",
    "KEYS",
    "QUERIES",
    "ROWS",
    "Estimate",
    "Interval",
    "alpha_of",
    "check_confidence",
    "critical_value",
    "no_interval",
    "stack_estimates",
]

NAN, INF = float("nan"), math.inf
Floats = NDArray[np.float64]

ROWS, QUERIES, GROUPS = (f"{units} are independent" for units in ("rows", "queries", "groups"))
KEYS = "hashes of keys are random"
LARGEST_SQUARE_SUM = "2**41"
"""The largest sum of squares that a state can hold, as text for messages. Beyond this limit there is no standard error."""
NORMAL_DEGREES = 1 << 20
"""With at least this many degrees of freedom, quantiles of Student's t distribution equal those of the normal distribution
to within 1e-6."""


FEW = "(approximate, few units)"
"""The suffix of the method name if there are few units, so that the coverage may be below the confidence level."""
FEW_DEGREES, FEW_DEGREES_OF_WEIGHTS = 99.0, 30.0
"""Intervals with fewer degrees of freedom are labeled as approximate. For example, the mean of an exponential
distribution needs 100 units for a coverage of 94 %. The second threshold is for weighted proportions, whose degrees of
freedom depend on the weights."""


class Interval(NamedTuple):
    """A statistical interval, or the reason why there is none.

    Parameters
    ----------
    low, high : float
        The confidence limits; NaN if there is no interval. For a metric with a value for each class or output, these are
        arrays in which elements without an interval are NaN.
    estimate : float
        The value of the metric.
    standard_error : float
        The standard error of the estimate, in the unit of the value. The limits need not be symmetric about the value.
    method : str
        The method: "delong", "wilson", "delta", ...; empty if there is no interval. It ends with "(approximate, few
        units)" if skewed data may reduce the coverage.
    assumption : str
        The assumption of the method, such as "rows are independent".
    confidence : float
        The confidence level.
    reason : str or None
        Why there is no interval, and what to use instead; None if there is an interval.
    """

    low: Any
    high: Any
    estimate: Any
    standard_error: Any
    method: str
    assumption: str
    confidence: float
    reason: str | None = None


class Estimate(NamedTuple):
    """The value of a metric with its standard error; the fields are numbers, or arrays for many slices or classes.

    Parameters
    ----------
    value : float
        The estimate.
    error : float
        The standard error; NaN if there is none.
    scale : {"natural", "log", "logit", "fisher", "wilson"}
        The scale on which the error is roughly normal. "wilson" stands for the score interval of a proportion of `size`
        units.
    method, assumption : str
        As in `Interval`.
    degrees : float, optional
        The degrees of freedom of Student's t distribution; by default the normal distribution is used.
    size : float, optional
        The number of units of the proportion, for "wilson".
    within : pair of float
        The range of the value; the limits are clipped to it.
    ends : callable, optional
        A function from the confidence level to the limits, for estimates whose limits do not follow from `error`.
    reason : str or None
        Why there is no standard error.
    """

    value: Any
    error: Any = NAN
    scale: str = "natural"
    method: str = "delta"
    assumption: str = ROWS
    degrees: Any = None
    size: Any = None
    within: tuple[float, float] = (-INF, INF)
    ends: Callable[[float], tuple[float, float]] | None = None
    reason: str | None = None

    def limits(self, confidence: float) -> tuple[Any, Any]:
        """Return the confidence limits as numbers or arrays; NaN if they cannot be computed.

        The limits lie in the range of the value (`within`), and the value lies between them. Limits that depend on a
        standard error of 0 are NaN.
        """
        low, high = self._limits_on_scale(confidence) if self.ends is None else self.ends(confidence)
        # If a limit is very close to the value, rounding can put it on the wrong side of the value. If so, set the
        # limit to the value.
        low = np.minimum(np.maximum(low, self.within[0]), self.value)
        high = np.maximum(np.minimum(high, self.within[1]), self.value)
        none = ~(np.isfinite(low) & np.isfinite(high)) | self._is_constant
        return unwrap_scalar(np.where(none, NAN, low)), unwrap_scalar(np.where(none, NAN, high))

    @property
    def is_approximate(self) -> Any:
        """Whether there are so few units that skewed data may reduce the coverage of the interval."""
        if self.degrees is None or self.ends is not None:
            return False
        return np.asarray(self.degrees) < (FEW_DEGREES_OF_WEIGHTS if self.scale == "wilson" else FEW_DEGREES)

    def label_method(self, is_approximate: Any) -> str:
        """Return the name of the method, followed by `FEW` if any element of `is_approximate` is true."""
        return f"{self.method} {FEW}" if np.any(is_approximate) else self.method

    @property
    def _is_constant(self) -> Any:
        """Whether the limits depend on a standard error of 0 (as for a perfect ranking) and thus cannot be computed."""
        return self.ends is None and self.scale != "wilson" and np.asarray(self.error) == 0.0

    def _limits_on_scale(self, confidence: float) -> tuple[Any, Any]:
        """Return the limits, computed on `scale` and transformed back, before they are clipped to the range."""
        value, error = (np.asarray(x, np.float64) for x in (self.value, self.error))
        reach = critical_value(confidence, INF if self.degrees is None else self.degrees)
        # If the value is NaN or lies outside the scale (as 1 does for "logit"), the limits are meant to be NaN, so
        # suppress the warnings of numpy.
        with np.errstate(all="ignore"):
            if self.scale == "wilson":
                size = np.where(np.isnan(error), NAN, np.asarray(self.size, np.float64))
                return _wilson(value, size, reach)
            return scale_of(self.scale).limits(value, reach * error)

    def interval(self, confidence: float) -> Interval:
        """Return the confidence interval, or an `Interval` that contains a reason instead of limits."""
        reason = self.reason
        low, high = (NAN, NAN) if reason is not None else self.limits(confidence)
        if reason is None and not np.any(low <= high):
            reason = self._missing_reason()
        if reason is not None:
            return no_interval(self.value, confidence, reason)
        method = self.label_method(self.is_approximate)
        return Interval(low, high, self.value, unwrap_scalar(self.error), method, self.assumption, confidence)

    def _missing_reason(self) -> str:
        """Return the reason why there are no limits, for estimates whose metric itself gives no reason."""
        if np.all(np.isnan(self.value)):
            return "the value is undefined"
        if not np.any(np.isfinite(self.error)):
            units = self.assumption.partition(" ")[0]
            squares = f"a sum of squares exceeds {LARGEST_SQUARE_SUM}, the largest that a state can hold"
            return f"there are fewer than two {units} or only one class, or {squares}"
        if np.all(self._is_constant) and np.all(scale_of(self.scale).holds(self.value)):
            units = self.assumption.partition(" ")[0]
            return f"nothing varies: all {units} have the same value, so the variation cannot be estimated"
        return f"the value is at the end of its range ({self.value}), where its variation cannot be estimated"


def stack_estimates(estimates: Sequence[Estimate]) -> Estimate:
    """Stack the estimates of several classes, labels or outputs into one estimate whose fields are arrays.

    If an element has no standard error, its error and its limits are NaN.
    """
    first = next((e for e in estimates if e.reason is None), None)
    value = np.array([e.value for e in estimates])
    if first is None:
        return Estimate(value, reason=next((e.reason for e in estimates), "there are none"))
    error = np.array([NAN if e.reason else e.error for e in estimates])
    # Labels with equal counts share one estimate object, whose limits are computed only once.
    distinct = {id(e): e for e in estimates}

    def ends(confidence: float) -> Any:
        known = {i: (NAN, NAN) if e.reason else e.limits(confidence) for i, e in distinct.items()}
        return tuple(np.array([known[id(e)] for e in estimates]).T)

    method = first.label_method([e.is_approximate for e in estimates if e.reason is None])
    return first._replace(value=value, error=error, method=method, ends=ends)


def no_interval(value: Any, confidence: float, reason: str) -> Interval:
    """Return an `Interval` that contains a reason instead of limits."""
    return Interval(NAN, NAN, value, NAN, "", "", confidence, reason)


class DefaultConfidence(float):
    """The type of the default confidence level, which lets functions tell whether the caller passed a level.

    If the caller passed no level, tables print intervals only for `Sharded` metrics. Only these intervals are valid if
    the rows of a unit, such as a user, are correlated.
    """

    def __repr__(self) -> str:
        return float.__repr__(self)


DEFAULT_CONFIDENCE = DefaultConfidence(0.95)


def check_confidence(confidence: float | None) -> float | None:
    """Return the confidence level (None means no interval); raise InvalidInputError unless it is between 0 and 1."""
    if confidence is not None:
        alpha_of(confidence)
    return confidence


def alpha_of(confidence: float) -> float:
    """Return 1 - confidence, rounded to 15 decimals so that 0.95 gives 0.05."""
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise InvalidInputError(f"confidence must be between 0 and 1, such as 0.95 for 95 %, not {confidence!r}")
    return round(1.0 - confidence, 15)


def critical_value(confidence: float, degrees: Any) -> Any:
    """Return the critical value of Student's t distribution, such as 1.96 for 95 % and infinite degrees of freedom.

    The critical value is the distance from the estimate to each confidence limit, in standard errors.
    """
    if np.ndim(degrees) == 0:
        return _critical_value(confidence, float(degrees))
    # The cached function needs hashable arguments, so the array of degrees of freedom is passed as bytes.
    freedom = np.asarray(degrees, np.float64)
    return _critical_values(confidence, freedom.tobytes()).reshape(freedom.shape)


@functools.lru_cache(maxsize=64)
def _critical_values(confidence: float, degrees: bytes) -> NDArray[np.float64]:
    """Return an array of critical values, one for each element of `degrees` (the bytes of a float64 array).

    The results are cached, because an interval and its description both need them.
    """
    freedom = np.frombuffer(degrees)
    known = freedom > 0.0
    values = np.where(
        known, t_of_normal(_normal_quantile(confidence), _clip_degrees(np.where(known, freedom, 1.0))), NAN
    )
    # Callers share the cached array, so it must not be changed.
    values.flags.writeable = False
    return values


@functools.lru_cache(maxsize=64)
def _normal_quantile(confidence: float) -> float:
    """Return the critical value of the normal distribution, such as 1.96 for 95 %."""
    # In floating point, 1 - 0.95 is not exactly 0.05, so round the difference to 15 decimals first (see `alpha_of`).
    return float(normal_quantile(1.0 - round(1.0 - confidence, 15) / 2.0))


@functools.lru_cache(maxsize=1 << 12)
def _critical_value(confidence: float, degrees: float) -> float:
    return float(t_of_normal(_normal_quantile(confidence), float(_clip_degrees(degrees)))) if degrees > 0.0 else NAN


def _clip_degrees(degrees: Any) -> Any:
    """Replace degrees of freedom below 1 with 1, and NORMAL_DEGREES or more with infinity (a normal distribution)."""
    return np.where(degrees >= NORMAL_DEGREES, INF, np.maximum(degrees, 1.0))


def _wilson(p: Floats, n: Floats, z: Any) -> tuple[Floats, Floats]:
    """Return the confidence limits of Wilson (1927) for a proportion `p` of `n` units, where `z` is the critical value.

    A score test rejects exactly the proportions outside these limits.
    """
    n = np.where(n > 0, n, NAN)
    # The limits solve (p - x)^2 = z^2 * x * (1 - x) / n for x, which is a quadratic equation.
    square = z * z
    middle = (p + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * np.sqrt(p * (1 - p) / n + square / (4 * n * n))
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
