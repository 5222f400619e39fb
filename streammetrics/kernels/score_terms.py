"""The terms of scored rows (score, log-loss, Brier score), checks of scores, and fixed-point sums.

A term is computed once per row in float64, in loops that vectorise, and added as an integer multiple of 2**-60 in two
limbs (see `numerics.exact`): adding a magic number rounds the term, and the bits of the sum are the integer. Integer sums
do not depend on the order of rows. A term of 2**31 or more (a heavy weight, an extreme logit) goes to a superaccumulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import choose_by_dtype, inline, outline
from ._memory import prefetch
from .elementary import log_parts, minus_log, sigmoid, softplus

f4, f8, i4, i8, u1, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32, np.uint64

PART = 448  # the number of rows whose terms are computed together
BLOCK = 3 * PART  # the number of rows that are checked and summed together
AHEAD = 5 * PART  # the number of rows that prefetching is ahead of computing
SCORE, LOG_LOSS, BRIER = 0, 1, 2
MOST, LIMBS = 3, 6  # the maximum number of terms in a call, and of words of their sums
LARGE = 2.0**31  # terms of this size or more are outside the fixed-point range

# Magic numbers: the last bit of 1.5 * 2**32 is worth 2**-20, and that of 1.5 * 2**-8 is worth 2**-60. Adding one of them
# to a number of either sign rounds the number to a multiple of this bit.
HIGH, LOW = 1.5 * 2.0**32, 1.5 * 2.0**-8
HIGH_BITS, LOW_BITS = i8(0x41F8000000000000), i8(0x3F78000000000000)
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
"""Return the bits of a score: they order like the scores from 0 to 1, and exceed 1.0 for all others and -0.0."""

score_of_bits = choose_by_dtype(float32=_score_of_bits32, float64=_score_of_bits64)


def _is_coarse32(z: Any) -> Any:
    return z >= f4(2.0**-29)


def _is_coarse64(z: Any) -> Any:
    return False


is_coarse = choose_by_dtype(float32=_is_coarse32, float64=_is_coarse64)
"""Whether all scores from this one to 1 are multiples of 2**-52: true for float32, 24 bits, from 2**-29 on."""


@inline
def split_limbs(v: Any) -> Any:
    """Return v as high * 2**-20 + low * 2**-60, for |v| < 2**31."""
    # The first sum rounds v to 2**-20; the rest is exact, and the second sum rounds it to 2**-60.
    t = v + HIGH
    rest = v - (t - HIGH)
    return f8(t).view(i8) - HIGH_BITS, f8(rest + LOW).view(i8) - LOW_BITS


@inline
def add_fixed(numbers: Any, at: Any, high: Any, low: Any) -> None:
    """Add to the fixed-point number at index `at`, and propagate the carry, so that 0 <= low < 2**40."""
    # The shift rounds towards minus infinity, so the low limb ends up in [0, 2**40) for negative numbers as well.
    low += numbers[at + u8(1)]
    numbers[at] += high + (low >> i8(40))
    numbers[at + u8(1)] = low & LOW_MASK


@inline
def outcome_probability(y: Any, s: Any) -> Any:
    """Return the predicted probability of the label that occurred."""
    p = f8(s)
    return p if y else f8(1) - p


@inline
def is_clipped(eps: Any, y: Any, s: Any) -> Any:
    """Return 1 if the probability of the outcome is not within [eps, 1 - eps], else 0."""
    q = outcome_probability(y, s)
    return i8((q < eps) | (q > 1.0 - eps))


@inline
def may_clip(eps: Any, least: Any, most: Any) -> Any:
    """Whether a row could be clipped, given the lowest and highest score: probability is monotonic in the score."""
    hits = i8(0)
    for y in range(2):
        hits += is_clipped(eps, y, least) + is_clipped(eps, y, most)
    return hits > 0


@outline
def fill_probability_term(term: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term (score, log-loss or squared error) of rows whose scores are probabilities.

    `k` and `f` are scratch. `clip` is False if no probability has to be clipped.
    """
    n = s.shape[0]
    if term == LOG_LOSS:
        top = 1.0 - eps
        # The logarithm is split into two loops: one chain of all its operations is too long for the processor to overlap
        # rows.
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
    """Write one term (score, log-loss or squared error) of rows whose scores are logits."""
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
    """Replace predictions by their squared errors, in place."""
    for j in range(out.shape[0]):
        d = out[j] - f8(i4(y[j]))
        out[j] = d * d


@inline
def fill_term(term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term (score, log-loss or squared error) of some rows; `k` and `f` are scratch."""
    if logit:
        fill_logit_term(term, y, s, out)
    else:
        fill_probability_term(term, eps, clip, y, s, k, f, out)


@outline
def fill_block(term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, k: Any, f: Any, out: Any) -> None:
    """Write one term of every row of a block, and prefetch the same number of later rows."""
    for b in range(0, s.shape[0], PART):
        part = slice(b, min(b + PART, s.shape[0]))
        prefetch(y, b + AHEAD, PART)
        prefetch(s, b + AHEAD, PART)
        fill_term(term, logit, eps, clip, y[part], s[part], k, f, out[part])


@outline
def count_positives(y: Any) -> Any:
    """Return the number of positives in a block of labels, and whether any label is not 0 or 1."""
    # The maximum of the labels reveals any invalid label without a branch.
    total, most = i4(0), u1(0)
    for j in range(y.shape[0]):
        total += i4(y[j])
        most = max(most, y[j])
    return total, most > 1


@outline
def score_extremes(s: Any) -> Any:
    """Return the smallest and the largest score of a block, in the order of their bits as unsigned integers.

    As unsigned integers the bits of the numbers from 0 to 1 order like the numbers. The bits of all other numbers are
    larger: numbers above 1, infinity, NaN, and every number with a sign bit, first of all -0.0.
    """
    least = most = score_bits(s[0])
    for j in range(s.shape[0]):
        least, most = min(least, score_bits(s[j])), max(most, score_bits(s[j]))
    return score_of_bits(least), score_of_bits(most)


@inline
def may_be_bad(most: Any) -> Any:
    """Whether a block may have an invalid score, given the score with the largest bits, `most`.

    If this is -0.0, which is valid, other scores may still be invalid, because its bits exceed those of 1.5, for example.
    """
    return not (0 < most <= 1)


@outline
def has_bad_score(logit: Any, s: Any) -> Any:
    """Whether a score is not finite or, unless `logit`, not a probability."""
    bad = i4(0)
    if logit:
        for j in range(s.shape[0]):
            bad |= i4(not (abs(s[j]) < np.inf))
    else:
        for j in range(s.shape[0]):
            # Negate two comparisons, so that NaN is invalid as well.
            bad |= i4(not (s[j] >= 0)) | i4(not (s[j] <= 1))
    return bad != 0


@outline
def has_bad_value(logit: Any, y: Any, s: Any) -> Any:
    """Whether a label is not 0 or 1, or a score is invalid for its scale."""
    if count_positives(y)[1]:
        return True
    if logit or s.shape[0] == 0:
        return has_bad_score(logit, s)
    return may_be_bad(score_extremes(s)[1]) and has_bad_score(False, s)
