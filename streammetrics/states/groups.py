"""Rows by group: every row with the group it belongs to, kept until the groups are complete; sums of closed groups."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added, highest, rows
from ..columns import Batch, Column, Need, label, score, weight
from ..errors import IncompatibleStateError, InvalidInputError, MemoryLimitError, StateFormatError
from ..exact import exact_to_fraction, fraction_to_exact
from ..growth import Growth, append, unite, waiting
from ..ids import Ids, group
from ..settings import setting
from ..spill import Spill
from ..state import State

__all__ = ["GROUP_WEIGHTS", "GroupRows", "Groups", "SealedGroups"]

KINDS = ("integer", "string", "bytes", "several")  # of ids; for ever: it is in the bytes
GROUP_WEIGHTS = ("impressions", "uniform", "positives", "pairs")
SAVED = 1 << 28  # bytes of rows that are written as they are
PART_ROWS = 1 << 15
SPILL_ROWS = 1 << 22
FLIP = np.int64(0x7FFFFFFFFFFFFFFF)
SAMPLE, SHARE, SPILL = 0x53414D504C450001, 0x5348415245000001, 0x5350494C4C000001  # salts; for ever
NOTHING = np.zeros(0, np.int64)
ADVICE = "give spill_dir= (rows go to disk), partition=(i, n) to n workers, or sample=True (an estimate)"
Raw = dict[str, Array]


class Groups(NamedTuple):
    """Every group: weight of negatives and positives, and pairs won by positives (ties one half)."""

    negatives: NDArray[np.float64]
    positives: NDArray[np.float64]
    wins: NDArray[np.float64]

    def auc(self) -> NDArray[np.float64]:
        """AUC of every group; NaN for one class."""
        pairs = self.negatives * self.positives
        auc: NDArray[np.float64] = np.divide(self.wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return auc

    def weight(self, by: str) -> NDArray[np.float64]:
        """What every group counts."""
        if by == "impressions":
            return self.negatives + self.positives
        if by == "positives":
            return self.positives
        return self.negatives * self.positives if by == "pairs" else np.ones(len(self.wins))

    @classmethod
    def joined(cls, parts: list[Groups]) -> Groups:
        """Groups of several partitions."""
        return cls(*(np.concatenate([np.zeros(0), *(p[i] for p in parts)]) for i in range(3)))


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
        kind = KINDS.index(group.source) if group.source in KINDS else len(KINDS) - 1
        seen = _kinds(self)
        if seen.any() and not seen[kind]:
            known = KINDS[int(seen.argmax())]
            raise InvalidInputError(
                f"group: the keys so far are of kind {known}, these of kind {KINDS[kind]}", column="group"
            )
        self._check_partition(group.values)
        weights = None if sample_weight is None else sample_weight.values
        if at is None:
            raw = _raw(group.values, y_score.values, y_true.values, weights)
            self._take_growth(self._fit(self._sampled(raw)))
            self.kinds[kind] = 1
        else:
            if self.sample or self.partition or self.spill_dir:
                raise InvalidInputError(
                    "slices of groups take neither sample=, partition= nor spill_dir=", column="group"
                )
            self.grow(at, records=_records(group.values, y_score.values, y_true.values, weights))
            self.kinds[at, kind] = 1

    def _check_partition(self, ids: Array) -> None:
        if self.partition:
            mine, of = self.partition
            foreign = np.flatnonzero(_hashes(ids, SHARE) % np.uint64(of) != mine)
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
        self.__dict__.update(_waiting=_appended(self.__dict__["_waiting"], growth.arrays), _closed=None)
        while self.sample and self._grown_bytes() > self.memory_limit:
            self.level[...] = self._level() + 1
            self._thin()

    def _level(self) -> int:
        return max(int(self.level), 0) if self.slices is None else 0

    def _sampled(self, raw: Raw) -> Raw:
        """Leave out groups beyond the sample."""
        if not self.sample or not self._level():
            return raw
        keep = _hashes(raw_ids(raw), SAMPLE) >> np.uint64(64 - self._level()) == 0
        return {name: array[keep] for name, array in raw.items()}

    def _thin(self) -> None:
        self.settle_raw()
        kept: Any = {}
        for raw in _classes(waiting(self.__dict__["_waiting"])).values():
            kept = _appended(kept, self._sampled(raw))
        self.__dict__["_waiting"] = kept

    def settle_raw(self) -> None:
        """Turn records, as bytes hold them, back into rows that wait."""
        held = self.__dict__["records"]
        if len(held):
            self.__dict__["_waiting"] = _appended(self.__dict__["_waiting"], from_records(held))
            self.__dict__["records"] = held[:0]

    def add(self, other: State, growth: Growth) -> Any:
        rows = growth.arrays
        if self.sample:
            before = self._level()
            np.maximum(self.level, other.__dict__["level"], out=self.level)
            if self._level() > before:
                self._thin()
            kept: Any = {}
            for raw in _classes(rows).values():
                kept = _appended(kept, self._sampled(raw))
            rows = waiting(kept)
        super().add(other, Growth(rows, False))
        if theirs := other.__dict__.get("_spilled"):
            self._disk().take(theirs)
        return self

    def check_merge(self, other: State) -> Growth:
        growth = super().check_merge(other)
        a, b = (_kinds(s) for s in (self, other))
        if a.any() and b.any() and not (a & b).any():
            x, y = (KINDS[int(k.argmax())] for k in (a, b))
            raise IncompatibleStateError(f"cannot merge these groups: keys are of kind {x} here and {y} there")
        return growth

    def _rows(self) -> dict[str, Array]:
        if self.slices is not None:
            return super()._rows()
        self.settle_raw()
        return waiting(self.__dict__["_waiting"])

    def _united(self, rows: Mapping[str, Any]) -> dict[str, Array]:
        held = {"records": self.__dict__["records"]}
        made = [to_records(raw) for raw in _classes(rows).values()]
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
                f"are: give each worker whole groups, partition=(i, n), and save seal(), or use sample=True"
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
        for prefix, raw in _classes(waiting(self.__dict__["_waiting"])).items():
            for start in range(0, len(raw["ids"]), SPILL_ROWS):  # in pieces: each is copied in order
                piece = {name: column[start : start + SPILL_ROWS] for name, column in raw.items()}
                self._disk().write(prefix, piece, _hashes(raw_ids(piece), SPILL))
        self.__dict__["_waiting"] = {}

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
        """Return every group; partitions are sorted in as many threads as there are processors."""
        held = waiting(self.__dict__["_waiting"])
        raws = list(_classes(held).values())
        if len(self.__dict__["records"]):
            raws.append(from_records(self.__dict__["records"]))
        if "records" in held:  # of slices
            raws.append(from_records(held["records"]))
        spill = self.__dict__.get("_spilled")
        if spill is None:
            return solve(raws)
        split = [spill.split(r, _hashes(raw_ids(r), SPILL)) for r in raws]
        return Groups.joined([solve([*(part(p) for part in split), *spill.read(p)]) for p in range(spill.PARTS)])

    def close_groups(self) -> SealedGroups:
        """Return exact sums over the groups; made anew only if there are more rows."""
        made: SealedGroups | None = self.__dict__.get("_closed")
        if made is None:
            facts = self.facts()
            counts = facts["rows"] - facts["positives"], facts["positives"]
            made = self.__dict__["_closed"] = SealedGroups.of(self.groups(), self.partition, counts)
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
        held = [*_classes(waiting(self.__dict__["_waiting"])).values()]
        labels = [r["labels"] for r in held] + [(self.__dict__["records"][:, 3] & 1)]
        spill = self.__dict__.get("_spilled")
        rows_, positives = (sum(map(f, labels)) for f in (len, lambda a: int(a.sum())))
        if spill is not None:
            rows_, positives = rows_ + spill.rows, positives + spill.positives
        return {"rows": rows_, "positives": positives}


class ClosedSums(State):
    """Exact sums over closed groups, whatever they weigh: constant memory."""

    groups: Array = added(3)
    rows: Array = added(2)
    sums: Array = added(4, form="exact")
    weights: Array = added(4, form="exact")
    lone: Array = added(4, form="exact")

    def take(self, other: ClosedSums) -> None:
        """Add the sums of other groups."""
        for name in ("groups", "rows", "sums", "weights", "lone"):
            ours = self.__dict__[name]
            self.rules()[name].carry(np.add(ours, other.__dict__[name], out=ours))

    def total(self, name: str, by: str) -> Fraction:
        """One of the sums."""
        return exact_to_fraction(self.__dict__[name][GROUP_WEIGHTS.index(by)])


class SealedGroups(ClosedSums, tag="sealed_groups"):
    """Closed groups of some partitions.

    Parameters
    ----------
    parts : int
        How many partitions there are; each is sealed once.
    """

    parts: int = setting(default=1, low=1)

    seen: Array = added("parts")

    def needs(self) -> tuple[Need, ...]:
        return label(), score(), group()

    def absorb(self, at: Any, /, **columns: Column) -> None:
        raise InvalidInputError("sealed groups are closed: rows go to the open state, before seal()", column="group")

    def check_merge(self, other: State) -> Growth:
        growth = super().check_merge(other)
        twice = np.flatnonzero(self.__dict__["seen"] + other.__dict__["seen"] > 1)
        if len(twice):
            raise IncompatibleStateError(f"partition {int(twice[0])} of {self.parts} is sealed on both sides")
        return growth

    def check(self) -> None:
        if (self.seen > 1).any():
            raise StateFormatError("SealedGroups.seen counts a partition twice")

    def close_groups(self) -> SealedGroups:
        """Return itself: it is closed."""
        return self

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows.sum()), "positives": int(self.rows[1])}

    @classmethod
    def of(cls, groups: Groups, partition: tuple[int, ...], rows: tuple[int, int]) -> SealedGroups:
        """Close groups."""
        part, parts = partition or (0, 1)
        new = cls(parts=parts)
        new.seen[part] = 1
        both = (groups.negatives > 0) & (groups.positives > 0)
        one = ((groups.negatives > 0) | (groups.positives > 0)) & ~both
        full, lone = (Groups(*(column[mask] for column in groups)) for mask in (both, one))
        new.groups[...] = len(full.wins), len(lone.wins), len(both) - len(full.wins) - len(lone.wins)
        new.rows[...] = rows
        auc = full.auc()
        for i, by in enumerate(GROUP_WEIGHTS):
            w = full.weight(by)
            for array, values in ((new.sums, w * auc), (new.weights, w), (new.lone, lone.weight(by))):
                array[i] = fraction_to_exact(exact_sum(values))
        return new


def exact_sum(values: NDArray[np.float64]) -> Fraction:
    """The sum of floats that are not negative, without rounding."""
    if values.max(initial=0.0) < 2.0**31 and np.array_equal(integers := values.astype(np.int64), values):
        return Fraction(int(integers.sum()))
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    least = int(exponents.min(initial=0))
    # by exponent, in halves of 27 bits: sums of up to 2**26 of them are exact in float64
    total = Fraction(0)
    for start in range(0, len(values), 1 << 26):
        rows_ = slice(start, start + (1 << 26))
        for half, scale in ((whole[rows_] >> 27, 1 << 27), (whole[rows_] & ((1 << 27) - 1), 1)):
            for e, part in enumerate(np.bincount(exponents[rows_] - least, half)):
                if part:
                    total += int(part) * scale * Fraction(2) ** (e + least - 53)
    return total


def _kinds(state: State) -> NDArray[np.bool_]:
    """Which kinds of ids were seen."""
    return np.asarray(state.__dict__["kinds"].reshape(-1, len(KINDS)).max(axis=0) > 0)


# -- rows as they came ---------------------------------------------------------------------------------------------------


def _raw(ids: Array, scores: Array, labels: Array, weights: Array | None) -> Raw:
    raw = {"ids": np.ascontiguousarray(ids), "scores": scores, "labels": labels.astype(np.uint8, copy=False)}
    return raw if weights is None else raw | {"weights": weights}


def raw_ids(raw: Raw) -> Array:
    """The ids of some rows."""
    return raw["ids"]


def _prefix(raw: Raw) -> str:
    return f"{raw['ids'].ndim}:{raw['scores'].dtype.name}:{int('weights' in raw)}"


def _appended(buffers: Any, raw: Raw) -> Any:
    """Add rows to those that wait, which are kept apart by what they are."""
    if not raw or ("ids" in raw and not len(raw["ids"])):
        return buffers
    named = {f"{_prefix(raw)}/{name}": array for name, array in raw.items()} if "ids" in raw else raw
    return append(buffers, {}, named)


def _classes(rows: Mapping[str, Array]) -> dict[str, Raw]:
    """Return the rows that wait, by what they are."""
    out: dict[str, Raw] = {}
    for name, array in rows.items():
        prefix, slash, column = name.partition("/")
        if slash:
            out.setdefault(prefix, {})[column] = array
    return out


def _records(ids: Array, scores: Array, labels: Array, weights: Array | None) -> NDArray[np.int64]:
    """Return rows as bytes hold them: the id, the score and the weight as integers in their order, and the label."""
    bits = (scores.astype(np.float64) + 0.0).view(np.int64)
    w = np.ones(len(labels)) if weights is None else weights
    out = np.zeros((len(labels), 4), np.int64)
    out[:, : ids.ndim] = ids[:, None] if ids.ndim == 1 else ids
    out[:, 2] = np.where(bits >= 0, bits, bits ^ FLIP)
    out[:, 3] = (w.astype(np.float64).view(np.int64) << 1) | labels
    return out


def to_records(raw: Raw) -> NDArray[np.int64]:
    return _records(raw["ids"], raw["scores"], raw["labels"], raw.get("weights"))


def from_records(records: NDArray[np.int64]) -> Raw:
    records = records[:, -4:]  # without the slice
    bits = records[:, 2]
    scores = np.where(bits >= 0, bits, bits ^ FLIP).view(np.float64)
    labels = (records[:, 3] & 1).astype(np.uint8)
    weights = (records[:, 3].view(np.uint64) >> np.uint64(1)).view(np.float64)  # of 2 and more, the sign bit is set
    ids = np.ascontiguousarray(records[:, :2] if records[:, 1].any() else records[:, 0])
    return _raw(ids, scores, labels, None if (weights == 1).all() else weights)


def share_of(ids: Any, parts: int) -> NDArray[np.int64]:
    """The class of every group, modulo `parts`."""
    column = Batch({"group": ids}).column("group", Ids())
    return np.asarray(_hashes(column.values, SHARE) % np.uint64(parts), np.int64)


def _halves(ids: Array) -> tuple[Array, Array]:
    if ids.ndim == 1:
        return ids, NOTHING
    return np.ascontiguousarray(ids[:, 0]), np.ascontiguousarray(ids[:, 1])


def _hashes(ids: Array, salt: int) -> NDArray[np.uint64]:
    from ..kernels.groups import hash_ids

    out = np.empty(len(ids), np.uint64)
    hash_ids(*_halves(ids), np.uint64(salt), out)
    return out


# -- from rows to groups -------------------------------------------------------------------------------------------------


def solve(raws: list[Raw]) -> Groups:
    """Return the groups of some rows."""
    raws = [r for r in raws if len(r["ids"])]
    if not raws:
        return Groups(np.zeros(0), np.zeros(0), np.zeros(0))
    if {_prefix(r) for r in raws} == {"1:float32:0"}:
        return _solve_plain(
            {n: np.concatenate([r[n] for r in raws]) if len(raws) > 1 else a for n, a in raws[0].items()}
        )
    two = any(r["ids"].ndim == 2 for r in raws)
    ids = np.concatenate([r["ids"] if not two else _widened(r["ids"]) for r in raws])
    scores = np.concatenate([r["scores"].astype(np.float64) for r in raws])
    labels = np.concatenate([r["labels"] for r in raws])
    weighted = any("weights" in r for r in raws)
    weights = [r.get("weights", np.ones(len(r["labels"]))) for r in raws] if weighted else [np.zeros(0)]
    return _solve_any(ids, scores, labels, np.concatenate(weights))


def _widened(ids: Array) -> Array:
    return ids if ids.ndim == 2 else np.column_stack([ids, np.zeros(len(ids), np.int64)])


def _bits(n: int) -> int:
    return max(1, min(12, (n // PART_ROWS).bit_length()))  # a shift by all 64 bits is undefined


def scan_sorted(raws: list[Raw]) -> Groups:
    """Return the groups of rows in the order of their groups, of integers."""
    from ..kernels.groups import scan_rows

    raws = [r for r in raws if len(r["ids"])]
    if not raws:
        return Groups(np.zeros(0), np.zeros(0), np.zeros(0))
    ids = np.concatenate([r["ids"] for r in raws])
    scores = np.concatenate([r["scores"] for r in raws])
    labels = np.concatenate([r["labels"] for r in raws])
    new = np.r_[False, ids[1:] != ids[:-1]]
    numbers = np.cumsum(new).astype(np.int32)
    count = int(numbers[-1]) + 1
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32, copy=False)
    if not any("weights" in r for r in raws) and np.array_equal(narrow, scores):
        return _scan_plain(numbers, count, narrow, labels)
    weights = np.concatenate([r.get("weights", np.ones(len(r["labels"]))) for r in raws])
    by = np.lexsort([weights, labels, scores, numbers])
    found = numbers[by], scores[by].astype(np.float64), labels[by], weights[by]
    return _scanned(count, lambda *out: scan_rows(*found, *out))


def _scan_plain(numbers: NDArray[np.int32], count: int, scores: Array, labels: Array) -> Groups:
    from ..kernels.groups import pack, pack_scores, scan_packed

    keys = np.empty(len(numbers), np.uint64)
    pack_scores(scores, labels, keys)
    pack(numbers, keys)
    keys.sort()
    return _scanned(count, lambda *out: scan_packed(keys, *out))


def _solve_plain(raw: Raw) -> Groups:
    """Groups of integers, float32 scores and no weights: a row sorts as one integer."""
    from ..kernels.groups import pack, scan_packed, scatter_rows

    n, bits = len(raw["ids"]), _bits(len(raw["ids"]))
    ids, keys, starts = np.empty(n, np.int64), np.empty(n, np.uint64), np.zeros((1 << bits) + 1, np.int64)
    scatter_rows(raw["ids"], raw["scores"], raw["labels"], bits, ids, keys, starts)

    def one(p: int) -> Groups:
        part = slice(starts[p], starts[p + 1])
        numbers, count = _numbered(ids[part], NOTHING, bits)
        packed = keys[part]
        pack(numbers, packed)
        packed.sort()
        return _scanned(count, lambda *out: scan_packed(packed, *out))

    return _in_threads(one, 1 << bits)


def _solve_any(ids: Array, scores: Array, labels: Array, weights: Array) -> Groups:
    from ..kernels.groups import partition_rows, scan_rows

    n, bits = len(ids), _bits(len(ids))
    order, starts = np.empty(n, np.int64), np.zeros((1 << bits) + 1, np.int64)
    partition_rows(_hashes(ids, 0), bits, order, starts)

    def one(p: int) -> Groups:
        mine = order[starts[p] : starts[p + 1]]
        numbers, count = _numbered(*_halves(ids[mine]), bits)
        columns = [weights[mine]] if len(weights) else []
        by = np.lexsort([*columns, labels[mine], scores[mine], numbers])
        rows_ = numbers[by], scores[mine][by], labels[mine][by], (columns[0][by] if columns else weights)
        return _scanned(count, lambda *out: scan_rows(*rows_, *out))

    return _in_threads(one, 1 << bits)


def _numbered(a: Array, b: Array, bits: int) -> tuple[NDArray[np.int32], int]:
    from ..kernels.groups import number_groups

    n = len(a)
    slots, known = np.full(1 << max(4, (2 * n).bit_length()), -1, np.int32), np.empty(2 * n, np.int64)
    numbers = np.empty(n, np.int32)
    return numbers, int(number_groups(a, b, bits, slots, known, numbers))


def _scanned(count: int, scan: Any) -> Groups:
    found = Groups(np.zeros(count), np.zeros(count), np.zeros(count))
    scan(*found)
    return found


def _in_threads(one: Any, parts: int) -> Groups:
    workers = min(parts, os.cpu_count() or 1)
    if workers < 2:
        return Groups.joined([one(p) for p in range(parts)])
    with ThreadPoolExecutor(workers) as pool:
        return Groups.joined(list(pool.map(one, range(parts))))
