"""Counts of the concordant pairs of documents in the ranking of a query.

A pair of documents is concordant if the document with the larger gain ranks above the other. Pairs are counted by merge
sort, without comparing every pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import outline
from .ranking import sort_descending

i8 = np.int64


@outline
def count_unequal_pairs(worth: Any, a: Any, b: Any) -> Any:
    """Return the number of pairs of unequal values in the sorted array worth[a:b]."""
    total, first = i8(0), a
    for i in range(a + 1, b):
        if worth[i] != worth[i - 1]:
            first = i
        total += first - a
    return total


@outline
def count_tied_pairs(worth: Any, end: Any, n: Any) -> Any:
    """Return the number of pairs of documents with equal scores but different gains.

    `worth` holds the gains of n documents in rank order. A group of documents with equal scores that starts at `a` ends
    before end[a] and is sorted by gain.
    """
    total, a = i8(0), i8(0)
    while a < n:
        b = end[a]
        total += count_unequal_pairs(worth, a, b)
        a = b
    return total


@outline
def count_rising_pairs(worth: Any, n: Any, one: Any, other: Any) -> Any:
    """Return the number of document pairs in the wrong order, in which the lower-ranked document has the larger gain.

    `worth` holds the gains of n documents in rank order. `one` and `other` are working memory; on return, `one` holds
    the gains sorted in descending order.
    """
    for at in range(n):
        one[at] = worth[at]
    total, width = i8(0), i8(1)
    while width < n:
        a = i8(0)
        while a < n:
            m, b = min(a + width, n), min(a + 2 * width, n)
            i, j = a, m
            for at in range(a, b):
                # If the two gains are equal, take the document from the first half, so that the pair does not count as
                # wrong.
                if j == b or (i < m and one[i] >= one[j]):
                    other[at] = one[i]
                    i += 1
                else:
                    other[at] = one[j]
                    j += 1
                    # The remaining documents in the first half rank above this document but have smaller gains.
                    total += m - i
            a = b
        for at in range(n):
            one[at] = other[at]
        width *= 2
    return total


@outline
def count_pairs(worth: Any, end: Any, n: Any, length: Any, one: Any, other: Any, counts: Any) -> None:
    """Count pairs of documents with different gains, and how many of them are in the right order (ties count one half).

    `worth` holds the gains of all `length` documents of a query. The first n were returned and are in rank order; a
    group of tied documents that starts at index `a` ends before index end[a]. The other documents were not returned and
    rank below the first n.

    Both counts are written to the array `counts` three times: for pairs of returned documents, for pairs with at least
    one returned document, and for all pairs. A pair of documents that were not returned counts as wrong. `one` and
    `other` are working memory. On return, worth[n:length] is sorted in descending order.
    """
    wrong = count_rising_pairs(worth, n, one, other) + count_tied_pairs(worth, end, n) / 2.0
    counts[0] = count_unequal_pairs(one, i8(0), n)
    counts[1] = counts[0] - wrong
    sort_descending(worth, n, length)
    # worth[n:length], the gains of documents that were not returned, is now in descending order. For each returned
    # document, the gains in worth[n:higher] are higher than its own, and those in worth[n:as_high] at least as high.
    higher, as_high = n, n
    better, worse = i8(0), i8(0)
    for at in range(n):
        while higher < length and worth[higher] > one[at]:
            higher += 1
        while as_high < length and worth[as_high] >= one[at]:
            as_high += 1
        worse += higher - n
        better += length - as_high
    counts[2], counts[3] = counts[0] + (better + worse), counts[1] + better
    counts[4], counts[5] = counts[2] + count_unequal_pairs(worth, n, length), counts[3]
