"""Two workers push, the page moves by itself, the verdict turns, a guardrail is breached: all in a real browser."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from serve.running import running
from serve.webhook import webhook

import streammetrics as sm
from streammetrics.serve.api.auth import READER, issue_token
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.evaluation.evaluation import Evaluation
from streammetrics.serve.experiment_simulation import DAY, Simulation
from streammetrics.serve.part_keys import HOUR
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import Store, open_store

SIMULATED = Simulation(
    id="ranker", days=5, users=2500, rows=1000, countries=2, effect=1.0, effect_from=0.5, slow_from=2.5
)
STEP = 4  # hours of which only the last is posted: it is as good, and faster
WAIT = 60_000


@contextmanager
def receiver() -> Iterator[tuple[str, queue.Queue[dict[str, Any]]]]:
    """A webhook."""
    taken: queue.Queue[dict[str, Any]] = queue.Queue()
    with webhook(lambda path, kind, said: taken.put(said)) as url:
        yield f"{url}/hook", taken


@dataclass
class Site:
    """A server, and who talks to it."""

    url: str
    store: Store
    board: Any
    writer: str
    reader: str
    alerts: queue.Queue[dict[str, Any]]
    hour: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def clock(self) -> float:
        return (SIMULATED.start + self.hour) * HOUR + time.monotonic() - self.began  # it never stands

    @property
    def page(self) -> str:
        return f"{self.url}/experiments/{SIMULATED.id}"

    def push(self, until: float) -> None:
        """Let both workers post until a day is over."""
        hours = range(SIMULATED.start + self.hour + STEP - 1, SIMULATED.start + int(until * DAY), STEP)
        self.hour = int(until * DAY)
        failed: list[BaseException] = []

        def work(source: str) -> None:
            try:
                for hour in hours:
                    part = SIMULATED.part(source, hour)
                    said = sm.push(self.url, part, experiment=SIMULATED.id, source=source, hour=hour, token=self.writer)
                    assert said == "stored"
            except BaseException as error:
                failed.append(error)
                raise

        workers = [threading.Thread(target=work, args=(source,)) for source in SIMULATED.sources]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failed

    def wait_for(self, parts: int) -> None:
        """Wait until so many parts are in what is shown."""
        tick, until = threading.Event(), time.monotonic() + WAIT / 1000
        while self.shown.parts < parts:
            assert time.monotonic() < until, self.shown.parts
            tick.wait(0.05)

    @property
    def shown(self) -> Evaluation:
        found = self.board.evaluation(SIMULATED.id)
        assert found is not None
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with receiver() as (hook, alerts), open_store(tmp_path / "live.db") as store:
        sources = dict.fromkeys(SIMULATED.sources, 100.0)  # nobody is late here, and no day is complete
        definition = SIMULATED.definition() | {"min_days": 0.0, "webhooks": [hook], "sources": sources}
        definition |= {"guardrails": {"latency_p95": 0.1}, "users": SIMULATED.users / STEP}
        store.define(SIMULATED.id, json.dumps(definition), by="test", at=SIMULATED.start * HOUR)
        writer, reader = (issue_token(store, whose, "test", by="test", at=0.0) for whose in (SIMULATED.id, READER))
        here: list[Site] = []
        app = build_dashboard(
            store, ServerSettings(clock=lambda: here[0].clock if here else SIMULATED.start * HOUR), every=0.1
        )
        with running(app) as url:
            here.append(Site(url, store, app.state.board, writer, reader, alerts))
            yield here[0]


def login(page: Any, site: Site) -> None:
    page.goto(site.page)
    assert page.url.startswith(f"{site.url}/login")
    assert "ranker" not in page.locator("main").inner_text().lower()
    page.fill("#token", site.reader)
    page.click("button")
    page.wait_for_url(site.page)


@pytest.mark.slow
def test_from_states_to_a_decision(site: Site, browser: Any) -> None:
    page = browser.new_page()
    faults: list[str] = []
    hosts: set[str] = set()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    login(page, site)
    page.evaluate("window.stayed = true")
    page.get_by_text("No verdict").first.wait_for(timeout=WAIT)

    site.push(until=1.5)
    page.get_by_text("Ship treatment").first.wait_for(timeout=WAIT)
    rows = [SIMULATED.log(s, SIMULATED.start + h) for s in SIMULATED.sources for h in range(STEP - 1, 36, STEP)]
    clicks = sum(log["click"][log["arm"] == "treatment"].sum() for log in rows)
    site.wait_for(parts=len(rows))
    shows = sum((log["arm"] == "treatment").sum() for log in rows)
    (row,) = [row for row in site.shown.table if row.metric == "ctr"]
    assert row.value == clicks / shows
    alert = site.alerts.get(timeout=30)
    assert (alert["alert"], alert["about"]) == ("decided", {"treatment": "treatment", "verdict": "ship"})
    assert site.alerts.empty()

    site.push(until=4.0)
    page.get_by_text("Do not ship treatment").first.wait_for(timeout=WAIT)
    arm = {"treatment": "treatment"}
    alerts = [site.alerts.get(timeout=30) for _ in range(3)]
    assert sorted([a["alert"], a["state"], *a["about"].items()] for a in alerts) == [
        ["decided", "begun", *(arm | {"verdict": "do not"}).items()],
        ["decided", "over", *(arm | {"verdict": "ship"}).items()],
        ["guardrail breached", "begun", *(arm | {"metric": "latency_p95"}).items()],
    ]
    assert site.alerts.empty()
    assert page.evaluate("window.stayed")  # the page was never loaded anew
    assert hosts == {site.url.removeprefix("http://")}
    assert not faults
    page.close()

    decisions = [json.loads(text)[0]["decision"] for _, text in site.store.looks(SIMULATED.id)]
    told = [decision for decision in dict.fromkeys(decisions) if decision != "keep running"]
    assert told == ["withheld", "ship", "do not"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["", "/live", "/slices.csv", "/total.smet", "/../../metrics", "/../../v1/experiments/ranker"]
)
def test_without_a_session_nothing_is_seen(site: Site, path: str) -> None:
    site.push(until=0.5)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{site.page}{path}".replace("/experiments/ranker/../..", ""), timeout=10)
    assert refused.value.code == 401
    assert "ctr" not in refused.value.read().decode()
    refused.value.close()


@pytest.mark.slow
def test_prometheus_reads_with_a_token(site: Site) -> None:
    site.push(until=0.5)
    request = urllib.request.Request(f"{site.url}/metrics", headers={"Authorization": f"Bearer {site.reader}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
    assert 'streammetrics_queue{what="stored"} 6.0' in text
    assert 'streammetrics_evaluated_seconds{experiment="ranker"}' in text
