"""Errors propose the likeliest remedy: what the column most likely means, and to drop rows only where few are bad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm

N = 20_000
P = np.random.default_rng(0).random(N)
Y = (P > 0.5).astype(int)
DROP = 'pass on_invalid="drop"'


def said(metric: Any, *columns: Any) -> str:
    before = metric.digest()
    with pytest.raises(sm.InvalidInputError) as caught:
        metric.update(*columns)
    assert metric.digest() == before
    assert "y_true: expected" in str(caught.value) or "y_score: expected" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("labels", "scores", "remedy"),
    [
        pytest.param(P, Y, "labels and scores seem to be swapped", id="swapped"),
        pytest.param(P * 4 - 2, Y, "labels and scores seem to be swapped", id="swapped logits"),
        pytest.param(P, P, "for soft labels (numbers in [0, 1]) use soft_labels=True", id="soft"),
        pytest.param(np.where(Y, 0.5, 0.0), P, "soft_labels=True", id="half of them soft"),
        pytest.param(np.arange(N) % 3, P, "give num_classes=3", id="classes"),
        pytest.param(Y * 2 - 1, P, "give labels=(-1, 1) to the task", id="minus one and one"),
        pytest.param(Y + 1, P, "give labels=(1, 2) to the task", id="one and two"),
        pytest.param(P * 100, P, "regression metrics, such as MAE", id="numbers"),
        pytest.param(np.full(N, np.nan), P, "no row has a label", id="no labels"),
    ],
)
def test_labels_that_mean_another_thing(labels: Any, scores: Any, remedy: str) -> None:
    for metric in (sm.AUC(), sm.LogLoss(), sm.Sliced(sm.AUC(), by="k"), sm.MetricCollection(sm.AUC(), sm.CTR())):
        given = {"y_true": labels, "y_score": scores, "k": np.arange(N) % 2}
        message = said(metric, given)
        assert remedy in message
        assert DROP not in message


def test_few_bad_rows_may_be_dropped() -> None:
    labels = Y.astype(float)
    labels[7] = np.nan
    assert said(sm.AUC(), labels, P).endswith(f"found nan in row 7; {DROP} to leave such rows out and count them")
    assert DROP in said(sm.AUC(), np.where(np.arange(N) == 7, -1, Y), P)
    assert DROP not in said(sm.AUC(), Y, P * 10 - 5)
    assert 'give scale="logit" if the scores are logits, or pass' in said(
        sm.AUC(), Y, np.where(np.arange(N) == 7, 2.0, P)
    )
    metric = sm.AUC(on_invalid="drop").update(labels, P)
    assert metric.explain()["dropped"] == {"y_true": 1}


def test_remedies_that_work() -> None:
    """Each proposal, followed, counts the batch."""
    assert sm.LogLoss(soft_labels=True).update(P, P).state.facts()["rows"] == N
    task = sm.Task(sm.AUC(), labels=(-1, 1))
    assert sm.MetricCollection({"t": task}).update(Y * 2 - 1, P)["t/auc"].compute() == 1.0
    scores = np.eye(3)[np.arange(N) % 3]
    assert sm.AUC(num_classes=3).update(np.arange(N) % 3, scores).compute() == 1.0
    metric = sm.Accuracy(labels=tuple(range(1, 4)))
    assert metric.update(np.arange(N) % 3 + 1, scores).compute() == 1.0


@pytest.mark.parametrize(
    ("labels", "remedy"),
    [
        (np.arange(N) % 3 + 1, "give labels=tuple(range(1, 4))"),
        (np.arange(N) % 5, "give num_classes=5 if there are so many classes"),
        (np.where(Y, 0, -100), "give ignore_class=-100"),
        (np.where(Y, 0, 255), "give ignore_class=255"),
    ],
)
def test_classes(labels: Any, remedy: str) -> None:
    message = said(sm.Accuracy(num_classes=3), labels, np.eye(3)[Y])
    assert remedy in message
    assert DROP not in message


def test_other_columns() -> None:
    assert "give num_classes= or labels=" in said(sm.AUC(), [0, 1], [[0.2, 0.3, 0.5]] * 2)
    assert "add the class to labels=" in said(sm.Accuracy(labels=("a", "b")), ["a", "c"], ["a", "b"])
    with pytest.raises(sm.InvalidInputError, match=r"y_pred: expected 0 or 1, found 0\.5.*scores are y_score"):
        sm.Accuracy(threshold=None).update([0, 1], [0.5, 0.7])


@pytest.mark.parametrize(
    ("y", "p", "remedy"),
    [
        ([0, 1, 1, 0, 2], [0, 1, 1, 0, 1], "for classes, give num_classes=3"),  # not swapped: nothing has fractions
        ([*[0, 1] * 50, 2], [0.5] * 101, "correct these rows"),
        ([1e300, 0], [0.1, 0.2], "regression metrics"),
        ([0, 1], [20, 70], "divide percentages by 100"),
    ],
)
def test_remedies_do_not_lead_astray(y, p, remedy):
    with pytest.raises(sm.InvalidInputError, match=remedy):
        sm.AUC().update(np.array(y, float), np.array(p, float))
