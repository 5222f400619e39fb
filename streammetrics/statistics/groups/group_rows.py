"""The rows of every group, for metrics that need all rows of a group together, such as the AUC of each user."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import IncompatibleStateError, MemoryLimitError, StateFormatError
from ...numerics.score_buckets import decode_scores
from ...numerics.settings import is_partition, setting
from ...state.axes import Axis, Vocabulary
from ...state.cells import Cells
from ...state.declare import Flat
from ...state.fold import check_capacity, fold
from ...state.tally import Entries
from ..key_kinds import KINDS, KeyKinds, check_key_kinds, seen_kinds_of
from ..step import Like, Step
from .closed_sums import GROUP_WEIGHTS, Groups, SealedGroups, Sums, add_sums, sum_groups
from .partitions import (
    SHARE,
    RawRows,
    collect_groups,
    count_processors,
    hashes_of,
    map_in_threads,
    weights_of,
)
from .row_entries import ADVICE, entries_of
from .scan import SortedGroupRows, scan_groups, sorted_entries
from .scored_groups import ScoredGroups
from .spill import Spill, partition_reader, spill_rows

__all__ = ["GROUP_WEIGHTS", "SAMPLE", "GroupRows", "WaitingRows", "sample_level"]

Ints = NDArray[np.int64]

HASHED = [KINDS.index(kind) for kind in ("string", "bytes", "several", "decimal")]
# The maximum size, in bytes, of unsorted rows that are sorted together. A larger state cannot be saved, because a saved
# state contains all rows in sorted order. The results of a larger state are computed one partition of its groups at a
# time.
SAVED = 1 << 28
# Sorted entries contain row counts. Expanding them to single rows is allowed if there are at most this many rows, or at
# most four rows per entry on average.
SPREAD_ROWS = 1 << 22
# When groups are closed, about this many groups are added to the sums at a time, because all groups together could
# take gigabytes of memory.
MANY = 1 << 20
# The hash salt of group samples. It is part of saved states and must never change.
SAMPLE = 0x53414D504C450001


@dataclass(frozen=True)
class WaitingRows:
    """Counted rows that are not yet sorted by group.

    Sorting turns rows into entries: one entry with a row count for each group, score and label.

    Parameters
    ----------
    raws : tuple of dict
        The rows in memory, as one dict of columns for each block of rows.
    kinds : uint8 of shape (8,)
        A mask of the kinds of group keys that occur, such as integer or string (see `key_kinds.KINDS`).
    dropped : int64, optional
        The number of dropped rows by reason.
    rounded : bool
        Whether a weight was rounded to a multiple of 2**-60.
    level : int
        The level of the sample, if the state is a sample of groups: only groups whose hash begins with at least this
        many zero bits are kept.
    spilled : tuple of Spill
        The rows on disk.
    settled : tuple of GroupRows
        States that contribute further rows, which are already sorted into entries.
    """

    raws: tuple[RawRows, ...]
    kinds: NDArray[np.uint8]
    dropped: Ints | None = None
    rounded: bool = False
    level: int = 0
    spilled: tuple[Spill, ...] = ()
    settled: tuple[GroupRows, ...] = ()

    @cached_property
    def nbytes(self) -> int:
        """The memory taken by the rows, in bytes, excluding rows on disk."""
        return sum(a.nbytes for r in self.raws for a in r.values()) + sum(s.nbytes for s in self.settled)

    @cached_property
    def rows(self) -> int:
        """The number of rows, in memory and on disk."""
        rows = sum(len(r["labels"]) for r in self.raws) + sum(s.rows for s in self.spilled)
        return rows + sum(int(s.facts()["rows"]) for s in self.settled)

    @cached_property
    def weight_excess_bound(self) -> float:
        """An upper bound on the absolute difference between the total weight of the rows and the number of rows."""
        waiting = sum(float(np.abs(r["weights"] - 1).sum()) for r in self.raws if "weights" in r)
        return (
            waiting
            + sum(s.weight_excess_bound for s in self.settled)
            + sum(abs(s.weight - s.rows) for s in self.spilled)
        )

    @cached_property
    def positives(self) -> int:
        """The number of rows with a positive label, in memory and on disk."""
        positives = sum(int(np.count_nonzero(r["labels"])) for r in self.raws)
        positives += sum(s.positives for s in self.spilled)
        return positives + sum(int(s.facts()["positives"]) for s in self.settled)

    def merge_rows(self, other: WaitingRows) -> WaitingRows:
        """Return a `WaitingRows` object that contains the rows of this object and of `other`."""
        dropped = [d for d in (self.dropped, other.dropped) if d is not None]
        return WaitingRows(
            self.raws + other.raws,
            np.maximum(self.kinds, other.kinds),
            np.sum(dropped, axis=0, dtype=np.int64) if dropped else None,
            self.rounded or other.rounded,
            max(self.level, other.level),
            self.spilled + other.spilled,
            self.settled + other.settled,
        )


class GroupRows(KeyKinds, ScoredGroups, tag="group_rows"):
    """The rows of every group, stored as the number and the weight of the rows with each score and label.

    Rows of a group may arrive at any time, so the state keeps the rows of all groups. `close_groups` turns them into
    sums over groups.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        The scale of the scores.
    missing, missing_values
        How rows with missing group IDs are treated, and which values count as missing; see `sm.extend.group`.
    partition : (i, n), optional
        The index of this worker and the number of workers. The worker counts only groups whose hash is i modulo n. By
        default all groups are counted.
    sample_rows : int
        The maximum number of rows in a random sample of whole groups. The sample consists of the groups with the
        smallest hashes. With 0, all groups are kept.
    memory_limit : int
        The maximum memory for the rows, in bytes. Without `spill_dir`, rows beyond this limit raise MemoryLimitError.
    spill_dir : str, optional
        A folder to which rows are written when they exceed `memory_limit`.

    Notes
    -----
    Counted rows are kept unsorted. A row takes 13 bytes with an int64 group and a float32 score, and up to 33 bytes with a
    string group, a float64 score and a weight; slices add 4 bytes. Sums over groups are computed from these rows, one
    partition of the groups at a time. The rows are sorted into entries (one for each group, score and label) only for
    state files and comparisons. An entry takes 24 bytes, or 40 with weights, and a group another 24 bytes.
    """

    partition: tuple[int, ...] = setting(default=())
    sample_rows: int = setting(default=0, low=0)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)
    spill_dir: str | None = setting(default=None, operational=True)

    key_role = "group"
    level = Flat(form="register", front=True, optional=True)

    row_parts = ("scores",)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*super().reasons, *(("sample",) if self.sample_rows else ()))

    def steps(self, like: Like) -> Iterable[Step]:
        return [self.kind_step(like)]

    # -- unsorted rows ------------------------------------------------------------------------------------------------

    def from_waiting(self, waiting: WaitingRows) -> Self:
        """Return a state that keeps unsorted rows, and sorts them when its attribute `cells` is first read."""
        # `cells` is a cached property. Remove its value, so that the next read of `cells` computes a new value.
        new = super().with_cells(self.make_empty_cells(()))
        del new.__dict__["cells"]
        new.__dict__["waiting"] = waiting
        return new

    @property
    def waiting(self) -> WaitingRows | None:
        """The unsorted rows; None if the rows of the state are already sorted."""
        return self.__dict__.get("waiting")

    @cached_property
    def cells(self) -> Cells:
        waiting = self.waiting
        if waiting is None:
            return self.make_empty_cells(())
        if waiting.nbytes > SAVED or waiting.spilled:
            on_disk = " and more rows on disk" if waiting.spilled else ""
            raise MemoryLimitError(
                f"open groups with {waiting.nbytes:,} bytes of rows in memory{on_disk} "
                f"cannot be saved; give each of n workers its own partition=(i, n) and save the result of seal(), sort "
                f'the log by group (grouped="sorted"), or pass sample=True for an estimate'
            )
        inner, entries = entries_of(waiting.raws, self.real)
        state = self._from_entries(inner, entries, waiting)
        return (fold([state, *waiting.settled]) if waiting.settled else state).cells

    def _from_entries(self, inner: Ints, entries: Entries, waiting: WaitingRows) -> Self:
        """Return a state without axes (slices, windows) from sorted rows.

        Parameters
        ----------
        inner : int64 array
            Three numbers for each group: the index of its slice, which is 0 without axes, and the two 64-bit words of
            its ID.
        entries : Entries
            The number of rows with each combination of group, score and label.
        waiting : WaitingRows
            The rows before sorting. All other content of the state, such as the number of dropped rows, is taken from
            this object.
        """
        flats: dict[str, Any] = {"kinds": waiting.kinds[None]}
        if waiting.level:
            flats["level"] = np.array([waiting.level], np.uint8)
        if waiting.dropped is not None:
            flats["dropped"] = waiting.dropped[None]
        if waiting.rounded:
            flats["rounded"] = np.ones(1, np.uint8)
        return self.with_cells(
            Cells((), np.zeros((1, 0), np.int64), (), inner, None, flats, {"scores": entries})
        ).canonicalize()

    @property
    def axes(self) -> tuple[Axis, ...]:
        return () if self.waiting is not None else super().axes

    def __len__(self) -> int:
        waiting = self.waiting
        return super().__len__() if waiting is None else int(waiting.rows > 0 or waiting.dropped is not None)

    @property
    def nbytes(self) -> int:
        waiting = self.waiting
        return super().nbytes if waiting is None else waiting.nbytes

    def empty_copy(self, axes: tuple[Axis, ...] | None = None) -> Self:
        return super().empty_copy(self.axes if axes is None else axes)

    def read_part(self, flat: Flat) -> Any:
        waiting = self.waiting
        if waiting is None or "cells" in self.__dict__:
            return super().read_part(flat)
        if flat.name == "level":
            return np.uint8(waiting.level) if waiting.level else None
        if flat.name == "rounded":
            return np.uint8(1) if waiting.rounded else None
        return {"kinds": waiting.kinds, "dropped": waiting.dropped}.get(flat.name)

    def weight_bound(self) -> float:
        waiting = self.waiting
        if waiting is None:
            return super().weight_bound()
        settled = sum(s.weight_bound() for s in waiting.settled) + sum(s.weight for s in waiting.spilled)
        return settled + sum(float(weights_of(r).sum()) for r in waiting.raws)

    # -- merging, and samples -----------------------------------------------------------------------------------------

    def merge(self, *others: Self) -> Self:
        if self.axes or self.sample_rows or all(s.waiting is None for s in (self, *others)):
            return super().merge(*others)
        waiting = self.to_waiting()
        for other in others:
            self._check_mergeable(other)
            check_key_kinds(self, other)
            waiting = waiting.merge_rows(other.to_waiting())
        check_capacity(self, waiting.rows, waiting.weight_excess_bound)
        if waiting.nbytes > self.memory_limit:
            if self.spill_dir is None:
                raise MemoryLimitError(
                    f"the rows of all groups would need {waiting.nbytes:,} bytes, more than the memory_limit of "
                    f"{self.memory_limit:,}; {ADVICE}"
                )
            waiting = replace(waiting, raws=(), spilled=spill_rows(self.spill_dir, waiting.raws, waiting.spilled))
        return self.from_waiting(waiting)

    @property
    def can_subtract(self) -> bool:
        return not self.sample_rows and super().can_subtract

    def subtract(self, other: Self) -> Self:
        if self.sample_rows:
            raise IncompatibleStateError(
                "rows cannot be subtracted with sample=True, because the groups in a sample depend on all rows"
            )
        return super().subtract(other)

    def to_waiting(self) -> WaitingRows:
        """Return the content of this state as `WaitingRows`; the state must not have axes."""
        if self.waiting is not None:
            return self.waiting
        flats = self.cells.flats
        if not len(self):
            return WaitingRows((), np.zeros(len(KINDS), np.uint8))
        dropped = flats["dropped"][0] if "dropped" in flats else None
        level = int(flats["level"][0]) if "level" in flats else 0
        return WaitingRows((), flats["kinds"][0], dropped, "rounded" in flats, level, (), (self.without_front_parts(),))

    def without_front_parts(self) -> Self:
        """Return a state with the rows of the groups, but without other counts such as the number of dropped rows."""
        return self.with_cells(replace(self.cells, flats={"kinds": self.cells.flats["kinds"]}))

    def canonicalize(self, parts: Mapping[str, Any] | None = None) -> Self:
        state = super().canonicalize(parts)
        return state._fit_sample(self.sample_rows) if self.sample_rows and len(state) else state

    def _fit_sample(self, most: int) -> Self:
        """Reduce the sample of groups to at most `most` rows in total, and count all other rows as dropped."""
        # At level L, the sample contains the groups whose hash begins with at least L zero bits. The lowest level at
        # which these groups have at most `most` rows depends only on the set of rows, not on their order.
        rows_by_zeros = np.zeros(65, np.int64)
        np.add.at(rows_by_zeros, self.leading_zeros, self.inner_row_counts)
        level = int(self.read_cells(type(self).level).max(initial=0))
        return self.drop_beyond(sample_level(rows_by_zeros, level, most))

    def drop_beyond(self, level: int) -> Self:
        """Drop the rows of groups whose hash has fewer leading zero bits than `level`, and count them as dropped."""
        is_dropped = self.leading_zeros < level
        if level == int(self.read_cells(type(self).level).max(initial=0)) and not is_dropped.any():
            return self
        dropped = self.read_cells(type(self).dropped).copy()
        dropped[:, self.reasons.index("sample")] += int(self.inner_row_counts[is_dropped].sum())
        flats = {**self.cells.flats, "level": np.full(len(self), level, np.uint8), "dropped": dropped}
        kept = self.with_cells(replace(self.cells, flats=flats))
        return super(GroupRows, kept.take_inner(np.flatnonzero(~is_dropped))).canonicalize()

    @cached_property
    def leading_zeros(self) -> Ints:
        """The number of leading zero bits in the hash of each group, which decides whether a sample keeps the group."""
        return count_leading_zeros(hashes_of(self.ids, SAMPLE))

    @property
    def ids(self) -> Ints:
        """The ID of each group: a 1-dimensional array, or one of shape (groups, 2) if an ID has two 64-bit words."""
        inner = self.cells.inner_keys
        assert inner is not None
        return inner[:, 1:] if inner[:, 2].any() else np.ascontiguousarray(inner[:, 1])

    # -- reading ------------------------------------------------------------------------------------------------------

    def groups(self) -> Groups:
        """Return the weights of negatives, positives and pairs of every group in a state with one cell (slice)."""
        return Groups.concat(self._iter_groups())

    def _iter_groups(self) -> Iterator[Groups]:
        """Yield the weights of negatives, positives and pairs of every group.

        If rows are on disk, yield a separate object for each partition of the groups. Rows are sorted by one thread per
        processor.
        """
        waiting = self.waiting
        if waiting is None or not all(s.can_expand_rows() for s in waiting.settled):
            self._check_one_cell()
            yield scan_groups(sorted_entries(self.cells.tallies["scores"]), len(self.cells))
            return
        raws = [*waiting.raws, *(expand_entries(s) for s in waiting.settled)]
        if not waiting.spilled:
            yield collect_groups(raws, count_processors())
            return
        readers = [partition_reader(r) for r in raws]

        def collect_partition(p: int) -> Groups:
            return collect_groups(
                [*(part(p) for part in readers), *(r for s in waiting.spilled for r in s.read(p))], workers=1
            )

        yield from map_in_threads(collect_partition, Spill.PARTS, count_processors())

    def sorted_rows(self) -> Iterator[SortedGroupRows]:
        """Yield the sorted rows of a state with one cell (slice): all together or, if there are many, in partitions.

        All rows of a group are in one `SortedGroupRows` object.
        """
        waiting = self.waiting
        if waiting is None or not all(s.can_expand_rows() for s in waiting.settled):
            self._check_one_cell()
            yield sorted_entries(self.cells.tallies["scores"])
            return
        raws = [*waiting.raws, *(expand_entries(s) for s in waiting.settled)]
        if not waiting.spilled and waiting.nbytes <= SAVED:
            yield sorted_entries(entries_of(raws, self.real)[1])
            return
        readers = [partition_reader(r) for r in raws]
        for p in range(Spill.PARTS):
            rows = [*(part(p) for part in readers), *(r for s in waiting.spilled for r in s.read(p))]
            yield sorted_entries(entries_of(rows, self.real)[1])

    def can_expand_rows(self) -> bool:
        """Return whether the sorted entries can be expanded to single rows.

        Entries can be expanded if rows have no weights, and if single rows do not take much more memory than entries.
        """
        entries = self.cells.tallies["scores"]
        return entries.excess is None and int(entries.int64_counts.sum()) <= max(SPREAD_ROWS, 4 * len(entries))

    def close_groups(self) -> SealedGroups:
        """Close all groups: return a state that contains only the exact sums over the groups of each slice."""
        closed: SealedGroups | None = self.__dict__.get("closed")
        if closed is None:
            closed = self.__dict__["closed"] = (
                self._close_waiting() if self.waiting is not None else self._close_cells()
            )
        return closed

    def _close_waiting(self) -> SealedGroups:
        total, pending = sum_groups(Groups.zeros()), list[Groups]()
        for groups in self._iter_groups():
            pending.append(groups)
            if sum(len(g.wins) for g in pending) > MANY:
                total, pending = add_sums(total, sum_groups(Groups.concat(pending))), []
        total = add_sums(total, sum_groups(Groups.concat(pending)))
        facts = self.facts()
        rows = np.array([[facts["rows"] - facts["positives"], facts["positives"]]])
        return self._make_sealed({n: a[None] for n, a in total.items()} | {"rows": rows}, 1)

    def _close_cells(self) -> SealedGroups:
        cells, entries = self.cells, self.cells.tallies["scores"]
        assert cells.inner_keys is not None
        # A sealed state records its partition in each cell (such as a slice), so it needs at least one cell. A state
        # without axes therefore gets one cell, even if it has no rows.
        fronts = len(self) if self.axes else 1
        groups = scan_groups(sorted_entries(entries), len(cells))
        bounds = np.searchsorted(cells.inner_keys[:, 0], np.arange(fronts + 1))
        each = [sum_groups(Groups(*(g[a:b] for g in groups))) for a, b in itertools.pairwise(bounds)]
        none = sum_groups(Groups.zeros())
        sums: Sums = {n: np.stack([e[n] for e in each]) if each else a[None][:0] for n, a in none.items()}
        rows = np.zeros((fronts, 2), np.int64)
        np.add.at(
            rows,
            (cells.inner_keys[entries.cells, 0], (entries.codes & np.uint64(1)).astype(np.int64)),
            entries.int64_counts,
        )
        return self._make_sealed(sums | {"rows": rows}, fronts)

    def _make_sealed(self, sums: Sums, cells: int) -> SealedGroups:
        part, parts = self.partition or (0, 1)
        keys, words = np.zeros((cells, 0), np.int64), tuple[Vocabulary, ...]()
        if self.axes:
            keys, words = self.cells.keys, self.cells.vocabularies
        flats = sums | {"sealed": np.zeros((cells, parts), np.int64)}
        flats["sealed"][:, part] = 1
        waiting, closed = self.waiting, SealedGroups(partitions=parts)
        if waiting is None:
            flats |= {n: a for n, a in self.cells.flats.items() if n == "rounded"}
        elif waiting.rounded:
            flats["rounded"] = np.ones(1, np.uint8)
        dropped = (
            self.cells.flats.get("dropped")
            if waiting is None
            else None
            if waiting.dropped is None
            else waiting.dropped[None]
        )
        if dropped is not None:
            flats["dropped"] = np.zeros((cells, len(closed.reasons)), np.int64)
            flats["dropped"][:, [closed.reasons.index(r) for r in self.reasons]] = dropped
        return closed.with_cells(Cells(self.axes, keys, words, None, None, flats, {}))

    @property
    def share(self) -> float:
        """The expected share of all groups that the sample keeps."""
        waiting = self.waiting
        level = waiting.level if waiting is not None else int(self.read_cells(type(self).level).max(initial=0))
        return 0.5**level

    def describe_storage(self) -> dict[str, Any]:
        """Return storage details for `explain`: memory use, number of rows on disk, and hash collision probability.

        IDs such as strings are hashed to 128 bits. Two groups with the same hash would be counted as one.
        """
        groups, waiting = int(self.close_groups().groups.sum()), self.waiting
        hashed = bool(seen_kinds_of(self)[HASHED].any())
        return {
            "memory": self.nbytes,
            "spilled_rows": sum(s.rows for s in waiting.spilled) if waiting is not None else 0,
            "collision_probability": math.ldexp(groups * (groups - 1) / 2, -128) if hashed else 0.0,
        }

    @property
    def positive_counts(self) -> Ints:
        if self.waiting is not None:
            return np.array([self.waiting.positives])
        entries, inner, out = self.cells.tallies["scores"], self.cells.inner_keys, np.zeros(len(self), np.int64)
        assert inner is not None
        positive = (entries.codes & np.uint64(1)) == 1
        np.add.at(out, inner[entries.cells[positive], 0], entries.int64_counts[positive])
        return out

    def facts(self) -> dict[str, Any]:
        waiting = self.waiting
        if waiting is not None:
            return {"rows": waiting.rows, "positives": waiting.positives}
        entries = self.cells.tallies["scores"]
        positive = (entries.codes & np.uint64(1)) == 1
        return {"rows": int(entries.int64_counts.sum()), "positives": int(entries.int64_counts[positive].sum())}

    def check(self) -> None:
        super().check()
        kinds = self.read_cells_named("kinds")
        if len(kinds) and (kinds.sum(axis=1).max() > 1 or (~kinds.any(axis=1) & (self.row_counts > 0)).any()):
            raise StateFormatError("the state is corrupt: GroupRows.kinds does not contain the one kind of the keys")
        levels, inner = self.read_cells_named("level"), self.cells.inner_keys
        assert inner is not None
        if levels.any() and (
            not self.sample_rows or levels.max() > 64 or (self.leading_zeros < levels[inner[:, 0]]).any()
        ):
            raise StateFormatError(
                "the state is corrupt: GroupRows.level is not a valid level of a sample, or excludes a group of the sample"
            )
        if self.partition and not is_partition(self.partition):
            raise StateFormatError(
                f"the state is corrupt: expected a partition (i, n) with 0 <= i < n, found {self.partition}"
            )
        if self.partition and (hashes_of(self.ids, SHARE) % np.uint64(self.partition[1]) != self.partition[0]).any():
            raise StateFormatError("the state is corrupt: GroupRows contains groups of another partition")

    def close(self) -> None:
        """Close the files on disk and free their space. The rows in these files are lost."""
        for spilled in self.waiting.spilled if self.waiting is not None else ():
            spilled.close()


# -- entries ---------------------------------------------------------------------------------------------------------


def expand_entries(state: GroupRows) -> RawRows:
    """Expand the sorted entries of a state without weights to single rows, and return their columns."""
    entries = state.cells.tallies["scores"]
    rows: SortedGroupRows = sorted_entries(entries)
    scores = decode_scores(rows.keys, state.real)
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32)
    scores = narrow if np.array_equal(narrow, scores) else scores  # type: ignore[assignment]
    columns = {"ids": state.ids[rows.numbers], "scores": scores, "labels": rows.labels}
    return {n: np.repeat(c, entries.int64_counts, axis=0) for n, c in columns.items()}


# -- samples ------------------------------------------------------------------------------------------


def count_leading_zeros(hashes: NDArray[np.uint64]) -> Ints:
    """Return the number of leading zero bits of each hash."""
    out = np.full(len(hashes), 64, np.int64)
    rest = hashes.copy()
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(64 - step) != 0
        out_step = np.where(high, 0, step)
        rest = np.where(high, rest, rest << np.uint64(step))
        out += out_step
    return np.where(hashes == 0, 64, out - 64)


def sample_level(rows_by_zeros: Ints, level: int, most: int) -> int:
    """Return the lowest level at which the sampled groups have at most `most` rows.

    At level L, the sample contains the groups whose hash begins with at least L zero bits.

    Parameters
    ----------
    rows_by_zeros : int64 array
        The number of rows in the groups whose hash has 0, 1, 2, ... leading zero bits.
    level : int
        The current level; the result is never lower.
    most : int
        The maximum number of rows.
    """
    beyond = np.cumsum(rows_by_zeros[::-1])[::-1]
    enough = np.flatnonzero(beyond <= most)
    return max(level, int(enough[0]) if len(enough) else 64)
