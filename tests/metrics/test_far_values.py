"""Metrics that read buckets of values: far from 0 with a small spread, of discrete values, of heavy tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import d2_absolute_error_score, d2_pinball_score, median_absolute_error

import streammetrics as sm

N = 20_000
KINDS = {
    "near": lambda rng, n: rng.normal(size=n),
    "1e6": lambda rng, n: 1e6 + rng.normal(size=n),
    "1e9": lambda rng, n: 1e9 + rng.normal(size=n),
    "-1e9": lambda rng, n: -1e9 + rng.normal(size=n),
    "Unix times": lambda rng, n: 1.7e9 + rng.integers(0, 2_600_000, n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(size=n),
    "heavy tails": lambda rng, n: rng.standard_t(3, n),
    "prices": lambda rng, n: np.round(rng.lognormal(3, 1, n), 2),
    "counts": lambda rng, n: rng.poisson(30, n),
}
SHARES = (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)


def values(kind: str, n: int = N, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.asarray(KINDS[kind](np.random.default_rng(seed), n), np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_are_within_a_thousandth_of_the_standard_deviation(kind: str) -> None:
    v = values(kind)
    state = sm.Quantile().update(v).state
    for q in SHARES:
        metric, truth = sm.Quantile(q=q), np.quantile(v, q, method="averaged_inverted_cdf")
        low, high = metric.reading(state).bounds
        assert low <= truth <= high
        assert abs(metric.reading(state).value - truth) <= 1e-3 * v.std()
    assert (sm.Quantile(q=0).reading(state).value, sm.Quantile(q=1).reading(state).value) == (v.min(), v.max())
    assert sm.Quantile(q=0).reading(state).bounds == (v.min(), v.min())


@pytest.mark.parametrize("kind", KINDS)
def test_errors_and_d2(kind: str) -> None:
    y = values(kind)
    p = y + np.random.default_rng(1).normal(size=N) * y.std() / 2
    error = np.abs(p - y)
    found = sm.MedianAbsoluteError().update(y, p).compute()
    assert abs(found - median_absolute_error(y, p)) <= 1e-3 * error.std()
    for metric, truth in (
        (sm.D2AbsoluteError(), d2_absolute_error_score(y, p)),
        (sm.D2Pinball(alpha=0.9), d2_pinball_score(y, p, alpha=0.9)),
    ):
        low, high = metric.update(y, p).bounds()
        assert metric.compute() == pytest.approx(truth, abs=1e-3)
        assert low - 1e-12 <= truth <= high + 1e-12
        assert high - low < 0.01 * (1 - truth)


@pytest.mark.parametrize("kind", KINDS)
def test_correlations_of_ranks(kind: str) -> None:
    y = values(kind)
    p = y + np.random.default_rng(1).normal(size=N) * y.std()
    tau = stats.kendalltau(y, p)[0]
    rows = slice(0, N // 2), slice(N // 2, N)
    halves = [sm.SpearmanCorrelation().update(y[r], p[r]) for r in rows]
    whole = sm.SpearmanCorrelation().update(y, p)
    assert halves[0].merge(halves[1]).to_bytes() == whole.to_bytes()
    assert len(whole.state.rows) > 0
    state = whole.state
    ties = len(np.unique(y)) < N
    for metric, truth in (
        (sm.SpearmanCorrelation(), stats.spearmanr(y, p)[0]),
        (sm.KendallCorrelation(), tau),
        (sm.RegressionAUC(), None if ties else (1 + tau) / 2),
        (sm.XAUC(), None if ties else (1 + tau) / 2),
    ):
        if truth is not None:
            low, high = metric.reading(state).bounds
            assert metric.reading(state).value == pytest.approx(truth, abs=1e-3)
            assert low <= truth <= high


def test_few_values_are_exact() -> None:
    assert sm.Quantile().update([0.1] * 9).compute() == 0.1
    times = [1700000000.25, 1702592000.5, 1705184000.75]
    assert sm.Quantile().update(times).compute() == times[1]
    y, p = [1000001, 1000002, 1000003, 1000004], [1000001, 1000002, 1000003, 1000005]
    assert sm.D2AbsoluteError().update(y, p).compute() == 0.75
    rng = np.random.default_rng(2)
    y = 10_000 + rng.normal(size=1000)
    p = y + rng.normal(size=1000) * 0.5
    assert sm.D2AbsoluteError().update(y, p).compute() == pytest.approx(d2_absolute_error_score(y, p), abs=1e-3)
    whole = rng.integers(0, 5000, 20_000)
    assert sm.Quantile(q=0.3).update(whole).bounds() == (np.quantile(whole, 0.3, method="averaged_inverted_cdf"),) * 2


def test_exact_rows_with_equal_hashes_are_told_apart_far_from_zero() -> None:
    """Among 16,000 numbers two often share a hash of 32 bits, and far from 0 their leading bits are the same."""
    rng = np.random.default_rng(3)
    y, p = 1e9 + rng.normal(size=16_000), 1e9 + rng.normal(size=16_000)
    metric = sm.KendallCorrelation().update(y, p)
    assert metric.bounds() == (metric.compute(),) * 2
    assert metric.compute() == pytest.approx(stats.kendalltau(y, p)[0], rel=1e-12)


@pytest.mark.parametrize("other", [0.0, 1.0, 1e12])
def test_one_value_far_away_does_not_spoil_the_others(other: float) -> None:
    v = np.append(values("1e6"), other)
    metric = sm.Quantile(q=0.3).update(v)
    assert metric.compute() == pytest.approx(np.quantile(v, 0.3), abs=1e-3)


def test_decimals_and_large_integers_are_not_taken_for_their_neighbours() -> None:
    """Exact cells count in windows of fine levels, where numbers are beyond what a float64 holds in units of the level."""
    for low, high in ((0.38, 0.51), (0.59, 0.93), (2.0**51 + 3, 2.0**51 + 6), (0.1, 1e6)):
        metric = sm.Quantile(q=0.9).update([low] * 2000 + [high] * 1000).update([low, high])
        assert metric.bounds() == (high, high)
    rng = np.random.default_rng(856)
    some = rng.choice(rng.random(14).round(4), 3000)
    alone = sm.Quantile().update(some)
    parts = sm.Quantile()
    for rows in some.reshape(6, 500):
        parts.update(rows)
    assert alone.to_bytes() == parts.to_bytes()


def test_rows_of_no_weight_change_no_level() -> None:
    v, w = np.tile(np.arange(40) * 0.1, 100), np.where(np.arange(4000) % 40 < 20, 0.0, 1.0)
    whole, parts = sm.Quantile().update(v, sample_weight=w), sm.Quantile()
    for rows in np.split(np.arange(4000), 8):
        parts.update(v[rows], sample_weight=w[rows])
    assert whole.to_bytes() == parts.to_bytes()
    assert whole.bounds() == (2.95, 2.95) == parts.bounds()


def test_many_outputs_take_no_longer_than_their_rows() -> None:
    rng = np.random.default_rng(4)
    y = rng.normal(size=(50, 2000))
    metric = sm.MedianAbsoluteError(num_outputs=2000, multioutput="raw_values")
    for row in range(0, 50, 5):
        metric.update(y[row : row + 5], y[row : row + 5] * 0)
    assert metric.compute() == pytest.approx(np.median(np.abs(y), axis=0), rel=1e-3)


def test_slices_of_many_rows_need_no_more_memory_than_their_buckets() -> None:
    rng = np.random.default_rng(5)
    sliced = sm.Sliced(sm.Quantile(), by="g", memory_limit=20_000_000)
    for _ in range(40):
        sliced.update(value=rng.normal(size=50_000), g=rng.integers(0, 2, 50_000))
    assert len(sliced.to_bytes()) < 20_000


def related(kind: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(6)
    x = rng.normal(size=30_000)
    return {
        "curve": (x, np.exp(x)),
        "falling": (x, -(x**3)),
        "close": (x, x + 0.1 * rng.normal(size=len(x))),
        "rounded": (x.round(2), x + rng.normal(size=len(x))),
        "counts": (rng.poisson(np.exp(x + 2)).astype(float), np.exp(x)),
    }[kind]


@pytest.mark.parametrize("kind", ["curve", "falling", "close", "rounded", "counts"])
def test_pairs_within_a_bucket_have_the_order_of_their_neighbourhood(kind: str) -> None:
    y, p = related(kind)
    state = sm.KendallCorrelation().update(y, p).state
    exact = sm.KendallCorrelation(limit=1 << 16).update(y, p).state
    assert len(state.rows) > 0 == len(exact.rows)
    for metric in (sm.KendallCorrelation(), sm.XAUC(), sm.RegressionAUC(), sm.RegressionAUC(pairs="all")):
        assert metric.reading(state).value == pytest.approx(metric.reading(exact).value, abs=6e-4)
        low, high = metric.reading(state).bounds
        assert low <= metric.reading(exact).value <= high
    assert sm.KendallCorrelation().reading(exact).value == pytest.approx(stats.kendalltau(y, p)[0], rel=1e-12)
