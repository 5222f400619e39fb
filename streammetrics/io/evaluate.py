"""Scoring a log: threads read its parts and count them, each into empty copies of its own, which are merged at the end.

States are integers and merging adds them, so the result has the same bits however many threads there are.
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
from streammetrics.collect.metric_like import columns_of, empty_copy, states_of
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.compose.windowed import Windowed
from streammetrics.errors import InvalidInputError
from streammetrics.io.checkpoints import CountedParts, Keeper
from streammetrics.io.column_types import Uses
from streammetrics.io.external_sort import Gathered, QueryShare, Shares, shares_of
from streammetrics.io.logs import Log, LogPart
from streammetrics.io.queries import Piece, Queries, query_column, together
from streammetrics.io.sources import PathLike
from streammetrics.io.top_keys import largest_keys
from streammetrics.io.where import Filter

__all__ = ["OVERALL", "EvaluatedLog", "PassProgress", "WindowOptions", "cpus", "evaluate", "slice_name", "window_name"]

OVERALL = "overall"
WATCH_SECONDS = 0.1
STOP_SECONDS = 2.0  # much longer than a batch takes, but not than a compilation


class PassProgress(NamedTuple):
    """How far a pass over a log has come.

    Parameters
    ----------
    rows : int
        Rows counted so far.
    bytes : int
        Bytes of the files that are behind.
    """

    rows: int
    bytes: int


class WindowOptions(NamedTuple):
    """Windows of event time, as `Windowed` takes them: how wide, and by which column."""

    width: str | int
    time: str


@dataclass(frozen=True)
class EvaluatedLog:
    """What one pass over a log has made.

    Parameters
    ----------
    overall : MetricCollection or Sharded
        All rows.
    slices : dict of tuple of str to Sliced
        By slicing columns; by arms, and within these by slicing columns.
    rows : int
        Rows read, those left out included.
    windows : Windowed, optional
        All rows by window, if windows were asked for; then slices hold windows, too.
    """

    overall: MetricCollection | Sharded
    slices: dict[tuple[str, ...], Sliced]
    rows: int
    windows: Windowed | None = None

    @property
    def saved(self) -> Any:
        """What `--save` writes: the collection, or a bundle of "overall", "by 1h of ts", "by country,device" and so on."""
        windows = {} if self.windows is None else {window_name(self.windows): self.windows}
        found = windows | {slice_name(by): sliced for by, sliced in self.slices.items()}
        return Bundle({OVERALL: self.overall} | found) if found else self.overall


def slice_name(by: Iterable[str]) -> str:
    """Name the slices by some columns: what they are called in a bundle and above a table."""
    return f"by {','.join(by)}"


def window_name(windows: Windowed) -> str:
    """Name windows: what they are called in a bundle and above a table."""
    return f"by {windows.width} of {windows.time}"


def cpus() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def evaluate(
    log: Log,
    metrics: MetricCollection | Sharded,
    by: Iterable[str | Sequence[str]] = (),
    *,
    arm: str | None = None,
    window: WindowOptions | None = None,
    limit: int | None = None,
    keep: str = "hash",
    threads: int | None = None,
    where: Iterable[Filter] = (),
    watch: Callable[[PassProgress], object] | None = None,
    checkpoint: PathLike | None = None,
) -> EvaluatedLog:
    """Score a log in one pass, in memory that does not grow with its rows.

    Parameters
    ----------
    log : Log
        Where the rows are.
    metrics : MetricCollection or Sharded
        What to compute; it stays empty. Weights are read only where a task names their column.
    by : iterable of str or sequence of str
        Slices: each item is one column, or several whose values are crossed.
    arm : str, optional
        The column of the arms of an experiment: all slices are then told apart by arm first.
    window : Window, optional
        Windows of event time, of all rows and within every slice.
    limit : int, optional
        Slices to keep of each kind; the others are merged into one (see `Sliced`).
    keep : {"hash", "rows"}
        Which: those of smallest hash, the same in every log, so that their states merge; or those of most rows, which a
        first pass over their columns finds out, where the log can be read twice and has no more than 4 million keys.
    threads : int, optional
        How many threads; as many as there are processors by default.
    where : iterable of Filter
        Comparisons of columns, each a column of its name: what a task's `where` may name.
    watch : callable, optional
        Called ten times a second with the progress so far, in the calling thread.
    checkpoint : path, optional
        A file for what was counted so far, and of which parts. It is replaced as a whole when parts are done: after each,
        as far as that takes no more than a twentieth of the time. If it is there, the pass goes on from it; if that was
        finished, its result is returned at once. Parts are row groups and record batches, of text and Arrow streams whole
        files. The result has the same digest, wherever a pass was killed.

    Returns
    -------
    Scored
        The metrics of all rows and of every slice.

    Raises
    ------
    LogError
        A file is broken or lacks a column.
    InvalidInputError
        A value is bad; the message names file, column and row (counted from 0 in its file).
    MemoryLimitError
        There are too many slices; or groups hold more rows than a checkpoint can.
    OSError
        The checkpoint cannot be written; what was there is there.
    """
    sets = [(one,) if isinstance(one, str) else tuple(one) for one in ([by] if isinstance(by, str) else by)]
    around = Around(sets, arm, window, limit)
    keys = list(dict.fromkeys(name for names in around.all for name in names))
    asked = list(where)
    counted = metrics if window is None else Windowed(metrics, width=window.width, time=window.time)
    made = {one.name for one in asked}
    columns = [name for name, must in columns_of(counted).items() if must and name not in made]
    columns += [name for one in asked for name in one.columns]
    _check_unasked(metrics, {*columns, *keys})
    uses = _uses(metrics, keys, asked, window)
    parts: Sequence[LogPart] = log.parts(columns, list(uses.keys), uses)
    kinds = {one.name: log.compared_types(one.columns, uses) for one in asked}
    filters = {one.name: replace(one, kinds=tuple(kinds[one.name].items())) for one in asked}
    for one in filters.values():
        one.check(log.schema)
    wheres = {read.binding.where for read in definition_of(metrics).reads}
    if filters:
        parts = [part.with_flags(tuple(filters.values())) for part in parts]
    count = threads or cpus()
    query = query_column(metrics)
    keeper = None
    if checkpoint is not None:
        kept = "all" if limit is None else f"{limit} by {keep}"
        keeper = Keeper(checkpoint, log, parts, [*columns, *keys, *filters, kept])
        keeper.check(metrics, query)
    begun = None if keeper is None else keeper.begun
    named: Mapping[Any, Sequence[Any]]
    if begun is not None:
        named = around.pinned(begun.total)
    else:
        rows_of = [] if None in wheres else sorted(map(str, wheres))
        named = {}
        if keep != "hash" and limit is not None and not log.once:
            named = largest_keys(log, sets, limit, count, [*filters.values()], rows_of, uses)
    counted = around.put(counted, named)
    if keeper is not None:
        total, rows = _count_kept(keeper, parts, counted, count, watch)
    else:
        size = None if log.once or log.table else log.bytes
        total, rows = _count(parts, query, counted, size, count, watch)
    slices = {names: total[slice_name(names)] for names in around.all}
    whole: Any = next(iter(slices.values()), total)
    while isinstance(whole, Sliced):
        whole = whole.total
    return EvaluatedLog(whole.total if window else whole, slices, rows, whole if window else None)


@dataclass(frozen=True)
class Around:
    """What tells rows apart: slices, and within each windows; arms, and within each slices.

    Parameters
    ----------
    sets : list of tuple of str
        Slices by some columns.
    arm : str or None
        The column of the arms.
    window : Window or None
        The windows.
    limit : int or None
        Slices to keep.
    """

    sets: list[tuple[str, ...]]
    arm: str | None
    window: WindowOptions | None
    limit: int | None

    @property
    def all(self) -> list[tuple[str, ...]]:
        """The columns that tell rows apart: of slices; with arms of these, and of slices within these."""
        return self.sets if self.arm is None else [(self.arm,), *((self.arm, *names) for names in self.sets)]

    def put(self, metrics: Any, named: Mapping[Any, Sequence[Any]]) -> Any:
        """Make what counts all slices in one pass; or, where there are none, all rows: slices add up to these, exactly."""
        # Counting by all columns at once, to be rolled up in the end, is no faster: more slices miss the cache.
        if not self.all:
            return empty_copy(metrics)
        kept: dict[Any, Any] = {names: {"limit": self.limit} for names in self.sets}
        kept |= {names: {"limit": 0, "values": keys} for names, keys in named.items()}
        sliced: list[Sliced] = [Sliced(metrics, by=names, **kept[names]) for names in self.sets]
        if self.arm is not None:
            sliced = [Sliced(one, by=self.arm) for one in (metrics, *sliced)]
        return MetricCollection(
            dict(zip(map(slice_name, self.all), sliced, strict=True)), on_invalid=definition_of(metrics).on_invalid
        )

    def pinned(self, total: Any) -> dict[Any, Sequence[Any]]:
        """The keys that a checkpoint keeps of each kind of slices, if they were named."""
        found: dict[Any, Sequence[Any]] = {}
        for names, full in zip(self.sets, self.all[len(self.all) - len(self.sets) :], strict=True):
            if isinstance(total, MetricCollection) and slice_name(full) in total:
                definition = definition_of(total[slice_name(full)])
                axis = (definition if self.arm is None else definition.inner).axis
                found |= {names: axis.pinned} if axis.limit == 0 else {}
        return found


Watch = Callable[[PassProgress], object] | None


def _count(
    parts: Sequence[LogPart], query: Any, metrics: MetricCollection, size: int | None, threads: int, watch: Watch
) -> tuple[MetricCollection, int]:
    """Count all parts, and return what came of it, and the rows; in a second pass where queries turn out scattered.

    What can be read only once, or comes in any order, and so has no size, is put in order first.
    """
    if query is not None and size is None:
        return _count_scattered(Shares(query, parts, shares_of(None)), metrics, threads, watch)
    queries = None if query is None else Queries(query)
    workers = [_Counter(empty_copy(metrics), queries) for _ in range(min(threads, max(len(parts), 1)))]
    rows = _run(_Job(parts), workers, watch)
    if queries is not None and queries.returned():  # which counters refuse, where they see it
        return _count_scattered(Shares(query, parts, shares_of(size)), metrics, threads, watch)
    _raise_first(workers)
    total = _merged(workers)
    if queries is not None:
        _count_joined(queries.joined(), total)
    return total, rows


def _count_kept(
    keeper: Keeper, parts: Sequence[LogPart], metrics: MetricCollection, threads: int, watch: Watch
) -> tuple[MetricCollection, int]:
    """Count the parts that are not in a checkpoint, and write it as they are done."""
    begun = keeper.open(metrics)
    if begun.finished:
        return begun.total, begun.rows
    done = {i for a, b in begun.done for i in range(a, b)}
    for i in done:
        parts[i].read_bytes = parts[i].bytes  # for the bar
    job = _Job(parts, done)
    workers = [_Counter(empty_copy(metrics), None, keeper) for _ in range(min(threads, len(parts) - len(done)))]

    def watched(progress: PassProgress) -> None:
        keeper.write(workers)
        if watch is not None:
            watch(progress._replace(rows=progress.rows + begun.rows))

    _run(job, workers, watched)
    if any(worker.error is not None for worker in workers):
        keeper.write(workers)  # a bad row may be left out by the next run, a file repaired
    _raise_first(workers)
    found = keeper.close(workers)
    return found.total, found.rows


def _count_scattered(
    shares: Shares, metrics: MetricCollection, threads: int, watch: Watch
) -> tuple[MetricCollection, int]:
    """Count queries whose rows stand anywhere: put in order on disk first, then a share of them after the other."""
    readers = [_Sorter(shares) for _ in range(min(threads, len(shares.parts)))]
    rows = _run(_Job(shares.parts), readers, watch)
    _raise_first(readers)
    found = shares.close()
    if not found:  # there were no rows
        return empty_copy(metrics), rows
    counters = [_Counter(empty_copy(metrics), None) for _ in range(min(threads, len(found)))]
    _run(_Job(found), counters, None)
    _raise_first(counters)
    return _merged(counters), rows


def _merged(workers: Sequence[_Counter]) -> MetricCollection:
    total = workers[0].metrics
    for worker in workers[1:]:
        total.merge(worker.metrics)
    return total


def _uses(
    metrics: MetricCollection | Sharded, keys: Sequence[str], asked: Sequence[Filter], window: WindowOptions | None
) -> Uses:
    """What the columns of a log are read for."""
    ids, made = _ids(metrics), {one.name for one in asked}
    compared = [condition for one in asked for condition in one.conditions]
    values = {*columns_of(metrics), *(one.column for one in compared if not one.sign)} - made - set(ids)
    whole = {one.column for one in compared if one.large} - values
    exact = {one.column for one in compared if one.exact} - values
    steps = {window.time} if window is not None and isinstance(window.width, int) else set()
    times = {window.time} if window is not None and isinstance(window.width, str) else set()
    return Uses([*keys, *ids], values, whole | steps, exact, _numbers(metrics), times)


def _numbers(metrics: MetricCollection | Sharded) -> set[str]:
    """Return the columns that must be numbers: scores, weights, targets, values."""
    found: set[str] = set()
    for state, binding, *_ in definition_of(metrics).reads:
        for need in state.needs():
            kind = need.kind.kind if isinstance(need.kind, Matrix) else need.kind
            if isinstance(kind, (Score, Weight)):
                column = binding.column(need.role)
                found |= {column} if isinstance(column, str) else set(column)
    return found


def _ids(metrics: MetricCollection | Sharded) -> list[str]:
    """Return the columns of groups, queries and units, which are read as keys of slices are."""
    reads = definition_of(metrics).reads
    found = [b.column(n.role) for state, b, *_ in reads for n in state.needs() if isinstance(n.kind, Ids)]
    found += [read.binding.unit.column for read in reads if read.binding.unit is not None]
    return [name for column in found for name in (column if isinstance(column, tuple) else (column,))]


def _count_joined(pieces: list[Piece], total: MetricCollection) -> None:
    """Count the queries at the edges of parts, which may have been cut in two."""
    try:
        if pieces:
            total.update(together(pieces))
    except InvalidInputError as error:
        row = error.row or 0
        for piece in pieces:
            if row < piece.rows.num_rows:
                raise _located(error, *piece.place(row)) from None
            row -= piece.rows.num_rows
        raise


def _check_unasked(metrics: MetricCollection | Sharded, read: set[str]) -> None:
    """Raise where a column that is read for something else would weigh the rows of a task that names no weights."""
    for state, binding, *_ in definition_of(metrics).reads:
        for need in state.needs():
            if need.optional and need.role not in binding.bound and need.role in read:
                raise InvalidInputError(
                    f"the column {need.role!r} is read for one purpose, and would be taken for the {need.role} of "
                    f"every task that names none; name it in all tasks, or rename the column",
                    column=need.role,
                )


class _Job:
    """The parts that are left."""

    def __init__(self, parts: Sequence[Any], done: Collection[int] = ()) -> None:
        self.parts = parts
        self.stopped = False
        self._left = iter([i for i in range(len(parts)) if i not in done])
        self._lock = threading.Lock()

    def take(self) -> Iterator[tuple[int, Any]]:
        """Yield parts until none is left."""
        while not self.stopped:
            with self._lock:
                i = next(self._left, None)
            if i is None:
                return
            yield i, self.parts[i]


class _Worker(threading.Thread):
    """Reads parts and does something with them; `error` is what kept it from doing so with all, the last being `part`."""

    job: _Job

    def __init__(self) -> None:
        super().__init__(name="streammetrics", daemon=True)  # must not keep an interrupted process alive
        self.rows, self.part = 0, -1
        self.error: BaseException | None = MemoryError("a thread ended before its work")  # until it is done

    def run(self) -> None:
        try:
            for number, part in self.job.take():
                self.part = number
                self.take(number, part)
            self.error = None
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            self.error = error
        finally:
            self.job.stopped = self.job.stopped or self.error is not None

    def take(self, number: int, part: Any) -> None:
        """Do with a part what is to be done."""
        raise NotImplementedError

    def read(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part, and count its rows, until the job is stopped."""
        for columns in part.batches():
            if self.job.stopped:
                return
            yield columns
            self.rows += columns.num_rows


class _Sorter(_Worker):
    """Puts the rows of queries in order."""

    def __init__(self, shares: Shares) -> None:
        super().__init__()
        self.shares = shares

    def take(self, number: int, part: LogPart) -> None:
        self.shares.take(number, self.read(part))


class _Counter(_Worker):
    """Counts parts, each query at once where these are asked for."""

    def __init__(self, metrics: MetricCollection, queries: Queries | None, keeper: Keeper | None = None) -> None:
        super().__init__()
        self.metrics, self.queries, self.keeper = metrics, queries, keeper
        self.done: list[int] = []
        self.kept: CountedParts | None = None

    def take(self, number: int, part: LogPart | QueryShare) -> None:
        for piece in self._pieces(number, part):
            if self.job.stopped:
                return
            try:
                self.metrics.update(piece.rows)
            except InvalidInputError as error:
                raise _located(error, *piece.place(error.row or 0)) from None
        if self.queries is not None and self.queries.scattered:
            self.job.stopped = True  # all of it is to be counted anew
        if self.keeper is not None and not self.job.stopped:  # which ends a part early
            self.done.append(number)
            if self.keeper.due():
                self.keep()

    def keep(self) -> None:
        """Hold on to what was counted by now: whole parts."""
        assert self.keeper is not None
        with self.keeper.timed():
            self.kept = CountedParts(states_of(self.metrics), tuple(self.done), self.rows)

    def _pieces(self, number: int, part: LogPart | QueryShare) -> Iterator[Piece | Gathered]:
        """Yield rows that are counted at once; whole queries where these are asked for."""
        if isinstance(part, QueryShare):
            yield from part.pieces()
        elif self.queries is not None:
            yield from self.queries.whole(number, part, self.read(part))
        else:
            row = part.first_row
            for columns in self.read(part):
                yield Piece(columns, part.file, row)
                row += columns.num_rows


def _located(error: InvalidInputError, file: str, row: int) -> InvalidInputError:
    """Say where in the file a bad value is, instead of where in the batch."""
    text = str(error)
    if error.row is None:
        return InvalidInputError(f"{file}: {text}", column=error.column, count=error.count)
    here = rf"\brow {error.row:,}(?![\d,])"
    text, found = re.subn(here, lambda _: f"row {row:,} of {file}", text, count=1)
    text = text if found else f"{text} (row {row:,} of {file})"
    return InvalidInputError(text, column=error.column, row=row, count=error.count)


def _run(job: _Job, workers: Sequence[_Worker], watch: Watch) -> int:
    """Let the workers work, and return the rows they read; an interrupt stops them within a batch."""
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


def _raise_first(workers: Sequence[_Worker]) -> None:
    """Raise what went wrong first, in the order of the log."""
    for worker in sorted(workers, key=lambda w: w.part):
        if worker.error is not None:
            raise worker.error
