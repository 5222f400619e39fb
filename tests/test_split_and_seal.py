"""What engines shuffle: slices in parts by their key, and groups that are closed where all their rows are."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of

ROWS = 3000
RNG = np.random.default_rng(5)
TEXTS = np.array(["a", "b", "日本", "d", None, "f"], object)
LOG: dict[str, Any] = {
    "y_true": RNG.integers(0, 2, ROWS),
    "y_score": RNG.random(ROWS),
    "group": RNG.integers(0, 150, ROWS),
    "slot": RNG.integers(0, 30, ROWS),
    "name": TEXTS[RNG.integers(0, 6, ROWS)],
}
PARTS = 4
GROUPED = sm.MetricCollection(sm.GroupAUC(), sm.GroupAUC(group_weight="pairs"), sm.AUC(), sm.KS(), sm.GroupLogLoss())


def rows(which: Any) -> dict[str, Any]:
    return {name: column[which] for name, column in LOG.items()}


def part(i: int) -> dict[str, Any]:
    return rows(sm.group_partition(LOG["group"], PARTS) == i)


@pytest.mark.parametrize("limit", [None, 0, 7])
@pytest.mark.parametrize("by", [["slot"], ["name", "slot"]])
def test_parts_of_slices_are_the_whole(by: list[str], limit: int | None) -> None:
    metrics = sm.Sliced([sm.AUC(), sm.LogLoss(), sm.Task(sm.CTR(), where="y_true")], by=by, limit=limit).update(LOG)
    parts = metrics.split(PARTS)
    assert sm.merge(parts[::-1]).digest() == metrics.digest()
    assert sorted(map(str, (k for p in parts for k in p))) == sorted(map(str, metrics.keys))
    assert all(definition_of(p).differences(definition_of(metrics)) == [] for p in parts)


def test_a_key_is_in_one_part_wherever_it_was_met() -> None:
    whole = sm.Sliced(sm.CTR(), by=["name", "slot"]).update(LOG).split(PARTS)
    few = sm.Sliced(sm.CTR(), by=["name", "slot"]).update(rows(slice(0, 200))).split(PARTS)
    assert all(set(f) <= set(w) for f, w in zip(few, whole, strict=True))
    assert all(len(w) for w in whole)
    assert [len(p) for p in sm.Sliced(sm.CTR(), by="slot").split(2)] == [0, 0]


@pytest.mark.parametrize(
    "wrap", [lambda m: m, lambda m: sm.Sliced(m, by="name"), lambda m: sm.MetricCollection({"x": m})]
)
def test_groups_closed_in_parts_are_all_groups_closed(wrap: Any) -> None:
    metrics = wrap(GROUPED)
    parts = [sm.seal(metrics.copy().update(part(i)), (i, PARTS)).to_bytes() for i in range(PARTS)]
    whole = metrics.copy().update(LOG)
    total = sm.merge(parts[::-1])
    assert sm.seal(total, (0, 1)).digest() == sm.seal(whole).digest()
    assert total.compute() == whole.compute()
    assert sm.from_bytes(sm.seal(whole).to_bytes()).digest() == sm.seal(whole).digest()
    with pytest.raises(sm.IncompatibleStateError, match=r"sealed"):
        sm.merge([parts[0], parts[0]])


def test_sealing_leaves_the_rest_as_it_is() -> None:
    metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss()).update(
        rows(slice(None)) | {"sample_weight": RNG.random(ROWS)}
    )
    assert sm.seal(metrics, (1, 3)).digest() == metrics.digest()
    bundle = sm.Bundle({"all": GROUPED.copy().update(LOG), "plain": metrics})
    assert sm.seal(bundle)["all"].digest() == sm.seal(GROUPED.copy().update(LOG)).digest()
    assert sm.seal(GROUPED, (0, 1)).digest() == sm.seal(GROUPED).digest()


def test_a_metric_says_its_partition_itself() -> None:
    said = sm.GroupAUC(partition=(1, PARTS)).update(part(1))
    assert sm.seal(said).digest() == sm.seal(sm.GroupAUC().update(part(1)), (1, PARTS)).digest()


def test_groups_that_would_be_taken_for_others_are_not_sealed() -> None:
    metrics = sm.MetricCollection({"p": sm.GroupAUC(), "r": sm.GroupAUC(scale="real")})
    with pytest.raises(sm.IncompatibleStateError, match="scale= or missing="):
        sm.seal(metrics)


@pytest.mark.parametrize("first", [1, 2, 5])
def test_slices_that_a_large_batch_brings(first: int) -> None:
    """More rows than a cell keeps exactly, in cells that were not there before."""
    n = 140_000
    scores, labels = RNG.random(n), RNG.integers(0, 2, n)
    batches = [{"y_true": labels, "y_score": scores, "k": RNG.integers(0, keys, n)} for keys in (first, 11)]
    counted = sm.Sliced(sm.AUC(), by="k")
    for batch in batches:
        counted.update(batch)
    both = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    assert counted.digest() == sm.Sliced(sm.AUC(), by="k").update(both).digest()


def test_groups_of_which_a_batch_knows_none() -> None:
    pa = pytest.importorskip("pyarrow")
    none = pa.table({"y_true": [0, 1], "y_score": [0.1, 0.9], "group": pa.array([None, None], pa.string())})
    assert sm.GroupAUC(missing="skip").update(none).explain()["dropped"] == {"group": 2}
    with pytest.raises(sm.InvalidInputError, match="group: expected a key"):
        sm.GroupAUC().update(none)


@pytest.mark.parametrize("partition", [(7, 3), (-1, 2), (0, 0)])
def test_partitions_that_there_are_not(partition) -> None:
    for thing in (sm.GroupAUC(), sm.MetricCollection(sm.GroupAUC(), sm.CTR()), sm.Sliced(sm.GroupAUC(), by="k")):
        with pytest.raises(ValueError, match="0 <= i < n"):
            sm.seal(thing, partition)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("by", [None, "k"])
def test_rows_that_were_left_out_are_still_counted_when_groups_are_closed(by, read):
    """For whatever reason: a bad value, a filter, a weight."""
    metric = sm.MetricCollection(sm.Task(sm.GroupAUC(on_invalid="drop"), where="test"), on_invalid="drop")
    thing = sm.Sliced(metric, by=by) if by else metric
    columns = {
        "y_true": [0, 1, 7, 1, 0, 1], "y_score": [0.1, 0.9, 0.2, np.nan, 0.3, 0.5], "group": [1, 1, 1, 2, 2, 2],
        "sample_weight": [1.0, 1.0, 1.0, 1.0, -1.0, 2.0], "test": [1, 1, 1, 1, 1, 0], "k": [1, 1, 2, 2, 2, 1],
    }  # fmt: skip
    blank = sm.seal(thing, (1, 2)).to_bytes()
    thing.update(columns)
    if read:
        thing = sm.from_bytes(thing.to_bytes())
    closed = sm.seal(thing, (0, 2))
    assert dropped(closed) == dropped(thing)
    assert sum(n for each in dropped(thing).values() for n in each.values()) == 4
    assert dropped(sm.from_bytes(closed.to_bytes()).merge(sm.from_bytes(blank))) == dropped(thing)


def dropped(thing):
    found = thing.explain()
    return {
        key: slice_["group_auc"]["dropped"]
        for key, slice_ in (found if isinstance(thing, sm.Sliced) else {(): found}).items()
    }


@pytest.mark.cpu_limit(4)  # it starts a process
def test_text_is_the_first_thing_that_a_process_partitions() -> None:
    code = "import streammetrics as sm; print(sm.group_partition(['a', 'b', 'a'], 4).tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(sm.group_partition(["a", "b", "a"], 4).tolist()), done.stderr
