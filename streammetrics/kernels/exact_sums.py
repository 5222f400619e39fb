"""Sum float64 numbers without rounding. The sums do not depend on the order of the numbers.

A sum is a superaccumulator: an array of 68 integers ("chunks"), each of which holds 32 bits of one long fixed-point
number. Adding and subtracting a large constant (a "magic number") rounds a float, so that its leading bits become an
integer. Doing so twice gives 100 bits of every number in a block as two integers, in loops that vectorise. Numbers with
bits below these 100 are rare, and the lower bits are added one number at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, outline

f8, i4, i8, u8 = np.float64, np.int32, np.int64, np.uint64

# The number of rows in a block. The sum of 2**10 integers below 2**50 fits into an int64.
BLOCK = 1024
CHUNKS = u8(68)
CHUNK_MASK = i8(0xFFFFFFFF)
SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)
MANTISSA_MASK = i8(0xFFFFFFFFFFFFF)
# The fraction bits of 1.5. Together with an exponent, they form a magic number 1.5 * 2**k. Adding a smaller number of
# either sign does not change the exponent, so the low bits of the sum are the smaller number as an integer.
HALF = i8(1) << i8(51)
SPLIT = 2.0**27 + 1.0
# The smallest biased exponent with which a block is split, even if its largest number has a smaller one. All magic
# numbers are thus in the range of float64.
LEAST = i8(120)
# The position, counted from the lowest bit, of the bit of a superaccumulator that has the value 1.
UNITS = i8(1088)
# The largest number of blocks that may be added before carries are propagated: a chunk can hold the sum of up to 2**29
# numbers below 2**33.
FULL = 1 << 18


@inline
def add_integer(numbers: Any, at: Any, v: Any, place: Any) -> None:
    """Add the integer v times 2**(place - 1088) to the superaccumulator at index `at`; the caller propagates carries."""
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
    """Propagate carries in the superaccumulator at index `at`, so that all chunks but the last are below 2**32."""
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
    """Return a negative integer if the number `size` is below `least` but not 0, otherwise a nonnegative integer.

    Both arguments are the bits of nonnegative floats, read as integers, which sort like the floats.
    """
    # Only for 0 is `size - 1` negative. The complement is then nonnegative, and clears the sign bit of the difference.
    return (size - least) & ~(size - i8(1))


@outline
def are_all_from(v: Any, low: Any, above: Any) -> Any:
    """Return whether all numbers of a block are at least `low` or, if `above`, larger than `low`."""
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

    The absolute value of each number must be 0 or lie between `smallest` and `most`.
    """
    # Compare the bits of absolute values as integers, which sort like the values; infinity and NaN are the largest. Only
    # the sign bit of `wrong` matters.
    least, top, wrong = f8(smallest).view(i8), i8(0), i8(0)
    for j in range(v.shape[0]):
        size = f8(v[j]).view(i8) & SIZE_MASK
        wrong |= small_sign(size, least)
        top = size if size > top else top
    return i8(-1) if wrong < 0 or top > f8(most).view(i8) else max(top >> i8(52), LEAST)


@outline
def copy_in_range(v: Any, out: Any, smallest: Any, most: Any) -> Any:
    """Copy a block as float64 to `out`, and return the result of `largest_exponent_in_range`."""
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
    # Adding magic1 rounds a number to a multiple of the last bit of magic1 (t). Adding magic2 to the exact remainder
    # rounds it in the same way (u). The bits of t and u are summed as integers modulo 2**64. They include the bits of the
    # magic numbers, which are subtracted at the end.
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
    # In rare cases, some numbers have bits below the last bit of magic2. Add these bits one number at a time.
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
    """Copy a block as float64 to `out`, and split each number into two halves of 26 bits, whose products are exact.

    This is Veltkamp's split. Return the result of `largest_exponent_in_range`.
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
    """Return the exact rounding error of a product, given the halves of its factors a and b (Dekker's algorithm)."""
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@outline
def add_products(block: Any, x_column: Any, y_column: Any, m: Any, e: Any, numbers: Any, at: Any) -> None:
    """Add the products of two columns of a block of m rows (at most 1,024) to a superaccumulator without rounding.

    The biased exponents of the products are at most e. A block holds three arrays: the columns, their upper halves, and
    their lower halves. Each product is the sum of its rounded value and a rounding error, which is at least 2**53 times
    smaller. The value is split with magic1 and magic2, and the error with magic2 and magic3.
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
    # In rare cases, some products or errors have bits that are too low for this split. Add each remainder separately.
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
    """Propagate carries in all superaccumulators of a flat array, so that equal sums have equal chunks."""
    for i in range(u8(numbers.shape[0]) // CHUNKS):
        carry(numbers, u8(i) * CHUNKS)
