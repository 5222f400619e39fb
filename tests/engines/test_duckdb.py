"""DuckDB: relations in batches, aggregates in SQL, columns of states."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

import streammetrics as sm

duckdb = pytest.importorskip("duckdb")

import engine_logs as logs  # noqa: E402

from streammetrics.engines.duckdb import evaluate, register  # noqa: E402

TABLE = logs.simple(500)
METRICS = sm.MetricCollection(sm.AUC(), sm.CTR())


@functools.cache
def slices() -> Any:
    return sm.Sliced(METRICS, by="variant").update(TABLE)


@pytest.fixture
def connection() -> Iterator[Any]:
    with duckdb.connect() as made:
        made.register("log", TABLE)
        register(made, {"auc": sm.AUC(), "both": METRICS})
        yield made


@pytest.mark.parametrize("rows", [1, 77, 1 << 17])
def test_relations(connection: Any, rows: int) -> None:
    few = connection.sql("select *, 'x' as unread from log limit 200")
    assert evaluate(few, slices(), rows=rows) == slices().copy().reset().update(few.to_arrow_table())
    assert evaluate(connection.sql("select * from log where y_true = 1"), sm.CTR()).compute() == 1


def test_names_are_quoted(connection: Any) -> None:
    metrics = sm.MetricCollection(sm.Task(sm.CTR(), y_true='a "b" c'))
    log = connection.sql('select y_true as "a ""b"" c" from log')
    register(connection, {"odd name": metrics})
    (found,) = log.query("odd", 'select "smet_odd name_agg"("a ""b"" c") from odd').fetchall()[0]
    assert sm.from_bytes(found) == evaluate(log, metrics)


def test_groups_are_slices(connection: Any) -> None:
    rows = connection.sql(
        "select variant, smet_both_agg(y_true, y_score), count(*) from log group by variant"
    ).fetchall()
    assert {k: sm.from_bytes(s) for k, s, _ in rows} == {k: slices()[k] for k in slices().keys}
    values = connection.sql("select variant, smet_auc(y_true, y_score) from log group by variant").fetchall()
    assert dict(values) == {k: v["auc"] for k, v in slices().compute().items()}


def test_states_live_in_tables(connection: Any) -> None:
    connection.execute(
        "create table days as select variant, smet_both_agg(y_true, y_score) as state from log group by all"
    )
    (total,) = connection.sql("select smet_merge_agg(state) from days").fetchall()[0]
    assert sm.from_bytes(total).digest() == METRICS.copy().update(TABLE).digest()
    values = connection.sql("select variant, smet_value(state, 'ctr') from days").fetchall()
    assert dict(values) == {k: v["ctr"] for k, v in slices().compute().items()}
    (auc,) = connection.sql("select smet_value(smet_auc_agg(y_true, y_score)) from log").fetchall()[0]
    assert auc == METRICS.copy().update(TABLE).compute()["auc"]


def test_float32_is_told_from_float64(connection: Any) -> None:
    register(connection, {"loss": sm.LogLoss()})
    log = "(values (1, 0.0::float), (0, 0.25::float)) t(y, p)"
    (narrow,) = connection.sql(f"select smet_loss(y, p) from {log}").fetchall()[0]
    (wide,) = connection.sql(f"select smet_loss(y, p::double) from {log}").fetchall()[0]
    assert narrow < wide  # clipped at the epsilon of each


def test_thousands_of_groups(connection: Any) -> None:
    log = "(select range % 2500 as k, range % 2 as y from range(20000))"
    rows = connection.sql(f"select k, smet_both_agg(y, 0.5::double) as s from {log} group by k").fetchall()
    assert len(rows) == 2500
    assert sm.merge(state for _, state in rows)["ctr"].compute() == 0.5


def test_nothing(connection: Any) -> None:
    none = connection.sql("select * from log where false")
    assert evaluate(none, METRICS) == METRICS
    (state, merged) = none.query(
        "n", "select smet_both_agg(y_true, y_score), smet_merge_agg(null::blob) from n"
    ).fetchall()[0]
    assert sm.from_bytes(state) == METRICS
    assert merged is None
    assert connection.sql("select smet_value(null, 'auc')").fetchall()[0] == (None,)


def test_registered_twice_the_last_counts(connection: Any) -> None:
    register(connection, {"auc": sm.AUC(bits=10)})
    (state,) = connection.sql("select smet_auc_agg(y_true, y_score) from log").fetchall()[0]
    assert sm.from_bytes(state) == sm.AUC(bits=10).update(TABLE)


def test_a_bad_row_says_what_and_where(connection: Any) -> None:
    connection.register("bad", logs.spoiled([TABLE], "y_score", 0, 17)[0])
    with pytest.raises(sm.InvalidInputError, match=r"y_score: .*found 7\.5 in row 17"):
        evaluate(connection.table("bad"), METRICS)
    with pytest.raises(duckdb.InvalidInputException, match=r"(?s)y_score: .*found 7\.5 in row 17"):
        connection.sql("select smet_auc(y_true, y_score) from bad").fetchall()
    with pytest.raises(sm.InvalidInputError, match=r"no column 'y_score'; the table has 'y_true'"):
        evaluate(connection.sql("select y_true from log"), METRICS)
    with pytest.raises(duckdb.InvalidInputException, match=r"no metric 'ks' in this state; the metrics are auc, ctr"):
        connection.sql("select smet_value(smet_both_agg(y_true, y_score), 'ks') from log").fetchall()


@pytest.mark.parametrize("ties", ["average", "order"])
def test_queries_are_sorted_unless_they_are_grouped(connection: Any, ties: str) -> None:
    grouped, scattered = (logs.CASES[f"{name} queries"]() for name in ("split", "scattered"))
    metrics = sm.MetricCollection(sm.Task(sm.NDCG(k=3, ties=ties), query=("day", "session")))
    whole = metrics.copy().update(grouped.log).digest()
    log = connection.from_arrow(grouped.log)
    for found in (evaluate(log, metrics, rows=300), evaluate(log, metrics, rows=300, assume_grouped=True)):
        assert found.digest() == whole
    shuffled = connection.from_arrow(scattered.parts(1)[0])
    with pytest.raises(sm.InvalidInputError, match=r"sort the log by \('day', 'session'\)"):
        evaluate(shuffled, metrics, rows=300, assume_grouped=True)
