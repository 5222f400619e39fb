"""Append rows of two numbers to buffers: as exact codes if their cell (such as a slice) has few rows, else as pairs.

A row of a cell with few rows is stored as four codes, so that equal rows can be counted: the first number, the second
number, and two different hashes of both numbers. Module `statistics.joint` explains their use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from .exact_rows import encode_score
from .hashes import finalize_hash

u4, u8 = np.uint32, np.uint64

HALF = u8(0xFFFFFFFF)
# A salt that makes the second hash of a row different from the first.
OTHER = u8(0x9E3779B97F4A7C15)


@inline
def look_word(look: Any, a: Any, b: Any) -> Any:
    """Return the code with index `look` (0 to 3) of a row with the encoded numbers `a` and `b`.

    Codes 0 and 1 are the numbers themselves, and codes 2 and 3 are different hashes of both numbers.
    """
    if look == 0:
        return a
    if look == 1:
        return b
    if look == 2:
        a, b = a ^ OTHER, b ^ OTHER
    return (finalize_hash(a) & ~HALF) | (finalize_hash(b) >> u8(32))


@kernel(out=("high", "low", "weights", "used", "xs", "ys", "cells", "ws", "waiting"))
def buffer_pairs(
    x: Any, y: Any, w: Any, at: Any, folded: Any, high: Any, low: Any, weights: Any, used: Any,
    xs: Any, ys: Any, cells: Any, ws: Any, waiting: Any,
) -> Any:  # fmt: skip
    """Append valid rows of the numbers x and y to one of two buffers.

    `at` holds the cell (such as a slice) of each row. Rows of folded cells (cells that count in buckets) are appended
    as pairs of numbers to the buffer that consists of the arguments from `xs` to `waiting`. Rows of other cells are
    appended as exact codes to the buffer that consists of the arguments from `high` to `used`. An empty `folded` means
    that all cells are folded.
    """
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
        p, q = encode_score(x[j], True), encode_score(y[j], True)
        for look in range(4):
            low[m], high[m] = look_word(look, p, q), (i << u4(3)) | u4(look << 1)
            if weights.shape[0]:
                weights[m] = weight
            m += u8(1)
    used[0], waiting[0] = m, k
    return 0
