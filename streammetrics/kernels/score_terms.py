"""Compute terms of rows (score, log-loss, squared error), check scores, and add numbers to fixed-point sums.

A term is computed once per row in float64, in loops that vectorize. It is added to a sum as a multiple of 2**-60,
stored as two integers ("limbs"): high * 2**-20 + low * 2**-60. To convert a float to a limb, a large constant (a "magic
number") is added to it: the sum is rounded so that its low bits are the limb. Integer sums do not depend on the
order of rows. A term of 2**31 or more, such as that of an extreme logit or a large weight, is added to an exact sum of
unlimited range (see `exact_sums`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import choose_by_dtype, inline, outline
from ._memory import add_limbs, prefetch
from .elementary import log_parts, minus_log, sigmoid, softplus

f4, f8, i4, i8, u1, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32, np.uint64

# The number of rows whose terms are computed in one loop.
PART = 448
# The number of rows that are checked and summed at a time.
BLOCK = 3 * PART
# Rows are prefetched this many rows ahead.
AHEAD = 5 * PART
SCORE, LOG_LOSS, BRIER = 0, 1, 2
# The largest number of terms that a kernel call computes.
MOST = 3
# A term of this value or more is too large for a fixed-point sum.
LARGE = 2.0**31

# The last bit of the float64 1.5 * 2**32 has the value 2**-20, and that of 1.5 * 2**-8 has the value 2**-60. Adding one
# of these constants (magic numbers) to a number of either sign rounds the number to a multiple of 2**-20 or 2**-60.
HIGH, LOW = 1.5 * 2.0**32, 1.5 * 2.0**-8
HIGH_BITS, LOW_BITS = i8(0x41F8000000000000), i8(0x3F78000000000000)
# A mask that selects the 40 bits of the second integer (the low limb) in a fixed-point number.
LOW_MASK = i8((1 << 40) - 1)


def _score_bits32(z: Any) -> Any:
    return f4(z).view(u4)


def _score_bits64(z: Any) -> Any:
    return f8(z).view(u8)


def _score_of_bits32(z: Any) -> Any:
    return u4(z).view(f4)


def _score_of_bits64(z: Any) -> Any:
    return u8(z).view(f8)


score_bits = choose_by_dtype(float32=_score_bits32, float64=_score_bits64)
"""Return the bits of a score as an unsigned integer.

For scores from 0 to 1, a higher score has a larger integer. The integers of all other numbers, and of -0.0, are larger.
"""

score_of_bits = choose_by_dtype(float32=_score_of_bits32, float64=_score_of_bits64)


def _is_coarse32(z: Any) -> Any:
    return z >= f4(2.0**-29)


def _is_coarse64(z: Any) -> Any:
    return False


is_coarse = choose_by_dtype(float32=_is_coarse32, float64=_is_coarse64)
"""Return whether all scores from this one to 1, of the same dtype, are multiples of 2**-52.

This is true for float32 scores of 2**-29 or more, which have 24 bits, and false for float64 scores.
"""


@inline
def split_limbs(v: Any) -> Any:
    """Round v, with |v| < 2**31, to high * 2**-20 + low * 2**-60, and return the two integers `high` and `low`."""
    # Adding HIGH rounds v to a multiple of 2**-20. The remainder is exact, and adding LOW rounds it to a multiple of
    # 2**-60.
    t = v + HIGH
    rest = v - (t - HIGH)
    return f8(t).view(i8) - HIGH_BITS, f8(rest + LOW).view(i8) - LOW_BITS


@inline
def add_fixed(numbers: Any, at: Any, high: Any, low: Any) -> None:
    """Add `high` and `low` to the two integers of the fixed-point number at index `at`, and propagate the carry.

    Afterwards, the second integer lies between 0 and 2**40 - 1.
    """
    add_limbs(numbers, at, high, low)


@inline
def outcome_probability(y: Any, s: Any) -> Any:
    """Return the predicted probability of the outcome (the label y): s if y is 1, and 1 - s if y is 0."""
    p = f8(s)
    return p if y else f8(1) - p


@inline
def is_clipped(eps: Any, y: Any, s: Any) -> Any:
    """Return 1 if the probability of the outcome is not within [eps, 1 - eps], else 0."""
    q = outcome_probability(y, s)
    return i8((q < eps) | (q > 1.0 - eps))


@inline
def may_clip(eps: Any, least: Any, most: Any) -> Any:
    """Return whether any probability may need to be clipped to [eps, 1 - eps], given the lowest and highest scores.

    The probability of the outcome is monotonic in the score, so the two extremes are enough.
    """
    hits = i8(0)
    for y in range(2):
        hits += is_clipped(eps, y, least) + is_clipped(eps, y, most)
    return hits > 0


@outline
def fill_probability_term(term: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term (score, log-loss or squared error) for rows whose scores are probabilities.

    If `clip` is true, probabilities are clipped to [eps, 1 - eps] for log-loss. `k` and `f` are working memory.
    """
    n = s.shape[0]
    if term == LOG_LOSS:
        top = 1.0 - eps
        # Compute the logarithm in two loops. In a single loop, the chain of operations would be too long for the
        # processor to compute several rows at the same time.
        for j in range(n if clip else 0):
            q = outcome_probability(y[j], s[j])
            q = q if q > eps else eps
            k[j], f[j], out[j] = log_parts(q if q < top else top)
        for j in range(0 if clip else n):
            k[j], f[j], out[j] = log_parts(outcome_probability(y[j], s[j]))
        for j in range(n):
            out[j] = minus_log(k[j], f[j], out[j])
    else:
        for j in range(n):
            out[j] = f8(s[j])
        if term == BRIER:
            replace_by_squared_errors(y, out)


@outline
def fill_logit_term(term: Any, y: Any, s: Any, out: Any) -> None:
    """Write one term (probability, log-loss or squared error) of rows whose scores `s` are logits to `out`."""
    n = s.shape[0]
    if term == LOG_LOSS:
        for j in range(n):
            z = f8(s[j])
            out[j] = softplus(-z if y[j] else z)
    else:
        for j in range(n):
            out[j] = sigmoid(f8(s[j]))
        if term == BRIER:
            replace_by_squared_errors(y, out)


@outline
def replace_by_squared_errors(y: Any, out: Any) -> None:
    """Replace predicted probabilities, in place, with their squared differences from the labels y."""
    for j in range(out.shape[0]):
        d = out[j] - f8(i4(y[j]))
        out[j] = d * d


@inline
def fill_term(term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term (score, log-loss or squared error) for some rows to `out`.

    If `logit` is true, scores are logits. Otherwise, they are probabilities, which are clipped to [eps, 1 - eps] for
    log-loss if `clip` is true. `k` and `f` are working memory.
    """
    if logit:
        fill_logit_term(term, y, s, out)
    else:
        fill_probability_term(term, eps, clip, y, s, k, f, out)


@outline
def fill_block(term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term for every row in a block, as `fill_term` does, and prefetch the same number of later rows."""
    for b in range(0, s.shape[0], PART):
        part = slice(b, min(b + PART, s.shape[0]))
        prefetch(y, b + AHEAD, PART)
        prefetch(s, b + AHEAD, PART)
        fill_term(term, logit, eps, clip, y[part], s[part], k, f, out[part])


@outline
def count_positives(y: Any) -> Any:
    """Return the number of positives in a block of labels, and whether any label is neither 0 nor 1."""
    # An invalid label is larger than 1. To avoid a branch in the loop, check only the maximum of the labels.
    total, most = i4(0), u1(0)
    for j in range(y.shape[0]):
        total += i4(y[j])
        most = max(most, y[j])
    return total, most > 1


@outline
def score_extremes(s: Any) -> Any:
    """Return the two scores in a block whose bits, as unsigned integers, are the smallest and the largest.

    As unsigned integers, the bits of numbers from 0 to 1 have the same order as these numbers. All other values have
    larger bits: numbers above 1, infinity, NaN, negative numbers and -0.0.
    """
    least = most = score_bits(s[0])
    for j in range(s.shape[0]):
        least, most = min(least, score_bits(s[j])), max(most, score_bits(s[j]))
    return score_of_bits(least), score_of_bits(most)


@inline
def may_be_bad(most: Any) -> Any:
    """Return whether a block may contain an invalid score, given `most`, the score with the largest bits.

    If this score is -0.0, which is valid, other scores may be invalid. For example, 1.5 has smaller bits than -0.0.
    """
    return not (0 < most <= 1)


@outline
def has_bad_score(logit: Any, s: Any) -> Any:
    """Return whether any score is invalid: not finite or, unless scores are logits (`logit`), not a probability."""
    bad = i4(0)
    if logit:
        for j in range(s.shape[0]):
            bad |= i4(not (abs(s[j]) < np.inf))
    else:
        for j in range(s.shape[0]):
            # Negate the comparisons so that NaN, for which both comparisons are false, is invalid.
            bad |= i4(not (s[j] >= 0)) | i4(not (s[j] <= 1))
    return bad != 0


@outline
def has_bad_value(logit: Any, y: Any, s: Any) -> Any:
    """Return whether any label is neither 0 nor 1, or any score is invalid (see `has_bad_score`)."""
    if count_positives(y)[1]:
        return True
    if logit or s.shape[0] == 0:
        return has_bad_score(logit, s)
    return may_be_bad(score_extremes(s)[1]) and has_bad_score(False, s)
