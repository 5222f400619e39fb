"""Ray: compute metrics of a dataset or of the parts of a log, or of groups with an aggregation for ``groupby``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import ray
from ray.data import Dataset
from ray.data.aggregate import AggregateFn

from ..collect.metric_like import MetricLike
from ..collect.query_columns import find_query_column
from ..collect.serialization import merge
from ..metrics.groups.auc import group_partition
from . import fold
from .parts import find_read_columns, fold_part, merge_results
from .whole_queries import find_query_columns, fold_queries, fold_whole_queries, merge_queries

__all__ = ["AggregateMetrics", "evaluate"]

H = TypeVar("H", bound=MetricLike)

PART = "streammetrics: part"
# The number of partitions if a dataset is shuffled by query. All rows of a partition must fit into the memory of a task.
PARTS = 128
# The number of states that one task merges before the driver merges the results.
MERGED_STATES = 16


def evaluate(data: Dataset | Iterable[Any], metrics: H, *, assume_grouped: bool = False) -> H:
    """Compute metrics of a dataset, or of the parts of a log, in Ray tasks.

    Parameters
    ----------
    data : ray.data.Dataset, or iterable of parts
        A dataset is streamed; only the columns that the metrics read are fetched, and only states are sent. Parts are
        tables, references to tables, or callables that return tables (see `local.evaluate`). Each part is counted by one
        task, which Ray restarts if its worker dies.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    assume_grouped : bool
        Whether the rows of each query are adjacent already, so that Ray need not shuffle a dataset for ranking metrics.

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
        The dataset lacks a column. Or the metrics are ranking metrics, Ray does not shuffle the rows, and the rows of a
        query are not adjacent.

    Notes
    -----
    For ranking metrics such as NDCG, Ray shuffles a dataset by query. Parts are not shuffled: the rows of each query must
    be adjacent, but parts may end in the middle of a query. The IDs of all queries are then sent to the driver (8 or 16
    bytes each), to find queries whose rows are not adjacent. Each row may also contain a whole query as lists.

    Examples
    --------
    >>> import ray.data
    >>> import streammetrics as sm
    >>> from streammetrics.engines.ray import evaluate
    >>> log = ray.data.from_items([{"y_true": i % 2, "y_score": i / 10} for i in range(10)])  # doctest: +SKIP
    >>> evaluate(log, sm.AUC()).compute()  # doctest: +SKIP
    0.6
    """
    if not isinstance(data, Dataset):
        if find_query_column(metrics) is None:
            return merge_results(_count_parts(data, metrics, fold_part), metrics)
        return merge_queries(_count_parts(data, metrics, fold_queries), metrics)
    columns = data.columns()
    if columns is None:  # the dataset is empty
        return merge_results((), metrics)
    queries, selected = find_query_columns(metrics, columns), data.select_columns(find_read_columns(metrics, columns))
    if not queries:
        return merge_results(_merge_blocks(_count_blocks(selected, partial(_fold_block, metrics=metrics))), metrics)
    if assume_grouped:
        blocks = _count_blocks(selected, partial(_fold_grouped_block, metrics=metrics))
        return merge_queries((pickle.loads(row["state"]) for row in blocks.iter_rows()), metrics)
    parts = selected.map_batches(partial(_add_part, queries=queries), batch_size=None, batch_format="pyarrow")
    states = parts.groupby(PART).map_groups(
        partial(_fold_whole_queries, metrics=metrics, queries=queries), batch_format="pyarrow"
    )
    return merge_results(_merge_blocks(states), metrics)


def _count_blocks(data: Dataset, count: Callable[[pa.Table], pa.Table]) -> Dataset:
    return data.map_batches(count, batch_size=None, batch_format="pyarrow", zero_copy_batch=True)


def _merge_blocks(states: Dataset) -> Iterator[bytes]:
    """Merge the states of blocks in tasks, before the driver merges the results."""
    merged = states.map_batches(_merge_batch, batch_size=MERGED_STATES, batch_format="pyarrow")
    return (row["state"] for row in merged.iter_rows())


def _merge_batch(states: pa.Table) -> pa.Table:
    return _as_table(merge(state.as_py() for state in states.column("state")).to_bytes())


def _fold_block(block: pa.Table, metrics: MetricLike) -> pa.Table:
    return _as_table(fold([block], metrics))


def _fold_grouped_block(block: pa.Table, metrics: MetricLike) -> pa.Table:
    return _as_table(pickle.dumps(fold_queries(block, metrics)))


def _add_part(block: pa.Table, queries: list[str]) -> pa.Table:
    """Add a column with the number of the partition to which the query of each row belongs."""
    keys = [block.column(name) for name in queries]
    return block.append_column(PART, pa.array(group_partition(keys[0] if len(keys) == 1 else tuple(keys), PARTS)))


def _fold_whole_queries(block: pa.Table, metrics: MetricLike, queries: list[str]) -> pa.Table:
    return _as_table(fold_whole_queries(block.drop_columns([PART]), metrics, queries))


def _as_table(state: bytes) -> pa.Table:
    return pa.table({"state": pa.array([state], pa.binary())})


def _count_parts(parts: Iterable[Any], metrics: MetricLike, count: Callable[..., Any]) -> Iterator[Any]:
    """Start a task for each part, and yield the results of `count` in the order in which the tasks finish.

    If a task fails, the remaining tasks are cancelled.
    """
    metrics_ref, task = ray.put(metrics), ray.remote(count)
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
