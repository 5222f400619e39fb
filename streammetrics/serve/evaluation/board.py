"""What is shown of every experiment: read again as parts come, as seldom as can be, however many pages are open."""

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
from ..store import Store, StoreDownError, StoreFullError
from ..store.part_keys import HOUR, hour_text
from .evaluate import looks_of
from .evaluation import Evaluation, ShownLook
from .look_history import looks_of_json, looks_to_json, same_look
from .reading import ExperimentSource

__all__ = ["Board"]

AT_LEAST, ENDED = 60.0, 3600.0  # seconds: without new parts freshness grows old, but not of what has ended
KEPT = 60.0  # seconds between what is kept of an experiment, if its verdict does not change
PATIENCE = 10.0  # seconds that what is being read has left when the server stops: a supervisor waits some 30
TIDIED = 3600.0  # seconds between two foldings of what can no longer be corrected
log = logging.getLogger(__name__)


@dataclass
class _Shown:
    """What is known of one experiment."""

    evaluation: Evaluation | None = None
    read: Evaluation | None = None  # the last one without a fault
    kept: float = 0.0  # when the one in the store was read
    looks: list[ShownLook] | None = None  # the last in the store
    tidied: float = float("-inf")
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)  # set once; the next news is another
    task: asyncio.Task[None] | None = None


class Board:
    """The evaluations of all experiments.

    Parameters
    ----------
    store : Store
        Where definitions, looks and evaluations are kept.
    reader : Read
        Who reads experiments: here, or in a process of its own.
    every : float
        Seconds from one evaluation of an experiment to the next, at least.
    clock : callable
        The time, in seconds since 1970.
    alerts : Alerts, optional
        Who is told of faults; webhooks by default.

    Notes
    -----
    Use it as ``async with board:``, or `start` and `stop` it; it is `ready` once the reader has started. One thread
    evaluates, off the event loop: what waits for it are pages that are open, which show the last evaluation until then.
    An evaluation that takes long is followed by a rest as long. A fault of one experiment is what it withholds its
    verdict for, and nobody else's.
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
        self._alerts = Alerts(store, clock=clock) if alerts is None else alerts
        self._shown: dict[str, _Shown] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._newcomers: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._open, self.ready = False, False

    async def start(self) -> None:
        """Begin: every experiment is read, and again when it changes."""
        self._loop, self._open = asyncio.get_running_loop(), True
        self._worker = ThreadPoolExecutor(1, "streammetrics-board")
        known = await self._run(self._store.definitions)
        await self._run(self._alerts.start, list(known))
        for experiment in known:
            self._mark(experiment)
        self._newcomers = self._loop.create_task(self._look_for_others())
        self._starting = self._loop.create_task(self._start_reader())

    async def stop(self) -> None:
        """End: what is shown is kept, and who subscribed is let go; what is being read just now has some seconds left."""
        if self._loop is None or self._worker is None:
            return
        self._open = False
        self._reader.hurry(PATIENCE)
        tasks = [t for t in (self._newcomers, self._starting, *(s.task for s in self._shown.values())) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for experiment, shown in self._shown.items():
            await self._run(self._keep_last, experiment, shown)
        await self._run(self._alerts.stop)
        with contextlib.suppress(StoreDownError, StoreFullError):  # what is not kept is added up at the next start
            await self._run(self._reader.close)
        self._worker.shutdown()
        self._loop = None
        self.let_go()

    def let_go(self) -> None:
        """End all subscriptions: a server waits for its answers to end before it stops."""
        self._open = False
        for shown in self._shown.values():
            self._tell(shown)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- what others ask ----------------------------------------------------------------------------------------------

    def changed(self, experiment: str) -> None:
        """Say that parts were stored, or that the definition is another; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._mark, experiment)

    def evaluation(self, experiment: str) -> Evaluation | None:
        """Return what is known now: of memory, or what was kept; None of an experiment that nobody defined."""
        shown = self._shown.get(experiment) or _Shown()  # of an id that nobody defined nothing is held
        if shown.evaluation is None:
            kept = self._store.evaluation(experiment)
            if kept is None:
                return self._blank(experiment)
            shown.evaluation = shown.evaluation or Evaluation.of_json(kept)
        return shown.evaluation

    def evaluations(self) -> list[Evaluation]:
        """Return what is known of every experiment, by id."""
        found = (self.evaluation(experiment) for experiment in sorted(self._store.definitions()))
        return [one for one in found if one is not None]

    async def subscribe(self, experiment: str, since: float | None = None) -> AsyncIterator[Evaluation]:
        """Yield every new evaluation, or only the last one to who is slow; end when the board stops.

        Parameters
        ----------
        experiment : str
            Which one.
        since : float, optional
            When what is shown was read: what is newer comes at once.
        """
        shown = self._shown.get(experiment)
        if shown is None:
            return
        last, news = shown.evaluation, shown.news
        if since is not None and last is not None and last.at > since:
            yield last
        while self._open:
            if shown.evaluation is last:
                await news.wait()
            news = shown.news
            if self._open and shown.evaluation is not None and shown.evaluation is not last:
                last = shown.evaluation
                yield last

    # -- one task an experiment ---------------------------------------------------------------------------------------

    def _mark(self, experiment: str) -> None:
        if self._loop is None:
            return
        shown = self._shown.setdefault(experiment, _Shown())
        shown.changed.set()
        if shown.task is None:
            shown.task = self._loop.create_task(self._follow(experiment, shown))

    async def _start_reader(self) -> None:
        """Start it before it is asked; where that fails, whoever asks tries again and says why."""
        try:
            await self._run(self._reader.start)
        except Exception:  # the first reading says it where it is seen
            log.exception("what reads experiments could not be started")
        self.ready = True

    async def _look_for_others(self) -> None:
        """Find what another process has defined."""
        while True:
            await asyncio.sleep(AT_LEAST)
            with contextlib.suppress(Exception):  # the store may be away: then next time
                for experiment in await self._run(self._store.definitions):
                    if experiment not in self._shown or self._shown[experiment].task is None:
                        self._mark(experiment)

    async def _follow(self, experiment: str, shown: _Shown) -> None:
        assert self._loop is not None
        while True:
            ended = shown.evaluation is not None and shown.evaluation.state == "ended"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDED if ended else AT_LEAST):
                    await shown.changed.wait()
            shown.changed.clear()
            began = self._loop.time()
            found = await self._run(self._evaluated, experiment, shown)
            if found is not None:
                shown.evaluation = found
                self._tell(shown)
            took = self._loop.time() - began
            await asyncio.sleep(max(self._every - took, took))

    @staticmethod
    def _tell(shown: _Shown) -> None:
        """Wake who waits; who comes later waits for the next."""
        shown.news.set()
        shown.news = asyncio.Event()

    async def _run(self, call: Callable[..., Any], *args: Any) -> Any:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._worker, call, *args)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _evaluated(self, experiment: str, shown: _Shown) -> Evaluation | None:
        """Read it, keep it, tell of it; say so where it cannot be read."""
        now = self._clock()
        try:
            found, defined = self._reader.read(experiment, now)
        except Exception as error:  # shown as its reason; the others go on
            if not self._open:  # it is late, and nobody waits for it
                return None
            log.exception("%s cannot be evaluated", experiment)
            return self._faulted(experiment, error)
        shown.read = found
        try:
            self._keep(shown, found)
            self._alerts.tell(found, () if defined is None else defined.webhooks)
            if now - shown.tidied >= TIDIED:
                shown.tidied = now
                self._reader.tidy(experiment, now)
        except Exception:  # it is tried again
            log.exception("%s: its evaluation is shown, and could not be kept; it is tried again", experiment)
        return found

    def _keep(self, shown: _Shown, found: Evaluation) -> None:
        """Keep a look where the verdict or the hour is another, and the evaluation with it, or now and then."""
        looks = looks_of(found)
        if shown.looks is None:
            kept = self._store.looks(found.experiment)
            shown.looks = looks_of_json(kept[-1][1]) if kept else []
        fresh = not same_look(looks, shown.looks)
        if fresh:
            self._store.add_look(found.experiment, found.at, looks_to_json(looks))
            shown.looks = looks
        if fresh or found.at - shown.kept >= KEPT:
            self._store.keep_evaluation(found.experiment, found.to_json())
            shown.kept = found.at

    def _keep_last(self, experiment: str, shown: _Shown) -> None:
        """Keep what is shown, so that the first page of the next start is no older."""
        if shown.read is not None and shown.read.at > shown.kept:
            with contextlib.suppress(Exception):  # the store is away: what it has is older
                self._store.keep_evaluation(experiment, shown.read.to_json())

    def _faulted(self, experiment: str, error: Exception) -> Evaluation | None:
        """The figures of before, without a verdict, and why."""
        try:
            last = self.evaluation(experiment)
        except Exception:  # the others are shown
            log.exception("%s: nothing is known of it", experiment)
            return None
        if last is None:
            return None
        reason = f"it could not be read again since {hour_text(int(last.at) // HOUR)}: {error}"
        told = [t._replace(decision="withheld", sentence=f"No verdict: {reason}") for t in last.verdicts]
        at = last.at if last.withheld == reason else math.nextafter(last.at, math.inf)  # so that open pages take it
        return replace(last, at=at, withheld=reason, verdicts=told)

    def _blank(self, experiment: str) -> Evaluation | None:
        """What is shown of an experiment that nothing was read of yet."""
        if experiment not in (known := self._store.definitions()):
            return None
        title = json.loads(known[experiment].text).get("title") or experiment
        return Evaluation(experiment, title, known[experiment].version, self._clock(), "no data")
