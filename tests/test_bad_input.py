"""The catalogue of bad input, for every metric: the error names column and row, and nothing has changed."""

from __future__ import annotations

import warnings
from dataclasses import fields
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
from draws import BINARY, FIRST_BINARY, OTHERS, usual

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.laws.case import numbers, update_by_name, value_of
from streammetrics.laws.specimens import bad_value, make_consistent, sample, spoil

SCORED = [t for t in BINARY if any(n.role == "y_score" for n in sm.extend.METRICS[t]().make_state().needs())]
BOUNDED = [t for t in SCORED if getattr(sm.extend.METRICS[t](), "scale", None) == "probability"]
FIRST_SCORED = [t for t in FIRST_BINARY if t in SCORED]
FIRST_BOUNDED = [t for t in FIRST_BINARY if t in BOUNDED]
"""What counts rows finds bad values, so one metric of each statistic meets all of them. The law
`failed_update_changes_nothing` tries one bad value of each column on every statistic, `dropped_rows` on every metric."""

GOOD = {"y_true": np.array([0, 1, 0, 1]), "y_score": np.array([0.1, 0.7, 0.2, 0.6])}
NAN, INF = float("nan"), float("inf")


class Wrapped:
    """Something that only knows `__array__`."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values

    def __len__(self) -> int:
        return len(self.values)


def targets(tag: str) -> dict[str, Any]:
    """A metric alone, in a collection with others, and sliced; each has seen some rows."""
    metric = sm.extend.METRICS[tag]
    keys = {"k": np.array(["a", "b", "a", "b"])}
    others = [m for m in (sm.AUC(), sm.LogLoss(), sm.Accuracy()) if m.about.tag != tag]
    return {
        "alone": metric().update(GOOD),
        "collection": sm.MetricCollection(metric(), *others).update(GOOD),
        "sliced": sm.Sliced(metric(), by="k").update(GOOD | keys),
    }


def refuse(tag: str, change: dict[str, Any], column: str, row: int | None, *words: str, n: int = 4) -> None:
    """Check that every form of a metric refuses a batch, says why, and stays as it was."""
    for form, thing in targets(tag).items():
        before = thing.digest()
        table = GOOD | change | ({"k": np.array(["a", "new", "b", "c"])[:n]} if form == "sliced" else {})
        for update in (thing.update, partial(update_by_name, thing)):
            with pytest.raises(sm.InvalidInputError) as caught:
                update(table)
            assert caught.value.column == column, form
            assert caught.value.row == row, form
            for word in (column, *words):
                assert word in str(caught.value), (form, str(caught.value))
            assert thing.digest() == before, form


@pytest.mark.parametrize("tag", FIRST_BINARY)
@pytest.mark.parametrize(
    ("labels", "row"),
    [([0, 1, 2, 1], 2), ([0, -1, 0, 1], 1), ([0, 0.5, 0, 1], 1), ([0, 1, 0, NAN], 3), ([INF, 1, 0, 1], 0)],
)
def test_labels(tag: str, labels: list[Any], row: int) -> None:
    for kind in (np.asarray(labels), np.asarray(labels, np.float32), labels, Wrapped(labels)):
        refuse(tag, {"y_true": kind}, "y_true", row, "0 or 1")


@pytest.mark.parametrize("tag", FIRST_BINARY)
@pytest.mark.parametrize("labels", [["a", "b", "a", "b"], np.array([0, 1, 0, 1], object), np.array([0, 1, 0, 1], complex),
                                    np.array([0, 1, 0, 1], "M8[s]"), np.array([b"0", b"1", b"0", b"1"])])  # fmt: skip
def test_labels_of_another_kind(tag: str, labels: Any) -> None:
    refuse(tag, {"y_true": labels}, "y_true", None, "0 or 1")


@pytest.mark.parametrize("role", ["y_true", "y_score", "sample_weight"])
@pytest.mark.parametrize("tag", FIRST_BINARY)
def test_lists_with_none_have_nulls(tag: str, role: str) -> None:
    """As every other kind of column that may lack values."""
    if role not in columns_of(sm.extend.METRICS[tag]()):
        return
    bad = {"y_true": [0, True, None, 1], "y_score": [0.1, 1, None, 0.5], "sample_weight": [1, 2.5, None, 3]}[role]
    refuse(tag, {role: bad}, role, 2, "null in row 2")
    chosen = GOOD | {role: bad}
    kept = {n: np.array([c[i] for i in (0, 1, 3)], float) for n, c in chosen.items()}
    wanted = value_of(sm.extend.METRICS[tag]().update(kept))
    np.testing.assert_equal(value_of(sm.extend.METRICS[tag](on_invalid="drop").update(chosen)), wanted)
    left = sm.MetricCollection({"m": sm.Task({"m": sm.extend.METRICS[tag]()}, where="there")})
    np.testing.assert_equal(value_of(left.update(chosen | {"there": [1, 1, 0, 1]})["m/m"]), wanted)


def test_integers_beside_none_are_not_rounded() -> None:
    with pytest.raises(sm.InvalidInputError, match="row 1 is missing"):
        sm.Mean().update([1 << 53 | 1, None])
    with pytest.raises(sm.InvalidInputError, match="row 1 is missing"):
        sm.Mean().update([Decimal("0.1"), None, 1])


@pytest.mark.parametrize("tag", FIRST_SCORED)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_that_are_no_numbers(tag: str, bad: float, dtype: Any) -> None:
    refuse(tag, {"y_score": np.array([0.1, 0.2, bad, bad], dtype)}, "y_score", 2, "row 2", "2 of 4 rows")


@pytest.mark.parametrize("tag", FIRST_BOUNDED)
@pytest.mark.parametrize("bad", [1.5, -0.001, 1 + 2.0**-20])
def test_scores_that_are_no_probabilities(tag: str, bad: float) -> None:
    refuse(tag, {"y_score": np.array([0.1, bad, 0.2, 0.3])}, "y_score", 1, 'scale="logit"')
    for scale in ("real", "logit"):
        if scale in next(f for f in fields(sm.extend.METRICS[tag]) if f.name == "scale").metadata["rules"]["choices"]:
            sm.extend.METRICS[tag](scale=scale).update(GOOD["y_true"], [0.1, bad, 0.2, 0.3])


@pytest.mark.parametrize("tag", SCORED)
def test_scores_of_another_kind(tag: str) -> None:
    for bad in (
        np.array([0.1, None, 0.2, 0.3], object),
        np.zeros(4, complex),
        np.zeros(4, np.longdouble),
        list("abcd"),
    ):
        if np.asarray(bad).dtype != np.float64:
            refuse(tag, {"y_score": bad}, "y_score", None)
    refuse(tag, {"y_score": np.ma.masked_array(GOOD["y_score"], [0, 1, 0, 0])}, "y_score", None, "mask")
    refuse(tag, {"y_score": np.stack([GOOD["y_score"]] * 2, axis=1)}, "y_score", None, "one dimension", "(4, 2)")
    refuse(tag, {"y_score": np.array(0.5)}, "y_score", None, "y_score has 1 row, but y_true has 4")
    refuse(tag, {"y_score": np.array([1 << 60, 0, 0, 0])}, "y_score", None, "2**53")


@pytest.mark.parametrize("tag", FIRST_BINARY)
@pytest.mark.parametrize("bad", [NAN, INF, -1.0, 2.0**31, 2.0**-40, 1e300])
def test_weights(tag: str, bad: float) -> None:
    refuse(tag, {"sample_weight": [1.0, 2.0, 3.0, bad]}, "sample_weight", 3, "row 3")


@pytest.mark.parametrize("tag", BINARY)
def test_lengths(tag: str) -> None:
    metric = sm.extend.METRICS[tag]().update(GOOD)
    before = metric.digest()
    for change in ({"y_score": [0.1]}, {"y_true": [1]}, {"sample_weight": [1.0]}):
        with pytest.raises(sm.InvalidInputError, match="equal length"):
            metric.update(**(GOOD | change))
        assert metric.digest() == before


@pytest.mark.parametrize("tag", SCORED)
def test_missing_and_unknown_columns(tag: str) -> None:
    metric = sm.extend.METRICS[tag]()
    with pytest.raises(sm.InvalidInputError, match="there is no column 'y_score'; the batch has 'y_true', 'other'"):
        metric.update({"y_true": [0, 1], "other": [1, 2]})
    with pytest.raises(TypeError, match="unknown column 'wieght'; the columns are y_true, y_score"):
        metric.update([0, 1], [0.1, 0.2], wieght=[1, 1])


def test_predicted_classes_where_scores_are_read() -> None:
    with pytest.raises(TypeError, match="pass predicted classes as y_pred to a metric with threshold=None"):
        sm.Accuracy().update(y_true=[0, 1], y_pred=[0, 1])
    assert sm.Accuracy(threshold=None).update(y_true=[0, 1], y_pred=[0, 1]).compute() == 1.0


@pytest.mark.parametrize("tag", BINARY)
def test_an_empty_batch_is_nothing(tag: str) -> None:
    for thing in targets(tag).values():
        before = thing.digest()
        empty = {k: v[:0] for k, v in GOOD.items()} | {"k": np.zeros(0, "U1")}
        thing.update(empty)
        assert thing.digest() == before
    fresh = sm.extend.METRICS[tag]()
    fresh.update({"y_true": [], "y_score": []})
    assert fresh == sm.extend.METRICS[tag]()


@pytest.mark.parametrize("tag", BINARY)
def test_undefined_is_nan_with_one_warning_and_a_reason(tag: str) -> None:
    metric = sm.extend.METRICS[tag]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = [metric.compute(), metric.compute()]
    if tag.endswith(("_positives", "_negatives")):
        assert values == [0.0, 0.0]  # a count
    elif isinstance(values[0], float):
        assert np.isnan(values).all()
        assert [w.category for w in caught] == [sm.UndefinedMetricWarning]
        assert metric.explain()["reason"]
    for only in (0, 1):
        one = sm.extend.METRICS[tag]().update([only, only], [0.2, 0.9])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = one.compute()
        if isinstance(value, float) and np.isnan(value):
            assert one.explain()["reason"]


@pytest.mark.parametrize("tag", BINARY)
def test_dropping_counts_and_equals_the_rest(tag: str) -> None:
    y, s = np.array([0.0, 1, NAN, 1, 2, 0]), np.array([0.1, NAN, 0.3, 0.4, 0.5, 0.6])
    dropped = sm.extend.METRICS[tag](on_invalid="drop").update({"y_true": y, "y_score": s})
    reads = tag in SCORED
    keep = np.isin(y, (0, 1)) & (np.isfinite(s) if reads else True)
    rest = sm.extend.METRICS[tag]().update({"y_true": y[keep], "y_score": s[keep]})
    assert np.array_equal(numbers(value_of(dropped)), numbers(value_of(rest)), equal_nan=True)
    assert dropped.explain()["dropped"] == ({"y_true": 2, "y_score": 1} if reads else {"y_true": 2})
    assert sm.merge([dropped, dropped.copy()]).explain()["dropped"]["y_true"] == 4


@pytest.mark.parametrize("tag", BINARY)
def test_every_layout_gives_the_same_bytes(tag: str) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    y, s = np.tile(GOOD["y_true"], 50), np.tile(GOOD["y_score"], 50)
    expected = sm.extend.METRICS[tag]().update({"y_true": y, "y_score": s}).to_bytes()
    frozen = s.copy()
    frozen.flags.writeable = False
    layouts = [
        (y.astype(bool), frozen),
        (y.astype(np.int8), s.astype(">f8")),
        (y.astype(np.float32), np.repeat(s, 3)[::3]),
        (y.tolist(), s.tolist()),
        (pd.Series(y), pd.Series(s)),
        (pd.Series(y, dtype="Int64"), pd.Series(s, dtype="Float64")),
        (pl.Series(y), pl.Series(s)),
        (pa.array(y), pa.chunked_array([s[:7], s[7:]])),
        (pa.array(y.astype(bool)), pa.array(s).dictionary_encode()),
        (np.ma.masked_array(y), Wrapped(s)),
    ]
    for labels, scores in layouts:
        assert sm.extend.METRICS[tag]().update({"y_true": labels, "y_score": scores}).to_bytes() == expected


@pytest.mark.parametrize("tag", OTHERS)
def test_every_column_of_other_metrics(tag: str) -> None:
    metric = usual(tag)
    needs = metric.make_state().needs()
    good = make_consistent(metric.make_state(), sample(needs, np.random.default_rng(3), 24, "plain", weighted=True))
    good["k"] = good["query"] % 2 if "query" in good else np.tile(["a", "b"], 12)  # a slice takes queries whole
    assert empty_copy(metric).update({n.role: good[n.role][:0] for n in needs}) == empty_copy(metric)
    bad = {n.role: bad_value(n.kind) for n in needs if bad_value(n.kind) is not None}
    for make in (
        lambda: empty_copy(metric),
        lambda: sm.MetricCollection(empty_copy(metric)),
        lambda: sm.Sliced(empty_copy(metric), by="k"),
    ):
        thing = make().update(good)
        before = thing.digest()
        for role, value in bad.items():
            with pytest.raises(sm.InvalidInputError, match=f"{role}: .*row 5.*3 of 24 rows") as caught:
                thing.update(good | {role: spoil(good[role], [5, 7, 23], value)})
            assert (caught.value.column, caught.value.row, caught.value.count) == (role, 5, 3)
        for need in needs:
            if len(needs) > 1:  # the only column that is read has no length but its own
                with pytest.raises(sm.InvalidInputError, match="equal length"):
                    thing.update(good | {need.role: good[need.role][:-1]})
            if not need.optional:
                with pytest.raises(sm.InvalidInputError, match=f"there is no column '{need.role}'"):
                    thing.update({r: c for r, c in good.items() if r != need.role})
        assert thing.digest() == before
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = empty_copy(metric).compute()
    if isinstance(value, float) and np.isnan(value):
        assert [w.category for w in caught] == [sm.UndefinedMetricWarning]
        assert empty_copy(metric).explain()["reason"]


def test_nulls_are_bad_values() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    for scores in (
        pd.Series([0.1, None, 0.3], dtype="Float64"),
        pd.Series([0.1, None, 0.3]),
        pl.Series([0.1, None, 0.3]),
        pa.array([0.1, None, 0.3]),
    ):
        with pytest.raises(sm.InvalidInputError, match="row 1"):
            sm.AUC().update([0, 1, 1], scores)
    for labels in (
        pd.Series([0, None, 1], dtype="Int64"),
        pl.Series([False, None, True]),
        pa.array([True, None, True]),
    ):
        with pytest.raises(sm.InvalidInputError, match="y_true: expected 0 or 1"):
            sm.AUC().update(labels, [0.1, 0.2, 0.3])


def test_the_row_is_that_of_the_batch_given() -> None:
    metrics = sm.MetricCollection({"cvr": sm.Task(sm.AUC(), y_true="convert", y_score="p", where="click")})
    batch = {"click": [0, 1, 0, 1, 1], "convert": [NAN, 0, NAN, 1, 7], "p": [0.1] * 5}
    with pytest.raises(sm.InvalidInputError, match=r"convert: expected 0 or 1, found 7\.0 in row 4") as caught:
        metrics.update(batch)
    assert caught.value.row == 4


def test_keys() -> None:
    sliced = sm.Sliced(sm.CTR(), by="k").update({"y_true": [0, 1], "k": ["a", None]})
    before = sliced.digest()
    for bad in ([1, 2], [0.5, 1.5], [NAN, NAN], [b"a", b"b"], ["a", 1], [[1], [2]]):
        with pytest.raises(sm.InvalidInputError, match="k"):
            sliced.update({"y_true": [0, 1], "k": bad})
        assert sliced.digest() == before
    with pytest.raises(sm.InvalidInputError, match="k has 3 rows"):
        sliced.update({"y_true": [0, 1], "k": ["a", "b", "c"]})


def test_ranges() -> None:
    auc = sm.AUC().update([0, 1, 1], [0.1, 0.7, 0.2])
    value = auc.compute()
    for _ in range(60):
        auc.merge(auc.copy())
        assert auc.compute() == value
    before, other = auc.digest(), auc.copy()
    with pytest.raises(sm.CounterOverflowError):
        auc.merge(other).merge(other)
    assert other.digest() == before
    heavy = sm.LogLoss().update([0, 1], [0.1, 0.7], sample_weight=[2.0**30, 2.0**30])
    for _ in range(10):
        heavy.merge(heavy.copy())
    before = heavy.digest()
    with pytest.raises(sm.CounterOverflowError):
        heavy.merge(heavy.copy())
    assert heavy.digest() == before


def test_settings_say_what_they_take() -> None:
    for wrong in (
        {"bits": 7},
        {"bits": 25},
        {"bits": "16"},
        {"scale": "prob"},
        {"max_fpr": 0.0},
        {"max_fpr": 2},
        {"bits": True},
    ):
        with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
            sm.AUC(**wrong)
    with pytest.raises(TypeError, match="did you mean 'bits'"):
        sm.AUC(bit=12)
    with pytest.raises(TypeError, match="write AUC"):
        sm.MetricCollection(sm.AUC)  # type: ignore[arg-type]
    auc = sm.AUC()
    with pytest.raises(sm.IncompatibleStateError, match="itself"):
        auc.merge(auc)
    with pytest.raises(sm.IncompatibleStateError, match=r"bits is 12 here and 14 there.*coarsen"):
        sm.AUC(bits=12).merge(sm.AUC(bits=14))


@pytest.mark.parametrize(
    "make",
    [
        iter,
        set,
        lambda rows: (row for row in rows),
        lambda rows: map(int, rows),
        lambda rows: dict.fromkeys(rows, 0).keys(),
    ],
)
def test_what_can_be_read_once_or_in_no_order_is_no_column(make: Any) -> None:
    kind = type(make([0, 1])).__name__
    for thing, name in ((sm.CTR(), "y_true"), (sm.Sliced(sm.CTR(), by="k"), "k"), (sm.DistinctCount(), "value")):
        columns: dict[str, Any] = {"y_true": [0, 1], "k": [0, 1], "value": [0, 1], name: make([0, 1])}
        with pytest.raises(
            sm.InvalidInputError, match=f"{name}: expected one dimension.*; convert the {kind} to a list"
        ):
            thing.update(**{n: column for n, column in columns.items() if n in columns_of(thing)})
