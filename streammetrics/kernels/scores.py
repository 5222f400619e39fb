"""Counting scores by label and bucket: the histogram behind AUC, average precision and KS.

A bucket is the leading bits of the score, truncated, never rounded: so the map is non-decreasing, and float32 and
float64 scores of equal value fall in the same bucket. Each block of rows is turned into indices first (the loop
vectorises) and counted after (scalar bumps); a block that holds a bad value is not counted at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import by_dtype, inline, kernel
from ._memory import fetch, scratch
from .sums import add_fixed, split

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

BLOCK = 256  # short: the scalar bumps of one block overlap with the vector loop of the next
AHEAD = 1024  # how far ahead rows are fetched: bumping takes longer than they take to come
OCTAVES = 32  # of p below 1/2, and of 1 - p above it
OFF_GRID = u4(1 << 31)  # rides on the index of a row to its slice
LARGEST = i4(0x7F7FFFFF)  # the bits of the largest float32


def _half_word32(z: Any) -> Any:
    """Return the bits of z, that none were dropped, and whether z is not in [0, 1/2]."""
    bits = f4(z + f4(0)).view(i4)  # -0.0 + 0 is 0; as an unsigned number, negatives and NaN are large
    return bits, i4(0), u4(bits) > u4(0x3F000000)


def _half_word64(z: Any) -> Any:
    """Return the float32 bits of z, truncated, whether bits were dropped, and whether z is not in [0, 1/2]."""
    bits = f8(z + f8(0)).view(i8)
    top = (bits >> i8(29)) - i8(896 << 23)
    tiny = top < i8(0)  # below float32's normal range, and so below the last octave
    lost = i4((bits & i8(0x1FFFFFFF)) != 0) | i4(tiny & (bits != 0))
    return i4(i8(0) if tiny else top), lost, u8(bits) > u8(0x3FE0000000000000)


def _real_word32(z: Any) -> Any:
    """Return the bits of a number's magnitude, and that none were dropped."""
    return f4(z).view(i4) & i4(0x7FFFFFFF), i4(0)


def _real_word64(z: Any) -> Any:
    """Return the float32 bits of any magnitude, truncated: denormals to the bit, what is beyond clamped to the end."""
    bits = f8(z).view(i8) & i8(0x7FFFFFFFFFFFFFFF)
    top = (bits >> i8(29)) - i8(896 << 23)
    below, above = top < i8(1 << 23), top > i8(LARGEST)
    scaled = abs(z) * f8(2.0**149) if below else f8(0.0)  # below 2**-126 float32 is a grid of 2**-149
    small = i8(scaled)
    lost = (f8(small) != scaled) if below else (((bits & i8(0x1FFFFFFF)) != 0) | above)
    return i4(small if below else (i8(LARGEST) if above else top)), i4(lost)


half_word = by_dtype(float32=_half_word32, float64=_half_word64)
real_word = by_dtype(float32=_real_word32, float64=_real_word64)


@inline
def probability_indices(y: Any, s: Any, a: Any, n: Any, bits: Any, mark: Any, index: Any) -> Any:
    """Write label * K + bucket of n rows from a, plus `mark` if off the grid; return (any bad value, any off the grid)."""
    shift = i4(23 - (bits - 6))
    base = i4(94 << 23) >> shift  # the bits of 2**-33
    top = i4(1) << i4(bits)
    buckets = u4(top + i4(1))
    mask = (i4(1) << shift) - i4(1)
    bad, off = i4(0), i4(0)
    fetch(y, a + AHEAD, n)
    fetch(s, a + AHEAD, n)
    yy, ss = y[a : a + n], s[a : a + n]
    for j in range(n):
        p = ss[j]
        up = p > f4(0.5)
        z = f4(1) - p if up else p
        w, lost, outside = half_word(z)
        bad |= i4(yy[j] >> 1) | i4(outside)
        b = (w >> shift) - base
        low = b <= i4(0)
        lost |= (w & mask) | (w if low else i4(0))  # the bottom bucket is on the grid for 0 alone
        off |= lost
        b = i4(0) if low else b
        b = top - b if up else b
        index[j] = u4(b) + buckets * u4(yy[j] != 0) + (mark if lost != i4(0) else u4(0))
    return bad, off


@inline
def real_indices(y: Any, s: Any, a: Any, n: Any, bits: Any, mark: Any, index: Any) -> Any:
    """Write what `probability_indices` writes, for scores of any size."""
    shift = i4(32 - bits)
    half = i4(1) << i4(bits - 1)
    buckets = u4(half) * u4(2)
    mask = (i4(1) << shift) - i4(1)
    bad, off = i4(0), i4(0)
    fetch(y, a + AHEAD, n)
    fetch(s, a + AHEAD, n)
    yy, ss = y[a : a + n], s[a : a + n]
    for j in range(n):
        x = ss[j]
        bad |= i4(yy[j] > 1) | i4(not (abs(x) < np.inf))
        w, lost = real_word(x)
        lost |= w & mask
        off |= lost
        b = w >> shift
        b = half - i4(1) - b if x < f4(0) else half + b
        index[j] = u4(b) + buckets * u4(yy[j] != 0) + (mark if lost != i4(0) else u4(0))
    return bad, off


@inline
def bump(index: Any, n: Any, rows: Any) -> None:
    """Count n rows by their index."""
    j, whole = u8(0), u8(n) & u8(0xFFFFFFFFFFFFFFF8)
    while j < whole:
        rows[index[j]] += 1
        rows[index[j + u8(1)]] += 1
        rows[index[j + u8(2)]] += 1
        rows[index[j + u8(3)]] += 1
        rows[index[j + u8(4)]] += 1
        rows[index[j + u8(5)]] += 1
        rows[index[j + u8(6)]] += 1
        rows[index[j + u8(7)]] += 1
        j += u8(8)
    while j < u8(n):
        rows[index[j]] += 1
        j += u8(1)


@kernel(out=("rows", "off_grid"))
def count_probabilities(y: Any, s: Any, rows: Any, off_grid: Any, bits: Any) -> Any:
    """Count each row; return how many were counted before the first bad block.

    `rows` is flat: label, bucket.
    """
    index = scratch(BLOCK, u4)
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        bad, off = probability_indices(y, s, a, n, bits, u4(0), index)
        if bad:
            return a
        bump(index, n, rows)
        off_grid[0] |= i8(off != 0)
    return s.shape[0]


@kernel(out=("rows", "off_grid"))
def count_reals(y: Any, s: Any, rows: Any, off_grid: Any, bits: Any) -> Any:
    """Do what `count_probabilities` does, for scores of any size."""
    index = scratch(BLOCK, u4)
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        bad, off = real_indices(y, s, a, n, bits, u4(0), index)
        if bad:
            return a
        bump(index, n, rows)
        off_grid[0] |= i8(off != 0)
    return s.shape[0]


@kernel(out=("rows", "excess", "off_grid"))
def count_cells(
    y: Any, s: Any, w: Any, at: Any, rows: Any, excess: Any, off_grid: Any, real: Any, bits: Any, stride: Any, step: Any
) -> Any:
    """Do what the two above do, with weights, with slices, or with both.

    `rows` is flat: slice, label, bucket; `excess` holds the sum of weight - 1 of each cell (fixed numbers). `w` and `at`
    are empty for no weights and a lone state. A `step` of -1 takes back what a step of 1 has counted.
    """
    index, cell = scratch(BLOCK, u4), scratch(BLOCK, u8)
    sliced, weighted = at.shape[0] != 0, w.shape[0] != 0
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        if real:
            bad, off = real_indices(y, s, a, n, bits, OFF_GRID, index)
        else:
            bad, off = probability_indices(y, s, a, n, bits, OFF_GRID, index)
        if bad:
            return a
        if sliced:
            fetch(at, a + AHEAD, n)
        for j in range(n):
            cell[j] = u8(index[j] & ~OFF_GRID)
        for j in range(n if sliced else 0):
            cell[j] += u8(at[a + j]) * u8(stride)
        for j in range(n):  # nothing else in this loop: it waits for memory, as many rows at a time as it can
            rows[cell[j]] += step
        for j in range(n if off else 0):
            i = u8(at[a + j]) if sliced else u8(0)
            heavy = not weighted or w[a + j] != 0  # a row of weight 0 is nowhere
            if heavy and not off_grid[i]:  # most often it is set already, and reading is cheaper than writing
                off_grid[i] = i8(index[j] >> u4(31))
        for j in range(n if weighted else 0):
            high, low = split(w[a + j])
            add_fixed(excess, u8(2) * cell[j], i8(step) * (high - i8(1 << 20)), i8(step) * low)
    return s.shape[0]
