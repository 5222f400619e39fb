"""Rows by group: every row with the group it belongs to, kept until the groups are complete."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, highest, rows
from ..columns import Column, Need, label, score, weight
from ..errors import IncompatibleStateError, InvalidInputError, MemoryLimitError
from ..group_rows import (
    SHARE,
    Groups,
    Raw,
    appended,
    classes_of,
    from_records,
    hashes_of,
    in_threads,
    processors,
    raw_ids,
    raw_rows,
    records_of,
    solve,
    to_records,
)
from ..growth import Growth, emptied, unite, waiting
from ..ids import group
from ..settings import setting
from ..spill import Spill
from ..state import State
from .closed_groups import SealedGroups

__all__ = ["KINDS", "GroupRows", "check_key_kinds", "kind_of_keys"]

KINDS = ("integer", "string", "bytes", "several")  # of ids; for ever: it is in the bytes
SAVED = 1 << 28  # bytes of rows that are written as they are
SPILL_ROWS = 1 << 22
MANY = 1 << 20  # groups whose sums are made at once: of all of a spill they would take gigabytes, too
SAMPLE, SPILL = 0x53414D504C450001, 0x5350494C4C000001  # salts; for ever
ADVICE = (
    'give spill_dir= (rows go to disk), sort the log by group (grouped="sorted"), give n workers a partition=(i, n) '
    "each, or take a sample=True (an estimate)"
)


class GroupRows(State, tag="group_rows"):
    """Every row with its group.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        What scores are legal.
    missing, missing_values
        As `sm.group` takes them.
    partition : (i, n), optional
        This worker holds only groups whose hash is i modulo n.
    sample : bool
        Keep whole groups of smallest hash, as many as `memory_limit` holds.
    memory_limit : int
        Bytes of rows in memory.
    spill_dir : str, optional
        A folder for the rows beyond.

    Notes
    -----
    A row takes 13 bytes (int64 group, float32 score), up to 33 (a text, float64, a weight). It waits as it came; groups
    are made when they are asked for, partition by partition. Written as bytes, and compared, rows are sorted.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[Any, ...] = setting(default=())
    partition: tuple[int, ...] = setting(default=())
    sample: bool = setting(default=False)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)
    spill_dir: str | None = setting(default=None, operational=True)

    records: Array = rows(4)
    kinds: Array = highest(len(KINDS), form="flag")
    level: Array = highest()

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), group("group", self.missing, self.missing_values), weight()

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        y_score: Column,
        group: Column,
        sample_weight: Column | None = None,
    ) -> None:
        kind = kind_of_keys(self, group)
        self._check_partition(group.values)
        weights = None if sample_weight is None else sample_weight.values
        if at is None:
            raw = raw_rows(group.values, y_score.values, y_true.values, weights)
            self._take_growth(self._fit(self._sampled(raw)))
            self.kinds[kind] = 1
        else:
            if self.sample or self.partition or self.spill_dir:
                raise InvalidInputError(
                    "slices of groups take neither sample=, partition= nor spill_dir=", column="group"
                )
            self.grow(at, records=records_of(group.values, y_score.values, y_true.values, weights))
            self.kinds[at, kind] = 1

    def _check_partition(self, ids: Array) -> None:
        if self.partition:
            mine, of = self.partition
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

    # -- growing: rows wait as they came, spill, or are thinned out -------------------------------------------------------

    def _fit(self, rows: dict[str, Array]) -> Growth:
        limit, size = self.memory_limit, sum(a.nbytes for a in rows.values())
        if self._grown_bytes() + size > limit and not self.sample:
            if self.spill_dir is None:
                raise MemoryLimitError(
                    f"GroupRows would need {self._grown_bytes() + size:,} bytes; its memory_limit is {limit:,}: {ADVICE}"
                )
            self._spill()
        return Growth(rows, False)

    def _take_growth(self, growth: Growth) -> None:
        self.__dict__.update(_waiting=appended(self.__dict__["_waiting"], growth.arrays), _closed=None)
        while self.sample and self._grown_bytes() > self.memory_limit:
            self.level[...] = self._level() + 1
            self._thin()

    def _level(self) -> int:
        return max(int(self.level), 0) if self.slices is None else 0

    def _sampled(self, raw: Raw) -> Raw:
        """Leave out groups beyond the sample."""
        if not self.sample or not self._level():
            return raw
        keep = hashes_of(raw_ids(raw), SAMPLE) >> np.uint64(64 - self._level()) == 0
        return {name: array[keep] for name, array in raw.items()}

    def _thin(self) -> None:
        self.settle_raw()
        kept: Any = {}
        for raw in classes_of(waiting(self.__dict__["_waiting"])).values():
            kept = appended(kept, self._sampled(raw))
        self.__dict__["_waiting"] = kept

    def settle_raw(self) -> None:
        """Turn records, as bytes hold them, back into rows that wait."""
        held = self.__dict__["records"]
        if len(held):
            self.__dict__["_waiting"] = appended(self.__dict__["_waiting"], from_records(held))
            self.__dict__["records"] = held[:0]

    def add(self, other: State, growth: Growth) -> Any:
        rows = growth.arrays
        if self.sample:
            before = self._level()
            np.maximum(self.level, other.__dict__["level"], out=self.level)
            if self._level() > before:
                self._thin()
            kept: Any = {}
            for raw in classes_of(rows).values():
                kept = appended(kept, self._sampled(raw))
            rows = waiting(kept)
        super().add(other, Growth(rows, False))
        if theirs := other.__dict__.get("_spilled"):
            self._disk().take(theirs)
        return self

    def check_merge(self, other: State) -> Growth:
        growth = super().check_merge(other)
        check_key_kinds(self, other)
        return growth

    def _rows(self) -> dict[str, Array]:
        if self.slices is not None:
            return super()._rows()
        self.settle_raw()
        return waiting(self.__dict__["_waiting"])

    def _united(self, rows: Mapping[str, Any]) -> dict[str, Array]:
        held = {"records": self.__dict__["records"]}
        made = [to_records(raw) for raw in classes_of(rows).values()]
        made += [rows["records"]] if "records" in rows else []
        return unite(self.rules(), held, {"records": np.concatenate(made)}, self._cell) if made else held

    @property
    def nbytes(self) -> int:
        return self._grown_bytes() + self.kinds.nbytes

    @property
    def arrays(self) -> dict[str, Array]:
        spilled = self.__dict__.get("_spilled")
        if self._grown_bytes() > SAVED or spilled is not None:
            raise MemoryLimitError(
                f"{self._grown_bytes():,} bytes of open groups{' and a spill' if spilled else ''} are not written as they "
                f"are: give each worker whole groups, partition=(i, n), and save seal(); or sort the log by group "
                f'(grouped="sorted"), or take a sample=True'
            )
        return super().arrays

    def copy(self) -> Any:
        if self.slices is not None:
            return super().copy()
        new = self.empty()
        new.add(self, Growth({k: v.copy() for k, v in self._rows().items()}, False))
        return new

    def narrow(self, to: State) -> Any:
        return self.copy()

    def _disk(self) -> Spill:
        if "_spilled" not in self.__dict__ or self.__dict__["_spilled"] is None:
            self.__dict__["_spilled"] = Spill(self.spill_dir)
        spill: Spill = self.__dict__["_spilled"]
        return spill

    def _spill(self) -> None:
        """Write the rows that wait to disk, by the leading bits of the hash of their group."""
        self.settle_raw()
        for raw in classes_of(waiting(self.__dict__["_waiting"])).values():
            for start in range(0, len(raw["ids"]), SPILL_ROWS):  # in pieces: each is copied in order
                piece = {name: column[start : start + SPILL_ROWS] for name, column in raw.items()}
                self._disk().write(piece, hashes_of(raw_ids(piece), SPILL))
        self.__dict__["_waiting"] = emptied(self.__dict__["_waiting"])

    def reset(self) -> Any:
        self.close()
        return super().reset()

    def close(self) -> None:
        """Remove what was spilled."""
        self.__dict__["_closed"] = None
        if spill := self.__dict__.pop("_spilled", None):
            spill.close()

    # -- reading ---------------------------------------------------------------------------------------------------------

    def groups(self) -> Groups:
        """Return every group."""
        return Groups.joined(list(self._solved()))

    def _solved(self) -> Iterator[Groups]:
        """Yield the groups, those of a spill by partition; rows are sorted in as many threads as there are processors."""
        held = waiting(self.__dict__["_waiting"])
        raws = list(classes_of(held).values())
        if len(self.__dict__["records"]):
            raws.append(from_records(self.__dict__["records"]))
        if "records" in held:  # of slices
            raws.append(from_records(held["records"]))
        spill = self.__dict__.get("_spilled")
        if spill is None:
            yield solve(raws, processors())
            return
        split = [spill.split(r, hashes_of(raw_ids(r), SPILL)) for r in raws]

        def one(p: int) -> Groups:
            return solve([*(part(p) for part in split), *spill.read(p)], workers=1)

        yield from in_threads(one, spill.PARTS, processors())

    def close_groups(self) -> SealedGroups:
        """Return exact sums over the groups; made anew only if there are more rows."""
        made: SealedGroups | None = self.__dict__.get("_closed")
        if made is None:
            facts = self.facts()
            counts = facts["rows"] - facts["positives"], facts["positives"]
            made = SealedGroups.of(Groups.joined([]), self.partition, counts)
            wait: list[Groups] = []
            for groups in self._solved():
                wait.append(groups)
                if sum(len(g.wins) for g in wait) > MANY:
                    made.take(SealedGroups.of(Groups.joined(wait), self.partition, (0, 0)))
                    wait = []
            made.take(SealedGroups.of(Groups.joined(wait), self.partition, (0, 0)))
            self.__dict__["_closed"] = made
        return made

    @property
    def share(self) -> float:
        """The share of groups that the sample keeps."""
        return 0.5 ** self._level()

    def held(self) -> dict[str, Any]:
        """What is held where, and how likely two groups have one id."""
        spill, groups = self.__dict__.get("_spilled"), int(self.close_groups().groups.sum())
        hashed = bool(_kinds(self)[1:].any())
        return {
            "memory": self.nbytes,
            "spilled_rows": spill.rows if spill is not None else 0,
            "collision_probability": math.ldexp(groups * (groups - 1) / 2, -128) if hashed else 0.0,
        }

    def facts(self) -> dict[str, Any]:
        held = [*classes_of(waiting(self.__dict__["_waiting"])).values()]
        labels = [r["labels"] for r in held] + [(self.__dict__["records"][:, 3] & 1)]
        spill = self.__dict__.get("_spilled")
        rows_, positives = (sum(map(f, labels)) for f in (len, lambda a: int(a.sum())))
        if spill is not None:
            rows_, positives = rows_ + spill.rows, positives + spill.positives
        return {"rows": rows_, "positives": positives}


def kind_of_keys(state: State, group: Column) -> int:
    """Return the number of the kind of these keys, or raise if those so far are of another."""
    kind = KINDS.index(group.source) if group.source in KINDS else len(KINDS) - 1
    seen = _kinds(state)
    if seen.any() and not seen[kind]:
        known = KINDS[int(seen.argmax())]
        raise InvalidInputError(
            f"group: the keys so far are of kind {known}, these of kind {KINDS[kind]}", column="group"
        )
    return kind


def check_key_kinds(ours: State, theirs: State) -> None:
    """Raise unless the keys of two states are of one kind."""
    a, b = (_kinds(s) for s in (ours, theirs))
    if a.any() and b.any() and not (a & b).any():
        x, y = (KINDS[int(k.argmax())] for k in (a, b))
        raise IncompatibleStateError(f"cannot merge these groups: keys are of kind {x} here and {y} there")


def _kinds(state: State) -> NDArray[np.bool_]:
    """Which kinds of ids were seen."""
    return np.asarray(state.__dict__["kinds"].reshape(-1, len(KINDS)).max(axis=0) > 0)
