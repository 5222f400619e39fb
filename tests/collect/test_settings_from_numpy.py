"""Settings of numpy scalars, texts and arrays, or bytes: what means the same is the same, written and merged alike."""

from __future__ import annotations

from typing import Any

import draws
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.case import expect_same_bytes

Y = {"number": [1, 0, 1, 1], "word": ["yes", "no", "yes", "yes"], "bytes": [b"y", b"n", b"y", b"y"]}


def of_numpy(value: Any) -> Any:
    """The same value as numpy has it."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, tuple):
        return np.array(value) if len({type(v) for v in value}) == 1 else [of_numpy(v) for v in value]
    if isinstance(value, str):
        return np.str_(value)
    narrow = np.float32 if isinstance(value, float) and float(np.float32(value)) == value else None
    return (narrow or {int: np.int32, float: np.float64}[type(value)])(value)


def _differences(one: Any, other: Any) -> list[str]:
    """How two states or the definitions of two metrics differ, in words."""
    if isinstance(one, sm.extend.Metric):
        one, other = definition_of(one), definition_of(other)
    found: list[str] = one.differences(other)
    return found


@pytest.mark.parametrize("metric", draws.VARIANTS, ids=repr)
def test_settings_of_every_metric(metric: Any) -> None:
    for thing in (metric, metric.make_state()):
        again = type(thing)(**{name: of_numpy(value) for name, value in thing.settings.items()})
        assert repr(again) == repr(thing)
        assert not _differences(again, thing)
    expect_same_bytes(
        type(metric)(**{n: of_numpy(v) for n, v in metric.settings.items()}),
        empty_copy(metric),
        "numpy's settings to be ours",
    )


@pytest.mark.parametrize(
    ("column", "equal"),
    [
        ("number", [{"pos_label": 1}, {"pos_label": np.int64(1)}, {"pos_label": True}, {"pos_label": np.float32(1)}]),
        ("number", [{"labels": (0, 1)}, {"labels": np.array([0, 1])}, {"labels": [0.0, np.True_]}]),
        ("word", [{"pos_label": "yes"}, {"pos_label": np.str_("yes")}]),
        ("word", [{"labels": ("no", "yes")}, {"labels": np.array(["no", "yes"])}]),
        ("bytes", [{"pos_label": b"y"}, {"pos_label": np.bytes_(b"y")}]),
        ("bytes", [{"labels": (b"n", b"y")}, {"labels": np.array([b"n", b"y"])}]),
        ("number", [{"negative_rate": r, "corrects": "rows"} for r in (0.5, np.float32(0.5), np.float16(0.5))]),
        ("number", [{"negative_rate": r, "corrects": "both"} for r in (1, 1.0, np.int8(1))]),
    ],
)
def test_labels_and_rates(column: str, equal: list[dict[str, Any]]) -> None:
    def made(given: dict[str, Any]) -> sm.MetricCollection:
        return sm.MetricCollection(sm.Task([sm.CTR(), sm.AUC()], y_true="y", **given))

    table = {"y": Y[column], "y_score": [0.9, 0.5, 0.3, 0.2]}
    for given in equal:
        assert repr(sm.Task(sm.CTR(), **given)) == repr(sm.Task(sm.CTR(), **equal[0]))
        one = made(given).update(table)
        expect_same_bytes(one, made(equal[0]).update(table), f"{given} to be {equal[0]}")
        assert made(equal[0]).merge(one).merge(made(given)).digest() == one.digest()
        assert sm.from_bytes(one.to_bytes()).update(table).digest() == one.copy().merge(one.copy()).digest()
        assert one["ctr"].state.facts()["positives"] == 3


@pytest.mark.parametrize("column", [pd.Series, pl.Series, pa.array, np.array, list])
def test_settings_from_a_column_of_any_library(column: Any) -> None:
    assert repr(sm.Task(sm.CTR(), labels=column(["no", "yes"]))) == repr(sm.Task(sm.CTR(), labels=("no", "yes")))
    assert repr(sm.Quantile(q=column([0.25, 0.5])[0])) == repr(sm.Quantile(q=0.25))
    assert repr(sm.ConfusionMatrix(labels=range(3))) == repr(sm.ConfusionMatrix(labels=column([0, 1, 2])))
    with pytest.raises(TypeError, match="missing_values must be a list of int or str or bytes, not 0"):
        sm.GroupAUC(missing_values=0)


def test_missing_values_of_groups() -> None:
    y, s = [0, 1, 0, 1], [0.1, 0.7, 0.2, 0.6]
    for values, users in (((0,), [0, 0, 7, 7]), (("?",), ["?", "?", "b", "b"]), ((b"?",), [b"?", b"?", b"b", b"b"])):
        found = []
        for given in (
            values,
            list(values),
            np.array(values),
            tuple(map(of_numpy, values)) if values != (b"?",) else values,
        ):
            for metric in (sm.GroupAUC, sm.GroupLogLoss):
                made = metric(missing="skip", missing_values=given).update(y, s, group=users)
                assert made.explain()["dropped"] == {"group": 2}
                assert (
                    sm.from_bytes(made.to_bytes()) == made == metric(missing="skip", missing_values=values).merge(made)
                )
                found.append(repr(empty_copy(made)))
        assert len(set(found)) == 2


@pytest.mark.parametrize("bad", [None, float("nan"), 0.5, (1,)])
def test_what_is_no_setting(bad: Any) -> None:
    with pytest.raises(TypeError, match="missing_values must be int or str or bytes"):
        sm.GroupAUC(missing_values=(bad,))
    with pytest.raises(TypeError, match="a label must be a finite number, a string or bytes"):
        sm.Task(sm.CTR(), labels=(0, object()))


@pytest.mark.parametrize(
    ("column", "given", "found"),
    [
        ([0, 1], {"pos_label": "1"}, "numbers"),
        (["0", "1"], {"pos_label": 1}, "strings"),
        (np.array(["0", None], object), {"labels": (0, 1)}, "strings"),
        ([b"0", b"1"], {"labels": ("0", "1")}, "bytes"),
    ],
)
def test_labels_of_another_kind_are_not_all_negatives(column: Any, given: dict[str, Any], found: str) -> None:
    with pytest.raises(sm.InvalidInputError, match=f"y_true: expected .*found a column of {found}"):
        sm.MetricCollection(sm.Task(sm.CTR(), **given)).update(y_true=column)


def test_a_missing_label_is_no_negative() -> None:
    for column in (["yes", None, "no"], np.array(["yes", np.nan, "no"], object)):
        with pytest.raises(
            sm.InvalidInputError, match=r"y_true: expected a label, such as the positive label 'yes', found .* row 1"
        ):
            sm.MetricCollection(sm.Task(sm.CTR(), pos_label="yes")).update(y_true=column)


@pytest.mark.parametrize("kind", [int, np.int64, np.int8, np.uint32])
def test_settings_of_what_goes_around(kind: Any) -> None:
    for of in (
        lambda n: sm.Sliced(sm.CTR(), by="k", limit=n(4)),
        lambda n: sm.Windowed(sm.CTR(), width=n(4), time="t", keep=n(4)),
        lambda n: sm.Sharded(sm.CTR(), unit="u", shards=n(16), shard_bits=n(8)),
        lambda n: sm.Recent(sm.CTR(), rows=n(4)),
        lambda n: sm.Recent(sm.CTR(), steps=n(4)),
        lambda n: sm.Decayed(sm.CTR(), half_life=n(4), keep=n(4)),
    ):
        expect_same_bytes(of(kind), of(int), "numpy's settings to be ours")
        assert repr(of(kind)) == repr(of(int))


@pytest.mark.parametrize("tag", [t for t in draws.OWN if "missing_values" in draws.usual(t).settings])
def test_values_that_stand_for_none_have_no_order(tag: str) -> None:
    made = [
        type(draws.usual(tag))(**{**draws.usual(tag).settings, "missing": "skip", "missing_values": values})
        for values in ((0, 7, "?"), ["?", 7, 0, 7], (7, "?", 0))
    ]
    for one in made:
        expect_same_bytes(one, made[0], "the same values in another order to be the same")
        assert not _differences(one, made[0])


def test_values_that_stand_for_no_unit_have_no_order() -> None:
    one, other = (
        sm.Sharded(sm.CTR(), unit="u", missing="skip", missing_values=v) for v in ((0, 7), [np.int64(7), 0, 7])
    )
    expect_same_bytes(one, other, "the same values in another order to be the same")
