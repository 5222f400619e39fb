"""Negative down-sampling undone: what ranks is the same without it, to the bit; what is read from scores is corrected."""

from __future__ import annotations

import functools
from fractions import Fraction

import draws
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.case import without_warnings
from streammetrics.numerics.negative_sampling import undo_negative_sampling

RATE = 0.1
RANKS = [
    m
    for m in draws.VARIANTS
    if m.about.rank_based
    and getattr(m, "scale", "real") != "real"
    and not (getattr(m, "_class_settings", None) or getattr(m, "sealed", None) or isinstance(m, sm.ThresholdedAUC))
]


@functools.cache
def log(scale: str, n: int = 400) -> dict[str, np.ndarray]:
    """Scores that are neighbours of one another, positives always the higher ones."""
    rng = np.random.default_rng(7)
    base = np.sort(rng.random(n // 2)) if scale == "probability" else np.sort(rng.normal(0, 3, n // 2))
    base[: n // 8] *= 1e-20  # which a logit plus a constant cannot tell apart
    near = np.nextafter(base, 2.0)
    s = np.concatenate([base, near])
    y = np.concatenate([np.zeros(n // 2, np.uint8), np.ones(n // 2, np.uint8)])
    twice = np.r_[0 : n // 2, 0 : n // 2]
    columns = {"group": rng.integers(0, 200, n // 2)[twice], "treatment": rng.integers(0, 2, n // 2)[twice]}
    return {"y_true": y, "y_score": s} | columns


@pytest.mark.parametrize("metric", RANKS, ids=repr)
def test_the_order_of_scores_is_not_corrected(metric) -> None:
    columns = log(metric.scale)
    alone = empty_copy(metric)
    plain = without_warnings(lambda: sm.MetricCollection({"m": alone}).update(columns))
    task = sm.Task({"m": empty_copy(metric)}, negative_rate=RATE, corrects="score", scale=metric.scale)
    corrected = sm.MetricCollection(task).update(columns)
    assert corrected["m"].digest() == plain["m"].digest()
    a, b = (without_warnings(lambda c=c: (c.compute()["m"], c.bounds()["m"])) for c in (plain, corrected))
    for ours, theirs in zip(_flat(a), _flat(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _flat(found):
    """The numbers of a value and its bounds; of a curve its points, without thresholds."""
    value, bounds = found
    return [x for v in (value, *bounds) for x in (v[:2] if isinstance(v, tuple) else [v])]


def test_there_are_such_metrics() -> None:
    assert len({m.about.tag for m in RANKS}) >= 13


def test_auc_of_neighbours() -> None:
    task = sm.Task(sm.AUC(), negative_rate=0.1, corrects="score")
    columns = {"y_true": [0, 1] * 20, "y_score": np.sort(np.nextafter(0.7, 1) + np.arange(40) * 2.0**-53)}
    found = sm.MetricCollection(task).update(columns)
    truth = Fraction(sum(i < j for i in range(0, 40, 2) for j in range(1, 40, 2)), 400)
    assert found.compute()["auc"] == float(truth)
    assert found.bounds()["auc"] == (float(truth),) * 2


def test_thresholds_are_of_corrected_scores() -> None:
    columns = {"y_true": [0, 0, 1, 1], "y_score": [0.125, 0.5, 0.25, 0.75]}
    task = sm.Task([sm.MaxFBeta(), sm.ROCCurve(tolerance=0.0)], negative_rate=0.5, corrects="score")
    found = sm.MetricCollection(task).update(columns)
    expected = float(Fraction(1, 4) / (Fraction(1, 4) + Fraction(3, 4) / Fraction(1, 2)))
    assert found["max_f1"].threshold() == found.explain()["max_f1"]["threshold"] == expected
    assert found.compute()["roc_curve"].thresholds[-2] == expected


def test_what_reads_scores_is_corrected() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(np.uint8)
    q = p / (p + (1 - p) / RATE)
    metrics = [
        sm.LogLoss(), sm.BrierScore(), sm.Calibration(), sm.PredictedCTR(), sm.Precision(), sm.AUC(),
        sm.ExpectedCalibrationError(), sm.ExpectedCalibrationError(strategy="quantile", n_bins=5),
    ]  # fmt: skip
    fed = sm.MetricCollection(sm.Task(metrics, negative_rate=RATE, corrects="score")).update(y_true=y, y_score=p)
    direct = sm.MetricCollection([empty_copy(m) for m in metrics]).update(y_true=y, y_score=q)
    a, b = fed.compute(), direct.compute()
    assert a.keys() == b.keys()
    for name in a:
        assert a[name] == (sm.AUC().update(y, p).compute() if name == "auc" else b[name]), name


def test_saved_collections_read_as_they_did() -> None:
    columns = log("probability")
    task = sm.Task([sm.MaxFBeta(), sm.AUC(), sm.LogLoss()], negative_rate=RATE, corrects="both")
    fed = sm.MetricCollection(task).update(columns)
    again = sm.from_bytes(fed.to_bytes()).merge(sm.MetricCollection(task))
    assert again.digest() == fed.digest()
    assert again["max_f1"].threshold() == fed["max_f1"].threshold()


def test_metrics_that_are_not_known_read_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ranks and one that does not have a state each; who knows neither has to be told."""
    task = sm.Task([sm.CalibrationTable(), sm.Gini()], negative_rate=RATE, corrects="score")
    fed = sm.MetricCollection(task).update(log("probability"))
    data = fed.to_bytes()
    with monkeypatch.context() as without:
        for metric in (sm.CalibrationTable, sm.Gini):
            without.delitem(sm.extend.METRICS, metric.about.tag)
        assert sm.from_bytes(data).to_bytes() == data
    assert sm.from_bytes(data) == fed


def test_only_the_score_is_corrected() -> None:
    """Other numbers of the same task are what they are, and are checked as they are without it."""
    made = sm.Task([sm.AUC(), sm.Mean()], negative_rate=RATE, corrects="score", value="price")
    fed = sm.MetricCollection(made).update(y_true=[0, 1], y_score=[0.2, 0.8], price=[10.0, 20.0])
    assert fed["mean"].compute() == 15.0
    refused = sm.MetricCollection(sm.Task(sm.GeometricMean(), negative_rate=RATE, corrects="score", value="v"))
    with pytest.raises(sm.InvalidInputError, match="greater than 0"):
        refused.update(v=[0.0, 0.5])


@pytest.mark.parametrize("corrects", ["rows", "both"])
def test_rows_are_weighed_by_a_label_that_is_read(corrects: str) -> None:
    with pytest.raises(ValueError, match="reads no label"):
        sm.MetricCollection(sm.Task([sm.LogLoss(), sm.Mean()], negative_rate=RATE, corrects=corrects))


@pytest.mark.parametrize("curve", ["ROC", "PR"])
@pytest.mark.parametrize("many", [5, 200])
@pytest.mark.parametrize("rows", [150, 200_000])
def test_fixed_thresholds_stand_among_corrected_scores(rows: int, many: int, curve: str) -> None:
    rng = np.random.default_rng(many)
    y, p = rng.integers(0, 2, rows), rng.random(rows).astype(np.float32).astype(float)
    metric = sm.ThresholdedAUC(num_thresholds=many, curve=curve)
    task = sm.Task({"m": metric}, negative_rate=RATE, corrects="score")
    found = sm.MetricCollection(task).update(y_true=y, y_score=p)["m"]
    by_hand = empty_copy(metric).update(y, p / (p + (1 - p) / RATE))
    if rows < 1000:
        assert found.compute() == by_hand.compute()
    low, high = found.bounds()
    assert low <= found.compute() <= high
    assert max(low, by_hand.bounds()[0]) <= min(high, by_hand.bounds()[1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_corrected_scores_are_compared_as_they_come_out(scale: str, dtype: type) -> None:
    """They are float64's: a threshold rounded to the dtype of the given ones would pass by some of its neighbours."""
    given = np.random.default_rng(5).random(40).astype(dtype)
    out = undo_negative_sampling(given, RATE, scale)
    for t in out.tolist():
        task = sm.Task({"r": sm.Recall(threshold=t)}, negative_rate=RATE, corrects="score", scale=scale)
        assert sm.MetricCollection(task).update(np.ones(40), given)["r"].compute() == (out >= t).mean()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_corrected_scores_are_clipped_as_those_that_were_given(dtype: type) -> None:
    task = sm.Task(sm.LogLoss(), negative_rate=RATE, corrects="score")
    found = sm.MetricCollection(task).update([1, 0], np.array([0, 1], dtype))["log_loss"].compute()
    eps = float(np.finfo(np.float64 if dtype is np.float64 else np.float32).eps)
    assert found == pytest.approx(-np.log(eps), rel=1e-15)
