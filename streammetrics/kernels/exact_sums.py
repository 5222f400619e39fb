"""Sum float64 numbers without rounding. The sums do not depend on the order of the numbers.

A sum is a superaccumulator: an array of 68 integers ("chunks"), each of which holds 32 bits of one long fixed-point
number. Adding and subtracting a large constant (a "magic number") rounds a float, so that its leading bits become an
integer. Doing so twice gives 100 bits of every number in a block as two integers, in loops that vectorize. Numbers with
bits below these 100 are rare; their lower bits are added one number at a time.
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
# The fraction bits of 1.5. Together with an exponent, they form a constant 1.5 * 2**k (a magic number). Adding a
# smaller number of either sign to this constant does not change its exponent, so the low bits of the sum are the
# smaller number as an integer.
HALF = i8(1) << i8(51)
SPLIT = 2.0**27 + 1.0
# The magic numbers for a block are derived from its largest biased exponent, or from LEAST if that exponent is lower.
# Their exponents are at most 97 lower than the exponent used, and are therefore always positive.
LEAST = i8(120)
# The position of the bit with the value 1 (2**0), counted from the lowest bit of a superaccumulator.
UNITS = i8(1088)
# The largest number of blocks that can be added before carries must be propagated: a chunk can hold the sum of up to
# 2**29 numbers below 2**33.
FULL = 1 << 18


@inline
def add_integer(numbers: Any, at: Any, v: Any, place: Any) -> None:
    """Add v times 2**(place - UNITS), where v is an integer, to the superaccumulator at index `at`.

    The caller propagates carries.
    """
    shift = place & i8(31)
    low = (v & CHUNK_MASK) << shift
    high = (v >> i8(32)) << shift
    k = at + u8(place >> i8(5))
    numbers[k] += low & CHUNK_MASK
    numbers[k + u8(1)] += (low >> i8(32)) + (high & CHUNK_MASK)
    numbers[k + u8(2)] += high >> i8(32)


@inline
def add_exact(numbers: Any, at: Any, v: Any) -> None:
    """Add a float64 v to the superaccumulator at index `at` of `numbers`. The caller propagates carries."""
    bits = f8(v).view(i8)
    exponent = (bits >> i8(52)) & i8(0x7FF)
    mantissa = bits & MANTISSA_MASK
    # A subnormal number has no implicit leading bit. Its scale is that of a number with exponent 1.
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
    """Return the biased exponent of the largest absolute value in a block, or LEAST if this exponent is lower."""
    top = i8(0)
    for j in range(v.shape[0]):
        size = f8(v[j]).view(i8) & SIZE_MASK
        top = size if size > top else top
    return max(top >> i8(52), LEAST)


@inline
def measure(x: Any, top: Any, least: Any) -> Any:
    """Update the largest (`top`) and smallest (`least`) absolute values in a block with a number x, and return both.

    Both are the bits of floats, read as integers. A larger float has a larger integer; infinity and NaN have the
    largest. `least` is the smallest value minus 1, as an unsigned integer. A zero thus becomes the largest integer,
    2**64 - 1, and does not count as the smallest value.
    """
    size = f8(x).view(i8) & SIZE_MASK
    return max(top, size), min(least, u8(size) - u8(1))


@inline
def exponents_in_range(top: Any, least: Any, smallest: Any, most: Any) -> Any:
    """Return the biased exponents of the largest and smallest numbers in a block, given the results of `measure`.

    If the absolute value of any number is neither 0 nor between `smallest` and `most`, the first exponent is -1.
    Otherwise, it is at least LEAST. The second may be too low by 1, because `measure` subtracts 1 from the bits of the
    smallest number.
    """
    valid = top <= f8(most).view(i8) and least >= u8(max(f8(smallest).view(i8), i8(1))) - u8(1)
    return max(top >> i8(52), LEAST) if valid else i8(-1), i8(least >> u8(52))


@outline
def are_all_from(v: Any, low: Any, above: Any) -> Any:
    """Return whether all numbers in a block are at least `low` or, if `above` is true, greater than `low`."""
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
    """Return the biased exponent of the largest absolute value in a block, or -1 if a number is out of range.

    The absolute value of each number must be 0 or lie between `smallest` and `most` (both inclusive).
    """
    top, least = i8(0), ~u8(0)
    for j in range(v.shape[0]):
        top, least = measure(v[j], top, least)
    return exponents_in_range(top, least, smallest, most)[0]


@outline
def copy_in_range(v: Any, out: Any, smallest: Any, most: Any) -> Any:
    """Copy a block to `out` as float64, and return its largest biased exponent, or -1 if a number is out of range."""
    top, least = i8(0), ~u8(0)
    for j in range(v.shape[0]):
        out[j] = f8(v[j])
        top, least = measure(v[j], top, least)
    return exponents_in_range(top, least, smallest, most)[0]


@inline
def magic_bits(e: Any) -> Any:
    """Return the bits of the two constants that `split_number` adds to numbers with biased exponents up to e."""
    return ((e + i8(3)) << i8(52)) | HALF, ((e - i8(47)) << i8(52)) | HALF


@inline
def split_number(x: Any, magic1: Any, magic2: Any) -> Any:
    """Split a number into two integers, each of which includes the bits of a large constant, and a remainder.

    The constants magic1 and magic2 are called magic numbers. Adding magic1 rounds the number to a multiple of the value
    of the last bit of magic1; the bits of the result are the first integer. Adding magic2 to the rounding error gives
    the second integer in the same way.
    """
    t = x + magic1
    rest = x - (t - magic1)
    u = rest + magic2
    return f8(t).view(i8), f8(u).view(i8), rest - (u - magic2)


@inline
def add_parts(first: Any, second: Any, n: Any, e: Any, numbers: Any, at: Any) -> None:
    """Add n numbers to a superaccumulator, given the sums of the two integers into which each was split.

    These integers include the bits of the magic numbers (see `split_number`), which are subtracted here. e is the
    biased exponent with which the numbers were split.
    """
    bits1, bits2 = magic_bits(e)
    add_integer(numbers, at, first - n * bits1, e + i8(16))
    add_integer(numbers, at, second - n * bits2, e - i8(34))


@outline
def add_checked_block(v: Any, e: Any, smallest: Any, most: Any, numbers: Any, at: Any) -> Any:
    """Add up to 1,024 numbers v to a sum; return a bound on their biased exponents, or -1 if a number is out of range.

    The absolute value of each number must be 0 or lie between `smallest` and `most`; otherwise nothing is added. The
    argument e is a guess at the result, such as the result for the previous block. If e is an upper bound, and no
    number is too small for it, numbers are checked and added in a single loop, and the result is e. The caller
    propagates carries.
    """
    bits1, bits2 = magic_bits(e)
    magic1, magic2 = i8(bits1).view(f8), i8(bits2).view(f8)
    first, second, top, least = i8(0), i8(0), i8(0), ~u8(0)
    for j in range(v.shape[0]):
        top, least = measure(v[j], top, least)
        t, u, _ = split_number(f8(v[j]), magic1, magic2)
        first += t
        second += u
    largest, low = exponents_in_range(top, least, smallest, most)
    if largest < 0:
        return largest
    # If the guess is too low, or if some numbers may have bits below the last bit of magic2, these sums are wrong. In
    # that case, sum the block again.
    if largest > e or low < e - i8(47):
        add_bounded_block(v, largest, numbers, at)
        return largest
    add_parts(first, second, i8(v.shape[0]), e, numbers, at)
    return e


@outline
def add_bounded_block(v: Any, e: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 numbers with biased exponents of at most e to the superaccumulator at index `at`.

    The absolute values of all numbers must be below 2**1000, so that the magic numbers (the large constants that
    `split_number` adds to each number) fit into a float64. The caller propagates carries.
    """
    bits1, bits2 = magic_bits(e)
    magic1, magic2 = i8(bits1).view(f8), i8(bits2).view(f8)
    first, second, rests = i8(0), i8(0), i8(0)
    # These sums may wrap around at 2**64, which does not change the result of `add_parts`.
    for j in range(v.shape[0]):
        t, u, rest = split_number(v[j], magic1, magic2)
        first += t
        second += u
        rests |= f8(rest).view(i8)
    add_parts(first, second, i8(v.shape[0]), e, numbers, at)
    # In rare cases, some numbers have bits below the last bit of magic2. Add these bits one number at a time.
    if rests & SIZE_MASK:
        for j in range(v.shape[0]):
            rest = v[j] - ((v[j] + magic1) - magic1)
            rest -= (rest + magic2) - magic2
            if rest != 0.0:
                add_exact(numbers, at, rest)


@inline
def add_block(v: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 numbers below 2**1000 to the superaccumulator at index `at`. The caller propagates carries."""
    add_bounded_block(v, largest_exponent(v), numbers, at)


@outline
def split_halves(v: Any, out: Any, high: Any, low: Any, smallest: Any, most: Any) -> Any:
    """Copy a block to `out` as float64, and split each number into two 26-bit halves, whose products are exact.

    This is Veltkamp's split. Return the largest and smallest biased exponents (see `exponents_in_range`).
    """
    top, least = i8(0), ~u8(0)
    for j in range(v.shape[0]):
        x = f8(v[j])
        t = SPLIT * x
        out[j], high[j] = x, t - (t - x)
        low[j] = x - high[j]
        top, least = measure(x, top, least)
    return exponents_in_range(top, least, smallest, most)


@inline
def halves_product_error(product: Any, a_high: Any, a_low: Any, b_high: Any, b_low: Any) -> Any:
    """Return the exact rounding error of a product, given the halves of its factors a and b (Dekker's algorithm)."""
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@inline
def split_product(x: Any, x_high: Any, x_low: Any, y: Any, y_high: Any, y_low: Any, magics: Any) -> Any:
    """Split a product into three integers, each of which includes the bits of magic numbers, and two remainders.

    `magics` holds three magic numbers, which are large constants (see `split_number`). The exact product is the sum of
    its rounded value and a rounding error, which is smaller by a factor of at least 2**53. The value is split with
    magic1 and magic2, and the error with magic2 and magic3.
    """
    magic1, magic2, magic3 = magics
    product = x * y
    error = halves_product_error(product, x_high, x_low, y_high, y_low)
    first, second, rest = split_number(product, magic1, magic2)
    v, third, less = split_number(error, magic2, magic3)
    return first, second + v, third, rest, less


@outline
def add_products(block: Any, x_column: Any, y_column: Any, m: Any, e: Any, low: Any, numbers: Any, at: Any) -> None:
    """Add the products of two columns of a block with m rows (at most 1,024) to a superaccumulator without rounding.

    The biased exponents of the products are at most e. `low` is the sum of the smallest exponents of the two columns. A
    block holds three arrays: the columns, their upper halves and their lower halves.
    """
    x, x_high, x_low = block[0, x_column, :m], block[1, x_column, :m], block[2, x_column, :m]
    y, y_high, y_low = block[0, y_column, :m], block[1, y_column, :m], block[2, y_column, :m]
    bits1, bits2 = magic_bits(e)
    bits3 = ((e - i8(97)) << i8(52)) | HALF
    magics = i8(bits1).view(f8), i8(bits2).view(f8), i8(bits3).view(f8)
    first, second, third, rests = i8(0), i8(0), i8(0), i8(0)
    # Usually, the exponents show that no product has bits below the last bit of magic3, so there are no remainders.
    is_wide = low < e + i8(978)
    for j in range(0 if is_wide else m):
        t, u, v, _, _ = split_product(x[j], x_high[j], x_low[j], y[j], y_high[j], y_low[j], magics)
        first, second, third = first + t, second + u, third + v
    for j in range(m if is_wide else 0):
        t, u, v, rest, less = split_product(x[j], x_high[j], x_low[j], y[j], y_high[j], y_low[j], magics)
        first, second, third = first + t, second + u, third + v
        rests |= f8(rest).view(i8) | f8(less).view(i8)
    add_parts(first, second - m * bits2, m, e, numbers, at)
    add_integer(numbers, at, third - m * bits3, e - i8(84))
    # In rare cases, some products or errors have bits that are too low for this split. Add each remainder separately.
    if rests & SIZE_MASK:
        for j in range(m):
            _, _, _, rest, less = split_product(x[j], x_high[j], x_low[j], y[j], y_high[j], y_low[j], magics)
            add_exact(numbers, at, rest)
            add_exact(numbers, at, less)


@outline
def carry_all(numbers: Any) -> None:
    """Propagate carries in all superaccumulators of a flat array, so that equal sums have equal chunks."""
    for i in range(u8(numbers.shape[0]) // CHUNKS):
        carry(numbers, u8(i) * CHUNKS)
