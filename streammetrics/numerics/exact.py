"""Integers wider than int64, in numpy: what `compute()` needs to round only once.

Three forms of number live in the states. A *count* is an int64. A *fixed* number is two limbs, (high, low), worth
`high * 2**-20 + low * 2**-60` with `0 <= low < 2**40`. An *exact* number is a superaccumulator of 68 chunks of 32 bits
(Neal 2015), chunk k worth `2**(32*k - 1088)`: it holds any sum of float64 without rounding. Each has one canonical
form, so equal values are equal arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from .double_double import Twofold

Ints = NDArray[np.int64]
NAN = float("nan")
ONE_DIGIT = 1 << 30  # products of two numbers below it, summed over cells that total less than it, stay in int64

LOW_BITS = 40  # of the low limb of a fixed number
FRACTION_BITS = 60  # a fixed number is a multiple of 2**-60
UNIT = 1 << FRACTION_BITS
CHUNKS = 68  # 32-bit chunks of a superaccumulator: all of float64, and room for 2**62 of its largest numbers
CHUNK_BASE = 1088  # chunk 0 is worth 2**-1088
BLOCK = 1 << 16
MOST_PRODUCTS = 1 << 20  # of digits, below 2**40, whose sum stays in int64; or of one digit, whose total is small
WORTH = np.ldexp(1.0, 32 * np.arange(CHUNKS) - CHUNK_BASE - 64)  # of chunks, in units of 2**64
ONE = Fraction(1)
FEW_TERMS = 16  # are added as they are, whatever their divisors
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


def whole(numbers: Any) -> Any:
    """An integer that does not overflow; of an array, an array of them."""
    return numbers.astype(object) if numbers.ndim else int(numbers)


def fixed_to_int(number: Ints) -> Any:
    """A fixed number as an integer count of 2**-60; of cells side by side, on the last axis, an array of them."""
    return (whole(number[0]) << LOW_BITS) + whole(number[1])


def weights(rows: Ints, excess: Ints | None) -> NDArray[Any]:
    """Rows; with the sums of w - 1 (fixed numbers, limbs last) their weights in units of 2**-60: Python's integers."""
    counted = rows.astype(object)
    return counted if excess is None else (counted << FRACTION_BITS) + fixed_to_int(np.moveaxis(excess, -1, 0))


def of_units(units: Any) -> Any:
    """So many times 2**-60, as a fraction; of cells side by side the units themselves: formulas ask for quotients."""
    return Fraction(units, UNIT) if isinstance(units, int) else units


def exact_to_fraction(number: Ints) -> Fraction:
    """One superaccumulator as a fraction."""
    if not number.any():
        return Fraction(0)
    total = 0
    for chunk in number[::-1].tolist():
        total = (total << 32) + chunk
    return Fraction(total, 1 << CHUNK_BASE)


def floats_of(numbers: Ints) -> NDArray[np.float64]:
    """Fixed numbers, or superaccumulators, as floats: limb by limb, so that the bits are the same on every machine."""
    limbs = numbers.shape[-1]
    if limbs == 2:
        high, low = (numbers[..., k].astype(np.float64) for k in (0, 1))
        return np.asarray(high * 2.0**-20 + low * 2.0**-60)
    negative, sizes = _sizes(numbers)
    out = np.zeros(numbers.shape[:-1])
    for k in reversed(range(limbs)):
        if (held := sizes[..., k]).any():
            out += np.ldexp(held.astype(np.float64), 32 * k - CHUNK_BASE)
    return np.where(negative, -out, out)


def _sizes(numbers: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Which superaccumulators are negative, and all without their signs."""
    negative = numbers[..., -1] < 0
    if not negative.any():
        return negative, numbers
    sizes = np.where(negative[..., None], -numbers, numbers)
    carry_exact(sizes)
    return negative, sizes


def about(numbers: Ints) -> NDArray[np.float64]:
    """Superaccumulators as floats, to a few ulp, and in no order for ever: for a first look at many of them."""
    negative, sizes = _sizes(numbers)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out = (sizes.astype(np.float64) @ WORTH) * 2.0**64
    return np.where(negative, -out, out)


@overload
def to_float(numerator: int | Fraction, denominator: int | Fraction = 1, empty: float = NAN) -> float: ...
@overload
def to_float(numerator: NDArray[Any], denominator: NDArray[Any], empty: float = NAN) -> NDArray[np.float64]: ...
def to_float(numerator: Any, denominator: Any = 1, empty: float = NAN) -> Any:
    """Round a quotient of exact numbers to the nearest float64, of arrays of them each; 0/0 and x/0 are `empty`.

    Beyond the largest float64 it is infinite.
    """
    if isinstance(numerator, np.ndarray):
        out, some = np.full(numerator.shape, empty), np.asarray(denominator != 0, bool)
        out[some] = numerator[some] / denominator[some]  # of Python's integers: rounded once, however long they are
        return out
    return _float(Fraction(numerator) / Fraction(denominator)) if denominator else empty


def _float(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:  # beyond the largest float, which only the division finds out
        return math.inf if value > 0 else -math.inf


def enclose(low: Fraction, high: Fraction) -> tuple[float, float]:
    """Two floats that certainly contain [low, high]: rounded outward."""
    a, b = _float(low), _float(high)
    return (
        a if a <= low else math.nextafter(a, -math.inf),
        b if b >= high else math.nextafter(b, math.inf),
    )


BEYOND = Fraction(1 << 1100)
"""More than any float: nothing is known of a number that is off by that."""


class Limits(NamedTuple):
    """A number, and limits between which it certainly is: as they are read from integers, before anything is rounded.

    Parameters
    ----------
    low, value, high : Fraction
        If all are one, the number is known exactly.
    """

    low: Fraction
    value: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, numerator: int | Fraction, denominator: int | Fraction = 1) -> Limits | None:
        """A quotient that is known; None for 0/0 and x/0."""
        if not denominator:
            return None
        value = Fraction(numerator) / Fraction(denominator)
        return cls(value, value, value)

    @classmethod
    def root(cls, square: Fraction) -> Limits:
        """The square root, to 120 bits."""
        if not square:
            return cls(square, square, square)
        shift = 120 + max(0, square.denominator.bit_length() - square.numerator.bit_length())
        whole, rest = divmod(square.numerator << 2 * shift, square.denominator)
        low = math.isqrt(whole)
        high = low + (rest != 0 or low * low != whole)
        return cls(*(Fraction(x, 2 << shift) for x in (2 * low, low + high, 2 * high)))

    @classmethod
    def mean(cls, numbers: Sequence[Limits | None], weights: Sequence[Fraction] | None = None) -> Limits | None:
        """The weighted mean of those that are defined; None if none is, or none has a weight."""
        given = [Fraction(1)] * len(numbers) if weights is None else weights
        known = [(n, w) for n, w in zip(numbers, given, strict=True) if n is not None and w]
        if not known:
            return None
        return cls._of_sums([[n[i] * w for n, w in known] for i in range(3)], sum((w for _, w in known), Fraction(0)))

    @classmethod
    def sum(cls, numbers: Sequence[tuple[Fraction, Fraction, Fraction]]) -> Limits:
        """The sum of numbers, each with its limits."""
        if all(low is high for low, _, high in numbers):  # one sum in place of three
            return cls.quotients([value.as_integer_ratio() for _, value, _ in numbers])
        return cls._of_sums([[n[i] for n in numbers] for i in range(3)], Fraction(1))

    @classmethod
    def quotients(cls, pairs: Sequence[tuple[int, int]], total: Fraction = ONE) -> Limits:
        """The sum of quotients of whole numbers, over a total."""
        low, high = _quotient_of_sum(pairs, total)
        return cls(low, (low + high) / 2, high)

    @classmethod
    def _of_sums(cls, terms: Sequence[Sequence[Fraction]], total: Fraction) -> Limits:
        low, value, high = (_quotient_of_sum([t.as_integer_ratio() for t in each], total) for each in terms)
        return cls(low[0], (value[0] + value[1]) / 2, high[1])

    def __neg__(self) -> Limits:
        return Limits(-self.high, -self.value, -self.low)

    def widened(
        self, slack: Fraction, least: Fraction | int | None = None, most: Fraction | int | None = None
    ) -> Limits:
        """Limits that are wider by this much, as far as such a number can go."""
        if not slack:
            return self
        low, high = self.low - slack, self.high + slack
        return self._replace(
            low=low if least is None else max(low, Fraction(least)),
            high=high if most is None else min(high, Fraction(most)),
        )

    def rounded(self) -> float:
        """The number, rounded once."""
        return _float(self.value)

    def outward(self) -> tuple[float, float]:
        """The limits, rounded outward; twice the number where both round to it, as then the true one does."""
        low, high = _float(self.low), _float(self.high)
        return (low, high) if low == high else enclose(self.low, self.high)


def _quotient_of_sum(pairs: Sequence[tuple[int, int]], total: Fraction) -> tuple[Fraction, Fraction]:
    """Return limits of a sum of quotients over a total: it itself twice, or, of many, so near that they round alike.

    Each has a divisor of its own, and the exact sum of thousands would have the product of these.
    """
    if len(pairs) > FEW_TERMS and any(top for top, _ in pairs):
        shift = 256 - max(top.bit_length() - bottom.bit_length() for top, bottom in pairs)
        up, down = max(shift, 0), max(-shift, 0)
        parts = [divmod(top << up, bottom << down) for top, bottom in pairs]
        low = sum(whole for whole, _ in parts)
        high = low + sum(rest != 0 for _, rest in parts)
        divisor = total * Fraction(1 << up, 1 << down)
        if _float(low / divisor) == _float(high / divisor):
            return low / divisor, high / divisor
    exact = sum((Fraction(*pair) for pair in pairs), Fraction(0)) / total
    return exact, exact


def slip(rows: Ints, excess: Ints | None) -> Fraction:
    """How far, relatively, weights can be from what was counted of them: each row was rounded to 2**-60.

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
    there = weight > 2.0**-37  # or nothing but rows of weight 0
    most = np.minimum(rows[there], weight[there] * 2.0**36 + 1) / weight[there]
    return Fraction(float(most.max(initial=0.0)) * 1.0001) / (1 << FRACTION_BITS + 1)


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

    @classmethod
    def of_digits(cls, digits: Ints) -> Mass:
        """Numbers that are not negative, whose digits may be anything."""
        return cls(_digits(digits))

    @classmethod
    def one(cls, whole: int) -> Mass:
        """One integer."""
        count = max(-(-whole.bit_length() // DIGIT_BITS), 1)
        return cls(np.array([[whole >> DIGIT_BITS * i & (1 << DIGIT_BITS) - 1] for i in range(count)], np.int64))

    def __getitem__(self, cells: Any) -> Mass:
        return Mass(self.digits[:, cells])

    def cell(self, i: int) -> int:
        """The integer in one cell."""
        return _to_int(self.digits[:, i])

    def cells(self, which: NDArray[np.int64]) -> list[int]:
        """The integers in some cells."""
        return [_to_int(column) for column in self.digits[:, which].T]

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

    def totals(self, cuts: Ints) -> NDArray[Any]:
        """Sums from each cut to the next, as Python's integers."""
        out = np.zeros(len(cuts) - 1, object)
        for i, digits in enumerate(self.digits):
            out += np.diff(_run(digits)[cuts]).astype(object) << DIGIT_BITS * i
        return out

    def dots(self, other: Mass, cuts: Ints) -> NDArray[Any]:
        """Sums of products, cell by cell, from each cut to the next, as Python's integers."""
        if self.digits.shape[1] > MOST_PRODUCTS:
            return np.array([self[a:b].dot(other[a:b]) for a, b in itertools.pairwise(cuts.tolist())], object)
        out = np.zeros(len(cuts) - 1, object)
        for i, a in enumerate(self.digits):
            for j, b in enumerate(other.digits):
                out += np.diff(_run(a * b)[cuts]).astype(object) << DIGIT_BITS * (i + j)
        return out

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

    def through(self) -> Mass:
        """Return the sum of all cells up to and with each cell."""
        before = self.before()
        if len(before.digits) == len(self.digits) == 1:
            return Mass(before.digits + self.digits)
        return before.plus(self)

    def plus(self, other: Mass) -> Mass:
        """Return the sum of two, cell by cell."""
        count = max(len(self.digits), len(other.digits))
        return Mass(_digits(self.padded(count) + other.padded(count)))

    def padded(self, count: int) -> Ints:
        """The digits, so many of them."""
        out = np.zeros((count, self.digits.shape[1]), np.int64)
        out[: len(self.digits)] = self.digits
        return out

    def twofold(self) -> Twofold:
        """Each cell to 106 bits."""
        if len(self.digits) <= 2:
            whole = self.digits[0] if len(self.digits) == 1 else self.digits[0] + (self.digits[1] << DIGIT_BITS)
            return Twofold(whole.astype(np.float64), np.zeros(len(whole)))
        digits = self.padded(len(self.digits) + len(self.digits) % 2)
        pairs = (digits[::2] + (digits[1::2] << DIGIT_BITS)).astype(np.float64)
        made = Twofold(np.zeros(pairs.shape[1]), 0.0)
        for i in range(len(pairs) - 1, -1, -1):
            made = made + Twofold(pairs[i] * 2.0 ** (2 * DIGIT_BITS * i), 0.0)
        return made

    def floats(self) -> NDArray[np.float64]:
        """Each cell as the nearest float64 (to 2 ulp where it needs more than 53 bits)."""
        out = np.zeros(self.digits.shape[1])
        for digit in self.digits[::-1]:
            out = out * float(1 << DIGIT_BITS) + digit
        return out


def _run(numbers: Ints) -> Ints:
    """What is before each cell, and before the end."""
    run = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(numbers, out=run[1:])
    return run


def ratios(tops: Mass, whole: Mass) -> NDArray[np.float64]:
    """Quotients, cell by cell or all by one, each rounded once; NaN where the divisor is 0."""
    a, b = tops.twofold(), whole.twofold()
    with np.errstate(invalid="ignore", divide="ignore"):
        if len(tops.digits) == len(whole.digits) == 1:
            return np.where(b.high > 0, a.high / b.high, np.nan)
        value, sure = (a / b).nearest(2.0**-92)
    there = np.broadcast_to(b.high > 0, value.shape)
    for i in np.flatnonzero(there & ~sure).tolist():
        value[i] = to_float(tops.cell(i), whole.cell(min(i, whole.digits.shape[1] - 1)))
    return np.where(there, value, np.nan)


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
