"""Run the experiment reader and the frame decoder in separate processes, so that they do not delay requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...errors import StreamMetricsError
from ..evaluation.experiment import Experiment
from ..evaluation.experiment_reader import ExperimentReader, ExperimentReading
from ..store import open_store
from .decoder import FrameDecoder
from .frame_decoding import DecodedFrame
from .worker import WorkerProcess

__all__ = ["DecoderProcess", "ReaderProcess"]

NICE = 10
"""The niceness of the reader process. Requests have priority over evaluations."""


class ReaderProcess:
    """An `ExperimentReader` in another process, which starts when it is needed and restarts if it has died.

    Parameters
    ----------
    url : str
        The URL of the store, as for `open_store`.
    """

    def __init__(self, url: str) -> None:
        self.worker = WorkerProcess("reads experiments", _StoreReader, url, nice=NICE)

    def start(self) -> None:
        """Start the process, and return once it is ready."""
        self.worker.start()

    def read(self, experiment: str, now: float) -> ExperimentReading:
        """Return the evaluation and the definition of an experiment."""
        reading: ExperimentReading = self.worker.call("read", experiment, now)
        return reading

    def compact(self, experiment: str, now: float) -> None:
        """Merge parts by day once they can no longer be corrected; delete their data after the retention time."""
        self.worker.call("compact", experiment, now)

    def total(self, experiment: str) -> bytes | None:
        """Return the total of an experiment (all its parts merged) as bytes, or None if it has no parts."""
        frame: bytes | None = self.worker.call("total", experiment)
        return frame

    def end_after(self, seconds: float) -> None:
        """End the process after the given number of seconds, even during a call.

        If the totals (the merged parts) are not saved by then, the next start merges all parts again.
        """
        self.worker.end_after(seconds)

    def close(self) -> None:
        """Save the totals and end the process.

        If the process has died, nothing is saved, and the next start merges all parts into totals again.
        """
        self.worker.close("close")


class DecoderProcess:
    """A `FrameDecoder` in another process, which the server can end if a frame takes too much time or memory.

    Parameters
    ----------
    url : str
        The URL of the store, as for `open_store`.
    make : callable
        Builds the decoder from the store, in the other process.
    """

    def __init__(self, url: str, make: Callable[[Any], FrameDecoder] = FrameDecoder) -> None:
        self.worker = WorkerProcess("decodes", _build_decoder, make, url)

    def start(self) -> None:
        """Start the process, and return once it is ready."""
        self.worker.start()

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int, seconds: float
    ) -> list[DecodedFrame]:
        """Decode frames, and check each against its experiment. Each result is a digest and row counts, or an error.

        `max_content` is the largest decompressed size of a frame in bytes, and `seconds` is the time limit for all
        frames together.
        """
        results: list[DecodedFrame] = self.worker.call("decode", frames, experiments, max_content, seconds=seconds)
        return results

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the metric plans of `experiments`, because the frames that fixed these plans could not be stored."""
        # The call fails if the process has died. The error is ignored, because the plans were lost with the process.
        with suppress(StreamMetricsError):
            self.worker.call("forget_plans", set(experiments))

    def close(self) -> None:
        """End the process."""
        self.worker.end()


# -- in the other process ----------------------------------------------------------------------------------------------


class _StoreReader(ExperimentReader):
    """An `ExperimentReader` that opens its own store and closes it in `close`."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url))

    def close(self) -> None:
        super().close()
        self.store.close()


def _build_decoder(make: Callable[[Any], FrameDecoder], url: str) -> FrameDecoder:
    return make(open_store(url))
