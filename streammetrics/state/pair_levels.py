"""Histograms of pairs of numbers (x, y): one of x, one of y, and one of the pairs, which has wider buckets.

Each row is counted in four views: by the bucket of x, by the bucket of y, by the bucket of the pair, and in total. A
cell (such as a slice) has four levels (bucket widths, see `levels`): one for the buckets of x, one for those of y,
and two for the buckets of pairs. A bucket of pairs is a rectangle: an interval of x and an interval of y. The width of
each interval is at most 2**(3 - bits) times the absolute value of the numbers in it. A cell has at most 2**(bits + 3)
different intervals of x, and at most as many of y.

The place of a bucket is its signed distance from the bucket of 0. A pair is stored as a 64-bit code that consists of
the low 32 bits of the place of x, followed by the low 32 bits of the place of y. Buckets are widened until the places
of x and those of y each span less than 2**32. The low 32 bits of a place then determine the whole place, because the
lowest places of x and y in the cell are known from the views of x and y.
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
    compute_near_edges,
    find_buckets,
    find_group_starts,
    find_lowest_levels,
    fit_levels,
    number_groups,
    raise_levels,
)
from .tally import Entries, add_entries, canonicalize, concatenate, has_weight, sort_entries

__all__ = [
    "ALL",
    "PAIR",
    "SIDES",
    "VIEWS",
    "PairRows",
    "add_rows",
    "are_pairs",
    "find_lowest_places",
    "find_needed_levels",
    "fit_part_levels",
    "raise_part_levels",
    "rank_sides",
    "read_views",
    "split_sides",
]

Array = NDArray[Any]
Ints = NDArray[np.int64]
Buckets = NDArray[np.uint64]
Floats = NDArray[np.float64]
U4, U8 = np.uint32, np.uint64

VIEWS = 4
X, Y, PAIR, ALL = range(VIEWS)
SIDES = 2
"""The number of views of single numbers. These views, X and Y, have the numbers 0 and 1."""
SPAN = 1 << 32
LAST = SPAN - 1


def pair_bits(bits: int) -> int:
    """Return the precision (`bits`) of the buckets of pairs, given that of the buckets of single numbers."""
    return max(bits - 3, 1)


def read_views(entries: Entries) -> Array:
    """Return the view (one of four histograms) that each entry belongs to: X, Y, PAIR or ALL (the total)."""
    assert entries.high is not None
    # The high word of an entry consists of the cell, the view (2 bits) and, as its lowest bit, one bit of the bucket.
    return (entries.high >> U4(1)) & U4(VIEWS - 1)


def bucket_to_place(buckets: Buckets, bits: int) -> Ints:
    """Return the place of each bucket: its signed distance from the bucket of 0."""
    # The distance of a bucket from the bucket of 0 includes the large number OFFSET. Replace it with 2**(bits + 11), so
    # that the differences between places of positive and negative numbers are small enough for 32 bits. The places of
    # positive numbers remain positive, because fewer than 2**(bits + 11) buckets on either side of 0 are so close to 0
    # that `bits` limits their width.
    signed = buckets.astype(np.int64) - ZERO
    return np.asarray(np.sign(signed) * (np.abs(signed) - OFFSET + (1 << (bits + 11))) * (signed != 0))


def place_to_bucket(places: Ints, bits: int) -> Buckets:
    """Return the bucket at each place (its signed distance from the bucket of 0); the inverse of `bucket_to_place`."""
    signed = np.sign(places) * (np.abs(places) + OFFSET - (1 << (bits + 11))) * (places != 0)
    return np.asarray((signed + ZERO).astype(U8))


def encode_pairs(x: Floats, y: Floats, levels: Ints, bits: int) -> Buckets:
    """Return the 64-bit codes of pairs of numbers.

    `levels`, of shape (n, 2), contains the levels (bucket widths) of x and y for each pair.
    """
    low = pair_bits(bits)
    a, b = (bucket_to_place(find_buckets(v, levels[:, i], low), low) & LAST for i, v in enumerate((x, y)))
    return np.asarray((a.astype(U8) << U8(32)) | b.astype(U8))


def find_lowest_places(sides: Entries, levels: Ints, bits: int) -> Ints:
    """Return the lowest places of x and y among the buckets of pairs in each cell, as an array of shape (cells, 2).

    A place is the signed distance of a bucket from the bucket of 0. `sides` contains the entries of the views X and Y.
    """
    return _find_edge_places(sides, levels, bits, last=False)


def _find_edge_places(sides: Entries, levels: Ints, bits: int, *, last: bool) -> Ints:
    # Entries are sorted, so the lowest (or highest) number of a cell is in its first (or last) bucket.
    starts = find_group_starts(sides, SIDES * len(levels), SIDES)
    at = starts[1:] - 1 if last else starts[:-1]
    codes = np.full(len(at), ZERO, U8)
    some = starts[1:] > starts[:-1]
    codes[some] = sides.codes[at[some]]
    near = compute_near_edges(codes, levels[:, :SIDES].reshape(-1), bits)
    low = pair_bits(bits)
    return bucket_to_place(find_buckets(near, levels[:, SIDES:].reshape(-1), low), low).reshape(-1, SIDES)


def split_sides(entries: Entries) -> tuple[Entries, Entries]:
    """Split entries into those of the views (histograms) X and Y, and those of the views PAIR and ALL."""
    own = read_views(entries) < SIDES
    return entries.select(own), entries.select(~own)


def _merge_views(parts: list[Entries]) -> Entries:
    """Merge sets of sorted entries; no view (the histogram X, Y, PAIR or ALL) may occur in more than one set."""
    entries = concatenate(parts)
    assert entries.high is not None
    return canonicalize(entries.select(np.argsort(entries.high, kind="stable")))


def decode_places(codes: Buckets, cells: Ints, least: Ints) -> tuple[Ints, Ints]:
    """Decode the codes of pairs into the places of x and y (signed distances from the bucket of 0).

    `least` contains the lowest places of x and y in each cell (such as a slice).
    """
    # All places in a cell are less than 2**32 above the lowest one, so the low 32 bits of a place determine it.
    halves = (codes >> U8(32)).astype(np.int64), (codes & U8(LAST)).astype(np.int64)
    x, y = (least[cells, i] + ((half - least[cells, i]) & LAST) for i, half in enumerate(halves))
    return x, y


def raise_pair_levels(entries: Entries, old: Ints, new: Ints, bits: int) -> Entries:
    """Move the entries of each cell (such as a slice) to the wider buckets of its new levels (bucket widths).

    `old` and `new`, of shape (cells, 4), are the levels of each cell. No new level may be lower than the old one.
    """
    if not len(entries) or np.array_equal(old, new):
        return entries
    sides, rest = split_sides(entries)
    finer = raise_levels(sides, old[:, :SIDES].reshape(-1), new[:, :SIDES].reshape(-1), bits, SIDES)
    changed = (old[:, SIDES:] != new[:, SIDES:]).any(axis=1)
    which = np.flatnonzero((read_views(rest) == PAIR) & changed[rest.cells])
    if len(which):
        cells, low = rest.cells[which], pair_bits(bits)
        places = decode_places(rest.codes[which], cells, find_lowest_places(sides, old, bits))
        x, y = (compute_near_edges(place_to_bucket(p, low), old[cells, SIDES + i], low) for i, p in enumerate(places))
        codes = rest.codes.copy()
        codes[which] = encode_pairs(x, y, new[cells][:, SIDES:], bits)
        rest = sort_entries(replace(rest, codes=codes))
    return _merge_views([finer, rest])


def find_pair_levels(entries: Entries, levels: Ints, bits: int) -> Ints:
    """Return the levels (bucket widths), of shape (cells, 4), at which no cell has too many buckets of pairs.

    The entries must already be at the final levels of x and y. Only the levels of the buckets of pairs can change.
    """
    sides, _ = split_sides(entries)
    low, out = pair_bits(bits), levels.copy()
    weighted = sides if sides.excess is None else sides.select(has_weight(sides))
    needed = find_lowest_levels(weighted, levels[:, :SIDES].reshape(-1), bits, SIDES, floor=low)
    out[:, SIDES:] = np.maximum(np.maximum(out[:, SIDES:], out[:, :SIDES]), needed.reshape(-1, SIDES))
    return _limit_spans(sides, out, bits)


def _limit_spans(sides: Entries, levels: Ints, bits: int) -> Ints:
    """Raise the levels of the buckets of pairs until the places of x and those of y each span less than 2**32.

    A place is the signed distance of a bucket from the bucket of 0.
    """
    # Search by bisection, which works because the span never increases with the level. Each step halves the range of
    # possible levels of every cell.
    low, high = levels.copy(), levels.copy()
    wide = _measure_spans(sides, levels, bits) >= SPAN
    high[:, SIDES:][wide] = HIGHEST
    while (low < high).any():
        middle = (low + high) // 2
        wide = np.zeros(levels.shape, bool)
        wide[:, SIDES:] = _measure_spans(sides, middle, bits) >= SPAN
        low, high = np.where(wide, middle + 1, low), np.where(wide, high, middle)
        low = np.minimum(low, high)
    return high


def _measure_spans(sides: Entries, levels: Ints, bits: int) -> Ints:
    return _find_edge_places(sides, levels, bits, last=True) - _find_edge_places(sides, levels, bits, last=False)


def fit_pair_levels(entries: Entries, levels: Ints, bits: int) -> tuple[Entries, Ints]:
    """Raise the levels (bucket widths) of each cell (such as a slice) until it has no more buckets than allowed.

    Return the entries in the wider buckets, and an array of the levels, of shape (cells, 4).
    """
    new = find_needed_levels(entries, levels, bits)
    return (entries, levels) if np.array_equal(new, levels) else (raise_pair_levels(entries, levels, new, bits), new)


def find_needed_levels(entries: Entries, levels: Ints, bits: int) -> Ints:
    """Return the lowest levels (bucket widths) at which the numbers in each cell occupy no more buckets than allowed.

    The result has the same shape, (cells, 4), as `levels`, the current levels. No level is lowered.
    """
    if not len(entries):
        return levels
    sides, _ = split_sides(entries)
    fitted, side_levels = fit_levels(sides, levels[:, :SIDES].reshape(-1), bits, SIDES)
    return find_pair_levels(fitted, np.column_stack([side_levels.reshape(-1, SIDES), levels[:, SIDES:]]), bits)


def rank_sides(codes: Buckets, least: Ints) -> tuple[Ints, Ints]:
    """Rank the buckets of pairs in a single cell by x and by y, and return both ranks of each bucket.

    Buckets with the same interval of x have the same rank by x. `codes` contains the codes of the buckets, and `least`
    the lowest places of x and y in the cell.
    """
    x, y = decode_places(codes, np.zeros(len(codes), np.int64), least)
    return tuple(np.unique(p, return_inverse=True)[1].reshape(-1).astype(np.int64) for p in (x, y))  # type: ignore[return-value]


class PairRows(NamedTuple):
    """Pairs of numbers, and the number of rows with each pair.

    Parameters
    ----------
    cells : int64
        The cell (such as a slice) of each pair.
    x, y : float64
        The numbers.
    counts : int64
        The number of rows with each pair.
    excess : int64 of shape (n, 2), optional
        The total weight of these rows minus their number, as fixed-point numbers.
    """

    cells: Ints
    x: Floats
    y: Floats
    counts: Array
    excess: Array | None = None

    def to_entries(self, shift: int, view: int, codes: Buckets) -> Entries:
        """Return the pairs as unsorted entries of one view (X, Y, PAIR or ALL).

        `codes` contains the code of each pair's bucket in this view. `shift` is the number of bits that a place
        takes up in the code of an entry.
        """
        high = (self.cells.astype(U4) << U4(max(shift - 64, 0))) | U4(view << 1)
        return Entries(shift, codes, self.counts, self.excess, high)


def add_rows(
    entries: Entries, levels: Ints, rows: PairRows, bits: int, order: Callable[[Entries], Entries] = sort_entries
) -> tuple[Entries, Ints]:
    """Add rows to the entries of cells (such as slices).

    Return the resulting entries, and an array of shape (cells, 4) with the levels (bucket widths) that they require.

    Parameters
    ----------
    levels : int64 of shape (cells, 4)
        The current levels.
    order : callable
        The function that sorts entries and adds up those with equal codes.
    """
    # First find the levels that the old and the new values of x and y together require. Then encode the pairs at these
    # levels, because the levels cannot be derived from buckets of pairs.
    shift = entries.shift
    at = [levels[rows.cells, side] for side in (X, Y)]
    numbers = rows.x, rows.y
    fresh = order(concatenate([rows.to_entries(shift, k, find_buckets(numbers[k], at[k], bits)) for k in (X, Y)]))
    sides, _ = split_sides(entries)
    new = find_needed_levels(add_entries(sides, fresh), levels, bits)
    pairs = order(rows.to_entries(shift, PAIR, encode_pairs(*numbers, new[rows.cells][:, SIDES:], bits)))
    totals = order(rows.to_entries(shift, ALL, np.zeros(len(rows.cells), U8)))
    flat = levels[:, :SIDES].reshape(-1), new[:, :SIDES].reshape(-1)
    added = _merge_views([raise_levels(fresh, *flat, bits, SIDES), pairs, totals])
    return add_entries(raise_pair_levels(entries, levels, new, bits), added), new


def fit_part_levels(part: Tally, entries: Entries, levels: Ints, bits: int) -> tuple[Entries, Ints]:
    """Raise the levels (bucket widths) of cells (such as slices) until they have no more buckets than allowed.

    Return the entries in the wider buckets, and the levels; both are unchanged if all levels are already high enough.
    """
    if part.pairs:
        return fit_pair_levels(entries, levels, bits)
    fitted, new = fit_levels(entries, levels.reshape(-1), bits, levels[:1].size or 1)
    return fitted, new.reshape(levels.shape)


def raise_part_levels(part: Tally, entries: Entries, old: Ints, new: Ints, bits: int) -> Entries:
    """Move the entries of each cell (such as a slice) to the wider buckets of its new levels (bucket widths).

    No new level may be lower than the old one.
    """
    if part.pairs:
        return raise_pair_levels(entries, old, new, bits)
    return raise_levels(entries, old.reshape(-1), new.reshape(-1), bits, old[:1].size or 1)


def are_pairs(entries: Entries, levels: Ints, bits: int) -> bool:
    """Return whether all buckets can occur at their levels and the buckets of pairs agree with those of x and y."""
    sides, rest = split_sides(entries)
    low, views = pair_bits(bits), read_views(rest)
    own = levels[:, :SIDES].reshape(-1)
    if not are_buckets(sides.codes, own[number_groups(sides, SIDES)], bits) or rest.codes[views == ALL].any():
        return False
    if (levels[:, SIDES:] < levels[:, :SIDES]).any():
        return False
    pairs = rest.select(views == PAIR)
    cells = pairs.cells
    near = compute_near_edges(sides.codes, own[number_groups(sides, SIDES)], bits)
    for i, places in enumerate(decode_places(pairs.codes, cells, find_lowest_places(sides, levels, bits))):
        is_side = read_views(sides) == i
        at = sides.cells[is_side]
        side_places = bucket_to_place(find_buckets(near[is_side], levels[at, SIDES + i], low), low)
        expected = np.unique(np.stack([at, side_places]), axis=1)
        found = np.unique(np.stack([cells, places]), axis=1)
        if expected.shape != found.shape or not (expected == found).all():
            return False
    return True
