"""Dense counters of several states, added, are what merging these states makes."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy, states_of
from streammetrics.state.dense import describe_dense_form, encode_flats, merge_dense, to_dense

METRICS = {
    "12 bits": sm.AUC(bits=12),
    "16 bits": sm.AUC(bits=16),
    "logits": sm.AUC(bits=12, scale="logit"),
    "labels": sm.AUC(bits=8, num_labels=3),
}


def counted(metric: sm.extend.Metric, seed: int, n: int, *, weighted: bool = False) -> sm.extend.Metric:
    rng = np.random.default_rng(seed)
    made = metric.copy()
    weights = {"sample_weight": rng.choice([0.5, 1.0, 1 / 3], n)} if weighted else {}
    scores = rng.random((n, 3) if "num_labels" in repr(metric) else n)
    if isinstance(metric, sm.Quantile):
        return made.update(value=scores, **weights)
    return made.update(rng.random(scores.shape) < scores, scores, **weights)


def summed(parts: list[sm.extend.State]) -> sm.extend.State:
    facts = [describe_dense_form(p) for p in parts]
    assert all(f.places for f in facts)
    weighted = any(f.weighted for f in facts)
    counters = np.sum([to_dense(p, weighted=weighted) for p in parts], axis=0)
    return merge_dense(parts[0], counters, [encode_flats(p) for p in parts], facts)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("weights", [(), (0, 1, 2), (1,)])
def test_sums_are_merges(name: str, weights: tuple[int, ...]) -> None:
    metric, rows = METRICS[name], [70_000, 66_000, 90_000, 0]
    parts = [counted(metric, i, n, weighted=i in weights).state for i, n in enumerate(rows)]
    made = summed(parts)
    assert made == parts[0].merge(*parts[1:])
    assert summed(parts[::-1]) == made


def test_of_nothing_there_is_nothing() -> None:
    state = sm.AUC(bits=12).state
    assert summed([state, state]) == state


def test_what_was_dropped_is_added() -> None:
    parts = [sm.AUC(bits=12, on_invalid="drop").update([0, 1], [float("nan"), 0.5]).state for _ in range(3)]
    assert summed(parts) == parts[0].merge(*parts[1:])
    assert summed(parts).dropped.sum() == 3


@pytest.mark.parametrize(
    ("metric", "rows"),
    [
        (sm.AUC(), {"y_true": [0, 1], "y_score": [0.1, 0.2]}),
        (sm.AUC(exact=True), {"y_true": [0, 1], "y_score": [0.1, 0.2]}),
        (sm.CTR(), {}),
        (sm.Sliced(sm.AUC(bits=12), by="country"), {}),
        (sm.Accuracy(labels="discover"), {}),
    ],
)
def test_what_grows_has_no_dense_form(metric: sm.extend.Metric, rows: dict[str, list[float]]) -> None:
    if rows:
        metric = empty_copy(metric).update(rows)
    assert describe_dense_form(states_of(metric)[0]).places == 0


def test_more_than_can_be_counted_raises() -> None:
    state = counted(sm.AUC(bits=12), 0, 1000).state
    facts = describe_dense_form(state)._replace(rows=2.0**61)
    with pytest.raises(sm.CounterOverflowError):
        merge_dense(state, to_dense(state, weighted=False), [encode_flats(state)] * 2, [facts] * 2)
