"""Columns of numbers, such as targets. Bounds on the absolute values make exact sums of products possible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..numerics.kernel_registry import find_kernel
from .columns import Column, Mask
from .kinds import Need, Score

__all__ = ["Exponent", "Number", "number"]

OCTAVES = 400


class Number(Score):
    """A number that is 0 or has an absolute value from 2**-octaves to 2**octaves, optionally with a lower bound.

    Parameters
    ----------
    low : float
        The lower bound.
    above : bool
        Whether a number must be greater than `low`. By default, it may also equal `low`.
    octaves : int
        The exponent of the bounds on the absolute value.
    """

    def __init__(self, low: float = -math.inf, above: bool = False, octaves: int = OCTAVES) -> None:
        super().__init__("real")
        self.low, self.above, self.octaves = low, above, octaves
        self.smallest, self.largest = 2.0**-octaves, 2.0**octaves
        zero = "0, or " if low < 0 or (low == 0 and not above) else ""
        size = " in absolute value" if low < 0 else ""
        limit = f" {'greater than' if above else 'of at least'} {low:g}" if low > -math.inf else ""
        self.expected = (  # type: ignore[misc]
            f"a number{limit}: {zero}between 2**-{octaves} and 2**{octaves}{size}"
        )
        self._key: tuple[Any, ...] = Number, low, above, octaves
        # Each lookup in a batch's cache hashes this object, so compute its hash only once.
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def ok(self, column: Column) -> bool:
        values = column.values.reshape(-1)
        return not find_kernel("checks:find_bad_number")(values, self.smallest, self.largest, self.low, self.above)

    def bad(self, column: Column) -> Mask:
        v = column.values.astype(np.float64)
        size = np.abs(v)
        good = (size <= self.largest) & ((size >= self.smallest) | (v == 0))
        return np.asarray(~(good & (v > self.low if self.above else v >= self.low)))


class Exponent(Number):
    """A number x with an absolute value of at most 256, so that exp(x)**2 neither overflows nor underflows in float64."""

    def __init__(self) -> None:
        super().__init__(octaves=8)
        self.smallest = 0.0
        self.expected = "a number of at most 256 in absolute value"  # type: ignore[misc]
        self._key = Exponent, self.low, self.above, self.octaves
        self._hash = hash(self._key)


def number(role: str = "y_true", *, low: float = -math.inf, above: float | None = None, octaves: int = OCTAVES) -> Need:
    """Declare that a metric's state reads a column of numbers, such as targets, predictions or values.

    Parameters
    ----------
    role : str
        The role of the column.
    low, above : float, optional
        The lower bound on the numbers: `low` itself is allowed, `above` itself is not.
    octaves : int
        The absolute value of every number other than 0 must lie between 2**-octaves and 2**octaves.
    """
    return Need(
        role,
        Number(low)
        if above is None and octaves == OCTAVES
        else Number(low if above is None else above, above is not None, octaves),
    )
