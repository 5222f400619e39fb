"""Ray: metrics of a dataset or of parts in tasks, and an aggregation for ``aggregate`` and ``groupby``."""

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
    """Compute metrics of a dataset on the nodes of its blocks, or of the parts of a log in tasks.

    Parameters
    ----------
    data : ray.data.Dataset, or iterable of parts
        A dataset is streamed; only the columns that the metrics read are fetched, and only states are sent. Parts are
        tables, references to tables, or callables that return tables (see `local.evaluate`). Each part is a task, which
        Ray restarts if its worker dies.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all rows.

    Raises
    ------
    ray.exceptions.RayTaskError
        A batch has invalid values; the message contains the error message of this library. From tasks, the error is
        also an InvalidInputError.
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
    if columns is None:  # an empty dataset has no columns
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
    """Yield states as they arrive; cancel the remaining tasks if one fails."""
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
    """An aggregation of rows to a state, as bytes: ``dataset.groupby(key).aggregate(AggregateMetrics(metrics))``.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    name : str
        The column of states in the result; `streammetrics.from_bytes` decodes them.

    Notes
    -----
    ``groupby`` sorts rows by key into 200 partitions, or ``num_partitions=``; a `Sliced` in `evaluate` is faster. The
    class is no `AggregateFnV2`, for which Ray reads one column besides the keys and drops all others.

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
