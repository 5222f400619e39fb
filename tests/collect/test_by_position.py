"""Columns by position: what a metric takes alone, a collection of it and slices of it take."""

from __future__ import annotations

from typing import Any

import draws
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.laws.case import expect_same_bytes
from streammetrics.laws.specimens import make_consistent, sample

N = 12


@pytest.mark.parametrize("tag", draws.OWN)
def test_a_collection_and_slices_of_a_metric_take_what_it_takes(tag: str) -> None:
    metric = draws.usual(tag)
    state = metric.make_state()
    columns = make_consistent(state, sample(state.needs(), np.random.default_rng(1), N, "plain", weighted=False))
    roles = definition_of(metric).positional_columns()
    given = [columns.get(role, np.full(N, 0.5)) for role in roles]
    more = {name: column for name, column in columns.items() if name not in roles}
    alone = empty_copy(metric).update(*given, **more)
    assert alone == empty_copy(metric).update(columns)
    collection = sm.MetricCollection(empty_copy(metric)).update(*given, **more)
    expect_same_bytes(collection[metric.name], alone, "a collection to take what its metric takes")
    nested = sm.MetricCollection({"in": sm.MetricCollection(empty_copy(metric))}).update(*given, **more)
    assert nested["in"] == collection
    sliced = sm.Sliced(empty_copy(metric), by="k").update(*given, **more, k=np.full(N, 7))
    expect_same_bytes(sliced.total, alone, "slices to take what their metric takes")
    both = sm.Sliced(sm.MetricCollection(empty_copy(metric)), by="k").update(*given, **more, k=np.full(N, 7))
    expect_same_bytes(both.total, collection, "slices of a collection to take what it takes")


def test_what_metrics_do_not_agree_on_is_given_by_name() -> None:
    y, s = [0, 1], [0.2, 0.7]
    assert sm.MetricCollection(sm.CTR(), sm.MAE()).update(y, s).compute() == {"ctr": 0.5, "mae": 0.25}
    for several in ([sm.AUC(), sm.MAE()], [sm.AUC(), sm.F1(threshold=None)], [sm.AUC(), sm.Mean()]):
        with pytest.raises(TypeError, match="pass these columns by name, or pass a table"):
            sm.MetricCollection(several).update(y, s)
    task = sm.MetricCollection({"ctr": sm.Task(sm.AUC(), y_true="click", y_score="p")})
    with pytest.raises(TypeError, match="reads click, p, sample_weight; pass these columns by name"):
        task.update(y, s)


def scalars(kind: Any) -> list[Any]:
    return [kind(1), np.array(0.5), 1, 0.5]


@pytest.mark.parametrize("kind", [np.array, np.float32])
def test_a_value_beside_columns_is_refused_whenever_it_comes(kind: Any) -> None:
    arrays = np.array([0, 1]), np.array([0.2, 0.7])
    for thing in (sm.AUC(), sm.MetricCollection(sm.AUC(), sm.LogLoss()), sm.Sliced(sm.AUC(), by="k"), sm.Mean()):
        key = {"k": np.array([1, 2])} if isinstance(thing, sm.Sliced) else {}
        several = arrays[: len(definition_of(thing).positional_columns())]
        for _ in range(2):  # plain batches before, and none
            digest = thing.digest()
            for bad in scalars(kind):
                for i in range(len(several)):
                    given = [bad if j == i else several[j] for j in range(len(several))]
                    if len(several) > 1 or key:
                        with pytest.raises(sm.InvalidInputError, match=r"has 1 row,|has 2 rows,|found 0\.5 in row 0"):
                            thing.update(*given, **key)
                with pytest.raises(sm.InvalidInputError, match=r"has 1 row,|has 2 rows,|found 0\.5 in row 0"):
                    thing.update(*several, sample_weight=bad, **key)
            assert thing.digest() == digest
            thing.update(*several, **key)


def test_lists_of_documents_that_are_called_otherwise() -> None:
    recall = sm.RecallAtK(3)
    for ranked, relevant in (
        ([[1, 2, 3]], [{"1", "2"}]),
        ([["1"]], [{1: 2.0}]),
        ([["a"]], [{b"a"}]),
        ([[1], ["2"]], [{1}, {2}]),
        ([np.array(["1"])], [np.array([1])]),
    ):
        with pytest.raises(sm.InvalidInputError, match=r"expected documents of one type, found .* and .*; convert"):
            recall.update_lists(ranked, relevant)
    assert recall == sm.RecallAtK(3)
    assert recall.update_lists([np.array([1, 2, 3]), [True]], [{1.0, 2}, (d for d in [1])]).compute() == 1.0


def test_classes_that_do_not_sum_to_one_name_both_scales() -> None:
    for metric in (sm.AUC(num_classes=2), sm.LogLoss(num_classes=2)):
        with pytest.raises(sm.InvalidInputError, match=r'for logits, pass scale="logit"; .* scale="real"'):
            metric.update([0, 1], [[0.2, 0.3], [0.5, 0.5]])
    scores = [[0.2, 0.3], [0.9, 0.5]]
    assert sm.AUC(num_classes=2, scale="real").update([0, 1], scores).compute() == 0.5


AROUND = {
    "alone": lambda: sm.CTR(),
    "collection": lambda: sm.MetricCollection(sm.CTR()),
    "nested": lambda: sm.MetricCollection({"in": sm.MetricCollection(sm.CTR())}),
    "delta": lambda: sm.Delta(sm.CTR()),
    "sliced": lambda: sm.Sliced(sm.CTR(), by="k"),
    "sharded": lambda: sm.Sharded(sm.CTR(), unit="k"),
    "windowed": lambda: sm.Windowed(sm.CTR(), width=1, time="k"),
    "recent": lambda: sm.Recent(sm.CTR(), rows=5),
    "decayed": lambda: sm.Decayed(sm.CTR(), half_life=3, time="k"),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    "second", [[0.5], "nonsense", np.array([0.5]), np.zeros(3, np.float32), (0.1, 0.2, 0.3)], ids=repr
)
def test_columns_that_nobody_reads_have_as_many_rows(around: str, second: Any) -> None:
    thing, rows = AROUND[around](), 1 if isinstance(second, str) else len(second)
    more = {"k": [1, 2]} if "k" in columns_of(thing) else {}
    for _ in range(2):
        for y in ([0, 1], np.array([0, 1])):
            with pytest.raises(sm.InvalidInputError, match=f"y_score has {rows} rows?, but y_true has 2"):
                thing.update(y, second, **more)
        thing.update(np.array([0, 1]), np.array([0.1, 0.2]), **more)


def test_a_key_of_several_columns_by_keyword() -> None:
    y, s, parts = [0, 1, 1], [0.1, 0.2, 0.3], ([1, 1, 2], ["a", "a", "b"])
    wanted = sm.GroupAUC().update({"y_true": y, "y_score": s, "group": parts})
    assert sm.GroupAUC().update(y, s, group=parts) == wanted
