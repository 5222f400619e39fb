"""LightGBM with our metrics: its own values, those of scikit-learn, weights, raw scores, classes, rankings, stopping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm")

import lightgbm as lgb
from hooks.boosted import binary, classes, ranked, sigmoid, softmax
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.hooks.lightgbm import eval_metric, feval

QUIET = {"num_threads": 1, "seed": 0, "verbose": -1}


def trained(params: dict[str, Any], metric: Any, rows: Any, rounds: int = 5) -> tuple[Any, Any]:
    log: dict[str, Any] = {}
    keep = [lgb.record_evaluation(log)]
    booster = lgb.train(QUIET | params, rows, rounds, valid_sets=[rows], feval=metric, callbacks=keep)
    return booster, log["training"]


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_lightgbm_and_scikit_learn(weighted: bool) -> None:
    x, y, w = binary()
    rows = lgb.Dataset(x, y, weight=w if weighted else None)
    named = {"our_auc": sm.AUC(), "our_loss": sm.LogLoss(), "our_ap": sm.AveragePrecision()}
    metric = feval(sm.MetricCollection(named), link="probability")
    params = {"objective": "binary", "metric": ["auc", "binary_logloss", "average_precision"]}
    booster, log = trained(params, metric, rows)
    np.testing.assert_allclose(log["our_auc"], log["auc"], atol=1e-12)
    np.testing.assert_allclose(log["our_loss"], log["binary_logloss"], rtol=1e-9)
    by, scores = {"sample_weight": w if weighted else None}, booster.predict(x)
    assert log["our_auc"][-1] == pytest.approx(sk.roc_auc_score(y, scores, **by), abs=1e-12)
    assert log["our_loss"][-1] == pytest.approx(sk.log_loss(y, scores, **by), rel=1e-12)
    assert log["our_ap"][-1] == pytest.approx(sk.average_precision_score(y, scores, **by), abs=1e-12)


def test_raw_scores_of_an_objective_of_ones_own() -> None:
    x, y, _ = binary()
    rows = lgb.Dataset(x, y)

    def logistic(scores: Any, data: Any) -> Any:
        p = sigmoid(scores)
        return p - data.get_label(), p * (1 - p)

    for scale in ("probability", "logit"):
        loss = feval(sm.MetricCollection({"ours": sm.LogLoss(scale=scale)}), link="logit")
        booster, log = trained({"objective": logistic, "metric": "None"}, loss, rows)
        assert log["ours"][-1] == pytest.approx(sk.log_loss(y, sigmoid(booster.predict(x, raw_score=True))), rel=1e-9)
    with pytest.raises(sm.InvalidInputError, match="y_score: expected a probability"):
        trained({"objective": logistic, "metric": "None"}, feval(sm.AUC(), link="probability"), rows)


def test_classes() -> None:
    x, y, w = classes()
    rows = lgb.Dataset(x, y, weight=w)
    several = {"loss": sm.LogLoss(num_classes=3), "error": sm.ErrorRate(num_classes=3), "auc": sm.AUC(num_classes=3)}
    params = {"objective": "multiclass", "num_class": 3, "metric": ["multi_logloss", "multi_error"]}
    booster, log = trained(params, feval(sm.MetricCollection(several), link="probability"), rows)
    np.testing.assert_allclose(log["loss"], log["multi_logloss"], rtol=1e-9)
    np.testing.assert_allclose(log["error"], log["multi_error"], atol=1e-12)
    want = sk.roc_auc_score(y, booster.predict(x), sample_weight=w, multi_class="ovr", average="macro")
    assert log["auc_sm"][-1] == pytest.approx(want, abs=1e-9)


def test_classes_of_an_objective_of_ones_own_and_in_one_column() -> None:
    x, y, _ = classes()

    def cross_entropy(scores: Any, data: Any) -> Any:
        p = softmax(scores)
        return p - np.eye(3)[data.get_label().astype(int)], 2 * p * (1 - p)

    params = {"objective": cross_entropy, "num_class": 3, "metric": "None"}
    rows = lgb.Dataset(x, y)
    loss = feval(sm.LogLoss(num_classes=3), link="logit")
    booster, log = trained(params, loss, rows)
    raw = booster.predict(x, raw_score=True)
    assert log["log_loss"][-1] == pytest.approx(sk.log_loss(y, softmax(raw)), rel=1e-9)
    assert loss(raw.ravel(order="F"), rows) == loss(raw, rows)


@pytest.mark.parametrize("weighted", [False, True])
def test_rankings_read_the_groups(weighted: bool) -> None:
    x, y, sizes = ranked()
    weights = np.repeat(np.arange(1, len(sizes) + 1) / 4, sizes)  # of rows, those of a query alike
    rows = lgb.Dataset(x, y, group=sizes, weight=weights if weighted else None)
    params = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [5]}
    ours = {"ours": sm.NDCG(k=5, gain="exponential", ties="order", empty=1.0), "averaged": sm.NDCG(k=5)}
    booster, log = trained(params, feval(sm.MetricCollection(ours), link="identity"), rows)
    np.testing.assert_allclose(log["ours"], log["ndcg@5"], rtol=1e-9)
    scores, cuts = booster.predict(x), np.split(np.arange(len(y)), np.cumsum(sizes)[:-1])
    each = [sk.ndcg_score(y[None, c], scores[None, c], k=5) for c in cuts]
    by = [weights[c[0]] for c in cuts] if weighted else None
    assert log["averaged"][-1] == pytest.approx(np.average(each, weights=by), rel=1e-9)


def test_early_stopping_goes_by_what_is_best() -> None:
    x, y, _ = binary(600)
    train = lgb.Dataset(x[:300], y[:300])
    for metric in (sm.Gini(), sm.NormalizedEntropy()):
        log: dict[str, Any] = {}
        booster = lgb.train(
            QUIET | {"objective": "binary", "metric": "None"},
            train,
            200,
            valid_sets=[train.create_valid(x[300:], y[300:])],
            feval=feval(metric, link="probability"),
            callbacks=[lgb.early_stopping(5, verbose=False), lgb.record_evaluation(log)],
        )
        values = log["valid_0"][metric.name]
        best = np.argmax(values) if metric.about.best == "high" else np.argmin(values)
        assert len(values) < 200
        assert booster.best_iteration - 1 == best == len(values) - 6


def test_a_value_of_which_nobody_knows_whether_higher_is_better() -> None:
    with pytest.raises(ValueError, match="calibration: early stopping must know whether high or low"):
        feval(sm.MetricCollection(sm.AUC(), sm.Calibration()), link="probability")
    x, y, _ = binary(200)
    both = feval(sm.MetricCollection(sm.AUC(), sm.Calibration()), link="probability", maximize=False)
    assert [r[2] for r in both(np.full(200, 0.5), lgb.Dataset(x, y).construct())] == [True, False]


def test_our_metric_beside_a_built_in_one_of_its_name() -> None:
    x, y, _ = binary(200)
    log: dict[str, Any]
    for name, reported in ((None, "auc_sm"), ("ours", "ours")):
        metric = feval(sm.AUC(), link="probability", name=name)
        _, log = trained({"objective": "binary", "metric": "auc"}, metric, lgb.Dataset(x, y), rounds=6)
        assert {name: len(values) for name, values in log.items()} == {"auc": 6, reported: 6}
    with pytest.raises(ValueError, match="use for example name='auc_sm'"):
        feval(sm.Gini(), link="probability", name="auc")


def test_the_estimators() -> None:
    x, y, w = binary()
    ours = eval_metric(sm.MetricCollection({"ours": sm.AUC()}), link="probability")
    model = lgb.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1, metric="auc")
    model.fit(x[:700], y[:700], eval_X=x[700:], eval_y=y[700:], eval_sample_weight=[w[700:]], eval_metric=ours)
    values = model.evals_result_["valid_0"]
    np.testing.assert_allclose(values["ours"], values["auc"], atol=1e-3)  # of raw scores: fewer ties, by an ulp
    want = sk.roc_auc_score(y[700:], model.predict_proba(x[700:])[:, 1], sample_weight=w[700:])
    assert values["ours"][-1] == pytest.approx(want, abs=1e-12)
    x, y, sizes = ranked()
    ranker = lgb.LGBMRanker(n_estimators=5, n_jobs=1, verbose=-1, metric="None")
    ndcg = eval_metric(sm.NDCG(k=5), link="identity")
    ranker.fit(x, y, group=sizes, eval_X=x, eval_y=y, eval_group=[sizes], eval_metric=ndcg)
    query = np.repeat(np.arange(len(sizes)), sizes)
    want = sm.NDCG(k=5).update(y, ranker.predict(x), query=query).compute()
    assert [values["ndcg_sm@5"][-1] for values in ranker.evals_result_.values()] == [want]
