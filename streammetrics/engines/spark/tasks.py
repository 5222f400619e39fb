"""What tasks do: fold rows into states, and merge states; each is given batches, and yields batches.

These functions have no type hints that Spark would read: it takes them for the types of its own.
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
from ...io.queries import query_ids

__all__ = ["PART", "STATES", "folding", "merging"]

ROWS = 1 << 17  # counted at once: what a batch costs beside its rows no longer matters


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of some batches, many at a time, each column in one piece; nothing where there are none."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held += [batch] if batch.num_rows else []
        if sum(b.num_rows for b in held) >= ROWS:
            yield pa.Table.from_batches(held).combine_chunks()
            held = []
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def whole_queries(tables: Iterable[pa.Table], column: str | tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield rows that are sorted by query, cut between queries alone."""
    held: list[pa.Table] = []
    for table in tables:
        rows = pa.concat_tables([*held, table]).combine_chunks()
        ids = query_ids(rows, column)
        starts = np.flatnonzero((ids[1:] != ids[:-1]).any(axis=1)) + 1
        cut = int(starts[-1]) if len(starts) else 0
        if cut:
            yield rows.slice(0, cut)
        held = [rows.slice(cut)]
    yield from held


PART = "streammetrics: part"
"""The column that says which worker takes a row."""
STATES = "bucket int, state binary"
ROOM = 1 << 28  # bytes of states that a task holds before it hands them on
HELD = 1 << 26  # and of frames before it merges them


def folding(
    metrics: MetricLike, names: Sequence[str], buckets: int, query: Any = None, sealed: int = 0
) -> Callable[..., Any]:
    """Return what counts the rows of a task, and yields the states of its slices by bucket of their keys.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What is counted.
    names : sequence of str
        The columns, in their order.
    buckets : int
        How many there are.
    query : str or tuple of str, optional
        Rows are sorted by these columns, and equal ones are counted together.
    sealed : int
        Of how many partitions the groups of this task are one; 0 if its groups may have rows elsewhere.
    """

    def fold(batches):  # type: ignore[no-untyped-def]
        counted, first = metrics.copy(), 0
        task = TaskContext.get().partitionId()
        tables = (rows.rename_columns(names) for rows in gathered(batches))
        part = None
        for rows in tables if query is None else whole_queries(tables, query):
            if first and not sealed and nbytes(counted) > ROOM:
                yield from _frames(counted, buckets, task)
                counted.reset()
            part = _part(rows, part) if sealed else None
            _count(counted, rows, first, task)
            first += rows.num_rows
        if first:
            yield from _frames(counted if part is None else seal(counted, (part, sealed)), buckets, task)

    return fold


def merging(batches):  # type: ignore[no-untyped-def]
    """Merge the states of some buckets into one."""
    held, size = list[bytes](), 0
    for batch in batches:
        for state in batch.column("state"):
            held.append(state.as_py())
            size += len(held[-1])
            if size > HELD:
                held, size = [merge(held).to_bytes()], 0
    if held:
        yield _batch([0], [merge(held).to_bytes()])


def _count(counted: Any, rows: pa.Table, first: int, task: int) -> None:
    """Count rows; an error says which of the task they are."""
    try:
        counted.update(rows)
    except InvalidInputError as error:
        at = "" if error.row is None else f"; row {first + error.row:,} of them"
        raise InvalidInputError(f"{error} (rows of partition {task}, from its row {first:,} on{at})") from error


def _part(rows: pa.Table, known: int | None) -> int:
    """The partition whose groups the rows are.

    Raises
    ------
    InvalidInputError
        They are of two: then groups may be open, and must not be closed.
    """
    found = rows.column(PART).unique().to_pylist()
    if len({*found, *([] if known is None else [known])}) > 1:
        raise InvalidInputError(
            f"a task was given the groups of several partitions, {found}: repartitionById mixed them"
        )
    return int(found[0])


def _frames(counted: Any, buckets: int, task: int) -> Iterator[pa.RecordBatch]:
    """Yield states by bucket; without slices a task has one, which goes to any."""
    if not isinstance(counted, Sliced):
        yield _batch([task % buckets], [counted.to_bytes()])
        return
    for bucket, part in enumerate(counted.split(buckets)):
        if any(map(len, states_of(part))):
            yield _batch([bucket], [part.to_bytes()])


def _batch(buckets: Iterable[int], states: Iterable[bytes]) -> pa.RecordBatch:
    columns = [pa.array(buckets, pa.int32()), pa.array(states, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "state"])
