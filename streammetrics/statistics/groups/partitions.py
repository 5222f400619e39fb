"""Counts of the concordant pairs of every group, computed in parallel from unsorted rows.

Rows are first partitioned by a hash of their group ID, so that all rows of a group are in the same partition. Each
thread then processes one partition at a time: it numbers the groups, sorts the rows by group and counts concordant
pairs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...batch.columns import Batch
from ...batch.ids import Ids
from ...numerics import kernel_registry
from ...numerics.score_buckets import encode_scores
from .closed_sums import Groups
from .scan import SortedGroupRows, compare_rows, fixed_weights, scan_groups

__all__ = [
    "RawRows",
    "collect_groups",
    "count_processors",
    "hashes_of",
    "map_in_threads",
    "partition_of",
    "partition_rows",
    "scan_sorted",
    "split_words",
]

Array = NDArray[Any]
RawRows = dict[str, Array]
"""The columns of unsorted rows by name: "ids" (the group IDs), "scores", "labels" and, optionally, "weights"."""

T = TypeVar("T")
# The target number of rows per partition.
PART_ROWS = 1 << 15
# The initial size of the hash table that assigns a number to each group of a partition.
TABLE = 1 << 14
# The hash salt that assigns groups to workers (`partition=(i, n)`). It must never change, because all workers of a job
# must assign the groups in the same way.
SHARE = 0x5348415245000001
SPREAD = np.uint64(0x9E3779B97F4A7C15)
NOTHING = np.zeros(0, np.int64)


# -- ids -------------------------------------------------------------------------------------------------------------


def split_words(ids: Array) -> tuple[Array, Array]:
    """Return the first and the second 64-bit words of group IDs; the second array is empty if IDs have only one word."""
    if ids.ndim == 1:
        return ids, NOTHING
    return np.ascontiguousarray(ids[:, 0]), np.ascontiguousarray(ids[:, 1])


def hashes_of(ids: Array, salt: int) -> NDArray[np.uint64]:
    """Return the salted hash of each ID."""
    a, b = split_words(ids)
    if kernel_registry.has_kernels():
        out = np.empty(len(ids), np.uint64)
        kernel_registry.find_kernel("groups:hash_ids")(a, b, np.uint64(salt), out)
        return out
    low = _mix_bits(b.view(np.uint64)) if len(b) else np.uint64(0)
    return _mix_bits(a.view(np.uint64) ^ np.uint64(salt) ^ SPREAD ^ low)


def _mix_bits(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return x ^ (x >> np.uint64(33))


def partition_of(ids: Any, parts: int) -> NDArray[np.int64]:
    """Return the partition of every group: the hash of its ID modulo `parts`."""
    column = Batch({"group": ids}).column("group", Ids())
    return np.asarray(hashes_of(column.values, SHARE) % np.uint64(parts), np.int64)


def partition_rows(
    columns: Mapping[str, Array], hashes: NDArray[np.uint64], bits: int
) -> tuple[dict[str, Array], NDArray[np.int64]]:
    """Return columns whose rows are ordered by partition, and the index at which each partition begins.

    Rows are read in their original order, and each row is written to its partition. The reads, and the writes to each
    partition, are thus sequential in memory. If rows were read partition by partition, each read would jump to another
    place in memory.
    """
    places, starts = np.empty(len(hashes), np.int64), np.zeros((1 << bits) + 1, np.int64)
    kernel_registry.find_kernel("groups:partition_rows")(hashes, bits, places, starts)
    ordered = {name: np.empty_like(column) for name, column in columns.items()}
    for name, column in columns.items():
        if len(column):
            ordered[name][places] = column
    return ordered, starts


# -- from rows to groups ---------------------------------------------------------------------------------------------


def collect_groups(raws: Sequence[RawRows], workers: int) -> Groups:
    """Return the weights of negatives, positives and concordant pairs of every group in these rows.

    Parameters
    ----------
    raws : sequence of dict
        The columns of the rows, one dict for each block of rows.
    workers : int
        The number of threads.
    """
    raws = [r for r in raws if len(r["ids"])]
    if not raws:
        return Groups.zeros()
    words = {r["ids"].ndim for r in raws}
    if len(words) == 1 and all(r["scores"].dtype == np.float32 and "weights" not in r for r in raws):
        return _collect_plain(raws, workers)
    return _collect_any(_concat_rows(raws), workers)


def _concat_rows(raws: Sequence[RawRows]) -> RawRows:
    """Concatenate blocks of rows whose columns may have different types.

    If any block has weights, all rows of the result have weights. If any block has IDs of two 64-bit words, all rows of
    the result have such IDs.
    """
    if len(raws) == 1:
        return raws[0]
    two, weighted = any(r["ids"].ndim == 2 for r in raws), any("weights" in r for r in raws)
    columns = {
        "ids": np.concatenate([r["ids"] if not two else widen_ids(r["ids"]) for r in raws]),
        "scores": np.concatenate([r["scores"] for r in raws]),
        "labels": np.concatenate([r["labels"] for r in raws]),
    }
    return columns | ({"weights": np.concatenate([weights_of(r) for r in raws])} if weighted else {})


def widen_ids(ids: Array) -> Array:
    """Return group IDs as two 64-bit words each; the second word of a one-word ID is 0."""
    return ids if ids.ndim == 2 else np.column_stack([ids, np.zeros(len(ids), np.int64)])


def weights_of(raw: RawRows) -> Array:
    """Return the weight of each row; 1 if rows have no weights."""
    return raw["weights"] if "weights" in raw else np.ones(len(raw["labels"]))


def _partition_bits(n: int) -> int:
    # Kernels shift a hash right by 64 - `bits`. A shift by 64 is undefined, so `bits` must be at least 1.
    return max(1, min(12, (n // PART_ROWS).bit_length()))


def scan_sorted(raws: Sequence[RawRows]) -> Groups:
    """Return the weights of negatives, positives and concordant pairs of every group, from rows sorted by integer ID."""
    raws = [r for r in raws if len(r["ids"])]
    if not raws:
        return Groups.zeros()
    raw = _concat_rows(raws)
    ids, scores, labels = raw["ids"], raw["scores"], raw["labels"]
    begins = np.concatenate([[True], ids[1:] != ids[:-1]])
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32, copy=False)
    fits = scores.dtype == np.float32 or np.array_equal(narrow, scores)
    if not fits or "weights" in raw:
        numbers = np.cumsum(begins, dtype=np.int32) - np.int32(1)
        return _scan_rows(numbers, int(numbers[-1]) + 1, scores, labels, raw.get("weights"))
    keys = np.empty(len(ids), np.uint64)
    kernel_registry.find_kernel("groups:pack_scores")(narrow, labels, keys)
    return compare_rows(keys, np.append(np.flatnonzero(begins), len(ids)))


def _scan_rows(numbers: Array, count: int, scores: Array, labels: Array, weights: Array | None) -> Groups:
    keys = encode_scores(scores, True)
    by = np.lexsort([labels, keys, numbers])
    pair = None if weights is None else fixed_weights(weights[by])
    limbs = None if pair is None else tuple(np.ascontiguousarray(pair[:, i]) for i in range(2))
    ones = np.broadcast_to(np.uint32(1), len(by)) if limbs is not None else np.ones(len(by), np.uint32)
    return scan_groups(SortedGroupRows(numbers[by], keys[by], labels[by], ones, limbs), count)  # type: ignore[arg-type]


def _collect_plain(raws: Sequence[RawRows], workers: int) -> Groups:
    """Return the same result as `_collect_any`, but faster, for rows with a simple layout.

    All IDs must have the same size, scores must be float32, and rows must have no weights. The score and the label of
    such a row fit in one 64-bit key, which makes sorting fast.
    """
    # The first pass over the rows finds the partition of each row and the size of each partition. The second pass writes
    # the ID and the key of each row to its partition. Partitions are small enough to be sorted within the cache.
    sizes = [len(raw["ids"]) for raw in raws]
    n, bits = sum(sizes), _partition_bits(sum(sizes))
    first, second = np.empty(n, np.int64), np.empty(n if raws[0]["ids"].ndim == 2 else 0, np.int64)
    keys, starts = np.empty(n, np.uint64), np.zeros((1 << bits) + 1, np.int64)
    partitions_of_rows = np.split(np.empty(n, np.uint16), np.cumsum(sizes[:-1]))
    find, scatter = (
        kernel_registry.find_kernel("groups:find_partitions"),
        kernel_registry.find_kernel("groups:scatter_rows"),
    )
    for raw, row_partitions in zip(raws, partitions_of_rows, strict=True):
        find(raw["ids"].reshape(len(row_partitions), -1), bits, row_partitions, starts)
    np.cumsum(starts, out=starts)
    for raw, row_partitions in zip(raws, partitions_of_rows, strict=True):
        ids = raw["ids"].reshape(len(row_partitions), -1)
        scatter(row_partitions, ids, raw["scores"], raw["labels"], starts, first, second, keys)

    def collect_partition(p: int) -> Groups:
        part = slice(starts[p], starts[p + 1])
        return _compare_groups(*number_groups(first[part], second[part], bits), keys[part])

    return Groups.concat(map_in_threads(collect_partition, 1 << bits, workers))


def _compare_groups(numbers: NDArray[np.int32], count: int, keys: NDArray[np.uint64]) -> Groups:
    """Return the numbers of negatives, positives and concordant pairs of each of `count` groups.

    `numbers` contains the group number of each row, and `keys` its score and label, packed into one integer.
    """
    begins, ordered = np.zeros(count + 1, np.int64), np.empty(len(numbers), np.uint64)
    kernel_registry.find_kernel("groups:sort_by_group")(numbers, keys, begins, ordered)
    return compare_rows(ordered, begins)


def _pack_scores(scores: Array, labels: Array) -> NDArray[np.uint64]:
    """Return a key for each row: 32 bits that preserve the order of the scores, followed by the label bit."""
    keys = np.empty(len(labels), np.uint64)
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32, copy=False)
    if scores.dtype == np.float32 or np.array_equal(narrow, scores):
        kernel_registry.find_kernel("groups:pack_scores")(narrow, labels, keys)
        return keys
    # Only the order of the scores matters, so replace them with ranks, which fit in 32 bits. Equal scores share a rank.
    order = np.argsort(scores)
    ordered = scores[order]
    keys[order[:1]], keys[order[1:]] = 0, np.cumsum(ordered[1:] != ordered[:-1])
    return (keys << np.uint64(1)) | labels


def _collect_any(raw: RawRows, workers: int) -> Groups:
    bits = _partition_bits(len(raw["ids"]))
    ordered, starts = partition_rows(raw, hashes_of(raw["ids"], 0), bits)

    def collect_partition(p: int) -> Groups:
        part = {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}
        numbers, count = number_groups(*split_words(part["ids"]), bits)
        if "weights" in part:
            return _scan_rows(numbers, count, part["scores"], part["labels"], part["weights"])
        return _compare_groups(numbers, count, _pack_scores(part["scores"], part["labels"]))

    return Groups.concat(map_in_threads(collect_partition, 1 << bits, workers))


def number_groups(a: Array, b: Array, bits: int) -> tuple[NDArray[np.int32], int]:
    """Number the groups of the rows from 0, in order of first appearance.

    Parameters
    ----------
    a, b : int64 arrays
        The first and the second words of the group IDs; `b` is empty if IDs have only one word.
    bits : int
        The number of leading bits of an ID's hash that determine its partition; all rows share these bits.

    Returns
    -------
    numbers : int32 array
        The group number of each row.
    count : int
        The number of groups.
    """
    n, count, size = len(a), -1, TABLE
    numbers, number = np.empty(n, np.int32), kernel_registry.find_kernel("groups:number_groups")
    # Begin with a hash table that is small enough for the fastest cache. If it fills up, start again with a larger one.
    while count < 0:
        slots, known = np.full(size, -1, np.int32), np.empty(size, np.int64)
        count = int(number(a, b, bits, 0, slots, known, numbers))
        size *= 8
    return numbers, count


def map_in_threads(function: Callable[[int], T], parts: int, workers: int) -> Iterator[T]:
    """Yield `function(i)` for each partition i, computed in threads.

    Partitions are computed in small batches. A batch begins only after the caller has consumed all results of the
    previous batch, so that only a few results are in memory at a time.
    """
    if min(parts, workers) < 2:
        yield from map(function, range(parts))
        return
    with ThreadPoolExecutor(workers) as pool:
        apply = pool.map if _can_start_threads(pool) else map
        for start in range(0, parts, 8 * workers):
            yield from apply(function, range(start, min(start + 8 * workers, parts)))


def _can_start_threads(pool: ThreadPoolExecutor) -> bool:
    """Return whether new threads can start. While the interpreter exits, as in `atexit` functions, they cannot."""
    try:
        pool.submit(int)
    # `submit` fails while the interpreter exits, because no new thread can start then.
    except RuntimeError:
        return False
    return True


def count_processors() -> int:
    """Return the number of processors."""
    return os.cpu_count() or 1
