"""Exact rows of many cells: the same states as those of one cell each, however the rows come, and no more memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import faults
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of
from streammetrics.collect.metric_like import merge_and_consume, states_of
from streammetrics.count import cell_rows, folding, page_allocator
from streammetrics.errors import InvalidInputError
from streammetrics.state import fold

METRICS: dict[str, Callable[[], Any]] = {
    "probabilities": lambda: sm.AUC(limit=60),
    "few buckets": lambda: sm.AUC(bits=8, limit=60),
    "all rows": lambda: sm.AUC(bits=None),
    "real": lambda: sm.AUC(scale="real", bits=10, limit=60),
    "labels": lambda: sm.AUC(num_labels=3, limit=60),
    "pairs": lambda: sm.SpearmanCorrelation(limit=60),
}
ROWS = 1_000


def log(name: str, *, weighted: bool, rows: int = ROWS, seed: int = 5) -> dict[str, Any]:
    """Slices of very different sizes; many scores are equal."""
    rng = np.random.default_rng(seed)
    scores, labels = np.round(rng.random(rows) ** 2, 3), rng.integers(0, 2, rows).astype(np.uint8)
    # The scores of one slice are in a narrow range.
    k = np.minimum(rng.zipf(1.3, rows), 40) * 7 % 41
    scores[k == 14] = 0.7 + scores[k == 14] / 1000
    columns = {"y_true": labels, "y_score": scores}
    if name == "labels":
        columns = {"y_true": rng.integers(0, 2, (rows, 3)), "y_score": np.round(rng.random((rows, 3)), 2)}
    if name == "pairs":
        columns = {"y_true": np.round(scores, 1), "y_pred": np.round(scores + rng.random(rows), 1)}
    columns |= {"sample_weight": rng.integers(0, 1 << 10, rows) / 16} if weighted else {}
    return columns | {"k": k}


def cut(columns: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    return {name: column[first:last] for name, column in columns.items()}


def sliced(name: str) -> sm.Sliced:
    return sm.Sliced(METRICS[name](), by="k")


def feed(thing: Any, columns: dict[str, Any], size: int, *, reads: bool = False) -> Any:
    for first in range(0, len(columns["k"]), size):
        thing.update(cut(columns, first, first + size))
        if reads:
            thing.to_bytes()
    return thing


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are grouped, sorted and moved to buckets every few batches."""
    monkeypatch.setattr(cell_rows, "WAIT", 64)
    monkeypatch.setattr(cell_rows, "MANY_UNSORTED", 300)
    monkeypatch.setattr(cell_rows, "SHORT", 4)
    monkeypatch.setattr(folding, "FEWEST_ROWS", 10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_each_cell_is_that_of_its_rows_alone(name: str, weighted: bool, small: None) -> None:
    columns = log(name, weighted=weighted)
    made = feed(sliced(name), columns, 37)
    (state,) = states_of(made)
    for i, key in enumerate(np.unique(columns["k"]).tolist()):
        own = {n: column[columns["k"] == key] for n, column in columns.items() if n != "k"}
        (alone,) = states_of(METRICS[name]().update(own))
        assert state.read_cell(i) == alone
    for size in (1, 200):
        assert feed(sliced(name), cut(columns, 0, 300), size) == feed(sliced(name), cut(columns, 0, 300), 37)
    assert feed(sliced(name), columns, 90, reads=True) == made


@pytest.mark.parametrize("name", METRICS)
def test_weights_may_come_late(name: str, small: None) -> None:
    plain, weighted = log(name, weighted=False, rows=700), log(name, weighted=True, rows=700, seed=6)
    ones = plain | {"sample_weight": np.ones(700)}
    whole = feed(sliced(name), {n: np.concatenate([ones[n], c]) for n, c in weighted.items()}, 1400)
    assert feed(feed(sliced(name), plain, 50), weighted, 50) == whole
    assert feed(feed(sliced(name), weighted, 50), plain, 50, reads=True) == whole


def test_no_weights_remain_with_the_rows_of_other_cells(small: None) -> None:
    """The only rows with weights were read, and are then counted in buckets."""
    columns = log("probabilities", weighted=True, rows=100) | {"k": np.repeat([1, 2], [60, 40])}
    columns["sample_weight"][60:] = 1
    more = {n: np.tile(c[:60], 2) for n, c in columns.items()}
    thing = feed(sliced("probabilities"), columns, 50, reads=True).update(more)
    assert thing == feed(sliced("probabilities"), {n: np.concatenate([c, more[n]]) for n, c in columns.items()}, 220)


@pytest.mark.parametrize("name", METRICS)
def test_what_is_read_and_merged_goes_on(name: str, small: None) -> None:
    columns = log(name, weighted=True)
    whole = feed(sliced(name), columns, ROWS)
    half = feed(sliced(name), cut(columns, 0, 700), 50)
    assert feed(sm.from_bytes(half.to_bytes()), cut(columns, 700, ROWS), 33) == whole
    assert feed(half.merge(feed(sliced(name), cut(columns, 700, 850), 50)), cut(columns, 850, ROWS), 70) == whole


def fail(*_: Any, **__: Any) -> None:
    raise MemoryError


@pytest.mark.parametrize("name", METRICS)
def test_a_batch_that_fails_leaves_nothing(name: str, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have made a cell too large, and adds cells. It fails at a check of its rows, or when memory ends."""
    columns = log(name, weighted=False)
    thing, other = sliced(name), sliced(name)
    for first in range(0, ROWS, 100):
        rows = cut(columns, first, first + 100)
        large = {n: np.concatenate([c, *[c[-1:]] * 400]) for n, c in rows.items()}
        large["k"][400:] = np.arange(100) + 1000
        with pytest.raises(InvalidInputError, match="470"):
            thing.update(large | {"sample_weight": np.where(np.arange(500) == 470, -1.0, 1.0)})
        with monkeypatch.context() as without_memory:
            without_memory.setattr(cell_rows.LiveCellRows, "reserve", fail)
            with pytest.raises(MemoryError):
                thing.update(large)
        thing.update(rows)
        other.update(rows)
        if first % 300 == 0:
            assert thing == other
    assert thing == other


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("call", ["update", "read"])
@pytest.mark.parametrize("name", ["probabilities", "real", "labels", "pairs"])
def test_nothing_is_lost_or_counted_twice(name: str, call: str, error: type[BaseException], small: None) -> None:
    columns = log(name, weighted=True, rows=900)

    def start() -> Any:
        thing = feed(sliced(name), cut(columns, 0, 300), 60)
        thing.to_bytes()
        return feed(thing, cut(columns, 300, 600), 60)

    calls = {
        "update": lambda thing: lambda: feed(thing, cut(columns, 600, 750), 150),
        "read": lambda thing: thing.to_bytes,
    }
    before = start().to_bytes()
    after = feed(start(), cut(columns, 600, 750), 150).to_bytes()
    whole = feed(sliced(name), columns, 900).to_bytes()
    every = faults.At(None, error)
    every.run(calls[call](start()))
    for stop in faults.places(every.passed, 25):
        thing = start()
        faults.At(stop, error).run(calls[call](thing))
        seen = thing.to_bytes()
        assert seen in (before, after), f"place {stop} of {every.passed}"
        rest = 600 if seen == before else 750
        assert feed(thing, cut(columns, rest, 900), 50).to_bytes() == whole, f"place {stop} of {every.passed}"


def exact_rows(thing: Any) -> cell_rows.LiveCellRows:
    (counter,) = accumulator_of(thing).updater._content[1].counters
    assert isinstance(counter, folding.FoldingCounter)
    return counter._exact  # type: ignore[no-any-return]


def test_cells_fold_after_an_interrupted_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading leaves the rows in the order of the keys, which is not the order of the cells."""

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    rng, n = np.random.default_rng(2), 900
    columns = {"y_true": rng.integers(0, 2, n), "y_score": rng.random(n), "k": np.repeat([3, 1, 2], n // 3)}
    thing, whole = (sm.Sliced(sm.AUC(limit=400), by="k").update(columns) for _ in range(2))
    with monkeypatch.context() as interrupted:
        interrupted.setattr(cell_rows.LiveCellRows, "_build_union", fail)
        with pytest.raises(KeyboardInterrupt):
            thing.to_bytes()
    for one in (thing, whole):
        one.update(columns)
    assert thing.to_bytes() == whole.to_bytes()


def test_small_chunks_are_merged() -> None:
    rng, rows = np.random.default_rng(3), cell_rows.LiveCellRows(63)
    for _ in range(40):
        rows.reserve(100, 500, weighted=False)
        rows.high[:500], rows.low[:500], rows.used[0] = rng.integers(0, 100, 500), rng.integers(0, 9, 500), 500
        rows.group_buffer()
    assert len(rows.chunks) <= 9
    assert rows.consolidate().counts.sum() == 20_000


def test_the_size_can_be_read_without_the_lock() -> None:
    """It must not change the object, because another thread may replace the entries at the same time."""
    thing = feed(sliced("probabilities"), log("probabilities", weighted=False), 500)
    rows = exact_rows(thing)
    rows.group_buffer()
    rows._sort_all(np.arange(len(rows.row_counts)))
    known = rows._entries
    assert isinstance(known, cell_rows.MergedRuns)
    assert rows.nbytes > 0
    assert rows._entries is known


@pytest.mark.parametrize("weighted", [False, True])
def test_float32_scores_take_four_bytes(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(6), 400_000
    columns = {"y_true": rng.integers(0, 2, n), "y_score": rng.random(n, np.float32)}
    # One slice has too many rows in the end, when most of its rows are in chunks.
    columns["k"] = np.where(rng.random(n) < np.linspace(0.1, 0.3, n), 5, rng.integers(0, 5, n))
    columns |= {"sample_weight": rng.random(n)} if weighted else {}
    make = partial(sm.Sliced, sm.AUC(limit=70_000), by="k")
    monkeypatch.setattr(cell_rows, "NARROW_FROM", -1)
    thing = feed(make(), columns, 50_000)
    assert exact_rows(thing).chunks
    assert {chunk.low.dtype for chunk in exact_rows(thing).chunks if len(chunk.low)} == {np.dtype(np.uint32)}
    short = thing.to_bytes()
    monkeypatch.setattr(cell_rows, "narrow_codes", lambda codes: None)
    thing = feed(make(), columns, 50_000)
    assert {chunk.low.dtype for chunk in exact_rows(thing).chunks} == {np.dtype(np.uint64)}
    assert thing.to_bytes() == short


def test_rows_of_folded_cells_do_not_wait() -> None:
    rng = np.random.default_rng(1)
    thing = sm.Sliced(sm.AUC(limit=20_000), by="k")
    for _ in range(40):
        n = 20_000
        thing.update(rng.integers(0, 2, n), rng.random(n), k=rng.integers(0, 10, n))
    assert exact_rows(thing).count_rows().sum() == 0
    assert exact_rows(thing).nbytes < 8 << 20


def test_equal_rows_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted, they take no memory."""
    rng = np.random.default_rng(2)
    monkeypatch.setattr(cell_rows, "MANY_UNSORTED", 50_000)
    monkeypatch.setattr(cell_rows, "WAIT", 10_000)
    thing = sm.Sliced(sm.AUC(bits=None), by="k")
    for _ in range(60):
        n = 10_000
        thing.update(rng.integers(0, 2, n), np.round(rng.random(n), 2), k=rng.integers(0, 10, n))
    assert exact_rows(thing).nbytes < 2 << 20
    assert exact_rows(thing).count_rows().sum() == 600_000


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_parts_of_one_job_equal_one_object(name: str, weighted: bool) -> None:
    columns = log(name, weighted=weighted)
    # The parts know the slices in other orders, and have too many rows of some slices only together.
    parts = [feed(sliced(name), cut(columns, *ends), 60) for ends in ((0, 150), (150, 151), (151, 500), (500, ROWS))]
    merged = merge_and_consume([*parts, sliced(name)])
    assert merged is parts[0]
    assert merged.to_bytes() == feed(sliced(name), columns, ROWS).to_bytes()


def test_one_part_can_still_be_updated() -> None:
    """Folding replaces arrays to which the plan of the last batch writes."""
    rng, k = np.random.default_rng(4), np.arange(30) % 3
    batches = [{"y_true": rng.integers(0, 2, 30), "y_score": rng.random(30), "k": k} for _ in range(20)]
    thing, whole = sliced("probabilities"), sliced("probabilities")
    for i, batch in enumerate(batches):
        whole.update(**batch)
        thing.update(**batch)
        assert i != 9 or merge_and_consume([thing]) is thing
    assert thing.to_bytes() == whole.to_bytes()


def test_parts_do_not_sort_rows_that_are_too_many_together() -> None:
    k, rng = np.arange(200) % 2, np.random.default_rng(4)
    parts = [sliced("probabilities") for _ in range(2)]
    for part in parts:
        part.update(np.zeros(90), rng.random(90), k=k[:90])  # 45 rows of each slice, and the limit is 60
    parts[1].update(np.zeros(9), rng.random(9), k=np.full(9, 2))
    merge_and_consume(parts)
    (state,) = states_of(parts[1])
    assert state.rows_by_cell("exact").tolist() == [0, 0, 9]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["probabilities", "few buckets", "real", "labels"])
def test_rows_move_to_buckets_in_blocks(name: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = log(name, weighted=weighted)
    parts = [feed(sliced(name), cut(columns, *ends), ROWS) for ends in ((0, 300), (300, ROWS))]
    whole = feed(sliced(name), columns, ROWS)
    total = whole.total.to_bytes()
    monkeypatch.setattr(fold, "FOLD_BLOCK", 7)
    assert sm.merge(parts).to_bytes() == whole.to_bytes()
    assert feed(sliced(name), columns, ROWS).total.to_bytes() == total


def test_a_slice_may_appear_when_all_others_have_only_buckets() -> None:
    rng = np.random.default_rng(8)
    columns = {"y_true": rng.integers(0, 2, 900), "y_score": rng.random(900), "k": np.arange(900) % 3}
    columns["k"][600:] = [*[7] * 20, *[8] * 200, *[0] * 60, *[7] * 20]
    thing = feed(sliced("probabilities"), cut(columns, 0, 600), 100)
    assert accumulator_of(thing).updater._content[1].counters[0]._are_all_cells_folded
    assert feed(thing, cut(columns, 600, 900), 20).to_bytes() == feed(sliced("probabilities"), columns, 900).to_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_reading_takes_little_memory(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # tracemalloc does not see memory maps.
    monkeypatch.setattr(page_allocator, "MIN_MAPPED_BYTES", 1 << 62)
    rng = np.random.default_rng(3)

    def fill(n: int) -> sm.Sliced:
        thing = sm.Sliced(sm.AUC(limit=1 << 16), by="k")
        for _ in range(20):
            columns = {"y_true": rng.integers(0, 2, n), "y_score": rng.random(n), "k": rng.integers(0, 30, n)}
            thing.update(columns | ({"sample_weight": rng.random(n)} if weighted else {}))
        return thing

    states_of(fill(50))  # which loads the kernels
    tracemalloc.start()
    try:
        thing = fill(50_000)
        tracemalloc.reset_peak()
        (state,) = states_of(thing)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * state.nbytes
