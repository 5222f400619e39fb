"""Double-double arithmetic on arrays: each number is the sum of two float64 numbers, for 106 bits of precision.

The library uses it to divide long integers. In nearly all cases, the quotient is precise enough to be rounded correctly
to float64. Sums and products use the error-free transformations of Knuth (1969) and Dekker (1971), without fused
multiply-add. For nonnegative numbers far from the limits of float64, the relative error of a sum, product or quotient
is below `ERROR`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ERROR", "DoubleDouble"]

Floats = NDArray[np.float64]

ERROR = 2.0**-98
"""An upper bound on the relative error of one operation."""


class DoubleDouble(NamedTuple):
    """An array of numbers, each stored as the sum of two float64 numbers.

    Parameters
    ----------
    high : float64 array
        The numbers rounded to float64.
    low : float64 array
        The rounding errors: each number is exactly high + low.
    """

    high: Any
    low: Any

    @classmethod
    def from_ints(cls, whole: Any) -> DoubleDouble:
        """Convert integers of at most 62 bits exactly."""
        high = np.asarray(whole >> 31, np.float64) * 2.0**31
        return cls(*_two_sum(high, np.asarray(whole & 0x7FFFFFFF, np.float64)))

    def take(self, where: Any) -> DoubleDouble:
        """Return the numbers at the indices `where`."""
        return DoubleDouble(self.high[where], self.low[where])

    def __add__(self, other: Any) -> DoubleDouble:
        high, rest = _two_sum(self.high, other.high)
        return DoubleDouble(*_fast_two_sum(high, rest + (self.low + other.low)))

    def __mul__(self, other: Any) -> DoubleDouble:
        high, rest = two_product(self.high, other.high)
        return DoubleDouble(*_fast_two_sum(high, rest + (self.high * other.low + self.low * other.high)))

    def __truediv__(self, other: DoubleDouble) -> DoubleDouble:
        first = self.high / other.high
        whole, rest = two_product(first, other.high)
        # Compute the remainder of the rounded quotient, divide it by `other`, and add the result as a correction.
        rest = (((self.high - whole) - rest) + self.low) - first * other.low
        return DoubleDouble(*_fast_two_sum(first, rest / other.high))

    def nearest(self, error: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Round each number to float64, and return a mask of the results that are certainly rounded correctly.

        `error` is an upper bound on the relative error of the numbers. A result is certain if both ends of the error
        interval round to the same float64.
        """
        slack = np.abs(self.high) * error
        low, high = self.high + (self.low - slack), self.high + (self.low + slack)
        return self.high + self.low, low == high


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded sum and its rounding error: a + b is exactly the sum of the two results."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fast_two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded sum and its rounding error, like `_two_sum`, with fewer operations; requires |a| >= |b|."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded product and its rounding error: a * b is exactly the sum of the two results."""
    total = a * b
    (a1, a2), (b1, b2) = _split_halves(a), _split_halves(b)
    return total, ((a1 * b1 - total) + a1 * b2 + a2 * b1) + a2 * b2


def _split_halves(x: Any) -> tuple[Any, Any]:
    """Split a float64 into the sum of two 26-bit numbers, whose products are exact (Veltkamp's algorithm)."""
    # With the factor 2**27 + 1, rounding keeps the upper half of the 53 bits of x in `high`.
    large = x * 134217729.0
    high = large - (large - x)
    return high, x - high
