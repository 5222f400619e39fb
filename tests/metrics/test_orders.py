"""Correlations of ranks, and orders of pairs: exact within the limit, within their bounds beyond, whatever comes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import oracles_orders as oracles
import pytest
from scipy import stats

import streammetrics as sm
from streammetrics.statistics import pairs

CASES = [(tag, *case) for tag, cases in oracles.ORACLES.items() for case in cases]
rng = np.random.default_rng(5)
N = 60


def logs() -> dict[str, tuple[Any, Any, Any]]:
    y = rng.normal(0, 3, N)
    p = y + rng.normal(0, 3, N)
    ones, w = np.ones(N), rng.integers(0, 5, N) / 4 + (rng.random(N) < 0.5)
    return {
        "normal": (y, p, ones),
        "weighted": (y, p, w),
        "any weights": (y, p, rng.random(N) * 10 + 2.0**-30),
        "float32": (y.astype(np.float32), p.astype(np.float32), w),
        "ties": (np.round(y), np.round(p / 2), w),
        "integers": (rng.poisson(2, N), rng.poisson(2, N), ones),
        "close": (1 + rng.integers(0, 9, N) * 2.0**-40, 1 + rng.integers(0, 99, N) * 2.0**-45, ones),
        "reversed": (y, -y, ones),
        "any size": (np.exp(y * 20), -np.exp(p * 20), ones),
        "zeros": (np.where(y > 0, y, 0.0), np.where(p > 0, -0.0, p), ones),
        "one": (y[:1], p[:1], ones[:1]),
        "two": (y[:2], p[:2], ones[:2]),
        "equal": (np.ones(4), p[:4], ones[:4]),
        "no weight": (y[:4], p[:4], np.zeros(4)),
        "empty": (y[:0], p[:0], ones[:0]),
    }


LOGS = logs()


def expected(of: Any, y: Any, p: Any, w: Any) -> float:
    found = of(y.astype(np.float64), p.astype(np.float64), w) if len(y) else math.nan
    return float(found)


# Some settings have few bits, and the truth has to be within their wide bounds.
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")
@pytest.mark.filterwarnings("ignore::streammetrics.errors.UndefinedMetricWarning")
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(("tag", "settings", "of"), CASES)
def test_orders_equal_those_of_all_pairs(tag: str, settings: Any, of: Any, log: str) -> None:
    y, p, w = LOGS[log]
    weights = {} if (w == 1).all() else {"sample_weight": w}
    want, slack = expected(of, y, p, w), 1e-15
    for limit, bits in ((1 << 14, 7), (0, 7), (0, 2), (20, 11)):
        metric = sm.extend.METRICS[tag](**settings, limit=limit, bits=bits).update(y, p, **weights)
        value, (low, high) = metric.compute(), metric.bounds()
        if math.isnan(want):
            assert metric.explain()["reason"]
            if limit > 20:
                assert math.isnan(value)
            continue
        assert low - slack <= want <= high + slack
        assert low <= value <= high
        if limit > 20 or log == "integers":
            assert value == pytest.approx(want, rel=1e-14, abs=1e-15)
            assert low == high == value or log == "any weights"


def test_scipy() -> None:
    for log in ("normal", "ties", "integers", "close", "zeros"):
        y, p, _ = LOGS[log]
        assert sm.SpearmanCorrelation().update(y, p).compute() == pytest.approx(stats.spearmanr(y, p)[0], rel=1e-14)
        for variant in "bc":
            found = sm.KendallCorrelation(variant=variant).update(y, p).compute()
            assert found == pytest.approx(stats.kendalltau(y, p, variant=variant)[0], rel=1e-14)


def torchrec_xauc(labels: Any, predictions: Any, weights: Any) -> float:
    """As `compute_error_sum` and `compute_weighted_num_pairs` of torchrec, in one batch."""
    up = np.triu(np.ones((len(labels), len(labels))), 1) * np.outer(weights, weights)
    dy, dp = np.sign(labels[:, None] - labels), np.sign(predictions[:, None] - predictions)
    return float((up * (dy == dp) * ((dy != 0) | (dp == 0))).sum() / up.sum())


def torchrec_rauc(labels: Any, predictions: Any) -> float:
    """As `_compute_rauc_helper` of torchrec: pairs in reverse, of labels in the order of (prediction, label)."""
    rows = [x for x, _ in sorted(zip(labels.tolist(), predictions.tolist(), strict=True), key=lambda r: (r[1], r[0]))]
    turned = sum(a > b for a, b in itertools.combinations(rows, 2))
    return 1 - turned / math.comb(len(rows), 2)


def test_torchrec_where_all_rows_are_one_batch() -> None:
    for log in ("normal", "ties", "integers"):
        y, p, w = LOGS[log]
        assert sm.XAUC().update(y, p).compute() == pytest.approx(torchrec_xauc(y, p, np.ones(N)), rel=1e-14)
        assert sm.RegressionAUC(pairs="all").update(y, p).compute() == pytest.approx(torchrec_rauc(y, p), rel=1e-14)
    parts = [torchrec_xauc(y[i : i + 20], p[i : i + 20], w[i : i + 20]) for i in range(0, N, 20)]
    assert np.mean(parts) != pytest.approx(torchrec_xauc(y, p, w), rel=1e-3)  # theirs depends on the batches


def test_regression_auc_of_labels_is_auc() -> None:
    y, p = rng.integers(0, 2, N), rng.random(N).round(1)
    assert sm.RegressionAUC().update(y, p).compute() == sm.AUC().update(y, p).compute()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 10, 35, 1 << 14])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_in_any_order_cut_and_merged_anyhow_make_the_same_state(limit: int, weighted: bool) -> None:
    y, p, w = LOGS["ties" if limit == 10 else "weighted"]
    columns = {"y_true": y, "y_pred": p} | ({"sample_weight": w} if weighted else {})
    keys = rng.integers(0, 3, N)
    whole = sm.KendallCorrelation(limit=limit).update(columns)
    sliced = sm.Sliced(sm.KendallCorrelation(limit=limit), by="key").update({**columns, "key": keys})
    for _ in range(4):
        order = rng.permutation(N)
        parts = [
            sm.KendallCorrelation(limit=limit).update({n: c[rows] for n, c in columns.items()})
            for rows in np.split(order, np.sort(rng.integers(0, N, 3)))
        ]
        merged = sm.merge([sm.from_bytes(part.to_bytes()) for part in parts])
        assert merged.to_bytes() == whole.to_bytes()
    assert sliced.total.to_bytes() == whole.to_bytes()
    for k in range(3):
        rows = keys == k
        alone = sm.KendallCorrelation(limit=limit).update({n: c[rows] for n, c in columns.items()})
        assert sliced[k].state == alone.state


def collisions(n: int) -> Any:
    """Numbers whose 64 bits have one hash of 32: the last step of the hash, backwards."""
    found, low = list[float](), 0
    while len(found) < n:
        x, low = (0x12345678 << 32) | low, low + 1
        for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
            x ^= x >> 33
            x = x * pow(factor, -1, 1 << 64) % (1 << 64)
        x ^= x >> 33
        bits = np.array([~x % (1 << 64) if not x >> 63 else x ^ (1 << 63)], np.uint64)
        value = float(bits.view(np.float64)[0])
        if 2.0**-400 <= abs(value) <= 2.0**400:
            found.append(value)
    return np.array(found)


def test_numbers_of_one_hash_are_told_apart_by_a_second_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.concatenate([collisions(8), rng.normal(0, 1, 8)])
    assert (
        len(np.unique(pairs._hash32((y + 0.0).view(np.uint64) ^ np.where(y < 0, ~np.uint64(0), np.uint64(1 << 63)))))
        == 9
    )
    p, w = rng.permutation(y), rng.random(16)
    metric = sm.KendallCorrelation().update(y, p, sample_weight=w)
    assert metric.state.pairs.sure.all()
    assert metric.compute() == pytest.approx(oracles.kendall("b")(y, p, w), rel=1e-14)
    monkeypatch.setattr(pairs, "_hash32", lambda keys, second=False: np.zeros_like(keys))
    metric = sm.KendallCorrelation().update(y, p)
    with pytest.raises(sm.StateFormatError, match=r"the views of JointHistogram\.exact do not count the same rows"):
        metric.compute()


def test_bounds_are_narrow_and_the_value_is_nearer() -> None:
    y = rng.normal(size=40_000)
    p = y + rng.normal(size=len(y))
    for metric, want in (
        (sm.SpearmanCorrelation(), stats.spearmanr(y, p)[0]),
        (sm.KendallCorrelation(), stats.kendalltau(y, p)[0]),
    ):
        low, high = metric.update(y, p).bounds()
        assert low < want < high < low + 0.02
        assert metric.compute() == pytest.approx(want, abs=5e-4)
        grid = type(metric)().update(y.round(1) * 8, p.astype(np.float16).round())  # numbers of few bits
        assert grid.bounds()[0] <= grid.compute() <= grid.bounds()[1]


def test_the_limit_of_memory_holds() -> None:
    y, p = rng.normal(size=(2, 50_000))
    parts = [
        sm.XAUC(memory_limit=1 << 19, limit=0).update(*c)
        for c in zip(*(v.reshape(50, -1) for v in (y, p)), strict=True)
    ]
    with pytest.raises(sm.MemoryLimitError, match="JointHistogram would need"):
        sm.merge(parts)
    with pytest.raises(sm.MemoryLimitError, match="the rows would need"):
        parts[0].update(y, p)
    assert parts[0].explain()["rows"] == 1000


@pytest.mark.filterwarnings("ignore:regression_auc is undefined")
@pytest.mark.parametrize("limit", [0, 10])
def test_a_row_without_weight_makes_no_pair(limit: int) -> None:
    auc = sm.RegressionAUC(limit=limit).update([0.9, -2.5], [4.9, -6.3], sample_weight=[1, 0])
    assert math.isnan(auc.compute())
