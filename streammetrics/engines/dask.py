"""Dask: compute metrics of data frames, of bags of tables, or of a log in delayed parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import dask
from dask.delayed import Delayed, delayed

from ..collect.metric_like import MetricLike
from ..collect.query_columns import find_query_column
from ..collect.serialization import merge
from ..errors import InvalidInputError
from .parts import find_read_columns, fold_part, merge_results
from .whole_queries import PartQueries, find_query_columns, fold_queries, fold_whole_queries, merge_queries

__all__ = ["evaluate", "states"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: Any, metrics: H, *, split_every: int = 16, assume_grouped: bool = False) -> H:
    """Compute metrics of a data frame, a bag or delayed parts, on the current scheduler or cluster.

    Parameters
    ----------
    data : dask.dataframe.DataFrame, dask.bag.Bag of tables, or iterable of parts
        The log. A part is a table, a delayed table, a future of a table, or a callable that returns tables (see
        `local.evaluate`).
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    split_every : int
        The number of states that a single task merges, 2 or more. The states are merged in a tree of such tasks.
    assume_grouped : bool
        Whether the rows of each query are already adjacent, so that Dask need not shuffle a data frame for ranking
        metrics.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all rows.

    Raises
    ------
    InvalidInputError
        If a batch contains invalid values, or if the data frame lacks a column. It is also raised if ranking metrics
        are computed without a shuffle, and the rows of a query are not adjacent.

    Notes
    -----
    For ranking metrics such as NDCG, Dask shuffles a data frame by query, so that each partition contains whole queries.
    Bags and other parts are not shuffled: the rows of each query must be adjacent, but a part may end in the middle of
    a query. To check that rows are adjacent, the IDs of all queries are sent to the client (8 or 16 bytes each).
    Alternatively, each row can contain a whole query as lists.

    Dask identifies data by a hash, which is the same for all slices of one Arrow table, so Dask confuses such slices.
    To scatter or map them, use ``client.scatter(..., hash=False)`` and ``client.map(..., pure=False)``.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import streammetrics as sm
    >>> from streammetrics.engines.dask import evaluate
    >>> log = dd.from_pandas(pd.DataFrame({"y_true": [0, 1, 1, 0]}), npartitions=2)
    >>> evaluate(log, sm.CTR()).compute()
    0.5
    """
    if split_every < 2:
        raise ValueError(f"split_every must be 2 or more, not {split_every!r}")
    is_frame = hasattr(data, "columns")
    queries = find_query_columns(metrics, data.columns) if is_frame else []
    if queries and not assume_grouped:
        return _merge_tree(_count_shuffled(data, metrics, queries), metrics, split_every)
    if not queries and (is_frame or find_query_column(metrics) is None):
        return _merge_tree(states(data, metrics), metrics, split_every)
    parts = _count_parts(_split_parts(data, metrics), partial(fold_queries, metrics=metrics), "partition {:,}")
    tree = _build_tree([part.state for part in parts], split_every)
    queries, *merged = dask.compute([part.without_state() for part in parts], *tree)
    return merge_queries([*queries, *(PartQueries(state, [], []) for state in merged)], metrics)


def _count_shuffled(frame: Any, metrics: MetricLike, queries: list[str]) -> list[Delayed]:
    """Shuffle a data frame by query, and return a delayed state for each partition."""
    shuffled = frame[find_read_columns(metrics, frame.columns)].shuffle(on=queries)
    count = partial(fold_whole_queries, metrics=metrics, names=queries)
    return _count_parts(shuffled.to_delayed(), count, "partition {:,} after the shuffle by query")


def _merge_tree(states: Sequence[Delayed], metrics: H, split_every: int) -> H:
    """Merge delayed states in a tree of tasks, and compute the result."""
    return merge_results(dask.compute(*_build_tree(states, split_every)), metrics)


def _build_tree(states: Sequence[Delayed], split_every: int) -> Sequence[Delayed]:
    """Merge `states` in a tree of tasks; return the delayed result in a list, empty if there are no states."""
    merge_delayed = delayed(_merge_bytes)
    while len(states) > 1:
        states = [merge_delayed(states[i : i + split_every]) for i in range(0, len(states), split_every)]
    return states


def states(data: Any, metrics: MetricLike) -> list[Delayed]:
    """Return a delayed state, as bytes, for each partition; `streammetrics.merge` merges them in any order.

    Parameters
    ----------
    data, metrics
        As in `evaluate`.

    Notes
    -----
    For ranking metrics, all rows of a query must be in the same partition. Otherwise its rows in each partition count
    as a separate query. A merge raises an error only if the query is the last one in a partition and the first one in
    another.
    """
    return _count_parts(_split_parts(data, metrics), partial(fold_part, metrics=metrics), "partition {:,}")


def _count_parts(parts: Iterable[Any], count: Callable[[Any], Any], name: str) -> list[Delayed]:
    """Return the delayed result of the function `count` for each part.

    `name` is a format string for the name of a part in error messages, with a placeholder for the number of the part.
    """
    task = delayed(_count_part, name="fold", pure=False)
    return [task(part, count, name.format(number)) for number, part in enumerate(parts)]


def _count_part(part: Any, count: Callable[[Any], Any], name: str) -> Any:
    try:
        return count(part)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} ({name})", column=error.column, row=error.row, count=error.count) from error


def _split_parts(data: Any, metrics: MetricLike) -> Iterable[Any]:
    if hasattr(data, "columns"):
        data = data[find_read_columns(metrics, data.columns)]
    return data.to_delayed() if hasattr(data, "to_delayed") else data


def _merge_bytes(states: Iterable[bytes]) -> bytes:
    data: bytes = merge(states).to_bytes()
    return data
