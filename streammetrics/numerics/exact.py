"""Exact numbers that are wider than int64, in numpy arrays, so that `compute()` rounds only once.

States store numbers in three formats:

- A *count* is an int64.
- A *fixed-point* number consists of two int64 limbs, (high, low). Its value is `high * 2**-20 + low * 2**-60`, with
  `0 <= low < 2**40`.
- An *exact* number is a superaccumulator: 68 chunks of 32 bits (Neal 2015), where a unit of chunk k has the value
  `2**(32*k - 1088)`. It stores any sum of float64 numbers without rounding.

Each format has a canonical form, in which equal numbers have equal arrays. Each cell (such as a slice or a score
bucket) has its own numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from .array_rows import exclusive_cumsum
from .double_double import DoubleDouble

Ints = NDArray[np.int64]
NAN = float("nan")
# A `Mass` with a total below this limit needs only one digit per cell. The dot product of two such objects fits in an
# int64.
ONE_DIGIT = 1 << 30

# The number of bits in the low limb of a fixed-point number.
LOW_BITS = 40
# A fixed-point number is a multiple of 2**-60.
FRACTION_BITS = 60
UNIT = 1 << FRACTION_BITS
# The number of 32-bit chunks. They extend from the lowest bit of any float64 to the highest bit of a sum of 2**62
# float64 numbers.
CHUNKS = 68
# A unit of chunk 0 has the value 2**-CHUNK_BASE.
CHUNK_BASE = 1088
BLOCK = 1 << 16
# The sum of up to this many products of two digits of a `Mass` fits in an int64, because each product is below 2**40.
MOST_PRODUCTS = 1 << 20
# A mask of the bits that each chunk uses: 32 bits, or all 64 bits for the last chunk, which contains the sign.
CHUNK_BITS = np.array([(1 << 32) - 1] * (CHUNKS - 1) + [-1])
# The value of a unit of each chunk, divided by 2**64 so that it does not overflow.
WORTH = np.ldexp(1.0, 32 * np.arange(CHUNKS) - CHUNK_BASE - 64)
ONE = Fraction(1)
# The maximum number of fractions whose sum is computed exactly; sums of more fractions are computed to about 256 bits.
FEW_TERMS = 16
# The number of bits in a digit of a `Mass`. The sum of products of two digits over 2**20 cells fits in an int64.
DIGIT_BITS = 20


def carry_fixed(numbers: Ints) -> None:
    """Bring fixed-point numbers (last axis: high, low) to canonical form in place, by carrying from low to high."""
    low = numbers[..., 1]
    numbers[..., 0] += low >> LOW_BITS
    low &= (1 << LOW_BITS) - 1


def carry_exact(numbers: Ints) -> None:
    """Bring superaccumulators (last axis: chunks) to canonical form in place, by carrying from each chunk to the next."""
    for k in range(CHUNKS - 1):
        numbers[..., k + 1] += numbers[..., k] >> 32
        numbers[..., k] &= (1 << 32) - 1


def to_python_int(numbers: Any) -> Any:
    """Convert a numpy integer, or the elements of an array, to Python integers, which cannot overflow."""
    return numbers.astype(object) if numbers.ndim else int(numbers)


def fixed_to_int(number: Ints) -> Any:
    """Convert a fixed-point number to an integer in units of 2**-60.

    The first axis contains the limbs (high, low). If there is a second axis, it contains the cells, and the result is
    an array.
    """
    return (to_python_int(number[0]) << LOW_BITS) + to_python_int(number[1])


def weights_in_units(rows: Ints, excess: Ints | None) -> NDArray[Any]:
    """Return the total weight of each cell as Python integers, in units of 2**-60 (or 1 if `excess` is None).

    Parameters
    ----------
    rows : int64
        The number of rows in each cell (such as a slice or a score bucket).
    excess : int64, fixed-point numbers, or None
        The sum of w - 1 over the rows of each cell, where w is the weight of a row; the last axis contains the limbs.
        None means that all weights are 1, so the total weight is the number of rows.
    """
    counted = rows.astype(object)
    return counted if excess is None else (counted << FRACTION_BITS) + fixed_to_int(np.moveaxis(excess, -1, 0))


def units_to_fraction(units: Any) -> Any:
    """Convert a number in units of 2**-60 to a fraction.

    An array is returned unchanged, because callers use arrays only in ratios, in which the unit cancels.
    """
    return Fraction(units, UNIT) if isinstance(units, int) else units


def exact_to_fraction(number: Ints) -> Fraction:
    """Convert one superaccumulator to a fraction, without rounding."""
    # Most chunks are 0. Leave out the zero chunks at both ends, because a fraction of smaller integers is much faster
    # to reduce.
    used = np.flatnonzero(number)
    if not len(used):
        return Fraction(0)
    total, lowest = 0, int(used[0])
    for chunk in number[lowest : used[-1] + 1][::-1].tolist():
        total = (total << 32) + chunk
    exponent = 32 * lowest - CHUNK_BASE
    return Fraction(total << exponent) if exponent >= 0 else Fraction(total, 1 << -exponent)


def to_floats(numbers: Ints) -> NDArray[np.float64]:
    """Convert fixed-point numbers or superaccumulators to floats.

    The limbs (or chunks) are added one by one, in a fixed order, so that the result has the same bits on every machine.
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
    """Return a mask of the negative superaccumulators, and the absolute value of each superaccumulator."""
    negative = numbers[..., -1] < 0
    if not negative.any():
        return negative, numbers
    sizes = np.where(negative[..., None], -numbers, numbers)
    carry_exact(sizes)
    return negative, sizes


def to_approximate_floats(numbers: Ints) -> NDArray[np.float64]:
    """Convert canonical superaccumulators to floats faster than `to_floats`, with an error of a few ulp.

    The order of the additions, and therefore the last bits, may differ between machines.
    """
    negative, sizes = numbers[..., -1] < 0, numbers
    # In two's complement, inverting all bits of a negative number gives its absolute value minus one unit of the lowest
    # chunk. This unit, 2**-1088, is smaller than every positive float.
    if negative.any():
        sizes = np.where(negative[..., None], numbers ^ CHUNK_BITS, numbers)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out = (sizes.astype(np.float64) @ WORTH) * 2.0**64
    return np.where(negative, -out, out)


@overload
def to_float(numerator: int | Fraction, denominator: int | Fraction = 1, empty: float = NAN) -> float: ...
@overload
def to_float(numerator: NDArray[Any], denominator: NDArray[Any], empty: float = NAN) -> NDArray[np.float64]: ...
def to_float(numerator: Any, denominator: Any = 1, empty: float = NAN) -> Any:
    """Divide exact numbers, or arrays of them, and round the quotient once to the nearest float64.

    If the denominator is 0, the result is `empty`. A quotient beyond the largest float64 is infinite.
    """
    if isinstance(numerator, np.ndarray):
        out, some = np.full(numerator.shape, empty), np.asarray(denominator != 0, bool)
        # A division of Python integers rounds only once, even if the integers are long.
        out[some] = numerator[some] / denominator[some]
        return out
    return _nearest_float(Fraction(numerator) / Fraction(denominator)) if denominator else empty


def _nearest_float(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        # The quotient exceeds the largest float.
        return math.inf if value > 0 else -math.inf


def enclose(low: Fraction, high: Fraction) -> tuple[float, float]:
    """Return the smallest interval of floats that contains [low, high]: `low` rounded down, and `high` rounded up."""
    a, b = _nearest_float(low), _nearest_float(high)
    return (
        a if a <= low else math.nextafter(a, -math.inf),
        b if b >= high else math.nextafter(b, math.inf),
    )


BEYOND = Fraction(1 << 1100)
"""A number that is larger than any float64. It stands for infinity in the bounds of unknown numbers."""


class Limits(NamedTuple):
    """An estimate of a number with guaranteed lower and upper bounds, as exact fractions.

    Parameters
    ----------
    low, value, high : Fraction
        The lower bound, the estimate, and the upper bound. If all three are equal, the number is exact.
    """

    low: Fraction
    value: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, numerator: int | Fraction, denominator: int | Fraction = 1) -> Limits | None:
        """Return the exact quotient, with equal bounds, or None if the denominator is 0."""
        if not denominator:
            return None
        value = Fraction(numerator) / Fraction(denominator)
        return cls(value, value, value)

    @classmethod
    def root(cls, square: Fraction) -> Limits:
        """Return the square root of a number, with bounds that agree in their first 120 bits."""
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
        """Return the sum of numbers, each of which is a tuple (low, value, high)."""
        # If all numbers are exact, the value and both bounds are the same sum, so compute it only once.
        if all(low is high for low, _, high in numbers):
            return cls.quotients([value.as_integer_ratio() for _, value, _ in numbers])
        return cls._of_sums([[n[i] for n in numbers] for i in range(3)], Fraction(1))

    @classmethod
    def quotients(cls, pairs: Sequence[tuple[int, int]], total: Fraction = ONE) -> Limits:
        """Return the sum of the quotients of `pairs` (numerator, denominator), divided by `total`."""
        low, high = _quotient_of_sum(pairs, total)
        return cls(low, (low + high) / 2, high)

    @classmethod
    def _of_sums(cls, terms: Sequence[Sequence[Fraction]], total: Fraction) -> Limits:
        low, value, high = (_quotient_of_sum([t.as_integer_ratio() for t in each], total) for each in terms)
        return cls(low[0], (value[0] + value[1]) / 2, high[1])

    def __neg__(self) -> Limits:
        return Limits(-self.high, -self.value, -self.low)

    def widen(self, slack: Fraction, least: Fraction | int | None = None, most: Fraction | int | None = None) -> Limits:
        """Return a copy with both bounds moved outward by `slack`, but not below `least` or above `most`."""
        if not slack:
            return self
        low, high = self.low - slack, self.high + slack
        return self._replace(
            low=low if least is None else max(low, Fraction(least)),
            high=high if most is None else min(high, Fraction(most)),
        )

    def to_float(self) -> float:
        """Return the estimate, rounded to the nearest float64."""
        return _nearest_float(self.value)

    def round_outward(self) -> tuple[float, float]:
        """Return the bounds as floats, the lower one rounded down and the upper one rounded up.

        If both bounds have the same nearest float, that float is returned for both.
        """
        low, high = _nearest_float(self.low), _nearest_float(self.high)
        return (low, high) if low == high else enclose(self.low, self.high)


def _quotient_of_sum(pairs: Sequence[tuple[int, int]], total: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds on the sum of the quotients of `pairs` (numerator, denominator), divided by `total`.

    For up to `FEW_TERMS` quotients, the sum is exact, and both bounds are equal. The exact sum of thousands of
    quotients would be slow to compute, because its denominator is about the product of all denominators. With more
    quotients than `FEW_TERMS`, each is therefore truncated. The bounds may then differ, but they round to the same
    float.
    """
    if len(pairs) > FEW_TERMS and any(top for top, _ in pairs):
        # Truncate every quotient to a multiple of 2**-shift, so that the largest quotient keeps about 256 bits.
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
    """Return an upper bound on the relative error of the total weight of any cell.

    The error arises because the weight of each row is rounded to a multiple of 2**-60.

    Parameters
    ----------
    rows : int64
        The number of rows in each cell (such as a slice or a score bucket).
    excess : int64, fixed-point numbers, or None
        The sum of w - 1 over the rows of each cell, where w is the weight of a row. None means that all weights are 1, so
        there is no error.
    """
    if excess is None:
        return Fraction(0)
    weight = (excess[..., 0] + (rows << 20)) * 2.0**-20 + excess[..., 1] * 2.0**-60
    # The weight of a row is either 0, which has no error, or at least 2**-36. If the total weight of a cell is below
    # 2**-37, all its rows therefore have weight 0. In any other cell, at most (total weight) * 2**36 rows have a
    # positive weight, each with an error of at most 2**-61.
    there = weight > 2.0**-37
    most = np.minimum(rows[there], weight[there] * 2.0**36 + 1) / weight[there]
    return Fraction(float(most.max(initial=0.0)) * 1.0001) / (1 << FRACTION_BITS + 1)


class Mass:
    """A non-negative integer of any size for each cell (such as a score bucket): a row count or a weight.

    Weights are in units of 2**-60. The integers are stored as digits in base 2**20, so that sums and products of whole
    arrays are fast int64 operations. If the sum over all cells is below 2**30, which is common, each integer is stored
    as a single, longer digit, which is faster.

    Parameters
    ----------
    digits : int64, shape (digits, cells)
        The digits of each integer, least significant first.
    """

    def __init__(self, digits: Ints) -> None:
        self.digits = digits

    @classmethod
    def from_rows(cls, rows: Ints, excess: Ints | None = None) -> Mass:
        """Return the total weight of each cell as a `Mass`.

        Parameters
        ----------
        rows : int64
            The number of rows in each cell.
        excess : int64, fixed-point numbers, or None
            The sum of w - 1 over the rows of each cell, where w is the weight of a row; the result is then in units of
            2**-60. None means that all weights are 1; the result is then the number of rows.
        """
        if excess is None:
            rows = np.ascontiguousarray(rows)
            # Check the maximum as well, because the int64 sum could overflow to a small number.
            small = rows.max(initial=0) < ONE_DIGIT and rows.sum() < ONE_DIGIT
            return cls(rows[None] if small else _normalize_digits(rows[None]))
        high, low = excess[..., 0], excess[..., 1]
        mask = (1 << DIGIT_BITS) - 1
        # Split rows * 2**60 + high * 2**40 + low into 20-bit digits. `_normalize_digits` makes them non-negative.
        return cls(
            _normalize_digits(np.stack([low & mask, low >> DIGIT_BITS, high & mask, (high >> DIGIT_BITS) + rows]))
        )

    @classmethod
    def from_digits(cls, digits: Ints) -> Mass:
        """Build a `Mass` of non-negative numbers from digits that may be negative or longer than 20 bits."""
        return cls(_normalize_digits(digits))

    @classmethod
    def from_int(cls, number: int) -> Mass:
        """Return a `Mass` with a single cell that contains `number`."""
        count = max(-(-number.bit_length() // DIGIT_BITS), 1)
        return cls(np.array([[number >> DIGIT_BITS * i & (1 << DIGIT_BITS) - 1] for i in range(count)], np.int64))

    def __getitem__(self, cells: Any) -> Mass:
        return Mass(self.digits[:, cells])

    def cell(self, i: int) -> int:
        """Return the number in cell `i` as a Python integer."""
        return _digits_to_int(self.digits[:, i])

    def cells(self, which: NDArray[np.int64]) -> list[int]:
        """Return the numbers in the cells at the indices `which` as Python integers."""
        return [_digits_to_int(column) for column in self.digits[:, which].T]

    def total(self) -> int:
        """Return the sum of the numbers in all cells, as a Python integer."""
        return _digits_to_int(self.digits.sum(axis=1))

    def sums_before(self) -> Mass:
        """Return, for each cell, the sum of the numbers in all cells before it."""
        sums = np.empty_like(self.digits)
        sums[:, :1] = 0
        np.cumsum(self.digits[:, :-1], axis=1, out=sums[:, 1:])
        one = len(sums) == 1 and sums[0, -1:].sum() + self.digits[0, -1:].sum() < ONE_DIGIT
        return Mass(sums if one else _normalize_digits(sums))

    def dot(self, other: Mass) -> int:
        """Return the dot product with `other`, as a Python integer."""
        total = 0
        # Work on blocks of cells, so that the products stay in the processor cache.
        for start in range(0, self.digits.shape[1], BLOCK):
            cells = slice(start, start + BLOCK)
            for i, a in enumerate(self.digits[:, cells]):
                for j, b in enumerate(other.digits[:, cells]):
                    total += int((a * b).sum()) << (DIGIT_BITS * (i + j))
        return total

    def segment_sums(self, cuts: Ints) -> NDArray[Any]:
        """Return the sum of the numbers in each segment of cells, as Python integers; see `segment_dots` for `cuts`."""
        out = np.zeros(len(cuts) - 1, object)
        for i, digits in enumerate(self.digits):
            out += np.diff(exclusive_cumsum(digits)[cuts]).astype(object) << DIGIT_BITS * i
        return out

    def segment_dots(self, other: Mass, cuts: Ints) -> NDArray[Any]:
        """Return the dot product with `other` over each segment of cells.

        `cuts` contains the index of the first cell of each segment, followed by the end of the last segment.
        """
        if self.digits.shape[1] > MOST_PRODUCTS:
            return np.array([self[a:b].dot(other[a:b]) for a, b in itertools.pairwise(cuts.tolist())], object)
        out = np.zeros(len(cuts) - 1, object)
        for i, a in enumerate(self.digits):
            for j, b in enumerate(other.digits):
                out += np.diff(exclusive_cumsum(a * b)[cuts]).astype(object) << DIGIT_BITS * (i + j)
        return out

    def count_pairs_above(self, other: Mass) -> tuple[int, int]:
        """Count pairs of rows, one row from this object and one from `other`, as needed for the AUC.

        A pair is won if the row of this object is in a later cell, and tied if both rows are in the same cell.

        Returns
        -------
        tuple of int
            Twice the number of won pairs plus the number of tied pairs, and the number of tied pairs.
        """
        if len(self.digits) > 1 or len(other.digits) > 1:
            equal = self.dot(other)
            return 2 * self.dot(other.sums_before()) + equal, equal
        twice = equal = below = 0
        # Work on blocks of cells that stay in the processor cache.
        for start in range(0, self.digits.shape[1], BLOCK):
            a, b = (m.digits[0, start : start + BLOCK] for m in (self, other))
            up_to = np.cumsum(b)
            ties, wins = int((a * b).sum()), int((a * up_to).sum()) + below * int(a.sum())
            twice, equal, below = twice + 2 * wins - ties, equal + ties, below + int(up_to[-1])
        return twice, equal

    def sums_through(self) -> Mass:
        """Return, for each cell, the sum of the numbers in all cells up to and including it."""
        sums = self.sums_before()
        if len(sums.digits) == len(self.digits) == 1:
            return Mass(sums.digits + self.digits)
        return sums.plus(self)

    def plus(self, other: Mass) -> Mass:
        """Return the sum of this object and `other`, cell by cell."""
        count = max(len(self.digits), len(other.digits))
        return Mass(_normalize_digits(self.pad_digits(count) + other.pad_digits(count)))

    def pad_digits(self, count: int) -> Ints:
        """Return the digits of each integer, padded with zeros to `count` digits."""
        out = np.zeros((count, self.digits.shape[1]), np.int64)
        out[: len(self.digits)] = self.digits
        return out

    def to_double_double(self) -> DoubleDouble:
        """Return the numbers in all cells as double-double numbers, which have 106 bits."""
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
        """Return the numbers in all cells as float64: exact up to 2**53, and with an error below 2 ulp above that."""
        out = np.zeros(self.digits.shape[1])
        for digit in self.digits[::-1]:
            out = out * float(1 << DIGIT_BITS) + digit
        return out


def ratios(tops: Mass, whole: Mass) -> NDArray[np.float64]:
    """Divide the number in each cell of `tops` by the number in the same (or the only) cell of `whole`.

    Each quotient is rounded once. It is NaN where the denominator is 0.
    """
    a, b = tops.to_double_double(), whole.to_double_double()
    with np.errstate(invalid="ignore", divide="ignore"):
        if len(tops.digits) == len(whole.digits) == 1:
            return np.where(b.high > 0, a.high / b.high, np.nan)
        # Double-double precision suffices to round almost every quotient correctly. The few others are divided below as
        # Python integers.
        value, sure = (a / b).nearest(2.0**-92)
    there = np.broadcast_to(b.high > 0, value.shape)
    for i in np.flatnonzero(there & ~sure).tolist():
        value[i] = to_float(tops.cell(i), whole.cell(min(i, whole.digits.shape[1] - 1)))
    return np.where(there, value, np.nan)


def _normalize_digits(parts: Ints) -> Ints:
    """Normalize digits of any size and sign to [0, 2**20) by carrying, without changing the numbers."""
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
