"""However many look and however often parts come, an experiment is read as seldom as said, off the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from kept import Kept

from streammetrics.serve.evaluation import board as module
from streammetrics.serve.evaluation.board import Board
from streammetrics.serve.evaluation.evaluate import build_looks
from streammetrics.serve.evaluation.evaluation import Evaluation, MetricRow, SourceStatus, TreatmentVerdict
from streammetrics.serve.evaluation.experiment_reader import ExperimentReading
from streammetrics.serve.evaluation.look_history import decode_looks, encode_looks

HOUR = 3600.0


class Readings:
    """Reads an experiment, counting, and failing where it is told to."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}
        self.decision = "keep running"
        self.broken: set[str] = set()
        self.threads: set[int] = set()
        self.hold = threading.Event()
        self.hold.set()
        self.tidied: list[str] = []
        self.closed = self.hurried = 0
        self.position: tuple[int, int] = (0, 0)
        self.due: float | None = None
        self.sources: list[SourceStatus] = []

    def start(self) -> None:
        self.hold.wait(10)

    def read(self, experiment: str, now: float) -> ExperimentReading:
        self.threads.add(threading.get_ident())
        self.hold.wait(10)
        self.count[experiment] = self.count.get(experiment, 0) + 1
        if experiment in self.broken:
            raise ValueError("the frame of hour 7 is broken")
        row = MetricRow(
            "new", "ctr", "primary", "high", None, 1.0, 1.1, 0.1, 0.0, 0.2, None, None, None, "better", "", 9, {}
        )
        told = TreatmentVerdict("new", self.decision, "a sentence")
        parts = self.count[experiment]
        return ExperimentReading(
            Evaluation(
                experiment,
                experiment,
                1,
                now,
                "running",
                parts=parts,
                verdicts=[told],
                table=[row],
                users=50.0,
                sources=self.sources,
                position=self.position,
                due=self.due,
            )
        )

    def compact(self, experiment: str, now: float) -> None:
        self.tidied.append(experiment)

    def total(self, experiment: str) -> bytes | None:
        return None

    def end_after(self, seconds: float) -> None:
        self.hurried += 1

    def close(self) -> None:
        self.closed += 1


class Silent:
    """Alerts to nobody."""

    def __init__(self) -> None:
        self.told: list[Evaluation] = []

    def start(self) -> None: ...

    def take(self, experiment: str, fence: int) -> None: ...

    def drop(self, experiment: str) -> None: ...

    def stop(self) -> None: ...

    def notify(self, found: Evaluation, webhooks: Any) -> None:
        self.told.append(found)


class Scene:
    """A board with what it needs, and a clock that stands."""

    def __init__(self, *experiments: str, every: float = 0.01, store: Kept | None = None) -> None:
        self.store = store or Kept(*experiments)
        self.readings, self.alerts, self.now = Readings(), Silent(), 1000 * HOUR
        told: Any = self.alerts
        self.board = Board(
            self.store,  # type: ignore[arg-type]
            self.readings,
            every=every,
            clock=lambda: self.now,
            alerts=told,
        )

    async def next(self, experiment: str, change: bool = True) -> Evaluation:
        """The next evaluation after a change."""
        news = self.board.subscribe(experiment)
        waiting = asyncio.ensure_future(anext(news))
        await asyncio.sleep(0)
        if change:
            self.board.mark_changed(experiment)
        found = await asyncio.wait_for(waiting, 60)
        await news.aclose()
        return found


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(120):
            await play()

    asyncio.run(whole())


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not there():
            await asyncio.sleep(0.005)


def test_a_change_is_read_in_another_thread_and_shown() -> None:
    scene = Scene("e")

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: scene.readings.count.get("e") == 1)
            found = await scene.next("e")
            assert found.parts >= 2
            assert board.evaluation("e") is found
            assert board.evaluations() == [found]

    run(play)
    assert threading.get_ident() not in scene.readings.threads
    assert len(scene.readings.threads) == 1


def test_a_thousand_changes_and_fifty_pages_are_one_reading() -> None:
    scene = Scene("e", every=0.3)

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: scene.readings.count.get("e") == 1)
            pages = [asyncio.ensure_future(anext(board.subscribe("e"))) for _ in range(50)]
            await asyncio.sleep(0)
            for _ in range(1000):
                board.mark_changed("e")
            found = await asyncio.gather(*pages)
            assert len({id(one) for one in found}) == 1
            assert found[0].parts == 2

    run(play)
    assert scene.readings.count == {"e": 2}


def test_parts_that_come_all_the_time_are_read_now_and_then() -> None:
    scene = Scene("e", every=0.2)

    async def play() -> None:
        async with scene.board as board:
            for _ in range(100):
                board.mark_changed("e")
                await asyncio.sleep(0.005)

    began = time.monotonic()
    run(play)
    assert 2 <= scene.readings.count["e"] <= 2 + (time.monotonic() - began) / 0.2


def test_the_event_loop_goes_on_while_one_is_read() -> None:
    scene = Scene("e")

    async def play() -> None:
        scene.readings.hold.clear()
        async with scene.board as board:
            await until(lambda: bool(scene.readings.threads))
            assert board.evaluation("e") == Evaluation("e", "E", 1, scene.now, "no data")  # at once
            scene.readings.hold.set()
            await until(lambda: board.evaluation("e").state == "running")

    run(play)


def test_who_is_slow_gets_the_last_one_alone() -> None:
    scene = Scene("e")

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: scene.readings.count.get("e") == 1)
            slow = board.subscribe("e")
            first = asyncio.ensure_future(anext(slow))
            await asyncio.sleep(0)
            await scene.next("e")
            held = await first
            for _ in range(5):
                last = await scene.next("e")
            assert await anext(slow) is last
            assert last.parts >= held.parts + 5
            await slow.aclose()

    run(play)


def test_what_is_newer_than_the_page_comes_at_once() -> None:
    scene = Scene("e")

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: board.evaluation("e").state == "running")
            async with asyncio.timeout(60):
                found = await anext(board.subscribe("e", since=scene.now - 1))
            assert found is board.evaluation("e")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(board.subscribe("e", since=scene.now)), 0.05)

    run(play)


def test_who_goes_leaves_nothing_behind() -> None:
    scene = Scene("e")

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: scene.readings.count.get("e") == 1)
            pages = [asyncio.ensure_future(anext(board.subscribe("e"))) for _ in range(100)]
            await asyncio.sleep(0)
            assert len(board._entries["e"].next_evaluation._waiters) == 100  # type: ignore[attr-defined]
            for page in pages:
                page.cancel()
            await asyncio.gather(*pages, return_exceptions=True)
            assert not board._entries["e"].next_evaluation._waiters  # type: ignore[attr-defined]

    run(play)


def test_nobody_waits_for_an_experiment_that_is_not_there() -> None:
    scene = Scene("e")

    async def play() -> None:
        async with scene.board as board:
            assert [one async for one in board.subscribe("other")] == []
            assert board.evaluation("other") is None
            assert set(board._entries) == {"e"}

    run(play)


def test_a_fault_of_one_is_said_and_stops_no_other() -> None:
    scene = Scene("e", "f")

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: all(one.state == "running" for one in board.evaluations()))
            scene.readings.broken = {"e"}
            before = board.evaluation("e")
            found = await scene.next("e")
            assert before is not None
            assert before.at < found.at < before.at + 1e-6  # open pages take it
            assert found.withheld == "reading the data has failed since 1970-02-11T16: the frame of hour 7 is broken"
            assert [(t.decision, t.treatment) for t in found.verdicts] == [("withheld", "new")]
            assert found.table  # the figures of before
            assert (await scene.next("f")).withheld == ""
            scene.readings.broken = set()
            assert (await scene.next("e")).withheld == ""

    run(play)
    assert not [one for one in scene.alerts.told if one.withheld]  # a fault of ours is none of the experiment


def test_a_fault_from_the_beginning_is_shown_as_well() -> None:
    scene = Scene("e")
    scene.readings.broken = {"e"}

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: bool(board.evaluation("e").withheld))
            assert board.evaluation("e").state == "no data"

    run(play)
    assert scene.store.shown == {}


def test_what_was_shown_is_there_after_a_restart_before_anything_is_read() -> None:
    scene = Scene("e")

    async def first() -> None:
        async with scene.board:
            await until(lambda: scene.readings.count.get("e") == 1)
            scene.now += 1
            await scene.next("e")

    run(first)
    again = Scene(store=scene.store)
    again.readings.hold.clear()
    assert again.board.evaluation("e") == scene.board.evaluation("e")

    async def second() -> None:
        async with again.board as board:
            assert board.evaluation("e") == scene.board.evaluation("e")
            again.readings.hold.set()

    run(second)


def test_a_look_is_kept_when_the_verdict_or_the_hour_changes() -> None:
    scene = Scene("e")

    async def play() -> None:
        async with scene.board:
            await until(lambda: scene.readings.count.get("e") == 1)
            await scene.next("e")  # the same
            scene.readings.decision = "ship"
            await scene.next("e")
            await scene.next("e")  # the same
            scene.now += HOUR
            await scene.next("e")

    run(play)
    again = Scene(store=scene.store)  # and a restart adds none
    again.now, again.readings.decision = scene.now, "ship"

    async def restarted() -> None:
        async with again.board:
            await again.next("e")

    run(restarted)
    looks = [look for _, text in scene.store.looks("e") for look in decode_looks(text)]
    assert [(look.at / HOUR, look.decision) for look in looks] == [
        (1000, "keep running"),
        (1000, "ship"),
        (1001, "ship"),
    ]
    assert looks[0][3:7] == (0.1, 0.0, 0.2, 50.0)


def test_looks_go_through_json() -> None:
    found = Readings().read("e", 7.0).evaluation
    assert decode_looks(encode_looks(build_looks(found))) == build_looks(found)
    assert build_looks(replace(found, table=[]))[0][3:7] == (None, None, None, 50.0)


def test_a_store_that_is_away_stops_no_page() -> None:
    scene = Scene("e")

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: scene.readings.count.get("e") == 1)
            scene.store.away = True
            scene.readings.decision = "ship"
            found = await scene.next("e")
            assert found.verdicts[0].decision == "ship"
            scene.store.away = False
            await scene.next("e")
            assert len(scene.store.looks("e")) == 2  # it was kept the next time
            assert board.evaluation("e").withheld == ""

    run(play)


def test_only_news_and_deadlines_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.005)
    scene = Scene("e")
    scene.readings.due = scene.now + 600.0

    async def play() -> None:
        async with scene.board:
            await until(lambda: scene.readings.count.get("e") == 1)
            await asyncio.sleep(0.2)
            scene.now += 599.0
            await asyncio.sleep(0.1)
            assert scene.readings.count == {"e": 1}
            scene.readings.due, scene.now = None, scene.now + 2.0  # a deadline passed
            await until(lambda: scene.readings.count["e"] == 2)
            scene.readings.position = scene.store.position = (1, 0)  # another server stored a part
            await until(lambda: scene.readings.count["e"] == 3)
            scene.store.defined["late"] = scene.store.defined["e"]  # by another server
            await until(lambda: scene.readings.count.get("late", 0) >= 1)
            await asyncio.sleep(0.1)
            assert scene.readings.count == {"e": 3, "late": 1}

    run(play)
    again = Scene(store=scene.store)

    async def restarted() -> None:
        async with again.board as board:
            await asyncio.sleep(0.1)
            assert board.evaluation("e").parts == 3
            assert again.readings.count == {}  # what is stored is still so

    run(restarted)


def test_the_delay_of_a_late_source_is_shown_without_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.005)
    scene = Scene("e")
    scene.readings.sources = [SourceStatus("web", 10, 600.0, 5, 0, [], 0, 100, {}, "late")]

    async def play() -> None:
        async with scene.board as board:
            await until(lambda: scene.readings.count.get("e") == 1)
            scene.now += 90.0
            await until(lambda: board.evaluation("e").at == scene.now)
            assert board.evaluation("e").sources[0].behind == 690.0
            assert scene.readings.count == {"e": 1}

    run(play)


def test_it_says_since_when_it_is_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.005)
    scene = Scene("e")
    scene.readings.hold.clear()

    async def play() -> None:
        async with scene.board as board:
            scene.readings.hold.set()
            await until(lambda: scene.readings.count.get("e") == 1)
            scene.readings.hold.clear()
            board.mark_changed("e")
            await until(lambda: board.computing_since("e") == scene.now)
            scene.now += 1.0
            await until(lambda: scene.store.computing == {"e": scene.now - 1.0})  # other servers say so as well
            scene.readings.hold.set()
            await until(lambda: board.computing_since("e") is None)
            await until(lambda: scene.store.computing == {})

    run(play)


def test_stopping_lets_everybody_go() -> None:
    scene = Scene("e")

    async def play() -> None:
        await scene.board.start()
        await until(lambda: scene.readings.count.get("e") == 1)
        pages = [asyncio.ensure_future(anext(scene.board.subscribe("e"), None)) for _ in range(5)]
        await asyncio.sleep(0)
        await scene.board.stop()
        assert await asyncio.gather(*pages) == [None] * 5
        scene.board.mark_changed("e")  # too late, and no harm
        await scene.board.stop()

    run(play)
    assert not [t for t in threading.enumerate() if t.name.startswith("streammetrics-board")]


def test_what_is_read_when_it_stops_has_some_seconds_and_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene("e")

    async def play() -> None:
        board = scene.board
        await board.start()
        await until(lambda: scene.readings.count.get("e") == 1)
        scene.readings.hold.clear()
        scene.readings.broken.add("e")
        board.mark_changed("e")
        await until(lambda: len(scene.readings.threads) > 0 and not scene.readings.hold.is_set())
        await asyncio.sleep(0.1)
        stopping = asyncio.ensure_future(board.stop())
        await until(lambda: scene.readings.hurried == 1)
        scene.readings.hold.set()  # as if the process that reads had been ended
        await asyncio.wait_for(stopping, 5)

    run(play)
    assert (scene.readings.hurried, scene.readings.closed) == (1, 1)
    assert "cannot be evaluated" not in caplog.text


def test_merging_that_a_stop_interrupts_is_no_fault(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, begun, ended = Scene("e"), threading.Event(), threading.Event()

    def compact(experiment: str, now: float) -> None:
        begun.set()
        ended.wait(10)
        raise ValueError("the process that reads has ended")

    async def play() -> None:
        await scene.board.start()
        await until(begun.is_set)
        stopping = asyncio.ensure_future(scene.board.stop())
        await until(lambda: scene.readings.hurried == 1)
        ended.set()
        await asyncio.wait_for(stopping, 5)

    monkeypatch.setattr(scene.readings, "compact", compact)
    run(play)
    assert "could not be merged" not in caplog.text
