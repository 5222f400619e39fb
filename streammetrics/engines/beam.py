"""Apache Beam: functions for ``CombineGlobally`` and ``CombinePerKey`` that combine tables, rows or saved states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from ..batch.convert import as_columns
from ..collect.metric_like import MetricLike
from ..collect.serialization import from_bytes
from ..errors import InvalidInputError
from ..metrics.groups.auc import group_partition
from .parts import find_read_columns, merge_results
from .whole_queries import find_query_columns, sort_by_query

__all__ = ["FoldRows", "FoldTables", "GroupQueries", "Merge"]

# The number of partitions of `GroupQueries`. All rows of a partition must fit in the memory of one worker.
PARTS = 256


class FoldTables(beam.CombineFn):
    """Compute metrics of tables: Arrow tables or record batches, data frames, or mappings of columns.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change. The output is a new object with the state of all tables.
    assume_grouped : bool
        Whether all rows of a query are in the same table. If False, ranking metrics raise an error for tables with a
        query column, because a query in two tables would count as two queries. Apply `GroupQueries` to such tables, and
        then pass True.

    Raises
    ------
    InvalidInputError
        If a table contains invalid values, or if it has a query column and `assume_grouped` is not set.

    Notes
    -----
    Tables of a few thousand rows or more are most efficient; ``beam.io.ReadFromParquetBatched`` reads such tables.

    Examples
    --------
    >>> import apache_beam as beam
    >>> import streammetrics as sm
    >>> from streammetrics.engines.beam import FoldTables
    >>> tables = [{"y_true": [0, 1], "y_score": [0.2, 0.7]}, {"y_true": [1], "y_score": [0.4]}]
    >>> with beam.Pipeline() as p:
    ...     total = p | beam.Create(tables) | beam.CombineGlobally(FoldTables(sm.AUC()))
    ...     _ = total | beam.Map(lambda auc: print(auc.compute()))
    1.0
    """

    def __init__(self, metrics: MetricLike, *, assume_grouped: bool = False) -> None:
        self.counts, self.assume_grouped = metrics, assume_grouped

    def create_accumulator(self) -> BufferedMetrics:
        return BufferedMetrics(self.counts.copy().reset())

    def add_input(self, mutable_accumulator: BufferedMetrics, element: Any) -> BufferedMetrics:
        if not self.assume_grouped:
            _refuse_query_columns(self.counts, as_columns(element) or ())
        mutable_accumulator.metrics.update(element)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[BufferedMetrics]) -> BufferedMetrics:
        """Merge accumulators into a new one; leave the arguments unchanged, because Beam may use them again."""
        return BufferedMetrics(merge_results((one.count_buffered() for one in accumulators), self.counts))

    def compact(self, accumulator: BufferedMetrics) -> BufferedMetrics:
        return BufferedMetrics(accumulator.count_buffered())

    def extract_output(self, accumulator: BufferedMetrics) -> Any:
        return accumulator.count_buffered()

    def get_accumulator_coder(self) -> AccumulatorCoder:
        return AccumulatorCoder(self.counts)


class FoldRows(FoldTables):
    """Compute metrics of rows, which are mappings, `beam.Row` or named tuples.

    If a row lacks a column that other rows have, its value in this column is null.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change. Beam passes rows in any order. For ranking
        metrics, each row must therefore contain a whole query as lists. Otherwise, use tables with `GroupQueries` and
        `FoldTables`.
    buffer : int
        The number of rows that are collected and then counted as one batch. If Beam sends the accumulator to another
        worker before that, the batch has fewer rows.

    Examples
    --------
    >>> import apache_beam as beam
    >>> import streammetrics as sm
    >>> from streammetrics.engines.beam import FoldRows
    >>> clicks = [{"variant": "A", "y_true": 1}, {"variant": "B", "y_true": 0}, {"variant": "A", "y_true": 0}]
    >>> with beam.Pipeline() as p:
    ...     keyed = p | beam.Create(clicks) | beam.WithKeys(lambda row: row["variant"])
    ...     found = keyed | beam.CombinePerKey(FoldRows(sm.CTR()))
    ...     _ = found | beam.MapTuple(lambda variant, ctr: print(variant, ctr.compute()))
    A 0.5
    B 0.0
    """

    def __init__(self, metrics: MetricLike, *, buffer: int = 4096) -> None:
        super().__init__(metrics)
        self.buffer = buffer

    def add_input(self, mutable_accumulator: BufferedMetrics, element: Any) -> BufferedMetrics:
        mutable_accumulator.rows.append(_convert_row(element))
        full = len(mutable_accumulator.rows) >= self.buffer
        return self.compact(mutable_accumulator) if full else mutable_accumulator


class Merge(FoldTables):
    """Merge states that workers, earlier pipelines or other engines have saved as bytes.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics of the states.
    """

    def add_input(self, mutable_accumulator: BufferedMetrics, element: bytes) -> BufferedMetrics:
        mutable_accumulator.metrics.merge(from_bytes(element))
        return mutable_accumulator


class GroupQueries(beam.PTransform):
    """Regroup tables so that all rows of a query are in one table, for ranking metrics such as NDCG.

    The input and the output are collections of tables. Beam assigns the rows to 256 partitions by the hash of the
    query. Each partition becomes one table, sorted by query. The output contains only the columns that the metrics
    read.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The ranking metrics to compute from the output. They determine the query column, `query` by default.

    Examples
    --------
    >>> import apache_beam as beam
    >>> import streammetrics as sm
    >>> from streammetrics.engines.beam import FoldTables, GroupQueries
    >>> ndcg = sm.NDCG(k=2)
    >>> tables = [{"query": [1, 2], "y_true": [0, 1], "y_score": [0.2, 0.7]}]
    >>> tables += [{"query": [1], "y_true": [1], "y_score": [0.4]}]
    >>> with beam.Pipeline() as p:
    ...     grouped = p | beam.Create(tables) | GroupQueries(ndcg)
    ...     total = grouped | beam.CombineGlobally(FoldTables(ndcg, assume_grouped=True))
    ...     _ = total | beam.Map(lambda found: print(found.compute()))
    1.0
    """

    def __init__(self, metrics: MetricLike) -> None:
        super().__init__()
        self.counts = metrics

    def expand(self, input_or_inputs: Any) -> Any:
        parts = input_or_inputs | beam.FlatMap(_split_by_query, self.counts) | beam.GroupByKey()
        return parts | beam.MapTuple(partial(_join_by_query, self.counts))


class BufferedMetrics:
    """The accumulator of the combine functions: the metrics, and a buffer of rows that are not counted yet."""

    def __init__(self, metrics: Any) -> None:
        self.metrics = metrics
        self.rows: list[Mapping[str, Any]] = []

    def count_buffered(self) -> Any:
        """Return metrics that include the buffered rows; the accumulator itself does not change."""
        if not self.rows:
            return self.metrics
        names = dict.fromkeys(name for row in self.rows for name in row)
        _refuse_query_columns(self.metrics, names)
        read = find_read_columns(self.metrics, names)
        return self.metrics.copy().update({name: [row.get(name) for row in self.rows] for name in read})


class AccumulatorCoder(beam.coders.Coder):
    """Convert accumulators to bytes and back.

    The coder is deterministic, which means that Beam may assume that equal accumulators have equal bytes.
    """

    def __init__(self, metrics: MetricLike) -> None:
        self.counts = metrics

    def encode(self, value: BufferedMetrics) -> bytes:
        data: bytes = value.count_buffered().to_bytes()
        return data

    def decode(self, encoded: bytes) -> BufferedMetrics:
        """Decode an accumulator; settings that the bytes do not contain come from the metrics of this coder."""
        return BufferedMetrics(merge_results([encoded], self.counts))

    def is_deterministic(self) -> bool:
        return True


def _convert_row(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    return row.as_dict() if isinstance(row, beam.Row) else row._asdict()


def _refuse_query_columns(metrics: MetricLike, present: Iterable[str]) -> None:
    """Raise InvalidInputError if a table for ranking metrics has a query column.

    A query with rows in several tables would be counted as several queries.
    """
    if names := find_query_columns(metrics, present):
        raise InvalidInputError(
            f"{', '.join(names)}: expected one row with lists for each query, found a table with a query column, whose "
            f"queries may be in several tables; write tables | GroupQueries(metrics) | beam.CombineGlobally("
            f"FoldTables(metrics, assume_grouped=True))",
            column=names[0],
        )


def _split_by_query(table: Any, metrics: MetricLike) -> Iterator[tuple[int, pa.Table]]:
    """Split a table by the hash of the query; yield the number and the rows of each partition."""
    columns = as_columns(table)
    present = list(columns or ())
    queries = find_query_columns(metrics, present)
    if columns is None or not queries:
        raise InvalidInputError(f"expected tables with the query column of the metrics, found the columns {present}")
    rows = pa.table({name: columns[name] for name in find_read_columns(metrics, present)})
    keys = [rows.column(name) for name in queries]
    parts = group_partition(keys[0] if len(keys) == 1 else tuple(keys), PARTS)
    order = np.argsort(parts, kind="stable")
    numbers, starts = np.unique(parts[order], return_index=True)
    for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        yield number, rows.take(places)


def _join_by_query(metrics: MetricLike, part: int, tables: Iterable[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables, promote_options="permissive")
    return sort_by_query(rows, find_query_columns(metrics, rows.column_names))
