"""The heaviest matching of rows and columns of a sparse table, in integers: who stands for whom."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["heaviest"]

Ints = NDArray[np.int64]

FREE = -1
NARROW = 1 << 61
"""Sums of three weights below it are int64."""


def heaviest(row: Ints, column: Ints, weight: NDArray[Any]) -> int:
    """Return the largest sum of weights of pairs of which no two have a row or a column in common.

    Parameters
    ----------
    row, column : int64 arrays
        The places of each pair, from 0 on, none left out; no pair comes twice.
    weight : object array
        Positive integers.

    Notes
    -----
    Kuhn's Hungarian method with shortest augmenting paths: of n rows and m columns at most n^2 steps over m numbers. The
    prices that it ends with prove the sum: no matching is worth more than they are.
    """
    unit = int(np.gcd.reduce(weight))
    weight = weight // unit
    matching = _Matching(row, column, weight.astype(np.int64) if int(weight.sum()) < NARROW else weight)
    for start in range(len(matching.of_row)):
        matching.add(start)
    return (int(matching.of_row.sum()) + int(matching.of_column.sum())) * unit


class _Matching:
    """The heaviest matching of some rows, and prices of rows and columns.

    None is below 0. Those of a pair are together no less than its weight, and equal to it in the matching; what is in no
    pair of it has the price 0.
    """

    def __init__(self, row: Ints, column: Ints, weight: NDArray[Any]) -> None:
        order = np.argsort(row, kind="stable")
        self.column, self.weight = column[order], weight[order]
        self.cuts = np.searchsorted(row[order], np.arange(int(row.max()) + 2)).tolist()
        self.of_row = np.maximum.reduceat(self.weight, self.cuts[:-1])
        self.of_column = np.zeros(int(column.max()) + 1, weight.dtype)
        self.far = self.of_row.sum() + 1
        self.mates = [FREE] * len(self.of_row)
        self.owners = [FREE] * len(self.of_column)

    def add(self, start: int) -> None:
        """Match a row more, or another one less: the shortest path by what prices are above weights."""
        distance = np.full_like(self.of_column, self.far)
        ahead, before = distance.copy(), np.full(len(distance), FREE)
        rows, lengths = [start], [self.far - self.far]
        row, length, last, end = start, lengths[0], start, self.of_row[start]
        while True:
            pairs = slice(self.cuts[row], self.cuts[row + 1])
            at = self.column[pairs]
            new = length + self.of_row[row] + self.of_column[at] - self.weight[pairs]
            nearer = new < distance[at]
            at = at[nearer]
            distance[at] = ahead[at] = new[nearer]
            before[at] = row
            nearest = int(ahead.argmin())
            if ahead[nearest] >= end:  # no shorter than to leave a row alone
                nearest, self.mates[last] = self.mates[last], FREE
                break
            length, row = distance[nearest], self.owners[nearest]
            if row == FREE:
                end = length
                break
            ahead[nearest] = self.far
            rows.append(row)
            lengths.append(length)
            if length + self.of_row[row] < end:
                last, end = row, length + self.of_row[row]
        self.of_column += np.maximum(end - distance, 0)
        self.of_row[rows] -= end - np.array(lengths, self.of_row.dtype)
        while nearest != FREE:
            row = int(before[nearest])
            self.owners[nearest] = row
            nearest, self.mates[row] = self.mates[row], nearest
