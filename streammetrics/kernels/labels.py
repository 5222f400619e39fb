"""Counting decisions: true label by predicted label, at one or more thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel
from .sums import add_fixed, bad_values, split

i8, u4, u8 = np.int64, np.uint32, np.uint64

BLOCK = 2048


@kernel(out=("counts", "excess"))
def count_decisions(y: Any, s: Any, w: Any, at: Any, thresholds: Any, counts: Any, excess: Any) -> Any:
    """Count rows by slice, threshold, label and s >= threshold; return False if a value is bad (nothing was counted).

    Arrays are flat. `w` and `at` are empty for no weights and a lone state, which alone is checked here.
    """
    n, n_thresholds, lone = s.shape[0], thresholds.shape[0], at.shape[0] == 0
    if lone and bad_values(True, y, s):  # as of logits: any finite score
        return False
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
    return True
