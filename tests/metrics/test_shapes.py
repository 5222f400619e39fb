"""Columns as models return them: matrices of one column, one-hot classes, a weight for each label; decisions by name."""

from __future__ import annotations

import inspect
from typing import Any

import draws
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.batch.classes import Classes
from streammetrics.batch.kinds import Label, LabelWeight
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.case import expect_same_bytes
from streammetrics.laws.specimens import make_consistent, sample
from streammetrics.reading.records import dropped_of

N = 24
RANKED = "query"  # a matrix is a query a row there


def rows(metric: Any, seed: int = 5, **more: Any) -> Any:
    state = metric.make_state()
    return make_consistent(state, sample(state.needs(), np.random.default_rng(seed), N, "plain", weighted=True, **more))


def of(metric: Any, *, kind: Any) -> list[str]:
    return [n.role for n in metric.make_state().needs() if isinstance(n.kind, kind)]


FLAT = [m for m in draws.FIRST if RANKED not in [n.role for n in m.make_state().needs()]]
CLASSED = [m for m in draws.VARIANTS if of(m, kind=Classes)]
LABELLED = [
    m
    for m in draws.VARIANTS
    if of(m, kind=LabelWeight) and not m.settings.get("top_k") and not isinstance(m.settings.get("threshold"), tuple)
]
DECIDED = [
    m
    for m in draws.VARIANTS
    if isinstance({n.role: n.kind for n in m.make_state().needs()}.get("y_pred"), Label)
    or ("y_pred" in of(m, kind=draws.Matrix) and m.settings.get("num_labels"))
]


@pytest.mark.parametrize("metric", FLAT, ids=repr)
def test_a_matrix_of_one_column_is_that_column(metric: Any) -> None:
    columns = rows(metric)
    expected = empty_copy(metric).update(columns)
    for shape in (lambda c: c[:, None], lambda c: np.asfortranarray(np.stack([c, c, c], axis=1))[:, 1:2]):
        made = {r: shape(c) if c.ndim == 1 else c for r, c in columns.items()}
        thing = empty_copy(metric)
        for part in (slice(0, 5), slice(5, 11), slice(11, N)):  # later batches find the draft of the first
            thing.update({r: c[part] for r, c in made.items()})
        expect_same_bytes(thing, expected, f"{metric!r} of matrices of one column to be that of columns")


@pytest.mark.parametrize("metric", CLASSED, ids=repr)
def test_one_hot_classes(metric: Any) -> None:
    columns, kinds = rows(metric), {n.role: n.kind for n in metric.make_state().needs()}
    expected = empty_copy(metric).update(columns)
    hot = dict(columns)
    for role in of(metric, kind=Classes):
        kind = kinds[role]
        known = np.arange(kind.names) if isinstance(kind.names, int) else np.array(kind.names)
        hot[role] = columns[role][:, None] == known
    for dtype in (bool, np.int8, np.float32):
        made = {r: c.astype(dtype) if hot[r] is not columns[r] else c for r, c in hot.items()}
        expect_same_bytes(empty_copy(metric).update(made), expected, "one-hot classes to be classes")
    listed = {r: c.astype(int).tolist() if hot[r] is not columns[r] else c for r, c in hot.items()}
    expect_same_bytes(empty_copy(metric).update(listed), expected, "lists of one-hot rows to be classes")
    parts = {f"{r}{i}": c[:, i] for r, c in hot.items() if c is not columns[r] for i in range(c.shape[1])}
    bound = {r: tuple(f"{r}{i}" for i in range(c.shape[1])) for r, c in hot.items() if c is not columns[r]}
    task = sm.MetricCollection(sm.Task({"m": empty_copy(metric)}, **bound))
    task.update({r: c for r, c in columns.items() if r not in bound} | parts)
    assert task["m"].state == expected.state


def test_rows_that_are_not_one_hot() -> None:
    f1 = sm.F1(num_classes=3, threshold=None)
    for bad, found in (([1, 1, 0], r"\[1, 1, 0\]"), ([0, 0, 0], r"\[0, 0, 0\]"), ([0, 2, 1], r"\[0, 2, 1\]")):
        with pytest.raises(
            sm.InvalidInputError, match=f"y_true: expected a class.* found {found} instead of a single 1 in row 1"
        ):
            f1.update(y_true=np.array([[1, 0, 0], bad]), y_pred=[0, 0])
    with pytest.raises(sm.InvalidInputError, match="a single 1 in each row, found a matrix of 2 columns"):
        f1.update(y_true=np.eye(2), y_pred=[0, 1])
    dropped = sm.F1(num_classes=3, threshold=None, on_invalid="drop")
    assert dropped.update(y_true=np.array([[1, 0, 0], [1, 1, 0]]), y_pred=[0, 0]).explain()["dropped"] == {"y_true": 1}


@pytest.mark.parametrize("metric", LABELLED, ids=repr)
def test_weights_of_rows_and_labels(metric: Any) -> None:
    """Equal weights of all labels are weights of rows; others are those of each label alone."""
    columns = rows(metric)
    weights = columns["sample_weight"]
    width = metric.settings["num_labels"]
    every = columns | {"sample_weight": np.stack([weights] * width, axis=1)}
    by_row = empty_copy(metric).update(columns)
    expect_same_bytes(
        empty_copy(metric).update(every), by_row, "weights of labels that are equal to be weights of rows"
    )
    keys = np.tile(["a", "b", "c"], N // 3)
    by_slice = sm.Sliced(empty_copy(metric), by="k").update(**columns, k=keys)
    expect_same_bytes(sm.Sliced(empty_copy(metric), by="k").update(**every, k=keys), by_slice, "the same in slices")
    own = columns | {"sample_weight": np.random.default_rng(8).choice([0.0, 0.5, 1.0, 3.0], (N, width))}
    whole, sliced = empty_copy(metric).update(own), sm.Sliced(empty_copy(metric), by="k").update(**own, k=keys)
    expect_same_bytes(sliced.total, whole, "slices to add up")
    for thing in (whole, sliced, empty_copy(metric)):
        expect_same_bytes(sm.from_bytes(thing.to_bytes()), thing, "weights of labels to be read again")
    expect_same_bytes(empty_copy(metric).update({n: c[:9] for n, c in own.items()}).merge(
        empty_copy(metric).update({n: c[9:] for n, c in own.items()})), whole, "parts to add up")  # fmt: skip
    alone = {n: v for n, v in metric.settings.items() if n not in ("num_labels", "average", "labels", "num_classes")}
    for i, state in enumerate(whole.state.split_classes()):
        one = type(metric)(**alone).update({r: c[:, i] if c.ndim == 2 else c for r, c in own.items()})
        assert np.array_equal(one.read(state).value, one.read(one.state).value, equal_nan=True)


def test_weights_of_labels_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    y, s, w = rng.integers(0, 2, (400, 3)), rng.random((400, 3)), rng.random((400, 3))
    table = {"y_true": y, "y_score": s, "sample_weight": w}
    auc = sm.AUC(num_labels=3, average=None).update(table).compute()
    expected = [sk.roc_auc_score(y[:, i], s[:, i], sample_weight=w[:, i]) for i in range(3)]
    np.testing.assert_allclose(auc, expected, atol=1e-3)
    loss = sm.LogLoss(num_labels=3).update(table).compute()
    np.testing.assert_allclose(
        loss, np.mean([sk.log_loss(y[:, i], s[:, i], sample_weight=w[:, i]) for i in range(3)]), rtol=1e-12
    )
    f1 = sm.F1(num_labels=3, average="micro").update(table).compute()
    np.testing.assert_allclose(f1, sk.f1_score(y.ravel(), s.ravel() >= 0.5, sample_weight=w.ravel()), rtol=1e-12)


def test_weights_of_labels_that_are_none() -> None:
    y, s = np.eye(2), np.full((2, 2), 0.5)
    with pytest.raises(
        sm.InvalidInputError, match=r"sample_weight: expected 0, or a weight.*found -1.0 in row 1, column 0"
    ):
        sm.AUC(num_labels=2).update(y, s, sample_weight=[[1, 2], [-1, 1]])
    with pytest.raises(sm.InvalidInputError, match="for each of its 2 labels, found rows of 3"):
        sm.AUC(num_labels=2).update(y, s, sample_weight=np.ones((2, 3)))
    with pytest.raises(sm.InvalidInputError, match=r"sample_weight: .* dimension, found an array of shape \(2, 2\)"):
        sm.SubsetAccuracy(num_labels=2).update(y, s, sample_weight=np.ones((2, 2)))
    metric = sm.LogLoss(num_labels=2).update(y, s, sample_weight=[[1, 2], [3, 4]])
    before, many = metric.digest(), np.full((1 << 12, 2), 0.5)
    with pytest.raises(sm.CounterOverflowError):
        metric.update(many > 1, many, sample_weight=np.full((1 << 12, 2), 2.0**30))
    assert metric.digest() == before


NAMES = {"word": ("no", "yes"), "bytes": (b"n", b"y"), "sign": (-1, 1), "float": (0.25, 0.75)}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("metric", DECIDED, ids=repr)
def test_decisions_are_called_what_labels_are(metric: Any, names: str) -> None:
    columns, called = rows(metric), np.array(NAMES[names])
    expected = empty_copy(metric).update(columns)
    roles = ("y_true", "y_pred") if "y_pred" in columns else ("y_true",)
    named = columns | {r: called[columns[r].astype(int)] for r in roles}
    for how in ({"labels": NAMES[names]}, {"pos_label": NAMES[names][1]}):
        task = sm.MetricCollection(sm.Task({"m": empty_copy(metric)}, **how)).update(named)
        assert task["m"] == expected
    if named["y_pred"].ndim == 1:
        task = sm.MetricCollection(sm.Task({"m": empty_copy(metric)}, labels=NAMES[names]))
        with pytest.raises(sm.InvalidInputError, match="y_pred"):
            task.update(named | {"y_pred": np.array(["maybe"] * N)})


SOFT = [m for m in draws.VARIANTS if m.settings.get("soft_labels") or m.settings.get("label_smoothing")]


@pytest.mark.parametrize("names", [*NAMES, "turned round"])
@pytest.mark.parametrize("metric", [m for m in SOFT if not m.settings.get("num_classes")], ids=repr)
def test_soft_labels_are_called_what_labels_are(metric: Any, names: str) -> None:
    made = {**NAMES, "turned round": (1, 0)}[names]
    columns = rows(metric)
    hard = np.round(columns["y_true"])
    expected = empty_copy(metric).update(columns | {"y_true": hard})
    named = columns | {"y_true": np.array(made)[hard.astype(int)]}
    for how in ({"labels": made}, {"pos_label": made[1]}):
        for column in (named["y_true"], named["y_true"].tolist(), np.asfortranarray(named["y_true"])):
            task = sm.MetricCollection(sm.Task({"m": empty_copy(metric)}, **how)).update(named | {"y_true": column})
            assert task["m"] == expected
            assert sm.from_bytes(task.to_bytes()) == task


def test_labels_are_named_to_a_task_where_that_helps() -> None:
    texts, s = np.array(["no", "yes"]), [0.2, 0.7]
    said = (
        r"expected a soft label in \[0, 1\], found an array of str.*; convert the strings to numbers, or pass labels="
    )
    with pytest.raises(sm.InvalidInputError, match=f"y_true: {said}"):
        sm.LogLoss(label_smoothing=0.1).update(texts, s)
    task = sm.MetricCollection(sm.Task(sm.LogLoss(label_smoothing=0.1), labels=("no", "yes")))
    with pytest.raises(sm.InvalidInputError, match="y_true: expected 'no' or 'yes', found maybe in row 1"):
        task.update(["no", "maybe"], s)
    with pytest.raises(sm.InvalidInputError, match="y_true: expected 'no' or 'yes', found a column of numbers"):
        task.update([0, 1], s)
    for metric, columns in (
        (sm.MAE(), {"y_true": texts, "y_pred": s}),
        (sm.AUC(), {"y_true": [0, 1], "y_score": texts}),
    ):
        with pytest.raises(sm.InvalidInputError, match=r"convert the strings to numbers$"):
            metric.update(columns)


IGNORING = [
    c for c in sm.extend.METRICS.values() if {"ignore_class", "num_classes"} <= inspect.signature(c).parameters.keys()
]


@pytest.mark.parametrize("known", [{"num_classes": 3}, {"labels": ("a", "b", "c")}, {"labels": (5, 7, 9)}], ids=repr)
@pytest.mark.parametrize("settings", [{}, {"threshold": None}, {"top_k": 2}], ids=repr)
@pytest.mark.parametrize("of", IGNORING, ids=lambda c: c.__name__)
def test_one_hot_rows_of_the_class_that_is_ignored(of: Any, settings: Any, known: Any) -> None:
    names = known.get("labels", (0, 1, 2))
    try:
        metric = of(ignore_class=names[1], **known, **settings)
    except (TypeError, ValueError):
        pytest.skip("no such setting")
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 60)
    scores = np.eye(3, dtype=int)[rng.permutation(y)] if "threshold" in settings else rng.dirichlet(np.ones(3), 60)
    plain, hot = (empty_copy(metric).update(given, scores) for given in (np.array(names)[y], np.eye(3, dtype=int)[y]))
    expect_same_bytes(hot, plain, "one-hot classes to be classes")
    assert int((y == 1).sum()) == sum(dropped_of(plain.state).values())


def test_names_that_float64_cannot_tell_apart() -> None:
    names = (2**53, 2**53 + 1)
    for dtype in (np.int64, np.uint64):
        metric = sm.ConfusionMatrix(labels=names, threshold=None)
        metric.update(np.array([names[1], names[0]], dtype), np.array(names, dtype))
        assert metric.compute().tolist() == [[0, 1], [1, 0]]
    with pytest.raises(sm.InvalidInputError, match="row 1"):
        metric.update(np.array([2**53, 2**63], np.uint64), np.array(names, np.uint64))


@pytest.mark.parametrize("known", [{"num_classes": 3}, {"labels": ("a", "b", "c")}, {"labels": (5, 7, 9)}], ids=repr)
@pytest.mark.parametrize("of", IGNORING, ids=lambda c: c.__name__)
def test_a_class_that_none_can_be_is_not_ignored_in_silence(of: Any, known: Any) -> None:
    other: Any = 1 if isinstance(known.get("labels", (0,))[0], str) else "b"
    with pytest.raises(
        ValueError, match=f"{of.__name__}: ignore_class={other!r} must be of the same kind as the classes"
    ):
        of(ignore_class=other, **known)


@pytest.mark.parametrize("of", [c for c in IGNORING if "max_labels" in inspect.signature(c).parameters])
@pytest.mark.parametrize(("other", "rows"), [("b", [0, 1, 1]), (1, ["a", "b", "b"]), (1, [b"a", b"b", b"b"])], ids=repr)
def test_nor_where_the_rows_tell_which_there_are(of: Any, other: Any, rows: Any) -> None:
    metric = of(labels="discover", ignore_class=other).update([], [])
    before = metric.digest()
    with pytest.raises(sm.InvalidInputError, match=f"y_true: .* of kind .*, but ignore_class={other!r} is not"):
        metric.update(rows, rows)
    assert metric.digest() == before


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_matrices_are_frames_of_any_library(frame: Any) -> None:
    hot, scores = {"a": [1, 0, 0], "b": [0, 1, 1]}, {"a": [0.9, 0.2, 0.6], "b": [0.1, 0.8, 0.4]}
    weights = {"a": [1.0, 0.5, 2.0], "b": [0.25, 1.0, 1.0]}
    plain = [np.column_stack([*columns.values()]) for columns in (hot, scores, weights)]
    wanted = sm.LogLoss(num_classes=2).update(plain[0], plain[1])
    assert sm.LogLoss(num_classes=2).update(y_true=frame(hot), y_score=frame(scores)) == wanted
    wanted = sm.F1(num_labels=2).update(plain[0], plain[1], sample_weight=plain[2])
    made = sm.F1(num_labels=2).update(y_true=frame(hot), y_score=frame(scores), sample_weight=frame(weights))
    assert made == wanted
