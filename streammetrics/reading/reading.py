"""Reading: what a metric says about a state. Value, bounds, standard error and the rest are computed on request."""

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
    "widened",
]

NAN = float("nan")
UNKNOWN: Any = object()
"""Marks a value that was not computed yet."""
Slack = Callable[[Limits, Fraction], Fraction]


class Quotient(NamedTuple):
    """A value that is a quotient of two exact numbers; of many cells, of two arrays.

    Parameters
    ----------
    numerator, denominator : int or Fraction
        0/0 and x/0 are undefined.
    """

    numerator: Any
    denominator: Any


def relative_slack(found: Limits, rounding: Fraction) -> Fraction:
    """Return how much wider the bounds of a quotient are if each weight was rounded by `rounding`, relatively."""
    return 8 * rounding * max(abs(found.low), abs(found.high))


class Reading:
    """What a metric says about a state of one cell, or about many cells side by side.

    Parameters
    ----------
    state : State
        The state. It never changes, so a reading keeps describing the moment at which it was made.
    found : float, Quotient, Limits, array, NamedTuple, None, or a callable that returns one
        The value. `Limits` also say between which numbers the value certainly is, before anything is rounded. None stands
        for an undefined number.
    reason : callable, optional
        Returns why the value is undefined, or None if it is defined.
    bounds : callable, optional
        Returns the certified bounds. By default `Limits` have their own, and other values are exact.
    slack : callable, optional
        Takes the limits and how much each weight was rounded, relatively; returns how much wider the bounds are for that.
    grain : callable, optional
        Takes the limits; returns how much wider the bounds are where no weight was rounded, but terms were.
    value_range : pair, optional
        The smallest and the largest value there can be; None for no limit.
    estimate : callable, optional
        Takes the name of a method; returns the value with its standard error.
    details : callable, optional
        Returns what `explain` says besides.
    is_number : bool
        Whether a float is treated as exact `Limits`, which rounded weights widen as they widen a quotient.
    """

    def __init__(
        self,
        state: State,
        found: Any,
        *,
        reason: Callable[[], str | None] | None = None,
        bounds: Callable[[], tuple[Any, Any]] | None = None,
        slack: Slack = relative_slack,
        grain: Callable[[Limits], Fraction] | None = None,
        value_range: tuple[Any, Any] = (None, None),
        estimate: Callable[[str], Estimate | None] | None = None,
        details: Callable[[], Mapping[str, Any]] | None = None,
        is_number: bool = False,
    ) -> None:
        self.state, self.value_range, self._found = state, value_range, found
        self._reason, self._bounds, self._slack, self._grain = reason, bounds, slack, grain
        self._estimate, self._details, self._is_number = estimate, details, is_number

    def having(self, **parts: Any) -> Reading:
        """Return the same reading with another `found`, `bounds`, `estimate`, `details`, `reason` or `grain`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        # Both readings may be asked for the value: they compute it once, together.
        made._found = partial(getattr, self, "found")
        for name, part in parts.items():
            made.__dict__[f"_{name}"] = part
        return made

    # `cached_property` takes a lock in Python 3.11, which costs more than computing many of the values.
    _kept_found: Any = UNKNOWN
    _kept_value: Any = UNKNOWN

    @property
    def found(self) -> Any:
        """The value, before anything is rounded."""
        if self._kept_found is UNKNOWN:
            self._kept_found = self._found() if callable(self._found) else self._found
        return self._kept_found

    def preset(self, found: Any) -> None:
        """Set the value, so that it is not computed again."""
        self._kept_found = found

    @property
    def value(self) -> Any:
        """The value, rounded once; NaN if it is undefined."""
        if self._kept_value is UNKNOWN:
            self._kept_value = _rounded(self.found)
        return self._kept_value

    @cached_property
    def limits(self) -> Limits | None:
        """The number and its certified limits before anything is rounded; None if it is undefined."""
        found = self.found
        if found is None or isinstance(found, Limits):
            return found
        if isinstance(found, Quotient):
            return Limits.exactly(*found)
        if math.isinf(found):
            return Limits.exactly(BEYOND if found > 0 else -BEYOND)
        return None if math.isnan(found) else Limits.exactly(Fraction(found))

    def certified(self, rounding: Fraction) -> Limits | None:
        """Return the limits, wider by what rounded weights and terms may have changed."""
        found = self.limits
        if found is None:
            return None
        if rounding:
            return found.widened(self._slack(found, rounding), *self.value_range)
        return found if self._grain is None else found.widened(self._grain(found), *self.value_range)

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        """The certified bounds: a proof from the state. Equal bounds: the value is exact, rounded once."""
        if self._bounds is not None:
            return self._bounds()
        if self._is_number or self.found is None or isinstance(self.found, (Limits, Quotient)):
            found = self.certified(self.state.slip)
            return (NAN, NAN) if found is None else found.outward()
        return widened(self.value, self.state)

    @cached_property
    def reason(self) -> str | None:
        """Why the value is undefined; None if it is defined."""
        if self._reason is not None:
            return self._reason()
        return "no rows" if not self.state.facts().get("rows", 1) else None

    @cached_property
    def details(self) -> dict[str, Any]:
        """What `explain` says besides."""
        return {} if self._details is None else dict(self._details())

    def estimate(self, method: str) -> Estimate | None:
        """Return the value with its standard error, if the units that the state counts are independent; None without."""
        return None if self._estimate is None else self._estimate(method)

    @property
    def has_bounds(self) -> bool:
        """Whether bounds are known that are more than the value and the rounding of weights."""
        return self._bounds is not None

    @property
    def is_certain(self) -> bool:
        """Whether the bounds are the value, if no weight was rounded."""
        return self._bounds is None and self._grain is None and not isinstance(self.found, Limits)

    @property
    def numbers(self) -> list[Limits | None]:
        """The limits of the number, or of each number of a vector, before weights, terms or itself are rounded."""
        return [self.limits]


class OwnReading(Reading):
    """The reading that calls the methods `of`, `reason`, `slack` and `estimate` of a metric when it needs them.

    Parameters
    ----------
    metric : Metric
        The metric.
    state : State
        Its state, of one cell or of many side by side.
    """

    state: Any
    _bounds: Any = None
    _grain: Any = None
    _details: Any = None
    _is_number = False

    def __init__(self, metric: Any, state: Any) -> None:
        self.metric, self.state = metric, state

    def _found(self) -> Any:
        return self.metric.of(self.state)

    def _reason(self) -> str | None:
        reason: str | None = self.metric.reason(self.state)
        return reason

    def _slack(self, found: Limits, rounding: Fraction) -> Fraction:
        slack: Fraction = self.metric.slack(self.state, found, rounding)
        return slack

    def _estimate(self, method: str) -> Estimate | None:
        found: Estimate | None = self.metric.estimate(self, method)
        return found

    @property
    def value_range(self) -> tuple[Any, Any]:  # type: ignore[override]
        return about_of(self.metric).value_range


class OwnNumber(OwnReading):
    """The reading of a metric whose floats are treated as exact `Limits`."""

    _is_number = True


def _rounded(found: Any) -> Any:
    """Return a value rounded once; NaN for None."""
    if isinstance(found, Quotient):
        return to_float(*found)
    if found is None:
        return NAN
    return found.rounded() if isinstance(found, Limits) else found


def widened(value: Any, state: State) -> tuple[Any, Any]:
    """Return the bounds of a value that is exact, but for weights that were rounded."""
    slip = 8 * state.slip
    least = slip if state.fixed_terms else Fraction(0)  # each w x was rounded, too: of a mean no more than that
    return (_spread(value, -slip, -least), _spread(value, slip, least)) if slip else (value, value)


def _spread(value: Any, slip: Fraction, least: Fraction) -> Any:
    """Return a value that is larger by a share, and at least so much, rounded outward; of arrays and tuples each number.

    Infinity stays, and 0 without a least.
    """
    if isinstance(value, tuple):
        return type(value)(*(_spread(v, slip, least) for v in value))
    with np.errstate(invalid="ignore", over="ignore"):
        made = np.asarray(value, np.float64)
        wider = np.nextafter(made + (np.abs(made) * float(slip) + float(least)), math.copysign(math.inf, slip))
        made = np.where(((made == 0) & (not least)) | np.isinf(made), made, wider)
    return made if isinstance(value, np.ndarray) else float(made)


# -- intervals --------------------------------------------------------------------------------------------------------


def estimate_of(metric: Any, found: Reading, method: str | None = None) -> Estimate:
    """Return the value with its standard error, or the reason why there is none."""
    about = about_of(metric)
    why = about.no_interval_reason
    made = None if why else found.estimate(about.interval_methods[0] if method is None else method)
    if made is not None:
        return made
    why = why or f"this state does not say how {metric.name} varies; Sharded(..., unit=) does"
    return Estimate(found.value, reason=why)


def interval_of(metric: Any, found: Reading, confidence: float = 0.95, method: str | None = None) -> Interval:
    """Return the statistical interval of the value."""
    return estimate_of(metric, found, method).interval(confidence)


# -- all front cells of a state ---------------------------------------------------------------------------------------


class CellReadings:
    """The readings of all front cells of a state: as arrays where the metric can, otherwise one after the other.

    Make one for each request. If the state kept it, the two would refer to each other, and only the garbage collector
    would free them.

    Parameters
    ----------
    metric : Metric
        The metric.
    state : State
        Its state, of any axes.
    """

    def __init__(self, metric: Any, state: State) -> None:
        self.metric, self.state = metric, state

    @cached_property
    def at_once(self) -> Reading | None:
        """The reading of all cells as arrays; None if each is read alone."""
        read = about_of(self.metric).read_cells
        found: Reading | None = None if read is None else read(self.metric, self.state)
        return found

    def __iter__(self) -> Iterator[Reading]:
        """Read every cell, one after the other."""
        return map(self.metric.reading, self.state.each_cell())

    @cached_property
    def values(self) -> list[Any]:
        """The value of every cell."""
        if self.at_once is None:
            return [one.value for one in self]
        values: list[Any] = self.at_once.value.tolist()
        return values

    @cached_property
    def bounds(self) -> list[tuple[Any, Any]]:
        """The certified bounds of the value of every cell."""
        whole = self.at_once
        if whole is not None and whole.has_bounds:
            low, high = whole.bounds
            return list(zip(low.tolist(), high.tolist(), strict=True))
        if whole is None or "rounded" in self.state.cells.flats:
            return [one.bounds for one in self]
        return [(value, value) for value in self.values]

    def intervals(self, confidence: float) -> list[Interval]:
        """Return the statistical interval of every cell."""
        about = about_of(self.metric)
        whole = self.at_once if len(self.state) > 1 and not about.no_interval_reason else None
        found = None if whole is None else whole.estimate(about.interval_methods[0])
        if found is None:
            return [interval_of(self.metric, one, confidence) for one in self]
        low, high = found.limits(confidence)
        columns = (x.tolist() for x in (low, high, found.value, np.broadcast_to(found.error, low.shape)))
        how = found.method, found.assumption, confidence
        each = zip(*columns, strict=True)
        return [Interval(low, high, value, error, *how) for low, high, value, error in each]


def read_side_by_side(metric: Any, state: State) -> Reading | None:
    """Return the reading of all front cells as arrays, if `metric.read` works with arrays; None if cells do not stack."""
    found: Reading | None = metric.read(state.stacked()) if state.stacks else None
    return found


def bounds_of_some(metric: Any, state: State, values: Any, some: Any) -> tuple[Any, Any]:
    """Return the bounds of all front cells as arrays: some cells are read alone, of the others they are the values."""
    if "rounded" in state.cells.flats:
        some = np.ones(len(state), bool)
    low, high = values.copy(), values.copy()
    if some.any():
        each = map(metric.reading, itertools.compress(state.each_cell(), some.tolist()))
        low[some], high[some] = zip(*(one.bounds for one in each), strict=True)
    return low, high


def known_reading(metric: Any, state: State, value: Any, bounds: tuple[Any, Any]) -> Reading:
    """Return the reading of a cell whose value and bounds are known, so that they are not computed again."""
    found: Reading = metric.reading(state).having(bounds=lambda: bounds)
    found._kept_value = value
    found.__dict__["bounds"] = bounds
    return found
