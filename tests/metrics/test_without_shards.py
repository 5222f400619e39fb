"""What AUC and Gini are without each shard, by the bilinear form: to the bit what taking each shard away makes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import columns_of, states_of
from streammetrics.compose import leave_one_shard_out
from streammetrics.compose.leave_one_shard_out import leave_one_out
from streammetrics.numerics import kernel_registry
from streammetrics.reading.about import about_of
from streammetrics.reading.replicates import numbers_of
from streammetrics.state.state import State
from streammetrics.statistics import score_readouts

METRICS = {"auc": sm.AUC, "gini": sm.Gini, "real": lambda: sm.AUC(scale="real")}


def sliced(metric, rows, slices=7):
    rng = np.random.default_rng(0)
    users = rng.integers(0, 90, rows)
    key = np.minimum(rng.integers(0, slices, rows), users % (slices + 1))  # some shards are in few slices
    made = sm.Sliced(sm.Sharded(metric(), unit="u"), by="k")
    return made.update(y_true=rng.random(rows) < 0.2, y_score=rng.random(rows).astype("f4") ** 4, u=users, k=key)


def table(metric, state, count=64):
    return leave_one_out(metric.name, metric, definition_of(metric).reads[0].binding, state, count)[metric.name]


def coarse(holder):
    return states_of(holder)[-1]


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("rows", [1, 12, 300, 20_000])
def test_as_taking_each_shard_away(kind, rows, monkeypatch):
    state, metric = coarse(sliced(METRICS[kind], rows)), METRICS[kind]()
    quick = table(metric, state)
    monkeypatch.setattr(score_readouts, "DENSE", 0)
    monkeypatch.setattr(score_readouts, "MANY_PLACES", 0)
    np.testing.assert_array_equal(table(metric, state), quick)
    monkeypatch.setattr(kernel_registry, "_FIND", [])  # a merge server has no kernels
    np.testing.assert_array_equal(table(metric, state), quick)
    monkeypatch.setitem(metric.__dict__, "_about", replace(about_of(metric), pair_statistic=None))
    np.testing.assert_array_equal(table(metric, state), quick)


@pytest.mark.parametrize("kind", METRICS)
def test_one_cell(kind, monkeypatch):
    rng = np.random.default_rng(1)
    metric = METRICS[kind]()
    made = sm.Sharded(metric, unit="u")
    made.update(y_true=rng.random(3000) < 0.3, y_score=rng.random(3000), u=rng.integers(0, 40, 3000))
    quick = table(metric, coarse(made))
    monkeypatch.setitem(metric.__dict__, "_about", replace(about_of(metric), pair_statistic=None))
    np.testing.assert_array_equal(table(metric, coarse(made)), quick)


@pytest.mark.parametrize(
    "metric", [sm.LogLoss(), sm.NRMSE(normalization="range"), sm.GroupAUC(), sm.ConfusionMatrix(labels="discover")]
)
@pytest.mark.parametrize("by", [None, "k"])
def test_all_shards_at_once(metric, by, monkeypatch):
    """All states without a shard are computed by one subtraction or merge, or a few shards at a time if they are large."""
    rng = np.random.default_rng(2)
    unit = rng.integers(0, 40, 500)
    columns = {
        "y_true": rng.integers(0, 2, 500),
        "y_score": rng.random(500),
        "y_pred": rng.integers(0, 2, 500),
        "u": unit,
    }
    columns |= {"k": np.where(unit == 3, 5, unit % 3), "group": rng.integers(0, 9, 500)}
    sharded = sm.Sharded(metric, unit="u")
    made = sharded if by is None else sm.Sliced(sharded, by=by)
    made.update({n: c for n, c in columns.items() if n in columns_of(made)})
    calls = []
    for name in ("subtract", "move_cells"):
        whole = getattr(State, name)
        monkeypatch.setattr(State, name, lambda *a, name=name, whole=whole: calls.append(name) or whole(*a))
    read, state = definition_of(metric).reads[0], coarse(made)
    once = leave_one_out("m", metric, read.binding, state, 64)
    # One of the calls adds up all shards.
    assert len(calls) == 2
    monkeypatch.setattr(leave_one_shard_out, "MAX_BYTES", 0)
    each = leave_one_out("m", metric, read.binding, state, 64)
    assert len(calls) > 20
    assert once.keys() == each.keys()
    for name, values in once.items():
        np.testing.assert_array_equal(values, each[name])
    for k in np.unique(leave_one_shard_out.shard_of(state)).tolist():
        rest = leave_one_shard_out.merge_shards(state.select(leave_one_shard_out.shard_of(state) != k))
        found = [metric.reading(cell).value for cell in ([rest] if by is None else rest.iterate_cells())]
        for name, values in numbers_of("m", found).items():
            np.testing.assert_array_equal(once[name][k][~np.isnan(once[name][k])], values)


def test_no_rows_at_all():
    made = sm.Sharded(sm.AUC(), unit="u")
    assert np.isnan(table(sm.AUC(), coarse(made))).all()


def test_products_beyond_the_integers_of_floats():
    """2 P N passes 2**53: floats would round twice."""
    state = coarse(sliced(sm.AUC, 4000, slices=2))
    entries = state.cells.tallies["rows"]
    large = type(entries)(entries.shift, entries.codes, entries.counts * np.uint32(70_001))
    cells = type(state.cells)(**{**state.cells.__dict__, "tallies": {**state.cells.tallies, "rows": large}})
    heavy = state.with_cells(cells)
    found, rest = score_readouts.count_pairs_without(heavy, np.zeros(len(heavy), np.int64), 1)
    assert 2 * int(found[0, 0]) * int(found[0, 1]) > 1 << 53
    values = score_readouts.divide_integers(rest[:, 2], 2 * rest[:, 0] * rest[:, 1])
    for value, (n, p, twice) in zip(values.tolist(), rest.tolist(), strict=True):
        assert value == float(Fraction(twice, 2 * n * p))


def test_weights_and_exact_scores_go_the_other_way():
    weighted = sm.Sharded(sm.AUC(), unit="u").update(
        y_true=[0, 1, 1], y_score=[0.1, 0.4, 0.3], u=[1, 2, 3], sample_weight=[1.0, 0.5, 2.0]
    )
    exact = sm.Sharded(sm.AUC(), unit="u", shard_bits=16).update(y_true=[0, 1, 1], y_score=[0.1, 0.4, 0.3], u=[1, 2, 3])
    for made in (weighted, exact):
        state = coarse(made)
        assert score_readouts.count_pairs_without(state, np.zeros(len(state), np.int64), 1) is None
        assert table(sm.AUC(), state).shape == (64, 1)


@pytest.mark.parametrize("metric", [sm.AUC(), sm.CTR()])
@pytest.mark.parametrize("kernels", [True, False])
def test_no_slices_at_all(metric, kernels, monkeypatch):
    made = sm.Sliced(sm.Sharded(metric, unit="u"), by="k")
    if not kernels:
        monkeypatch.setattr(kernel_registry, "_FIND", [])
    assert table(metric, coarse(made)).shape == (64, 0)


@pytest.mark.parametrize(
    "metric", [sm.GroupAUC(), sm.GroupAveragePrecision(), sm.SessionRecallAtK(2), sm.GroupLogLoss()], ids=repr
)
def test_the_unit_may_be_the_group(metric):
    """Some metrics are then read from sums over groups, others from the rows of each group."""
    rng, n = np.random.default_rng(6), 1500
    columns = {"y_true": rng.random(n) < 0.4, "y_score": rng.random(n), "user": rng.integers(0, 200, n)}
    same = sm.Sharded(sm.Task(metric, group="user"), unit="user").update(columns)
    copy = sm.Sharded(sm.Task(metric, group="copy"), unit="user").update({**columns, "copy": columns["user"]})
    assert same.interval() == copy.interval()
    assert same.interval()[metric.name].standard_error > 0
