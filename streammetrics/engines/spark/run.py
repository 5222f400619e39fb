"""Compute metrics of a Spark data frame: tasks count their rows, and other tasks merge the states by bucket of keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.functions import arrow_udf

from ... import errors
from ...collect.accumulator import accumulate, definition_of
from ...collect.metric import Metric
from ...collect.metric_like import MetricLike, answer_of, seal, states_of
from ...collect.serialization import merge
from ...compose.sliced import Sliced
from ...io.queries import find_query_column
from ...metrics.groups.auc import group_partition
from ...reading.table import Table
from ...statistics.groups.group_rows import GroupRows
from .as_accumulator import make_empty_metrics
from .frames import column, select_read_columns
from .tasks import PART, STATES, build_fold_task, merge_task

__all__ = ["Evaluated", "evaluate"]

Names = tuple[str, ...]


class RowGrouping(NamedTuple):
    """The columns that decide which rows one task must count together.

    Parameters
    ----------
    columns : tuple of str
        Rows with equal values in these columns must be in the same task.
    has_queries : bool
        Whether the columns identify queries of ranking metrics; all rows of a query must also be in one batch.
    seals : bool
        Whether the columns identify groups of grouped metrics, whose states the task can `seal`.
    """

    columns: Names
    has_queries: bool
    seals: bool

    def gather(self, frame: DataFrame, parts: int) -> DataFrame:
        """Return the rows with a column of part numbers, one partition for each part; queries are sorted."""
        keys = [column(name) for name in self.columns]
        partitioned = frame.withColumn(PART, build_part_function(parts)(*keys)).repartitionById(parts, column(PART))
        return partitioned.sortWithinPartitions(*keys) if self.has_queries else partitioned


def find_row_grouping(metrics: MetricLike, present: Collection[str]) -> RowGrouping | None:
    """Return the grouping of rows that metrics need; None if rows may be in any task.

    Without a query column, each row is a query and contains lists.

    Raises
    ------
    InvalidInputError
        Two metrics have different query columns.
    """
    query = find_query_column(metrics)
    if query is not None and not {*_as_names(query)} <= {*present}:
        query = None
    groups = {
        binding.column("group")
        for state, binding, *_ in definition_of(metrics).reads
        if isinstance(state, GroupRows) and not state.sample_rows and not state.partition
    }
    if query is None and len(groups) != 1:
        return None
    columns = query if query is not None else next(iter(groups))
    return RowGrouping(_as_names(columns), query is not None, groups == {columns})


def _as_names(column: str | Names) -> Names:
    return column if isinstance(column, tuple) else (column,)


def build_part_function(parts: int) -> Callable[..., Column]:
    """Return a function of the group columns whose value is the number of the group's part."""

    def part(*keys):  # type: ignore[no-untyped-def]
        return pa.array(group_partition(keys[0] if len(keys) == 1 else keys, parts), pa.int32())

    function: Callable[..., Column] = arrow_udf(part, "int")
    return function


ERROR_PATTERN = re.compile(r"^streammetrics\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def raise_worker_errors() -> Iterator[None]:
    """Raise the error of this package that a worker raised, with the error of Spark and its traces as the cause."""
    try:
        yield
    except PySparkException as error:
        match = ERROR_PATTERN.search(str(error))
        kind = getattr(errors, match[1], None) if match is not None else None
        if match is None or kind is None:
            raise
        raise kind(match[2]) from error


BUCKETS = 64
# If 75 % of 20,000 rows have different keys, there are about 35,000 keys or more.
SAMPLE_ROWS, DISTINCT_SHARE = 20_000, 0.75
STRATEGIES = ("auto", "states", "rows")


@dataclass(frozen=True)
class Evaluated:
    """The result of `evaluate`.

    Parameters
    ----------
    state : Metric, MetricCollection or Sliced
        The metrics of all rows, which can be saved, and merged with the metrics of other days.
    """

    state: Any

    @cached_property
    def table(self) -> Table:
        """The values with their bounds and counts, a row for each slice and metric; computed at the first access."""
        state = self.state
        table: Table = Table((), answer_of(state).records()) if isinstance(state, Metric) else state.table()
        return table


def evaluate(
    frame: DataFrame,
    metrics: Any,
    by: str | Iterable[str] = (),
    *,
    strategy: str = "auto",
    partitions: int | None = None,
) -> Evaluated:
    """Compute metrics of a data frame, overall or by slice, bit-identical to one pass in one process.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A data frame of a classic session or of Spark Connect. Only the columns that the metrics read are fetched.
    metrics : Metric, Task, MetricCollection, Sliced, or list or dict of metrics
        The metrics to compute; the object itself does not change.
    by : str or sequence of str
        The slicing columns: keys are integers, strings, booleans, dates, timestamps, decimals or null.
    strategy : {"auto", "states", "rows"}
        What is shuffled. With "states", each task computes the states of all its keys; these are shuffled by bucket of
        keys, and merged. With "rows", rows are shuffled by key, so that each task has all rows of its keys; this is better
        if there are so many keys that their states are no smaller than the rows. "auto" chooses "rows" if three quarters
        of the first 20,000 rows have different keys, which means some 35,000 keys or more. It takes a log sorted by key
        for one with few keys; tasks then send states on before they fill memory.
    partitions : int, optional
        The number of parts into which rows are shuffled ("rows", and the two kinds of metrics below). By default
        `spark.sql.shuffle.partitions`. Adaptive execution may reduce it for "rows", but not for groups and queries.

    Returns
    -------
    Evaluated
        The merged metrics and their table; an empty data frame gives metrics without rows.

    Raises
    ------
    InvalidInputError
        A column is missing or has an invalid value; the message names column, value and partition.
    MemoryLimitError
        There are too many slices.
    StreamMetricsError
        Any error of the library that a worker raised; the error of Spark with the traces of workers is its cause.

    Notes
    -----
    Two kinds of metrics need all rows of a query or group in one task, so their rows are shuffled with any strategy. For
    ranking metrics such as NDCG, rows are sorted by query, and batches end between queries. For GroupAUC, every task
    closes its groups, so the merged state has constant size and equals `seal` of all rows. If GroupAUC has other groups
    than the queries of ranking metrics, its groups stay open, in bounded memory.
    If Spark repeats a task whose rows are not deterministic (`rand()`, `limit` without an order), the result may differ.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.engines import spark
    >>> done = spark.evaluate(log, [sm.AUC(), sm.CTR()], by=["variant", "day"])  # doctest: +SKIP
    >>> done.table.to_pandas()  # doctest: +SKIP
    >>> sm.save(done.state, "monday.smet")  # doctest: +SKIP
    """
    if strategy not in STRATEGIES:
        raise ValueError(f'strategy must be "auto", "states" or "rows", not {strategy!r}')
    empty_metrics = make_empty_metrics(metrics, by)
    rows = select_read_columns(frame, empty_metrics)
    with raise_worker_errors():
        state_frame, seals = _fold_rows(rows, empty_metrics, strategy, partitions)
        states = [bytes(row["state"]) for row in state_frame.select("state").collect()]
    return _build_result(empty_metrics, states, seals)


def _fold_rows(rows: DataFrame, counted: MetricLike, strategy: str, partitions: int | None) -> tuple[DataFrame, bool]:
    """Return the states of rows, merged by bucket, and whether their groups are closed."""
    grouping = find_row_grouping(counted, rows.columns)
    if grouping is not None:
        query = grouping.columns if grouping.has_queries else None
        parts = partitions or int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        sealed = parts if grouping.seals else 0
        return _merge_buckets(_map_rows(grouping.gather(rows, parts), counted, BUCKETS, query, sealed)), grouping.seals
    if isinstance(counted, Sliced) and (
        strategy == "rows" or (strategy == "auto" and _has_many_keys(rows, counted.by))
    ):
        keys = [column(name) for name in counted.by]
        placed = rows.repartition(partitions, *keys) if partitions else rows.repartition(*keys)
        return _map_rows(placed, counted, 1), False
    return _merge_buckets(_map_rows(rows, counted, BUCKETS)), False


def _map_rows(rows: DataFrame, metrics: MetricLike, *options: Any) -> DataFrame:
    """Compute the states of each task. Columns are renamed to numbers, as mapInArrow reads a dot as a field access."""
    names = rows.columns
    return rows.toDF(*map(str, range(len(names)))).mapInArrow(build_fold_task(metrics, names, *options), STATES)


def _merge_buckets(states: DataFrame) -> DataFrame:
    """Merge states by bucket; adaptive execution uses few tasks if there are few states."""
    return states.repartition(column("bucket")).mapInArrow(merge_task, STATES)


def _has_many_keys(rows: DataFrame, by: tuple[str, ...]) -> bool:
    """Return whether most of the first rows have different keys, so that states would be no smaller than rows."""
    key = f.xxhash64(*(column(name) for name in by)).alias("key")
    keys = [row["key"] for row in rows.select(key).limit(SAMPLE_ROWS).collect()]
    return len(keys) == SAMPLE_ROWS and len(set(keys)) > DISTINCT_SHARE * SAMPLE_ROWS


def _build_result(counted: MetricLike, states: list[bytes], seals: bool) -> Evaluated:
    """Merge the states of all tasks into metrics, with the settings that are not saved in states."""
    total = merge(states) if states else counted
    definition = definition_of(counted)
    if seals:
        total, definition = seal(total, (0, 1)), definition.seal(1)
    return Evaluated(definition.wrap(accumulate(definition, states_of(total))))
