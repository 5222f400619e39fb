"""Rows by group: how many rows of each score and label, and what they weigh, in every group."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import IncompatibleStateError, MemoryLimitError, StateFormatError
from ...numerics.buckets import exact_bits, key_of, score_of
from ...numerics.exact import carry_fixed
from ...numerics.settings import is_partition, setting
from ...state.axes import Axis, Vocabulary
from ...state.cells import Cells
from ...state.declare import Flat
from ...state.fold import check_room, fold
from ...state.tally import Entries, canonical
from ..key_kinds import KINDS, KeyKinds, check_key_kinds, kinds_of
from .closed import GROUP_WEIGHTS, Groups, SealedGroups, Sums, added, summed
from .scan import Sorted, fixed_weights, of_entries, scanned
from .scored import ScoredGroups
from .solve import SHARE, Raw, halves, hashes_of, in_threads, processors, solve, weights_of, widened
from .spill import Spill, split, written

__all__ = ["ADVICE", "GROUP_WEIGHTS", "SAMPLE", "GroupRows", "WaitingRows", "entries_of", "level_of"]

Ints = NDArray[np.int64]

HASHED = [KINDS.index(kind) for kind in ("string", "bytes", "several", "decimal")]
SAVED = 1 << 28  # bytes of rows that are written as they are
SPREAD_ROWS = 1 << 22  # rows that entries may become, whatever these are
MANY = 1 << 20  # groups whose sums are made at once: of all of a spill they would take gigabytes, too
SAMPLE = 0x53414D504C450001  # a salt; for ever
ADVICE = (
    'give spill_dir= (rows go to disk), sort the log by group (grouped="sorted"), give n workers a partition=(i, n) '
    "each, or take a sample=True (an estimate)"
)


@dataclass(frozen=True)
class WaitingRows:
    """Rows that wait to be asked for, as they came.

    Parameters
    ----------
    raws : tuple of dict
        Rows in memory, by what they are.
    kinds : uint8 of shape (8,)
        Which kinds of keys were seen.
    dropped : int64, optional
        Rows that were left out, by reason.
    rounded : bool
        Whether a weight has bits that sums do not have.
    level : int
        Of a sample: how many zeros the hash of a group begins with.
    spilled : tuple of Spill
        Rows on disk.
    settled : tuple of GroupRows
        Others, that are entries already.
    """

    raws: tuple[Raw, ...]
    kinds: NDArray[np.uint8]
    dropped: Ints | None = None
    rounded: bool = False
    level: int = 0
    spilled: tuple[Spill, ...] = ()
    settled: tuple[GroupRows, ...] = ()

    @cached_property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(a.nbytes for r in self.raws for a in r.values()) + sum(s.nbytes for s in self.settled)

    @cached_property
    def rows(self) -> int:
        """How many rows."""
        held = sum(len(r["labels"]) for r in self.raws) + sum(s.rows for s in self.spilled)
        return held + sum(int(s.facts()["rows"]) for s in self.settled)

    @cached_property
    def weight_beside(self) -> float:
        """How far the weight of all rows is from their number, at most."""
        waiting = sum(float(np.abs(r["weights"] - 1).sum()) for r in self.raws if "weights" in r)
        return waiting + sum(s.weight_beside for s in self.settled) + sum(abs(s.weight - s.rows) for s in self.spilled)

    @cached_property
    def positives(self) -> int:
        """How many of them are positive."""
        held = sum(int(np.count_nonzero(r["labels"])) for r in self.raws)
        held += sum(s.positives for s in self.spilled)
        return held + sum(int(s.facts()["positives"]) for s in self.settled)

    def joined(self, other: WaitingRows) -> WaitingRows:
        """Rows of both."""
        gone = [d for d in (self.dropped, other.dropped) if d is not None]
        return WaitingRows(
            self.raws + other.raws,
            np.maximum(self.kinds, other.kinds),
            np.sum(gone, axis=0, dtype=np.int64) if gone else None,
            self.rounded or other.rounded,
            max(self.level, other.level),
            self.spilled + other.spilled,
            self.settled + other.settled,
        )


class GroupRows(KeyKinds, ScoredGroups, tag="group_rows"):
    """The rows of every group: how many of each score and label, and what they weigh.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        What scores are legal.
    missing, missing_values
        As `sm.extend.group` takes them.
    partition : (i, n), optional
        This worker holds only groups whose hash is i modulo n.
    sample_rows : int
        Keep whole groups of smallest hash, whose rows are no more than that; 0 for all groups.
    memory_limit : int
        Bytes of rows in memory.
    spill_dir : str, optional
        A folder for the rows beyond.

    Notes
    -----
    While rows come they wait as they are: 13 bytes (int64 group, float32 score), up to 33 (a text, float64, a weight), and
    4 more in slices. Sums over groups are made of those, partition by partition. Entries, sorted by group and score, are
    made for bytes and comparisons: 24 bytes each, 40 with weights, and 24 a group.
    """

    partition: tuple[int, ...] = setting(default=())
    sample_rows: int = setting(default=0, low=0)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)
    spill_dir: str | None = setting(default=None, operational=True)

    keyed = "group"
    level = Flat(form="register", front=True, optional=True)

    counted = ("scores",)

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*super().reasons, *(("sample",) if self.sample_rows else ()))

    # -- rows that wait -----------------------------------------------------------------------------------------------

    def awaiting(self, waiting: WaitingRows) -> Self:
        """Return a state of rows that wait; entries are made of them when they are asked for."""
        new = super().holding(self.no_cells(()))
        del new.__dict__["cells"]
        new.__dict__["waiting"] = waiting
        return new

    @property
    def waiting(self) -> WaitingRows | None:
        """The rows, if they still are as they came."""
        return self.__dict__.get("waiting")

    @cached_property
    def cells(self) -> Cells:
        held = self.waiting
        if held is None:
            return self.no_cells(())
        if held.nbytes > SAVED or held.spilled:
            raise MemoryLimitError(
                f"{held.nbytes:,} bytes of open groups{' and a spill' if held.spilled else ''} are not written as they "
                f"are: give each worker whole groups, partition=(i, n), and save seal(); or sort the log by group "
                f'(grouped="sorted"), or take a sample=True'
            )
        inner, entries = entries_of(held.raws, self.real)
        made = self.of_rows(inner, entries, held)
        return (fold([made, *held.settled]) if held.settled else made).cells

    def of_rows(self, inner: Ints, entries: Entries, held: WaitingRows) -> Self:
        """Return a state without axes of such entries."""
        flats: dict[str, Any] = {"kinds": held.kinds[None]}
        if held.level:
            flats["level"] = np.array([held.level], np.uint8)
        if held.dropped is not None:
            flats["dropped"] = held.dropped[None]
        if held.rounded:
            flats["rounded"] = np.ones(1, np.uint8)
        return self.holding(
            Cells((), np.zeros((1, 0), np.int64), (), inner, None, flats, {"scores": entries})
        ).present()

    @property
    def axes(self) -> tuple[Axis, ...]:
        return () if self.waiting is not None else super().axes

    def __len__(self) -> int:
        held = self.waiting
        return super().__len__() if held is None else int(held.rows > 0 or held.dropped is not None)

    @property
    def nbytes(self) -> int:
        held = self.waiting
        return super().nbytes if held is None else held.nbytes

    def empty(self, axes: tuple[Axis, ...] | None = None) -> Self:
        return super().empty(self.axes if axes is None else axes)

    def part(self, flat: Flat) -> Any:
        held = self.waiting
        if held is None or "cells" in self.__dict__:
            return super().part(flat)
        if flat.name == "level":
            return np.uint8(held.level) if held.level else None
        if flat.name == "rounded":
            return np.uint8(1) if held.rounded else None
        return {"kinds": held.kinds, "dropped": held.dropped}.get(flat.name)

    def weight_limit(self) -> float:
        held = self.waiting
        if held is None:
            return super().weight_limit()
        settled = sum(s.weight_limit() for s in held.settled) + sum(s.weight for s in held.spilled)
        return settled + sum(float(weights_of(r).sum()) for r in held.raws)

    # -- merging, and samples -----------------------------------------------------------------------------------------

    def merge(self, *others: Self) -> Self:
        if self.axes or self.sample_rows or all(s.waiting is None for s in (self, *others)):
            return super().merge(*others)
        held = self.as_waiting()
        for other in others:
            self._fits(other)
            check_key_kinds(self, other)
            held = held.joined(other.as_waiting())
        check_room(self, held.rows, held.weight_beside)
        if held.nbytes > self.memory_limit:
            if self.spill_dir is None:
                raise MemoryLimitError(
                    f"GroupRows would need {held.nbytes:,} bytes; its memory_limit is {self.memory_limit:,}: {ADVICE}"
                )
            held = replace(held, raws=(), spilled=written(self.spill_dir, held.raws, held.spilled))
        return self.awaiting(held)

    @property
    def subtracts(self) -> bool:
        return not self.sample_rows and super().subtracts

    def subtract(self, other: Self) -> Self:
        if self.sample_rows:
            raise IncompatibleStateError("rows cannot be taken away from a sample: who is in it depends on all of them")
        return super().subtract(other)

    def as_waiting(self) -> WaitingRows:
        """What a state without axes holds, to go on from."""
        if self.waiting is not None:
            return self.waiting
        flats = self.cells.flats
        if not len(self):
            return WaitingRows((), np.zeros(len(KINDS), np.uint8))
        dropped = flats["dropped"][0] if "dropped" in flats else None
        level = int(flats["level"][0]) if "level" in flats else 0
        return WaitingRows((), flats["kinds"][0], dropped, "rounded" in flats, level, (), (self.bare(),))

    def bare(self) -> Self:
        """Its groups, and their kind, without what else front cells have."""
        return self.holding(replace(self.cells, flats={"kinds": self.cells.flats["kinds"]}))

    def present(self, parts: Mapping[str, Any] | None = None) -> Self:
        made = super().present(parts)
        return made.fitted(self.sample_rows) if self.sample_rows and len(made) else made

    def fitted(self, most: int) -> Self:
        """Leave out, and count, groups beyond the sample."""
        found = np.zeros(65, np.int64)
        np.add.at(found, self.zeros, self.rows_behind)
        level = int(self.spelled(type(self).level).max(initial=0))
        return self.beyond(level_of(found, level, most))

    def beyond(self, level: int) -> Self:
        """Leave out, and count, groups beyond a level."""
        gone = self.zeros < level
        if level == int(self.spelled(type(self).level).max(initial=0)) and not gone.any():
            return self
        dropped = self.spelled(type(self).dropped).copy()
        dropped[:, self.reasons.index("sample")] += int(self.rows_behind[gone].sum())
        flats = {**self.cells.flats, "level": np.full(len(self), level, np.uint8), "dropped": dropped}
        kept = self.holding(replace(self.cells, flats=flats))
        return super(GroupRows, kept.take_inner(np.flatnonzero(~gone))).present()

    @cached_property
    def zeros(self) -> Ints:
        """How many zeros the hash of each group begins with."""
        return zeros_of(hashes_of(self.ids, SAMPLE))

    @property
    def ids(self) -> Ints:
        """The id of each group, as columns have it."""
        inner = self.cells.inner
        assert inner is not None
        return inner[:, 1:] if inner[:, 2].any() else np.ascontiguousarray(inner[:, 1])

    # -- reading ------------------------------------------------------------------------------------------------------

    def groups(self) -> Groups:
        """Return every group, of a state of one cell."""
        return Groups.joined(self._solved())

    def _solved(self) -> Iterator[Groups]:
        """Yield the groups, those of a spill by partition; rows are sorted in as many threads as there are processors."""
        held = self.waiting
        if held is None or not all(s.spreads() for s in held.settled):
            self._lone()
            yield scanned(of_entries(self.cells.tallies["scores"]), len(self.cells))
            return
        raws = [*held.raws, *(raw_of(s) for s in held.settled)]
        if not held.spilled:
            yield solve(raws, processors())
            return
        here = [split(r) for r in raws]

        def one(p: int) -> Groups:
            return solve([*(part(p) for part in here), *(r for s in held.spilled for r in s.read(p))], workers=1)

        yield from in_threads(one, Spill.PARTS, processors())

    def sorted_rows(self) -> Iterator[Sorted]:
        """Yield the entries of all groups, of a state of one cell, each group as a whole; of many rows by partition."""
        held = self.waiting
        if held is None or not all(s.spreads() for s in held.settled):
            self._lone()
            yield of_entries(self.cells.tallies["scores"])
            return
        raws = [*held.raws, *(raw_of(s) for s in held.settled)]
        if not held.spilled and held.nbytes <= SAVED:
            yield of_entries(entries_of(raws, self.real)[1])
            return
        here = [split(r) for r in raws]
        for p in range(Spill.PARTS):
            rows = [*(part(p) for part in here), *(r for s in held.spilled for r in s.read(p))]
            yield of_entries(entries_of(rows, self.real)[1])

    def spreads(self) -> bool:
        """Whether entries may be made rows again: without weights, and if these are not many more than entries."""
        entries = self.cells.tallies["scores"]
        return entries.excess is None and int(entries.mass.sum()) <= max(SPREAD_ROWS, 4 * len(entries))

    def close_groups(self) -> SealedGroups:
        """Return exact sums over the groups, of each front cell."""
        made: SealedGroups | None = self.__dict__.get("closed")
        if made is None:
            made = self.__dict__["closed"] = self._closed() if self.waiting is not None else self._closed_cells()
        return made

    def _closed(self) -> SealedGroups:
        total, wait = summed(Groups.none()), list[Groups]()
        for groups in self._solved():
            wait.append(groups)
            if sum(len(g.wins) for g in wait) > MANY:
                total, wait = added(total, summed(Groups.joined(wait))), []
        total = added(total, summed(Groups.joined(wait)))
        facts = self.facts()
        rows = np.array([[facts["rows"] - facts["positives"], facts["positives"]]])
        return self._sealed({n: a[None] for n, a in total.items()} | {"rows": rows}, 1)

    def _closed_cells(self) -> SealedGroups:
        cells, entries = self.cells, self.cells.tallies["scores"]
        assert cells.inner is not None
        fronts = len(self) if self.axes else 1  # that of a worker that had no rows is sealed, too
        groups = scanned(of_entries(entries), len(cells))
        bounds = np.searchsorted(cells.inner[:, 0], np.arange(fronts + 1))
        each = [summed(Groups(*(g[a:b] for g in groups))) for a, b in itertools.pairwise(bounds)]
        none = summed(Groups.none())
        made: Sums = {n: np.stack([e[n] for e in each]) if each else a[None][:0] for n, a in none.items()}
        rows = np.zeros((fronts, 2), np.int64)
        np.add.at(rows, (cells.inner[entries.cells, 0], (entries.codes & np.uint64(1)).astype(np.int64)), entries.mass)
        return self._sealed(made | {"rows": rows}, fronts)

    def _sealed(self, made: Sums, cells: int) -> SealedGroups:
        part, parts = self.partition or (0, 1)
        keys, words = np.zeros((cells, 0), np.int64), tuple[Vocabulary, ...]()
        if self.axes:
            keys, words = self.cells.keys, self.cells.words
        flats = made | {"sealed": np.zeros((cells, parts), np.int64)}
        flats["sealed"][:, part] = 1
        held, closed = self.waiting, SealedGroups(partitions=parts)
        if held is None:
            flats |= {n: a for n, a in self.cells.flats.items() if n == "rounded"}
        elif held.rounded:
            flats["rounded"] = np.ones(1, np.uint8)
        gone = self.cells.flats.get("dropped") if held is None else None if held.dropped is None else held.dropped[None]
        if gone is not None:
            flats["dropped"] = np.zeros((cells, len(closed.reasons)), np.int64)
            flats["dropped"][:, [closed.reasons.index(r) for r in self.reasons]] = gone
        return closed.holding(Cells(self.axes, keys, words, None, None, flats, {}))

    @property
    def share(self) -> float:
        """The share of groups that the sample keeps."""
        held = self.waiting
        level = held.level if held is not None else int(self.spelled(type(self).level).max(initial=0))
        return 0.5**level

    def held(self) -> dict[str, Any]:
        """What is held where, and how likely two groups have one id."""
        groups, held = int(self.close_groups().groups.sum()), self.waiting
        hashed = bool(kinds_of(self)[HASHED].any())
        return {
            "memory": self.nbytes,
            "spilled_rows": sum(s.rows for s in held.spilled) if held is not None else 0,
            "collision_probability": math.ldexp(groups * (groups - 1) / 2, -128) if hashed else 0.0,
        }

    @property
    def positives_seen(self) -> Ints:
        if self.waiting is not None:
            return np.array([self.waiting.positives])
        entries, inner, out = self.cells.tallies["scores"], self.cells.inner, np.zeros(len(self), np.int64)
        assert inner is not None
        positive = (entries.codes & np.uint64(1)) == 1
        np.add.at(out, inner[entries.cells[positive], 0], entries.mass[positive])
        return out

    def facts(self) -> dict[str, Any]:
        held = self.waiting
        if held is not None:
            return {"rows": held.rows, "positives": held.positives}
        entries = self.cells.tallies["scores"]
        positive = (entries.codes & np.uint64(1)) == 1
        return {"rows": int(entries.mass.sum()), "positives": int(entries.mass[positive].sum())}

    def check(self) -> None:
        super().check()
        kinds = self.flat("kinds")
        if len(kinds) and (kinds.sum(axis=1).max() > 1 or (~kinds.any(axis=1) & (self.rows_seen > 0)).any()):
            raise StateFormatError("GroupRows.kinds does not say of which kind keys are")
        levels, inner = self.flat("level"), self.cells.inner
        assert inner is not None
        if levels.any() and (not self.sample_rows or levels.max() > 64 or (self.zeros < levels[inner[:, 0]]).any()):
            raise StateFormatError("GroupRows.level is not that of a sample, or there are groups beyond it")
        if self.partition and not is_partition(self.partition):
            raise StateFormatError(f"GroupRows has groups of partition {self.partition}, which there is not")
        if self.partition and (hashes_of(self.ids, SHARE) % np.uint64(self.partition[1]) != self.partition[0]).any():
            raise StateFormatError("GroupRows has groups of another partition")

    def close(self) -> None:
        """Give the disk back that rows were spilled to; they are gone."""
        for spilled in self.waiting.spilled if self.waiting is not None else ():
            spilled.close()


# -- entries ---------------------------------------------------------------------------------------------------------


def entries_of(raws: Sequence[Raw], real: bool, fronts: Ints | None = None) -> tuple[Ints, Entries]:
    """Return the groups of some rows, sorted, and the entries of each; `fronts` says of each row its front cell."""
    top = max(exact_bits(real) - 64, 0)
    shift = 64 + top
    raws = [r for r in raws if len(r["labels"])]
    if not raws:
        return np.zeros((0, 3), np.int64), Entries.none(shift, wide=True)
    two = any(r["ids"].ndim == 2 for r in raws)
    a = np.concatenate([halves(r["ids"])[0] for r in raws])
    b = np.concatenate([halves(widened(r["ids"]))[1] for r in raws]) if two else None
    keys = key_of(np.concatenate([r["scores"].astype(np.float64) for r in raws]), real)
    low = (keys << np.uint64(1)) | np.concatenate([r["labels"] for r in raws])
    columns = [low, *([keys >> np.uint64(63)] if top else []), *([b] if b is not None else []), a]
    order = np.lexsort([*columns, *([fronts] if fronts is not None else [])])
    columns = [c[order] for c in columns]
    front = np.zeros(len(order), np.int64) if fronts is None else fronts[order]
    new = np.ones(len(order), bool)
    new[1:] = (columns[-1][1:] != columns[-1][:-1]) | (front[1:] != front[:-1])
    if b is not None:
        new[1:] |= columns[-2][1:] != columns[-2][:-1]
    fresh = new.copy()
    fresh[1:] |= columns[0][1:] != columns[0][:-1]
    if top:
        fresh[1:] |= columns[1][1:] != columns[1][:-1]
    begins, firsts = np.flatnonzero(new), np.flatnonzero(fresh)
    second = columns[-2][begins] if b is not None else np.zeros(len(begins), np.int64)
    inner = np.column_stack([front[begins], columns[-1][begins], second])
    if len(inner) << top >= 1 << 32:
        raise MemoryLimitError(f"{len(inner):,} groups are more than a state can hold: {ADVICE}")
    high = (np.cumsum(new)[firsts] - 1).astype(np.uint32) << np.uint32(top)
    if top:
        high |= columns[1][firsts].astype(np.uint32)
    excess = None
    if any("weights" in r for r in raws):
        pair = fixed_weights(np.concatenate([weights_of(r) for r in raws])[order])
        pair[:, 0] -= 1 << 20
        excess = np.add.reduceat(pair, firsts)
        carry_fixed(excess)
    counts = np.diff(firsts, append=len(order))
    return inner, canonical(Entries(shift, columns[0][firsts], counts, excess, high))


def raw_of(state: GroupRows) -> Raw:
    """Entries without weights as rows."""
    entries = state.cells.tallies["scores"]
    rows: Sorted = of_entries(entries)
    scores = score_of(rows.keys, state.real)
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32)
    scores = narrow if np.array_equal(narrow, scores) else scores  # type: ignore[assignment]
    columns = {"ids": state.ids[rows.numbers], "scores": scores, "labels": rows.labels}
    return {n: np.repeat(c, entries.mass, axis=0) for n, c in columns.items()}


# -- samples ------------------------------------------------------------------------------------------


def zeros_of(hashes: NDArray[np.uint64]) -> Ints:
    """How many zeros each hash begins with."""
    out = np.full(len(hashes), 64, np.int64)
    rest = hashes.copy()
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(64 - step) != 0
        out_step = np.where(high, 0, step)
        rest = np.where(high, rest, rest << np.uint64(step))
        out += out_step
    return np.where(hashes == 0, 64, out - 64)


def level_of(found: Ints, level: int, most: int) -> int:
    """The zeros from which on so many rows, by zeros of their group, are no more than that; at least those there were."""
    beyond = np.cumsum(found[::-1])[::-1]
    enough = np.flatnonzero(beyond <= most)
    return max(level, int(enough[0]) if len(enough) else 64)
