"""Terms with bits below 2**-60, which sums of terms do not have: bounds hold the truth, and what is exact is near it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.laws.case import without_warnings

F = Fraction
ULPS = 4 * F(2) ** -52
CASES: dict[str, tuple[Any, Any]] = {
    "predicted_ctr": (sm.PredictedCTR(), lambda y, p: sum(p) / len(p)),
    "calibration": (sm.Calibration(), lambda y, p: sum(p) / sum(y)),
    "copc": (sm.Calibration(inverse=True), lambda y, p: sum(y) / sum(p)),
    "brier": (sm.BrierScore(), lambda y, p: sum((a - b) ** 2 for a, b in zip(y, p, strict=True)) / len(y)),
    "soft brier": (
        sm.BrierScore(soft_labels=True),
        lambda y, p: sum((a - b) ** 2 for a, b in zip(y, p, strict=True)) / len(y),
    ),
    "tjur": (sm.TjurDiscrimination(), lambda y, p: mean_of(y, p, 1) - mean_of(y, p, 0)),
    "relative tjur": (sm.TjurDiscrimination(relative=True), lambda y, p: mean_of(y, p, 1) / mean_of(y, p, 0)),
    "ece": (sm.ExpectedCalibrationError(n_bins=4), lambda y, p: abs(sum(p) - sum(y)) / len(y)),
    "mce": (sm.MaximumCalibrationError(n_bins=4), lambda y, p: abs(sum(p) - sum(y)) / len(y)),
    "hosmer": (
        sm.HosmerLemeshow(n_bins=2, strategy="uniform"),
        lambda y, p: (sum(y) - sum(p)) ** 2 / (sum(p) * (1 - sum(p) / len(p))),
    ),
    "groups": (sm.GroupCalibrationError(), lambda y, p: abs(sum(p) - sum(y)) / len(y)),
}


def mean_of(y: list[F], p: list[F], label: int) -> F:
    mine = [b for a, b in zip(y, p, strict=True) if a == label]
    return sum(mine, F(0)) / len(mine)


def held(low: float, value: float, high: float, truth: F) -> None:
    if math.isnan(value):  # a sum of nothing but terms below half a unit: there is no quotient by it
        return
    near = abs(truth) * ULPS
    assert low == -math.inf or F(low) - near <= truth
    assert high == math.inf or truth <= F(high) + near
    if low == high:
        assert abs(F(value) - truth) <= 4 * ULPS * abs(truth)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2.0**-4, 1e-3, 1e-7, 1e-13, 2.0**-58, 1e-19])
def test_small_probabilities(name: str, size: float) -> None:
    metric, oracle = CASES[name]
    rng = np.random.default_rng([len(name), int(-math.log2(size))])
    p = size * (0.5 + rng.random(20) / 2)
    y = np.r_[1, 1, np.zeros(18, int)]
    columns: dict[str, Any] = {"y_true": y, "y_score": p, "group": np.zeros(20, int)}
    made = empty_copy(metric).update(**{n: c for n, c in columns.items() if n in columns_of(metric)})
    truth = oracle([F(int(v)) for v in y], [F(float(v)) for v in p])
    held(made.bounds()[0], without_warnings(made.compute), made.bounds()[1], truth)


@pytest.mark.parametrize("logit", [-3.0, -10.0, -30.0, -40.0, -45.0])
@pytest.mark.parametrize(
    "metric",
    [sm.LogLoss(scale="logit"), sm.NormalizedEntropy(scale="logit", base_rate=0.5), sm.GroupLogLoss(scale="logit")],
)
def test_small_losses(metric: Any, logit: float) -> None:
    columns: dict[str, Any] = {"y_true": [0, 0], "y_score": [logit, logit], "group": [1, 1]}
    made = empty_copy(metric).update(**{n: c for n, c in columns.items() if n in columns_of(metric)})
    truth = math.log1p(math.exp(logit)) / (math.log(2.0) if metric.about.tag == "normalized_entropy" else 1.0)
    held(made.bounds()[0], without_warnings(made.compute), made.bounds()[1], F(truth))


def test_means_of_bins() -> None:
    low, high = sm.CalibrationCurve(n_bins=2).update([0, 1], [1e-19, 0.75]).bounds()
    assert low.prob_pred[0] <= 1e-19 <= high.prob_pred[0]
    assert low.prob_pred[1] == high.prob_pred[1] == 0.75


def test_ordinary_values_stay_exact() -> None:
    y, p = np.array([0, 1, 0, 1] * 50), np.random.default_rng(1).random(200)
    metrics = [sm.LogLoss(), sm.BrierScore(), sm.Calibration(), sm.PredictedCTR(), sm.NormalizedEntropy()]
    for name, (low, high) in sm.MetricCollection(metrics).update(y, p).bounds().items():
        assert low == high, name


@pytest.mark.parametrize("size", [0.5, 3e-3, 1e-3, 1e-5, 1e-20])
def test_slices_are_as_certain_as_they_are_alone(size: float) -> None:
    rng = np.random.default_rng(3)
    y, p, k = rng.integers(0, 2, 600), size * rng.random(600), rng.integers(0, 40, 600)
    given = [
        empty_copy(metric) for name, (metric, _) in CASES.items() if name not in ("soft brier", "calibration", "groups")
    ]
    more = [sm.LogLoss(), sm.NormalizedEntropy(), sm.CalibrationFreeNE(), sm.BrierSkillScore()]
    soft = sm.Task([sm.LogLoss(soft_labels=True), sm.CTR(soft_labels=True)], y_true="soft")
    for metrics in (sm.MetricCollection([*given, *more]), sm.MetricCollection(soft)):
        sliced = sm.Sliced(metrics, by="k").update({"y_true": y, "y_score": p, "soft": p, "k": k})
        assert repr(sliced.bounds()) == repr({key: sliced[key].bounds() for key in sliced})


def test_soft_labels_below_a_unit() -> None:
    copc = sm.Calibration(inverse=True, soft_labels=True).update([1e-19, 1e-19], [0.5, 0.5])
    assert copc.bounds()[0] <= 2e-19 <= copc.bounds()[1]
