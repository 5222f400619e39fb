"""The queue of posted frames, which are decoded in groups outside the event loop, checked, and stored."""

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
from ...format.frame import read_head
from ..evaluation.experiment import Experiment
from ..part_keys import PartKey, PostedPart
from ..settings import ServerSettings
from .decoder import DecoderService, NoRoomError
from .frame_decoding import DecodedFrame
from .worker import EndedError, LateError

__all__ = ["Ingest", "NoRoomError"]

log = logging.getLogger(__name__)
STOPPING = "the server is stopping; send the part again later"
MAX_GROUP, MAX_GROUP_BYTES = 256, 1 << 26
"""The largest number of frames that are decoded and stored together, and their largest total size in bytes."""
GROUP_INTERVAL = 0.05
"""Seconds between the starts of two groups of frames.

Waiting makes groups larger. A frame in a group of ten takes a third of the time that it takes alone. After a group of
only one frame, the next group starts immediately.
"""


@dataclass(eq=False)
class WaitingFrame:
    """A posted frame (serialized metrics) in the queue. Its request waits for the future `answer`.

    `decode_alone` is true if the frame was in a group that could not be decoded. The frame is then decoded alone.
    """

    key: PartKey
    data: bytes
    experiment: Experiment
    received_at: float
    answer: asyncio.Future[str]
    decode_alone: bool = False

    def set_outcome(self, word: str) -> None:
        """Tell the waiting request the outcome for its frame: the word that `Store.put` returned.

        A cancelled request is skipped.
        """
        if not self.answer.done():
            self.answer.set_result(word)

    def set_error(self, error: Exception) -> None:
        """Tell the waiting request why the frame was refused. A cancelled request is skipped."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class IngestCounts:
    """The numbers of posted frames (serialized metrics) by outcome, since the server started.

    `same` counts repeated posts. `conflict` counts posts with different content under the same key. `failed` counts
    frames that could not be decoded or stored because of a server fault. `reasons` counts refused and failed frames by
    error class.
    """

    stored: int = 0
    same: int = 0
    conflict: int = 0
    refused: int = 0
    failed: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Ingest:
    """The queue of posted frames (serialized metrics). A background task decodes, checks and stores the frames.

    Parameters
    ----------
    store : Store
        The store that saves parts.
    mark_changed : callable
        A function that is called with the ID of each experiment that has new parts.
    settings : ServerSettings
        The limits of the queue and of decoding.
    decoder : DecoderService
        The decoder, in this process or in a separate one.

    Notes
    -----
    `ready` is true once the decoder has started.
    """

    def __init__(
        self, store: Any, mark_changed: Callable[[str], Any], settings: ServerSettings, decoder: DecoderService
    ) -> None:
        self.store, self.mark_changed, self.settings, self.decoder = store, mark_changed, settings, decoder
        self.counts, self.ready = IngestCounts(), False
        self._queue: deque[WaitingFrame] = deque()
        self._group: list[WaitingFrame] = []
        self._bytes, self._stopped = 0, False
        self._more = asyncio.Event()
        # The decoder is called in this thread, because its calls would block the event loop.
        self._thread = ThreadPoolExecutor(1, "ingest")

    @property
    def waiting(self) -> int:
        """The number of frames in the queue."""
        return len(self._queue)

    async def submit(self, key: PartKey, data: bytes, experiment: Experiment) -> str:
        """Decode and store a frame. Return the outcome as soon as the frame is on disk.

        The result is "stored" for a new part, and "same" for a part that was stored before. If the key was posted
        before with different content, the result is one of the other words that `Store.put` returns.

        Raises
        ------
        NoRoomError
            The queue is full, or the server is stopping.
        StreamMetricsError
            The frame is invalid, or the store failed. The frame was not stored, not even partly.
        """
        if self._stopped:
            raise NoRoomError(STOPPING)
        if self.waiting >= self.settings.waiting or self._bytes + len(data) > self.settings.waiting_bytes:
            raise NoRoomError(f"the queue is full: {self.waiting:,} parts wait to be stored; send the part again later")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append(WaitingFrame(key, data, experiment, self.settings.clock(), answer))
        self._bytes += len(data)
        self._more.set()
        return await answer

    async def run(self) -> None:
        """Decode and store frames from the queue until the task is cancelled."""
        try:
            await self._start_decoder()
            clock, next_at = asyncio.get_running_loop().time, 0.0
            while True:
                # After a group of several frames, wait a little, so that the next group is also large. Frames are
                # decoded faster together than alone.
                await self._more.wait()
                await asyncio.sleep(next_at - clock())
                self._group = self._pop_group()
                next_at = clock() + GROUP_INTERVAL if len(self._group) > 1 else 0.0
                await self._process_group(self._group)
        finally:
            # Frames that have not been stored yet are lost. Their senders get an error and can post them again.
            self._thread.shutdown(wait=False, cancel_futures=True)
            self.decoder.close()
            self._stopped = True
            for one in [*self._group, *self._queue]:
                one.set_error(NoRoomError(STOPPING))

    async def _start_decoder(self) -> None:
        """Start the decoder before the first frame arrives.

        If this fails, the first frame triggers another attempt. If that fails too, the sender of the frame gets the
        error.
        """
        try:
            await self._run_in_thread(self.decoder.start)
        # The error is only logged, because the first frame triggers another attempt.
        except Exception:
            log.exception("the decoder could not be started")
        self.ready = True

    async def _run_in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    async def _process_group(self, group: list[WaitingFrame]) -> None:
        try:
            await self._store_parts(await self._decode_group(group))
        # If a group cannot be decoded or stored, the senders of its frames get the error. Later groups are unaffected.
        except Exception as error:
            if not isinstance(error, StreamMetricsError):
                log.exception("a group of %d parts failed", len(group))
            # This call fails if the decoder cannot be started. A decoder that never started has no metric plans to
            # forget, so the error is ignored.
            with suppress(Exception):
                await self._run_in_thread(self.decoder.forget_plans, {one.key.experiment for one in group})
            for one in group:
                if not one.answer.done():
                    self.counts.failed += 1
                    self._count_reason(error)
                one.set_error(error)
        self._bytes -= sum(len(one.data) for one in group if one.answer.done())

    def _pop_group(self) -> list[WaitingFrame]:
        group: list[WaitingFrame] = []
        size = 0
        while (
            self._queue and len(group) < MAX_GROUP and (not group or size + len(self._queue[0].data) <= MAX_GROUP_BYTES)
        ):
            group.append(self._queue.popleft())
            size += len(group[-1].data)
        if not self._queue:
            self._more.clear()
        return group

    async def _decode_group(self, group: list[WaitingFrame]) -> list[tuple[WaitingFrame, DecodedFrame]]:
        """Decode a group of frames, and return the valid ones, each with its digest and row counts.

        Invalid frames are refused. If the decoder fails, the frames without a result return to the queue.
        """
        valid, runs, settings = [], _group_by_header(group), self.settings
        for i, run in enumerate(runs):
            frames, experiments = [one.data for one in run], [one.experiment for one in run]
            try:
                results = await self._run_in_thread(
                    self.decoder.decode, frames, experiments, settings.max_content, settings.decode_seconds
                )
            # The decoder took too long or died, and its metric plans are lost. Stop here, so that the frames decoded so
            # far are stored first. The next decoder then reads the plans from the store.
            except (LateError, EndedError) as error:
                self._requeue(runs[i:], error)
                break
            for one, result in zip(run, results, strict=True):
                if result.error is None:
                    valid.append((one, result))
                else:
                    self._refuse_frame(
                        one, _build_memory_error() if isinstance(result.error, MemoryError) else result.error
                    )
        return valid

    def _requeue(self, runs: Sequence[Sequence[WaitingFrame]], error: Exception) -> None:
        """Put frames back at the front of the queue after the decoder failed.

        Each item of `runs` is a group of frames with the same header. The decoder failed on the first group. If that
        group contains a single frame, the frame is refused. Otherwise, each of its frames is decoded alone next time,
        which reveals the bad one.
        """
        first = runs[0]
        for one in first:
            one.decode_alone = True
        if len(first) == 1:
            self._refuse_frame(first[0], self._explain_failure(error))
        again = [one for one in chain(*runs) if not one.answer.done()]
        self._queue.extendleft(reversed(again))
        if self._queue:
            self._more.set()

    def _explain_failure(self, error: Exception) -> StreamMetricsError:
        """Return the error for the sender of a frame that could not be decoded even on its own.

        A frame that takes too long is treated as invalid. If the decoder died, the cause is unknown, so the sender may
        post the frame again.
        """
        if isinstance(error, LateError):
            return StateFormatError(
                f"the part could not be decoded within {self.settings.decode_seconds:g} s, because it is corrupt or "
                f"too large; split it into several parts with different values of seq"
            )
        return NoRoomError(f"{error}; send the part again later")

    def _refuse_frame(self, one: WaitingFrame, error: Exception) -> None:
        self.counts.refused += 1
        self._count_reason(error)
        one.set_error(error)

    def _count_reason(self, error: Exception) -> None:
        name = type(error).__name__
        self.counts.reasons[name] = self.counts.reasons.get(name, 0) + 1

    async def _store_parts(self, sound: Sequence[tuple[WaitingFrame, DecodedFrame]]) -> None:
        if not sound:
            return
        parts = [
            PostedPart(one.key, one.data, content.digest, one.received_at, content.row_counts) for one, content in sound
        ]
        outcomes = await asyncio.to_thread(self.store.put, parts)
        changed = set()
        for (one, _), part, outcome in zip(sound, parts, outcomes, strict=True):
            counted_as = outcome if outcome in ("stored", "same") else "conflict"
            setattr(self.counts, counted_as, getattr(self.counts, counted_as) + 1)
            one.set_outcome(outcome)
            if outcome == "stored":
                changed.add(part.key.experiment)
        for experiment in sorted(changed):
            self.mark_changed(experiment)


def _build_memory_error() -> NoRoomError:
    return NoRoomError("the server has too little memory to decode the part now; send the part again later")


def _group_by_header(group: Sequence[WaitingFrame]) -> list[list[WaitingFrame]]:
    """Split frames into groups to decode together.

    The frames in a group have the same header. A frame that may have caused an earlier failure of the decoder forms a
    group by itself.
    """
    runs: dict[Any, list[WaitingFrame]] = {}
    for one in group:
        runs.setdefault(id(one) if one.decode_alone else read_head(one.data), []).append(one)
    return list(runs.values())
