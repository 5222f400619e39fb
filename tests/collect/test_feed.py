"""Drafts: batches of plain arrays take a fast path, and count like batches that have to be prepared."""

from __future__ import annotations

import copy
import gc
import pickle
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from counting import count_prepared
from hypothesis import given, settings
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.count import batch_updater, drafts
from streammetrics.kernels import row_sums
from streammetrics.statistics import weighted_rows as weighed

LABELS = ("u1", "i1", "?", "f4", "f8", "i8")
SCORES = ("f2", "f4", "f8")


def collection(**more):
    second = {"real": sm.AUC(scale="real"), "accuracy": sm.Accuracy(threshold=0.3)}
    tasks = {"b": sm.Task([sm.AUC(), sm.LogLoss()], y_true="label", y_score="other")}
    first = [sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.BrierScore(), sm.ExpectedCalibrationError()]
    return sm.MetricCollection(first, second, tasks, **more)


def batch(rows, label="u1", score="f4", seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(rows).astype(score)
    special = np.array([0.0, -0.0, 1.0, 2.0**-24, 0.5, 1 - 2.0**-11], score)
    p[: len(special)] = special[:rows]
    y = rng.integers(0, 2, rows).astype(label)
    return {"y_true": y, "y_score": p, "label": y[::-1].copy(), "other": p[::-1].copy()}


def prepared(batches):
    """Return a collection that has converted, checked and counted each batch column by column."""
    whole = collection()
    for one in batches:
        count_prepared(whole, one)
    return whole


@pytest.mark.slow
@settings(deadline=None)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(SCORES)), min_size=1, max_size=5),
    rows=st.sampled_from([1, 7, 448, 3000]),
)
def test_same_states(kinds, rows):
    batches = [batch(rows, label, score, i) for i, (label, score) in enumerate(kinds)]
    fed = collection()
    for one in batches:
        fed.update(**one)
    assert fed.digest() == prepared(batches).digest()


def test_it_is_taken(monkeypatch):
    fed = collection().update(**batch(10))
    monkeypatch.setattr(batch_updater, "prepare", lambda *_, **__: pytest.fail("rows were prepared"))
    fed.update(**batch(10, seed=1)).update(**batch(10, "?", "f4", seed=2))
    strided = {name: np.repeat(column, 2)[::2] for name, column in batch(10, seed=3).items()}
    fed.update(**strided)
    monkeypatch.undo()
    assert fed.digest() == prepared([batch(10), *(batch(10, seed=i) for i in (1, 2, 3))]).digest()


@pytest.mark.parametrize("name", ["y_true", "label", "y_score", "other"])
@pytest.mark.parametrize("bad", [2, -1, float("nan"), float("inf"), 1.5, 1 + 2.0**-23])
@pytest.mark.parametrize("row", [0, 700, 1499])
def test_a_bad_value_changes_nothing(name, bad, row):
    fed = collection().update(**batch(1500))
    before = fed.digest()
    worse = batch(1500, "f4", seed=3)
    worse[name][row] = bad
    with pytest.raises(sm.InvalidInputError, match=rf"^{name}: .* in row {row:,}") as caught:
        fed.update(**worse)
    assert (caught.value.column, caught.value.row) == (name, row)
    assert fed.digest() == before


@pytest.mark.parametrize(
    "metric", [sm.AUC(), sm.LogLoss(), sm.CTR(), sm.F1(), sm.KS(bits=8), sm.AUC(exact=True)], ids=repr
)
@pytest.mark.parametrize("row", [0, 447, 448, 1499])
def test_a_lone_metric_takes_back_what_it_counted(metric, row):
    fed = empty_copy(metric).update(**{n: c for n, c in batch(1500).items() if n in columns_of(metric)})
    before = fed.digest()
    worse = {n: c for n, c in batch(1500, seed=3).items() if n in columns_of(metric)}
    worse["y_true"][row] = 3
    with pytest.raises(sm.InvalidInputError, match="y_true"):
        fed.update(**worse)
    assert fed.digest() == before


def test_what_is_missing_or_too_short_changes_nothing():
    fed = collection().update(**batch(10))
    before = fed.digest()
    with pytest.raises(sm.InvalidInputError, match="there is no column 'other'"):
        fed.update(**{k: v for k, v in batch(10).items() if k != "other"})
    with pytest.raises(sm.InvalidInputError, match="other has 9 rows"):
        fed.update(**(batch(10) | {"other": batch(9)["other"]}))
    assert fed.digest() == before
    assert fed.update(**batch(0)).digest() == before


def test_weights_and_dropped_rows():
    weighted = batch(10, seed=1) | {"sample_weight": np.linspace(0, 3, 10)}
    assert collection().update(**batch(10)).update(**weighted).digest() == prepared([batch(10), weighted]).digest()
    fed = sm.MetricCollection(sm.AUC(), sm.LogLoss(), on_invalid="drop")
    fed.update([0, 1], [0.1, 0.9]).update([0, 1, 1], [0.2, np.nan, 0.8])
    assert fed["auc"].explain()["rows"] == 4


def test_slices_of_the_same_rows_in_the_same_collection():
    whole = sm.MetricCollection(collection(), {"by": sm.Sliced(collection(), by="k")})
    keys = np.array(["a", "b"])[np.arange(10) % 2]
    count_prepared(whole.update(**batch(10), k=keys), batch(10, seed=1) | {"k": keys})
    assert whole["metrics"].digest() == prepared([batch(10), batch(10, seed=1)]).digest()
    assert whole["by"].total.digest() == whole["metrics"].digest()


def test_it_survives_what_else_is_done_to_a_collection():
    four = prepared([batch(10, seed=i) for i in range(4)]).digest()
    fed = collection().update(**batch(10)).update(**batch(10, seed=1))
    for other in (pickle.loads(pickle.dumps(fed)), copy.deepcopy(fed), fed.copy(), sm.from_bytes(fed.to_bytes())):
        assert other.update(**batch(10, seed=2)).update(**batch(10, seed=3)).digest() == four
    fed.merge(prepared([batch(10, seed=2)])).update(**batch(10, seed=3))
    assert fed.digest() == four
    two = prepared([batch(10), batch(10, seed=1)]).digest()
    assert fed.reset().update(**batch(10)).update(**batch(10, seed=1)).digest() == two
    fed["auc"].update(**{n: batch(10)[n] for n in ("y_true", "y_score")})
    assert fed.digest() == two


def test_drafts_are_not_kept_for_ever():
    fed = sm.CTR()
    for step in range(1, 600):
        fed.update(np.zeros(2 * step, np.uint8)[::step])
    assert len(accumulator_of(fed).updater._content[1].drafts) <= drafts.MOST_DRAFTS
    assert fed.state.rows.tolist() == [2 * 599, 0]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(sys, "getrefcount"), reason="counts references")
def test_batches_are_not_kept():
    scores, labels = np.linspace(0, 1, 1000), np.zeros(1000, np.uint8)
    fed = collection()
    for _ in range(3):
        fed.update(y_true=labels, y_score=scores, label=labels, other=scores)
        count_prepared(fed, {"y_true": labels, "y_score": scores, "label": labels, "other": scores})
    gc.collect()
    assert sys.getrefcount(scores) == 2
    assert sys.getrefcount(labels) == 2


@pytest.mark.parametrize("metric", [sm.AUC(bits=8), sm.LogLoss(), sm.MAE(), sm.Accuracy()], ids=repr)
def test_after_a_batch_without_room_all_others_count(metric):
    """Counters may have grown before memory was found to be short: what was bound to the smaller ones is not used."""
    rng = np.random.default_rng(0)
    roles = ["y_true", "y_pred" if isinstance(metric, sm.MAE) else "y_score"]
    few, many = (
        {roles[0]: rng.integers(0, 2, n).astype(np.uint8), roles[1]: rng.random(n), "key": rng.integers(0, keys, n)}
        for n, keys in ((50, 4), (6000, 3000))
    )
    whole = sm.Sliced(metric, by="key").update(**few)
    fed = sm.Sliced(metric, by="key", memory_limit=20 * sm.nbytes(whole)).update(**few).update(**few)
    for _ in range(2):
        with pytest.raises(sm.MemoryLimitError):
            fed.update(**many)
        fed.update(**few)
    expected = sm.Sliced(metric, by="key")
    for _ in range(4):
        expected.update(**few)
    assert fed.digest() == expected.digest()


@pytest.mark.parametrize("make", [sm.AUC, sm.CTR, lambda: sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.CTR())])
def test_batches_unlike_the_one_before(make):
    """The quick way is for batches like the last one alone: others, strided ones too, take the long one."""
    made, rng = make(), np.random.default_rng(3)
    two = isinstance(made, sm.AUC | sm.MetricCollection)
    seen = []
    for i in range(60):
        n = int(rng.choice([0, 1, 1, 2, 7, 300]))
        y, s = rng.integers(0, 2, n), rng.random(n)
        y = y.astype(rng.choice(["u1", "i8", "f4", "?"])) if i % 3 else y.astype("u1")
        s = s.astype(rng.choice(["f4", "f8", ">f8"])) if i % 3 else s.astype("f4")
        if i % 11 == 5:
            made = made.copy()
        if i % 13 == 6:
            made = sm.from_bytes(made.to_bytes())
        for step in (1, 3):
            yy, ss = (np.column_stack([c] + [np.ones_like(c)] * (step - 1))[:, 0] for c in (y, s))
            made.update(yy, ss) if two else made.update(yy)
            seen.append((y.astype(float), s.astype(float)))
        wrong = np.full(max(n, 1), 2, "u1" if y.dtype == bool else y.dtype), np.zeros(max(n, 1))
        with pytest.raises(sm.InvalidInputError):
            made.update(*wrong[: 1 + two])
    y, s = (np.concatenate(column) for column in zip(*seen, strict=True))
    assert made == (make().update(y, s) if two else make().update(y))


def test_what_is_asked_of_bad_rows_changes_between_batches():
    ctr = sm.CTR()
    good, bad = np.array([0, 1], "u1"), np.array([0, 2], "u1")
    ctr.update(good).update(good)
    with pytest.raises(sm.InvalidInputError):
        ctr.update(bad)
    accumulator_of(ctr).updater.on_invalid = "drop"
    ctr.update(bad)
    assert ctr.explain()["dropped"] == {"y_true": 1}


def test_series_of_other_dtypes_come_between():
    """Columns of data frames and Arrow that hold plain numbers take the quick way, and others the long one."""
    y, s = [0, 1, 1, 0], [0.25, 0.5, 0.75, 0.125]
    made = sm.AUC()
    columns = [
        (pd.Series(y), pd.Series(s)),
        (pd.Series(y, dtype="Int64"), pd.Series(s)),
        (pd.Series(y), pd.Series(s, dtype="float32")),
        (pa.array(y), pa.array(s)),
        (pa.chunked_array([y[:2], y[2:]]), pa.array(s)),
        (pa.array(y).cast("uint8"), pd.Series(s)),
        (pd.Series(y).astype("category"), np.array(s)),
        (y, s),
    ]
    for labels, scores in [pair for pair in columns for _ in range(3)]:
        made.update(labels, scores)
    assert made == sm.AUC().update(y * 24, s * 24)
    for wrong in (pd.Series([0, 2]), pd.Series([0, None], dtype="Int64"), pa.array([0, None])):
        made.update(pd.Series(y), pd.Series(s))
        with pytest.raises(sm.InvalidInputError):
            made.update(wrong, pd.Series(s[:2]))


@pytest.mark.parametrize("dtype", ["Int8", "Int64", "UInt16", "boolean", "Float32"])
@pytest.mark.parametrize("wrap", [lambda column: column, lambda column: column.array, pd.Index])
def test_nullable_numbers_of_pandas_are_not_prepared(monkeypatch, dtype, wrap):
    y, s = [0, 1, 1, 0], [0.25, 0.5, 0.75, 0.125]
    labels, scores = wrap(pd.Series(y).astype(dtype)), wrap(pd.Series(s, dtype="Float64"))
    fed = sm.AUC().update(labels, scores)
    with monkeypatch.context() as patch:
        patch.setattr(batch_updater, "prepare", lambda *_, **__: pytest.fail("rows were prepared"))
        fed.update(labels, scores).update(np.array(y), scores)
    missing = wrap(pd.Series([0, None, 1, 0]).astype(dtype))
    with pytest.raises(sm.InvalidInputError, match="y_true: expected 0 or 1, found a null in row 1"):
        fed.update(missing, scores)
    assert fed == sm.AUC().update(y * 3, s * 3)


@pytest.mark.parametrize("build", [dict, pd.DataFrame, pa.table, pl.DataFrame, lambda t: pa.RecordBatch.from_pydict(t)])
def test_tables_of_numbers_are_not_prepared(monkeypatch, build):
    """A table may have columns that no metric reads."""
    tables = [batch(10, seed=i) | {"note": ["a", None] * 5, "k": np.arange(10) % 3} for i in range(3)]
    fed, sliced = collection(), sm.Sliced(sm.AUC(bits=12), by="k")
    fed.update(build(tables[0]))
    sliced.update(build(tables[0]))
    with monkeypatch.context() as patch:
        patch.setattr(batch_updater, "prepare", lambda *_, **__: pytest.fail("rows were prepared"))
        for table in tables[1:]:
            fed.update(build(table))
            sliced.update(build(table))
    assert fed.digest() == prepared(tables).digest()
    expected = sm.Sliced(sm.AUC(bits=12), by="k")
    for table in tables:
        count_prepared(expected, table)
    assert sliced.digest() == expected.digest()
    with pytest.raises(sm.InvalidInputError, match=r"other: expected a probability in .*, found 1\.5 in row 3"):
        fed.update(build(tables[0] | {"other": np.where(np.arange(10) == 3, 1.5, 0.5)}))
    with pytest.raises(sm.InvalidInputError, match=r"there is no column 'k'; the batch has .*note"):
        sliced.update(build({name: column for name, column in tables[0].items() if name != "k"}))
    assert fed.digest() == prepared(tables).digest()
    assert sliced.digest() == expected.digest()


def test_integers_of_polars_that_numpy_lacks_are_refused():
    keys = pl.Series("k", [1, 2], dtype=pl.Int128)
    with pytest.raises(sm.InvalidInputError, match="k: expected keys of one kind"):
        sm.Sliced(sm.CTR(), by="k").update(y_true=[0, 1], k=keys)


def test_one_event_as_a_mapping_is_not_prepared(monkeypatch):
    fed = sm.MetricCollection(sm.Task([sm.AUC(), sm.LogLoss()], y_true="click", y_score="p"))
    fed.update({"click": 1, "p": 0.3, "user": "a"})
    monkeypatch.setattr(batch_updater, "prepare", lambda *_, **__: pytest.fail("rows were prepared"))
    fed.update({"click": 0, "p": 0.25, "user": "b"})
    assert fed.explain()["auc"]["rows"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("width", [3, 40, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_scores_however_they_lie(width, weighted):
    """Parts of wider rows have the strides of whole ones; a row alone has any. A bad one takes back what was counted."""
    made, rng = sm.ConfusionMatrix(num_classes=width), np.random.default_rng(width)
    want = np.zeros((width, width))
    for i in range(120):
        n = int(rng.choice([1, 2, 70, 200]))
        y, wide = (
            rng.integers(0, width, n),
            rng.integers(-4, 4, (n, width + 9)).astype(rng.choice(["f4", "f8", "f2", "i1", ">f8"])),
        )
        wide = np.where((wide == 0) & (wide.dtype.kind == "f") & (rng.random(wide.shape) < 0.5), -wide, wide)
        scores = [wide[:, :width], wide[:, :width].copy(), wide[:, :width].copy("F"), wide[:, width - 1 :: -1]][i % 4]
        w = {"sample_weight": rng.integers(1, 4, n).astype(float)} if weighted else {}
        made.update(y, scores, **w)
        np.add.at(want, (y, scores.argmax(axis=1)), w.get("sample_weight", 1.0))
        before, bad = made.to_bytes(), scores.astype(float)
        bad[rng.integers(n), rng.integers(width)] = rng.choice([np.nan, -np.nan, np.inf, -np.inf])
        with pytest.raises(sm.InvalidInputError, match=r"y_score: expected rows of .* finite number"):
            made.update(y, bad.astype(wide.dtype) if wide.dtype.kind == "f" else bad, **w)
        with pytest.raises(sm.InvalidInputError, match="y_true"):
            made.update(np.append(y[1:], width), scores, **w)
        with pytest.raises(sm.InvalidInputError, match=f"found rows of {width - 1}"):
            made.update(y, np.ascontiguousarray(scores)[:, 1:], **w)
        assert made.to_bytes() == before
    assert (made.compute() == want).all()


def test_outputs_however_they_lie():
    made, rng, seen = sm.MAE(num_outputs=2), np.random.default_rng(2), []
    for i in range(40):
        n = int(rng.choice([1, 3, 50]))
        wide = rng.normal(size=(2, n, 4)).astype(rng.choice(["f4", "f8", "f2", ">f4"]))
        y, p = [wide[:, :, :2], wide[:, :, :2].copy(), wide[:, :, 1::-1], wide[:, :, ::2]][i % 4]
        made.update(y, p)
        seen.append(np.abs(y.astype(float) - p.astype(float)))
        before = made.to_bytes()
        with pytest.raises(sm.InvalidInputError, match="y_pred: expected rows of 2 values"):
            made.update(y, np.where(np.arange(n)[:, None] == n - 1, np.nan, p))
        assert made.to_bytes() == before
    assert made.compute() == pytest.approx(float(np.concatenate(seen).mean()), rel=1e-12)


@pytest.mark.parametrize("row", [0, 383, 384, 4_999], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**401, 2.0**-401, -(2.0**-401)], ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        *(sm.Mean, sm.Variance, sm.Kurtosis, sm.R2, sm.MAE, sm.MAPE),
        lambda: sm.MetricCollection(sm.MAE(), sm.R2()),
        lambda: sm.MetricCollection({f"q{q}": sm.PinballLoss(alpha=q / 32) for q in range(1, 20)}),
    ],
    ids=["mean", "variance", "kurtosis", "r2", "mae", "mape", "two", "too many"],
)
def test_sums_that_check_as_they_add_take_back_what_they_added(make, bad, row):
    rng = np.random.default_rng(row)
    metric, good = make(), rng.normal(size=(2, 5_000)) * 2.0 ** rng.integers(-60, 60, 5_000)
    columns = list(good[: 1 if isinstance(metric, (sm.Mean, sm.Variance, sm.Kurtosis)) else 2])
    metric.update(*columns)
    before = metric.to_bytes()
    for i in range(len(columns)):
        wrong = [c.copy() for c in columns]
        wrong[i][row] = bad
        with pytest.raises(sm.InvalidInputError, match=f"in row {row:,};"):
            metric.update(*wrong)
        assert metric.to_bytes() == before
    metric.update(*columns)
    both = make()
    both.update(*[np.concatenate([c, c]) for c in columns])
    assert metric.to_bytes() == both.to_bytes()


@pytest.mark.parametrize(("bad", "column"), [(0.0, "y_true"), (-1.0, "y_true"), (0.0, "y_pred"), (-1.0, "y_pred")])
def test_sums_that_check_as_they_add_keep_to_limits_below(bad, column):
    metric = sm.TweedieDeviance(power=2)
    good = {"y_true": np.linspace(1, 2, 1_000), "y_pred": np.linspace(2, 3, 1_000)}
    metric.update(**good)
    before = metric.to_bytes()
    wrong = good | {column: good[column].copy()}
    wrong[column][999] = bad
    with pytest.raises(sm.InvalidInputError, match="in row 999;"):
        metric.update(**wrong)
    assert metric.to_bytes() == before


def test_what_is_kept_of_checked_sums_has_room():
    assert weighed.MAX_CHECKED_SUMS == row_sums.MOST_CHECKED
