"""The laws of slices: keys of every kind, limits, pinned values, roll-ups, for metrics, collections and slices of slices.

The normal run is short; for the long form see `draws`: ``LAWS=100 pytest -m "" tests/laws -n auto``.
"""

from __future__ import annotations

import draws
import numpy as np
import plugin
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.collect.accumulator import accumulate, definition_of
from streammetrics.collect.metric_like import columns_of
from streammetrics.laws import OBJECT_LAWS, Case, run
from streammetrics.laws.case import expect_same_bytes
from streammetrics.laws.slices import check_each_slice, check_roll_up, expected_keys, slices_factory

SUBJECTS = {
    "auc": lambda: sm.AUC(bits=8, scale="real"),
    "auc that folds": lambda: sm.AUC(limit=2, bits=9, scale="real"),
    "log_loss": lambda: sm.LogLoss(scale="logit"),
    "precision": lambda: sm.Precision(threshold=0.3),
    "collection": lambda: sm.MetricCollection(
        {"ranking": sm.KS(bits=8, scale="real"), "clicks": sm.Task([sm.CTR(), sm.Recall()], where="click")}
    ),
    "median": plugin.Median,
    "slices": lambda: sm.Sliced([sm.CTR(), sm.Calibration(scale="logit")], by="group"),
    "mixed": lambda: sm.MetricCollection({"all": sm.CTR(), "best": sm.Sliced(sm.CTR(), by="group", limit=1)}),
    "cells": lambda: sm.MetricCollection([plugin.ShareAbove(), plugin.ShareAbove(cut=2.0), plugin.Total()]),
}


@st.composite
def logs(draw, names=("key",), most=25):
    """Columns for every subject, and keys."""
    some = draws.scores("logit"), st.booleans(), st.booleans(), st.integers(0, 2), st.sampled_from([1.0, 0.0, 2.0])
    drawn = draw(st.lists(st.tuples(*some), max_size=most))
    columns = {
        name: np.array([row[i] for row in drawn], dtype)
        for i, (name, dtype) in enumerate(
            (("y_score", "f8"), ("y_true", "u1"), ("click", "?"), ("group", "i8"), ("sample_weight", "f8"))
        )
    }
    if draw(st.booleans()):
        del columns["sample_weight"]
    return columns, draw(draws.keys(len(drawn), names))


@pytest.fixture(autouse=True)
def imported():
    with plugin.imported():
        yield


@pytest.fixture(params=SUBJECTS.values(), ids=SUBJECTS.keys())
def subject(request):
    return request.param


def case_of(make, columns, seed=0):
    return Case(make, columns, np.random.default_rng(seed))


def test_each_slice_is_what_its_rows_make_alone(subject):
    @draws.short(12)
    @given(logs(), st.integers(0, 4) | st.none(), st.data())
    def hold(log, limit, data):
        columns, keys = log
        met = list(dict.fromkeys(keys["key"].tolist()))
        values = data.draw(st.lists(st.sampled_from(met), unique=True)) if met and limit is not None else []
        check_each_slice(case_of(subject, columns), keys, {"limit": limit, "values": values})

    hold()


def test_composite_keys_and_roll_ups(subject):
    @draws.short(8)
    @given(logs(("a", "b", "c")), st.integers(0, 6) | st.none())
    def hold(log, limit):
        columns, keys = log
        check_each_slice(case_of(subject, columns), keys, {"limit": limit})
        check_roll_up(case_of(subject, columns), keys)
        sliced = slices_factory(case_of(subject, columns), keys, {})().update(columns | keys)
        two = slices_factory(case_of(subject, columns), {k: keys[k] for k in "ca"}, {})().update(columns | keys)
        expect_same_bytes(two, sliced.rollup(["c", "a"]), "a roll-up to two columns")
        expect_same_bytes(two.rollup("a"), sliced.rollup("a"), "roll-ups to go by any way")

    hold()


@pytest.mark.slow
def test_every_law_of_objects(subject):
    @draws.short(6)
    @given(logs(), st.integers(0, 3) | st.none(), st.integers(0, 2**32))
    def hold(log, limit, seed):
        columns, keys = log
        make = slices_factory(case_of(subject, columns), keys, {"limit": limit})
        read = {n: c for n, c in columns.items() if n in columns_of(make())}
        bad = {n: v for n, v in {"y_true": 2, "y_score": np.inf, "sample_weight": -1.0}.items() if n in read}
        case = Case(make, read | keys, np.random.default_rng(seed), bad)
        for law in OBJECT_LAWS:
            run(law, case)

    hold()


def test_dropped_rows_are_counted_in_their_slice(subject):
    @draws.short(6)
    @given(logs(), st.integers(0, 3) | st.none(), st.data())
    def hold(log, limit, data):
        columns, keys = log
        n = len(columns["y_true"])
        for name, value in {"y_true": 2, "y_score": np.nan, "click": 3}.items():
            hit = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
            columns[name] = columns[name].astype("f8")
            columns[name][hit] = value

        def make():
            inner = subject()
            kept = inner if isinstance(inner, sm.MetricCollection) else sm.MetricCollection({"m": inner})
            dropping = definition_of(kept).with_on_invalid("drop")
            return dropping.wrap(accumulate(dropping))

        check_each_slice(case_of(make, columns), keys, {"limit": limit})

    hold()


@draws.short(20)
@given(logs(), st.integers(0, 3), st.integers(1, 5))
def test_a_limit_does_not_depend_on_what_was_met_first(log, limit, batch):
    """Keys that made way come back as rows of `other`, batch by batch, after merges and after reading bytes again."""
    columns, keys = log
    make = slices_factory(case_of(SUBJECTS["precision"], columns), keys, {"limit": limit})
    rows = columns | keys
    n = len(columns["y_true"])
    sliced = make()
    for i in range(0, n, batch):
        sliced.update({k: v[i : i + batch] for k, v in rows.items()})
        if i % 2:
            sliced = sm.from_bytes(sliced.to_bytes()).merge(make())
    expect_same_bytes(make().update(rows), sliced, "the kept keys not to depend on batches")
    kept = expected_keys([(k,) for k in keys["key"].tolist()], {"limit": limit})
    assert set(sliced.keys) == {k[0] for k in kept}


def test_keys_of_a_kind_in_every_dtype_are_the_same_keys():
    values = [3, 250, 7, 3]
    whole = sm.Sliced(sm.CTR(), by="k").update(y_true=[1, 0, 1, 1], k=values)
    for dtype in ("u1", "<i2", ">i4", "i8", "u8"):
        one = sm.Sliced(sm.CTR(), by="k").update(y_true=[1, 0, 1, 1], k=np.array(values, dtype))
        expect_same_bytes(whole, one, f"keys as {dtype} to be the same keys")


def test_arrow_dictionaries_change_from_batch_to_batch():
    arrow = pytest.importorskip("pyarrow")
    batches = [
        (["A", "B"], [0, 1, 1]),
        (["A", "B"], [1, 1, 0]),  # the same: its numbers are those of before
        (["B", "A"], [0, 0, 1]),
        (["A", "B", "C"], [2, 0, None]),
        (["A", None], [0, 1, 0]),
        (["A", "B"], [0, 1, 1]),
    ]
    coded, plain = (sm.Sliced(sm.AUC(), by="key") for _ in range(2))
    y, s = [0, 1, 1], [0.25, 0.5, 0.125]
    for texts, codes in batches:
        keys = arrow.DictionaryArray.from_arrays(arrow.array(codes, arrow.int8()), texts)
        coded.update(y, s, key=keys)
        plain.update(y, s, key=keys.to_pylist())
    assert coded == plain
    assert coded.keys == [None, "A", "B", "C"]


def test_a_dictionary_of_a_batch_that_failed_says_nothing():
    arrow = pytest.importorskip("pyarrow")
    keys = arrow.array(["A", "B"]).dictionary_encode()
    sliced = sm.Sliced(sm.AUC(bits=8), by="key")
    with pytest.raises(sm.InvalidInputError):
        sliced.update([0, 2], [0.5, 0.25], key=keys)
    sliced.update([0, 1], [0.5, 0.25], key=[1, 2])
    with pytest.raises(sm.InvalidInputError, match="of kind integer"):
        sliced.update([0, 1], [0.5, 0.25], key=keys)


def test_small_weights_beside_large_ones_are_noted_in_every_slice():
    weights, labels = np.array([[1.0, 2.0**-36], [2.0**-10, 2.0**-12]]), np.eye(2, dtype=np.uint8)
    rows = {"y_true": labels, "y_score": labels * 0.5 + 0.25, "sample_weight": weights, "key": np.array(["a", "b"])}
    sliced = sm.Sliced(sm.LogLoss(num_labels=2), by="key").update(rows)
    for i, key in enumerate("ab"):
        alone = sm.LogLoss(num_labels=2).update({n: c[i : i + 1] for n, c in rows.items() if n != "key"})
        expect_same_bytes(alone, sliced[key], f"slice {key!r} of weights of labels")
