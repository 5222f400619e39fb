"""Count rows by true and predicted class (a confusion matrix)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import flatten, scratch
from .classes import find_highest
from .score_terms import add_fixed, split_limbs

i4, i8, u8 = np.int32, np.int64, np.uint64

# The number of rows in a block. The class with the highest score is found for all rows in a block before they are
# counted.
BLOCK = 64


@inline
def has_bad_class(t: Any, top: Any) -> Any:
    """Return whether any class is not between 0 and `top` - 1."""
    bad = i4(0)
    for j in range(t.shape[0]):
        bad |= i4(u8(t[j]) >= top)
    return bad != 0


@kernel(out=())
def find_bad_class(t: Any, width: Any) -> Any:
    """Return 1 if any class is not between 0 and `width` - 1, else 0."""
    return i8(has_bad_class(flatten(t), u8(width)))


@kernel(out=("counts", "excess"))
def count_class_pairs(t: Any, p: Any, w: Any, at: Any, width: Any, counts: Any, excess: Any) -> Any:
    """Count rows by true and predicted class.

    For each row, `t` holds the true class, `p` the predicted class and `at` the cell (such as a slice). There are
    `width` classes. If `at` is empty, there is one cell, and classes are checked first: if a class is invalid, return 1
    and count nothing. `counts` is a flat array of counts by cell, true class and predicted class. For each count,
    `excess` holds the sum of w - 1, where w is the weight of a row.
    """
    n, lone, top = t.shape[0], at.shape[0] == 0, u8(width)
    if lone:
        # Check all classes before counting, so that the check loops vectorize and no counts have to be undone.
        if has_bad_class(t, top) or has_bad_class(p, top):
            return 1
        for j in range(n):
            counts[u8(t[j]) * top + u8(p[j])] += 1
    for j in range(0 if lone else n):
        counts[(u8(at[j]) * top + u8(t[j])) * top + u8(p[j])] += 1
    for j in range(w.shape[0]):
        place = ((u8(0) if lone else u8(at[j])) * top + u8(t[j])) * top + u8(p[j])
        high, low = split_limbs(w[j])
        add_fixed(excess, u8(2) * place, high - i8(1 << 20), low)
    return 0


@kernel(out=("counts", "excess"))
def count_top_classes(t: Any, s: Any, w: Any, at: Any, width: Any, counts: Any, excess: Any) -> Any:
    """Count rows by true and predicted class, like `count_class_pairs`, given the score of every class.

    A row of `s` holds the score of each class. The predicted class is the class with the highest score (the first one
    in a tie). Scores are checked during the search for the highest score, so they are read only once. If a score is
    invalid, undo the counts of earlier blocks and return 1.
    """
    lone, top = at.shape[0] == 0, u8(width)
    if lone and has_bad_class(t, top):
        return 1
    best, bad = scratch(BLOCK, i8), i8(0)
    for a in range(0, t.shape[0], BLOCK):
        tt, ss = t[a : a + BLOCK], s[a : a + BLOCK]
        for j in range(tt.shape[0]):
            best[j] = find_highest(ss[j])
            bad |= best[j]
        if bad < 0:
            for j in range(a):
                counts[u8(t[j]) * top + u8(find_highest(s[j]))] -= 1
            return 1
        # Count in a separate loop. If there are many classes, the counters are not in the cache, and a short loop
        # allows the processor to load several of them at the same time.
        for j in range(tt.shape[0]):
            place = ((u8(0) if lone else u8(at[a + j])) * top + u8(tt[j])) * top + u8(best[j])
            counts[place] += 1
            if w.shape[0]:
                high, low = split_limbs(w[a + j])
                add_fixed(excess, u8(2) * place, high - i8(1 << 20), low)
    return 0


@kernel(out=("counts", "excess"))
def count_cells(at: Any, w: Any, counts: Any, excess: Any) -> Any:
    """Count the rows in each cell (such as a slice), and add each row's weight minus 1 to the `excess` of its cell."""
    for j in range(at.shape[0]):
        counts[u8(at[j])] += 1
    for j in range(w.shape[0]):
        high, low = split_limbs(w[j])
        add_fixed(excess, u8(2) * u8(at[j]), high - i8(1 << 20), low)
    return 0
