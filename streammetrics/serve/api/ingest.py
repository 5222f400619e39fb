"""From what is posted to what is kept: frames are decoded and checked together, off the event loop, and stored."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ...errors import StateFormatError, StreamMetricsError
from ...format.frame import head_of
from ..evaluation.experiment import Experiment
from ..settings import ServerSettings
from ..store.part_keys import PartKey, PostedPart
from .decode import Decoded
from .decoder import Decode, NoRoomError
from .worker import EndedError, LateError

__all__ = ["Ingest", "NoRoomError"]

log = logging.getLogger(__name__)
STOPS = "the server stops; send it again later"
GROUP, GROUP_BYTES = 256, 1 << 26
"""Frames that are decoded and stored at once."""
APART = 0.025
"""Seconds from the beginning of a group of several to the next: together they take a third of the time. Where all post
alone, none waits."""


@dataclass(eq=False)
class WaitingFrame:
    """A frame, and who waits for what becomes of it."""

    key: PartKey
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
    decoder : Decode
        Who decodes and checks: here, or in a process of its own.

    Notes
    -----
    It is `ready` once the decoder has started.
    """

    def __init__(self, store: Any, changed: Callable[[str], Any], settings: ServerSettings, decoder: Decode) -> None:
        self.store, self.changed, self.settings, self.decoder = store, changed, settings, decoder
        self.counts, self.ready = Counts(), False
        self._queue: deque[WaitingFrame] = deque()
        self._group: list[WaitingFrame] = []
        self._bytes, self._stopped = 0, False
        self._more = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "ingest")  # waits for the decoder

    @property
    def waiting(self) -> int:
        """How many parts wait to be stored."""
        return len(self._queue)

    async def take(self, key: PartKey, data: bytes, experiment: Experiment) -> str:
        """Return "stored", "same" or "conflict" once that is on the disk.

        Raises
        ------
        BusyError
            Too many wait.
        StreamMetricsError
            What is wrong with the frame, or with the store; nothing of it was kept.
        """
        if self._stopped:
            raise NoRoomError(STOPS)
        if self.waiting >= self.settings.waiting or self._bytes + len(data) > self.settings.waiting_bytes:
            raise NoRoomError(f"{self.waiting:,} parts wait to be stored; send it again later")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append(WaitingFrame(key, data, experiment, self.settings.clock(), answer))
        self._bytes += len(data)
        self._more.set()
        return await answer

    async def run(self) -> None:
        """Work until it is cancelled."""
        try:
            await self._start()
            clock, next_at = asyncio.get_running_loop().time, 0.0
            while True:
                await self._more.wait()
                await asyncio.sleep(next_at - clock())
                self._group = self._next_group()
                next_at = clock() + APART if len(self._group) > 1 else 0.0
                await self._take_group(self._group)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self.decoder.close()
            self._stopped = True
            for one in [*self._group, *self._queue]:
                one.refuse(NoRoomError(STOPS))

    async def _start(self) -> None:
        """Start the decoder before it is asked; where that fails, the first that is posted tries again and says why."""
        try:
            await self._run(self.decoder.start)
        except Exception:  # who posts is told
            log.exception("what decodes could not be started")
        self.ready = True

    async def _run(self, call: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *given)

    async def _take_group(self, group: list[WaitingFrame]) -> None:
        try:
            await self._store(await self._decode(group))
        except Exception as error:  # who waits is told, and the others go on
            if not isinstance(error, StreamMetricsError):
                log.exception("a group of %d parts failed", len(group))
            with suppress(Exception):  # of a process that cannot be started: it remembers nothing either
                await self._run(self.decoder.forget, {one.key.experiment for one in group})
            for one in group:
                one.refuse(error)
        self._bytes -= sum(len(one.data) for one in group if one.answer.done())

    def _next_group(self) -> list[WaitingFrame]:
        group: list[WaitingFrame] = []
        size = 0
        while self._queue and len(group) < GROUP and (not group or size + len(self._queue[0].data) <= GROUP_BYTES):
            group.append(self._queue.popleft())
            size += len(group[-1].data)
        if not self._queue:
            self._more.clear()
        return group

    async def _decode(self, group: list[WaitingFrame]) -> list[tuple[WaitingFrame, Decoded]]:
        """Those of a group that are sound, with their digests; the others are told, or wait again."""
        sound, runs, settings = [], _alike(group), self.settings
        for i, run in enumerate(runs):
            frames, experiments = [one.data for one in run], [one.experiment for one in run]
            try:
                found = await self._run(
                    self.decoder.decode, frames, experiments, settings.max_content, settings.decode_seconds
                )
            except (LateError, EndedError) as error:  # those before are stored, as what they have fixed is forgotten
                self._put_off(runs[i:], error)
                break
            for one, what in zip(run, found, strict=True):
                if what.error is None:
                    sound.append((one, what))
                else:
                    self._refuse(one, _busy() if isinstance(what.error, MemoryError) else what.error)
        return sound

    def _put_off(self, runs: Sequence[Sequence[WaitingFrame]], error: Exception) -> None:
        """Refuse the frame that cannot be decoded, or look for it, one by one; those behind it wait again, in front."""
        first = runs[0]
        for one in first:
            one.alone = True
        if len(first) == 1:
            self._refuse(first[0], self._why(error))
        again = [one for one in chain(*runs) if not one.answer.done()]
        self._queue.extendleft(reversed(again))
        if self._queue:
            self._more.set()

    def _why(self, error: Exception) -> StreamMetricsError:
        """What is wrong with a frame that was decoded alone; of one that something ended with, nobody knows."""
        if isinstance(error, LateError):
            return StateFormatError(f"the frame could not be decoded within {self.settings.decode_seconds:g} s")
        return NoRoomError(f"{error}; send it again later")

    def _refuse(self, one: WaitingFrame, error: Exception) -> None:
        name = type(error).__name__
        self.counts.refused += 1
        self.counts.reasons[name] = self.counts.reasons.get(name, 0) + 1
        one.refuse(error)

    async def _store(self, sound: Sequence[tuple[WaitingFrame, Decoded]]) -> None:
        if not sound:
            return
        parts = [PostedPart(one.key, one.data, found.digest, one.received, found.seen) for one, found in sound]
        words = await asyncio.to_thread(self.store.put, parts)
        changed = set()
        for (one, _), part, word in zip(sound, parts, words, strict=True):
            setattr(self.counts, word, getattr(self.counts, word) + 1)
            one.settle(word)
            if word == "stored":
                changed.add(part.key.experiment)
        for experiment in sorted(changed):
            self.changed(experiment)


def _busy() -> NoRoomError:
    return NoRoomError("there is no memory to decode it now; send it again later")


def _alike(group: Sequence[WaitingFrame]) -> list[list[WaitingFrame]]:
    """Frames that are decoded together: those of one kind, unless one of them may take too long."""
    runs: dict[Any, list[WaitingFrame]] = {}
    for one in group:
        runs.setdefault(id(one) if one.alone else head_of(one.data), []).append(one)
    return list(runs.values())
