"""Rows of one score within a group, and what is above them: what curves and cuts of every group are read of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .scan import Sorted

__all__ = ["Blocks", "blocks_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PART = 20  # bits of a part of a weight: sums of 2**43 of them are integers of 64 bits


class Blocks(NamedTuple):
    """Rows of one score within a group, scores ascending within groups; and all groups.

    Parameters
    ----------
    group : int64 array
        The group of each block, from 0 on.
    positive, weight : float64 arrays
        What the positives of a block weigh, and all its rows.
    positive_through, through : float64 arrays
        With those of the group that have a higher score.
    positives, weights : float64 arrays
        Those of each group.
    """

    group: Ints
    positive: Floats
    weight: Floats
    positive_through: Floats
    through: Floats
    positives: Floats
    weights: Floats

    def sums(self, values: Floats) -> Floats:
        """The sum of a value of blocks for each group, one after the other."""
        return np.asarray(np.bincount(self.group, values, len(self.weights)), np.float64)


def blocks_of(rows: Sorted) -> Blocks:
    """Return the blocks of entries that are sorted by group, score and label."""
    n = len(rows.numbers)
    new = np.ones(n, bool)
    new[1:] = rows.numbers[1:] != rows.numbers[:-1]
    fresh = new.copy()
    fresh[1:] |= rows.keys[1:] != rows.keys[:-1]
    begins, places = np.flatnonzero(new), np.flatnonzero(fresh)
    ends, group = np.append(begins[1:], n), (np.cumsum(new) - 1)[places]
    beyond, last = np.append(places[1:], n)[: len(places)], ends[: len(begins)][group]
    parts = _parts(rows)
    positive, everything = ([_run(part * which) for part in parts] for which in (rows.labels.astype(np.int64), 1))
    cuts = (places, beyond), (places, last), (begins, ends[: len(begins)])
    found = [_between(run, *cut) for cut in cuts for run in (positive, everything)]
    return Blocks(group, *found)


def _between(run: list[Ints], first: Ints, last: Ints) -> Floats:
    """What entries from one to another weigh: integers, until the parts are put together."""
    out = np.zeros(len(first))
    for i, part in enumerate(run):
        out += np.ldexp((part[last] - part[first]).astype(np.float64), -PART * i)
    return out


def _parts(rows: Sorted) -> list[Ints]:
    """What entries weigh, in integers of so many bits each: rows, and, where they have weights, fractions of them."""
    if rows.weights is None:
        return [np.asarray(rows.counts, np.int64)]
    high, low = rows.weights
    mask = (1 << PART) - 1
    return [high >> PART, high & mask, low >> PART, low & mask]


def _run(values: Any) -> Ints:
    run = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=run[1:])
    return run
