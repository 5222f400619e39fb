"""Quantities of each row, such as the predicted class, for metrics of several classes or labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from .elementary import exp, log, log1p
from .extremes import signed_bits
from .score_terms import score_bits, score_of_bits

f4, f8, i4, i8, u8 = np.float32, np.float64, np.int32, np.int64, np.uint64

# A row with LONG or more scores is searched for its highest score in spans of SPAN scores.
LONG, SPAN = 32, 512
# The codes of the terms that `compute_class_terms` can compute. The value of the term TOP is 1 if the true class is
# among the top k, else 0.
LOG_LOSS, BRIER, TOP = 0, 1, 2


@kernel(out=("sums",))
def sum_rows(s: Any, sums: Any) -> Any:
    """Write the sum of each row's scores, added from left to right, to `sums`."""
    for j in range(s.shape[0]):
        total = 0.0
        for k in range(s.shape[1]):
            total += f8(s[j, k])
        sums[j] = total
    return s.shape[0]


@kernel(out=("odds",))
def compute_log_odds(s: Any, odds: Any) -> Any:
    """Write the log odds of each class in each row: log(p / (1 - p)), where p is the softmax probability.

    Log odds have the same order as probabilities but remain distinct where probabilities are rounded to 0 or 1.
    """
    for j in range(s.shape[0]):
        # Compute exp of differences from the highest score, so that no sum overflows. For the odds of the best class,
        # use differences from the second highest score, so that at least one exp does not underflow.
        best, first, second = 0, f8(s[j, 0]), -np.inf
        for k in range(1, s.shape[1]):
            score = f8(s[j, k])
            if score > first:
                best, first, second = k, score, first
            elif score > second:
                second = score
        behind, rest = 0.0, 0.0
        for k in range(s.shape[1]):
            if k != best:
                behind += exp(f8(s[j, k]) - first)
                rest += exp(f8(s[j, k]) - second)
        for k in range(s.shape[1]):
            if k == best:
                odds[j, k] = (first - second) - log(rest)
            else:
                below = f8(s[j, k]) - first
                odds[j, k] = below - log(1.0 + max(behind - exp(below), 0.0))
    return s.shape[0]


@outline
def find_highest_of_many(row: Any) -> Any:
    """Return the class with the highest score (the first one in a tie) in a long row, or -1 if a score is not finite.

    One loop finds the span of scores that contains the highest score, and another loop finds the score in this span;
    both vectorize. The first loop compares the bits of scores as integers. As signed integers, the bits of positive
    scores have the same order as the scores, and the bits of negative scores have the reverse order. As unsigned
    integers, the bits of negative scores are larger than the bits of positive scores.
    """
    top, at, bad = row[0], 0, False
    for a in range(0, row.shape[0], SPAN):
        span = row[a : a + SPAN]
        low = high = signed_bits(span[0])
        far = score_bits(span[0])
        for k in range(span.shape[0]):
            word, bits = signed_bits(span[k]), score_bits(span[k])
            # Use conditional expressions, because numba's min and max would widen int32 to int64.
            low, high = word if word < low else low, word if word > high else high
            far = bits if bits > far else far
        bad |= high >= signed_bits(row.dtype.type(np.inf)) or far >= score_bits(row.dtype.type(-np.inf))
        best = score_of_bits(high if high >= 0 else low)
        if best > top:
            top, at = best, a
    if bad:
        return i8(-1)
    # Compare numbers rather than bits, because 0.0 and -0.0 are equal but have different bits. Find the first class
    # whose score is `top` as a minimum of indices, which needs no branch.
    span, first = row[at : at + SPAN], i4(SPAN)
    for k in range(span.shape[0]):
        here = i4(k) if span[k] == top else i4(SPAN)
        first = here if here < first else first
    return i8(at) + i8(first)


@inline
def find_highest(row: Any) -> Any:
    """Return the class with the highest score (the first one in a tie), or -1 if a score is not finite."""
    if row.shape[0] >= LONG:
        return find_highest_of_many(row)
    best, top, bad = i8(0), row[0], i4(not (abs(row[0]) < np.inf))
    for k in range(1, row.shape[0]):
        bad |= i4(not (abs(row[k]) < np.inf))
        # Use conditional expressions rather than a branch, which would be mispredicted for random scores.
        higher = row[k] > top
        best, top = i8(k) if higher else best, row[k] if higher else top
    return i8(-1) if bad else best


@inline
def sum_other_exps(row: Any, best: Any) -> Any:
    """Return the sum of exp(z - z_best) over all classes except `best`, where z are the scores.

    The softmax of the class `best` is 1 / (1 + sum).
    """
    total = 0.0
    for k in range(row.shape[0]):
        if k != best:
            total += exp(f8(row[k]) - f8(row[best]))
    return total


@kernel(out=("right", "confidence"))
def find_top_classes(t: Any, s: Any, logit: Any, right: Any, confidence: Any) -> Any:
    """Write to `right` whether each row's predicted class is correct, and to `confidence` its probability.

    The predicted class is the class with the highest score. `t` holds the true class of each row, and a row of `s` the
    score of each class. If `logit` is true, scores are logits, and the probability is their softmax.
    """
    for j in range(s.shape[0]):
        best = find_highest(s[j])
        right[j] = t[j] == best
        confidence[j] = 1.0 / (1.0 + sum_other_exps(s[j], best)) if logit else f8(s[j, best])
    return s.shape[0]


@inline
def log_loss(row: Any, t: Any, logit: Any, eps: Any) -> Any:
    """Return the negative logarithm of the probability of the true class `t`.

    `row` holds the score of each class. If `logit` is true, scores are logits. Otherwise, they are probabilities, which
    are clipped to [eps, 1 - eps].
    """
    if logit:
        best = find_highest(row)
        return log1p(sum_other_exps(row, best)) + (f8(row[best]) - f8(row[t]))
    q = f8(row[t])
    q = q if q > eps else eps
    return -log(q if q < 1.0 - eps else 1.0 - eps)


@inline
def brier(row: Any, t: Any, logit: Any) -> Any:
    """Return the Brier score of a row: (p - 1)**2 for the true class t, plus the sum of p**2 for all other classes.

    `row` holds the probability p of each class or, if `logit` is true, logits whose softmax is p.
    """
    best = find_highest(row)
    scale = 1.0 / (1.0 + sum_other_exps(row, best)) if logit else 1.0
    total = 0.0
    for k in range(row.shape[0]):
        p = exp(f8(row[k]) - f8(row[best])) * scale if logit else f8(row[k])
        d = p - (1.0 if k == t else 0.0)
        total += d * d
    return total


@inline
def count_classes_ahead(row: Any, t: Any) -> Any:
    """Count the classes above the true class t: those with a higher score, or an equal score and a lower index."""
    own, before, lower, higher = row[t], i4(0), row[:t], row[t:]
    # Two loops without a condition on the class index take less time than one loop with such a condition. Without the
    # conversions to int32, numba would sum in int64.
    for k in range(lower.shape[0]):
        before = i4(before + i4(lower[k] >= own))
    for k in range(higher.shape[0]):
        before = i4(before + i4(higher[k] > own))
    return before


@kernel(out=("values",))
def compute_class_terms(t: Any, s: Any, terms: Any, ks: Any, logit: Any, eps: Any, values: Any) -> Any:
    """Write the requested terms of each row: log-loss, Brier score, or whether the true class is among the top k.

    `t` holds the true class of each row, `terms` the codes of the terms, and `ks` the k of each term. If `logit` is
    true, the scores `s` are logits. Otherwise, they are probabilities, clipped to [eps, 1 - eps] for log-loss.
    """
    for j in range(s.shape[0]):
        for i in range(terms.shape[0]):
            if terms[i] == LOG_LOSS:
                values[j, i] = log_loss(s[j], t[j], logit, eps)
            elif terms[i] == BRIER:
                values[j, i] = brier(s[j], t[j], logit)
            else:
                values[j, i] = 1.0 if count_classes_ahead(s[j], t[j]) < ks[i] else 0.0
    return s.shape[0]


@kernel(out=("values",))
def compute_label_terms(y: Any, s: Any, rising: Any, terms: Any, values: Any) -> Any:
    """Write the requested multilabel ranking terms of each row, given its labels and scores.

    The codes of terms are 0 for coverage, 1 for average precision (with the value 1 in rows where it is undefined) and
    2 for ranking loss. Code 3 is also average precision, and code 5 is AUC, both with the value 0 in rows where they
    are undefined. Codes 4 and 6 are 1 in rows where codes 3 and 5, respectively, are defined, else 0.

    `rising` holds the labels of each row in ascending order of score. As in scikit-learn, all tied labels get the last
    rank of the tie. A tied pair of labels counts as wrongly ordered, except in AUC, where it counts one half.
    """
    width = s.shape[1]
    for j in range(s.shape[0]):
        order = rising[j]
        relevant = i8(0)
        for k in range(width):
            relevant += y[j, k]
        others = width - relevant
        rank, relevant_above, last, wrong, tied, precision = i8(0), i8(0), i8(0), i8(0), i8(0), 0.0
        at = width - 1
        # Each iteration processes one group of labels with equal scores, from the highest score down.
        while at >= 0:
            score, group_size, hits = s[j, order[at]], i8(0), i8(0)
            while at >= 0 and s[j, order[at]] == score:
                hits += y[j, order[at]]
                group_size += 1
                at -= 1
            rank += group_size
            relevant_above += hits
            if hits:
                last = rank
                precision += hits * (f8(relevant_above) / f8(rank))
                wrong += hits * (rank - relevant_above)
                tied += hits * (group_size - hits)
        for i in range(terms.shape[0]):
            if terms[i] == 0:
                values[j, i] = f8(last)
            elif terms[i] == 1:
                values[j, i] = precision / f8(relevant) if relevant and others else 1.0
            elif terms[i] == 2:
                values[j, i] = f8(wrong) / f8(relevant * others) if relevant and others else 0.0
            elif terms[i] == 3:
                values[j, i] = precision / f8(relevant) if relevant else 0.0
            elif terms[i] == 5:
                pairs = 2 * relevant * others
                values[j, i] = f8(pairs - 2 * wrong + tied) / f8(pairs) if pairs else 0.0
            else:
                values[j, i] = 1.0 if relevant and (terms[i] == 4 or others) else 0.0
    return s.shape[0]


@kernel(out=("values",))
def mark_exact_matches(y: Any, s: Any, threshold: Any, values: Any) -> Any:
    """Write, for each row, 1 if all labels are predicted correctly (a label is predicted if s >= threshold), else 0."""
    for j in range(s.shape[0]):
        right = True
        for k in range(s.shape[1]):
            right &= (s[j, k] >= threshold) == (y[j, k] == 1)
        values[j] = 1.0 if right else 0.0
    return s.shape[0]
