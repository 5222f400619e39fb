"""Counts of rows by true and predicted class."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .classes import highest
from .sums import add_fixed, split

i4, i8, u8 = np.int32, np.int64, np.uint64

BLOCK = 64  # rows


@inline
def bad_classes(t: Any, top: Any) -> Any:
    """Whether a class is none of 0 to `top` - 1."""
    bad = i4(0)
    for j in range(t.shape[0]):
        bad |= i4(u8(t[j]) >= top)
    return bad != 0


@kernel(out=())
def classes(t: Any, width: Any) -> Any:
    """Find a class that is none of 0 to `width` - 1."""
    return i8(bad_classes(t.reshape(-1), u8(width)))


@kernel(out=("counts", "excess"))
def count_pairs(t: Any, p: Any, w: Any, at: Any, width: Any, counts: Any, excess: Any) -> Any:
    """Count rows by true and predicted class; one cell checks them, and returns 1, all as it was, on a bad one.

    `counts` is cells x width x width, flat; `excess` the sum of w - 1 of each.
    """
    n, lone, top = t.shape[0], at.shape[0] == 0, u8(width)
    if lone:
        if bad_classes(t, top) or bad_classes(p, top):  # passes of their own: they vectorise, and nothing is taken back
            return 1
        for j in range(n):
            counts[u8(t[j]) * top + u8(p[j])] += 1
    for j in range(0 if lone else n):
        counts[(u8(at[j]) * top + u8(t[j])) * top + u8(p[j])] += 1
    for j in range(w.shape[0]):
        place = ((u8(0) if lone else u8(at[j])) * top + u8(t[j])) * top + u8(p[j])
        high, low = split(w[j])
        add_fixed(excess, u8(2) * place, high - i8(1 << 20), low)
    return 0


@kernel(out=("counts", "excess"))
def count_highest(t: Any, s: Any, w: Any, at: Any, width: Any, counts: Any, excess: Any) -> Any:
    """Do that where the class with the highest score, the first of several, is predicted.

    Long rows of scores are read once: they are checked while the highest is looked for, and what was counted before a bad
    one is taken back.
    """
    lone, top = at.shape[0] == 0, u8(width)
    if lone and bad_classes(t, top):
        return 1
    best, bad = scratch(BLOCK, i8), i8(0)
    for a in range(0, t.shape[0], BLOCK):
        tt, ss = t[a : a + BLOCK], s[a : a + BLOCK]
        for j in range(tt.shape[0]):
            best[j] = highest(ss[j])
            bad |= best[j]
        if bad < 0:
            for j in range(a):
                counts[u8(t[j]) * top + u8(highest(s[j]))] -= 1
            return 1
        for j in range(tt.shape[0]):  # apart: the counts of many classes are waited for together
            place = ((u8(0) if lone else u8(at[a + j])) * top + u8(tt[j])) * top + u8(best[j])
            counts[place] += 1
            if w.shape[0]:
                high, low = split(w[a + j])
                add_fixed(excess, u8(2) * place, high - i8(1 << 20), low)
    return 0


@kernel(out=("counts", "excess"))
def count_cells(at: Any, w: Any, counts: Any, excess: Any) -> Any:
    """Count rows by cell alone."""
    for j in range(at.shape[0]):
        counts[u8(at[j])] += 1
    for j in range(w.shape[0]):
        high, low = split(w[j])
        add_fixed(excess, u8(2) * u8(at[j]), high - i8(1 << 20), low)
    return 0
