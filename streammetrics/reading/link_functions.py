"""Scales on which an estimate is closer to a t distribution than on its own: there and back, and the slope between.

A proportion or an area is taken as log(v / (1 - v)), a ratio as log(v), a correlation as its area hyperbolic tangent, and
a relative difference as the difference of two logarithms. Intervals are formed there and carried back, so that they never
leave what is possible. All of it elementwise: of one number or of many.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.elementary import exp, log, log1p, sigmoid

__all__ = ["SCALES", "LinkFunction", "scale_of"]

Floats = NDArray[np.float64]
INF = float("inf")
SMALLEST = float(np.finfo(np.float64).tiny)  # the logarithm is of normal numbers
MOST = 700.0  # e^700 is a float64


class Map(Protocol):
    """A function of an array, elementwise."""

    def __call__(self, x: Any, /) -> Any: ...


class LinkFunction(NamedTuple):
    """A scale.

    Parameters
    ----------
    name : str
        "natural", "logit", "log", "fisher", or "relative".
    low, high : float
        Values strictly between these two are on the scale; 1/2 is on all of them.
    forward, back : callable
        From a value to the scale, and from the scale to a value.
    slope : callable
        Of `back`, as a function of the value: what one unit of the scale is worth there.
    """

    name: str
    low: float
    high: float
    forward: Map
    back: Map
    slope: Map

    def holds(self, values: Any) -> Any:
        """Return which values are on the scale."""
        return (np.asarray(values) > self.low) & (np.asarray(values) < self.high)

    def points(self, values: Any) -> Any:
        """Return where values lie; NaN where they are not on the scale."""
        held = self.holds(values)
        return np.where(held, self.forward(np.where(held, values, 0.5)), np.nan)[()]

    def point(self, value: Any) -> Any:
        """Return where a value lies; the ends of the range are at minus and plus infinity."""
        given = np.asarray(value, np.float64)
        beyond = np.where(given <= self.low, -INF, np.where(given >= self.high, INF, self.points(given)))
        return plain(beyond)

    def value(self, point: Any) -> Any:
        """Return the value of a point."""
        return plain(np.asarray(self.back(np.asarray(point, np.float64)[()])))

    def limits(self, value: Any, reach: Any) -> tuple[Any, Any]:
        """Return what lies so many of a value's own units below and above it, made even here; NaN off the scale."""
        held = self.holds(value)
        known = np.where(held, value, 0.5)
        middle, half = self.forward(known), np.where(held, reach / self.slope(known), np.nan)
        return self.back(middle - half), self.back(middle + half)


def plain(number: Any) -> Any:
    """An array of no axes as a float."""
    return float(number) if np.ndim(number) == 0 else number


def _same(x: Any) -> Any:
    return x


def _one(value: Any) -> Any:
    return 1.0


def _logit(x: Any) -> Any:
    return log(x) - log1p(-x)


def _power(x: Any) -> Any:
    return exp(np.minimum(x, MOST))


def _fisher(x: Any) -> Any:
    return 0.5 * (log1p(x) - log1p(-x))


SCALES = {
    scale.name: scale
    for scale in (
        LinkFunction("natural", -INF, INF, _same, _same, _one),
        LinkFunction("logit", SMALLEST, 1.0, _logit, sigmoid, lambda value: value * (1.0 - value)),
        LinkFunction("log", SMALLEST, INF, log, _power, lambda value: value),
        LinkFunction(
            "fisher", -1.0, 1.0, _fisher, lambda x: 2.0 * sigmoid(2.0 * x) - 1.0, lambda value: 1.0 - value * value
        ),
        LinkFunction("relative", -1.0, INF, log1p, lambda x: _power(x) - 1.0, lambda value: 1.0 + value),
    )
}
"""Every scale, by name: means; areas and shares; ratios; what lies between -1 and 1; and, where a difference of
logarithms is told as v_a / v_b - 1, "relative"."""


def scale_of(name: str) -> LinkFunction:
    """Return a scale by its name, or say which there are."""
    if name not in SCALES:
        raise InvalidInputError(f"no scale called {name!r}; there are {', '.join(SCALES)}")
    return SCALES[name]
