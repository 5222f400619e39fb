"""XGBoost with our metrics: its own values, those of scikit-learn, weights, margins, classes, rankings, early stopping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("xgboost")

import xgboost as xgb
from draws import OWN, usual
from hooks.boosted import binary, classes, ranked, sigmoid
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.hooks.xgboost import BUILTIN_NAMES, build_name, custom_metric, eval_metric
from streammetrics.reading.about import best_of

QUIET = {"nthread": 1, "seed": 0, "verbosity": 0}


def trained(params: dict[str, Any], metric: Any, rows: Any, rounds: int = 5, **more: Any) -> tuple[Any, Any]:
    log: dict[str, Any] = {}
    booster = xgb.train(
        QUIET | params, rows, rounds, evals=[(rows, "rows")], custom_metric=metric, evals_result=log, verbose_eval=False,
        **more,
    )  # fmt: skip
    return booster, log["rows"]


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_xgboost_and_scikit_learn(weighted: bool) -> None:
    x, y, w = binary()
    rows = xgb.DMatrix(x, y, weight=w if weighted else None)
    named = {"our_auc": sm.AUC(), "log_loss": sm.LogLoss(), "average_precision": sm.AveragePrecision()}
    metric = custom_metric(sm.MetricCollection(named), link="probability")
    booster, log = trained({"objective": "binary:logistic", "eval_metric": ["auc", "logloss"]}, metric, rows)
    np.testing.assert_allclose(log["map_sm_our_auc"], log["auc"], atol=1e-5)
    np.testing.assert_allclose(log["log_loss"], log["logloss"], atol=1e-5)
    scores = booster.predict(rows)
    found, by = dict(metric(scores, rows)), {"sample_weight": w if weighted else None}
    assert found["map_sm_our_auc"] == pytest.approx(sk.roc_auc_score(y, scores, **by), abs=1e-12)
    assert found["log_loss"] == pytest.approx(sk.log_loss(y, scores.astype(np.float64), **by), rel=1e-6)
    assert found["map_sm_average_precision"] == pytest.approx(sk.average_precision_score(y, scores, **by), abs=1e-12)


def test_margins_of_logitraw_and_of_an_objective_of_ones_own() -> None:
    x, y, _ = binary()
    rows = xgb.DMatrix(x, y)

    def logistic(margin: Any, data: Any) -> Any:
        p = sigmoid(margin)
        return p - data.get_label(), p * (1 - p)

    for scale in ("probability", "logit"):
        metric = custom_metric(sm.MetricCollection({"loss": sm.LogLoss(scale=scale)}), link="logit")
        booster, log = trained({"objective": "binary:logitraw"}, metric, rows)
        want = sk.log_loss(y, sigmoid(booster.predict(rows, output_margin=True)))
        assert log["loss"][-1] == pytest.approx(want, abs=1e-6)
        own = {"base_score": 0.0, "disable_default_eval_metric": True}
        booster, log = trained(own, metric, rows, obj=logistic)
        assert log["loss"][-1] == pytest.approx(
            sk.log_loss(y, sigmoid(booster.predict(rows, output_margin=True))), abs=1e-6
        )


def test_margins_taken_for_probabilities_raise() -> None:
    x, y, _ = binary(200)
    rows = xgb.DMatrix(x, y)
    with pytest.raises(sm.InvalidInputError, match="y_score: expected a probability"):
        trained({"objective": "binary:logitraw"}, custom_metric(sm.AUC(), link="probability"), rows)


def test_classes() -> None:
    x, y, w = classes()
    rows = xgb.DMatrix(x, y, weight=w)
    several = sm.MetricCollection({"loss": sm.LogLoss(num_classes=3), "accuracy": sm.Accuracy(num_classes=3)})
    params = {"objective": "multi:softprob", "num_class": 3, "eval_metric": ["mlogloss", "merror"]}
    booster, log = trained(params, custom_metric(several, link="probability"), rows)
    np.testing.assert_allclose(log["loss"], log["mlogloss"], atol=1e-5)
    np.testing.assert_allclose(log["map_sm_accuracy"], 1 - np.array(log["merror"]), atol=1e-5)
    p = booster.predict(rows).astype(np.float64)
    assert log["loss"][-1] == pytest.approx(sk.log_loss(y, p / p.sum(axis=1)[:, None], sample_weight=w), abs=1e-6)
    hard = custom_metric(sm.ErrorRate(num_classes=3, threshold=None), link="identity")
    _, log = trained(params | {"objective": "multi:softmax"}, hard, rows)
    np.testing.assert_allclose(log["error_rate"], log["merror"], atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_rankings_read_the_queries(weighted: bool) -> None:
    x, y, sizes = ranked()
    weights = np.arange(1, len(sizes) + 1) / 4
    rows = xgb.DMatrix(x, y)
    rows.set_group(sizes)
    if weighted:  # of queries, not of rows
        rows.set_weight(weights)
    params = {"objective": "rank:ndcg", "eval_metric": "ndcg@5", "ndcg_exp_gain": False}
    metric = custom_metric(sm.MetricCollection({"ours": sm.NDCG(k=5)}), link="identity")
    booster, log = trained(params, metric, rows)
    scores, cuts = booster.predict(rows), np.split(np.arange(len(y)), np.cumsum(sizes)[:-1])
    each = [sk.ndcg_score(y[None, c], scores[None, c], k=5) for c in cuts]
    assert log["map_sm_ours"][-1] == pytest.approx(np.average(each, weights=weights if weighted else None), abs=1e-6)
    with pytest.raises(ValueError, match="has no query groups"):
        metric(scores, xgb.DMatrix(x, y))


def test_early_stopping_by_our_metric() -> None:
    x, y, _ = binary(600)
    train, valid = xgb.DMatrix(x[:300], y[:300]), xgb.DMatrix(x[300:], y[300:])
    metric, log = custom_metric(sm.MetricCollection({"gini": sm.Gini()}), link="probability"), {}
    booster = xgb.train(
        QUIET | {"objective": "binary:logistic", "max_depth": 6},
        train,
        200,
        evals=[(valid, "valid")],
        custom_metric=metric,
        early_stopping_rounds=5,
        evals_result=log,
        verbose_eval=False,
    )
    gini = log["valid"]["map_sm_gini"]
    assert metric.maximize is True
    assert len(gini) < 200
    assert booster.best_iteration == int(np.argmax(gini)) == len(gini) - 6


def test_cross_validation() -> None:
    x, y, _ = binary()
    metric = custom_metric(sm.MetricCollection({"ours": sm.AUC()}), link="probability")
    params = QUIET | {"objective": "binary:logistic", "eval_metric": "auc"}
    found = xgb.cv(params, xgb.DMatrix(x, y), 3, nfold=3, custom_metric=metric, as_pandas=False)
    np.testing.assert_allclose(found["test-map_sm_ours-mean"], found["test-auc-mean"], atol=1e-5)


def test_the_estimators() -> None:
    x, y, w = binary()
    auc = eval_metric(sm.AUC(), link="probability")
    model = xgb.XGBClassifier(n_estimators=100, n_jobs=1, eval_metric=auc, early_stopping_rounds=5)
    model.fit(x[:700], y[:700], eval_set=[(x[700:], y[700:])], sample_weight_eval_set=[w[700:]], verbose=False)
    values = model.evals_result()["validation_0"]["auc_sm"]
    assert model.best_iteration == int(np.argmax(values)) == len(values) - 6
    scores = model.predict_proba(x[700:])[:, 1]
    want = sk.roc_auc_score(y[700:], scores, sample_weight=w[700:])
    assert values[model.best_iteration] == pytest.approx(want, abs=1e-6)


def test_the_metrics_given_count_nothing_and_errors_come_before_training() -> None:
    x, y, _ = binary(100)
    auc = sm.AUC().update([0, 1], [0.2, 0.1])
    before = auc.digest()
    trained({"objective": "binary:logistic"}, custom_metric(auc, link="probability"), xgb.DMatrix(x, y))
    assert auc.digest() == before
    with pytest.raises(TypeError, match="link"):
        custom_metric(auc)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="reads group"):
        custom_metric(sm.GroupAUC(), link="probability")
    with pytest.raises(ValueError, match="takes one value"):
        eval_metric(sm.MetricCollection(sm.AUC(), sm.LogLoss()), link="probability")


DIRECTED = {tag: best_of(usual(tag)) == "high" for tag in sorted(OWN) if best_of(usual(tag)) in ("high", "low")}


def stopped_at(rows: Any, valid: Any, metric: Any, **how: Any) -> int:
    params = QUIET | {"objective": "binary:logistic", "max_depth": 2, "learning_rate": 0.5}
    return int(
        xgb.train(
            params, rows, 20, evals=[(valid, "valid")], custom_metric=metric, early_stopping_rounds=2, verbose_eval=False,
            **how,
        ).best_iteration
    )  # fmt: skip


@pytest.mark.slow
def test_training_stops_as_with_an_explicit_maximize_by_every_metric_that_has_a_direction() -> None:
    x, y, _ = binary(400)
    rows, valid = (xgb.DMatrix(x[part], y[part], qid=np.arange(200) // 10) for part in (slice(200), slice(200, 400)))
    run, best = [], set()
    for tag, is_high in DIRECTED.items():
        for link in ("probability", "identity"):
            try:
                metric = custom_metric(usual(tag), link=link)
                metric(np.full(200, 0.5), valid)
            except (ValueError, sm.InvalidInputError):
                continue  # it reads other columns, or has no single number
            assert metric.maximize == is_high
            at = stopped_at(rows, valid, metric)
            assert at == stopped_at(rows, valid, metric, maximize=is_high), tag
            run.append(tag)
            best.add((is_high, at))
            break
    assert len(run) > 100
    assert len(best) > 8, "the rounds hardly differ"


def test_xgboost_infers_the_direction_of_every_metric_from_its_name() -> None:
    """Of all metrics, also those that a DMatrix has no columns for: by values that rise, then fall."""
    rows = xgb.DMatrix(np.zeros((2, 1)), [0, 1])
    for is_high in (False, True):
        names = [usual(tag).name for tag, high in DIRECTED.items() if high == is_high]
        for name in [*names, *BUILTIN_NAMES, "mape", "maple", "ndcg@5", "ctr/auc"]:
            values, reported = iter([1, 2, 3, 2, 1, 0, -1, -2]), build_name(name, is_high)
            at = stopped_at(rows, rows, lambda p, d, values=values, reported=reported: (reported, next(values)))
            assert at == (2 if is_high else 0), reported
            assert reported.partition("@")[0] not in BUILTIN_NAMES
            assert build_name(reported, is_high) == reported


def test_our_metric_beside_a_built_in_one_of_its_name() -> None:
    x, y, _ = binary(300)
    params = {"objective": "binary:logistic", "eval_metric": ["auc", "logloss"]}
    both = custom_metric(sm.MetricCollection({"auc": sm.AUC(), "logloss": sm.LogLoss()}), link="probability")
    _, log = trained(params, both, xgb.DMatrix(x, y), rounds=6)
    assert {name: len(values) for name, values in log.items()} == {"auc": 6, "logloss": 6, "auc_sm": 6, "logloss_sm": 6}
    assert both.maximize is False


def test_names_and_directions_of_ones_own() -> None:
    assert eval_metric(sm.Gini(), link="probability", name="auc_gini").__name__ == "auc_gini"
    for metric, name, better in (
        (sm.Gini(), "gini", "map_sm_gini"),
        (sm.AUC(), "auc", "auc_sm"),
        (sm.LogLoss(), "auc_loss", "sm_auc_loss"),
        (sm.LogLoss(), "logloss", "logloss_sm"),
    ):
        with pytest.raises(ValueError, match=f"use for example name='{better}'"):
            custom_metric(metric, link="probability", name=name)
    with pytest.raises(ValueError, match="name= names one value"):
        custom_metric(sm.MetricCollection(sm.AUC(), sm.LogLoss()), link="probability", name="auc_ours")
    with pytest.raises(ValueError, match="calibration: early stopping must know whether high or low"):
        custom_metric(sm.Calibration(), link="probability")
    assert eval_metric(sm.Calibration(), link="probability", maximize=True).__name__ == "map_sm_calibration"
