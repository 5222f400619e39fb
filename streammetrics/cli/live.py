"""`streammetrics demo --live`: serve a live dashboard of a simulated experiment, in accelerated time."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from streammetrics.cli.serve import open_listener
from streammetrics.errors import PushError
from streammetrics.reports.text_table import print_line
from streammetrics.serve.api.auth import issue_token
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.experiment_simulation import DAY, Simulation
from streammetrics.serve.part_keys import HOUR
from streammetrics.serve.push import push
from streammetrics.serve.server import build_server
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import Store, open_store

__all__ = ["LiveDemo", "run_live"]

DAYS = 14
HOURS_A_SECOND = 6.0
# Seconds between evaluations of the experiment. A real server evaluates less often, but the demo simulates several
# hours per second.
EVALUATION_SECONDS = 1.0


def run_live(port: int, seconds: float | None, once: bool, slow: bool) -> None:
    """Serve a simulated experiment until the user presses Ctrl-C.

    If `seconds` is set, the server stops after this time at the latest; with `once`, it stops at the end of the
    experiment. With `slow`, the latency of the treatment increases, which breaches its guardrail.
    """
    start = int(time.time() // HOUR) // DAY * DAY - DAYS * DAY
    simulated = Simulation(start=start, days=DAYS, slow_from=9.0 if slow else None)
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "live.db") as store:
        LiveDemo(simulated, store).run(port, seconds, once)


class LiveDemo:
    """A live demo, consisting of a server, a worker that posts simulated states hour by hour, and a simulated clock.

    Parameters
    ----------
    simulated : Simulation
        The simulated experiment.
    store : Store
        The server's store.
    hours_a_second : float
        The speed of the simulated clock, in simulated hours per real second.
    """

    def __init__(self, simulated: Simulation, store: Store, hours_a_second: float = HOURS_A_SECOND) -> None:
        self.simulated, self.store, self.seconds_per_hour = simulated, store, 1.0 / hours_a_second
        self.hour, self.began = simulated.start, time.monotonic()
        self.stopped = threading.Event()
        store.define(simulated.id, json.dumps(simulated.definition()), by="demo", at=self.clock())
        self.token = issue_token(store, simulated.id, "demo", by="demo", at=self.clock())
        self.app = build_dashboard(store, ServerSettings(public_read=True, clock=self.clock), every=EVALUATION_SECONDS)
        self.server: Any = None

    def clock(self) -> float:
        """Return the simulated time in seconds: the end of the last posted hour plus the time since the demo began.

        Without the second term, which is real time, the clock would stand still between posted hours.
        """
        return self.hour * HOUR + time.monotonic() - self.began

    def run(self, port: int = 0, seconds: float | None = None, once: bool = False) -> None:
        """Serve the dashboard and post the simulated hours, until `end` is called or a signal stops the server.

        `seconds` limits the duration. With `once`, the server stops when all hours have been posted.
        """
        with open_listener("127.0.0.1", port) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self.server = build_server(self.app, "127.0.0.1", port)
            print_line(f"{url}/experiments/{self.simulated.id}", "bold")
            print_line(
                f"{self.simulated.days} simulated days, at least {DAY * self.seconds_per_hour:.0f} s each; press Ctrl-C "
                "to stop",
                "dim",
            )
            worker = threading.Thread(target=self._post_hours, args=(url, once), name="demo-worker")
            timer = threading.Timer(seconds or threading.TIMEOUT_MAX, self.end)
            timer.daemon = True
            for thread in (worker, timer):
                thread.start()
            try:
                self.server.run(sockets=[listener])
            finally:
                timer.cancel()
                self.stopped.set()
                worker.join()

    def end(self) -> None:
        """Stop the server."""
        self.server.should_exit = True

    def _post_hours(self, url: str, once: bool) -> None:
        """Post the states of every simulated hour to the server, as the workers of a real experiment do."""
        simulated, last_decision = self.simulated, ""
        for hour in range(simulated.start, simulated.end):
            due = time.monotonic() + self.seconds_per_hour
            for source in simulated.sources:
                part = simulated.part(source, hour)
                self.hour = hour + 1
                if not self._post_part(url, part.to_bytes(), source, hour):
                    return
            if self.stopped.wait(max(0.0, due - time.monotonic())):
                return
            last_decision = self._print_new_verdict(last_decision)
        while not self._is_complete() and not self.stopped.wait(0.05):
            pass
        self._print_new_verdict(last_decision)
        if once:
            self.end()

    def _post_part(self, url: str, part: bytes, source: str, hour: int) -> bool:
        try:
            push(url, part, experiment=self.simulated.id, source=source, hour=hour, token=self.token, retries=1)
        # If posting fails because the server is stopping, print nothing: a server refuses states while it stops.
        except PushError as error:
            if not (self.stopped.is_set() or self.server.should_exit):
                print_line(str(error), "red")
        else:
            return True
        return False

    def _print_new_verdict(self, before: str) -> str:
        """Print the verdict if its decision differs from `before`, the previous decision; return the decision."""
        evaluation = self.app.state.board.evaluation(self.simulated.id)
        decision = evaluation.verdicts[0].decision if evaluation.verdicts else ""
        if decision and decision != before:
            print_line(f"day {evaluation.day:.0f}: {evaluation.verdicts[0].sentence}")
        return decision

    def _is_complete(self) -> bool:
        parts = self.simulated.days * DAY * len(self.simulated.sources)
        return bool(self.app.state.board.evaluation(self.simulated.id).parts == parts)
