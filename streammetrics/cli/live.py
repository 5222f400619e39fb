"""`streammetrics demo --live`: a page that lives, of an experiment that is simulated, in a time of its own."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from streammetrics.cli.serve import listening
from streammetrics.errors import PushError
from streammetrics.reports.text_table import say
from streammetrics.serve.api.auth import issue
from streammetrics.serve.dashboard import dashboard
from streammetrics.serve.push import push
from streammetrics.serve.server import server_of
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.simulated import DAY, Simulation
from streammetrics.serve.store import Store, open_store
from streammetrics.serve.store.part_keys import HOUR

__all__ = ["LiveDemo", "run_live"]

DAYS = 14
HOURS_A_SECOND = 6.0
EVERY = 1.0  # seconds between two evaluations: a demo is looked at closely


def run_live(port: int, seconds: float | None, once: bool, slow: bool) -> None:
    """Serve a simulated experiment until Ctrl-C, for so many seconds, or once through; it may break its guardrail."""
    start = int(time.time() // HOUR) // DAY * DAY - DAYS * DAY
    simulated = Simulation(start=start, days=DAYS, slow_from=9.0 if slow else None)
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "live.db") as store:
        LiveDemo(simulated, store).run(port, seconds, once)


class LiveDemo:
    """A server, a worker that posts hour by hour, and a clock that shows the end of the hour posted last.

    Parameters
    ----------
    simulated : Simulation
        The experiment.
    store : Store
        Where it is kept.
    hours_a_second : float
        How fast time goes by.
    """

    def __init__(self, simulated: Simulation, store: Store, hours_a_second: float = HOURS_A_SECOND) -> None:
        self.simulated, self.store, self.pause = simulated, store, 1.0 / hours_a_second
        self.hour, self.began = simulated.start, time.monotonic()
        self.stopped = threading.Event()
        store.define(simulated.id, json.dumps(simulated.definition()), by="demo", at=self.clock())
        self.token = issue(store, simulated.id, "demo", by="demo", at=self.clock())
        self.app = dashboard(store, ServerSettings(public_read=True, clock=self.clock), every=EVERY)
        self.server: Any = None

    def clock(self) -> float:
        """Return the time of the simulation: the end of the hour posted last, and never the same twice."""
        return self.hour * HOUR + time.monotonic() - self.began

    def run(self, port: int = 0, seconds: float | None = None, once: bool = False) -> None:
        """Serve, and post; return when it is asked to end."""
        with listening("127.0.0.1", port) as heard:
            url = f"http://127.0.0.1:{heard.getsockname()[1]}"
            self.server = server_of(self.app, "127.0.0.1", port)
            say(f"{url}/experiments/{self.simulated.id}", "bold")
            say(
                f"{self.simulated.days} simulated days, one in {DAY * self.pause:.0f} s at best; Ctrl-C ends it",
                "dim",
            )
            worker = threading.Thread(target=self._work, args=(url, once), name="demo-worker")
            timer = threading.Timer(seconds or threading.TIMEOUT_MAX, self.end)
            timer.daemon = True
            for thread in (worker, timer):
                thread.start()
            try:
                self.server.run(sockets=[heard])
            finally:
                timer.cancel()
                self.stopped.set()
                worker.join()

    def end(self) -> None:
        """Ask the server to end."""
        self.server.should_exit = True

    def _work(self, url: str, once: bool) -> None:
        """Post every hour when it is over, as workers do."""
        simulated, told = self.simulated, ""
        for hour in range(simulated.start, simulated.end):
            due = time.monotonic() + self.pause
            for source in simulated.sources:
                part = simulated.part(source, hour)
                self.hour = hour + 1
                if not self._posted(url, part.to_bytes(), source, hour):
                    return
            if self.stopped.wait(max(0.0, due - time.monotonic())):
                return
            told = self._tell(told)
        while not self._all_is_shown() and not self.stopped.wait(0.05):
            pass
        self._tell(told)
        if once:
            self.end()

    def _posted(self, url: str, part: bytes, source: str, hour: int) -> bool:
        try:
            push(url, part, experiment=self.simulated.id, source=source, hour=hour, token=self.token, retries=1)
        except PushError as error:  # said, unless it is the end that refused it
            if not (self.stopped.is_set() or self.server.should_exit):
                say(str(error), "red")
        else:
            return True
        return False

    def _tell(self, before: str) -> str:
        """Print a verdict that is another one."""
        found = self.app.state.board.evaluation(self.simulated.id)
        decision = found.verdicts[0].decision if found.verdicts else ""
        if decision and decision != before:
            say(f"day {found.day:.0f}: {found.verdicts[0].sentence}")
        return decision

    def _all_is_shown(self) -> bool:
        parts = self.simulated.days * DAY * len(self.simulated.sources)
        return bool(self.app.state.board.evaluation(self.simulated.id).parts == parts)
