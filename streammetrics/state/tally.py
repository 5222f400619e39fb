"""Tallies: rows counted by place within a cell, as sorted entries.

An entry is a code, how many rows, and, once a weight was not 1, the fixed-point sum of w - 1. The canonical form has codes
ascending and unique, no entry without rows, and no excess that is all zero. A narrow code is one word, cell << shift |
place (four bytes while that fits). A wide one, of places beyond 48 bits, is two: the low 64 bits of the place, and `high`,
the cell and what is left of the place: a bit, and before it the label, of statistics that keep a tally for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CounterOverflowError, IncompatibleStateError
from ..numerics import kernel_registry as compiled
from ..numerics.exact import carry_fixed

__all__ = [
    "WIDEST",
    "Array",
    "Entries",
    "add",
    "canonical",
    "code_type",
    "count_type",
    "joined",
    "reduce",
    "united",
    "weighs",
]

Array = NDArray[Any]
U4, U8, I8 = np.uint32, np.uint64, np.int64
MANY = 1 << 32
WIDEST = 1 << 65  # places of a label
PIECE = 1 << 18
SPAN = 1 << 22  # of codes: below it counters for all of them, side by side, are the quickest way to add
SPARSE = (
    8  # unless there are so many codes for an entry: of a label with 20 rows these took 0.6 ms, sorting takes 20 us
)


@dataclass(frozen=True, eq=False)
class Entries:
    """Sorted entries of some cells.

    Parameters
    ----------
    shift : int
        Bits of a place.
    codes : uint32 or uint64
        The code, or its low word.
    counts : uint32 or int64
        Rows.
    excess : int64 of shape (n, 2), optional
        The fixed-point sum of w - 1.
    high : uint32, optional
        The high word of wide codes.
    """

    shift: int
    codes: Array
    counts: Array
    excess: Array | None = None
    high: Array | None = None

    @classmethod
    def none(cls, shift: int, *, wide: bool = False) -> Entries:
        """No entries."""
        high = np.zeros(0, U4) if wide else None
        return cls(shift, np.zeros(0, U8 if wide else U4), np.zeros(0, U4), None, high)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that is held."""
        held = (self.codes, self.counts, self.excess, self.high)
        return tuple(a for a in held if a is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(a.nbytes for a in self.arrays)

    @property
    def wide(self) -> bool:
        """Whether a code is two words."""
        return self.high is not None

    @property
    def top(self) -> int:
        """Bits of a wide place that ride on the high word."""
        return max(self.shift - 64, 0)

    @property
    def cells(self) -> Array:
        """The cell of each entry."""
        if self.high is not None:
            return (self.high >> U4(self.top)).astype(I8)
        if self._lone:
            return np.zeros(len(self.codes), I8)
        cells: Array = self.codes >> self.codes.dtype.type(self.shift)
        return cells.astype(I8)

    @property
    def places(self) -> Array:
        """The place of each entry; of wide ones its low 64 bits."""
        if self.wide or self._lone:
            return self.codes
        places: Array = self.codes & self.codes.dtype.type((1 << self.shift) - 1)
        return places

    @property
    def _lone(self) -> bool:
        """Whether codes are too narrow for any cell but the first."""
        return not self.wide and self.shift >= 8 * self.codes.dtype.itemsize

    @cached_property
    def mass(self) -> Array:
        """Rows as int64."""
        return self.counts.astype(I8)

    def starts(self, cells: int) -> Array:
        """Where the entries of each cell begin, and the end."""
        if cells == 1 or self._lone:
            out = np.full(cells + 1, len(self.codes), I8)
            out[0] = 0
            return out
        if 64 * cells < len(self.codes):
            if self.high is not None:
                firsts = (np.arange(cells, dtype=U8) << U8(self.top)).astype(U4)
                return np.append(np.searchsorted(self.high, firsts), len(self.high))
            firsts = np.arange(cells, dtype=U8) << U8(self.shift)
            firsts = firsts[firsts <= self.codes[-1]].astype(self.codes.dtype)
            out = np.full(cells + 1, len(self.codes), I8)
            out[: len(firsts)] = np.searchsorted(self.codes, firsts)
            return out
        out = np.zeros(cells + 1, I8)
        np.cumsum(np.bincount(self.cells, minlength=cells), out=out[1:])
        return out

    def cells_with(self, some: Array) -> Array:
        """The cells that have one of these entries: each once, where the entries of a cell stand together."""
        cells = self.cells
        first = np.flatnonzero(np.append(True, cells[1:] != cells[:-1])[: len(cells)])
        return cells[first][np.logical_or.reduceat(some, first)] if len(cells) else cells

    def where(self, kept: Array | slice) -> Entries:
        """Return some entries, by a mask, their index, or a slice."""
        rest = (None if a is None else a[kept] for a in (self.excess, self.high))
        return Entries(self.shift, self.codes[kept], self.counts[kept], *rest)

    def only(self, first: int, last: int) -> Entries:
        """Return the entries of one cell, which lie from `first` to `last`, as those of a lone one."""
        rows = slice(first, last)
        codes, counts = self.codes[rows], self.counts[rows]
        excess = None if self.excess is None or not self.excess[rows].any() else self.excess[rows]
        if self.high is not None:
            return Entries(self.shift, codes, counts, excess, self.high[rows] & U4((1 << self.top) - 1))
        place = codes if self._lone else codes & codes.dtype.type((1 << self.shift) - 1)
        return Entries(
            self.shift, place.astype(code_type(int(place[-1]) + 1 if len(place) else 0), copy=False), counts, excess
        )

    def take(self, cells: Array, starts: Array) -> Entries:
        """Return the entries of some cells, which become the first ones in this order."""
        each = starts[cells + 1] - starts[cells]
        index = np.arange(int(each.sum())) + np.repeat(starts[cells] - (np.cumsum(each) - each), each)
        return canonical(self.where(index).in_cells(np.repeat(np.arange(len(cells)), each), len(cells)))

    def in_cells(self, cells: Array, count: int) -> Entries:
        """Give each entry another cell, of so many."""
        if self.high is not None:
            top = self.high & U4((1 << self.top) - 1)
            return replace(self, high=(cells.astype(U4) << U4(self.top)) | top)
        wide = code_type(count << self.shift)
        place: Array = self.places.astype(wide, copy=False)
        return replace(self, codes=(cells.astype(wide) << wide(self.shift)) | place)

    def moved(self, to: Array, starts: Array, *, ascending: bool) -> Entries:
        """Move each cell's entries to another cell; several may meet, and those at -1 go."""
        if not len(self.codes) or np.array_equal(to, np.arange(len(to))):
            return self
        each, some = np.diff(starts), self
        if (to < 0).any():
            some = self.where(np.repeat(to >= 0, each))
            each = np.where(to >= 0, each, 0)
        there = some.in_cells(np.repeat(to, each), int(to.max(initial=-1)) + 1)
        return canonical(there) if ascending else reduce(there)

    def same(self, other: Entries) -> bool:
        """Whether both hold the same."""
        a, b = ((e.codes, e.counts, e.excess, e.high) for e in (self, other))
        return self.shift == other.shift and all(
            (x is None) == (y is None) and (x is None or y is None or np.array_equal(x, y))
            for x, y in zip(a, b, strict=True)
        )


def code_type(codes: int) -> type:
    """The narrowest type for so many codes.

    Raises
    ------
    CounterOverflowError
        There are more cells than a code can tell apart.
    """
    if codes > 1 << 64:
        raise CounterOverflowError("so many cells of so many places cannot be told apart in 64 bits")
    return U4 if codes <= MANY else U8


def count_type(rows: int) -> type:
    """The narrowest type for counts of so many rows."""
    return U4 if rows < MANY else I8


def weighs(entries: Entries) -> Array:
    """Which entries hold more than rows of weight 0, which show nothing of where they lie."""
    if entries.excess is None:
        return np.ones(len(entries), bool)
    some: Array = (entries.excess[:, 0] != -(entries.mass << 20)) | (entries.excess[:, 1] != 0)
    return some


def canonical(e: Entries) -> Entries:
    """Drop what is empty, and take the narrowest types; codes are sorted and unique already."""
    kept = e.counts != 0
    if not kept.all():
        e = e.where(kept)
    if e.excess is not None and not e.excess.any():
        e = replace(e, excess=None)
    return narrow(e)


def narrow(e: Entries) -> Entries:
    """Take the narrowest types."""
    codes = e.codes if e.wide else e.codes.astype(code_type(int(e.codes[-1]) + 1 if len(e) else 0), copy=False)
    most = int(e.counts.max(initial=0)) if e.counts.dtype != U4 else 0
    counts: Array = e.counts.astype(count_type(most), copy=False)
    return Entries(e.shift, codes, counts, e.excess, e.high)


def unite(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """The union of two sorted unique arrays, and where in it the members of each are."""
    wide = a.dtype if a.dtype == b.dtype else np.dtype(U8)
    a, b = a.astype(wide, copy=False), b.astype(wide, copy=False)
    if compiled.loaded():  # by whoever counts; not to be loaded for a merge
        out, *at = np.empty(len(a) + len(b), wide), np.empty(len(a) + 1, U4), np.empty(len(b) + 1, U4)
        m = compiled.kernel("reduce:union")(a, b, out, *at)
        return out[:m], at[0][:-1], at[1][:-1]
    most = max(int(s[-1]) if len(s) else 0 for s in (a, b))
    if most >= 1 << 63:
        both = np.concatenate([a, b])
        union, place = np.unique(both, return_inverse=True)
        return union, place[: len(a)], place[len(a) :]
    # whose it is in the last bit: nothing to carry along
    tagged: Array = np.empty(len(a) + len(b), U4 if most < MANY >> 1 else U8)
    one = tagged.dtype.type(1)
    np.left_shift(a, one, out=tagged[: len(a)], casting="unsafe")
    np.left_shift(b, one, out=tagged[len(a) :], casting="unsafe")
    tagged[len(a) :] |= one
    tagged.sort(kind="stable")  # which merges what is sorted already
    theirs = (tagged & one).astype(bool)
    tagged >>= one
    codes = tagged.astype(wide, copy=False)
    first = np.empty(len(codes), bool)
    first[:1], first[1:] = True, codes[1:] != codes[:-1]
    place = np.cumsum(first, dtype=U4)
    place -= U4(1)
    return codes[first], place[~theirs], place[theirs]


def _unite_wide(a: Entries, b: Entries) -> tuple[Array, Array, Array, Array]:
    """The union of codes of two words: low words, high words, and where in it those of each are."""
    assert a.high is not None
    assert b.high is not None
    if not a.high.any() and not b.high.any():  # those of one cell
        low, in_a, in_b = unite(a.codes, b.codes)
        return low, np.zeros(len(low), U4), in_a, in_b
    size = len(a) + len(b)
    out = np.empty(size, U4), np.empty(size, U8)
    at = [np.empty(len(a) + 1, U4), np.empty(len(b) + 1, U4)]
    m = compiled.kernel("reduce:union_wide")(a.high, a.codes, b.high, b.codes, *out, *at)
    return out[1][:m], out[0][:m], at[0][:-1], at[1][:-1]


def add(a: Entries, b: Entries, sign: int = 1) -> Entries:
    """Add entries to entries, or take them away.

    Raises
    ------
    ValueError
        A count would fall below zero.
    """
    if not len(b):
        return a
    if not len(a) and sign > 0:
        return b
    if not a.wide:
        if not compiled.loaded() and len(a) > 2 * PIECE:  # what numpy needs beside is several times as large
            return narrow(joined([add(*both, sign) for both in _pieces(a, b)]))
        codes, in_a, in_b = unite(a.codes, b.codes)
        high = None
    elif compiled.loaded():
        codes, high, in_a, in_b = _unite_wide(a, b)
    else:
        return _not_below(reduce(joined([a, b], sign)), sign)
    most = int(a.counts.max(initial=0)) + int(b.counts.max(initial=0))
    counts: Array = np.zeros(len(codes), count_type(most) if sign > 0 else I8)
    _spread(in_a, a.counts, counts)
    _spread(in_b, b.counts if sign > 0 else -b.mass, counts)
    if sign < 0 and counts.min(initial=0) < 0:
        raise IncompatibleStateError("a count would fall below zero: these rows were not counted here")
    excess = None
    if a.excess is not None or b.excess is not None:
        excess = np.zeros((len(codes), 2), I8)
        excess[in_a] = 0 if a.excess is None else a.excess
        excess[in_b] += 0 if b.excess is None else sign * b.excess
        carry_fixed(excess)
    return _not_below(canonical(Entries(a.shift, codes, counts, excess, high)), sign)


def _pieces(a: Entries, b: Entries) -> Iterator[tuple[Entries, Entries]]:
    """Both sets of narrow entries cut at the same codes."""
    ours = [*range(0, len(a) - PIECE, PIECE), len(a)]
    theirs = [0, *np.searchsorted(b.codes, a.codes[ours[1:-1]]).tolist(), len(b)]
    for (i, j), (k, m) in zip(pairwise(ours), pairwise(theirs), strict=True):
        yield a.where(slice(i, j)), b.where(slice(k, m))


def _spread(at: Array, counts: Array, out: Array) -> None:
    """Add counts at their places, each of which comes once."""
    if compiled.loaded():
        compiled.kernel("reduce:spread")(at, counts.astype(out.dtype, copy=False), out)
    else:
        out[at] += counts.astype(out.dtype, copy=False)


def _not_below(e: Entries, sign: int) -> Entries:
    """Raise if more weight was taken away than there was."""
    if sign < 0 and e.excess is not None and (e.excess[:, 0] < -(e.mass << 20)).any():
        raise IncompatibleStateError("a weight would fall below zero: these rows were not counted here")
    return e


def joined(parts: Sequence[Entries], sign: int = 1) -> Entries:
    """Put entries one behind the other; those after the first are taken away with a sign of -1."""
    signs = [1, *[sign] * (len(parts) - 1)]
    wide = np.result_type(*(p.codes.dtype for p in parts))
    codes = np.concatenate([p.codes.astype(wide, copy=False) for p in parts])
    counts = np.concatenate([p.counts if s > 0 else -p.mass for p, s in zip(parts, signs, strict=True)])
    excess = None
    if any(p.excess is not None for p in parts):
        given = [np.zeros((len(p), 2), I8) if p.excess is None else p.excess for p in parts]
        excess = np.concatenate([s * g for s, g in zip(signs, given, strict=True)])
    high = None if parts[0].high is None else np.concatenate([p.high for p in parts if p.high is not None])
    return Entries(parts[0].shift, codes, counts, excess, high)


def reduce(e: Entries) -> Entries:
    """Bring entries in any order, with repetitions, to canonical form.

    Raises
    ------
    ValueError
        A count is below zero.
    """
    codes, counts = e.codes, e.counts
    if not len(codes):
        return canonical(e)
    bare = e.excess is None and not e.wide
    rows = int(counts.sum(dtype=I8)) if bare else 0
    if bare and int(counts.min()) >= 0:
        span = int(codes.max()) + 1
        if span <= max(min(SPAN, SPARSE * len(codes)), len(codes)) and rows < 1 << 53:
            ones = rows == len(codes) and int(counts.min()) == 1
            dense = np.bincount(
                codes.astype(I8, copy=False), None if ones else counts, span
            )  # floats, exact below 2**53
            found = np.flatnonzero(dense)
            return canonical(Entries(e.shift, found.astype(U8), dense[found].astype(I8)))
        if span <= MANY and rows < MANY:  # code and count in one word: sorting these is vectorised
            packed = codes.astype(U8)
            packed <<= U8(32)
            packed |= counts.astype(U8, copy=False)
            packed.sort()
            codes, counts = (packed >> U8(32)).astype(U4), packed.astype(U4)
            first = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
            return canonical(Entries(e.shift, codes[first], np.add.reduceat(counts, first, dtype=I8)))
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
        raise IncompatibleStateError("a count would fall below zero: these rows were not counted here")
    excess = None if e.excess is None else np.add.reduceat(e.excess[order], first)
    if excess is not None:
        carry_fixed(excess)
    return canonical(Entries(e.shift, codes[first], counts, excess, None if high is None else high[first]))


def united(parts: Sequence[Entries]) -> Entries:
    """Add many: two by a linear pass, more by sorting all of them at once."""
    some = [p for p in parts if len(p)] or [parts[0]]
    if len(some) <= 2:
        return some[0] if len(some) == 1 else add(some[0], some[1])
    return reduce(joined(some))
