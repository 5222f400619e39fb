"""The exact rows of many cells (such as slices), which are sorted only when they are read.

A row is stored as a code of two integers: the low word contains the value, and the high word contains the cell and any
bits of the value beyond 64 (see `kernels.exact_rows`). New rows are buffered in the order in which they arrive. When
the buffer is full, its rows are grouped by high word and become a chunk. The rows of a chunk that have the same high
word form a run. Rows are sorted when they are read. If a cell is converted to histogram buckets before that, its rows
are never sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import code_runs, tally_codes
from ..numerics.array_rows import exclusive_cumsum
from ..numerics.signal_safety import run_without_interrupt
from ..state import tally
from ..state.tally import Entries
from .page_allocator import allocate, grow_copy
from .tallies import narrow_codes, pad_zeros, sort

__all__ = ["LiveCellRows", "Runs", "gather_runs"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
I8, U4, U8, F8 = np.int64, np.uint32, np.uint64, np.float64

# If the buffer has more rows than this, and on average more than two for each high word (the word of a code that
# contains the cell), its rows are grouped by high word and become a chunk.
WAIT = 1 << 18
# One kernel call sorts all runs (rows with the same high word) of at most this many codes. Each longer run is sorted by
# a call of its own.
SHORT = 24
# If more rows than this are unsorted, check whether they have few distinct values. In that case, sorting them saves
# memory.
MANY_UNSORTED = 1 << 20
# If more rows than this are unsorted, the codes of new chunks are stored in 32 bits where possible, which saves memory
# but takes time.
NARROW_FROM = 1 << 22
# If there are more small chunks than this, they are merged.
MOST_SMALL_CHUNKS = 8
NO_INTS, NO_WEIGHTS = np.zeros(0, I8), np.zeros(0)


class Runs(NamedTuple):
    """Rows that are grouped by the high word of their code, but not sorted within a group.

    Parameters
    ----------
    low : uint64 or uint32
        The low words of the codes (uint64), or shortened words (uint32), which the property `codes` converts back.
    weights : float64
        The weight of each row; empty if all weights are 1.
    first, last : int64
        For each high word h, the range of its codes: low[first[h]:last[h]].
    like : uint64, optional
        The low word of any row, which `codes` needs for the conversion; None if `low` is not shortened.
    """

    low: Array
    weights: Array
    first: Ints
    last: Ints
    like: Any = None

    @property
    def codes(self) -> Array:
        """The low words of the codes, in 64 bits."""
        if self.like is None:
            return self.low
        codes: Array = allocate(len(self.low), U8)
        tally_codes.widen_codes(self.low, self.like, codes)
        return codes

    def narrow(self) -> Runs:
        """Return the rows with their codes stored in 32 bits if possible, as it is for float32 scores."""
        words = None if self.like is not None else narrow_codes(self.low)
        return self if words is None else self._replace(low=words, like=self.low[0])

    @property
    def nbytes(self) -> int:
        """The memory used by all arrays, in bytes."""
        return self.low.nbytes + self.weights.nbytes + self.first.nbytes

    def count_rows(self, order: Ints) -> Ints:
        """Return the number of rows with each high word in `order`."""
        counts = pad_zeros(self.last - self.first, int(order.max(initial=-1)) + 1)
        return counts[order]

    def drop(self, words: Ints) -> Runs:
        """Return a copy without the rows whose high word is in `words`."""
        kept = np.ones(len(self.first), bool)
        kept[words[words < len(kept)]] = False
        rest = gather_runs([self], np.flatnonzero(kept))
        runs = build_runs(rest.low, rest.weights, (self.last - self.first) * kept)
        return runs if self.like is None else runs.narrow()


def build_runs(low: Array, weights: Array, counts: Ints) -> Runs:
    """Build `Runs` from rows in the order of their high words; `counts[h]` is the number of rows with high word h."""
    bounds = exclusive_cumsum(counts)
    return Runs(low, weights, bounds[:-1], bounds[1:])


def gather_runs(parts: list[Runs], order: Ints) -> Runs:
    """Collect from all parts the rows whose high word is in `order`, and group them in that order.

    In the result, rows with the high word order[k] have the new high word k.
    """
    counts = sum((part.count_rows(order) for part in parts), np.zeros(len(order), I8))
    n, is_weighted = int(counts.sum()), any(len(part.weights) for part in parts)
    runs = build_runs(allocate(n, U8), allocate(n if is_weighted else 0, F8), counts)
    if not all(len(part.weights) for part in parts):
        runs.weights.fill(1.0)
    to = runs.first
    for part in parts:
        code_runs.move_runs(part.codes, part.first, part.last, order, to, runs.low)
        if len(part.weights):
            code_runs.move_runs(part.weights.view(U8), part.first, part.last, order, to, runs.weights.view(U8))
        to = to + part.count_rows(order)
    return runs


def sort_runs(runs: Runs) -> None:
    """Sort the codes of each run in place."""
    low, weights, ends = runs.low, runs.weights, runs.last
    lengths = ends - runs.first
    if ((lengths > 1) & (lengths <= SHORT)).any():
        code_runs.sort_short_runs(low, weights, ends, SHORT)
    long = np.flatnonzero(lengths > SHORT)
    for a, b in zip(runs.first[long].tolist(), ends[long].tolist(), strict=True):
        run = low[a:b]
        if len(weights):
            # A single call into C sorts both arrays, so an interrupt cannot separate a code from its weight.
            tally_codes.sort_codes(run, weights[a:b], allocate(b - a, U8), allocate(b - a, F8))
        else:
            sort(run, run)


class MergedRuns(NamedTuple):
    """The arrays to which the kernel `unite_runs` writes sorted entries; only the first bounds[-1] entries are valid.

    An entry is a distinct row with its number of occurrences. Run k contains the rows with high word k, and its entries
    end before index bounds[k]. `excess` contains two integers for each entry. They encode the sum of w - 1 over the
    weights w of the rows that the entry stands for. `excess` is empty if no row has a weight.
    """

    high: Array
    low: Array
    counts: Array
    excess: Array
    bounds: Ints

    def to_entries(self, shift: int) -> Entries:
        """Return the entries in canonical form; `shift` is the number of bits in a place (the value of a row)."""
        n = int(self.bounds[-1]) if len(self.bounds) else 0
        # A view would keep the whole array in memory. Copy the entries if the array is much longer than needed.
        high, low, counts = (a[:n] if 4 * n > 3 * len(a) else a[:n].copy() for a in self[:3])
        excess = self.excess[: 2 * n].reshape(-1, 2) if self.excess[: 2 * n].any() else None
        return tally.narrow_types(Entries(shift, low, counts, excess, high))


class LiveCellRows:
    """Exact rows of many cells (such as slices): older rows as sorted entries, and newer rows still unsorted.

    Parameters
    ----------
    shift : int
        The number of bits in a place (a possible value of a row). The high word of a code contains the cell and all but
        the lowest 64 bits of the place.
    """

    high: Array
    low: Array
    weights: Array
    used: Ints
    chunks: list[Runs]
    row_counts: Ints
    order: Ints
    bounds: Ints
    rows_to_check: int
    _entries: Entries | MergedRuns

    def __init__(self, shift: int) -> None:
        self.shift, self.place_bits = shift, max(shift - 64, 0)
        # The number of rows that have been moved from the buffer to chunks since this object was created.
        self.grouped_rows = 0
        self.set_entries(Entries.empty(shift, wide=True))

    @property
    def nbytes(self) -> int:
        """The memory used by all arrays, in bytes."""
        # This property is also read without the lock, so it must not use the property `entries`, which may replace the
        # stored entries.
        known = self._entries
        size = sum(a.nbytes for a in known) if isinstance(known, MergedRuns) else known.nbytes
        arrays = self.high, self.low, self.weights, self.row_counts
        return size + sum(a.nbytes for a in arrays) + sum(chunk.nbytes for chunk in self.chunks)

    def estimate_bytes(self, cells: int, rows: int) -> int:
        """Return an upper bound on the memory, in bytes, with `cells` cells in all and `rows` more rows."""
        words = cells << self.place_bits
        buffered = max(2 * (int(self.used[0]) + rows), len(self.low))
        more = max(2 * words - len(self.row_counts), 0) * self.row_counts.itemsize
        return self.nbytes + (buffered - len(self.low)) * (20 if len(self.weights) else 12) + more + 8 * rows

    @property
    def rows_added(self) -> int:
        """The number of rows ever added to this object, including rows that it no longer contains."""
        return self.grouped_rows + int(self.used[0])

    def count_free_rows(self, cells: int) -> int:
        """Return the number of rows that still fit without another call to `reserve`, with `cells` cells in all."""
        return 0 if cells << self.place_bits > len(self.row_counts) else len(self.low) - int(self.used[0])

    @property
    def entries(self) -> Entries:
        """The sorted rows, as entries. An entry stores the index of its high word in `order`, not the word itself."""
        if isinstance(self._entries, MergedRuns):
            self._entries = self._entries.to_entries(self.shift)
        return self._entries

    def set_entries(self, entries: Entries) -> None:
        """Replace all rows, including those in the buffer, with these entries."""
        assert entries.high is not None
        words = int(entries.high[-1]) + 1 if len(entries) else 0
        order = np.arange(-(-words >> self.place_bits) << self.place_bits)
        lengths = np.zeros(len(order), I8)
        code_runs.count_high_words(entries.high, np.array([len(entries), 0]), lengths)
        bounds, some = np.cumsum(lengths), lengths > 0
        row_counts = np.zeros(len(order), I8)
        if len(entries):
            row_counts[some] = np.add.reduceat(entries.counts, (bounds - lengths)[some], dtype=I8)
        self.__dict__.update(
            _entries=entries, order=order, bounds=bounds, row_counts=row_counts, chunks=[], used=np.zeros(2, I8),
            high=np.zeros(0, U4), low=np.zeros(0, U8), weights=NO_WEIGHTS, rows_to_check=MANY_UNSORTED,
        )  # fmt: skip

    # -- adding rows --------------------------------------------------------------------------------------------------

    def reserve(self, cells: int, rows: int, *, weighted: bool) -> None:
        """Reserve memory for `cells` cells in all and `rows` more rows; `weighted` says whether rows have weights."""
        words = cells << self.place_bits
        if words > len(self.row_counts):
            self.row_counts = pad_zeros(self.row_counts, max(words, 2 * len(self.row_counts)))
        used, most = int(self.used[0]), max(WAIT, 2 * words)
        if used and used + rows > max(most, len(self.low)):
            self.group_buffer()
            used = 0
            if self._unsorted_rows > self.rows_to_check:
                self._sort_if_repeated()
        if used + rows > len(self.low):
            size = max(used + rows, min(2 * (used + rows), most), 256)
            # Replace both arrays in a single step, so that an interrupt cannot leave them with different lengths.
            self.__dict__.update(low=grow_copy(self.low, used, size), high=grow_copy(self.high, used, size))
        if (weighted or len(self.weights)) and len(self.weights) < len(self.low):
            self.weights = grow_copy(self.weights if len(self.weights) else np.ones(used), used, len(self.low))

    def collect_arguments(self) -> tuple[Any, ...]:
        """Return the arguments for kernels: high and low words of the codes, weights, and the number of buffered rows."""
        return self.high, self.low, self.weights, self.used

    def count_rows(self) -> Ints:
        """Return the number of rows in each cell."""
        code_runs.count_high_words(self.high, self.used, self.row_counts)
        if not self.place_bits:
            return self.row_counts
        counts: Ints = self.row_counts.reshape(-1, 1 << self.place_bits).sum(axis=1)
        return counts

    def group_buffer(self) -> None:
        """Move the buffered rows to a new chunk, where they are grouped by high word."""
        n = int(self.used[0])
        if not n:
            return
        code_runs.count_high_words(self.high, self.used, self.row_counts)
        counts = np.zeros(len(self.row_counts), I8)
        code_runs.count_high_words(self.high, np.array([n, 0]), counts)
        fresh = build_runs(allocate(n, U8), allocate(min(n, len(self.weights)), F8), counts)
        code_runs.scatter_codes(
            self.high[:n], self.low[:n], self.weights[:n], fresh.first.copy(), fresh.low, fresh.weights
        )
        # Storing codes in 32 bits saves memory but takes time, so do it only if many rows are unsorted.
        if self._unsorted_rows > NARROW_FROM:
            fresh = fresh.narrow()
        # Run these calls together: an interrupt between them would leave the rows both in a chunk and in the buffer.
        run_without_interrupt(
            [
                partial(self.chunks.append, fresh),
                partial(self.__dict__.__setitem__, "grouped_rows", self.rows_added),
                partial(self.used.__setitem__, slice(None), 0),
            ]
        )
        # Each chunk stores bounds for all high words, so many small chunks would waste memory.
        if sum(2 * len(chunk.low) <= WAIT for chunk in self.chunks) > MOST_SMALL_CHUNKS:
            self.merge_chunks()

    @property
    def _unsorted_rows(self) -> int:
        return sum(len(chunk.low) for chunk in self.chunks)

    def _sort_if_repeated(self) -> None:
        """Sort all rows if most rows of the largest cell are repeats, because sorted entries then take less memory."""
        words = self.find_words(np.array([int(self.row_counts.argmax()) >> self.place_bits]))
        rows = int(self.row_counts[words].sum())
        if 4 * len(self._unite(words)) <= rows:
            self.consolidate()
            self.rows_to_check = max(MANY_UNSORTED, 2 * len(self.entries))
        else:
            self.rows_to_check = 2 * self._unsorted_rows

    # -- removing the rows of some cells ------------------------------------------------------------------------------

    def build_entries(self, rows: Runs, words: Ints) -> Entries:
        """Return one entry for each row, in row order; weights are ignored.

        `words` contains the high word of each run in `rows`.
        """
        high = np.repeat(words.astype(U4), rows.last - rows.first)
        return Entries(self.shift, rows.codes, np.broadcast_to(np.ones(1, U4), len(rows.low)), None, high)

    def take_entries(self, words: Ints) -> tuple[Entries, dict[str, Any]]:
        """Return the sorted entries whose high word is in `words`, and new attribute values that exclude them.

        The new values are keyed by attribute name. This object does not change until the caller assigns them.
        """
        lengths = np.diff(self.bounds, prepend=0)
        is_taken = np.isin(self.order, words)
        mask = np.repeat(is_taken, lengths)
        high = np.repeat(self.order[is_taken].astype(U4), lengths[is_taken])
        rest = {"_entries": tally.canonicalize(self.entries.select(~mask)), "bounds": np.cumsum(lengths * ~is_taken)}
        return replace(self.entries.select(mask), high=high), rest

    def drop_rows(self, words: Ints) -> dict[str, Any]:
        """Return new attribute values that exclude the rows whose high word is in `words`.

        The new values are keyed by attribute name. This object does not change until the caller assigns them. The
        buffer must be empty.
        """
        row_counts = self.row_counts.copy()
        row_counts[words] = 0
        return {**self.take_entries(words)[1], "chunks": [c.drop(words) for c in self.chunks], "row_counts": row_counts}

    def merge_chunks(self) -> None:
        """Merge all small chunks into one, and drop empty chunks."""
        few = [c for c in self.chunks if 0 < 2 * len(c.low) <= WAIT]
        many = [c for c in self.chunks if 2 * len(c.low) > WAIT]
        self.chunks = [*many, gather_runs(few, np.arange(len(self.row_counts)))] if few else many

    # -- reading ------------------------------------------------------------------------------------------------------

    def find_words(self, cells: Ints) -> Ints:
        """Return the possible high words of the codes of these cells, cell by cell.

        A cell has several high words if a place (a possible value of a row) takes more than 64 bits.
        """
        if not self.place_bits:
            return cells
        words: Ints = (cells[:, None] << self.place_bits) + np.arange(1 << self.place_bits)
        return words.reshape(-1)

    def consolidate(self, order: Ints | None = None) -> Entries:
        """Sort all rows and return them as entries. With `order`, cells get new numbers: cell order[k] becomes cell k.

        The arrays of the buffer are not replaced, so kernels can continue to write to them.
        """
        self.group_buffer()
        words = np.arange(len(self.row_counts)) if order is None else self.find_words(order)
        if self.chunks or not np.array_equal(words, self.order):
            self._sort_all(words)
        return self.entries

    def _sort_all(self, words: Ints) -> None:
        """Replace all rows with sorted entries, in the order of the given high words."""
        # First replace all chunks with a single one, so that the memory of the old chunks is freed before memory is
        # allocated for the entries.
        fresh = gather_runs(self.chunks, words)
        self.chunks = [fresh._replace(first=_renumber(fresh.first, words), last=_renumber(fresh.last, words))]
        sort_runs(fresh)
        merged, unite = self._build_union(fresh, words)
        # Calling `unite` may overwrite the chunk. Run it together with the update of the attributes, so that no
        # interrupt can leave a damaged chunk in this object.
        replaced = {"_entries": merged, "order": words, "bounds": merged.bounds, "chunks": []}
        run_without_interrupt([unite, partial(self.__dict__.update, replaced)])

    def read_cells(self, cells: Ints) -> Entries:
        """Return the rows of the given cells as sorted entries (distinct rows with their number of occurrences)."""
        self.group_buffer()
        entries = self._unite(self.find_words(cells))
        return entries.assign_cells(cells[entries.cells], len(self.row_counts))

    def _unite(self, words: Ints) -> Entries:
        """Return the rows with these high words as sorted entries; in the result, the high word words[k] becomes k."""
        fresh = gather_runs(self.chunks, words)
        sort_runs(fresh)
        merged, unite = self._build_union(fresh, words)
        unite()
        return merged.to_entries(self.shift)

    def _build_union(self, fresh: Runs, words: Ints) -> tuple[MergedRuns, Callable[[], Any]]:
        """Return arrays for the union of the entries and the sorted rows `fresh`, and a function that fills the arrays.

        The function may overwrite `fresh`. Run k of the union contains the rows with the high word words[k].
        """
        entries = self.entries
        starts, ends = _renumber(np.append(0, self.bounds)[:-1], self.order), _renumber(self.bounds, self.order)
        n = len(fresh.low) + (int((ends - starts)[words[words < len(ends)]].sum()) if len(entries) else 0)
        weighted = len(fresh.weights) > 0 or entries.excess is not None
        kind = tally.find_count_type(int(self.row_counts.sum()))
        low = allocate(n, U8) if len(entries) else fresh.low
        excess = NO_INTS if entries.excess is None else entries.excess.reshape(-1)
        merged = MergedRuns(
            allocate(n, U4), low, allocate(n, kind), allocate(2 * n if weighted else 0, I8), np.zeros(len(words), I8)
        )
        arguments: tuple[Array, ...] = (
            entries.codes, entries.counts.astype(kind, copy=False), excess, starts, ends, words, fresh.low, fresh.weights,
            fresh.last, *merged,
        )  # fmt: skip
        return merged, partial(code_runs.unite_runs.find_entry_point(*arguments), *arguments)


def _renumber(values: Ints, words: Ints) -> Ints:
    """Return an array in which item words[k] is values[k], and all other items are 0."""
    out = np.zeros(int(words.max(initial=-1)) + 1, I8)
    out[words] = values
    return out
