"""The last updates or rows are exactly what these alone would have made, however they came, are saved and go on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of, definition_of
from streammetrics.collect.metric_like import columns_of, states_of, with_states
from streammetrics.laws import Case, run
from streammetrics.laws.case import expect_same_bytes
from streammetrics.laws.objects import (
    absent_class,
    bytes_round_trip,
    copy_is_independent,
    empty_is_identity,
    failed_merge_changes_nothing,
    failed_update_changes_nothing,
    merge_associates,
    merge_commutes,
    merge_leaves_other,
    merge_with_itself,
    reading_changes_nothing,
    reset_is_fresh,
)

COLUMNS = ("y_true", "y_score", "sample_weight", "group", "g", "value", "u")
SUBJECTS = {
    "metric": lambda: sm.AUC(),
    "collection": lambda: sm.MetricCollection(sm.LogLoss(), sm.Task([sm.Sum()], value="y_score"), sm.Precision()),
    "groups": lambda: sm.GroupAUC(),
    "slices": lambda: sm.Sliced(sm.CTR(), by="g", limit=2),
    "registers": lambda: sm.DistinctCount(),
    "extremes": lambda: sm.Max(),
    "keys": lambda: sm.HeavyHitters(2),
    "shards": lambda: sm.Sharded(sm.CTR(), unit="u", shards=8),
}
SIZES = [{"steps": 1}, {"steps": 5}, {"rows": 1}, {"rows": 17}]


def batches(seed: int, count: int, columns: dict[str, bool]):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(0, 6))
        drawn = {
            "y_true": rng.integers(0, 2, n), "y_score": rng.random(n), "sample_weight": rng.integers(0, 3, n) / 2,
            "group": rng.integers(0, 3, n), "g": rng.integers(0, 4, n), "value": rng.integers(0, 9, n),
            "u": rng.integers(0, 20, n),
        }  # fmt: skip
        yield {name: column for name, column in drawn.items() if name in columns}


def last(log: list[dict[str, np.ndarray]], steps: int | None = None, rows: int | None = None):
    some = [b for b in log if len(next(iter(b.values())))][-(steps or 0) :]
    joined = {name: np.concatenate([b[name] for b in some]) for name in some[0]} if some else None
    return {name: c[-rows:] for name, c in joined.items()} if joined is not None and rows is not None else joined


def whole(recent):
    return with_states(recent.inner, definition_of(recent).pool_states(states_of(recent)))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)
def test_it_is_what_the_last_alone_would_have_made(make, size) -> None:
    recent, log = sm.Recent(make(), **size), []
    for i, batch in enumerate(batches(3, 180, columns_of(recent))):
        recent.update(batch) if i % 3 else recent.update(**batch)
        log.append(batch)
        if i in (60, 100):
            recent = sm.from_bytes(recent.to_bytes())
        if i in (0, 1, 4, 59, 61, 99, 120) or i > 175:
            rows = last(log, **size)
            expected = make() if rows is None else make().update(rows)
            expect_same_bytes(expected, whole(recent), "the last alone")
    assert len(accumulator_of(recent).updater.states[0]) <= 2 * recent.size + 70


def test_reading_is_that_of_what_it_holds() -> None:
    recent, alone = sm.Recent([sm.CTR(), sm.AUC()], steps=2), sm.MetricCollection(sm.CTR(), sm.AUC())
    y, p = np.array([0, 1, 0, 1]), np.array([0.1, 0.3, 0.4, 0.35])
    recent.update(1 - y, p).update(y, p).update(y[:2], p[:2])
    alone.update(np.r_[y, y[:2]], np.r_[p, p[:2]])
    assert recent.compute() == alone.compute()
    assert recent.bounds() == alone.bounds()
    assert recent.explain() == alone.explain()
    assert recent.interval() == alone.interval()
    assert sm.flat(recent) == sm.flat(alone)
    assert repr(recent.table()) == repr(alone.table())
    assert repr(recent).startswith("Recent(ctr, auc; 2 of the last 2 steps)")
    assert recent.name.endswith("of the last 2 steps")
    assert [s.name for s in definition_of(recent).samples(states_of(recent))] == ["ctr", "auc"]


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["metric", "collection", "slices"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_laws_of_objects_that_know_no_order(subject: str, size) -> None:
    make = lambda: sm.Recent(SUBJECTS[subject](), **size)  # noqa: E731 - a case takes what makes it
    columns = next(b for b in batches(5, 99, columns_of(make())) if len(b["y_true"]) > 4)
    case = Case(make, columns, np.random.default_rng(0), {"y_true": 2, "sample_weight": -1.0})
    laws = [reset_is_fresh, bytes_round_trip, reading_changes_nothing, merge_with_itself,
            empty_is_identity, failed_update_changes_nothing, failed_merge_changes_nothing]  # fmt: skip
    if "steps" in size:
        laws += [merge_commutes, merge_associates, merge_leaves_other, copy_is_independent, absent_class]
    for law in laws:
        run(law, case)


def test_steps_of_workers_are_added_up() -> None:
    a, b = sm.Recent(sm.Sum(), steps=2), sm.Recent(sm.Sum(), steps=2)
    for i in range(5):
        a.update([i])
        b.update([10 * i])
    assert sm.merge([a, b.to_bytes()]).compute() == 3 + 4 + 30 + 40
    assert a.merge(b).update([100]).compute() == 4 + 40 + 100


def test_rows_of_two_streams_do_not_merge() -> None:
    a, b = (sm.Recent(sm.Mean(), rows=3).update([i]) for i in (1, 2))
    for merge in (lambda: a.merge(b), lambda: sm.merge([a.to_bytes(), b.to_bytes()])):
        with pytest.raises(sm.IncompatibleStateError, match="rows of two streams have no common order"):
            merge()
    assert a.merge(sm.Recent(sm.Mean(), rows=3)).compute() == 1.0
    with pytest.raises(sm.IncompatibleStateError, match="steps is 3 here and None there"):
        sm.Recent(sm.Mean(), steps=3).merge(a)
    with pytest.raises(sm.IncompatibleStateError, match="rows is 3 here and 4 there"):
        a.merge(sm.Recent(sm.Mean(), rows=4))


def test_rows_that_are_left_out_are_among_the_last() -> None:
    recent = sm.Recent(sm.Mean(), rows=3, on_invalid="drop").update([1.0, 2.0]).update([np.nan, 3.0])
    assert recent.compute() == 2.5
    assert recent.explain()["dropped"] == {"value": 1}
    steps = sm.Recent(sm.Mean(), steps=2, on_invalid="drop").update([1.0]).update([2.0]).update([np.nan])
    assert steps.compute() == sm.from_bytes(steps.to_bytes()).compute() == 2.0
    assert sm.from_bytes(steps.to_bytes()).update([4.0]).compute() == steps.copy().update([4.0]).compute() == 4.0


def test_a_batch_that_is_refused_is_no_update() -> None:
    recent = sm.Recent(sm.Mean(), steps=1).update([1.0])
    with pytest.raises(sm.InvalidInputError, match="between"):
        recent.update([np.inf])
    with pytest.raises(TypeError, match="unknown column 'valu'"):
        recent.update(valu=[1.0])
    with pytest.raises(TypeError, match="a table or columns, not both"):
        recent.update({"value": [1.0]}, sample_weight=[1.0])
    assert recent.update([]).compute() == 1.0
    assert columns_of(recent) == {"value": True, "sample_weight": False}


@pytest.mark.parametrize("kind", ["steps", "rows"])
def test_a_batch_that_is_counted_before_memory_ends_is_an_update(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after it goes on behind it."""
    table = {"y_true": np.array([0, 1, 1])}
    recent, whole = (sm.Recent(sm.CTR(), **{kind: 4}).update(table) for _ in range(2))
    feed = accumulator_of(recent).updater
    real = feed.count_batch

    def count(batch: Any) -> None:
        real(batch)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(feed, "count_batch", count)
        with pytest.raises(MemoryError):
            recent.update(table)
    assert recent.update(table).to_bytes() == whole.update(table).update(table).to_bytes()


def test_threads_may_update_it() -> None:
    recent = sm.Recent(sm.Count(), steps=30)
    threads = [threading.Thread(target=lambda: [recent.update([1.0, 2.0]) for _ in range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (recent.compute(), len(recent)) == (60.0, 30)


def test_what_it_refuses() -> None:
    for given in ({}, {"steps": 1, "rows": 1}):
        with pytest.raises(TypeError, match=r"Recent: expected steps= .* or rows="):
            sm.Recent(sm.Mean(), **given)
    for given in ({"steps": 0}, {"rows": 1.5}, {"rows": True}):
        with pytest.raises(ValueError, match="must be a whole number from 1"):
            sm.Recent(sm.Mean(), **given)
    with pytest.raises(TypeError, match="a metric reads all rows of the same query together"):
        sm.Recent(sm.NDCG(), rows=5)
    assert sm.Recent(sm.NDCG(), steps=1).update(query=[1, 1], y_true=[0, 1], y_score=[0.1, 0.2]).compute() == 1.0
    for hold in (sm.MetricCollection, lambda m: sm.Sliced(m, by="g"), lambda m: sm.Decayed(m, half_life=2), sm.Delta):
        with pytest.raises(TypeError, match="Recent"):
            hold(sm.Recent(sm.Mean(), steps=1))


def test_columns_that_nobody_reads_have_any_length():
    recent = sm.Recent(sm.CTR(), steps=1)
    recent.update({"x": [], "y_true": [1, 1]}).update({"x": [], "y_true": [0, 0]})
    assert recent.compute() == 0.0
    recent = sm.Recent(sm.CTR(), steps=2).update([1]).update({"x": [1], "y_true": []}).update([0])
    assert recent.compute() == 0.5  # an empty batch is none
    assert sm.Recent(sm.CTR(), rows=2).update({"x": [5], "y_true": [1, 1, 0]}).compute() == 0.5
