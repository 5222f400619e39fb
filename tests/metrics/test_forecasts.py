"""Metrics of numbers equal their oracles: scikit-learn, and formulas of papers and of other libraries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles_forecasts as oracles
import pytest
from sklearn import metrics as sk

import streammetrics as sm

CASES = [(tag, i) for tag in oracles.ORACLES for i in range(len(oracles.ORACLES[tag]))]
N = 80
rng = np.random.default_rng(31)


def logs() -> dict[str, tuple[Any, Any]]:
    y, w = rng.normal(0, 3, N), rng.integers(0, 9, N) / 4
    p = y + rng.normal(0, 1, N)
    return {
        "normal": (np.column_stack([y, p]), np.ones(N)),
        "weighted": (np.column_stack([y, p]), w),
        "any weights": (np.column_stack([y, p]), rng.random(N) * 10 + 2.0**-30),
        "ties and zeros": (np.round(np.column_stack([y, p])), w),
        "float32": (np.column_stack([y, p]).astype(np.float32), w),
        "close": (np.column_stack([y, y + 1e-9 * p]), w),
        "two": (np.column_stack([y, p])[:2], np.ones(2)),
    }


LOGS = logs()


def columns_of(tag: str, settings: dict[str, Any], table: Any) -> dict[str, Any]:
    """The columns of a metric, made of two."""
    y, p = table.T
    roles = [n.role for n in sm.extend.METRICS[tag](**settings).make_state().needs() if n.role != "sample_weight"]
    found = {"y_true": y, "y_pred": p, "lag": np.roll(y, 1), "lower": np.minimum(p, y[::-1]), "upper": p + 1}
    width = settings.get("members") or len(settings.get("quantiles", ()))
    if width:
        found["y_pred"] = p[:, None] + np.resize([0.5, -1, 2, 0, 0.25], width).astype(p.dtype)
    return {role: found[role] for role in roles}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_oracles(tag: str, i: int, log: str) -> None:
    oracle, (table, w) = oracles.ORACLES[tag][i], LOGS[log]
    columns = columns_of(tag, oracle.settings, table)
    weights = {} if (w == 1).all() else {"sample_weight": w}
    metric = sm.extend.METRICS[tag](**oracle.settings).update(**columns, **weights)
    want = oracle.of({n: c.astype(np.float64) for n, c in columns.items()}, w)
    low, high = metric.bounds()
    if oracle.bounded:
        slack = 1e-12 * max(1.0, abs(want))
        assert low - slack <= want <= high + slack
        assert low <= metric.compute() <= high
        assert high - low < 5e-3 * (1 + abs(want))
        return
    assert metric.compute() == pytest.approx(want, rel=oracle.rtol, abs=1e-14, nan_ok=True)


@pytest.mark.parametrize("tag", oracles.ORACLES)
@pytest.mark.filterwarnings("ignore::streammetrics.errors.UndefinedMetricWarning")
def test_without_rows_and_without_weight(tag: str) -> None:
    settings, table = oracles.ORACLES[tag][0].settings, LOGS["normal"][0][:3]
    columns = columns_of(tag, settings, table)
    empty = sm.extend.METRICS[tag](**settings)
    assert math.isnan(empty.compute())
    assert empty.explain()["reason"] == "no rows"
    nothing = sm.extend.METRICS[tag](**settings).update(**columns, sample_weight=np.zeros(3))
    assert math.isnan(nothing.compute())
    assert nothing.explain()["reason"]


def test_targets_that_are_all_alike_as_scikit_learn_has_them() -> None:
    y = np.ones(4)
    for p in (y, y + 1, np.array([1.0, 2, 1, 2])):
        assert sm.R2(force_finite=True).update(y, p).compute() == sk.r2_score(y, p)
        found = sm.ExplainedVariance(force_finite=True).update(y, p).compute()
        assert found == sk.explained_variance_score(y, p)
    Y, P = np.column_stack([y, [1, 2, 3, 4]]), np.column_stack([y + 1, [1, 2, 3, 5]])
    for how in ("uniform_average", "variance_weighted"):
        for rows in (slice(None), slice(0, 1)):
            if rows.stop == 1:
                continue
            found = sm.R2(num_outputs=2, multioutput=how, force_finite=True).update(Y[rows], P[rows]).compute()
            assert found == pytest.approx(sk.r2_score(Y, P, multioutput=how))
    alike = np.ones((3, 2))
    found = (
        sm.R2(num_outputs=2, multioutput="variance_weighted", force_finite=True)
        .update(alike, alike + np.arange(2))
        .compute()
    )
    assert found == sk.r2_score(alike, alike + np.arange(2), multioutput="variance_weighted") == 0.5


def test_what_torchmetrics_has() -> None:
    """Values of its documentation."""
    y, p = [3, -0.5, 2, 7], [2.5, 0.0, 2, 8]
    assert sm.ConcordanceCorrelation(ddof=1).update(y, p).compute() == pytest.approx(0.9777, abs=5e-5)
    assert sm.RelativeSquaredError().update(y, p).compute() == pytest.approx(0.0514, abs=5e-5)
    target, preds = [2.5, 5.0, 4.0, 8.0], [3.0, 5.0, 2.5, 7.0]
    assert sm.NRMSE().update(target, preds).compute() == pytest.approx(0.1919, abs=5e-5)
    assert sm.NRMSE(normalization="range").update(target, preds).compute() == pytest.approx(0.1701, abs=5e-5)


def test_small_errors_keep_their_digits_in_log_cosh() -> None:
    d = np.array([1e-12, 1e-6, 1e-3, 0.049999, 0.0500001, 0.5, 40.0, 1e5])
    from fractions import Fraction

    for x in d.tolist():
        value = sm.LogCosh().update([0.0], [x]).compute()
        series = float(
            sum(
                c * Fraction(x) ** k
                for k, c in (
                    (2, Fraction(1, 2)),
                    (4, Fraction(-1, 12)),
                    (6, Fraction(1, 45)),
                    (8, Fraction(-17, 2520)),
                    (10, Fraction(31, 14175)),
                    (12, Fraction(-691, 935550)),
                )
            )
        )
        want = series if x < 0.06 else x + math.log1p(math.exp(-2 * x)) - math.log(2)
        assert value == pytest.approx(want, rel=1e-14)


def test_a_threshold_is_one_of_the_dtype_of_the_columns() -> None:
    y = np.array([0.7, 0.1], np.float32)
    assert sm.CriticalSuccessIndex(threshold=0.7).update(y, y).compute() == 1.0


def test_members_of_an_ensemble_come_in_any_order() -> None:
    y, x = rng.normal(size=20), rng.normal(size=(20, 6))
    a = sm.CRPSEnsemble(members=6).update(y, x)
    assert a.compute() == sm.CRPSEnsemble(members=6).update(y, x[:, ::-1].copy()).compute()
    one = sm.CRPSEnsemble(members=1).update(y, x[:, :1]).compute()
    assert one == pytest.approx(sk.mean_absolute_error(y, x[:, 0]))  # of a point the score is its error
    with pytest.raises(ValueError, match="needs two"):
        sm.CRPSEnsemble(members=1, estimator="fair")


def test_a_bound_of_d2_is_one_value_for_targets_of_few_bits() -> None:
    y, p = rng.poisson(3, 500), rng.normal(3, 1, 500)
    metric = sm.D2AbsoluteError().update(y, p)
    assert metric.bounds() == (metric.compute(), metric.compute())
    assert metric.compute() == pytest.approx(sk.d2_absolute_error_score(y, p), rel=1e-14)


def test_least_and_largest_targets_merge() -> None:
    y, p = rng.normal(size=(2, 50))
    whole = sm.NRMSE(normalization="range").update(y, p)
    parts = [sm.NRMSE(normalization="range").update(y[i::3], p[i::3]) for i in range(3)]
    assert sm.merge([sm.from_bytes(part.to_bytes()) for part in parts]).to_bytes() == whole.to_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3, 7, 100])
def test_scores_of_ensembles_are_never_below_zero(members: int) -> None:
    draw = np.random.default_rng(members)
    scale = 10.0 ** draw.integers(-9, 9, (200, 1))
    x = draw.choice([0.1, 0.3, 0.7, 1 / 3], (200, members)) * scale + draw.integers(0, 2, (200, 1))
    y = draw.permuted(x, axis=1)[:, 0]
    for estimator, near in (("energy", 0.0), ("fair", 1e-12)):
        c = {"y_true": y, "y_pred": x}
        want = oracles.ensemble(c, estimator == "fair")
        for i in range(200):
            came = sm.CRPSEnsemble(members=members, estimator=estimator).update(y[i : i + 1], x[i : i + 1]).compute()
            assert came >= 0.0
            assert came == pytest.approx(want[i], rel=1e-10, abs=(near + 1e-13) * float(np.abs(x[i]).max()))
