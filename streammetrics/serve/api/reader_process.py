"""A reader and a decoder in processes of their own: while they compute, posts are answered and pages are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...errors import StreamMetricsError
from ..evaluation.experiment import Experiment
from ..evaluation.reading import ExperimentReader, ExperimentReading
from ..store import open_store
from .decode import Decoded
from .decoder import Decoder
from .worker import WorkerProcess

__all__ = ["Apart", "DecoderApart"]

NICE = 10
"""Posts and pages go first."""


class Apart:
    """A `Reader` of a store in another process, which is started when it is asked, and again if it dies.

    Parameters
    ----------
    url : str
        Of the store, as for `open_store`.
    """

    def __init__(self, url: str) -> None:
        self.worker = WorkerProcess("reads experiments", _Reader, url, nice=NICE)

    def start(self) -> None:
        """Return once the process is there."""
        self.worker.start()

    def read(self, experiment: str, now: float) -> ExperimentReading:
        """Read an experiment."""
        found: ExperimentReading = self.worker.ask("read", experiment, now)
        return found

    def tidy(self, experiment: str, now: float) -> None:
        """Fold of one what can no longer be corrected."""
        self.worker.ask("tidy", experiment, now)

    def total(self, experiment: str) -> bytes | None:
        """All that was counted, as a frame."""
        found: bytes | None = self.worker.ask("total", experiment)
        return found

    def hurry(self, seconds: float) -> None:
        """End in so many seconds, whatever is being read: what was to be kept is added up at the next start."""
        self.worker.hurry(seconds)

    def close(self) -> None:
        """Keep what is expensive to make again, and end the process; if it died, that is added up at the next start."""
        self.worker.close("close")


class DecoderApart:
    """A `Decoder` in another process: a frame that takes for ever, or all memory, ends with it.

    Parameters
    ----------
    url : str
        Of the store, as for `open_store`.
    make : function of the store
        Makes the decoder, in the other process.
    """

    def __init__(self, url: str, make: Callable[[Any], Decoder] = Decoder) -> None:
        self.worker = WorkerProcess("decodes", _with_store, make, url)

    def start(self) -> None:
        """Return once the process is there."""
        self.worker.start()

    def decode(
        self, frames: Sequence[bytes], experiments: Sequence[Experiment], max_content: int, seconds: float
    ) -> list[Decoded]:
        """Decode frames, and check them."""
        found: list[Decoded] = self.worker.ask("decode", frames, experiments, max_content, seconds=seconds)
        return found

    def forget(self, experiments: Iterable[str]) -> None:
        """Forget what parts that could not be stored may have fixed."""
        with suppress(StreamMetricsError):  # it ended, and all that it knew with it
            self.worker.ask("forget", set(experiments))

    def close(self) -> None:
        """End the process."""
        self.worker.end()


# -- in the other process ------------------------------------------------------------------------------------------------


class _Reader(ExperimentReader):
    """One with a store of its own."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url))

    def close(self) -> None:
        super().close()
        self.store.close()


def _with_store(make: Callable[[Any], Decoder], url: str) -> Decoder:
    return make(open_store(url))
