"""CatBoost with our metrics: its own values, those of scikit-learn, weights, raw scores, classes, early stopping."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

pytest.importorskip("catboost")

import catboost as cb
from hooks.boosted import binary, classes, sigmoid, softmax
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.hooks.catboost import eval_metric

QUIET = {"thread_count": 1, "random_seed": 0, "verbose": 0, "allow_writing_files": False, "iterations": 5}


def trained(params: dict[str, Any], metric: Any, rows: Any, **more: Any) -> tuple[Any, Any]:
    model = cb.CatBoost(QUIET | params | {"eval_metric": metric})
    model.fit(rows, eval_set=rows, **more)
    return model, model.get_evals_result()["validation"]


def own(log: Any, name: str) -> Any:
    """The values of CatBoost's own metric, whatever settings it was written with."""
    return next(values for written, values in log.items() if written.partition(":")[0] == name)


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_catboost_and_scikit_learn(weighted: bool) -> None:
    x, y, w = binary()
    rows = cb.Pool(x, y, weight=w if weighted else None)
    by = {"sample_weight": w if weighted else None}
    for scale in ("probability", "logit"):
        loss = eval_metric(sm.LogLoss(scale=scale), link="logit")
        model, log = trained({"loss_function": "Logloss"}, loss, rows)
        np.testing.assert_allclose(log["log_loss"], log["Logloss"], rtol=1e-9)
        raw = model.predict(rows, prediction_type="RawFormulaVal")
        assert log["log_loss"][-1] == pytest.approx(sk.log_loss(y, sigmoid(raw), **by), rel=1e-9)
    params = {
        "loss_function": "Logloss",
        "custom_metric": f"AUC:hints=skip_train~false{';use_weights=true' * weighted}",
    }
    model, log = trained(params, eval_metric(sm.AUC(), link="logit"), rows)
    np.testing.assert_allclose(log["auc"], own(log, "AUC"), atol=1e-9)
    raw = model.predict(rows, prediction_type="RawFormulaVal")
    assert log["auc"][-1] == pytest.approx(sk.roc_auc_score(y, raw, **by), abs=1e-12)


def test_classes() -> None:
    x, y, w = classes()
    rows = cb.Pool(x, y, weight=w)
    params = {"loss_function": "MultiClass", "custom_metric": "Accuracy"}
    model, log = trained(params, eval_metric(sm.LogLoss(num_classes=3), link="logit"), rows)
    np.testing.assert_allclose(log["log_loss"], log["MultiClass"], rtol=1e-9)
    raw = model.predict(rows, prediction_type="RawFormulaVal")
    assert log["log_loss"][-1] == pytest.approx(sk.log_loss(y, softmax(raw), sample_weight=w), rel=1e-9)
    model, log = trained(params, eval_metric(sm.Accuracy(num_classes=3), link="logit"), rows)
    np.testing.assert_allclose(log["accuracy"], own(log, "Accuracy"), atol=1e-12)


def test_counts_by_their_logarithm() -> None:
    x, _, w = binary()
    y = np.random.default_rng(1).poisson(np.exp(x[:, 0]))
    rows = cb.Pool(x, y, weight=w)
    model, log = trained({"loss_function": "Poisson"}, eval_metric(sm.PoissonDeviance(), link="log"), rows)
    mean = np.exp(model.predict(rows, prediction_type="RawFormulaVal"))
    assert log["poisson_deviance"][-1] == pytest.approx(sk.mean_poisson_deviance(y, mean, sample_weight=w), rel=1e-9)


def test_early_stopping_goes_by_what_is_best() -> None:
    x, y, _ = binary(600)
    train, valid = cb.Pool(x[:300], y[:300]), cb.Pool(x[300:], y[300:])
    for metric in (sm.Gini(), sm.NormalizedEntropy()):
        ours = eval_metric(metric, link="logit")
        model = cb.CatBoost(QUIET | {"loss_function": "Logloss", "eval_metric": ours, "iterations": 300})
        model.fit(train, eval_set=valid, early_stopping_rounds=5)
        values = model.get_evals_result()["validation"][metric.name]
        best = np.argmax(values) if metric.about.best == "high" else np.argmin(values)
        assert len(values) < 300
        assert model.get_best_iteration() == best == len(values) - 6


def test_models_with_our_metric_are_pickled_and_cloned() -> None:
    x, y, _ = binary(200)
    ours = eval_metric(sm.AUC(), link="logit")
    model = cb.CatBoostClassifier(**QUIET | {"eval_metric": ours}).fit(x, y)
    again = pickle.loads(pickle.dumps(ours))
    assert again.evaluate((x[:, 0],), y, None) == ours.evaluate((x[:, 0],), y, None)
    assert type(again).__name__ == type(ours).__name__ == "auc"
    assert (pickle.loads(pickle.dumps(model)).predict(x) == model.predict(x)).all()
    assert model.copy().fit(x, y).get_evals_result().keys() == model.get_evals_result().keys()


def test_errors_come_before_training() -> None:
    with pytest.raises(ValueError, match="raw scores"):
        eval_metric(sm.AUC(), link="probability")
    with pytest.raises(ValueError, match="takes one value"):
        eval_metric(sm.MetricCollection(sm.AUC(), sm.LogLoss()), link="logit")
    with pytest.raises(ValueError, match="must know whether high or low"):
        eval_metric(sm.Calibration(), link="logit")
    with pytest.raises(ValueError, match="reads query"):
        eval_metric(sm.NDCG(), link="identity")
