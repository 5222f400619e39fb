"""Bins of equal width are what their edges say, for the neighbours of every edge; ends of buckets hold their scores."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from counting import counted

import streammetrics as sm
from streammetrics.numerics import score_buckets

COUNTS = (1, 2, 3, 7, 10, 15, 49, 100, 1000, 999_983, 1_000_000, (1 << 24) - 1, 1 << 24)


def neighbours(n: int, dtype: Any) -> Any:
    """Edges i/n, rounded, and the floats on either side; a thousand edges if there are more."""
    i = np.arange(n + 1) if n <= 1000 else np.random.default_rng(n).integers(0, n + 1, 1000)
    edges = (i / n).astype(dtype)
    sides = np.concatenate([edges, np.nextafter(edges, dtype(0)), np.nextafter(edges, dtype(1))])
    return np.unique(np.concatenate([sides, [0.0, 5e-324, 1.0]]).astype(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", COUNTS)
def test_bins_are_exact(n: int, dtype: Any) -> None:
    p = neighbours(n, dtype)
    expected = [min(int(Fraction(x) * n), n - 1) for x in p.tolist()]
    state = counted(sm.extend.ScoreBins(n_bins=n, sums=False), {"y_true": np.zeros(len(p), bool), "y_score": p})
    assert np.array_equal(state.rows[0], np.bincount(expected, minlength=n))


def test_multiplying_and_truncating_would_be_wrong() -> None:
    p = neighbours(100, np.float64)
    exact = np.array([min(int(Fraction(x) * 100), 99) for x in p.tolist()])
    assert (np.minimum((p * 100).astype(int), 99) != exact).sum() > 10  # so the test above can fail


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_exact(dtype: Any, weighted: bool) -> None:
    rng = np.random.default_rng(4)
    p, y = rng.random(3000).astype(dtype), rng.integers(0, 2, 3000)
    w = rng.integers(0, 9, 3000) / 4 if weighted else np.ones(3000)
    metric = sm.ExpectedCalibrationError(n_bins=7).update(y, p, **({"sample_weight": w} if weighted else {}))
    state = metric.state
    bins = [min(int(Fraction(x) * 7), 6) for x in p.tolist()]
    for k in range(7):
        held = [i for i in range(3000) if bins[i] == k]
        total = sum(Fraction(p[i].item()) * Fraction(w[i]) for i in held)
        assert abs(state.predicted_sum(k) - total) <= len(held) * (Fraction(1, 1 << 61) + Fraction(weighted, 1 << 52))
        assert state.masses(np.array([k]))[1] == [sum(w[i] * y[i] for i in held) * state.unit]


@pytest.mark.parametrize("bits", [8, 11, 16])
@pytest.mark.parametrize("scale", ["probability", "real", "logit"])
def test_scores_lie_between_the_ends_of_their_bucket(scale: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    special = [
        0.0,
        5e-324,
        2.0**-40,
        2.0**-33,
        0.25,
        0.5,
        1.0,
        1 - 2.0**-53,
        np.nextafter(0.5, 1),
        np.nextafter(0.5, 0),
    ]
    s = np.concatenate([special, np.arange(17) / 16, rng.random(400), rng.random(200) ** 9, 1 - rng.random(200) ** 9])
    if scale != "probability":
        s = np.concatenate([s, -s, rng.normal(0, 1e300, 50), rng.normal(0, 1e-40, 50), [-0.0, 3.5e38]])
    for scores in (s, np.clip(s, -3e38, 3e38).astype(np.float32)):
        empty = sm.extend.ScoreHistogram(scale=scale, bits=bits, limit=0)
        rows = {"y_true": np.zeros(len(scores), bool), "y_score": scores, "cell": np.arange(len(scores))}
        state = counted(empty, rows, "cell")
        at = state.cells.tallies["rows"].places.astype(np.int64) >> 1
        low, grid, high = score_buckets.bucket_bounds(at, scale != "probability", bits)
        assert ((low <= scores) & (scores <= high)).all()
        assert ((low <= grid) & (grid <= high)).all()
        on_grid = state.read_cells_named("off_grid") == 0
        assert on_grid.sum() > 5
        assert (grid[on_grid] == scores[on_grid]).all()


def test_rows_of_weight_zero_leave_a_histogram_exact() -> None:
    auc = sm.AUC(limit=0).update([0, 1, 1], [0.25, 0.5, 0.3], sample_weight=[1.0, 2.0, 0.0])
    assert auc.state.is_exact
    assert auc.state.coarsen(8).is_exact
    assert not auc.update([0], [0.3], sample_weight=[1.0]).state.is_exact
