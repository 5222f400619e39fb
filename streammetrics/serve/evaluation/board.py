"""Keep the last evaluation of every experiment in memory.

A new evaluation starts when a part (the posted metrics of one source in one hour) arrives, when the definition
changes, or at a deadline, such as the end of the experiment. Opening a page does not start an evaluation; the page
shows the last one. Servers that share a store divide the experiments among themselves. If another server evaluates an
experiment, this server reads the evaluation from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ... import __version__
from ..alerts import Alerts
from ..part_keys import HOUR, format_hour
from ..store import ExperimentStatus, LeaseLostError, Store, StoreDownError, StoreFullError
from .evaluate import build_looks
from .evaluation import Evaluation, ShownLook
from .experiment_reader import ExperimentSource
from .look_history import decode_looks, encode_looks, is_same_look

__all__ = ["Board"]

POLL_INTERVAL = 2.0
"""Seconds between two polls of the store, which find new parts, new definitions, and evaluations by other servers."""
LEASE_SECONDS = 20.0
"""Seconds after which other servers take over the experiments of a server that died without giving back its leases."""
MINUTE = 60.0
"""Seconds after which a failed evaluation is tried again, and the displayed delays of late sources are updated."""
# The number of seconds for which a running evaluation may continue when the server stops. It is well below the 30 s or
# so after which process supervisors typically kill a server.
STOP_SECONDS = 10.0
COMPACT_INTERVAL = 3600.0  # seconds between two merges of days whose parts can no longer be corrected
log = logging.getLogger(__name__)


@dataclass
class _BoardEntry:
    """The board's record of one experiment: its last evaluation, and the task that reevaluates it.

    `fence` is the number of the experiment's lease, or None if this server does not hold the lease. `basis` identifies
    the data of the last evaluation: the version of the definition and the position of the last part. `due` is the time
    of the next evaluation if neither the definition nor the parts change. `started` is the time at which the running
    evaluation began. `is_evaluating` is also true while an evaluation waits for the thread that computes it.
    """

    evaluation: Evaluation | None = None
    fence: int | None = None
    status: ExperimentStatus | None = None
    basis: tuple[int, tuple[int, int] | None] | None = None
    due: float = math.inf
    started: float | None = None
    is_evaluating: bool = False
    is_changed: bool = False
    has_failed: bool = False
    loaded_at: float | None = None  # the time of the last evaluation that was read from the store or saved to it
    last_looks: list[ShownLook] | None = None  # the looks that were saved last
    compacted_at: float = float("-inf")
    change_event: asyncio.Event = field(default_factory=asyncio.Event)
    # This event is set when the next evaluation is available. A new event then replaces it.
    next_evaluation: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Board:
    """The last evaluation of each experiment. The board reevaluates experiments when they change.

    Parameters
    ----------
    store : Store
        The store of definitions, looks and evaluations.
    reader : ExperimentSource
        Reads experiments, in this process or in a separate one.
    every : float
        The minimum number of seconds between two evaluations of an experiment.
    clock : callable
        Returns the time, in seconds since 1970.
    alerts : Alerts, optional
        The object that receives every evaluation. The default object posts alerts to webhooks.

    Notes
    -----
    Use the board in an ``async with`` statement, or call `start` and `stop`. `ready` is true once the board has tried
    to start the reader. A thread evaluates the experiments for which this server holds a lease (the exclusive right to
    evaluate them). Pages show the previous evaluation until a new one has finished. Another thread renews the leases,
    even during a long evaluation. A long evaluation is followed by a pause of the same length. An error in one
    experiment withholds only the verdicts of that experiment.
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
        self._poller: ThreadPoolExecutor | None = None
        self._polling: asyncio.Task[None] | None = None
        self._poll_event = asyncio.Event()
        self._server = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self._starting: asyncio.Task[None] | None = None
        self._is_open, self.ready = False, False

    async def start(self) -> None:
        """Start evaluating the experiments for which this server holds a lease, now and whenever they change."""
        self._loop, self._is_open = asyncio.get_running_loop(), True
        self._worker = ThreadPoolExecutor(1, "streammetrics-board")
        self._poller = ThreadPoolExecutor(1, "streammetrics-board-leases")
        self.alerts.start()
        self._starting = self._loop.create_task(self._start_reader())
        await self._poll()
        self._polling = self._loop.create_task(self._poll_repeatedly())

    async def stop(self) -> None:
        """Stop the board.

        A running evaluation is interrupted after a few seconds. Then the leases are released and all subscriptions end.
        """
        if self._loop is None or self._worker is None or self._poller is None:
            return
        self._is_open = False
        self._reader.end_after(STOP_SECONDS)
        tasks = [t for t in (self._polling, self._starting, *(s.task for s in self._entries.values())) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._run_in_thread(self.alerts.stop)
        # Wait for a running poll of the store. Otherwise, it could take the leases again after they are released below.
        await self._run_in_thread(self._poller.shutdown)
        # If the store fails here, nothing is lost: unsaved totals are recomputed at the next start, and leases expire
        # on their own.
        with contextlib.suppress(StoreDownError, StoreFullError):
            await self._run_in_thread(self._reader.close)
            await self._run_in_thread(self._store.release_leases, self._server)
        self._worker.shutdown()
        self._loop = None
        self.end_subscriptions()

    def end_subscriptions(self) -> None:
        """End all subscriptions.

        Otherwise, the server could not stop: it waits for all responses, and live streams never end on their own.
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
        """Request a new evaluation because of new parts or a new definition. Safe to call from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._mark_changed, experiment)

    def computing_since(self, experiment: str) -> float | None:
        """Return the time at which the running evaluation of an experiment began, or None if none is running."""
        entry = self._entries.get(experiment) or _BoardEntry()
        if entry.fence is not None:
            return entry.started
        return None if entry.status is None else entry.status.computing_since

    def evaluation(self, experiment: str) -> Evaluation | None:
        """Return the last evaluation of an experiment, from memory or the store; None for an unknown experiment."""
        # Unknown IDs are not added to the board. Otherwise, requests with invented IDs could fill up memory.
        entry = self._entries.get(experiment) or _BoardEntry()
        if entry.evaluation is None:
            stored = self._load(experiment)
            if stored is None:
                return self._build_empty(experiment)
            entry.evaluation = entry.evaluation or stored
        return entry.evaluation

    def evaluations(self) -> list[Evaluation]:
        """Return the last evaluation of every experiment, sorted by ID."""
        evaluations = (self.evaluation(experiment) for experiment in sorted(self._store.definitions()))
        return [one for one in evaluations if one is not None]

    async def subscribe(self, experiment: str, since: float | None = None) -> AsyncIterator[Evaluation]:
        """Yield each new evaluation until the board stops. A slow caller gets only the newest one.

        Parameters
        ----------
        experiment : str
            The ID of the experiment.
        since : float, optional
            The time of the evaluation that the caller already has; a newer one is yielded immediately.
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

    # -- the store ----------------------------------------------------------------------------------------------------

    async def _poll_repeatedly(self) -> None:
        """Poll the store at intervals, to renew the leases and find changed experiments."""
        has_failed = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL):
                    await self._poll_event.wait()
            self._poll_event.clear()
            try:
                await self._poll()
            # If the store is down or full, the next round tries again. Meanwhile, this server's leases may expire and
            # be taken by other servers.
            except (StoreDownError, StoreFullError) as error:
                if not has_failed:
                    log.warning("the store could not be polled: %s", error)
                has_failed = True
            # Any other error is logged, and the next round also tries again.
            except Exception:
                log.exception("the store could not be polled")
            else:
                has_failed = False

    async def _poll(self) -> None:
        assert self._loop is not None
        poll = self._loop.run_in_executor(self._poller, self._read_store)
        fences, statuses, loaded = await poll
        now = self._clock()
        for experiment, status in statuses.items():
            entry = self._entries.setdefault(experiment, _BoardEntry())
            entry.status, entry.fence = status, fences.get(experiment)
            if (evaluation := loaded.get(experiment)) is not None:
                self._show(entry, evaluation)
            shown = None if entry.has_failed else entry.evaluation
            if shown is not None and now - shown.at >= MINUTE and any(source.behind for source in shown.sources):
                self._show(entry, shown.advance(now))
            if entry.fence is not None and (self._is_stale(entry, now) or now - entry.compacted_at >= COMPACT_INTERVAL):
                self._schedule(experiment, entry)

    def _read_store(self) -> tuple[dict[str, int], dict[str, ExperimentStatus], dict[str, Evaluation]]:
        """Return this server's leases, the status of every experiment, and new evaluations by other servers."""
        fences = self._store.hold_leases(self._server, LEASE_SECONDS)
        statuses = self._store.statuses()
        loaded: dict[str, Evaluation] = {}
        for experiment, status in statuses.items():
            entry = self._entries.setdefault(experiment, _BoardEntry())
            fence = fences.get(experiment)
            if fence is not None and fence != entry.fence:
                self.alerts.take(experiment, fence)
                entry.last_looks = None
            elif fence is None and entry.fence is not None:
                self.alerts.drop(experiment)
            elif fence is not None:
                self._note_computing(experiment, entry, fence, status.computing_since)
            # Load a stored evaluation only if it may be new. It is not new if this server has held the lease since the
            # last poll, or if the evaluation is already in memory.
            if (fence is not None and fence == entry.fence) or status.evaluated_at in (None, entry.loaded_at):
                continue
            if (evaluation := self._load(experiment)) is not None:
                loaded[experiment] = evaluation
        return fences, statuses, loaded

    def _load(self, experiment: str) -> Evaluation | None:
        """Return the stored evaluation of an experiment, and update the experiment's entry on the board accordingly."""
        saved = self._store.evaluation(experiment)
        if saved is None:
            return None
        evaluation = Evaluation.from_json(saved)
        if (entry := self._entries.get(experiment)) is not None:
            entry.loaded_at, entry.has_failed = evaluation.at, False
            self._note_basis(entry, evaluation)
        return evaluation

    def _note_basis(self, entry: _BoardEntry, evaluation: Evaluation) -> None:
        """Note in an entry which data an evaluation is based on, and when the evaluation must be recomputed."""
        entry.basis = evaluation.version, evaluation.position
        # If another release of this package computed the evaluation, its figures may differ. Recompute it immediately.
        is_foreign = evaluation.position is None or evaluation.release != __version__
        entry.due = -math.inf if is_foreign else math.inf if evaluation.due is None else evaluation.due

    @staticmethod
    def _is_stale(entry: _BoardEntry, now: float) -> bool:
        """Return whether an experiment needs a new evaluation, and if so, mark its entry as changed.

        A new evaluation is needed if parts or the definition have changed, or if a deadline has passed.
        """
        status = entry.status
        # A running evaluation may already include the change. The first poll after the evaluation checks this.
        if entry.is_evaluating:
            return False
        if status is not None and (entry.basis != (status.version, status.position) or now >= entry.due):
            entry.is_changed = True
        return entry.is_changed

    def _note_computing(self, experiment: str, entry: _BoardEntry, fence: int, noted: float | None) -> None:
        """Save the start time of the running evaluation in the store, so that the pages of other servers can show it.

        Nothing is saved in the first seconds of an evaluation. When no evaluation is running, a saved start time is
        cleared. `noted` is the start time already in the store, or None.
        """
        started = entry.started
        since = noted if started is not None and self._clock() - started < POLL_INTERVAL else started
        if since != noted:
            with contextlib.suppress(LeaseLostError):
                self._store.note_computing(experiment, since, fence)

    # -- one task per experiment --------------------------------------------------------------------------------------

    def _mark_changed(self, experiment: str) -> None:
        if self._loop is None:
            return
        entry = self._entries.get(experiment)
        # A new experiment has no lease yet, so poll the store now to acquire one. If another server holds the lease, do
        # nothing, because that server will notice the change when it polls the store.
        if entry is None or entry.status is None:
            self._poll_event.set()
        elif entry.fence is not None:
            entry.is_changed = True
            self._schedule(experiment, entry)

    def _schedule(self, experiment: str, entry: _BoardEntry) -> None:
        assert self._loop is not None
        entry.change_event.set()
        if entry.task is None:
            entry.task = self._loop.create_task(self._evaluate_repeatedly(experiment, entry))

    async def _start_reader(self) -> None:
        """Start the reader before the first evaluation.

        If the reader cannot be started, the first evaluation tries again. If that fails too, the page shows the error.
        """
        try:
            await self._run_in_thread(self._reader.start)
        # The error is only logged, because the first evaluation tries again.
        except Exception:
            log.exception("the process that reads experiments could not be started")
        self.ready = True

    async def _evaluate_repeatedly(self, experiment: str, entry: _BoardEntry) -> None:
        assert self._loop is not None
        while True:
            await entry.change_event.wait()
            # Clear the event before reading the data, so that a change during this evaluation triggers another one.
            entry.change_event.clear()
            is_changed, entry.is_changed = entry.is_changed, False
            start = self._loop.time()
            if is_changed and entry.fence is not None:
                entry.is_evaluating = True
                evaluation = await self._run_in_thread(self._evaluate, experiment, entry, entry.fence)
                entry.is_evaluating = False
                if evaluation is not None:
                    self._show(entry, evaluation)
            await self._run_in_thread(self._compact, experiment, entry)
            duration = self._loop.time() - start
            await asyncio.sleep(max(self._every - duration, duration))

    def _show(self, entry: _BoardEntry, evaluation: Evaluation) -> None:
        entry.evaluation = evaluation
        self._wake_subscribers(entry)

    @staticmethod
    def _wake_subscribers(entry: _BoardEntry) -> None:
        """Wake all subscribers that are waiting for an evaluation, and replace the event for the next evaluation."""
        # Each subscriber keeps a reference to the event that it is waiting for, so it wakes up even though a new event
        # immediately replaces the old one.
        entry.next_evaluation.set()
        entry.next_evaluation = asyncio.Event()

    async def _run_in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._worker, call, *args)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _evaluate(self, experiment: str, entry: _BoardEntry, fence: int) -> Evaluation | None:
        """Evaluate an experiment, save the result and send alerts.

        If the data cannot be read, return the last evaluation with its verdicts withheld, or None if the board has been
        stopped. If another server has taken the lease in the meantime, return None, because that server's evaluation
        counts.
        """
        entry.started = now = self._clock()
        try:
            evaluation, experiment_definition = self._reader.read(experiment, now)
        # If the experiment cannot be evaluated, its page shows the error. Other experiments are unaffected.
        except Exception as error:
            # The board interrupts this read when it stops. In that case, the experiment did not cause the error.
            if not self._is_open:
                return None
            log.exception("%s cannot be evaluated", experiment)
            entry.due, entry.has_failed = now + MINUTE, True
            if entry.status is not None:
                entry.basis = entry.status.version, entry.status.position
            return self._build_withheld(experiment, error)
        finally:
            entry.started = None
        self._note_basis(entry, evaluation)
        entry.has_failed = False
        try:
            self._save(entry, evaluation, fence)
            self.alerts.notify(evaluation, () if experiment_definition is None else experiment_definition.webhooks)
        # Another server holds the lease, so its evaluation counts.
        except LeaseLostError as error:
            log.warning("%s", error)
            return None
        # If the evaluation cannot be saved, or its alerts cannot be sent, pages still show it. The server evaluates the
        # experiment again in a minute.
        except Exception:
            log.exception("%s: the evaluation is shown, but could not be saved; the server will try again", experiment)
            entry.due = now + MINUTE
        return evaluation

    def _save(self, entry: _BoardEntry, evaluation: Evaluation, fence: int) -> None:
        """Save an evaluation and its looks, one for each treatment.

        A look records the verdict on a treatment as people saw it at a point in time. New looks are saved only if a
        verdict has changed or a new hour has begun since the previous looks.
        """
        looks = build_looks(evaluation)
        if entry.last_looks is None:
            saved = self._store.looks(evaluation.experiment)
            entry.last_looks = decode_looks(saved[-1][1]) if saved else []
        is_new = not is_same_look(looks, entry.last_looks)
        self._store.save_evaluation(
            evaluation.experiment,
            evaluation.at,
            evaluation.to_json(),
            encode_looks(looks) if is_new else None,
            fence=fence,
        )
        entry.loaded_at, entry.last_looks = evaluation.at, looks if is_new else entry.last_looks

    def _compact(self, experiment: str, entry: _BoardEntry) -> None:
        """Merge parts by day once they can no longer be corrected, and delete expired data.

        Do nothing if the last attempt was less than an hour ago.
        """
        now = self._clock()
        if not self._is_open or entry.fence is None or now - entry.compacted_at < COMPACT_INTERVAL:
            return
        entry.compacted_at = now
        try:
            self._reader.compact(experiment, now)
        # If merging fails, pages still show all data, and the server tries again after an hour. If the server
        # stops, it interrupts the merge, which is not an error.
        except Exception:
            if self._is_open:
                log.exception("%s: old parts could not be merged", experiment)

    def _build_withheld(self, experiment: str, error: Exception) -> Evaluation | None:
        """Return the last evaluation with its verdicts withheld because of `error`; None if there is no evaluation."""
        try:
            last = self.evaluation(experiment)
        # If the last evaluation cannot be read, there is nothing to show for this experiment. Other experiments are
        # unaffected.
        except Exception:
            log.exception("%s: the last evaluation could not be read", experiment)
            return None
        if last is None:
            return None
        reason = f"reading the data has failed since {format_hour(int(last.at) // HOUR)}: {error}"
        verdicts = [t._replace(decision="withheld", sentence=f"No verdict: {reason}") for t in last.verdicts]
        # Open pages load an evaluation only if it is newer than the one they show. Increase the time of this evaluation
        # by the smallest possible step, so that the pages show the new reason.
        at = last.at if last.withheld == reason else math.nextafter(last.at, math.inf)
        return replace(last, at=at, withheld=reason, verdicts=verdicts)

    def _build_empty(self, experiment: str) -> Evaluation | None:
        """Return an evaluation without data for an experiment that has not been evaluated yet.

        Return None for an unknown experiment.
        """
        if experiment not in (definitions := self._store.definitions()):
            return None
        title = json.loads(definitions[experiment].text).get("title") or experiment
        return Evaluation(experiment, title, definitions[experiment].version, self._clock(), "no data")
