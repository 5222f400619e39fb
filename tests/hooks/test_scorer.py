"""What a model hands over, as metrics read it: links, shapes, classes; and what is refused before a row is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.hooks.scorer import LINKS, Scorer, find_directions

Z = np.random.default_rng(0).normal(0, 3, 400)
Y = (np.random.default_rng(1).random(400) < 1 / (1 + np.exp(-Z))).astype(int)
P = 1 / (1 + np.exp(-Z))


def value(metric: Any, link: str, y: Any, scores: Any, **more: Any) -> float:
    scorer = Scorer(metric, link)
    scorer.update(y, scores, **more)
    assert scorer.names == list(scorer.values())
    return scorer.values()[metric.name]


def test_logits_become_what_the_metrics_read() -> None:
    want = sk.log_loss(Y, P)
    assert value(sm.LogLoss(), "logit", Y, Z) == pytest.approx(want, rel=1e-12)
    assert value(sm.LogLoss(scale="logit"), "logit", Y, Z) == pytest.approx(want, rel=1e-12)
    assert value(sm.LogLoss(scale="logit"), "identity", Y, Z) == pytest.approx(want, rel=1e-12)
    assert value(sm.LogLoss(), "probability", Y, P) == pytest.approx(want, rel=1e-12)
    assert value(sm.F1(threshold=0.5), "logit", Y, Z) == pytest.approx(sk.f1_score(Y, Z >= 0), abs=1e-12)
    assert value(sm.AUC(), "logit", Y, Z.astype(np.float32)) == pytest.approx(sk.roc_auc_score(Y, Z), abs=1e-12)


def test_huge_logits_are_probabilities() -> None:
    scorer = Scorer(sm.MetricCollection(sm.AUC(), sm.BrierScore()), "logit")
    scorer.update([0, 1], np.array([-1e30, 1e30]))
    assert scorer.values() == {"auc": 1.0, "brier_score": 0.0}


def test_two_columns_of_one_label_and_columns_of_one() -> None:
    pair = np.stack([np.zeros(400), Z], axis=1)
    for link, scores in {"logit": pair, "probability": np.stack([1 - P, P], axis=1)}.items():
        assert value(sm.LogLoss(), link, Y[:, None], scores) == pytest.approx(sk.log_loss(Y, P), rel=1e-12)
    assert value(sm.LogLoss(scale="logit"), "logit", Y, pair) == pytest.approx(sk.log_loss(Y, P), rel=1e-12)
    assert value(sm.LogLoss(), "logit", Y[:, None], Z[:, None]) == pytest.approx(sk.log_loss(Y, P), rel=1e-12)


def test_classes_and_labels() -> None:
    z = np.random.default_rng(2).normal(0, 200, (400, 3))
    y, each = Y + (Z > 2), np.stack([Y, 1 - Y, Y], axis=1)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    want = sk.brier_score_loss(y, p, labels=[0, 1, 2], scale_by_half=False)
    for dtype in (np.int64, np.float32):
        assert value(sm.BrierScore(num_classes=3), "logit", y.astype(dtype), z) == pytest.approx(want, rel=1e-9)
        assert value(sm.BrierScore(labels=(0, 1, 2)), "logit", y.astype(dtype), z) == pytest.approx(want, rel=1e-9)
    assert value(sm.AUC(num_labels=3), "logit", each, z) == pytest.approx(sk.roc_auc_score(each, z), abs=1e-2)
    decided = sm.Accuracy(labels=(0, 1, 2), threshold=None)
    assert value(decided, "identity", y.astype(np.float32), y.astype(np.float32)) == 1.0


def test_conversions_have_the_bits_of_every_machine() -> None:
    """Frozen: numpy's own exp and sums differ between processors."""
    z = (np.arange(60).reshape(10, 6) * 37 % 64 - 32) / 8
    classes, labels = sm.BrierScore(num_classes=6), sm.BrierScore(num_labels=6)
    Scorer(classes, "logit").update(np.arange(10) % 6, z)
    Scorer(labels, "logit").update(np.arange(60).reshape(10, 6) % 2, z)
    assert [metric.digest()[:16] for metric in (classes, labels)] == ["6eb5517fac9030bc", "73645894b172a42b"]


def test_logarithms_of_means() -> None:
    y = np.random.default_rng(3).poisson(np.exp(Z / 3))
    want = sk.mean_poisson_deviance(y, np.exp(Z / 3))
    assert value(sm.PoissonDeviance(), "log", y, Z / 3) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("link", LINKS)
def test_empty_batches(link: str) -> None:
    scorer = Scorer(sm.AUC(scale="real"), link)
    scorer.update(np.zeros(0), np.zeros(0))
    assert np.isnan(scorer.values()["auc"])


def test_what_does_not_fit_is_refused() -> None:
    mixed = sm.MetricCollection(sm.AUC(), sm.LogLoss(scale="logit"))
    for metric, link, said in [
        (sm.AUC(), "sigmoid", "one of probability, logit, log, identity"),
        (sm.LogLoss(scale="logit"), "probability", "reads logits"),
        (mixed, "logit", "set the same scale= in all metrics"),
        (sm.GroupAUC(), "probability", "reads group, but receives only y_score, y_true and sample_weight"),
        (sm.Accuracy(num_classes=3, threshold=None), "logit", "reads decisions"),
        (sm.Quantile(), "identity", "reads value"),
        (sm.MetricCollection(sm.Task([sm.AUC()], y_true="click")), "probability", "reads click"),
    ]:
        with pytest.raises(ValueError, match=said):
            Scorer(metric, link)
    for thing in (sm.AUC, [sm.AUC()]):
        with pytest.raises(TypeError, match="expected a metric"):
            Scorer(thing, "logit")  # type: ignore[arg-type]


def test_a_bad_batch_counts_nothing() -> None:
    metric = sm.LogLoss()
    with pytest.raises(sm.InvalidInputError, match="found nan in row 1"):
        Scorer(metric, "logit").update([0, 1], np.array([0.5, np.nan]))
    with pytest.raises(sm.InvalidInputError, match="y_true"):
        Scorer(metric, "logit").update([0, 2], np.array([0.5, 0.5]))
    assert metric.state.facts()["rows"] == 0


def test_what_is_given_stays_as_it_is() -> None:
    z = Z.copy()
    z.flags.writeable = False
    value(sm.LogLoss(), "logit", Y, z)
    assert (z == Z).all()


def test_directions() -> None:
    several = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Calibration())
    assert find_directions(several) == {"auc": True, "log_loss": False, "calibration": None}
    assert find_directions(several, False) == {"auc": True, "log_loss": False, "calibration": False}
    assert find_directions(sm.AUC()) == {"auc": True}
