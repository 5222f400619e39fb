"""Arrays of numbers of 106 bits, each the sum of two float64: quotients of many terms that one float64 is too short for.

Error-free sums and products (Knuth 1969, Dekker 1971), without fused operations. Numbers are not negative and far from
the ends of float64's range; sums, products and quotients are then within `ERROR`, relatively.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ERROR", "Twofold"]

Floats = NDArray[np.float64]

ERROR = 2.0**-98
"""More than one operation can be off, relatively."""


class Twofold(NamedTuple):
    """Numbers as high + low, of which the high part is the nearest float64.

    Parameters
    ----------
    high, low : float64 arrays
    """

    high: Any
    low: Any

    @classmethod
    def of(cls, whole: Any) -> Twofold:
        """Integers of no more than 62 bits."""
        high = np.asarray(whole >> 31, np.float64) * 2.0**31
        return cls(*_sum(high, np.asarray(whole & 0x7FFFFFFF, np.float64)))

    def take(self, where: Any) -> Twofold:
        """Some of the numbers."""
        return Twofold(self.high[where], self.low[where])

    def __add__(self, other: Any) -> Twofold:
        high, rest = _sum(self.high, other.high)
        return Twofold(*_short(high, rest + (self.low + other.low)))

    def __mul__(self, other: Any) -> Twofold:
        high, rest = product(self.high, other.high)
        return Twofold(*_short(high, rest + (self.high * other.low + self.low * other.high)))

    def __truediv__(self, other: Twofold) -> Twofold:
        first = self.high / other.high
        whole, rest = product(first, other.high)
        rest = (((self.high - whole) - rest) + self.low) - first * other.low
        return Twofold(*_short(first, rest / other.high))

    def nearest(self, error: float) -> tuple[Floats, NDArray[np.bool_]]:
        """The float64 nearest to each number, and whether it is, though numbers are off by this much, relatively."""
        slack = np.abs(self.high) * error
        low, high = self.high + (self.low - slack), self.high + (self.low + slack)
        return self.high + self.low, low == high


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """The sum as a float, and what it is short of."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _short(a: Any, b: Any) -> tuple[Any, Any]:
    """The same where the second is small beside the first."""
    total = a + b
    return total, b - (total - a)


def product(a: Any, b: Any) -> tuple[Any, Any]:
    """The product as a float, and what it is short of."""
    total = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return total, ((a1 * b1 - total) + a1 * b2 + a2 * b1) + a2 * b2


def _halves(x: Any) -> tuple[Any, Any]:
    """A float as two of half its bits."""
    large = x * 134217729.0
    high = large - (large - x)
    return high, x - high
