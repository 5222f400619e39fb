"""Rows of several classes: pairs of true and predicted class, the highest score, the loss of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from .elementary import exp, log, log1p
from .extremes import order

f4, f8, i4, i8, u8 = np.float32, np.float64, np.int32, np.int64, np.uint64

PART, SPAN = 32, 128  # scores
LOG_LOSS, BRIER, TOP = 0, 1, 2  # terms by their number


@kernel(out=("sums",))
def sum_rows(s: Any, sums: Any) -> Any:
    """Write the sum of each row, in order."""
    for j in range(s.shape[0]):
        total = 0.0
        for k in range(s.shape[1]):
            total += f8(s[j, k])
        sums[j] = total
    return s.shape[0]


@kernel(out=("odds",))
def log_odds(s: Any, odds: Any) -> Any:
    """Write the log-odds of each class against the rest: the logits of the softmax of each row, without its saturation.

    They order rows as the softmax does, also where its probabilities round to 0 or 1.
    """
    for j in range(s.shape[0]):
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
def highest_of_many(row: Any) -> Any:
    """Do what `highest` does in loops that vectorise: which span has the largest, as an integer, and where it is first."""
    least = most = order(row[0])
    at = 0
    for a in range(0, row.shape[0], SPAN):
        span = row[a : a + SPAN]
        low = high = order(span[0])
        for k in range(span.shape[0]):
            word = order(span[k])
            low, high = (
                word if word < low else low,
                word if word > high else high,
            )  # min and max would make int64 of them
        least = low if low < least else least
        if high > most:
            most, at = high, a
    if least <= order(row.dtype.type(-np.inf)) or most >= order(row.dtype.type(np.inf)):
        return i8(-1)
    found = i4(0)
    while not found:
        part = row[at : at + PART]
        for k in range(part.shape[0]):
            found |= i4(order(part[k]) == most)
        at += 0 if found else PART
    while order(row[at]) != most:
        at += 1
    if row[at] == 0:  # 0.0 is larger as an integer than -0.0, which may stand before it
        at = 0
        while row[at] != 0:
            at += 1
    return i8(at)


@inline
def highest(row: Any) -> Any:
    """Return the first class of the highest score; -1 if a score is not finite."""
    if row.shape[0] >= PART:
        return highest_of_many(row)
    best, top, bad = i8(0), row[0], i4(not (abs(row[0]) < np.inf))
    for k in range(1, row.shape[0]):
        bad |= i4(not (abs(row[k]) < np.inf))
        higher = row[k] > top  # a choice, not a branch, which random scores would mispredict
        best, top = i8(k) if higher else best, row[k] if higher else top
    return i8(-1) if bad else best


@inline
def rest_of(row: Any, best: Any) -> Any:
    """Return the sum of exp(z - highest z) over all classes but the best: softmax of that is 1 / (1 + it)."""
    total = 0.0
    for k in range(row.shape[0]):
        if k != best:
            total += exp(f8(row[k]) - f8(row[best]))
    return total


@kernel(out=("right", "confidence"))
def top_classes(t: Any, s: Any, logit: Any, right: Any, confidence: Any) -> Any:
    """Write whether the class of the highest score is the true one, and its probability."""
    for j in range(s.shape[0]):
        best = highest(s[j])
        right[j] = t[j] == best
        confidence[j] = 1.0 / (1.0 + rest_of(s[j], best)) if logit else f8(s[j, best])
    return s.shape[0]


@inline
def log_loss(row: Any, t: Any, logit: Any, eps: Any) -> Any:
    """Minus the log of the probability of the true class."""
    if logit:
        best = highest(row)
        return log1p(rest_of(row, best)) + (f8(row[best]) - f8(row[t]))
    q = f8(row[t])
    q = q if q > eps else eps
    return -log(q if q < 1.0 - eps else 1.0 - eps)


@inline
def brier(row: Any, t: Any, logit: Any) -> Any:
    """Sum of squared differences between the probabilities and 1 for the true class, 0 for the others."""
    best = highest(row)
    scale = 1.0 / (1.0 + rest_of(row, best)) if logit else 1.0
    total = 0.0
    for k in range(row.shape[0]):
        p = exp(f8(row[k]) - f8(row[best])) * scale if logit else f8(row[k])
        d = p - (1.0 if k == t else 0.0)
        total += d * d
    return total


@inline
def ahead(row: Any, t: Any) -> Any:
    """How many classes come before the true one: those with a higher score, or an equal one and a lower number."""
    before = i8(0)
    for k in range(row.shape[0]):
        before += (row[k] > row[t]) or (row[k] == row[t] and k < t)
    return before


@kernel(out=("values",))
def class_terms(t: Any, s: Any, terms: Any, ks: Any, logit: Any, eps: Any, values: Any) -> Any:
    """Write the terms asked for of each row: loss, squared error, or whether the true class is among the top k."""
    for j in range(s.shape[0]):
        for i in range(terms.shape[0]):
            if terms[i] == LOG_LOSS:
                values[j, i] = log_loss(s[j], t[j], logit, eps)
            elif terms[i] == BRIER:
                values[j, i] = brier(s[j], t[j], logit)
            else:
                values[j, i] = 1.0 if ahead(s[j], t[j]) < ks[i] else 0.0
    return s.shape[0]


@kernel(out=("values",))
def label_terms(y: Any, s: Any, rising: Any, terms: Any, values: Any) -> Any:
    """Write the terms asked for of each row of labels: coverage (0), average precision (1), ranking loss (2).

    And those that are undefined without labels of a kind, where they are 0: average precision (3), AUC (5); and whether
    they are defined (4, 6).

    `rising` is the order of the labels of each row by their scores. As scikit-learn: labels of equal score all stand at
    the last of their ranks, and are pairs in the wrong order.
    """
    width = s.shape[1]
    for j in range(s.shape[0]):
        order = rising[j]
        relevant = i8(0)
        for k in range(width):
            relevant += y[j, k]
        others = width - relevant
        seen, found, last, wrong, tied, precision = i8(0), i8(0), i8(0), i8(0), i8(0), 0.0
        at = width - 1
        while at >= 0:  # from the highest score down, labels of equal score together
            score, here, hits = s[j, order[at]], i8(0), i8(0)
            while at >= 0 and s[j, order[at]] == score:
                hits += y[j, order[at]]
                here += 1
                at -= 1
            seen += here
            found += hits
            if hits:
                last = seen
                precision += hits * (f8(found) / f8(seen))
                wrong += hits * (seen - found)
                tied += hits * (here - hits)
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
def all_right(y: Any, s: Any, threshold: Any, values: Any) -> Any:
    """Write 1 for each row whose labels are all decided rightly, s >= threshold, and 0 for the others."""
    for j in range(s.shape[0]):
        right = True
        for k in range(s.shape[1]):
            right &= (s[j, k] >= threshold) == (y[j, k] == 1)
        values[j] = 1.0 if right else 0.0
    return s.shape[0]
