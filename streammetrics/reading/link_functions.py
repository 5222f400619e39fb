"""Link functions: scales on which the sampling distribution of an estimate is closer to Student's t.

Proportions and areas use the logit, ratios the logarithm, correlations Fisher's z (artanh), and relative differences the
difference of two logarithms. Limits are computed on this scale and transformed back, so they never leave the range of the
value. By the delta method, a standard error on the scale is the error of the value divided by the slope of the inverse
function. All functions work elementwise, on a number or an array.
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
SMALLEST = float(np.finfo(np.float64).tiny)
"""Smaller values are not on scales with a logarithm, which is not accurate for subnormal floats."""
LARGEST_EXPONENT = 700.0
"""Exponents are clipped here: e^700 is still finite in float64."""


class ElementwiseFunction(Protocol):
    """The type of an elementwise function of an array."""

    def __call__(self, x: Any, /) -> Any: ...


class LinkFunction(NamedTuple):
    """A scale with its transformation, the inverse, and the slope of the inverse.

    Parameters
    ----------
    name : str
        "natural", "logit", "log", "fisher", or "relative".
    low, high : float
        Values strictly between these limits are on the scale. 1/2 is on all scales.
    forward, back : callable
        The transformation from values to the scale, and its inverse.
    slope : callable
        The derivative of `back`, as a function of the value.
    """

    name: str
    low: float
    high: float
    forward: ElementwiseFunction
    back: ElementwiseFunction
    slope: ElementwiseFunction

    def holds(self, values: Any) -> Any:
        """Return which values are on the scale."""
        return (np.asarray(values) > self.low) & (np.asarray(values) < self.high)

    def points(self, values: Any) -> Any:
        """Return the transformed values; NaN for values that are not on the scale."""
        # 1/2 lies on all scales. It replaces values off the scale, so that `forward` gives no warning.
        inside = self.holds(values)
        return np.where(inside, self.forward(np.where(inside, values, 0.5)), np.nan)[()]

    def point(self, value: Any) -> Any:
        """Return the transformed value; the ends of the range are at minus and plus infinity."""
        values = np.asarray(value, np.float64)
        points = np.where(values <= self.low, -INF, np.where(values >= self.high, INF, self.points(values)))
        return unwrap_scalar(points)

    def value(self, point: Any) -> Any:
        """Return the value of a point on the scale."""
        return unwrap_scalar(np.asarray(self.back(np.asarray(point, np.float64)[()])))

    def limits(self, value: Any, reach: Any) -> tuple[Any, Any]:
        """Return limits around a value that are symmetric on this scale; NaN for a value that is not on the scale.

        `reach` is the half width in units of the value. Divided by the slope, it is the half width on this scale.
        """
        inside = self.holds(value)
        known = np.where(inside, value, 0.5)
        middle, half = self.forward(known), np.where(inside, reach / self.slope(known), np.nan)
        return self.back(middle - half), self.back(middle + half)


def unwrap_scalar(number: Any) -> Any:
    """Return an array without axes as a float, and other arrays unchanged."""
    return float(number) if np.ndim(number) == 0 else number


def _identity(x: Any) -> Any:
    return x


def _unit_slope(value: Any) -> Any:
    return 1.0


def _logit(x: Any) -> Any:
    # log1p keeps full precision for proportions near 0, where 1 - x would round.
    return log(x) - log1p(-x)


def _clipped_exp(x: Any) -> Any:
    return exp(np.minimum(x, LARGEST_EXPONENT))


def _fisher(x: Any) -> Any:
    return 0.5 * (log1p(x) - log1p(-x))


SCALES = {
    scale.name: scale
    for scale in (
        LinkFunction("natural", -INF, INF, _identity, _identity, _unit_slope),
        LinkFunction("logit", SMALLEST, 1.0, _logit, sigmoid, lambda value: value * (1.0 - value)),
        LinkFunction("log", SMALLEST, INF, log, _clipped_exp, lambda value: value),
        # tanh(x) = 2 sigmoid(2 x) - 1. The library has its own sigmoid, which gives the same bits on every machine.
        LinkFunction(
            "fisher", -1.0, 1.0, _fisher, lambda x: 2.0 * sigmoid(2.0 * x) - 1.0, lambda value: 1.0 - value * value
        ),
        LinkFunction("relative", -1.0, INF, log1p, lambda x: _clipped_exp(x) - 1.0, lambda value: 1.0 + value),
    )
}
"""All scales by name: "natural" for means, "logit" for proportions and areas, "log" for ratios, "fisher" for values
between -1 and 1, and "relative" for relative differences v_a / v_b - 1, which are differences of logarithms."""


def scale_of(name: str) -> LinkFunction:
    """Return a scale by name; raise InvalidInputError, with the names of all scales, if there is none."""
    if name not in SCALES:
        raise InvalidInputError(f"no scale called {name!r}; there are {', '.join(SCALES)}")
    return SCALES[name]
