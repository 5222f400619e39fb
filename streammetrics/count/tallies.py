"""Tallies: histograms to which rows are still added, in forms that kernels can update quickly.

A place is a possible value of a row, such as a score bucket. A tally counts the rows of each place in each cell (such
as a slice). A code is an integer that encodes a cell and a place. An entry is a code with its number of rows; a
finished state has sorted entries. A tally has one of four forms:

- A single cell with few places (`LiveTally`, dense) has a 64-bit counter for each place.
- Several cells that have few places in total have an 8-bit counter for each place. When a counter exceeds 255, it
  starts again at 0, and the kernel writes the code to a buffer, where it stands for 256 rows.
- Exact rows of several cells that may be converted to buckets are grouped by cell, and sorted when they are read
  (module `cell_rows`).
- In all other cases (for exact rows, in `LiveExactRows`), each row is a code in a buffer. When the buffer is large
  compared with the entries, its codes are sorted and merged into the entries. Each row is thus moved only a few times
  on average.

`consolidate` returns sorted entries, whose arrays are never written again. A state can therefore use them without
copying them, while kernels continue to write to the buffers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import exact_rows, tally_codes, weighted_codes
from ..numerics.exact import carry_fixed
from ..numerics.signal_safety import run_without_interrupt
from ..state import tally
from ..state.tally import Entries
from .page_allocator import allocate, allocate_zeros, trim

__all__ = ["LiveExactRows", "LiveTally", "narrow_codes", "weights_less_one"]

Array = NDArray[Any]
I8, U1, U4, U8, F8 = np.int64, np.uint8, np.uint32, np.uint64, np.float64

# A single cell (as in a state without slices) has a 64-bit counter for each place (possible value of a row) if it has
# at most this many places.
LONE = (1 << 25) + 2
# Several cells have an 8-bit counter for each place if they have at most this many places in total.
FEW = 1 << 25
# The same limit for rows with weights. It is lower, because each place then needs 16 more bytes.
FEW_WEIGHTED = 1 << 20
# If a cell has at most this many places, a kernel finds the places that have rows; otherwise numpy does.
MANY_PLACES = 1 << 20
# The capacity, in rows, of the first buffer for the exact rows of a single cell.
FEW_ROWS = 1 << 17
# Fewer codes than this are sorted by numpy, which is then the fastest. A larger buffer of exact rows without weights is
# counted in a hash table, not sorted, if at most half this many of its codes are distinct.
FEW_CODES = 2048
# Codes are converted to 32-bit integers before they are sorted, but only if there are at least this many. For fewer
# codes, compiling the kernels for the conversion would take longer than it saves.
MANY_CODES = 1 << 15
# Codes with weights are counted in a table rather than sorted if the largest code is less than DENSE times the number
# of codes.
DENSE = 12
# Codes are grouped by their high word, which contains the cell, unless the largest high word exceeds about FAR times
# the number of codes.
FAR = 64
# If places have 8-bit counters, a new buffer of codes has space for this many batches.
AHEAD = 6
# The codes in the buffer are not sorted as long as there are at most this many, even if they outnumber the entries.
WAIT = 3 << 20


def pad_zeros(array: Array, size: int) -> Array:
    """Return the array, extended with zeros to `size` items if it is shorter."""
    if size <= len(array):
        return array
    new = allocate_zeros(size * math.prod(array.shape[1:]), array.dtype).reshape(size, *array.shape[1:])
    new[: len(array)] = array
    return new


def weights_less_one(weights: Array) -> NDArray[np.int64]:
    """Return w - 1 for each weight w as a pair of integers (high, low), with w - 1 = high * 2**-20 + low * 2**-60.

    The only rounding is that of w to a multiple of 2**-60.
    """
    # The last bit of a float64 near C = 1.5 * 2**32 is worth 2**-20, so adding C to a number rounds it to a multiple of
    # 2**-20. The bits of the sum minus the bits of C, both read as integers, are this multiple in units of 2**-20. The
    # remainder is exact, and is rounded to a multiple of 2**-60 in the same way. The kernels use the same two
    # additions, so their results are identical bit for bit.
    high = weights + 1.5 * 2.0**32
    low = (weights - (high - 1.5 * 2.0**32)) + 1.5 * 2.0**-8
    pair = np.stack([high.view(I8) - 0x41F8000000000000, low.view(I8) - 0x3F78000000000000], axis=-1)
    # Subtract 1 (2**20 units of 2**-20) here, in integers, because the float64 difference w - 1 may be rounded.
    pair[:, 0] -= 1 << 20
    carry_fixed(pair)
    return pair


def sort(codes: Array, out: Array) -> None:
    """Write the codes in ascending order to `out`, which may be the array `codes` itself.

    Each step is one call into C. If a signal handler raises an error between two steps, `codes` is therefore either
    unchanged or sorted.
    """
    words = narrow_codes(codes)
    if words is not None:
        like = codes[0]
        _sort_in_place(words)
        tally_codes.widen_codes(words, like, out)
        return
    if out is not codes:
        out[:] = codes
    _sort_in_place(out)


def sorted_copy(codes: Array) -> Array:
    """Return a sorted copy of the codes."""
    copy = allocate(len(codes), codes.dtype)
    sort(codes, copy)
    return copy


def count_codes(codes: Array) -> tuple[Array, Array]:
    """Return the distinct codes in ascending order, and the number of times that each occurs."""
    words = narrow_codes(codes)
    fresh = codes.copy() if words is None else words
    _sort_in_place(fresh)
    out = allocate(len(fresh), fresh.dtype), allocate(len(fresh), U4)
    m = tally_codes.count_runs(fresh, *out)
    distinct, counts = trim(out[0], m), trim(out[1], m)
    if words is None:
        return distinct, counts
    wide = allocate(m, U8)
    tally_codes.widen_codes(distinct, codes[0], wide)
    return wide, counts


def narrow_codes(codes: Array) -> Array | None:
    """Map codes to 32-bit integers that sort in the same order, twice as fast; return None if this is impossible.

    This is possible for float32 scores, for example. The result is also None if there are fewer than MANY_CODES codes.
    """
    if codes.dtype != U8 or len(codes) < MANY_CODES:
        return None
    words = allocate(len(codes), U4)
    return None if tally_codes.narrow_codes(codes, words) else words


def _sort_in_place(codes: Array) -> None:
    if _prefers_numpy_sort(codes):
        codes.sort()
    else:
        _sort_by_digits(codes)


def _prefers_numpy_sort(codes: Array) -> bool:
    return len(codes) < FEW_CODES or numpy_sorts_quicker()


def _sort_by_digits(codes: Array) -> None:
    tally_codes.sort_codes(codes, np.zeros(0), allocate(len(codes), codes.dtype), np.zeros(0))


@cache
def numpy_sorts_quicker() -> bool:
    """Return whether numpy's sort is faster than our radix sort, as measured once in each process.

    numpy's sort is faster on processors for which it is vectorized.
    """
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
    """A growing histogram of places (possible values of a row) for each cell (such as a slice).

    The code of a row, which has at most 64 bits, is its cell, shifted left by `shift` bits, plus its place.

    Parameters
    ----------
    shift : int
        The number of bits in a place (a possible value of a row).
    places : int
        The number of places in each cell.
    lone : bool
        Whether there is only one cell.
    is_active : bool
        Whether this object counts rows. If False, no memory is reserved, because all cells still keep exact rows.
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
        """The memory used by all arrays, in bytes."""
        arrays = (self.rows, self.low, self.excess, self.codes, self.weights)
        return self.entries.nbytes + sum(a.nbytes for a in arrays)

    def set_entries(self, entries: Entries, cells: int) -> None:
        """Replace all rows with these entries, whose cell numbers are below `cells`."""
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
            low = fields["low"] = allocate_zeros(cells * self.places, U1)
            # The byte counter of a place stores the lowest byte of its count. The other bytes become an entry,
            # whose count is in units of 256 rows.
            low[here] = entries.counts & entries.counts.dtype.type(255)
            fields["excess"] = self._spread_excess(entries, here, len(low))
            high = entries.counts >> entries.counts.dtype.type(8)
            kept = Entries(self.shift, entries.codes[high > 0], high[high > 0])
            fields |= {"entries": tally.canonicalize(kept)}
        self.__dict__.update(fields)

    def _spread_excess(self, entries: Entries, here: Array, size: int) -> Array:
        if entries.excess is None:
            return np.zeros(0, I8)
        out = allocate_zeros(2 * size, I8)
        out.reshape(-1, 2)[here] = entries.excess
        return out

    def _fits_byte_counters(self, cells: int, *, weighted: bool) -> bool:
        return cells * self.places <= (FEW_WEIGHTED if weighted else FEW)

    # -- memory -------------------------------------------------------------------------------------------------------

    def estimate_bytes(self, cells: int, rows: int) -> int:
        """Return an upper bound on the memory, in bytes, that `cells` cells use after `rows` more rows are added."""
        if not self.is_active:
            return 0
        if self.dense or self._fits_byte_counters(cells, weighted=False):
            return self.nbytes + max(cells * self.places - len(self.low), 0) + (0 if self.dense else 4 * AHEAD * rows)
        return self.nbytes + 8 * rows

    def count_free_rows(self, cells: int) -> int:
        """Return the number of rows, weighted or not, that can be added to `cells` cells without calling `reserve`."""
        if self.dense or not self.is_active:
            return 1 << 62
        fits_counters = not len(self.low) or cells * self.places <= len(self.low)
        if not fits_counters or self.codes.dtype != tally.find_code_type(cells << self.shift):
            return 0
        return len(self.codes) - int(self.waiting[0])

    def reserve(self, cells: int, rows: int, *, weighted: bool) -> None:
        """Reserve memory for `rows` more rows in `cells` cells."""
        if not self.is_active:
            return
        if not self.dense:
            self._reserve(cells, rows, weighted)
        elif weighted and not len(self.excess):
            self.excess = np.zeros(2 * self.places, I8)

    def _reserve(self, cells: int, rows: int, weighted: bool) -> None:
        # Sorting needs memory for the codes, the old entries and the new entries. To limit this memory, sort when
        # there are half as many codes as entries.
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
        # Reserve space for a code from each row, even with byte counters: if all counters are at 255, each row of the
        # batch may add a code.
        size = used + rows
        if size > len(self.codes) or self.codes.dtype != kind:
            # With byte counters, few rows become codes, so a buffer for several batches seldom fills up.
            ahead = AHEAD if len(self.low) else 2
            fresh = allocate(max(size, min(most, ahead * size)), kind)
            fresh[:used] = self.codes[:used]
            self.codes = fresh
        if not len(self.low) and (weighted or len(self.weights)) and len(self.weights) < len(self.codes):
            new = allocate(len(self.codes), F8)
            new[:used] = self.weights[:used] if len(self.weights) else 1.0
            self.weights = new

    def _give_up_byte_counters(self, entries: Entries) -> None:
        """Replace the byte counters with entries; from then on, each row becomes a code in the buffer."""
        none = {"low": np.zeros(0, U1), "excess": np.zeros(0, I8)}
        self.__dict__.update(entries=entries, waiting=np.zeros(1, I8), codes=np.zeros(0, U4), **none)

    def collect_arguments(self) -> tuple[Any, ...]:
        """Return the kernel arguments.

        For a dense tally, these are the counters, and the sums of w - 1 over the weights w of the rows of each place.
        For any other tally, these are seven arguments, which the module `kernels.tally_codes` describes.
        """
        if self.dense:
            return self.rows, self.excess
        return self.shift, self.places, self.low, self.excess, self.codes, self.weights, self.waiting

    # -- sorting ------------------------------------------------------------------------------------------------------

    def _sort_in_waiting(self) -> None:
        """Sort the codes in the buffer, and merge them into the entries."""
        n = int(self.waiting[0])
        if len(self.weights):
            entries = self._insert_weighted_codes(self.codes[:n], self.weights[:n])
        else:
            codes = self.codes[:n]
            sort(codes, codes)  # in place: the order of buffered codes does not matter
            entries = self._insert_codes(codes)
        # Assign all attributes in one call into C. After an interrupt, each row is then in the buffer or in the
        # entries, but never in both.
        self.__dict__.update(entries=entries, weights=np.zeros(0), waiting=np.zeros(1, I8))

    def _insert_codes(self, codes: Array) -> Entries:
        """Return the entries with one row added for each of these codes, which must be sorted."""
        old = self.entries
        if len(old) and old.excess is None and int(old.counts.max()) + len(codes) < tally.MANY:
            size = len(old) + len(codes)
            out = allocate(size, codes.dtype), allocate(size, U4)
            m = tally_codes.add_sorted(old.codes.astype(codes.dtype, copy=False), old.counts, codes, *out)
            return Entries(self.shift, trim(out[0], m), trim(out[1], m))
        out = np.empty_like(codes), np.empty(len(codes), U4)
        m = tally_codes.count_runs(codes, *out)
        return tally.add_entries(old, tally.canonicalize(Entries(self.shift, *(a[:m] for a in out))))

    def _insert_weighted_codes(self, codes: Array, weights: Array) -> Entries:
        """Return the entries with a weighted row added for each code. Both arrays may be reordered in place."""
        old, n = self.entries, len(codes)
        spare = allocate(n, codes.dtype), allocate(n, F8)
        size, most = len(old) + n, int(old.counts.max(initial=0)) + n
        excess = np.zeros(2 * len(old), I8) if old.excess is None else old.excess.reshape(-1)
        known = old.codes.astype(codes.dtype, copy=False), old.counts, excess
        out = allocate(size, codes.dtype), allocate(size, tally.find_count_type(most)), allocate(2 * size, I8)
        last = max(int(codes.max()), int(old.codes[-1]) if len(old) else 0)
        if last < min(DENSE * n, 1 << (weighted_codes.GROUP_BITS + weighted_codes.TABLE_BITS)):
            table = np.zeros(3 * weighted_codes.TABLE, I8)
            m = weighted_codes.add_dense_weighted_codes(*known, codes, weights, last.bit_length(), *spare, table, *out)
        else:
            tally_codes.sort_codes(codes, weights, *spare)
            m = weighted_codes.add_weighted_codes(*known, codes, weights, *out)
        sums = trim(out[2], 2 * m).reshape(-1, 2)
        return tally.canonicalize(Entries(self.shift, trim(out[0], m), trim(out[1], m), sums))

    def consolidate(self) -> Entries:
        """Return all rows as sorted entries: for each cell, an entry for each place that has rows."""
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
        """Return the places that have rows, and the number of rows in each; there is only one cell."""
        n = -1
        if len(self.rows) <= MANY_PLACES:
            codes, counts = np.empty(len(self.rows), U4), np.empty(len(self.rows), U4)
            n = tally_codes.collect_counters(self.rows, codes, counts)
        # Use numpy if there are too many places for the kernel, or if a count does not fit in 32 bits.
        if n < 0:
            places = np.flatnonzero(self.rows)
            counts = self.rows[places]
            return places.astype(U4), counts.astype(tally.find_count_type(int(counts.max(initial=0))))
        return (codes[:n], counts[:n]) if 2 * n > len(codes) else (codes[:n].copy(), counts[:n].copy())


class LiveExactRows:
    """The exact rows of cells (such as slices); the code of a row consists of two integers, a high and a low word.

    New rows are buffered. When they are read, or when the buffer is full, they are sorted and merged into entries: the
    distinct rows with the number of times that each occurs.

    Parameters
    ----------
    shift : int
        The number of bits in a place (a possible value of a row).
    lone : bool
        Whether there is only one cell. If so, and if places have at most 64 bits, all high words are 0 and are not
        stored.
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
        """The memory used by all arrays, in bytes."""
        return self.entries.nbytes + self.high.nbytes + self.low.nbytes + self.weights.nbytes

    def set_entries(self, entries: Entries) -> None:
        """Replace all rows, including those in the buffer, with these entries."""
        none = {"high": np.zeros(0, U4), "low": np.zeros(0, U8), "weights": np.zeros(0), "used": np.zeros(1, I8)}
        self.__dict__.update(entries=entries, consolidated_rows=int(entries.int64_counts.sum()), **none)

    @property
    def rows(self) -> int:
        """The number of rows, including the buffered ones."""
        return int(self.consolidated_rows) + int(self.used[0])

    def count_free_rows(self, most: int | None) -> int:
        """Return how many rows can be added to a single cell without another call to `reserve`.

        `most` is the largest number of rows that the cell keeps exactly; None if there is no limit.
        """
        room = len(self.low) - int(self.used[0])
        return room if most is None else max(min(room, most - self.rows), 0)

    def is_full(self, rows: int) -> bool:
        """Return whether the buffered rows have to be sorted before `rows` more rows are added."""
        used = int(self.used[0])
        return used > 0 and used + rows > max(WAIT // 3, 3 * len(self.entries))

    def reserve(self, rows: int, most: int | None, *, weighted: bool) -> None:
        """Reserve memory for `rows` more rows.

        `most` is the largest number of rows that a cell keeps exactly; None if there is no limit. If there is a single
        cell, its buffer never needs space for more rows than that.
        """
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
        """Return the arguments for kernels: high and low words of the codes, weights, and the number of buffered rows."""
        return self.high, self.low, self.weights, self.used

    # -- sorting ------------------------------------------------------------------------------------------------------

    def consolidate(self) -> Entries:
        """Return all rows as sorted entries.

        The arrays of the buffer are not replaced, so kernels can continue to write to them.
        """
        n = int(self.used[0])
        if n:
            merged = self._consolidate_waiting(n)
            replace_entries = partial(self.__dict__.update, entries=merged, consolidated_rows=self.rows)
            # Run the two calls together: an interrupt between them would leave the rows both in the entries and in the
            # buffer.
            run_without_interrupt([replace_entries, partial(self.used.__setitem__, 0, 0)])
        entries: Entries = self.entries
        return entries

    def collect_rows(self) -> Entries:
        """Return all rows as entries: the sorted entries, followed by an unsorted entry for each buffered row."""
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
        old, fresh = self.entries, None
        if len(self.weights):
            fresh = tally.sort_entries(self._build_waiting_entries(n))
        elif n > max(FEW_CODES, len(old)):
            fresh = self._count_few_distinct(n)
        if fresh is None and self.low_words_only and old.excess is None and self.rows < tally.MANY:
            return self._insert_codes(n)
        if fresh is None:
            fresh = self._sort_waiting(n)
        return tally.add_entries(old, fresh) if len(old) else fresh

    def _insert_codes(self, n: int) -> Entries:
        """Return the entries of a single cell with a row added for each of the first `n` buffered codes."""
        old, low = self.entries, self.low[:n]
        if not len(old):
            codes, counts = count_codes(low)
            return Entries(self.shift, codes, counts, None, np.zeros(len(codes), U4))
        out = allocate(len(old) + n, U8), allocate(len(old) + n, U4)
        if 8 * n < len(old):
            # If there are few new codes, it is fastest to find the position of each by a binary search, and to copy the
            # entries between two positions as one block.
            m = exact_rows.insert_sorted(old.codes, old.counts, *count_codes(low), *out)
        else:
            m = tally_codes.add_sorted(old.codes, old.counts, sorted_copy(low), *out)
        return Entries(self.shift, trim(out[0], m), trim(out[1], m), None, np.zeros(m, U4))

    def _count_few_distinct(self, n: int) -> Entries | None:
        """Count the first `n` buffered rows in a hash table, and return entries; None if too many rows are distinct."""
        high, low, counts = np.empty(FEW_CODES, U4), np.empty(FEW_CODES, U8), np.empty(FEW_CODES, U4)
        m = exact_rows.count_few_codes(self.high[:n], self.low[:n], high, low, counts)
        if m < 0:
            return None
        order = np.lexsort((low[:m], high[:m]))
        return Entries(self.shift, low[order], counts[order], None, high[order])

    def _sort_waiting(self, n: int) -> Entries:
        """Return the first `n` buffered rows, which must not have weights, as sorted entries."""
        # The counting sort below needs a counter for each possible high word. If there are far more possible high words
        # than rows, almost all counters would be zero, so use another sort.
        if not self.low_words_only and int(self.high[:n].max()) > FAR * n + MANY_PLACES:
            return tally.sort_entries(self._build_waiting_entries(n))
        if self.low_words_only:
            low, ends, names = sorted_copy(self.low[:n]), np.array([n]), np.zeros(1, U4)
        else:
            # First a counting sort groups the codes by high word. Then the low words of each group are sorted.
            counts = np.bincount(self.high[:n])
            ends, low = np.cumsum(counts), np.empty(n, U8)
            exact_rows.scatter_low_words(self.high[:n], self.low[:n], ends - counts, low)
            names = np.flatnonzero(counts).astype(U4)
            ends = ends[names]
            for a, b in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
                group = low[a:b]
                sort(group, group)
        runs = np.empty(n, U4), np.empty(n, U8), np.empty(n, U4)
        m = exact_rows.count_sorted_codes(low, ends, names, *runs)
        # A view would keep the whole array in memory. Copy the result if the array is much longer.
        h, c, k = (a[:m] if 4 * m > 3 * n else a[:m].copy() for a in runs)
        return Entries(self.shift, c, k, None, h)
