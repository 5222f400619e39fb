"""Ray: a streaming pass over a dataset, tasks, and an aggregation for ``aggregate`` and ``groupby``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import ray
from ray.data import Dataset
from ray.data.aggregate import AggregateFn

from ..collect.metric_like import MetricLike
from ..collect.serialization import merge
from . import fold
from .parts import fold_part, read_columns, total

__all__ = ["AggregateMetrics", "evaluate"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: Dataset | Iterable[Any], metrics: H) -> H:
    """Count a dataset where its blocks are, or the parts of a log in tasks.

    Parameters
    ----------
    data : ray.data.Dataset, or iterable of parts
        A dataset streams: only the columns that are read, and then only states, move. Parts are tables, references to
        them, or callables that return tables (see `local.evaluate`), each a task, which starts again if its worker dies.
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object that has seen all rows.

    Raises
    ------
    ray.exceptions.RayTaskError
        A batch is bad; the message holds ours, and from tasks it is an InvalidInputError, too.
    InvalidInputError
        The dataset lacks a column.

    Notes
    -----
    Blocks may end anywhere: queries of several rows must be parts, or rows that hold lists.

    Examples
    --------
    >>> import ray.data
    >>> import streammetrics as sm
    >>> from streammetrics.engines.ray import evaluate
    >>> log = ray.data.from_items([{"y_true": i % 2, "y_score": i / 10} for i in range(10)])  # doctest: +SKIP
    >>> evaluate(log, sm.AUC()).compute()  # doctest: +SKIP
    0.6
    """
    states = _of_dataset(data, metrics) if isinstance(data, Dataset) else _of_tasks(data, metrics)
    return total(states, metrics)


def _of_dataset(data: Dataset, metrics: MetricLike) -> Iterator[bytes]:
    there = data.columns()
    if there is None:  # without a single row Ray knows no columns
        return
    chosen = data.select_columns(read_columns(metrics, there))
    folded = chosen.map_batches(
        partial(_folded, metrics=metrics), batch_size=None, batch_format="pyarrow", zero_copy_batch=True
    )
    for row in folded.iter_rows():
        yield row["state"]


def _folded(block: pa.Table, metrics: MetricLike) -> pa.Table:
    return pa.table({"state": pa.array([fold([block], metrics)], pa.binary())})


def _of_tasks(parts: Iterable[Any], metrics: MetricLike) -> Iterator[bytes]:
    """Yield states as they come, and cancel the rest if one fails."""
    held, task = ray.put(metrics), ray.remote(fold_part)
    waiting = [task.remote(part, held) for part in parts]
    try:
        while waiting:
            (done, *_), waiting = ray.wait(waiting)
            yield ray.get(done)
    finally:
        for one in waiting:
            ray.cancel(one)


class AggregateMetrics(AggregateFn):
    """Aggregate rows to a state, as bytes: ``dataset.groupby(key).aggregate(AggregateMetrics(metrics))``.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is.
    name : str
        The column of the result that the states, which `streammetrics.from_bytes` reads, are in.

    Notes
    -----
    ``groupby`` sorts rows by key, in 200 partitions unless ``num_partitions=`` says how many; a `Sliced` in `evaluate` is
    faster. This is no `AggregateFnV2`, as those read one column, and Ray drops all others but the keys.

    Examples
    --------
    >>> import ray.data
    >>> import streammetrics as sm
    >>> from streammetrics.engines.ray import AggregateMetrics
    >>> log = ray.data.from_items([{"y_true": i % 2, "variant": i // 5} for i in range(10)])  # doctest: +SKIP
    >>> rows = log.groupby("variant").aggregate(AggregateMetrics(sm.CTR())).take_all()  # doctest: +SKIP
    >>> {row["variant"]: sm.from_bytes(row["state"]).compute() for row in rows}  # doctest: +SKIP
    {0: 0.4, 1: 0.6}
    """

    def __init__(self, metrics: MetricLike, name: str = "state") -> None:
        super().__init__(
            name=name,
            init=lambda _: fold((), metrics),
            accumulate_block=lambda state, block: _united(state, fold([block], metrics)),
            merge=_united,
        )


def _united(one: bytes, other: bytes) -> bytes:
    data: bytes = merge([one, other]).to_bytes()
    return data
