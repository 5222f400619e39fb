"""Decode and check posted frames in a thread of the server; `reader_process` does so in a process of its own.

A frame is the serialized metrics that a worker posts. The plan of an experiment is the metrics and settings that all of
its frames must share; its first frame fixes the plan.
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
"""The number of threads that a frame may block for ever; one more thread goes on decoding."""


class NoRoomError(StreamMetricsError):
    """The queue or the memory is full; the sender may send the same frame again later."""


class DecoderService(Protocol):
    """An object that decodes and checks frames, in this process or another one; it handles one call at a time."""

    def start(self) -> None:
        """Start the decoder before the first frame arrives."""

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int, seconds: float
    ) -> list[DecodedFrame]:
        """Return the decoded content, or the error, of each frame posted to an experiment.

        Raises
        ------
        LateError, EndedError
            Decoding took too long, or the decoder died. No frame has a result. Plans that were fixed by parts that are
            not stored yet are forgotten.
        NoRoomError
            All threads are busy; decoding has not begun.
        """

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the metric plans of experiments, which may come from parts that could not be stored."""

    def close(self) -> None:
        """Stop, even while a frame is being decoded."""


class FrameDecoder:
    """Decodes frames and checks that they fit their experiments, in the calling thread and without a time limit.

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
        """Return the decoded content, or the error, of each frame."""
        checks = [
            partial(self._checker.check, experiment, header=read_head(frame))
            for experiment, frame in zip(experiments, frames, strict=True)
        ]
        return decode_frames(frames, max_content, checks)

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the metric plans of experiments, which may come from parts that could not be stored."""
        self._checker.forget_plans(experiments)


class ThreadDecoder:
    """Runs a `FrameDecoder` in threads of this process.

    Python cannot stop a thread. A thread that takes too long is abandoned, and another one takes over.

    Parameters
    ----------
    store : Store
        The store, as for `FrameDecoder`.
    make : callable
        Builds a decoder from the store.
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
        """Return the decoded content, or the error, of each frame within the time limit."""
        work = self._threads.submit(self._decoder.decode, frames, experiments, max_content)
        if not wait([work], seconds).done:
            self._decoder = self._make()  # the abandoned thread keeps the old decoder and its plans
            if work.cancel():
                raise NoRoomError("all that decode are busy; send it again later")
            raise LateError(f"it took longer than {seconds:g} s")
        return work.result()

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the metric plans of experiments, which may come from parts that could not be stored."""
        self._decoder.forget_plans(experiments)

    def close(self) -> None:
        """Stop accepting frames."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def load_reference(store: Any, experiment: str) -> MetricLike | None:
    """Return a stored total or part of an experiment, whose metrics and settings are its plan after a restart, or None."""
    saved = store.total(experiment)
    frames = [saved[1]] if saved is not None else [part.data for _, part in store.parts(experiment)[:1]]
    metrics: MetricLike | None = from_bytes(frames[0]) if frames else None
    return metrics
