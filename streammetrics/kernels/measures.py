"""Measures of one ranked query, computed from the documents with a gain above 0, in rank order.

`place` holds the ranks of these documents, counted from 0, and c is their number. For each document, `rel` is 1 if it
is relevant, and `worth` is its gain. `discount` holds the discount for each rank, and `ideal` the gains in the ideal
(descending) order. In a ranking with ties, every document is given the mean gain of the documents with the same score.
Some measures need only this mean. All other measures are averaged over all orders of tied documents (module `ties`).
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
# These measures can exceed 1. All others are between 0 and 1.
UNBOUNDED = (CG, DCG, CG_EXP, DCG_EXP, HITS, RELEVANT)

# The value of the cut-off k that represents the whole ranking. It exceeds the length of any ranking.
ALL = 1 << 40

probability_of_no_hit = outline(ties.probability_of_no_hit)
mean_reciprocal_rank = outline(ties.mean_reciprocal_rank)
mean_precision_sum = outline(ties.mean_precision_sum)
mean_precision_per_hit = outline(ties.mean_precision_per_hit)
mean_reciprocal_stop = outline(ties.mean_reciprocal_stop)


@inline
def count_before(place: Any, c: Any, m: Any) -> Any:
    """Return how many of c documents are at the first m ranks. `place` holds their ranks, counted from 0, in order."""
    # Search from the end, because most documents with a gain above 0 are usually within the cut-off.
    while c > 0 and place[c - 1] >= m:
        c -= 1
    return c


@inline
def discounted_gain(worth: Any, place: Any, c: Any, discount: Any) -> Any:
    """Return the sum of gain times discount over c documents at the ranks `place`."""
    total = 0.0
    for j in range(c):
        total += worth[j] * discount[place[j]]
    return total


@outline
def sum_first(worth: Any, c: Any) -> Any:
    """Return the sum of the first c values."""
    total = 0.0
    for j in range(c):
        total += worth[j]
    return total


@outline
def sum_precisions(rel: Any, place: Any, c: Any) -> Any:
    """Return the sum of precision at the ranks of relevant documents, in a ranking without ties.

    A document with rel[j] > 0 is relevant, and place[j] is its rank, counted from 0.
    """
    total, hits = 0.0, 0.0
    for j in range(c):
        if rel[j] > 0:
            hits += 1.0
            total += hits / (place[j] + 1.0)
    return total


@outline
def reciprocal_rank(rel: Any, place: Any, c: Any) -> Any:
    """Return 1 / (rank of the first relevant document), or 0 if no document is relevant.

    A document with rel[j] > 0 is relevant, and place[j] is its rank, counted from 0.
    """
    for j in range(c):
        if rel[j] > 0:
            return 1.0 / (place[j] + 1.0)
    return 0.0


@outline
def expected_reciprocal_rank(stop: Any, top: Any, place: Any, c: Any) -> Any:
    """Return the expected reciprocal rank: the mean of 1 / (rank at which a user stops).

    The rank of document j is place[j] + 1. A user who looks at this document stops there with probability
    stop[j] / top.
    """
    total, going = 0.0, 1.0
    for j in range(c):
        here = stop[j] / top
        total += going * here / (place[j] + 1.0)
        going *= 1.0 - here
    return total


@outline
def rank_biased_precision(rel: Any, place: Any, c: Any, persistence: Any) -> Any:
    """Return the rank-biased precision of c documents with relevance `rel` at the ranks `place`.

    `persistence` is the probability that a user goes on to the next document.
    """
    total, going, i = 0.0, 1.0 - persistence, i8(0)
    for j in range(c):
        while i < place[j]:
            going *= persistence
            i += 1
        total += going * rel[j]
    return total


@inline
def bounded_ratio(a: Any, b: Any) -> Any:
    """Return the smaller of a / b and 1, or 0 if b is 0."""
    return min(a / b, 1.0) if b > 0 else 0.0


@outline
def linear_measure(
    code: Any, k: Any, n: Any, everything: Any, rel: Any, worth: Any, place: Any, c: Any, discount: Any, ideal: Any
) -> Any:
    """Return a measure, such as DCG or precision, for which the gains of tied documents can be replaced by their mean.

    `code` is the measure, k its cut-off, n the number of returned documents, and `everything` the number of relevant
    documents. The docstring of this module describes the other parameters.
    """
    if code == RELEVANT:
        return f8(everything)
    m = count_before(place, c, min(everything if code == R_PRECISION else k, n))
    if code == CG:
        return sum_first(worth, m)
    if code == DCG:
        return discounted_gain(worth, place, m, discount)
    if code == NDCG:
        best = 0.0
        for i in range(min(k, ideal.shape[0])):
            best += ideal[i] * discount[i]
        return bounded_ratio(discounted_gain(worth, place, m, discount), best)
    found = sum_first(rel, m)
    if code == PRECISION:
        return bounded_ratio(found, f8(k if k < ALL else n))
    return found if code == HITS else bounded_ratio(found, f8(everything))


@outline
def untied_measure(
    code: Any, k: Any, n: Any, everything: Any, rel: Any, stop: Any, top: Any, place: Any, c: Any
) -> Any:
    """Return a measure (such as MRR) that would depend on the order of tied documents, for a ranking without ties.

    `code` is the measure, k its cut-off, n the number of returned documents, and `everything` the number of relevant
    documents. For ERR, a user who looks at document j stops there with probability stop[j] / top.
    """
    m = count_before(place, c, min(k, n))
    if code == HIT:
        return 1.0 if reciprocal_rank(rel, place, m) > 0 else 0.0
    if code == MRR:
        return reciprocal_rank(rel, place, m)
    if code == ERR:
        return expected_reciprocal_rank(stop, top, place, m)
    total = sum_precisions(rel, place, m)
    if code == AP_HITS:
        return bounded_ratio(total, sum_first(rel, m))
    return bounded_ratio(total, f8(everything if code == AP_RELEVANT else min(everything, k)))


@outline
def tied_measure(code: Any, k: Any, n: Any, everything: Any, end: Any, hit: Any, stop: Any, top: Any, mean: Any) -> Any:
    """Return a measure (such as MRR) that depends on the order of tied documents, averaged over all of their orders.

    `code` is the measure, k its cut-off, n the number of returned documents, and `everything` the number of relevant
    documents. The tie group that starts at `a` ends before end[a] and contains hit[a] relevant documents. For ERR, a
    user who looks at document j stops there with probability stop[j] / top. `mean` is working memory.
    """
    cut = min(k, n)
    total, hits, going, a = 0.0, i8(0), 1.0, i8(0)
    while a < cut:
        b, r = end[a], hit[a]
        size, m = b - a, min(b, cut) - a
        if code in (HIT, MRR):
            if r:
                return 1.0 - probability_of_no_hit(size, r, m) if code == HIT else mean_reciprocal_rank(a, size, r, m)
            # A group without relevant documents cannot contain the first relevant document, so continue with the next
            # group. The first group with a relevant document always gives the result: its mean already includes the
            # orders in which all of its relevant documents are beyond the cut-off.
        elif code == ERR:
            total += going * mean_reciprocal_stop(stop, top, a, b, m, mean)
            going *= mean[size]
        elif code == AP_HITS and m < size:
            return mean_precision_per_hit(total, a, hits, size, r, m)
        else:
            total += mean_precision_sum(a, hits, size, r, m)
        hits += r
        a = b
    if code in (HIT, MRR, ERR):
        return total
    if code == AP_HITS:
        return bounded_ratio(total, f8(hits))
    return bounded_ratio(total, f8(everything if code == AP_RELEVANT else min(everything, k)))
