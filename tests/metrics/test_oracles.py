"""Every metric equals an implementation from outside, on random and on real logs, with and without weights."""

from __future__ import annotations

import importlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import oracles_decisions
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import states_of
from streammetrics.laws.case import numbers, value_of

HERE = Path(__file__).parent.parent
DATA = Path(os.environ.get("STREAMMETRICS_DATA", HERE.parent.parent / "shared" / "data"))
TABLES = ("ctr_video", "ctr_fashion_men", "binary_flights")
OWN = sorted(t for t, m in sm.extend.METRICS.items() if m.__module__.startswith("streammetrics."))
ORACLES = oracles.ORACLES | oracles_decisions.DECISIONS
CASES = [(tag, i) for tag in ORACLES for i in range(len(ORACLES[tag]))]


def test_every_metric_has_an_oracle() -> None:
    tables = [importlib.import_module(path.stem).ORACLES for path in HERE.glob("oracles*.py")]
    lines = [tag for table in tables for tag in table]
    assert not set(OWN) - set(lines), "these metrics have no line in tests/oracles*.py"
    assert len(lines) == len(set(lines))


def logs() -> dict[str, tuple[Any, Any, Any]]:
    """Labels, probabilities and weights: smooth, tied, saturated, rare, in every width of float."""
    rng = np.random.default_rng(11)
    n = 4000
    z = rng.normal(-1.5, 1.2, n)
    p = 1 / (1 + np.exp(-z))
    y = (rng.random(n) < p).astype(np.int64)
    rare = rng.beta(0.5, 300, n)
    rare_y = (rng.random(n) < 20 * rare).astype(np.int64)
    ones, w = np.ones(n), rng.integers(0, 9, n) / 4
    return {
        "smooth": (y, p, ones),
        "smooth weighted": (y, p, w),
        "fractional weights": (y, p, rng.random(n) * 10 + 2**-30),
        "float32": (y, p.astype(np.float32), w),
        "float16": (y, p.astype(np.float16), ones),
        "tied": (y, np.round(p, 1), w),
        "saturated": (y, np.where(p > 0.4, 1.0, np.where(p < 0.1, 0.0, p)), ones),
        "rare": (rare_y, rare, ones),
        "few": (y[:7], p[:7], w[:7] + 1),
    }


LOGS = logs()


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_random_logs(tag: str, i: int, log: str) -> None:
    check(ORACLES[tag][i], tag, *LOGS[log])


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("model", ["score_a", "score_b"])
def test_real_logs(table: str, model: str) -> None:
    if not (DATA / f"{table}.parquet").exists():
        pytest.skip("the real logs are not here: set STREAMMETRICS_DATA to their folder")
    import pyarrow.parquet as pq

    log = pq.read_table(DATA / f"{table}.parquet")
    y, p = log["label"].to_numpy(), log[model].to_numpy()
    w = log["weight"].to_numpy().astype(float) if "weight" in log.column_names else np.ones(len(y))
    for tag, i in CASES:
        for weights in (np.ones(len(y)), w):
            check(ORACLES[tag][i], tag, y, p, weights)


def check(oracle: Any, tag: str, y: Any, p: Any, w: Any) -> None:
    """Compare a metric with its oracle on float64-widened scores."""
    s, eps = p, 2.0**-52 if p.dtype == np.float64 else 2.0**-23
    if oracle.scale == "logit":
        s = np.clip(
            np.log(np.maximum(p.astype(float), 1e-9)) - np.log1p(-np.minimum(p.astype(float), 1 - 1e-9)), -30, 30
        )
        s = s.astype(p.dtype)
    wide = s.astype(np.float64)
    reads_loss = tag in ("log_loss", "normalized_entropy") and oracle.scale != "logit"
    expected = oracle.of(y, oracles.clipped(wide, eps) if reads_loss else wide, w)
    metric = sm.extend.METRICS[tag](**oracle.settings)
    metric.update({"y_true": y, "y_score": s} | ({} if (w == 1).all() else {"sample_weight": w}))
    value, (low, high) = value_of(metric), metric.bounds()
    value, low, high, expected = map(numbers, (value, low, high, expected))
    if "off_grid" not in metric.explain() or not metric.explain()["off_grid"]:
        known = (
            value if np.isnan(expected).any() else np.where(np.isnan(value), 0.0, value)
        )  # 0/0 in a normalised matrix: scikit-learn's 0
        np.testing.assert_allclose(known, expected, rtol=1e-14, atol=1e-15)
        if states_of(metric)[0].rounded is None:
            small = np.nan_to_num(value) < 2**-10  # may have had bits below 2**-60
            assert np.array_equal(low[~small], high[~small], equal_nan=True)
            np.testing.assert_allclose(low[small], high[small], atol=2**-58)
        else:  # products of weights lost bits
            np.testing.assert_allclose(low, high, rtol=1e-12)
            assert ((low <= value) & (value <= high)).all()
    else:
        slack = 4e-15 * max(1.0, math.log10(len(y)))  # the reference's own rounding
        undefined = np.isnan(expected)
        assert np.array_equal(undefined, np.isnan(value))
        assert (undefined | ((low - slack <= expected) & (expected <= high + slack))).all()
        assert (undefined | ((low <= value) & (value <= high))).all()
