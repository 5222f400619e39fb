"""Buckets of numbers, whose width follows from the numbers of a cell: the level of the cell.

A bucket at level L has the width 2**(L - 512), but is never wider than 2**-bits times its numbers. A bucket narrower than
the spacing of float64 holds one number, so level 0 is exact. The numbers of a cell need the lowest level at which

- they lie in at most 2**(bits + 6) buckets, and,
- with more than 32 different numbers, buckets 2**(bits + 3) times as wide would hold them in at most 32 buckets.

The first rule limits the memory, the second the digits that are saved of few numbers. A cell whose numbers all begin a
bucket at this level, such as a few thousand integers, loses nothing there: it stays at level 0. So a higher level says
that the cell is not exact. The level depends on the set of numbers alone, and a larger set never has a lower level:
neither the order of rows nor splits and merges change a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics import kernel_registry as compiled
from ..numerics.exact import carry_fixed
from .tally import Entries, canonical, weighs

__all__ = [
    "HIGHEST",
    "MOST_BITS",
    "ZERO",
    "are_buckets",
    "bucket_of",
    "edges_of",
    "fitted",
    "grid_level",
    "groups_of",
    "near_edges",
    "raised",
    "starts_of",
]

Ints = NDArray[np.int64]
Buckets = NDArray[np.uint64]
Floats = NDArray[np.float64]

ZERO = 1 << 62
"""The bucket of 0. Positive numbers have larger ones, negative numbers smaller ones."""
HIGHEST = 914
"""A level at which every bucket has its largest width, 2**-bits of its numbers: these are below 2**402."""
LARGEST, SMALLEST = 2.0**402, 2.0**-452
"""The range of differences of numbers between 2**-400 and 2**400."""
FIRST = -512
"""The exponent of the width at level 0: no number has a bit below."""
MOST_BITS = 14
FEW = 32
"""While a cell has so few different numbers, it is exact."""
FEW_BITS = 3
OFFSET = 1 << 53
"""Added to the numbers of buckets, of which the logarithmic ones are below 0; it leaves their last bits 0."""
MANY = 1 << 12  # numbers for which a kernel is worth its call
FRACTION = 52  # bits of a float64 behind the first
MASK = (1 << FRACTION) - 1
SIZE = np.int64((1 << 63) - 1)
NEVER = 1023  # for two numbers that no level brings into one bucket


def bucket_of(numbers: Floats, levels: Any, bits: int) -> Buckets:
    """Return the bucket of each number at a level, as kernels do."""
    numbers = np.ascontiguousarray(numbers, np.float64)
    if numbers.size > MANY and compiled.loaded():
        out = np.empty(numbers.shape, np.uint64)
        each = _each(levels, numbers.shape)
        compiled.kernel("value_histogram:buckets_of")(numbers.reshape(-1), each, bits, out.reshape(-1))
        return out
    words = numbers.view(np.int64)
    size = words & SIZE
    octave = (size >> FRACTION) - 1023 - FIRST - np.asarray(levels, np.int64)
    steps = ((size & MASK) | (MASK + 1)) >> (FRACTION - np.clip(octave, bits, FRACTION))
    steps += octave_start(octave, bits)
    signed = np.where(size == 0, 0, np.where(words < 0, -steps, steps))
    return np.asarray((signed + ZERO).astype(np.uint64))


def octave_start(octave: Ints, bits: int) -> Ints:
    """Return how many buckets lie before those of an octave, less the number of its first by its leading bits."""
    logarithmic = (np.minimum(octave, bits) - bits) << bits  # octaves of 2**bits buckets each
    single = (np.maximum(octave, FRACTION) - FRACTION) << FRACTION  # octaves of a bucket for each number
    return np.asarray(logarithmic + single + OFFSET)


def edges_of(buckets: Buckets, levels: Any, bits: int) -> tuple[Floats, Floats]:
    """Return the edge of each bucket that is closer to 0, which lies inside, and the other one, which does not.

    Both are the same where a bucket holds a single number.
    """
    signed = buckets.astype(np.int64) - ZERO
    near = near_edges(buckets, levels, bits)
    single = (np.abs(signed) - OFFSET > MASK) | (signed == 0)
    far = near_edges(np.where(single, buckets, buckets + np.sign(signed).astype(np.uint64)), levels, bits)
    return near, far


def near_edges(buckets: Buckets, levels: Any, bits: int) -> Floats:
    """Return the edge of each bucket that is closer to 0, which lies inside."""
    if buckets.size > MANY and compiled.loaded():
        out = np.empty(len(buckets))
        compiled.kernel("value_histogram:near_edges")(buckets, _each(levels, buckets.shape), bits, out)
        return out
    signed = buckets.astype(np.int64) - ZERO
    size = _number(np.abs(signed) - OFFSET, np.asarray(levels, np.int64), bits)
    return np.where(signed == 0, 0.0, np.sign(signed) * size)


def _each(levels: Any, shape: tuple[int, ...]) -> Ints:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(levels, np.int64), shape)).reshape(-1)


def _number(steps: Ints, levels: Ints, bits: int) -> Floats:
    """The least number of each bucket of positive ones."""
    linear = np.frexp(np.clip(steps, 1, MASK).astype(np.float64))[1].astype(np.int64) - 1
    octave = np.where(steps > MASK, (steps >> FRACTION) + FRACTION - 1, linear)
    fraction = np.where(steps > MASK, steps & MASK, (steps - (np.int64(1) << linear)) << (FRACTION - linear))
    low = steps < 1 << bits
    octave = np.where(low, (steps >> bits) + bits - 1, octave)
    fraction = np.where(low, (steps & ((1 << bits) - 1)) << (FRACTION - bits), fraction)
    exponent = np.clip(octave + levels + FIRST + 1023, 0, 2046)
    return np.asarray(((exponent << FRACTION) | fraction).view(np.float64))


def are_buckets(buckets: Buckets, levels: Any, bits: int) -> bool:
    """Whether buckets are ones that numbers have at their level."""
    if (buckets > np.uint64(2 * ZERO - 1)).any():
        return False
    near = near_edges(buckets, levels, bits)
    size = np.abs(near)
    possible = (size < LARGEST) & ((size >= SMALLEST) | (size == 0))
    return bool(possible.all() and (bucket_of(near, levels, bits) == buckets).all())


def groups_of(entries: Entries, outputs: int) -> Ints:
    """Return the cell and output of each entry as one number."""
    if entries.high is None or outputs == 1:
        return entries.cells
    label = (entries.high & np.uint32((1 << entries.top) - 1)) >> np.uint32(1)
    return np.asarray(entries.cells * outputs + label)


def starts_of(entries: Entries, groups: int, outputs: int) -> Ints:
    """Return where the entries of each group begin, and the end."""
    if outputs == 1:
        return entries.starts(groups)
    return np.searchsorted(groups_of(entries, outputs), np.arange(groups + 1))


def raised(entries: Entries, old: Ints, new: Ints, bits: int, outputs: int) -> Entries:
    """Bring the entries of each group from its old level to a higher one.

    Parameters
    ----------
    entries : Entries
        In ascending order.
    old, new : int64
        The levels of each group of `groups_of`.
    """
    if not len(entries) or np.array_equal(old, new):
        return entries
    if compiled.loaded() and entries.excess is None:
        return _raised_by_kernel(entries, starts_of(entries, len(old), outputs), old, new, bits)
    groups = groups_of(entries, outputs)
    which = np.flatnonzero((old != new)[groups])
    codes, at = entries.codes.copy(), groups[which]
    codes[which] = rebucketed(codes[which], old[at], new[at], bits)
    return _united(replace(entries, codes=codes))


def _raised_by_kernel(entries: Entries, starts: Ints, old: Ints, new: Ints, bits: int) -> Entries:
    assert entries.high is not None
    small = entries.counts.dtype == np.uint32 and int(entries.counts.sum(dtype=np.int64)) < 1 << 32
    codes, high, counts = (
        entries.codes.copy(),
        entries.high.copy(),
        entries.counts.astype(np.uint32 if small else np.int64),
    )
    m = compiled.kernel("value_histogram:raise_levels")(codes, high, counts, starts, old, new, bits)
    codes, high, counts = (a if 4 * m > 3 * len(a) else a[:m].copy() for a in (codes[:m], high[:m], counts[:m]))
    return canonical(Entries(entries.shift, codes, counts, None, high))


def _united(entries: Entries) -> Entries:
    """Unite entries of one bucket, which stand side by side."""
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
    return canonical(Entries(entries.shift, entries.codes[begins], counts, excess, entries.high[begins]))


def rebucketed(buckets: Buckets, old: Any, new: Any, bits: int) -> Buckets:
    """Return for each bucket the one at a higher level that it lies in."""
    return bucket_of(near_edges(buckets, old, bits), new, bits)


def fitted(entries: Entries, levels: Ints, bits: int, outputs: int) -> tuple[Entries, Ints]:
    """Raise each level to that of the numbers, and bring the entries there; both as they are if nothing changes.

    Parameters
    ----------
    entries : Entries
        In ascending order, each at the level of its group.
    levels : int64
        The level of each group (see `groups_of`).
    """
    if len(entries) <= FEW:
        return entries, levels
    known = entries if entries.excess is None else entries.where(weighs(entries))  # rows of weight 0 change nothing
    new = np.maximum(levels, lowest_levels(known, levels, bits, outputs))
    return (raised(entries, levels, new, bits, outputs), new) if (new > levels).any() else (entries, levels)


def lowest_levels(entries: Entries, levels: Ints, bits: int, outputs: int, *, floor: int | None = None) -> Ints:
    """Return the level that the numbers of each group need; 0 where they are exact so far, and lose nothing there.

    With `floor`, that at which buckets of so many bits are at most 2**(floor + 6), whether anything is lost or not.
    """
    few, low = (FEW, bits) if floor is None else (1 << 62, floor)
    less, most = bits + FEW_BITS, 1 << (low + 6)
    out = np.zeros(len(levels), np.int64)
    if compiled.loaded():
        starts = starts_of(entries, len(levels), outputs)
        rules = few, less, most, low, floor is None
        compiled.kernel("value_histogram:lowest_levels")(entries.codes, starts, levels, bits, *rules, out)
        return out
    groups = groups_of(entries, outputs)
    near = near_edges(entries.codes, levels[groups], bits)
    linear, limited = _joining_levels(near, low)
    pairs = groups[1:] == groups[:-1]
    group, each = groups[1:][pairs], np.bincount(groups[1:][pairs], minlength=len(levels))
    first = np.cumsum(each) - each
    for joins, pair, lower in ((linear, few, less), (limited, most, 0)):
        many = np.flatnonzero(each >= pair)
        if len(many):
            ordered = np.sort((group << 10) | (NEVER - joins[pairs]))  # the highest level of each group first
            level = NEVER - (ordered[first[many] + pair - 1] & NEVER)
            out[many] = np.maximum(out[many], np.minimum(level - lower, HIGHEST))
    if floor is None:
        loses = levels > 0
        loses[groups[rebucketed_edges(near, out[groups], bits) != near]] = True
        out[~loses] = 0
    return out


def rebucketed_edges(numbers: Floats, levels: Ints, bits: int) -> Floats:
    """Return the edge closer to 0 of the bucket of each number."""
    return near_edges(bucket_of(numbers, levels, bits), levels, bits)


def _joining_levels(numbers: Floats, bits: int) -> tuple[Ints, Ints]:
    """Return the level from which each number shares a bucket with the next: if buckets have one width, and as is."""
    words = np.ascontiguousarray(numbers).view(np.int64)
    size = words & SIZE
    exponent = (size >> FRACTION) - 1023 - FIRST
    differ = words[1:] ^ words[:-1]
    same = differ >> FRACTION == 0  # of one sign, in one octave
    top = np.frexp(np.maximum(differ & MASK, 1).astype(np.float64))[1] - 1
    inside = exponent[1:] - (FRACTION - 1) + top
    linear = np.where(same, inside, np.maximum(exponent[1:], exponent[:-1]) + 1)
    bounded = np.where(same & (FRACTION - 1 - top >= bits), linear, NEVER)
    return np.clip(linear, 0, HIGHEST), np.clip(bounded, 0, NEVER)


def grid_level(numbers: Sequence[float] | Floats) -> int:
    """Return the level of the coarsest grid of powers of 2 that all numbers lie on."""
    words = np.asarray(numbers, np.float64).view(np.int64)
    size = words[words & SIZE != 0] & SIZE
    if not len(size):
        return HIGHEST
    fraction = (size & MASK) | (1 << FRACTION)
    zeros = np.frexp((fraction & -fraction).astype(np.float64))[1] - 1
    return int(np.clip((size >> FRACTION) - 1023 - FIRST - FRACTION + zeros, 0, HIGHEST).min())
