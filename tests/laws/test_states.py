"""The laws of states: those of the package, and states of every merge rule and form as another package defines them.

The normal run is short; for the long form see `draws`: ``LAWS=100 pytest tests/laws -n auto``.
"""

from __future__ import annotations

from contextlib import contextmanager

import draws
import numpy as np
import plugin
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.laws import LAWS, reader_of, run
from streammetrics.laws.metrics import METRIC_LAWS
from streammetrics.state import State

BUILT_IN = [
    sm.ScoreHistogram(bits=8),
    sm.ScoreHistogram(bits=8, scale="real"),
    sm.ScoreSums(),
    sm.ScoreSums(terms=("score", "log_loss", "brier")),
    sm.ScoreSums(terms=("brier", "log_loss"), scale="logit"),
    sm.DecisionCounts(thresholds=(0.9, -1.0, 0.25)),
    sm.DecisionCounts(column="y_pred"),
]


@pytest.fixture(autouse=True)
def imported():
    with plugin.imported():
        yield


@pytest.mark.parametrize("state", [*BUILT_IN, *plugin.STATES], ids=repr)
def test_every_law(state):
    with reader_of(state) as metric:

        @draws.short(4)
        @given(draws.cases(metric))
        def hold(case):
            for law in LAWS:
                run(law, case)

        hold()


@pytest.mark.parametrize("metric", plugin.GOOD, ids=repr)
def test_every_law_of_metrics_that_read_them(metric):
    prototype = metric() if isinstance(metric, type) else metric

    @draws.short(3)
    @given(draws.cases(prototype))
    def hold(case):
        for law in METRIC_LAWS:
            run(law, case)

    hold()


class TestMemoryLimit:
    def fed(self, n, **settings):
        return plugin.Median(**settings).update(np.ones(n), np.arange(n) / 7)

    def test_an_update_past_it_raises_and_changes_nothing(self):
        metric = self.fed(20, memory_limit=16 * 30)
        before = metric.to_bytes()
        with pytest.raises(sm.MemoryLimitError, match="Values would need 640 bytes; its memory_limit is 480"):
            metric.update(np.ones(20), np.arange(20))
        assert metric.to_bytes() == before
        assert metric.update(np.ones(10), np.arange(10)).state.nbytes > 480
        with pytest.raises(sm.MemoryLimitError):
            metric.update([1], [0.5])

    def test_a_merge_past_it_raises_and_changes_nothing(self):
        a, b = self.fed(20, memory_limit=16 * 30), self.fed(20)
        before = a.to_bytes(), b.to_bytes()
        with pytest.raises(sm.MemoryLimitError):
            a.merge(b)
        assert (a.to_bytes(), b.to_bytes()) == before
        assert len(b.merge(a).state.values) == 40  # the limit is not part of the identity

    def test_copies_keep_it(self):
        for metric in (self.fed(20, memory_limit=480).copy(), self.fed(20, memory_limit=480).reset()):
            with pytest.raises(sm.MemoryLimitError):
                metric.update(np.ones(40), np.arange(40))

    def test_states_of_all_rules_leave_their_other_arrays_alone(self):
        metric = plugin.ShareAbove(memory_limit=1200)
        metric.update([1, 0], [0.5, 0.5])
        before = metric.to_bytes()
        other = plugin.ShareAbove().update([1, 0, 1], [-1.5, 2.5, 1.5])
        with pytest.raises(sm.MemoryLimitError):
            metric.merge(other)
        with pytest.raises(sm.MemoryLimitError):
            metric.update([1, 0, 1], [-1.5, 2.5, 1.5])
        assert metric.to_bytes() == before

    def collection(self, limit=None):
        return sm.MetricCollection({
            "auc": sm.AUC(scale="real", bits=8),
            "roomy": plugin.ShareAbove(),
            "tight": plugin.Median(memory_limit=limit),
            "last": sm.CTR(),
        })  # fmt: skip

    def test_a_collection_counts_a_batch_in_all_states_or_in_none(self):
        whole = self.collection(16 * 5).update([1, 0, 1], [0.5, 1.5, 2.5])
        before = whole.to_bytes()
        with pytest.raises(sm.MemoryLimitError):
            whole.update([1, 0, 1], [0.5, 1.5, 2.5])
        assert whole.to_bytes() == before
        assert whole.update([0, 0], [1, 2])["roomy"].compute() == 1.0

    def test_a_collection_merges_in_all_states_or_in_none(self):
        a, b = (self.collection(limit).update([1, 0, 1], [0.5, 1.5, 2.5]) for limit in (16 * 5, None))
        before = a.to_bytes()
        with pytest.raises(sm.MemoryLimitError):
            a.merge(b)
        assert a.to_bytes() == before
        assert b.merge(a)["tight"].compute() == 0.5

    def test_slices_count_a_batch_in_all_states_or_in_none(self):
        def slices(limit):
            return sm.Sliced(self.collection(limit), by="k", limit=2)

        whole = slices(24 * 5).update(y_true=[1, 0, 1], y_score=[0.5, 1.5, 2.5], k=["a", "b", "c"])
        before, met = whole.to_bytes(), whole.keys
        with pytest.raises(sm.MemoryLimitError):
            whole.update(y_true=[1, 0, 1], y_score=[0.5, 1.5, 2.5], k=list("xyz"))
        assert whole.to_bytes() == before
        assert whole.keys == met
        clean = slices(None).update(y_true=[1, 0, 1], y_score=[0.5, 1.5, 2.5], k=["a", "b", "c"])
        rows = {"y_true": [0, 1], "y_score": [3.0, 4.0], "k": ["x", "b"]}
        assert whole.update(rows).to_bytes() == clean.update(rows).to_bytes()


class TestUnknownClasses:
    """Bytes of a package that is not imported load, merge and are written again; see also the law `absent_class`."""

    def parts(self):
        one = plugin.ShareAbove().update([1, 0, 1], [0.5, 1.5, 40.0])
        two = plugin.ShareAbove().update([1, 0, 1], [0.5, -1.5, 2.5], sample_weight=[2, 1, 1])
        return one.to_bytes(), two.to_bytes(), sm.merge([one, two]).to_bytes()

    def test_optional_arrays_that_one_part_lacks(self):
        a, b, both = self.parts()
        with unknown():
            assert sm.merge([a, b]).to_bytes() == both
            assert sm.merge([b, a]).to_bytes() == both
            assert sm.merge([sm.from_bytes(b), sm.from_bytes(a)]).to_bytes() == both

    def test_what_they_cannot_do_they_say(self):
        a, *_ = self.parts()
        with unknown():
            metric = sm.from_bytes(a)
            assert repr(metric) == "OpaqueMetric('plugin.share_above')"
            for action in (metric.compute, metric.bounds, lambda: metric.update([1], [1.0])):
                with pytest.raises(sm.StreamMetricsError, match="import the package that defines it"):
                    action()
            assert metric.to_bytes() == a

    def test_they_do_not_merge_with_others(self):
        a, *_ = self.parts()
        other = plugin.Median().update([1], [1.0]).to_bytes()
        another = plugin.ShareAbove(cut=0.5).update([1], [1.0]).to_bytes()
        with unknown():
            with pytest.raises(sm.IncompatibleStateError):
                sm.merge([a, other])
            with pytest.raises(sm.IncompatibleStateError, match=r"cut is its default here and 0\.5 there"):
                sm.from_bytes(a).merge(sm.from_bytes(another))

    @pytest.mark.parametrize("limit", [None, 1])
    def test_in_collections_and_slices(self, limit):
        def made(rows):
            inner = [plugin.ShareAbove(), plugin.ShareAbove(cut=1.0), plugin.Range(), sm.AUC(scale="real", bits=8)]
            return sm.Sliced(inner, by="k", limit=limit).update(rows)

        a = made({"y_true": [1, 0, 1], "y_score": [0.5, 1.5, 40.0], "k": ["a", "b", None]})
        b = made({"y_true": [1, 0, 1], "y_score": [0.5, 1.5, 4.0], "k": ["a", "c", "c"], "sample_weight": [1, 2, 0]})
        both, total = sm.merge([a, b]), sm.merge([a, b]).total
        parts = [a.to_bytes(), b.to_bytes()]
        with unknown():
            merged = sm.merge(parts)
            assert merged.to_bytes() == both.to_bytes()
            assert merged.copy().to_bytes() == both.to_bytes()
            assert merged.total.to_bytes() == total.to_bytes()
            assert merged.total["auc"].compute() == total["auc"].compute()
            assert sm.from_bytes(merged.to_bytes()).merge(sm.from_bytes(parts[0]).reset()).to_bytes() == both.to_bytes()


@contextmanager
def unknown():
    """Only what the package itself defines is registered."""
    kept = dict(State._by_tag), dict(sm.METRICS)
    for registry in (State._by_tag, sm.METRICS):
        for tag in [t for t in registry if t.startswith("plugin.")]:
            del registry[tag]
    yield
    State._by_tag.update(kept[0])
    sm.METRICS.update(kept[1])


@draws.short(30)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8), st.lists(st.integers(0, 3), min_size=2, max_size=2))
def test_min_and_max_hold_any_integer(values, where):
    a, b = plugin.Extremes().empty(4), plugin.Extremes().empty(4)
    for i, value in enumerate(values):
        state = (a, b)[i % 2]
        state.lowest[where[i % 2]] = min(state.lowest[where[i % 2]], value)
        state.highest[where[i % 2]] = max(state.highest[where[i % 2]], value)
    merged = a.copy().merge(b)
    assert sm.from_bytes(merged.to_bytes()) == merged
    total = merged.regroup(np.zeros(4, np.int64), 1).slice(0)
    empty = plugin.Extremes()
    assert int(total.lowest) == min(values, default=int(empty.lowest))
    assert int(total.highest) == max(values, default=int(empty.highest))


class TestBytesThatLie:
    """Decoded arrays of a state that grows are checked against one another."""

    def test_cells_without_a_key(self):
        state = plugin.Cells()
        state.__dict__["counts"] = np.ones(1, np.int64)
        with pytest.raises(sm.StateFormatError, match="counts is not as long as keys"):
            sm.from_bytes(state.to_bytes())

    @pytest.mark.parametrize("where", [-1, 2])
    def test_a_slice_that_is_not_there(self, where):
        state = plugin.Values().empty(2)
        state.__dict__["values"] = np.array([[where, 5, 1]])
        with pytest.raises(sm.StateFormatError, match="names a slice that is not there"):
            sm.from_bytes(state.to_bytes())

    @pytest.mark.parametrize("keys", [[[2, 0], [1, 0]], [[1, 0], [1, 0]]])
    def test_keys_out_of_order_or_twice(self, keys):
        state = plugin.Cells()
        state.grow(None, keys=np.array([[1, 0], [2, 0]]))
        state.settle()
        state.__dict__["keys"] = np.array(keys)
        with pytest.raises(sm.StateFormatError, match="not sorted and unique"):
            sm.from_bytes(state.to_bytes())

    def test_values_out_of_order(self):
        state = plugin.Values()
        state.__dict__["values"] = np.array([[2, 0], [1, 0]])
        with pytest.raises(sm.StateFormatError, match="not sorted and unique"):
            sm.from_bytes(state.to_bytes())


class TestGrow:
    def test_rows_come_in_any_order_and_as_often_as_they_like(self):
        state = plugin.Cells()
        state.grow(None, keys=np.array([[5, 1], [3, 0], [5, 1]]), counts=np.array([1, 1, 1]))
        assert state.keys.tolist() == [[3, 0], [5, 1]]
        assert state.counts.tolist() == [1, 2]

    def test_cells_that_are_not_given_change_nothing(self):
        state = plugin.Cells()
        state.grow(None, keys=np.array([[5, 1]]), top=np.array([7]))
        state.grow(None, keys=np.array([[5, 1], [6, 1]]), counts=np.array([1, 1]))
        assert state.top.tolist() == [7, np.iinfo(np.int64).min]
        assert state.bottom.tolist() == [np.iinfo(np.int64).max] * 2
        assert state.excess is None

    def test_slices(self):
        state = plugin.Values().empty(3)
        state.grow(np.array([2, 0, 2]), values=np.array([[5, 1], [9, 0], [4, 1]]))
        assert state.slice(2).values.tolist() == [[4, 1], [5, 1]]
        assert state.slice(1).values.tolist() == []
        state.clear(2)
        assert state.values.tolist() == [[0, 9, 0]]

    @pytest.mark.parametrize("patience", [0, 200, 1 << 20])
    def test_rows_wait_as_long_as_they_like(self, patience, monkeypatch):
        monkeypatch.setattr("streammetrics.growth.PATIENCE", patience)
        rng = np.random.default_rng(patience)
        keys, cells = rng.integers(0, 5, (300, 2)), rng.integers(0, 9, 300)
        at_once, often = plugin.Cells(), plugin.Cells()
        at_once.grow(None, keys=keys, counts=cells, top=cells, large=np.r_[np.zeros(100, np.int64), cells[100:]])
        for i in range(0, 300, 7):
            rows = slice(i, i + 7)
            given = {"large": cells[rows]} if i >= 105 else {}  # an array that is absent at first
            if i == 98:
                given = {"large": np.r_[np.zeros(2, np.int64), cells[100:105]]}
            often.grow(None, keys=keys[rows], counts=cells[rows], top=cells[rows], **given)
        assert often == at_once
        assert often.to_bytes() == at_once.to_bytes()

    def test_a_limit_that_uniting_keeps_is_kept(self):
        state = plugin.Cells(memory_limit=20_000)
        for _ in range(1000):
            state.grow(None, keys=np.array([[1, 1], [2, 1]]), counts=np.array([1, 1]))
        assert state.counts.tolist() == [1000, 1000]
        before = state.digest()
        many = np.stack([np.arange(1000), np.zeros(1000, np.int64)], axis=1)
        with pytest.raises(sm.MemoryLimitError, match="memory_limit is 20,000"):
            state.grow(None, keys=many, counts=np.ones(1000, np.int64))
        assert state.digest() == before
