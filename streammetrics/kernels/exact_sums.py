"""Sums of float64 without rounding: superaccumulators (see module `exact`), whatever the sizes, signs and order.

A block of numbers is cut at two places below its largest, by adding and taking away a magic number: 100 bits as two
integers a row, in loops that vectorise. What a number has left below them, which is rare, is added by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, outline

f8, i4, i8, u8 = np.float64, np.int32, np.int64, np.uint64

BLOCK = 1024  # 2**10 integers below 2**50 fit an int64
CHUNKS = u8(68)
CHUNK_MASK = i8(0xFFFFFFFF)
SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)
MANTISSA_MASK = i8(0xFFFFFFFFFFFFF)
HALF = i8(1) << i8(51)  # the bits of 1.5, in front of which stands an exponent
SPLIT = 2.0**27 + 1.0
LEAST = i8(120)  # biased exponent: what is smaller is cut as if it stood beside a number of this size
UNITS = i8(1088)  # the place of 1
FULL = 1 << 18  # blocks after which chunks are carried: an int64 holds 2**29 numbers below 2**33


@inline
def add_integer(numbers: Any, at: Any, v: Any, place: Any) -> None:
    """Add v * 2**(place - 1088) to one superaccumulator of a flat array; the caller carries."""
    shift = place & i8(31)
    low = (v & CHUNK_MASK) << shift
    high = (v >> i8(32)) << shift
    k = at + u8(place >> i8(5))
    numbers[k] += low & CHUNK_MASK
    numbers[k + u8(1)] += (low >> i8(32)) + (high & CHUNK_MASK)
    numbers[k + u8(2)] += high >> i8(32)


@inline
def add_exact(numbers: Any, at: Any, v: Any) -> None:
    """Add a float64 to one superaccumulator of a flat array; the caller carries."""
    bits = f8(v).view(i8)
    exponent = (bits >> i8(52)) & i8(0x7FF)
    mantissa = bits & MANTISSA_MASK
    if exponent:
        mantissa |= i8(1) << i8(52)
    add_integer(numbers, at, -mantissa if bits < 0 else mantissa, max(exponent, i8(1)) + i8(13))


@inline
def carry(numbers: Any, at: Any) -> None:
    """Bring one superaccumulator of a flat array to canonical form."""
    for k in range(at, at + CHUNKS - u8(1)):
        numbers[u8(k) + u8(1)] += numbers[u8(k)] >> i8(32)
        numbers[u8(k)] &= CHUNK_MASK


@outline
def largest(v: Any) -> Any:
    """Return the biased exponent of the largest number of a block."""
    top = i8(0)
    for j in range(v.shape[0]):
        size = f8(v[j]).view(i8) & SIZE_MASK
        top = size if size > top else top
    return max(top >> i8(52), LEAST)


@inline
def small(size: Any, least: Any) -> Any:
    """Return what is negative where a size is below `least` but not 0; both as the integers that their bits are."""
    return (size - least) & ~(size - i8(1))  # 0 - 1 is negative, too, and excuses


@outline
def reach(v: Any, low: Any, above: Any) -> Any:
    """Whether all numbers of a block are at least `low`, or above it."""
    bad = i4(0)
    if above:
        for j in range(v.shape[0]):
            bad |= i4(not (v[j] > low))
    elif low > -np.inf:
        for j in range(v.shape[0]):
            bad |= i4(not (v[j] >= low))
    return bad == 0


@outline
def largest_within(v: Any, smallest: Any, most: Any) -> Any:
    """Return the biased exponent of the largest number of a block; -1 if a size is neither 0 nor from smallest to most."""
    least, top, wrong = f8(smallest).view(i8), i8(0), i8(0)
    for j in range(v.shape[0]):
        size = f8(v[j]).view(i8) & SIZE_MASK
        wrong |= small(size, least)
        top = size if size > top else top
    return i8(-1) if wrong < 0 or top > f8(most).view(i8) else max(top >> i8(52), LEAST)


@outline
def copy_within(v: Any, out: Any, smallest: Any, most: Any) -> Any:
    """Write a block as float64, and return what `largest_within` does."""
    least, top, wrong = f8(smallest).view(i8), i8(0), i8(0)
    for j in range(v.shape[0]):
        x = f8(v[j])
        size = f8(x).view(i8) & SIZE_MASK
        out[j] = x
        wrong |= small(size, least)
        top = size if size > top else top
    return i8(-1) if wrong < 0 or top > f8(most).view(i8) else max(top >> i8(52), LEAST)


@outline
def add_below(v: Any, e: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 numbers of at most a biased exponent, all below 2**1000; the caller carries."""
    bits1, bits2 = ((e + i8(3)) << i8(52)) | HALF, ((e - i8(47)) << i8(52)) | HALF
    magic1, magic2 = i8(bits1).view(f8), i8(bits2).view(f8)
    first, second, left = i8(0), i8(0), i8(0)
    for j in range(v.shape[0]):
        t = v[j] + magic1
        rest = v[j] - (t - magic1)
        u = rest + magic2
        first += f8(t).view(i8)
        second += f8(u).view(i8)
        left |= f8(rest - (u - magic2)).view(i8)
    n = i8(v.shape[0])
    add_integer(numbers, at, first - n * bits1, e + i8(16))
    add_integer(numbers, at, second - n * bits2, e - i8(34))
    if left & SIZE_MASK:
        for j in range(v.shape[0]):
            rest = v[j] - ((v[j] + magic1) - magic1)
            rest -= (rest + magic2) - magic2
            if rest != 0.0:
                add_exact(numbers, at, rest)


@inline
def add_block(v: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 numbers, all below 2**1000, to one superaccumulator of a flat array; the caller carries."""
    add_below(v, largest(v), numbers, at)


@outline
def halve(v: Any, out: Any, high: Any, low: Any, smallest: Any, most: Any) -> Any:
    """Write a block as float64, and as halves of 26 bits, whose products are exact; return what `largest_within` does."""
    least, top, wrong = f8(smallest).view(i8), i8(0), i8(0)
    for j in range(v.shape[0]):
        x = f8(v[j])
        t = SPLIT * x
        out[j], high[j] = x, t - (t - x)
        low[j] = x - high[j]
        size = f8(x).view(i8) & SIZE_MASK
        wrong |= small(size, least)
        top = size if size > top else top
    return i8(-1) if wrong < 0 or top > f8(most).view(i8) else max(top >> i8(52), LEAST)


@inline
def lost(product: Any, a_high: Any, a_low: Any, b_high: Any, b_low: Any) -> Any:
    """Return what rounding a product has lost, which is a float64 (Dekker)."""
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@outline
def add_products(block: Any, left: Any, right: Any, m: Any, e: Any, numbers: Any, at: Any) -> None:
    """Add the products of two columns of up to 1,024 rows, of at most a biased exponent, and what rounding has lost.

    A block holds columns, their upper and their lower halves. What is lost is 2**53 times smaller: it is cut where the
    product was cut last, and once more below.
    """
    x, x_high, x_low = block[0, left, :m], block[1, left, :m], block[2, left, :m]
    y, y_high, y_low = block[0, right, :m], block[1, right, :m], block[2, right, :m]
    bits1, bits2 = ((e + i8(3)) << i8(52)) | HALF, ((e - i8(47)) << i8(52)) | HALF
    bits3 = ((e - i8(97)) << i8(52)) | HALF
    magic1, magic2, magic3 = i8(bits1).view(f8), i8(bits2).view(f8), i8(bits3).view(f8)
    first, second, third, beyond = i8(0), i8(0), i8(0), i8(0)
    for j in range(m):
        product = x[j] * y[j]
        error = lost(product, x_high[j], x_low[j], y_high[j], y_low[j])
        t = product + magic1
        rest = product - (t - magic1)
        u, v = rest + magic2, error + magic2
        less = error - (v - magic2)
        z = less + magic3
        first += f8(t).view(i8)
        second += f8(u).view(i8) + f8(v).view(i8)
        third += f8(z).view(i8)
        beyond |= f8(rest - (u - magic2)).view(i8) | f8(less - (z - magic3)).view(i8)
    add_integer(numbers, at, first - m * bits1, e + i8(16))
    add_integer(numbers, at, second - i8(2) * m * bits2, e - i8(34))
    add_integer(numbers, at, third - m * bits3, e - i8(84))
    if beyond & SIZE_MASK:
        for j in range(m):
            product = x[j] * y[j]
            error = lost(product, x_high[j], x_low[j], y_high[j], y_low[j])
            rest = product - ((product + magic1) - magic1)
            rest -= (rest + magic2) - magic2
            error -= (error + magic2) - magic2
            error -= (error + magic3) - magic3
            add_exact(numbers, at, rest)
            add_exact(numbers, at, error)


@outline
def carry_all(numbers: Any) -> None:
    """Bring all superaccumulators of a flat array to canonical form."""
    for i in range(u8(numbers.shape[0]) // CHUNKS):
        carry(numbers, u8(i) * CHUNKS)
