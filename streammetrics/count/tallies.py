"""Tallies of counters: how many rows there are in each place of each cell, in the form that kernels write fastest.

- One cell with few places (`LiveTally`, dense): a counter of 64 bits for each place.
- Several cells with few places together: a counter of 8 bits for each place. A kernel that raises a byte beyond 255
  writes the code of the place to a buffer, where it stands for 256 rows.
- All others, and exact rows (`LiveExactRows`): each row is a code in a buffer. When there are about as many codes as
  entries, they are sorted and merged into the entries, so each row is moved a bounded number of times on average.

Readers read ahead without a copy: `consolidate` returns sorted entries whose arrays are never written again, so a state
may keep them while kernels go on to write to the buffers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import exact_rows, tally_codes
from ..numerics.exact import carry_fixed
from ..numerics.signal_safety import run_without_interrupt
from ..state import tally
from ..state.tally import Entries
from .page_allocator import allocate, trim

__all__ = ["LiveExactRows", "LiveTally", "weights_less_one"]

Array = NDArray[Any]
I8, U1, U4, U8, F8 = np.int64, np.uint8, np.uint32, np.uint64, np.float64

# A place is a possible value of a row. A single cell with at most this many places has a 64-bit counter for each place.
LONE = (1 << 25) + 2
# Several cells with at most this many places in total have an 8-bit counter for each place.
FEW = 1 << 25
# The same limit for weighted rows, which need 16 more bytes for each place.
FEW_WEIGHTED = 1 << 20
# Up to this many places, a kernel finds the places that have rows; beyond it, numpy does.
MANY_PLACES = 1 << 20
# The first buffer for exact rows of a single cell has room for this many rows.
FEW_ROWS = 1 << 17
# Fewer codes than this are sorted by numpy, and fewer distinct codes are counted in a hash table.
FEW_CODES = 2048
# If there are more than this many high words for each code, codes are not grouped by high word.
FAR = 64
# A new buffer has room for this many batches.
AHEAD = 6
# At least this many codes may be buffered, even if there are fewer entries.
WAIT = 3 << 20


def pad_zeros(array: Array, size: int) -> Array:
    """Return the array, padded with zeros to `size` items; the array itself if it is long enough."""
    if size <= len(array):
        return array
    new = np.zeros((size, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new


def weights_less_one(weights: Array) -> NDArray[np.int64]:
    """Return w - 1 as fixed-point numbers (high, low), where w - 1 = high * 2**-20 + low * 2**-60, rounded once."""
    # Near 1.5 * 2**32 the last bit of a float64 is 2**-20. Adding this constant therefore rounds a number to a multiple of
    # 2**-20, and the bits of the sum minus the bits of the constant are the multiple as an integer. The remainder is exact
    # and is rounded to 2**-60 in the same way. Kernels use the same two additions, so results are equal bit for bit.
    high = weights + 1.5 * 2.0**32
    low = (weights - (high - 1.5 * 2.0**32)) + 1.5 * 2.0**-8
    pair = np.stack([high.view(I8) - 0x41F8000000000000, low.view(I8) - 0x3F78000000000000], axis=-1)
    # The integer 1 is subtracted here, because the float64 w - 1 would be rounded.
    pair[:, 0] -= 1 << 20
    carry_fixed(pair)
    return pair


def sort(codes: Array) -> None:
    """Sort codes in place, in one call into C, which no signal handler interrupts."""
    if _prefers_numpy_sort(codes):
        codes.sort()
    else:
        _sort_by_digits(codes)


def sorted_copy(codes: Array) -> Array:
    """Return codes in ascending order."""
    copy = codes.copy()
    sort(copy)
    return copy


def _prefers_numpy_sort(codes: Array) -> bool:
    return len(codes) < FEW_CODES or numpy_sorts_quicker()


def _sort_by_digits(codes: Array) -> None:
    tally_codes.sort_codes(codes, allocate(len(codes), codes.dtype), np.empty(2048, I8))


@cache
def numpy_sorts_quicker() -> bool:
    """Return whether numpy's sort, which some processors vectorise, is faster than our radix sort; measured once."""
    words = np.arange(8 * FEW_CODES, dtype=U8) * U8(0x9E3779B97F4A7C15)
    return min(_time_sort(np.ndarray.sort, words) for _ in range(3)) < min(
        _time_sort(_sort_by_digits, words) for _ in range(3)
    )


def _time_sort(sort: Callable[[Array], None], words: Array) -> int:
    copy = words.copy()
    start = time.perf_counter_ns()
    sort(copy)
    return time.perf_counter_ns() - start


class LiveTally:
    """A tally whose codes have at most 64 bits: the cell, shifted left by `shift`, plus the place.

    Parameters
    ----------
    shift, places : int
        The number of bits of a place (a possible value of a row), and the number of places of a cell.
    lone : bool
        Whether there is only one cell.
    is_active : bool
        Whether rows are counted in this tally. It is False while all cells are exact, and then no room is reserved.
    """

    entries: Entries
    rows: Array
    low: Array
    excess: Array
    codes: Array
    weights: Array
    waiting: Array

    def __init__(self, shift: int, places: int, *, lone: bool, is_active: bool = True) -> None:
        self.shift, self.places, self.is_active = shift, places, is_active
        self.dense = lone and places <= LONE
        self.set_entries(Entries.empty(shift), 1)

    @property
    def nbytes(self) -> int:
        """The memory, in bytes."""
        arrays = (self.rows, self.low, self.excess, self.codes, self.weights)
        return self.entries.nbytes + sum(a.nbytes for a in arrays)

    def set_entries(self, entries: Entries, cells: int) -> None:
        """Replace the content by these entries, which belong to `cells` cells."""
        fields: dict[str, Any] = {
            "entries": entries, "rows": np.zeros(0, I8), "low": np.zeros(0, U1), "excess": np.zeros(0, I8),
            "codes": np.zeros(0, U4), "weights": np.zeros(0), "waiting": np.zeros(1, I8),
        }  # fmt: skip
        if not self.is_active:
            assert not len(entries)
        elif self.dense:
            fields |= {"entries": Entries.empty(self.shift), "rows": np.zeros(self.places, I8)}
            fields["rows"][entries.places] = entries.counts
            fields["excess"] = self._spread_excess(entries, entries.places, self.places)
        elif self._fits_byte_counters(cells, weighted=entries.excess is not None):
            here = entries.cells * self.places + entries.places.astype(I8)
            low = fields["low"] = np.zeros(cells * self.places, U1)
            # The lowest byte of a count goes to the byte counter. The rest stays an entry, which counts rows in units
            # of 256 here.
            low[here] = entries.counts & entries.counts.dtype.type(255)
            fields["excess"] = self._spread_excess(entries, here, len(low))
            high = entries.counts >> entries.counts.dtype.type(8)
            kept = Entries(self.shift, entries.codes[high > 0], high[high > 0])
            fields |= {"entries": tally.canonicalize(kept)}
        self.__dict__.update(fields)

    def _spread_excess(self, entries: Entries, here: Array, size: int) -> Array:
        if entries.excess is None:
            return np.zeros(0, I8)
        out = np.zeros((size, 2), I8)
        out[here] = entries.excess
        return out.reshape(-1)

    def _fits_byte_counters(self, cells: int, *, weighted: bool) -> bool:
        return cells * self.places <= (FEW_WEIGHTED if weighted else FEW)

    # -- room ---------------------------------------------------------------------------------------------------------

    def estimate_bytes(self, cells: int, rows: int) -> int:
        """Return an upper limit of the memory, in bytes, after `rows` more rows in `cells` cells."""
        if not self.is_active:
            return 0
        if self.dense or self._fits_byte_counters(cells, weighted=False):
            return self.nbytes + max(cells * self.places - len(self.low), 0) + (0 if self.dense else 4 * AHEAD * rows)
        return self.nbytes + 8 * rows

    def count_free_rows(self, cells: int) -> int:
        """Return the number of rows, of any weight, that still fit; 0 if `reserve` has to be called first."""
        if self.dense or not self.is_active:
            return 1 << 62
        if len(self.low) < cells * self.places or self.codes.dtype != tally.find_code_type(cells << self.shift):
            return 0
        return len(self.codes) - int(self.waiting[0])

    def reserve(self, cells: int, rows: int, *, weighted: bool) -> None:
        """Make room for `rows` more rows in `cells` cells."""
        if not self.is_active:
            return
        if not self.dense:
            self._reserve(cells, rows, weighted)
        elif weighted and not len(self.excess):
            self.excess = np.zeros(2 * self.places, I8)

    def _reserve(self, cells: int, rows: int, weighted: bool) -> None:
        # The limit is half as many codes as entries, because sorting needs memory for codes, old entries and new
        # entries.
        most = max(WAIT, len(self.entries) // 2)
        if self.waiting[0] + rows > most and self.waiting[0]:
            self._sort_in_waiting()
        heavy = weighted or len(self.excess) > 0
        if len(self.low) and not self._fits_byte_counters(cells, weighted=heavy):
            self._give_up_byte_counters(self.consolidate())
        if len(self.low):
            if cells * self.places > len(self.low):
                self.low = pad_zeros(self.low, max(cells, min(2 * cells, FEW // self.places)) * self.places)
            if heavy:
                self.excess = pad_zeros(self.excess, 2 * len(self.low))
        kind, used = tally.find_code_type(cells << self.shift), int(self.waiting[0])
        # Byte counters need this room, too: all bytes may be at 255, for example if all batches are equal.
        size = used + rows
        if size > len(self.codes) or self.codes.dtype != kind:
            # Byte counters turn few rows into codes, so a buffer for several batches seldom fills up.
            ahead = AHEAD if len(self.low) else 2
            fresh = allocate(max(size, min(most, ahead * size)), kind)
            fresh[:used] = self.codes[:used]
            self.codes = fresh
        if not len(self.low) and (weighted or len(self.weights)) and len(self.weights) < len(self.codes):
            new = np.ones(len(self.codes))
            new[:used] = self.weights[:used] if len(self.weights) else 1.0
            self.weights = new

    def _give_up_byte_counters(self, entries: Entries) -> None:
        """Replace the byte counters by entries; from now on each row is buffered as a code."""
        none = {"low": np.zeros(0, U1), "excess": np.zeros(0, I8)}
        self.__dict__.update(entries=entries, waiting=np.zeros(1, I8), codes=np.zeros(0, U4), **none)

    def collect_arguments(self) -> tuple[Any, ...]:
        """Return the kernel arguments: counters and excess weights, or the seven arguments of a buffered tally."""
        if self.dense:
            return self.rows, self.excess
        return self.shift, self.places, self.low, self.excess, self.codes, self.weights, self.waiting

    # -- sorting ------------------------------------------------------------------------------------------------------

    def _sort_in_waiting(self) -> None:
        """Sort the buffered codes and merge them into the entries."""
        n = int(self.waiting[0])
        if len(self.weights) or (self.entries.excess is not None and not len(self.low)):
            excess = weights_less_one(self.weights[:n] if len(self.weights) else np.ones(n))
            fresh = tally.sort_entries(Entries(self.shift, self.codes[:n].copy(), np.ones(n, U4), excess))
            entries = tally.add_entries(self.entries, tally.canonicalize(fresh))
        else:
            sort(self.codes[:n])  # in place: the order of buffered codes does not matter
            entries = self._insert_codes(self.codes[:n])
        # One call into C replaces all attributes, so an interrupt leaves all codes in the buffer, or none.
        self.__dict__.update(entries=entries, weights=np.zeros(0), waiting=np.zeros(1, I8))

    def _insert_codes(self, codes: Array) -> Entries:
        """Return the entries with one more row for each of these sorted codes."""
        old = self.entries
        if len(old) and old.excess is None and int(old.counts.max()) + len(codes) < tally.MANY:
            size = len(old) + len(codes)
            out = allocate(size, codes.dtype), allocate(size, U4)
            m = tally_codes.add_sorted(old.codes.astype(codes.dtype, copy=False), old.counts, codes, *out)
            return Entries(self.shift, trim(out[0], m), trim(out[1], m))
        out = np.empty_like(codes), np.empty(len(codes), U4)
        m = tally_codes.count_runs(codes, *out)
        return tally.add_entries(old, tally.canonicalize(Entries(self.shift, *(a[:m] for a in out))))

    def consolidate(self) -> Entries:
        """Return all rows as sorted entries."""
        if self.waiting[0]:
            self._sort_in_waiting()
        if not len(self.rows) and not len(self.low):
            return self.entries
        if self.dense:
            entries = Entries(self.shift, *self._find_occupied_places())
        else:
            cells = -(-len(self.low) // self.places)
            kind, how = tally.find_code_type(cells << self.shift), (self.low, self.places, self.shift, cells)
            n = tally_codes.collect_bytes(*how, np.empty(0, kind), np.empty(0, U4))
            out = np.empty(n, kind), np.empty(n, U4)
            if n:
                tally_codes.collect_bytes(*how, *out)
            entries = tally.canonicalize(Entries(self.shift, *out))
            if len(self.entries):
                entries = tally.add_entries(
                    entries, Entries(self.shift, self.entries.codes, self.entries.int64_counts << 8)
                )
        if len(self.excess):
            here = entries.cells * self.places + entries.places.astype(I8)
            entries = tally.canonicalize(replace(entries, excess=self.excess.reshape(-1, 2)[here]))
        return entries

    def _find_occupied_places(self) -> tuple[Array, Array]:
        """Return the places (possible values) that have rows, and the number of rows in each; there is only one cell."""
        n = -1
        if len(self.rows) <= MANY_PLACES:
            codes, counts = np.empty(len(self.rows), U4), np.empty(len(self.rows), U4)
            n = tally_codes.collect_counters(self.rows, codes, counts)
        # There are many places, or a count does not fit 32 bits.
        if n < 0:
            places = np.flatnonzero(self.rows)
            counts = self.rows[places]
            return places.astype(U4), counts.astype(tally.find_count_type(int(counts.max(initial=0))))
        return (codes[:n], counts[:n]) if 2 * n > len(codes) else (codes[:n].copy(), counts[:n].copy())


class LiveExactRows:
    """Exact rows as codes of two 64-bit words. Buffered rows are sorted when they are read, or when the buffer is full.

    Parameters
    ----------
    shift : int
        The number of bits of a place (a possible value of a row).
    lone : bool
        Whether there is only one cell. If a place then has at most 64 bits, the high word is 0, and is not stored.
    """

    entries: Entries
    high: Array
    low: Array
    weights: Array
    used: Array
    consolidated_rows: int

    def __init__(self, shift: int, *, lone: bool) -> None:
        self.shift, self.lone, self.low_words_only = shift, lone, lone and shift <= 64
        self.set_entries(Entries.empty(shift, wide=True))

    @property
    def nbytes(self) -> int:
        """The memory, in bytes."""
        return self.entries.nbytes + self.high.nbytes + self.low.nbytes + self.weights.nbytes

    def set_entries(self, entries: Entries) -> None:
        """Replace the content by these entries."""
        none = {"high": np.zeros(0, U4), "low": np.zeros(0, U8), "weights": np.zeros(0), "used": np.zeros(1, I8)}
        self.__dict__.update(entries=entries, consolidated_rows=int(entries.int64_counts.sum()), **none)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.consolidated_rows) + int(self.used[0])

    def count_free_rows(self, most: int | None) -> int:
        """Return how many more rows of a single cell fit, if at most `most` rows are kept exactly."""
        room = len(self.low) - int(self.used[0])
        return room if most is None else max(min(room, most - self.rows), 0)

    def is_full(self, rows: int) -> bool:
        """Return whether the buffered rows have to be sorted before the given number of rows is added."""
        used = int(self.used[0])
        return used > 0 and used + rows > max(WAIT // 3, 3 * len(self.entries))

    def reserve(self, rows: int, most: int | None, *, weighted: bool) -> None:
        """Make room for `rows` more rows; in a single cell for `most` rows at once if `most` is small."""
        if self.is_full(rows):
            self.consolidate()
        used = int(self.used[0])
        if used + rows > len(self.low):
            ahead = 2 * (used + rows)
            if self.lone and most is not None:
                ahead = min(most, max(FEW_ROWS, ahead))
            low = np.empty(max(used + rows, ahead, 256), U8)
            low[:used] = self.low[:used]
            self.low = low
        if not self.low_words_only and len(self.high) < len(self.low):
            high = np.zeros(len(self.low), U4)
            high[:used] = self.high[:used]
            self.high = high
        if (weighted or len(self.weights)) and len(self.weights) < len(self.low):
            new = np.ones(len(self.low))
            new[:used] = self.weights[:used] if len(self.weights) else 1.0
            self.weights = new

    def collect_arguments(self) -> tuple[Any, ...]:
        """Return the arguments of a kernel: both words of codes, weights, and the number of buffered rows."""
        return self.high, self.low, self.weights, self.used

    # -- sorting ------------------------------------------------------------------------------------------------------

    def consolidate(self) -> Entries:
        """Return all rows as sorted entries. The buffers stay the same objects, so kernels can keep writing to them."""
        n = int(self.used[0])
        if n:
            merged = self._consolidate_waiting(n)
            replace_entries = partial(self.__dict__.update, entries=merged, consolidated_rows=self.rows)
            # Both calls run together, because an interrupt between them would leave rows that are counted twice.
            run_without_interrupt([replace_entries, partial(self.used.__setitem__, 0, 0)])
        entries: Entries = self.entries
        return entries

    def collect_rows(self) -> Entries:
        """Return all entries, followed by one unsorted entry for each buffered row."""
        n = int(self.used[0])
        fresh = self._build_waiting_entries(n)
        if not len(self.entries):
            return fresh
        return tally.concatenate([self.entries, fresh]) if n else self.entries

    def _build_waiting_entries(self, n: int) -> Entries:
        high = self.high[:n] if len(self.high) else np.zeros(n, U4)
        excess = weights_less_one(self.weights[:n]) if len(self.weights) else None
        return Entries(self.shift, self.low[:n], np.ones(n, U4), excess, high)

    def _consolidate_waiting(self, n: int) -> Entries:
        old = self.entries
        plain = not len(self.weights) and old.excess is None and self.rows < tally.MANY
        if self.low_words_only and plain and len(old):
            return self._insert_codes(n)
        fresh = tally.sort_entries(self._build_waiting_entries(n)) if len(self.weights) else self._sort_waiting(n)
        return tally.add_entries(old, fresh) if len(old) else fresh

    def _insert_codes(self, n: int) -> Entries:
        """Return the entries of the only cell with one more row for each buffered code."""
        old, codes = self.entries, sorted_copy(self.low[:n])
        out = allocate(len(old) + n, U8), allocate(len(old) + n, U4)
        if 8 * n < len(old):
            # Each of a few codes is inserted by binary search, and the entries between two codes are copied as a block.
            runs = np.empty(n, U8), np.empty(n, U4)
            k = tally_codes.count_runs(codes, *runs)
            m = exact_rows.insert_sorted(old.codes, old.counts, runs[0][:k], runs[1][:k], *out)
        else:
            m = tally_codes.add_sorted(old.codes, old.counts, codes, *out)
        return Entries(self.shift, trim(out[0], m), trim(out[1], m), None, np.zeros(m, U4))

    def _count_few_distinct(self, n: int) -> Entries | None:
        """Return the buffered rows as entries, counted in a hash table; None if there are many distinct codes."""
        high, low, counts = np.empty(FEW_CODES, U4), np.empty(FEW_CODES, U8), np.empty(FEW_CODES, U4)
        m = exact_rows.count_few_codes(self.high[:n], self.low[:n], high, low, counts)
        if m < 0:
            return None
        order = np.lexsort((low[:m], high[:m]))
        return Entries(self.shift, low[order], counts[order], None, high[order])

    def _sort_waiting(self, n: int) -> Entries:
        """Return the buffered rows, none of which has a weight, as sorted entries."""
        if n > FEW_CODES and (few := self._count_few_distinct(n)) is not None:
            return few
        # The cell numbers are too sparse for a counting sort.
        if not self.low_words_only and int(self.high[:n].max()) > FAR * n + MANY_PLACES:
            return tally.sort_entries(self._build_waiting_entries(n))
        if self.low_words_only:
            low, ends, names = sorted_copy(self.low[:n]), np.array([n]), np.zeros(1, U4)
        else:
            # A counting sort by high word, then a sort of the low words within each of them.
            counts = np.bincount(self.high[:n])
            ends, low = np.cumsum(counts), np.empty(n, U8)
            exact_rows.scatter_low_words(self.high[:n], self.low[:n], ends - counts, low)
            names = np.flatnonzero(counts).astype(U4)
            ends = ends[names]
            for a, b in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
                sort(low[a:b])
        runs = np.empty(n, U4), np.empty(n, U8), np.empty(n, U4)
        m = exact_rows.count_sorted_codes(low, ends, names, *runs)
        # A view would keep the whole buffer in memory, so a result that is much shorter than the buffer is copied.
        h, c, k = (a[:m] if 4 * m > 3 * n else a[:m].copy() for a in runs)
        return Entries(self.shift, c, k, None, h)
