"""Rows of two numbers: as words that tell them exactly while a cell has few, else as numbers that wait for their buckets.

An exact row goes to four places of a tally, one behind the other: of the first number, of the second, and twice of both,
by two hashes of each. `statistics.joint` says what that is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from .exact_rows import key_of
from .hashes import finish

u4, u8 = np.uint32, np.uint64

HALF = u8(0xFFFFFFFF)
OTHER = u8(0x9E3779B97F4A7C15)  # makes the second hash another one


@inline
def word(look: Any, a: Any, b: Any) -> Any:
    """Return the exact place of a row by one look, of the keys of its numbers."""
    if look == 0:
        return a
    if look == 1:
        return b
    if look == 2:
        a, b = a ^ OTHER, b ^ OTHER
    return (finish(a) & ~HALF) | (finish(b) >> u8(32))


@kernel(out=("high", "low", "weights", "used", "xs", "ys", "cells", "ws", "waiting"))
def count_pairs(
    x: Any, y: Any, w: Any, at: Any, folded: Any, high: Any, low: Any, weights: Any, used: Any,
    xs: Any, ys: Any, cells: Any, ws: Any, waiting: Any,
) -> Any:  # fmt: skip
    """Append good rows to the buffers, of folded cells as numbers, of others as words. `folded` is empty if all are."""
    lone, weighted, all_folded = at.shape[0] == 0, w.shape[0] != 0, folded.shape[0] == 0
    m, k = u8(used[0]), u8(waiting[0])
    for j in range(x.shape[0]):
        i, weight = u4(0) if lone else u4(at[j]), w[j] if weighted else 1.0
        if all_folded or folded[u8(i)]:
            xs[k], ys[k], cells[k] = x[j] + 0.0, y[j] + 0.0, i
            if ws.shape[0]:
                ws[k] = weight
            k += u8(1)
            continue
        p, q = key_of(x[j], True), key_of(y[j], True)
        for look in range(4):
            low[m], high[m] = word(look, p, q), (i << u4(3)) | u4(look << 1)
            if weights.shape[0]:
                weights[m] = weight
            m += u8(1)
    used[0], waiting[0] = m, k
    return 0
