"""Slices, windows and shards within one another: some of their metrics, and what they say without one of the axes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import answer_of, states_of

N = 600


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    click = (rng.random(N) < 0.3).astype(int)
    return {
        "click": click,
        "a": np.clip(0.2 * click + 0.7 * rng.random(N), 0, 1),
        "b": rng.random(N),
        "user": rng.integers(0, 90, N),
        "arm": np.array(["A", "B"])[rng.integers(0, 2, N)],
        "country": np.array(["de", "fr", "it"])[rng.integers(0, 3, N)],
        "step": rng.integers(0, 40, N),
    }


def task(score: str) -> sm.Task:
    return sm.Task([sm.AUC(), sm.LogLoss(), sm.CTR()], y_true="click", y_score=score)


def models() -> dict[str, sm.Task]:
    return {"a": task("a"), "b": task("b")}


AROUND = {
    "collection": sm.MetricCollection,
    "shards": lambda m: sm.Sharded(m, unit="user"),
    "windows": lambda m: sm.Windowed(sm.Sharded(m, unit="user"), width=10, time="step", keep=3),
    "slices": lambda m: sm.Sliced(m, by="country", limit=2),
    "all": lambda m: sm.Sliced(sm.Windowed(sm.Sharded(m, unit="user"), width=10, time="step"), by=("arm", "country")),
}


@pytest.mark.parametrize("around", AROUND)
def test_the_metrics_of_one_model_are_what_they_are_alone(around):
    make, log = AROUND[around], rows()
    both = make(models()).update(log)
    for model in "ab":
        assert both.task(model) == make(task(model)).update(log)
    with pytest.raises(KeyError, match="there is no task 'c'; the tasks are a, b"):
        both.task("c")


@pytest.mark.parametrize("around", AROUND)
def test_some_of_the_metrics_are_what_they_are_alone(around):
    make, log = AROUND[around], rows()
    some = {
        "a": sm.Task([sm.AUC()], y_true="click", y_score="a"),
        "b": sm.Task([sm.CTR()], y_true="click", y_score="b"),
    }
    both = make(models()).update(log).only(["b/ctr", "a/auc"])
    assert both.names == ["a/auc", "b/ctr"]
    assert states_of(both) == states_of(make(some).update(log))


def test_without_what_is_within():
    log = rows()
    inner = sm.Sharded(models(), unit="user")
    windows = sm.Windowed(inner, width=10, time="step", keep=2)
    nest = sm.Sliced(sm.Sliced(windows, by="country", limit=2), by="arm").update(log)
    alone = sm.Sliced(inner, by="arm").update(log)
    assert nest.across("step") == sm.Sliced(sm.Sliced(inner, by="country", limit=2), by="arm").update(log)
    assert nest.across("step", "country") == alone
    assert nest.across("country") == sm.Sliced(windows, by="arm").update(log)
    assert nest.across("arm", "user", "nothing") == nest  # what stands first stays, and so do shards


def test_slices_of_windows_are_sorted_by_all_their_windows():
    inner = sm.Sharded(models(), unit="user")
    nest = sm.Sliced(sm.Windowed(inner, width=10, time="step"), by="country").update(rows())
    order = list(dict.fromkeys(r["country"] for r in nest.table_records(sort="a/auc")))
    alone = sm.Sliced(inner, by="country").update(rows())
    assert order == list(dict.fromkeys(r["country"] for r in alone.table_records(sort="a/auc")))
    assert nest.table_records(min_rows=N) == []


def test_a_limit_that_left_nothing_over():
    held = sm.Sliced(sm.Sharded(sm.CTR(), unit="user"), by="country", limit=9)
    found = held.update(y_true=[0, 1] * 50, user=range(100), country=["de", "fr"] * 50).table().to_dict()
    assert found["country"] == ["de", "fr", "(other)"]
    assert found["rows"] == [50, 50, 0]


def test_records_say_why_there_is_no_interval():
    few = sm.Sharded([sm.CTR(), sm.Max()], unit="user").update(y_true=[0, 1], value=[1.0, 2.0], user=[1, 2])
    why = {r["metric"]: r["interval_reason"] for r in answer_of(few).records()}
    assert "groups of units" in why["ctr"]
    assert why["max"]
    plain = sm.MetricCollection(sm.CTR()).update(y_true=[0, 1] * 40)
    assert [r["interval_reason"] for r in answer_of(plain).records()] == [None]


@pytest.mark.parametrize("order", [["task", "bare"], ["bare", "task"], ["task", "task2"], ["bare"]])
def test_a_collection_that_has_tasks_among_others_inside_another(order: list[str]) -> None:
    things = {"task": sm.Task(sm.CTR(), where="f"), "bare": sm.AUC(), "task2": sm.Task(sm.CTR(), y_true="f")}
    outer = sm.MetricCollection({"x": sm.MetricCollection({name: things[name] for name in order})})
    outer.update({"y_true": [0, 1, 1], "y_score": [0.1, 0.2, 0.3], "f": [1, 1, 0]})
    for again in (sm.from_bytes(outer.to_bytes()), outer.copy(), pickle.loads(pickle.dumps(outer)), sm.merge([outer])):
        assert again == outer
        assert again.compute() == outer.compute()
    sliced = sm.Sliced(outer, by="k").update({"y_true": [0], "y_score": [0.1], "f": [1], "k": ["a"]})
    assert sm.from_bytes(sliced.to_bytes()) == sliced


APART = {
    "sliced": lambda m: sm.Sliced(m, by="g"),
    "windowed": lambda m: sm.Windowed(m, width=2, time="g"),
    "decayed": lambda m: sm.Decayed(m, half_life=2, time="g"),
}


@pytest.mark.parametrize("of", APART.values(), ids=APART)
def test_what_is_told_apart_already_is_not_again(of: Any) -> None:
    inner = of(sm.CTR())
    for outer in (inner, sm.MetricCollection(inner), sm.Sliced(inner, by="other")):
        with pytest.raises(ValueError, match="g: the inner object is already split by this column"):
            of(outer)
