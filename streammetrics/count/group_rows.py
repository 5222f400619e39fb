"""Counter of rows by group: rows are buffered in blocks, which readers share because written rows never change."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..errors import InvalidInputError, MemoryLimitError
from ..numerics.kernel_registry import find_kernel
from ..state import retention as policy
from ..state.cells import Cells
from ..state.fold import find_sort_order, fold
from ..state.state import State
from ..statistics.groups.group_rows import ADVICE, SAMPLE, GroupRows, WaitingRows, entries_of, sample_level
from ..statistics.groups.partitions import SHARE, RawRows, hashes_of, split_words
from ..statistics.groups.spill import concat_by_layout, row_layout, spill_rows
from ..statistics.key_kinds import KINDS, kind_number, seen_kinds_of
from .counter import Counter, path_of
from .index import Index, rank_keys

__all__ = ["GroupCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
# A new block has room for as many rows as all blocks before it, but no fewer than FIRST and no more than LARGEST.
FIRST, LARGEST = 1 << 8, 1 << 20


class Block:
    """A buffer of rows of one layout. Only the rows before `used` are valid, and these never change."""

    def __init__(self, like: Mapping[str, Array], size: int) -> None:
        self.columns = {n: np.empty((size, *a.shape[1:]), a.dtype) for n, a in like.items()}
        self.used = np.zeros(1, np.int64)
        self.width = sum(a[:1].nbytes for a in self.columns.values())

    def count_free_rows(self) -> int:
        """Return the number of rows that still fit the block."""
        return len(self.columns["labels"]) - int(self.used[0])

    def stage_rows(self, rows: Mapping[str, Array]) -> Callable[[], Any]:
        """Write rows after the used ones; return the call that adds them to the used rows."""
        first = int(self.used[0])
        end = first + len(rows["labels"])
        for name, column in rows.items():
            self.columns[name][first:end] = column
        return partial(self.used.__setitem__, 0, end)

    def rows(self) -> RawRows:
        """Return the used rows."""
        return {n: a[: int(self.used[0])] for n, a in self.columns.items()}


class KeptRows:
    """All rows of a counter: rows in memory, finished states, and rows on disk.

    Rows are only added. To drop rows or write them to disk, a counter makes another `KeptRows` and replaces this one at
    once, so an interrupt leaves either the old or the new rows.
    """

    def __init__(
        self, old: tuple[RawRows, ...] = (), settled: tuple[GroupRows, ...] = (), spilled: tuple[Any, ...] = ()
    ) -> None:
        self.old, self.settled, self.spilled = old, settled, spilled
        self.blocks: dict[tuple[Any, ...], list[Block]] = {}
        self.old_bytes = sum(a.nbytes for r in old for a in r.values()) + sum(s.nbytes for s in settled)

    def raws(self) -> tuple[RawRows, ...]:
        """Return the rows in memory that are not part of a finished state."""
        return (*self.old, *(b.rows() for b in itertools.chain(*self.blocks.values()) if b.used[0]))

    @property
    def nbytes(self) -> int:
        """The memory of the rows that are in memory, in bytes."""
        return self.old_bytes + sum(int(b.used[0]) * b.width for blocks in self.blocks.values() for b in blocks)

    @property
    def rows(self) -> int:
        """The number of rows in memory."""
        return sum(len(r["labels"]) for r in self.raws()) + sum(int(s.row_counts.sum()) for s in self.settled)

    def stage_rows(self, rows: Mapping[str, Array]) -> Callable[[], Any]:
        """Write rows to a block; return the call that adds them to the used rows."""
        blocks, n = self.blocks.setdefault(row_layout(rows), []), len(rows["labels"])
        if not blocks or blocks[-1].count_free_rows() < n:
            before = sum(int(b.used[0]) for b in blocks)
            blocks.append(Block(rows, max(n, min(max(before, FIRST), LARGEST))))
        return blocks[-1].stage_rows(rows)


class GroupCounter(Counter):
    """Counts the rows of each group, such as the impressions of a user, by score and label.

    Parameters
    ----------
    state : GroupRows
        The state with which the counter starts.
    index : Index
        The numbers of the cells by the axes of the state.
    """

    statistic: GroupRows

    def __init__(self, state: GroupRows, index: Index) -> None:
        self.statistic, self.index = state.empty_copy(), index
        self.copy_constants()
        self.front = self.inner = path_of(state.axes)
        self.lone = not self.front
        self.tallies, self.folded, self.before = {}, np.zeros(0, np.uint8), state.empty_copy()
        self.flats = {"kinds": np.zeros((1, len(KINDS)), np.uint8)}
        self.level, self.kept = 0, KeptRows()
        if not self.lone:
            self.before = state
            return
        waiting = state.to_waiting()
        self.flats["kinds"][0], self.level = waiting.kinds, waiting.level
        if waiting.dropped is not None:
            self.flats["dropped"] = waiting.dropped[None].copy()
        if waiting.rounded:
            self.flats["rounded"] = np.ones(1, np.uint8)
        self.kept = KeptRows(waiting.raws, waiting.settled, waiting.spilled)

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + self.before.nbytes + sum(a.nbytes for a in self.flats.values())

    def estimate_bytes(self, rows: int) -> int:
        return self.nbytes + 41 * rows

    def reserve(self, rows: int, *, weighted: bool) -> bool:
        if self.statistic.sample_rows:
            self._thin()
        cells = max(self.index.count(self.front), 1)
        for name, array in list(self.flats.items()):
            if cells > len(array):
                part: Any = self.statistic.parts()[name]
                new = part.empty(self.statistic, max(cells, 2 * len(array)))
                new[: len(array)] = array
                self.flats[name] = new
        return False

    # -- adding rows --------------------------------------------------------------------------------------------------

    def stage_rows(self, columns: Mapping[str, Column], at: Ints, rows: int) -> list[Callable[[], Any]]:
        """Write rows to a block; return the calls that add them to the counted rows.

        Raises
        ------
        InvalidInputError
            The keys are of another kind than earlier keys, or belong to another worker.
        MemoryLimitError
            The rows exceed the memory limit, and there is no folder to spill rows to.
        """
        if not rows:
            return []
        ids = columns["group"]
        kinds = np.maximum(self.flats["kinds"].max(axis=0), seen_kinds_of(self.before))
        kind = kind_number(ids.source, kinds)
        self._check_partition(ids.values)
        fresh = {"ids": ids.values, "scores": columns["y_score"].values, "labels": columns["y_true"].values}
        if "sample_weight" in columns:
            fresh["weights"] = columns["sample_weight"].values
        calls: list[Callable[[], Any]] = []
        if not self.lone:
            statistic = self.statistic
            if statistic.sample_rows or statistic.partition or statistic.spill_dir:
                raise InvalidInputError(
                    "slices of groups take neither sample=, partition= nor spill_dir=", column="group"
                )
            fresh["cells"] = at.astype(np.int32)
        if self.statistic.sample_rows:
            fresh, left_out = select_sample(fresh, self.level)
            calls += self._count_sampled_out(left_out)
        if len(fresh["labels"]):
            self._reserve_bytes(sum(a.nbytes for a in fresh.values()))
            calls.append(self.kept.stage_rows(fresh))
        where: Any = (at, kind) if len(at) else (0, kind)
        return [*calls, partial(self.flats["kinds"].__setitem__, where, 1)]

    def _check_partition(self, ids: Array) -> None:
        if self.statistic.partition:
            own_part, parts = self.statistic.partition
            foreign = np.flatnonzero(hashes_of(ids, SHARE) % np.uint64(parts) != own_part)
            if len(foreign):
                row = int(foreign[0])
                raise InvalidInputError(
                    f"group: row {row:,} belongs to another worker than partition=({own_part}, {parts}) "
                    f"({len(foreign):,} rows do); route rows with sm.group_partition(ids, {parts})",
                    column="group",
                    row=row,
                    count=len(foreign),
                )

    def _reserve_bytes(self, size: int) -> None:
        """Make room for `nbytes` bytes in memory, if necessary by writing earlier rows to disk."""
        limit, used = self.statistic.memory_limit, self.kept.nbytes + (0 if self.lone else self.before.nbytes)
        if used + size <= limit or self.statistic.sample_rows:
            return
        if self.statistic.spill_dir is None:
            raise MemoryLimitError(
                f"GroupRows would need {used + size:,} bytes; its memory_limit is {limit:,}: {ADVICE}"
            )
        kept = self.kept
        self.kept = KeptRows((), kept.settled, spill_rows(self.statistic.spill_dir, kept.raws(), kept.spilled))

    # -- sampling groups ----------------------------------------------------------------------------------------------

    def _count_sampled_out(self, count: int) -> list[Callable[[], Any]]:
        if not count:
            return []
        dropped, at = self._find_dropped_counts(), (0, self.statistic.reasons.index("sample"))
        return [partial(dropped.__setitem__, at, int(dropped[at]) + count)]

    def _find_dropped_counts(self) -> Ints:
        self.bind_part(type(self.statistic).dropped)
        return self.flats["dropped"]

    def _thin(self) -> None:
        """Raise the sampling level until the rows fit `sample_rows`; each level halves the sample of groups."""
        kept, most = self.kept, self.statistic.sample_rows
        if kept.rows <= most:
            return
        # A group is in the sample of a level if the hash of its ID begins with at least `level` zero bits.
        raws, rows_by_zeros = concat_by_layout(kept.raws()), np.zeros(65, np.int64)
        for raw in raws:
            find_kernel("group_sums:count_leading_zeros")(*split_words(raw["ids"]), np.uint64(SAMPLE), rows_by_zeros)
        for state in kept.settled:
            np.add.at(rows_by_zeros, state.leading_zeros, state.inner_row_counts)
        level = sample_level(rows_by_zeros, self.level, most)
        dropped = self._find_dropped_counts().copy()
        dropped[0, self.statistic.reasons.index("sample")] += int(rows_by_zeros[:level].sum())
        fresh = KeptRows(
            tuple(select_sample(r, level)[0] for r in raws),
            tuple(s.drop_beyond(level).without_front_parts() for s in kept.settled),
        )
        # One call into C, so an interrupt leaves either the old rows or the thinned ones.
        self.__dict__.update(level=level, kept=fresh, flats=self.flats | {"dropped": dropped})

    # -- making a state -----------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the counted rows as a state. If it has one cell, rows stay unsorted until a result needs sorted rows."""
        if not self.lone:
            return self._build_sliced_state()
        if self.statistic.sample_rows:
            self._thin()
        kept, dropped = self.kept, self.flats.get("dropped")
        dropped_rows = dropped[0].copy() if dropped is not None and dropped.any() else None
        rounded = "rounded" in self.flats and bool(self.flats["rounded"].any())
        return self.statistic.from_waiting(
            WaitingRows(
                kept.raws(),
                self.flats["kinds"][0].copy(),
                dropped_rows,
                rounded,
                self.level,
                kept.spilled,
                kept.settled,
            )
        )

    def _build_sliced_state(self) -> State:
        """Return the state of several cells: the entries of the buffered rows, merged with the earlier entries."""
        index, statistic = self.index, self.statistic
        count = index.count(self.front)
        words, keys = rank_keys(index, self.front, index.codes(self.front)[:, : len(self.front)])
        order = find_sort_order(keys)
        to = np.empty(len(order), np.int64)
        to[order] = np.arange(len(order))
        raws = self.kept.raws()
        fronts = to[np.concatenate([np.zeros(0, np.int64), *(r["cells"] for r in raws)])]
        inner, entries = entries_of(raws, statistic.real, fronts)
        flats = {n: a[:count].take(order, axis=0) for n, a in self.flats.items()}
        fresh = statistic.with_cells(
            Cells(statistic.axes, keys.take(order, axis=0), words, inner, None, flats, {"scores": entries})
        ).canonicalize()
        merged: GroupRows = policy.apply_retention(fold([self.before, fresh]) if len(self.before) else fresh)
        none = {n: statistic.parts()[n].empty(statistic, len(a)) for n, a in self.flats.items()}
        self.__dict__.update(before=merged, kept=KeptRows(), flats=none)
        return merged


def select_sample(raw: RawRows, level: int) -> tuple[RawRows, int]:
    """Return the rows whose group is in the sample of a level, and the number of all other rows."""
    if not level:
        return raw, 0
    keep = hashes_of(raw["ids"], SAMPLE) >> np.uint64(64 - level) == 0
    return {name: array[keep] for name, array in raw.items()}, len(keep) - int(keep.sum())
