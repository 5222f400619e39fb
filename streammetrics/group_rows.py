"""From rows to groups: rows as they came, partitioned by a hash of their group, numbered, sorted and scanned."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .columns import Batch
from .growth import append
from .ids import Ids

__all__ = ["GROUP_WEIGHTS", "Groups", "Raw", "partitioned", "scan_sorted", "share_of", "solve"]

GROUP_WEIGHTS = ("impressions", "uniform", "positives", "pairs")
PART_ROWS = 1 << 15
TABLE = 1 << 14  # slots
FLIP = np.int64(0x7FFFFFFFFFFFFFFF)
SHARE = 0x5348415245000001  # the salt of partitions; for ever
NOTHING = np.zeros(0, np.int64)
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


# -- rows as they came ---------------------------------------------------------------------------------------------------


def raw_rows(ids: Array, scores: Array, labels: Array, weights: Array | None) -> Raw:
    raw = {"ids": np.ascontiguousarray(ids), "scores": scores, "labels": labels.astype(np.uint8, copy=False)}
    return raw if weights is None else raw | {"weights": weights}


def raw_ids(raw: Raw) -> Array:
    """The ids of some rows."""
    return raw["ids"]


def prefix_of(raw: Raw) -> str:
    return f"{raw['ids'].ndim}:{raw['scores'].dtype.char}:{int('weights' in raw)}"


def appended(buffers: Any, raw: Raw) -> Any:
    """Add rows to those that wait, which are kept apart by what they are."""
    if not raw or ("ids" in raw and not len(raw["ids"])):
        return buffers
    named = {f"{prefix_of(raw)}/{name}": array for name, array in raw.items()} if "ids" in raw else raw
    return append(buffers, {}, named)


def classes_of(rows: Mapping[str, Array]) -> dict[str, Raw]:
    """Return the rows that wait, by what they are."""
    out: dict[str, Raw] = {}
    for name, array in rows.items():
        prefix, slash, column = name.partition("/")
        if slash:
            out.setdefault(prefix, {})[column] = array
    return out


def records_of(ids: Array, scores: Array, labels: Array, weights: Array | None) -> NDArray[np.int64]:
    """Return rows as bytes hold them: the id, the score and the weight as integers in their order, and the label."""
    bits = (scores.astype(np.float64) + 0.0).view(np.int64)
    w = np.ones(len(labels)) if weights is None else weights
    out = np.zeros((len(labels), 4), np.int64)
    out[:, : ids.ndim] = ids[:, None] if ids.ndim == 1 else ids
    out[:, 2] = np.where(bits >= 0, bits, bits ^ FLIP)
    out[:, 3] = (w.astype(np.float64).view(np.int64) << 1) | labels
    return out


def to_records(raw: Raw) -> NDArray[np.int64]:
    return records_of(raw["ids"], raw["scores"], raw["labels"], raw.get("weights"))


def from_records(records: NDArray[np.int64]) -> Raw:
    records = records[:, -4:]  # without the slice
    bits = records[:, 2]
    scores = np.where(bits >= 0, bits, bits ^ FLIP).view(np.float64)
    labels = (records[:, 3] & 1).astype(np.uint8)
    weights = (records[:, 3].view(np.uint64) >> np.uint64(1)).view(np.float64)  # of 2 and more, the sign bit is set
    ids = np.ascontiguousarray(records[:, :2] if records[:, 1].any() else records[:, 0])
    return raw_rows(ids, scores, labels, None if (weights == 1).all() else weights)


def share_of(ids: Any, parts: int) -> NDArray[np.int64]:
    """The class of every group, modulo `parts`."""
    column = Batch({"group": ids}).column("group", Ids())
    return np.asarray(hashes_of(column.values, SHARE) % np.uint64(parts), np.int64)


def _halves(ids: Array) -> tuple[Array, Array]:
    if ids.ndim == 1:
        return ids, NOTHING
    return np.ascontiguousarray(ids[:, 0]), np.ascontiguousarray(ids[:, 1])


def hashes_of(ids: Array, salt: int) -> NDArray[np.uint64]:
    from .kernels.groups import hash_ids

    out = np.empty(len(ids), np.uint64)
    hash_ids(*_halves(ids), np.uint64(salt), out)
    return out


def partitioned(
    columns: Mapping[str, Array], hashes: NDArray[np.uint64], bits: int
) -> tuple[dict[str, Array], NDArray[np.int64]]:
    """Return columns with the rows of each partition side by side, and where each begins; an empty column stays so.

    Writing every row to its place goes along as many lines as there are partitions; fetching them would jump.
    """
    from .kernels.groups import partition_rows

    places, starts = np.empty(len(hashes), np.int64), np.zeros((1 << bits) + 1, np.int64)
    partition_rows(hashes, bits, places, starts)
    ordered = {name: np.empty_like(column) for name, column in columns.items()}
    for name, column in columns.items():
        if len(column):
            ordered[name][places] = column
    return ordered, starts


# -- from rows to groups -------------------------------------------------------------------------------------------------


def solve(raws: list[Raw], workers: int) -> Groups:
    """Return the groups of some rows, sorted in some threads."""
    raws = [r for r in raws if len(r["ids"])]
    if not raws:
        return Groups(np.zeros(0), np.zeros(0), np.zeros(0))
    if {prefix_of(r) for r in raws} == {"1:f:0"}:
        raw = {n: np.concatenate([r[n] for r in raws]) if len(raws) > 1 else a for n, a in raws[0].items()}
        return _solve_plain(raw, workers)
    two = any(r["ids"].ndim == 2 for r in raws)
    ids = np.concatenate([r["ids"] if not two else _widened(r["ids"]) for r in raws])
    scores = np.concatenate([r["scores"].astype(np.float64) for r in raws])
    labels = np.concatenate([r["labels"] for r in raws])
    weighted = any("weights" in r for r in raws)
    weights = [r.get("weights", np.ones(len(r["labels"]))) for r in raws] if weighted else [np.zeros(0)]
    return _solve_any(ids, scores, labels, np.concatenate(weights), workers)


def _widened(ids: Array) -> Array:
    return ids if ids.ndim == 2 else np.column_stack([ids, np.zeros(len(ids), np.int64)])


def _bits(n: int) -> int:
    return max(1, min(12, (n // PART_ROWS).bit_length()))  # a shift by all 64 bits is undefined


def scan_sorted(raws: list[Raw]) -> Groups:
    """Return the groups of rows in the order of their groups, of integers."""
    from .kernels.groups import scan_rows

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
    fits = scores.dtype == np.float32 or np.array_equal(narrow, scores)
    if fits and not any("weights" in r for r in raws):
        return _scan_plain(numbers, count, narrow, labels)
    weights = np.concatenate([r.get("weights", np.ones(len(r["labels"]))) for r in raws])
    by = np.lexsort([weights, labels, scores, numbers])
    found = numbers[by], scores[by].astype(np.float64), labels[by], weights[by]
    return _scanned(count, lambda *out: scan_rows(*found, *out))


def _scan_plain(numbers: NDArray[np.int32], count: int, scores: Array, labels: Array) -> Groups:
    from .kernels.groups import pack, pack_scores, scan_packed

    keys = np.empty(len(numbers), np.uint64)
    pack_scores(scores, labels, keys)
    pack(numbers, keys)
    keys.sort()
    return _scanned(count, lambda *out: scan_packed(keys, *out))


def _solve_plain(raw: Raw, workers: int) -> Groups:
    """Groups of integers, float32 scores and no weights: a row sorts as one integer."""
    from .kernels.groups import pack, scan_packed, scatter_rows

    n, bits = len(raw["ids"]), _bits(len(raw["ids"]))
    where, ids, keys = np.empty(n, np.uint32), np.empty(n, np.int64), np.empty(n, np.uint64)  # numpy's pages are large
    starts = np.zeros((1 << bits) + 1, np.int64)
    scatter_rows(raw["ids"], raw["scores"], raw["labels"], bits, where, ids, keys, starts)

    def one(p: int) -> Groups:
        part = slice(starts[p], starts[p + 1])
        numbers, count = _numbered(ids[part], NOTHING, bits)
        packed = keys[part]
        pack(numbers, packed)
        packed.sort()
        return _scanned(count, lambda *out: scan_packed(packed, *out))

    return Groups.joined(list(in_threads(one, 1 << bits, workers)))


def _solve_any(ids: Array, scores: Array, labels: Array, weights: Array, workers: int) -> Groups:
    from .kernels.groups import scan_rows

    bits = _bits(len(ids))
    ordered, starts = partitioned({"ids": ids, "s": scores, "y": labels, "w": weights}, hashes_of(ids, 0), bits)

    def one(p: int) -> Groups:
        part = slice(starts[p], starts[p + 1])
        keys, s, y, w = (column[part] for column in ordered.values())
        numbers, count = _numbered(*_halves(keys), bits)
        by = np.lexsort([*([w] if len(w) else []), y, s, numbers])
        rows_ = numbers[by], s[by], y[by], (w[by] if len(w) else weights)
        return _scanned(count, lambda *out: scan_rows(*rows_, *out))

    return Groups.joined(list(in_threads(one, 1 << bits, workers)))


def _numbered(a: Array, b: Array, bits: int) -> tuple[NDArray[np.int32], int]:
    from .kernels.groups import number_groups

    n, count, size = len(a), -1, TABLE
    numbers = np.empty(n, np.int32)
    while count < 0:  # a small table stays in the nearest cache; where it fills up, rows begin again with a larger one
        slots, known = np.full(size, -1, np.int32), np.empty(size, np.int64)
        count = int(number_groups(a, b, bits, 0, slots, known, numbers))
        size *= 8
    return numbers, count


def _scanned(count: int, scan: Any) -> Groups:
    found = Groups(np.zeros(count), np.zeros(count), np.zeros(count))
    scan(*found)
    return found


def in_threads(one: Callable[[int], Groups], parts: int, workers: int) -> Iterator[Groups]:
    """Yield the groups of each partition; few at a time, so that not all wait for whoever takes them."""
    if min(parts, workers) < 2:
        yield from map(one, range(parts))
        return
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, parts, 8 * workers):
            yield from pool.map(one, range(start, min(start + 8 * workers, parts)))


def processors() -> int:
    """How many threads are worth while."""
    return os.cpu_count() or 1
