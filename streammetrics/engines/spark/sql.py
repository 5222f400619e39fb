"""SQL: aggregates whose results are states, so that states live in BINARY columns of a warehouse and merge there."""

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
from ..parts import value_of
from .as_accumulator import make_empty_metrics

__all__ = ["aggregate", "merge_states", "register", "state_value"]

HELD = 1 << 26  # bytes of states that are merged at once


def register(session: SparkSession, aggregates: Mapping[str, Any] | None = None) -> None:
    """Register functions of states for SQL.

    `smet_auc_agg(label, score)` is the state of an AUC, as BINARY; `smet_merge_agg(state)` merges states of one kind;
    `smet_value(state, 'auc')` is what a state says of a metric, as DOUBLE. Further aggregates are named by the caller.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        Classic or Connect.
    aggregates : mapping of str to metrics, optional
        `{"ctr": Task(...)}` registers `smet_ctr_agg`. Its arguments are the columns that the metrics read: first those of
        `update(y_true, y_score)`, then the others in the order of `streammetrics.extend.columns_of`; optional
        ones may be left out.

    Notes
    -----
    What Spark does with such aggregates: all rows are shuffled by the GROUP BY columns, and no partial states are made
    (`evaluate` makes them, and is the faster way for a large log); one aggregate stands alone, beside no `sum`, `count`
    or other aggregate (join the two results); an empty table without GROUP BY gives no row, not a null. Ranking metrics
    are refused: rows of a query do not come in one batch.
    States merge for ever, so tables of them are summed up as any others: by `smet_merge_agg`.

    Raises
    ------
    InvalidInputError
        In a query: a label, a score or a state is null or wrong; the message names the argument. WHERE leaves nulls out.

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
    """Return an aggregate function of columns, for `agg` and for SQL: the state of some metrics, as BINARY.

    Parameters
    ----------
    metrics : Metric, Task, MetricCollection, or list or dict of metrics
        What to compute.

    Raises
    ------
    ValueError
        Metrics want rows together that an aggregate is not given so.

    Notes
    -----
    See `register` for its arguments and for what Spark does with it.

    Examples
    --------
    >>> from streammetrics.engines import spark
    >>> import streammetrics as sm
    >>> auc = spark.aggregate(sm.AUC())  # doctest: +SKIP
    >>> log.groupBy("day").agg(auc("click", "pctr").alias("state"))  # doctest: +SKIP
    """
    counted = make_empty_metrics(metrics)
    if any(read.state.together is not None for read in definition_of(counted).reads):
        raise ValueError(
            "an aggregate of SQL is not given the rows of a query together; evaluate() computes these metrics"
        )
    names, most = _arguments(counted)

    def fold(batches: Iterator[Tuple[pa.Array, ...]]) -> Any:  # noqa: UP006
        held = counted.copy()
        for given in batches:
            arrays = given if isinstance(given, tuple) else (given,)
            _check_count(len(arrays), names, most)
            held.update(dict(zip(names, arrays, strict=False)))
        return held.to_bytes()

    return _udf(fold, "binary")


def merge_states() -> Callable[..., Any]:
    """Return an aggregate function of one column of states: the state of all their rows, as BINARY.

    Raises
    ------
    InvalidInputError
        In a query: a state is null.
    StateFormatError
        In a query: bytes are not a state.

    Examples
    --------
    >>> from streammetrics.engines import spark
    >>> daily.agg(spark.merge_states()("state"))  # doctest: +SKIP
    """

    def merged(batches: Iterator[pa.Array]) -> Any:
        held, size, row = list[bytes](), 0, 0
        for states in batches:
            for state in states:
                held.append(_state(state, "smet_merge_agg", row))
                size, row = size + len(held[-1]), row + 1
                if size > HELD:
                    held, size = [_merged(held)], 0
        return _merged(held)

    return _udf(merged, "binary")


def state_value() -> Callable[..., Any]:
    """Return a function of a column of states and a name: the value of that metric, as DOUBLE; NaN where undefined.

    Raises
    ------
    InvalidInputError
        In a query: a state is null, or has no such metric; the message says which there are.
    StateFormatError
        In a query: bytes are not a state.

    Examples
    --------
    >>> from pyspark.sql.functions import lit  # doctest: +SKIP
    >>> from streammetrics.engines import spark
    >>> daily.select("day", spark.state_value()("state", lit("auc")))  # doctest: +SKIP
    """

    def values(states: pa.Array, names: pa.Array) -> pa.Array:
        pairs = enumerate(zip(states, names.to_pylist(), strict=True))
        return pa.array([_value(_state(state, "smet_value", row), name) for row, (state, name) in pairs], pa.float64())

    return _udf(values, "double")


def _udf(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    made: Callable[..., Any] = arrow_udf(function, kind)
    return made


def _arguments(counted: MetricLike) -> tuple[tuple[str, ...], int]:
    """The columns in the order of arguments, and how many of them must be given."""
    columns = columns_of(counted)
    # Some metrics are given scores that they do not read.
    given = [n for n in definition_of(counted).positional_columns() if n in columns]
    must = dict.fromkeys([*given, *(n for n, needed in columns.items() if needed)])
    return tuple(dict.fromkeys([*must, *columns])), len(must)


def _check_count(given: int, names: tuple[str, ...], least: int) -> None:
    if not least <= given <= len(names):
        asked = ", ".join(names[:least]) + "".join(f"[, {n}]" for n in names[least:])
        raise InvalidInputError(f"this aggregate takes ({asked}), and was given {given} columns")


def _state(state: Any, function: str, row: int) -> bytes:
    found = state.as_py()
    if found is None:
        raise InvalidInputError(
            f"{function}: state: null in row {row:,} of its group or batch; leave it out: WHERE state IS NOT NULL",
            column="state",
            row=row,
        )
    return bytes(found)


def _merged(states: list[bytes]) -> bytes:
    try:
        total: bytes = merge(states).to_bytes()
    except StateFormatError as error:
        raise StateFormatError(f"smet_merge_agg: state: {error}") from error
    return total


def _value(state: bytes, name: str) -> float:
    try:
        return value_of(state, name)
    except StateFormatError as error:
        raise StateFormatError(f"smet_value: state: {error}") from error
