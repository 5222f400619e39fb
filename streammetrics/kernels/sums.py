"""Exact sums over scored rows: rows and weight by label, and the terms behind log-loss, Brier score and calibration.

A term is computed once per row in float64, in loops that vectorise, and added as integers: a fixed number of 2**-60 (see
module `exact`), by adding a magic number and reading the bits. Integer sums do not depend on order. A term of 2**31 or
more (a heavy weight, a wild logit) goes to a superaccumulator instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import by_dtype, inline, outline
from ._memory import fetch
from .elementary import log_parts, minus_log, sigmoid, softplus

f4, f8, i4, i8, u1, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32, np.uint64

PART = 448  # rows that are computed at a time
BLOCK = 3 * PART  # and checked, and summed
AHEAD = 5 * PART  # how far ahead of them rows are fetched
SCORE, LOG_LOSS, BRIER = 0, 1, 2
MOST, LIMBS = 3, 6  # terms at a time, and words of their sums
LARGE = 2.0**31  # terms from here on leave the fixed-point range

HIGH, LOW = 1.5 * 2.0**32, 1.5 * 2.0**-8  # adding them rounds to 2**-20 and 2**-60
HIGH_BITS, LOW_BITS = i8(0x41F8000000000000), i8(0x3F78000000000000)
LOW_MASK = i8((1 << 40) - 1)


def _bits4(z: Any) -> Any:
    return f4(z).view(u4)


def _bits8(z: Any) -> Any:
    return f8(z).view(u8)


def _number4(z: Any) -> Any:
    return u4(z).view(f4)


def _number8(z: Any) -> Any:
    return u8(z).view(f8)


bits = by_dtype(float32=_bits4, float64=_bits8)
"""The bits of a score: in the order of the scores from 0 to 1, and greater for all other numbers, -0.0 included."""

number = by_dtype(float32=_number4, float64=_number8)


def _coarse4(z: Any) -> Any:
    return z >= f4(2.0**-29)


def _coarse8(z: Any) -> Any:
    return False


coarse = by_dtype(float32=_coarse4, float64=_coarse8)
"""Whether scores up to 1, of which this is the least, are multiples of 2**-52: of 24 bits, and none tiny."""


@inline
def split(v: Any) -> Any:
    """Return v as high * 2**-20 + low * 2**-60, for |v| < 2**31."""
    t = v + HIGH
    rest = v - (t - HIGH)
    return f8(t).view(i8) - HIGH_BITS, f8(rest + LOW).view(i8) - LOW_BITS


@inline
def add_fixed(numbers: Any, at: Any, high: Any, low: Any) -> None:
    """Add to one fixed number of a flat array, kept canonical."""
    low += numbers[at + u8(1)]
    numbers[at] += high + (low >> i8(40))
    numbers[at + u8(1)] = low & LOW_MASK


@inline
def chance(y: Any, s: Any) -> Any:
    """Return the probability of what has happened."""
    p = f8(s)
    return p if y else f8(1) - p


@inline
def clipped_row(eps: Any, y: Any, s: Any) -> Any:
    """Return 1 for a row whose chance is not within [eps, 1 - eps], else 0."""
    q = chance(y, s)
    return i8((q < eps) | (q > 1.0 - eps))


@inline
def may_clip(eps: Any, least: Any, most: Any) -> Any:
    """Whether a row of a block with these extremes could be clipped: its chance is monotonic in its score."""
    hits = i8(0)
    for y in range(2):
        hits += clipped_row(eps, y, least) + clipped_row(eps, y, most)
    return hits > 0


@outline
def fill_probabilities(term: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term of some probabilities; `k` and `f` are scratch. `clip` is False if no chance has to be clipped."""
    n = s.shape[0]
    if term == LOG_LOSS:
        top = 1.0 - eps
        for j in range(n if clip else 0):
            q = chance(y[j], s[j])
            q = q if q > eps else eps
            k[j], f[j], out[j] = log_parts(q if q < top else top)
        for j in range(0 if clip else n):
            k[j], f[j], out[j] = log_parts(chance(y[j], s[j]))
        for j in range(n):
            out[j] = minus_log(k[j], f[j], out[j])
    else:
        for j in range(n):
            out[j] = f8(s[j])
        if term == BRIER:
            square_errors(y, out)


@outline
def fill_logits(term: Any, y: Any, s: Any, out: Any) -> None:
    """Write one term of some logits."""
    n = s.shape[0]
    if term == LOG_LOSS:
        for j in range(n):
            z = f8(s[j])
            out[j] = softplus(-z if y[j] else z)
    else:
        for j in range(n):
            out[j] = sigmoid(f8(s[j]))
        if term == BRIER:
            square_errors(y, out)


@outline
def square_errors(y: Any, out: Any) -> None:
    """Replace predictions by their squared errors."""
    for j in range(out.shape[0]):
        d = out[j] - f8(i4(y[j]))
        out[j] = d * d


@inline
def fill_part(term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term of some rows; `k` and `f` are scratch."""
    if logit:
        fill_logits(term, y, s, out)
    else:
        fill_probabilities(term, eps, clip, y, s, k, f, out)


@outline
def fill(term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term of every row of a block, and ask for as many that come later."""
    for b in range(0, s.shape[0], PART):
        part = slice(b, min(b + PART, s.shape[0]))
        fetch(y, b + AHEAD, PART)
        fetch(s, b + AHEAD, PART)
        fill_part(term, logit, eps, clip, y[part], s[part], k, f, out[part])


@outline
def survey(y: Any) -> Any:
    """Return the sum of a block of labels, and whether one is not 0 or 1."""
    total, most = i4(0), u1(0)
    for j in range(y.shape[0]):
        total += i4(y[j])
        most = max(most, y[j])
    return total, most > 1


@outline
def extremes(s: Any) -> Any:
    """Return the first and the last of a block of scores in the order of their bits.

    Read as unsigned integers, the bits of the numbers from 0 to 1 are in their order, and before those of all others:
    larger ones, infinity, NaN, and whatever has a minus sign, first of all -0.0.
    """
    least = most = bits(s[0])
    for j in range(s.shape[0]):
        least, most = min(least, bits(s[j])), max(most, bits(s[j]))
    return number(least), number(most)


@inline
def suspect(most: Any) -> Any:
    """Whether there may be a bad score among those of which this is the last by its bits: -0.0 is good, but hides 1.5."""
    return not (0 < most <= 1)


@outline
def bad_scores(logit: Any, s: Any) -> Any:
    """Whether a score is not finite, or not a probability."""
    bad = i4(0)
    if logit:
        for j in range(s.shape[0]):
            bad |= i4(not (abs(s[j]) < np.inf))
    else:
        for j in range(s.shape[0]):
            bad |= i4(not (s[j] >= 0)) | i4(not (s[j] <= 1))
    return bad != 0


@outline
def bad_values(logit: Any, y: Any, s: Any) -> Any:
    """Whether a label or score is not what it should be."""
    if survey(y)[1]:
        return True
    if logit or s.shape[0] == 0:
        return bad_scores(logit, s)
    return suspect(extremes(s)[1]) and bad_scores(False, s)
