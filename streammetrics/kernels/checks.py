"""Checks of columns that nothing else checks: each returns 1 if a value is bad, and keeps nothing but the total weight.

A row may have several values, side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import fetch
from .exact_sums import largest_within, reach
from .sums import bad_scores, extremes, split, survey, suspect

f8, i8 = np.float64, np.int64

BLOCK = 1024  # rows that are checked while those behind them are fetched: a check is soon done, and waits for memory
LONG = 512
SMALLEST, LARGEST = 2.0**-36, 2.0**31  # weights other than 0
WHOLE, UNIT = 2.0**-8, 2.0**60  # weights from there on have no bits below 2**-60
MOST = 2.0**42  # total weight of a fixed-point sum


@inline
def bad_pair(y: Any, s: Any) -> Any:
    """Whether a label is not 0 or 1, or a score no probability."""
    if survey(y)[1]:
        return True
    return s.shape[0] > 0 and suspect(extremes(s)[1]) and bad_scores(False, s)


@inline
def bad_weights(mass: Any, w: Any) -> Any:
    """Whether a weight is out of range, or the total could leave that of the sums; else keep the total.

    Beside it whether any weight so far may have had bits below 2**-60: from 2**-8 on none has.

    Totals are integers within a block: a sum of floats waits for the one before, four cycles a row. Weights are compared
    as the integers that their bits are; what is wrong shows in the sign of a difference.
    """
    wrong, small, total = i8(0), i8(0), mass[0]
    least, most, exact = f8(SMALLEST).view(i8), f8(LARGEST).view(i8) - i8(1), f8(WHOLE).view(i8)
    for a in range(0, w.shape[0], LONG):
        ww, units = w[a : a + LONG], i8(0)
        fetch(w, a + BLOCK, LONG)
        for j in range(ww.shape[0]):
            bits = f8(ww[j] + 0.0).view(i8)  # of -0.0 those of 0
            some = ~(bits - i8(1))  # not negative for 0, which is no weight to look at
            wrong |= bits | (((bits - least) | (most - bits)) & some)
            small |= (bits - exact) & some
            units += split(ww[j])[0] + i8(1)
        total += f8(units) * 2.0**-20
    if wrong < 0 or total >= MOST:
        return True
    mass[0] = total
    if small < 0:
        mass[1] = 1.0
    return False


@kernel(out=())
def labels(y: Any) -> Any:
    """Find a label that is not 0 or 1."""
    flat, bad = y.reshape(-1), False
    for a in range(0, flat.shape[0], BLOCK):
        fetch(flat, a + BLOCK, BLOCK)
        bad |= survey(flat[a : a + BLOCK])[1]
    return i8(bad)


@kernel(out=())
def probabilities(s: Any) -> Any:
    """Find a score that is no probability."""
    flat, bad = s.reshape(-1), False
    for a in range(0, flat.shape[0], BLOCK):
        fetch(flat, a + BLOCK, BLOCK)
        ss = flat[a : a + BLOCK]
        bad |= suspect(extremes(ss)[1]) and bad_scores(False, ss)
    return i8(bad)


@kernel(out=())
def finite(s: Any) -> Any:
    """Find a score that is not finite."""
    flat, bad = s.reshape(-1), False
    for a in range(0, flat.shape[0], BLOCK):
        fetch(flat, a + BLOCK, BLOCK)
        bad |= bad_scores(True, flat[a : a + BLOCK])
    return i8(bad)


@kernel(out=())
def pairs(y: Any, s: Any) -> Any:
    """Find a bad label or probability."""
    return i8(bad_pair(y.reshape(-1), s.reshape(-1)))


@kernel(out=("mass",))
def weights(w: Any, mass: Any) -> Any:
    """Find a bad weight; or keep the total."""
    return i8(bad_weights(mass, w))


@kernel(out=("mass",))
def weighted_pairs(y: Any, s: Any, w: Any, mass: Any) -> Any:
    """Find a bad label, probability or weight; or keep the total."""
    return i8(bad_pair(y.reshape(-1), s.reshape(-1)) or bad_weights(mass, w))


@kernel(out=("rounded",))
def note_rounding(w: Any, at: Any, terms: Any, mass: Any, rounded: Any) -> Any:
    """Note whether a weight is no multiple of 2**-60, for its front cell (`at` is empty for a lone state).

    With `terms`, sums of w x, any small weight is noted: of w x more bits are lost than a float64 would lose.
    """
    lone = at.shape[0] == 0
    if mass[1] == 0.0 or (lone and rounded[0]):
        return 0
    for j in range(w.shape[0]):
        scaled = w[j] * UNIT
        if 0.0 < w[j] < WHOLE and (terms or f8(i8(scaled)) != scaled):
            rounded[0 if lone else at[j]] = 1
    return 0


@kernel(out=())
def numbers(v: Any, smallest: Any, largest: Any, low: Any, above: Any) -> Any:
    """Find a number whose size is neither 0 nor in range, or that is not at least `low` (or above it)."""
    flat, bad = v.reshape(-1), False
    for a in range(0, flat.shape[0], BLOCK):
        fetch(flat, a + BLOCK, BLOCK)
        vv = flat[a : a + BLOCK]
        bad |= largest_within(vv, smallest, largest) < 0 or not reach(vv, low, above)
    return i8(bad)
