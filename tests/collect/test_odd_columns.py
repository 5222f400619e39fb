"""Columns of odd types: what they hold counts as it does in a plain one, or is refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streammetrics as sm

BIG = [2**64 - 1, 2**63, 5]
UTC = dt.UTC


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=seconds)


def keys_of(column: Any) -> list[Any]:
    made: list[Any] = sm.Sliced(sm.CTR(), by="k").update(y_true=np.arange(len(column)) % 2, k=column).keys
    return made


def windows_of(column: Any) -> list[Any]:
    made: list[Any] = sm.Windowed(sm.CTR(), width="25s", time="t").update(y_true=np.ones(len(column)), t=column).keys
    return made


# -- byte order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["<u8", ">u8"])
def test_large_integers_are_keys_in_any_byte_order(order: str) -> None:
    k, y = np.array(BIG, order), [0, 1, 1]
    assert keys_of(k) == sorted(BIG)
    assert keys_of(pd.Series(k)) == sorted(BIG)
    two = sm.Sliced(sm.CTR(), by=("k", "j")).update(y_true=y, k=k, j=k)
    assert two.keys == [(n, n) for n in sorted(BIG)]
    named = sm.Sliced(sm.CTR(), by="k", limit=1, values=[2**64 - 1]).update(y_true=y, k=k)
    assert named[2**64 - 1].explain()["rows"] == 1
    native = k.astype(np.uint64)
    assert sm.HeavyHitters(3).update(k).compute() == sm.HeavyHitters(3).update(native).compute()
    groups = sm.GroupAUC().update(y_true=[0, 1] * 3, y_score=np.arange(6) / 6, group=np.repeat(k, 2))
    assert groups == sm.GroupAUC().update(y_true=[0, 1] * 3, y_score=np.arange(6) / 6, group=np.repeat(native, 2))


@pytest.mark.parametrize("order", ["<u8", ">u8", ">i2"])
def test_steps_are_times_in_any_byte_order(order: str) -> None:
    steps = np.array([0, 1, 300], order)
    assert sm.Windowed(sm.CTR(), width=10, time="t").update(y_true=[0, 1, 1], t=steps).keys == [0, 300]


# -- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [
        ("25s", 25),
        ("25ms", 0.025),
        ("10us", 1e-5),
        ("2h", 7200),
        ("3m", 180),
        ("25000ns", 25e-6),
        ("1500000ps", 1.5e-6),
    ],
)
def test_a_unit_may_have_a_multiple(unit: str, seconds: float) -> None:
    n = np.array([0, 2, 4]) if unit == "1500000ps" else np.array([0, 1, 2])
    assert keys_of(n.astype(f"M8[{unit}]")) == [at(i * seconds) for i in n.tolist()]
    assert keys_of([np.datetime64(i, unit) for i in n.tolist()]) == [at(i * seconds) for i in n.tolist()]
    assert keys_of((-n).astype(f"M8[{unit}]")) == [at(-i * seconds) for i in n.tolist()[::-1]]


@pytest.mark.parametrize(
    ("unit", "last"), [("2Y", "1974-01-01"), ("5M", "1970-11-01"), ("3W", "1970-02-12"), ("3D", "1970-01-07")]
)
def test_a_unit_of_dates_may_have_a_multiple(unit: str, last: str) -> None:
    assert keys_of(np.array([0, 1, 2], f"M8[{unit}]"))[-1] == dt.date.fromisoformat(last)


def test_times_of_windows_have_units_with_a_multiple() -> None:
    assert windows_of(np.array([0, 1, 2], "M8[25s]")) == [at(0), at(25), at(50)]
    assert windows_of(np.array([0, 999, 1000, 2999], "M8[25ms]")) == [at(0), at(25), at(50)]


def test_whole_microseconds_of_a_finer_unit_are_keys() -> None:
    assert keys_of(np.array([0, 1000, 2000], "M8[25ns]")) == [at(0), at(25e-6), at(50e-6)]


@pytest.mark.parametrize(
    "column",
    [
        np.array([0, 1], "M8[ps]"),
        np.array([0, 1], "M8[fs]"),
        np.array([0, 1], "M8[as]"),
        np.array([0, 1], "M8[25ns]"),
        [pd.Timestamp(0), pd.Timestamp(1)],
        np.array([pd.Timestamp(0), pd.Timestamp(1), pd.NaT], object),
        pd.Series([pd.Timestamp(0), pd.Timestamp(1)], dtype=object),
        pa.array([0, 1], pa.timestamp("ns")),
    ],
)
def test_a_key_finer_than_a_microsecond_is_refused_and_a_time_rounded_down(column: Any) -> None:
    with pytest.raises(
        sm.InvalidInputError, match=r"^k: .* whole microseconds, found 1970.* in row 1; round the timestamps"
    ):
        keys_of(column)
    if len(column) == 2:
        assert windows_of(column) == [at(0)]


@pytest.mark.parametrize("unit", ["Y", "5M", "W", "D", "h", "25s", "us", "100ns"])
def test_years_that_are_none_are_refused_in_every_unit(unit: str) -> None:
    for far in (2**62, -(2**62)):
        with pytest.raises(sm.InvalidInputError, match=r"^k: .* years 1 to 9999, found .* in row 1 \(2 of 3 rows in"):
            keys_of(np.array([0, far, far], f"M8[{unit}]"))


def test_the_first_and_last_times_are_keys_and_their_neighbours_are_not() -> None:
    for low, high in (("0001-01-01", "9999-12-31"), ("0001-01-01T00", "9999-12-31T23"), ("0001-01", "9999-12")):
        ends = np.array([low, high], f"M8[{np.datetime_data(np.datetime64(low))[0]}]")
        assert [k.year for k in keys_of(ends)] == [1, 9999]
        step = np.timedelta64(1, np.datetime_data(ends.dtype)[0])
        for beyond in (ends[:1] - step, ends[1:] + step):
            with pytest.raises(sm.InvalidInputError, match="years 1 to 9999"):
                keys_of(beyond)


def test_a_date_of_milliseconds_is_a_whole_day() -> None:
    days = pa.array([0, -86_400_000, None], pa.date64())
    assert keys_of(days) == [None, dt.date(1969, 12, 31), dt.date(1970, 1, 1)]
    for read, name in ((keys_of, "k"), (windows_of, "t")):
        with pytest.raises(
            sm.InvalidInputError, match=rf"^{name}: expected dates without a time of day, found 1970-.* in row 1"
        ) as caught:
            read(pa.array([0, 1, 2], pa.date64()))
        assert caught.value.column == name


# -- nothing but nulls -----------------------------------------------------------------------------------------------


def dictionary_of_nulls() -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 0, None, 0], pa.int8()), pa.nulls(1))


NULLS = {
    "list": [None] * 4,
    "integers": pa.array([None] * 4, pa.int64()),
    "floats": pa.array([None] * 4, pa.float64()),
    "nulls": pa.nulls(4),
    "empty dictionary": pa.nulls(4).dictionary_encode(),
    "dictionary": dictionary_of_nulls(),  # pyarrow crashes where it is asked for its nulls
    "chunks": pa.chunked_array([dictionary_of_nulls()[:1], dictionary_of_nulls()[1:]]),
    "pandas of a dictionary": pd.Series(pd.arrays.ArrowExtensionArray(dictionary_of_nulls())),
    "runs": pa.RunEndEncodedArray.from_arrays([4], pa.nulls(1)),
    "objects": np.array([None] * 4, object),
    "NaT": np.array(["NaT"] * 4, "M8[s]"),
    "pandas": pd.Series([None] * 4),
    "text": pd.Series([None] * 4, dtype="str"),
    "categories": pd.Series([None] * 4, dtype="category"),
    "no categories": pd.Categorical([None] * 4, categories=pd.Index([], dtype=object)),
    "polars": pl.Series([None] * 4),
    "polars categories": pl.Series([None] * 4, dtype=pl.Categorical),
}


@pytest.mark.parametrize("form", [form for form in NULLS if form != "runs"])
def test_labels_that_are_all_null_are_dropped_whatever_their_type(form: str) -> None:
    made = sm.CTR(on_invalid="drop").update(NULLS[form])
    assert made.explain()["dropped"] == {"y_true": 4}
    with pytest.raises(
        sm.InvalidInputError, match=r"^y_true: expected 0 or 1, found (nan|a null) in row 0 \(4 of 4 rows"
    ):
        sm.CTR().update(NULLS[form])


@pytest.mark.parametrize("form", NULLS)
def test_keys_that_are_all_null_are_null_whatever_their_type(form: str) -> None:
    given, y, scores = NULLS[form], [0, 1, 1, 0], [0.1, 0.9, 0.4, 0.2]
    assert keys_of(given) == [None]
    made = sm.GroupAUC(missing="skip").update(y_true=y, y_score=scores, group=given)
    assert made.explain()["dropped"] == {"group": 4}
    for labels in (("a", "b", "c"), 3):
        setting: dict[str, Any] = {"labels": labels} if isinstance(labels, tuple) else {"num_classes": labels}
        if form != "runs" or isinstance(labels, tuple):
            classes = sm.Accuracy(on_invalid="drop", **setting).update(given, np.full((4, 3), 1 / 3))
            assert classes.explain()["dropped"] == {"y_true": 4}


# -- nothing ---------------------------------------------------------------------------------------------------------

NOTHING = {
    "list": [],
    "floats": np.array([]),
    "objects": np.array([], object),
    "strings": np.array([], "U1"),
    "bytes": np.array([], "S1"),
    "dates": np.array([], "M8[s]"),
    "dates of no unit": np.array([], "M8"),
    "pandas": pd.Series([], dtype=object),
    "text": pd.Series([], dtype="str"),
    "categories": pd.Series([], dtype="category"),
    "nulls": pa.nulls(0),
    "dictionary": pa.nulls(0).dictionary_encode(),
    "Arrow floats": pa.array([], pa.float64()),
    "chunks": pa.chunked_array([], pa.null()),
    "chunks of a dictionary": pa.chunked_array([], pa.nulls(0).dictionary_encode().type),
    "polars": pl.Series([]),
}


@pytest.mark.parametrize("form", NOTHING)
def test_a_batch_of_no_rows_does_nothing_whatever_its_types(form: str) -> None:
    none = NOTHING[form]
    made: list[tuple[Any, tuple[str, ...]]] = [
        (sm.AUC(), ("y_true", "y_score", "sample_weight")),
        (sm.MAE(), ("y_true", "y_pred")),
        (sm.Accuracy(num_classes=3), ("y_true", "y_score")),
        (sm.Accuracy(labels=("a", "b", "c")), ("y_true", "y_score")),
        (sm.NDCG(3), ("query", "y_true", "y_score")),
        (sm.GroupAUC(), ("group", "y_true", "y_score")),
        (sm.HeavyHitters(3), ("value",)),
        (sm.Sliced(sm.CTR(), by="k"), ("y_true", "k")),
        (sm.Windowed(sm.CTR(), width="25s", time="t"), ("y_true", "t")),
        (sm.Windowed(sm.CTR(), width=25, time="t"), ("y_true", "t")),
    ]
    for metric, columns in made:
        before = metric.digest()
        assert metric.update(dict.fromkeys(columns, none)).digest() == before, metric
    collection = sm.MetricCollection(sm.AUC(), sm.CTR())
    before = collection.digest()
    assert collection.update(pd.DataFrame(columns=["y_true", "y_score"])).digest() == before


# -- one name twice --------------------------------------------------------------------------------------------------


def test_a_column_that_a_table_has_twice_is_refused_if_it_is_read() -> None:
    columns = [pa.array([0, 1]), pa.array([0.1, 0.2]), pa.array([0.3, 0.4])]
    made = sm.MetricCollection(sm.AUC())
    with pytest.raises(
        sm.InvalidInputError, match=r"^y_score: expected one column, found 2 columns with this name"
    ) as caught:
        made.update(pa.table(columns, names=["y_true", "y_score", "y_score"]))
    assert caught.value.column == "y_score"
    twice = pa.table([*columns, columns[0]], names=["y_true", "y_score", "more", "more"])
    assert made.update(twice).compute() == {"auc": 1.0}


# -- times that cannot be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "column", "found"),
    [
        ("1h", np.array([0, 2**60, 1, -(2**60)], "M8[s]"), "years 1 to 9999, found 36534630048-"),
        ("1h", np.array([0, 2**60, 1, -(2**60)], "M8[W]"), "years 1 to 9999, found "),
        ("1h", np.array([0, 2**62, 1, -(2**62)], "M8[100ns]"), "years 1 to 9999, found "),
        ("1h", np.array([0, 9000, 1, -9000], "M8[Y]"), "years 1 to 9999, found 10970"),
        ("1h", pa.array([0, -(2**50), 1, -(2**50)], pa.timestamp("s")), "years 1 to 9999, found -35676378-"),
        (1, np.array([0, 2**63, 1, 2**64 - 1], np.uint64), "below 2.*, found 9223372036854775808 "),
        (1, np.array([0, 2**63, 1, 2**64 - 1], ">u8"), "below 2.*, found 9223372036854775808 "),
        (1, [0, 2**70, 1, -(2**70)], "below 2.*, found 1180591620717411303424 "),
    ],
)
def test_a_row_of_an_impossible_time_is_bad_and_no_other(width: Any, column: Any, found: str) -> None:
    made = sm.Windowed(sm.CTR(on_invalid="drop"), width=width, time="t")
    made.update(y_true=[0, 1, 1, 0], t=column)
    whole = made.lifetime().explain()
    assert (whole["rows"], whole["dropped"]) == (2, {"time": 2})
    with pytest.raises(sm.InvalidInputError, match=rf"^t: .*{found}.*in row 1 \(2 of 4 rows") as caught:
        sm.Windowed(sm.CTR(), width=width, time="t").update(y_true=[0, 1, 1, 0], t=column)
    assert (caught.value.column, caught.value.row, caught.value.count) == ("t", 1, 2)


# -- decimals --------------------------------------------------------------------------------------------------------

PARTS = [Decimal("0.1"), None, Decimal("0.3")]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(PARTS, id="list"),
        pytest.param(np.array(PARTS), id="numpy"),
        pytest.param(pa.array(PARTS), id="arrow"),
        pytest.param(pa.array(PARTS).dictionary_encode(), id="dictionary"),
        pytest.param(pd.Series(PARTS), id="pandas"),
        pytest.param(pd.Series(PARTS, dtype=pd.ArrowDtype(pa.decimal128(5, 2))), id="pandas of arrow"),
        pytest.param(pl.Series(PARTS), id="polars"),
    ],
)
def test_decimals_are_the_nearest_floats(column: Any) -> None:
    found = sm.Sum(on_invalid="drop").update(column)
    assert found.compute() == 0.1 + 0.3
    with pytest.raises(sm.InvalidInputError, match="found a null in row 1"):
        sm.Sum().update(column)
