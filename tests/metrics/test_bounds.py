"""Certified bounds contain the truth, as exact fractions, on 10,000 random sets chosen to be awkward."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import draws
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.metrics.curves.scored_metric import ScoredMetric

SETS = 10_000
GROUPS = 20


def truth(y: Any, s: Any, w: Any) -> dict[str, Fraction] | None:
    """AUC, partial AUC, average precision and KS in fractions, by one walk down the distinct scores."""
    scale = 4  # the weights are multiples of 1/4
    units = [int(x * scale) for x in w]
    P = sum(u for u, label in zip(units, y, strict=True) if label)
    N = sum(units) - P
    if not P or not N:
        return None
    cut = Fraction(0.25) * N
    cells: dict[float, list[int]] = {}
    for score, label, unit in zip(s, y, units, strict=True):
        cells.setdefault(score, [0, 0])[label] += unit
    tp = fp = twice = 0
    part = precision = Fraction(0)
    gap = Fraction(0)
    for score in sorted(cells, reverse=True):
        c, a = cells[score]
        twice += c * (2 * tp + a)
        if fp < cut and c:
            share = min(Fraction(1), (cut - fp) / c)
            part += share * c * (tp + share * a / 2)
        tp, fp = tp + a, fp + c
        if a:
            precision += Fraction(a, P) * Fraction(tp, tp + fp)
        gap = max(gap, abs(Fraction(tp, P) - Fraction(fp, N)))
    chance = Fraction(1, 32)
    partial = (1 + (part / (P * N) - chance) / (Fraction(1, 4) - chance)) / 2
    auc = Fraction(twice, 2 * P * N)
    return {"auc": auc, "partial": partial, "gini": 2 * auc - 1, "average_precision": precision, "ks": gap}


def scores(rng: np.random.Generator, n: int, kind: int, scale: str) -> Any:
    """Scores that share buckets, tie, saturate, or stand at the edges of buckets."""
    if scale == "probability":
        made = (
            rng.random(n),
            rng.beta(0.05, 0.05, n),
            np.round(rng.random(n), 1),
            0.5 + rng.normal(0, 1e-12, n),
            1 - rng.random(n) * 1e-9,
            rng.choice([0.0, 2.0**-33, 2.0**-34, 1e-300, 0.5, 1.0, 1 - 2.0**-53], n),
        )[kind % 6]
        return np.clip(made, 0, 1)
    return (
        rng.normal(0, 1, n),
        rng.normal(0, 1e-3, n),
        np.round(rng.normal(0, 2, n)),
        rng.normal(0, 1e300, n),
        1 + rng.random(n) * 1e-12,
        rng.choice([0.0, -0.0, 5e-324, -5e-324, 1e-40, 3.5e38, -1e300], n),
    )[kind % 6]


METRICS = {
    "auc": lambda **k: sm.AUC(**k),
    "partial": lambda **k: sm.AUC(max_fpr=0.25, **k),
    "gini": lambda **k: sm.Gini(**k),
    "average_precision": lambda **k: sm.AveragePrecision(**k),
    "ks": lambda **k: sm.KS(**k),
}


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_the_truth_is_inside(group: int) -> None:
    rng = np.random.default_rng(group)
    for case in range(SETS // GROUPS):
        n, scale = int(rng.integers(1, 30)), ("probability", "real", "logit")[case % 3]
        s = scores(rng, n, case, scale)
        if case % 2:
            with np.errstate(over="ignore"):
                s = np.clip(s, -3e38, 3e38).astype(np.float32)
        y = rng.integers(0, 2, n)
        w = rng.integers(0, 8, n) / 4 if case % 5 == 0 else np.ones(n)
        expected = truth(y.tolist(), s.astype(float).tolist(), w.tolist())
        if expected is None:
            continue
        state = sm.AUC(bits=8 + 4 * (case % 7 == 0), scale=scale)
        columns = {"y_true": y, "y_score": s} | ({"sample_weight": w} if case % 5 == 0 else {})
        state.update(columns)
        for name, make in METRICS.items():
            metric = make(bits=state.state.bits, scale=scale)
            low, high = metric.reading(state.state).bounds
            value = metric.reading(state.state).value
            assert low <= value <= high, (name, case)
            if low == high:
                assert abs(Fraction(low) - expected[name]) <= Fraction(1, 1 << 50), (name, case)
            else:
                assert Fraction(low) <= expected[name] <= Fraction(high), (name, case)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_half_precision_is_exact_and_says_so(dtype: type) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    rng = np.random.default_rng(5)
    p = rng.beta(1, 200, 200_000)
    y, s = rng.random(p.size) < p, p.astype(dtype)
    for metric, reference in ((sm.AUC(), roc_auc_score), (sm.AveragePrecision(), average_precision_score)):
        low, high = metric.update(y, s).bounds()
        expected = reference(y, s.astype(float))
        assert (low == high) == (dtype is np.float16)
        assert low - 1e-14 <= expected <= high + 1e-14
        if dtype is np.float16:
            assert metric.compute() == pytest.approx(expected, rel=1e-14)


HALVES = np.arange(1 << 16, dtype=np.uint16)


def every_half(kind: str, scale: str) -> Any:
    """Every half-precision number of a scale, as float32."""
    held = (
        HALVES.view(np.float16).astype(np.float32) if kind == "float16" else (HALVES.astype(np.uint32) << 16).view("f4")
    )
    held = held[np.isfinite(held)]
    if scale != "probability":
        return held
    held = held[(held >= 0) & (held <= 1)]
    return held if kind == "float16" else held[(held == 0) | (held >= 2.0**-32)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "metric",
    [m for t, m in sm.extend.METRICS.items() if issubclass(m, ScoredMetric) and t in draws.BINARY],
    ids=lambda m: m.about.tag,
)
@pytest.mark.parametrize("scale", ["probability", "real", "logit"])
def test_every_half_precision_score_has_a_bucket_of_its_own(scale: str, metric: Any, kind: str) -> None:
    if metric is sm.ThresholdedAUC and scale != "probability":
        pytest.skip("thresholds are probabilities")
    state = metric(scale=scale, limit=0)
    s = every_half(kind, scale)
    y = (np.arange(len(s)) % 3 == 0).astype(np.uint8)
    state.update(y, s.astype(np.float16) if kind == "float16" else s)
    assert state.state.has_buckets
    low, high = state.bounds()
    tight = isinstance(low, float) and high - low < 1e-12  # logarithms and powers, whose rounding has room
    assert tight or state.explain()["exact"]


def test_saturated_probabilities_are_told_of() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(0, 60, (3000, 3))
    y = rng.integers(0, 3, 3000)
    p = np.exp(z - z.max(axis=1)[:, None])
    others = np.stack([np.delete(z, k, axis=1) for k in range(3)], axis=1)
    odds = z - np.logaddexp(others[..., 0], others[..., 1])
    probable = sm.AUC(num_classes=3, limit=0).update(y, p / p.sum(axis=1)[:, None])
    low, high = probable.bounds()
    assert high - low > 0.1
    assert 'scale="logit"' in probable.explain()["hint"]
    few = sm.AUC(num_classes=3).update(y, p / p.sum(axis=1)[:, None])
    assert low <= few.compute() <= high
    assert few.explain()["exact"]
    assert "hint" not in few.explain()
    told = sm.AUC(num_classes=3, scale="logit", limit=0).update(y, odds)
    assert low <= told.bounds()[0] <= told.bounds()[1] <= high
    assert told.bounds()[1] - told.bounds()[0] < 1e-3
    assert "hint" not in told.explain()
    spread = sm.AUC(num_classes=3, bits=8).update(y, rng.dirichlet([1.0, 1.0, 1.0], 3000))
    assert "hint" not in spread.explain()
    lone = sm.AUC(limit=0).update(y == 0, p[:, 0])
    assert 'scale="logit"' in lone.explain()["hint"]
    assert "hint" not in sm.AUC().update(y == 0, p[:, 0]).explain()
