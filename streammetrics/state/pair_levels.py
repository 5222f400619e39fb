"""Histograms of pairs of numbers: of x, of y, and, with wider buckets, of both together.

A row is counted four times; the `look` says for what: the bucket of x, the bucket of y, the bucket of the pair, and all
rows. A cell has four levels (see `levels`): of x, of y, and of x and y in buckets of pairs. In these, a bucket is at most
2**(3 - bits) of its numbers wide, and x and y have at most 2**(bits + 3) buckets each.

A pair has a code of 64 bits: the last 32 bits of the place of x, then those of the place of y. The place of a bucket is
its distance from the bucket of 0. Levels are so high that the places of x, and those of y, span less than 2**32. So the
code and the least x, which is known, tell the place of x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .declare import Tally
from .levels import (
    HIGHEST,
    OFFSET,
    ZERO,
    are_buckets,
    bucket_of,
    fitted,
    groups_of,
    lowest_levels,
    near_edges,
    raised,
    starts_of,
)
from .tally import Entries, add, canonical, joined, reduce, weighs

__all__ = [
    "ALL",
    "LOOKS",
    "PAIR",
    "SIDES",
    "PairRows",
    "add_rows",
    "are_pairs",
    "at_levels",
    "at_needed_levels",
    "least_places",
    "looks_of",
    "needed_levels",
    "side_ranks",
    "sides_of",
]

Array = NDArray[Any]
Ints = NDArray[np.int64]
Buckets = NDArray[np.uint64]
Floats = NDArray[np.float64]
U4, U8 = np.uint32, np.uint64

LOOKS = 4
X, Y, PAIR, ALL = range(LOOKS)
SIDES = 2
SPAN = 1 << 32
LAST = SPAN - 1


def pair_bits(bits: int) -> int:
    """Return the bits that limit the width of buckets of pairs."""
    return max(bits - 3, 1)


def looks_of(entries: Entries) -> Array:
    """Return by which look each entry is counted."""
    assert entries.high is not None
    return (entries.high >> U4(1)) & U4(LOOKS - 1)


def places_of(buckets: Buckets, bits: int) -> Ints:
    """Return the place of each bucket: below 0 for negative numbers."""
    signed = buckets.astype(np.int64) - ZERO
    return np.asarray(np.sign(signed) * (np.abs(signed) - OFFSET + (1 << (bits + 11))) * (signed != 0))


def buckets_at(places: Ints, bits: int) -> Buckets:
    """Return the buckets of places."""
    signed = np.sign(places) * (np.abs(places) + OFFSET - (1 << (bits + 11))) * (places != 0)
    return np.asarray((signed + ZERO).astype(U8))


def pair_codes(x: Floats, y: Floats, levels: Ints, bits: int) -> Buckets:
    """Return the codes of pairs of numbers, given the levels of each (n x 2)."""
    low = pair_bits(bits)
    a, b = (places_of(bucket_of(v, levels[:, i], low), low) & LAST for i, v in enumerate((x, y)))
    return np.asarray((a.astype(U8) << U8(32)) | b.astype(U8))


def least_places(sides: Entries, levels: Ints, bits: int) -> Ints:
    """Return the place of the least number of either side of each cell, at the level of pairs (cells x 2)."""
    return _edge_places(sides, levels, bits, last=False)


def _edge_places(sides: Entries, levels: Ints, bits: int, *, last: bool) -> Ints:
    starts = starts_of(sides, SIDES * len(levels), SIDES)
    at = starts[1:] - 1 if last else starts[:-1]
    codes = np.full(len(at), ZERO, U8)
    some = starts[1:] > starts[:-1]
    codes[some] = sides.codes[at[some]]
    near = near_edges(codes, levels[:, :SIDES].reshape(-1), bits)
    low = pair_bits(bits)
    return places_of(bucket_of(near, levels[:, SIDES:].reshape(-1), low), low).reshape(-1, SIDES)


def sides_of(entries: Entries) -> tuple[Entries, Entries]:
    """Return the entries of x and of y, and all others."""
    own = looks_of(entries) < SIDES
    return entries.where(own), entries.where(~own)


def _together(parts: list[Entries]) -> Entries:
    """Put sorted entries of different looks together."""
    made = joined(parts)
    assert made.high is not None
    return canonical(made.where(np.argsort(made.high, kind="stable")))


def whole_places(codes: Buckets, cells: Ints, least: Ints) -> tuple[Ints, Ints]:
    """Return the places of x and of y that codes tell, in cells whose least ones are known."""
    halves = (codes >> U8(32)).astype(np.int64), (codes & U8(LAST)).astype(np.int64)
    x, y = (least[cells, i] + ((half - least[cells, i]) & LAST) for i, half in enumerate(halves))
    return x, y


def raised_pairs(entries: Entries, old: Ints, new: Ints, bits: int) -> Entries:
    """Bring the entries of each cell from its old levels (cells x 4) to higher ones."""
    if not len(entries) or np.array_equal(old, new):
        return entries
    sides, rest = sides_of(entries)
    finer = raised(sides, old[:, :SIDES].reshape(-1), new[:, :SIDES].reshape(-1), bits, SIDES)
    changed = (old[:, SIDES:] != new[:, SIDES:]).any(axis=1)
    which = np.flatnonzero((looks_of(rest) == PAIR) & changed[rest.cells])
    if len(which):
        cells, low = rest.cells[which], pair_bits(bits)
        places = whole_places(rest.codes[which], cells, least_places(sides, old, bits))
        x, y = (near_edges(buckets_at(p, low), old[cells, SIDES + i], low) for i, p in enumerate(places))
        codes = rest.codes.copy()
        codes[which] = pair_codes(x, y, new[cells][:, SIDES:], bits)
        rest = reduce(replace(rest, codes=codes))
    return _together([finer, rest])


def needed_pair_levels(entries: Entries, levels: Ints, bits: int) -> Ints:
    """Return the levels (cells x 4) that the numbers of each cell need, given sides at their levels."""
    sides, _ = sides_of(entries)
    low, out = pair_bits(bits), levels.copy()
    known = sides if sides.excess is None else sides.where(weighs(sides))
    found = lowest_levels(known, levels[:, :SIDES].reshape(-1), bits, SIDES, floor=low)
    out[:, SIDES:] = np.maximum(np.maximum(out[:, SIDES:], out[:, :SIDES]), found.reshape(-1, SIDES))
    return _narrow(sides, out, bits)


def _narrow(sides: Entries, levels: Ints, bits: int) -> Ints:
    """Raise the levels of pairs until the places of either side span less than 2**32: by halving what is left to try."""
    low, high = levels.copy(), levels.copy()
    wide = _span(sides, levels, bits) >= SPAN
    high[:, SIDES:][wide] = HIGHEST
    while (low < high).any():
        middle = (low + high) // 2
        wide = np.zeros(levels.shape, bool)
        wide[:, SIDES:] = _span(sides, middle, bits) >= SPAN
        low, high = np.where(wide, middle + 1, low), np.where(wide, high, middle)
        low = np.minimum(low, high)
    return high


def _span(sides: Entries, levels: Ints, bits: int) -> Ints:
    return _edge_places(sides, levels, bits, last=True) - _edge_places(sides, levels, bits, last=False)


def fitted_pairs(entries: Entries, levels: Ints, bits: int) -> tuple[Entries, Ints]:
    """Raise the levels of each cell (cells x 4) to those that its numbers need, and bring the entries there."""
    new = needed_levels(entries, levels, bits)
    return (entries, levels) if np.array_equal(new, levels) else (raised_pairs(entries, levels, new, bits), new)


def needed_levels(entries: Entries, levels: Ints, bits: int) -> Ints:
    """Return the levels of sides and pairs (cells x 4) that the numbers of each cell need, or that they have."""
    if not len(entries):
        return levels
    sides, _ = sides_of(entries)
    finer, found = fitted(sides, levels[:, :SIDES].reshape(-1), bits, SIDES)
    return needed_pair_levels(finer, np.column_stack([found.reshape(-1, SIDES), levels[:, SIDES:]]), bits)


def side_ranks(codes: Buckets, least: Ints) -> tuple[Ints, Ints]:
    """Return the rank of each x among all x of one cell, and of each y among all y."""
    x, y = whole_places(codes, np.zeros(len(codes), np.int64), least)
    return tuple(np.unique(p, return_inverse=True)[1].reshape(-1).astype(np.int64) for p in (x, y))  # type: ignore[return-value]


class PairRows(NamedTuple):
    """Rows of pairs of numbers.

    Parameters
    ----------
    cells : int64
        The cell of each.
    x, y : float64
        The numbers.
    counts : int64
        How often each comes.
    excess : int64 of shape (n, 2), optional
        The fixed-point sum of w - 1.
    """

    cells: Ints
    x: Floats
    y: Floats
    counts: Array
    excess: Array | None = None

    def entries(self, shift: int, look: int, codes: Buckets) -> Entries:
        """Return them as entries of one look, in any order."""
        high = (self.cells.astype(U4) << U4(max(shift - 64, 0))) | U4(look << 1)
        return Entries(shift, codes, self.counts, self.excess, high)


def add_rows(
    entries: Entries, levels: Ints, rows: PairRows, bits: int, order: Callable[[Entries], Entries] = reduce
) -> tuple[Entries, Ints]:
    """Add rows to the entries of some cells, and return them with the levels (cells x 4) that they need together.

    Parameters
    ----------
    order : callable
        Brings entries in any order to canonical form.
    """
    shift = entries.shift
    at = [levels[rows.cells, side] for side in (X, Y)]
    numbers = rows.x, rows.y
    fresh = order(joined([rows.entries(shift, k, bucket_of(numbers[k], at[k], bits)) for k in (X, Y)]))
    sides, _ = sides_of(entries)
    new = needed_levels(add(sides, fresh), levels, bits)
    pairs = order(rows.entries(shift, PAIR, pair_codes(*numbers, new[rows.cells][:, SIDES:], bits)))
    whole = order(rows.entries(shift, ALL, np.zeros(len(rows.cells), U8)))
    flat = levels[:, :SIDES].reshape(-1), new[:, :SIDES].reshape(-1)
    made = _together([raised(fresh, *flat, bits, SIDES), pairs, whole])
    return add(raised_pairs(entries, levels, new, bits), made), new


def at_needed_levels(part: Tally, entries: Entries, levels: Ints, bits: int) -> tuple[Entries, Ints]:
    """Raise the levels of cells to those that their numbers need, and bring entries there; as they are if they fit."""
    if part.pairs:
        return fitted_pairs(entries, levels, bits)
    made, found = fitted(entries, levels.reshape(-1), bits, levels[:1].size or 1)
    return made, found.reshape(levels.shape)


def at_levels(part: Tally, entries: Entries, old: Ints, new: Ints, bits: int) -> Entries:
    """Bring the entries of each cell from its old levels to higher ones."""
    if part.pairs:
        return raised_pairs(entries, old, new, bits)
    return raised(entries, old.reshape(-1), new.reshape(-1), bits, old[:1].size or 1)


def are_pairs(entries: Entries, levels: Ints, bits: int) -> bool:
    """Whether buckets are ones that numbers have at their levels, and pairs ones of the buckets of both sides."""
    sides, rest = sides_of(entries)
    low, looks = pair_bits(bits), looks_of(rest)
    own = levels[:, :SIDES].reshape(-1)
    if not are_buckets(sides.codes, own[groups_of(sides, SIDES)], bits) or rest.codes[looks == ALL].any():
        return False
    if (levels[:, SIDES:] < levels[:, :SIDES]).any():
        return False
    pairs = rest.where(looks == PAIR)
    cells = pairs.cells
    near = near_edges(sides.codes, own[groups_of(sides, SIDES)], bits)
    for i, places in enumerate(whole_places(pairs.codes, cells, least_places(sides, levels, bits))):
        mine = looks_of(sides) == i
        at = sides.cells[mine]
        known = places_of(bucket_of(near[mine], levels[at, SIDES + i], low), low)
        there = np.unique(np.stack([at, known]), axis=1)
        asked = np.unique(np.stack([cells, places]), axis=1)
        if there.shape != asked.shape or not (there == asked).all():
            return False
    return True
