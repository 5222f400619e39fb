"""Users needed: against simulated looks, and against itself."""

import math

import numpy as np
import pytest
import scipy.stats

import streammetrics as sm
from streammetrics.errors import InvalidInputError
from streammetrics.inference.calibration import CalibrationContrasts
from streammetrics.inference.estimates import ScaledEstimate, interval
from streammetrics.inference.power import (
    crossing_probability,
    days_to_go,
    normal_tail,
    smallest_effect,
    users_needed,
    users_to_decide,
    users_to_hold,
)
from streammetrics.inference.sequential import Look, always_valid, boundary
from streammetrics.inference.verdict import MetricEffect, Progress, is_not_worse

CTR = ScaledEstimate(0.02, math.log(0.02), 0.01, math.inf, "log")


def test_of_one_look():
    found = users_needed(CTR, 1e5, relative=0.02)
    reach = scipy.stats.norm.ppf(0.975) + scipy.stats.norm.ppf(0.8)
    assert found.users == math.ceil(4 * 1e5 * (0.01 * reach / math.log(1.02)) ** 2)
    assert found.mean_users == found.users
    few = users_needed(CTR._replace(df=10.0), 1e5, relative=0.02)
    reach = scipy.stats.t.ppf(0.975, 10) + scipy.stats.t.ppf(0.8, 10)
    assert few.users == math.ceil(4 * 1e5 * (0.01 * reach / math.log(1.02)) ** 2)
    assert users_needed(CTR, 1e5, shares=(0.5, 0.1)).users == pytest.approx(
        1.8 * users_needed(CTR, 1e5).users, rel=1e-6
    )


def test_of_a_difference_measured():
    change = ScaledEstimate(0.01, math.log(1.01), 0.02, math.inf, "relative")
    assert users_needed(change, 1e5, relative=0.02).users == users_needed(CTR, 1e5, relative=0.02).users


@pytest.mark.parametrize("looks", [None, 7, 168])
def test_smallest_effect_is_the_other_way_round(looks):
    plan = users_needed(CTR, 1e5, relative=0.03, looks=looks)
    back = smallest_effect(CTR, 1e5, plan.users, looks=looks)
    assert back.relative == pytest.approx(0.03, rel=1e-4)
    assert back.mean_users == pytest.approx(plan.mean_users, rel=1e-4)


@pytest.mark.parametrize("looks", [7, 30, 200])
def test_power_and_stop_against_simulated_looks(looks):
    plan = users_needed(CTR, 1e5, relative=0.02, looks=looks)
    drift = math.log(1.02) / math.sqrt(0.01**2 * 1e5 * 4 / plan.users)
    rng, runs = np.random.default_rng(3), 20_000
    part = np.arange(1, looks + 1) / looks
    walk = np.cumsum(rng.normal(size=(runs, looks)) / math.sqrt(looks), axis=1) + drift * part
    limit = np.array([boundary(Look(p, 1).scaled_time, 0.05) for p in part]) * np.sqrt(part)
    hit = walk > limit
    stop = np.where(hit.any(1), (hit.argmax(1) + 1) / looks, 1.0)
    assert hit.any(1).mean() == pytest.approx(0.8, abs=0.03)
    assert stop.mean() * plan.users == pytest.approx(plan.mean_users, rel=0.06)
    assert 1.6 < plan.users / users_needed(CTR, 1e5, relative=0.02).users < 1.95


def test_without_a_difference_it_is_crossed_as_seldom_as_alpha_says():
    assert 0.002 < crossing_probability(0.0, 0.05, 10_000)[0] < 0.025  # one side


def test_normal_tail():
    z = np.linspace(-9.0, 30.0, 2000)
    np.testing.assert_allclose(normal_tail(z), scipy.stats.norm.sf(z), rtol=1e-10)


def test_days_to_go():
    assert days_to_go(10, 100, 20) == 5.0
    assert days_to_go(100, 100, 0) == 0.0
    assert days_to_go(10, 100, 0) == math.inf
    assert days_to_go(10, math.inf, 5) == math.inf


@pytest.mark.parametrize("planned", [None, 20_000.0, 1e6])
def test_users_to_decide_is_where_the_interval_leaves_the_null_out(planned):
    change = ScaledEstimate(0.01, math.log(1.01), 0.02, 40.0, "relative")
    needed = users_to_decide(change, 1e4, 0.002, planned=planned)
    for users, out in ((needed * 1.001, True), (needed * 0.999, False)):
        then = change._replace(standard_error=0.02 * math.sqrt(1e4 / users))
        found = interval(then) if planned is None else always_valid(then, Look(users, planned))
        assert (found.low > 0.002) == out
    assert users_to_decide(change._replace(standard_error=1e-4), 1e4, planned=planned) == 1e4
    assert users_to_decide(change, 1e4, 0.01) > 1e12 or math.isinf(users_to_decide(change, 1e4, 0.01))
    assert users_to_decide(change._replace(reason="too few"), 1e4) == math.inf


def test_users_outside_of_both_arms_are_not_counted():
    for looks in (None, 28):
        whole, part = (users_needed(CTR, 1e5, shares=s, looks=looks) for s in ((0.5, 0.5), (0.125, 0.125)))
        assert part == whole
    assert users_needed(CTR, 1e5, shares=(0.25, 0.125)) == users_needed(CTR, 1e5, shares=(2 / 3, 1 / 3))
    assert smallest_effect(CTR, 1e5, 50_000, shares=(0.25, 0.25)) == smallest_effect(CTR, 1e5, 50_000)


def test_wrong_input_raises():
    for call, message in (
        (lambda: users_needed(CTR, 1e5, relative=0.0), "relative"),
        (lambda: users_needed(CTR, 1e5, relative=-1.5), "relative"),
        (lambda: users_needed(CTR, 0), "users must be"),
        (lambda: users_needed(CTR, 1e5, shares=(0.9, 0.9)), "shares"),
        (lambda: users_needed(CTR, 1e5, power=1.0), "power"),
        (lambda: users_needed(CTR, 1e5, looks=0), "looks"),
        (lambda: users_needed(CTR._replace(scale="natural"), 1e5), "natural"),
        (lambda: users_needed(CTR._replace(reason="too few users"), 1e5), "too few users"),
        (lambda: smallest_effect(CTR, 1e5, 0), "planned"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()


@pytest.mark.parametrize(("better", "margin"), [("high", 0.02), ("low", 0.02), ("one", 0.05)])
def test_guardrails_are_held_with_the_power(better: str, margin: float) -> None:
    signed = -margin if better == "high" else margin
    plan = users_to_hold(CTR, 1e5, signed, is_ratio=better == "one")
    error = math.sqrt(0.01**2 * 1e5 * 4 / plan.users)
    points = np.random.default_rng(7).normal(0.0, error, 20_000)
    change = ScaledEstimate(np.expm1(points), points, np.full(points.shape, error), math.inf, "relative")
    if better == "one":
        # Both ratios are far from 1, so that only their difference can show that the guardrail is held.
        far = change._replace(point=points + 2.0)
        effect = MetricEffect("m", CalibrationContrasts(change, far), better, margin)
    else:
        effect = MetricEffect("m", change, better, margin)
    assert is_not_worse(effect, Progress(), 0.05, margin).mean() == pytest.approx(0.8, abs=0.01)


def test_table_of_users() -> None:
    rng = np.random.default_rng(1)
    user, click = rng.integers(0, 900, 9_000), rng.random(9_000) < 0.1
    score = np.clip(0.1 + 0.02 * (click - 0.1) + 0.05 * rng.normal(size=9_000), 0.01, 0.99)
    metrics = sm.Sharded(sm.MetricCollection([sm.CTR(), sm.AUC(), sm.Calibration()]), unit="user")
    metrics.update(click, score, user=user)
    guardrails = {"ctr": 0.02, "auc": 0.02, "calibration": 0.02}
    table = sm.power_table(
        metrics, users=900, effects=(0.01, 0.9), guardrails=guardrails, better={"ctr": "low"}, per_day=1000
    )
    rows = {(r["goal"], r["metric"], r["relative"]): r for r in table.records}
    assert len(rows) == len(table.records) == 9
    for name in ("ctr", "auc", "calibration"):
        plan = sm.power(metrics, name, users=900, relative=0.01)
        row = rows["detect", name, 0.01]
        assert (row["users"], row["days"]) == (plan.users, math.ceil(plan.users / 1000))
    assert rows["hold", "ctr", 0.02]["users"] == sm.power(metrics, "ctr", users=900, relative=0.02).users
    assert rows["hold", "auc", -0.02]["users"] == sm.power(metrics, "auc", users=900, relative=-0.02).users
    assert rows["hold", "calibration", 0.02]["users"] > sm.power(metrics, "calibration", users=900, relative=0.02).users
    assert "its maximum is 1" in rows["detect", "auc", 0.9]["reason"]
    assert math.isnan(rows["detect", "auc", 0.9]["users"])
    daily = sm.power_table(metrics, users=900, metrics=["ctr"], guardrails={"auc": 0.02}, sequential=True).records
    assert len(daily) == 6
    assert all(r["mean_users"] < r["users"] for r in daily)
    with pytest.raises(InvalidInputError, match="ctr does not define which values are better"):
        sm.power_table(metrics, users=900, guardrails=guardrails)
    with pytest.raises(InvalidInputError, match="metrics= must be some of ctr, auc, calibration, not 'x'"):
        sm.power_table(metrics, users=900, metrics=["x"])
    assert "margin of 0" in sm.power_table(metrics, users=900, guardrails={"auc": 0.0}).records[-1]["reason"]
