"""The counter that stores the rows of each group, such as the impressions of each user.

Rows are appended to blocks of memory. Rows never change once they are written, so states can refer to the blocks
without copying them.
"""

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
from ..statistics.groups.group_rows import SAMPLE, GroupRows, WaitingRows, sample_level
from ..statistics.groups.partitions import SHARE, RawRows, hashes_of, split_words
from ..statistics.groups.row_entries import ADVICE, entries_of
from ..statistics.groups.spill import concat_by_layout, row_layout, spill_rows
from ..statistics.key_kinds import KINDS, kind_number, seen_kinds_of
from .counter import Counter, path_of
from .index import Index, rank_keys

__all__ = ["GroupCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
# The smallest and the largest capacity of a new block, in rows. Between these bounds, a new block has space for as many
# rows as all earlier blocks together. A batch that needs a larger block gets one of its own size.
FIRST, LARGEST = 1 << 8, 1 << 20
# The maximum size of a row in bytes.
WIDEST = 41


class Block:
    """A block of memory for rows with the same columns and dtypes. Rows before `used` are valid, and never change."""

    def __init__(self, like: Mapping[str, Array], size: int) -> None:
        self.columns = {n: np.empty((size, *a.shape[1:]), a.dtype) for n, a in like.items()}
        self.used = np.zeros(1, np.int64)
        self.width = sum(a[:1].nbytes for a in self.columns.values())

    def count_free_rows(self) -> int:
        """Return the number of rows that can still be added to this block."""
        return len(self.columns["labels"]) - int(self.used[0])

    def stage_rows(self, rows: Mapping[str, Array]) -> Callable[[], Any]:
        """Write rows after the valid rows; return a function that makes the new rows valid."""
        first = int(self.used[0])
        end = first + len(rows["labels"])
        for name, column in rows.items():
            self.columns[name][first:end] = column
        return partial(self.used.__setitem__, 0, end)

    def rows(self) -> RawRows:
        """Return the valid rows."""
        return {n: a[: int(self.used[0])] for n, a in self.columns.items()}


class KeptRows:
    """All rows of a counter: unsorted in memory, sorted by group in states (`settled`), or on disk (`spilled`).

    Rows can be added, but not removed. To drop rows or to write them to disk, the counter creates a new `KeptRows`
    object, and replaces the old one in a single step. After an interrupt, the counter thus has either the old object or
    the new one.
    """

    def __init__(
        self, old: tuple[RawRows, ...] = (), settled: tuple[GroupRows, ...] = (), spilled: tuple[Any, ...] = ()
    ) -> None:
        self.old, self.settled, self.spilled = old, settled, spilled
        self.blocks: dict[tuple[Any, ...], list[Block]] = {}
        self.old_bytes = sum(a.nbytes for r in old for a in r.values()) + sum(s.nbytes for s in settled)

    def raws(self) -> tuple[RawRows, ...]:
        """Return the rows in memory that are not yet sorted by group."""
        return (*self.old, *(b.rows() for b in itertools.chain(*self.blocks.values()) if b.used[0]))

    @property
    def nbytes(self) -> int:
        """The memory used by the rows, in bytes; rows on disk use none."""
        return self.old_bytes + sum(int(b.used[0]) * b.width for blocks in self.blocks.values() for b in blocks)

    @property
    def rows(self) -> int:
        """The number of rows in memory."""
        return sum(len(r["labels"]) for r in self.raws()) + sum(int(s.row_counts.sum()) for s in self.settled)

    def stage_rows(self, rows: Mapping[str, Array]) -> Callable[[], Any]:
        """Write rows to a block; return the call that makes these rows valid."""
        blocks, n = self.blocks.setdefault(row_layout(rows), []), len(rows["labels"])
        if not blocks or blocks[-1].count_free_rows() < n:
            before = sum(int(b.used[0]) for b in blocks)
            blocks.append(Block(rows, max(n, min(max(before, FIRST), LARGEST))))
        return blocks[-1].stage_rows(rows)


class GroupCounter(Counter):
    """A counter that stores each row: its score, its label, and the ID of its group, such as the user.

    Parameters
    ----------
    state : GroupRows
        The initial state of the counter.
    index : Index
        The object that finds the slice of each row.
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
        return self.nbytes + WIDEST * rows

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
        """Write rows to a block; return the calls that make them part of the counted rows.

        Raises
        ------
        InvalidInputError
            If the group keys have a different type from earlier keys (such as strings after integers), or belong to the
            partition of another worker.
        MemoryLimitError
            If the rows exceed the memory limit, and `spill_dir` is not set.
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
                    "sliced group metrics do not support sample=, partition= or spill_dir=; leave out these settings",
                    column="group",
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

    def append_rows(self, columns: Mapping[str, Array]) -> Callable[[], Any]:
        """Write rows with integer keys to a block; return the call that makes them part of the counted rows.

        Unlike `stage_rows`, this method checks nothing. The caller must not add more than `free_rows` rows.
        """
        names = ("group", "ids"), ("y_score", "scores"), ("y_true", "labels"), ("sample_weight", "weights")
        return self.kept.stage_rows({name: columns[role] for role, name in names if role in columns})

    @property
    def free_rows(self) -> int:
        """The number of additional rows that certainly fit within the memory limit, even with the widest columns."""
        return max(self.statistic.memory_limit - self.nbytes, 0) // WIDEST

    def needs_preparation(self, rows: int) -> bool:
        """Return whether `rows` more rows may exceed the memory limit, which only `BatchUpdater.count_batch` checks."""
        return self.free_rows < rows

    def _check_partition(self, ids: Array) -> None:
        if self.statistic.partition:
            own_part, parts = self.statistic.partition
            foreign = np.flatnonzero(hashes_of(ids, SHARE) % np.uint64(parts) != own_part)
            if len(foreign):
                row = int(foreign[0])
                raise InvalidInputError(
                    f"group: expected only groups of partition=({own_part}, {parts}), found a group of another partition "
                    f"in row {row:,} ({len(foreign):,} such rows); route rows with sm.group_partition(ids, {parts})",
                    column="group",
                    row=row,
                    count=len(foreign),
                )

    def _reserve_bytes(self, size: int) -> None:
        """Write the earlier rows to disk if `size` more bytes would exceed the memory limit.

        Raises MemoryLimitError instead if `spill_dir` is not set. For a sample of rows, the limit is not checked here,
        because `reserve` makes the sample smaller.
        """
        limit, used = self.statistic.memory_limit, self.kept.nbytes + (0 if self.lone else self.before.nbytes)
        if used + size <= limit or self.statistic.sample_rows:
            return
        if self.statistic.spill_dir is None:
            raise MemoryLimitError(
                f"the rows of all groups would need {used + size:,} bytes, more than the memory_limit of {limit:,}; "
                f"{ADVICE}"
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
        """Drop groups from the sample until it contains at most `sample_rows` rows.

        Raising the level of the sample by one drops about half of its groups.
        """
        kept, most = self.kept, self.statistic.sample_rows
        if kept.rows <= most:
            return
        # A group is in the sample of a level if its hash begins with at least `level` zero bits.
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
        # Assign all attributes in one call into C, so that an interrupt cannot leave only some of them changed.
        self.__dict__.update(level=level, kept=fresh, flats=self.flats | {"dropped": dropped})

    # -- making a state -----------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the counted rows as a state.

        In a state without slices, the rows are not sorted until a result needs their order.
        """
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
        """Return a state with slices: the rows of this counter, sorted and merged with the state of all earlier rows."""
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
    """Return the rows whose group is in the sample, and the number of rows whose group is not.

    The sample of a level contains the groups whose hash begins with at least `level` zero bits.
    """
    if not level:
        return raw, 0
    keep = hashes_of(raw["ids"], SAMPLE) >> np.uint64(64 - level) == 0
    return {name: array[keep] for name, array in raw.items()}, len(keep) - int(keep.sum())
