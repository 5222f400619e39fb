"""Rows that fade: the value is that of rows that come 2**k times, and what has no such value is refused."""

from __future__ import annotations

import warnings

import draws
import numpy as np
import pandas as pd
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.case import numbers, value_of
from streammetrics.laws.specimens import make_consistent, sample
from streammetrics.reading.about import about_of

N = 400
rng = np.random.default_rng(8)
STEPS = rng.integers(-30, 90, N)
Y, P, W = rng.integers(0, 2, N), rng.random(N), rng.integers(1, 5, N) / 4


def weights(half_life: int, keep: int) -> np.ndarray:
    age = (STEPS.max() // half_life) - STEPS // half_life
    return np.where(age < keep, 0.5**age, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("half_life", [1, 7, 40, 1000])
@pytest.mark.parametrize("keep", [1, 3, 16])
def test_values_are_those_of_weights_of_a_half_to_the_age(half_life: int, keep: int) -> None:
    made = sm.Decayed([sm.AUC(), sm.LogLoss(), sm.Mean(), sm.GroupAUC()], half_life=half_life, keep=keep)
    for part in np.array_split(rng.permutation(N), 5):
        columns = {"y_true": Y, "y_score": P, "value": P, "group": Y * 0, "step": STEPS, "sample_weight": W}
        made.update({name: column[part] for name, column in columns.items()})
    found, w = value_of(made), W * weights(half_life, keep)
    some = w > 0
    pairs = w[some & (Y == 1), None] * w[None, some & (Y == 0)]
    won = np.sign(P[some & (Y == 1), None] - P[None, some & (Y == 0)]) / 2 + 0.5
    auc, (low, high) = (pairs * won).sum() / pairs.sum() if pairs.size else np.nan, made.bounds()["auc"]
    assert found["auc"] == pytest.approx(auc, rel=1e-12 if low == high else 1e-6, nan_ok=True)
    assert not pairs.size or low * (1 - 1e-12) <= auc <= high * (1 + 1e-12)
    assert found["group_auc"] == pytest.approx(auc, rel=1e-12, nan_ok=True)
    losses = -np.log(np.where(Y == 1, P, 1 - P))
    assert found["log_loss"] == pytest.approx(np.average(losses, weights=w), rel=1e-12)
    assert found["mean"] == pytest.approx(np.average(P, weights=w), rel=1e-13)
    assert made.explain()["auc"]["rows"] == made.table().to_dict()["rows"][0] == int(some.sum())


def fades(metric) -> bool:
    try:
        sm.Decayed(metric, half_life=1)
    except TypeError as error:
        return "grows with the number of rows" in str(error)
    return True


@pytest.mark.parametrize("metric", [m for m in draws.VARIANTS if fades(m)], ids=repr)
def test_rows_that_come_twice_change_the_value_of_what_grows_alone(metric) -> None:
    state = metric.make_state()
    rows = make_consistent(state, sample(state.needs(), np.random.default_rng(1), 40, "plain", weighted=True))
    once = empty_copy(metric).update(rows)
    twice = once.copy().merge(once.copy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = numbers(value_of(once)), numbers(value_of(twice))
    if not about_of(metric).extensive:
        np.testing.assert_allclose(b, a, rtol=1e-12, err_msg=f"{metric!r}: declare `extensive=True` of counts and sums")


def test_what_cannot_fade_is_refused() -> None:
    for metric in (sm.Sum(), sm.Count(), sm.ConfusionMatrix(), sm.Variance(ddof=1), sm.Histogram((0.0, 1.0))):
        with pytest.raises(TypeError, match="grows with the number of rows"):
            sm.Decayed(metric, half_life=1)
        with pytest.raises(TypeError, match="grows with the number of rows"):
            sm.Decayed(sm.Sliced([sm.CTR(), metric], by="g"), half_life=1)
    for metric in (sm.Max(), sm.DistinctCount(), sm.DistinctSample()):
        with pytest.raises(TypeError, match="rows cannot decay in a metric that keeps extremes"):
            sm.Decayed(metric, half_life=1)
    assert sm.Decayed(sm.ConfusionMatrix(normalize="all"), half_life=1).name == "confusion_matrix decayed by 1 step"
    assert definition_of(sm.Decayed(sm.Histogram((0.0, 1.0), density=True), half_life=1)).is_single


def test_workers_merge_and_runs_go_on() -> None:
    alone, workers = sm.Decayed(sm.CTR(), half_life=10), [sm.Decayed(sm.CTR(), half_life=10) for _ in range(3)]
    for step in range(0, 60, 4):
        for k, worker in enumerate(workers):
            y = [step % 3 == k, 1]
            worker.update(y_true=y, step=step)
            alone.update(y_true=y, step=step)
    total = sm.merge([w.to_bytes() for w in workers])
    assert total == alone
    assert total.digest() == alone.digest()
    again = sm.from_bytes(total.to_bytes()).update(y_true=[0], step=70)
    assert again == alone.update(y_true=[0], step=70)
    assert (again.newest, len(again), again.half_life, again.time) == (70, 7, 10, "step")
    assert again.windows.lifetime().state.rows.sum() == 3 * 15 * 2 + 1
    assert again.windows.last(1).compute() == 0.0


def test_it_may_fade_by_event_time() -> None:
    times = pd.to_datetime(["2024-05-01T09:10", "2024-05-01T10:20", "2024-05-01T12:01"])
    made = sm.Decayed(sm.Mean(), half_life="1h", time="ts").update(value=[8.0, 4.0, 2.0], ts=times)
    assert made.compute() == (2 + 4 / 4 + 8 / 8) / (1 + 1 / 4 + 1 / 8)
    assert repr(made) == "Decayed(mean; half-life 1h of ts): 3 epochs, 0.0 MiB"


def test_intervals_are_those_of_units() -> None:
    plain = sm.Decayed([sm.CTR()], half_life=40).update(y_true=Y, step=STEPS)
    found = plain.interval()["ctr"]
    assert "not a sample" in found.reason
    assert np.isnan(found.low)
    with pytest.raises(ValueError, match="confidence"):
        plain.interval(2.0)
    with pytest.raises(TypeError, match="cannot be compared"):
        sm.compare(plain, plain.copy())
    units = sm.Decayed(sm.Sharded(sm.CTR(), unit="u", shards=16), half_life=40)
    units.update(y_true=Y, step=STEPS, u=np.arange(N))
    interval = units.interval()
    assert interval.low < units.compute() < interval.high
    assert units.table().to_dict()["interval_low"] == [interval.low]
    w = weights(40, 16)
    p = np.average(Y, weights=w)
    error = np.sqrt((w**2 * (Y - p) ** 2).sum()) / w.sum()
    assert interval.standard_error == pytest.approx(error, rel=0.5)


def test_settings_are_checked() -> None:
    for keep in (0, 41, 2.0):
        with pytest.raises(ValueError, match="keep= must be a whole number of epochs"):
            sm.Decayed(sm.CTR(), half_life=1, keep=keep)
    with pytest.raises(ValueError, match="half_life= must be a positive whole number of steps"):
        sm.Decayed(sm.CTR(), half_life=0)
    with pytest.raises(sm.IncompatibleStateError, match="half_life is 1 here and 2 there"):
        sm.Decayed(sm.CTR(), half_life=1).merge(sm.Decayed(sm.CTR(), half_life=2))
    with pytest.raises(sm.IncompatibleStateError, match="keep is 16 here and 3 there; the other metric is AUC"):
        sm.Decayed(sm.CTR(), half_life=1).merge(sm.Decayed(sm.AUC(), half_life=1, keep=3))
    heavy = sm.Decayed(sm.LogLoss(), half_life=1, keep=40)
    for step in range(40):
        heavy.update([0, 1], [0.5, 0.5], sample_weight=[2.0**20, 2.0**20], step=step)
    with pytest.raises(sm.CounterOverflowError):
        heavy.compute()
    assert np.isnan(value_of(sm.Decayed(sm.CTR(), half_life=1)))
