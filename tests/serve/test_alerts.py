"""What is wrong is told once, also over restarts, slow and broken receivers; what is over is told once as well."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kept import Kept
from serve.webhook import webhook

from streammetrics.serve import alerts as module
from streammetrics.serve.alerts import Alerts, find_faults, post_json
from streammetrics.serve.evaluation.evaluation import Evaluation, MetricRow, RatioCheck, SourceStatus

HOOK = "http://hooks.example/secret"


def row(word: str = "breached", metric: str = "latency", role: str = "guardrail") -> MetricRow:
    return MetricRow("new", metric, role, "low", 0.02, 1.0, 1.1, 0.1, 0.05, 0.15, None, None, None, word, "", 100, {})


def source(name: str = "web", state: str = "fresh", conflicts: int = 0) -> SourceStatus:
    return SourceStatus(name, 10, 7200.0, 5, 0, [], conflicts, 100, {}, state)


def shown(
    at: float = 1000.0, rows: tuple[MetricRow, ...] = (), alarm: bool = False, sources: tuple[SourceStatus, ...] = ()
) -> Any:
    ratio = RatioCheck(1e9 if alarm else 1.0, alarm, "arms are not as planned", {}, {})
    return Evaluation("e", "E", 1, at, "running", table=list(rows), ratio=ratio, sources=list(sources))


class Post:
    """Takes what is sent, after having refused it so often."""

    def __init__(self, refuse: int = 0, wanted: int = 1) -> None:
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.refuse, self.wanted, self.tries = refuse, wanted, 0
        self.enough = threading.Event()

    def __call__(self, url: str, body: dict[str, Any]) -> None:
        self.tries += 1
        if self.tries <= self.refuse:
            raise OSError("nobody there")
        self.taken.append((url, body))
        if len(self.taken) >= self.wanted:
            self.enough.set()

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(body["alert"], body["state"]) for _, body in self.taken]


@contextmanager
def telling(store: Kept, send: Any) -> Iterator[Alerts]:
    alerts = Alerts(store, send=send, clock=lambda: 1000.0)
    alerts.start()
    for experiment in store.defined:
        alerts.take(experiment, 1)
    yield alerts
    alerts.stop()


@pytest.mark.parametrize(
    ("evaluation", "kinds"),
    [
        (shown(), []),
        (shown(rows=(row(),)), ["guardrail breached"]),
        (shown(rows=(row("held"), row("undecided"), row("worse", role="primary"))), []),
        (shown(alarm=True), ["sample ratio"]),
        (shown(sources=(source(state="silent"), source("app", "late"))), ["source silent"]),
        (shown(sources=(source(conflicts=2),)), ["conflict"]),
    ],
)
def test_what_is_wrong(evaluation: Evaluation, kinds: list[str]) -> None:
    assert [fault.alert for fault in find_faults(evaluation)] == kinds


def test_a_fault_is_told_once_when_it_begins_and_once_when_it_is_over() -> None:
    send = Post(wanted=2)
    with telling(Kept("e"), send) as alerts:
        for at in range(5):
            alerts.notify(shown(at=at, rows=(row(),)), [HOOK])
        for at in range(5, 9):
            alerts.notify(shown(at=at), [HOOK])
        assert send.enough.wait(5)
    assert send.said == [("guardrail breached", "begun"), ("guardrail breached", "over")]
    (_, begun), (_, over) = send.taken
    assert (begun["about"], begun["at"]) == ({"treatment": "new", "metric": "latency"}, 0)
    text = "E: latency of new breaches its guardrail with a change of +10.00%; it may become worse by at most 2%"
    assert begun["text"] == text
    assert (over["since"], over["at"]) == (0, 5)
    assert over["id"] != begun["id"]


def test_what_comes_back_is_told_again() -> None:
    send = Post(wanted=3)
    with telling(Kept("e"), send) as alerts:
        for faulty in (True, False, True):
            alerts.notify(shown(alarm=faulty), [HOOK])
        assert send.enough.wait(5)
    assert [state for _, state in send.said] == ["begun", "over", "begun"]
    assert len({body["id"] for _, body in send.taken}) == 3


def test_a_restart_tells_nothing_twice() -> None:
    store = Kept("e")
    for send, faulty in ((Post(), True), (Post(), False)):
        with telling(store, send) as alerts:
            alerts.notify(shown(alarm=True), [HOOK])
            if not faulty:
                alerts.notify(shown(alarm=False), [HOOK])
            assert send.enough.wait(5)
        assert send.said == [("sample ratio", "begun" if faulty else "over")]


def test_a_restart_forgets_nothing_that_nobody_took() -> None:
    store, deaf, send = Kept("e"), Post(refuse=100), Post()
    with telling(store, deaf) as alerts:
        alerts.notify(shown(alarm=True), [HOOK])
    with telling(store, send):
        assert send.enough.wait(5)
    assert send.said == [("sample ratio", "begun")]
    assert not deaf.taken


def test_what_is_refused_is_tried_again_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT", 0.01)
    send = Post(refuse=3, wanted=2)
    with telling(Kept("e"), send) as alerts:
        alerts.notify(shown(alarm=True, rows=(row(),)), [HOOK])
        assert send.enough.wait(5)
    assert sorted(send.said) == [("guardrail breached", "begun"), ("sample ratio", "begun")]
    assert send.tries == 5


def test_a_broken_receiver_does_not_hold_up_another() -> None:
    taken = threading.Event()

    def send(url: str, _: Any) -> None:
        if url == HOOK:
            raise OSError
        taken.set()

    with telling(Kept("e"), send) as alerts:
        alerts.notify(shown(alarm=True), [HOOK, "http://other.example"])
        assert taken.wait(5)


def test_telling_waits_for_nobody() -> None:
    hold, began = threading.Event(), threading.Event()

    def send(*_: Any) -> None:
        began.set()
        hold.wait(5)

    with telling(Kept("e"), send) as alerts:
        alerts.notify(shown(alarm=True), [HOOK])
        assert began.wait(5)
        alerts.notify(shown(alarm=False), [HOOK])  # while one hangs
        assert not hold.is_set()
        hold.set()


def test_what_nobody_takes_is_bounded() -> None:
    store = Kept("e")
    with telling(store, Post(refuse=10**9)) as alerts:
        for i in range(100):
            alerts.notify(shown(alarm=i % 2 == 0), [HOOK])
    (state,) = store.alerts["e"].values()
    assert len(json.loads(state)["pending"]) == module.MAX_PENDING


def test_after_a_day_it_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    store, send = Kept("e"), Post(refuse=1)
    with telling(store, send) as alerts:
        alerts.notify(shown(at=1000.0 - 2 * module.MAX_AGE, alarm=True), [HOOK])
        wait_for(lambda: send.tries == 1 and not json.loads(*store.alerts["e"].values())["pending"])
    assert "dropped" in caplog.text
    assert "secret" not in caplog.text


def wait_for(there: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(500):
        if there():
            return
        tick.wait(0.01)
    raise AssertionError("it did not come")


# -- over HTTP ----------------------------------------------------------------------------------------------------------


@contextmanager
def receiver(status: int, location: str = "") -> Iterator[tuple[str, list[Any]]]:
    taken: list[Any] = []
    with webhook(lambda *posted: taken.append(posted), status, location) as url:
        yield url, taken


def test_it_is_json_by_post() -> None:
    with receiver(204) as (url, taken):
        post_json(f"{url}/hook", {"alert": "conflict"})
    assert taken == [("/hook", "application/json", {"alert": "conflict"})]


@pytest.mark.parametrize("status", [302, 307, 400, 500])
def test_anything_but_yes_is_no_and_nothing_goes_elsewhere(status: int) -> None:
    with receiver(200) as (elsewhere, strayed), receiver(status, elsewhere) as (url, taken):
        with pytest.raises(OSError, match=str(status)):
            post_json(url, {"alert": "conflict"})
        assert len(taken) == 1
    assert not strayed


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_only_http_is_posted_to(url: str) -> None:
    with pytest.raises((OSError, ValueError)):
        post_json(url, {})
