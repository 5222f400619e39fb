"""Apache Beam: combine functions of tables, rows or saved states for ``CombineGlobally`` and ``CombinePerKey``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam

from ..collect.metric_like import MetricLike
from ..collect.serialization import from_bytes
from .parts import find_read_columns, merge_results

__all__ = ["FoldRows", "FoldTables", "Merge"]


class FoldTables(beam.CombineFn):
    """Compute metrics of tables: Arrow tables or record batches, data frames, or mappings of columns.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change. The output is a new object with the state of all tables.

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

    def __init__(self, metrics: MetricLike) -> None:
        self.counts = metrics

    def create_accumulator(self) -> BufferedMetrics:
        return BufferedMetrics(self.counts.copy().reset())

    def add_input(self, mutable_accumulator: BufferedMetrics, element: Any) -> BufferedMetrics:
        mutable_accumulator.metrics.update(element)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[BufferedMetrics]) -> BufferedMetrics:
        """Merge into a new accumulator. The arguments do not change, because Beam may use them again."""
        return BufferedMetrics(merge_results((one.count_buffered() for one in accumulators), self.counts))

    def compact(self, accumulator: BufferedMetrics) -> BufferedMetrics:
        return BufferedMetrics(accumulator.count_buffered())

    def extract_output(self, accumulator: BufferedMetrics) -> Any:
        return accumulator.count_buffered()

    def get_accumulator_coder(self) -> AccumulatorCoder:
        return AccumulatorCoder(self.counts)


class FoldRows(FoldTables):
    """Compute metrics of rows, which are mappings, `beam.Row` or named tuples.

    If a row lacks a column that other rows have, its value is null.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change. Rows come in any order, so ranking metrics need one row
        with lists for each query.
    buffer : int
        The number of rows that are collected before they are counted as one batch. A batch has fewer rows if Beam sends
        the accumulator to another worker first.

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
    """Merge saved states, as bytes, from workers, earlier pipelines or other engines.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics of the states.
    """

    def add_input(self, mutable_accumulator: BufferedMetrics, element: bytes) -> BufferedMetrics:
        mutable_accumulator.metrics.merge(from_bytes(element))
        return mutable_accumulator


class BufferedMetrics:
    """The accumulator of Beam's combine functions: the metrics, and a buffer of rows that they have not counted yet."""

    def __init__(self, metrics: Any) -> None:
        self.metrics = metrics
        self.rows: list[Mapping[str, Any]] = []

    def count_buffered(self) -> Any:
        """Return the metrics with the buffered rows counted. The accumulator itself does not change."""
        if not self.rows:
            return self.metrics
        names = dict.fromkeys(name for row in self.rows for name in row)
        read = find_read_columns(self.metrics, names)
        return self.metrics.copy().update({name: [row.get(name) for row in self.rows] for name in read})


class AccumulatorCoder(beam.coders.Coder):
    """Converts accumulators to bytes and back. Beam may rely on equal accumulators having equal bytes."""

    def __init__(self, metrics: MetricLike) -> None:
        self.counts = metrics

    def encode(self, value: BufferedMetrics) -> bytes:
        data: bytes = value.count_buffered().to_bytes()
        return data

    def decode(self, encoded: bytes) -> BufferedMetrics:
        """Decode an accumulator. Settings that are not saved in the bytes come from the metrics of the coder."""
        return BufferedMetrics(merge_results([encoded], self.counts))

    def is_deterministic(self) -> bool:
        return True


def _convert_row(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    return row.as_dict() if isinstance(row, beam.Row) else row._asdict()
