"""Score a log with several threads.

Each thread counts parts of the log into its own copy of the metrics, and the copies are merged at the end. States
consist of integers, and merging adds these exactly, so the result is bit for bit the same for any number of threads.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from streammetrics.batch.ids import Ids
from streammetrics.batch.kinds import Matrix, Score, Weight
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric_like import columns_of, empty_copy, merge_and_consume, states_of
from streammetrics.collect.query_columns import find_query_column
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.compose.windowed import Windowed
from streammetrics.errors import InvalidInputError
from streammetrics.io.checkpoints import CheckpointFile, CountedParts
from streammetrics.io.column_types import ColumnUses
from streammetrics.io.external_sort import QueryPartition, QueryPartitions, SortedRows, count_partitions
from streammetrics.io.logs import Log, LogPart
from streammetrics.io.queries import LogPiece, QuerySplitter, concat_pieces
from streammetrics.io.row_filter import Filter
from streammetrics.io.slice_plan import USERS, SlicePlan, WindowOptions, slice_name
from streammetrics.io.sources import PathLike
from streammetrics.io.top_keys import find_largest_keys

__all__ = [
    "OVERALL",
    "EvaluatedLog",
    "PassProgress",
    "count_cpus",
    "evaluate",
    "window_name",
]

OVERALL = "overall"
WATCH_SECONDS = 0.1
# The time in seconds to wait for threads after an interrupt: enough to count a batch, but not to compile a kernel.
STOP_SECONDS = 2.0


class PassProgress(NamedTuple):
    """Progress of a pass over a log.

    Parameters
    ----------
    rows : int
        Number of rows counted so far.
    bytes : int
        Number of bytes read from the files so far.
    """

    rows: int
    bytes: int


@dataclass(frozen=True)
class EvaluatedLog:
    """The result of one pass over a log.

    Parameters
    ----------
    overall : MetricCollection or Sharded
        The metrics of all rows.
    slices : dict of tuple of str to Sliced
        The metrics by slice, for each set of slicing columns. If there are arms, their column comes first in each set.
    rows : int
        Number of rows read, including dropped rows.
    windows : Windowed, optional
        The metrics of all rows by window, if windows are requested. Slices are then split by window as well.
    users : Sliced, optional
        The distinct users of each arm, if they are counted.
    """

    overall: MetricCollection | Sharded
    slices: dict[tuple[str, ...], Sliced]
    rows: int
    windows: Windowed | None = None
    users: Sliced | None = None

    @property
    def bundle(self) -> Any:
        """All results in one object, except the distinct users of each arm.

        Without slices and windows, this is `overall`. Otherwise, it is a `Bundle` with names such as "by 1h of ts".
        """
        windows = {} if self.windows is None else {window_name(self.windows): self.windows}
        parts = windows | {slice_name(by): sliced for by, sliced in self.slices.items()}
        return Bundle({OVERALL: self.overall} | parts) if parts else self.overall


def window_name(windows: Windowed) -> str:
    """Return a name for windows, such as "by 1h of ts", for bundles and table titles."""
    return f"by {windows.width} of {windows.time}"


def count_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def evaluate(
    log: Log,
    metrics: MetricCollection | Sharded,
    by: Iterable[str | Sequence[str]] = (),
    *,
    arm: str | None = None,
    users: Sliced | None = None,
    window: WindowOptions | None = None,
    limit: int | None = None,
    keep: str = "hash",
    threads: int | None = None,
    where: Iterable[Filter] = (),
    watch: Callable[[PassProgress], object] | None = None,
    checkpoint: PathLike | None = None,
) -> EvaluatedLog:
    """Score a log in one pass, with memory use that does not grow with the number of rows.

    Parameters
    ----------
    log : Log
        The log.
    metrics : MetricCollection or Sharded
        The metrics to compute; this object itself is not updated. Weights are read only if a task names their column.
    by : iterable of str or sequence of str
        Slices: each item is one column, or several columns whose values are crossed.
    arm : str, optional
        The column of the arms of an experiment. All slices are then split by arm first.
    users : Sliced, optional
        An empty `DistinctSample` of the units of `metrics`, sliced by arm, to count the distinct users of each arm over
        the whole log.
    window : WindowOptions, optional
        Windows of event time, for all rows and within every slice.
    limit : int, optional
        How many slices to keep for each set of columns; all other slices are merged into one (see `Sliced`).
    keep : {"hash", "rows"}
        Which slices to keep. "hash" keeps the keys with the smallest hashes: the choice is the same in every log, so
        that states can be merged. "rows" keeps the largest slices, which a first pass over the key columns finds. This
        requires a log that can be read twice and contains at most 4 million keys; otherwise, "hash" applies.
    threads : int, optional
        Number of threads; by default the number of CPUs.
    where : iterable of Filter
        Conditions on rows. A task can name a filter as its `where`, as if the filter were a column of 0s and 1s.
    watch : callable, optional
        Called ten times a second with the progress so far, in the calling thread.
    checkpoint : path, optional
        A file that stores the counts so far, and the parts that they cover. The file is replaced atomically, usually
        after each part. It is replaced less often if writing it would take more than a twentieth of the time. If the
        file exists, the pass resumes from it; if the earlier pass was finished, its result is returned immediately.
        Parts are row groups or record batches; for text and Arrow streams, they are whole files. The digest of the
        result does not depend on where a pass was interrupted.

    Returns
    -------
    EvaluatedLog
        The metrics of all rows and of every slice.

    Raises
    ------
    LogError
        A file is corrupt or lacks a column.
    InvalidInputError
        A value is invalid; the message gives the file, the column and the row (counted from 0 within the file).
    MemoryLimitError
        There are too many slices, or groups contain more rows than a checkpoint can store.
    OSError
        The checkpoint cannot be written. The previous checkpoint is unchanged.
    """
    column_sets = [(one,) if isinstance(one, str) else tuple(one) for one in ([by] if isinstance(by, str) else by)]
    plan = SlicePlan(column_sets, arm, window, limit, users)
    keys = list(dict.fromkeys(name for names in plan.column_sets for name in names))
    conditions = list(where)
    counted = metrics if window is None else Windowed(metrics, width=window.width, time=window.time)
    flag_columns = {one.name for one in conditions}
    columns = [name for name, must in columns_of(counted).items() if must and name not in flag_columns]
    columns += [name for one in conditions for name in one.columns]
    _check_unbound_roles(metrics, {*columns, *keys})
    uses = _find_uses(metrics, keys, conditions, window)
    parts: Sequence[LogPart] = log.parts(columns, list(uses.keys), uses)
    kinds = {one.name: log.find_comparison_types(one.columns, uses) for one in conditions}
    filters = {one.name: replace(one, kinds=tuple(kinds[one.name].items())) for one in conditions}
    for one in filters.values():
        one.check(log.schema)
    task_filters = {read.binding.where for read in definition_of(metrics).reads}
    if filters:
        parts = [part.with_filters(tuple(filters.values())) for part in parts]
    count = threads or count_cpus()
    query = find_query_column(metrics)
    checkpoint_file = None
    if checkpoint is not None:
        limits = "all" if limit is None else f"{limit} by {keep}"
        checkpoint_file = CheckpointFile(checkpoint, log, parts, [*columns, *keys, *filters, limits])
        checkpoint_file.check(metrics, query)
    resumed = None if checkpoint_file is None else checkpoint_file.checkpoint
    fixed_keys: Mapping[Any, Sequence[Any]]
    if resumed is not None:
        fixed_keys = plan.read_fixed_keys(resumed.total)
    else:
        rows_of = [] if None in task_filters else sorted(map(str, task_filters))
        fixed_keys = {}
        if keep != "hash" and limit is not None and not log.is_stream:
            fixed_keys = find_largest_keys(log, column_sets, limit, count, [*filters.values()], rows_of, uses)
    counted = plan.build_metrics(counted, fixed_keys)
    if checkpoint_file is not None:
        total, rows = _count_with_checkpoint(checkpoint_file, parts, counted, count, watch)
    else:
        size = None if log.is_stream or log.is_table else log.bytes
        total, rows = _count_parts(parts, query, counted, size, count, watch)
    slices = {names: total[slice_name(names)] for names in plan.column_sets}
    overall: Any = next(iter(slices.values()), total)
    while isinstance(overall, Sliced):
        overall = overall.total
    windows = overall if window else None
    return EvaluatedLog(
        overall.total if window else overall, slices, rows, windows, None if users is None else total[USERS]
    )


Watch = Callable[[PassProgress], object] | None


def _count_parts(
    parts: Sequence[LogPart], query: Any, metrics: MetricCollection, size: int | None, threads: int, watch: Watch
) -> tuple[MetricCollection, int]:
    """Compute the metrics from all parts; return them and the number of rows.

    Ranking metrics need all rows of a query together. If the rows of a query turn out not to be adjacent, a second pass
    sorts them. `query` names the columns that identify a query, or is None if the metrics need no queries. `size` is
    the size of the log in bytes, or None if the log can be read only once or has no fixed order. If `size` is None, the
    rows are sorted by query in the first pass. `watch` is called repeatedly with the progress.
    """
    if query is not None and size is None:
        return _sort_and_count(QueryPartitions(query, parts, count_partitions(None)), metrics, threads, watch)
    queries = None if query is None else QuerySplitter(query)
    workers = [_CountWorker(empty_copy(metrics), queries) for _ in range(min(threads, max(len(parts), 1)))]
    rows = _run_workers(_PartQueue(parts), workers, watch)
    # Before raising errors from metrics, look for queries whose rows are not adjacent. Such queries may have caused the
    # errors, and sorting makes their rows adjacent.
    if queries is not None and queries.has_scattered_query():
        return _sort_and_count(QueryPartitions(query, parts, count_partitions(size)), metrics, threads, watch)
    _raise_first_error(workers)
    total = merge_and_consume([worker.metrics for worker in workers])
    if queries is not None:
        _count_edge_queries(queries.collect_edge_pieces(), total)
    return total, rows


def _count_with_checkpoint(
    checkpoint_file: CheckpointFile, parts: Sequence[LogPart], metrics: MetricCollection, threads: int, watch: Watch
) -> tuple[MetricCollection, int]:
    """Process the parts that the checkpoint does not cover, and update the checkpoint."""
    resumed = checkpoint_file.open(metrics)
    if resumed.finished:
        return resumed.total, resumed.rows
    counted = {i for a, b in resumed.done for i in range(a, b)}
    for i in counted:
        # For the progress bar, treat parts that the checkpoint covers as read.
        parts[i].read_bytes = parts[i].bytes
    job = _PartQueue(parts, counted)
    workers = [
        _CountWorker(empty_copy(metrics), None, checkpoint_file) for _ in range(min(threads, len(parts) - len(counted)))
    ]

    def write_and_report(progress: PassProgress) -> None:
        checkpoint_file.write(workers)
        if watch is not None:
            watch(progress._replace(rows=progress.rows + resumed.rows))

    _run_workers(job, workers, write_and_report)
    # Save the progress even after an error, because the user may repair the file or drop the invalid row and then
    # resume.
    if any(worker.error is not None for worker in workers):
        checkpoint_file.write(workers)
    _raise_first_error(workers)
    checkpoint = checkpoint_file.close(workers)
    return checkpoint.total, checkpoint.rows


def _sort_and_count(
    partitions: QueryPartitions, metrics: MetricCollection, threads: int, watch: Watch
) -> tuple[MetricCollection, int]:
    """Bring the rows of each query together by partitioning them on disk, then count each partition."""
    readers = [_PartitionWorker(partitions) for _ in range(min(threads, len(partitions.parts)))]
    rows = _run_workers(_PartQueue(partitions.parts), readers, watch)
    _raise_first_error(readers)
    filled = partitions.close()
    # If no partition has rows, the log is empty.
    if not filled:
        return empty_copy(metrics), rows
    counters = [_CountWorker(empty_copy(metrics), None) for _ in range(min(threads, len(filled)))]
    _run_workers(_PartQueue(filled), counters, None)
    _raise_first_error(counters)
    return merge_and_consume([counter.metrics for counter in counters]), rows


def _find_uses(
    metrics: MetricCollection | Sharded, keys: Sequence[str], filters: Sequence[Filter], window: WindowOptions | None
) -> ColumnUses:
    """Return how metrics, keys, filters and windows use the columns of a log, which decides the column types."""
    ids, flag_columns = _find_id_columns(metrics), {one.name for one in filters}
    conditions = [condition for one in filters for condition in one.conditions]
    values = {*columns_of(metrics), *(one.column for one in conditions if not one.sign)} - flag_columns - set(ids)
    integers = {one.column for one in conditions if one.is_large} - values
    exact = {one.column for one in conditions if one.is_exact} - values
    steps = {window.time} if window is not None and isinstance(window.width, int) else set()
    times = {window.time} if window is not None and isinstance(window.width, str) else set()
    return ColumnUses([*keys, *ids], values, integers | steps, exact, _find_numeric_columns(metrics), times)


def _find_numeric_columns(metrics: MetricCollection | Sharded) -> set[str]:
    """Return the columns that must be numeric: scores, weights, targets and values."""
    columns: set[str] = set()
    for state, binding, *_ in definition_of(metrics).reads:
        for need in state.needs():
            kind = need.kind.kind if isinstance(need.kind, Matrix) else need.kind
            if isinstance(kind, (Score, Weight)):
                column = binding.column(need.role)
                columns |= {column} if isinstance(column, str) else set(column)
    return columns


def _find_id_columns(metrics: MetricCollection | Sharded) -> list[str]:
    """Return the columns that contain the IDs of groups, queries and units. They are read like slicing keys."""
    reads = definition_of(metrics).reads
    columns = [b.column(n.role) for state, b, *_ in reads for n in state.needs() if isinstance(n.kind, Ids)]
    columns += [read.binding.unit.column for read in reads if read.binding.unit is not None]
    return [name for column in columns for name in (column if isinstance(column, tuple) else (column,))]


def _count_edge_queries(pieces: list[LogPiece], total: MetricCollection) -> None:
    """Add to `total` the first and last query of every part; the rows of these queries may lie in several parts."""
    try:
        if pieces:
            total.update(concat_pieces(pieces))
    except InvalidInputError as error:
        row = error.row or 0
        for piece in pieces:
            if row < piece.rows.num_rows:
                raise _add_position(error, *piece.locate(row)) from None
            row -= piece.rows.num_rows
        raise


def _check_unbound_roles(metrics: MetricCollection | Sharded, columns: set[str]) -> None:
    """Raise an error if `update` would use a column as an optional argument, although it is read for another purpose.

    For example, a slicing column named `sample_weight` would be used as the weights, because `update` finds its
    arguments by column name.
    """
    for state, binding, *_ in definition_of(metrics).reads:
        for need in state.needs():
            if need.optional and need.role not in binding.columns_by_role and need.role in columns:
                raise InvalidInputError(
                    f"the column {need.role!r} is read for another purpose, but tasks that set no {need.role} would also "
                    f"read this column as their {need.role}; set the {need.role} of every task, or rename the column",
                    column=need.role,
                )


class _PartQueue:
    """Thread-safe queue of the parts that have not been counted yet."""

    def __init__(self, parts: Sequence[Any], counted: Collection[int] = ()) -> None:
        self.parts = parts
        self.stopped = False
        self._remaining = iter([i for i in range(len(parts)) if i not in counted])
        self._lock = threading.Lock()

    def take_parts(self) -> Iterator[tuple[int, Any]]:
        """Yield (number, part) for each remaining part, until none is left or the queue is stopped."""
        while not self.stopped:
            with self._lock:
                i = next(self._remaining, None)
            if i is None:
                return
            yield i, self.parts[i]


class _Worker(threading.Thread):
    """Base class for threads that process the parts of a queue.

    After an error, `error` is that error, and `part` is the number of the part that caused it. After a run without
    errors, `error` is None.
    """

    job: _PartQueue

    def __init__(self) -> None:
        # The thread is a daemon, so that it does not keep an interrupted process alive.
        super().__init__(name="streammetrics", daemon=True)
        self.rows, self.part = 0, -1
        # On success, `run` sets the error to None at its end. If the thread dies before that, the error remains, so the
        # pass fails.
        self.error: BaseException | None = MemoryError("a thread ended before all rows were counted; use fewer threads")

    def run(self) -> None:
        try:
            for number, part in self.job.take_parts():
                self.part = number
                self.process(number, part)
            self.error = None
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            self.error = error
        finally:
            self.job.stopped = self.job.stopped or self.error is not None

    def process(self, number: int, part: Any) -> None:
        """Process one part."""
        raise NotImplementedError

    def read_batches(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part and count its rows, until the queue is stopped."""
        for columns in part.batches():
            if self.job.stopped:
                return
            yield columns
            self.rows += columns.num_rows


class _PartitionWorker(_Worker):
    """Thread that writes the rows of a log to partitions on disk, with all rows of a query in the same partition."""

    def __init__(self, partitions: QueryPartitions) -> None:
        super().__init__()
        self.partitions = partitions

    def process(self, number: int, part: LogPart) -> None:
        self.partitions.add_part(number, self.read_batches(part))


class _CountWorker(_Worker):
    """Thread that counts rows in parts of a log; with `queries` (a `QuerySplitter`), all rows of a query together."""

    def __init__(
        self, metrics: MetricCollection, queries: QuerySplitter | None, checkpoint_file: CheckpointFile | None = None
    ) -> None:
        super().__init__()
        self.metrics, self.queries, self.checkpoint_file = metrics, queries, checkpoint_file
        self.counted: list[int] = []
        self.snapshot: CountedParts | None = None

    def process(self, number: int, part: LogPart | QueryPartition) -> None:
        for piece in self._pieces(number, part):
            if self.job.stopped:
                return
            try:
                self.metrics.update(piece.rows)
            except InvalidInputError as error:
                raise _add_position(error, *piece.locate(error.row or 0)) from None
        if self.queries is not None and self.queries.is_scattered:
            # The whole log will be sorted and counted again, so stop all threads.
            self.job.stopped = True
        # If the queue was stopped, this part may have ended early, so it does not belong in a checkpoint.
        if self.checkpoint_file is not None and not self.job.stopped:
            self.counted.append(number)
            if self.checkpoint_file.is_due():
                self.take_snapshot()

    def take_snapshot(self) -> None:
        """Store the counts of all finished parts in the attribute `snapshot`."""
        assert self.checkpoint_file is not None
        with self.checkpoint_file.measure_overhead():
            self.snapshot = CountedParts(states_of(self.metrics), tuple(self.counted), self.rows)

    def _pieces(self, number: int, part: LogPart | QueryPartition) -> Iterator[LogPiece | SortedRows]:
        """Split a part into pieces, each counted by one `update`. If `queries` is set, pieces contain whole queries."""
        if isinstance(part, QueryPartition):
            yield from part.read_pieces()
        elif self.queries is not None:
            yield from self.queries.split_part(number, part, self.read_batches(part))
        else:
            row = part.first_row
            for columns in self.read_batches(part):
                yield LogPiece(columns, part.file, row)
                row += columns.num_rows


def _add_position(error: InvalidInputError, file: str, row: int) -> InvalidInputError:
    """Return a copy of the error that gives the file and the row within the file, not the row within the batch.

    `file` is the file that contains the invalid row, and `row` is the number of the row within this file.
    """
    text = str(error)
    if error.row is None:
        return InvalidInputError(f"{file}: {text}", column=error.column, count=error.count)
    here = rf"\brow {error.row:,}(?![\d,])"
    text, replacements = re.subn(here, lambda _: f"row {row:,} of {file}", text, count=1)
    text = text if replacements else f"{text} (row {row:,} of {file})"
    return InvalidInputError(text, column=error.column, row=row, count=error.count)


def _run_workers(job: _PartQueue, workers: Sequence[_Worker], watch: Watch) -> int:
    """Run the threads until all parts are processed; return the number of rows that they read.

    `watch` is called repeatedly with the progress. An interrupt stops each thread after its current batch.
    """
    for worker in workers:
        worker.job = job
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive():
                worker.join(WATCH_SECONDS)
                if watch is not None:
                    watch(PassProgress(sum(w.rows for w in workers), sum(part.read_bytes for part in job.parts)))
    except BaseException:
        job.stopped = True
        for worker in workers:
            if worker.ident is not None:
                worker.join(STOP_SECONDS)
        raise
    return sum(worker.rows for worker in workers)


def _raise_first_error(workers: Sequence[_Worker]) -> None:
    """If any threads failed, raise the error of the part with the lowest number."""
    for worker in sorted(workers, key=lambda w: w.part):
        if worker.error is not None:
            raise worker.error
