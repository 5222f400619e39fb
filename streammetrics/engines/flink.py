"""Apache Flink: functions for the Table API and SQL, which count, merge and read states kept as BYTES."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pyflink.table import DataTypes, Table, TableEnvironment
from pyflink.table.expressions import col, rand_integer
from pyflink.table.udf import udaf, udf

from ..collect.metric_like import MetricLike, columns_of
from ..collect.serialization import merge
from . import fold
from .parts import read_columns, total, value_of

__all__ = ["evaluate", "merged", "register", "state", "value"]

H = TypeVar("H", bound=MetricLike)


def evaluate(data: Table, metrics: H, *, buckets: int = 64) -> H:
    """Count a bounded table where its rows are.

    Parameters
    ----------
    data : pyflink.table.Table
        The log; only the columns that are read move.
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is.
    buckets : int
        In how many parts, drawn at random, rows are counted: Flink hands a part to Python whole, so it must fit there.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object that has seen all rows.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        A batch is bad; the message holds ours.
    InvalidInputError
        The table lacks a column.

    Notes
    -----
    Parts hold any rows: queries of several rows must be rows that hold lists.

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
    names = read_columns(metrics, data.get_schema().get_field_names())
    bucket, count = "streammetrics_bucket", state(metrics, names)
    spread = data.select(*map(col, names), rand_integer(buckets).alias(bucket))
    counted = spread.group_by(col(bucket)).select(count(*map(col, names)).alias("state"))
    with counted.execute().collect() as rows:
        return total((bytes(row[0]) for row in rows), metrics)


def state(metrics: MetricLike, columns: Iterable[str] | None = None) -> Any:
    """Make an aggregate function (a pandas `udaf`) of columns, whose value is the state of the rows of a group.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is.
    columns : iterable of str, optional
        What the arguments are; by default the columns that must be there.

    Notes
    -----
    For batches and for windows over time; Flink holds the rows of a group, or window, until it has all.
    """
    names = [name for name, must in columns_of(metrics).items() if must] if columns is None else list(columns)

    def count(*given: Any) -> bytes:
        return fold([dict(zip(names, given, strict=True))], metrics)

    return udaf(count, result_type=DataTypes.BYTES(), func_type="pandas")


def merged() -> Any:
    """Make an aggregate function (a pandas `udaf`) of a column of states, whose value is the state of all of them."""
    return udaf(_united, result_type=DataTypes.BYTES(), func_type="pandas")


def _united(states: Iterable[Any]) -> bytes | None:
    found = [one for one in states if one is not None]
    return merge(found).to_bytes() if found else None


def value() -> Any:
    """Make a function of a state, and optionally the name of a metric in it, whose value is that of the metric."""
    return udf(_value, result_type=DataTypes.DOUBLE())


def _value(state: Any, metric: str | None = None) -> float | None:
    return None if state is None else value_of(state, metric)


def register(env: TableEnvironment, metrics: Mapping[str, MetricLike]) -> None:
    """Let SQL count, merge and read states: ``smet_NAME_agg(...)``, ``smet_merge_agg(state)``, ``smet_value(state)``.

    Parameters
    ----------
    env : pyflink.table.TableEnvironment
        Where temporary functions of these names are made.
    metrics : mapping of str to Metric, MetricCollection or Sliced
        What to compute, by names in SQL. Each function takes the required columns, in the order of
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
