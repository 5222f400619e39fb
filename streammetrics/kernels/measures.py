"""Measures of one ranked query, from the documents in it that are worth something, by place.

Of a ranking in which documents of different worth are tied, every document has a place, and its worth is the mean of its
group; what depends on the order more than that is in module `ties`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import ties
from ._jit import inline, outline

f8, i8 = np.float64, np.int64

MEASURES = (
    "cg", "dcg", "ndcg", "cg_exp", "dcg_exp", "ndcg_exp", "precision", "recall", "r_precision", "hits", "relevant",
    "hit", "mrr", "ap_min", "ap_relevant", "ap_hits", "err", "rbp",
)  # fmt: skip
CG, DCG, NDCG, CG_EXP, DCG_EXP, NDCG_EXP, PRECISION, RECALL, R_PRECISION, HITS, RELEVANT = range(11)
HIT, MRR, AP_MIN, AP_RELEVANT, AP_HITS, ERR, RBP = range(11, 18)
UNBOUNDED = (CG, DCG, CG_EXP, DCG_EXP, HITS, RELEVANT)  # not a share of something: they may be any number

ALL = 1 << 40  # the cut-off of a measure without one

no_hit = outline(ties.no_hit)
first_hit = outline(ties.first_hit)
precision_sum = outline(ties.precision_sum)
precision_mean = outline(ties.precision_mean)
stop_group = outline(ties.stop_group)


@inline
def until(place: Any, c: Any, m: Any) -> Any:
    """How many of c documents, by place, are among the first m of the ranking."""
    while c > 0 and place[c - 1] >= m:
        c -= 1
    return c


@inline
def discounted(worth: Any, place: Any, c: Any, discount: Any) -> Any:
    """Sum of worth times discount."""
    total = 0.0
    for j in range(c):
        total += worth[j] * discount[place[j]]
    return total


@outline
def total_of(worth: Any, c: Any) -> Any:
    """Sum of the first c."""
    total = 0.0
    for j in range(c):
        total += worth[j]
    return total


@outline
def precisions(rel: Any, place: Any, c: Any) -> Any:
    """Sum of the precision at each relevant place of a ranking without ties."""
    total, hits = 0.0, 0.0
    for j in range(c):
        if rel[j] > 0:
            hits += 1.0
            total += hits / (place[j] + 1.0)
    return total


@outline
def first(rel: Any, place: Any, c: Any) -> Any:
    """One over the first relevant place; 0 without."""
    for j in range(c):
        if rel[j] > 0:
            return 1.0 / (place[j] + 1.0)
    return 0.0


@outline
def stopped(stop: Any, top: Any, place: Any, c: Any) -> Any:
    """One over the place at which a reader stops, expected, where `stop` over `top` is the probability at each."""
    total, going = 0.0, 1.0
    for j in range(c):
        here = stop[j] / top
        total += going * here / (place[j] + 1.0)
        going *= 1.0 - here
    return total


@outline
def biased(rel: Any, place: Any, c: Any, persistence: Any) -> Any:
    """Rank-biased precision."""
    total, going, i = 0.0, 1.0 - persistence, i8(0)
    for j in range(c):
        while i < place[j]:
            going *= persistence
            i += 1
        total += going * rel[j]
    return total


@inline
def quotient(a: Any, b: Any) -> Any:
    """Return a / b, at most 1; 0 where b is 0."""
    return min(a / b, 1.0) if b > 0 else 0.0


@outline
def linear_measure(
    code: Any, k: Any, n: Any, everything: Any, rel: Any, worth: Any, place: Any, c: Any, discount: Any, ideal: Any
) -> Any:
    """Return a measure that is a sum over places, or a quotient of two: ties only need the mean of each group."""
    if code == RELEVANT:
        return f8(everything)
    m = until(place, c, min(everything if code == R_PRECISION else k, n))
    if code == CG:
        return total_of(worth, m)
    if code == DCG:
        return discounted(worth, place, m, discount)
    if code == NDCG:
        best = 0.0
        for i in range(min(k, ideal.shape[0])):
            best += ideal[i] * discount[i]
        return quotient(discounted(worth, place, m, discount), best)
    found = total_of(rel, m)
    if code == PRECISION:
        return quotient(found, f8(k if k < ALL else n))
    return found if code == HITS else quotient(found, f8(everything))


@outline
def plain_measure(code: Any, k: Any, n: Any, everything: Any, rel: Any, stop: Any, top: Any, place: Any, c: Any) -> Any:
    """Return a measure that depends on the order, of a ranking without ties."""
    m = until(place, c, min(k, n))
    if code == HIT:
        return 1.0 if first(rel, place, m) > 0 else 0.0
    if code == MRR:
        return first(rel, place, m)
    if code == ERR:
        return stopped(stop, top, place, m)
    total = precisions(rel, place, m)
    if code == AP_HITS:
        return quotient(total, total_of(rel, m))
    return quotient(total, f8(everything if code == AP_RELEVANT else min(everything, k)))


@outline
def tied_measure(code: Any, k: Any, n: Any, everything: Any, end: Any, hit: Any, stop: Any, top: Any, mean: Any) -> Any:
    """Return a measure that depends on the order, on average over the orders of tied documents."""
    cut = min(k, n)
    total, hits, going, a = 0.0, i8(0), 1.0, i8(0)
    while a < cut:
        b, r = end[a], hit[a]
        size, m = b - a, min(b, cut) - a
        if code in (HIT, MRR):
            if r:
                return 1.0 - no_hit(size, r, m) if code == HIT else first_hit(a, size, r, m)
            # a group without a relevant document cannot end the search; the first with one does not have to,
            # unless it lies before the cut, whole
        elif code == ERR:
            total += going * stop_group(stop, top, a, b, m, mean)
            going *= mean[size]
        elif code == AP_HITS and m < size:
            return precision_mean(total, a, hits, size, r, m)
        else:
            total += precision_sum(a, hits, size, r, m)
        hits += r
        a = b
    if code in (HIT, MRR, ERR):
        return total
    if code == AP_HITS:
        return quotient(total, f8(hits))
    return quotient(total, f8(everything if code == AP_RELEVANT else min(everything, k)))
