"""Tallies while rows come: a counter, or a byte, for each place; or codes that wait until there are as many as entries.

What is held here changes form, never content: whoever reads gets sorted entries, which are not written to again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import exact_rows, reduce
from ..numerics.exact import carry_fixed
from ..numerics.signal_safety import at_once
from ..state import tally
from ..state.tally import Entries
from .page_allocator import cut, room

__all__ = ["HotExact", "HotTally", "weights_less_one"]

Array = NDArray[Any]
I8, U1, U4, U8, F8 = np.int64, np.uint8, np.uint32, np.uint64, np.float64

LONE = (1 << 25) + 2  # places of a lone cell that may have a counter each
FEW = 1 << 25  # places of all cells that may have a byte each
MANY_PLACES = 1 << 20
FEW_ROWS = 1 << 17  # exact rows of a lone cell for which there is room from the first on
FEW_WEIGHTED = 1 << 20  # and 16 more of them, for weights
FEW_CODES = 2048
FAR = 64  # times as many high words as codes: no counter for each
AHEAD = 6  # batches for which there is room at once
WAIT = 3 << 20  # codes that may wait, whatever has been sorted in


def zeros_behind(array: Array, size: int) -> Array:
    """Return the array with zeros behind it: the same if it is long enough."""
    if size <= len(array):
        return array
    new = np.zeros((size, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new


def weights_less_one(weights: Array) -> NDArray[np.int64]:
    """Return w - 1 as fixed numbers: w = high * 2**-20 + low * 2**-60, rounded once, as kernels do."""
    high = weights + 1.5 * 2.0**32
    low = (weights - (high - 1.5 * 2.0**32)) + 1.5 * 2.0**-8
    pair = np.stack([high.view(I8) - 0x41F8000000000000, low.view(I8) - 0x3F78000000000000], axis=-1)
    pair[:, 0] -= 1 << 20  # here, not before: w - 1 would round
    carry_fixed(pair)
    return pair


def sort(codes: Array) -> None:
    """Sort codes in place; no signal comes in between."""
    if _by_numpy(codes):
        codes.sort()
    else:
        _sort_by_digits(codes)


def sorted_copy(codes: Array) -> Array:
    """Return codes in ascending order."""
    made = codes.copy()
    sort(made)
    return made


def _by_numpy(codes: Array) -> bool:
    return len(codes) < FEW_CODES or numpy_sorts_quicker()


def _sort_by_digits(codes: Array) -> None:
    reduce.sort_codes(codes, room(len(codes), codes.dtype), np.empty(2048, I8))


@cache
def numpy_sorts_quicker() -> bool:
    """Whether numpy's sort beats the one by digits: where it is vectorised for this processor, which is tried."""
    words = np.arange(8 * FEW_CODES, dtype=U8) * U8(0x9E3779B97F4A7C15)
    return min(_spent(np.ndarray.sort, words) for _ in range(3)) < min(_spent(_sort_by_digits, words) for _ in range(3))


def _spent(sort: Callable[[Array], None], words: Array) -> int:
    mine = words.copy()
    start = time.perf_counter_ns()
    sort(mine)
    return time.perf_counter_ns() - start


class HotTally:
    """A narrow tally that is being counted.

    Parameters
    ----------
    shift, places : int
        Bits of a place, and how many places a cell has.
    lone : bool
        Whether there is one cell, whose places have a counter each if they are not too many.
    awake : bool
        Whether rows come here; if not, because cells are exact until they hold many, there is nothing to make room for.
    """

    entries: Entries
    rows: Array
    low: Array
    excess: Array
    codes: Array
    weights: Array
    waiting: Array

    def __init__(self, shift: int, places: int, *, lone: bool, awake: bool = True) -> None:
        self.shift, self.places, self.awake = shift, places, awake
        self.dense = lone and places <= LONE
        self.take(Entries.none(shift), 1)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        held = (self.rows, self.low, self.excess, self.codes, self.weights)
        return self.entries.nbytes + sum(a.nbytes for a in held)

    def take(self, entries: Entries, cells: int) -> None:
        """Hold these entries, in so many cells."""
        made: dict[str, Any] = {
            "entries": entries, "owned": False, "rows": np.zeros(0, I8), "low": np.zeros(0, U1), "excess": np.zeros(0, I8),
            "codes": np.zeros(0, U4), "weights": np.zeros(0), "waiting": np.zeros(1, I8),
        }  # fmt: skip
        if not self.awake:
            assert not len(entries)
        elif self.dense:
            made |= {"entries": Entries.none(self.shift), "rows": np.zeros(self.places, I8)}
            made["rows"][entries.places] = entries.counts
            made["excess"] = self._spread_excess(entries, entries.places, self.places)
        elif self._few(cells, weighted=entries.excess is not None):
            here = entries.cells * self.places + entries.places.astype(I8)
            low = made["low"] = np.zeros(cells * self.places, U1)
            low[here] = entries.counts & entries.counts.dtype.type(255)
            made["excess"] = self._spread_excess(entries, here, len(low))
            high = entries.counts >> entries.counts.dtype.type(8)
            kept = Entries(self.shift, entries.codes[high > 0], high[high > 0])
            made |= {"entries": tally.canonical(kept), "owned": True}
        self.__dict__.update(made)

    def _spread_excess(self, entries: Entries, here: Array, size: int) -> Array:
        if entries.excess is None:
            return np.zeros(0, I8)
        out = np.zeros((size, 2), I8)
        out[here] = entries.excess
        return out.reshape(-1)

    def _few(self, cells: int, *, weighted: bool) -> bool:
        return cells * self.places <= (FEW_WEIGHTED if weighted else FEW)

    # -- room ---------------------------------------------------------------------------------------------------------

    def need(self, cells: int, rows: int) -> int:
        """An upper limit of the bytes that are held when so many more rows have come, in so many cells."""
        if not self.awake:
            return 0
        if self.dense or self._few(cells, weighted=False):
            return self.nbytes + max(cells * self.places - len(self.low), 0) + (0 if self.dense else 4 * AHEAD * rows)
        return self.nbytes + 8 * rows

    def left(self, cells: int) -> int:
        """Rows for which there is room, whatever their weights, in so many cells; 0 if somebody has to look."""
        if self.dense or not self.awake:
            return 1 << 62
        if len(self.low) < cells * self.places or self.codes.dtype != tally.code_type(cells << self.shift):
            return 0
        return len(self.codes) - int(self.waiting[0])

    def room(self, cells: int, rows: int, *, weighted: bool) -> None:
        """Make room for so many rows."""
        if not self.awake:
            return
        if not self.dense:
            self._room(cells, rows, weighted)
        elif weighted and not len(self.excess):
            self.excess = np.zeros(2 * self.places, I8)

    def _room(self, cells: int, rows: int, weighted: bool) -> None:
        most = max(WAIT, len(self.entries) // 2)  # half: what waits takes room beside both old and new entries
        if self.waiting[0] + rows > most and self.waiting[0]:
            self._sort_in()
        heavy = weighted or len(self.excess) > 0
        if len(self.low) and not self._few(cells, weighted=heavy):
            self._wait_only(self.settled())
        if len(self.low):
            if cells * self.places > len(self.low):
                self.low = zeros_behind(self.low, max(cells, min(2 * cells, FEW // self.places)) * self.places)
            if heavy:
                self.excess = zeros_behind(self.excess, 2 * len(self.low))
        kind, used = tally.code_type(cells << self.shift), int(self.waiting[0])
        size = used + rows  # of bytes, too: all of them may be at 255, as when a batch comes again and again
        if size > len(self.codes) or self.codes.dtype != kind:
            ahead = AHEAD if len(self.low) else 2  # few of the rows that bytes count wait
            fresh = room(max(size, min(most, ahead * size)), kind)
            fresh[:used] = self.codes[:used]
            self.codes = fresh
        if not len(self.low) and (weighted or len(self.weights)) and len(self.weights) < len(self.codes):
            new = np.ones(len(self.codes))
            new[:used] = self.weights[:used] if len(self.weights) else 1.0
            self.weights = new

    def _wait_only(self, entries: Entries) -> None:
        """Give up the bytes."""
        none = {"low": np.zeros(0, U1), "excess": np.zeros(0, I8)}
        self.__dict__.update(entries=entries, owned=False, waiting=np.zeros(1, I8), codes=np.zeros(0, U4), **none)

    def target(self) -> tuple[Any, ...]:
        """What a kernel is given: counters and the excess of weights, or the seven arguments of a tally."""
        if self.dense:
            return self.rows, self.excess
        return self.shift, self.places, self.low, self.excess, self.codes, self.weights, self.waiting

    # -- sorting ------------------------------------------------------------------------------------------------------

    def _sort_in(self) -> None:
        """Add the codes that wait to the entries: all of them, or, should this be interrupted, none."""
        n = int(self.waiting[0])
        if len(self.weights) or (self.entries.excess is not None and not len(self.low)):
            excess = weights_less_one(self.weights[:n] if len(self.weights) else np.ones(n))
            fresh = tally.reduce(Entries(self.shift, self.codes[:n].copy(), np.ones(n, U4), excess))
            entries = tally.add(self.entries, tally.canonical(fresh))
        else:
            sort(self.codes[:n])  # they may wait in any order
            entries = self._with_sorted(self.codes[:n])
        self.__dict__.update(entries=entries, owned=True, weights=np.zeros(0), waiting=np.zeros(1, I8))

    def _with_sorted(self, codes: Array) -> Entries:
        """The entries, and one row more for each code."""
        old = self.entries
        if len(old) and old.excess is None and int(old.counts.max()) + len(codes) < tally.MANY:
            size = len(old) + len(codes)
            out = room(size, codes.dtype), room(size, U4)
            m = reduce.add_sorted(old.codes.astype(codes.dtype, copy=False), old.counts, codes, *out)
            return Entries(self.shift, cut(out[0], m), cut(out[1], m))
        out = np.empty_like(codes), np.empty(len(codes), U4)
        m = reduce.runs(codes, *out)
        return tally.add(old, tally.canonical(Entries(self.shift, *(a[:m] for a in out))))

    def settled(self) -> Entries:
        """All entries, sorted."""
        if self.waiting[0]:
            self._sort_in()
        if not len(self.rows) and not len(self.low):
            return self.entries
        if self.dense:
            found = Entries(self.shift, *self._occupied())
        else:
            cells = -(-len(self.low) // self.places)
            kind, how = tally.code_type(cells << self.shift), (self.low, self.places, self.shift, cells)
            n = reduce.sweep(*how, np.empty(0, kind), np.empty(0, U4))
            out = np.empty(n, kind), np.empty(n, U4)
            if n:
                reduce.sweep(*how, *out)
            found = tally.canonical(Entries(self.shift, *out))
            if len(self.entries):
                found = tally.add(found, Entries(self.shift, self.entries.codes, self.entries.mass << 8))
        if len(self.excess):
            here = found.cells * self.places + found.places.astype(I8)
            found = tally.canonical(replace(found, excess=self.excess.reshape(-1, 2)[here]))
        return found

    def _occupied(self) -> tuple[Array, Array]:
        """The places of a lone cell that hold rows, and how many."""
        n = -1
        if len(self.rows) <= MANY_PLACES:
            codes, counts = np.empty(len(self.rows), U4), np.empty(len(self.rows), U4)
            n = reduce.occupied(self.rows, codes, counts)
        if n < 0:  # mostly empty, or counts too large
            places = np.flatnonzero(self.rows)
            counts = self.rows[places]
            return places.astype(U4), counts.astype(tally.count_type(int(counts.max(initial=0))))
        return (codes[:n], counts[:n]) if 2 * n > len(codes) else (codes[:n].copy(), counts[:n].copy())


class HotExact:
    """Rows that wait as exact codes: sorted when they are read, or when there is no more room, not before.

    Parameters
    ----------
    shift : int
        Bits of a place, with which codes are wide.
    lone : bool
        Whether there is one cell: while places have 64 bits, the high word is 0 and not kept.
    """

    entries: Entries
    high: Array
    low: Array
    weights: Array
    used: Array
    settled_rows: int

    def __init__(self, shift: int, *, lone: bool) -> None:
        self.shift, self.lone, self.bare = shift, lone, lone and shift <= 64
        self.take(Entries.none(shift, wide=True))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.entries.nbytes + self.high.nbytes + self.low.nbytes + self.weights.nbytes

    def take(self, entries: Entries) -> None:
        """Hold these entries."""
        none = {"high": np.zeros(0, U4), "low": np.zeros(0, U8), "weights": np.zeros(0), "used": np.zeros(1, I8)}
        self.__dict__.update(entries=entries, settled_rows=int(entries.mass.sum()), **none)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.settled_rows) + int(self.used[0])

    def left(self, most: int | None) -> int:
        """Rows of a lone cell for which there is room, while no more than `most` are kept."""
        room = len(self.low) - int(self.used[0])
        return room if most is None else max(min(room, most - self.rows), 0)

    def full(self, rows: int) -> bool:
        """Whether those that wait are to be sorted before so many more come."""
        used = int(self.used[0])
        return used > 0 and used + rows > max(WAIT // 3, 3 * len(self.entries))

    def room(self, rows: int, most: int | None, *, weighted: bool) -> None:
        """Make room for so many rows, in a lone cell for `most` at once if these are few."""
        if self.full(rows):
            self.settle()
        used = int(self.used[0])
        if used + rows > len(self.low):
            ahead = 2 * (used + rows)
            if self.lone and most is not None:
                ahead = min(most, max(FEW_ROWS, ahead))
            low = np.empty(max(used + rows, ahead, 256), U8)
            low[:used] = self.low[:used]
            self.low = low
        if not self.bare and len(self.high) < len(self.low):
            high = np.zeros(len(self.low), U4)
            high[:used] = self.high[:used]
            self.high = high
        if (weighted or len(self.weights)) and len(self.weights) < len(self.low):
            new = np.ones(len(self.low))
            new[:used] = self.weights[:used] if len(self.weights) else 1.0
            self.weights = new

    def target(self) -> tuple[Any, ...]:
        """What a kernel is given: both words of codes, weights, and how many wait."""
        return self.high, self.low, self.weights, self.used

    # -- sorting ------------------------------------------------------------------------------------------------------

    def settle(self) -> Entries:
        """All entries, sorted. What kernels are given stays as it is."""
        n = int(self.used[0])
        if n:
            made = self._united(n)
            hold = partial(self.__dict__.update, entries=made, settled_rows=self.rows)
            at_once([hold, partial(self.used.__setitem__, 0, 0)])
        entries: Entries = self.entries
        return entries

    def everything(self) -> Entries:
        """All entries, those that wait not sorted, and one for each row."""
        n = int(self.used[0])
        fresh = self._waiting(n)
        if not len(self.entries):
            return fresh
        return tally.joined([self.entries, fresh]) if n else self.entries

    def _waiting(self, n: int) -> Entries:
        high = self.high[:n] if len(self.high) else np.zeros(n, U4)
        excess = weights_less_one(self.weights[:n]) if len(self.weights) else None
        return Entries(self.shift, self.low[:n], np.ones(n, U4), excess, high)

    def _united(self, n: int) -> Entries:
        old = self.entries
        plain = not len(self.weights) and old.excess is None and self.rows < tally.MANY
        if self.bare and plain and len(old):
            return self._with_sorted(n)
        fresh = tally.reduce(self._waiting(n)) if len(self.weights) else self._sorted(n)
        return tally.add(old, fresh) if len(old) else fresh

    def _with_sorted(self, n: int) -> Entries:
        """The entries of a lone cell, and one row more for each code that waits; few are put where they belong."""
        old, codes = self.entries, sorted_copy(self.low[:n])
        out = room(len(old) + n, U8), room(len(old) + n, U4)
        if 8 * n < len(old):
            each = np.empty(n, U8), np.empty(n, U4)
            k = reduce.runs(codes, *each)
            m = exact_rows.insert(old.codes, old.counts, each[0][:k], each[1][:k], *out)
        else:
            m = reduce.add_sorted(old.codes, old.counts, codes, *out)
        return Entries(self.shift, cut(out[0], m), cut(out[1], m), None, np.zeros(m, U4))

    def _few_different(self, n: int) -> Entries | None:
        """Return the rows that wait, counted in a hash table; None if there are many different ones."""
        high, low, counts = np.empty(FEW_CODES, U4), np.empty(FEW_CODES, U8), np.empty(FEW_CODES, U4)
        m = exact_rows.unite_few(self.high[:n], self.low[:n], high, low, counts)
        if m < 0:
            return None
        order = np.lexsort((low[:m], high[:m]))
        return Entries(self.shift, low[order], counts[order], None, high[order])

    def _sorted(self, n: int) -> Entries:
        """Those that wait, none of which has a weight."""
        if n > FEW_CODES and (few := self._few_different(n)) is not None:
            return few
        if not self.bare and int(self.high[:n].max()) > FAR * n + MANY_PLACES:  # of cells that lie far apart
            return tally.reduce(self._waiting(n))
        if self.bare:
            low, ends, names = sorted_copy(self.low[:n]), np.array([n]), np.zeros(1, U4)
        else:
            each = np.bincount(self.high[:n])
            ends, low = np.cumsum(each), np.empty(n, U8)
            exact_rows.by_high(self.high[:n], self.low[:n], ends - each, low)
            names = np.flatnonzero(each).astype(U4)
            ends = ends[names]
            for a, b in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
                sort(low[a:b])
        made = np.empty(n, U4), np.empty(n, U8), np.empty(n, U4)
        m = exact_rows.unite_runs(low, ends, names, *made)
        h, c, k = (a[:m] if 4 * m > 3 * n else a[:m].copy() for a in made)
        return Entries(self.shift, c, k, None, h)
