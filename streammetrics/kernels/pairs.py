"""Pairs of documents of different worth in a ranked query, counted as they are merged into order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import outline
from .ranking import sort_falling

i8 = np.int64


@outline
def unequal_pairs(worth: Any, a: Any, b: Any) -> Any:
    """How many pairs among sorted worths are of different ones."""
    total, first = i8(0), a
    for i in range(a + 1, b):
        if worth[i] != worth[i - 1]:
            first = i
        total += first - a
    return total


@outline
def tied_pairs(worth: Any, end: Any, n: Any) -> Any:
    """How many pairs of different worth are tied, where groups are sorted by worth."""
    total, a = i8(0), i8(0)
    while a < n:
        b = end[a]
        total += unequal_pairs(worth, a, b)
        a = b
    return total


@outline
def rising_pairs(worth: Any, n: Any, one: Any, other: Any) -> Any:
    """How many pairs have the worthier document last; of the scratch, `one` ends up sorted, the worthiest first."""
    for at in range(n):
        one[at] = worth[at]
    total, width = i8(0), i8(1)
    while width < n:
        a = i8(0)
        while a < n:
            m, b = min(a + width, n), min(a + 2 * width, n)
            i, j = a, m
            for at in range(a, b):
                if j == b or (i < m and one[i] >= one[j]):
                    other[at] = one[i]
                    i += 1
                else:
                    other[at] = one[j]
                    j += 1
                    total += m - i  # all that are left of the first half stand before it, and are worth less
            a = b
        for at in range(n):
            one[at] = other[at]
        width *= 2
    return total


@outline
def count_pairs(worth: Any, end: Any, n: Any, length: Any, one: Any, other: Any, found: Any) -> None:
    """Write how many pairs are of different worth, and how many of them in the right order, a tie counting one half.

    Of those among the first n, which were returned; of those with one of these at least, the others standing below all;
    and of all, those among the others being wrong. `worth` ends up sorted beyond the first n.
    """
    wrong = rising_pairs(worth, n, one, other) + tied_pairs(worth, end, n) / 2.0
    found[0] = unequal_pairs(one, i8(0), n)
    found[1] = found[0] - wrong
    sort_falling(worth, n, length)
    higher, as_high = n, n  # where those begin that are worth no more than a returned one, and less
    better, worse = i8(0), i8(0)
    for at in range(n):
        while higher < length and worth[higher] > one[at]:
            higher += 1
        while as_high < length and worth[as_high] >= one[at]:
            as_high += 1
        worse += higher - n
        better += length - as_high
    found[2], found[3] = found[0] + (better + worse), found[1] + better
    found[4], found[5] = found[2] + unequal_pairs(worth, n, length), found[3]
