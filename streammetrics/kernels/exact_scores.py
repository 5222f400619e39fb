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
    """Count the sorted scores of both labels; return how many different ones there are. `rows` is flat: score, label.

    Positives are few in most logs: the negatives up to each are counted in a loop that seldom mispredicts.
    """
    i, n, neg, pos, two = u8(0), u8(0), i8(0), i8(0), u8(2)
    last_i, last_j = u8(negatives.shape[0]), u8(positives.shape[0])
    held = f8(np.nan)  # the score counted at n - 1
    for j in range(last_j + u8(1)):
        ends = u8(j) == last_j
        y = f8(np.inf) if ends else f8(positives[j])
        while i < last_i and f8(negatives[i]) <= y:
            x = f8(negatives[i])
            fresh = x != held
            n += u8(fresh)
            neg = i8(1) if fresh else neg + i8(1)
            pos = i8(0) if fresh else pos
            scores[n - u8(1)] = order_of(x)
            rows[two * n - two], rows[two * n - u8(1)] = neg, pos
            held = x
            i += u8(1)
        if not ends:
            fresh = y != held
            n += u8(fresh)
            neg = i8(0) if fresh else neg
            pos = i8(1) if fresh else pos + i8(1)
            scores[n - u8(1)] = order_of(y)
            rows[two * n - two], rows[two * n - u8(1)] = neg, pos
            held = y
    return i8(n)


@kernel(out=("found",))
def count_pairs(rows: Any, found: Any) -> Any:
    """Write how many negatives and positives there are, twice the pairs that positives win (ties half), and the ties.

    `rows` is flat: score, label; up to 2**31 rows in all.
    """
    negatives, positives, twice, ties = i8(0), i8(0), i8(0), i8(0)
    for i in range(rows.shape[0] // 2):
        n, p = rows[u8(2) * u8(i)], rows[u8(2) * u8(i) + u8(1)]
        twice += p * (i8(2) * negatives + n)
        ties += p * n
        negatives += n
        positives += p
    found[0], found[1], found[2], found[3] = negatives, positives, twice, ties
    return rows.shape[0]


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
