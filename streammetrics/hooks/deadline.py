"""Time limits for operations that wait for other processes, which may be stuck or gone."""

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
"""The longest time, in seconds, that the process waits at exit for abandoned calls, which may never return."""


class Deadline:
    """A point in time by which an operation, such as a `sync` of several steps, must finish.

    Parameters
    ----------
    timeout : float or timedelta
        The time from now to the deadline; a float is a number of seconds.

    Raises
    ------
    ValueError
        The timeout is not a positive number of seconds.
    """

    def __init__(self, timeout: float | timedelta) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        if not 0 < seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        self.seconds, self._end = seconds, time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """The number of seconds until the deadline; 0 after it."""
        return max(self._end - time.monotonic(), 0.0)

    def build_error(self, doing: str) -> SyncTimeoutError:
        """Return the error for an operation that has missed the deadline; `doing` describes the operation."""
        return SyncTimeoutError(
            f"timed out after {self.seconds:g} s while {doing}: a rank is stuck, has ended, or has not called sync; "
            "the metrics are unchanged. If a rank is only slow, raise timeout="
        )

    def call(self, function: Callable[[], T], doing: str) -> T:
        """Call a function in another thread, and return its result; abandon the thread at the deadline.

        Parameters
        ----------
        function : callable
            A function that may never return.
        doing : str
            What the function does, for the error message.

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
    """Wait briefly for abandoned threads to end.

    A thread that returns from C++ code while Python shuts down would abort the process.
    """
    end = Deadline(EXIT_PATIENCE)
    for thread in _abandoned_threads:
        thread.join(end.remaining)
