"""Rows of groups while they come: they wait as they are, in blocks, which do not change once they are full."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..errors import InvalidInputError, MemoryLimitError
from ..numerics.kernel_registry import kernel
from ..state import retention as policy
from ..state.cells import Cells
from ..state.fold import ascending, fold
from ..state.state import State
from ..statistics.groups.rows import (
    ADVICE,
    SAMPLE,
    GroupRows,
    WaitingRows,
    entries_of,
    level_of,
)
from ..statistics.groups.solve import SHARE, Raw, halves, hashes_of
from ..statistics.groups.spill import joined, kind_of_rows, written
from ..statistics.key_kinds import KINDS, kind_of, kinds_of
from .counter import Counter, _ranked, path_of
from .index import Index

__all__ = ["GroupCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
FIRST, LARGEST = 1 << 8, 1 << 20  # rows of a block: as many as there are before it, within these


class Block:
    """Rows of one kind that wait: those before `used` are there, and do not change."""

    def __init__(self, like: Mapping[str, Array], size: int) -> None:
        self.columns = {n: np.empty((size, *a.shape[1:]), a.dtype) for n, a in like.items()}
        self.used = np.zeros(1, np.int64)
        self.width = sum(a[:1].nbytes for a in self.columns.values())

    def room(self) -> int:
        """How many more rows it takes."""
        return len(self.columns["labels"]) - int(self.used[0])

    def put(self, rows: Mapping[str, Array]) -> Callable[[], Any]:
        """Write rows behind those that are there; they are there once the call that is returned is made."""
        first = int(self.used[0])
        end = first + len(rows["labels"])
        for name, column in rows.items():
            self.columns[name][first:end] = column
        return partial(self.used.__setitem__, 0, end)

    def rows(self) -> Raw:
        """The rows that are there."""
        return {n: a[: int(self.used[0])] for n, a in self.columns.items()}


class KeptRows:
    """All rows that a counter holds; where something else becomes of them, another one takes its place."""

    def __init__(
        self, old: tuple[Raw, ...] = (), settled: tuple[GroupRows, ...] = (), spilled: tuple[Any, ...] = ()
    ) -> None:
        self.old, self.settled, self.spilled = old, settled, spilled
        self.blocks: dict[tuple[Any, ...], list[Block]] = {}
        self.before = sum(a.nbytes for r in old for a in r.values()) + sum(s.nbytes for s in settled)

    def raws(self) -> tuple[Raw, ...]:
        """The rows in memory."""
        return (*self.old, *(b.rows() for b in itertools.chain(*self.blocks.values()) if b.used[0]))

    @property
    def nbytes(self) -> int:
        """Bytes of rows in memory."""
        return self.before + sum(int(b.used[0]) * b.width for held in self.blocks.values() for b in held)

    @property
    def rows(self) -> int:
        """How many rows are in memory."""
        return sum(len(r["labels"]) for r in self.raws()) + sum(int(s.rows_seen.sum()) for s in self.settled)

    def put(self, rows: Mapping[str, Array]) -> Callable[[], Any]:
        """Write rows where nobody sees them yet; return the call after which they are there."""
        held, n = self.blocks.setdefault(kind_of_rows(rows), []), len(rows["labels"])
        if not held or held[-1].room() < n:
            before = sum(int(b.used[0]) for b in held)
            held.append(Block(rows, max(n, min(max(before, FIRST), LARGEST))))
        return held[-1].put(rows)


class GroupCounter(Counter):
    """Rows of groups that are being counted.

    Parameters
    ----------
    state : GroupRows
        What was seen before.
    index : Index
        Where front cells are numbered.
    """

    statistic: GroupRows

    def __init__(self, state: GroupRows, index: Index) -> None:
        self.statistic, self.index = state.empty(), index
        self.read_facts()
        self.front = self.inner = path_of(state.axes)
        self.lone = not self.front
        self.hot, self.folded, self.before = {}, np.zeros(0, np.uint8), state.empty()
        self.flats = {"kinds": np.zeros((1, len(KINDS)), np.uint8)}
        self.level, self.kept = 0, KeptRows()
        if not self.lone:
            self.before = state
            return
        held = state.as_waiting()
        self.flats["kinds"][0], self.level = held.kinds, held.level
        if held.dropped is not None:
            self.flats["dropped"] = held.dropped[None].copy()
        if held.rounded:
            self.flats["rounded"] = np.ones(1, np.uint8)
        self.kept = KeptRows(held.raws, held.settled, held.spilled)

    @property
    def fixed(self) -> bool:
        return False

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + self.before.nbytes + sum(a.nbytes for a in self.flats.values())

    def need(self, rows: int) -> int:
        return self.nbytes + 41 * rows

    def room(self, rows: int, *, weighted: bool) -> bool:
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

    # -- rows in ------------------------------------------------------------------------------------------------------

    def absorbed(self, columns: Mapping[str, Column], at: Ints, rows: int) -> list[Callable[[], Any]]:
        """Write rows where nobody sees them yet; return the calls after which they are there.

        Raises
        ------
        InvalidInputError
            Keys are of another kind than those so far, or belong to another worker.
        MemoryLimitError
            There is no room for them.
        """
        if not rows:
            return []
        ids = columns["group"]
        seen = np.maximum(self.flats["kinds"].max(axis=0), kinds_of(self.before))
        kind = kind_of(ids.source, seen)
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
            fresh, gone = sampled(fresh, self.level)
            calls += self._counted(gone)
        if len(fresh["labels"]):
            self._fit(sum(a.nbytes for a in fresh.values()))
            calls.append(self.kept.put(fresh))
        where: Any = (at, kind) if len(at) else (0, kind)
        return [*calls, partial(self.flats["kinds"].__setitem__, where, 1)]

    def _check_partition(self, ids: Array) -> None:
        if self.statistic.partition:
            mine, of = self.statistic.partition
            foreign = np.flatnonzero(hashes_of(ids, SHARE) % np.uint64(of) != mine)
            if len(foreign):
                row = int(foreign[0])
                raise InvalidInputError(
                    f"group: row {row:,} belongs to another worker than partition=({mine}, {of}) "
                    f"({len(foreign):,} rows do); route rows with sm.group_partition(ids, {of})",
                    column="group",
                    row=row,
                    count=len(foreign),
                )

    def _fit(self, size: int) -> None:
        """Make room for so many bytes: on disk, if there is one."""
        limit, held = self.statistic.memory_limit, self.kept.nbytes + (0 if self.lone else self.before.nbytes)
        if held + size <= limit or self.statistic.sample_rows:
            return
        if self.statistic.spill_dir is None:
            raise MemoryLimitError(
                f"GroupRows would need {held + size:,} bytes; its memory_limit is {limit:,}: {ADVICE}"
            )
        kept = self.kept
        self.kept = KeptRows((), kept.settled, written(self.statistic.spill_dir, kept.raws(), kept.spilled))

    # -- samples ------------------------------------------------------------------------------------------------------

    def _counted(self, gone: int) -> list[Callable[[], Any]]:
        if not gone:
            return []
        dropped, at = self._dropped(), (0, self.statistic.reasons.index("sample"))
        return [partial(dropped.__setitem__, at, int(dropped[at]) + gone)]

    def _dropped(self) -> Ints:
        self.held(type(self.statistic).dropped)
        return self.flats["dropped"]

    def _thin(self) -> None:
        """Leave out groups until those that are left are within the sample."""
        kept, most = self.kept, self.statistic.sample_rows
        if kept.rows <= most:
            return
        raws, found = joined(kept.raws()), np.zeros(65, np.int64)
        for raw in raws:
            kernel("group_rows:count_zeros")(*halves(raw["ids"]), np.uint64(SAMPLE), found)
        for state in kept.settled:
            np.add.at(found, state.zeros, state.rows_behind)
        level = level_of(found, self.level, most)
        dropped = self._dropped().copy()
        dropped[0, self.statistic.reasons.index("sample")] += int(found[:level].sum())
        fresh = KeptRows(tuple(sampled(r, level)[0] for r in raws), tuple(s.beyond(level).bare() for s in kept.settled))
        self.__dict__.update(level=level, kept=fresh, flats=self.flats | {"dropped": dropped})

    # -- to a state ---------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What was counted; rows of a lone state wait on, until somebody asks for more than sums over groups."""
        if not self.lone:
            return self._sliced()
        if self.statistic.sample_rows:
            self._thin()
        kept, dropped = self.kept, self.flats.get("dropped")
        gone = dropped[0].copy() if dropped is not None and dropped.any() else None
        rounded = "rounded" in self.flats and bool(self.flats["rounded"].any())
        return self.statistic.awaiting(
            WaitingRows(
                kept.raws(), self.flats["kinds"][0].copy(), gone, rounded, self.level, kept.spilled, kept.settled
            )
        )

    def _sliced(self) -> State:
        """Entries of rows that wait, added to those from before."""
        index, statistic = self.index, self.statistic
        count = index.count(self.front)
        words, keys = _ranked(index, self.front, index.codes(self.front)[:, : len(self.front)])
        order = ascending(keys)
        to = np.empty(len(order), np.int64)
        to[order] = np.arange(len(order))
        raws = self.kept.raws()
        fronts = to[np.concatenate([np.zeros(0, np.int64), *(r["cells"] for r in raws)])]
        inner, entries = entries_of(raws, statistic.real, fronts)
        flats = {n: a[:count].take(order, axis=0) for n, a in self.flats.items()}
        made = statistic.holding(
            Cells(statistic.axes, keys.take(order, axis=0), words, inner, None, flats, {"scores": entries})
        ).present()
        whole: GroupRows = policy.settled(fold([self.before, made]) if len(self.before) else made)
        none = {n: statistic.parts()[n].empty(statistic, len(a)) for n, a in self.flats.items()}
        self.__dict__.update(before=whole, kept=KeptRows(), flats=none)
        return whole

    def reset(self) -> Counter:
        return GroupCounter(self.statistic.empty(), Index())


def sampled(raw: Raw, level: int) -> tuple[Raw, int]:
    """Leave out groups beyond a level; return also how many rows that were."""
    if not level:
        return raw, 0
    keep = hashes_of(raw["ids"], SAMPLE) >> np.uint64(64 - level) == 0
    return {name: array[keep] for name, array in raw.items()}, len(keep) - int(keep.sum())
