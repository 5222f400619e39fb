"""The batch updater: the only code that adds rows to states.

The layout of a batch is the names, dtypes and strides of its columns. A draft is the cached plan for batches of one
layout, and its commit is the call into compiled code that counts a batch. A batch takes one of three paths, from the
fastest to the most general:

1. The batch has the layout of the last batch (`_count_like_last`). The commit of the last batch is called immediately.
2. An earlier batch had this layout (`_count_new_layout`). The draft of that batch converts the columns and calls its
   commit.
3. Any other batch is prepared column by column (`count_batch`). This path handles new keys, keys that are not numbers,
   row filters, rankings and dropped rows.

On each path a single call into C counts the batch in all states, so a batch is counted in all states or in none.
`fused_call` explains why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Batch, Column
from ..batch.convert import is_scalar, squeeze_column
from ..batch.ids import Ids
from ..batch.prepared_batch import PreparedRows, check_either, prepare
from ..batch.query_blocks import check_slices, prepare_blocks
from ..batch.signatures import (
    NONE_WIDENED,
    SIGNATURES,
    find_widened_columns,
    make_batch,
    make_matcher,
    matrix_signature,
    to_plain_array,
)
from ..batch.times import TimeColumn
from ..errors import MemoryLimitError
from ..numerics.signal_safety import run_without_interrupt
from ..numerics.slice_keys import SHARDS
from ..state.state import State
from ..statistics.step import NO_WEIGHTS
from .drafts import (
    ArgumentColumns,
    Draft,
    LastBatch,
    LiveCounters,
    bind_kernels,
    can_draft,
    compute_shards,
    counts_in_numpy,
    has_only_numeric_arrays,
    load_engine,
    make_draft,
)
from .extra_calls import build_drop_calls, build_kernel_call, build_rounding_calls
from .reads import MEMORY_ADVICE, MEMORY_LIMIT, Read
from .state_changes import StateChange, merge_log_parts
from .total_weight import check_mass, collect_weights, max_weight, overflow_error

if TYPE_CHECKING:
    from .counter import Counter
    from .index import Index

__all__ = ["BatchUpdater"]

Array = NDArray[Any]
Ints = NDArray[np.int64]


class BatchUpdater:
    """An object that adds each batch to several states in one call.

    Parameters
    ----------
    reads : sequence of Read
        The states to add rows to, empty or not, each with the columns that it reads.
    memory_limit : int
        The maximum total size of the states in bytes. The limit applies only if states have several cells, such as
        slices.
    on_invalid : {"raise", "drop"}
        What to do with an invalid row: raise an error, or drop the row and count it as dropped.
    """

    def __init__(self, reads: Sequence[Read], *, memory_limit: int = MEMORY_LIMIT, on_invalid: str = "raise") -> None:
        self.reads, self.memory_limit = tuple(reads), memory_limit
        self.lock = threading.Lock()
        self._needs = [tuple(map(r.binding.adapt_need, r.state.needs())) for r in self.reads]
        self._needs_by_binding = [(r.binding, n) for r, n in zip(self.reads, self._needs, strict=True)]
        self._times = [r.times for r in self.reads]
        self._time_kinds = dict(t for times in self._times for t in times)
        requests = [
            (r.binding, n, t, r.state.block_column and i)
            for i, (r, n, t) in enumerate(zip(self.reads, self._needs, self._times, strict=True))
        ]
        # For each `Read` (a state with its columns), the index of the first one with the same columns and options. Both
        # count the same rows, which are therefore prepared only once.
        self._first_same = [requests.index(a) for a in requests]
        # The states, and the counters, which are the arrays to which kernels add rows. The states are None if rows have
        # been added to the counters since the states were read. The counters are None until a batch is counted.
        self._content: tuple[tuple[State, ...] | None, LiveCounters | None] = (tuple(r.state for r in self.reads), None)
        # The number of consecutive batches, up to the last one, with rows of new cells (such as new slices). After two
        # such batches, the next one probably has new cells as well. A draft cannot count new cells, so the next batch
        # takes the general path (`count_batch`) immediately.
        self._batches_with_new_cells = 0
        self.on_invalid = on_invalid

    @property
    def on_invalid(self) -> str:
        """What happens to an invalid row: "raise" raises an error, and "drop" drops the row and counts it as dropped."""
        return self._on_invalid

    @on_invalid.setter
    def on_invalid(self, how: str) -> None:
        self._on_invalid = how
        if (live := self._content[1]) is not None:
            live.last[0] = None
        self._drafts = how != "drop" and all(map(can_draft, self.reads))

    # -- content ------------------------------------------------------------------------------------------------------

    @property
    def states(self) -> tuple[State, ...]:
        """The states of all rows so far, in canonical form: they do not depend on the order of the rows."""
        with self.lock:
            return self._read_states()

    def _read_states(self) -> tuple[State, ...]:
        states, live = self._content
        if states is None:
            assert live is not None
            # Free rows are the rows that can be counted before memory must be reserved again. Reading the states may
            # replace an array to which drafts write. In that case, or if this is unknown (`has_moved` does not cover
            # counters that count in numpy), leave no free rows. The next batch then begins with `reserve`, which drops
            # the drafts.
            free_rows, live.free_rows[0] = live.free_rows[0], min(live.free_rows[0], 0)
            states = live.read_states()
            if not any(c.has_moved or counts_in_numpy(c.statistic) for c in live.counters):
                live.free_rows[0] = free_rows
            self._content = states, live
        return states

    def replace_states(self, states: Sequence[State]) -> None:
        """Replace all states together; later batches are added to the new states."""
        with self.lock:
            self._content = tuple(states), None

    def fold_jointly(self, others: Sequence[BatchUpdater]) -> None:
        """Convert each cell (such as a slice) to buckets if all updaters together have too many exact rows in it.

        All updaters must have equal reads. Merge their states afterwards, because a cell may now have buckets even in
        an updater with few rows.
        """
        counted = [live for one in (self, *others) if (live := one._content[1]) is not None]
        for live in counted:
            # The conversion replaces arrays to which drafts write. Set the number of free rows to 0 (or leave it
            # negative), so that the next batch begins with `reserve`, which drops the drafts.
            live.free_rows[0] = min(live.free_rows[0], 0)
        for first, *rest in zip(*(live.counters for live in counted), strict=True):
            first.fold_jointly(rest)

    def merge_change(self, theirs: Sequence[State]) -> StateChange:
        """Return a change that merges other states into the states of this updater, for `apply_changes`.

        Raises
        ------
        IncompatibleStateError
            When the change is applied, if the keys of this updater and of `theirs` have different types, if the last
            query of one is the first query of the other, or if both contain an entry that must be in only one of them,
            such as the same partition of groups.
        MemoryLimitError
            When the change is applied, if the merged states exceed the memory limit.
        """
        return StateChange(self, lambda ours: self._check_size(merge_log_parts(self.reads, ours, theirs)))

    def subtract_change(self, removed: Sequence[State]) -> StateChange:
        """Return a change that subtracts other states from the states of this updater, for `apply_changes`.

        Applying it may raise the same errors as `State.subtract`.
        """
        return StateChange(
            self, lambda ours: self._check_size([a.subtract(b) for a, b in zip(ours, removed, strict=True)])
        )

    def correction(self, added: Sequence[State], removed: Sequence[State]) -> StateChange:
        """Return a change that merges `added` and then subtracts `removed`, for `apply_changes`.

        Applying it may raise the same errors as `State.merge` and `State.subtract`.
        """
        return StateChange(
            self,
            lambda ours: self._check_size(
                [a.merge(b).subtract(c) for a, b, c in zip(ours, added, removed, strict=True)]
            ),
        )

    def _check_size(self, states: list[State]) -> list[State]:
        """Return the states, or raise MemoryLimitError if they exceed the memory limit."""
        size = sum(s.nbytes for s in states) if any(s.axes for s in states) else 0
        if size > self.memory_limit:
            raise MemoryLimitError(
                f"{max(map(len, states)):,} slices would need {size:,} bytes, more than the memory_limit of "
                f"{self.memory_limit:,}; {MEMORY_ADVICE}"
            )
        return states

    def _get_live(self) -> LiveCounters:
        """Return the counters; if there are none, create them from the states. The caller must hold the lock."""
        states, live = self._content
        if live is None:
            count = load_engine()
            index = count.Index()
            assert states is not None
            counters = tuple(count.make_counter(s, index) for s in states)
            ends = tuple(s.block_ends for s in states)
            live = LiveCounters(counters, index, np.array([max_weight(states), 0.0]), {}, {}, {}, ends, [0], [None])
            self._content = states, live
        return live

    @property
    def sizes(self) -> list[int]:
        """The memory used by each state, in bytes."""
        states, live = self._content
        return [c.nbytes for c in live.counters] if live is not None else [s.nbytes for s in states or ()]

    @property
    def nbytes(self) -> int:
        """The memory used by all states, in bytes."""
        return sum(self.sizes)

    # -- counting batches ---------------------------------------------------------------------------------------------

    def count(self, columns: Mapping[str, Any]) -> None:
        """Count a batch in all states. If this raises an error, all states are unchanged."""
        self.count_arrays(tuple(columns), tuple(columns.values()))

    def count_table(self, table: Mapping[str, Any], names: Iterable[str]) -> None:
        """Count the rows of a table. `names` are the columns that the states read; the table may contain others."""
        present = tuple([name for name in names if name in table])
        self.count_arrays(present, tuple([table[name] for name in present]), table)

    def count_arrays(
        self, names: tuple[str, ...], columns: tuple[Any, ...], table: Mapping[str, Any] | None = None
    ) -> None:
        """Count a batch as `count` does, given the names and the values of its columns.

        `table` is the table that contains the columns, if there is one. It may contain other columns as well.
        """
        live = self._content[1]
        # `last` is a `LastBatch`. Its fields are read by index rather than by name: that is faster, and this code also
        # runs for batches of a single row.
        if live is None or (last := live.last[0]) is None or names != last[0] or not last[1](*columns):
            return self._count_new_layout(names, columns, table)
        return self._count_like_last(live, last, columns, table)

    def _count_like_last(
        self, live: LiveCounters, last: LastBatch, columns: tuple[Array, ...], table: Mapping[str, Any] | None
    ) -> None:
        """Count a batch that has the same layout as the last batch."""
        rows, free_rows, counted = len(columns[0]), live.free_rows, False
        flat = columns if last[2] is None else [columns[i] if make is None else make(columns[i]) for i, make in last[2]]
        with self.lock:
            if free_rows[0] >= rows and self._content[1] is live:
                arguments = flat if last[4] is None else last[4](flat)
                if arguments is not None:
                    # Subtract the rows before the commit. If the commit fails, `free_rows` is too small. That is safe:
                    # it only means that `reserve` is called earlier than necessary.
                    free_rows[0] -= rows
                    self._content = None, live
                    is_bad, counted = last[3](*arguments), True
        # The batch has not been counted if it has more rows than fit in the reserved memory, if a row needs a new cell
        # (such as a new slice), or if another thread has replaced the counters.
        if not counted:
            self._count_new_layout(last.names, columns, table)
        elif is_bad:
            self._raise_bad_row(make_batch(last.names, columns, table), live)

    def _count_new_layout(
        self, names: tuple[str, ...], columns: tuple[Any, ...], table: Mapping[str, Any] | None
    ) -> None:
        """Count a batch whose layout may be new, with a draft (a plan cached by layout) or else with `count_batch`."""
        arrays, widened = columns, NONE_WIDENED
        if not self._drafts or not 0 < len(arrays) <= 16 or not has_only_numeric_arrays(arrays):
            return self.count_batch(make_batch(names, columns, table))
        key = SIGNATURES[len(arrays)](*arrays)  # type: ignore[misc]
        if key is None:
            widened = find_widened_columns(names, columns)
            arrays = tuple(map(to_plain_array, columns, names))
            converted, live = any(map(is_not, arrays, columns)), self._content[1]
            last = None if live is None or widened or not converted else live.last[0]
            if last is not None and names == last.names and last.like(*arrays):
                assert live is not None
                return self._count_like_last(live, last, arrays, table)
            # Pass scalars to `count_batch` unchanged. A scalar tells it that the batch has a single row, so a list in
            # another column is one row of a matrix.
            columns = tuple([c if is_scalar(c) else a for c, a in zip(columns, arrays, strict=True)])
            key = SIGNATURES[len(arrays)](*arrays)  # type: ignore[misc]
            # The key is None if a column has two dimensions. Flatten columns of shape (n, 1) and try again. If the key
            # is still None, use the signature for matrices.
            if key is None:
                flats = tuple([squeeze_column(a) if type(a) is np.ndarray else a for a in arrays])
                key = SIGNATURES[len(flats)](*flats)  # type: ignore[misc]
                arrays, key = (flats, key) if key is not None else (arrays, matrix_signature(arrays))
            key = None if key is None else (*key, widened)
        if key is None or not key[0] or self._batches_with_new_cells > 1:
            return self.count_batch(make_batch(names, columns, table, widened))
        live = self._content[1]
        draft = live.drafts.get((names, key)) if live is not None else None
        if live is None or draft is None:
            with self.lock:
                live, draft = self._reserve_and_draft(names, key, arrays, widened)
            if draft is None:
                return self.count_batch(make_batch(names, columns, table, widened))
        flat, converters = arrays, draft.converters
        if converters is not None:
            flat = tuple([arrays[i] if make is None else make(arrays[i]) for i, make in converters])
        rows = len(flat[0])
        with self.lock:
            # The columns were converted without the lock. Meanwhile, another thread may have used the reserved memory,
            # or replaced the counters to which the draft writes.
            if live.free_rows[0] < rows or self._content[1] is not live:
                live, draft = self._reserve_and_draft(names, key, arrays, widened)
            arguments = (
                None if draft is None else flat if draft.build_arguments is None else draft.build_arguments(flat)
            )
            if draft is not None and arguments is not None:
                live.free_rows[0] -= rows
                self._content = None, live
                if not widened:
                    like = make_matcher(tuple([a.ndim for a in arrays]))(
                        *(fact for a in arrays for fact in (a.dtype, a.strides, *a.shape[1:]))
                    )
                    live.last[0] = LastBatch(names, like, *draft)
                is_bad = draft.commit(*arguments)
        if arguments is None:
            return self.count_batch(make_batch(names, columns, table, widened))
        return self._raise_bad_row(make_batch(names, columns, table, widened), live) if is_bad else None

    def _reserve_and_draft(
        self, names: tuple[str, ...], key: Any, arrays: tuple[Array, ...], widened: frozenset[str]
    ) -> tuple[LiveCounters, Draft | None]:
        """Reserve memory for a batch, and return the counters and a draft (a plan for counting) for its layout.

        The draft is None if columns of this layout need preparation. The caller must hold the lock.
        """
        live, rows = self._get_live(), len(arrays[0])
        if any(c.needs_preparation(rows) for c in live.counters):
            return live, None
        weighted = any(r.binding.column("sample_weight") in names for r in self.reads)
        try:
            live = self._reserve(live, rows, weighted=weighted)
        # If the memory limit is exceeded, return no draft. The general path (`count_batch`) then raises the error
        # again, and frees the memory that has been reserved.
        except MemoryLimitError:
            return live, None
        # Memory is now reserved for at least this batch. Counters that need `reserve` before each batch report 0 free
        # rows, but they can count this batch.
        live.free_rows[0] = max(rows, min((c.free_rows for c in live.counters), default=1 << 62))
        return live, live.drafts.get((names, key)) or make_draft(
            self.reads, self._needs, live, names, key, arrays, widened
        )

    def _reserve(self, live: LiveCounters, rows: int, *, weighted: bool) -> LiveCounters:
        """Reserve memory for `rows` more rows in all counters, and return the counters.

        If this replaces an array to which kernels write, all drafts are dropped, because they refer to the old array.
        """
        # `free_rows` is set to -1 while memory is being reserved. If it is negative at the start, an interrupt has
        # ended an earlier call. That call may have replaced some arrays, so all drafts are dropped.
        unsure, live.free_rows[0] = live.free_rows[0] < 0, -1
        changed = [c.reserve(rows, weighted=weighted) for c in live.counters]
        if live.index.levels:
            self._check_memory(live, rows)
        if unsure or any(changed):
            live = live._replace(drafts={}, last=[None])
            self._content = self._content[0], live
        live.free_rows[0] = 0
        return live

    def _check_memory(self, live: LiveCounters, rows: int) -> None:
        need = sum(c.estimate_bytes(rows) for c in live.counters)
        if need > self.memory_limit:
            cells = max(live.index.count(c.inner) for c in live.counters)
            raise MemoryLimitError(
                f"{cells:,} slices would need up to {need:,} bytes, more than the memory_limit of {self.memory_limit:,}; "
                f"{MEMORY_ADVICE}"
            )

    # -- batches that have to be prepared -----------------------------------------------------------------------------

    def count_batch(self, batch: Batch) -> None:
        """Convert, check and count a batch. Several updaters may count the same batch and share its converted columns."""
        # Conversions and derived columns need compiled kernels.
        load_engine()
        prepared = self._prepare(batch)
        derived = [
            rows.columns if counts_in_numpy(read.state) else read.state.derive_columns(rows.columns)
            for read, rows in zip(self.reads, prepared, strict=True)
        ]
        with self.lock:
            live = self._apply_limits(self._get_live())
            mark, marks = live.index.mark(), [c.mark() for c in live.counters]
            # The commit appends to `committed` as its last step. If an interrupt follows the commit, the list is not
            # empty: the batch has been counted, so its new cells must not be removed.
            committed: list[bool] = []
            try:
                self._count_prepared(live, batch, prepared, derived, committed)
                has_new_cells = live.index.total_cells > sum(mark[0].values())
                self._batches_with_new_cells = self._batches_with_new_cells + 1 if has_new_cells else 0
            except BaseException as error:
                if not committed:
                    live.index.restore(mark)
                    for counter, was in zip(live.counters, marks, strict=True):
                        counter.restore(was)
                # Free the memory that has been reserved for this batch: keep only the states, and drop the counters.
                if isinstance(error, MemoryLimitError):
                    self._content = self._read_states(), None
                raise

    def _apply_limits(self, live: LiveCounters) -> LiveCounters:
        """Merge excess slices if there are far more slices than an axis allows, and return the counters.

        An axis may limit the number of its slices, but counting a batch adds slices without regard to the limit.
        Reading the states applies the limit. If there are more than about four times as many slices as allowed, this
        method therefore reads the states and creates new counters from them.
        """
        for counter in live.counters:
            for i, (_, axis) in enumerate(counter.front):
                most = axis.limit if axis.limit is not None else axis.keep
                if most is not None and live.index.count(counter.front[: i + 1]) > 4 * (most + 64) * max(
                    live.index.count(counter.front[:i]), 1
                ):
                    self._content = self._read_states(), None
                    return self._get_live()
        return live

    def _prepare(self, batch: Batch) -> list[PreparedRows]:
        """Return, for each state, the converted and checked rows to count."""
        live, on_invalid, prepared = self._content[1], self.on_invalid, list[PreparedRows]()
        check_either(self._needs_by_binding, batch)
        for i, (read, needs, first) in enumerate(zip(self.reads, self._needs, self._first_same, strict=True)):
            times = tuple([(axis.names[0], kind) for axis, kind in self._times[i]])
            if first < i:
                prepared.append(prepared[first])
            elif read.state.block_column is None:
                prepared.append(prepare(batch, read.binding, needs, on_invalid, times=times))
            else:
                recent = None if live is None else live.recent.get(i)
                prepared.append(prepare_blocks(batch, read.state, read.binding, needs, on_invalid, recent, times))
        return prepared

    def _count_prepared(
        self,
        live: LiveCounters,
        batch: Batch,
        prepared: Sequence[PreparedRows],
        derived: Sequence[Mapping[str, Column]],
        committed: list[bool],
    ) -> None:
        # Three steps come before the commit. The first step numbers new cells (such as slices). The second finds cells
        # that become too large, and converts their exact rows to histogram buckets. The third reserves memory. If a
        # step raises an error, `count_batch` undoes the first two steps, so that the error changes no result.
        cache: dict[Any, Ints] = {}
        # New cells have no memory in the counters yet. Set the number of free rows to 0 (or leave it negative), so that
        # the next batch begins with `reserve`, even if an error prevents `reserve` from being called for this batch.
        live.free_rows[0] = min(live.free_rows[0], 0)
        places = [
            self._locate_rows(live, batch, c, rows, cache) for c, rows in zip(live.counters, prepared, strict=True)
        ]
        for counter, rows, (front, _) in zip(live.counters, prepared, places, strict=True):
            fronts = _select_fronts(front, rows)
            if len(fronts) and (role := counter.block_column):
                check_slices(rows, role, fronts)
            counter.admit_rows(rows.columns, fronts)
        check_mass(live, prepared)
        for counter, rows, (_, at) in zip(live.counters, prepared, places, strict=True):
            counter.fold_ahead(at, rows.n, rows.columns)
        most = max((r.n * c.cells_per_row for c, r in zip(live.counters, prepared, strict=True)), default=0)
        live = self._reserve(live, most, weighted=any("sample_weight" in r.columns for r in prepared))
        argument_columns = ArgumentColumns()
        positions_by_counter: list[dict[str, int]] = []
        other_calls: list[Callable[[], Any]] = []
        for counter, rows, columns, (front, at) in zip(live.counters, prepared, derived, places, strict=True):
            positions: dict[str, int] = {}
            positions_by_counter.append(positions)
            fronts = _select_fronts(front, rows)
            if rows.left_out:
                other_calls += build_drop_calls(counter, rows, front)
            other_calls += build_rounding_calls(counter, rows, fronts, live.mass)
            if counts_in_numpy(counter.statistic):
                other_calls += counter.stage_rows(rows.columns, at, rows.n)
                continue
            for role, column in columns.items():
                if isinstance(column.values, np.ndarray) and column.values.dtype != object:
                    positions[role] = argument_columns.add(column.values, column.source)
            ones = np.ones(rows.n * counter.cells_per_row) if counter.has_weighted_parts else NO_WEIGHTS
            for role, values in (("at", at), ("front", fronts), ("ones", ones)):
                if len(values):
                    positions[role] = argument_columns.add(values, "")
        flats, typed, ndims = argument_columns.flats, argument_columns.typed, argument_columns.ndims
        key = tuple(typed), tuple(ndims), tuple([tuple(m.items()) for m in positions_by_counter])
        draft = live.drafts.get(key)
        if draft is None:
            draft = Draft(None, bind_kernels(live, positions_by_counter, typed, None, ndims))
            live.drafts[key] = draft
        self._commit(live, draft, flats, prepared, other_calls, committed)

    def _commit(
        self,
        live: LiveCounters,
        draft: Draft,
        flats: Sequence[Array],
        prepared: Sequence[PreparedRows],
        extra: list[Callable[[], Any]],
        committed: list[bool],
    ) -> None:
        extra[:0] = [build_kernel_call("checks:find_bad_weight", w, live.mass) for w in collect_weights(prepared)]
        if any(r.columns["sample_weight"].values.ndim > 1 for r in prepared if "sample_weight" in r.columns):
            # A row of a weight matrix has several weights, but the kernel `find_bad_weight` sees only the largest one.
            # A smaller weight may have low bits that are lost in sums. Set the flag mass[1], so that all weights are
            # checked.
            extra.insert(0, partial(live.mass.__setitem__, 1, 1.0))
        for i, rows in enumerate(prepared):
            if rows.n and rows.ids is not None:
                extra.append(partial(live.recent.__setitem__, i, rows.ids))
                extra.append(partial(live.first.setdefault, i, rows.ids[0].copy()))
        extra.append(partial(committed.append, True))
        self._content = None, live
        # None of these calls can fail: the columns have been checked, and memory has been reserved. None of them runs
        # Python code, so no signal handler runs between them.
        run_without_interrupt([*draft.commit(*flats), *extra])

    def _locate_rows(
        self, live: LiveCounters, batch: Batch, counter: Counter, rows: PreparedRows, cache: dict[Any, Ints]
    ) -> tuple[Ints, Ints]:
        """Return the slice index of each row of the batch, and the cell index of each counted row.

        An array is empty if there is only one slice or cell. `cache` contains the cells that have already been found
        for this batch.
        """
        index = live.index

        def codes(step: Any) -> Ints:
            name, axis = step
            if axis.kind == "key":
                values = batch.memoize(
                    ("codes", id(index), name), partial(index.key_codes(name).encode, batch.raw(name))
                )
                batch.check_length(len(values), name)
                return values  # type: ignore[no-any-return]
            if axis.kind == "shard":
                if kind := batch.column(name, Ids()).source:
                    index.key_codes(name, "shard").accept_kind(SHARDS.get(kind, SHARDS["several"]))
                return batch.memoize(("codes", step), lambda: compute_shards(batch, name, axis))  # type: ignore[no-any-return]
            times = batch.column(name, self._time_kinds[axis])
            assert isinstance(times, TimeColumn)
            return index.key_codes(name, axis.kind).encode_integers(times.source, times.values, times.wrong)

        front = index.locate(counter.front, codes, cache)
        at = _select_fronts(front, rows)
        if counter.inner is not counter.front:
            at = self._locate_inner(index, counter, rows, at)
        if (width := counter.cells_per_row) > 1:
            base = np.zeros(rows.n, np.int64) if not len(at) else at
            at = (base[:, None] * width + np.arange(width)).reshape(-1)
        return front, at

    def _locate_inner(self, index: Index, counter: Counter, rows: PreparedRows, at: Ints) -> Ints:
        axis = counter.inner[-1][1]
        cache: dict[Any, Ints] = {counter.front: at} if len(counter.front) else {}
        if axis.kind == "class":
            numbers = counter.statistic.class_codes(rows.columns, index.key_codes(counter.classes))
            first = len(counter.front)
            return index.locate(counter.inner, lambda step: numbers[counter.inner.index(step) - first], cache)
        ids = rows.columns[axis.names[0]].values
        return index.locate(counter.inner, lambda _: ids, cache)

    def _raise_bad_row(self, batch: Batch, live: LiveCounters) -> None:
        """Raise the error for a batch that the commit has rejected.

        The commit only reports that a value is invalid. Preparing the batch again finds the row and raises the error.
        If no row is invalid, the error says that the total weight is too large.
        """
        # The cause may be that the keys of a column have changed type since the draft was made. Drop all drafts, so
        # that the next batch gets a new one.
        live.drafts.clear()
        live.last[0] = None
        for read, needs in zip(self.reads, self._needs, strict=True):
            prepare(batch, read.binding, needs, self.on_invalid)
        raise overflow_error()


def _select_fronts(front: Ints, rows: PreparedRows) -> Ints:
    """Return the slice of each counted row; `front` is the slice of each row, or empty if the state has no slices."""
    return front if rows.index is None or not len(front) else front[rows.index]
