"""Pairs of documents of different worth in a ranked query, counted as they are merged into order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import outline

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
