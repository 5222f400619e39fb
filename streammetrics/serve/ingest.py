"""From what is posted to what is kept: frames are decoded together off the event loop, checked, and stored."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..collect.holder import Holder, made
from ..errors import StateFormatError, StreamMetricsError
from ..state.frame import Frame
from .check import Checker
from .experiment import Experiment
from .keys import Key, Part
from .settings import Settings
from .store import StoreDownError, StoreFullError

__all__ = ["BusyError", "Ingest", "decoded"]

log = logging.getLogger(__name__)
GROUP, GROUP_BYTES = 256, 1 << 26
"""Frames that are decoded and stored at once."""
AGAIN = 1.0
"""Seconds until a total that could not be added to is tried again."""


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
    digest: str = ""
    error: StreamMetricsError | None = None
    kept: bool = False

    def settle(self, word: str) -> None:
        """Say what became of it; who waited may have left."""
        self.kept = word == "stored"
        if not self.answer.done():
            self.answer.set_result(word)

    def refuse(self, error: Exception) -> None:
        """Say why nothing became of it."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class Progress:
    """How far a thread is that decodes: what is done, and whether it is to stop after that."""

    done: int = 0
    begun: bool = False
    stopped: bool = False


@dataclass
class Counts:
    """What came of frames since the start."""

    stored: int = 0
    same: int = 0
    conflict: int = 0
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


def decoded(data: bytes, max_content: int) -> tuple[Any, str]:
    """Return what a frame holds and its digest, as `Holder.digest` has it; everything in it is read and checked.

    Raises
    ------
    StateFormatError
        It is damaged, truncated, newer, larger than `max_content`, or no metrics.
    """
    frame = Frame(data, max_content)
    thing = made(frame.about, frame.states())
    if not isinstance(thing, Holder):
        raise StateFormatError("this is one state; post the metrics that it is of: to_bytes() of a Sliced")
    sha = hashlib.sha256(frame.kind.about.encode())
    for i in range(len(frame)):
        sha.update(bytes.fromhex(frame.digest(i)))
    return thing, sha.hexdigest()


class Ingest:
    """The queue in front of a store.

    Parameters
    ----------
    store : Store
        Keeps parts.
    totals : Totals
        Adds them up, after they are kept.
    changed : function of an id
        Told of experiments whose total has changed.
    settings : Settings
        How much may wait, and how long decoding may take.
    """

    def __init__(self, store: Any, totals: Any, changed: Callable[[str], Any], settings: Settings) -> None:
        self.store, self.totals, self.changed, self.settings = store, totals, changed, settings
        self.checker = Checker(totals.total)
        self.counts = Counts()
        self._queue: deque[Waiting] = deque()
        self._added: deque[Part] = deque()
        self._bytes = 0
        self._more, self._stored = asyncio.Event(), asyncio.Event()
        self._threads = ThreadPoolExecutor(2, "decode")

    @property
    def waiting(self) -> int:
        """How many parts wait, to be stored or to be added up."""
        return len(self._queue) + len(self._added)

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
            async with asyncio.TaskGroup() as group:
                group.create_task(self._storing())
                group.create_task(self._adding())
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for one in self._queue:
                one.refuse(BusyError("the server stops"))

    # -- storing ------------------------------------------------------------------------------------------------------

    async def _storing(self) -> None:
        while True:
            await self._more.wait()
            group = self._next_group()
            try:
                await self._store(await self._decode(group))
            except StreamMetricsError as error:  # who waits is told
                for one in group:
                    one.refuse(error)
            except Exception as error:  # who waits is told, and the others go on
                log.exception("a group of %d parts failed", len(group))
                for one in group:
                    one.refuse(error)
            self._bytes -= sum(len(one.data) for one in group if one.answer.done() and not one.kept)

    def _next_group(self) -> list[Waiting]:
        group: list[Waiting] = []
        size = 0
        while self._queue and len(group) < GROUP and (not group or size + len(self._queue[0].data) <= GROUP_BYTES):
            group.append(self._queue.popleft())
            size += len(group[-1].data)
        if not self._queue:
            self._more.clear()
        return group

    async def _decode(self, group: list[Waiting]) -> list[Waiting]:
        """Those of a group that are sound, with their digests; the others are told, or wait again."""
        progress = Progress()
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._read, group, progress)
        count, late = -1, {work}
        while late and count < progress.done:  # as long as one after the other is done in time
            count = progress.done
            _, late = await asyncio.wait([work], timeout=self.settings.decode_seconds)
        if late:
            progress.stopped = True
            self._give_up(group, count, progress.begun)
        else:
            work.result()
            count = len(group)
        sound = []
        for one in group[:count]:
            if one.error is None:
                sound.append(one)
            else:
                self._refuse(one, one.error)
        return sound

    def _read(self, group: Sequence[Waiting], progress: Progress) -> None:
        """Decode and check in a thread."""
        progress.begun = True
        for one in group:
            if progress.stopped:
                return
            try:
                thing, one.digest = decoded(one.data, self.settings.max_content)
                if not progress.stopped:
                    self.checker.check(one.experiment, thing)
            except StreamMetricsError as error:  # who waits is told
                one.error = error
            except MemoryError:  # who waits may send it again
                one.error = BusyError("there is no memory to decode it now; send it again later")
            progress.done += 1

    def _give_up(self, group: Sequence[Waiting], done: int, begun: bool) -> None:
        """Refuse the frame that takes too long; those behind it wait again, in front."""
        if not begun:
            for one in group:
                one.refuse(BusyError("all that decode are busy; send it again later"))
            return
        seconds = self.settings.decode_seconds
        self._refuse(group[done], StateFormatError(f"the frame could not be decoded within {seconds:g} s"))
        self._queue.extendleft(reversed(group[done + 1 :]))
        if self._queue:
            self._more.set()

    def _refuse(self, one: Waiting, error: StreamMetricsError) -> None:
        name = type(error).__name__
        self.counts.refused += 1
        self.counts.reasons[name] = self.counts.reasons.get(name, 0) + 1
        one.refuse(error)

    async def _store(self, sound: Sequence[Waiting]) -> None:
        if not sound:
            return
        parts = [Part(one.key, one.data, one.digest, one.received) for one in sound]
        try:
            words = await asyncio.to_thread(self.store.put, parts)
        except BaseException:
            self.checker.forget({one.key.experiment for one in sound})
            raise
        for one, part, word in zip(sound, parts, words, strict=True):
            setattr(self.counts, word, getattr(self.counts, word) + 1)
            if word == "stored":
                self._added.append(part)
            one.settle(word)
        if self._added:
            self._stored.set()

    # -- adding up ----------------------------------------------------------------------------------------------------

    async def _adding(self) -> None:
        while True:
            await self._stored.wait()
            self._stored.clear()
            parts = list(self._added)
            left = await asyncio.to_thread(self._add, parts)
            again = {part.key for part in left}
            for part in parts:
                self._added.popleft()
                self._bytes -= 0 if part.key in again else len(part.data)
            for experiment in dict.fromkeys(part.key.experiment for part in parts if part.key not in again):
                self.changed(experiment)
            if left:
                self._added.extendleft(reversed(left))
                await asyncio.sleep(AGAIN)
                self._stored.set()

    def _add(self, parts: Sequence[Part]) -> list[Part]:
        """Add up; return those to be tried again, as the store is away."""
        try:
            self.totals.add(parts)
        except (StoreDownError, StoreFullError):  # the caller tries again
            return list(parts)
        except StreamMetricsError as error:
            if len(parts) > 1:  # one that does not fit must not keep the others out
                return [one for part in parts for one in self._add([part])]
            log.error("%s is stored, and could not be added up: %s", parts[0].key.text, error)
        return []
