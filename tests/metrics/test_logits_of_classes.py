"""Logits: of classes the softmax of the row stands for them, of labels the sigmoid of each column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.format import frame
from streammetrics.laws.case import value_of
from streammetrics.metrics.curves.scored_metric import ScoredMetric

RNG = np.random.default_rng(0)
N = 300
Y = RNG.integers(0, 3, N)
Z = RNG.normal(0, 1, (N, 3)) + 1.5 * np.eye(3)[Y]
MOVED = Z + RNG.normal(0, 20, (N, 1))
P = special.softmax(Z, axis=1)


def on_classes() -> list[Any]:
    """Every metric that ranks rows of classes by their scores, but the one that reads probabilities alone."""
    ranking = [c for c in sm.extend.METRICS.values() if issubclass(c, ScoredMetric) and c is not sm.ThresholdedAUC]
    return [c for c in ranking if {"num_classes", "scale"} <= c(**c.about.example).settings.keys()]


@pytest.mark.parametrize("cls", on_classes(), ids=lambda cls: cls.about.tag)
def test_every_metric_ranks_by_the_softmax(cls: Any) -> None:
    kinds = (
        {"num_classes": 3, "average": None} if "average" in cls(**cls.about.example).settings else {"num_classes": 3}
    )
    wanted = cls(**kinds).update(Y, P)
    for logits in (Z, MOVED):
        found = cls(scale="logit", **kinds).update(Y, logits)
        if isinstance(value_of(found), np.ndarray):
            np.testing.assert_allclose(value_of(found), value_of(wanted), rtol=1e-12)
        else:  # curves, whose thresholds are logits
            curves, others = found.compute(), wanted.compute()
            for curve, other in zip(curves, others, strict=True):
                np.testing.assert_allclose(curve[0], other[0], rtol=1e-12)
                np.testing.assert_allclose(curve[1], other[1], rtol=1e-12)


@pytest.mark.parametrize("logits", [Z, MOVED], ids=["plain", "moved"])
@pytest.mark.parametrize("names", [None, ("a", "b", "c")], ids=str)
def test_as_scikit_learn(logits: Any, names: Any) -> None:
    which = {"num_classes": 3} if names is None else {"labels": names}
    y = Y if names is None else np.array(names)[Y]
    for settings in ({}, {"exact": True}, {"bits": 20, "limit": 0}):
        auc = sm.AUC(scale="logit", **which, **settings).update(y, logits)
        assert auc.compute() == pytest.approx(sk.roc_auc_score(Y, P, multi_class="ovr"), abs=1e-5)
        sliced = sm.Sliced(sm.AUC(scale="logit", **which, **settings), by="k").update(y, logits, k=Y)
        assert sliced.total.compute() == auc.compute()
    pairs = sm.AUC(scale="logit", multi_class="ovo", exact=True, **which).update(y, logits)
    assert pairs.compute() == pytest.approx(sk.roc_auc_score(Y, P, multi_class="ovo"), abs=1e-12)
    precision = sm.AveragePrecision(scale="logit", **which).update(y, logits)
    assert precision.compute() == pytest.approx(sk.average_precision_score(np.eye(3)[Y], P), abs=1e-12)


def test_one_collection_has_one_meaning() -> None:
    settings = {"num_classes": 3, "scale": "logit"}
    made = [sm.MetricCollection(sm.LogLoss(**settings), sm.AUC(**settings)).update(Y, z).compute() for z in (Z, MOVED)]
    assert made[0]["log_loss"] == pytest.approx(sk.log_loss(Y, P))
    assert made[0] == {name: pytest.approx(value, rel=1e-12) for name, value in made[1].items()}


def test_sure_models_are_told_apart_where_their_softmax_is_not() -> None:
    """Of 0 and 1 the softmax in float64 knows one value; the log-odds rank rows as real numbers would."""
    margin = np.arange(40.0, 240.0)
    logits = np.column_stack([margin, np.zeros(200), np.full(200, -1.0)])
    y = np.where(margin > 140, 0, 1)
    assert (special.softmax(logits, axis=1)[:, 0] == 1).sum() > 190
    each = sm.AUC(num_classes=3, scale="logit", average=None).update(y, logits).compute()
    assert each[:2].tolist() == [1.0, 1.0]


def test_labels_have_each_its_own_sigmoid() -> None:
    labels = np.eye(3, dtype=int)[Y]
    for logits in (Z, MOVED):
        found = sm.AUC(num_labels=3, scale="logit").update(labels, logits).compute()
        assert found == pytest.approx(sk.roc_auc_score(labels, special.expit(logits / 8)), abs=1e-12)
        loss = sm.LogLoss(num_labels=3, scale="logit").update(labels, Z).compute()
        assert loss == pytest.approx(sk.log_loss(labels.ravel(), special.expit(Z).ravel()))


def test_states_of_both_meanings_do_not_merge() -> None:
    settings = {"scale": "logit", "num_classes": 3}
    new = sm.AUC(**settings).make_state()
    old = type(new)(**(new.settings | {"softmax": False}))
    assert new.softmax
    with pytest.raises(sm.IncompatibleStateError, match="softmax"):
        new.empty_copy().merge(old.empty_copy())
    assert not sm.AUC(num_labels=3, scale="logit").make_state().softmax
    saved = frame.write_frame([old.empty_copy()], definition_of(sm.AUC(**settings)).header())
    with pytest.raises(sm.StateFormatError, match="do not match the states: softmax is True here and False there"):
        sm.from_bytes(saved)
