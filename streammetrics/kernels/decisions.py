"""Counting decisions: true label by predicted label, at one or more thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel, outline
from .each import each, each_weights
from .sums import add_fixed, bad_values, split

i8, u4, u8 = np.int64, np.uint32, np.uint64

BLOCK = 2048


@outline
def add(y: Any, s: Any, w: Any, at: Any, thresholds: Any, counts: Any, excess: Any) -> Any:
    """Do what `count` does."""
    n, n_thresholds, lone = s.shape[0], thresholds.shape[0], at.shape[0] == 0
    if lone and w.shape[0] == 0 and bad_values(True, y, s):  # as of logits: any finite score
        return 1
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        yy, ss = y[a : a + m], s[a : a + m]
        for t in range(n_thresholds):
            threshold = thresholds[t]
            if lone:
                positive, decided, both = u4(0), u4(0), u4(0)  # 32-bit counts of a block vectorise
                for j in range(m):
                    d, p = u4(ss[j] >= threshold), u4(yy[j])
                    positive += p
                    decided += d
                    both += d & p
                cell = u8(4) * u8(t)
                counts[cell] += i8(m) + i8(both) - i8(positive) - i8(decided)
                counts[cell + u8(1)] += i8(decided) - i8(both)
                counts[cell + u8(2)] += i8(positive) - i8(both)
                counts[cell + u8(3)] += i8(both)
            else:
                for j in range(m):
                    cell = (u8(at[a + j]) * u8(n_thresholds) + u8(t)) * u8(4)
                    counts[cell + u8(2) * u8(yy[j]) + u8(ss[j] >= threshold)] += 1
            for j in range(m if w.shape[0] else 0):
                place = u8(0) if lone else u8(at[a + j])
                cell = (place * u8(n_thresholds) + u8(t)) * u8(4) + u8(2) * u8(yy[j]) + u8(ss[j] >= threshold)
                high, low = split(w[a + j])
                add_fixed(excess, u8(2) * cell, high - i8(1 << 20), low)
    return 0


@kernel(out=("counts", "excess"))
def count(y: Any, s: Any, w: Any, at: Any, thresholds: Any, counts: Any, excess: Any) -> Any:
    """Count rows by cell, threshold, label and s >= threshold.

    Arrays are flat. `w` and `at` are empty for no weights and a lone cell; which without weights is checked here: 1, and
    nothing counted, if a value is bad.
    """
    return add(y, s, w, at, thresholds, counts, excess)


@kernel(out=("counts", "excess"))
def each_count(width: Any, y: Any, s: Any, w: Any, at: Any, thresholds: Any, counts: Any, excess: Any) -> Any:
    """Count rows of one label after the other (see `kernels.each`)."""
    for i in range(width):
        yy, ss = each(y, i, width), each(s, i, width)
        add(yy, ss, each_weights(w, i, yy.shape[0]), at, thresholds, each(counts, i, width), each(excess, i, width))
    return 0
