"""The laws of states: those of the package, and states with parts of every form as another package defines them.

The normal run is short; for the long form see `draws`: ``LAWS=100 pytest -m "" tests/laws -n auto``.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import draws
import numpy as np
import plugin
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.format import frame
from streammetrics.laws import LAWS, reader_of, run
from streammetrics.laws.metrics import METRIC_LAWS
from streammetrics.state.state import State

BUILT_IN = [
    sm.extend.ScoreHistogram(bits=8),
    sm.extend.ScoreHistogram(bits=8, scale="real"),
    sm.extend.ScoreSums(),
    sm.extend.ScoreSums(terms=("score", "log_loss", "brier")),
    sm.extend.ScoreSums(terms=("brier", "log_loss"), scale="logit"),
    sm.extend.DecisionCounts(thresholds=(0.9, -1.0, 0.25)),
    sm.extend.DecisionCounts(column="y_pred"),
]


@pytest.fixture(autouse=True)
def imported():
    with plugin.imported():
        yield


@pytest.mark.slow
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
        metric = self.fed(20, memory_limit=4000)
        before = metric.to_bytes()
        with pytest.raises(
            sm.MemoryLimitError, match=r"would need up to .* bytes, more than the memory_limit of 4,000"
        ):
            metric.update(np.ones(1000), np.arange(1000))
        assert metric.to_bytes() == before
        assert metric.update(np.ones(10), np.arange(10)).state.rows == 30

    def test_a_merge_past_it_raises_and_changes_nothing(self):
        a, b = self.fed(20, memory_limit=400), self.fed(20)
        b.update(np.ones(20), np.arange(20) / 9)
        before = a.to_bytes(), b.to_bytes()
        with pytest.raises(sm.MemoryLimitError):
            a.merge(b)
        assert (a.to_bytes(), b.to_bytes()) == before
        assert b.merge(a).state.rows == 60  # the limit is not part of the identity

    def test_copies_keep_it(self):
        for metric in (self.fed(20, memory_limit=4000).copy(), self.fed(20, memory_limit=4000).reset()):
            with pytest.raises(sm.MemoryLimitError):
                metric.update(np.ones(1000), np.arange(1000))

    def collection(self, limit=None):
        return sm.MetricCollection({
            "auc": sm.AUC(scale="real", bits=8),
            "roomy": plugin.ShareAbove(),
            "tight": plugin.Median(memory_limit=limit),
            "last": sm.CTR(),
        })  # fmt: skip

    def columns(self, n):
        return {"y_true": np.arange(n) % 3 != 1, "y_score": np.arange(n) + 0.5, "group": np.arange(n) % 2}

    def test_a_collection_counts_a_batch_in_all_states_or_in_none(self):
        whole = self.collection(4000).update(self.columns(3))
        before = whole.to_bytes()
        with pytest.raises(sm.MemoryLimitError):
            whole.update(self.columns(1000))
        assert whole.to_bytes() == before
        assert whole.update(self.columns(2))["roomy"].compute() == 1.0

    def test_a_collection_merges_in_all_states_or_in_none(self):
        a, b = self.collection(400).update(self.columns(3)), self.collection().update(self.columns(100))
        before = a.to_bytes()
        with pytest.raises(sm.MemoryLimitError):
            a.merge(b)
        assert a.to_bytes() == before
        assert b.merge(a)["tight"].state.rows == 103

    def test_slices_count_a_batch_in_all_states_or_in_none(self):
        def slices(limit):
            return sm.Sliced(self.collection(limit), by="k", limit=2)

        whole = slices(4000).update(self.columns(3) | {"k": ["a", "b", "c"]})
        before, met = whole.to_bytes(), whole.keys
        with pytest.raises(sm.MemoryLimitError):
            whole.update(self.columns(1000) | {"k": np.arange(1000).astype(str)})
        assert whole.to_bytes() == before
        assert whole.keys == met
        clean = slices(None).update(self.columns(3) | {"k": ["a", "b", "c"]})
        rows = self.columns(2) | {"k": ["x", "b"]}
        assert whole.update(rows).to_bytes() == clean.update(rows).to_bytes()


class TestUnknownClasses:
    """Bytes of a package that is not imported load, merge and are written again; see also the law `absent_class`."""

    def parts(self):
        one = plugin.ShareAbove().update([1, 0, 1], [0.5, 1.5, 40.0], group=[1, 1, 2])
        two = plugin.ShareAbove().update([1, 0, 1], [0.5, -1.5, 2.5], group=[1, 3, 2], sample_weight=[2, 1, 1])
        return one.to_bytes(), two.to_bytes(), sm.merge([one, two]).to_bytes()

    def test_optional_parts_that_one_lacks(self):
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
                with pytest.raises(sm.StreamMetricsError, match="import the package that defines the metric"):
                    action()
            assert metric.to_bytes() == a

    def test_they_do_not_merge_with_others(self):
        a, *_ = self.parts()
        other = plugin.Median().update([1], [1.0]).to_bytes()
        another = plugin.ShareAbove(cut=0.5).update([1], [1.0], group=[1]).to_bytes()
        with unknown():
            with pytest.raises(sm.IncompatibleStateError):
                sm.merge([a, other])
            with pytest.raises(sm.IncompatibleStateError, match=r"cut is its default here and 0\.5 there"):
                sm.from_bytes(a).merge(sm.from_bytes(another))

    # Three rows of a histogram of 8 bits have wide bounds.
    @pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")
    @pytest.mark.parametrize("limit", [None, 1])
    def test_in_collections_and_slices(self, limit):
        def made(rows):
            inner = [plugin.ShareAbove(), plugin.ShareAbove(cut=1.0), plugin.Range(), sm.AUC(scale="real", bits=8)]
            return sm.Sliced(inner, by="k", limit=limit).update(rows)

        a = made({"y_true": [1, 0, 1], "y_score": [0.5, 1.5, 40.0], "k": ["a", "b", None], "group": [1, 1, 2]})
        more = {"k": ["a", "c", "c"], "group": [2, 1, 1], "sample_weight": [1, 2, 0]}
        b = made({"y_true": [1, 0, 1], "y_score": [0.5, 1.5, 4.0], **more})
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
    kept = dict(State.by_tag), dict(sm.extend.METRICS)
    for registry in (State.by_tag, sm.extend.METRICS):
        for tag in [t for t in registry if t.startswith("plugin.")]:
            del registry[tag]
    yield
    State.by_tag.update(kept[0])
    sm.extend.METRICS.update(kept[1])


class TestBytesThatLie:
    """Decoded parts are checked one by one, and against one another."""

    def written(self, state, **cells):
        return sm.from_bytes(frame.write_frame([state.with_cells(replace(state.cells, **cells))], {"kind": "state"}))

    def flats(self, state, **arrays):
        return self.written(state, flats={**state.cells.flats, **arrays})

    def test_counts_below_zero(self):
        state = plugin.Positives().update([0, 1, 1]).state
        with pytest.raises(sm.StateFormatError):
            self.flats(state, rows=np.array([[3, -1]]))

    def test_a_cell_without_rows(self):
        state = plugin.ShareAbove().update([1, 0], [0.5, 1.5], group=[1, 2]).state
        with pytest.raises(sm.StateFormatError):
            self.flats(state, rows=np.array([[0, 1], [0, 0]]))

    @pytest.mark.parametrize("inner", [[[0, 2, 0], [0, 1, 0]], [[0, 1, 0], [0, 1, 0]], [[0, 1, 0], [1, 2, 0]]])
    def test_keys_out_of_order_or_twice_or_of_a_cell_that_is_not_there(self, inner):
        state = plugin.ShareAbove().update([1, 0], [0.5, 1.5], group=[1, 2]).state
        with pytest.raises(sm.StateFormatError):
            self.written(state, inner_keys=np.array(inner))

    @pytest.mark.parametrize("codes", [[2, 1], [1, 1]])
    def test_entries_out_of_order_or_twice(self, codes):
        state = plugin.Median().update([1, 1], [0.5, 1.5]).state
        entries = replace(state.values, codes=np.array(codes, np.uint64))
        with pytest.raises(sm.StateFormatError):
            self.written(state, tallies={"values": entries})


@draws.short(30)
@given(st.lists(st.floats(-1e300, 1e300), max_size=8), st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_least_and_largest_of_slices(values, where):
    keys = where[: len(values)]
    sliced = sm.Sliced(plugin.Range(), by="k").update(y_score=values, k=keys)
    for key in set(keys):
        mine = [v for v, k in zip(values, keys, strict=True) if k == key]
        assert plugin.unordered(int(sliced[key].state.highest)) == max(mine)
        assert plugin.unordered(int(sliced[key].state.lowest)) == min(mine)
    assert sliced.total == plugin.Range().update(y_score=values)
