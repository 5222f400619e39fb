"""From what is posted to what is kept: frames are decoded together off the event loop, checked, and stored."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from ..collect.holder import Holder
from ..collect.saved import from_bytes
from ..errors import StateFormatError, StreamMetricsError
from ..state.frame import head_of
from .check import Checker
from .decode import Decoded, decoded
from .experiment import Experiment
from .keys import Key, Part
from .settings import Settings

__all__ = ["BusyError", "Ingest"]

log = logging.getLogger(__name__)
GROUP, GROUP_BYTES = 256, 1 << 26
"""Frames that are decoded and stored at once."""


class BusyError(StreamMetricsError):
    """There is no room for more now; the same may be sent again later."""


@dataclass(eq=False)
class Waiting:
    """A frame, and who waits for what becomes of it."""

    key: Key
    data: bytes
    experiment: Experiment
    received: float
    answer: asyncio.Future[str]
    alone: bool = False

    def settle(self, word: str) -> None:
        """Say what became of it; who waited may have left."""
        if not self.answer.done():
            self.answer.set_result(word)

    def refuse(self, error: Exception) -> None:
        """Say why nothing became of it."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class Progress:
    """How far a thread is that decodes, and what it has found; whether it is to stop, as nobody waits for it any more."""

    done: int = 0
    begun: bool = False
    stopped: bool = False
    found: list[Decoded] = field(default_factory=list)


@dataclass
class Counts:
    """What came of frames since the start."""

    stored: int = 0
    same: int = 0
    conflict: int = 0
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Ingest:
    """The queue in front of a store.

    Parameters
    ----------
    store : Store
        Keeps parts.
    changed : function of an id
        Told of experiments of which parts were kept.
    settings : Settings
        How much may wait, and how long decoding may take.
    """

    def __init__(self, store: Any, changed: Callable[[str], Any], settings: Settings) -> None:
        self.store, self.changed, self.settings = store, changed, settings
        self.checker = Checker(partial(counted_before, store))
        self.counts = Counts()
        self._queue: deque[Waiting] = deque()
        self._bytes = 0
        self._more = asyncio.Event()
        self._threads = ThreadPoolExecutor(3, "decode")  # one may be stuck in a group, and one in the frame

    @property
    def waiting(self) -> int:
        """How many parts wait to be stored."""
        return len(self._queue)

    async def take(self, key: Key, data: bytes, experiment: Experiment) -> str:
        """Return "stored", "same" or "conflict" once that is on the disk.

        Raises
        ------
        BusyError
            Too many wait.
        StreamMetricsError
            What is wrong with the frame, or with the store; nothing of it was kept.
        """
        if self.waiting >= self.settings.waiting or self._bytes + len(data) > self.settings.waiting_bytes:
            raise BusyError(f"{self.waiting:,} parts wait to be stored; send it again later")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(key, data, experiment, self.settings.clock(), answer))
        self._bytes += len(data)
        self._more.set()
        return await answer

    async def run(self) -> None:
        """Work until it is cancelled."""
        try:
            while True:
                await self._more.wait()
                await self._take_group(self._next_group())
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for one in self._queue:
                one.refuse(BusyError("the server stops"))

    async def _take_group(self, group: list[Waiting]) -> None:
        try:
            await self._store(await self._decode(group))
        except StreamMetricsError as error:  # who waits is told
            for one in group:
                one.refuse(error)
        except Exception as error:  # who waits is told, and the others go on
            log.exception("a group of %d parts failed", len(group))
            for one in group:
                one.refuse(error)
        self._bytes -= sum(len(one.data) for one in group if one.answer.done())

    def _next_group(self) -> list[Waiting]:
        group: list[Waiting] = []
        size = 0
        while self._queue and len(group) < GROUP and (not group or size + len(self._queue[0].data) <= GROUP_BYTES):
            group.append(self._queue.popleft())
            size += len(group[-1].data)
        if not self._queue:
            self._more.clear()
        return group

    async def _decode(self, group: list[Waiting]) -> list[tuple[Waiting, Decoded]]:
        """Those of a group that are sound, with their digests; the others are told, or wait again."""
        progress, runs = Progress(), _alike(group)
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._read, runs, progress)
        count, late = -1, {work}
        while late and count < progress.done:  # as long as one after the other is done in time
            count = progress.done
            _, late = await asyncio.wait([work], timeout=self.settings.decode_seconds)
        if late:
            progress.stopped = True
            self._give_up(runs, count, progress.begun)
        else:
            work.result()
        sound = []
        for one, found in zip(chain(*runs[: len(runs) if not late else count]), progress.found, strict=False):
            if found.error is None:
                sound.append((one, found))
            else:
                self._refuse(one, found.error)
        return sound

    def _read(self, runs: Sequence[Sequence[Waiting]], progress: Progress) -> None:
        """Decode and check in a thread."""
        progress.begun = True
        for run in runs:
            checks = [partial(self._check, one, progress) for one in run]
            found = decoded([one.data for one in run], self.settings.max_content, checks)
            if progress.stopped:
                return
            progress.found += [_busy(one) if isinstance(one.error, MemoryError) else one for one in found]
            progress.done += 1

    def _check(self, one: Waiting, progress: Progress, thing: Any) -> None:
        if not progress.stopped:  # or somebody else has decoded it meanwhile
            self.checker.check(one.experiment, thing, head_of(one.data))

    def _give_up(self, runs: Sequence[Sequence[Waiting]], done: int, begun: bool) -> None:
        """Refuse the frame that takes too long, or look for it, one by one; those behind it wait again, in front."""
        if not begun:
            for one in chain(*runs):
                one.refuse(BusyError("all that decode are busy; send it again later"))
            return
        if len(runs[done]) == 1:
            seconds = self.settings.decode_seconds
            self._refuse(runs[done][0], StateFormatError(f"the frame could not be decoded within {seconds:g} s"))
        else:
            for one in runs[done]:
                one.alone = True
        again = [one for one in chain(*runs[done:]) if not one.answer.done()]
        self._queue.extendleft(reversed(again))
        if self._queue:
            self._more.set()

    def _refuse(self, one: Waiting, error: Exception) -> None:
        name = type(error).__name__
        self.counts.refused += 1
        self.counts.reasons[name] = self.counts.reasons.get(name, 0) + 1
        one.refuse(error)

    async def _store(self, sound: Sequence[tuple[Waiting, Decoded]]) -> None:
        if not sound:
            return
        parts = [Part(one.key, one.data, found.digest, one.received, found.seen) for one, found in sound]
        try:
            words = await asyncio.to_thread(self.store.put, parts)
        except BaseException:
            self.checker.forget({part.key.experiment for part in parts})
            raise
        changed = set()
        for (one, _), part, word in zip(sound, parts, words, strict=True):
            setattr(self.counts, word, getattr(self.counts, word) + 1)
            one.settle(word)
            if word == "stored":
                changed.add(part.key.experiment)
        for experiment in sorted(changed):
            self.changed(experiment)


def _busy(found: Decoded) -> Decoded:
    return found._replace(error=BusyError("there is no memory to decode it now; send it again later"))


def counted_before(store: Any, experiment: str) -> Holder | None:
    """Return something that was counted of an experiment, or None: what has its plan after a restart."""
    kept = store.total(experiment)
    frames = [kept[1]] if kept is not None else [part.data for _, part in store.parts(experiment)[:1]]
    found: Holder | None = from_bytes(frames[0]) if frames else None
    return found


def _alike(group: Sequence[Waiting]) -> list[list[Waiting]]:
    """Frames that are decoded together: those of one kind, unless one of them may take too long."""
    runs: dict[Any, list[Waiting]] = {}
    for one in group:
        runs.setdefault(id(one) if one.alone else head_of(one.data), []).append(one)
    return list(runs.values())
