"""What slices and windows say of their rows does not hang on which task is named first; keys are read alike everywhere."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy, states_of


@pytest.mark.parametrize("turn", [1, -1])
def test_counts_of_several_tasks(turn: int) -> None:
    rows = {"y_true": [0, 1, 0, 1], "y_score": [0.1, 0.2, 0.3, 0.4], "wh": [0, 1, 0, 1], "t": [0, 0, 0, 5]}
    tasks = {"a": sm.Task(sm.CTR(), where="wh"), "b": sm.Task(sm.AUC(bits=12))}
    both = sm.MetricCollection(dict(list(tasks.items())[::turn]))
    assert sm.Windowed(both, width=1, time="t", keep=1).update(rows).late == 3
    assert sm.Sliced(both, by="t", limit=1).update(rows).left in (0.25, 0.75)
    sliced = sm.Sliced(both, by="t").update(rows | {"wh": [0, 0, 0, 1]})
    assert sliced.top(1).keys == [0]
    assert sliced.table(min_rows=2).to_dict()["t"] == [0, 0]
    assert {row["t"] for row in sliced.table_records(sort="rows", top=1)} == {0}
    assert str(sm.Delta(empty_copy(both)).update(rows)).count("4 rows") == 1


KEYS: list[Any] = [
    [dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)],
    [dt.date(2020, 1, 1), None],
    [1, 2],
    [2**64 - 1, 3],
    ["a", "b"],
    [b"a", None],
]


@pytest.mark.parametrize("keys", KEYS, ids=repr)
def test_keys_are_selected_as_they_are_read(keys: list[Any]) -> None:
    sliced = sm.Sliced(sm.CTR(), by="k").update([0, 1], k=keys)
    spelled = [keys[0], (keys[0],)]
    if isinstance(keys[0], dt.datetime):
        spelled.append(np.datetime64(keys[0]))
    for key in spelled:
        assert key in sliced
        assert len(sliced.select([key])) == 1
        assert sliced.select([key])[key] == sliced[key]
    for odd in (True, 1.0, "1", b"1", (keys[0], 1)):
        assert (odd in sliced) == bool(sliced.select([odd]).keys)
    assert sliced.select(iter(keys)).keys == sliced.keys


@pytest.mark.parametrize(
    "keys",
    [
        [*range(-50, 50, 3)],
        [*range(2**64 - 90, 2**64, 3), 5, -7],
        [f"user {i}" for i in range(40)],
        [bytes([i]) for i in range(40)],
    ],
    ids=["integers", "integers beyond int64", "texts", "bytes"],
)
@pytest.mark.parametrize("limit", [None, 9])
def test_a_key_is_found_among_many(keys: list[Any], limit: int | None) -> None:
    """A binary search finds the keys that a list of all keys contains, and builds no table of all keys."""
    first = [*keys, None] * 2
    second = ["x"] * len(first)
    second[0] = "y"
    rows = {"y_true": [0] * len(first), "a": first, "b": second}
    one = sm.Sliced(sm.CTR(), by="a", limit=limit).update({"y_true": rows["y_true"], "a": first})
    two = sm.Sliced(sm.CTR(), by=["a", "b"], limit=limit).update(rows)
    odd = [-(10**30), -51, -49, 0, 2**63, 2**64 - 89, 2**70, "user", "user 400", "", b"", b"~", True, 0.5, "(other)"]
    for key in [*keys, None, *odd]:
        assert (key in one) == any(type(key) is type(k) and key == k for k in one.keys), key
        if key in one:
            assert one[key].compute() == 0.0
        for other in ("x", "y", "z", None):
            assert ((key, other) in two) == any(type(key) is type(k) and (key, other) == (k, o) for k, o in two.keys)
    read = sm.from_bytes(one.to_bytes())
    for key in read:
        assert key in read
        assert read[key] == one[key]
    assert "rank_by_value" not in states_of(read)[0].cells.vocabularies[0].__dict__


def test_keys_of_two_columns() -> None:
    sliced = sm.Sliced(sm.CTR(), by=["a", "b"]).update([0, 1], a=[1, 2], b=["x", None])
    assert sliced.select([(2, None), (1, "y"), 1]).keys == [(2, None)]
    for twice in (["a", "a"], ["b", "a", "b"]):
        with pytest.raises(ValueError, match=r"rollup\(\): expected some of the columns a, b, found"):
            sliced.rollup(twice)


def test_a_metric_that_is_not_there_is_named() -> None:
    both = sm.MetricCollection(sm.CTR(), sm.AUC())
    for thing in (both, sm.Sliced(both, by="k")):
        assert thing.only("ctr").names == thing.only(["ctr"]).names == ["ctr"]
        assert thing.ordered(["auc", "ctr"]).names == ["auc", "ctr"]
        for choose in (thing.only, thing.ordered):
            with pytest.raises(KeyError, match="there is no metric 'typo'; the metrics are ctr, auc"):
                choose(["ctr", "typo"])


def test_models_of_slices() -> None:
    rng = np.random.default_rng(5)
    rows: dict[str, Any] = {
        "user": rng.integers(0, 300, 3000),
        "click": rng.integers(0, 2, 3000),
        "old_score": rng.random(3000),
        "new_score": rng.random(3000),
        "arm": rng.choice(["old", "x"], 3000),
    }
    models = {n: sm.Task([sm.AUC(), sm.LogLoss()], y_true="click", y_score=f"{n}_score") for n in ("old", "new")}
    alone = {n: sm.Sliced(sm.Sharded(sm.MetricCollection(t), unit="user"), by="arm") for n, t in models.items()}
    sliced = sm.Sliced(sm.Sharded(models, unit="user"), by="arm").update(rows)
    assert sliced["new"].compute() == alone["new"].update(rows).compute() == sliced.task("new").compute()
    assert sliced.task("old").compute() == alone["old"].update(rows).compute()
    # A slice comes before a model of the same name, so that what `[key]` returns for a key never changes.
    assert isinstance(sliced["old"], sm.Sharded)
    assert sliced["old"].compute() == sliced.select(["old"]).total.compute()
    compared = sm.compare(sliced["new"], sliced.task("old"))
    assert list(compared) == [(arm, metric) for arm in ("old", "x") for metric in ("auc", "log_loss")]
    assert sliced["new/auc"]["x"].interval() == sliced["x"]["new/auc"].interval()
    assert "new" not in sliced
    with pytest.raises(KeyError, match=r"no slice 'other'; .*: 'old', 'x', and the metrics old/auc, old/log_loss, n"):
        sliced["other"]
    with pytest.raises(KeyError, match="there is no slice 'auc'; this object has 2 keys: 0, 1, and the metrics auc"):
        sm.Sliced(sm.AUC(), by="click").update(rows["click"], rows["old_score"], click=rows["click"])["auc"]
    pair = sm.MetricCollection({"a": sm.Task(sm.CTR(), y_true="y"), "b": sm.Task(sm.CTR(), y_true="z")})
    windows = sm.Windowed(pair, width=1, time="t").update(y=[0, 1], z=[1, 1], t=[1, 2])
    assert list(windows["a"].compute().values()) == [{"ctr": 0.0}, {"ctr": 1.0}]


def test_metric_of_sampled_rows_by_slice() -> None:
    rows = {
        "y_true": [0, 1, 0, 1, 1],
        "y_score": [0.1, 0.4, 0.35, 0.8, 0.2],
        "k": [0, 0, 0, 0, 0],
        "user": [1, 2, 3, 4, 5],
    }
    task = sm.Task({"best": sm.MaxFBeta()}, negative_rate=0.5, corrects="score")
    plain = sm.MetricCollection(task).update(rows)
    shards = sm.Sharded(sm.MetricCollection(task), unit="user").update(rows)
    sliced = sm.Sliced(sm.MetricCollection(task), by="k").update(rows)
    expected = plain["best"].compute()
    assert shards["best"].compute() == expected
    assert sliced["best"][0].compute() == expected
