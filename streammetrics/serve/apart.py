"""A reader in a process of its own: while it computes, posts are answered and pages are sent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from ..errors import StreamMetricsError
from .reading import Reader, Reading
from .store import open_store

__all__ = ["Apart"]

NICE = 5
"""Posts and pages go first."""


class Apart:
    """A `Reader` of a store in another process, which is started when it is asked, and again if it dies.

    Parameters
    ----------
    url : str
        Of the store, as for `open_store`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Return once the process is there, which takes as long as importing this package does."""
        self._ask(_there)

    def read(self, experiment: str, now: float) -> Reading:
        """Read an experiment."""
        found: Reading = self._ask(_read, experiment, now)
        return found

    def tidy(self, experiment: str, now: float) -> None:
        """Fold of one what can no longer be corrected."""
        self._ask(_tidy, experiment, now)

    def total(self, experiment: str) -> bytes | None:
        """All that was counted, as a frame."""
        found: bytes | None = self._ask(_total, experiment)
        return found

    def close(self) -> None:
        """Keep what is expensive to make again, and end the process."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            try:
                pool.submit(_close).result()
            except BrokenProcessPool:  # what it had not kept is added up at the next start
                pass
            finally:
                pool.shutdown()

    def _ask(self, call: Callable[..., Any], *given: Any) -> Any:
        with self._lock:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, get_context("spawn"), _open, (self._url, os.getpid()))
            pool = self._pool
        try:
            return pool.submit(call, *given).result()
        except BrokenProcessPool as error:  # another is started at the next call
            with self._lock:
                self._pool = None if self._pool is pool else self._pool
            pool.shutdown(wait=False)
            raise StreamMetricsError("the process that reads experiments has ended; another is started") from error


# -- in the other process ------------------------------------------------------------------------------------------------

_reader: Reader | None = None


def _open(url: str, parent: int) -> None:
    """Make the reader. Who is asked to stop is the server, which asks this to close; if that is gone, so is this."""
    global _reader
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICE)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _reader = Reader(open_store(url))


def _watch(parent: int) -> None:
    """End with the server, which may be killed."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(1)


def _ours() -> Reader:
    assert _reader is not None
    return _reader


def _there() -> None:
    """Nothing: it is asked once the reader is there."""


def _read(experiment: str, now: float) -> Reading:
    return _ours().read(experiment, now)


def _tidy(experiment: str, now: float) -> None:
    _ours().tidy(experiment, now)


def _total(experiment: str) -> bytes | None:
    return _ours().total(experiment)


def _close() -> None:
    _ours().close()
    _ours().store.close()
