"""SQL aggregates whose results are states, which can be saved in BINARY columns and merged later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Tuple  # noqa: UP035 - Spark reads the hint below, and knows no other spelling

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf

from ...collect.accumulator import definition_of
from ...collect.metric_like import MetricLike, columns_of
from ...collect.serialization import merge
from ...errors import InvalidInputError, StateFormatError
from ...metrics.curves.areas import AUC
from ..parts import read_value
from .as_accumulator import make_empty_metrics

__all__ = ["aggregate", "merge_states", "register", "state_value"]

# States are collected until their total size exceeds this many bytes, and are then merged.
MAX_BUFFERED_BYTES = 1 << 26


def register(session: SparkSession, aggregates: Mapping[str, Any] | None = None) -> None:
    """Register SQL functions that compute, merge and read states.

    `smet_auc_agg(label, score)` returns the state of an AUC, as BINARY; `smet_merge_agg(state)` merges states of the same
    metrics; `smet_value(state, 'auc')` returns the value of a metric, as DOUBLE. Pass `aggregates` to add others.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        A classic session, or a Spark Connect session.
    aggregates : mapping of str to metrics, optional
        Additional aggregates, keyed by name: `{"ctr": Task(...)}` registers `smet_ctr_agg`. Its arguments are the
        columns that the metrics read: first those of `update(y_true, y_score)`, then the other required columns, and
        last the optional columns, which may be left out. The other required columns and the optional columns are in the
        order of `streammetrics.extend.columns_of`.

    Notes
    -----
    Spark imposes some limitations on aggregates written in Python:

    - Spark shuffles all rows by the GROUP BY columns. `evaluate` shuffles states instead, which is faster for a large log.
    - A SQL query that uses such an aggregate cannot also use a built-in one, such as `sum` or `count`; join the
      results of two queries instead.
    - For an empty table without GROUP BY, the result has no rows, whereas a built-in aggregate returns one row with a
      null.
    - Ranking metrics raise an error, because the rows of one ranking may be in several batches.

    Raises
    ------
    InvalidInputError
        Raised by a SQL query if a label, score or state is null or invalid. The message names the argument. Use WHERE
        to exclude nulls.

    Examples
    --------
    >>> from streammetrics.engines import spark
    >>> spark.register(session)  # doctest: +SKIP
    >>> made = session.sql("select day, smet_auc_agg(click, pctr) s from log group by day")  # doctest: +SKIP
    >>> made.write.saveAsTable("daily")  # doctest: +SKIP
    >>> session.sql("select smet_value(smet_merge_agg(s), 'auc') from daily").show()  # doctest: +SKIP
    """
    for name, metrics in ({"auc": AUC()} | dict(aggregates or {})).items():
        session.udf.register(f"smet_{name}_agg", aggregate(metrics))
    session.udf.register("smet_merge_agg", merge_states())
    session.udf.register("smet_value", state_value())


def aggregate(metrics: Any) -> Callable[..., Any]:
    """Return an aggregate function, for `agg` and SQL, that takes columns and returns the state of a group as BINARY.

    Parameters
    ----------
    metrics : Metric, Task, MetricCollection, or list or dict of metrics
        The metrics to compute.

    Raises
    ------
    ValueError
        If the metrics need all rows of a ranking in one batch, because an aggregate may receive them in several
        batches.

    Notes
    -----
    See `register` for the arguments and the limitations of such functions.

    Examples
    --------
    >>> from streammetrics.engines import spark
    >>> import streammetrics as sm
    >>> auc = spark.aggregate(sm.AUC())  # doctest: +SKIP
    >>> log.groupBy("day").agg(auc("click", "pctr").alias("state"))  # doctest: +SKIP
    """
    empty_metrics = make_empty_metrics(metrics)
    if any(read.state.block_column is not None for read in definition_of(empty_metrics).reads):
        raise ValueError(
            "these metrics need all rows of a query together, but a SQL aggregate receives rows in batches; use "
            "evaluate()"
        )
    names, required = _list_arguments(empty_metrics)

    def fold(batches: Iterator[Tuple[pa.Array, ...]]) -> Any:  # noqa: UP006
        copy = empty_metrics.copy()
        for batch in batches:
            arrays = batch if isinstance(batch, tuple) else (batch,)
            _check_argument_count(len(arrays), names, required)
            copy.update(dict(zip(names, arrays, strict=False)))
        return copy.to_bytes()

    return _build_udf(fold, "binary")


def merge_states() -> Callable[..., Any]:
    """Return an aggregate function that takes a column of states, and returns the merged state as BINARY.

    Raises
    ------
    InvalidInputError
        Raised by a SQL query if a state is null.
    StateFormatError
        Raised by a SQL query if a value is not a state.

    Examples
    --------
    >>> from streammetrics.engines import spark
    >>> daily.agg(spark.merge_states()("state"))  # doctest: +SKIP
    """

    def merge_column(batches: Iterator[pa.Array]) -> Any:
        states_so_far, size, row = list[bytes](), 0, 0
        for states in batches:
            for state in states:
                states_so_far.append(_read_state(state, "smet_merge_agg", row))
                size, row = size + len(states_so_far[-1]), row + 1
                if size > MAX_BUFFERED_BYTES:
                    states_so_far, size = [_merge_bytes(states_so_far)], 0
        return _merge_bytes(states_so_far)

    return _build_udf(merge_column, "binary")


def state_value() -> Callable[..., Any]:
    """Return a function that takes a column of states and a metric name, and returns the metric's value as DOUBLE.

    Undefined values are NaN.

    Raises
    ------
    InvalidInputError
        Raised by a SQL query if a state is null, or lacks the metric. The message names the metrics of the state.
    StateFormatError
        Raised by a SQL query if a value is not a state.

    Examples
    --------
    >>> from pyspark.sql.functions import lit  # doctest: +SKIP
    >>> from streammetrics.engines import spark
    >>> daily.select("day", spark.state_value()("state", lit("auc")))  # doctest: +SKIP
    """

    def values(states: pa.Array, names: pa.Array) -> pa.Array:
        pairs = enumerate(zip(states, names.to_pylist(), strict=True))
        return pa.array(
            [_read_value(_read_state(state, "smet_value", row), name) for row, (state, name) in pairs], pa.float64()
        )

    return _build_udf(values, "double")


def _build_udf(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    udf: Callable[..., Any] = arrow_udf(function, kind)
    return udf


def _list_arguments(counted: MetricLike) -> tuple[tuple[str, ...], int]:
    """Return the columns in the order in which an aggregate takes them, and the number of required columns."""
    columns = columns_of(counted)
    # The positional arguments of `update` (y_true, y_score) come first, but only those that a metric reads.
    positional = [n for n in definition_of(counted).positional_columns() if n in columns]
    required = dict.fromkeys([*positional, *(n for n, is_required in columns.items() if is_required)])
    return tuple(dict.fromkeys([*required, *columns])), len(required)


def _check_argument_count(count: int, names: tuple[str, ...], least: int) -> None:
    if not least <= count <= len(names):
        signature = ", ".join(names[:least]) + "".join(f"[, {n}]" for n in names[least:])
        raise InvalidInputError(
            f"expected the columns ({signature}) as arguments of this aggregate, found {count} "
            f"column{'s' if count != 1 else ''}"
        )


def _read_state(state: Any, function: str, row: int) -> bytes:
    value = state.as_py()
    if value is None:
        raise InvalidInputError(
            f"{function}: state: expected no nulls, found a null in row {row:,} of its group or batch; exclude nulls "
            f"with WHERE state IS NOT NULL",
            column="state",
            row=row,
        )
    return bytes(value)


def _merge_bytes(states: list[bytes]) -> bytes:
    try:
        total: bytes = merge(states).to_bytes()
    except StateFormatError as error:
        raise StateFormatError(f"smet_merge_agg: state: {error}") from error
    return total


def _read_value(state: bytes, name: str) -> float:
    try:
        return read_value(state, name)
    except StateFormatError as error:
        raise StateFormatError(f"smet_value: state: {error}") from error
