"""The functions that Spark runs in tasks: one computes states of rows, and the other merges states.

Both take and yield Arrow record batches. They have no type hints, because Spark would interpret the hints as column
types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from ...collect.metric_like import MetricLike, nbytes, seal, states_of
from ...collect.query_columns import compute_query_ids
from ...collect.serialization import merge
from ...compose.sliced import Sliced
from ...errors import InvalidInputError

__all__ = ["PART", "STATES", "build_fold_task", "merge_task"]

# Rows are counted in batches of at least this size, which makes the fixed cost of a batch negligible.
BATCH_ROWS = 1 << 17


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small record batches into tables of at least BATCH_ROWS rows; the last table may be smaller.

    Each column of a table is one contiguous array.
    """
    buffer: list[pa.RecordBatch] = []
    for batch in batches:
        buffer += [batch] if batch.num_rows else []
        if sum(b.num_rows for b in buffer) >= BATCH_ROWS:
            yield pa.Table.from_batches(buffer).combine_chunks()
            buffer = []
    if buffer:
        yield pa.Table.from_batches(buffer).combine_chunks()


def split_between_queries(tables: Iterable[pa.Table], column: str | tuple[str, ...]) -> Iterator[pa.Table]:
    """Regroup the rows of tables, and yield new tables that contain only whole queries.

    The rows must already be sorted by the query `column`.
    """
    buffer: list[pa.Table] = []
    for table in tables:
        rows = pa.concat_tables([*buffer, table]).combine_chunks()
        ids = compute_query_ids(rows, column)
        starts = np.flatnonzero((ids[1:] != ids[:-1]).any(axis=1)) + 1
        cut = int(starts[-1]) if len(starts) else 0
        if cut:
            yield rows.slice(0, cut)
        buffer = [rows.slice(cut)]
    yield from buffer


PART = "streammetrics: part"
"""The name of the column with the number of the partition to which a row belongs."""
STATES = "bucket int, state binary"
# When the states of a task exceed this size in bytes, the task yields them and continues with empty states.
MAX_STATE_BYTES = 1 << 28
# A task that merges states collects them until their total size exceeds this many bytes, and then merges them.
MAX_BUFFERED_BYTES = 1 << 26


def build_fold_task(
    metrics: MetricLike, names: Sequence[str], buckets: int, query: Any = None, sealed: int = 0
) -> Callable[..., Any]:
    """Return a function that counts the rows of a task, and yields the states of its slices, grouped into buckets.

    The hash of a slice key determines its bucket, so that another task can merge all states of a bucket.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute.
    names : sequence of str
        The names of the columns, in order.
    buckets : int
        The number of buckets of slices.
    query : str or tuple of str, optional
        The query columns, by which rows are sorted. All rows of a query are counted in one batch.
    sealed : int
        The number of partitions if each task has all rows of its groups, and can therefore close the groups (reduce
        them to sums); otherwise 0.
    """

    def fold(batches):  # type: ignore[no-untyped-def]
        copy, first = metrics.copy(), 0
        task = TaskContext.get().partitionId()
        tables = (rows.rename_columns(names) for rows in join_batches(batches))
        part = None
        for rows in tables if query is None else split_between_queries(tables, query):
            if first and not sealed and nbytes(copy) > MAX_STATE_BYTES:
                yield from _split_by_bucket(copy, buckets, task)
                copy.reset()
            part = _check_part(rows, part) if sealed else None
            _count_rows(copy, rows, first, task)
            first += rows.num_rows
        if first:
            yield from _split_by_bucket(copy if part is None else seal(copy, (part, sealed)), buckets, task)

    return fold


def merge_task(batches):  # type: ignore[no-untyped-def]
    """Merge all states that a task receives, and yield the result; their metrics and settings must be the same."""
    states, size = list[bytes](), 0
    for batch in batches:
        for state in batch.column("state"):
            states.append(state.as_py())
            size += len(states[-1])
            if size > MAX_BUFFERED_BYTES:
                states, size = [merge(states).to_bytes()], 0
    if states:
        yield _build_batch([0], [merge(states).to_bytes()])


def _count_rows(counted: Any, rows: pa.Table, first: int, task: int) -> None:
    """Update metrics with some rows of a partition; if a row is invalid, the error names the row and partition.

    `first` is the index of the first of these rows in the partition, and `task` is the partition number.
    """
    try:
        counted.update(rows)
    except InvalidInputError as error:
        at = "" if error.row is None else f", so its row {error.row:,} is row {first + error.row:,} of the partition"
        raise InvalidInputError(f"{error} (this batch starts at row {first:,} of partition {task}{at})") from error


def _check_part(rows: pa.Table, previous: int | None) -> int:
    """Return the number of the partition to which all of these rows belong, as stored in the column PART.

    `previous` is the partition of the earlier rows of this task, or None if there are none.

    Raises
    ------
    InvalidInputError
        If the task received rows of several partitions. Its groups may then be incomplete and must not be closed.
    """
    parts = rows.column(PART).unique().to_pylist()
    if len({*parts, *([] if previous is None else [previous])}) > 1:
        raise InvalidInputError(
            f"expected all rows of a Spark task to be in one partition, found partitions {parts}: Spark did not "
            f"distribute the rows as repartitionById requested, so groups may be incomplete"
        )
    return int(parts[0])


def _split_by_bucket(counted: Any, buckets: int, task: int) -> Iterator[pa.RecordBatch]:
    """Split sliced metrics into buckets by the hash of the slice key, and yield each bucket with its state.

    Metrics without slices are not split. The number of the task determines the bucket of their state.
    """
    if not isinstance(counted, Sliced):
        yield _build_batch([task % buckets], [counted.to_bytes()])
        return
    for bucket, part in enumerate(counted.split(buckets)):
        if any(map(len, states_of(part))):
            yield _build_batch([bucket], [part.to_bytes()])


def _build_batch(buckets: Iterable[int], states: Iterable[bytes]) -> pa.RecordBatch:
    columns = [pa.array(buckets, pa.int32()), pa.array(states, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "state"])
