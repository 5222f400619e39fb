"""Compute metrics of a Spark data frame.

Each task counts its rows, and splits the state of its slices into buckets by the hash of the slice key. Other tasks
then merge the states of each bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.functions import arrow_udf

from ...collect.accumulator import accumulate, definition_of
from ...collect.metric import Metric
from ...collect.metric_like import MetricLike, answer_of, seal, states_of, without_block_ends
from ...collect.query_columns import find_query_column
from ...collect.serialization import merge
from ...compose.sliced import Sliced
from ...metrics.groups.auc import group_partition
from ...reading.table import Table
from ...statistics.groups.group_rows import GroupRows
from ..parts import warn_of_size
from .as_accumulator import make_empty_metrics
from .frames import column, select_read_columns
from .partitions import choose_partition_count
from .tasks import PART, STATES, build_fold_task, merge_task
from .worker_errors import raise_worker_errors

__all__ = ["Evaluated", "evaluate"]

Names = tuple[str, ...]


class RowGrouping(NamedTuple):
    """The columns that identify groups or queries; all rows of a group or query must be counted in the same task.

    Parameters
    ----------
    columns : tuple of str
        Rows with equal values in these columns must be in the same task.
    has_queries : bool
        Whether the columns identify queries of ranking metrics; all rows of a query must also be in one batch.
    seals : bool
        Whether the columns identify the groups of metrics such as GroupAUC. Each task then has all rows of its groups,
        so it can close the groups (`seal`), which reduces their rows to sums over groups.
    """

    columns: Names
    has_queries: bool
    seals: bool

    def gather(self, frame: DataFrame, parts: int) -> DataFrame:
        """Distribute the rows over `parts` partitions, so that rows of the same group or query are in one partition.

        A new column contains the partition number. If the columns identify queries, each partition is sorted by query.
        """
        keys = [column(name) for name in self.columns]
        partitioned = frame.withColumn(PART, build_part_function(parts)(*keys)).repartitionById(parts, column(PART))
        return partitioned.sortWithinPartitions(*keys) if self.has_queries else partitioned


def find_row_grouping(metrics: MetricLike, present: Collection[str]) -> RowGrouping | None:
    """Return the columns that identify the groups or queries; None if rows can be in any task.

    Rows of the same group or query must be in one task. A table for ranking metrics may lack the query column. Each row
    then contains a whole query as lists, so rows can be in any task.

    Raises
    ------
    InvalidInputError
        If two metrics have different query columns.
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
    """Return a Spark function that takes group columns and returns the partition of each group.

    The partition, a number from 0 to `parts` - 1, is determined by the hash of the group.
    """

    def part(*keys):  # type: ignore[no-untyped-def]
        return pa.array(group_partition(keys[0] if len(keys) == 1 else keys, parts), pa.int32())

    function: Callable[..., Column] = arrow_udf(part, "int")
    return function


BUCKETS = 64
# A log is assumed to have many slices if its first 20,000 rows are in more than 15,000 distinct slices (75 %). If rows
# are spread evenly over the slices, such a log has about 35,000 slices or more.
SAMPLE_ROWS, DISTINCT_SHARE = 20_000, 0.75
STRATEGIES = ("auto", "states", "rows")


@dataclass(frozen=True)
class Evaluated:
    """The result of `evaluate`.

    Parameters
    ----------
    state : Metric, MetricCollection or Sliced
        The metrics of all rows. They can be saved, and merged with other metrics, such as those of another day.
    """

    state: Any

    @cached_property
    def table(self) -> Table:
        """A table of values, bounds and counts with one row per slice and metric, computed on first access."""
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
    """Compute metrics of a data frame, overall or by slice.

    The result is bit-for-bit equal to that of a single process that reads all rows.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A data frame of a classic session or of Spark Connect. Only the columns that the metrics read are fetched.
    metrics : Metric, Task, MetricCollection, Sliced, or list or dict of metrics
        The metrics to compute; the object itself does not change.
    by : str or sequence of str
        The slicing columns. Keys can be integers, strings, booleans, dates, timestamps, decimals or null.
    strategy : {"auto", "states", "rows"}
        What Spark shuffles between tasks, if there are slices. With "states", each task computes the states of all its
        slices, and the states are shuffled and merged. With "rows", the rows are shuffled by slice, so that each task
        has all rows of its slices. This is faster if there are so many slices that their states are no smaller than the
        rows. "auto" chooses "rows" if the first 20,000 rows are in more than 15,000 slices, which is typical of logs
        with 35,000 slices or more. Otherwise it chooses "states", for example for a log sorted by slice, because its
        first rows are in few slices. With "states", a task emits the states of its slices before they fill its memory.
    partitions : int, optional
        The number of partitions if rows are shuffled, which is the case with "rows", and for ranking metrics and
        GroupAUC. The default for "rows" is `spark.sql.shuffle.partitions`, which adaptive execution may reduce. The
        default for ranking metrics and GroupAUC is one partition for each 32 MiB of input, at least 8 and at most
        `spark.sql.shuffle.partitions`.

    Returns
    -------
    Evaluated
        The metrics of all rows and their table. An empty data frame gives metrics without rows.

    Raises
    ------
    InvalidInputError
        If a column is missing or contains an invalid value; the message names the column, the value and the partition.
    MemoryLimitError
        If there are too many slices, or their states exceed `spark.driver.maxResultSize` (1 GiB by default).
    StreamMetricsError
        If the workers lack this package or have a different version of Python, or if a worker raised another error of
        this library. Its `__cause__` is the Spark error, which contains the tracebacks of the workers.

    Notes
    -----
    Ranking metrics and GroupAUC need all rows of a query or group in one task, so their rows are always shuffled. For
    ranking metrics such as NDCG, rows are sorted by query, and no batch ends in the middle of a query. For GroupAUC,
    every task closes its groups, which reduces their rows to sums. The merged state therefore has constant size, and
    equals the result of `seal` in one process. If both kinds of metrics are computed and the groups of GroupAUC are not
    the queries, rows are shuffled by query. Tasks then cannot close the groups, but their memory is still bounded.

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
    grouping = find_row_grouping(empty_metrics, rows.columns)
    with raise_worker_errors():
        state_frame, seals = _fold_rows(rows, empty_metrics, grouping, strategy, partitions)
        states = [bytes(row["state"]) for row in state_frame.select("state").collect()]
    return _build_result(empty_metrics, states, seals)


def _fold_rows(
    rows: DataFrame, counted: MetricLike, grouping: RowGrouping | None, strategy: str, partitions: int | None
) -> tuple[DataFrame, bool]:
    """Compute the states of all rows, and merge the states of each bucket of slices.

    `counted` contains the metrics, without rows. Return the data frame of states, and whether the groups in these
    states are closed (reduced to sums).
    """
    if grouping is not None:
        query = grouping.columns if grouping.has_queries else None
        parts = partitions or choose_partition_count(rows)
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
    """Compute the states of the rows of each task.

    Columns are renamed to numbers, because mapInArrow would interpret a dot in a name as access to a nested field.
    """
    names = rows.columns
    return rows.toDF(*map(str, range(len(names)))).mapInArrow(build_fold_task(metrics, names, *options), STATES)


def _merge_buckets(states: DataFrame) -> DataFrame:
    """Merge the states of each bucket of slices; if there are few states, adaptive execution uses few tasks."""
    return states.repartition(column("bucket")).mapInArrow(merge_task, STATES)


def _has_many_keys(rows: DataFrame, by: tuple[str, ...]) -> bool:
    """Return whether a log has so many slices that their states would be no smaller than its rows.

    The answer is an estimate, based on the number of distinct slice keys in the first rows.
    """
    key = f.xxhash64(*(column(name) for name in by)).alias("key")
    keys = [row["key"] for row in rows.select(key).limit(SAMPLE_ROWS).collect()]
    return len(keys) == SAMPLE_ROWS and len(set(keys)) > DISTINCT_SHARE * SAMPLE_ROWS


def _build_result(counted: MetricLike, states: list[bytes], seals: bool) -> Evaluated:
    """Merge the states of all tasks; the empty metrics `counted` provide the settings that states do not contain.

    `seals` says whether the tasks have closed their groups (reduced the rows of each group to sums).
    """
    # The merged state must not store a first and a last query, because Spark has counted the queries in any order.
    total = without_block_ends(merge(warn_of_size(states))) if states else counted
    definition = definition_of(counted)
    if seals:
        total, definition = seal(total, (0, 1)), definition.seal(1)
    return Evaluated(definition.wrap(accumulate(definition, states_of(total))))
