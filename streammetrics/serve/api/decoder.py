"""Decode and check posted frames in a thread of the server; `reader_process` does the same in a separate process.

A frame contains the serialized metrics that a worker posts. The plan of an experiment consists of the metrics and
settings that all frames of the experiment must share; the first frame fixes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Protocol

from ...collect.metric_like import MetricLike
from ...collect.serialization import from_bytes
from ...errors import StreamMetricsError
from ...format.frame import read_head
from ..evaluation.experiment import Experiment
from .frame_decoding import DecodedFrame, decode_frames
from .part_check import PartChecker
from .worker import LateError

__all__ = ["DecoderService", "FrameDecoder", "NoRoomError", "ThreadDecoder"]

MAX_STUCK_THREADS = 2
"""The number of threads that may be stuck in frames that never finish decoding. Another thread decodes other frames."""


class NoRoomError(StreamMetricsError):
    """An error raised if the queue is full or memory runs short. The sender can post the same frame again later."""


class DecoderService(Protocol):
    """The interface of decoders, which decode and check frames (serialized metrics) in this or another process.

    A decoder handles only one call at a time.
    """

    def start(self) -> None:
        """Start the decoder before the first frame arrives."""

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int, seconds: float
    ) -> list[DecodedFrame]:
        """Decode frames, and check each against its experiment. Each result is a digest and row counts, or an error.

        `max_content` is the largest decompressed size of a frame in bytes, and `seconds` is the time limit for all
        frames together.

        Raises
        ------
        LateError, EndedError
            Decoding took too long, or the decoder died. None of the frames has a result, and the decoder has forgotten
            the metric plans that were fixed by frames not yet stored.
        NoRoomError
            All threads are busy; decoding has not begun.
        """

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the plans (the metrics and settings that all frames must share) of some experiments.

        This is needed if the frame that fixed a plan could not be stored. A later frame then fixes the plan again.
        """

    def close(self) -> None:
        """Stop the decoder, even if it is decoding a frame."""


class FrameDecoder:
    """An object that decodes frames (serialized metrics) and checks that they fit their experiments.

    The work is done in the calling thread, without a time limit.

    Parameters
    ----------
    store : Store
        The store with earlier parts, from which the metric plans are read after a restart.
    """

    def __init__(self, store: Any) -> None:
        self._checker = PartChecker(partial(load_reference, store))

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int
    ) -> list[DecodedFrame]:
        """Decode frames, and check each against its experiment. Each result is a digest and row counts, or an error."""
        checks = [
            partial(self._checker.check, experiment, header=read_head(frame))
            for experiment, frame in zip(experiments, frames, strict=True)
        ]
        return decode_frames(frames, max_content, checks)

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the metric plans of some experiments, because the frames that fixed them could not be stored."""
        self._checker.forget_plans(experiments)


class ThreadDecoder:
    """A decoder that runs a `FrameDecoder` in threads of this process, with a time limit.

    Python cannot stop a thread. If a frame takes too long, its thread is abandoned, and another thread decodes the next
    frames.

    Parameters
    ----------
    store : Store
        The store, as for `FrameDecoder`.
    make : callable
        A function that builds a decoder from the store.
    """

    def __init__(self, store: Any, make: Callable[[Any], FrameDecoder] = FrameDecoder) -> None:
        self._make = partial(make, store)
        self._decoder = self._make()
        self._threads = ThreadPoolExecutor(MAX_STUCK_THREADS + 1, "decode")

    def start(self) -> None:
        """Do nothing: threads start on demand."""

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int, seconds: float
    ) -> list[DecodedFrame]:
        """Decode and check frames within a time limit. Each result is a digest and row counts, or an error."""
        work = self._threads.submit(self._decoder.decode, frames, experiments, max_content)
        if not wait([work], seconds).done:
            # The abandoned thread may still use the old decoder. A new decoder replaces the old one, and reads the
            # metric plans from the store again.
            self._decoder = self._make()
            if work.cancel():
                raise NoRoomError("all threads that decode parts are busy; send the part again later")
            raise LateError(f"decoding took longer than {seconds:g} s")
        return work.result()

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the metric plans of some experiments, because the frames that fixed them could not be stored."""
        self._decoder.forget_plans(experiments)

    def close(self) -> None:
        """Stop accepting frames, without waiting for those that are being decoded."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def load_reference(store: Any, experiment: str) -> MetricLike | None:
    """Return the stored metrics that define the metric plan of an experiment after a restart; None if there are none.

    These are the metrics of the saved total or, if there is no saved total, of the first part.
    """
    saved = store.total(experiment)
    frames = [saved[1]] if saved is not None else [part.data for _, part in store.parts(experiment)[:1]]
    metrics: MetricLike | None = from_bytes(frames[0]) if frames else None
    return metrics
