"""Apache Flink: functions for the Table API and SQL that compute states (as BYTES), merge them, and read values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd  # type: ignore[import-untyped, unused-ignore]
from pyflink.table import DataTypes, Table, TableEnvironment
from pyflink.table.expressions import col, rand_integer
from pyflink.table.udf import udaf, udf

from ..collect.metric_like import MetricLike, columns_of
from ..collect.serialization import merge
from ..metrics.groups.auc import group_partition
from . import fold
from .parts import find_read_columns, merge_results, read_value
from .whole_queries import find_query_columns, fold_whole_queries

__all__ = ["evaluate", "merged", "register", "state", "value"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: Table, metrics: H, *, buckets: int = 64) -> H:
    """Compute metrics of a bounded table on Flink workers.

    Parameters
    ----------
    data : pyflink.table.Table
        The log; only the columns that the metrics read are fetched.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    buckets : int
        The number of parts into which the rows are divided. Flink passes a part to Python as a whole, so a part must
        fit in memory.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all rows.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        If a batch contains invalid values; the message contains the error message of this library.
    InvalidInputError
        If the table lacks a column.

    Notes
    -----
    Rows are assigned to parts at random. For ranking metrics such as NDCG, the query of a row determines its part, so
    that each part contains whole queries. Alternatively, each row can contain a whole query as lists.

    Examples
    --------
    >>> from pyflink.table import EnvironmentSettings, TableEnvironment
    >>> import streammetrics as sm
    >>> from streammetrics.engines.flink import evaluate
    >>> env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())  # doctest: +SKIP
    >>> log = env.from_elements([(0, 0.1), (1, 0.9)], ["y_true", "y_score"])  # doctest: +SKIP
    >>> evaluate(log, sm.AUC()).compute()  # doctest: +SKIP
    1.0
    """
    names = find_read_columns(metrics, data.get_schema().get_field_names())
    bucket, queries = "streammetrics_bucket", find_query_columns(metrics, names)
    count = _build_state_function(metrics, names, queries)
    place = _find_bucket(buckets)(*map(col, queries)) if queries else rand_integer(buckets)
    rows_with_bucket = data.select(*map(col, names), place.alias(bucket))
    states = rows_with_bucket.group_by(col(bucket)).select(count(*map(col, names)).alias("state"))
    with states.execute().collect() as rows:
        return merge_results((bytes(row[0]) for row in rows), metrics)


def state(metrics: MetricLike, columns: Iterable[str] | None = None) -> Any:
    """Return an aggregate function (a pandas `udaf`) that takes columns, and returns the state of a group as bytes.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    columns : iterable of str, optional
        The columns that are passed as arguments; by default the required ones.

    Notes
    -----
    The function works for groups and for time windows. Flink buffers all rows of a group or window.
    """
    names = [name for name, required in columns_of(metrics).items() if required] if columns is None else list(columns)
    return _build_state_function(metrics, names, ())


def _build_state_function(metrics: MetricLike, names: Sequence[str], queries: Sequence[str]) -> Any:
    """Return an aggregate function that takes the columns `names`, and returns the state of a group as bytes.

    If there are query columns, each group of rows must contain whole queries.
    """

    def count(*arrays: Any) -> bytes:
        rows = dict(zip(names, arrays, strict=True))
        return fold_whole_queries(pd.DataFrame(rows), metrics, queries) if queries else fold([rows], metrics)

    return udaf(count, result_type=DataTypes.BYTES(), func_type="pandas")


def _find_bucket(buckets: int) -> Any:
    """Return a function that takes query columns, and returns the bucket number of each query."""

    def place(*keys: Any) -> Any:
        return pd.Series(group_partition(keys[0] if len(keys) == 1 else keys, buckets))

    return udf(place, result_type=DataTypes.BIGINT(), func_type="pandas")


def merged() -> Any:
    """Return an aggregate function (a pandas `udaf`) that takes a column of states, and returns the merged state."""
    return udaf(_merge_bytes, result_type=DataTypes.BYTES(), func_type="pandas")


def _merge_bytes(states: Iterable[Any]) -> bytes | None:
    present = [one for one in states if one is not None]
    return merge(present).to_bytes() if present else None


def value() -> Any:
    """Return a SQL function that takes a state and returns the value of a metric.

    Its second argument is the name of the metric, which is not needed if the state has only one metric.
    """
    return udf(_read_value, result_type=DataTypes.DOUBLE())


def _read_value(state: Any, metric: str | None = None) -> float | None:
    return None if state is None else read_value(state, metric)


def register(env: TableEnvironment, metrics: Mapping[str, MetricLike]) -> None:
    """Register SQL functions that compute, merge and read states.

    ``smet_NAME_agg(...)`` returns the state of a group of rows, ``smet_merge_agg(state)`` merges the states of a group,
    and ``smet_value(state)`` returns the value of a metric.

    Parameters
    ----------
    env : pyflink.table.TableEnvironment
        The environment in which the temporary functions are created.
    metrics : mapping of str to Metric, MetricCollection or Sliced
        The metrics, keyed by the NAME of their SQL function, which takes the required columns, in the order of
        `streammetrics.extend.columns_of`.

    Examples
    --------
    >>> from pyflink.table import EnvironmentSettings, TableEnvironment
    >>> import streammetrics as sm
    >>> from streammetrics.engines.flink import register
    >>> env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())  # doctest: +SKIP
    >>> register(env, {"auc": sm.AUC()})  # doctest: +SKIP
    >>> log = "(VALUES ('A', 0, 0.1e0), ('A', 1, 0.9e0)) AS log (arm, click, pctr)"
    >>> states = f"SELECT arm, smet_auc_agg(click, pctr) AS state FROM {log} GROUP BY arm"
    >>> env.execute_sql(f"SELECT arm, smet_value(state) FROM ({states})").print()  # doctest: +SKIP
    """
    functions = {f"smet_{name}_agg": state(counted) for name, counted in metrics.items()}
    for name, function in (functions | {"smet_merge_agg": merged(), "smet_value": value()}).items():
        env.create_temporary_system_function(name, function)
