"""Integers wider than int64, in numpy: what `compute()` needs to round only once.

Three forms of number live in the states. A *count* is an int64. A *fixed* number is two limbs, (high, low), worth
`high * 2**-20 + low * 2**-60` with `0 <= low < 2**40`. An *exact* number is a superaccumulator of 68 chunks of 32 bits
(Neal 2015), chunk k worth `2**(32*k - 1088)`: it holds any sum of float64 without rounding. Each has one canonical
form, so equal values are equal arrays.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
ONE_DIGIT = 1 << 30  # products of two numbers below it, summed over cells that total less than it, stay in int64

LOW_BITS = 40  # of the low limb of a fixed number
FRACTION_BITS = 60  # a fixed number is a multiple of 2**-60
UNIT = 1 << FRACTION_BITS
CHUNKS = 68  # 32-bit chunks of a superaccumulator: all of float64, and room for 2**62 of its largest numbers
CHUNK_BASE = 1088  # chunk 0 is worth 2**-1088
BLOCK = 1 << 16
WORTH = np.ldexp(1.0, 32 * np.arange(CHUNKS) - CHUNK_BASE - 64)  # of chunks, in units of 2**64
DIGIT_BITS = 20  # of the digits below: products of two, summed over 2**20 cells, stay in int64


def carry_fixed(numbers: Ints) -> None:
    """Bring fixed numbers (last axis: high, low) to canonical form, in place."""
    low = numbers[..., 1]
    numbers[..., 0] += low >> LOW_BITS
    low &= (1 << LOW_BITS) - 1


def carry_exact(numbers: Ints) -> None:
    """Bring superaccumulators (last axis: chunks) to canonical form, in place."""
    for k in range(CHUNKS - 1):
        numbers[..., k + 1] += numbers[..., k] >> 32
        numbers[..., k] &= (1 << 32) - 1


def fixed_to_int(number: Ints) -> int:
    """One fixed number as an integer count of 2**-60."""
    return (int(number[0]) << LOW_BITS) + int(number[1])


def exact_to_fraction(number: Ints) -> Fraction:
    """One superaccumulator as a fraction."""
    if not number.any():
        return Fraction(0)
    total = 0
    for chunk in number[::-1].tolist():
        total = (total << 32) + chunk
    return Fraction(total, 1 << CHUNK_BASE)


def about(numbers: Ints) -> NDArray[np.float64]:
    """Superaccumulators as floats, to a few ulp, and in no order for ever: for a first look at many of them."""
    negative = numbers[..., -1] < 0
    sizes = numbers
    if negative.any():
        sizes = np.where(negative[..., None], -numbers, numbers)
        carry_exact(sizes)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out = (sizes.astype(np.float64) @ WORTH) * 2.0**64
    return np.where(negative, -out, out)


def to_float(numerator: int | Fraction, denominator: int | Fraction = 1) -> float:
    """Round a quotient to the nearest float64, infinity beyond the largest; 0/0 and x/0 are NaN."""
    if not denominator:
        return float("nan")
    quotient = Fraction(numerator) / Fraction(denominator)
    try:
        return float(quotient)
    except OverflowError:
        return math.inf if quotient > 0 else -math.inf


def enclose(low: Fraction, high: Fraction) -> tuple[float, float]:
    """Two floats that certainly contain [low, high]: rounded outward."""
    a, b = float(low), float(high)
    return (
        a if Fraction(a) <= low else float(np.nextafter(a, -np.inf)),
        b if Fraction(b) >= high else float(np.nextafter(b, np.inf)),
    )


class Mass:
    """A non-negative integer per cell, as wide as it needs to be: rows, or weight in units of 2**-60.

    Held as digits in base 2**20, least significant first, so that sums and products of whole arrays are int64 loops; as
    one digit if the total is below 2**30, which is the common case, and the fast one.

    Parameters
    ----------
    digits : int64, digits x cells
    """

    def __init__(self, digits: Ints) -> None:
        self.digits = digits

    @classmethod
    def of(cls, rows: Ints, excess: Ints | None = None) -> Mass:
        """Rows per cell; with `excess` (fixed numbers: the sum of w - 1) the weight per cell, in units of 2**-60."""
        if excess is None:
            rows = np.ascontiguousarray(rows)
            small = rows.max(initial=0) < ONE_DIGIT and rows.sum() < ONE_DIGIT  # the sum of large ones may wrap around
            return cls(rows[None] if small else _digits(rows[None]))
        high, low = excess[..., 0], excess[..., 1]
        mask = (1 << DIGIT_BITS) - 1
        # rows * 2**60 + high * 2**40 + low, by digits of 2**20; the carry below makes every digit non-negative
        return cls(_digits(np.stack([low & mask, low >> DIGIT_BITS, high & mask, (high >> DIGIT_BITS) + rows])))

    def __getitem__(self, cells: slice) -> Mass:
        return Mass(self.digits[:, cells])

    def cell(self, i: int) -> int:
        """The integer in one cell."""
        return _to_int(self.digits[:, i])

    def total(self) -> int:
        """Sum of all cells."""
        return _to_int(self.digits.sum(axis=1))

    def before(self) -> Mass:
        """Return the sum of all cells before each cell."""
        sums = np.empty_like(self.digits)
        sums[:, :1] = 0
        np.cumsum(self.digits[:, :-1], axis=1, out=sums[:, 1:])
        one = len(sums) == 1 and sums[0, -1:].sum() + self.digits[0, -1:].sum() < ONE_DIGIT
        return Mass(sums if one else _digits(sums))

    def dot(self, other: Mass) -> int:
        """Sum of products, cell by cell."""
        total = 0
        for start in range(0, self.digits.shape[1], BLOCK):  # products of millions of cells stay in the cache
            cells = slice(start, start + BLOCK)
            for i, a in enumerate(self.digits[:, cells]):
                for j, b in enumerate(other.digits[:, cells]):
                    total += int((a * b).sum()) << (DIGIT_BITS * (i + j))
        return total

    def above(self, other: Mass) -> tuple[int, int]:
        """Twice the pairs in which a row of this is above one of the other (of equal ones half), and the equal ones."""
        if len(self.digits) > 1 or len(other.digits) > 1:
            equal = self.dot(other)
            return 2 * self.dot(other.before()) + equal, equal
        twice = equal = below = 0
        for start in range(0, self.digits.shape[1], BLOCK):  # in the cache
            a, b = (m.digits[0, start : start + BLOCK] for m in (self, other))
            up_to = np.cumsum(b)
            ties, wins = int((a * b).sum()), int((a * up_to).sum()) + below * int(a.sum())
            twice, equal, below = twice + 2 * wins - ties, equal + ties, below + int(up_to[-1])
        return twice, equal

    def floats(self) -> NDArray[np.float64]:
        """Each cell as the nearest float64 (to 2 ulp where it needs more than 53 bits)."""
        out = np.zeros(self.digits.shape[1])
        for digit in self.digits[::-1]:
            out = out * float(1 << DIGIT_BITS) + digit
        return out


def _digits(parts: Ints) -> Ints:
    """Digits in [0, 2**20) of numbers given as unnormalised digits."""
    out = []
    carry = np.zeros_like(parts[0])
    for part in parts:
        value = part + carry
        out.append(value & ((1 << DIGIT_BITS) - 1))
        carry = value >> DIGIT_BITS
    while carry.any():
        out.append(carry & ((1 << DIGIT_BITS) - 1))
        carry = carry >> DIGIT_BITS
    while len(out) > 1 and not out[-1].any():
        out.pop()
    return np.stack(out)


def _to_int(digits: Ints) -> int:
    return sum(int(d) << (DIGIT_BITS * i) for i, d in enumerate(digits))
