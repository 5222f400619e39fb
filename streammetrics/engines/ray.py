"""Ray: compute metrics of a dataset, of a log in parts, or of groups (with an aggregation for ``groupby``)."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import ray
from ray.data import Dataset
from ray.data.aggregate import AggregateFn

from ..collect.metric_like import MetricLike
from ..collect.serialization import merge
from ..metrics.groups.auc import group_partition
from . import fold
from .parts import find_read_columns, merge_results
from .whole_queries import PartQueries, find_query_columns, fold_queries, fold_whole_queries, merge_queries

__all__ = ["AggregateMetrics", "evaluate"]

H = TypeVar("H", bound=MetricLike)

PART = "streammetrics: part"
# The number of partitions if a dataset is shuffled by query. All rows of a partition must fit in the memory of a task.
PARTS = 128
# The number of states that a single task merges. All states are merged in a tree of such tasks.
MERGED_STATES = 16


def evaluate(data: Dataset | Iterable[Any], metrics: H, *, assume_grouped: bool = False) -> H:
    """Compute metrics of a dataset, or of the parts of a log, in Ray tasks.

    Parameters
    ----------
    data : ray.data.Dataset, or iterable of parts
        The log. A dataset is streamed; only the columns that the metrics read are fetched, and only states are sent to
        the driver. A part is a table, a reference to a table, or a callable that returns tables (see `local.evaluate`).
        Each part is counted by one task, which Ray restarts if its worker dies.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    assume_grouped : bool
        Whether the rows of each query are already adjacent, so that Ray need not shuffle a dataset for ranking metrics.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all rows.

    Raises
    ------
    ray.exceptions.RayTaskError
        If a batch contains invalid values; the message contains the error message of this library. If `data` is an
        iterable of parts, the error is also an InvalidInputError.
    InvalidInputError
        If the dataset lacks a column, or if the rows of a query are not adjacent and ranking metrics are computed
        without a shuffle.

    Notes
    -----
    For ranking metrics such as NDCG, Ray shuffles a dataset by query. Parts are not shuffled: the rows of each query must
    be adjacent, but a part may end in the middle of a query. To check that rows are adjacent, the IDs of all
    queries are sent to the driver (8 or 16 bytes each). Alternatively, each row can contain a whole query as lists.

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
        return merge_queries(_count_parts(data, metrics), metrics)
    columns = data.columns()
    if columns is None:  # the dataset is empty
        return merge_results((), metrics)
    queries, selected = find_query_columns(metrics, columns), data.select_columns(find_read_columns(metrics, columns))
    if not queries:
        return _merge_tree(_count_blocks(selected, partial(_fold_block, metrics=metrics)).to_arrow_refs(), metrics)
    if assume_grouped:
        blocks = _count_blocks(selected, partial(_fold_grouped_block, metrics=metrics)).to_arrow_refs()
        read = ray.remote(_read_queries)
        found = itertools.chain.from_iterable(ray.get([read.remote(block) for block in blocks]))
        return merge_queries([*found, PartQueries(_merge_tree(blocks, metrics).to_bytes(), [], [])], metrics)
    parts = selected.map_batches(partial(_add_part, queries=queries), batch_size=None, batch_format="pyarrow")
    states = parts.groupby(PART).map_groups(
        partial(_fold_whole_queries, metrics=metrics, queries=queries), batch_format="pyarrow"
    )
    return _merge_tree(states.to_arrow_refs(), metrics)


def _count_blocks(data: Dataset, count: Callable[[pa.Table], pa.Table]) -> Dataset:
    return data.map_batches(count, batch_size=None, batch_format="pyarrow", zero_copy_batch=True)


def _fold_block(block: pa.Table, metrics: MetricLike) -> pa.Table:
    return _as_table(fold([block], metrics))


def _fold_grouped_block(block: pa.Table, metrics: MetricLike) -> pa.Table:
    queries, state = _count_part(block, metrics)
    return _as_table(state).append_column("queries", pa.array([pickle.dumps(queries)], pa.binary()))


def _read_queries(block: pa.Table) -> list[PartQueries]:
    return [pickle.loads(queries) for queries in _read_column(block, "queries")]


def _read_column(block: pa.Table, name: str) -> list[bytes]:
    """Return the values of a column. A block without rows may lack the column."""
    values: list[bytes] = block.column(name).to_pylist() if block.num_rows else []
    return values


def _add_part(block: pa.Table, queries: list[str]) -> pa.Table:
    """Add a column that contains the partition number of each row's query."""
    keys = [block.column(name) for name in queries]
    return block.append_column(PART, pa.array(group_partition(keys[0] if len(keys) == 1 else tuple(keys), PARTS)))


def _fold_whole_queries(block: pa.Table, metrics: MetricLike, queries: list[str]) -> pa.Table:
    return _as_table(fold_whole_queries(block.drop_columns([PART]), metrics, queries))


def _as_table(state: bytes) -> pa.Table:
    return pa.table({"state": pa.array([state], pa.binary())})


def _count_parts(parts: Iterable[Any], metrics: MetricLike) -> Iterator[PartQueries]:
    """Count each part in a task, and merge the states in a tree of tasks.

    Yield the queries of each part (without its state) as soon as its task finishes, and finally the merged state. If a
    task fails, the remaining tasks are canceled.
    """
    metrics_ref, count, join = ray.put(metrics), ray.remote(num_returns=2)(_count_part), ray.remote(_merge_states)
    # Each task returns two objects: the queries of a part, which the driver reads, and its state. To keep the state
    # away from the driver, only the reference to it is passed to the tasks that merge states.
    state_of = dict(count.remote(part, metrics_ref) for part in parts)
    waiting, states, merged = list(state_of), list[ray.ObjectRef](), list[ray.ObjectRef]()
    try:
        while waiting:
            (finished, *_), waiting = ray.wait(waiting)
            yield ray.get(finished)
            states.append(state_of.pop(finished))
            if len(states) == MERGED_STATES:
                merged.append(join.remote(metrics_ref, *states))
                states = []
    finally:
        for one in waiting:
            ray.cancel(one)
    yield PartQueries(_merge_tree([*merged, *states], metrics).to_bytes(), [], [])


def _count_part(part: Any, metrics: MetricLike) -> tuple[PartQueries, Any]:
    counted = fold_queries(part, metrics)
    return counted.without_state(), counted.state


def _merge_tree(states: list[ray.ObjectRef], metrics: H) -> H:
    """Merge states (see `_merge_states`) in a tree of tasks, so that the driver receives only one state."""
    metrics_ref, join = ray.put(metrics), ray.remote(_merge_states)
    while True:
        states = [
            join.remote(metrics_ref, *states[i : i + MERGED_STATES]) for i in range(0, len(states), MERGED_STATES)
        ]
        if len(states) < 2:
            return merge_results(map(ray.get, states), metrics)


def _merge_states(metrics: MetricLike, *parts: bytes | pa.Table) -> bytes:
    """Merge states of `metrics`; each part is either one state, as bytes, or a table with a column of states."""
    states = ([part] if isinstance(part, bytes) else _read_column(part, "state") for part in parts)
    data: bytes = merge(itertools.chain([metrics.copy().reset()], *states)).to_bytes()
    return data


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
    faster. This class does not derive from Ray's `AggregateFnV2`, because Ray passes only one column (and the keys) to
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
