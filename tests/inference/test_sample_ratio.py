"""Users by arm from exposures and from samples: what is tested, what is reported, what is refused."""

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.errors import InvalidInputError
from streammetrics.inference.sample_ratio import sample_ratio_mismatch

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
    assert sample_ratio_mismatch({"a": 500, "b": 480}).sentence.startswith(
        "users are split between the arms as planned: a 51.02 %"
    )
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
