"""Metrics of predicted numbers equal their oracles on awkward logs, and sums and products are exact at any size."""

from __future__ import annotations

import dataclasses
import math
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import oracles_regression as oracles
import pytest
from counting import counted
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, empty_copy, states_of, with_states
from streammetrics.numerics.exact import exact_to_fraction

DATA = Path(os.environ.get("STREAMMETRICS_DATA", Path(__file__).parents[3] / "shared" / "data"))
CASES = [(tag, i) for tag in oracles.ORACLES for i in range(len(oracles.ORACLES[tag]))]
N = 700
rng = np.random.default_rng(21)


def logs() -> dict[str, tuple[Any, Any, Any]]:
    """Targets, predictions and weights; matrices for several outputs."""
    y = rng.normal(0, 3, N)
    p = y + rng.normal(0, 1, N)
    ones, w = np.ones(N), rng.integers(0, 9, N) / 4
    counts = rng.poisson(2, N)
    return {
        "normal": (y, p, ones),
        "weighted": (y, p, w),
        "any weights": (y, p, rng.random(N) * 10 + 2**-30),
        "float32": (y.astype(np.float32), p.astype(np.float32), w),
        "float32 and float64": (y.astype(np.float32), p, w),
        "integers": (counts, counts + rng.integers(-1, 3, N), w),
        "ties and zeros": (np.round(y), np.round(p), w),
        "far from zero": (1e8 + rng.normal(0, 1, N), 1e8 + rng.normal(0, 1, N), rng.random(N) + 0.1),
        "any size": (np.exp(rng.normal(0, 20, N)), np.exp(rng.normal(0, 20, N)), ones),
        "amounts": (np.where(y > 0, np.abs(y), 0), np.abs(p) + 0.01, w),
        "few": (y[:3], p[:3], ones[:3]),
        "matrix": (rng.normal(0, 3, (N, 3)), rng.normal([0, 1, 2], 3, (N, 3)), w),
    }


LOGS = logs()


def within(domain: str, y: Any, p: Any) -> tuple[Any, Any]:
    """The rows as a metric of this domain takes them."""
    if domain == "log1p":
        return np.abs(y), np.abs(p)
    if domain != "real":
        p = positive(p)
    return (positive(y) if domain == "positive" else np.abs(y) if domain == "nonnegative" else y), p


def positive(values: Any) -> Any:
    """Numbers of the same dtype, well above 0."""
    return np.maximum(np.abs(values), values.dtype.type(0.125 if values.dtype.kind == "f" else 1))


def check(tag: str, i: int, y: Any, p: Any, w: Any) -> None:
    oracle = oracles.ORACLES[tag][i]
    y, p = within(oracle.domain, y, p)
    Y, P = (v.astype(np.float64).reshape(len(v), -1) for v in (y, p))
    expected = oracle.of(Y, P, w)
    weights = {} if (w == 1).all() else {"sample_weight": w}
    width = {"num_outputs": y.shape[1]} if y.ndim == 2 else {}
    metric = sm.extend.METRICS[tag](**oracle.settings, **width, multioutput="raw_values").update(y, p, **weights)
    tolerance = {"rtol": oracle.rtol, "atol": 0.0}
    if "deviance" in tag:  # the reference's own rounding: its terms may cancel
        tolerance["atol"] = 1e-13 * float(np.abs(P).max() ** max(1, 2 - oracle.settings.get("power", 1.0)))
    if oracle.domain == "log1p":  # an ulp of either logarithm, in a difference of the two
        error = 2.0**-52 * float(np.log1p(np.abs(P)).max())
        tolerance["atol"] = error * (1.0 if tag == "rmsle" else 2.0 * math.sqrt(np.max(expected)))
    np.testing.assert_allclose(metric.compute(), expected, **tolerance)
    averaged = sm.extend.METRICS[tag](**oracle.settings, **width).update(y, p, **weights)
    assert averaged.compute() == pytest.approx(np.mean(metric.compute()), rel=1e-14)
    assert averaged.bounds() == (averaged.compute(), averaged.compute())


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_random_logs(tag: str, i: int, log: str) -> None:
    if log == "any size" and oracles.ORACLES[tag][i].domain not in ("real", "log1p"):
        pytest.skip("the reference overflows")
    check(tag, i, *LOGS[log])


@pytest.mark.parametrize("pred", ["pred_a", "pred_b"])
def test_real_logs(pred: str) -> None:
    path = DATA / "regression_delay.parquet"
    if not path.exists():
        pytest.skip("the real logs are not here: set STREAMMETRICS_DATA to their folder")
    import pyarrow.parquet as pq

    log = pq.read_table(path).slice(0, 20_000)
    y, p = log["y"].to_numpy(), log[pred].to_numpy()
    for tag, i in CASES:
        check(tag, i, y, p, np.ones(len(y)))
        check(tag, i, y, p, rng.integers(0, 9, len(y)) / 4)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_moments_at_mean_1e8_and_spread_1(weighted: bool, seed: int) -> None:
    r = np.random.default_rng(seed)
    y = 1e8 + r.normal(0, 1, 3000)
    p = y + r.normal(0, 0.3, 3000)
    w = r.random(3000) * 1e-9 + 2**-36 if weighted else np.ones(3000)
    m = oracles.moments(y, p, w)
    extra = {"sample_weight": w} if weighted else {}
    assert sm.R2().update(y, p, **extra).compute() == float(1 - m["left"] / m["yy"])
    assert sm.MeanError().update(y, p, **extra).compute() == float(m["bias"])
    r = sm.PearsonCorrelation().update(y, p, **extra).compute()
    assert r == pytest.approx(float(m["yp"]) / math.sqrt(m["yy"] * m["pp"]), rel=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("width", [None, 2])
@pytest.mark.parametrize("spread", [0, 1, 30, 250])
def test_sums_are_those_of_fractions(spread: int, width: int | None) -> None:
    r = np.random.default_rng(spread)
    shape = (1500,) if width is None else (1500, width)
    y, p = (r.normal(0, 1, shape) * np.exp2(r.integers(-spread, spread + 1, shape)) for _ in range(2))
    w = np.exp2(r.uniform(-36, 30.9, 1500))
    regression = sm.extend.RegressionSums(terms=("absolute", "squared"), num_outputs=width)
    moments = sm.extend.Moments(columns=("y_true", "y_pred"), terms=("x", "xx", "xy"), num_outputs=width)
    columns = {"y_true": y, "y_pred": p, "sample_weight": w}
    for slices in (None, 3, 2000):
        at = r.integers(0, slices or 1, 1500)
        for empty in (regression, moments):
            state = counted(empty, columns | ({"at_slice": at} if slices else {}), "at_slice" if slices else None)
            for i in range(1 if slices is None else 3):
                rows = slice(None) if slices is None else at == i
                if slices and not rows.any():
                    continue
                lone = state if slices is None else state.read_cell(int(np.flatnonzero(np.unique(at) == i)[0]))
                assert lone.weight() == sum(oracles.fractions(w[rows]), Fraction(0))
                for c in range(width or 1):
                    a, b = (v.reshape(1500, -1)[rows, c] for v in (y, p))
                    A, B, W = (oracles.fractions(v) for v in (a, b, w[rows]))
                    if isinstance(lone, sm.extend.Moments):
                        truth = {
                            "x": sum(x * u for x, u in zip(A, W, strict=True)),
                            "xx": sum(x * x * u for x, u in zip(A, W, strict=True)),
                            "xy": sum(x * z * u for x, z, u in zip(A, B, W, strict=True)),
                        }
                    else:
                        d = b - a
                        truth = {
                            "absolute": sum(oracles.fractions(np.abs(d) * w[rows])),
                            "squared": sum(oracles.fractions(d * d * w[rows])),
                        }
                    assert {t: lone.total(t, c) for t in truth} == truth


def test_a_sum_that_cancels_leaves_nothing() -> None:
    state = sm.extend.Moments(columns=("value",), terms=("x", "xx"))
    values = np.array([2.0**400, 2.0**-400, 1.0, -(2.0**400), -1.0, -(2.0**-400)])
    state = counted(state, {"value": values})
    assert state.total("x") == 0
    assert not state.sums[0].any()
    assert exact_to_fraction(state.sums[1, 0]) == sum(Fraction(v) ** 2 for v in values.tolist())


@pytest.mark.parametrize("bad", [1e-300, 1e300, -1e-200, 5e-324, math.inf, math.nan])
@pytest.mark.parametrize("column", ["y_true", "y_pred"])
def test_numbers_too_large_or_small(column: str, bad: float) -> None:
    for metric in (sm.MAE(), sm.R2()):
        metric.update([1.0], [2.0])
        before = metric.digest()
        for dtype in (np.float64, np.float32):
            rows = {"y_true": np.ones(3, dtype), "y_pred": np.ones(3, dtype)}
            if dtype == np.float32 and np.isfinite(bad):
                continue  # 0 in float32, or infinite
            rows[column] = np.array([1.0, bad, bad], dtype)
            for given in (rows, {k: v.astype(np.float64) for k, v in rows.items()}):
                with pytest.raises(sm.InvalidInputError, match=rf"{column}: expected a number.*row 1 \(2 of \d+ rows"):
                    metric.update(given["y_true"], given["y_pred"])
        assert metric.digest() == before


@pytest.mark.parametrize(
    ("metric", "y", "p", "column", "expected"),
    [
        (sm.MSLE(), -1.0, 1.0, "y_true", "greater than -1"),
        (sm.RMSLE(), 1.0, -1.5, "y_pred", "greater than -1"),
        (sm.PoissonDeviance(), -1.0, 1.0, "y_true", "of at least 0"),
        (sm.PoissonDeviance(), 1.0, 0.0, "y_pred", "greater than 0"),
        (sm.GammaDeviance(), 0.0, 1.0, "y_true", "greater than 0"),
        (sm.TweedieDeviance(power=-1.0), 1.0, 0.0, "y_pred", "greater than 0"),
        (sm.TweedieDeviance(power=3.0), 0.0, 1.0, "y_true", "greater than 0"),
    ],
)
def test_targets_outside_the_domain(metric: Any, y: float, p: float, column: str, expected: str) -> None:
    for dtype in (np.float32, np.float64):
        with pytest.raises(sm.InvalidInputError, match=f"{column}: expected a number {expected}"):
            metric.update(np.array([1, y], dtype), np.array([1, p], dtype))


def test_what_lies_within_the_domain() -> None:
    for f in (np.float32, np.float64):
        edge = np.nextafter(f(-1), f(0))
        assert np.isfinite(sm.MSLE().update(np.array([edge]), np.array([0], f)).compute())
    assert sm.PoissonDeviance().update([0.0], [2.0]).compute() == 4.0
    assert sm.TweedieDeviance(power=-1.0).update([-3.0], [1.0]).compute() > 0


@pytest.mark.parametrize("ratio", [1e-12, -1e-12, 1e-5, -1e-5, 0.5, -0.5, 3.0, 1e6, 1e12])
def test_deviances_near_zero_are_accurate(ratio: float) -> None:
    y = 3.7
    p = y * (1 + ratio)
    assert sm.PoissonDeviance().update([y], [p]).compute() == pytest.approx(float(exact_deviance(y, p, 1)), rel=1e-14)
    assert sm.GammaDeviance().update([y], [p]).compute() == pytest.approx(float(exact_deviance(y, p, 2)), rel=1e-14)
    for power in (-10.0, -0.5, 1.1, 1.5, 3.0, 9.9):
        found = sm.TweedieDeviance(power=power).update([y], [p]).compute()
        assert found == pytest.approx(float(exact_deviance(y, p, power)), rel=1e-10)


def exact_deviance(y: float, p: float, power: float) -> Any:
    """The Tweedie deviance in 200 bits."""
    from mpmath import log, mp, mpf

    mp.prec = 200
    Y, P, k = mpf(y), mpf(p), mpf(power)
    if k == 1:
        return 2 * (Y * log(Y / P) - Y + P)
    if k == 2:
        return 2 * (log(P / Y) + Y / P - 1)
    return 2 * (Y ** (2 - k) / ((1 - k) * (2 - k)) - Y * P ** (1 - k) / (1 - k) + P ** (2 - k) / (2 - k))


@pytest.mark.parametrize("mean", [1.0, 100.0, 1e4, 1e7, 1e9])
@pytest.mark.parametrize("power", [1.0, 1.1, 2.0, 2.5, 9.0])
def test_d2_of_targets_far_from_zero_is_within_its_bounds(mean: float, power: float) -> None:
    from mpmath import fsum, mpf

    noise = np.random.default_rng(4).uniform(-0.4, 0.4, (2, 60))
    y, p = mean + noise
    of_model = fsum(exact_deviance(a, b, power) for a, b in zip(y, p, strict=True))
    middle = fsum(mpf(a) for a in y) / len(y)
    expected = 1 - of_model / fsum(exact_deviance(a, middle, power) for a in y)
    metric = sm.D2Tweedie(power=power).update(y, p)
    low, high = metric.bounds()
    if not math.isnan(metric.reading(metric.state).value):
        assert low <= expected <= high
    if mean <= 1e4:
        assert high - low < 0.01
        assert metric.compute() == pytest.approx(float(expected), abs=1e-4)


def test_undefined_is_nan_with_a_reason() -> None:
    with pytest.warns(sm.UndefinedMetricWarning, match="all targets are equal"):
        assert math.isnan(sm.R2().update([1, 1], [1, 2]).compute())
    for metric, y, p, reason in (
        (sm.PearsonCorrelation(), [1, 2], [3, 3], "all predictions are equal"),
        (sm.MAPE(), [0, 0], [1, 2], "all targets are 0"),
        (sm.WMAPE(), [0, 0], [1, 2], "all targets are 0"),
        (sm.MAE(), [], [], "no rows"),
    ):
        metric.update(y, p)
        assert math.isnan(metric.reading(metric.state).value)
        assert metric.explain()["reason"] == reason
    weightless = sm.MAE().update([1], [2], sample_weight=[0])
    assert weightless.explain()["reason"] == "the weights are all zero"


def test_averages_leave_undefined_outputs_out() -> None:
    y, p = [[1, 2], [1, 4], [1, 3]], [[1, 2], [2, 4], [1, 5]]
    r2 = sm.R2(num_outputs=2).update(y, p)
    raw = sm.R2(num_outputs=2, multioutput="raw_values").reading(r2.state).value
    assert math.isnan(raw[0])
    assert r2.compute() == raw[1] == -1.0
    assert sm.R2(num_outputs=2, multioutput="variance_weighted").reading(r2.state).value == -1.0


def test_variance_weighted() -> None:
    from sklearn.metrics import explained_variance_score, r2_score

    y, p, w = LOGS["matrix"]
    for metric, reference in ((sm.R2, r2_score), (sm.ExplainedVariance, explained_variance_score)):
        ours = metric(num_outputs=3, multioutput="variance_weighted").update(y, p, sample_weight=w)
        assert ours.compute() == pytest.approx(
            reference(y, p, sample_weight=w, multioutput="variance_weighted"), rel=1e-13
        )


def test_a_collection_keeps_one_state_of_each_kind() -> None:
    losses = [sm.MAE(), sm.RMSE(), sm.MAPE(), sm.SMAPE(), sm.WMAPE(), sm.PinballLoss(alpha=0.9), sm.HuberLoss()]
    metrics = sm.MetricCollection([*losses, sm.R2(), sm.PearsonCorrelation(), sm.MeanError(), sm.ExplainedVariance()])
    assert len(states_of(metrics)) == 2
    y, p, w = LOGS["weighted"]
    metrics.update(y, p, sample_weight=w)
    for metric in losses:
        assert metrics[metric.name] == empty_copy(metric).update(y, p, sample_weight=w)


def test_zero_targets_are_counted() -> None:
    a, b = sm.MAPE().update([0, 1, 0], [1, 1, 2]), sm.MAPE().update([0, 2], [1, 1])
    assert a.merge(b).explain()["skipped"] == 3
    assert a.compute() == 0.25


def test_weights_over_rows_do_not_depend_on_order() -> None:
    y, p, w = LOGS["any weights"]
    whole = sm.WMAE(divisor="rows").update(y, p, sample_weight=w)
    parts = [sm.WMAE(divisor="rows").update(y[i::3], p[i::3], sample_weight=w[i::3]) for i in (2, 0, 1)]
    assert sm.merge(parts).to_bytes() == whole.to_bytes()


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match=r"no Tweedie distribution of power 0\.5"):
        sm.TweedieDeviance(power=0.5)
    with pytest.raises(ValueError, match="has no term 'cubed'; choose from absolute"):
        sm.extend.RegressionSums(terms=("cubed",))
    with pytest.raises(ValueError, match="one column or two different columns"):
        sm.extend.Moments(columns=("a", "a"))
    with pytest.raises(sm.InvalidInputError, match="rows of 2 values"):
        sm.MAE(num_outputs=2).update(np.ones((3, 3)), np.ones((3, 3)))


@pytest.mark.parametrize("finite", [True, False])
def test_targets_that_are_all_alike_are_as_the_docstring_says(finite: bool) -> None:
    alike, none = np.ones(3), [np.array([1.0, 2.0, 3.0]), np.ones(3), np.full(3, 2.0)]
    for ours, theirs in ((sm.R2, sk.r2_score), (sm.ExplainedVariance, sk.explained_variance_score)):
        for p in none:
            left = ((p - 1) ** 2).sum() if ours is sm.R2 else np.var(p)
            expected = (0.0 if left else 1.0) if finite else (-np.inf if left else np.nan)
            with np.errstate(all="ignore"):
                np.testing.assert_equal(float(theirs(alike, p, force_finite=finite)), expected)
            with pytest.warns(sm.UndefinedMetricWarning, match="all targets are equal"):
                assert np.isnan(ours().update(alike, p).compute())


@pytest.mark.parametrize(
    "metric", [sm.MAE(), sm.MSE(), sm.RMSE(), sm.Variance(), sm.Mean(), sm.Sum(), sm.R2(), sm.MeanError()], ids=repr
)
def test_sums_beyond_float64_are_infinite(metric: Any) -> None:
    """What bytes may hold, though rows do not make it: sums are up to 2**1087."""
    columns = {"y_true": [1.0, 2.0], "y_pred": [2.0, 1.0], "value": [1.0, 2.0]}
    state = empty_copy(metric).update(**{c: columns[c] for c in columns if c in columns_of(metric)}).state
    sums = state.cells.flats["sums"].copy()
    sums[..., -1] = 1 << 20  # the top chunk
    huge = state.with_cells(dataclasses.replace(state.cells, flats={**state.cells.flats, "sums": sums}))
    assert not np.isfinite(np.asarray(metric.reading(huge).value)) or isinstance(metric, (sm.R2, sm.MeanError, sm.RMSE))
    assert metric.reading(huge).bounds is not None
    held = with_states(metric, [huge])
    held.explain()
    held.interval()
    sm.Bundle({"all": held}).interval()
    assert repr(held)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 16.0])
def test_predictions_without_error_are_at_no_distance(p: float) -> None:
    assert sm.MinkowskiDistance(p=p).update([1, 2], [1, 2]).compute() == 0.0
