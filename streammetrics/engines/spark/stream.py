"""Structured streaming: a sink that counts each micro-batch once, however often it is killed and replayed."""

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

HEAD = b"streammetrics stream "


class Sink:
    """What `foreachBatch` is given: the state of all micro-batches so far, in one file with the number of the last.

    A batch is counted, and its number written, in one replacement of the file. Spark brings the last batch again after a
    crash, with the same rows; what is in the file already is not counted twice.

    Parameters
    ----------
    path : path
        The file: of one stream, where the driver writes. Give a new stream (another checkpoint) another file.
    metrics : Metric, Task, MetricCollection, Sliced, or list or dict of metrics
        What to compute.
    by : str or sequence of str
        The slicing columns.
    strategy, partitions
        As for `evaluate`, which counts each batch.

    Raises
    ------
    InvalidInputError
        Groups would have to be complete in each batch, as those of GroupAUC; a batch neither is the last one again nor
        follows it: rows would be missing, or be there twice.
    StateFormatError
        The file is something else.

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
        closed = zip(definition.reads, definition.sealed(1).reads, strict=True)
        if any(a.state.differences(b.state) and not getattr(a.state, "sample_rows", 0) for a, b in closed):
            raise InvalidInputError(
                "groups of a stream are never complete: rows of one user come in many micro-batches; take GroupAUC of a "
                "sample (sample=True), or of a table once the day is there"
            )
        self.strategy, self.partitions = strategy, partitions

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Count a micro-batch, unless it was."""
        last, before = self._read()
        if batch == last:
            return
        if last is not None and batch != last + 1:
            raise InvalidInputError(
                f"{self.path}: the last micro-batch counted is {last}, and now {batch} comes: the stream has another "
                f"checkpoint than the one this file belongs to; give each a file of its own"
            )
        new = evaluate(frame, self.metrics.copy(), strategy=self.strategy, partitions=self.partitions).state
        total = new if before is None else merge([before, new])
        data = HEAD + b"%d\n" % batch + total.to_bytes()
        files.atomic_write(self.path, lambda file: file.write(data))

    @property
    def last(self) -> int | None:
        """The number of the last micro-batch that was counted; None before the first."""
        return self._read()[0]

    @property
    def state(self) -> Any:
        """What was seen by now: the metrics of all batches up to the last."""
        held = self._read()[1]
        return self.metrics.copy() if held is None else from_bytes(held)

    def _read(self) -> tuple[int | None, bytes | None]:
        if not self.path.exists():
            return None, None
        data = files.read(self.path)
        head = data[: len(HEAD) + 20].partition(b"\n")[0]
        number = head[len(HEAD) :]
        if not head.startswith(HEAD) or not number.isdigit():
            raise StateFormatError(f"{self.path}: this is no file of a stream")
        return int(number), data[len(head) + 1 :]
