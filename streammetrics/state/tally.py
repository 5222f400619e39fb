"""Tallies: histograms that store only occupied places, as sorted entries.

A tally counts the rows of each cell (such as a slice) by place (such as a score bucket). An entry contains a cell, a
place, and the number of rows at this place in the cell. If the weight w of a row is not 1, the entry also contains the
sum of w - 1 over its rows (the excess).

The cell and the place are combined into a code. A narrow code is one integer, cell << shift | place. If places have
more than 48 bits, a code is wide and consists of two integers (words). The low word contains the low 64 bits of the
place. The high word (`high`) contains the cell and the other bits of the place: one bit and, above it, the label, if
the statistic counts several labels.

In canonical form, codes are ascending and unique, no entry has 0 rows, the excess is absent if it is zero for all
entries, and every array has the narrowest possible type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import CounterOverflowError, IncompatibleStateError
from ..numerics import kernel_registry
from ..numerics.array_rows import expand_ranges
from ..numerics.exact import carry_fixed

__all__ = [
    "MANY",
    "WIDEST",
    "Array",
    "Entries",
    "add_entries",
    "canonicalize",
    "concatenate",
    "find_code_type",
    "find_count_type",
    "has_weight",
    "sort_entries",
    "sum_entries",
]

Array = NDArray[Any]
U4, U8, I8 = np.uint32, np.uint64, np.int64
MANY = 1 << 32
"""The number of different uint32 values."""
WIDEST = 1 << 65
"""The number of places that a label can have in a wide code (two words)."""
PIECE = 1 << 18
"""The number of entries of one `Entries` object that numpy merges at a time, which limits the temporary memory."""
SPAN = 1 << 22
"""The largest range of codes that is sorted by counting if fewer than half of these codes have an entry."""
SPARSE = 8
"""Codes are sorted by counting only if their range has at most this many codes for each entry. For a larger range, a
normal sort is faster: for example, 20 us rather than 0.6 ms for 20 rows."""
GROUP_ENTRIES = 64
"""Wide codes are sorted separately for each high word only if each has at least this many entries on average."""


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a tally: row counts by cell (such as a slice) and place (such as a bucket).

    Parameters
    ----------
    shift : int
        The number of bits of a code that contain the place.
    codes : uint32 or uint64
        The code of each entry, which combines its cell and place; for wide codes, the low word.
    counts : uint32 or int64
        The number of rows of each entry.
    excess : int64 of shape (n, 2), optional
        The sum of w - 1 over the weights w of each entry's rows, as a fixed-point number. None if all sums are 0.
    high : uint32, optional
        The high word of each code if codes are wide, None if they are narrow.
    """

    shift: int
    codes: Array
    counts: Array
    excess: Array | None = None
    high: Array | None = None

    @classmethod
    def empty(cls, shift: int, *, wide: bool = False) -> Entries:
        """Return an `Entries` object of length 0."""
        high = np.zeros(0, U4) if wide else None
        return cls(shift, np.zeros(0, U8 if wide else U4), np.zeros(0, U4), None, high)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of this object that are not None."""
        arrays = (self.codes, self.counts, self.excess, self.high)
        return tuple(a for a in arrays if a is not None)

    @property
    def nbytes(self) -> int:
        """The total size of the arrays, in bytes."""
        optional = [a.nbytes for a in (self.excess, self.high) if a is not None]
        return self.codes.nbytes + self.counts.nbytes + sum(optional)

    @property
    def is_wide(self) -> bool:
        """Whether codes are wide, that is, consist of two words each, because places have more than 48 bits."""
        return self.high is not None

    @property
    def high_place_bits(self) -> int:
        """The number of bits of the place that are stored in the high word of a wide code."""
        return max(self.shift - 64, 0)

    @property
    def cells(self) -> Array:
        """The cell of each entry."""
        if self.high is not None:
            return (self.high >> U4(self.high_place_bits)).astype(I8)
        if self._has_one_cell:
            return np.zeros(len(self.codes), I8)
        cells: Array = self.codes >> self.codes.dtype.type(self.shift)
        return cells.astype(I8)

    @property
    def places(self) -> Array:
        """The place of each entry; for wide codes, its low 64 bits."""
        if self.is_wide or self._has_one_cell:
            return self.codes
        places: Array = self.codes & self.codes.dtype.type((1 << self.shift) - 1)
        return places

    @property
    def _has_one_cell(self) -> bool:
        """Whether the place takes up all bits of a code, so that there can be only one cell."""
        return not self.is_wide and self.shift >= 8 * self.codes.dtype.itemsize

    @cached_property
    def int64_counts(self) -> Array:
        """The number of rows of each entry, as int64."""
        return self.counts.astype(I8)

    def cell_starts(self, cells: int) -> Array:
        """Return the index of the first entry of each cell, followed by the number of entries.

        `cells` is the number of cells.
        """
        if cells == 1 or self._has_one_cell:
            out = np.full(cells + 1, len(self.codes), I8)
            out[0] = 0
            return out
        # If there are few cells with many entries each, searching for the first entry of each cell is faster than
        # counting.
        if 64 * cells < len(self.codes):
            if self.high is not None:
                firsts = (np.arange(cells, dtype=U8) << U8(self.high_place_bits)).astype(U4)
                return np.append(np.searchsorted(self.high, firsts), len(self.high))
            firsts = np.arange(cells, dtype=U8) << U8(self.shift)
            firsts = firsts[firsts <= self.codes[-1]].astype(self.codes.dtype)
            out = np.full(cells + 1, len(self.codes), I8)
            out[: len(firsts)] = np.searchsorted(self.codes, firsts)
            return out
        out = np.zeros(cells + 1, I8)
        np.cumsum(np.bincount(self.cells, minlength=cells), out=out[1:])
        return out

    def find_cells_with(self, mask: Array) -> Array:
        """Return the cells with at least one entry for which `mask` is True. The entries of a cell must be adjacent."""
        cells = self.cells
        first = np.flatnonzero(np.append(True, cells[1:] != cells[:-1])[: len(cells)])
        return cells[first][np.logical_or.reduceat(mask, first)] if len(cells) else cells

    def select(self, index: Array | slice) -> Entries:
        """Return the entries that `index` selects: a mask, an array of indices, or a slice."""
        rest = (None if a is None else a[index] for a in (self.excess, self.high))
        return Entries(self.shift, self.codes[index], self.counts[index], *rest)

    def select_cell(self, first: int, last: int) -> Entries:
        """Return entries `first` to `last` - 1, which must belong to one cell, as entries of cell 0."""
        rows = slice(first, last)
        codes, counts = self.codes[rows], self.counts[rows]
        excess = None if self.excess is None or not self.excess[rows].any() else self.excess[rows]
        if self.high is not None:
            return Entries(self.shift, codes, counts, excess, self.high[rows] & U4((1 << self.high_place_bits) - 1))
        place = codes if self._has_one_cell else codes & codes.dtype.type((1 << self.shift) - 1)
        return Entries(
            self.shift,
            place.astype(find_code_type(int(place[-1]) + 1 if len(place) else 0), copy=False),
            counts,
            excess,
        )

    def take_cells(self, cells: Array, starts: Array) -> Entries:
        """Return the entries of the given cells, with the cells renumbered from 0 in the order of `cells`.

        `starts` is the result of `cell_starts`.
        """
        entry_counts = starts[cells + 1] - starts[cells]
        index = expand_ranges(starts[cells], entry_counts)
        return canonicalize(self.select(index).assign_cells(np.repeat(np.arange(len(cells)), entry_counts), len(cells)))

    def assign_cells(self, cells: Array, count: int) -> Entries:
        """Return the entries with new cell numbers: `cells` contains a number below `count` for each entry."""
        if self.high is not None:
            top = self.high & U4((1 << self.high_place_bits) - 1)
            return replace(self, high=(cells.astype(U4) << U4(self.high_place_bits)) | top)
        wide = find_code_type(count << self.shift)
        place: Array = self.places.astype(wide, copy=False)
        return replace(self, codes=(cells.astype(wide) << wide(self.shift)) | place)

    def move_cells(self, to: Array, starts: Array, *, ascending: bool) -> Entries:
        """Move the entries of each cell to the cell `to[cell]`, or drop them if `to[cell]` is -1.

        If several cells move to the same cell, their entries with equal places are added up. `starts` is the result of
        `cell_starts`, and `ascending` indicates whether `to` is in ascending order.
        """
        if not len(self.codes) or np.array_equal(to, np.arange(len(to))):
            return self
        entry_counts, some = np.diff(starts), self
        if (to < 0).any():
            some = self.select(np.repeat(to >= 0, entry_counts))
            entry_counts = np.where(to >= 0, entry_counts, 0)
        entries = some.assign_cells(np.repeat(to, entry_counts), int(to.max(initial=-1)) + 1)
        return canonicalize(entries) if ascending else sort_entries(entries)

    def equals(self, other: Entries) -> bool:
        """Return whether the arrays of both objects are equal."""
        a, b = ((e.codes, e.counts, e.excess, e.high) for e in (self, other))
        return self.shift == other.shift and all(
            (x is None) == (y is None) and (x is None or y is None or np.array_equal(x, y))
            for x, y in zip(a, b, strict=True)
        )


def find_code_type(codes: int) -> type:
    """Return the narrowest unsigned dtype that can represent the codes 0 to `codes` - 1.

    Raises
    ------
    CounterOverflowError
        The codes would need more than 64 bits.
    """
    if codes > 1 << 64:
        raise CounterOverflowError(
            f"a histogram would need {codes:,} codes, more than fit in 64 bits; use fewer slices, classes or bits"
        )
    return U4 if codes <= MANY else U8


def find_count_type(rows: int) -> type:
    """Return the narrowest dtype that can represent counts of up to `rows` rows."""
    return U4 if rows < MANY else I8


def has_weight(entries: Entries) -> Array:
    """Return a mask of the entries whose total weight is not 0."""
    if entries.excess is None:
        return np.ones(len(entries), bool)
    some: Array = (entries.excess[:, 0] != -(entries.int64_counts << 20)) | (entries.excess[:, 1] != 0)
    return some


def canonicalize(e: Entries) -> Entries:
    """Convert sorted, unique entries to canonical form, in which equal tallies have equal arrays.

    Drop the entries without rows, drop the excess if it is zero for all entries, and use the narrowest dtypes.
    """
    if not e.counts.min(initial=1):
        e = e.select(e.counts != 0)
    if e.excess is not None and not e.excess.any():
        e = replace(e, excess=None)
    return narrow_types(e)


def narrow_types(e: Entries) -> Entries:
    """Convert codes and counts to the narrowest dtypes that can represent them."""
    codes = e.codes if e.is_wide else e.codes.astype(find_code_type(int(e.codes[-1]) + 1 if len(e) else 0), copy=False)
    most = int(e.counts.max(initial=0)) if e.counts.dtype != U4 else 0
    counts: Array = e.counts.astype(find_count_type(most), copy=False)
    return Entries(e.shift, codes, counts, e.excess, e.high)


def unite_codes(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return the union of two sorted arrays of unique codes, and the positions of each array's codes in the union."""
    wide = a.dtype if a.dtype == b.dtype else np.dtype(U8)
    a, b = a.astype(wide, copy=False), b.astype(wide, copy=False)
    # Use compiled kernels only if counting has loaded them already, because compiling them takes longer than a merge.
    if kernel_registry.has_kernels():
        out, *at = np.empty(len(a) + len(b), wide), np.empty(len(a) + 1, U4), np.empty(len(b) + 1, U4)
        m = kernel_registry.find_kernel("tally_codes:merge_codes")(a, b, out, *at)
        return out[:m], at[0][:-1], at[1][:-1]
    most = max(int(s[-1]) if len(s) else 0 for s in (a, b))
    if most >= 1 << 63:
        both = np.concatenate([a, b])
        union, place = np.unique(both, return_inverse=True)
        return union, place[: len(a)], place[len(a) :]
    # Append a bit to each code: 1 if the code comes from `b`, 0 otherwise. A single integer sort then gives both the
    # union and the origin of each code.
    tagged: Array = np.empty(len(a) + len(b), U4 if most < MANY >> 1 else U8)
    one = tagged.dtype.type(1)
    np.left_shift(a, one, out=tagged[: len(a)], casting="unsafe")
    np.left_shift(b, one, out=tagged[len(a) :], casting="unsafe")
    tagged[len(a) :] |= one
    # Both halves are sorted, so a stable sort merges them in linear time.
    tagged.sort(kind="stable")
    theirs = (tagged & one).astype(bool)
    tagged >>= one
    codes = tagged.astype(wide, copy=False)
    first = np.empty(len(codes), bool)
    first[:1], first[1:] = True, codes[1:] != codes[:-1]
    place = np.cumsum(first, dtype=U4)
    place -= U4(1)
    return codes[first], place[~theirs], place[theirs]


def _unite_wide_codes(a: Entries, b: Entries) -> tuple[Array, Array, Array, Array]:
    """Return the union of two sets of wide codes, and the positions of each set's codes in the union.

    The four arrays are the low words of the union, its high words, the positions of the codes of `a` in the union, and
    the positions of the codes of `b`.
    """
    assert a.high is not None
    assert b.high is not None
    # If all high words are 0, the low words alone determine the union.
    if not a.high.any() and not b.high.any():
        low, in_a, in_b = unite_codes(a.codes, b.codes)
        return low, np.zeros(len(low), U4), in_a, in_b
    size = len(a) + len(b)
    out = np.empty(size, U4), np.empty(size, U8)
    at = [np.empty(len(a) + 1, U4), np.empty(len(b) + 1, U4)]
    m = kernel_registry.find_kernel("tally_codes:merge_two_word_codes")(a.high, a.codes, b.high, b.codes, *out, *at)
    return out[1][:m], out[0][:m], at[0][:-1], at[1][:-1]


def add_entries(a: Entries, b: Entries, sign: int = 1) -> Entries:
    """Add two sets of entries; with a `sign` of -1, subtract the second from the first.

    Raises
    ------
    IncompatibleStateError
        A count or a weight would fall below zero.
    """
    if not len(b):
        return a
    if not len(a) and sign > 0:
        return b
    if not a.is_wide:
        # Without kernels, merge the entries in pieces, because numpy needs temporary arrays several times as large as its
        # inputs.
        if not kernel_registry.has_kernels() and len(a) > 2 * PIECE:
            return narrow_types(concatenate([add_entries(p, q, sign) for p, q in _cut_pieces([a, b])]))
        codes, in_a, in_b = unite_codes(a.codes, b.codes)
        high = None
    elif kernel_registry.has_kernels():
        codes, high, in_a, in_b = _unite_wide_codes(a, b)
    else:
        return _check_weights(sort_entries(concatenate([a, b], sign)), sign)
    most = int(a.counts.max(initial=0)) + int(b.counts.max(initial=0))
    counts: Array = np.zeros(len(codes), find_count_type(most) if sign > 0 else I8)
    _add_counts(in_a, a.counts, counts)
    _add_counts(in_b, b.counts if sign > 0 else -b.int64_counts, counts)
    if sign < 0 and counts.min(initial=0) < 0:
        raise IncompatibleStateError("a count would fall below zero: some of the subtracted rows were not counted here")
    excess = None
    if a.excess is not None or b.excess is not None:
        excess = np.zeros((len(codes), 2), I8)
        excess[in_a] = 0 if a.excess is None else a.excess
        excess[in_b] += 0 if b.excess is None else sign * b.excess
        carry_fixed(excess)
    out = Entries(a.shift, codes, counts, excess, high)
    # Entries without rows arise only from a subtraction, and an excess of 0 only from weights that cancel out. In all
    # other cases, there is nothing to drop.
    return narrow_types(out) if sign > 0 and excess is None else _check_weights(canonicalize(out), sign)


def _cut_pieces(parts: Sequence[Entries]) -> Iterator[list[Entries]]:
    """Cut sorted entries with narrow codes into pieces by code range.

    Each yielded list covers one code range and contains one piece of every object in `parts`.
    """
    longest = max(parts, key=len)
    cuts = longest.codes[PIECE : max(len(longest) - PIECE, PIECE) : PIECE]
    bounds = [pairwise([0, *np.searchsorted(part.codes, cuts).tolist(), len(part)]) for part in parts]
    for ranges in zip(*bounds, strict=True):
        yield [part.select(slice(*some)) for part, some in zip(parts, ranges, strict=True)]


def _add_counts(at: Array, counts: Array, out: Array) -> None:
    """Add `counts` to the elements of `out` at the indices `at`, in place. The indices must be distinct."""
    if kernel_registry.has_kernels():
        kernel_registry.find_kernel("tally_codes:scatter_add")(at, counts.astype(out.dtype, copy=False), out)
    else:
        out[at] += counts.astype(out.dtype, copy=False)


def _check_weights(e: Entries, sign: int) -> Entries:
    """Return the entries unchanged, or raise an error if a subtraction has made a total weight negative."""
    if sign < 0 and e.excess is not None and (e.excess[:, 0] < -(e.int64_counts << 20)).any():
        raise IncompatibleStateError(
            "a weight would fall below zero: some of the subtracted rows were not counted here"
        )
    return e


def concatenate(parts: Sequence[Entries], sign: int = 1) -> Entries:
    """Concatenate entries without sorting; if `sign` is -1, negate the counts and excess of all parts but the first."""
    signs = [1, *[sign] * (len(parts) - 1)]
    wide = np.result_type(*(p.codes.dtype for p in parts))
    codes = np.concatenate([p.codes.astype(wide, copy=False) for p in parts])
    counts = np.concatenate([p.counts if s > 0 else -p.int64_counts for p, s in zip(parts, signs, strict=True)])
    excess = None
    if any(p.excess is not None for p in parts):
        sums = [np.zeros((len(p), 2), I8) if p.excess is None else p.excess for p in parts]
        excess = np.concatenate([s * e for s, e in zip(signs, sums, strict=True)])
    high = None if parts[0].high is None else np.concatenate([p.high for p in parts if p.high is not None])
    return Entries(parts[0].shift, codes, counts, excess, high)


def sort_entries(e: Entries) -> Entries:
    """Sort entries and add up those with equal codes; return the result in canonical form.

    Raises
    ------
    IncompatibleStateError
        A count is below zero.
    """
    codes, counts = e.codes, e.counts
    if not len(codes):
        return canonicalize(e)
    if not e.is_wide and int(counts.min()) >= (0 if e.excess is None else 1):
        span, rows = int(codes.max()) + 1, int(counts.sum(dtype=I8))
        is_dense = span <= max(min(SPAN, SPARSE * len(codes)), 2 * len(codes)) and rows < 1 << 53
        kind, fits = _choose_sort(codes), e.excess is None and span <= MANY and rows < MANY
        # If codes are sparse, a stable sort of a few ascending runs is faster than counting.
        has_sparse_runs = fits and kind and span > 2 * len(codes)
        if is_dense and not has_sparse_runs and (e.excess is None or kernel_registry.has_kernels()):
            return canonicalize(_sort_by_counting(e, span, rows))
        # Sort integers that combine a code and its count, because numpy vectorizes this sort, but does not vectorize
        # `argsort`.
        if fits:
            packed = codes.astype(U8)
            packed <<= U8(32)
            packed |= counts.astype(U8, copy=False)
            packed.sort(kind=kind)
            codes, ends = (packed >> U8(32)).astype(U4), np.cumsum(packed.astype(U4), dtype=I8)
            last = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
            return canonicalize(Entries(e.shift, codes[last], np.diff(ends[last], prepend=0)))
    elif e.is_wide and e.excess is None and (by_group := _sort_within_groups(e)) is not None:
        return canonicalize(by_group)
    order = np.argsort(codes, kind="stable")
    if e.high is not None and len(e.high) and (e.high != e.high[0]).any():
        order = order[np.argsort(e.high[order], kind="stable")]
    codes, counts, high = codes[order], counts[order], None if e.high is None else e.high[order]
    new = codes[1:] != codes[:-1]
    if high is not None:
        new |= high[1:] != high[:-1]
    first = np.flatnonzero(np.concatenate([[True], new]))
    counts = np.add.reduceat(counts, first, dtype=I8)
    if counts.min() < 0:
        raise IncompatibleStateError("a count would fall below zero: some of the subtracted rows were not counted here")
    excess = None if e.excess is None else np.add.reduceat(e.excess[order], first)
    if excess is not None:
        carry_fixed(excess)
    return canonicalize(Entries(e.shift, codes[first], counts, excess, None if high is None else high[first]))


def _sort_within_groups(e: Entries) -> Entries | None:
    """Sort wide entries by sorting the low words separately for each high word; return None if this is not faster.

    Sorting the low words themselves avoids `argsort`, which is ten times as slow because numpy does not vectorize it.
    """
    high, codes, n = e.high, e.codes, len(e)
    assert high is not None
    groups, rows = int(high.max()) + 1, int(e.counts.sum(dtype=I8))
    if groups > min(1 << 16, n // GROUP_ENTRIES) or int(e.counts.min()) < 1 or rows > 2 * n:
        return None
    codes, high, counts = _gather_groups(codes, high, e.counts)
    if rows > n:
        codes, high = np.repeat(codes, counts), np.repeat(high, counts)
    ends = np.cumsum(np.bincount(high, minlength=groups))
    kind, is_first = _choose_sort(codes), np.empty(rows, np.bool_)
    for start, end in pairwise([0, *ends.tolist()]):
        codes[start:end].sort(kind=kind)
    is_first[0] = True
    np.not_equal(codes[1:], codes[:-1], out=is_first[1:])
    is_first[ends[:-1][ends[:-1] < rows]] = True
    if is_first.all():
        return Entries(e.shift, codes, counts, None, high)
    first = np.flatnonzero(is_first)
    return Entries(e.shift, codes[first], np.diff(first, append=rows), None, high[first])


def _choose_sort(codes: Array) -> Literal["stable"] | None:
    """Return the `kind` argument of the numpy sort that is fastest for these integers.

    A stable sort merges ascending runs. The entries of several sorted states form a few long runs, which a stable sort
    orders in a tenth of the time of the default sort. A stable sort is also faster for the codes of sorted scores,
    because only codes with the same bucket and different labels are out of order.
    """
    return "stable" if np.count_nonzero(codes[1:] < codes[:-1]) <= len(codes) // 8 else None


def _gather_groups(codes: Array, high: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Order entries by their high words. Entries with equal high words keep their order."""
    begins = np.flatnonzero(np.append(True, high[1:] != high[:-1]))
    if len(begins) > len(high) // GROUP_ENTRIES:
        # For 16-bit integers, numpy's stable sort is a radix sort, which takes linear time.
        order = np.argsort(high.astype(np.uint16), kind="stable")
        return codes[order], high[order], counts[order]
    # Entries with equal high words form a few long runs, for example one for each state and cell. Copy whole runs.
    order = np.argsort(high[begins], kind="stable")
    runs = [slice(*run) for run in zip(begins[order], np.append(begins[1:], len(high))[order], strict=True)]
    gathered = [np.concatenate([array[run] for run in runs]) for array in (codes, high, counts)]
    return gathered[0], gathered[1], gathered[2]


def _sort_by_counting(e: Entries, span: int, rows: int) -> Entries:
    """Sort entries by counting: add the row count of each entry to a counter for its code.

    `span` exceeds all codes, and `rows` is the total number of rows.
    """
    at, excess = e.codes.astype(I8, copy=False), None
    # `np.bincount` adds up floats, which is exact because there are fewer than 2**53 rows.
    counts = np.bincount(at, None if rows == len(at) and int(e.counts.min()) == 1 else e.counts, span)
    found = np.flatnonzero(counts)
    if e.excess is not None:
        sums = np.zeros(2 * span, I8)
        for limb in range(2):
            values = np.ascontiguousarray(e.excess[:, limb])
            kernel_registry.find_kernel("tally_codes:scatter_add")(2 * at + limb, values, sums)
        excess = sums.reshape(-1, 2)[found]
        carry_fixed(excess)
    return Entries(e.shift, found.astype(U8), counts[found].astype(I8), excess)


def sum_entries(parts: Sequence[Entries]) -> Entries:
    """Add up any number of `Entries` objects.

    Two objects are merged in linear time. More than two objects are concatenated if their codes are narrow and all
    codes of each object are below those of the next one. Otherwise, they are sorted together; large objects with narrow
    codes are sorted in pieces.
    """
    some = [p for p in parts if len(p)] or [parts[0]]
    if len(some) <= 2:
        return some[0] if len(some) == 1 else add_entries(some[0], some[1])
    if not some[0].is_wide and all(int(a.codes[-1]) < int(b.codes[0]) for a, b in pairwise(some)):
        return narrow_types(concatenate(some))
    if not some[0].is_wide and max(map(len, some)) > 2 * PIECE:
        return narrow_types(concatenate([sort_entries(concatenate(pieces)) for pieces in _cut_pieces(some)]))
    return sort_entries(concatenate(some))
