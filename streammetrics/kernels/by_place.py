"""Measures of a ranked query that go from place to place: where documents nobody judged count, or recall is reached."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import outline

f8, i8 = np.float64, np.int64

EPSILON = 0.00001  # trec_eval's, for the share of relevant documents among none


@outline
def q_measure(hit: Any, sums: Any, end: Any, n: Any, m: Any, beta: Any, best: Any, n_best: Any) -> Any:
    """The sum of the blended ratio at each relevant place of the first m, on average over the orders of ties.

    A place of a group of s documents, r of them relevant, of gain G together, is relevant with probability r / s; then a
    place of the group before it is with (r - 1) / (s - 1).
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
                found = (r / s) * (hits + so_far + beta * gained) + beta * (G / s) * so_far
                total += found / (i + 1.0 + beta * ideal)
        hits += r
        gained += G
        a = b
    return total


@outline
def interpolated_precision(worth: Any, level: Any, n: Any, need: Any) -> Any:
    """The highest precision at any place by which so many relevant documents are found; 0 if they are not."""
    hits, best = 0, 0.0
    for i in range(n):
        hits += 1 if worth[i] >= level else 0
        if hits >= need:
            best = max(best, hits / (i + 1.0))
    return best


@outline
def eleven_points(worth: Any, level: Any, n: Any, R: Any) -> Any:
    """The mean of the interpolated precision at recall 0, 0.1, ..., 1."""
    total = 0.0
    for j in range(11):
        total += interpolated_precision(worth, level, n, i8(np.floor((j / 10.0) * R + 0.9)))
    return total / 11.0


@outline
def bpref(worth: Any, level: Any, un: Any, n: Any, R: Any, N: Any) -> Any:
    """The sum over relevant documents of one less the share of judged irrelevant ones above, of which R count at most."""
    total, above = 0.0, i8(0)
    for i in range(n):
        if worth[i] >= level:
            total += 1.0 - min(above, R) / f8(min(N, R)) if above > 0 else 1.0
        elif un[i] == 0:
            above += 1
    return total


@outline
def inferred_precision(worth: Any, level: Any, un: Any, n: Any) -> Any:
    """The sum over relevant documents of the precision there, as those judged above suggest for those that were not."""
    total, rel, non, blank = 0.0, i8(0), i8(0), i8(0)
    for i in range(n):
        if worth[i] >= level:
            total += 1.0 / (i + 1.0)
            if i > 0:
                known = rel + non
                share = (rel + EPSILON) / (known + 2 * EPSILON)
                total += (i / (i + 1.0)) * ((known + blank) / f8(i)) * share
            rel += 1
        elif un[i] == 1:
            blank += 1
        elif un[i] == 0:
            non += 1
    return total
