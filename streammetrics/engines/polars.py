"""Polars: compute metrics of a lazy frame in batches, or states of groups with expressions in ``group_by().agg``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import polars as pl

from ..collect.metric_like import MetricLike, columns_of
from ..collect.serialization import merge
from . import fold
from .parts import find_read_columns, merge_results, read_value
from .whole_queries import find_query_columns, fold_queries, merge_queries

__all__ = ["evaluate", "merged", "state", "value"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: pl.LazyFrame | pl.DataFrame, metrics: H, *, rows: int = 1 << 17, assume_grouped: bool = False) -> H:
    """Compute metrics of a frame, which the Polars streaming engine reads in batches.

    Parameters
    ----------
    data : polars.LazyFrame or polars.DataFrame
        The log; only the columns that the metrics read are fetched.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    rows : int
        The number of rows in a batch.
    assume_grouped : bool
        Whether the rows of each query are already adjacent, so that Polars need not sort the rows for ranking metrics.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all rows.

    Raises
    ------
    InvalidInputError
        If a batch contains invalid values, if the frame lacks a column, or if the rows of a query are not adjacent
        although `assume_grouped` is set.

    Notes
    -----
    For ranking metrics such as NDCG, Polars sorts the rows by query; rows of one query keep their order. The IDs of all
    queries are kept until the end (8 or 16 bytes each). Alternatively, each row can contain a whole query as lists.

    Examples
    --------
    >>> import polars as pl
    >>> import streammetrics as sm
    >>> from streammetrics.engines.polars import evaluate
    >>> log = pl.LazyFrame({"y_true": [0, 1, 1, 0], "y_score": [0.1, 0.9, 0.4, 0.3]})
    >>> evaluate(log, sm.AUC()).compute()
    1.0
    """
    lazy = data.lazy()
    present = lazy.collect_schema().names()
    queries, selected = find_query_columns(metrics, present), lazy.select(find_read_columns(metrics, present))
    if queries:
        ordered = selected if assume_grouped else selected.sort(queries, maintain_order=True)
        return merge_queries([fold_queries(ordered.collect_batches(chunk_size=rows), metrics)], metrics)
    return merge_results([fold(selected.collect_batches(chunk_size=rows), metrics)], metrics)


def state(metrics: MetricLike, columns: Iterable[str] | None = None) -> pl.Expr:
    """Return an expression whose value is the state of the rows of each group, as bytes.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    columns : iterable of str, optional
        The columns to read; by default the required ones. The weight column is required only if a task names it.
        Otherwise, include it here to use weights.

    Returns
    -------
    polars.Expr
        An expression of binary values, named "state".

    Notes
    -----
    Polars buffers all rows of a group, and each group takes about 1 ms. For many groups, `evaluate` with a `Sliced` is
    faster and does not buffer groups.

    Examples
    --------
    >>> import polars as pl
    >>> import streammetrics as sm
    >>> from streammetrics.engines.polars import state, value
    >>> log = pl.DataFrame({"variant": ["A", "A", "B"], "y_true": [0, 1, 1]})
    >>> log.group_by("variant").agg(state(sm.CTR())).select("variant", value("state")).sort("variant").rows()
    [('A', 0.5), ('B', 1.0)]
    """
    names = [name for name, required in columns_of(metrics).items() if required] if columns is None else list(columns)

    def count(series: Sequence[pl.Series]) -> pl.Series:
        return _to_binary_series([fold([dict(zip(names, series, strict=True))], metrics)])

    expression: pl.Expr = pl.map_batches(
        [pl.col(name) for name in names], count, return_dtype=pl.Binary, returns_scalar=True
    ).alias("state")
    return expression


def merged(column: str = "state") -> pl.Expr:
    """Return an expression that merges the states of each group.

    Nulls are ignored. A group that contains only nulls gives null.

    Parameters
    ----------
    column : str
        The column of states, as bytes.
    """

    def merge_group(series: Sequence[pl.Series]) -> pl.Series:
        states = series[0].drop_nulls().to_list()
        return _to_binary_series([merge(states).to_bytes() if states else None])

    expression: pl.Expr = pl.map_batches(
        [pl.col(column)], merge_group, return_dtype=pl.Binary, returns_scalar=True
    ).alias(column)
    return expression


def value(column: str = "state", metric: str | None = None) -> pl.Expr:
    """Return an expression that computes the value of a metric from each state.

    Parameters
    ----------
    column : str
        The column of states, as bytes. A null in the column gives a null value.
    metric : str, optional
        The name of the metric; not needed if the states have only one.

    Returns
    -------
    polars.Expr
        An expression of float64 values, named after the metric, or "value" if `metric` is None.
    """

    def read(states: pl.Series) -> pl.Series:
        return pl.Series([None if one is None else read_value(one, metric) for one in states], dtype=pl.Float64)

    expression: pl.Expr = pl.col(column).map_batches(read, return_dtype=pl.Float64, is_elementwise=True)
    return expression.alias(metric or "value")


def _to_binary_series(values: list[Any]) -> pl.Series:
    return pl.Series(values, dtype=pl.Binary)
