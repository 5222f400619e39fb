"""What holds metrics keeps what it was told: which rows are bad, which keys stay, which settings can be saved."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streammetrics as sm
from streammetrics.errors import InvalidInputError


@pytest.mark.parametrize("metric", [sm.Sum, sm.Max, sm.DistinctCount])
def test_what_fades_is_asked_of_all_forms(metric: Any) -> None:
    """A list that was not asked computed what depends on where epochs begin, and could not be read again."""
    for given in (metric(), [metric()], {"m": metric()}, sm.Task(metric()), sm.MetricCollection(metric())):
        with pytest.raises(TypeError, match=r"grows|fade|registers|extremes|keys"):
            sm.Decayed(given, half_life=10)


def test_keys_of_no_rows_have_no_kind() -> None:
    made = sm.MetricCollection({"a": sm.Sliced(sm.CTR(), by="c"), "b": sm.Sliced(sm.AUC(bits=8), by="c", limit=0)})
    made.update(y_true=[0, 1], y_score=[0.1, 0.2], c=["x", "y"])
    read = sm.from_bytes(made.to_bytes()).update(y_true=[], y_score=[], c=[])
    assert read == made == sm.from_bytes(read.to_bytes())
    for one in (read, sm.from_bytes(read.to_bytes())):
        assert one["b"].copy().update([0], [0.1], c=[7]).total.explain()["rows"] == 3


@pytest.mark.parametrize("values", [(dt.date(2020, 1, 1),), "12", (1.5,), (None,), (float("nan"),), 0])
def test_units_that_stand_for_none(values: Any) -> None:
    with pytest.raises(TypeError, match="Sharded: missing_values must be"):
        sm.Sharded(sm.CTR(), unit="u", missing="skip", missing_values=values)


def test_pinned_slices_stay_when_rolled_up() -> None:
    made = sm.Sliced(sm.CTR(), by=("a", "b"), limit=0, values=[("x", "p"), ("x", "q")])
    made.update([1, 0, 1], a=["x", "y", "x"], b=["p", "q", "q"])
    assert made.rollup(("b", "a")).keys == [("p", "x"), ("q", "x")]
    assert made.rollup("a").keys == ["x"]
    assert made.rollup("a")["x"].compute() == 1.0
    assert made.rollup("a").total == made.total
    again = made.rollup("a").update([1], a=["x"])
    assert again["x"].explain()["rows"] == 3


def test_aa_keeps_what_comes_together() -> None:
    rng, n = np.random.default_rng(1), 42_000
    rows = {"query": np.arange(n) // 7, "user": np.arange(n) // 70, "y_true": rng.integers(0, 2, n)}
    (found,) = sm.aa(rows | {"y_score": rng.random(n)}, unit="user", metrics=sm.NDCG(k=3), runs=20)
    assert found.compared == 20
    with pytest.raises(
        ValueError, match="rows=True: rows cannot be units, because a metric reads all rows of the same query"
    ):
        sm.aa(rows | {"y_score": rng.random(n)}, unit="user", metrics=sm.NDCG(k=3), runs=2, rows=True)


def test_aa_leaves_bad_rows_out_or_says_where_they_are() -> None:
    n = 40_000
    bad = np.arange(n) % 3 == 0
    rows = {"user": np.arange(n) // 10, "y_true": np.where(np.arange(n) == 39_000, 5, bad)}
    (found,) = sm.aa(rows, unit="user", metrics=sm.CTR(on_invalid="drop"), runs=3)
    assert found.compared == 3
    with pytest.raises(InvalidInputError, match="row 39,000") as said:
        sm.aa(rows, unit="user", metrics=sm.CTR(), runs=3)
    assert said.value.row == 39_000


DROPS: dict[str, Callable[[], Any]] = {
    "total": lambda: (
        sm.Sliced(sm.AUC(bits=8), by="c", on_invalid="drop").update([0, 1], [0.1, 0.2], c=["a", "b"]).total
    ),
    "slice": lambda: sm.Sliced(sm.AUC(bits=8), by="c", on_invalid="drop").update([0, 1], [0.1, 0.2], c=["a", "a"])["a"],
    "last": lambda: (
        sm.Windowed(sm.AUC(), width=1, time="t", on_invalid="drop").update([0, 1], [0.1, 0.2], t=[1, 1]).last()
    ),
    "windows": lambda: (
        sm.Decayed(sm.AUC(), half_life=1, on_invalid="drop").update([0, 1], [0.1, 0.2], step=1).windows.total
    ),
    "recent": lambda: sm.Recent(sm.AUC(), steps=3, on_invalid="drop").update([0, 1], [0.1, 0.2]).total,
    "coarsen": lambda: sm.coarsen(sm.AUC(bits=12, on_invalid="drop"), 8),
    "entry": lambda: sm.MetricCollection(sm.AUC(), sm.CTR(), on_invalid="drop")["auc"],
    "whole": lambda: sm.Sharded(sm.AUC(), unit="u", on_invalid="drop").whole,
    "copy": lambda: sm.AUC(on_invalid="drop").copy(),
}


@pytest.mark.parametrize("name", DROPS)
def test_bad_rows_are_left_out_by_what_comes_of_what_leaves_them_out(name: str) -> None:
    made = DROPS[name]()
    for one in (made, made.copy(), pickle.loads(pickle.dumps(made))):
        assert one.on_invalid == "drop"
        one.update([5], [0.5])


def test_merge_does_not_depend_on_the_order_of_parts() -> None:
    y, p = [0, 1], [0.1, 0.2]
    made: list[Any] = [sm.MetricCollection(*m).update(y, p) for m in ((sm.CTR(), sm.AUC()), (sm.AUC(), sm.CTR()))]
    made.append(sm.MetricCollection(sm.LogLoss(), sm.CTR(), sm.AUC()).update(y, p))
    for a, b in ((0, 1), (1, 0)):
        merged = sm.merge([made[a], made[b].to_bytes()])
        assert (merged.names, merged.compute()) == (["auc", "ctr"], {"auc": 1.0, "ctr": 0.5})
    digests = {sm.merge([made[i] for i in order], metrics="common").digest() for order in ((0, 2), (2, 0))}
    assert len(digests) == 1
    assert sm.merge([made[0], made[0].copy()]).names == ["ctr", "auc"]
    with pytest.raises(sm.IncompatibleStateError, match="log_loss"):
        sm.merge([made[0], made[2]])


def test_steps_by_key() -> None:
    recent = sm.Recent(sm.CTR(), steps=3).update([0, 1]).update([1])
    assert (0 in recent, 1 in recent, 7 in recent) == (True, True, False)
    assert recent[1].compute() == 1.0


def test_names_of_columns_that_are_no_texts() -> None:
    with pytest.raises(InvalidInputError, match="0"):
        sm.MetricCollection(sm.Task(sm.CTR(), y_true="0")).update(pd.DataFrame(np.eye(2)))
    frame = pd.DataFrame({"y_true": [0, 1], 7: [1, 2], ("a", "b"): [1, 2]})
    assert sm.CTR().update(frame).compute() == 0.5
    with pytest.raises(InvalidInputError, match="7"):
        sm.Sliced(sm.CTR(), by="7").update(frame)


def test_labels_that_could_not_be_saved() -> None:
    for how in ({"pos_label": float("inf")}, {"labels": (float("-inf"), 0)}, {"pos_label": float("nan")}):
        with pytest.raises(TypeError, match="a label must be a finite number, a string or bytes"):
            sm.Task(sm.CTR(), **how)


def test_what_a_ledger_is_not_asked() -> None:
    ledger = sm.Ledger(sm.CTR())
    ledger.add("a", sm.CTR().update([0, 1]))
    for asked in (partial(sm.flat, ledger), ledger.interval):
        with pytest.raises(TypeError, match="Ledger has no value of its own; use its total attribute"):
            asked()
    assert [None in ledger, 1.5 in ledger, "\ud800" in ledger, "a" in ledger] == [False, False, False, True]


def test_a_bundle_coarsens_what_has_a_histogram() -> None:
    bundle = sm.Bundle({"a": sm.AUC(bits=16).update([0, 1], [0.1, 0.2]), "b": sm.CTR().update([0, 1])})
    made = sm.coarsen(bundle, 10)
    assert made["a"].bits == 10
    assert made["b"] == bundle["b"]


def test_weights_that_corrected_are_too_large() -> None:
    task = sm.Task(sm.CTR(), negative_rate=1e-6, corrects="rows")
    rows = {"y_true": [0, 1, 0], "sample_weight": [1, 1, 1e6]}
    with pytest.raises(InvalidInputError, match=r"in row 2 \(1 such rows\)") as said:
        sm.MetricCollection(task).update(**rows)
    assert said.value.row == 2
    dropped = sm.MetricCollection(task, on_invalid="drop").update(**rows)
    expected = sm.MetricCollection(task, on_invalid="drop").update(y_true=[0, 1], sample_weight=[1, 1])
    assert dropped.compute() == expected.compute()
    assert dropped.explain()["ctr"]["dropped"] == {"sample_weight": 1}
    with pytest.raises(ValueError, match=r"at least 2\*\*-31"):
        sm.Task(sm.CTR(), negative_rate=1e-10, corrects="rows")


def test_one_column_tells_slices_apart_once() -> None:
    for inner, by in ((sm.Sliced(sm.CTR(), by="c"), ("c", "d")), (sm.Sliced(sm.CTR(), by="c", limit=2), "c")):
        with pytest.raises(ValueError, match="the inner object is already split by this column"):
            sm.Sliced(inner, by=by)


def test_the_last_windows_by_an_integer_of_numpy() -> None:
    made = sm.Windowed(sm.CTR(), width=1, time="t").update([0, 1, 1], t=[1, 2, 3])
    assert made.last(np.int64(2)).compute() == 1.0
    for wrong in (0, 1.0, "x"):
        with pytest.raises((ValueError, TypeError), match=r"last\(\) takes a whole number"):
            made.last(wrong)
