"""Users by arm from exposures and from samples: what is tested, what is reported, what is refused."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

import streammetrics as sm
from streammetrics.errors import InvalidInputError
from streammetrics.inference.multinomial_test import multinomial_p_value
from streammetrics.inference.sample_ratio import PRIORS, sample_ratio_mismatch

N = 120_000
USERS = np.arange(N)


def arms(share, seed=1):
    return np.where(np.random.default_rng(seed).random(N) < share, "a", "b")


def exposed(arm, holder=None):
    inner = holder or sm.PerUnit("revenue", unit="user")
    metric = sm.Sliced(inner, by="arm").update({"user": USERS, "arm": arm, "exposed": np.ones(N)})
    return metric.update({"user": USERS[:99], "arm": arm[:99], "revenue": np.ones(99)})


def sampled(arm, users=USERS, limit=10_000):
    pieces = np.array_split(np.arange(len(users)), 4)
    parts = [sm.Sliced(sm.DistinctSample(limit=limit), by="arm").update(users[p], arm=arm[p]) for p in pieces]
    return sm.merge(parts)


@pytest.mark.parametrize("share", [0.5, 0.52])
def test_exposures_are_exact_counts(share):
    arm = arms(share)
    counts = {a: int((arm == a).sum()) for a in "ab"}
    told = sample_ratio_mismatch(counts)
    metric = sm.PerUnit("revenue", unit="user")
    for holder in (metric, sm.Sharded(metric, unit="user"), sm.MetricCollection([metric])):
        assert sample_ratio_mismatch(exposed(arm, holder)) == told
    assert told.alarm == (share > 0.5)
    assert sample_ratio_mismatch(exposed(arm), {"a": share, "b": 1 - share}).e_value < 1
    assert (told.several, told.share) == (None, 1.0)


def test_the_evidence_of_a_sample_is_that_of_the_users_kept():
    arm = arms(0.53)
    sample = sampled(arm)
    found = sample_ratio_mismatch(sample)
    share = min(sample[a].state.share for a in "ab")
    assert found.share == share < 1
    level = -int(np.log2(share))
    kept = {a: int((sample[a].state.keys.codes >> np.uint64(64 - level) == 0).sum()) for a in "ab"}
    assert found.e_value == sample_ratio_mismatch(kept).e_value
    assert found.users == {a: n / share for a, n in kept.items()}
    assert sum(found.users.values()) == pytest.approx(N, rel=0.05)
    assert 1 < found.e_value < sample_ratio_mismatch(exposed(arm)).e_value


def test_users_in_several_arms_are_told():
    arm = arms(0.5)
    twice = np.concatenate([arm, np.where(arm[:6000] == "a", "b", "a")])
    users = np.concatenate([USERS, USERS[:6000]])
    exact = sample_ratio_mismatch(sampled(twice, users, limit=1 << 17))
    assert (exact.several, exact.share) == (6000.0, 1.0)
    assert exact.users == {a: float((arm[6000:] == a).sum()) for a in "ab"}
    found = sample_ratio_mismatch(exposed(arm), sample=sampled(twice, users))
    assert found.several == pytest.approx(6000, rel=0.2)
    assert found.share == 1.0
    assert found.users == sample_ratio_mismatch(exposed(arm)).users
    assert "users were in more than one arm" in found.sentence
    assert "more than one arm" not in sample_ratio_mismatch(exposed(arm)).sentence


def test_samples_in_collections_and_bound_to_a_column():
    table = {"user": USERS, "arm": arms(0.5), "y_true": USERS % 2}
    lone = sm.Sliced(sm.DistinctSample(limit=1000), by="arm").update(USERS, arm=table["arm"])
    users = sm.Task(sm.DistinctSample(limit=1000), value="user")
    for metrics in (users, {"users": users, "ctr": sm.CTR()}):
        assert sample_ratio_mismatch(sm.Sliced(metrics, by="arm").update(table)) == sample_ratio_mismatch(lone)


def test_sentences():
    assert sample_ratio_mismatch({"a": 50_000, "b": 50_200}).sentence.startswith(
        "users are split between the arms as planned: a 49.90 % (50.00 % planned)"
    )
    assert sample_ratio_mismatch({"a": 500, "b": 480}).sentence.startswith(
        "too few users to tell whether users are split between the arms as planned: a 51.02 % (99 % 46.91 % to 55.11 %,"
    )
    assert "(p = 0.544, alarm below 0.001)" in sample_ratio_mismatch({"a": 500, "b": 480}, sequential=False).sentence
    assert "(p < 1e-15, alarm" in sample_ratio_mismatch({"a": 500, "b": 0}, sequential=False).sentence
    assert "do not trust any difference" in sample_ratio_mismatch({"a": 50_000, "b": 48_000}).sentence
    assert "estimated from a sample of" in sample_ratio_mismatch(sampled(arms(0.5))).sentence
    assert sample_ratio_mismatch({"a": 0, "b": 0}).sentence == "no users yet"


def test_what_counts_no_users_is_refused():
    arm = arms(0.5)
    for holder in (
        sm.Sliced(sm.DistinctCount(), by="arm").update(USERS, arm=arm),
        sm.DistinctSample().update(USERS),
        sm.Sliced(sm.DistinctSample(), by=["arm", "day"]).update(USERS[:1], arm=["a"], day=[1]),
    ):
        with pytest.raises(InvalidInputError, match="DistinctSample"):
            sample_ratio_mismatch(holder)
    with pytest.raises(InvalidInputError, match=r"same arms, at least two; found \['a'\]"):
        sample_ratio_mismatch(sampled(np.full(N, "a")))
    with pytest.raises(InvalidInputError, match=r"sample= takes Sliced"):
        sample_ratio_mismatch({"a": 1, "b": 2}, sample=exposed(arm))


def test_shards_of_a_distinct_count_have_no_interval():
    found = sm.Sharded(sm.DistinctSample(), unit="value").update(value=USERS).interval()
    assert "without Sharded" in found.reason


def test_an_arm_of_which_a_holder_has_no_rows_has_no_users():
    per_unit = sm.Sliced(sm.PerUnit("revenue", unit="user"), by="arm")
    per_unit.update(user=np.arange(600), arm=["a"] * 300 + ["b"] * 300, exposed=np.ones(600))
    sample = sm.Sliced(sm.DistinctSample(), by="arm").update(np.arange(600), arm=["a"] * 300 + ["b"] * 300)
    planned = {"a": 1, "b": 1, "c": 1}
    known = sm.sample_ratio_mismatch({"a": 300, "b": 300, "c": 0}, planned)
    for holder in (per_unit, sample):
        found = sm.sample_ratio_mismatch(holder, planned)
        assert (found.users, found.e_value) == (known.users, known.e_value)
    with pytest.raises(InvalidInputError, match="the same arms"):
        sm.sample_ratio_mismatch(per_unit, {"a": 1, "c": 1})


@pytest.mark.parametrize(
    ("count", "users", "share"),
    [(150, 200, 0.5), (430, 1000, 0.5), (3, 10_000, 0.002), (0, 40, 0.3), (500_700, 1_000_000, 0.5)],
)
def test_two_arms_have_the_exact_binomial_test(count, users, share):
    known = scipy.stats.binomtest(count, users, share).pvalue
    assert multinomial_p_value([count, users - count], [share, 1 - share]) == pytest.approx(known, rel=1e-6)


def test_three_arms_have_the_exact_multinomial_test_and_many_users_the_chi_square_test():
    shares, counts = np.array([0.2, 0.3, 0.5]), np.array([9, 3, 18])
    outcomes = [(a, b, 30 - a - b) for a in range(31) for b in range(31 - a)]
    odds = scipy.stats.multinomial(30, shares).pmf(outcomes)
    known = odds[odds <= scipy.stats.multinomial(30, shares).pmf(counts) * (1 + 1e-9)].sum()
    assert multinomial_p_value(counts.tolist(), shares.tolist()) == pytest.approx(known, rel=1e-9)
    many = [200_900, 299_800, 499_300]
    known = scipy.stats.chisquare(many, shares * 1e6).pvalue
    assert multinomial_p_value(many, shares.tolist()) == pytest.approx(known, rel=1e-9)


def test_one_look_alarms_below_p_of_a_thousandth():
    for a, alarm in ((552, False), (553, True)):
        found = sample_ratio_mismatch({"a": a, "b": 1000 - a}, sequential=False)
        assert (found.alarm, found.p_value < 0.001) == (alarm, alarm)
    assert sample_ratio_mismatch({"a": 553, "b": 447}).p_value is None


def log_e_values(first, users):
    """Return the logarithm of the e-value of two equal arms, for arrays of users in the first arm and in both."""
    beta = scipy.special.betaln
    logs = [beta(k / 2 + first, k / 2 + users - first) - beta(k / 2, k / 2) + users * math.log(2) for k in PRIORS]
    return scipy.special.logsumexp(logs, axis=0) - math.log(len(PRIORS))


def share_of_alarms(share, per_look, looks, runs=2000):
    first = np.random.default_rng(7).binomial(per_look, share, (runs, looks)).cumsum(axis=1)
    return (log_e_values(first, per_look * np.arange(1, looks + 1)) >= math.log(100)).any(axis=1).mean()


def test_repeated_looks_rarely_alarm_at_nothing_and_find_mismatches_of_few_and_of_many_users():
    assert math.log(sample_ratio_mismatch({"a": 570, "b": 430}).e_value) == pytest.approx(log_e_values(570, 1000))
    assert share_of_alarms(0.5, 10, 400) <= 0.01
    assert share_of_alarms(0.5, 2500, 400) <= 0.01
    assert share_of_alarms(0.57, 100, 10) >= 0.7
    # The prior of 10,000 users alone finds 60 %.
    assert share_of_alarms(0.502, 1_000_000, 1) >= 0.48


def test_as_planned_needs_narrow_intervals_that_contain_the_plan():
    z = scipy.stats.norm.ppf(0.995)
    few, many = (
        [(150, 50, False), (60, 52, False), (8000, 8000, False)],
        [(50_700, 50_000, True), (50_950, 50_000, False)],
    )
    for a, b, expected in [*few, (9000, 9000, True), *many]:
        found = sample_ratio_mismatch({"a": a, "b": b})
        n, share = a + b, a / (a + b)
        centre, half = (share + z**2 / (2 * n)), z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        assert found.intervals["a"] == pytest.approx(
            ((centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n))
        )
        assert found.is_as_planned == expected
        assert ("as planned" in found.sentence and "too few" not in found.sentence and not found.alarm) == expected


@pytest.mark.parametrize("sequential", [True, False])
def test_the_smallest_mismatch_is_found_in_four_of_five_samples(sequential):
    users = 10_000
    away = sample_ratio_mismatch({"a": users / 2, "b": users / 2}, sequential=sequential).smallest_mismatch
    first = np.random.default_rng(3).binomial(users, 0.5 + away, 150).tolist()
    alarms = [sample_ratio_mismatch({"a": n, "b": users - n}, sequential=sequential).alarm for n in first]
    assert np.mean(alarms) == pytest.approx(0.8, abs=0.09)
