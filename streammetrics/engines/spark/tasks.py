"""The functions of tasks: compute states of rows, and merge states. Both take and yield record batches.

They have no type hints, as Spark would read these as types of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from ...collect.metric_like import MetricLike, nbytes, seal, states_of
from ...collect.serialization import merge
from ...compose.sliced import Sliced
from ...errors import InvalidInputError
from ...io.queries import compute_query_ids

__all__ = ["PART", "STATES", "build_fold_task", "merge_task"]

BATCH_ROWS = 1 << 17  # rows in a batch, enough to make the fixed cost of a batch negligible


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of batches in large tables with contiguous columns; empty batches are skipped."""
    buffer: list[pa.RecordBatch] = []
    for batch in batches:
        buffer += [batch] if batch.num_rows else []
        if sum(b.num_rows for b in buffer) >= BATCH_ROWS:
            yield pa.Table.from_batches(buffer).combine_chunks()
            buffer = []
    if buffer:
        yield pa.Table.from_batches(buffer).combine_chunks()


def split_between_queries(tables: Iterable[pa.Table], column: str | tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield tables of rows sorted by query, split only between queries."""
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
"""The column with the part number of a row."""
STATES = "bucket int, state binary"
MAX_STATE_BYTES = 1 << 28  # bytes of states of a task before it sends them on
MAX_BUFFERED_BYTES = 1 << 26  # bytes of frames of a task before it merges them


def build_fold_task(
    metrics: MetricLike, names: Sequence[str], buckets: int, query: Any = None, sealed: int = 0
) -> Callable[..., Any]:
    """Return the function of a task that counts its rows, and yields the states of its slices by bucket of keys.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute.
    names : sequence of str
        The names of the columns, in order.
    buckets : int
        The number of buckets.
    query : str or tuple of str, optional
        The query columns, by which rows are sorted; rows of a query are counted in one batch.
    sealed : int
        The number of partitions of groups, if each task has all rows of its groups and can close them; otherwise 0.
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
    """Merge all states that a task receives, and yield the result; metrics and settings must be equal."""
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
    """Update metrics with rows; an error names the partition and the rows in it."""
    try:
        counted.update(rows)
    except InvalidInputError as error:
        at = "" if error.row is None else f"; row {first + error.row:,} of them"
        raise InvalidInputError(f"{error} (rows of partition {task}, from its row {first:,} on{at})") from error


def _check_part(rows: pa.Table, previous: int | None) -> int:
    """Return the part number of some rows, which must all be in one part.

    Raises
    ------
    InvalidInputError
        The rows are of two parts, so the groups may not be complete and must not be closed.
    """
    parts = rows.column(PART).unique().to_pylist()
    if len({*parts, *([] if previous is None else [previous])}) > 1:
        raise InvalidInputError(
            f"a task was given the groups of several partitions, {parts}: repartitionById mixed them"
        )
    return int(parts[0])


def _split_by_bucket(counted: Any, buckets: int, task: int) -> Iterator[pa.RecordBatch]:
    """Split metrics by the bucket of the slice key; yield each bucket with the state of its slices.

    Metrics without slices have one state, which may be in any bucket.
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
