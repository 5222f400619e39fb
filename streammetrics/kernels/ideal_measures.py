"""Measures that compare a ranked query with its ideal order: trec_eval's variants of NDCG and average precision.

In all functions, `worth` holds the gains of the n documents in rank order, and `best` the gains in the ideal order. A
document is relevant if its gain is at least `level`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.elementary import LN2
from ._jit import outline
from .elementary import log

f8, i8 = np.float64, np.int64


@outline
def gain_over_cost(worth: Any, n: Any, best: Any, n_best: Any) -> Any:
    """Return the sum over documents of gain / log2(2 + I - A), which discounts each gain by the gain missed so far.

    I and A are the sums of the gains up to the document's rank in the ideal order (`best`) and in the actual order
    (`worth`), respectively. An ideal gain below 1 counts as 1.
    """
    total, missed = 0.0, 2.0
    for i in range(n):
        missed += (max(best[i], 1.0) if i < n_best else 1.0) - worth[i]
        total += worth[i] / (log(missed) / LN2) if worth[i] > 0 else 0.0
    return total


@outline
def hits_by_misses(worth: Any, level: Any, n: Any, discount: Any) -> Any:
    """Return the sum over relevant documents of 1 / log2(2 + number of irrelevant documents ranked above).

    `worth` holds the gains in rank order. A document is relevant if its gain is at least `level`. discount[i] is
    1 / log2(2 + i).
    """
    total, missed = 0.0, i8(0)
    for i in range(n):
        if worth[i] >= level:
            total += discount[missed]
        else:
            missed += 1
    return total


@outline
def ndcg_of_hits(worth: Any, n: Any, best: Any, n_best: Any, discount: Any) -> Any:
    """Return the mean of NDCG@k over the ranks k of all documents with a gain above 0.

    A document that was not returned contributes the NDCG of the whole ranking. `worth` holds the gains of the n
    returned documents in rank order, and `best` the gains in the ideal order.
    """
    total, found, ideal, hits = 0.0, 0.0, 0.0, i8(0)
    for i in range(max(n, n_best)):
        if i < n_best:
            ideal += best[i] * discount[i]
        if i < n and worth[i] > 0:
            found += worth[i] * discount[i]
            total += found / ideal
            hits += 1
    # Add the NDCG of the whole ranking for each document that has a positive gain but was not returned.
    return (total + (n_best - hits) * (found / ideal)) / n_best


@outline
def ndcg_of_levels(worth: Any, n: Any, best: Any, n_best: Any, discount: Any) -> Any:
    """Return the mean of NDCG@k over the ranks k of the last document of each grade in the ideal order.

    If the ranking is longer than the ideal order by at least two documents, the mean also includes the NDCG of the
    whole ranking. `worth` holds the gains of the n returned documents in rank order, and `best` the gains in the ideal
    order.
    """
    total, found, ideal, levels = 0.0, 0.0, 0.0, i8(0)
    for i in range(max(n, n_best)):
        found += worth[i] * discount[i] if i < n else 0.0
        if i < n_best:
            ideal += best[i] * discount[i]
            if i + 1 == n_best or best[i + 1] < best[i]:
                total += found / ideal
                levels += 1
    if n > n_best + 1:
        total += found / ideal
        levels += 1
    return total / levels


@outline
def late_gain(sums: Any, end: Any, m: Any, discount: Any) -> Any:
    """Return the sum of the gains at the first m ranks. After rank 1, each gain is divided by log2(rank).

    Each tied document has the mean gain of its group. The group that starts at `a` ends before end[a], and its total
    gain is sums[a].
    """
    total, a = 0.0, i8(0)
    while a < m:
        b = end[a]
        for i in range(a, min(b, m)):
            total += (sums[a] / (b - a)) * discount[max(i - 1, 0)]
        a = b
    return total


@outline
def late_ideal(best: Any, m: Any, discount: Any) -> Any:
    """Return the sum of the gains at the first m ranks in the ideal order `best`, discounted as in `late_gain`."""
    total = 0.0
    for i in range(m):
        total += best[i] * discount[max(i - 1, 0)]
    return total


@outline
def smoothed_precision(worth: Any, level: Any, n: Any, R: Any) -> Any:
    """Return log((1 + P) / (1 + max(R - P, 0))), where P is the sum of precision at the ranks of relevant documents.

    R is the number of relevant documents. A document is relevant if its gain in `worth` is at least `level`.
    """
    total, hits = 0.0, 0.0
    for i in range(n):
        if worth[i] >= level:
            hits += 1.0
            total += hits / (i + 1.0)
    return log((1.0 + total) / (1.0 + max(R - total, 0.0)))
