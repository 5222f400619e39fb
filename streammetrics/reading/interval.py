"""Statistical intervals: what is estimated, how far it may be off by chance, and the limits which that makes.

A metric says what it estimates from a state (`Estimate`): a value, its standard error, and the scale on which the error
is normal. The limits are made here, for all metrics alike. They say nothing of certified bounds, which are proofs.
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
from ..numerics.student import normal_quantile, t_of_normal
from .link_functions import plain, scale_of

__all__ = [
    "GROUPS",
    "KEYS",
    "QUERIES",
    "ROWS",
    "Estimate",
    "Interval",
    "alpha_of",
    "check_confidence",
    "reach",
    "refused",
    "side_by_side",
]

NAN, INF = float("nan"), math.inf
Floats = NDArray[np.float64]

ROWS, QUERIES, GROUPS = (f"{units} are independent" for units in ("rows", "queries", "groups"))
KEYS = "hashes of keys are random"
MOST = "2**41"  # what sums of squares in fixed point stop at
NORMAL = 1 << 20  # degrees of freedom from which on t is the normal, to 1e-6


class Interval(NamedTuple):
    """A statistical interval, or the reason why there is none.

    Parameters
    ----------
    low, high : float
        The limits; NaN if there is a reason. Of a metric with a value for each class or output arrays, and NaN where one
        has none.
    estimate : float
        The value of the metric.
    standard_error : float
        Of the estimate, on its own scale; the limits need not be symmetric about it.
    method : str
        How it was made: "delong", "wilson", "delta", ...; empty if there is none.
    assumption : str
        What it rests on, such as "rows are independent".
    confidence : float
        The nominal coverage.
    reason : str or None
        Why no interval can be given, and what to use instead.
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
    """What a metric estimates, and how far that may be off by chance; numbers, or arrays of them side by side.

    Parameters
    ----------
    value : float
        The estimate.
    error : float
        Its standard error; NaN where there is none.
    scale : {"natural", "log", "logit", "fisher", "wilson"}
        On which scale the error is normal. "wilson" is the score interval of a share of `size` units.
    method, assumption : str
        As in `Interval`.
    degrees : float, optional
        Degrees of freedom, of Student's t; by default the normal.
    size : float, optional
        Of "wilson": how many units the share is of.
    within : pair of float
        What the limits cannot pass.
    ends : pair, optional
        Limits that are made otherwise: a function of the confidence.
    reason : str or None
        Why there is no error.
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
        """Return the limits, NaN where there are none; the value lies between them."""
        low, high = self._raw(confidence) if self.ends is None else self.ends(confidence)
        low = np.minimum(np.maximum(low, self.within[0]), self.value)
        high = np.maximum(np.minimum(high, self.within[1]), self.value)
        none = ~(np.isfinite(low) & np.isfinite(high))
        return plain(np.where(none, NAN, low)), plain(np.where(none, NAN, high))

    def _raw(self, confidence: float) -> tuple[Any, Any]:
        """The limits as the scale makes them."""
        value, error = (np.asarray(x, np.float64) for x in (self.value, self.error))
        far = reach(confidence, INF if self.degrees is None else self.degrees)
        with np.errstate(all="ignore"):  # NaN, and what lies beyond a scale, stays NaN
            if self.scale == "wilson":
                size = np.where(np.isnan(error), NAN, np.asarray(self.size, np.float64))
                return _wilson(value, size, far)
            return scale_of(self.scale).limits(value, far * error)

    def interval(self, confidence: float) -> Interval:
        """Return the interval."""
        reason = self.reason
        low, high = (NAN, NAN) if reason is not None else self.limits(confidence)
        if reason is None and not np.any(low <= high):
            reason = self._why()
        if reason is not None:
            return refused(self.value, confidence, reason)
        return Interval(low, high, self.value, plain(self.error), self.method, self.assumption, confidence)

    def _why(self) -> str:
        """Say why there are no limits."""
        if np.all(np.isnan(self.value)):
            return "the value is undefined"
        if not np.any(np.isfinite(self.error)):
            units = self.assumption.partition(" ")[0]
            return f"there are fewer than two {units}, or of one class; or squares beyond {MOST}, which no state keeps"
        return f"at the end of its range, here {self.value}, a value does not show its spread"


def side_by_side(found: Sequence[Estimate]) -> Estimate:
    """Estimates of several classes, labels or outputs as one, of arrays; those without an error are NaN."""
    some = next((e for e in found if e.reason is None), None)
    value = np.array([e.value for e in found])
    if some is None:
        return Estimate(value, reason=next((e.reason for e in found), "there are none"))
    error = np.array([NAN if e.reason else e.error for e in found])
    each = {id(e): e for e in found}  # labels that have seen the same have one

    def ends(confidence: float) -> Any:
        known = {i: (NAN, NAN) if e.reason else e.limits(confidence) for i, e in each.items()}
        return tuple(np.array([known[id(e)] for e in found]).T)

    return some._replace(value=value, error=error, ends=ends)


def refused(value: Any, confidence: float, reason: str) -> Interval:
    """Return that there is no interval, and why."""
    return Interval(NAN, NAN, value, NAN, "", "", confidence, reason)


class DefaultConfidence(float):
    """Marks a confidence that the caller did not pass: tables then print intervals of units alone."""

    def __repr__(self) -> str:
        return float.__repr__(self)


DEFAULT_CONFIDENCE = DefaultConfidence(0.95)


def check_confidence(confidence: float | None) -> float | None:
    """Return a confidence, or None for no interval; raise InvalidInputError unless it is between 0 and 1."""
    if confidence is not None:
        alpha_of(confidence)
    return confidence


def alpha_of(confidence: float) -> float:
    """Return 1 - confidence, rounded to what was meant: 0.05 for 0.95."""
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise InvalidInputError(f"confidence must be between 0 and 1, 0.95 for 95 %, not {confidence!r}")
    return round(1.0 - confidence, 15)


def reach(confidence: float, degrees: Any) -> Any:
    """Return how many standard errors there are from a value to a limit; NaN without degrees of freedom."""
    if np.ndim(degrees) == 0:
        return _reach_of_one(confidence, float(degrees))
    freedom = np.asarray(degrees, np.float64)
    return _reach_of_cells(confidence, freedom.tobytes()).reshape(freedom.shape)


@functools.lru_cache(maxsize=64)
def _reach_of_cells(confidence: float, degrees: bytes) -> NDArray[np.float64]:
    """The same of cells side by side; kept, as an interval and its words ask for it in turn."""
    freedom = np.frombuffer(degrees)
    known = freedom > 0.0
    found = np.where(known, t_of_normal(_deviate(confidence), _counted(np.where(known, freedom, 1.0))), NAN)
    found.flags.writeable = False
    return found


@functools.lru_cache(maxsize=64)
def _deviate(confidence: float) -> float:
    """The normal deviate of a limit; from there to t it is a shorter way than from the share."""
    return float(normal_quantile(1.0 - round(1.0 - confidence, 15) / 2.0))  # of 0.05, for 0.95, as it was meant


@functools.lru_cache(maxsize=1 << 12)
def _reach_of_one(confidence: float, degrees: float) -> float:
    return float(t_of_normal(_deviate(confidence), float(_counted(degrees)))) if degrees > 0.0 else NAN


def _counted(degrees: Any) -> Any:
    """Degrees of freedom as they count: at least 1, and those of the normal from a million on."""
    return np.where(degrees >= NORMAL, INF, np.maximum(degrees, 1.0))


def _wilson(p: Floats, n: Floats, z: Any) -> tuple[Floats, Floats]:
    """Wilson (1927): all shares that a score test of this size would not reject."""
    n = np.where(n > 0, n, NAN)
    square = z * z
    middle = (p + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * np.sqrt(p * (1 - p) / n + square / (4 * n * n))
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
