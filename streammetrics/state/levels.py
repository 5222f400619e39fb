"""Histograms of numbers in which the bucket width adapts to the numbers in each cell (such as a slice).

The bucket width of a cell is given by its level, an integer.

At level L, a bucket is 2**(L - 512) wide, but never wider than 2**-bits times the numbers in it; `bits` is a setting of
the statistic. A bucket that is narrower than the spacing of float64 numbers contains only one number, so level 0 is
exact. A cell gets the lowest level at which

- its numbers lie in at most 2**(bits + 6) buckets, and
- if it has more than 32 different numbers, these would fit in 32 buckets that are 2**(bits + 3) times as wide.

The first rule limits memory. The second rule limits the precision kept for a small set of numbers. There is one
exception: a cell stays at level 0 if, at the level that these rules give, each number equals the edge of its bucket
that is closer to 0. This is the case, for example, for a few thousand integers. A level above 0 therefore means that
the cell is not exact. The level depends only on the set of numbers, and adding numbers never lowers it. Hence the
buckets depend neither on the order of the rows nor on how states were split and merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics import kernel_registry
from ..numerics.exact import carry_fixed
from .tally import Entries, canonicalize, has_weight

__all__ = [
    "HIGHEST",
    "MOST_BITS",
    "ZERO",
    "are_buckets",
    "compute_edges",
    "compute_near_edges",
    "find_buckets",
    "find_grid_level",
    "find_group_starts",
    "fit_levels",
    "number_groups",
    "raise_levels",
]

Ints = NDArray[np.int64]
Buckets = NDArray[np.uint64]
Floats = NDArray[np.float64]

ZERO = 1 << 62
"""The bucket of the number 0. The buckets of positive numbers are larger; those of negative numbers are smaller."""
HIGHEST = 914
"""The highest level. All numbers are below 2**402, so every bucket then has the largest relative width, 2**-bits."""
LARGEST, SMALLEST = 2.0**402, 2.0**-452
"""Bounds on the absolute value of a nonzero number in a bucket. Input numbers lie between 2**-400 and 2**400, and their
differences lie between these bounds."""
FIRST = -512
"""At level 0, buckets are 2**FIRST wide. All numbers are multiples of this width, so level 0 is exact."""
MOST_BITS = 14
FEW = 32
"""A cell with at most this many different numbers is exact."""
FEW_BITS = 3
OFFSET = 1 << 53
"""The number that is added to the distance of a bucket from ZERO, so that the distance is positive for all numbers. It
is a power of 2, so it does not change the trailing zero bits of a bucket."""
MANY = 1 << 12
"""For more numbers than this, a compiled kernel is faster than numpy despite the cost of calling it."""
FRACTION = 52
"""The number of bits of the fraction of a float64."""
MASK = (1 << FRACTION) - 1
SIZE = np.int64((1 << 63) - 1)
"""The mask of all bits of a float64 except the sign."""
NEVER = 1023
"""A placeholder for the lowest level at which two numbers share a bucket, if there is no such level."""


def find_buckets(numbers: Floats, levels: Any, bits: int) -> Buckets:
    """Return the bucket of each number at its level (bucket width); compiled kernels and numpy give the same result."""
    numbers = np.ascontiguousarray(numbers, np.float64)
    if numbers.size > MANY and kernel_registry.has_kernels():
        out = np.empty(numbers.shape, np.uint64)
        each = _broadcast_levels(levels, numbers.shape)
        kernel_registry.find_kernel("value_histogram:find_buckets")(numbers.reshape(-1), each, bits, out.reshape(-1))
        return out
    # Work on the bits of the floats. The octave of a number is its binary exponent minus that of the bucket width. The
    # first `octave` bits of its fraction select a bucket of this width. Use at least `bits` bits, to limit the relative
    # width of buckets near 0, and at most 52 bits, which select a bucket that contains a single number.
    words = numbers.view(np.int64)
    size = words & SIZE
    octave = (size >> FRACTION) - 1023 - FIRST - np.asarray(levels, np.int64)
    steps = ((size & MASK) | (MASK + 1)) >> (FRACTION - np.clip(octave, bits, FRACTION))
    steps += find_octave_start(octave, bits)
    signed = np.where(size == 0, 0, np.where(words < 0, -steps, steps))
    return np.asarray((signed + ZERO).astype(np.uint64))


def find_octave_start(octave: Ints, bits: int) -> Ints:
    """Return, for each octave, the offset that turns the leading bits of a number into the index of its bucket.

    Buckets are indexed by their distance from the bucket of 0. The octave of a number is its binary exponent minus
    that of the bucket width.
    """
    # Octaves up to `bits` have 2**bits buckets each. In octaves from FRACTION on, every float64 has its own bucket.
    logarithmic = (np.minimum(octave, bits) - bits) << bits
    single = (np.maximum(octave, FRACTION) - FRACTION) << FRACTION
    return np.asarray(logarithmic + single + OFFSET)


def compute_edges(buckets: Buckets, levels: Any, bits: int) -> tuple[Floats, Floats]:
    """Return both edges of each bucket: first the edge closer to 0, which belongs to the bucket, then the other edge.

    The two edges are equal if the bucket contains a single number.
    """
    signed = buckets.astype(np.int64) - ZERO
    near = compute_near_edges(buckets, levels, bits)
    single = (np.abs(signed) - OFFSET > MASK) | (signed == 0)
    far = compute_near_edges(np.where(single, buckets, buckets + np.sign(signed).astype(np.uint64)), levels, bits)
    return near, far


def compute_near_edges(buckets: Buckets, levels: Any, bits: int) -> Floats:
    """Return, for each bucket, the edge closer to 0, which belongs to the bucket."""
    if buckets.size > MANY and kernel_registry.has_kernels():
        out = np.empty(len(buckets))
        kernel_registry.find_kernel("value_histogram:find_near_edges")(
            buckets, _broadcast_levels(levels, buckets.shape), bits, out
        )
        return out
    signed = buckets.astype(np.int64) - ZERO
    size = _find_lowest_number(np.abs(signed) - OFFSET, np.asarray(levels, np.int64), bits)
    return np.where(signed == 0, 0.0, np.sign(signed) * size)


def _broadcast_levels(levels: Any, shape: tuple[int, ...]) -> Ints:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(levels, np.int64), shape)).reshape(-1)


def _find_lowest_number(steps: Ints, levels: Ints, bits: int) -> Floats:
    """Return the lower edge of each bucket of positive numbers, inverting `find_buckets`.

    `steps` contains the distance of each bucket from the bucket of 0, minus OFFSET.
    """
    linear = np.frexp(np.clip(steps, 1, MASK).astype(np.float64))[1].astype(np.int64) - 1
    octave = np.where(steps > MASK, (steps >> FRACTION) + FRACTION - 1, linear)
    fraction = np.where(steps > MASK, steps & MASK, (steps - (np.int64(1) << linear)) << (FRACTION - linear))
    low = steps < 1 << bits
    octave = np.where(low, (steps >> bits) + bits - 1, octave)
    fraction = np.where(low, (steps & ((1 << bits) - 1)) << (FRACTION - bits), fraction)
    exponent = np.clip(octave + levels + FIRST + 1023, 0, 2046)
    return np.asarray(((exponent << FRACTION) | fraction).view(np.float64))


def are_buckets(buckets: Buckets, levels: Any, bits: int) -> bool:
    """Return whether all buckets exist at their level, that is, contain at least one float64 number."""
    if (buckets > np.uint64(2 * ZERO - 1)).any():
        return False
    near = compute_near_edges(buckets, levels, bits)
    size = np.abs(near)
    possible = (size < LARGEST) & ((size >= SMALLEST) | (size == 0))
    return bool(possible.all() and (find_buckets(near, levels, bits) == buckets).all())


def number_groups(entries: Entries, outputs: int) -> Ints:
    """Return the group of each entry as one integer: the combination of its cell (such as a slice) and its output.

    If a row contains several values, such as x and y, each of them belongs to a different output.
    """
    if entries.high is None or outputs == 1:
        return entries.cells
    label = (entries.high & np.uint32((1 << entries.high_place_bits) - 1)) >> np.uint32(1)
    return np.asarray(entries.cells * outputs + label)


def find_group_starts(entries: Entries, groups: int, outputs: int) -> Ints:
    """Return the index of the first entry of each group (cell and output), followed by the number of entries."""
    if outputs == 1:
        return entries.cell_starts(groups)
    return np.searchsorted(number_groups(entries, outputs), np.arange(groups + 1))


def raise_levels(entries: Entries, old: Ints, new: Ints, bits: int, outputs: int) -> Entries:
    """Move the entries of each group to the buckets of its new level, which is not lower than the old one.

    Parameters
    ----------
    entries : Entries
        The entries, in ascending order.
    old, new : int64
        The old and the new level of each group (a combination of a cell and an output; see `number_groups`).
    bits, outputs : int
        The precision of the buckets (see the module docstring), and the number of outputs.
    """
    if not len(entries) or np.array_equal(old, new):
        return entries
    if kernel_registry.has_kernels() and entries.excess is None:
        return _raise_by_kernel(entries, find_group_starts(entries, len(old), outputs), old, new, bits)
    groups = number_groups(entries, outputs)
    which = np.flatnonzero((old != new)[groups])
    codes, at = entries.codes.copy(), groups[which]
    codes[which] = rebucket(codes[which], old[at], new[at], bits)
    return _merge_neighbors(replace(entries, codes=codes))


def _raise_by_kernel(entries: Entries, starts: Ints, old: Ints, new: Ints, bits: int) -> Entries:
    assert entries.high is not None
    small = entries.counts.dtype == np.uint32 and int(entries.counts.sum(dtype=np.int64)) < 1 << 32
    codes, high, counts = (
        entries.codes.copy(),
        entries.high.copy(),
        entries.counts.astype(np.uint32 if small else np.int64),
    )
    m = kernel_registry.find_kernel("value_histogram:raise_levels")(codes, high, counts, starts, old, new, bits)
    codes, high, counts = (a if 4 * m > 3 * len(a) else a[:m].copy() for a in (codes[:m], high[:m], counts[:m]))
    return canonicalize(Entries(entries.shift, codes, counts, None, high))


def _merge_neighbors(entries: Entries) -> Entries:
    """Replace adjacent entries that have the same cell and bucket with their sum."""
    assert entries.high is not None
    first = np.ones(len(entries), bool)
    np.not_equal(entries.codes[1:], entries.codes[:-1], out=first[1:])
    first[1:] |= entries.high[1:] != entries.high[:-1]
    begins = np.flatnonzero(first)
    if len(begins) == len(entries):
        return entries
    excess = None
    if entries.excess is not None:
        excess = np.add.reduceat(entries.excess, begins)
        carry_fixed(excess)
    counts = np.add.reduceat(entries.counts, begins, dtype=np.int64)
    return canonicalize(Entries(entries.shift, entries.codes[begins], counts, excess, entries.high[begins]))


def rebucket(buckets: Buckets, old: Any, new: Any, bits: int) -> Buckets:
    """Return, for each bucket, the wider bucket at a higher level that contains it."""
    return find_buckets(compute_near_edges(buckets, old, bits), new, bits)


def fit_levels(entries: Entries, levels: Ints, bits: int, outputs: int) -> tuple[Entries, Ints]:
    """Raise the level (bucket width) of each group until its numbers occupy no more buckets than allowed.

    The module docstring defines the rules. Return the entries in the wider buckets, and the levels; both are unchanged
    if all levels are already high enough.

    Parameters
    ----------
    entries : Entries
        The entries, in ascending order, each in a bucket at the level of its group.
    levels : int64
        The level of each group (a combination of a cell and an output; see `number_groups`).
    bits, outputs : int
        The precision of the buckets (see the module docstring), and the number of outputs.
    """
    if len(entries) <= FEW:
        return entries, levels
    # Ignore entries with a weight of 0, which have no effect on metrics and must not have an effect on levels.
    weighted = entries if entries.excess is None else entries.select(has_weight(entries))
    new = np.maximum(levels, find_lowest_levels(weighted, levels, bits, outputs))
    return (raise_levels(entries, levels, new, bits, outputs), new) if (new > levels).any() else (entries, levels)


def find_lowest_levels(entries: Entries, levels: Ints, bits: int, outputs: int, *, floor: int | None = None) -> Ints:
    """Return the lowest level (bucket width) that the rules of this module allow for each group (cell and output).

    If `floor` is passed, other limits apply: a group may have at most 2**(floor + 6) buckets, and no bucket may be
    wider than 2**-floor times the numbers in it.
    """
    few, low = (FEW, bits) if floor is None else (1 << 62, floor)
    less, most = bits + FEW_BITS, 1 << (low + 6)
    out = np.zeros(len(levels), np.int64)
    starts = find_group_starts(entries, len(levels), outputs)
    if np.diff(starts).max(initial=0) <= min(few, most):
        return out
    if kernel_registry.has_kernels():
        rules = few, less, most, low, floor is None
        kernel_registry.find_kernel("value_histogram:find_lowest_levels")(
            entries.codes, starts, levels, bits, *rules, out
        )
        return out
    groups = number_groups(entries, outputs)
    # The number of buckets that sorted numbers occupy is 1 plus the number of adjacent pairs in different buckets.
    # Therefore find, for each adjacent pair, the lowest level at which its two numbers share a bucket. At the k-th
    # highest of these levels, the numbers occupy at most k buckets.
    near = compute_near_edges(entries.codes, levels[groups], bits)
    linear, limited = _find_joining_levels(near, low)
    pairs = groups[1:] == groups[:-1]
    group, each = groups[1:][pairs], np.bincount(groups[1:][pairs], minlength=len(levels))
    first = np.cumsum(each) - each
    for joins, pair, lower in ((linear, few, less), (limited, most, 0)):
        many = np.flatnonzero(each >= pair)
        if len(many):
            # Sorting by group and then by descending level puts the highest level of each group first.
            ordered = np.sort((group << 10) | (NEVER - joins[pairs]))
            level = NEVER - (ordered[first[many] + pair - 1] & NEVER)
            out[many] = np.maximum(out[many], np.minimum(level - lower, HIGHEST))
    # Keep a group at level 0, where it is exact, if each of its numbers equals the near edge (the one closer to 0) of
    # the bucket that it would move to.
    if floor is None:
        loses = levels > 0
        loses[groups[rebucket_edges(near, out[groups], bits) != near]] = True
        out[~loses] = 0
    return out


def rebucket_edges(numbers: Floats, levels: Ints, bits: int) -> Floats:
    """Round each number toward 0 to the edge of its bucket at its level (bucket width)."""
    return compute_near_edges(find_buckets(numbers, levels, bits), levels, bits)


def _find_joining_levels(numbers: Floats, bits: int) -> tuple[Ints, Ints]:
    """Return two arrays with the lowest level (bucket width) at which each pair of adjacent numbers shares a bucket.

    For the first array, all buckets of a level have the same width. For the second array, a bucket must also be no
    wider than 2**-bits times the numbers in it.
    """
    words = np.ascontiguousarray(numbers).view(np.int64)
    size = words & SIZE
    exponent = (size >> FRACTION) - 1023 - FIRST
    differ = words[1:] ^ words[:-1]
    # Two numbers with the same sign and exponent share a bucket if the bucket is wider than the value of the highest
    # bit in which they differ.
    same = differ >> FRACTION == 0
    top = np.frexp(np.maximum(differ & MASK, 1).astype(np.float64))[1] - 1
    inside = exponent[1:] - (FRACTION - 1) + top
    linear = np.where(same, inside, np.maximum(exponent[1:], exponent[:-1]) + 1)
    bounded = np.where(same & (FRACTION - 1 - top >= bits), linear, NEVER)
    return np.clip(linear, 0, HIGHEST), np.clip(bounded, 0, NEVER)


def find_grid_level(numbers: Sequence[float] | Floats) -> int:
    """Return the highest level at which all numbers are multiples of the bucket width."""
    words = np.asarray(numbers, np.float64).view(np.int64)
    size = words[words & SIZE != 0] & SIZE
    if not len(size):
        return HIGHEST
    fraction = (size & MASK) | (1 << FRACTION)
    zeros = np.frexp((fraction & -fraction).astype(np.float64))[1] - 1
    return int(np.clip((size >> FRACTION) - 1023 - FIRST - FRACTION + zeros, 0, HIGHEST).min())
