"""Blocks are judged by their extreme scores: what is bad, and what is clipped, must still be found row by row."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm


@pytest.mark.parametrize("score", ["f4", "f8"])
@pytest.mark.parametrize("bad", [1 + 2.0**-23, -1e-30, np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("metric", [sm.LogLoss, sm.Calibration, sm.AUC, sm.ExpectedCalibrationError])
def test_minus_zero_hides_no_bad_score(metric, bad, score):
    """By its bits it comes after all that is larger than 1."""
    fed = metric().update([0, 1], np.array([0.1, 0.9], score))
    before = fed.digest()
    for at in (0, 2):
        p = np.array([0.5, -0.0, 0.5], score)
        p[at] = bad
        with pytest.raises(sm.InvalidInputError, match=f"in row {at}"):
            fed.update(np.array([0, 1, 1], np.uint8), p)
    assert fed.digest() == before


@pytest.mark.parametrize("score", ["f4", "f8"])
@pytest.mark.parametrize("eps", [None, 0.01])
@pytest.mark.parametrize("sliced", [False, True])
def test_clipped_rows_are_counted(score, eps, sliced):
    """Blocks in which nothing is clipped are told by their least and largest scores."""
    rng = np.random.default_rng(5)
    y, p = rng.integers(0, 2, 9000), rng.uniform(0.02, 0.98, 9000).astype(score)
    edge = eps or (2.0**-23 if score == "f4" else 2.0**-52)
    near = np.array([edge, np.nextafter(edge, 0), 1 - edge, np.nextafter(1 - edge, 1), 0, -0.0, 1, 0.5])
    at = rng.choice(4000, 60, replace=False)  # the blocks after that are clean
    p[at] = rng.choice(near, 60)
    p[5000], y[5000] = -0.0, 0  # -0.0 comes after everything by its bits, and hides what is beyond the edge
    p[5001], y[5001] = 1.0, 0
    q = np.where(y == 1, p.astype(float), 1 - p.astype(float))
    expected = int(((q < edge) | (q > 1 - edge)).sum())
    metric = sm.LogLoss(eps=eps)
    if sliced:
        arms = sm.Sliced(metric, by="arm").update({"y_true": y, "y_score": p, "arm": np.arange(9000) % 3})
        metric = arms.total
    else:
        metric.update(y, p)
    assert metric.explain()["clipped"] == expected > 20
