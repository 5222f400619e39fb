"""Measures of a ranked query beside its ideal order, from place to place: trec_eval's relatives of NDCG and of AP."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.elementary import LN2
from ._jit import outline
from .elementary import log

f8, i8 = np.float64, np.int64


@outline
def gain_over_cost(worth: Any, n: Any, best: Any, n_best: Any) -> Any:
    """The sum of gains, each discounted by what the places so far could have gained beyond what they did.

    A place that could have gained less than 1 costs 1.
    """
    total, missed = 0.0, 2.0
    for i in range(n):
        missed += (max(best[i], 1.0) if i < n_best else 1.0) - worth[i]
        total += worth[i] / (log(missed) / LN2) if worth[i] > 0 else 0.0
    return total


@outline
def hits_by_misses(worth: Any, level: Any, n: Any, discount: Any) -> Any:
    """The sum over relevant documents of 1 / log2(2 + irrelevant above)."""
    total, missed = 0.0, i8(0)
    for i in range(n):
        if worth[i] >= level:
            total += discount[missed]
        else:
            missed += 1
    return total


@outline
def ndcg_of_hits(worth: Any, n: Any, best: Any, n_best: Any, discount: Any) -> Any:
    """The mean of NDCG at the place of each document of a gain; of those not returned, at the end."""
    total, found, ideal, hits = 0.0, 0.0, 0.0, i8(0)
    for i in range(max(n, n_best)):
        if i < n_best:
            ideal += best[i] * discount[i]
        if i < n and worth[i] > 0:
            found += worth[i] * discount[i]
            total += found / ideal
            hits += 1
    return (total + (n_best - hits) * (found / ideal)) / n_best


@outline
def ndcg_of_levels(worth: Any, n: Any, best: Any, n_best: Any, discount: Any) -> Any:
    """The mean of NDCG at the places where the ideal order comes to a lower grade; and at the end, if that is beyond."""
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
    """The gain of the first m places, discounted by log2(place) from the second on; of groups, the mean over orders."""
    total, a = 0.0, i8(0)
    while a < m:
        b = end[a]
        for i in range(a, min(b, m)):
            total += (sums[a] / (b - a)) * discount[max(i - 1, 0)]
        a = b
    return total


@outline
def late_ideal(best: Any, m: Any, discount: Any) -> Any:
    """That of the ideal order."""
    total = 0.0
    for i in range(m):
        total += best[i] * discount[max(i - 1, 0)]
    return total


@outline
def smoothed_precision(worth: Any, level: Any, n: Any, R: Any) -> Any:
    """The log of one more than the precisions at relevant places, over one more than what R of them lack."""
    total, hits = 0.0, 0.0
    for i in range(n):
        if worth[i] >= level:
            hits += 1.0
            total += hits / (i + 1.0)
    return log((1.0 + total) / (1.0 + max(R - total, 0.0)))
