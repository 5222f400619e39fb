"""Woodruff's intervals of quantiles, against the formula and by simulation."""

import math

import numpy as np
import pytest
import scipy.stats

import streammetrics as sm
from benchmarks.steps import CASES, step_alarms
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import states_of
from streammetrics.errors import InvalidInputError
from streammetrics.inference.differences import compute_differences
from streammetrics.inference.estimates import interval
from streammetrics.inference.interpretation import ComparisonSettings, interpret
from streammetrics.inference.jackknife import jackknife, subtract_replicates
from streammetrics.inference.pairs import pair_samples
from streammetrics.inference.quantiles import quantile_interval, quantile_replicates
from streammetrics.inference.sentences import describe_comparison
from streammetrics.inference.sequential import Look


def shards(rng, users=600, q=0.9):
    """Values of users of 5 rows each, in 64 shards: below the quantile, all, and how to read a quantile."""
    user = rng.integers(0, 64, users)
    values = np.exp(rng.normal(size=(users, 1)) * 0.5 + rng.normal(size=(users, 5)))
    ordered = np.sort(values, axis=None)

    def at(p):
        return float(ordered[min(max(math.ceil(p * ordered.size) - 1, 0), ordered.size - 1)])

    below = np.bincount(user, (values <= at(q)).sum(1), 64)
    return below, np.bincount(user, minlength=64) * 5.0, at


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_formula(q):
    below, weights, at = shards(np.random.default_rng(1), q=q)
    found = quantile_interval(q, below, weights, at)
    total = weights.sum()
    s = (below.sum() - below) / (total - weights)
    error = math.sqrt(63 / 64 * ((s - s.mean()) ** 2).sum()) / (q * (1 - q))
    reach = scipy.stats.t.ppf(0.975, total**2 / (weights**2).sum() - 1) * error
    low, high = scipy.special.expit(scipy.special.logit(q) + np.array([-reach, reach]))
    assert (found.low, found.high, found.estimate) == (at(low), at(high), at(q))
    one = quantile_replicates(q, below, weights, at)
    slope = (at(high) - at(low)) / (high - low)
    np.testing.assert_allclose(one.leave_one_out, at(q) - (s - below.sum() / total) * slope, rtol=1e-12)


@pytest.mark.slow
def test_coverage_alone_and_of_arms():
    """Nominal 95 %; the full form is that of the benchmark."""
    rng = np.random.default_rng(2)
    truth = np.quantile(np.exp(0.5 * rng.normal(size=4_000_000) + rng.normal(size=4_000_000)), 0.9)
    alone = arms = 0
    for _ in range(300):
        one, two = shards(rng), shards(rng)
        found = quantile_interval(0.9, *one)
        alone += found.low <= truth <= found.high
        difference = interval(jackknife(subtract_replicates(*[quantile_replicates(0.9, *side) for side in (one, two)])))
        arms += difference.low <= 0.0 <= difference.high
    assert 0.91 <= alone / 300 <= 0.985
    assert 0.91 <= arms / 300 <= 0.985


def test_refused():
    below, weights, at = shards(np.random.default_rng(3))
    assert "end of the data" in quantile_interval(1.0, below, weights, at).reason
    assert "effective number of groups of units" in quantile_interval(0.9, below[:5], weights[:5], at).reason
    assert math.isnan(jackknife(quantile_replicates(0.9, below[:5], weights[:5], at)).standard_error)
    with pytest.raises(InvalidInputError, match="must lie between 0 and"):
        quantile_interval(0.9, weights + 1, weights, at)


def test_a_constant_is_known():
    found = quantile_interval(0.5, np.full(20, 10.0), np.full(20, 10.0), lambda p: 7.0)
    assert found[:3] == (7.0, 7.0, 7.0)


# -- values that are few ------------------------------------------------------------------------------------------------


def arm(seed, shares, values=(1.0, 2.0), rows=4000, q=0.5, unit="user"):
    """A quantile of values that users have with these shares; two rows each, by user unless `unit` is None."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, rows // 2, rows) + 1_000_000 * seed
    value = rng.choice(values, rows, p=shares)
    metric = sm.Quantile(q=q)
    return metric.update(value) if unit is None else sm.Sharded(metric, unit="user").update(value=value, user=user)


@pytest.mark.parametrize("case", ["1 or 2, step at q", "1 or 2, small and large arm", "seconds, 90 %", "other shapes"])
def test_false_alarms_where_values_are_few(case):
    found = step_alarms(CASES[case], 100)
    assert found["errors"] > 0.09
    assert max(found["sets"], found["p"]) <= 0.05


@pytest.mark.parametrize("unit", ["user", None])
def test_a_quantile_at_a_step(unit):
    """Both arms have 1 and 2 half of the time: the interval has every difference that either step allows."""
    found = sm.compare(*(arm(seed, (0.5, 0.5), unit=unit) for seed in (1, 2)), independent=True)
    assert (found.a, found.b) == (2.0, 1.0)
    assert found.difference[:3] == (-1.0, 1.0, 1.0)
    assert found.relative[:3] == (-0.5, 1.0, 1.0)
    assert 0.05 < found.p_value < 1.0
    assert found.note is None


@pytest.mark.parametrize("unit", ["user", None])
def test_the_same_single_value_has_no_p_value(unit):
    a, b = (arm(seed, (share, 1.0 - share), (3.0, 4.0), unit=unit) for seed, share in ((1, 0.7), (2, 0.6)))
    found = sm.compare(a, b, independent=True)
    assert found.difference[:3] == found.relative[:3] == (0.0, 0.0, 0.0)
    assert math.isnan(found.p_value)
    assert math.isnan(sm.compare(a, b, independent=True).adjusted)
    assert "the value is 3 on both sides; the share at or below 3 changes by +0.10" in found.note
    assert repr(found) == f"quantile@0.5: {found.note}"
    assert found.record()["reason"] == found.note
    assert found.better is None
    assert describe_comparison(found, a="new", b="old").startswith("new and old have the same quantile@0.5: the value")


@pytest.mark.parametrize("look", [{}, {"sequential": True, "planned": 4000, "users": 4000}])
def test_a_set_names_its_method(look):
    a, b = (arm(seed, (share, 1.0 - share)) for seed, share in ((1, 0.52), (2, 0.48)))
    found, adjusted = (sm.compare(a, b, covariates=x, **look) for x in ((), (a, b)))
    ends = ", valid at all looks" if look else ""
    for one in (found.difference, found.relative):
        assert one.method == f"all differences of the values in both Woodruff intervals{ends}"
    assert "without covariates" in adjusted.difference.method
    assert adjusted.difference[:3] == found.difference[:3]
    assert adjusted.reduction == 0.0
    smooth = [
        sm.Sharded(sm.Quantile(q=0.5), unit="user").update(
            value=np.random.default_rng(i).random(400), user=np.arange(400)
        )
        for i in range(2)
    ]
    assert sm.compare(*smooth, **look).difference.method.startswith("jackknife")


@pytest.mark.parametrize("role", ["primary", "guardrail"])
def test_a_verdict_says_that_quantiles_are_equal(role):
    sides = {}
    for seed, (name, share) in enumerate({"old": 0.7, "new": 0.6}.items()):
        rng = np.random.default_rng(seed)
        user = np.arange(2000) + 2000 * seed
        rows = {"value": rng.choice([3.0, 4.0], 2000, p=(share, 1 - share)), "user": user}
        rows["y_true"] = rng.random(2000) < (0.5 if name == "new" else 0.2)
        sides[name] = sm.Sharded([sm.CTR(), sm.Quantile(q=0.5)], unit="user").update(rows)
    how = {"primary": "quantile@0.5"} if role == "primary" else {"primary": "ctr", "guardrails": {"quantile@0.5": 0.0}}
    better = {"quantile@0.5": "low"} | ({"ctr": "high"} if role == "guardrail" else {})
    card = sm.scorecard(sides, control="old", better=better, relative=False, final=True, **how)
    word = {"primary": "unclear", "guardrail": "undecided"}[role]
    note = "the value is 3 on both sides; the share at or below 3 changes by -0."
    assert f"quantile@0.5 is {word}: {note}" in card.verdicts["new"].sentence
    assert list(card.table())[-1]["reason"] in card.verdicts["new"].sentence


def test_other_single_values_differ():
    found = sm.compare(arm(1, (0.7, 0.3)), arm(2, (0.3, 0.7)))
    assert found.difference[:3] == (-1.0, -1.0, -1.0)
    assert found.p_value < 1e-15


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("look", [None, Look(3000, 8000)])
def test_the_p_value_inverts_the_set(relative, look):
    """An interval leaves 0 out exactly if the p-value is at most 1 - confidence, at every confidence."""
    values = np.arange(1.0, 9.0)
    sides = [
        sm.Sliced(sm.Sharded(sm.Quantile(q=0.5), unit="user"), by="cell").update(
            value=rng.choice(values, 20_000, p=shares / shares.sum()),
            user=rng.integers(0, 400, 20_000),
            cell=np.arange(20_000) % 25,
        )
        for rng, shares in ((np.random.default_rng(1), np.ones(8)), (np.random.default_rng(2), np.arange(8.0) + 1.0))
    ]
    (pair,), _ = pair_samples(*(definition_of(s).samples(states_of(s)) for s in sides))
    differences = compute_differences(pair)
    np.testing.assert_array_equal(differences.difference.value, pair.a.values - pair.b.values)
    assert all(one is not None for one in differences.difference.sets)
    outside = 0
    for confidence in (0.5, 0.8, 0.95, 0.99, 0.999):
        found = interpret(differences, ComparisonSettings(confidence, look, relative))
        low, high, *_ = found.relative if relative else found.difference
        assert (low <= high).all()
        np.testing.assert_array_equal((low > 0.0) | (high < 0.0), found.p_values <= 1.0 - confidence)
        outside += int((found.p_values <= 1.0 - confidence).sum())
    assert outside > 10


def test_cells_are_those_of_single_comparisons():
    """Cells that only one side has are left out, and one cell has smooth values."""
    rng = np.random.default_rng(4)
    rows = {"user": rng.integers(0, 900, 9000), "cell": np.arange(9000) % 3}
    value = np.where(rows["cell"] == 1, rng.normal(size=9000), rng.integers(1, 4, 9000))
    sides = []
    for least in (0, 1):
        kept = rows["cell"] >= least
        quantile = sm.Sharded(sm.Quantile(q=0.6), unit="user")
        side = {
            n: x[kept] for n, x in (rows | {"value": value + 0.1 * rng.normal(size=9000) * (rows["cell"] == 1)}).items()
        }
        sides.append((sm.Sliced(quantile, by="cell").update(side), side))
    found = sm.compare(sides[0][0], sides[1][0])
    assert len(found) == 2
    for cell in (1, 2):
        single = [
            sm.Sharded(sm.Quantile(q=0.6), unit="user").update(
                {n: x[s["cell"] == cell] for n, x in s.items() if n != "cell"}
            )
            for _, s in sides
        ]
        one, other = found[cell, "quantile@0.6"], sm.compare(*single)
        assert one.difference[:3] == other.difference[:3]
        assert (one.note, one.reason) == (other.note, other.reason)
    assert found[2, "quantile@0.6"].note
    assert found[1, "quantile@0.6"].p_value > 0.0


def test_smooth_values_keep_their_standard_error():
    rng = np.random.default_rng(5)
    a, b = (sm.Sharded(sm.Quantile(q=0.9), unit="user").update(
        value=rng.normal(size=3000), user=np.arange(3000) + i) for i in (0, 10_000))  # fmt: skip
    (pair,), _ = pair_samples(*(definition_of(s).samples(states_of(s)) for s in (a, b)))
    assert compute_differences(pair).difference.sets is None


def test_zeros_in_a_wide_bucket_are_one_value():
    """Half of the values are 0 and the others are many, so that buckets are wide: the median is a step."""
    sides = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        value = np.where(rng.random(40_000) < 0.5, 0.0, np.exp(rng.normal(size=40_000)))
        sides.append(
            sm.Sharded(sm.Quantile(q=0.5), unit="user").update(value=value, user=rng.integers(0, 9000, 40_000))
        )
    found = sm.compare(*sides)
    assert found.difference.low < 0.0 < found.difference.high
    assert found.p_value > 0.05


def test_too_few_rows_beyond_a_step():
    found = sm.compare(*(arm(seed, (0.5, 0.5), rows=200, q=0.99) for seed in (1, 2)))
    assert "fewer than 5 rows are expected beyond this quantile" in found.reason


def test_a_guardrail_with_the_same_value_is_held():
    rng = np.random.default_rng(6)
    user = rng.integers(0, 3000, 6000)
    rows = {
        "user": user,
        "arm": np.where(user % 2, "new", "old"),
        "value": rng.choice([2.0, 3.0, 4.0], 6000, p=(0.2, 0.6, 0.2)),
    }
    rows["y_true"] = rng.random(6000) < np.where(user % 2, 0.2, 0.1)
    arms = sm.Sliced(sm.Sharded([sm.CTR(), sm.Quantile(q=0.5)], unit="user"), by="arm").update(rows)
    asked = {"control": "old", "primary": "ctr", "better": {"ctr": "high", "quantile@0.5": "low"}}
    card = sm.scorecard(arms, guardrails={"quantile@0.5": 0.01}, **asked)
    row = list(card.table())[1]
    assert (row["word"], row["low"], row["high"]) == ("held", 0.0, 0.0)
    assert math.isnan(row["p_value"])
    assert row["reason"].startswith("the value is 3 on both sides")
