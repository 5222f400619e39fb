"""Apache Beam: `CombineFn`s for ``CombineGlobally`` and ``CombinePerKey``, over tables, rows or saved states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam

from ..collect.metric_like import MetricLike
from ..collect.serialization import from_bytes
from .parts import read_columns, total

__all__ = ["FoldRows", "FoldTables", "Merge"]


class FoldTables(beam.CombineFn):
    """Count tables: Arrow tables or record batches, data frames, mappings of columns.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is. The output is a new one that has seen all tables: none, of an empty input.

    Notes
    -----
    Tables of some thousand rows cost least: ``beam.io.ReadFromParquetBatched`` gives such.

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
        """Merge into a new one: those that Beam holds stay as they are."""
        return BufferedMetrics(total((one.settled() for one in accumulators), self.counts))

    def compact(self, accumulator: BufferedMetrics) -> BufferedMetrics:
        return BufferedMetrics(accumulator.settled())

    def extract_output(self, accumulator: BufferedMetrics) -> Any:
        return accumulator.settled()

    def get_accumulator_coder(self) -> AccumulatorCoder:
        return AccumulatorCoder(self.counts)


class FoldRows(FoldTables):
    """Count rows: mappings of values, `beam.Row` or named tuples; a column that a row lacks is null there.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is. Queries of several rows would be cut: rank by rows that hold lists.
    buffer : int
        How many rows wait to be counted as one batch. They are counted earlier where Beam moves them (`compact`).

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
        mutable_accumulator.rows.append(_as_mapping(element))
        full = len(mutable_accumulator.rows) >= self.buffer
        return self.compact(mutable_accumulator) if full else mutable_accumulator


class Merge(FoldTables):
    """Unite saved states: bytes that workers, earlier pipelines or other engines have made.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What the states are of.
    """

    def add_input(self, mutable_accumulator: BufferedMetrics, element: bytes) -> BufferedMetrics:
        mutable_accumulator.metrics.merge(from_bytes(element))
        return mutable_accumulator


class BufferedMetrics:
    """Metrics, and rows that wait for them."""

    def __init__(self, metrics: Any) -> None:
        self.metrics = metrics
        self.rows: list[Mapping[str, Any]] = []

    def settled(self) -> Any:
        """The metrics with all rows; the accumulator stays as it is."""
        if not self.rows:
            return self.metrics
        names = dict.fromkeys(name for row in self.rows for name in row)
        read = read_columns(self.metrics, names)
        return self.metrics.copy().update({name: [row.get(name) for row in self.rows] for name in read})


class AccumulatorCoder(beam.coders.Coder):
    """Accumulators as the library's bytes: equal content, equal bytes."""

    def __init__(self, metrics: MetricLike) -> None:
        self.counts = metrics

    def encode(self, value: BufferedMetrics) -> bytes:
        data: bytes = value.settled().to_bytes()
        return data

    def decode(self, encoded: bytes) -> BufferedMetrics:
        """Read it, with settings that are no part of what was counted, and so of its bytes."""
        return BufferedMetrics(total([encoded], self.counts))

    def is_deterministic(self) -> bool:
        return True


def _as_mapping(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    return row.as_dict() if isinstance(row, beam.Row) else row._asdict()
