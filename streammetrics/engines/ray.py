"""Ray: compute metrics of a dataset or of the parts of a log, or of groups with an aggregation for ``groupby``."""

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
from .parts import find_read_columns, fold_part, merge_results

__all__ = ["AggregateMetrics", "evaluate"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: Dataset | Iterable[Any], metrics: H) -> H:
    """Compute metrics of a dataset, or of the parts of a log, in Ray tasks.

    Parameters
    ----------
    data : ray.data.Dataset, or iterable of parts
        A dataset is streamed; only the columns that the metrics read are fetched, and only states are sent. Parts are
        tables, references to tables, or callables that return tables (see `local.evaluate`). Each part is counted by one
        task, which Ray restarts if its worker dies.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all rows.

    Raises
    ------
    ray.exceptions.RayTaskError
        A batch has invalid values; the message contains the error message of this library. If `data` is an iterable of
        parts, the error is also an InvalidInputError.
    InvalidInputError
        The dataset lacks a column.

    Notes
    -----
    Blocks may end between any two rows, so ranking metrics need parts with whole queries, or one row with lists for
    each query.

    Examples
    --------
    >>> import ray.data
    >>> import streammetrics as sm
    >>> from streammetrics.engines.ray import evaluate
    >>> log = ray.data.from_items([{"y_true": i % 2, "y_score": i / 10} for i in range(10)])  # doctest: +SKIP
    >>> evaluate(log, sm.AUC()).compute()  # doctest: +SKIP
    0.6
    """
    states = _count_dataset(data, metrics) if isinstance(data, Dataset) else _count_parts(data, metrics)
    return merge_results(states, metrics)


def _count_dataset(data: Dataset, metrics: MetricLike) -> Iterator[bytes]:
    columns = data.columns()
    if columns is None:  # the dataset is empty
        return
    selected = data.select_columns(find_read_columns(metrics, columns))
    states = selected.map_batches(
        partial(_fold_block, metrics=metrics), batch_size=None, batch_format="pyarrow", zero_copy_batch=True
    )
    for row in states.iter_rows():
        yield row["state"]


def _fold_block(block: pa.Table, metrics: MetricLike) -> pa.Table:
    return pa.table({"state": pa.array([fold([block], metrics)], pa.binary())})


def _count_parts(parts: Iterable[Any], metrics: MetricLike) -> Iterator[bytes]:
    """Start a task for each part, and yield the states of the parts in the order in which the tasks finish.

    If a task fails, the remaining tasks are cancelled.
    """
    metrics_ref, task = ray.put(metrics), ray.remote(fold_part)
    waiting = [task.remote(part, metrics_ref) for part in parts]
    try:
        while waiting:
            (finished, *_), waiting = ray.wait(waiting)
            yield ray.get(finished)
    finally:
        for one in waiting:
            ray.cancel(one)


class AggregateMetrics(AggregateFn):
    """An aggregation that computes the state of each group: ``dataset.groupby(key).aggregate(AggregateMetrics(metrics))``.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    name : str
        The column of the result that contains the states, as bytes; `streammetrics.from_bytes` decodes them.

    Notes
    -----
    ``groupby`` sorts rows by key into ``num_partitions`` partitions (by default 200); `evaluate` with a `Sliced` is
    faster. This class does not derive from Ray's `AggregateFnV2`, because Ray passes only one column besides the keys to
    such aggregations.

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
            accumulate_block=lambda state, block: _merge_bytes(state, fold([block], metrics)),
            merge=_merge_bytes,
        )


def _merge_bytes(one: bytes, other: bytes) -> bytes:
    data: bytes = merge([one, other]).to_bytes()
    return data
