"""Exact scores: to the last bit of float64, within a memory limit that raises and loses nothing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from sklearn import metrics as sk

import streammetrics as sm


def pairs(y, s) -> Fraction:
    """AUC over all pairs."""
    positives, negatives = s[y == 1], s[y == 0]
    wins = sum(int((p > negatives).sum()) * 2 + int((p == negatives).sum()) for p in positives)
    return Fraction(wins, 2 * len(positives) * len(negatives))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", ["probability", "real"])
def test_neighbouring_floats_are_told_apart(dtype: type, scale: str) -> None:
    rng = np.random.default_rng(3)
    near = np.array([0.5], dtype)
    for _ in range(20):
        near = np.append(near, np.nextafter(near[-1], dtype(1)))
    edges = np.array([0, 1, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal], dtype)
    s = rng.choice(np.concatenate([near, edges, *([-near, -edges] if scale == "real" else [])]), 500)
    y = rng.integers(0, 2, 500)
    auc = sm.AUC(exact=True, scale=scale).update(y, s)
    assert auc.compute() == float(pairs(y, s))
    assert auc.bounds() == (auc.compute(),) * 2
    assert np.isclose(sm.AveragePrecision(exact=True, scale=scale).update(y, s).compute(),
                      sk.average_precision_score(y, s), rtol=1e-15)  # fmt: skip


def test_dtypes_meet_and_zeros_have_one_sign() -> None:
    mixed = sm.AUC(exact=True, scale="real").update([0, 1], np.array([0.5, -0.0], np.float32))
    mixed.update([1, 0], np.array([0.5, 0.0])).update([1], np.array([0.25], np.float16))
    assert mixed.state.thresholds(np.arange(3)).tolist() == [0.0, 0.25, 0.5]
    assert mixed.state.counts.tolist() == [[1, 0, 1], [1, 1, 1]]


@pytest.mark.parametrize("wait", [300, 3000, 1 << 20])
def test_splits_of_many_sizes(wait: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.count.tallies.WAIT", wait)
    rng = np.random.default_rng(wait)
    n = 20_000
    y, s, w = rng.integers(0, 2, n), np.round(rng.random(n), 3), rng.integers(1, 4, n) / 2
    whole = sm.AUC(exact=True).update(y, s)
    parts, weighted = sm.AUC(exact=True), sm.AUC(exact=True)
    for rows in np.array_split(rng.permutation(n), 50):
        scores = s[rows].astype(np.float32 if (s[rows] == s[rows].astype(np.float32)).all() else np.float64)
        parts.update(y[rows], scores)
        weighted.update(y[rows], s[rows], sample_weight=w[rows])
        parts.compute()
    assert parts.to_bytes() == whole.to_bytes()
    assert np.isclose(weighted.compute(), sk.roc_auc_score(y, s, sample_weight=w), rtol=1e-14)
    assert whole.state.counts.shape == (2, len(np.unique(s)))


def test_the_limit_raises_and_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    few = sm.AUC(exact=True, memory_limit=400_000)
    for _ in range(100):  # a thousand different scores fit, however many rows have them
        few.update(rng.integers(0, 2, 5000), rng.integers(0, 1000, 5000) / 1000)
    before, value = few.digest(), few.compute()
    with pytest.raises(sm.MemoryLimitError, match=r"would need .* memory_limit (is|of) 400,000"):
        few.update(rng.integers(0, 2, 40_000), rng.random(40_000))
    assert (few.digest(), few.compute()) == (before, value)
    other = sm.AUC(exact=True).update(rng.integers(0, 2, 40_000), rng.random(40_000))
    theirs = other.digest()
    with pytest.raises(sm.MemoryLimitError):
        few.merge(other)
    assert (few.digest(), other.digest(), few.compute()) == (before, theirs, value)
    sliced = sm.Sliced(sm.AUC(exact=True, memory_limit=1000), by="k")
    with pytest.raises(sm.MemoryLimitError):
        sliced.update({"y_true": [0, 1] * 50, "y_score": rng.random(100), "k": [1, 2] * 50})
    assert len(sliced) == 0


def test_one_state_for_several_metrics() -> None:
    metrics = sm.MetricCollection(sm.AUC(exact=True), sm.KS(exact=True), sm.AveragePrecision(exact=True), sm.CTR())
    assert next(p["metrics"] for p in metrics.plan()) == ["auc", "ks", "average_precision"]
    with pytest.raises(ValueError, match="does not use bits= or limit="):
        sm.AUC(exact=True, bits=16)
