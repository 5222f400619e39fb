"""A time limit for calls that wait for other processes."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from datetime import timedelta
from typing import TypeVar

from ..errors import SyncTimeoutError
from ..numerics.signal_safety import start_in_thread

__all__ = ["TIMEOUT", "Deadline"]

T = TypeVar("T")

TIMEOUT = 300.0
"""The default time limit of `sync`, in seconds."""

EXIT_PATIENCE = 3.0
"""Seconds that the process waits at exit for abandoned calls, which may hang for ever."""


class Deadline:
    """The end of a time limit.

    Parameters
    ----------
    timeout : float or timedelta
        Seconds from now.

    Raises
    ------
    ValueError
        The timeout is no positive number of seconds.
    """

    def __init__(self, timeout: float | timedelta) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        if not 0 < seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        self.seconds, self._end = seconds, time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """The remaining seconds; 0 after the end."""
        return max(self._end - time.monotonic(), 0.0)

    def build_error(self, doing: str) -> SyncTimeoutError:
        """Return the error for an operation that has not finished in time."""
        return SyncTimeoutError(
            f"{doing} was not over after {self.seconds:g} s: a rank is stuck, gone, or has not called sync; "
            "all metrics are as they were"
        )

    def call(self, function: Callable[[], T], doing: str) -> T:
        """Call a function that may hang in a thread, and abandon the thread after the time limit.

        Raises
        ------
        SyncTimeoutError
            The function has not returned in time.
        """
        future, thread = start_in_thread(function, doing, daemon=True)
        if not wait([future], max(self.remaining, 1e-3)).done:
            _abandoned_threads.append(thread)
            raise self.build_error(doing)
        return future.result()


_abandoned_threads: list[threading.Thread] = []


@atexit.register
def _join_abandoned_threads() -> None:
    """Wait briefly for abandoned threads: a thread that returns from C++ while Python shuts down aborts the process."""
    end = Deadline(EXIT_PATIENCE)
    for thread in _abandoned_threads:
        thread.join(end.remaining)
