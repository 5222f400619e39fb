"""Counts of negatives, positives and concordant pairs of every group, from rows sorted by group, score and label.

A positive and a negative of a group are concordant if the positive has the higher score; a tie counts one half. The
computation is implemented both as a compiled kernel and in numpy, with bit-for-bit identical results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics import kernel_registry
from ...numerics.exact import carry_fixed
from ...state.tally import Entries
from .closed_sums import Groups

__all__ = ["SortedGroupRows", "compare_rows", "fixed_weights", "scan_groups", "sorted_entries"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
# In a group with fewer rows than this, the number of pairs of a positive and a negative fits in an int64.
FEW = 1 << 31
DIGIT, MASK = 26, (1 << 26) - 1


class SortedGroupRows(NamedTuple):
    """Row counts by group, score and label, as sorted entries.

    Parameters
    ----------
    numbers : integers
        The group index of each entry; the indices start at 0 and have no gaps.
    keys : uint64
        The score of each entry, encoded as an integer; the integers have the same order as the scores.
    labels : uint8
        The label of each entry, 0 or 1.
    counts : integers
        The number of rows in each entry.
    weights : (int64, int64), optional
        The weight of each entry, as two integers (high, low) that represent high * 2**-20 + low * 2**-60. None if rows
        have no weights.
    """

    numbers: Array
    keys: Array
    labels: Array
    counts: Array
    weights: tuple[Ints, Ints] | None = None


def compare_rows(keys: NDArray[np.uint64], starts: Ints) -> Groups:
    """Count the negatives, positives and concordant pairs of groups whose rows have no weights.

    Parameters
    ----------
    keys : uint64 array
        The score and the label of each row, packed into one integer. The rows of a group are adjacent, in any order.
    starts : int64 array
        The index of the first row of each group, followed by the number of rows.

    Notes
    -----
    If one label is rare in a group, the kernel compares every positive of the group with every negative, without
    sorting. For any other group, it sets `wins` to -1. The keys of such a group are then sorted in place, and a second
    kernel counts the concordant pairs of the group in one pass.
    """
    groups = Groups.zeros(len(starts) - 1)
    kernel_registry.find_kernel("groups:compare_rows")(keys, starts, *groups[:3])
    many = np.flatnonzero(groups.wins < 0)
    for group in many.tolist():
        keys[starts[group] : starts[group + 1]].sort()
    if len(many):
        kernel_registry.find_kernel("groups:scan_sorted_rows")(keys, starts, many, groups.wins)
    np.multiply(groups.negatives, groups.positives, out=groups.pairs)
    return groups


def fixed_weights(weights: NDArray[np.float64]) -> Ints:
    """Return each weight as two integers, which represent high * 2**-20 + low * 2**-60.

    Each weight is rounded once, in the same way as in the kernels.
    """
    # Adding 1.5 * 2**32 rounds a float64 to a multiple of 2**-20, because the last bit of the sum has the value 2**-20.
    # Read as integers, the bits of the sum minus the bits of the constant give this multiple. The remainder is rounded
    # to a multiple of 2**-60 in the same way.
    high = weights + 1.5 * 2.0**32
    low = (weights - (high - 1.5 * 2.0**32)) + 1.5 * 2.0**-8
    pair = np.stack([high.view(np.int64) - 0x41F8000000000000, low.view(np.int64) - 0x3F78000000000000], axis=-1)
    carry_fixed(pair)
    return pair


def sorted_entries(entries: Entries) -> SortedGroupRows:
    """Convert entries of a state (row counts by group, score and label) to `SortedGroupRows`."""
    keys = entries.codes >> np.uint64(1)
    if entries.high is not None and entries.high_place_bits:
        keys |= (entries.high & np.uint32(1)).astype(np.uint64) << np.uint64(63)
    weights = None
    if entries.excess is not None:
        weights = entries.excess[:, 0] + (entries.int64_counts << 20), np.ascontiguousarray(entries.excess[:, 1])
    return SortedGroupRows(
        entries.cells, keys, (entries.codes & np.uint64(1)).astype(np.uint8), entries.counts, weights
    )


def scan_groups(rows: SortedGroupRows, count: int) -> Groups:
    """Return the weights of negatives, positives and concordant pairs of each of `count` groups."""
    if not count:
        return Groups.zeros()
    # Use the compiled kernels only if they are already loaded. Loading them just for a merge would be slow.
    if not kernel_registry.has_kernels():
        out = _scan_in_numpy(rows)
    else:
        first = rows.numbers, rows.keys, rows.labels
        if rows.weights is None:
            out = Groups.from_rows(
                count, kernel_registry.find_kernel("group_sums:count_group_wins"), *first, rows.counts
            )
        else:
            out = Groups.zeros(count)
            kernel_registry.find_kernel("group_sums:sum_group_wins")(*first, *rows.weights, *out)
    if rows.weights is None and int(rows.counts.sum(dtype=np.int64)) >= FEW:
        for group in np.flatnonzero(out.negatives + out.positives >= FEW).tolist():
            out.wins[group] = _count_wins(rows, *np.searchsorted(rows.numbers, [group, group + 1]).tolist())
    return out


def _count_wins(rows: SortedGroupRows, first: int, end: int) -> float:
    """Return the number of concordant pairs of one group, whose entries have the indices `first` to `end` - 1.

    The function uses Python integers, because the result may not fit in an int64.
    """
    below = tied = twice = 0
    key = None
    part = slice(first, end)
    for k, label, m in zip(*(c[part].tolist() for c in (rows.keys, rows.labels, rows.counts)), strict=True):
        tied = tied if k == key else 0
        key = k
        if label:
            twice += m * (2 * below - tied)
        else:
            below, tied = below + m, tied + m
    return twice / 2


# -- in numpy --------------------------------------------------------------------------------------------------------


def _scan_in_numpy(rows: SortedGroupRows) -> Groups:
    """Compute the result of `scan_groups` with numpy, without compiled kernels."""
    numbers, labels = rows.numbers, rows.labels != 0
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    each = np.diff(starts, append=len(numbers))
    # An entry of positives is tied if the previous entry contains the negatives with the same score and group.
    tied = np.zeros(len(numbers), bool)
    tied[1:] = labels[1:] & ~labels[:-1] & (rows.keys[1:] == rows.keys[:-1]) & (numbers[1:] == numbers[:-1])
    mass = rows.counts.astype(np.int64)[:, None] if rows.weights is None else _split_digits(*rows.weights)
    negative, positive = np.where(labels[:, None], 0, mass), np.where(labels[:, None], mass, 0)
    # For each entry of positives, add the weight of the negatives in the same group that have a lower score, and half
    # the weight of those that have the same score. `twice` is twice this sum, which avoids fractions.
    run = np.cumsum(negative, axis=0)
    before = run - np.repeat((run - negative)[starts], each, axis=0)
    twice = 2 * before
    twice[tied] -= mass[np.flatnonzero(tied) - 1]
    if rows.weights is None:
        found = [np.add.reduceat(x[:, 0], starts).astype(float) for x in (negative, positive, positive * twice)]
        return Groups(found[0], found[1], found[2] * 0.5, found[0] * found[1])
    won = _multiply_digits(positive, _carry_digits(twice))
    neg, pos, won = (_carry_digits(np.add.reduceat(x, starts)) for x in (negative, positive, won))
    sums = neg, pos, won, _multiply_digits(pos, neg)
    return Groups(*(_digits_to_floats(x, unit) for x, unit in zip(sums, (-60, -60, -121, -120), strict=True)))


def _multiply_digits(a: Ints, b: Ints) -> Ints:
    """Multiply numbers that consist of four 26-bit digits, and return each product as eight digits."""
    out = np.zeros((len(a), 8), np.int64)
    for k in range(4):
        out[:, k : k + 4] += a[:, k : k + 1] * b
    return _carry_digits(out)


def _split_digits(high: Ints, low: Ints) -> Ints:
    """Split weights high * 2**-20 + low * 2**-60 into four 26-bit digits, lowest digit first.

    The product of two digits has 52 bits, so several products can be added in an int64.
    """
    return np.stack([low & MASK, (low >> DIGIT) | ((high & 0xFFF) << 14), (high >> 12) & MASK, high >> 38], axis=-1)


def _carry_digits(numbers: Ints) -> Ints:
    """Carry between digits, in place: all bits of a digit above the lowest 26 move to the next higher digit."""
    for k in range(numbers.shape[1] - 1):
        numbers[:, k + 1] += numbers[:, k] >> DIGIT
        numbers[:, k] &= MASK
    return numbers


def _digits_to_floats(numbers: Ints, units: int) -> NDArray[np.float64]:
    """Convert numbers in 26-bit digits to the nearest float64; the lowest bit has the value 2**units."""
    out = [sum(d << (DIGIT * k) for k, d in enumerate(row)) for row in numbers.tolist()]
    scale = 1 << -units
    # Python rounds the quotient of two integers correctly, however large they are.
    return np.array([n / scale for n in out], np.float64)
