"""The counter of a state: the mutable arrays of its cells (such as slices), to which kernels add the rows of batches.

A counter starts with the content of a state, and can return its content as a state at any time. The commit is the
single call that runs all kernels of a batch. Everything that can fail happens before the commit: `reserve` allocates
memory, and `drafts.bind_kernels` compiles kernels. Neither changes a count, and the commit itself cannot fail halfway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from operator import is_not
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MemoryLimitError
from ..kernels import tally_codes
from ..numerics.array_rows import put_rows
from ..state import retention as policy
from ..state import tally
from ..state.axes import Axis, Vocabulary
from ..state.cells import Cells
from ..state.declare import Flat, Tally, carry
from ..state.fold import find_sort_order
from ..state.state import State
from ..state.tally import Entries
from ..statistics.step import Like
from .cell_rows import LiveCellRows
from .index import Index, encode_keys, locate_keys, rank_keys
from .tallies import LiveExactRows, LiveTally, pad_zeros, weights_less_one

__all__ = ["Counter", "path_of"]

Array = NDArray[Any]
Ints = NDArray[np.int64]


def path_of(axes: tuple[Axis, ...]) -> tuple[tuple[str, Axis], ...]:
    """Return the columns of all axes, outermost axis first, each with its axis.

    The values of the columns identify a cell (such as a slice).
    """
    return tuple((name, axis) for axis in axes for name in axis.names)


class Counter:
    """The mutable arrays of the cells (such as slices) of one state, to which kernels add rows.

    Many states keep the distinct rows of a cell exactly until there are too many of them. The cell is then folded: from
    then on, its rows are counted in the buckets of a histogram.

    Parameters
    ----------
    state : State
        The initial state of the counter.
    index : Index
        The object that finds the cell of each row. All counters of an updater share it.
    """

    def __init__(self, state: State, index: Index) -> None:
        self.statistic, self.index = state.empty_copy(), index
        # The key under which `index` stores the codes of classes. Each counter has its own codes, because the classes
        # of one state may be strings and those of another integers.
        self.classes = f"classes {id(self)}"
        # A front cell is a slice of the state. Some states also split the rows of a slice by an inner axis, such as the
        # class. Then each front cell is divided into inner cells.
        self.front = path_of(state.axes)
        self.inner = self.front if state.inner_axis is None else (*self.front, *self._inner_axis_path(state))
        # Whether the state has exactly one cell, because it has neither slices nor an inner axis.
        self.lone = not self.inner
        self.flats: dict[str, Array] = {}
        self.tallies: dict[str, Any] = {}
        # For each cell: 1 if buckets have replaced its exact rows, otherwise 0.
        self.folded = np.zeros(0, np.uint8)
        self.copy_constants()
        # If the state has a single cell, the number of rows up to which it stays exact. Repeated rows count toward
        # this limit, although only distinct rows take memory. `_must_fold` therefore raises the limit if the cell can
        # stay exact, for example because few of its rows are distinct.
        self.exact_rows_allowed = self.exact_rows_limit
        self._load(state)

    def copy_constants(self) -> None:
        """Store the constant properties of the state as attributes, so that they are not computed for each batch."""
        statistic = self.statistic
        self.parts, self.folding, self.folds_by_rows = statistic.parts(), statistic.folding, statistic.folds_by_rows
        self.cells_per_row, self.counts_per_row, self.exact_rows_limit = (
            statistic.cells_per_row,
            statistic.counts_per_row,
            statistic.exact_rows_limit,
        )
        self.block_column, self.has_unbounded_size = statistic.block_column, statistic.has_unbounded_size
        self.has_fixed_point_weights, self.has_fixed_point_terms = (
            statistic.has_fixed_point_weights,
            statistic.has_fixed_point_terms,
        )

    def _inner_axis_path(self, state: State) -> tuple[tuple[str, Axis], ...]:
        axis = state.inner_axis
        assert axis is not None
        if axis.kind == "class":
            return tuple((f"{name} {self.classes}", axis) for name in axis.names)
        return ((axis.names[0], axis),)

    # -- loading a state ----------------------------------------------------------------------------------------------

    def _load(self, state: State) -> None:
        cells, index = state.cells, self.index
        keys = np.empty_like(cells.keys)
        for i, (name, axis) in enumerate(self.front):
            keys[:, i] = encode_keys(index, name, axis, cells.vocabularies[i], cells.keys[:, i])
        at = locate_keys(index, self.front, keys, np.zeros(len(keys), np.int64))
        places = at
        if cells.inner_keys is not None:
            axis = self.inner[-1][1]
            below = cells.inner_keys[:, 1:]
            if axis.kind == "class":
                codes = index.key_codes(self.classes).add_vocabulary(cells.class_vocabulary or Vocabulary())
                below = codes[below] if len(codes) else below
            places = locate_keys(index, self.inner, below, at[cells.inner_keys[:, 0]], len(self.front))
        fronts, count = max(index.count(self.front), 1), max(index.count(self.inner), 1)
        for name, part in self.parts.items():
            if isinstance(part, Flat):
                if name in cells.flats:
                    size, where = (fronts, at) if part.front or cells.inner_keys is None else (count, places)
                    self.flats[name] = part.empty(self.statistic, size)
                    put_rows(self.flats[name], where, cells.flats[name])
                elif not part.optional:
                    self.flats[name] = part.empty(self.statistic, count)
            else:
                entries = cells.tallies[name]
                if not _is_identity(places):
                    entries = entries.move_cells(places, state.entry_starts(name), ascending=False)
                self._load_tally(name, part, entries, count)

    def _load_tally(self, name: str, part: Tally, entries: Entries, cells: int) -> None:
        shift = part.shift(self.statistic)
        folding = self.folding
        if part.is_wide(self.statistic):
            live: Any = self._build_exact_rows(name, shift)
            live.set_entries(entries)
        else:
            folds_here = folding is not None and name == folding[1] and not self._is_never_exact
            is_active = not folds_here or len(entries) > 0
            live = LiveTally(shift, part.place_count(self.statistic), lone=self.lone, is_active=is_active)
            live.set_entries(entries, cells)
            if folds_here:
                self.folded = np.zeros(cells, np.uint8)
                self.folded[entries.cells] = 1
        self.tallies[name] = live

    def _build_exact_rows(self, name: str, shift: int) -> LiveExactRows | LiveCellRows:
        """Return an empty container for the exact rows of the histogram `name`, whose values have `shift` bits."""
        return LiveExactRows(shift, lone=self.lone)

    # -- memory -------------------------------------------------------------------------------------------------------

    @property
    def free_rows(self) -> int:
        """The number of rows that can be added to existing cells without another call to `reserve`.

        The number applies to rows with and without weights. It is 0 if `reserve` must be called before each batch.
        """
        room, cells = 1 << 62, max(self.index.count(self.inner), 1)
        for live in self.tallies.values():
            if isinstance(live, LiveTally) or (isinstance(live, LiveCellRows) and not self._is_bucketed):
                room = min(room, live.count_free_rows(cells))
            elif not self._is_bucketed:
                room = min(room, live.count_free_rows(self.exact_rows_allowed))
        return room // self._counts_per_cell

    @property
    def _is_bucketed(self) -> bool:
        """Whether all new rows are counted in histogram buckets, because no cell keeps exact rows."""
        return self._is_never_exact or (self.lone and bool(self.folded.any()))

    @cached_property
    def _is_never_exact(self) -> bool:
        return self.folding is None or self.exact_rows_limit == 0

    @property
    def present(self) -> frozenset[str]:
        """The names of the optional arrays that already exist, such as sums of weights."""
        return frozenset(n for n in self.flats if self.parts[n].optional)

    @property
    def dense(self) -> frozenset[str]:
        """The names of the histograms that keep a count of each possible value in an array, and buffer no rows."""
        folding = self.folding
        dense = {n for n, h in self.tallies.items() if isinstance(h, LiveTally) and h.dense}
        if folding is not None and not self._is_bucketed:
            dense.discard(folding[1])
        return frozenset(dense)

    def describe_rows(self, columns: Mapping[str, Any]) -> Like:
        """Return the column types and the properties of this counter that determine which kernels count the rows."""
        return Like(columns, self.lone, self.dense, self.present)

    @property
    def nbytes(self) -> int:
        """The memory used by all arrays, in bytes."""
        return int(sum(a.nbytes for a in self.flats.values()) + sum(h.nbytes for h in self.tallies.values()))

    def estimate_bytes(self, rows: int) -> int:
        """Return an upper bound on the memory in bytes after adding `rows` more rows."""
        cells = max(self.index.count(self.inner), 1)
        fronts = max(self.index.count(self.front), 1)
        parts = self.parts
        flats = sum(a[:1].nbytes * (fronts if parts[n].front else cells) for n, a in self.flats.items())
        placed = rows * self._counts_per_cell
        tallies = sum(
            h.estimate_bytes(cells, placed) if isinstance(h, LiveTally | LiveCellRows) else h.nbytes + 13 * placed
            for h in self.tallies.values()
        )
        return flats + tallies

    @property
    def _counts_per_cell(self) -> int:
        """The number of values that a row adds to each of its cells: for example, one for each output of a model."""
        return max(self.counts_per_row // max(self.cells_per_row, 1), 1)

    def reserve(self, rows: int, *, weighted: bool) -> bool:
        """Allocate memory for `rows` more rows; return whether this replaced an array to which a kernel writes.

        `weighted` says whether the rows have weights, which need additional arrays.

        Raises
        ------
        MemoryLimitError
            If the state has a memory limit and the rows may exceed it.
        """
        if not self.lone:
            cells, fronts = self.index.count(self.inner), self.index.count(self.front)
            self._check_classes()
            for name, array in self.flats.items():
                part = self.parts[name]
                size = fronts if part.front else cells
                if size > len(array):
                    new = part.empty(self.statistic, max(size, 2 * len(array)))
                    new[: len(array)] = array
                    self.flats[name] = new
            if not self._is_never_exact and cells > len(self.folded):
                self.folded = pad_zeros(self.folded, 2 * cells)
        limit = getattr(self.statistic, "memory_limit", None)
        if limit is not None and self.has_unbounded_size and self.estimate_bytes(rows) > limit:
            self._check_limit(rows, limit)
        if weighted or self.free_rows < rows:
            self._reserve_in_tallies(rows, weighted=weighted)
        fresh = weighted and self._weigh()
        if fresh or self.has_moved:
            self.bound_arrays = {}
            return True
        return False

    @property
    def has_moved(self) -> bool:
        """Whether an array to which kernels write has been replaced since the kernels were bound to it."""
        return any(any(map(is_not, arrays, self._arrays(name))) for name, arrays in self.bound_arrays.items())

    def admit_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        """Raise an error if these rows contradict one another or earlier rows, so that they cannot be added.

        For example, string keys must not follow integer keys. `columns` contains the checked column of each role, such
        as "y_score", and `at` the slice of each row. `at` is empty if there is only one slice.
        """
        sources = {role: c.source for role, c in columns.items() if len(c.values)}
        self.statistic.check_rows(columns, at)
        self.statistic.check_sources(self.flats, sources)

    def _check_classes(self) -> None:
        if self.inner[-1][1].kind == "class":
            count = self.index.key_codes(self.classes).count
            try:
                self.statistic.check_class_count(count)
            except MemoryLimitError:
                # The limit may not really be exceeded, because the index also contains classes of batches that failed.
                # Check again with only the classes that occur in cells.
                self.statistic.check_class_count(len(np.unique(self.index.codes(self.inner)[:, len(self.front) :])))

    def _check_limit(self, rows: int, limit: int) -> None:
        for live in self.tallies.values():
            if isinstance(live, LiveExactRows | LiveCellRows):
                # Before estimating the memory, sort the rows, which frees the buffer of unsorted rows.
                live.set_entries(live.consolidate())
        if (needed := self.estimate_bytes(rows)) > limit:
            raise MemoryLimitError(
                f"the rows would need up to {needed:,} bytes, more than the memory_limit of {limit:,}; raise memory_limit"
            )

    def _reserve_in_tallies(self, rows: int, *, weighted: bool) -> None:
        cells, most = max(self.index.count(self.inner), 1), self.exact_rows_allowed
        for live in self.tallies.values():
            if isinstance(live, LiveTally) or (isinstance(live, LiveCellRows) and not self._is_bucketed):
                live.reserve(cells, rows * self._counts_per_cell, weighted=weighted)
            elif not self._is_bucketed:
                live.reserve(rows * self._counts_per_cell, most, weighted=weighted)

    # -- cells that become too large ----------------------------------------------------------------------------------

    def needs_preparation(self, rows: int) -> bool:
        """Return whether a batch of `rows` rows must take the general path. By default, return False.

        The general path (`BatchUpdater.count_batch`) calls `fold_ahead` before it counts the batch.
        """
        return False

    def fold_ahead(self, at: Ints, rows: int, columns: Mapping[str, Any]) -> None:
        """Convert exact rows to buckets, or widen buckets, before a batch is counted. By default, do nothing.

        `at` is the cell of each of the `rows` rows; it is empty if there is only one cell.
        """

    def fold_large_cells(self) -> None:
        """Convert cells with too many exact rows to buckets, before the state is read. By default, do nothing."""

    def fold_jointly(self, others: Sequence[Counter]) -> None:
        """Convert cells to buckets if they have too many exact rows in all counters together. By default, do nothing.

        Call this before the states of the counters are added up. The sum does not keep the exact rows of these cells,
        so there is no need to sort the rows for each state.
        """

    def mark(self) -> Any:
        """Return the data that `restore` needs to undo `fold_ahead` if the batch cannot be counted."""
        return self.folded, self.flats, self.tallies

    def restore(self, mark: Any) -> None:
        """Restore the exact rows of the cells that have been converted to buckets since the call to `mark`."""
        folded, flats, tallies = mark
        if self.tallies is not tallies:
            bound = {name: arrays for name, arrays in self.bound_arrays.items() if name in flats or name in tallies}
            self.__dict__.update(folded=folded, flats=flats, tallies=tallies, bound_arrays=bound)

    # -- arguments of kernels -----------------------------------------------------------------------------------------

    def bind_part(self, part: Any) -> tuple[Any, ...]:
        """Return the arrays of a part of the state as kernel arguments, and record them in `bound_arrays`.

        A part is an array or a histogram.
        """
        name = part.name
        if isinstance(part, Flat):
            if name not in self.flats:
                self.flats[name] = self._build_optional_part(part)
            self.bound_arrays[name] = self._arrays(name)
            return (self.flats[name].reshape(-1),)
        live = self.tallies[name]
        self.bound_arrays[name] = self._arrays(name)
        if isinstance(live, LiveExactRows | LiveCellRows):
            return (self.folded, *live.collect_arguments())
        arguments: tuple[Any, ...] = live.collect_arguments()
        return arguments

    @cached_property
    def bound_arrays(self) -> dict[str, tuple[Array, ...]]:
        """For each part of the state, the arrays to which the bound kernels write."""
        return {}

    def _arrays(self, name: str) -> tuple[Array, ...]:
        """Return the arrays of a part of the state. Kernels bound to them remain valid until an array is replaced."""
        if name in self.flats:
            return (self.flats[name],)
        arguments = self.tallies[name].collect_arguments()
        return (self.folded, *(a for a in arguments if isinstance(a, np.ndarray)))

    def _build_optional_part(self, part: Flat) -> Array:
        """Return a new optional array, such as the sums of weights, that includes all earlier rows of each cell.

        An optional array is created when the first batch that needs it is counted, such as the first batch with
        weights. All earlier rows have the default value, such as weight 1, so the sums over them are known. For
        example, the sum of their weights is the number of rows.
        """
        parts = self.parts
        lengths = [len(a) for n, a in self.flats.items() if parts[n].front == part.front]
        array = part.empty(
            self.statistic, max([self.index.count(self.front if part.front else self.inner), 1, *lengths])
        )
        if part.like is None:
            return array
        source = self.flats[part.like]
        if array.ndim == source.ndim:
            array[: len(source)] = source
        else:
            # Each earlier row has weight 1, so the sum of the weights is the number of rows. A sum consists of several
            # integers, the first of which is in units of 2**-20.
            array[: len(source), ..., 0] = source << 20
        return carry(part.form, array)

    @property
    def has_weighted_parts(self) -> bool:
        """Whether the state has sums of weights, to which rows without a weight must be added with weight 1."""
        return not self._of_weights.isdisjoint(self.flats)

    @cached_property
    def _of_weights(self) -> frozenset[str]:
        return frozenset(part.name for part in self._optional if part.like is not None)

    @property
    def _optional(self) -> list[Flat]:
        return [p for p in self.parts.values() if isinstance(p, Flat) and p.optional]

    def _weigh(self) -> bool:
        """Create the arrays that only weighted rows need; return whether any array was created."""
        fresh = [p for p in self._optional if p.like is not None and p.name not in self.flats]
        for part in fresh:
            self.bind_part(part)
        return bool(fresh)

    def stage_rows(self, columns: Mapping[str, Any], at: Ints, rows: int) -> list[Callable[[], Any]]:
        """Count rows in copies of the arrays, and return functions that replace the arrays with these copies.

        The rows are counted by the state's method `absorb`, which uses numpy rather than kernels. `at` is the cell of
        each row; it is empty if there is only one cell.
        """
        statistic, parts = self.statistic, self.parts
        if not rows:
            return []
        copies: dict[str, Any] = {}
        for name, part in parts.items():
            if isinstance(part, Flat) and name not in ("dropped", "rounded"):
                if name not in self.flats and part.optional:
                    copies[name] = self._build_optional_part(part)
                else:
                    copies[name] = self.flats[name].copy()
            elif isinstance(part, Tally):
                copies[name] = []
        statistic.absorb(copies, at if len(at) else np.zeros(rows, np.int64), **columns)
        calls: list[Callable[[], Any]] = []
        fresh, tallies = dict(self.flats), dict(self.tallies)
        for name, content in copies.items():
            part = parts[name]
            if isinstance(part, Flat):
                fresh[name] = carry(part.form, content)
            elif content:
                tallies[name] = self._add_entries(part, content)
        calls.append(partial(self.__dict__.update, {"flats": fresh, "tallies": tallies}))
        return calls

    def _add_entries(self, part: Tally, additions: list[Any]) -> Any:
        """Return a copy of a histogram with rows added; each addition is a tuple (cells, values, weights or None)."""
        shift, cells = part.shift(self.statistic), max(self.index.count(self.inner), 1)
        old, batches = self.tallies[part.name], []
        for at, places, weights in additions:
            high = at.astype(np.uint32) << np.uint32(max(shift - 64, 0)) if part.is_wide(self.statistic) else None
            kind = np.uint64 if high is not None else tally.find_code_type(cells << shift)
            codes = places.astype(kind) if high is not None else (at.astype(kind) << kind(shift)) | places.astype(kind)
            excess = None if weights is None else weights_less_one(np.asarray(weights, np.float64))
            batches.append(tally.sort_entries(Entries(shift, codes, np.ones(len(codes), np.uint32), excess, high)))
        if isinstance(old, LiveExactRows | LiveCellRows):
            fresh: Any = self._build_exact_rows(part.name, shift)
            fresh.set_entries(tally.sum_entries([old.consolidate(), *batches]))
        else:
            fresh = LiveTally(shift, old.places, lone=self.lone)
            fresh.set_entries(tally.sum_entries([old.consolidate(), *batches]), cells)
        return fresh

    # -- making a state -----------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the counted rows as a state in canonical form: states of the same rows are byte-for-byte equal."""
        # The index numbers cells in order of first appearance. A state sorts them by key instead, so that the same
        # rows, in any order and in any batches, give the same bytes.
        self.fold_large_cells()
        statistic, index = self.statistic, self.index
        fronts, cells = (index.count(p) if p else 1 for p in (self.front, self.inner))
        words, keys = self._rank_keys()
        order = find_sort_order(keys) if self.front else np.zeros(1, np.int64)
        inner = behind = None
        below = order
        if statistic.inner_axis is not None:
            inner, behind = self._inner_table(order)
            below = find_sort_order(inner)
            inner = inner.take(below, axis=0)
        flats = {}
        for name, array in self.flats.items():
            front = self.parts[name].front or inner is None
            flats[name] = array[: fronts if front else cells].take(order if front else below, axis=0)
        tallies = {n: self._in_order(h, below) for n, h in self.tallies.items()}
        state = statistic.with_cells(Cells(statistic.axes, keys[order], words, inner, behind, flats, tallies))
        if self.lone and self.folding is not None and not self._is_bucketed:
            # Set the cached property `inner_row_counts` of the state. The counter knows the number of rows, but
            # computing it from the state would be slow.
            state.__dict__["inner_row_counts"] = np.array([self.tallies[self.folding[0]].rows // self.counts_per_row])
        return policy.apply_retention(state.canonicalize())

    def _rank_keys(self) -> tuple[tuple[Vocabulary, ...], Ints]:
        """Return the vocabulary (sorted values) of each axis, and each slice key as ranks in the vocabularies."""
        return rank_keys(self.index, self.front, self.index.codes(self.front)[:, : len(self.front)])

    def _inner_table(self, order: Ints) -> tuple[Ints, Vocabulary | None]:
        """Return the keys of the inner cells (groups or classes within a slice), and the vocabulary of the classes.

        The vocabulary (the sorted class labels) is None if inner cells are groups. The key of an inner cell consists of
        the position of its slice in `order`, followed by the ID of its group or by the ranks of its classes.
        """
        index, axis = self.index, self.inner[-1][1]
        to = np.empty(len(order), np.int64)
        to[order] = np.arange(len(order))
        codes = index.codes(self.inner)[:, len(self.front) :]
        above = index.parents(self.inner)
        for path in [self.inner[:i] for i in range(len(self.inner) - 1, len(self.front), -1)]:
            above = index.parents(path)[above]
        behind = None
        if axis.kind == "class":
            behind, flat = index.key_codes(self.classes).rank_codes(np.ascontiguousarray(codes.reshape(-1)))
            codes = flat.reshape(codes.shape)
        fronts = to[above] if self.front else np.zeros(len(codes), np.int64)
        return np.column_stack([fronts, codes]), behind

    def _in_order(self, live: Any, order: Ints) -> Entries:
        if isinstance(live, LiveCellRows):
            return live.consolidate(order)
        entries: Entries = live.consolidate()
        if self.lone or _is_identity(order) or not len(entries):
            return entries
        return _reorder_cells(entries, order)


def _reorder_cells(entries: Entries, order: Ints) -> Entries:
    """Return the entries of a histogram after renumbering its cells: cell order[k] becomes cell k."""
    starts = entries.cell_starts(len(order))

    def gather(values: Array, shift: int = 0, width: int = 1) -> Array:
        out: Array = np.empty_like(values)
        tally_codes.gather_runs(values.reshape(-1), width * starts, order, shift, out.reshape(-1))
        return out

    excess = None if entries.excess is None else gather(entries.excess, width=2)
    counts = gather(entries.counts)
    if entries.high is not None:
        high = np.repeat(np.arange(len(order), dtype=np.uint32), np.diff(starts)[order])
        if entries.high_place_bits:
            labels = entries.high & np.uint32((1 << entries.high_place_bits) - 1)
            high = (high << np.uint32(entries.high_place_bits)) | gather(labels)
        return replace(entries, codes=gather(entries.codes), counts=counts, excess=excess, high=high)
    kind = tally.find_code_type(len(order) << entries.shift)
    codes = gather(entries.codes.astype(kind, copy=False), entries.shift)
    return tally.canonicalize(replace(entries, codes=codes, counts=counts, excess=excess))


def _is_identity(order: Ints) -> bool:
    return bool(np.array_equal(order, np.arange(len(order))))
