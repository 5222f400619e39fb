"""Maximum weight matching: choose at most one cell per row and column of a sparse table to get the largest sum.

The weights are integers, so the result is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["max_matching_weight"]

Ints = NDArray[np.int64]

FREE = -1
NARROW = 1 << 61
"""If the sum of all weights is below this limit, sums of three prices or weights fit in an int64."""


def max_matching_weight(row: Ints, column: Ints, weight: NDArray[Any]) -> int:
    """Return the weight of the maximum weight matching: the largest total weight of pairs that share no row or column.

    Parameters
    ----------
    row, column : int64 arrays
        The row and column of each pair, numbered from 0 without gaps. The pairs must be distinct.
    weight : object array
        The weight of each pair, a positive integer.

    Notes
    -----
    The algorithm is Kuhn's Hungarian method with shortest augmenting paths. For n rows and m columns, it takes at most
    n^2 steps, each of which scans m numbers. It computes a dual price for each row and column. By linear programming
    duality, no matching has a larger weight than the sum of all prices, so the final prices prove that the result is
    optimal.
    """
    # Divide the weights by their greatest common divisor. They then usually fit in int64, which is much faster than
    # Python ints.
    unit = int(np.gcd.reduce(weight))
    weight = weight // unit
    matching = _Matching(row, column, weight.astype(np.int64) if int(weight.sum()) < NARROW else weight)
    for start in range(len(matching.row_prices)):
        matching.add(start)
    return (int(matching.row_prices.sum()) + int(matching.column_prices.sum())) * unit


class _Matching:
    """The maximum weight matching of the rows added so far, with dual prices of rows and columns.

    Prices always satisfy the following conditions. No price is negative. For each pair, the sum of the row price and
    the column price is at least the weight of the pair, and equal to it if the pair is matched. Unmatched columns, and
    rows that have been added but are unmatched, have a price of 0.
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

        The length of a path is the sum, over its pairs, of (row price + column price - weight). Matched pairs add 0.
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
            # `end` is the length of the path that leaves the row `last` unmatched. Stop if no path to a free column is
            # shorter.
            if ahead[nearest] >= end:
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
        # For each row and column reached by a path shorter than the final one, change the price by the difference
        # between the two lengths. The conditions in the class docstring then hold again.
        self.column_prices += np.maximum(end - distance, 0)
        self.row_prices[rows] -= end - np.array(lengths, self.row_prices.dtype)
        # Walk the path backward, and match every row on it with its new column.
        while nearest != FREE:
            row = int(before[nearest])
            self.owners[nearest] = row
            nearest, self.mates[row] = self.mates[row], nearest
