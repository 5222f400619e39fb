"""Blocks of rows with equal score within a group, and cumulative weights, for curves and cut-offs of every group."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .scan import SortedGroupRows

__all__ = ["Blocks", "group_score_blocks"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Weights are split into parts of 20 bits, of which 2**43 can be summed in an int64.
PART = 20


class Blocks(NamedTuple):
    """Blocks of rows of equal score within a group, scores ascending within groups, and totals of groups.

    Parameters
    ----------
    group : int64 array
        The group of each block, from 0.
    positive, weight : float64 arrays
        The weight of the positives of each block, and of all its rows.
    positive_through, through : float64 arrays
        The weight of positives, and of all rows, in the block and all blocks of the group with higher scores.
    positives, weights : float64 arrays
        The weight of the positives of each group, and of all its rows.
    """

    group: Ints
    positive: Floats
    weight: Floats
    positive_through: Floats
    through: Floats
    positives: Floats
    weights: Floats

    def sums(self, values: Floats) -> Floats:
        """Return, for each group, the sum of a value over its blocks, added in order."""
        return np.asarray(np.bincount(self.group, values, len(self.weights)), np.float64)


def group_score_blocks(rows: SortedGroupRows) -> Blocks:
    """Group entries, sorted by group, score and label, into blocks of equal score."""
    n = len(rows.numbers)
    starts_group = np.ones(n, bool)
    starts_group[1:] = rows.numbers[1:] != rows.numbers[:-1]
    starts_block = starts_group.copy()
    starts_block[1:] |= rows.keys[1:] != rows.keys[:-1]
    # Cumulative sums over a block, over the block and all higher scores, and over the group are differences of one running
    # sum at these cuts.
    begins, places = np.flatnonzero(starts_group), np.flatnonzero(starts_block)
    ends, group = np.append(begins[1:], n), (np.cumsum(starts_group) - 1)[places]
    block_ends, group_ends = np.append(places[1:], n)[: len(places)], ends[: len(begins)][group]
    parts = _weight_parts(rows)
    positive, all_rows = ([_running_sum(part * which) for part in parts] for which in (rows.labels.astype(np.int64), 1))
    cuts = (places, block_ends), (places, group_ends), (begins, ends[: len(begins)])
    found = [_sum_between(run, *cut) for cut in cuts for run in (positive, all_rows)]
    return Blocks(group, *found)


def _sum_between(run: list[Ints], first: Ints, last: Ints) -> Floats:
    """Return the weight of the entries from `first` to `last`, from exact integer sums that are rounded at the end."""
    out = np.zeros(len(first))
    for i, part in enumerate(run):
        out += np.ldexp((part[last] - part[first]).astype(np.float64), -PART * i)
    return out


def _weight_parts(rows: SortedGroupRows) -> list[Ints]:
    """Return the weights of entries as integers of PART bits: row counts, and with weights also three fractional parts."""
    if rows.weights is None:
        return [np.asarray(rows.counts, np.int64)]
    high, low = rows.weights
    mask = (1 << PART) - 1
    return [high >> PART, high & mask, low >> PART, low & mask]


def _running_sum(values: Any) -> Ints:
    run = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=run[1:])
    return run
