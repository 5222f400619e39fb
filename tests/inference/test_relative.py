"""Relative differences of metrics that may be 0 or negative, such as profit: against the delta method in plain code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats

import streammetrics as sm

N, SHARDS = 4000, 64


def profit(rng: np.random.Generator, mean: float, first: int) -> Any:
    """The profit of an arm with this mean, which is not a draw."""
    made, values = sm.Sharded({"profit": sm.Mean()}, unit="user", shards=SHARDS), rng.normal(0.0, 1.0, N)
    return made.update(value=values - values.mean() + mean, user=np.arange(N) + first)


def delta_method(a: Any, b: Any) -> tuple[float, float]:
    """a / b - 1 and its error, from the leave-one-out values of both sides."""
    (x,), (y,) = (samples(side) for side in (a, b))
    ratio = x.values[0] / y.values[0]
    points = [
        (p - ratio * q) / y.values[0]
        for p, q in zip(x.shards.leave_one_out[:, 0], y.shards.leave_one_out[:, 0], strict=True)
    ]
    mean = math.fsum(points) / SHARDS
    return ratio - 1.0, math.sqrt((SHARDS - 1) / SHARDS * math.fsum((p - mean) ** 2 for p in points))


def samples(side: Any) -> Any:
    from streammetrics.collect.accumulator import definition_of
    from streammetrics.collect.metric_like import states_of

    return definition_of(side).samples(states_of(side))


@pytest.mark.parametrize("mean", [-1.5, -0.5, 0.0, 0.02])
def test_a_negative_treatment(mean: float) -> None:
    rng = np.random.default_rng(3)
    a, b = profit(rng, mean, 0), profit(rng, 1.0, N)
    found = sm.compare(a, b, relative=True)["profit"].relative
    value, error = delta_method(a, b)
    assert found.estimate == pytest.approx(value, rel=1e-12)
    assert found.standard_error == pytest.approx(error, rel=1e-9)
    assert "delta method" in found.method
    reach = (found.high - found.estimate) / error
    assert scipy.stats.norm.ppf(0.975) < reach < scipy.stats.t.ppf(0.975, 55)
    assert found.estimate - found.low == pytest.approx(found.high - found.estimate)


@pytest.mark.parametrize("mean", [-1.0, -0.02, 0.01])
def test_a_control_that_is_not_clearly_above_zero(mean: float) -> None:
    rng = np.random.default_rng(4)
    a, b = profit(rng, 0.5, 0), profit(rng, mean, N)
    found = sm.compare(a, b, relative=True)["profit"]
    assert (
        "is not clearly above 0, so a relative difference has no meaning; use the absolute difference" in found.reason
    )
    assert np.isnan([found.relative.estimate, found.relative.low, found.p_value]).all()
    assert found.difference.low > 0.0
    assert sm.compare(a, b)["profit"].reason is None
    cards = [
        sm.scorecard(
            {"old": b, "new": a}, control="old", primary="profit", better={"profit": "high"}, relative=r, final=True
        )
        for r in (True, False)
    ]
    relative, absolute = (card.verdicts["new"] for card in cards)
    assert relative.decision == "inconclusive"
    assert "--absolute" in relative.sentence
    assert absolute.decision == "ship"


def test_positive_means_keep_the_interval_of_logarithms() -> None:
    rng = np.random.default_rng(5)
    found = sm.compare(profit(rng, 1.1, 0), profit(rng, 1.0, N), relative=True)["profit"].relative
    middle = math.sqrt((1.0 + found.low) * (1.0 + found.high)) - 1.0
    assert found.estimate == pytest.approx(middle, rel=1e-9)
    assert "delta" not in found.method


def test_independent_sides() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(-0.5, 1.0, N), rng.normal(1.0, 1.0, N)
    a, b = (sm.Mean(squares=True).update(value=v) for v in (x, y))
    found = sm.compare(a, b, independent=True, relative=True).relative
    ratio = x.mean() / y.mean()
    error = math.sqrt(x.var(ddof=1) / N + ratio**2 * y.var(ddof=1) / N) / y.mean()
    assert found.estimate == pytest.approx(ratio - 1.0)
    assert found.standard_error == pytest.approx(error, rel=1e-9)
    swapped = sm.compare(b, a, independent=True, relative=True)
    assert "not clearly above 0" in swapped.reason
