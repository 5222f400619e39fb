"""Shards of units: what they refuse, what they count apart, and intervals beside those of naive code."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import columns_of, empty_copy, states_of
from streammetrics.format import frame
from streammetrics.reading.about import about_of

USERS, SHARDS = 300, 16


def log(seed=3, n=6000):
    """Clicks of users who differ."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, USERS, n)
    score = rng.beta(2, 8, n)
    rate = np.clip(score + 0.1 * rng.normal(size=USERS)[user], 0, 1)
    return {"y_true": rng.random(n) < rate, "y_score": score, "user": user, "arm": rng.choice(["a", "b"], n)}


def shards_of(user):
    """The shard of each row, as an object that counts rows by shard has them."""
    every = sm.Sharded(sm.Count(), unit="user", shards=SHARDS).update(value=np.arange(len(user)), user=user)
    state = states_of(every)[1]
    found = {}
    for one in np.unique(user).tolist():
        alone = sm.Sharded(sm.Count(), unit="user", shards=SHARDS).update(value=[0], user=[one])
        found[one] = int(states_of(alone)[1].cells.vocabularies[-1].values[0])
    assert set(found.values()) == set(state.cells.vocabularies[-1].values.tolist())
    return np.array([found[u] for u in user.tolist()])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")  # of eight bits
@pytest.mark.parametrize("metric", [sm.AUC(bits=8), sm.CTR(), sm.LogLoss(), sm.NormalizedEntropy(), sm.Calibration()])
def test_the_interval_is_the_jackknife_of_naive_code(metric):
    rows = log()
    made = sm.Sharded(metric, unit="user", shards=SHARDS)
    made.update({n: c for n, c in rows.items() if n in columns_of(made)})
    of = shards_of(rows["user"])
    scale = about_of(metric).interval_scale
    forth = {"logit": lambda v: np.log(v / (1 - v)), "log": np.log, "natural": lambda v: v}[scale]
    back = {"logit": lambda x: 1 / (1 + np.exp(-x)), "log": np.exp, "natural": lambda x: x}[scale]

    def value(keep):
        names = {n for n in ("y_true", "y_score") if n in columns_of(metric)}
        return empty_copy(metric).update({n: rows[n][keep] for n in names}).compute()

    points = forth(np.array([value(of != k) for k in range(SHARDS)]))
    error = np.sqrt((SHARDS - 1) / SHARDS * ((points - points.mean()) ** 2).sum())
    weights = np.bincount(of, minlength=SHARDS).astype(float)
    reach = stats.t.ppf(0.975, weights.sum() ** 2 / (weights**2).sum() - 1)
    whole = value(np.ones(len(of), bool))
    found = made.interval()
    assert found.estimate == whole
    np.testing.assert_allclose(
        [found.low, found.high], back(forth(whole) + np.array([-1, 1]) * reach * error), rtol=1e-9
    )
    assert made.interval(0.5).low > found.low


def test_rows_without_a_unit():
    columns = {"y_true": [0, 1, 1, 1], "user": ["ann", None, "bob", "none"]}
    with pytest.raises(sm.InvalidInputError, match=r"user: .* found a null in row 1"):
        sm.Sharded(sm.CTR(), unit="user").update(columns)
    for given in ({"missing": "skip"}, {"on_invalid": "drop"}):
        made = sm.Sharded(sm.CTR(), unit="user", **given).update(columns)
        assert made.compute() == 2 / 3
        assert made.explain()["dropped"] == {"unit": 1}
    made = sm.Sharded(sm.CTR(), unit="user", missing="skip", missing_values=("none",)).update(columns)
    assert made.explain()["dropped"] == {"unit": 2}
    assert sm.from_bytes(made.to_bytes()).update(columns).explain()["dropped"] == {"unit": 4}


def test_a_bad_unit_changes_nothing():
    made = sm.Sliced(sm.Sharded([sm.AUC(), sm.CTR()], unit="user"), by="arm").update(log())
    before = made.to_bytes()
    bad = log(4)
    bad["user"] = bad["user"].astype(object)
    bad["user"][5000] = None
    with pytest.raises(sm.InvalidInputError, match="row 5,000"):
        made.update(bad)
    assert made.to_bytes() == before


def test_few_units_have_no_interval_and_say_why():
    found = sm.Sharded(sm.CTR(), unit="user").update(y_true=[0, 1, 1, 0], user=[1, 1, 2, 3]).interval()
    assert np.isnan(found.low)
    assert "effective number of groups of units" in found.reason


@pytest.mark.parametrize(
    ("metric", "why"),
    [(sm.Max(), "Quantile"), (sm.DistinctCount(), "keys"), (sm.ExpectedCalibrationError(), "Calibration")],
)
def test_what_has_no_interval_says_what_to_use(metric, why):
    rows = log() | {"value": np.arange(6000)}
    made = sm.Sharded(metric, unit="user")
    found = made.update({n: rows[n] for n in columns_of(made) if n in rows}).interval()
    assert np.isnan(found.low)
    assert why in found.reason


def test_slices_and_windows_go_around():
    for inner in (sm.Sliced(sm.CTR(), by="arm"), sm.MetricCollection({"x": sm.Sliced(sm.CTR(), by="arm")})):
        with pytest.raises(TypeError, match=r"put Sharded inside, as in Sliced\(Sharded"):
            sm.Sharded(inner, unit="user")


@pytest.mark.parametrize("given", [{"unit": ""}, {"unit": 3}, {"shards": 2}, {"shards": 1.5}, {"shard_bits": 99}])
def test_arguments_are_checked(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        sm.Sharded(sm.CTR(), **{"unit": "user"} | given)


def test_other_shards_do_not_merge():
    a, b = sm.Sharded(sm.CTR(), unit="user"), sm.Sharded(sm.CTR(), unit="device", shards=32)
    with pytest.raises(sm.IncompatibleStateError, match="unit is 'user' here and 'device' there; shards is 64 here"):
        a.merge(b)


def test_shards_that_are_not_those_of_the_total_are_refused():
    a, b = (sm.Sharded(sm.CTR(), unit="user").update(log(n=n)) for n in (100, 101))
    frame_of_both = frame.write_frame([states_of(a)[0], states_of(b)[1]], definition_of(a).header())
    with pytest.raises(sm.StateFormatError, match="the rows of the shards do not add up to the rows of the total"):
        sm.from_bytes(frame_of_both)
    sliced = [sm.Sliced(s, by="arm") for s in (sm.Sharded(sm.CTR(), unit="user"),) * 2]
    a, b = (s.update(log(n=n)) for s, n in zip(sliced, (100, 101), strict=True))
    with pytest.raises(sm.StateFormatError, match="the rows of the shards do not add up"):
        sm.from_bytes(frame.write_frame([states_of(a)[0], states_of(b)[1]], definition_of(a).header()))


def test_parts_of_a_collection():
    both = {"old": sm.Task([sm.AUC(), sm.CTR()]), "new": sm.Task([sm.AUC(), sm.CTR()], y_score="y_score")}
    made = sm.Sharded(both, unit="user").update(log())
    alone = sm.Sharded(sm.AUC(), unit="user").update(log())
    assert made["old/auc"] == alone
    assert made["old/auc"].interval() == alone.interval()
    assert made.only(["old/auc", "new/ctr"]).interval()["old/auc"] == alone.interval()
    assert made["old"].interval()["auc"] == alone.interval()
    with pytest.raises(TypeError, match="the single metric auc"):
        alone["auc"]


def test_coarser_shards_are_those_of_coarser_metrics():
    made = sm.Sharded(sm.AUC(), unit="user").update(log())
    fewer = sm.Sharded(sm.AUC(bits=8), unit="user", shard_bits=8).update(log())
    assert sm.coarsen(made, 8) == fewer
    assert states_of(sm.coarsen(made, 12))[1] == states_of(made)[1]


def test_bits_of_a_sketch_do_not_come_down():
    rows = {
        "value": np.arange(90) % 7,
        "unit": np.arange(90),
        "y_true": np.arange(90) % 2,
        "y_score": np.arange(90) / 90,
    }
    alone = sm.KeyFrequency(key=3).update(value=rows["value"])
    assert sm.Sharded(sm.KeyFrequency(key=3), unit="unit", shards=8).update(rows).compute() == alone.compute()
    both = sm.MetricCollection({"often": sm.KeyFrequency(key=3), "auc": sm.AUC()}).update(rows)
    both = sm.coarsen(both, 10)
    assert both["often"] == alone
    assert both["auc"] == sm.AUC(bits=10).update(rows["y_true"], rows["y_score"])
    with pytest.raises(TypeError, match="cannot coarsen key_frequency@3, because this metric has no histogram"):
        sm.coarsen(alone, 8)


def test_tables_say_which_unit():
    made = sm.Sliced(sm.Sharded([sm.AUC(), sm.CTR()], unit="user"), by="arm").update(log())
    table = made.table()
    assert {r["unit"] for r in table} == {"user"}
    assert " to " in repr(table)
    for row in table:
        found = made[row["arm"]][row["metric"]].interval()
        assert (row["interval_low"], row["interval_high"]) == (found.low, found.high)
    assert " to " not in repr(sm.Sliced(sm.CTR(), by="arm").update(y_true=[0, 1], arm=["a", "b"]).table())


@pytest.mark.slow
def test_groups_that_are_not_the_units():
    """GAUC by query, users as units: a group lies in several shards."""
    rng = np.random.default_rng(5)
    rows = log() | {"query": rng.integers(0, 40, 6000)}
    made = sm.Sharded(sm.GroupAUC(), unit="user", shards=SHARDS)
    made.update(y_true=rows["y_true"], y_score=rows["y_score"], group=rows["query"], user=rows["user"])
    of = shards_of(rows["user"])
    (sample,) = definition_of(made).samples(states_of(made))
    for k in range(3):
        keep = of != k
        rest = sm.GroupAUC().update(rows["y_true"][keep], rows["y_score"][keep], group=rows["query"][keep])
        assert sample.shards.leave_one_out[k, 0] == rest.compute()


def test_what_every_shard_has_is_too_large_when_it_is_built():
    with pytest.raises(sm.MemoryLimitError, match=r"would take 2\d\d,\d{3},\d{3} bytes .* memory_limit of 100,000,000"):
        sm.Sharded(sm.ConfusionMatrix(num_classes=700), unit="user", memory_limit=10**8)


@pytest.mark.parametrize("values", [[None, "a", "b"], [None, 1, 2], [None, b"a", b"b"], [None, True, False]])
@pytest.mark.parametrize("how", [{"missing": "skip"}, {"on_invalid": "drop"}])
def test_rows_without_a_unit_are_left_out_alike_however_they_come(how, values):
    together, apart = (sm.Sharded(sm.CTR(), unit="u", shards=8, **how) for _ in range(2))
    together.update(y_true=[1, 0, 1], u=values)
    for y, u in zip([1, 0, 1], values, strict=True):
        apart.update(y_true=[y], u=[u])
    assert together == apart


def test_a_quantile_knows_what_lies_below_it_in_each_shard():
    """Its error comes from the share below it (Woodruff), not from values without each shard."""
    rows = log(n=600)
    made = sm.Sharded(sm.Quantile(q=0.5), unit="user", shards=SHARDS).update(value=rows["y_score"], user=rows["user"])
    (sample,) = definition_of(made).samples(states_of(made))
    assert sample.shards.below is not None
    assert sample.shards.below.sum() == pytest.approx(300, abs=5)


def test_tasks_that_share_a_metric_object_have_the_intervals_of_each():
    """Two tasks of one list of metrics: every number gets the replicates of its own task."""
    rows = log()
    rows["other"] = np.sqrt(rows["y_score"])
    metrics = [sm.AUC(bits=8), sm.LogLoss()]
    columns = {"a": "y_score", "b": "other"}
    shared = sm.Sharded({n: sm.Task(metrics, y_score=c) for n, c in columns.items()}, unit="user").update(rows)
    alone = sm.Sharded(
        {n: sm.Task([sm.AUC(bits=8), sm.LogLoss()], y_score=c) for n, c in columns.items()}, unit="user"
    ).update(rows)
    assert shared.interval() == alone.interval()
    assert not any(interval.reason for interval in shared.interval().values())
