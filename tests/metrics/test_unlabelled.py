"""What a model predicts on rows that have no labels yet: the mean prediction needs none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of

RNG = np.random.default_rng(11)
Y, S, W = RNG.integers(0, 2, 500), RNG.random(500), RNG.integers(0, 9, 500) / 4


def test_as_with_labels() -> None:
    for scores, scale in ((S, "probability"), (S.astype(np.float32), "probability"), (np.log(S / (1 - S)), "logit")):
        for weights in ({}, {"sample_weight": W}):
            columns = {"y_score": scores, **weights}
            bare = sm.PredictedCTR(scale=scale).update(**columns)
            told = sm.PredictedCTR(scale=scale).update(Y, **columns)
            assert bare.compute() == told.compute()
            assert bare.bounds() == told.bounds()
            assert bare.interval() == told.interval()
            assert bare.update(columns).update(Y, **columns).compute() == bare.compute()
            assert sm.from_bytes(bare.to_bytes()).update(**columns) == bare.copy().update(**columns)
            assert bare.copy().merge(told).compute() == bare.compute()


def test_the_mean_of_scores() -> None:
    assert sm.PredictedCTR().update(y_score=[0.25, 0.5, 1.0]).compute() == 1.75 / 3
    assert sm.PredictedCTR(on_invalid="drop").update(y_score=[0.25, 7.0]).compute() == 0.25
    with pytest.raises(sm.InvalidInputError, match="found 7"):
        sm.PredictedCTR().update(y_score=[0.25, 7.0])


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (lambda m: sm.Sliced(m, by="k"), {"k": Y}),
        (lambda m: sm.Windowed(m, width=1, time="t"), {"t": Y}),
        (lambda m: sm.Sharded(m, unit="u"), {"u": np.arange(500)}),
        (lambda m: sm.Recent(m, steps=2), {}),
        (lambda m: sm.Decayed(m, half_life=2), {"step": np.zeros(500, int)}),
        (lambda m: sm.MetricCollection(m), {}),
        (lambda m: sm.MetricCollection(sm.Task(m, y_score="p")), {"p": S}),
        (lambda m: sm.MetricCollection(sm.Task(m, negative_rate=0.25, corrects="score")), {}),
    ],
)
def test_in_compositions(make: Any, more: Any) -> None:
    columns = {"y_score": S, **more}
    bare, told = make(sm.PredictedCTR()), make(sm.PredictedCTR())
    bare.update({n: c for n, c in columns.items() if n in columns_of(bare)})
    told.update({n: c for n, c in {"y_true": Y, **columns}.items() if n in columns_of(told)})
    assert bare.compute() == told.compute()
    assert sm.from_bytes(bare.to_bytes()) == bare


@pytest.mark.parametrize("other", [sm.Calibration(), sm.CTR(), sm.AUC()])
@pytest.mark.parametrize("first", [True, False])
def test_beside_metrics_that_need_labels(other: Any, first: bool) -> None:
    made = sm.MetricCollection([sm.PredictedCTR(), other] if first else [other, sm.PredictedCTR()])
    with pytest.raises(sm.InvalidInputError, match="there is no column 'y_true'"):
        made.update(y_score=S)
    made.update(Y, S)
    assert made["predicted_ctr"].to_bytes() == sm.PredictedCTR().update(Y, S).to_bytes()
    assert made["predicted_ctr"].copy().update(y_score=S).compute() == made.compute()["predicted_ctr"]
    assert len(made.plan()) == (1 if other.about.tag == "calibration" else 2)


@pytest.mark.parametrize(
    ("task", "missing"),
    [
        (sm.Task(sm.PredictedCTR(), y_true="click"), "click"),
        (sm.Task(sm.PredictedCTR(), negative_rate=0.5, corrects="rows"), "y_true"),
        (sm.Task(sm.PredictedCTR(), negative_rate=0.5, corrects="both"), "y_true"),
        (sm.Task(sm.PredictedCTR(soft_labels=True)), "y_true"),
    ],
)
def test_labels_that_are_asked_for(task: Any, missing: str) -> None:
    with pytest.raises(sm.InvalidInputError, match=f"there is no column '{missing}'"):
        sm.MetricCollection(task).update(y_score=S)
