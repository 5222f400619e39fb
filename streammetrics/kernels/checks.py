"""Column checks for kernels that do not check values while they count. Each check returns 1 if a value is invalid.

Weight checks also compute the total weight. A column may have two dimensions, with several values per row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import flatten, prefetch
from .exact_sums import are_all_from, largest_exponent_in_range
from .score_terms import count_positives, has_bad_score, may_be_bad, score_extremes, split_limbs

f8, i8 = np.float64, np.int64

# Checking a row takes less time than loading it from memory, so rows are prefetched this many rows ahead.
BLOCK = 1024
LONG = 512
# A valid weight is 0, or at least SMALLEST and below LARGEST.
SMALLEST, LARGEST = 2.0**-36, 2.0**31
# A float64 of WHOLE (2**-8) or more has no bits below 1 / UNIT (2**-60), so a fixed-point sum does not round it.
WHOLE, UNIT = 2.0**-8, 2.0**60
# The total weight must be below this bound, so that fixed-point sums do not overflow.
MOST = 2.0**42


@inline
def has_bad_pair(y: Any, s: Any) -> Any:
    """Return whether any label is neither 0 nor 1, or any score is not a probability."""
    if count_positives(y)[1]:
        return True
    return s.shape[0] > 0 and may_be_bad(score_extremes(s)[1]) and has_bad_score(False, s)


@inline
def has_bad_weight(mass: Any, w: Any) -> Any:
    """Return whether any weight is out of range or the total weight is so large that sums could overflow.

    If the weights are valid, add them to the total weight in mass[0]. If a weight may have bits below 2**-60, which the
    sums would round away, also set mass[1] to 1.
    """
    # Compare the bits of weights and bounds as integers. The sign bit of the difference shows which of the two is
    # larger, so the loop needs no branches. Sum integers within a block, because each addition to a float sum would
    # have to wait for the previous one.
    wrong, small, total = i8(0), i8(0), mass[0]
    least, most, exact = f8(SMALLEST).view(i8), f8(LARGEST).view(i8) - i8(1), f8(WHOLE).view(i8)
    for a in range(0, w.shape[0], LONG):
        ww, units = w[a : a + LONG], i8(0)
        prefetch(w, a + BLOCK, LONG)
        for j in range(ww.shape[0]):
            bits = f8(ww[j] + 0.0).view(i8)  # adding 0.0 turns -0.0 into 0.0
            # The sign bit of `is_nonzero` is set if the weight is positive. A weight of 0 is valid, although it is
            # below SMALLEST. A negative weight has its own sign bit set.
            is_nonzero = ~(bits - i8(1))
            wrong |= bits | (((bits - least) | (most - bits)) & is_nonzero)
            small |= (bits - exact) & is_nonzero
            units += split_limbs(ww[j])[0] + i8(1)
        total += f8(units) * 2.0**-20
    if wrong < 0 or total >= MOST:
        return True
    mass[0] = total
    if small < 0:
        mass[1] = 1.0
    return False


@kernel(out=())
def find_bad_label(y: Any) -> Any:
    """Return 1 if any label is neither 0 nor 1, else 0."""
    flat, bad = flatten(y), False
    for a in range(0, flat.shape[0], BLOCK):
        prefetch(flat, a + BLOCK, BLOCK)
        bad |= count_positives(flat[a : a + BLOCK])[1]
    return i8(bad)


@kernel(out=())
def find_bad_probability(s: Any) -> Any:
    """Return 1 if any score is not a probability, else 0."""
    flat, bad = flatten(s), False
    for a in range(0, flat.shape[0], BLOCK):
        prefetch(flat, a + BLOCK, BLOCK)
        ss = flat[a : a + BLOCK]
        bad |= may_be_bad(score_extremes(ss)[1]) and has_bad_score(False, ss)
    return i8(bad)


@kernel(out=())
def find_nonfinite(s: Any) -> Any:
    """Return 1 if any score is infinite or NaN, else 0."""
    flat, bad = flatten(s), False
    for a in range(0, flat.shape[0], BLOCK):
        prefetch(flat, a + BLOCK, BLOCK)
        bad |= has_bad_score(True, flat[a : a + BLOCK])
    return i8(bad)


@kernel(out=())
def find_bad_pair(y: Any, s: Any) -> Any:
    """Return 1 if any label is neither 0 nor 1, or any score is not a probability, else 0."""
    return i8(has_bad_pair(flatten(y), flatten(s)))


@kernel(out=("mass",))
def find_bad_weight(w: Any, mass: Any) -> Any:
    """Return 1 if a weight is invalid. Otherwise, add the weights to the total weight `mass[0]` and return 0."""
    return i8(has_bad_weight(mass, w))


@kernel(out=("mass",))
def find_bad_weighted_pair(y: Any, s: Any, w: Any, mass: Any) -> Any:
    """Return 1 if a label, probability or weight is invalid.

    Otherwise, add the weights to the total weight `mass[0]` and return 0.
    """
    return i8(has_bad_pair(flatten(y), flatten(s)) or has_bad_weight(mass, w))


@kernel(out=("flags",))
def mark_rounded_weights(w: Any, at: Any, terms: Any, mass: Any, flags: Any) -> Any:
    """Set a flag for each cell with a weight that is not a multiple of 2**-60, because sums round such a weight.

    `at` contains the cell (such as a slice) of each row; if it is empty, there is one cell. If `terms` is true,
    products w * x of a weight and a term are also summed. In that case, the flag is set for any weight below 2**-8,
    because rounding w * x to a multiple of 2**-60 loses more bits than rounding it to float64. If mass[1] is 0,
    `has_bad_weight` found no weight below 2**-8, and no flag is set: every float64 of at least 2**-8 is a multiple of
    2**-60.
    """
    is_lone = at.shape[0] == 0
    if mass[1] == 0.0 or (is_lone and flags[0]):
        return 0
    for j in range(w.shape[0]):
        scaled = w[j] * UNIT
        if 0.0 < w[j] < WHOLE and (terms or f8(i8(scaled)) != scaled):
            flags[0 if is_lone else at[j]] = 1
    return 0


@kernel(out=())
def find_bad_number(v: Any, smallest: Any, largest: Any, low: Any, above: Any) -> Any:
    """Return 1 if a number is invalid, else 0.

    A valid number is at least `low` or, if `above` is true, greater than `low`. Its absolute value is 0 or lies between
    `smallest` and `largest` (both inclusive).
    """
    flat, bad = flatten(v), False
    for a in range(0, flat.shape[0], BLOCK):
        prefetch(flat, a + BLOCK, BLOCK)
        vv = flat[a : a + BLOCK]
        bad |= largest_exponent_in_range(vv, smallest, largest) < 0 or not are_all_from(vv, low, above)
    return i8(bad)
