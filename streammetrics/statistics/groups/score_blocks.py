"""Blocks of rows with the same group and score: the weight of each block, and cumulative weights.

Metrics that need a curve or a cut-off in each group (average precision or precision at k, for example) are computed
from sums over these blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics.array_rows import exclusive_cumsum
from .scan import SortedGroupRows

__all__ = ["Blocks", "group_score_blocks"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Weights are split into 20-bit parts. Up to 2**43 such parts can be added in an int64.
PART = 20


class Blocks(NamedTuple):
    """Weights of blocks of rows, where a block consists of all rows of a group that have the same score.

    The blocks are sorted by group, and within a group by ascending score.

    Parameters
    ----------
    group : int64 array
        The group index of each block, starting at 0.
    positive, weight : float64 arrays
        The weight of the positives and the weight of all rows of each block.
    positive_through, through : float64 arrays
        The weight of the positives and the weight of all rows, summed over each block and all blocks of its group that
        have higher scores.
    positives, weights : float64 arrays
        The weight of the positives and the weight of all rows of each group.
    """

    group: Ints
    positive: Floats
    weight: Floats
    positive_through: Floats
    through: Floats
    positives: Floats
    weights: Floats

    def sums(self, values: Floats) -> Floats:
        """Sum `values`, which contains one value for each block, over the blocks of each group."""
        return np.asarray(np.bincount(self.group, values, len(self.weights)), np.float64)


def group_score_blocks(rows: SortedGroupRows) -> Blocks:
    """Return the blocks of rows with the same group and score; the rows must be sorted by group, score and label."""
    n = len(rows.numbers)
    starts_group = np.ones(n, bool)
    starts_group[1:] = rows.numbers[1:] != rows.numbers[:-1]
    starts_block = starts_group.copy()
    starts_block[1:] |= rows.keys[1:] != rows.keys[:-1]
    # Three kinds of sums are needed: the sum over a block; the sum over a block and all higher-scoring blocks of its
    # group; and the sum over a group. Each sum is the difference between two elements of a running sum. `cuts`
    # contains the indices of these two elements for each kind.
    begins, places = np.flatnonzero(starts_group), np.flatnonzero(starts_block)
    ends, group = np.append(begins[1:], n), (np.cumsum(starts_group) - 1)[places]
    block_ends, group_ends = np.append(places[1:], n)[: len(places)], ends[: len(begins)][group]
    parts = _weight_parts(rows)
    labels = rows.labels.astype(np.int64)
    positive, all_rows = ([exclusive_cumsum(part * which) for part in parts] for which in (labels, 1))
    cuts = (places, block_ends), (places, group_ends), (begins, ends[: len(begins)])
    found = [_sum_between(run, *cut) for cut in cuts for run in (positive, all_rows)]
    return Blocks(group, *found)


def _sum_between(run: list[Ints], first: Ints, last: Ints) -> Floats:
    """Return the total weight of each range of entries, from index `first` up to, but not including, index `last`.

    The weight of an entry is the sum of several parts (see `_weight_parts`), and `run` contains an integer running sum
    for each part. The differences of running sums are exact. Rounding occurs only when they are converted to float64
    and when the parts are added.
    """
    out = np.zeros(len(first))
    for i, part in enumerate(run):
        out += np.ldexp((part[last] - part[first]).astype(np.float64), -PART * i)
    return out


def _weight_parts(rows: SortedGroupRows) -> list[Ints]:
    """Split the weight of each entry into integers that can be summed without rounding.

    The integers in array i of the result are in units of 2**(-20 * i). Without weights, the only array contains the
    row counts.
    """
    if rows.weights is None:
        return [np.asarray(rows.counts, np.int64)]
    high, low = rows.weights
    mask = (1 << PART) - 1
    return [high >> PART, high & mask, low >> PART, low & mask]
