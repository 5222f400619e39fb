"""Operations on entries of score histograms, which count rows by cell (such as a slice), score or bucket, and label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..state.declare import Array
from ..state.tally import Entries

__all__ = ["add_next_buckets", "concat_entries", "count_distinct", "has_negative_weight", "high_bits", "score_keys"]

Ints = NDArray[np.int64]
U4, U8, I8 = np.uint32, np.uint64, np.int64
BLOCK = 1 << 16
"""The number of entries that are checked at a time."""


def count_distinct(cells: Ints, numbers: Array, count: int) -> Ints:
    """Count the distinct elements of `numbers` in each cell (such as a slice).

    Parameters
    ----------
    cells, numbers : integer arrays
        `cells` contains the cell of each element of `numbers`. Both are sorted by cell, then by number.
    count : int
        The number of cells.
    """
    first = np.ones(len(cells), bool)
    first[1:] = (cells[1:] != cells[:-1]) | (numbers[1:] != numbers[:-1])
    return np.bincount(cells[first], minlength=count)


def high_bits(exact: Entries) -> Array:
    """Return the high word of the code of each exact score; a code has two words."""
    assert exact.high is not None
    return exact.high


def score_keys(exact: Entries, real: bool) -> NDArray[np.uint64]:
    """Return the exact score of each entry, encoded as an integer; the integers have the same order as the scores.

    The low word of an entry's code contains 63 bits of the score, followed by the label as the last bit. A real score
    (not a probability) has one more bit, which is stored in the high word.
    """
    keys = exact.codes >> U8(1)
    if real:
        keys |= (high_bits(exact) & U4(1)).astype(U8) << U8(63)
    return keys


def add_next_buckets(occupied: Ints, at: Ints, count: int) -> tuple[Ints, Ints]:
    """Insert, after each bucket with rows, the next higher bucket, unless that bucket also contains rows.

    Parameters
    ----------
    occupied : int64 array
        The buckets with rows, in ascending order.
    at : int64 array
        For each entry, the index of its bucket in `occupied`.
    count : int
        The total number of buckets.

    Returns
    -------
    buckets : int64 array
        The buckets in ascending order, including the inserted ones.
    at : int64 array
        For each entry, the index of its bucket in `buckets`.
    """
    lacks_next = np.ones(len(occupied), bool)
    lacks_next[:-1] = occupied[1:] != occupied[:-1] + 1
    lacks_next[-1:] &= occupied[-1:] + 1 < count
    new_index = np.arange(len(occupied)) + np.cumsum(lacks_next) - lacks_next
    out = np.empty(len(occupied) + int(lacks_next.sum()), I8)
    out[new_index] = occupied
    out[new_index[lacks_next] + 1] = occupied[lacks_next] + 1
    return out, new_index[at]


def concat_entries(a: Entries, b: Entries) -> Entries:
    """Return the entries of `a`, followed by those of `b`. No cell (such as a slice) may have entries in both."""
    kind = np.result_type(a.codes, b.codes)
    excess = None
    if a.excess is not None or b.excess is not None:
        excess = np.concatenate([np.zeros((len(e), 2), I8) if e.excess is None else e.excess for e in (a, b)])
    codes = np.concatenate([a.codes.astype(kind), b.codes.astype(kind)])
    return Entries(a.shift, codes, np.concatenate([a.int64_counts, b.int64_counts]), excess)


def has_negative_weight(entries: Entries) -> bool:
    """Return whether any entry has a negative weight: its row count plus the sum of (weight - 1) over its rows."""
    if entries.excess is None:
        return False
    high, counts = entries.excess[:, 0], entries.counts
    blocks = (slice(i, i + BLOCK) for i in range(0, len(entries), BLOCK))
    return any(bool((high[at] / (1 << 20) + counts[at] < -1e-6).any()) for at in blocks)
