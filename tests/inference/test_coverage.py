"""The short form of `python -m benchmarks.coverage`, and that what it simulates is what `Sharded` has of the same rows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streammetrics as sm
from benchmarks.coverage import METRICS, limits_of, sample_of
from benchmarks.decisions import WAYS, is_decided
from benchmarks.simulated import CAP, SIDES, Log, drawn, fine_histogram, held_of
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import states_of
from streammetrics.inference.estimates import ScaledEstimate
from streammetrics.inference.verdict import MetricEffect, build_verdict

ROOT = Path(__file__).parents[2]


SHORT = {
    "even users": ["cells", "--users", "even", "--runs", "120"],
    "power law": ["cells", "--users", "g = 0.9", "--runs", "80"],
    "independent rows": ["cells", "--users", "rows", "--runs", "50"],
    "looks": ["looks", "--runs", "200"],
    "tables": ["tables", "--runs", "10"],
    "ratio": ["ratio", "--runs", "40"],
    "quantiles of few values": ["steps", "--runs", "150"],
    "decisions": ["decisions", "--runs", "200"],
    "small samples": ["small", "--runs", "200"],
    "shares of users": ["shares", "--runs", "100"],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", SHORT)
def test_short_form(form):
    command = [sys.executable, "-m", "benchmarks.coverage", "--only", *SHORT[form]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout


@pytest.mark.parametrize("name", WAYS)
def test_decisions_are_those_of_verdicts(name):
    users, progress = WAYS[name]
    values = np.linspace(-0.05, 0.05, 12)
    many = ScaledEstimate(values, values, 0.01, 63.0, reason=np.full(12, None, object))
    for share in (0.3, 1.0):
        look = progress._replace(users=share * users)
        single = [ScaledEstimate(v, v, 0.01, 63.0) for v in values.tolist()]
        decisions = [build_verdict(MetricEffect("m", one), progress=look).decision for one in single]
        assert is_decided(many, look).tolist() == [d in ("ship", "do not") for d in decisions]
    assert any(d in ("ship", "do not") for d in decisions) == (name != "not stated")


LOG = drawn(np.random.default_rng(8), 400, 0.7, 10_000)
EXACT = ("ctr", "auc", "calibration", "per_unit", "per_unit, uncapped")  # sums that no order rounds


def columns(log: Log, side: str) -> dict:
    """The rows of one side as users have them, and their totals by user."""
    keep = log.sides[SIDES.index(side)] if side != "b" else log.sides[0]
    user = np.repeat(log.key, np.diff(log.start))
    rows = {
        "y_true": log.click, "y_score": log.p[int(side == "b")], "user": user, "query": log.query, "value": log.latency,
        "revenue": log.revenue,
    }  # fmt: skip
    return {name: values[keep] for name, values in rows.items()}


def sharded(rows: dict) -> dict:
    """Each metric with shards."""
    of_rows = {n: METRICS[n] for n in ("ctr", "auc", "log_loss", "ne", "calibration", "ndcg", "p95")}
    gauc = sm.Task({"gauc": METRICS["gauc"]}, group="user")
    found = sm.Sharded([of_rows, gauc], unit="user").update(rows)
    out = {name: found[name] for name in found}
    users, at = np.unique(rows["user"], return_inverse=True)
    total = np.minimum(np.bincount(at, rows["revenue"]), CAP)
    capped = sm.Sharded(METRICS["per_unit"], unit="user")
    out["per_unit"] = capped.update(user=users, capped=total, exposed=np.ones(users.size, np.int8))
    orders = rows["revenue"] > 0.0
    spent = sm.Sharded(METRICS["per_unit, uncapped"], unit="user").update(
        user=users, exposed=np.ones(users.size, np.int8)
    )
    out["per_unit, uncapped"] = spent.update(user=rows["user"][orders], revenue=rows["revenue"][orders])
    return out


@pytest.fixture(scope="module")
def states():
    return {side: sharded(columns(LOG, side)) for side in ("all", "b", "x", "y")}


@pytest.fixture(scope="module")
def held():
    return [held_of(LOG, fine_histogram())] * 2  # two runs side by side


def same(found, expected, metric):
    assert found.shape == expected.shape
    if metric in EXACT:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("side", ["all", "b", "x"])
def test_simulated_shards_are_those_of_the_rows(states, held, metric, side):
    if side == "b" and metric in ("ctr", "p95", "per_unit", "per_unit, uncapped"):
        return
    thing = states[side][metric]
    (real,), made = definition_of(thing).samples(states_of(thing)), sample_of(metric, held, side)
    assert real.shards.plan[1] == made.shards.plan[1]
    for name in ("leave_one_out", "weights", "events"):
        same(getattr(made.shards, name)[:, 1:], getattr(real.shards, name), metric)
    if metric == "p95":  # buckets of the simulation have one width, those of the metric fit the data
        np.testing.assert_allclose(made.shards.below[:, 1:], real.shards.below, atol=1.0)
        for share in (0.2, 0.9, 0.951):
            assert made.quantile(1, share) == pytest.approx(real.quantile(0, share), rel=2.0**-7)
    else:
        same(made.values[1:], real.values, metric)


@pytest.mark.slow
def test_intervals_are_those_of_the_rows(states, held):
    pairs = {"alone": ("all", None), "same rows": ("b", "all"), "users in both": ("y", "x")}
    seen = 0
    for metric, pair, (low, high) in limits_of(held):
        name = metric.removesuffix(", relative")
        if pair not in pairs or name not in METRICS:
            continue
        a, b = pairs[pair]
        if b is None:
            found = states[a][name].interval()
        else:
            change = sm.compare(states[a][name], states[b][name])
            found = change.difference if name == metric else change.relative
        if name == "p95":
            np.testing.assert_allclose([low[1], high[1]], found[:2], rtol=0.01, atol=0.1)
        else:
            same(np.array([low[1], high[1]]), np.array(found[:2]), name)
        seen += 1
    assert seen == 10 + 2 * 6 + 2 * 10
