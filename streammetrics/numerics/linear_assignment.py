"""The maximum weight matching of rows and columns of a sparse table, in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["max_matching_weight"]

Ints = NDArray[np.int64]

FREE = -1
NARROW = 1 << 61
"""Sums of three weights with a total below this limit fit int64."""


def max_matching_weight(row: Ints, column: Ints, weight: NDArray[Any]) -> int:
    """Return the largest sum of weights of pairs of which no two share a row or a column.

    Parameters
    ----------
    row, column : int64 arrays
        The row and column of each pair, numbered from 0 without gaps; pairs are distinct.
    weight : object array
        Positive integers.

    Notes
    -----
    Kuhn's Hungarian method with shortest augmenting paths: for n rows and m columns at most n^2 steps over m numbers. The
    final prices are a proof: by linear programming duality no matching has a larger weight than the sum of all prices.
    """
    # Without their common divisor the weights usually fit int64, which is much faster than Python integers.
    unit = int(np.gcd.reduce(weight))
    weight = weight // unit
    matching = _Matching(row, column, weight.astype(np.int64) if int(weight.sum()) < NARROW else weight)
    for start in range(len(matching.row_prices)):
        matching.add(start)
    return (int(matching.row_prices.sum()) + int(matching.column_prices.sum())) * unit


class _Matching:
    """The maximum weight matching of some rows, with dual prices of rows and columns.

    Prices are not negative. The prices of a pair sum up to at least its weight, and exactly to its weight if the pair is
    matched. Unmatched rows and columns have price 0.
    """

    def __init__(self, row: Ints, column: Ints, weight: NDArray[Any]) -> None:
        order = np.argsort(row, kind="stable")
        self.column, self.weight = column[order], weight[order]
        self.cuts = np.searchsorted(row[order], np.arange(int(row.max()) + 2)).tolist()
        self.row_prices = np.maximum.reduceat(self.weight, self.cuts[:-1])
        self.column_prices = np.zeros(int(column.max()) + 1, weight.dtype)
        self.far = self.row_prices.sum() + 1
        self.mates = [FREE] * len(self.row_prices)
        self.owners = [FREE] * len(self.column_prices)

    def add(self, start: int) -> None:
        """Add a row to the matching along the shortest augmenting path, which may leave another row unmatched.

        The length of a path is the sum of price minus weight over its pairs.
        """
        distance = np.full_like(self.column_prices, self.far)
        ahead, before = distance.copy(), np.full(len(distance), FREE)
        rows, lengths = [start], [self.far - self.far]
        row, length, last, end = start, lengths[0], start, self.row_prices[start]
        while True:
            pairs = slice(self.cuts[row], self.cuts[row + 1])
            at = self.column[pairs]
            new = length + self.row_prices[row] + self.column_prices[at] - self.weight[pairs]
            nearer = new < distance[at]
            at = at[nearer]
            distance[at] = ahead[at] = new[nearer]
            before[at] = row
            nearest = int(ahead.argmin())
            if ahead[nearest] >= end:  # leaving the row `last` unmatched is at least as good
                nearest, self.mates[last] = self.mates[last], FREE
                break
            length, row = distance[nearest], self.owners[nearest]
            if row == FREE:
                end = length
                break
            ahead[nearest] = self.far
            rows.append(row)
            lengths.append(length)
            if length + self.row_prices[row] < end:
                last, end = row, length + self.row_prices[row]
        # Change the prices of all rows and columns with shorter paths by the difference from the length of the final path.
        # The prices then still satisfy the conditions in the docstring of the class.
        self.column_prices += np.maximum(end - distance, 0)
        self.row_prices[rows] -= end - np.array(lengths, self.row_prices.dtype)
        # Walk the path backwards, and match every row on it with its new column.
        while nearest != FREE:
            row = int(before[nearest])
            self.owners[nearest] = row
            nearest, self.mates[row] = self.mates[row], nearest
