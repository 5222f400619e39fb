"""Measures of a ranked query that are computed rank by rank: Q, interpolated precision, bpref and inferred AP.

In all functions, `worth` holds the gains of the n documents in rank order, and a document is relevant if its gain is at
least `level`. R is the number of relevant documents, and N the number of documents judged irrelevant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import outline

f8, i8 = np.float64, np.int64

# trec_eval adds this number to avoid 0/0 in the fraction of relevant documents.
EPSILON = 0.00001


@outline
def q_measure(hit: Any, sums: Any, end: Any, n: Any, m: Any, beta: Any, best: Any, n_best: Any) -> Any:
    """Return the sum of blended ratios (Q-measure) at the ranks of relevant documents among the first m.

    The blended ratio at rank i is (relevant documents + beta * gain) / (i + beta * ideal gain). The number of relevant
    documents and both gains are totals over the first i ranks. The result is the mean over all orders of tied
    documents. The tie group that starts at `a` ends before end[a] and contains hit[a] relevant documents, with a total
    gain of sums[a]. `best` holds the gains in the ideal order.

    Suppose that a tie group of s documents contains r relevant documents. Then the document at a given rank is relevant
    with probability r / s. If it is, the document at any other rank in the group is relevant with probability
    (r - 1) / (s - 1).
    """
    total, hits, gained, ideal, a = 0.0, i8(0), 0.0, 0.0, i8(0)
    while a < m:
        b, r, G = end[a], hit[a], sums[a]
        s, before = f8(b - a), (hit[a] - 1.0) / (end[a] - a - 1.0) if end[a] - a > 1 else 0.0
        for i in range(a, min(b, m)):
            if i < n_best:
                ideal += best[i]
            if r > 0:
                so_far = 1.0 + (i - a) * before
                # `found` is the expected numerator of the blended ratio. If the document at this rank is relevant, the
                # numerator is the number of relevant documents up to this rank plus beta times their gains; otherwise,
                # it counts as 0.
                found = (r / s) * (hits + so_far + beta * gained) + beta * (G / s) * so_far
                total += found / (i + 1.0 + beta * ideal)
        hits += r
        gained += G
        a = b
    return total


@outline
def interpolated_precision(worth: Any, level: Any, n: Any, need: Any) -> Any:
    """Return the highest precision at any rank that has at least `need` relevant documents at or above it.

    The result is 0 if there is no such rank. `worth` holds the gains of the n documents in rank order; a document is
    relevant if its gain is at least `level`.
    """
    hits, best = 0, 0.0
    for i in range(n):
        hits += 1 if worth[i] >= level else 0
        if hits >= need:
            best = max(best, hits / (i + 1.0))
    return best


@outline
def eleven_points(worth: Any, level: Any, n: Any, R: Any) -> Any:
    """Return the mean of the interpolated precision at recall 0, 0.1, ..., 1. R is the number of relevant documents.

    The other parameters are the same as for `interpolated_precision`.
    """
    total = 0.0
    for j in range(11):
        total += interpolated_precision(worth, level, n, i8(np.floor((j / 10.0) * R + 0.9)))
    return total / 11.0


@outline
def bpref(worth: Any, level: Any, un: Any, n: Any, R: Any, N: Any) -> Any:
    """Return the sum over relevant documents of 1 - min(a, R) / min(N, R), the numerator of bpref.

    Here, R is the number of relevant documents, N the number of documents judged irrelevant, and `a` the number of the
    latter that rank above the relevant document. `worth` holds gains in rank order; a document is relevant if its gain
    is at least `level`. `un` is 0 for judged documents.
    """
    total, above = 0.0, i8(0)
    for i in range(n):
        if worth[i] >= level:
            total += 1.0 - min(above, R) / f8(min(N, R)) if above > 0 else 1.0
        elif un[i] == 0:
            above += 1
    return total


@outline
def inferred_precision(worth: Any, level: Any, un: Any, n: Any) -> Any:
    """Return the sum of inferred precision at the ranks of relevant documents, the numerator of inferred AP.

    At each rank, the fraction of relevant documents among the unjudged documents in the pool is estimated from the
    judged documents above this rank. `un` is 0 for a judged document, 1 for an unjudged document in the pool, and 2 for
    any other document.
    """
    total, rel, non, blank = 0.0, i8(0), i8(0), i8(0)
    for i in range(n):
        if worth[i] >= level:
            total += 1.0 / (i + 1.0)
            if i > 0:
                known = rel + non
                # Estimate the fraction of relevant documents from the judged documents above this rank, with EPSILON as
                # in trec_eval.
                share = (rel + EPSILON) / (known + 2 * EPSILON)
                total += (i / (i + 1.0)) * ((known + blank) / f8(i)) * share
            rel += 1
        elif un[i] == 1:
            blank += 1
        elif un[i] == 0:
            non += 1
    return total
