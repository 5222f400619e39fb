"""Counts of numbers by the leading bits of their size: a logarithmic histogram without a logarithm.

Each block of rows is turned into places first (the loop vectorises) and counted after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .reduce import emit
from .sums import add_fixed, split

f8, i8, u1, u8 = np.float64, np.int64, np.uint8, np.uint64

BLOCK = 256
LOWEST = i8(1023 - 460)  # biased exponent of the first octave: differences of numbers of 2**-400 have 2**-452
SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)


@inline
def bucket(v: Any, bits: Any, middle: Any) -> Any:
    """Return the bucket of a number: `middle` for 0, above it for positive ones, below for negative ones."""
    size = f8(v).view(i8) & SIZE_MASK
    step = (size >> (i8(52) - bits)) - (LOWEST << bits) + i8(1) if size else i8(0)
    return middle - step if v < 0.0 else middle + step


@inline
def places(
    first: Any, second: Any, a: Any, n: Any, width: Any, c: Any, pair: Any, signed: Any, bits: Any, middle: Any,
    buckets: Any, place: Any, lost: Any,
) -> Any:  # fmt: skip
    """Write the places of column c of n rows from a, and the bits that their buckets do not show; return all of these."""
    dropped, off = (i8(1) << (i8(52) - bits)) - i8(1), i8(0)
    for j in range(n):
        k = u8(a + j) * u8(width) + u8(c)
        v = f8(first[k])
        if pair:
            v = f8(second[k]) - v
            v = v if signed else abs(v)
        lost[j] = f8(v).view(i8) & dropped
        off |= lost[j]
        place[j] = u8(c) * u8(buckets) + u8(bucket(v, bits, middle))
    return off


@inline
def mark(lost: Any, w: Any, at: Any, a: Any, n: Any, width: Any, c: Any, off_grid: Any) -> None:
    """Note the cells of rows that weigh anything, whose bucket does not show all their bits."""
    for j in range(n):
        if lost[j] != 0 and not (w.shape[0] and w[a + j] == 0.0):
            off_grid[(u8(at[a + j]) * u8(width) if at.shape[0] else u8(0)) + u8(c)] = u1(1)


@kernel(out=("off_grid", "rows", "excess"))
def count_values(
    first: Any, second: Any, w: Any, at: Any, width: Any, pair: Any, signed: Any, bits: Any, middle: Any, buckets: Any,
    off_grid: Any, rows: Any, excess: Any,
) -> Any:  # fmt: skip
    """Count values, or |second - first| of a pair (second - first if `signed`), into the buckets of one cell.

    Rows are `width` values side by side, in one dimension or two; `rows` is outputs x buckets, flat.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    place, lost = scratch(BLOCK, u8), scratch(BLOCK, i8)
    n_rows = ff.shape[0] // width
    for a in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - a)
        for c in range(width):
            off = places(ff, ss, a, n, width, c, pair, signed, bits, middle, buckets, place, lost)
            if off != 0 and off_grid[c] == 0:
                mark(lost, w, at, a, n, width, c, off_grid)
            for j in range(n):
                rows[place[j]] += 1
            for j in range(n if w.shape[0] else 0):
                high, low = split(w[a + j])
                add_fixed(excess, u8(2) * place[j], high - i8(1 << 20), low)
    return 0


@kernel(out=("off_grid", "bytes_", "excess", "codes", "weights", "waiting"))
def emit_values(
    first: Any, second: Any, w: Any, at: Any, width: Any, pair: Any, signed: Any, bits: Any, middle: Any, buckets: Any,
    off_grid: Any, shift: Any, stride: Any, bytes_: Any, excess: Any, codes: Any, weights: Any, waiting: Any,
) -> Any:  # fmt: skip
    """Do that for rows of many cells, or of many outputs."""
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    place, lost = scratch(BLOCK, u8), scratch(BLOCK, i8)
    n_rows = ff.shape[0] // width
    for a in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - a)
        for c in range(width):
            if places(ff, ss, a, n, width, c, pair, signed, bits, middle, buckets, place, lost):
                mark(lost, w, at, a, n, width, c, off_grid)
            emit(place, a, n, at, w, shift, stride, bytes_, excess, codes, weights, waiting)
    return 0
