"""Calls that are slightly wrong say which argument is, and odd ones that are right work."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of

Y = [0, 1, 1, 0]
DAY = dt.date(2024, 5, 1)
TIME = dt.datetime(2024, 5, 1, 9, tzinfo=dt.UTC)


def both(table: Any, column: str) -> list[Any]:
    """A column of keys as Arrow has it, which polars has too."""
    arrow = table.to_arrow()[column]
    assert table.to_polars()[column].to_list() == arrow.to_pylist()
    assert (arrow.type == pa.string()) == (table.to_polars()[column].dtype == pl.String)
    return list(arrow.to_pylist())


# -- tables as data frames --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "texts"),
    [
        pytest.param([1, 2], ["1", "2"], id="integers"),
        pytest.param(np.array([1, (1 << 64) - 1], "u8"), ["1", "18446744073709551615"], id="beyond int64"),
        pytest.param([DAY, DAY + dt.timedelta(1)], ["2024-05-01", "2024-05-02"], id="dates"),
        pytest.param([False, True], ["False", "True"], id="booleans"),
        pytest.param(pa.array([TIME]), ["2024-05-01T09:00:00+00:00"], id="timestamps"),
        pytest.param(pa.array([Decimal("1.5"), Decimal("-2")]), ["-2", "1.5"], id="decimals"),
        pytest.param(pa.array([None, 2]), [None, "2"], id="null"),
        pytest.param([b"a", b"b"], ["a", "b"], id="bytes"),
        pytest.param(["a", "b"], ["a", "b"], id="texts"),
    ],
)
def test_keys_beside_other_are_texts(keys: Any, texts: list[Any]) -> None:
    kept = set()
    for row in range(len(keys)):  # each of them is kept once, beside the word
        sliced = sm.Sliced(sm.CTR(), by="k", limit=1).update([1], k=keys[row : row + 1])
        more = keys if len(keys) > 1 else pa.array([TIME, TIME + dt.timedelta(1)])
        table = sliced.update([1] * len(more), k=more).table(confidence=None)
        *found, other = both(table, "k")
        assert other == "(other)"
        head, rows = table.texts()
        assert [str(f).replace("None", "null") for f in found] == [r[head.index("k")] for r in rows[:-1]]
        kept.update(found)
    assert kept <= {*texts, "2024-05-02T09:00:00+00:00"}


def test_keys_alone_stay_what_they_are() -> None:
    table = sm.Sliced(sm.CTR(), by="k").update(Y, k=[1, 2, 3, 4]).table(confidence=None)
    assert both(table, "k") == [1, 2, 3, 4]
    assert table.to_arrow()["k"].type == pa.int64()


@pytest.mark.parametrize("limits", [(1, 4), (4, 1), (1, 1)])
def test_a_limit_on_one_of_two_axes(limits: tuple[int, int]) -> None:
    inner = sm.Sliced(sm.CTR(), by="b", limit=limits[1])
    table = sm.Sliced(inner, by="a", limit=limits[0]).update(Y, a=[1, 1, 2, 2], b=[DAY, None, DAY, None]).table()
    for name, limit in zip("ab", limits, strict=True):
        assert ("(other)" in both(table, name)) == (limit == 1)


def test_a_limit_on_pairs() -> None:
    table = sm.Sliced(sm.CTR(), by=["a", "b"], limit=1).update(Y, a=[1, 1, 2, 2], b=[True, False, True, False]).table()
    assert both(table, "a")[1] == both(table, "b")[1] == "(other)"


def test_windows_beside_those_that_expired() -> None:
    steps = sm.Windowed(sm.CTR(), width=1, time="t", keep=1).update([0, 1], t=[1, 5])
    assert both(steps.table(confidence=None), "t") == ["5", "(expired)"]
    hours = sm.Windowed(sm.CTR(), width="1h", time="t", keep=1).update([0, 1], t=[TIME, TIME + dt.timedelta(hours=2)])
    table = hours.table(confidence=None)
    assert both(table, "t") == ["2024-05-01T11:00:00+00:00", "(expired)"]
    assert table.to_pandas()["t"].tolist() == table.to_dict()["t"] == [TIME + dt.timedelta(hours=2), "(expired)"]


# -- merging ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [3, None, sm.Task(sm.CTR()), {}, [1], np.zeros(2), sm.CTR], ids=repr)
def test_what_is_no_part(part: Any) -> None:
    for parts in ([part], [sm.CTR(), part]):
        with pytest.raises(TypeError, match=f"bytes or paths, found an object of class {type(part).__name__}"):
            sm.merge(parts)


def test_one_thing_is_no_list_of_parts() -> None:
    with pytest.raises(TypeError, match="expects an iterable of parts"):
        sm.merge(sm.Sliced(sm.CTR(), by="k").update(Y, k=list("abcd")))


@pytest.mark.parametrize("metrics", ["same", "common"])
def test_a_metric_and_a_collection_do_not_merge(metrics: str) -> None:
    one, several = sm.CTR(), sm.MetricCollection(sm.CTR())
    for a, b in ((one, several), (several, one), (several, sm.CTR().state), (several, sm.Bundle({"a": one}))):
        with pytest.raises(sm.IncompatibleStateError, match=r"cannot merge [A-Z]"):
            sm.merge([a, b], metrics=metrics)


AROUND = {
    "slices": lambda metrics: sm.Sliced(metrics, by="k"),
    "windows": lambda metrics: sm.Windowed(metrics, width=2, time="k"),
    "slices of windows": lambda metrics: sm.Sliced(sm.Windowed(metrics, width=2, time="k"), by="u"),
    "shards": lambda metrics: sm.Sharded(metrics, unit="u", shards=8),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_what_slices_and_windows_share(around: Any) -> None:
    rows = {"y_true": Y, "y_score": [0.1, 0.7, 0.6, 0.3], "k": [1, 2, 3, 4], "u": [5, 6, 5, 6]}

    def made(*metrics: Any) -> Any:
        new = around(list(metrics))
        return new.update({n: c for n, c in rows.items() if n in columns_of(new)})

    here, there = made(sm.AUC(), sm.CTR(), sm.LogLoss()), made(sm.LogLoss(), sm.CTR())
    before = here.digest(), there.digest()
    wanted = made(sm.CTR(), sm.LogLoss()).merge(made(sm.CTR(), sm.LogLoss()))
    for parts in ([here, there], [here.to_bytes(), there.to_bytes()]):
        assert sm.merge(parts, metrics="common").digest() == wanted.digest()
    assert sm.merge([there, here], metrics="common").names == ["ctr", "log_loss"]
    assert (here.digest(), there.digest()) == before


def test_slices_that_share_nothing_or_hold_one_metric() -> None:
    one, several = sm.Sliced(sm.CTR(), by="k"), sm.Sliced([sm.CTR(), sm.AUC()], by="k")
    with pytest.raises(sm.IncompatibleStateError, match="the inner object is MetricCollection here and CTR there"):
        sm.merge([several, one], metrics="common")
    with pytest.raises(sm.InvalidInputError, match="no metric in common"):
        sm.merge([several, sm.Sliced([sm.LogLoss()], by="k")], metrics="common")


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["\ud800", 1 << 64, -(1 << 63) - 1, pd.NaT], ids=ascii)
def test_what_is_no_partition(given: Any) -> None:
    ledger = sm.Ledger(sm.CTR())
    with pytest.raises(ValueError, match="a partition ID must be a Unicode string, a 64-bit integer"):
        ledger.add(given, sm.CTR())
    assert not len(ledger)


def test_the_largest_number_of_a_partition() -> None:
    ledger = sm.Ledger(sm.CTR()).add((1 << 64) - 1, sm.CTR())
    assert sm.from_bytes(ledger.to_bytes()) == ledger


@pytest.mark.parametrize("unit", ["h", "m", "s", "ms", "us", "ns"])
def test_widths_of_numpy(unit: str) -> None:
    width = np.timedelta64(1, "h").astype(f"m8[{unit}]")
    assert sm.Windowed(sm.CTR(), width=width, time="t").width == "1h"
    aged = sm.Windowed(sm.CTR(), width="1d", time="t", mature_after=width).update([1], t=[TIME]).table(now=TIME)
    assert aged.records[0]["reason"] == "provisional: younger than 1h"


with warnings.catch_warnings():
    # numpy 2.5 deprecates times and durations without a unit
    warnings.simplefilter("ignore", DeprecationWarning)
    NO_UNIT = [np.timedelta64("NaT"), np.timedelta64(5)]
    NO_TIME = np.datetime64("NaT")


@pytest.mark.parametrize(
    "width",
    [
        *NO_UNIT, np.timedelta64("NaT", "s"), np.timedelta64(1, "M"), np.timedelta64(999, "ns"), np.timedelta64(-1, "h"),
        np.timedelta64(10**18, "W"), pd.NaT,
    ],
    ids=repr,
)  # fmt: skip
def test_durations_without_a_length(width: Any) -> None:
    with pytest.raises(ValueError, match="width= takes a duration"):
        sm.Windowed(sm.CTR(), width=width, time="t")


NO_TIMES = [pd.NaT, NO_TIME, "2024-02-30", "0000-01-01", "\ud800", float("nan"), dt.timedelta(1)]


@pytest.mark.parametrize("given", NO_TIMES, ids=ascii)
def test_what_is_no_time(given: Any) -> None:
    windows = sm.Windowed(sm.CTR(), width="1h", time="t").update([1], t=[TIME])
    with pytest.raises(ValueError, match="until= must be a time of the same type as the column t, not"):
        windows.last(1, until=given)
    with pytest.raises(ValueError, match="now= must be a time of the same type as the column t, not"):
        windows.table(now=given)
    assert given not in windows


def test_a_text_is_no_step() -> None:
    with pytest.raises(ValueError, match="until= must be a time of the same type as the column t, not"):
        sm.Windowed(sm.CTR(), width=1, time="t").last(1, until="\ud800")


@pytest.mark.parametrize("things", [[sm.CTR()], None, sm.MetricCollection(sm.CTR()), "ctr"], ids=repr)
def test_a_bundle_takes_names(things: Any) -> None:
    with pytest.raises(
        TypeError,
        match=f"Bundle: expected a mapping from names to objects, .* found an object of class {type(things).__name__}",
    ):
        sm.Bundle(things)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda s: s.top(1.5), "top[(][)] takes a whole number, not 1.5"),
        (lambda s: s.top("3"), "top[(][)] takes a whole number, not '3'"),
        (lambda s: s.top(-1), "top[(][)] takes a whole number of at least 0, not -1"),
        (lambda s: s.split(0), "split[(][)] takes a whole number of at least 1, not 0"),
        (lambda s: s.split("2"), "split[(][)] takes a whole number, not '2'"),
        (lambda s: s.rollup(3), "rollup[(][)] takes a column name, or several, not 3"),
        (lambda s: s.rollup(None), "rollup[(][)] takes a column name, or several, not None"),
        (lambda s: s.select(3), "select[(][)] takes keys, or a function of a key, not 3"),
        (lambda s: sm.coarsen(s, "x"), "coarsen[(][)] takes a whole number, not 'x'"),
        (lambda s: sm.coarsen(s, 10.5), "coarsen[(][)] takes a whole number, not 10.5"),
        (lambda s: sm.seal(s, 3), "partition= must be [(]i, n[)] with 0 <= i < n, not 3"),
        (lambda s: sm.seal(s, (1,)), "partition= must be [(]i, n[)]"),
        (lambda s: sm.seal(s, (0.5, 2)), "partition= must be [(]i, n[)]"),
        (lambda s: s["a"].interval("x"), "confidence must be between 0 and 1, .* not 'x'"),
        (lambda s: s.interval(float("nan")), "confidence must be between 0 and 1, .* not nan"),
        (lambda s: sm.compare(s, s, confidence="x"), "confidence must be between 0 and 1, .* not 'x'"),
        (lambda s: sm.Sliced(sm.CTR(), by=3), "by= takes a column name, or several, not 3"),
        (lambda s: sm.Sliced(sm.CTR(), by="k", on_invalid="no"), 'on_invalid must be "raise" or "drop"'),
        (lambda s: sm.Recent(sm.CTR(), steps=1, on_invalid="no"), 'on_invalid must be "raise" or "drop"'),
        (lambda s: sm.Task(sm.CTR(), labels=5), "labels must be a tuple [(]negative, positive[)], not 5"),
        (lambda s: sm.Task(sm.CTR(), labels="ab"), "labels must be a tuple [(]negative, positive[)], not 'ab'"),
        (lambda s: sm.Task(sm.CTR(), labels=("a",)), "labels must be a tuple [(]negative, positive[)]"),
        (lambda s: sm.MetricCollection(sm.CTR()).only(3), "names= takes names of metrics, not 3"),
        (lambda s: sm.merge(3), "merge[(][)] expects an iterable of parts"),
        (lambda s: sm.merge(None), "merge[(][)] expects an iterable of parts"),
        (lambda s: sm.merge(s, s), "merge[(][)] expects one iterable of parts, as in sm.merge[(].a, b.[)], found 2 arg"),
        (lambda s: sm.save("auc.smet", s), "save[(][)] expects the object first and then the path, .* of class str first"),
        (lambda s: sm.Task(sm.AUC(), nosuch="x"), "Task: no metric reads 'nosuch'; the metrics read y_true, y_score"),
        (
            lambda s: sm.AUC().update(pd.DataFrame({"click": Y}), Y),
            r"not both; pass df\['click'\] rather than df\[\['click'\]\]",
        ),
        (lambda s: sm.AUC().update(pd.DataFrame({"a": Y, "b": Y}), Y), "either a table or columns, not both$"),
        (lambda s: sm.group_partition([1], 0), "group_partition[(][)] takes a whole number of at least 1, not 0"),
        (lambda s: sm.GroupAUC(partition=(1, 2, 3)), "expected partition=[(]i, n[)]"),
        (lambda s: sm.NDCG(k=0), "k must be at least 1 and at most 16,777,216, not 0"),
    ],
)  # fmt: skip
def test_arguments_of_another_kind(made: Any, expected: str) -> None:
    slices = sm.Sliced(sm.AUC(bits=12), by="k").update([0, 1, 1], [0.1, 0.9, 0.5], k=["a", "a", "b"])
    before = slices.to_bytes()
    with pytest.raises((TypeError, ValueError), match=expected):
        made(slices)
    assert slices.to_bytes() == before


def test_a_task_does_not_count() -> None:
    with pytest.raises(AttributeError, match=r"has no update\(\); use sm\.MetricCollection\(task\)\.update"):
        sm.Task(sm.AUC()).update([0], [0.5])


def test_whole_numbers_of_numpy_are_some() -> None:
    slices = sm.Sliced(sm.CTR(), by="k").update([0, 1, 1], k=["a", "a", "b"])
    assert list(slices.top(np.int32(1))) == ["a"]
    assert sm.merge(slices.split(np.uint8(2))) == slices
    assert sm.coarsen(sm.AUC(), np.int64(12)).state.bits == 12
    assert list(slices.select("a")) == ["a"]


# -- bad rows ---------------------------------------------------------------------------------------------------------

DROP: dict[str, Any] = {"on_invalid": "drop"}
HELD = {
    "alone": lambda how: sm.CTR(**how),
    "collection": lambda how: sm.MetricCollection(sm.CTR(**how)),
    "list": lambda how: sm.MetricCollection([sm.CTR(**how), sm.CTR(**how)][:1]),
    "task": lambda how: sm.MetricCollection(sm.Task(sm.CTR(**how))),
    "nested": lambda how: sm.MetricCollection({"a": sm.MetricCollection(sm.CTR(**how))}),
    "sliced": lambda how: sm.Sliced(sm.CTR(**how), by="k"),
    "sliced list": lambda how: sm.Sliced([sm.CTR(**how)], by="k"),
    "windowed": lambda how: sm.Windowed([sm.CTR(**how)], width=1, time="t"),
    "recent": lambda how: sm.Recent([sm.CTR(**how)], steps=3),
    "decayed": lambda how: sm.Decayed([sm.CTR(**how)], half_life=3),
    "sharded": lambda how: sm.Sharded([sm.CTR(**how)], unit="u"),
    "bundle": lambda how: sm.Bundle({"a": sm.CTR(**how)})["a"],
}


@pytest.mark.parametrize("name", HELD)
def test_what_holds_a_metric_takes_bad_rows_as_it_does(name: str) -> None:
    rows: dict[str, Any] = {"y_true": [0, 1, 7], "k": ["a"] * 3, "t": [0] * 3, "u": [1, 2, 3], "step": [0] * 3}
    drops, raises = HELD[name](DROP), HELD[name]({})
    drops.update({n: c for n, c in rows.items() if n in columns_of(drops)})
    assert "0.5" in str(drops.compute())
    with pytest.raises(sm.InvalidInputError, match="found 7 in row 2"):
        raises.update({n: c for n, c in rows.items() if n in columns_of(drops)})


def test_metrics_that_do_not_agree_on_bad_rows() -> None:
    some = [sm.CTR(**DROP), sm.AUC()]
    assert sm.MetricCollection(some).on_invalid == sm.Sliced(some, by="k").on_invalid == "raise"
    assert sm.MetricCollection(some, **DROP).on_invalid == sm.Sliced(some, by="k", **DROP).on_invalid == "drop"
    assert sm.MetricCollection(some, on_invalid="raise").on_invalid == "raise"
    assert sm.Windowed(some, width=1, on_invalid="raise").on_invalid == "raise"
