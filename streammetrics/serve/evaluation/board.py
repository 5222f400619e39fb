"""Keep the last evaluation of every experiment in memory.

New parts start an evaluation. Opening a page does not; it shows the last evaluation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ..alerts import Alerts
from ..part_keys import HOUR, format_hour
from ..store import Store, StoreDownError, StoreFullError
from .evaluate import build_looks
from .evaluation import Evaluation, ShownLook
from .experiment_reader import ExperimentSource
from .look_history import decode_looks, encode_looks, is_same_look

__all__ = ["Board"]

MAX_INTERVAL, ENDED_INTERVAL = 60.0, 3600.0
"""Seconds after which an experiment is evaluated again even without new parts, because its sources may be late.

The second number is for ended experiments.
"""
SAVE_INTERVAL = 60.0  # seconds between two saves of an evaluation if the verdict does not change
# Seconds for which a running evaluation may continue when the server stops. Process supervisors kill a server after
# about 30 s.
STOP_SECONDS = 10.0
COMPACT_INTERVAL = 3600.0  # seconds between two merges of days whose parts can no longer be corrected
log = logging.getLogger(__name__)


@dataclass
class _BoardEntry:
    """What the board knows about one experiment: its last evaluation, and the task that repeats the evaluation."""

    evaluation: Evaluation | None = None
    last_valid: Evaluation | None = None  # the last evaluation that did not fail
    saved_at: float = 0.0  # the time of the last evaluation that was saved
    last_looks: list[ShownLook] | None = None  # the looks that were saved last
    compacted_at: float = float("-inf")
    change_event: asyncio.Event = field(default_factory=asyncio.Event)
    # An event that is set at the next evaluation, and then replaced with a new one.
    next_evaluation: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Board:
    """The last evaluation of each experiment. The board evaluates experiments again when they change.

    Parameters
    ----------
    store : Store
        The store of definitions, looks and evaluations.
    reader : ExperimentSource
        Reads experiments, in this process or in a separate one.
    every : float
        The smallest number of seconds between two evaluations of an experiment.
    clock : callable
        Returns the time, in seconds since 1970.
    alerts : Alerts, optional
        Receives every evaluation; by default, it posts to webhooks.

    Notes
    -----
    Use the board as ``async with board:``, or call `start` and `stop`. `ready` is true once the reader has started. One
    thread evaluates all experiments, outside the event loop, and meanwhile, open pages show the last evaluation. A long
    evaluation is followed by a pause of the same length. An error withholds the verdicts of its experiment only.
    """

    def __init__(
        self,
        store: Store,
        reader: ExperimentSource,
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.time,
        alerts: Alerts | None = None,
    ) -> None:
        self._store, self._reader = store, reader
        self._every, self._clock = every, clock
        self.alerts = Alerts(store, clock=clock) if alerts is None else alerts
        self._entries: dict[str, _BoardEntry] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._discovery: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._is_open, self.ready = False, False

    async def start(self) -> None:
        """Start evaluating every experiment, now and whenever it changes."""
        self._loop, self._is_open = asyncio.get_running_loop(), True
        self._worker = ThreadPoolExecutor(1, "streammetrics-board")
        definitions = await self._run_in_thread(self._store.definitions)
        await self._run_in_thread(self.alerts.start, list(definitions))
        for experiment in definitions:
            self._schedule(experiment)
        self._discovery = self._loop.create_task(self._discover_experiments())
        self._starting = self._loop.create_task(self._start_reader())

    async def stop(self) -> None:
        """Stop the board.

        A running evaluation is ended after a few seconds. Then the last evaluations are saved, and all subscriptions
        end.
        """
        if self._loop is None or self._worker is None:
            return
        self._is_open = False
        self._reader.end_after(STOP_SECONDS)
        tasks = [
            t for t in (self._discovery, self._starting, *(s.task for s in self._entries.values())) if t is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for experiment, entry in self._entries.items():
            await self._run_in_thread(self._save_last, experiment, entry)
        await self._run_in_thread(self.alerts.stop)
        # Totals that are not saved are merged again at the next start.
        with contextlib.suppress(StoreDownError, StoreFullError):
            await self._run_in_thread(self._reader.close)
        self._worker.shutdown()
        self._loop = None
        self.end_subscriptions()

    def end_subscriptions(self) -> None:
        """End all subscriptions.

        Live streams never end by themselves, and a server waits for all responses before it stops.
        """
        self._is_open = False
        for entry in self._entries.values():
            self._wake_subscribers(entry)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- public methods -----------------------------------------------------------------------------------------------

    def mark_changed(self, experiment: str) -> None:
        """Request a new evaluation after new parts or a new definition; may be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._schedule, experiment)

    def evaluation(self, experiment: str) -> Evaluation | None:
        """Return the last evaluation of an experiment, from memory or the store; None for an unknown experiment."""
        # Unknown IDs are not added to the board. Otherwise, requests with invented IDs could fill the memory.
        entry = self._entries.get(experiment) or _BoardEntry()
        if entry.evaluation is None:
            saved = self._store.evaluation(experiment)
            if saved is None:
                return self._build_empty(experiment)
            entry.evaluation = entry.evaluation or Evaluation.from_json(saved)
        return entry.evaluation

    def evaluations(self) -> list[Evaluation]:
        """Return the last evaluation of every experiment, in the order of their IDs."""
        evaluations = (self.evaluation(experiment) for experiment in sorted(self._store.definitions()))
        return [one for one in evaluations if one is not None]

    async def subscribe(self, experiment: str, since: float | None = None) -> AsyncIterator[Evaluation]:
        """Yield each new evaluation until the board stops. A slow caller gets only the newest one.

        Parameters
        ----------
        experiment : str
            The ID of the experiment.
        since : float, optional
            The time of the evaluation that the caller has; a newer one is yielded immediately.
        """
        entry = self._entries.get(experiment)
        if entry is None:
            return
        last, next_event = entry.evaluation, entry.next_evaluation
        if since is not None and last is not None and last.at > since:
            yield last
        while self._is_open:
            if entry.evaluation is last:
                await next_event.wait()
            next_event = entry.next_evaluation
            if self._is_open and entry.evaluation is not None and entry.evaluation is not last:
                last = entry.evaluation
                yield last

    # -- one task an experiment ---------------------------------------------------------------------------------------

    def _schedule(self, experiment: str) -> None:
        if self._loop is None:
            return
        entry = self._entries.setdefault(experiment, _BoardEntry())
        entry.change_event.set()
        if entry.task is None:
            entry.task = self._loop.create_task(self._evaluate_repeatedly(experiment, entry))

    async def _start_reader(self) -> None:
        """Start the reader before the first evaluation.

        If that fails, the first evaluation tries to start the reader again, and reports any error.
        """
        try:
            await self._run_in_thread(self._reader.start)
        # The first evaluation tries to start the reader again, and the page shows any error.
        except Exception:
            log.exception("the process that reads experiments could not be started")
        self.ready = True

    async def _discover_experiments(self) -> None:
        """Look from time to time for experiments that another process has defined, and evaluate them."""
        while True:
            await asyncio.sleep(MAX_INTERVAL)
            # The store may be down. The next round tries again.
            with contextlib.suppress(Exception):
                for experiment in await self._run_in_thread(self._store.definitions):
                    if experiment not in self._entries or self._entries[experiment].task is None:
                        self._schedule(experiment)

    async def _evaluate_repeatedly(self, experiment: str, entry: _BoardEntry) -> None:
        assert self._loop is not None
        while True:
            ended = entry.evaluation is not None and entry.evaluation.state == "ended"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDED_INTERVAL if ended else MAX_INTERVAL):
                    await entry.change_event.wait()
            # The event is cleared before the data is read. A change during this evaluation therefore triggers another
            # one.
            entry.change_event.clear()
            start = self._loop.time()
            evaluation = await self._run_in_thread(self._evaluate, experiment, entry)
            if evaluation is not None:
                entry.evaluation = evaluation
                self._wake_subscribers(entry)
            duration = self._loop.time() - start
            await asyncio.sleep(max(self._every - duration, duration))

    @staticmethod
    def _wake_subscribers(entry: _BoardEntry) -> None:
        """Wake all waiting subscribers; those that subscribe later wait for the next evaluation."""
        # Each subscriber holds the event that it waits for. The event is replaced after it is set, so no subscriber
        # misses it.
        entry.next_evaluation.set()
        entry.next_evaluation = asyncio.Event()

    async def _run_in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._worker, call, *args)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _evaluate(self, experiment: str, entry: _BoardEntry) -> Evaluation | None:
        """Evaluate an experiment, save the result and send alerts.

        If the data cannot be read, the last evaluation is returned with its verdicts withheld.
        """
        now = self._clock()
        try:
            evaluation, experiment_definition = self._reader.read(experiment, now)
        # The page shows this error. Other experiments are not affected.
        except Exception as error:
            # The error occurred because the board is stopping.
            if not self._is_open:
                return None
            log.exception("%s cannot be evaluated", experiment)
            return self._build_withheld(experiment, error)
        entry.last_valid = evaluation
        try:
            self._save(entry, evaluation)
            self.alerts.notify(evaluation, () if experiment_definition is None else experiment_definition.webhooks)
            if now - entry.compacted_at >= COMPACT_INTERVAL:
                entry.compacted_at = now
                self._reader.compact(experiment, now)
        # The next evaluation saves and notifies again.
        except Exception:
            log.exception(
                "%s: the evaluation is shown, but could not be saved; the next evaluation tries again", experiment
            )
        return evaluation

    def _save(self, entry: _BoardEntry, evaluation: Evaluation) -> None:
        """Save an evaluation and its looks.

        A look records the verdicts as people saw them. A new look is saved if a verdict has changed or a new hour has
        begun. The evaluation is saved with each look, and otherwise once a minute.
        """
        looks = build_looks(evaluation)
        if entry.last_looks is None:
            saved = self._store.looks(evaluation.experiment)
            entry.last_looks = decode_looks(saved[-1][1]) if saved else []
        is_new = not is_same_look(looks, entry.last_looks)
        if is_new:
            self._store.add_look(evaluation.experiment, evaluation.at, encode_looks(looks))
            entry.last_looks = looks
        if is_new or evaluation.at - entry.saved_at >= SAVE_INTERVAL:
            self._store.save_evaluation(evaluation.experiment, evaluation.to_json())
            entry.saved_at = evaluation.at

    def _save_last(self, experiment: str, entry: _BoardEntry) -> None:
        """Save the last evaluation, so that pages can show it right after a restart."""
        if entry.last_valid is not None and entry.last_valid.at > entry.saved_at:
            # If the store is down, it simply keeps an older evaluation.
            with contextlib.suppress(Exception):
                self._store.save_evaluation(experiment, entry.last_valid.to_json())

    def _build_withheld(self, experiment: str, error: Exception) -> Evaluation | None:
        """Return the last evaluation with all verdicts withheld because of an error; None if there is no evaluation."""
        try:
            last = self.evaluation(experiment)
        # Without an evaluation there is nothing to show, but other experiments are not affected.
        except Exception:
            log.exception("%s: the last evaluation could not be read", experiment)
            return None
        if last is None:
            return None
        reason = f"reading the data has failed since {format_hour(int(last.at) // HOUR)}: {error}"
        verdicts = [t._replace(decision="withheld", sentence=f"No verdict: {reason}") for t in last.verdicts]
        # Open pages load only an evaluation that is newer than theirs. The time is therefore increased by the smallest
        # step.
        at = last.at if last.withheld == reason else math.nextafter(last.at, math.inf)
        return replace(last, at=at, withheld=reason, verdicts=verdicts)

    def _build_empty(self, experiment: str) -> Evaluation | None:
        """Return an evaluation without data, for an experiment that has not been evaluated yet.

        Return None for an unknown experiment.
        """
        if experiment not in (definitions := self._store.definitions()):
            return None
        title = json.loads(definitions[experiment].text).get("title") or experiment
        return Evaluation(experiment, title, definitions[experiment].version, self._clock(), "no data")
