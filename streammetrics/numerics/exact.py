"""Integers wider than int64, in numpy, so that `compute()` rounds only once.

States store three forms of number. A *count* is an int64. A *fixed* number has two limbs, (high, low), and the value
`high * 2**-20 + low * 2**-60` with `0 <= low < 2**40`. An *exact* number is a superaccumulator of 68 chunks of 32 bits
(Neal 2015); chunk k is worth `2**(32*k - 1088)`, so it holds any sum of float64 without rounding. Each form is canonical:
equal values are equal arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from .double_double import DoubleDouble

Ints = NDArray[np.int64]
NAN = float("nan")
# If two arrays have totals below this limit, the sum of their products fits into an int64.
ONE_DIGIT = 1 << 30

LOW_BITS = 40  # the bits of the low limb of a fixed number
FRACTION_BITS = 60  # a fixed number is a multiple of 2**-60
UNIT = 1 << FRACTION_BITS
# Chunks of 32 bits. They cover all bits of float64, and have room for the sum of 2**62 of its largest numbers.
CHUNKS = 68
CHUNK_BASE = 1088  # chunk 0 is worth 2**-1088
BLOCK = 1 << 16
# The sum of this many products of digits (each below 2**40) fits into an int64.
MOST_PRODUCTS = 1 << 20
# The value of the lowest bit of each chunk, in units of 2**64.
WORTH = np.ldexp(1.0, 32 * np.arange(CHUNKS) - CHUNK_BASE - 64)
ONE = Fraction(1)
# Sums of at most this many fractions are exact. Sums of more fractions are computed to 256 bits.
FEW_TERMS = 16
# The number of bits of a digit of `Mass`. The sum over 2**20 cells of products of two digits fits into an int64.
DIGIT_BITS = 20


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


def to_python_int(numbers: Any) -> Any:
    """Convert a number to a Python integer, which does not overflow, or an array to an object array of such integers."""
    return numbers.astype(object) if numbers.ndim else int(numbers)


def fixed_to_int(number: Ints) -> Any:
    """Return a fixed number in units of 2**-60; for cells on the last axis, an array of them."""
    return (to_python_int(number[0]) << LOW_BITS) + to_python_int(number[1])


def weights_in_units(rows: Ints, excess: Ints | None) -> NDArray[Any]:
    """Return the rows of each cell as Python integers, or with `excess` their weights in units of 2**-60.

    `excess` has the sums of w - 1 as fixed numbers, limbs last.
    """
    counted = rows.astype(object)
    return counted if excess is None else (counted << FRACTION_BITS) + fixed_to_int(np.moveaxis(excess, -1, 0))


def units_to_fraction(units: Any) -> Any:
    """Convert a number in units of 2**-60 to a fraction; return an array unchanged, because only its ratios are used."""
    return Fraction(units, UNIT) if isinstance(units, int) else units


def exact_to_fraction(number: Ints) -> Fraction:
    """Return one superaccumulator as a fraction."""
    if not number.any():
        return Fraction(0)
    total = 0
    for chunk in number[::-1].tolist():
        total = (total << 32) + chunk
    return Fraction(total, 1 << CHUNK_BASE)


def to_floats(numbers: Ints) -> NDArray[np.float64]:
    """Convert fixed numbers or superaccumulators to floats.

    Limbs are added one by one, so that the bits are the same on every machine.
    """
    limbs = numbers.shape[-1]
    if limbs == 2:
        high, low = (numbers[..., k].astype(np.float64) for k in (0, 1))
        return np.asarray(high * 2.0**-20 + low * 2.0**-60)
    negative, sizes = _split_signs(numbers)
    out = np.zeros(numbers.shape[:-1])
    for k in reversed(range(limbs)):
        if (chunk := sizes[..., k]).any():
            out += np.ldexp(chunk.astype(np.float64), 32 * k - CHUNK_BASE)
    return np.where(negative, -out, out)


def _split_signs(numbers: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Return a mask of the negative superaccumulators, and the absolute values of all of them."""
    negative = numbers[..., -1] < 0
    if not negative.any():
        return negative, numbers
    sizes = np.where(negative[..., None], -numbers, numbers)
    carry_exact(sizes)
    return negative, sizes


def to_approximate_floats(numbers: Ints) -> NDArray[np.float64]:
    """Return superaccumulators as floats with an error of a few ulp, which is faster than `to_floats`.

    The order of the additions, and so the last bits, may differ between machines.
    """
    negative, sizes = _split_signs(numbers)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out = (sizes.astype(np.float64) @ WORTH) * 2.0**64
    return np.where(negative, -out, out)


@overload
def to_float(numerator: int | Fraction, denominator: int | Fraction = 1, empty: float = NAN) -> float: ...
@overload
def to_float(numerator: NDArray[Any], denominator: NDArray[Any], empty: float = NAN) -> NDArray[np.float64]: ...
def to_float(numerator: Any, denominator: Any = 1, empty: float = NAN) -> Any:
    """Round a quotient of exact numbers, or each of two arrays, to the nearest float64; 0/0 and x/0 are `empty`.

    A quotient beyond the largest float64 is infinite.
    """
    if isinstance(numerator, np.ndarray):
        out, some = np.full(numerator.shape, empty), np.asarray(denominator != 0, bool)
        # Python divides integers of any length with one rounding.
        out[some] = numerator[some] / denominator[some]
        return out
    return _nearest_float(Fraction(numerator) / Fraction(denominator)) if denominator else empty


def _nearest_float(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    # Python raises OverflowError if the quotient exceeds the largest float.
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def enclose(low: Fraction, high: Fraction) -> tuple[float, float]:
    """Return the two nearest floats whose interval contains [low, high]: low rounded down, and high rounded up."""
    a, b = _nearest_float(low), _nearest_float(high)
    return (
        a if a <= low else math.nextafter(a, -math.inf),
        b if b >= high else math.nextafter(b, math.inf),
    )


BEYOND = Fraction(1 << 1100)
"""An error larger than any float: nothing is known of the number."""


class Limits(NamedTuple):
    """A number with guaranteed lower and upper limits, as exact fractions.

    Parameters
    ----------
    low, value, high : Fraction
        If all three are equal, the number is exact.
    """

    low: Fraction
    value: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, numerator: int | Fraction, denominator: int | Fraction = 1) -> Limits | None:
        """Return a quotient without error, as limits that are equal; None for 0/0 and x/0."""
        if not denominator:
            return None
        value = Fraction(numerator) / Fraction(denominator)
        return cls(value, value, value)

    @classmethod
    def root(cls, square: Fraction) -> Limits:
        """Return the square root, with limits that agree to 120 bits."""
        if not square:
            return cls(square, square, square)
        shift = 120 + max(0, square.denominator.bit_length() - square.numerator.bit_length())
        whole, rest = divmod(square.numerator << 2 * shift, square.denominator)
        low = math.isqrt(whole)
        high = low + (rest != 0 or low * low != whole)
        return cls(*(Fraction(x, 2 << shift) for x in (2 * low, low + high, 2 * high)))

    @classmethod
    def mean(cls, numbers: Sequence[Limits | None], weights: Sequence[Fraction] | None = None) -> Limits | None:
        """Return the weighted mean of the numbers that are not None, or None if their total weight is 0."""
        all_weights = [Fraction(1)] * len(numbers) if weights is None else weights
        known = [(n, w) for n, w in zip(numbers, all_weights, strict=True) if n is not None and w]
        if not known:
            return None
        return cls._of_sums([[n[i] * w for n, w in known] for i in range(3)], sum((w for _, w in known), Fraction(0)))

    @classmethod
    def sum(cls, numbers: Sequence[tuple[Fraction, Fraction, Fraction]]) -> Limits:
        """Return the sum of numbers that have limits."""
        if all(low is high for low, _, high in numbers):  # all limits are equal, so one sum is enough
            return cls.quotients([value.as_integer_ratio() for _, value, _ in numbers])
        return cls._of_sums([[n[i] for n in numbers] for i in range(3)], Fraction(1))

    @classmethod
    def quotients(cls, pairs: Sequence[tuple[int, int]], total: Fraction = ONE) -> Limits:
        """Return the sum of quotients of integers, divided by a total."""
        low, high = _quotient_of_sum(pairs, total)
        return cls(low, (low + high) / 2, high)

    @classmethod
    def _of_sums(cls, terms: Sequence[Sequence[Fraction]], total: Fraction) -> Limits:
        low, value, high = (_quotient_of_sum([t.as_integer_ratio() for t in each], total) for each in terms)
        return cls(low[0], (value[0] + value[1]) / 2, high[1])

    def __neg__(self) -> Limits:
        return Limits(-self.high, -self.value, -self.low)

    def widen(self, slack: Fraction, least: Fraction | int | None = None, most: Fraction | int | None = None) -> Limits:
        """Return limits that are wider by `slack` on either side, but not below `least` or above `most`."""
        if not slack:
            return self
        low, high = self.low - slack, self.high + slack
        return self._replace(
            low=low if least is None else max(low, Fraction(least)),
            high=high if most is None else min(high, Fraction(most)),
        )

    def to_float(self) -> float:
        """Return the number as the nearest float64."""
        return _nearest_float(self.value)

    def round_outward(self) -> tuple[float, float]:
        """Return the limits as floats, rounded outward; if both round to the same nearest float, return it twice."""
        low, high = _nearest_float(self.low), _nearest_float(self.high)
        return (low, high) if low == high else enclose(self.low, self.high)


def _quotient_of_sum(pairs: Sequence[tuple[int, int]], total: Fraction) -> tuple[Fraction, Fraction]:
    """Return lower and upper limits of a sum of quotients that is divided by a total.

    The limits are equal, or, for many quotients, so close that they round to the same float: the exact sum of thousands of
    quotients would have the product of all their denominators.
    """
    if len(pairs) > FEW_TERMS and any(top for top, _ in pairs):
        # Truncate every quotient to a multiple of 2**-shift, which leaves 256 bits of the largest quotient.
        shift = 256 - max(top.bit_length() - bottom.bit_length() for top, bottom in pairs)
        up, down = max(shift, 0), max(-shift, 0)
        parts = [divmod(top << up, bottom << down) for top, bottom in pairs]
        low = sum(whole for whole, _ in parts)
        high = low + sum(rest != 0 for _, rest in parts)
        divisor = total * Fraction(1 << up, 1 << down)
        if _nearest_float(low / divisor) == _nearest_float(high / divisor):
            return low / divisor, high / divisor
    exact = sum((Fraction(*pair) for pair in pairs), Fraction(0)) / total
    return exact, exact


def weight_rounding(rows: Ints, excess: Ints | None) -> Fraction:
    """Return the largest relative error of the weight of a cell: each row's weight was rounded to 2**-60.

    Parameters
    ----------
    rows : int64
        Rows of each cell.
    excess : int64, fixed numbers
        The sums of w - 1.
    """
    if excess is None:
        return Fraction(0)
    weight = (excess[..., 0] + (rows << 20)) * 2.0**-20 + excess[..., 1] * 2.0**-60
    # All rows of the other cells have weight 0, because any other weight is at least 2**-36.
    there = weight > 2.0**-37
    most = np.minimum(rows[there], weight[there] * 2.0**36 + 1) / weight[there]
    return Fraction(float(most.max(initial=0.0)) * 1.0001) / (1 << FRACTION_BITS + 1)


class Mass:
    """Arrays of non-negative integers of any size, one for each cell: numbers of rows, or weights in units of 2**-60.

    The integers are stored as digits in base 2**20, least significant first, so that sums and products of whole arrays are
    int64 loops. If the total is below 2**30, which is common, there is a single digit, which is faster.

    Parameters
    ----------
    digits : int64, digits x cells
    """

    def __init__(self, digits: Ints) -> None:
        self.digits = digits

    @classmethod
    def from_rows(cls, rows: Ints, excess: Ints | None = None) -> Mass:
        """Return the rows of each cell, or with `excess` their weights in units of 2**-60.

        `excess` has the sums of w - 1 as fixed numbers.
        """
        if excess is None:
            rows = np.ascontiguousarray(rows)
            # Check the maximum, too, because the sum alone could wrap around.
            small = rows.max(initial=0) < ONE_DIGIT and rows.sum() < ONE_DIGIT
            return cls(rows[None] if small else _normalize_digits(rows[None]))
        high, low = excess[..., 0], excess[..., 1]
        mask = (1 << DIGIT_BITS) - 1
        # rows * 2**60 + high * 2**40 + low, in digits of 20 bits; `_normalize_digits` makes every digit non-negative.
        return cls(
            _normalize_digits(np.stack([low & mask, low >> DIGIT_BITS, high & mask, (high >> DIGIT_BITS) + rows]))
        )

    @classmethod
    def from_digits(cls, digits: Ints) -> Mass:
        """Return the numbers that these digits represent. Digits may be negative or large; numbers may not be negative."""
        return cls(_normalize_digits(digits))

    @classmethod
    def from_int(cls, number: int) -> Mass:
        """Return a `Mass` of one cell."""
        count = max(-(-number.bit_length() // DIGIT_BITS), 1)
        return cls(np.array([[number >> DIGIT_BITS * i & (1 << DIGIT_BITS) - 1] for i in range(count)], np.int64))

    def __getitem__(self, cells: Any) -> Mass:
        return Mass(self.digits[:, cells])

    def cell(self, i: int) -> int:
        """Return the number of one cell as a Python integer."""
        return _digits_to_int(self.digits[:, i])

    def cells(self, which: NDArray[np.int64]) -> list[int]:
        """Return the numbers of some cells as Python integers."""
        return [_digits_to_int(column) for column in self.digits[:, which].T]

    def total(self) -> int:
        """Return the sum of all cells."""
        return _digits_to_int(self.digits.sum(axis=1))

    def sums_before(self) -> Mass:
        """Return for each cell the sum of all cells before it."""
        sums = np.empty_like(self.digits)
        sums[:, :1] = 0
        np.cumsum(self.digits[:, :-1], axis=1, out=sums[:, 1:])
        one = len(sums) == 1 and sums[0, -1:].sum() + self.digits[0, -1:].sum() < ONE_DIGIT
        return Mass(sums if one else _normalize_digits(sums))

    def dot(self, other: Mass) -> int:
        """Return the dot product with `other`, as a Python integer."""
        total = 0
        # Work in blocks, so that the products stay in the cache.
        for start in range(0, self.digits.shape[1], BLOCK):
            cells = slice(start, start + BLOCK)
            for i, a in enumerate(self.digits[:, cells]):
                for j, b in enumerate(other.digits[:, cells]):
                    total += int((a * b).sum()) << (DIGIT_BITS * (i + j))
        return total

    def segment_sums(self, cuts: Ints) -> NDArray[Any]:
        """Return the sum of the cells from each index in `cuts` to the next one, as Python integers."""
        out = np.zeros(len(cuts) - 1, object)
        for i, digits in enumerate(self.digits):
            out += np.diff(_exclusive_cumsum(digits)[cuts]).astype(object) << DIGIT_BITS * i
        return out

    def segment_dots(self, other: Mass, cuts: Ints) -> NDArray[Any]:
        """Return the dot product of each segment between two adjacent cuts, as Python integers."""
        if self.digits.shape[1] > MOST_PRODUCTS:
            return np.array([self[a:b].dot(other[a:b]) for a, b in itertools.pairwise(cuts.tolist())], object)
        out = np.zeros(len(cuts) - 1, object)
        for i, a in enumerate(self.digits):
            for j, b in enumerate(other.digits):
                out += np.diff(_exclusive_cumsum(a * b)[cuts]).astype(object) << DIGIT_BITS * (i + j)
        return out

    def count_pairs_above(self, other: Mass) -> tuple[int, int]:
        """Count pairs of a row of this object and a row of `other`: return twice the pairs won, and the tied pairs.

        A pair is won if the row of this object is in a later cell, and tied if both are in the same cell. Twice the pairs
        won includes each tied pair once, as half a win.
        """
        if len(self.digits) > 1 or len(other.digits) > 1:
            equal = self.dot(other)
            return 2 * self.dot(other.sums_before()) + equal, equal
        twice = equal = below = 0
        # Work in blocks that stay in the cache.
        for start in range(0, self.digits.shape[1], BLOCK):
            a, b = (m.digits[0, start : start + BLOCK] for m in (self, other))
            up_to = np.cumsum(b)
            ties, wins = int((a * b).sum()), int((a * up_to).sum()) + below * int(a.sum())
            twice, equal, below = twice + 2 * wins - ties, equal + ties, below + int(up_to[-1])
        return twice, equal

    def sums_through(self) -> Mass:
        """Return for each cell the sum of all cells up to and including it."""
        sums = self.sums_before()
        if len(sums.digits) == len(self.digits) == 1:
            return Mass(sums.digits + self.digits)
        return sums.plus(self)

    def plus(self, other: Mass) -> Mass:
        """Add the numbers of `other`, cell by cell."""
        count = max(len(self.digits), len(other.digits))
        return Mass(_normalize_digits(self.pad_digits(count) + other.pad_digits(count)))

    def pad_digits(self, count: int) -> Ints:
        """Return the digits, padded with zeros to `count` digits."""
        out = np.zeros((count, self.digits.shape[1]), np.int64)
        out[: len(self.digits)] = self.digits
        return out

    def to_double_double(self) -> DoubleDouble:
        """Return each cell as a double-double number of 106 bits."""
        if len(self.digits) <= 2:
            whole = self.digits[0] if len(self.digits) == 1 else self.digits[0] + (self.digits[1] << DIGIT_BITS)
            return DoubleDouble(whole.astype(np.float64), np.zeros(len(whole)))
        digits = self.pad_digits(len(self.digits) + len(self.digits) % 2)
        pairs = (digits[::2] + (digits[1::2] << DIGIT_BITS)).astype(np.float64)
        total = DoubleDouble(np.zeros(pairs.shape[1]), 0.0)
        for i in range(len(pairs) - 1, -1, -1):
            total = total + DoubleDouble(pairs[i] * 2.0 ** (2 * DIGIT_BITS * i), 0.0)
        return total

    def to_floats(self) -> NDArray[np.float64]:
        """Return the cells as float64: exact up to 53 bits, with an error below 2 ulp for longer integers."""
        out = np.zeros(self.digits.shape[1])
        for digit in self.digits[::-1]:
            out = out * float(1 << DIGIT_BITS) + digit
        return out


def _exclusive_cumsum(numbers: Ints) -> Ints:
    """Return for each value the sum of the values before it, followed by the total."""
    run = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(numbers, out=run[1:])
    return run


def ratios(tops: Mass, whole: Mass) -> NDArray[np.float64]:
    """Divide cell by cell, or all cells by a single divisor, with one rounding; NaN where the divisor is 0."""
    a, b = tops.to_double_double(), whole.to_double_double()
    with np.errstate(invalid="ignore", divide="ignore"):
        if len(tops.digits) == len(whole.digits) == 1:
            return np.where(b.high > 0, a.high / b.high, np.nan)
        # Double-double precision is enough to round almost every quotient. The few others are divided as Python integers.
        value, sure = (a / b).nearest(2.0**-92)
    there = np.broadcast_to(b.high > 0, value.shape)
    for i in np.flatnonzero(there & ~sure).tolist():
        value[i] = to_float(tops.cell(i), whole.cell(min(i, whole.digits.shape[1] - 1)))
    return np.where(there, value, np.nan)


def _normalize_digits(parts: Ints) -> Ints:
    """Carry digits of any size and sign, so that each is in [0, 2**20), and the numbers stay the same."""
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


def _digits_to_int(digits: Ints) -> int:
    return sum(int(d) << (DIGIT_BITS * i) for i, d in enumerate(digits))
