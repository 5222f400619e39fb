"""What is shown of every experiment: read again as parts come, as seldom as can be, however many pages are open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from .alerts import Alerts
from .evaluate import evaluate, looks_of
from .evaluation import Evaluation, Look
from .experiment import Experiment, changes
from .keys import HOUR, hour_text
from .looks import looks_of_json, looks_to_json, same_look
from .series import Series
from .store import Store
from .tidied import tidy
from .totals import Totals

__all__ = ["Board", "Reading", "read"]

AT_LEAST, ENDED = 60.0, 3600.0  # seconds: without new parts freshness grows old, but not of what has ended
KEPT = 60.0  # seconds between what is kept of an experiment, if its verdict does not change
TIDIED = 3600.0  # seconds between two foldings of what can no longer be corrected
log = logging.getLogger(__name__)


class Reading(NamedTuple):
    """What was read of an experiment, and how it was defined then."""

    evaluation: Evaluation
    experiment: Experiment | None = None


def read(store: Store, totals: Totals, experiment: str, now: float, series: Series) -> Reading:
    """Read an experiment from its total, its ledger, and what was said of it before."""
    versions = store.history(experiment)
    defined = [Experiment.of_dict(json.loads(version.text)) for version in versions]
    one = defined[-1]
    running = [v.at >= one.start * HOUR for v in versions]
    ledger = store.ledger(experiment)  # first: what it lists is in the total, or in a later one
    found = evaluate(
        one,
        totals.total(experiment),
        version=versions[-1].version,
        now=now,
        hours=totals.hours(experiment),
        days=totals.days(experiment),
        ledger=ledger,
        looks=[look for _, text in store.looks(experiment) for look in looks_of_json(text)],
        changes=[said for i in range(1, len(defined)) if running[i] for said in changes(*defined[i - 1 : i + 1])],
        series=series,
    )
    return Reading(found, one)


@dataclass
class _Shown:
    """What is known of one experiment."""

    evaluation: Evaluation | None = None
    read: Evaluation | None = None  # the last one without a fault
    kept: float = 0.0  # when the one in the store was read
    looks: list[Look] | None = None  # the last in the store
    series: Series = field(default_factory=Series)
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
    totals : Totals
        The folds of the parts.
    every : float
        Seconds from one evaluation of an experiment to the next, at least.
    clock : callable
        The time, in seconds since 1970.
    alerts : Alerts, optional
        Who is told of faults; webhooks by default.
    reading : callable
        Reads an experiment: of store, totals, id, time, and the windows it remembers.

    Notes
    -----
    Use it as ``async with board:``, or `start` and `stop` it. One thread evaluates, off the event loop: what waits for it
    are pages that are open, which show the last evaluation until then. An evaluation that takes long is followed by a rest
    as long. A fault of one experiment is what it withholds its verdict for, and nobody else's.
    """

    def __init__(
        self,
        store: Store,
        totals: Totals,
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.time,
        alerts: Alerts | None = None,
        reading: Callable[[Any, Any, str, float, Series], Reading] = read,
    ) -> None:
        self._store, self._totals = store, totals
        self._every, self._clock, self._reading = every, clock, reading
        self._alerts = Alerts(store, clock=clock) if alerts is None else alerts
        self._shown: dict[str, _Shown] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._newcomers: asyncio.Task[None] | None = None
        self._open = False

    async def start(self) -> None:
        """Begin: every experiment is read, and again when it changes."""
        self._loop, self._open = asyncio.get_running_loop(), True
        self._worker = ThreadPoolExecutor(1, "streammetrics-board")
        known = await self._run(self._store.definitions)
        await self._run(self._alerts.start, list(known))
        for experiment in known:
            self._mark(experiment)
        self._newcomers = self._loop.create_task(self._look_for_others())

    async def stop(self) -> None:
        """End: what is shown is kept, and who subscribed is let go."""
        if self._loop is None or self._worker is None:
            return
        tasks = [t for t in (self._newcomers, *(s.task for s in self._shown.values())) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for experiment, shown in self._shown.items():
            await self._run(self._keep_last, experiment, shown)
        await self._run(self._alerts.stop)
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
            found, defined = self._reading(self._store, self._totals, experiment, now, shown.series)
        except Exception as error:  # shown as its reason; the others go on
            log.exception("%s cannot be evaluated", experiment)
            return self._faulted(experiment, error)
        shown.read = found
        if found.state == "ended":
            shown.series = Series()  # it is read seldom from now on, and there will be many
        try:
            self._keep(shown, found)
            self._alerts.tell(found, () if defined is None else defined.webhooks)
            if defined is not None and now - shown.tidied >= TIDIED:
                shown.tidied = now
                tidy(self._store, self._totals, defined, now)
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
        return replace(last, withheld=reason, verdicts=told)

    def _blank(self, experiment: str) -> Evaluation | None:
        """What is shown of an experiment that nothing was read of yet."""
        if experiment not in (known := self._store.definitions()):
            return None
        title = json.loads(known[experiment].text).get("title") or experiment
        return Evaluation(experiment, title, known[experiment].version, self._clock(), "no data")
