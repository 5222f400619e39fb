"""What every group holds and wins, from entries sorted by group, score and label: compiled, or in numpy, to the bit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics import kernel_registry as compiled
from ...numerics.exact import carry_fixed
from ...state.tally import Entries
from .closed import Groups

__all__ = ["Sorted", "compared", "fixed_weights", "of_entries", "scanned"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
FEW = 1 << 31  # rows, of which the pairs fit an int64
DIGIT, MASK = 26, (1 << 26) - 1


class Sorted(NamedTuple):
    """Entries, or rows, sorted by group, score and label.

    Parameters
    ----------
    numbers : integers
        The group of each, from 0 on, each of which there is.
    keys : uint64
        The score, as a number in its order.
    labels : uint8
        The label.
    counts : integers
        How many rows they are.
    weights : (int64, int64), optional
        What they weigh, in limbs.
    """

    numbers: Array
    keys: Array
    labels: Array
    counts: Array
    weights: tuple[Ints, Ints] | None = None


def compared(keys: NDArray[np.uint64], starts: Ints) -> Groups:
    """Return the groups of rows without weights, each a score and a label in one; those of a group lie side by side."""
    made = Groups.none(len(starts) - 1)
    compiled.kernel("groups:compare_rows")(keys, starts, *made[:3])
    many = np.flatnonzero(made.wins < 0)
    for group in many.tolist():
        keys[starts[group] : starts[group + 1]].sort()
    if len(many):
        compiled.kernel("groups:scan_rows")(keys, starts, many, made.wins)
    np.multiply(made.negatives, made.positives, out=made.pairs)
    return made


def fixed_weights(weights: NDArray[np.float64]) -> Ints:
    """Return weights as fixed numbers: w = high * 2**-20 + low * 2**-60, rounded once, as kernels do."""
    high = weights + 1.5 * 2.0**32
    low = (weights - (high - 1.5 * 2.0**32)) + 1.5 * 2.0**-8
    pair = np.stack([high.view(np.int64) - 0x41F8000000000000, low.view(np.int64) - 0x3F78000000000000], axis=-1)
    carry_fixed(pair)
    return pair


def of_entries(entries: Entries) -> Sorted:
    """Entries of a tally of exact scores."""
    keys = entries.codes >> np.uint64(1)
    if entries.high is not None and entries.top:
        keys |= (entries.high & np.uint32(1)).astype(np.uint64) << np.uint64(63)
    weights = None
    if entries.excess is not None:
        weights = entries.excess[:, 0] + (entries.mass << 20), np.ascontiguousarray(entries.excess[:, 1])
    return Sorted(entries.cells, keys, (entries.codes & np.uint64(1)).astype(np.uint8), entries.counts, weights)


def scanned(rows: Sorted, count: int) -> Groups:
    """Return what each of `count` groups holds and wins."""
    if not count:
        return Groups.none()
    if not compiled.loaded():  # by whoever counts; not to be loaded for a merge
        out = _scanned(rows)
    else:
        first = rows.numbers, rows.keys, rows.labels
        if rows.weights is None:
            out = Groups.of_rows(count, compiled.kernel("group_rows:scan_counted"), *first, rows.counts)
        else:
            out = Groups.none(count)
            compiled.kernel("group_rows:scan_weighted")(*first, *rows.weights, *out)
    if rows.weights is None and int(rows.counts.sum(dtype=np.int64)) >= FEW:
        for group in np.flatnonzero(out.negatives + out.positives >= FEW).tolist():
            out.wins[group] = _wins(rows, *np.searchsorted(rows.numbers, [group, group + 1]).tolist())
    return out


def _wins(rows: Sorted, first: int, end: int) -> float:
    """Pairs won in a group of so many rows that they outgrow an int64."""
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


def _scanned(rows: Sorted) -> Groups:
    """Scan where no kernels are."""
    numbers, labels = rows.numbers, rows.labels != 0
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    each = np.diff(starts, append=len(numbers))
    tied = np.zeros(len(numbers), bool)  # behind negatives of the same score
    tied[1:] = labels[1:] & ~labels[:-1] & (rows.keys[1:] == rows.keys[:-1]) & (numbers[1:] == numbers[:-1])
    mass = rows.counts.astype(np.int64)[:, None] if rows.weights is None else _digits(*rows.weights)
    negative, positive = np.where(labels[:, None], 0, mass), np.where(labels[:, None], mass, 0)
    run = np.cumsum(negative, axis=0)
    before = run - np.repeat((run - negative)[starts], each, axis=0)
    twice = 2 * before
    twice[tied] -= mass[np.flatnonzero(tied) - 1]
    if rows.weights is None:
        found = [np.add.reduceat(x[:, 0], starts).astype(float) for x in (negative, positive, positive * twice)]
        return Groups(found[0], found[1], found[2] * 0.5, found[0] * found[1])
    won = _product(positive, _carried(twice))
    neg, pos, won = (_carried(np.add.reduceat(x, starts)) for x in (negative, positive, won))
    sums = neg, pos, won, _product(pos, neg)
    return Groups(*(_rounded(x, unit) for x, unit in zip(sums, (-60, -60, -121, -120), strict=True)))


def _product(a: Ints, b: Ints) -> Ints:
    """Products of numbers of four digits."""
    out = np.zeros((len(a), 8), np.int64)
    for k in range(4):
        out[:, k : k + 4] += a[:, k : k + 1] * b
    return _carried(out)


def _digits(high: Ints, low: Ints) -> Ints:
    """Weights as four digits of 26 bits."""
    return np.stack([low & MASK, (low >> DIGIT) | ((high & 0xFFF) << 14), (high >> 12) & MASK, high >> 38], axis=-1)


def _carried(numbers: Ints) -> Ints:
    """Bring digits to canonical form, in place."""
    for k in range(numbers.shape[1] - 1):
        numbers[:, k + 1] += numbers[:, k] >> DIGIT
        numbers[:, k] &= MASK
    return numbers


def _rounded(numbers: Ints, units: int) -> NDArray[np.float64]:
    """Digits, in units of 2**units, as the nearest float64."""
    out = [sum(d << (DIGIT * k) for k, d in enumerate(row)) for row in numbers.tolist()]
    scale = 1 << -units
    return np.array([n / scale for n in out], np.float64)  # of integers, which Python rounds once
