"""Count rows by true label and predicted label (a confusion matrix), at one or more thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel, outline
from .multilabel import slice_label, slice_label_weights
from .score_terms import add_fixed, has_bad_value, split_limbs

i8, u4, u8 = np.int64, np.uint32, np.uint64

BLOCK = 2048


@outline
def add_decisions(y: Any, s: Any, w: Any, at: Any, thresholds: Any, counts: Any, excess: Any) -> Any:
    """Count rows by cell, threshold, label and decision. See `count_decisions` for the parameters."""
    n, n_thresholds, lone = s.shape[0], thresholds.shape[0], at.shape[0] == 0
    if (
        lone and w.shape[0] == 0 and has_bad_value(True, y, s)
    ):  # the argument True allows any finite score, as for logits
        return 1
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        yy, ss = y[a : a + m], s[a : a + m]
        for t in range(n_thresholds):
            threshold = thresholds[t]
            if lone:
                # Separate 32-bit counters for each block allow the compiler to vectorize the loop. Three sums determine
                # the four counts in a confusion matrix.
                positive, decided, both = u4(0), u4(0), u4(0)
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
                high, low = split_limbs(w[a + j])
                add_fixed(excess, u8(2) * cell, high - i8(1 << 20), low)
    return 0


@kernel(out=("counts", "excess"))
def count_decisions(y: Any, s: Any, w: Any, at: Any, thresholds: Any, counts: Any, excess: Any) -> Any:
    """Count rows by cell, threshold, label and decision. A decision is positive if s >= threshold.

    `counts` is a flat array with four counters for each cell (such as a slice) and threshold. `excess` holds the sum of
    w - 1 (weight minus 1) for each counter. `at` holds the cell of each row. Without weights, `w` is empty; with one
    cell, `at` is empty. In the case of one cell and no weights, rows are also checked: if a label or score is invalid,
    return 1 and count nothing.
    """
    return add_decisions(y, s, w, at, thresholds, counts, excess)


@kernel(out=("counts", "excess"))
def count_decisions_multilabel(
    width: Any, y: Any, s: Any, w: Any, at: Any, thresholds: Any, counts: Any, excess: Any
) -> Any:
    """Count rows like `count_decisions`, separately for each of the `width` labels of a multilabel task."""
    for i in range(width):
        yy, ss = slice_label(y, i, width), slice_label(s, i, width)
        add_decisions(
            yy,
            ss,
            slice_label_weights(w, i, yy.shape[0]),
            at,
            thresholds,
            slice_label(counts, i, width),
            slice_label(excess, i, width),
        )
    return 0
