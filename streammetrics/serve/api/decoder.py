"""Who decodes and checks what is posted: in a thread here, or in a process of its own (`apart`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Protocol

from ...collect.metric_like import MetricLike
from ...collect.serialization import from_bytes
from ...errors import StreamMetricsError
from ...format.frame import head_of
from ..evaluation.experiment import Experiment
from .decode import Decoded, decoded
from .part_check import Checker
from .worker import LateError

__all__ = ["Decode", "Decoder", "InThread", "NoRoomError"]

STUCK = 2
"""Threads that may be in a frame for ever: one more decodes."""


class NoRoomError(StreamMetricsError):
    """There is no room for more now; the same may be sent again later."""


class Decode(Protocol):
    """Who decodes and checks, here or in another process; one call at a time."""

    def start(self) -> None:
        """Be there before the first is to be decoded."""

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int, seconds: float
    ) -> list[Decoded]:
        """Return what frames hold that were posted to experiments, or what is wrong with each.

        Raises
        ------
        LateError, EndedError
            They, or one of them, took too long, or what decodes died of it: nothing is known of any, and all that was
            fixed by parts that are not stored yet is forgotten.
        BusyError
            None was begun.
        """

    def forget(self, experiments: Iterable[str]) -> None:
        """Forget what parts that could not be stored may have fixed."""

    def close(self) -> None:
        """End, whatever is being decoded."""


class Decoder:
    """Decodes frames, and checks whether they are what experiments take: as long as it takes, where it is called.

    Parameters
    ----------
    store : Store
        What was counted so far, of which the plan is after a restart.
    """

    def __init__(self, store: Any) -> None:
        self._checker = Checker(partial(counted_before, store))

    def decode(self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int) -> list[Decoded]:
        """Return what frames hold, or what is wrong with each."""
        checks = [
            partial(self._checker.check, experiment, header=head_of(frame))
            for experiment, frame in zip(experiments, frames, strict=True)
        ]
        return decoded(frames, max_content, checks)

    def forget(self, experiments: Iterable[str]) -> None:
        """Forget what parts that could not be stored may have fixed."""
        self._checker.forget(experiments)


class InThread:
    """A `Decoder` in this process. A thread cannot be ended: one that is late is left to itself, and another takes over.

    Parameters
    ----------
    store : Store
        As of `Decoder`.
    make : function of the store
        Makes the decoder.
    """

    def __init__(self, store: Any, make: Callable[[Any], Decoder] = Decoder) -> None:
        self._make = partial(make, store)
        self._decoder = self._make()
        self._threads = ThreadPoolExecutor(STUCK + 1, "decode")

    def start(self) -> None:
        """Nothing: it is where it is asked."""

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int, seconds: float
    ) -> list[Decoded]:
        """Decode frames, and check them."""
        work = self._threads.submit(self._decoder.decode, frames, experiments, max_content)
        if not wait([work], seconds).done:
            self._decoder = self._make()  # the other one may go on, and what it finds is nobody's
            if work.cancel():
                raise NoRoomError("all that decode are busy; send it again later")
            raise LateError(f"it took longer than {seconds:g} s")
        return work.result()

    def forget(self, experiments: Iterable[str]) -> None:
        """Forget what parts that could not be stored may have fixed."""
        self._decoder.forget(experiments)

    def close(self) -> None:
        """Decode no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def counted_before(store: Any, experiment: str) -> MetricLike | None:
    """Return something that was counted of an experiment, or None: what has its plan after a restart."""
    kept = store.total(experiment)
    frames = [kept[1]] if kept is not None else [part.data for _, part in store.parts(experiment)[:1]]
    found: MetricLike | None = from_bytes(frames[0]) if frames else None
    return found
