"""Rows taken away, and corrections kept apart: what is left is what the other rows make, to the byte."""

from __future__ import annotations

import pickle

import draws
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, states_of


def log(seed, n=200):
    rng = np.random.default_rng(seed)
    return {
        "y_true": rng.integers(0, 2, n),
        "y_score": rng.random(n),
        "sample_weight": rng.choice([0.5, 1.0, 2.0], n),
        "group": rng.integers(0, 9, n),
        "c": rng.choice(list("abcd"), n),
        "t": rng.integers(-50, 250, n),
    }


MADE = {
    "metric": sm.AUC,
    "exact": lambda: sm.AUC(exact=True),
    "collection": lambda: sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.NormalizedEntropy(), sm.Calibration()),
    "groups": sm.GroupAUC,
    "slices": lambda: sm.Sliced([sm.AUC(), sm.LogLoss()], by="c"),
    "limited": lambda: sm.Sliced([sm.AUC(), sm.LogLoss()], by="c", limit=2),
    "windows": lambda: sm.Windowed([sm.AUC(), sm.LogLoss()], width=50, time="t", keep=3),
    "slices of windows": lambda: sm.Sliced(sm.Windowed(sm.AUC(), width=50, time="t", keep=3), by="c", limit=2),
    "windows of slices": lambda: sm.Windowed(sm.Sliced(sm.GroupAUC(), by="c", limit=2), width=50, time="t", keep=3),
}


def fed(name, columns, rows):
    made = MADE[name]()
    return made.update(taken(made, columns, rows))


def cells(thing):
    held = states_of(thing)[0].cells
    return held.keys.tolist(), [list(w.values) for w in held.vocabularies]


def taken(thing, columns, rows):
    return {n: c[rows] for n, c in columns.items() if n in columns_of(thing)}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_what_is_left_is_what_the_other_rows_make(name):
    @draws.short(8)
    @given(st.integers(0, 1 << 30))
    def hold(seed):
        columns = log(seed)
        gone = np.random.default_rng(seed).random(200) < 0.1
        whole, part, rest = (fed(name, columns, rows) for rows in (slice(None), gone, ~gone))
        assume(cells(rest) == cells(whole))  # a window that is gone does not bring those expired back
        before, theirs = whole.to_bytes(), part.to_bytes()
        assert whole.copy().subtract(part).digest() == rest.digest()
        assert (whole.to_bytes(), part.to_bytes()) == (before, theirs)
        with pytest.raises(sm.IncompatibleStateError, match="were not counted here"):
            part.subtract(rest)
        assert part.to_bytes() == theirs

    hold()


@pytest.mark.parametrize("name", MADE)
def test_deltas_merge_in_any_order_and_are_applied_once(name):
    columns = log(5)
    fixed = columns | {"y_true": 1 - columns["y_true"]}
    blank, chosen = MADE[name](), np.arange(200) % 5 == 0
    deltas = []
    for i in range(3):
        rows = np.flatnonzero(chosen)[i::3]
        delta = sm.Delta(blank)
        delta.retract(taken(blank, columns, rows)).update(taken(blank, fixed, rows))
        deltas.append(delta)
    whole = fed(name, columns, slice(None))
    wanted = fed(name, {n: np.where(chosen, fixed[n], c) for n, c in columns.items()}, slice(None))
    merged = sm.merge([deltas[2].to_bytes(), deltas[0], deltas[1].to_bytes()])
    assert merged.digest() == deltas[0].copy().merge(deltas[1]).merge(deltas[2]).digest()
    assert merged == pickle.loads(pickle.dumps(merged)) == sm.from_bytes(merged.to_bytes()) == merged.copy()
    assert merged.apply_to(whole.copy()).digest() == wanted.digest()
    for delta in deltas:
        before = delta.to_bytes()
        assert delta.apply_to(whole) is whole
        assert delta.to_bytes() == before
    assert whole.digest() == wanted.digest()
    assert (
        int(states_of(merged.added)[0].row_counts.sum())
        == int(states_of(merged["retracted"])[0].row_counts.sum())
        == 40
    )


def test_rows_that_a_delta_added_may_go_again():
    delta = sm.Delta(sm.CTR()).update([1, 1]).retract([1])
    assert repr(delta) == "Delta of CTR: 2 rows added, 1 row retracted"
    total = delta.apply_to(sm.CTR().update([0]))
    assert total == sm.CTR().update([0, 1])
    with pytest.raises(sm.IncompatibleStateError, match="were not counted here"):
        sm.Delta(sm.CTR()).retract([1, 1]).apply_to(total)
    assert total.compute() == 0.5
    assert delta.reset() == sm.Delta(sm.CTR())


def test_a_bundle_loses_rows_of_all_or_of_none():
    make = lambda rows: sm.Bundle({"a": sm.CTR().update(rows), "b": sm.CTR().update(rows[:1])})  # noqa: E731
    bundle = make([0, 1, 1])
    before = bundle.to_bytes()
    with pytest.raises(sm.IncompatibleStateError, match=r"b: .* below zero"):
        bundle.subtract(make([1]))
    assert bundle.to_bytes() == before
    assert bundle.subtract(make([0, 1]))["a"].compute() == 1.0


@pytest.mark.parametrize(
    ("metric", "columns", "message"),
    [
        (sm.DistinctCount(), {"value": [1, 2]}, "rows cannot be subtracted from .*; count the remaining rows again"),
        (
            sm.GroupAUC(sample=True),
            {"y_true": [0, 1], "y_score": [0.1, 0.2], "group": [1, 1]},
            "the groups in a sample depend on all rows",
        ),
        (sm.GroupAUC(grouped="sorted"), {"y_true": [0, 1], "y_score": [0.1, 0.2], "group": [1, 1]}, "closed"),
        (sm.MaxError(), {"y_true": [1.0, 2.0], "y_pred": [0.0, 3.0]}, "keeps a minimum, a maximum"),
    ],
)
def test_what_cannot_lose_rows_says_why(metric, columns, message):
    whole, part = (metric.copy().update(columns) for _ in range(2))
    before = whole.to_bytes()
    with pytest.raises(sm.IncompatibleStateError, match=message):
        whole.subtract(part)
    with pytest.raises(sm.IncompatibleStateError, match=message):
        sm.Delta(metric).retract(columns).apply_to(whole)
    assert whole.to_bytes() == before


def test_what_is_not_alike_says_so():
    ctr = sm.CTR().update([0, 1])
    for other in (sm.AUC(), sm.Sliced(sm.CTR(), by="c"), states_of(ctr)[0], ctr):
        with pytest.raises(sm.IncompatibleStateError, match=r"cannot subtract|from itself"):
            ctr.subtract(other)
    with pytest.raises(sm.IncompatibleStateError, match="cannot subtract from this Ledger"):
        sm.Ledger(ctr).subtract(sm.Ledger(ctr))
    for wrong in (sm.Bundle({"a": ctr}), sm.Delta(ctr), sm.Ledger(ctr), 7):
        with pytest.raises(TypeError, match="Delta: expected a metric"):
            sm.Delta(wrong)
    for hold in (
        lambda d: sm.MetricCollection({"d": d}),
        lambda d: sm.Sliced(d, by="c"),
        lambda d: sm.Windowed(d, width=1),
    ):
        with pytest.raises(TypeError, match=r"(can contain|expected|holds) .*metric.* Delta"):
            hold(sm.Delta(ctr))
    with pytest.raises(TypeError, match=r"apply_to\(\): expected a metric, a collection"):
        sm.Delta(ctr).apply_to(7)
    with pytest.raises(sm.IncompatibleStateError):
        sm.Delta(ctr).apply_to(sm.AUC())
