"""What processes say to each other, with threads for processes: no framework is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import with_states
from streammetrics.hooks import exchange
from streammetrics.hooks.deadline import Deadline
from streammetrics.hooks.deferred import Deferred
from streammetrics.hooks.exchange import format_ranks, merge_ranks, merge_saved
from streammetrics.hooks.lifetime import Lifetime
from tests.hooks import logs


class World:
    """Ranks that meet at a table."""

    def __init__(self, size: int) -> None:
        self.size, self.table = size, [b""] * size
        self.door = threading.Barrier(size, timeout=60)
        self.sent = [0] * size
        self.summed = 0

    def exchanged(self, rank: int, thing: Any) -> list[Any]:
        self.table[rank] = thing
        self.door.wait()
        found = list(self.table)
        self.door.wait()
        return found


class Seat:
    """A rank."""

    def __init__(self, world: World, rank: int, *, sums: bool) -> None:
        self.world, self.rank, self.size, self.sums = world, rank, world.size, sums

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> list[bytes]:
        self.world.sent[self.rank] += len(data)
        found = self.world.exchanged(self.rank, data)
        assert [len(f) for f in found] == list(lengths)
        return found

    def sum(self, numbers: Any) -> Any:
        self.world.summed += self.rank == 0
        return np.sum(self.world.exchanged(self.rank, numbers), axis=0)


def together(size: int, make: Callable[[int], Any], *, sums: bool = True) -> tuple[list[Any], World]:
    """Let every rank add up what it makes; return what each gets, or its error."""
    world, got = World(size), [None] * size

    def one(rank: int) -> None:
        try:
            got[rank] = merge_ranks(make(rank), Seat(world, rank, sums=sums))
        except Exception as error:  # noqa: BLE001 - it is what the rank got
            got[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=one, args=(r,)) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return got, world


@pytest.mark.parametrize("name", logs.THINGS)
@pytest.mark.parametrize("sums", [True, False])
def test_every_rank_has_what_one_pass_has(name: str, sums: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_is_dense_faster", lambda facts, ranks: facts.places > 0)
    parts = [logs.part(name, r, 4) for r in range(4)]
    before = [p.digest() for p in parts]
    got, world = together(4, parts.__getitem__, sums=sums)
    whole = logs.whole(name)
    assert [g.digest() for g in got] == [whole.digest()] * 4
    assert all(g == whole for g in got)
    assert [p.digest() for p in parts] == before
    assert world.summed == (sums and name in ("dense", "auc", "weighted", "bundle"))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "summed"), [(2, 0), (16, 1)])
def test_many_entries_of_many_ranks_are_summed(size: int, summed: int) -> None:
    got, world = together(size, lambda r: logs.part("dense", r, size))
    assert {g.digest() for g in got} == {logs.whole("dense").digest()}
    assert world.summed == summed


def test_totals_go_on_counting_each_for_itself() -> None:
    got, _ = together(2, lambda r: sm.CTR(on_invalid="drop").update(y_true=[r]))
    got[0].update(y_true=[1, 1, 2])
    assert got[0].compute() == 0.75
    assert got[1].compute() == 0.5
    assert got[0].explain()["dropped"] == {"y_true": 1}


def test_no_rank_has_rows() -> None:
    got, _ = together(3, lambda r: logs.sixteen())
    assert {g.digest() for g in got} == {logs.sixteen().digest()}


def test_deferred_metrics_are_merged_and_a_bad_step_is_told_to_all() -> None:
    got, _ = together(2, lambda r: Deferred(sm.CTR()).update([r]).update([1]))
    assert [(type(g), g.compute()) for g in got] == [(sm.CTR, 0.75)] * 2
    got, _ = together(2, lambda r: Deferred(sm.CTR()).update([2 * r]))
    assert isinstance(got[0], sm.SyncError)
    assert "rank 1: InvalidInputError: step 0" in str(got[0])
    assert isinstance(got[1], sm.InvalidInputError)


def test_windows_of_all_ranks_are_merged() -> None:
    parts = [Lifetime(sm.CTR(), window=4, panes=2).update([0]).update([r]).update([1]) for r in range(2)]
    got, _ = together(2, parts.__getitem__)
    assert [g.compute() for g in got] == [{"window_ctr": 0.5, "lifetime_ctr": 0.5}] * 2
    got, _ = together(2, lambda r: Lifetime(sm.CTR(), window=4 + 4 * r, panes=2))
    assert all("window is 4 on rank 0 and 8 on rank 1" in str(g) for g in got)


def test_saved_metrics_of_all_ranks_are_merged() -> None:
    parts = [sm.CTR().update([r]).to_bytes() for r in range(2)]
    assert merge_saved(parts).compute() == 0.5
    with pytest.raises(sm.IncompatibleStateError, match="rank 1 differs from rank 0: the metric of rank 1 is AUC"):
        merge_saved([parts[0], sm.AUC().to_bytes()])
    with pytest.raises(sm.StateFormatError):
        merge_saved([parts[0], b"nothing"])


def test_all_name_the_same_differences() -> None:
    kinds = [sm.AUC(), sm.AUC(), sm.AUC(bits=12), sm.CTR(), sm.AUC(bits=12), sm.AUC(bits=12)]
    got, _ = together(6, kinds.__getitem__)
    assert {type(g) for g in got} == {sm.IncompatibleStateError}
    assert len({str(g) for g in got}) == 1
    assert "ranks 2, 4, 5 differ from rank 0: bits is None on rank 0 and 12 on ranks 2, 4, 5" in str(got[0])
    assert "; rank 3 differs from rank 0: " in str(got[0])


def test_a_rank_that_fails_tells_the_others() -> None:
    class Late(sm.CTR):
        @property
        def _accumulator(self) -> Any:
            raise sm.InvalidInputError("y_true: step 7 was bad")

    got, _ = together(3, lambda r: Late() if r == 1 else sm.CTR())
    assert str(got[1]) == "y_true: step 7 was bad"
    for rank in (0, 2):
        assert isinstance(got[rank], sm.SyncError)
        assert "rank 1: InvalidInputError: y_true: step 7 was bad" in str(got[rank])


def test_more_rows_than_can_be_counted_raise_everywhere() -> None:
    got, _ = together(2, lambda r: with_states(sm.CTR(), [_many(sm.CTR().update(y_true=[0, 1]).state)]))
    assert {type(g) for g in got} <= {sm.CounterOverflowError, sm.StateFormatError}
    assert len({str(g) for g in got}) == 1


def _many(state: sm.extend.State) -> sm.extend.State:
    for _ in range(60):
        state = state.merge(state)
    return state


def test_errors_can_be_caught_by_what_they_are() -> None:
    assert issubclass(sm.SyncTimeoutError, TimeoutError)
    assert issubclass(sm.SyncTimeoutError, sm.SyncError)
    assert issubclass(sm.SyncError, sm.StreamMetricsError)


def test_ranks_are_spelled_shortly() -> None:
    assert format_ranks([3]) == "rank 3"
    assert format_ranks([0, 1, 3, 4, 5, 9]) == "ranks 0, 1, 3 to 5, 9"


def test_a_deadline() -> None:
    assert Deadline(timedelta(minutes=1)).seconds == 60
    assert Deadline(5).call(lambda: 7, "counting") == 7
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="timeout must be a positive number of seconds"):
            Deadline(bad)
    with pytest.raises(ZeroDivisionError):
        Deadline(5).call(lambda: 1 // 0, "dividing")
    never = threading.Event()
    with pytest.raises(sm.SyncTimeoutError, match=r"timed out after 0.05 s while waiting"):
        Deadline(0.05).call(never.wait, "waiting")
    never.set()
