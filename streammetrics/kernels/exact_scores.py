"""Counting rows by exact score: sorted floats to runs, and sorted runs to one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel

f8, i8, u8 = np.float64, np.int64, np.uint64

FLIP = i8(0x7FFFFFFFFFFFFFFF)


@inline
def order_of(x: Any) -> Any:
    """Return an integer that orders as the float does; -0.0 is 0.0, and float32 what it is as float64."""
    bits = f8(f8(x) + 0.0).view(i8)
    return bits if bits >= i8(0) else bits ^ FLIP


@kernel(out=("negatives", "positives"))
def part_by_label(y: Any, s: Any, negatives: Any, positives: Any) -> Any:
    """Copy the scores of each label; return how many positives there are. Both outputs have room for all rows."""
    n, p = u8(0), u8(0)
    for j in range(s.shape[0]):
        negatives[n], positives[p] = s[j], s[j]  # written to both, kept in one: no branch to mispredict
        p += u8(y[j])
        n += u8(1) - u8(y[j])
    return i8(p)


@kernel(out=("scores", "rows"))
def count_sorted(negatives: Any, positives: Any, scores: Any, rows: Any) -> Any:
    """Count the sorted scores of both labels; return how many different ones there are. `rows` is flat: score, label."""
    i, j, n, two = u8(0), u8(0), u8(0), u8(2)
    last_i, last_j = u8(negatives.shape[0]), u8(positives.shape[0])
    end = FLIP
    a = order_of(negatives[i]) if i < last_i else end
    b = order_of(positives[j]) if j < last_j else end
    while i < last_i or j < last_j:
        here = min(a, b)
        first_i, first_j = i, j
        while i < last_i and a == here:
            i += u8(1)
            a = order_of(negatives[i]) if i < last_i else end
        while j < last_j and b == here:
            j += u8(1)
            b = order_of(positives[j]) if j < last_j else end
        scores[n] = here
        rows[two * n], rows[two * n + u8(1)] = i8(i - first_i), i8(j - first_j)
        n += u8(1)
    return i8(n)


@kernel(out=("scores", "rows"))
def merge_runs(a: Any, rows_a: Any, b: Any, rows_b: Any, scores: Any, rows: Any) -> Any:
    """Merge two sorted sets of scores, adding their rows; return how many different ones there are."""
    i, j, n = u8(0), u8(0), u8(0)
    last_a, last_b = u8(a.shape[0]), u8(b.shape[0])
    two = u8(2)
    while i < last_a and j < last_b:
        x, y = a[i], b[j]
        from_a, from_b = i8(x <= y), i8(y <= x)
        scores[n] = min(x, y)
        rows[two * n] = from_a * rows_a[two * i] + from_b * rows_b[two * j]
        rows[two * n + u8(1)] = from_a * rows_a[two * i + u8(1)] + from_b * rows_b[two * j + u8(1)]
        i += u8(from_a)
        j += u8(from_b)
        n += u8(1)
    while i < last_a:
        scores[n], rows[two * n], rows[two * n + u8(1)] = a[i], rows_a[two * i], rows_a[two * i + u8(1)]
        i += u8(1)
        n += u8(1)
    while j < last_b:
        scores[n], rows[two * n], rows[two * n + u8(1)] = b[j], rows_b[two * j], rows_b[two * j + u8(1)]
        j += u8(1)
        n += u8(1)
    return i8(n)
