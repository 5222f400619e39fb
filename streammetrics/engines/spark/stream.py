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
    atomically. After a crash, Spark sends the last micro-batch again, with the same rows. The sink ignores this
    micro-batch if its number is the one in the file, because it has already been counted.

    Parameters
    ----------
    path : path
        The file, on the driver. Each stream (each Spark checkpoint) needs its own file.
    metrics : Metric, Task, MetricCollection, Sliced, or list or dict of metrics
        The metrics to compute.
    by : str or sequence of str
        The slicing columns.
    strategy, partitions
        As for `evaluate`, which counts each micro-batch.
    start : int
        The number of the first micro-batch that the sink accepts if the file does not exist; 0 for a new stream. Pass
        another number only if you want to leave out all earlier micro-batches.
    rejected : str, optional
        A folder, as a path or URL for Spark, for micro-batches with invalid rows. Such a micro-batch is written to
        ``batch=N`` in this folder as Parquet, none of its rows are counted, and the stream continues. Without a folder,
        the stream stops. To drop only the invalid rows, pass ``MetricCollection(..., on_invalid="drop")`` as `metrics`.

    Raises
    ------
    InvalidInputError
        If a metric such as GroupAUC needs all rows of a group in one micro-batch, which a stream cannot guarantee;
        if a row is invalid; if the file is missing, although the micro-batch is not the first one of the stream; or if
        the number of a micro-batch neither equals the number of the last one nor follows it, so rows are missing or
        repeated.
    StateFormatError
        If the file was not written by a sink.

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
        start: int = 0,
        rejected: str | None = None,
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
        self.start, self.rejected = start, rejected

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Count a micro-batch, unless the file already includes it.

        `frame` contains the rows of the micro-batch, and `batch` is its number.
        """
        last, before = self._read_file()
        if batch == last:
            return
        expected = self.start if last is None else last + 1
        if batch != expected:
            raise InvalidInputError(self._describe_gap(last, batch))
        try:
            new = evaluate(frame, self.metrics.copy(), strategy=self.strategy, partitions=self.partitions).state
        except InvalidInputError as error:
            if self.rejected is None:
                # Raise the error without a cause. Spark prints the tracebacks of all causes, which would hide the
                # message.
                raise InvalidInputError(
                    f"micro-batch {batch}: {error}; to go on without such micro-batches, pass rejected= to the sink"
                ) from None
            frame.write.mode("overwrite").parquet(f"{self.rejected.rstrip('/')}/batch={batch}")
            new = self.metrics.copy()
        total = new if before is None else merge([before, new])
        data = FILE_HEADER + b"%d\n" % batch + total.to_bytes()
        files.atomic_write(self.path, lambda file: file.write(data))

    def _describe_gap(self, last: int | None, batch: int) -> str:
        """Return the error message for a micro-batch that does not follow the last one."""
        if last is None:
            return (
                f"{self.path}: this file does not exist, so expected micro-batch {self.start}, found {batch}: the "
                f"micro-batches before it would be missing; restore the file, or start the stream with a new checkpoint, "
                f"or pass start={batch} to leave them out on purpose"
            )
        return (
            f"{self.path}: expected micro-batch {last + 1} after micro-batch {last}, found {batch}: this file belongs to "
            f"another checkpoint of the stream; use a separate file for each checkpoint"
        )

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
