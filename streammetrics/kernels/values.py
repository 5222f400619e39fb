"""Counts of numbers by the leading bits of their size: a logarithmic histogram without a logarithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from .sums import add_fixed, split

f8, i8, u8 = np.float64, np.int64, np.uint64

LOWEST = i8(1023 - 460)  # biased exponent of the first octave: differences of numbers of 2**-400 have 2**-452
SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)


@inline
def bucket(v: Any, bits: Any, middle: Any) -> Any:
    """Return the bucket of a number: `middle` for 0, above it for positive ones, below for negative ones."""
    size = f8(v).view(i8) & SIZE_MASK
    step = (size >> (i8(52) - bits)) - (LOWEST << bits) + i8(1) if size else i8(0)
    return middle - step if v < 0.0 else middle + step


@kernel(out=("rows", "excess", "off_grid"))
def count_values(
    first: Any, second: Any, w: Any, at: Any, width: Any, signed: Any, bits: Any, middle: Any,
    buckets: Any, rows: Any, excess: Any, off_grid: Any,
) -> Any:  # fmt: skip
    """Count values, or |second - first| if `second` is not empty (second - first if `signed`), into buckets.

    `rows`, `excess` and `off_grid` are slices x outputs x buckets, flat.

    `w` is empty for no weights, `at` for a lone state; rows are `width` values side by side; all was checked.
    """
    dropped = (i8(1) << (i8(52) - bits)) - i8(1)
    n = first.shape[0] // width
    for c in range(width):
        for j in range(n):
            k = u8(j) * u8(width) + u8(c)
            v = f8(first[k])
            if second.shape[0]:
                v = f8(second[k]) - v
                v = v if signed else abs(v)
            cell = (u8(at[j]) * u8(width) if at.shape[0] else u8(0)) + u8(c)
            if f8(v).view(i8) & dropped and not (w.shape[0] and w[j] == 0.0):
                off_grid[cell] = 1
            place = cell * u8(buckets) + u8(bucket(v, bits, middle))
            rows[place] += 1
            if w.shape[0]:
                high, low = split(w[j])
                add_fixed(excess, u8(2) * place, high - i8(1 << 20), low)
    return n
