"""Matrices and ids: whatever users pass, read alike; what cannot be read says where."""

from __future__ import annotations

from typing import Any

import mmh3
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streammetrics as sm
from streammetrics.batch.columns import Batch
from streammetrics.batch.ids import Ids
from streammetrics.batch.kinds import score
from streammetrics.collect.metric_like import states_of
from streammetrics.count.drafts import load_engine
from streammetrics.reading.records import dropped_of

ROWS = np.array([[0.5, 0.25, 1.0], [0.0, 0.125, 0.75], [1.0, 1.0, 0.5], [0.25, 0.25, 0.25]])
KIND = sm.extend.matrix(score(), 3).kind

MATRICES = {
    "array": ROWS,
    "columns first": np.asfortranarray(ROWS),
    "half": ROWS.astype(np.float16),
    "swapped": ROWS.astype(">f8"),
    "lists": ROWS.tolist(),
    "array of rows": pd.Series(list(ROWS)).to_numpy(),
    "series of rows": pd.Series(ROWS.tolist()),
    "pandas frame": pd.DataFrame(ROWS),
    "polars frame": pl.DataFrame(ROWS),
    "polars lists": pl.Series(ROWS.tolist()),
    "polars arrays": pl.Series(ROWS),
    "Arrow lists": pa.array(ROWS.tolist()),
    "Arrow large lists": pa.array(ROWS.tolist(), pa.large_list(pa.float64())),
    "Arrow fixed lists": pa.FixedSizeListArray.from_arrays(pa.array(ROWS.reshape(-1)), 3),
    "Arrow slice": pa.array([[9.0] * 3, *ROWS.tolist()])[1:],
    "Arrow fixed slice": pa.FixedSizeListArray.from_arrays(pa.array(np.r_[9.0, 9.0, 9.0, ROWS.reshape(-1)]), 3)[1:],
    "Arrow chunks": pa.chunked_array([ROWS[:1].tolist(), ROWS[1:].tolist()]),
}


@pytest.mark.parametrize("form", MATRICES)
def test_matrices(form: str) -> None:
    batch = Batch({"s": MATRICES[form], "n": np.arange(4)})
    batch.check("s", KIND)
    assert np.array_equal(batch.column("s", KIND).values, ROWS)
    assert batch.column("s", KIND).values.flags.c_contiguous
    some = batch.select(np.array([False, True, False, True]))
    assert np.array_equal(some.column("s", KIND).values, ROWS[[1, 3]])


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (pa.array([1, None, 0]), "a null in row 1"),
        (pa.chunked_array([[1], [None, 0]]), "a null in row 1"),
        (pd.Series([1, None, 0], [5, 1, 0], dtype="Int64"), "a null in row 1"),
        (pl.Series([1, None, 0]), "a null in row 1"),
        ([1, None, 0], "a null in row 1"),
        (pa.array([1, float("nan"), 0]), "nan in row 1"),
        (pd.Series([1, float("nan"), 0]), "nan in row 1"),
        (np.array([1, np.nan, 0]), "nan in row 1"),
    ],
)
def test_nulls_are_told_apart_from_nan(raw: Any, found: str) -> None:
    with pytest.raises(sm.InvalidInputError, match=f"^value: expected a number.*, found {found};"):
        sm.Sum().update(raw)
    with pytest.raises(sm.InvalidInputError, match=f"^value: .* found {found};"):
        sm.MetricCollection(sm.Task(sm.Sum(), where="on")).update({"value": raw, "on": [False, True, True]})


def test_a_series_is_no_table_whatever_its_rows_are_called() -> None:
    labels, scores = pd.Series([1, 0], ["columns", "schema"]), pd.Series([0.75, 0.25], ["columns", "schema"])
    assert sm.AUC().update(labels, scores).compute() == 1
    assert sm.MetricCollection(sm.AUC()).update(labels, scores).compute()["auc"] == 1


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([[0.1, 0.2, 0.3], [0.1, 7, 0.3]], r"s: .*found 7\.0 in row 1, column 1"),
        (pa.array([[0.1, 0.2, 0.3], None]), "found nan in row 1, column 0"),
        (pa.array([[0.1, 0.2, None]]), "found nan in row 0, column 2"),
        ([[0.1, 0.2]], "found rows of 2 values"),
        ([0.1, 0.2], r"expected two dimensions \(rows x columns\), found an array of shape \(2,\)"),
        (pa.array([[0.1, 0.2, 0.3], [0.1]]), "expected rows of equal length"),
        (np.zeros((2, 3, 1)), r"found an array of shape \(2, 3, 1\)"),
    ],
)
def test_bad_matrices(raw: Any, words: str) -> None:
    with pytest.raises(sm.InvalidInputError, match=words) as caught:
        Batch({"s": raw}).check("s", KIND)
    assert caught.value.column == "s"


def test_an_empty_matrix_is_one() -> None:
    for raw in ([], np.zeros((0, 3)), pa.array([], pa.list_(pa.float64())), pl.Series([], dtype=pl.List(pl.Float64))):
        assert Batch({"s": raw}).column("s", KIND).values.shape == (0, 3)


@pytest.fixture(autouse=True)
def engine() -> None:
    """Texts are hashed by a kernel."""
    load_engine()


def ids(raw: Any, kind: Ids | None = None) -> Any:
    return Batch({"u": raw}).column("u", kind or Ids())


def test_texts_are_known_by_their_murmur_hash() -> None:
    texts = ["", "a", "é", "0123456789abcdef", *("x" * n for n in range(1, 40)), "user-1234567890-longer-than-32-bytes"]
    expected = [mmh3.hash64(t.encode(), 0) for t in texts]
    for raw in (texts, np.array(texts), pd.Series(texts), pl.Series(texts), pa.array(texts).dictionary_encode()):
        assert ids(raw).values.tolist() == [list(e) for e in expected]
        assert ids(raw).source == "string"
    assert ids([t.encode() for t in texts]).values.tolist() == [list(e) for e in expected]
    assert ids([b"a"]).source == "bytes"


def test_integers_of_any_width_are_themselves() -> None:
    for dtype in ("i1", "u1", "i8", ">i4", "u8"):
        assert ids(np.array([1, 0, 7], dtype)).values.tolist() == [1, 0, 7]
    large = np.array([2**63, 2**63 + 5, 2**64 - 1], np.uint64)
    assert ids(large).values.tolist() == ids(large.tolist()).values.tolist()
    assert len({*ids(large).values.tolist(), *ids([-(2**63), -(2**63) + 5, -1]).values.tolist()}) == 6
    assert ids([2**63 + 5, -1]).values.tolist() == [int(ids(large).values[1]), -1]


def test_keys_of_several_columns() -> None:
    table = {"u": [1, 2, 1, 1], "d": pa.array(["x", "x", "y", "x"])}
    made = Batch(table).column(("u", "d"), Ids())
    assert made.source == "integer,string"
    assert made.values.shape == (4, 2)
    assert len(np.unique(made.values, axis=0)) == 3
    assert np.array_equal(ids((table["u"], table["d"])).values, made.values)
    words = np.array([1, 0, *mmh3.hash64(b"x", 0)], "<i8").tobytes()
    assert tuple(made.values[0]) == mmh3.hash64(words, 0)
    with pytest.raises(sm.InvalidInputError, match="u has 2 rows"):
        ids(([1], [1, 2]))


def test_missing_keys_raise_or_are_skipped() -> None:
    for raw in (["a", None, "b", "?"], pa.array(["a", None, "b", "?"]), pd.Series(["a", None, "b", "?"])):
        with pytest.raises(sm.InvalidInputError, match=r"u: expected a key.* found a (null|missing value) in row 1"):
            Batch({"u": raw}).check("u", Ids())
        skipping = Ids("skip", ("?", 0))
        assert skipping.find_skipped(ids(raw, skipping)).tolist() == [False, True, False, True]
    assert Ids("skip", (0, -1)).find_skipped(ids([5, 0, -1], Ids("skip", (0, -1)))).tolist() == [False, True, True]
    assert Ids("skip").find_skipped(ids([5, 0])) is None
    some = Batch({"u": ["a", None, "b"]}).select(np.array([False, True, True]))
    with pytest.raises(sm.InvalidInputError, match="row 1"):
        some.check("u", Ids())
    with pytest.raises(sm.InvalidInputError, match="convert floats to integers or strings"):
        ids([0.5, 1.5])


GONE = [
    pa.array([None, None], pa.string()),
    pd.Series([pd.NA, pd.NA], dtype="string"),
    [None, None],
    pl.Series([None, None], dtype=pl.String),
]


@pytest.mark.parametrize("gone", GONE, ids=lambda c: type(c).__module__)
@pytest.mark.parametrize("metric", [
    sm.Accuracy(labels="discover"), sm.Precision(labels=("a", "b"), threshold=None), sm.Task(sm.CTR(), labels=("a", "b")),
    sm.Task(sm.CTR(), pos_label="b"),
], ids=repr)  # fmt: skip
def test_labels_of_which_all_are_missing(metric, gone):
    def fed(given, **how):
        return sm.MetricCollection({"m": metric}, **how).update({"y_true": given, "y_pred": ["a"] * len(given)})

    with pytest.raises(sm.InvalidInputError, match=r"y_true: expected .* in row 0"):
        fed(gone)
    state = states_of(fed(gone, on_invalid="drop"))[0]
    assert sum(dropped_of(state).values()) == 2
    some = states_of(fed(pd.Series(["b", pd.NA], dtype="string"), on_invalid="drop"))[0]
    assert sum(dropped_of(some).values()) == 1


@pytest.mark.parametrize("raw", [pl.LazyFrame({"y_true": [1]}), pa.scalar(1)], ids=lambda c: type(c).__name__)
def test_what_is_no_column(raw):
    for thing in (sm.CTR(), sm.MetricCollection(sm.CTR(), sm.AUC())):
        with pytest.raises(sm.InvalidInputError, match=r"y_true: expected a column, found "):
            thing.update(y_true=raw, **({} if isinstance(thing, sm.CTR) else {"y_score": [0.5]}))
