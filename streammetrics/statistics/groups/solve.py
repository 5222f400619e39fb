"""From rows as they came to groups: partitioned by a hash of their group, numbered, sorted and scanned, in threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...batch.columns import Batch
from ...batch.ids import Ids
from ...numerics import kernel_registry as compiled
from ...numerics.buckets import key_of
from .closed import Groups
from .scan import Sorted, compared, fixed_weights, scanned

__all__ = ["Raw", "halves", "hashes_of", "in_threads", "partitioned", "processors", "scan_sorted", "share_of", "solve"]

Array = NDArray[Any]
Raw = dict[str, Array]
"""Rows as they came: ids, scores, labels and, if there are any, weights."""

T = TypeVar("T")
PART_ROWS = 1 << 15
TABLE = 1 << 14  # slots
SHARE = 0x5348415245000001  # the salt of partitions; for ever
SPREAD = np.uint64(0x9E3779B97F4A7C15)
NOTHING = np.zeros(0, np.int64)


# -- ids -------------------------------------------------------------------------------------------------------------


def halves(ids: Array) -> tuple[Array, Array]:
    """Both words of ids; the second is empty where they have one."""
    if ids.ndim == 1:
        return ids, NOTHING
    return np.ascontiguousarray(ids[:, 0]), np.ascontiguousarray(ids[:, 1])


def hashes_of(ids: Array, salt: int) -> NDArray[np.uint64]:
    """Return the salted hash of each id."""
    a, b = halves(ids)
    if compiled.loaded():
        out = np.empty(len(ids), np.uint64)
        compiled.kernel("groups:hash_ids")(a, b, np.uint64(salt), out)
        return out
    low = _finish(b.view(np.uint64)) if len(b) else np.uint64(0)
    return _finish(a.view(np.uint64) ^ np.uint64(salt) ^ SPREAD ^ low)


def _finish(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return x ^ (x >> np.uint64(33))


def share_of(ids: Any, parts: int) -> NDArray[np.int64]:
    """The class of every group, modulo `parts`."""
    column = Batch({"group": ids}).column("group", Ids())
    return np.asarray(hashes_of(column.values, SHARE) % np.uint64(parts), np.int64)


def partitioned(
    columns: Mapping[str, Array], hashes: NDArray[np.uint64], bits: int
) -> tuple[dict[str, Array], NDArray[np.int64]]:
    """Return columns with the rows of each partition side by side, and where each begins; an empty column stays so.

    Writing every row to its place goes along as many lines as there are partitions; fetching them would jump.
    """
    places, starts = np.empty(len(hashes), np.int64), np.zeros((1 << bits) + 1, np.int64)
    compiled.kernel("groups:partition_rows")(hashes, bits, places, starts)
    ordered = {name: np.empty_like(column) for name, column in columns.items()}
    for name, column in columns.items():
        if len(column):
            ordered[name][places] = column
    return ordered, starts


# -- from rows to groups ---------------------------------------------------------------------------------------------


def solve(raws: Sequence[Raw], workers: int) -> Groups:
    """Return the groups of some rows, sorted in some threads."""
    raws = [r for r in raws if len(r["ids"])]
    if not raws:
        return Groups.none()
    if all(r["ids"].ndim == 1 and r["scores"].dtype == np.float32 and "weights" not in r for r in raws):
        return _solve_plain(raws, workers)
    return _solve_any(_joined(raws), workers)


def _joined(raws: Sequence[Raw]) -> Raw:
    """Rows of several kinds as one: ids of two words, float64 and weights where one has them."""
    if len(raws) == 1:
        return raws[0]
    two, weighted = any(r["ids"].ndim == 2 for r in raws), any("weights" in r for r in raws)
    made = {
        "ids": np.concatenate([r["ids"] if not two else widened(r["ids"]) for r in raws]),
        "scores": np.concatenate([r["scores"] for r in raws]),
        "labels": np.concatenate([r["labels"] for r in raws]),
    }
    return made | ({"weights": np.concatenate([weights_of(r) for r in raws])} if weighted else {})


def widened(ids: Array) -> Array:
    """Ids as two words."""
    return ids if ids.ndim == 2 else np.column_stack([ids, np.zeros(len(ids), np.int64)])


def weights_of(raw: Raw) -> Array:
    """The weight of each row."""
    return raw["weights"] if "weights" in raw else np.ones(len(raw["labels"]))


def _bits(n: int) -> int:
    return max(1, min(12, (n // PART_ROWS).bit_length()))  # a shift by all 64 bits is undefined


def scan_sorted(raws: Sequence[Raw]) -> Groups:
    """Return the groups of rows in the order of their groups, of integers."""
    raws = [r for r in raws if len(r["ids"])]
    if not raws:
        return Groups.none()
    raw = _joined(raws)
    ids, scores, labels = raw["ids"], raw["scores"], raw["labels"]
    begins = np.concatenate([[True], ids[1:] != ids[:-1]])
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32, copy=False)
    fits = scores.dtype == np.float32 or np.array_equal(narrow, scores)
    if not fits or "weights" in raw:
        numbers = np.cumsum(begins, dtype=np.int32) - np.int32(1)
        return _scan_any(numbers, int(numbers[-1]) + 1, scores, labels, raw.get("weights"))
    keys = np.empty(len(ids), np.uint64)
    compiled.kernel("groups:pack_scores")(narrow, labels, keys)
    return compared(keys, np.append(np.flatnonzero(begins), len(ids)))


def _scan_any(numbers: Array, count: int, scores: Array, labels: Array, weights: Array | None) -> Groups:
    keys = key_of(scores, True)
    by = np.lexsort([labels, keys, numbers])
    pair = None if weights is None else fixed_weights(weights[by])
    limbs = None if pair is None else tuple(np.ascontiguousarray(pair[:, i]) for i in range(2))
    ones = np.broadcast_to(np.uint32(1), len(by)) if limbs is not None else np.ones(len(by), np.uint32)
    return scanned(Sorted(numbers[by], keys[by], labels[by], ones, limbs), count)  # type: ignore[arg-type]


def _solve_plain(raws: Sequence[Raw], workers: int) -> Groups:
    """Groups of integers, float32 scores and no weights: a row sorts as one integer."""
    sizes = [len(raw["ids"]) for raw in raws]
    n, bits = sum(sizes), _bits(sum(sizes))
    ids, keys, starts = np.empty(n, np.int64), np.empty(n, np.uint64), np.zeros((1 << bits) + 1, np.int64)
    where = np.split(np.empty(n, np.uint16), np.cumsum(sizes[:-1]))
    find, scatter = compiled.kernel("groups:find_partitions"), compiled.kernel("groups:scatter_rows")
    for raw, mine in zip(raws, where, strict=True):
        find(raw["ids"], bits, mine, starts)
    np.cumsum(starts, out=starts)
    for raw, mine in zip(raws, where, strict=True):
        scatter(mine, raw["ids"], raw["scores"], raw["labels"], starts, ids, keys)
    side_by_side = compiled.kernel("groups:side_by_side")

    def one(p: int) -> Groups:
        part = slice(starts[p], starts[p + 1])
        numbers, count = numbered(ids[part], NOTHING, bits)
        begins, ordered = np.zeros(count + 1, np.int64), np.empty(len(numbers), np.uint64)
        side_by_side(numbers, keys[part], begins, ordered)
        return compared(ordered, begins)

    return Groups.joined(in_threads(one, 1 << bits, workers))


def _solve_any(raw: Raw, workers: int) -> Groups:
    bits = _bits(len(raw["ids"]))
    ordered, starts = partitioned(raw, hashes_of(raw["ids"], 0), bits)

    def one(p: int) -> Groups:
        part = {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}
        numbers, count = numbered(*halves(part["ids"]), bits)
        return _scan_any(numbers, count, part["scores"], part["labels"], part.get("weights"))

    return Groups.joined(in_threads(one, 1 << bits, workers))


def numbered(a: Array, b: Array, bits: int) -> tuple[NDArray[np.int32], int]:
    """Return the number of each row's group, in the order in which they are met, and how many there are."""
    n, count, size = len(a), -1, TABLE
    numbers, number = np.empty(n, np.int32), compiled.kernel("groups:number_groups")
    while count < 0:  # a small table stays in the nearest cache; where it fills up, rows begin again with a larger one
        slots, known = np.full(size, -1, np.int32), np.empty(size, np.int64)
        count = int(number(a, b, bits, 0, slots, known, numbers))
        size *= 8
    return numbers, count


def in_threads(one: Callable[[int], T], parts: int, workers: int) -> Iterator[T]:
    """Yield what is made of each partition; few at a time, so that not all wait for whoever takes them."""
    if min(parts, workers) < 2:
        yield from map(one, range(parts))
        return
    with ThreadPoolExecutor(workers) as pool:
        many = pool.map if _starts(pool) else map
        for start in range(0, parts, 8 * workers):
            yield from many(one, range(start, min(start + 8 * workers, parts)))


def _starts(pool: ThreadPoolExecutor) -> bool:
    """Whether there are threads: not where the interpreter ends, and a function of `atexit` computes what was counted."""
    try:
        pool.submit(int)
    except RuntimeError:  # that there are none is the answer
        return False
    return True


def processors() -> int:
    """How many threads are worth while."""
    return os.cpu_count() or 1
