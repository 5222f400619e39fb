"""Ray: datasets, tasks whose workers die, aggregation by key, bad rows."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm

ray = pytest.importorskip("ray")
data = pytest.importorskip("ray.data")
pa = pytest.importorskip("pyarrow")

import engine_logs as logs  # noqa: E402
from ray.data.expressions import col  # noqa: E402

from streammetrics.engines.ray import AggregateMetrics, evaluate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`[a-z0-9_]+` is deprecated:DeprecationWarning:ray")

TABLE = logs.simple(500)
METRICS = sm.MetricCollection(sm.AUC(), sm.CTR())


@functools.cache
def whole() -> Any:
    return METRICS.copy().update(TABLE)


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    logs.start_ray()
    yield
    ray.shutdown()


def test_by_key_null_and_dictionaries_among_them() -> None:
    table = TABLE.set_column(
        2, "variant", pa.array(["A", "B", None, "A", "B"] * 100).dictionary_encode().cast("string")
    )
    rows = (
        data.from_arrow(table)
        .groupby("variant", num_partitions=3)
        .aggregate(AggregateMetrics(METRICS, "held"))
        .take_all()
    )
    slices = sm.Sliced(METRICS, by="variant").update(table)
    assert {row["variant"]: sm.from_bytes(row["held"]) for row in rows} == {k: slices[k] for k in slices.keys}


def test_all_rows_in_one_state() -> None:
    found = data.from_arrow([TABLE.slice(0, 300), TABLE.slice(300)]).aggregate(AggregateMetrics(METRICS))
    assert sm.from_bytes(found["state"]) == whole()


@pytest.mark.parametrize("kind", ["items", "pandas", "numpy"])
def test_datasets_of_any_kind(kind: str) -> None:
    make = {
        "items": lambda: data.from_items(TABLE.to_pylist()),
        "pandas": lambda: data.from_pandas(TABLE.to_pandas()),
        "numpy": lambda: data.from_numpy(TABLE["y_score"].to_numpy()).map_batches(
            lambda b: {"y_score": b["data"], "y_true": TABLE["y_true"].to_numpy()}, batch_size=None
        ),
    }[kind]
    assert evaluate(make(), METRICS) == whole()


def test_references_are_read_only_and_stay_as_they_are() -> None:
    arrays = {name: TABLE[name].to_numpy() for name in ("y_true", "y_score")}
    held = [ray.put(arrays), ray.put(arrays)]
    assert not ray.get(held[0])["y_true"].flags.writeable
    assert evaluate(held, METRICS) == sm.merge([whole(), whole().copy()])
    np.testing.assert_array_equal(ray.get(held[0])["y_score"], arrays["y_score"])


def test_a_worker_that_dies_counts_once(tmp_path: Path) -> None:
    mark, table = tmp_path / "died", TABLE.slice(200, 200)

    def read() -> Any:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return table

    assert evaluate([TABLE.slice(0, 200), read, TABLE.slice(400)], METRICS) == whole()
    assert mark.exists()


def test_a_metric_that_only_this_script_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.collect.metric.METRICS", dict(sm.extend.METRICS))

    class Odds(sm.extend.Metric[sm.extend.ScoreSums, float], tag="engines.odds"):
        def make_state(self) -> sm.extend.ScoreSums:
            return sm.extend.ScoreSums(terms=("score",))

        def of(self, state: sm.extend.ScoreSums) -> float:
            return float(state.total("score"))

    Odds.__module__, Odds.__qualname__ = "__main__", "Odds"  # as in a script, or a notebook
    monkeypatch.setattr(sys.modules["__main__"], "Odds", Odds, raising=False)
    odds = sm.MetricCollection(Odds())
    assert evaluate([TABLE.slice(0, 200), TABLE.slice(200)], odds).digest() == odds.copy().update(TABLE).digest()


@pytest.mark.parametrize("kind", ["parts", "blocks", "grouped", "shuffled"])
def test_the_driver_receives_one_state(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks merge the states, so that no warning says that the driver merges many."""
    ranked = logs.Case(logs.documents(100), logs.by_session())
    case = ranked if kind in ("grouped", "shuffled") else logs.Case(TABLE, sm.LogLoss())
    tables = [case.log.slice(start, 40) for start in range(0, case.log.num_rows, 40)]
    asked = {"assume_grouped": True} if kind == "grouped" else {}
    monkeypatch.setattr(f"{evaluate.__module__}.MERGED_STATES", 3)
    monkeypatch.setattr("streammetrics.engines.parts.DRIVER_BYTES", logs.one_state(case))
    log = tables if kind == "parts" else data.from_arrow(tables)
    assert evaluate(log, case.metrics, **asked).digest() == case.digest()


def test_a_dataset_is_shuffled_by_query_unless_it_is_grouped() -> None:
    grouped, scattered = (logs.CASES[f"{name} queries"]() for name in ("split", "scattered"))
    assert (
        evaluate(data.from_arrow(grouped.parts(3)), grouped.metrics, assume_grouped=True).digest() == grouped.digest()
    )
    with pytest.raises(ray.exceptions.RayTaskError, match=r"sort the log by \('day', 'session'\)"):
        evaluate(data.from_arrow(scattered.parts(3)), scattered.metrics, assume_grouped=True)


def test_nothing() -> None:
    assert evaluate([], METRICS) == METRICS
    assert evaluate([TABLE.slice(0, 0), []], METRICS) == METRICS
    assert evaluate(data.from_arrow(TABLE.slice(0, 0)), METRICS) == METRICS
    assert evaluate(data.from_arrow(TABLE).filter(expr=col("y_true") > 5), METRICS) == METRICS
    assert evaluate(data.from_items([]), METRICS) == METRICS


def test_a_bad_row_says_what_and_where() -> None:
    tables = logs.spoiled([TABLE.slice(0, 50), TABLE.slice(50, 50)], "y_score", 1, 17)
    with pytest.raises(sm.InvalidInputError, match=r"y_score: .*found 7\.5 in row 17"):
        evaluate(tables, METRICS)
    with pytest.raises(ray.exceptions.RayTaskError, match=r"y_score: .*found 7\.5 in row 17"):
        evaluate(data.from_arrow(tables), METRICS)
    with pytest.raises(sm.InvalidInputError, match=r"no column 'y_score'; the table has 'y_true'"):
        evaluate(data.from_arrow(TABLE.select(["y_true"])), METRICS)


def test_bad_rows_are_dropped_by_workers() -> None:
    tables = logs.spoiled([TABLE.slice(0, 50), TABLE.slice(50, 50)], "y_score", 1, 17)
    dropping = sm.MetricCollection(sm.AUC(), on_invalid="drop")
    for log in (tables, data.from_arrow(tables)):
        assert evaluate(log, dropping)["auc"].explain()["dropped"] == {"y_score": 1}
