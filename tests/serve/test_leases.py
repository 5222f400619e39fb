"""Servers that share a store divide its experiments; a server whose lease was taken while it was paused writes nothing."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from streammetrics.serve.evaluation import board as module
from streammetrics.serve.evaluation.board import Board
from streammetrics.serve.evaluation.experiment_reader import ExperimentReader
from streammetrics.serve.experiment_simulation import Simulation
from streammetrics.serve.part_keys import HOUR, PartKey, PostedPart
from streammetrics.serve.store import LeaseLostError, Store, StoreDownError, open_store

SMALL = Simulation(days=2, users=100, rows=20, countries=1, sources=("web",))
NAMES = [f"e{i}" for i in range(12)]


@pytest.fixture
def shared(postgres: Any) -> Iterator[tuple[Store, Store]]:
    """Two servers' stores on one database."""
    url = postgres.fresh()
    with ExitStack() as opened:
        yield opened.enter_context(open_store(url)), opened.enter_context(open_store(url))


def define(store: Store, *names: str) -> None:
    for name in names:
        store.define(name, json.dumps(SMALL.definition() | {"id": name}), by="test", at=0.0)


def put(store: Store, name: str, hour: int) -> None:
    part = SMALL.part("web", hour)
    store.put([PostedPart(PartKey(name, "web", hour), part.to_bytes(), part.digest(), (hour + 1.0) * HOUR)])


def test_one_server_holds_all(store: Store) -> None:
    define(store, *NAMES)
    held = store.hold_leases("one", 60.0)
    assert sorted(held) == sorted(NAMES)
    assert store.hold_leases("one", 60.0) == held
    assert {s.evaluated_at for s in store.statuses().values()} == {None}
    put(store, "e3", SMALL.start)
    store.save_evaluation("e3", 7.0, "{}", fence=held["e3"])
    store.note_computing("e3", 8.0, held["e3"])
    assert store.statuses()["e3"] == (1, (1, 0), 7.0, 8.0)


def test_servers_divide_and_take_over(shared: tuple[Store, Store]) -> None:
    one, other = shared
    define(one, *NAMES)
    first = one.hold_leases("one", 60.0)
    assert other.hold_leases("other", 0.3) == {}  # it is known now, and gets its share when it is given back
    kept = one.hold_leases("one", 60.0)
    share = other.hold_leases("other", 0.3)
    assert 0 < len(share) < len(NAMES)
    assert sorted([*kept, *share]) == sorted(NAMES)
    assert {name: first[name] for name in kept} == kept
    assert all(share[name] == first[name] + 1 for name in share)
    name = min(share)
    with pytest.raises(LeaseLostError):
        one.save_evaluation(name, 1.0, "{}", "a look", fence=first[name])
    with pytest.raises(LeaseLostError):
        one.set_alert_state(name, "ratio", "bad", fence=first[name])
    assert (one.looks(name), one.alert_state(name), one.evaluation(name)) == ([], {}, None)
    time.sleep(0.4)  # the other has died
    assert sorted(one.hold_leases("one", 60.0)) == sorted(NAMES)
    with pytest.raises(LeaseLostError):
        other.save_evaluation(name, 2.0, "{}", "a look", fence=share[name])
    one.release_leases("one")
    assert sorted(other.hold_leases("other", 60.0)) == sorted(NAMES)


def test_a_killed_process_is_followed_at_once(url: str) -> None:
    """Only one server may use SQLite: whoever holds a lease there is gone."""
    if not url.startswith("sqlite"):
        pytest.skip("servers that share a database wait until a lease is over")
    with open_store(url) as store:
        define(store, "e")
        before = store.hold_leases("killed", 60.0)
        assert store.hold_leases("again", 60.0) == {"e": before["e"] + 1}
        with pytest.raises(LeaseLostError):
            store.save_evaluation("e", 1.0, "{}", fence=before["e"])


class Paused(ExperimentReader):
    """A reader that stops in the middle of an evaluation."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.began, self.go_on = threading.Event(), threading.Event()

    def read(self, experiment: str, now: float) -> Any:
        reading = super().read(experiment, now)
        self.began.set()
        self.go_on.wait(60)
        return reading


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not there():
            await asyncio.sleep(0.01)


@pytest.mark.slow
def test_a_server_that_was_paused_past_its_lease_writes_nothing(
    shared: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows what the other server has found; parts that are posted at one server are evaluated by the other."""
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.05)
    monkeypatch.setattr(module, "LEASE_SECONDS", 3.0)
    one, other = shared
    define(one, "e")
    put(one, "e", SMALL.start)
    now = (SMALL.start + 1.5) * HOUR
    paused, away = Paused(one), threading.Event()
    hold_leases = one.hold_leases

    def hold_or_not(server: str, seconds: float) -> dict[str, int]:
        if away.is_set():
            raise StoreDownError("the process is paused")
        return hold_leases(server, seconds)

    monkeypatch.setattr(one, "hold_leases", hold_or_not)

    async def play() -> None:
        began = time.monotonic()

        def clock() -> float:
            return now + time.monotonic() - began

        async with Board(one, paused, every=0.01, clock=clock) as first:
            await until(paused.began.is_set)
            away.set()
            async with Board(other, ExperimentReader(other), every=0.01, clock=clock) as second:
                await until(lambda: second.evaluation("e").state == "running")
                looks = other.looks("e")
                assert len(looks) == 1
                paused.go_on.set()
                await asyncio.sleep(0.2)
                away.clear()
                await until(lambda: first.evaluation("e") == second.evaluation("e"))
                assert other.looks("e") == looks
                for hour in (1, 2):
                    put(one, "e", SMALL.start + hour)
                    first.mark_changed("e")
                    await until(lambda parts=hour + 1: {b.evaluation("e").parts for b in (first, second)} == {parts})

    asyncio.run(play())
