"""Structured streaming: a sink that counts each micro-batch exactly once, even after crashes and replays."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from ...collect import files
from ...collect.accumulator import definition_of
from ...collect.serialization import from_bytes, merge
from ...errors import InvalidInputError, StateFormatError
from .as_accumulator import make_empty_metrics
from .run import evaluate

__all__ = ["Sink"]

FILE_HEADER = b"streammetrics stream "


class Sink:
    """A sink for `foreachBatch` that keeps the metrics of all micro-batches of a stream in a file.

    The file contains the state of all micro-batches and the number of the last one. Each micro-batch replaces the file
    atomically. After a crash, Spark sends the last micro-batch again with the same rows. If the number in the file shows
    that the micro-batch was counted, the sink ignores it.

    Parameters
    ----------
    path : path
        The file, on the driver. Each stream (each Spark checkpoint) needs a file of its own.
    metrics : Metric, Task, MetricCollection, Sliced, or list or dict of metrics
        The metrics to compute.
    by : str or sequence of str
        The slicing columns.
    strategy, partitions
        As for `evaluate`, which counts each micro-batch.

    Raises
    ------
    InvalidInputError
        The metrics, such as GroupAUC, need all rows of a group in one micro-batch, which a stream cannot guarantee; or
        the number of a micro-batch is neither the number of the last one nor the number after it, so rows are missing or
        repeated.
    StateFormatError
        The file was not written by a sink.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.engines import spark
    >>> sink = spark.Sink("ctr.stream", [sm.AUC(), sm.CTR()], by="variant")  # doctest: +SKIP
    >>> query = log.writeStream.option("checkpointLocation", "ckpt").foreachBatch(sink).start()  # doctest: +SKIP
    >>> sink.state.table()  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        metrics: Any,
        by: str | Iterable[str] = (),
        *,
        strategy: str = "auto",
        partitions: int | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self.metrics = make_empty_metrics(metrics, by)
        definition = definition_of(self.metrics)
        closed = zip(definition.reads, definition.seal(1).reads, strict=True)
        if any(a.state.differences(b.state) and not getattr(a.state, "sample_rows", 0) for a, b in closed):
            raise InvalidInputError(
                "the groups of a stream are never complete, because the rows of a user arrive in many micro-batches; "
                "use a sample, such as GroupAUC(sample=True), or evaluate a table when the day is complete"
            )
        self.strategy, self.partitions = strategy, partitions

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Count a micro-batch, the data frame `frame` with the number `batch`, unless the file already includes it."""
        last, before = self._read_file()
        if batch == last:
            return
        if last is not None and batch != last + 1:
            raise InvalidInputError(
                f"{self.path}: expected micro-batch {last + 1} after micro-batch {last}, found {batch}: this file "
                f"belongs to another checkpoint of the stream; use a separate file for each checkpoint"
            )
        new = evaluate(frame, self.metrics.copy(), strategy=self.strategy, partitions=self.partitions).state
        total = new if before is None else merge([before, new])
        data = FILE_HEADER + b"%d\n" % batch + total.to_bytes()
        files.atomic_write(self.path, lambda file: file.write(data))

    @property
    def last(self) -> int | None:
        """The number of the last micro-batch that was counted; None before the first one."""
        return self._read_file()[0]

    @property
    def state(self) -> Any:
        """The metrics of all micro-batches so far, loaded from the file."""
        data = self._read_file()[1]
        return self.metrics.copy() if data is None else from_bytes(data)

    def _read_file(self) -> tuple[int | None, bytes | None]:
        if not self.path.exists():
            return None, None
        data = files.read(self.path)
        head = data[: len(FILE_HEADER) + 20].partition(b"\n")[0]
        number = head[len(FILE_HEADER) :]
        if not head.startswith(FILE_HEADER) or not number.isdigit():
            raise StateFormatError(f"{self.path}: expected a file that a Spark sink wrote, found another file")
        return int(number), data[len(head) + 1 :]
