"""polars: frames in batches, groups by expression, columns of states."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import streammetrics as sm

pl = pytest.importorskip("polars")
logs = pytest.importorskip("engine_logs")

from streammetrics.engines.polars import evaluate, merged, state, value  # noqa: E402

TABLE = logs.simple(500)
FRAME = pl.from_arrow(TABLE)
METRICS = sm.MetricCollection(sm.AUC(), sm.CTR())


@cache
def slices() -> sm.Sliced:
    return sm.Sliced(METRICS, by="variant").update(TABLE)


@pytest.mark.parametrize("rows", [1, 77, 10_000])
def test_frames_lazy_or_not(rows: int) -> None:
    assert evaluate(FRAME.head(200), slices(), rows=rows) == slices().copy().reset().update(TABLE.slice(0, 200))
    assert evaluate(FRAME.lazy().filter(pl.col("y_true") == 1), sm.CTR()).compute() == 1


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_groups_are_slices(engine: Any) -> None:
    found = FRAME.lazy().group_by("variant").agg(state(METRICS)).collect(engine=engine)
    assert {k: sm.from_bytes(s) for k, s in found.rows()} == {k: slices()[k] for k in slices().keys}
    values = found.select("variant", value("state", "auc"))
    assert dict(values.rows()) == {k: v["auc"] for k, v in slices().compute().items()}
    total = found.lazy().select(merged("state")).collect(engine=engine).item()
    assert sm.from_bytes(total) == METRICS.copy().update(TABLE)


def test_columns_by_name() -> None:
    weighted = FRAME.with_columns(sample_weight=pl.lit(0.5))
    names = ["y_true", "y_score", "sample_weight"]
    found = weighted.select(state(sm.CTR(), ["y_true", "sample_weight"])).item()
    assert sm.from_bytes(found) == sm.CTR().update(weighted.select(names).to_arrow())
    assert sm.from_bytes(found) == evaluate(weighted, sm.CTR())


def test_nothing() -> None:
    none = FRAME.clear()
    assert evaluate(none, METRICS) == METRICS
    assert none.group_by("variant").agg(state(METRICS)).is_empty()
    assert sm.from_bytes(none.select(state(METRICS)).item()) == METRICS
    nulls = pl.DataFrame(
        {"k": [1, 1, 2], "state": [None, METRICS.to_bytes(), None]}, schema_overrides={"state": pl.Binary}
    )
    assert nulls.group_by("k").agg(merged()).sort("k")["state"].to_list() == [METRICS.to_bytes(), None]
    assert nulls.select(value("state", "auc")).to_series().is_nan().to_list() == [None, True, None]


def test_a_bad_row_says_what_and_where() -> None:
    spoiled = pl.from_arrow(logs.spoiled([TABLE], "y_score", 0, 17)[0])
    with pytest.raises(sm.InvalidInputError, match=r"y_score: .*found 7\.5 in row 17"):
        evaluate(spoiled, METRICS)
    with pytest.raises(sm.InvalidInputError, match=r"y_score: .*found 7\.5 in row \d"):
        spoiled.group_by("variant").agg(state(METRICS))


def test_what_has_no_value_says_so() -> None:
    states = pl.DataFrame({"state": [METRICS.to_bytes()]})
    with pytest.raises(sm.InvalidInputError, match=r"no metric 'ks' in this state; the metrics are auc, ctr"):
        states.select(value("state", "ks"))
    with pytest.raises(sm.InvalidInputError, match=r"expected the name of a metric; the metrics are auc, ctr"):
        states.select(value("state"))
    with pytest.raises(sm.InvalidInputError, match=r"found a state of class Sliced"):
        pl.DataFrame({"state": [slices().to_bytes()]}).select(value("state"))
    with pytest.raises(sm.InvalidInputError, match=r"no column 'y_score'; the table has 'y_true', 'variant'"):
        evaluate(FRAME.drop("y_score"), METRICS)


@pytest.mark.parametrize("ties", ["average", "order"])
def test_queries_are_sorted_unless_they_are_grouped(ties: str) -> None:
    grouped, scattered = (logs.CASES[f"{name} queries"]() for name in ("split", "scattered"))
    metrics = sm.MetricCollection(sm.Task(sm.NDCG(k=3, ties=ties), query=("day", "session")))
    whole, log = metrics.copy().update(grouped.log).digest(), pl.from_arrow(grouped.log)
    for found in (evaluate(log, metrics, rows=300), evaluate(log, metrics, rows=300, assume_grouped=True)):
        assert found.digest() == whole
    with pytest.raises(sm.InvalidInputError, match=r"sort the log by \('day', 'session'\)"):
        evaluate(pl.from_arrow(scattered.parts(1)[0]), metrics, rows=300, assume_grouped=True)
