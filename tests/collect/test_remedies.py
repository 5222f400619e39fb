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
        pytest.param(np.arange(N) % 3, P, "pass num_classes=3", id="classes"),
        pytest.param(Y * 2 - 1, P, "pass labels=(-1, 1) to Task", id="minus one and one"),
        pytest.param(Y + 1, P, "pass labels=(1, 2) to Task", id="one and two"),
        pytest.param(P * 100, P, "use a regression metric, such as MAE", id="numbers"),
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
    assert said(sm.AUC(), labels, P).endswith(
        f"found nan in row 7; {DROP} to leave such rows out and report their number"
    )
    assert DROP in said(sm.AUC(), np.where(np.arange(N) == 7, -1, Y), P)
    assert DROP not in said(sm.AUC(), Y, P * 10 - 5)
    assert 'pass scale="logit" if the scores are logits, or pass' in said(
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
        (np.arange(N) % 3 + 1, "pass labels=tuple(range(1, 4))"),
        (np.arange(N) % 5, "pass num_classes=5 if there are 5 classes"),
        (np.where(Y, 0, -100), "pass ignore_class=-100"),
        (np.where(Y, 0, 255), "pass ignore_class=255"),
    ],
)
def test_classes(labels: Any, remedy: str) -> None:
    message = said(sm.Accuracy(num_classes=3), labels, np.eye(3)[Y])
    assert remedy in message
    assert DROP not in message


def test_other_columns() -> None:
    assert "pass num_classes= or labels=" in said(sm.AUC(), [0, 1], [[0.2, 0.3, 0.5]] * 2)
    assert "add the class to labels=" in said(sm.Accuracy(labels=("a", "b")), ["a", "c"], ["a", "b"])
    with pytest.raises(sm.InvalidInputError, match=r"y_pred: expected 0 or 1, found 0\.5.*pass scores as y_score"):
        sm.Accuracy(threshold=None).update([0, 1], [0.5, 0.7])


@pytest.mark.parametrize(
    ("metric", "labels", "scores", "remedy"),
    [
        (sm.AUC(), [0, 1], [[0.8, 0.2], [0.1, 0.9]], "(2, 2); for predict_proba() of two classes, pass scores[:, 1];"),
        (sm.LogLoss(scale="logit"), [0, 1], [[0.8, 0.2], [0.1, 0.9]], "pass scores[:, 1]"),
        (sm.AUC(labels=("no", "yes")), ["no", "yes"], [0.2, 0.9], "and pass labels=(negative, positive) to Task"),
        (sm.LogLoss(num_classes=2), [0, 1], [0.2, 0.9], "for one score in each row, remove labels= or num_classes="),
        (sm.Recall(labels=("no", "yes")), ["no", "yes"], [0.2, 0.9], "(2,); for one score in each row"),
        (
            sm.AUC(num_classes=3),
            [0, 1, 2],
            [0.1, 0.2, 0.7],
            "(3,); pass a matrix with a column of scores for each class",
        ),
        (sm.Recall(num_classes=3), [0, 1, 2], [0.1, 0.2, 0.7], "(3,); pass a matrix with a column of scores for each"),
    ],
)
def test_scores_of_another_shape(metric: Any, labels: Any, scores: Any, remedy: str) -> None:
    assert remedy in said(metric, labels, scores)


def test_no_remedy_for_two_classes_where_there_are_not_two() -> None:
    assert "scores[:, 1]" not in said(sm.AUC(), [0, 1], [[0.2, 0.3, 0.5]] * 2)
    assert "scores[:, 1]" not in said(sm.AUC(), [[0, 1], [1, 0]], [0.1, 0.2])
    assert "one score" not in said(sm.AUC(num_classes=3), [0, 1], [0.1, 0.2])


def task(**columns: str) -> sm.MetricCollection:
    return sm.MetricCollection(sm.Task(sm.AUC(), y_true="click", **columns))


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (lambda log: task(y_score="scroe").update(log), "'click', 'Score'; did you mean 'Score'?"),
        (lambda log: task(y_score="zzz").update(log), "'click', 'Score'"),
        (lambda log: task(where="click=1").update(log), "'Score'; where= takes the name of a 0/1 column"),
        (
            lambda log: sm.AUC().update(log),
            "if the column has another name, pass y_true= to Task, as in "
            'sm.MetricCollection(sm.Task(metric, y_true="..."))',
        ),
        (lambda log: sm.AUC().update(log["click"]), "the batch has 'y_true'; pass the scores as the second argument"),
        (lambda log: sm.MAE().update(log["click"]), "pass the predictions as the second argument"),
        (lambda log: sm.AUC().update(y_score=log["Score"]), "the batch has 'y_score'; pass y_true= to update()"),
        (lambda log: sm.GroupAUC().update(*log.values()), "'y_true', 'y_score'; pass group= to update()"),
        (
            lambda log: sm.Sliced(sm.AUC(), by="country").update(*log.values()),
            "'y_true', 'y_score'; pass country= to update()",
        ),
        (
            lambda log: sm.Windowed(sm.AUC(), time="ts", width=10).update(*log.values()),
            "'y_true', 'y_score'; pass ts= to update()",
        ),
        (lambda log: sm.AUC().update(), "the batch has no columns; pass y_true= to update()"),
        (lambda log: sm.AUC().update({1: [0]}), "the batch has 1; if the column has another name"),
    ],
)
def test_columns_that_are_not_there(update: Any, expected: str) -> None:
    with pytest.raises(sm.InvalidInputError, match="there is no column") as caught:
        update({"click": [0, 1], "Score": [0.1, 0.2]})
    message = str(caught.value)
    assert message.endswith(expected) or "another name" in expected
    assert expected in message


def test_unknown_column_with_a_similar_name() -> None:
    sliced = sm.Sliced(sm.AUC(), by="contry")
    with pytest.raises(TypeError, match=r"'country'; the columns are .*, contry; did you mean 'contry'\?"):
        sliced.update([0, 1], [0.1, 0.2], country=["a", "b"])


def test_tag_instead_of_a_metric() -> None:
    with pytest.raises(TypeError, match=r"found 'auc'; write sm\.AUC\(\)"):
        sm.MetricCollection("auc")


def test_task_takes_a_list_of_columns() -> None:
    listed = sm.Task(sm.AUC(num_classes=2), y_score=["p_0", "p_1"])
    assert listed.binding == sm.Task(sm.AUC(num_classes=2), y_score=("p_0", "p_1")).binding
    log = {"y_true": [0, 1], "p_0": [0.9, 0.2], "p_1": [0.1, 0.8]}
    assert sm.MetricCollection(listed).update(log).compute()["auc"] == 1.0
    assert sm.Task(sm.GroupAUC(), group=["a", "b"]).binding.column("group") == ("a", "b")


@pytest.mark.parametrize(
    ("y", "p", "remedy"),
    [
        ([0, 1, 1, 0, 2], [0, 1, 1, 0, 1], "several classes, pass num_classes=3"),  # not swapped: nothing has fractions
        ([*[0, 1] * 50, 2], [0.5] * 101, "correct these rows"),
        ([1e300, 0], [0.1, 0.2], "a regression metric"),
        ([0, 1], [20, 70], "divide percentages by 100"),
    ],
)
def test_remedies_do_not_lead_astray(y, p, remedy):
    with pytest.raises(sm.InvalidInputError, match=remedy):
        sm.AUC().update(np.array(y, float), np.array(p, float))
