"""A pickle holds the library's bytes, and the settings that these leave out: a worker does what it was told."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

import streammetrics as sm


def dropping() -> list[Any]:
    return [
        sm.AUC(on_invalid="drop"),
        sm.MetricCollection(sm.AUC(), sm.CTR(), on_invalid="drop"),
        sm.Sliced(sm.AUC(on_invalid="drop"), by="k"),
        sm.Windowed(sm.Sliced(sm.AUC(on_invalid="drop"), by="k"), width=2, time="n", max_time=8),
        sm.Delta(sm.AUC(on_invalid="drop")),
    ]


@pytest.mark.parametrize("made", dropping(), ids=lambda m: type(m).__name__)
def test_what_is_to_be_dropped_is_dropped_by_the_copy(made: Any) -> None:
    rows = {"y_true": [0, 1, 1], "y_score": [0.1, 2.0, 0.7], "k": ["a", "a", "b"], "n": [1, 2, 9]}
    seen = made.copy().update(rows)
    again = pickle.loads(pickle.dumps(seen))
    assert again.digest() == seen.digest()
    assert pickle.loads(pickle.dumps(made)).update(rows).digest() == seen.digest()
    assert again.merge(seen).update(rows).digest() == sm.merge([seen, seen.copy(), seen.copy()]).digest()


def test_limits_are_those_of_the_original() -> None:
    metrics = sm.MetricCollection(sm.GroupAUC(memory_limit=1000), {"s": sm.Sliced(sm.CTR(), by="k", memory_limit=77)})
    again = pickle.loads(pickle.dumps(sm.Bundle({"m": metrics})))["m"]
    assert again["group_auc"].memory_limit == 1000
    assert again["s"].memory_limit == 77


@pytest.mark.slow
def test_the_class_of_a_metric_travels_with_it() -> None:
    """A worker has not imported the module that defines a metric: bytes alone give one that cannot count."""
    import plugin

    data = pickle.dumps(sm.MetricCollection(plugin.Odds()))
    code = f"""
import pickle
metrics = pickle.loads({data!r})
metrics.update([0, 1], [0.25, 0.75])
print(metrics.compute()["plugin.odds"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=_with_tests())
    assert done.stdout == "1.0\n", done.stderr


def test_a_class_within_a_function_is_pickled_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.collect.metric.METRICS", dict(sm.extend.METRICS))

    class Local(sm.extend.Metric[sm.extend.ScoreSums, float], tag="tests.local"):
        def make_state(self) -> sm.extend.ScoreSums:
            return sm.extend.ScoreSums(terms=("score",))

        def of(self, state: sm.extend.ScoreSums) -> float:
            return float(state.total("score"))

    seen = Local().update([0, 1], [0.25, 0.5])
    assert pickle.loads(pickle.dumps(seen)) == seen


def _with_tests() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
