"""Counting concordant pairs: pairs of documents with different gains in a ranked query, counted by merge sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import outline
from .ranking import sort_descending

i8 = np.int64


@outline
def count_unequal_pairs(worth: Any, a: Any, b: Any) -> Any:
    """Return the number of pairs of unequal values in a sorted array."""
    total, first = i8(0), a
    for i in range(a + 1, b):
        if worth[i] != worth[i - 1]:
            first = i
        total += first - a
    return total


@outline
def count_tied_pairs(worth: Any, end: Any, n: Any) -> Any:
    """Return the number of pairs of documents with tied scores but different gains; tie groups are sorted by gain."""
    total, a = i8(0), i8(0)
    while a < n:
        b = end[a]
        total += count_unequal_pairs(worth, a, b)
        a = b
    return total


@outline
def count_rising_pairs(worth: Any, n: Any, one: Any, other: Any) -> Any:
    """Return the number of pairs whose second document has the larger gain.

    `one` and `other` are scratch; `one` ends up sorted in descending order.
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
                # For equal gains take the document of the first half first, so that equal pairs do not count as
                # inversions.
                if j == b or (i < m and one[i] >= one[j]):
                    other[at] = one[i]
                    i += 1
                else:
                    other[at] = one[j]
                    j += 1
                    # The remaining documents of the first half rank before this document and have smaller gains.
                    total += m - i
            a = b
        for at in range(n):
            one[at] = other[at]
        width *= 2
    return total


@outline
def count_pairs(worth: Any, end: Any, n: Any, length: Any, one: Any, other: Any, counts: Any) -> None:
    """Count pairs of documents with different gains, and how many of them are in the right order (ties count one half).

    Three such pairs of numbers are written. First, for pairs of the first n documents, which were returned. Second, for
    pairs with at least one returned document, where documents that were not returned rank below all others. Third, for all
    pairs, where pairs of documents that were not returned count as wrong. `worth` ends up sorted beyond the first n.
    """
    wrong = count_rising_pairs(worth, n, one, other) + count_tied_pairs(worth, end, n) / 2.0
    counts[0] = count_unequal_pairs(one, i8(0), n)
    counts[1] = counts[0] - wrong
    sort_descending(worth, n, length)
    # Indices into the documents that were not returned, which are sorted by descending gain: of the first one with at most
    # the gain of the returned document, and of the first one with less.
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
