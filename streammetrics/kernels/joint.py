"""Rows of two numbers, by both at once: in buckets, or, while a cell has few, as words that tell them exactly.

A row of numbers goes to four places of a tally, one behind the other: of the first number, of the second, of both by
their leading bits, and of both by their hashes. `statistics.joint` says what that is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .exact_rows import TOP, key_of
from .hashes import finish
from .reduce import emit

f8, i8, u1, u4, u8 = np.float64, np.int64, np.uint8, np.uint32, np.uint64

BLOCK = 256
MARGIN = 6  # bits that each number alone has more than both together
HALF = u8(0xFFFFFFFF)


@inline
def word(look: Any, a: Any, b: Any) -> Any:
    """Return the exact place of a row by one look, of the keys of its numbers."""
    if look == 0:
        return a
    if look == 1:
        return b
    if look == 3:
        a, b = finish(a), finish(b)
    return (a & ~HALF) | (b >> u8(32))


@inline
def bucket(look: Any, a: Any, b: Any, bits: Any) -> Any:
    """Return the bucket of a row by one look."""
    wide = u8(12 + bits)
    first = u8(look) << (u8(2) * wide)
    if look < 2:
        return first | ((b if look else a) >> (u8(64 - MARGIN) - wide))
    if look == 2:
        return first | ((a >> (u8(64) - wide)) << wide) | (b >> (u8(64) - wide))
    return first


@inline
def is_off(key: Any, dropped: Any) -> Any:
    """Whether a number has bits that the bucket of both does not show."""
    return (u8(key & ~TOP if key >> u8(63) else ~key) & dropped) != u8(0)


@kernel(out=("high", "low", "weights", "used", "bytes_", "excess", "codes", "ws", "waiting", "off_grid"))
def count_pairs(
    x: Any, y: Any, w: Any, at: Any, bits: Any,
    folded: Any, high: Any, low: Any, weights: Any, used: Any,
    shift: Any, stride: Any, bytes_: Any, excess: Any, codes: Any, ws: Any, waiting: Any, off_grid: Any,
) -> Any:  # fmt: skip
    """Count good rows: those of folded cells by bucket, all others wait as they are. `folded` is empty if all are."""
    a, b, cell, heavy = scratch(BLOCK, u8), scratch(BLOCK, u8), scratch(BLOCK, i8), scratch(BLOCK, f8)
    place = scratch(BLOCK, u8)
    lone, weighted, all_folded = at.shape[0] == 0, w.shape[0] != 0, folded.shape[0] == 0
    dropped = (u8(1) << u8(52 - bits)) - u8(1)
    for start in range(0, x.shape[0], BLOCK):
        k, m = u8(0), u8(used[0])
        for j in range(start, min(start + BLOCK, x.shape[0])):
            i = i8(0) if lone else at[j]
            p, q, weight = key_of(x[j], True), key_of(y[j], True), w[j] if weighted else 1.0
            if all_folded or folded[u8(i)]:
                a[k], b[k], cell[k], heavy[k] = p, q, i, weight
                k += u8(1)
                if weight != 0.0:
                    off_grid[u8(2) * u8(i)] |= u1(is_off(p, dropped))
                    off_grid[u8(2) * u8(i) + u8(1)] |= u1(is_off(q, dropped))
                continue
            for look in range(4):
                low[m], high[m] = word(look, p, q), (u4(i) << u4(3)) | u4(look << 1)
                if weights.shape[0]:
                    weights[m] = weight
                m += u8(1)
        used[0] = i8(m)
        for look in range(4 if k else 0):
            for j in range(k):
                place[j] = bucket(look, a[j], b[j], bits)
            cells, weigh = cell[:0] if lone else cell, heavy if weighted else heavy[:0]
            emit(place, i8(0), i8(k), cells, weigh, shift, stride, bytes_, excess, codes, ws, waiting)
    return 0
