"""Link functions: scales on which the sampling distribution of an estimate is closer to Student's t distribution.

Proportions and areas under curves use the logit, ratios the logarithm, correlations Fisher's z (artanh), and relative
differences the difference of two logarithms. Confidence limits are computed on that scale and transformed back, so they
never leave the range of the value. By the delta method, the standard error on the scale is the standard error of the
value divided by the slope of the inverse function. All functions work elementwise on numbers or arrays.
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
"""The lower end of the scales "logit" and "log". Smaller values are excluded, because the logarithm of subnormal floats is
not accurate."""
LARGEST_EXPONENT = 700.0
"""Larger exponents are reduced to this one before the exponential function is applied, so that the result stays finite."""


class ElementwiseFunction(Protocol):
    """The type of a function that is applied to each element of an array."""

    def __call__(self, x: Any, /) -> Any: ...


class LinkFunction(NamedTuple):
    """A scale: its transformation, the inverse, and the slope of the inverse.

    Parameters
    ----------
    name : str
        "natural", "logit", "log", "fisher", "relative" or "ratio".
    low, high : float
        The ends of the range of values for which the scale is defined. Values strictly between them are "on the scale".
        All other values have no finite point on it.
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
        """Return a mask of the values that are on the scale."""
        return (np.asarray(values) > self.low) & (np.asarray(values) < self.high)

    def points(self, values: Any) -> Any:
        """Transform values to the scale; the result is NaN for values that are not on the scale."""
        # Replace values that are not on the scale with 1/2, which is on every scale, so that `forward` gives no
        # warning.
        inside = self.holds(values)
        return np.where(inside, self.forward(np.where(inside, values, 0.5)), np.nan)[()]

    def point(self, value: Any) -> Any:
        """Transform a value to the scale; values at or beyond either end of the scale become minus or plus infinity."""
        values = np.asarray(value, np.float64)
        points = np.where(values <= self.low, -INF, np.where(values >= self.high, INF, self.points(values)))
        return unwrap_scalar(points)

    def value(self, point: Any) -> Any:
        """Transform a point on the scale back to a value."""
        return unwrap_scalar(np.asarray(self.back(np.asarray(point, np.float64)[()])))

    def limits(self, value: Any, reach: Any) -> tuple[Any, Any]:
        """Return confidence limits that are symmetric about the value on this scale; NaN for values outside the scale.

        `reach` is half the width of the interval in units of the value. Dividing it by the slope gives half the width
        on this scale.
        """
        inside = self.holds(value)
        known = np.where(inside, value, 0.5)
        middle, half = self.forward(known), np.where(inside, reach / self.slope(known), np.nan)
        return self.back(middle - half), self.back(middle + half)


def unwrap_scalar(number: Any) -> Any:
    """Return a zero-dimensional array as a float, and any other array unchanged."""
    return float(number) if np.ndim(number) == 0 else number


def _identity(x: Any) -> Any:
    return x


def _unit_slope(value: Any) -> Any:
    return 1.0


def _logit(x: Any) -> Any:
    # log1p keeps full precision for small proportions, for which 1 - x would be rounded.
    return log(x) - log1p(-x)


def _clipped_exp(x: Any) -> Any:
    # Limit x, so that the result stays finite. Only an infinite x, the logarithm of a ratio with denominator 0, gives
    # infinity.
    return np.where(np.isposinf(x), INF, exp(np.minimum(x, LARGEST_EXPONENT)))[()]


def _fisher(x: Any) -> Any:
    return 0.5 * (log1p(x) - log1p(-x))


SCALES = {
    scale.name: scale
    for scale in (
        LinkFunction("natural", -INF, INF, _identity, _identity, _unit_slope),
        LinkFunction("logit", SMALLEST, 1.0, _logit, sigmoid, lambda value: value * (1.0 - value)),
        LinkFunction("log", SMALLEST, INF, log, _clipped_exp, lambda value: value),
        # The inverse of Fisher's z is tanh(x) = 2 * sigmoid(2 * x) - 1. It is computed with the library's own sigmoid,
        # which gives the same bits on every machine.
        LinkFunction(
            "fisher", -1.0, 1.0, _fisher, lambda x: 2.0 * sigmoid(2.0 * x) - 1.0, lambda value: 1.0 - value * value
        ),
        LinkFunction("relative", -1.0, INF, log1p, lambda x: _clipped_exp(x) - 1.0, lambda value: 1.0 + value),
        LinkFunction("ratio", -INF, INF, _identity, _identity, _unit_slope),
    )
}
"""All scales by name: "natural" for means, "logit" for proportions and areas, "log" for ratios, "fisher" for values
between -1 and 1, and "relative" for relative differences v_a / v_b - 1, which are differences of logarithms. "ratio" is
for relative differences of values that need not be positive, and thus may have no logarithm."""


def scale_of(name: str) -> LinkFunction:
    """Return the scale with the given name; if there is none, raise InvalidInputError, which lists all names."""
    if name not in SCALES:
        raise InvalidInputError(f"there is no scale {name!r}; choose one of {', '.join(SCALES)}")
    return SCALES[name]
