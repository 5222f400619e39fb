"""Curves: thinned without losing a corner, drawn as they are; thresholds that reproduce the counts reported."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.metrics.curves.points import corners
from streammetrics.reports.plots import plot

CURVES = (sm.ROCCurve, sm.PRCurve, sm.GainCurve)


def clicks(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-rng.normal(-3, 1, n)))
    return (rng.random(n) < p).astype(np.uint8), p


def distance(x: Any, y: Any, kept: Any) -> float:
    """How far left-out points are from the line through those that stay."""
    worst = 0.0
    for i, j in itertools.pairwise(kept):
        dx, dy = x[j] - x[i], y[j] - y[i]
        off = np.abs((x[i : j + 1] - x[i]) * dy - (y[i : j + 1] - y[i]) * dx)
        worst = max(worst, float(off.max() / np.hypot(dx, dy)) if dx or dy else 0.0)
    return worst


@pytest.mark.parametrize("make", CURVES)
def test_thinned_curves_are_within_a_pixel(make: Any) -> None:
    y, p = clicks(100_000)
    whole, thin = make(tolerance=0.0).update(y, p).compute(), make().update(y, p).compute()
    assert len(whole[2]) > 5000
    assert 10 < len(thin[2]) < 1000
    kept = np.flatnonzero(np.isin(whole[2], thin[2]))
    for a, b in zip(whole[:2], thin[:2], strict=True):
        assert np.array_equal(a[kept], b[: len(kept)])
    if make is not sm.PRCurve:
        assert distance(whole[0], whole[1], kept) <= 2.0**-12


def test_corners_stay() -> None:
    x, y = np.array([0, 0, 0.2, 0.2, 0.4, 1.0]), np.array([0, 0.5, 0.5, 0.8, 0.8, 1.0])
    fine = np.linspace(0, 5, 501)
    dense = np.interp(fine, range(6), x), np.interp(fine, range(6), y)
    kept = corners(*dense, 1e-6)
    assert kept.tolist() == [0, 100, 200, 300, 400, 500]
    assert corners(x, y, 0.0).tolist() == list(range(6))
    assert corners(np.array([0.0]), np.array([0.0]), 0.1).tolist() == [0]
    assert corners(np.array([0.0, 1.0, 2.0, 1.0, 0.0]), np.zeros(5), 0.1).tolist() == [0, 2, 4]  # ends where it begins


EDGES = [0.0, 5e-324, 1e-310, 2.0**-34, 2.0**-33, 1e-7, 0.25, 0.5 - 2.0**-54, 0.5, 0.5 + 2.0**-53, 0.75, 0.9, 1 - 2.0**-24,
         1 - 2.0**-33, 1 - 2.0**-53, 1.0]  # fmt: skip


def awkward(scale: str, rng: Any) -> Any:
    """Scores at the edges of buckets, beside them, and anywhere."""
    if scale == "probability":
        low = np.array(EDGES)
        near = np.concatenate([low, np.nextafter(low, 2), np.nextafter(low, -1)])
        return np.clip(np.concatenate([near, rng.random(200), rng.beta(0.1, 3, 200)]), 0, 1)
    low = np.array([0.0, -0.0, 5e-324, 2.0**-149, 2.0**-126, 1e-3, 1.0, 3.5, 1e30, 3.4028234e38, 1e300])
    near = np.concatenate([low, -low, np.nextafter(low, np.inf), -np.nextafter(low, np.inf)])
    return np.concatenate([near[np.isfinite(near)], rng.normal(0, 1, 200), rng.normal(0, 1e-3, 200)])


@pytest.mark.parametrize("bits", [8, 10, 16])
@pytest.mark.parametrize("scale", ["probability", "real"])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_thresholds_reproduce_the_counts(scale: str, bits: int, dtype: type) -> None:
    rng = np.random.default_rng(bits)
    with np.errstate(over="ignore"):
        s = awkward(scale, rng).astype(dtype)
    s = s[np.isfinite(s)]
    y = rng.integers(0, 2, len(s))
    fpr, tpr, thresholds = sm.ROCCurve(scale=scale, bits=bits, tolerance=0.0).update(y, s).compute()
    wide = s.astype(np.float64)
    for f, t, threshold in zip(fpr, tpr, thresholds, strict=True):
        assert (wide[y == 0] >= threshold).sum() / (y == 0).sum() == f
        assert (wide[y == 1] >= threshold).sum() / (y == 1).sum() == t
    best = sm.MaxFBeta(scale=scale, bits=bits).update(y, s)
    assert sm.F1(threshold=best.threshold()).update(y, s).compute() == pytest.approx(best.compute(), rel=1e-15)


BEST = {
    "max_f1": (lambda **k: sm.MaxFBeta(**k), lambda tp, fp, P, N: Fraction(2 * tp) / (P + tp + fp)),
    "max_f2": (lambda **k: sm.MaxFBeta(beta=2.0, **k), lambda tp, fp, P, N: Fraction(5 * tp) / (4 * P + tp + fp)),
    "recall": (
        lambda **k: sm.RecallAtPrecision(precision=0.5, **k),
        lambda tp, fp, P, N: Fraction(tp) / P if 2 * tp >= tp + fp else Fraction(0),
    ),
    "precision": (
        lambda **k: sm.PrecisionAtRecall(recall=0.5, **k),
        lambda tp, fp, P, N: Fraction(tp) / (tp + fp) if 2 * tp >= P and tp + fp else Fraction(-1),
    ),
    "sensitivity": (
        lambda **k: sm.SensitivityAtSpecificity(specificity=0.5, **k),
        lambda tp, fp, P, N: Fraction(tp) / P if 2 * (N - fp) >= N else Fraction(-1),
    ),
}


def cuts(y: Any, s: Any, units: Any) -> list[tuple[Fraction, Fraction]]:
    """Weight of positives and negatives at or above every threshold."""
    out = [(Fraction(0), Fraction(0))]
    for t in sorted(set(s), reverse=True):
        above = [(int(u), label) for u, label, score in zip(units, y, s, strict=True) if score >= t]
        out.append((Fraction(sum(u for u, c in above if c)), Fraction(sum(u for u, c in above if not c))))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("group", range(10))
def test_the_best_of_all_thresholds_is_inside(group: int) -> None:
    rng = np.random.default_rng(group)
    for case in range(200):
        n, scale = int(rng.integers(1, 25)), ("probability", "real")[case % 2]
        s = rng.choice(awkward(scale, rng), n)
        y, units = rng.integers(0, 2, n), rng.integers(0, 8, n) if case % 5 == 0 else np.full(n, 4)
        P, N = (int(units[y == c].sum()) for c in (1, 0))
        if not P or not N:
            continue
        found = cuts(y, s, units)
        state = sm.AUC(bits=8, scale=scale).update({"y_true": y, "y_score": s, "sample_weight": units / 4}).state
        for name, (make, value) in BEST.items():
            low, high = make(bits=8, scale=scale).reading(state).bounds
            truth = max(value(tp, fp, P, N) for tp, fp in found)
            assert Fraction(low) <= truth <= Fraction(high) or abs(truth - Fraction(low)) < Fraction(1, 1 << 50), name
        tp_at = [(tp + fp, tp) for tp, fp in found]
        for fraction in (0.25, 0.5, 1.0):
            cut = Fraction(fraction) * (P + N)
            (x0, y0), (x1, y1) = next((a, b) for a, b in itertools.pairwise(tp_at) if b[0] >= cut)
            truth = (y0 + (cut - x0) * (y1 - y0) / (x1 - x0) if x1 > x0 else y1) / P
            low, high = sm.Lift(kind="gain", fraction=fraction, bits=8, scale=scale).reading(state).bounds
            assert Fraction(low) - Fraction(1, 1 << 50) <= truth <= Fraction(high) + Fraction(1, 1 << 50)


def test_what_cannot_be_reached() -> None:
    y, s = [1, 0, 0, 1], [0.1, 0.9, 0.8, 0.2]
    recall = sm.RecallAtPrecision(precision=0.9).update(y, s)
    assert (recall.compute(), recall.threshold()) == (0.0, float("inf"))
    assert recall.explain()["threshold"] == float("inf")
    with pytest.warns(sm.UndefinedMetricWarning, match="one class"):
        assert np.isnan(sm.SensitivityAtSpecificity().update([1, 1], [0.1, 0.2]).compute())


@pytest.mark.parametrize("make", CURVES)
def test_they_draw_themselves(make: Any) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    y, p = clicks(5000)
    metric = make().update(y, p)
    ax = plot(metric)
    x, _ = ax.lines[-1].get_data()
    points = metric.compute()
    assert np.array_equal(np.sort(x), np.sort(points[1] if make is sm.PRCurve else points[0]))
    assert ax.get_xlabel()
    again = plot(points, ax, label="model b")
    assert again is ax
    assert "model b" in [t.get_text() for t in ax.get_legend().get_texts()]
    matplotlib.pyplot.close("all")


def test_one_state_for_all() -> None:
    metrics = sm.MetricCollection(sm.AUC(), *(c() for c in CURVES), sm.MaxFBeta(), sm.Lift(), sm.KS())
    assert len(metrics.plan()) == 1
