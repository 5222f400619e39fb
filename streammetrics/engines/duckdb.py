"""DuckDB: a streaming pass over a relation, and aggregates in SQL.

DuckDB has no aggregates in Python: the SQL ones are macros that make a list of a group's rows, and functions of the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from ..collect.metric import Metric
from ..collect.metric_like import MetricLike, columns_of
from ..collect.serialization import merge
from . import fold
from .parts import read_columns, total, value_of

__all__ = ["evaluate", "register"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: duckdb.DuckDBPyRelation, metrics: H, *, rows: int = 1 << 17) -> H:
    """Count the rows of a relation in batches, in memory that does not grow with them.

    Parameters
    ----------
    data : duckdb.DuckDBPyRelation
        Such as ``connection.sql("select ...")``; only the columns that are read are fetched.
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is.
    rows : int
        How many rows a batch holds.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object that has seen all rows.

    Raises
    ------
    InvalidInputError
        A batch is bad, or the relation lacks a column.

    Notes
    -----
    Batches may end anywhere: queries of several rows must be rows that hold lists.

    Examples
    --------
    >>> import duckdb
    >>> import streammetrics as sm
    >>> from streammetrics.engines.duckdb import evaluate
    >>> log = duckdb.sql("select i % 2 as y_true, i / 10 as y_score from range(10) t(i)")
    >>> evaluate(log, sm.AUC()).compute()
    0.6
    """
    chosen = data.select(*map(duckdb.ColumnExpression, read_columns(metrics, data.columns)))
    return total([fold(chosen.to_arrow_reader(rows), metrics)], metrics)


def register(connection: duckdb.DuckDBPyConnection, metrics: Mapping[str, MetricLike]) -> None:
    """Let the SQL of a connection count, merge and read states.

    For each name there is ``smet_NAME_agg(...)``, the state of a group of rows as a BLOB, and for a metric that is alone
    ``smet_NAME(...)``, its value. Both take the required columns, in the order of
    `streammetrics.extend.columns_of`. For all there are ``smet_merge_agg(state)`` and
    ``smet_value(state)`` or ``smet_value(state, metric)``.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Where macros and functions are made; temporary ones, of this connection alone.
    metrics : mapping of str to Metric, MetricCollection or Sliced
        What to compute, by names in SQL; they stay as they are. Weights are read where a task names their column.

    Notes
    -----
    The rows of a group are held until it is complete, and its state costs about 1 ms; a `Sliced` in `evaluate` streams and
    is faster. Literals such as 0.5 are decimals in DuckDB, which scores are not: cast them to double.

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
    _function(connection, "smet_merge_rows", _merged, "BLOB")
    _function(connection, "smet_value_of", _values, "DOUBLE")
    for name, counted in metrics.items():
        columns = [column for column, must in columns_of(counted).items() if must]
        rows = _identifier(f"smet_{name}_rows")
        taken = ", ".join(f"a{i}" for i in range(len(columns)))
        packed = ", ".join(f"{_identifier(column)} := a{i}" for i, column in enumerate(columns))
        state = f"{rows}(list(struct_pack({packed})))"
        _function(connection, f"smet_{name}_rows", partial(_states, metrics=counted), "BLOB")
        _macro(connection, f"smet_{name}_agg", f"({taken}) AS {state}")
        if isinstance(counted, Metric):
            _macro(connection, f"smet_{name}", f"({taken}) AS smet_value_of({state}, NULL)")
    _macro(connection, "smet_merge_agg", "(state) AS smet_merge_rows(list(state))")
    _macro(
        connection,
        "smet_value",
        "(state) AS smet_value_of(state, NULL), (state, metric) AS smet_value_of(state, metric)",
    )


def _function(connection: duckdb.DuckDBPyConnection, name: str, function: Any, kind: str) -> None:
    """Make a function of columns of any types, which are Arrow arrays; null, too, is for it to see."""
    there = connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [name]).fetchall()
    if there:
        connection.remove_function(name)

    def call(*columns: pa.ChunkedArray) -> pa.Array:
        return function(*columns)

    connection.create_function(name, call, None, kind, type="arrow", null_handling="special")


def _macro(connection: duckdb.DuckDBPyConnection, name: str, body: str) -> None:
    connection.execute(f"CREATE OR REPLACE TEMP MACRO {_identifier(name)}{body}")


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _states(groups: pa.ChunkedArray, metrics: MetricLike) -> pa.Array:
    """Count the lists of rows of some groups; a group without rows is null, and has an empty state."""
    return pa.array([fold(_rows(rows), metrics) for rows in groups], pa.binary())


def _rows(rows: pa.ListScalar) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_struct_array(rows.values)] if rows.is_valid else []


def _merged(groups: pa.ChunkedArray) -> pa.Array:
    found = [[state for state in states or () if state is not None] for states in groups.to_pylist()]
    return pa.array([merge(states).to_bytes() if states else None for states in found], pa.binary())


def _values(states: pa.ChunkedArray, names: pa.ChunkedArray) -> pa.Array:
    pairs = zip(states.to_pylist(), names.to_pylist(), strict=True)
    return pa.array([None if state is None else value_of(state, name) for state, name in pairs], pa.float64())
