"""Dask: data frames, bags of tables, and delayed parts, each partition folded where it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import dask
from dask.delayed import Delayed, delayed

from ..collect.metric_like import MetricLike
from ..collect.serialization import merge
from .parts import fold_part, read_columns, total

__all__ = ["evaluate", "states"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: Any, metrics: H, *, split_every: int = 16) -> H:
    """Count a data frame, a bag or delayed parts, on whatever scheduler or cluster is set.

    Parameters
    ----------
    data : dask.dataframe.DataFrame, dask.bag.Bag of tables, or iterable of parts
        Parts are delayed or held (`Future`) tables, tables, or callables that return these (see `local.evaluate`).
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is.
    split_every : int
        How many states, 2 or more, are merged at once, in a tree, where they are.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object that has seen all rows.

    Raises
    ------
    InvalidInputError
        A batch is bad, or the data frame lacks a column.

    Notes
    -----
    Partitions may end anywhere: queries of several rows must be parts, or rows that hold lists.

    Dask names what it holds by a hash, which all slices of one Arrow table share, and takes one for the other: give
    ``hash=False`` to ``client.scatter`` and ``pure=False`` to ``client.map`` when these are given slices.

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
        raise ValueError(f"split_every must be 2 or more, not {split_every!r}: fewer states never become one")
    found: Sequence[Any] = states(data, metrics)
    unite = delayed(_united)
    while len(found) > 1:
        found = [unite(found[i : i + split_every]) for i in range(0, len(found), split_every)]
    return total(dask.compute(*found), metrics)


def states(data: Any, metrics: MetricLike) -> list[Delayed]:
    """Make a delayed state of every partition: bytes, which `streammetrics.merge` takes in any order.

    Parameters
    ----------
    data, metrics
        As in `evaluate`.
    """
    count = delayed(partial(fold_part, metrics=metrics), name="fold", pure=False)
    return [count(part) for part in _parts(data, metrics)]


def _parts(data: Any, metrics: MetricLike) -> Iterable[Any]:
    if hasattr(data, "columns"):
        data = data[read_columns(metrics, data.columns)]
    return data.to_delayed() if hasattr(data, "to_delayed") else data


def _united(some: Iterable[bytes]) -> bytes:
    data: bytes = merge(some).to_bytes()
    return data
