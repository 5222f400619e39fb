"""Sums of float64 without rounding, in superaccumulators (see `numerics.exact`), independent of the order of the numbers.

A block of numbers is split at two places below its largest number by adding and subtracting a magic number. This gives 100
bits of each number as two integers, in loops that vectorise. Bits further below are rare and are added one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, outline

f8, i4, i8, u8 = np.float64, np.int32, np.int64, np.uint64

# The sum of 2**10 integers below 2**50 fits an int64.
BLOCK = 1024
CHUNKS = u8(68)
CHUNK_MASK = i8(0xFFFFFFFF)
SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)
MANTISSA_MASK = i8(0xFFFFFFFFFFFFF)
# The fraction bits of 1.5. With an exponent above them they form a magic number 1.5 * 2**k: adding it to a smaller number
# of either sign leaves the exponent as it is, so the low bits of the sum are the number as an integer.
HALF = i8(1) << i8(51)
SPLIT = 2.0**27 + 1.0
# The smallest biased exponent used for splitting a block, so that all split positions are in the range of float64.
LEAST = i8(120)
# The position of the bit of a superaccumulator whose value is 1.
UNITS = i8(1088)
# Propagate carries after this many blocks, because the sum of up to 2**29 numbers below 2**33 fits into an int64.
FULL = 1 << 18


@inline
def add_integer(numbers: Any, at: Any, v: Any, place: Any) -> None:
    """Add v * 2**(place - 1088) to the superaccumulator at index `at`; the caller propagates carries."""
    shift = place & i8(31)
    low = (v & CHUNK_MASK) << shift
    high = (v >> i8(32)) << shift
    k = at + u8(place >> i8(5))
    numbers[k] += low & CHUNK_MASK
    numbers[k + u8(1)] += (low >> i8(32)) + (high & CHUNK_MASK)
    numbers[k + u8(2)] += high >> i8(32)


@inline
def add_exact(numbers: Any, at: Any, v: Any) -> None:
    """Add a float64 to the superaccumulator at index `at`; the caller propagates carries."""
    bits = f8(v).view(i8)
    exponent = (bits >> i8(52)) & i8(0x7FF)
    mantissa = bits & MANTISSA_MASK
    # A subnormal number has no implicit leading bit, and the same scale as a number with exponent 1.
    if exponent:
        mantissa |= i8(1) << i8(52)
    add_integer(numbers, at, -mantissa if bits < 0 else mantissa, max(exponent, i8(1)) + i8(13))


@inline
def carry(numbers: Any, at: Any) -> None:
    """Propagate carries in the superaccumulator at index `at`, which brings it to canonical form."""
    for k in range(at, at + CHUNKS - u8(1)):
        numbers[u8(k) + u8(1)] += numbers[u8(k)] >> i8(32)
        numbers[u8(k)] &= CHUNK_MASK


@outline
def largest_exponent(v: Any) -> Any:
    """Return the biased exponent of the largest number of a block, at least LEAST."""
    top = i8(0)
    for j in range(v.shape[0]):
        size = f8(v[j]).view(i8) & SIZE_MASK
        top = size if size > top else top
    return max(top >> i8(52), LEAST)


@inline
def small_sign(size: Any, least: Any) -> Any:
    """Return a negative number if `size` is below `least` but not 0; both are bits of nonnegative floats, as integers."""
    # `size - 1` is negative for 0 alone, so its complement clears the sign bit for 0 and keeps it otherwise.
    return (size - least) & ~(size - i8(1))


@outline
def are_all_from(v: Any, low: Any, above: Any) -> Any:
    """Whether all numbers of a block are at least `low`, or above `low` if `above`."""
    bad = i4(0)
    if above:
        for j in range(v.shape[0]):
            bad |= i4(not (v[j] > low))
    elif low > -np.inf:
        for j in range(v.shape[0]):
            bad |= i4(not (v[j] >= low))
    return bad == 0


@outline
def largest_exponent_in_range(v: Any, smallest: Any, most: Any) -> Any:
    """Return the biased exponent of the largest number of a block, or -1 if a number is out of range.

    The absolute value of a number must be 0 or lie between `smallest` and `most`.
    """
    # Compare absolute values through their bits, as integers, where NaN and infinity are the largest. Only the sign bit of
    # `wrong` matters.
    least, top, wrong = f8(smallest).view(i8), i8(0), i8(0)
    for j in range(v.shape[0]):
        size = f8(v[j]).view(i8) & SIZE_MASK
        wrong |= small_sign(size, least)
        top = size if size > top else top
    return i8(-1) if wrong < 0 or top > f8(most).view(i8) else max(top >> i8(52), LEAST)


@outline
def copy_in_range(v: Any, out: Any, smallest: Any, most: Any) -> Any:
    """Write a block as float64, and return what `largest_exponent_in_range` returns."""
    least, top, wrong = f8(smallest).view(i8), i8(0), i8(0)
    for j in range(v.shape[0]):
        x = f8(v[j])
        size = f8(x).view(i8) & SIZE_MASK
        out[j] = x
        wrong |= small_sign(size, least)
        top = size if size > top else top
    return i8(-1) if wrong < 0 or top > f8(most).view(i8) else max(top >> i8(52), LEAST)


@outline
def add_bounded_block(v: Any, e: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 numbers whose biased exponents are at most e; the caller propagates carries.

    All numbers are below 2**1000.
    """
    # t rounds a number to a multiple of the last bit of magic1; the rest is exact, and u rounds it to the last bit of
    # magic2. The bits of t and u are summed as integers modulo 2**64; n times the bits of the magic number is subtracted
    # at the end.
    bits1, bits2 = ((e + i8(3)) << i8(52)) | HALF, ((e - i8(47)) << i8(52)) | HALF
    magic1, magic2 = i8(bits1).view(f8), i8(bits2).view(f8)
    first, second, rests = i8(0), i8(0), i8(0)
    for j in range(v.shape[0]):
        t = v[j] + magic1
        rest = v[j] - (t - magic1)
        u = rest + magic2
        first += f8(t).view(i8)
        second += f8(u).view(i8)
        rests |= f8(rest - (u - magic2)).view(i8)
    n = i8(v.shape[0])
    add_integer(numbers, at, first - n * bits1, e + i8(16))
    add_integer(numbers, at, second - n * bits2, e - i8(34))
    # In rare cases some number has bits below the second split, and is added on its own.
    if rests & SIZE_MASK:
        for j in range(v.shape[0]):
            rest = v[j] - ((v[j] + magic1) - magic1)
            rest -= (rest + magic2) - magic2
            if rest != 0.0:
                add_exact(numbers, at, rest)


@inline
def add_block(v: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 numbers below 2**1000 to the superaccumulator at index `at`; the caller propagates carries."""
    add_bounded_block(v, largest_exponent(v), numbers, at)


@outline
def split_halves(v: Any, out: Any, high: Any, low: Any, smallest: Any, most: Any) -> Any:
    """Write a block as float64 and as halves of 26 bits (Veltkamp); return what `largest_exponent_in_range` returns.

    Products of the halves are exact.
    """
    least, top, wrong = f8(smallest).view(i8), i8(0), i8(0)
    for j in range(v.shape[0]):
        x = f8(v[j])
        t = SPLIT * x
        out[j], high[j] = x, t - (t - x)
        low[j] = x - high[j]
        size = f8(x).view(i8) & SIZE_MASK
        wrong |= small_sign(size, least)
        top = size if size > top else top
    return i8(-1) if wrong < 0 or top > f8(most).view(i8) else max(top >> i8(52), LEAST)


@inline
def halves_product_error(product: Any, a_high: Any, a_low: Any, b_high: Any, b_low: Any) -> Any:
    """Return the exact rounding error of a product, given the halves of its factors (Dekker's algorithm)."""
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@outline
def add_products(block: Any, x_column: Any, y_column: Any, m: Any, e: Any, numbers: Any, at: Any) -> None:
    """Add the products of two columns of up to 1,024 rows without rounding; products have biased exponents up to e.

    A block holds three arrays: columns, their upper halves, and their lower halves. A product is exactly its rounded value
    plus the rounding error. The error is 2**53 times smaller, so it is split at the second place of the product and a
    third one.
    """
    x, x_high, x_low = block[0, x_column, :m], block[1, x_column, :m], block[2, x_column, :m]
    y, y_high, y_low = block[0, y_column, :m], block[1, y_column, :m], block[2, y_column, :m]
    bits1, bits2 = ((e + i8(3)) << i8(52)) | HALF, ((e - i8(47)) << i8(52)) | HALF
    bits3 = ((e - i8(97)) << i8(52)) | HALF
    magic1, magic2, magic3 = i8(bits1).view(f8), i8(bits2).view(f8), i8(bits3).view(f8)
    first, second, third, rests = i8(0), i8(0), i8(0), i8(0)
    for j in range(m):
        product = x[j] * y[j]
        error = halves_product_error(product, x_high[j], x_low[j], y_high[j], y_low[j])
        t = product + magic1
        rest = product - (t - magic1)
        u, v = rest + magic2, error + magic2
        less = error - (v - magic2)
        z = less + magic3
        first += f8(t).view(i8)
        second += f8(u).view(i8) + f8(v).view(i8)
        third += f8(z).view(i8)
        rests |= f8(rest - (u - magic2)).view(i8) | f8(less - (z - magic3)).view(i8)
    add_integer(numbers, at, first - m * bits1, e + i8(16))
    add_integer(numbers, at, second - i8(2) * m * bits2, e - i8(34))
    add_integer(numbers, at, third - m * bits3, e - i8(84))
    # In rare cases some product or error has bits below the last split, and is added on its own.
    if rests & SIZE_MASK:
        for j in range(m):
            product = x[j] * y[j]
            error = halves_product_error(product, x_high[j], x_low[j], y_high[j], y_low[j])
            rest = product - ((product + magic1) - magic1)
            rest -= (rest + magic2) - magic2
            error -= (error + magic2) - magic2
            error -= (error + magic3) - magic3
            add_exact(numbers, at, rest)
            add_exact(numbers, at, error)


@outline
def carry_all(numbers: Any) -> None:
    """Propagate carries in all superaccumulators of a flat array, which brings them to canonical form."""
    for i in range(u8(numbers.shape[0]) // CHUNKS):
        carry(numbers, u8(i) * CHUNKS)
