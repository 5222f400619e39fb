"""Log-loss and calibration within groups: each group by scikit-learn, whoever holds its rows, within a memory limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles_groups import group_calibration_error, group_log_loss

import streammetrics as sm


def log(n: int, seed: int, text: bool = False, dtype: Any = np.float64) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    users = np.minimum(rng.zipf(1.5, n), n // 8) * 2654435761
    p = rng.beta(1, 4, n).astype(dtype)
    keys = np.array([f"user-{u}" for u in users]) if text else users
    return {"group": keys, "y_true": (rng.random(n) < p).astype(np.int64), "y_score": p}


def fed(metric: Any, table: dict[str, Any], rows: Any = slice(None)) -> Any:
    return metric.update({k: v[rows] for k, v in table.items()})


@pytest.mark.parametrize("n", [100, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_group_by_scikit_learn(text: bool, dtype: Any, weighted: bool, n: int) -> None:
    table = log(n, 1, text, dtype)
    w = np.random.default_rng(2).integers(0, 9, n) / 2 if weighted else np.ones(n)
    given = table | ({"sample_weight": w} if weighted else {})
    wide = table["group"], table["y_true"], table["y_score"].astype(float), w
    for by in ("uniform", "impressions", "positives"):
        metric = fed(sm.GroupLogLoss(group_weight=by), given)
        assert metric.compute() == pytest.approx(group_log_loss(*wide, by), rel=1e-13)
        assert metric.bounds() == (metric.compute(), metric.compute())
    for relative in (False, True):
        metric = fed(sm.GroupCalibrationError(relative=relative), given)
        assert metric.compute() == pytest.approx(group_calibration_error(*wide, relative), rel=1e-12)
    whole = sm.GroupLogLoss(group_weight="impressions").of(fed(sm.GroupLogLoss(), given).state)
    alone = sm.LogLoss().update({k: v for k, v in given.items() if k != "group"})
    assert whole == pytest.approx(alone.compute(), rel=1e-15)


def test_logits_and_wild_weights() -> None:
    table = log(500, 3)
    z = np.log(table["y_score"]) - np.log1p(-table["y_score"])
    w = np.where(np.arange(500) % 50 == 0, 2.0**30, 1.0)
    z[::100] *= 1e6
    given = {"group": table["group"], "y_true": table["y_true"], "y_score": z, "sample_weight": w}
    found = fed(sm.GroupLogLoss(scale="logit", group_weight="impressions"), given)
    plain = sm.LogLoss(scale="logit").update(given["y_true"], z, sample_weight=w)
    assert found.compute() == pytest.approx(plain.compute(), rel=1e-14)
    parts = [
        fed(sm.GroupLogLoss(scale="logit", group_weight="impressions"), given, slice(i, None, 3)) for i in range(3)
    ]
    assert sm.merge(parts) == found


def test_whoever_holds_which_rows() -> None:
    table = log(20_000, 4)
    for make in (sm.GroupLogLoss, sm.GroupCalibrationError):
        whole, rng = fed(make(), table), np.random.default_rng(1)
        parts = [make() for _ in range(5)]
        for rows in np.array_split(rng.permutation(20_000), 60):
            fed(parts[rng.integers(5)], table, rows)
        merged = sm.merge([p.to_bytes() for p in parts])
        assert merged.digest() == whole.digest()
        assert merged.compute() == whole.compute()


def test_a_table_that_goes_on_after_it_was_read() -> None:
    table = log(9000, 5)
    metric = sm.GroupLogLoss()
    for i in range(9):
        fed(metric, table, slice(1000 * i, 1000 * (i + 1)))
        metric.compute()
        metric.copy()
    assert metric == fed(sm.GroupLogLoss(), table)


def test_the_limit_changes_nothing_and_counts_groups_not_rows() -> None:
    rng = np.random.default_rng(6)
    few = {"group": rng.integers(0, 50, 5000), "y_true": rng.integers(0, 2, 5000), "y_score": rng.random(5000)}
    metric = sm.GroupLogLoss(memory_limit=20_000)
    for _ in range(5):
        fed(metric, few)
    assert metric.explain()["used"] == 50
    before = metric.digest()
    many = few | {"group": np.arange(5000)}
    with pytest.raises(sm.MemoryLimitError, match="memory_limit of 20,000"):
        fed(metric, many)
    assert metric.digest() == before


def test_kinds_of_keys_do_not_mix() -> None:
    metric = sm.GroupLogLoss().update([1], [0.5], group=[1])
    with pytest.raises(sm.InvalidInputError, match="expected keys of kind integer, as in earlier rows"):
        metric.update([1], [0.5], group=["a"])
    with pytest.raises(sm.IncompatibleStateError, match="of kind integer here and string there"):
        metric.merge(sm.GroupLogLoss().update([1], [0.5], group=["a"]))


@pytest.mark.slow
def test_intervals_cover() -> None:
    rng, hit = np.random.default_rng(7), 0
    for _ in range(200):
        p = np.clip(np.repeat(rng.beta(2, 5, 100), 5), 0.01, 0.99)
        metric = sm.GroupLogLoss().update((rng.random(500) < p).astype(int), p, group=np.repeat(np.arange(100), 5))
        found, q = metric.interval(0.9), TRUE_RATES
        hit += found.low <= -(q * np.log(q) + (1 - q) * np.log1p(-q)).mean() <= found.high
    assert 165 <= hit <= 195


TRUE_RATES = np.clip(np.random.default_rng(8).beta(2, 5, 1_000_000), 0.01, 0.99)
