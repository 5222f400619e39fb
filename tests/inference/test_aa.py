"""A/A tests: the same as slicing by each labelling, right for the right unit, and they see a wrong one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.columns import Batch
from streammetrics.batch.ids import Ids
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import states_of
from streammetrics.compose.aa import CHUNK, SALT
from streammetrics.inference.estimates import p_value
from streammetrics.inference.jackknife import Replicates, jackknife, subtract_replicates
from streammetrics.statistics.groups.partitions import hashes_of

RUNS = 12


def log(users=600, each=25, seed=3, text=False):
    """Rows of users who differ in how often they click."""
    rng = np.random.default_rng(seed)
    user = rng.permutation(np.repeat(np.arange(users), each))
    taste = rng.beta(1, 6, users)[user]
    score = np.clip(taste + rng.normal(0, 0.1, len(user)), 0.001, 0.999)
    named = user.astype("U") if text else user
    return {"user": named, "y_true": (rng.random(len(user)) < taste).astype(np.uint8), "y_score": score}


def by_slicing(table, metrics, arms, alpha):
    """The share of comparisons below alpha, as anybody would find it: slices by label, one run after the other."""
    ids = Batch(table).column("user", Ids()).values
    told = {}
    for salt in hashes_of(np.arange(RUNS), SALT).tolist():
        arm = (hashes_of(ids, salt) >> np.uint64(32)) * np.uint64(arms) >> np.uint64(32)
        sliced = sm.Sliced(sm.Sharded(metrics, unit="user"), by="arm").update(table | {"arm": arm.astype(np.int64)})
        for sample in definition_of(sliced).samples(states_of(sliced)):
            assert [k[0] for k in sample.keys] == list(range(arms))
            deleted, weights = sample.shards.leave_one_out, sample.shards.weights
            sides = [Replicates(v, deleted[:, i], weights[:, i]) for i, v in enumerate(sample.values.tolist())]
            told.setdefault(sample.name, []).extend(
                p_value(jackknife(subtract_replicates(s, sides[0]))) for s in sides[1:]
            )
    return {name: np.mean(np.array(p) <= alpha) for name, p in told.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "arms"), [(False, 2), (True, 3)])
def test_it_is_what_slices_by_every_labelling_say(text, arms):
    table = log(text=text)
    table["group"] = table["user"]
    metrics = [sm.CTR(), sm.AUC(bits=10), sm.LogLoss(), sm.GroupAUC()]
    metrics = {"all": sm.Task(metrics, group="user")}
    found = sm.aa(table, unit="user", metrics=metrics, arms=arms, runs=RUNS, confidence=0.5)
    assert {f.metric: f.rate for f in found} == by_slicing(table, metrics, arms, 0.5)
    assert all(f.compared == RUNS * (arms - 1) and f.unit == "user" and not f.refused for f in found)


@pytest.mark.slow
def test_the_right_unit_is_trusted_and_rows_are_not():
    table = log(users=1500)
    found = sm.aa(table, unit="user", metrics=[sm.CTR(), sm.LogLoss()], rows=True)
    assert [(f.metric, f.unit, f.trusted) for f in found] == [
        ("ctr", "user", True), ("log_loss", "user", True), ("ctr", "row", False), ("log_loss", "row", False),
    ]  # fmt: skip
    assert all(0.01 <= f.rate <= f.most < 0.1 for f in found[:2])
    assert all(f.rate > 0.12 and "too narrow" in f.sentence for f in found[2:])


@pytest.mark.slow
def test_rows_that_are_independent_are_trusted_as_units():
    table = log(users=20_000, each=1)
    assert all(f.trusted for f in sm.aa(table, unit="user", metrics=sm.CTR(), rows=True))


@pytest.mark.slow
def test_tables_one_after_the_other_and_chunks_count_alike():
    pd, pa, pl = (pytest.importorskip(n) for n in ("pandas", "pyarrow", "polars"))
    table = log(users=1600)
    n = len(table["user"])
    assert n > CHUNK
    whole = sm.aa(table, unit="user", metrics=sm.CTR(), runs=20, rows=True, confidence=0.5)
    cuts = [0, 100, 100, 7000, n]
    parts = [{k: c[a:b] for k, c in table.items()} for a, b in itertools.pairwise(cuts)]
    assert sm.aa(iter(parts), unit="user", metrics=sm.CTR(), runs=20, rows=True, confidence=0.5) == whole
    for made in (pd.DataFrame(table), pl.DataFrame(table), pa.table(table), {k: c.tolist() for k, c in table.items()}):
        assert sm.aa(made, unit="user", metrics=sm.CTR(), runs=20, rows=True, confidence=0.5) == whole
    assert sm.aa(table, unit="user", metrics=sm.CTR(), runs=20, rows=True, confidence=0.5, seed=1) != whole


@pytest.mark.slow
def test_means_per_unit_take_exposures_from_rows_of_their_own():
    rng = np.random.default_rng(1)
    exposures = {"user": np.arange(3000), "exposed": np.ones(3000)}
    orders = {"user": rng.integers(0, 1500, 4000), "revenue": rng.exponential(10, 4000)}
    (found,) = sm.aa([exposures, orders], unit="user", metrics=sm.PerUnit("revenue", unit="user"))
    assert found.trusted
    assert found.rate > 0.005


def test_too_few_units_are_refused_and_said():
    table = {"user": np.arange(2), "y_true": np.array([0, 1])}
    (found,) = sm.aa(table, unit="user", metrics=sm.CTR(), runs=5)
    assert found.compared == 0
    assert not found.trusted
    assert "no interval in any" in found.sentence
    assert sm.aa({"user": [], "y_true": []}, unit="user", metrics=sm.CTR(), runs=5)[0].compared == 0


def test_bad_input():
    table = log(users=20)
    with pytest.raises(sm.InvalidInputError, match="no column 'users'"):
        sm.aa(table, unit="users", metrics=sm.CTR())
    with pytest.raises(sm.InvalidInputError, match=r"there is no column 'y_true'; the batch has 'user';"):
        sm.aa({"user": [1, 2]}, unit="user", metrics=sm.CTR())
    with pytest.raises(sm.InvalidInputError, match="user: expected a key"):
        sm.aa({"user": [1, None], "y_true": [0, 1]}, unit="user", metrics=sm.CTR())
    with pytest.raises(sm.InvalidInputError, match="an iterable of tables, found an object of class int"):
        sm.aa([1], unit="user", metrics=sm.CTR())
    with pytest.raises(ValueError, match="arms must be"):
        sm.aa(table, unit="user", metrics=sm.CTR(), arms=1)
    with pytest.raises(ValueError, match="confidence intervals, but max has none"):
        sm.aa(table, unit="user", metrics=sm.Max())
    with pytest.raises(TypeError, match=r"(not|of class) Sliced"):
        sm.aa(table, unit="user", metrics=sm.Sliced(sm.CTR(), by="day"))
    with pytest.raises(sm.MemoryLimitError):
        sm.aa(table, unit="user", metrics=sm.CTR(), memory_limit=1000)
