"""Readings: objects that compute the results of one metric from one state on demand.

The results are the value, its certified bounds, its standard error, and details for `explain`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from ..numerics.exact import BEYOND, Limits, to_float
from ..state.state import State
from .about import about_of
from .interval import Estimate, Interval

__all__ = [
    "NAN",
    "UNKNOWN",
    "CellReadings",
    "OwnNumber",
    "OwnReading",
    "Quotient",
    "Reading",
    "bounds_of_some",
    "estimate_of",
    "interval_of",
    "known_reading",
    "read_side_by_side",
    "relative_slack",
    "widen_for_rounding",
]

NAN = float("nan")
UNKNOWN: Any = object()
"""The marker of a value that has not been computed yet."""
Slack = Callable[[Limits, Fraction], Fraction]


class Quotient(NamedTuple):
    """An unrounded value: the quotient of two exact numbers.

    Parameters
    ----------
    numerator, denominator : int or Fraction
        The numbers, or arrays of them for many cells (such as slices). If the denominator is 0, the value is undefined.
    """

    numerator: Any
    denominator: Any


def relative_slack(limits: Limits, rounding: Fraction) -> Fraction:
    """Return the amount by which to widen the bounds of a quotient if weights have relative errors of up to `rounding`.

    To first order, such errors change a quotient of weighted sums by at most 2 * `rounding`, relative to its value. The
    factor 8 instead of 2 is a safety margin.
    """
    return 8 * rounding * max(abs(limits.low), abs(limits.high))


class Reading:
    """The results of a metric for one cell (such as a slice), or for many cells as arrays.

    The results are the value, its certified bounds, its standard error, and details for `explain`. Each is computed when
    it is first needed.

    Parameters
    ----------
    state : State
        The state. States are immutable, so later updates of the metric do not change a reading.
    raw_value : float, Quotient, Limits, array, NamedTuple, None, or a callable that returns one
        The value before it is rounded to a float. `Limits` are a value with certified bounds, as exact fractions. None
        means that the value is undefined.
    reason : callable, optional
        A function that returns the reason why the value is undefined, or None if it is defined.
    bounds : callable, optional
        A function that returns the certified bounds. By default, they follow from `Limits`; a value of another type is
        exact.
    slack : callable, optional
        A function that takes the `Limits` of the value and the largest relative rounding error of a weight, and returns
        the amount by which to widen the bounds.
    quantization : callable, optional
        A function that takes the `Limits` of the value and returns the amount by which to widen the bounds if terms
        (such as the losses of rows) were rounded, but weights were not.
    value_range : pair, optional
        The smallest and the largest possible value; None for no limit.
    estimate : callable, optional
        A function that takes the name of an interval method and returns the value with its standard error.
    details : callable, optional
        A function that returns a dict with additional entries for `explain`.
    is_number : bool
        Whether a float `raw_value` is treated as `Limits` of zero width, which `slack` widens if weights were rounded.
    """

    def __init__(
        self,
        state: State,
        raw_value: Any,
        *,
        reason: Callable[[], str | None] | None = None,
        bounds: Callable[[], tuple[Any, Any]] | None = None,
        slack: Slack = relative_slack,
        quantization: Callable[[Limits], Fraction] | None = None,
        value_range: tuple[Any, Any] = (None, None),
        estimate: Callable[[str], Estimate | None] | None = None,
        details: Callable[[], Mapping[str, Any]] | None = None,
        is_number: bool = False,
    ) -> None:
        self.state, self.value_range, self._raw_value = state, value_range, raw_value
        self._reason, self._bounds, self._slack, self._quantization = reason, bounds, slack, quantization
        self._estimate, self._details, self._is_number = estimate, details, is_number

    def having(self, **parts: Any) -> Reading:
        """Return a copy of the reading with some parts replaced.

        The parts are `raw_value`, `bounds`, `estimate`, `details`, `reason` and `quantization`, as in `Reading`.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        # The copy takes the raw value from this reading, so that it is computed only once for both.
        copy._raw_value = partial(getattr, self, "raw_value")
        for name, part in parts.items():
            copy.__dict__[f"_{name}"] = part
        return copy

    # The values are cached without `cached_property`, which acquires a lock in Python 3.11. Acquiring the lock takes
    # longer than computing many of the values.
    _cached_raw_value: Any = UNKNOWN
    _cached_value: Any = UNKNOWN

    @property
    def raw_value(self) -> Any:
        """The value before it is rounded to a float: a `Quotient`, `Limits`, a float, an array, or None if undefined."""
        if self._cached_raw_value is UNKNOWN:
            self._cached_raw_value = self._raw_value() if callable(self._raw_value) else self._raw_value
        return self._cached_raw_value

    def preset(self, raw_value: Any) -> None:
        """Set the raw value to a previously computed value, so that it is not computed again."""
        self._cached_raw_value = raw_value

    @property
    def value(self) -> Any:
        """The value, rounded once; NaN if it is undefined."""
        if self._cached_value is UNKNOWN:
            self._cached_value = _round_value(self.raw_value)
        return self._cached_value

    @cached_property
    def limits(self) -> Limits | None:
        """The value with its certified bounds, as exact fractions before rounding; None if the value is undefined."""
        value = self.raw_value
        if value is None or isinstance(value, Limits):
            return value
        if isinstance(value, Quotient):
            return Limits.exactly(*value)
        if math.isinf(value):
            return Limits.exactly(BEYOND if value > 0 else -BEYOND)
        return None if math.isnan(value) else Limits.exactly(Fraction(value))

    def certified_limits(self, rounding: Fraction) -> Limits | None:
        """Return the `Limits`, widened to allow for the rounding of weights and terms; None if the value is undefined.

        `rounding` is the largest relative rounding error of a weight.
        """
        limits = self.limits
        if limits is None:
            return None
        if rounding:
            return limits.widen(self._slack(limits, rounding), *self.value_range)
        return limits if self._quantization is None else limits.widen(self._quantization(limits), *self.value_range)

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        """The certified bounds as floats. If the two are equal, the value is exact except for rounding to a float."""
        if self._bounds is not None:
            return self._bounds()
        if self._is_number or self.raw_value is None or isinstance(self.raw_value, (Limits, Quotient)):
            limits = self.certified_limits(self.state.weight_rounding)
            return (NAN, NAN) if limits is None else limits.round_outward()
        return widen_for_rounding(self.value, self.state)

    @cached_property
    def reason(self) -> str | None:
        """The reason why the value is undefined; None if it is defined."""
        if self._reason is not None:
            return self._reason()
        return "no rows" if not self.state.facts().get("rows", 1) else None

    @cached_property
    def details(self) -> dict[str, Any]:
        """Additional entries for the result of `explain`."""
        return {} if self._details is None else dict(self._details())

    def estimate(self, method: str) -> Estimate | None:
        """Return the value with its standard error for independent rows, queries or groups; None if no error is known.

        `method` is one of the `interval_methods` of the metric, such as "delta".
        """
        return None if self._estimate is None else self._estimate(method)

    @property
    def has_bounds(self) -> bool:
        """Whether the reading has its own function for the bounds, so that they can differ from the value."""
        return self._bounds is not None

    @property
    def is_certain(self) -> bool:
        """Whether the bounds are known to equal the value, provided that no weight was rounded."""
        return self._bounds is None and self._quantization is None and not isinstance(self.raw_value, Limits)

    @property
    def numbers(self) -> list[Limits | None]:
        """The `Limits` of the value, or of each element of a vector, before they are widened and rounded to floats."""
        return [self.limits]


class OwnReading(Reading):
    """The usual kind of reading, which calls the metric's methods `of`, `reason`, `slack` and `estimate` as needed.

    Parameters
    ----------
    metric : Metric
        The metric.
    state : State
        The state, with one cell, or with many cells (such as slices) whose counts are arrays.
    """

    state: Any
    _bounds: Any = None
    _quantization: Any = None
    _details: Any = None
    _is_number = False

    def __init__(self, metric: Any, state: Any) -> None:
        self.metric, self.state = metric, state

    def _raw_value(self) -> Any:
        return self.metric.of(self.state)

    def _reason(self) -> str | None:
        reason: str | None = self.metric.reason(self.state)
        return reason

    def _slack(self, limits: Limits, rounding: Fraction) -> Fraction:
        slack: Fraction = self.metric.slack(self.state, limits, rounding)
        return slack

    def _estimate(self, method: str) -> Estimate | None:
        estimate: Estimate | None = self.metric.estimate(self, method)
        return estimate

    @property
    def value_range(self) -> tuple[Any, Any]:  # type: ignore[override]
        return about_of(self.metric).value_range


class OwnNumber(OwnReading):
    """An `OwnReading` for a metric whose `of` returns numbers. It treats a float as exact `Limits` of zero width."""

    _is_number = True


def _round_value(raw_value: Any) -> Any:
    """Round a raw value once, to a float or an array of floats; NaN for None."""
    if isinstance(raw_value, Quotient):
        return to_float(*raw_value)
    if raw_value is None:
        return NAN
    return raw_value.to_float() if isinstance(raw_value, Limits) else raw_value


def widen_for_rounding(value: Any, state: State) -> tuple[Any, Any]:
    """Return bounds on a value whose only errors are the rounding of weights and of weighted terms (such as losses)."""
    # In a state with fixed-point sums, each product of a weight and a term (such as a loss) was rounded as well. This
    # second rounding changes a mean by at most `least`.
    slip = 8 * state.weight_rounding
    least = slip if state.has_fixed_point_terms else Fraction(0)
    return (_spread(value, -slip, -least), _spread(value, slip, least)) if slip else (value, value)


def _spread(value: Any, slip: Fraction, least: Fraction) -> Any:
    """Return a bound on a value: the value plus |value| * `slip` plus `least`, rounded outward by one ulp.

    It is a lower bound if `slip` and `least` are negative. Arrays and tuples are treated elementwise. Infinity stays
    unchanged, and so does 0 if `least` is 0.
    """
    if isinstance(value, tuple):
        return type(value)(*(_spread(v, slip, least) for v in value))
    with np.errstate(invalid="ignore", over="ignore"):
        numbers = np.asarray(value, np.float64)
        wider = np.nextafter(numbers + (np.abs(numbers) * float(slip) + float(least)), math.copysign(math.inf, slip))
        numbers = np.where(((numbers == 0) & (not least)) | np.isinf(numbers), numbers, wider)
    return numbers if isinstance(value, np.ndarray) else float(numbers)


# -- intervals --------------------------------------------------------------------------------------------------------


def estimate_of(metric: Any, reading: Reading, method: str | None = None) -> Estimate:
    """Return the value with its standard error, or with the reason why there is none.

    `method` is one of the `interval_methods` of the metric, by default the first one.
    """
    about = about_of(metric)
    why = about.no_interval_reason
    estimate = None if why else reading.estimate(about.interval_methods[0] if method is None else method)
    if estimate is not None:
        return estimate
    why = why or f"this state does not record how {metric.name} varies; use Sharded(..., unit=), which does"
    return Estimate(reading.value, reason=why)


def interval_of(metric: Any, reading: Reading, confidence: float = 0.95, method: str | None = None) -> Interval:
    """Return the confidence interval of the value; see `estimate_of` for `method`."""
    return estimate_of(metric, reading, method).interval(confidence)


# -- all cells of a state ---------------------------------------------------------------------------------------------


class CellReadings:
    """The readings of all cells (such as slices) of a state: as arrays if the metric supports them, otherwise one by one.

    Create a new object for each request, and do not cache it in the state. Otherwise the object and the state would refer
    to each other, and only the garbage collector could free them.

    Parameters
    ----------
    metric : Metric
        The metric.
    state : State
        The state, with any number of cells.
    """

    def __init__(self, metric: Any, state: State) -> None:
        self.metric, self.state = metric, state

    @cached_property
    def stacked_reading(self) -> Reading | None:
        """One reading with arrays over all cells (such as slices); None if the cells must be processed one by one."""
        read = about_of(self.metric).read_cells
        reading: Reading | None = None if read is None else read(self.metric, self.state)
        return reading

    def __iter__(self) -> Iterator[Reading]:
        """Yield a reading for each cell (such as a slice)."""
        return map(self.metric.reading, self.state.iterate_cells())

    @cached_property
    def values(self) -> list[Any]:
        """The value of every cell (such as a slice)."""
        if self.stacked_reading is None:
            return [one.value for one in self]
        values: list[Any] = self.stacked_reading.value.tolist()
        return values

    @cached_property
    def bounds(self) -> list[tuple[Any, Any]]:
        """The certified bounds of the value of every cell (such as a slice)."""
        whole = self.stacked_reading
        if whole is not None and whole.has_bounds:
            low, high = whole.bounds
            return list(zip(low.tolist(), high.tolist(), strict=True))
        if whole is None or "rounded" in self.state.cells.flats:
            return [one.bounds for one in self]
        return [(value, value) for value in self.values]

    def intervals(self, confidence: float) -> list[Interval]:
        """Return the confidence interval of every cell (such as a slice)."""
        about = about_of(self.metric)
        whole = self.stacked_reading if len(self.state) > 1 and not about.no_interval_reason else None
        estimate = None if whole is None else whole.estimate(about.interval_methods[0])
        if estimate is None:
            return [interval_of(self.metric, one, confidence) for one in self]
        low, high = estimate.limits(confidence)
        columns = (x.tolist() for x in (low, high, estimate.value, np.broadcast_to(estimate.error, low.shape)))
        approximate = np.broadcast_to(estimate.is_approximate, low.shape).tolist()
        how = [(estimate.label_method(a), estimate.assumption, confidence) for a in approximate]
        each = zip(*columns, how, strict=True)
        return [Interval(low, high, value, error, *rest) for low, high, value, error, rest in each]


def read_side_by_side(metric: Any, state: State) -> Reading | None:
    """Return one reading with arrays over all cells (such as slices); None if the state cannot be converted to arrays.

    Use this function only if `metric.read` works with arrays.
    """
    reading: Reading | None = metric.read(state.vectorize()) if state.can_vectorize else None
    return reading


def bounds_of_some(metric: Any, state: State, values: Any, some: Any) -> tuple[Any, Any]:
    """Return the lower and upper bounds of all cells (such as slices), as two arrays.

    The bounds of the cells in the mask `some` are computed one by one. The `values` of all other cells must be exact,
    so that both bounds equal the value. If any weight in the state was rounded, all bounds are computed one by one.
    """
    if "rounded" in state.cells.flats:
        some = np.ones(len(state), bool)
    low, high = values.copy(), values.copy()
    if some.any():
        each = map(metric.reading, itertools.compress(state.iterate_cells(), some.tolist()))
        low[some], high[some] = zip(*(one.bounds for one in each), strict=True)
    return low, high


def known_reading(metric: Any, state: State, value: Any, bounds: tuple[Any, Any]) -> Reading:
    """Return the reading of a single-cell state whose `value` and `bounds` have already been computed."""
    reading: Reading = metric.reading(state).having(bounds=lambda: bounds)
    reading._cached_value = value
    reading.__dict__["bounds"] = bounds
    return reading
