"""DuckDB: compute metrics of a relation in batches, and register SQL functions that compute, merge and read states.

Aggregate functions for DuckDB cannot be written in Python. The SQL functions are therefore macros, which collect the
rows of a group in a list and pass the list to a Python function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from ..collect.metric import Metric
from ..collect.metric_like import MetricLike, columns_of
from ..collect.serialization import merge
from . import fold
from .parts import find_read_columns, merge_results, read_value
from .whole_queries import find_query_columns, fold_queries, merge_queries

__all__ = ["evaluate", "register"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: duckdb.DuckDBPyRelation, metrics: H, *, rows: int = 1 << 17, assume_grouped: bool = False) -> H:
    """Compute metrics of a relation in batches, using an amount of memory that does not depend on the number of rows.

    Parameters
    ----------
    data : duckdb.DuckDBPyRelation
        A relation such as ``connection.sql("select ...")``; only the columns that the metrics read are fetched.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    rows : int
        The number of rows in a batch.
    assume_grouped : bool
        Whether the rows of each query are already adjacent, so that DuckDB need not sort the rows for ranking metrics.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all rows.

    Raises
    ------
    InvalidInputError
        If a batch contains invalid values, if the relation lacks a column, or if the rows of a query are not adjacent
        although `assume_grouped` is set.

    Notes
    -----
    For ranking metrics such as NDCG, DuckDB sorts the rows by query; rows of one query keep their order. The IDs of all
    queries are kept until the end (8 or 16 bytes each). Alternatively, each row can contain a whole query as lists.

    Examples
    --------
    >>> import duckdb
    >>> import streammetrics as sm
    >>> from streammetrics.engines.duckdb import evaluate
    >>> log = duckdb.sql("select i % 2 as y_true, i / 10 as y_score from range(10) t(i)")
    >>> evaluate(log, sm.AUC()).compute()
    0.6
    """
    queries, read = find_query_columns(metrics, data.columns), find_read_columns(metrics, data.columns)
    columns = list(map(duckdb.ColumnExpression, read))
    if queries:
        ordered = data if assume_grouped else _sort_by_query(data, queries)
        return merge_queries([fold_queries(ordered.select(*columns).to_arrow_reader(rows), metrics)], metrics)
    selected = data.select(*columns)
    return merge_results([fold(selected.to_arrow_reader(rows), metrics)], metrics)


def _sort_by_query(data: duckdb.DuckDBPyRelation, queries: Sequence[str]) -> duckdb.DuckDBPyRelation:
    """Sort a relation by query, and then by row number, so that rows of the same query keep their order."""
    position = "streammetrics: position of the row"
    numbered = data.select(duckdb.StarExpression(), duckdb.SQLExpression("row_number() over ()").alias(position))
    return numbered.sort(*map(duckdb.ColumnExpression, [*queries, position]))


def register(connection: duckdb.DuckDBPyConnection, metrics: Mapping[str, MetricLike]) -> None:
    """Register SQL functions that compute, merge and read states.

    For each name there is an aggregate ``smet_NAME_agg(...)``, which returns the state of a group of rows as a BLOB. If
    NAME stands for a single metric, the aggregate ``smet_NAME(...)`` returns its value. Both take the required columns,
    in the order of `streammetrics.extend.columns_of`. Other functions work for all states: ``smet_merge_agg(state)``
    merges the states of a group, and ``smet_value(state)`` and ``smet_value(state, metric)`` return the value of a
    metric.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The connection in which the macros and functions are created; they are temporary.
    metrics : mapping of str to Metric, MetricCollection or Sliced
        The metrics, keyed by the NAME of their SQL functions; the objects do not change. Weights are read only if a
        task names their column.

    Notes
    -----
    DuckDB buffers all rows of a group, and each group takes about 1 ms. `evaluate` with a `Sliced` is faster and does not
    buffer groups. Literals such as 0.5 are decimals in DuckDB; cast them to double to use them as scores.

    Examples
    --------
    >>> import duckdb
    >>> import streammetrics as sm
    >>> from streammetrics.engines.duckdb import register
    >>> connection = duckdb.connect()
    >>> register(connection, {"auc": sm.AUC()})
    >>> log = "(select i // 5 as variant, i % 2 as click, i / 10 as pctr from range(10) t(i))"
    >>> connection.sql(f"select variant, smet_auc(click, pctr) from {log} group by all order by all").fetchall()
    [(0, 0.5), (1, 0.5)]
    """
    _create_function(connection, "smet_merge_rows", _merge_groups, "BLOB")
    _create_function(connection, "smet_value_of", _read_values, "DOUBLE")
    for name, counted in metrics.items():
        columns = [column for column, required in columns_of(counted).items() if required]
        rows = _quote_identifier(f"smet_{name}_rows")
        parameters = ", ".join(f"a{i}" for i in range(len(columns)))
        fields = ", ".join(f"{_quote_identifier(column)} := a{i}" for i, column in enumerate(columns))
        state = f"{rows}(list(struct_pack({fields})))"
        _create_function(connection, f"smet_{name}_rows", partial(_count_groups, metrics=counted), "BLOB")
        _create_macro(connection, f"smet_{name}_agg", f"({parameters}) AS {state}")
        if isinstance(counted, Metric):
            _create_macro(connection, f"smet_{name}", f"({parameters}) AS smet_value_of({state}, NULL)")
    _create_macro(connection, "smet_merge_agg", "(state) AS smet_merge_rows(list(state))")
    _create_macro(
        connection,
        "smet_value",
        "(state) AS smet_value_of(state, NULL), (state, metric) AS smet_value_of(state, metric)",
    )


def _create_function(connection: duckdb.DuckDBPyConnection, name: str, function: Any, kind: str) -> None:
    """Register a Python function of Arrow arrays in DuckDB under `name`; replace any function of that name.

    The arrays may have any type and may contain nulls. `kind` is the SQL type of the result, such as "BLOB".
    """
    existing = connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [name]).fetchall()
    if existing:
        connection.remove_function(name)

    def call(*columns: pa.ChunkedArray) -> pa.Array:
        return function(*columns)

    connection.create_function(name, call, None, kind, type="arrow", null_handling="special")


def _create_macro(connection: duckdb.DuckDBPyConnection, name: str, body: str) -> None:
    connection.execute(f"CREATE OR REPLACE TEMP MACRO {_quote_identifier(name)}{body}")


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _count_groups(groups: pa.ChunkedArray, metrics: MetricLike) -> pa.Array:
    """Return the state of each group as bytes. A group is a list of rows, or null if it has no rows."""
    return pa.array([fold(_read_rows(rows), metrics) for rows in groups], pa.binary())


def _read_rows(rows: pa.ListScalar) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_struct_array(rows.values)] if rows.is_valid else []


def _merge_groups(groups: pa.ChunkedArray) -> pa.Array:
    present = [[state for state in states or () if state is not None] for states in groups.to_pylist()]
    return pa.array([merge(states).to_bytes() if states else None for states in present], pa.binary())


def _read_values(states: pa.ChunkedArray, names: pa.ChunkedArray) -> pa.Array:
    pairs = zip(states.to_pylist(), names.to_pylist(), strict=True)
    return pa.array([None if state is None else read_value(state, name) for state, name in pairs], pa.float64())
