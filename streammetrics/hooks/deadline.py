"""The moment by which processes must have answered each other."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from datetime import timedelta
from typing import TypeVar

from ..errors import SyncTimeoutError
from ..numerics.signal_safety import in_thread

__all__ = ["TIMEOUT", "Deadline"]

T = TypeVar("T")

TIMEOUT = 300.0
"""Seconds that `sync` waits, if nothing else is said."""

PATIENCE = 3.0
"""Seconds that the end of the process waits for calls that were given up, and may hang for ever."""


class Deadline:
    """The moment by which something must be over.

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
    def left(self) -> float:
        """Seconds until then; 0 when it is over."""
        return max(self._end - time.monotonic(), 0.0)

    def error(self, doing: str) -> SyncTimeoutError:
        """Make the error that says what was not over by then."""
        return SyncTimeoutError(
            f"{doing} was not over after {self.seconds:g} s: a rank is stuck, gone, or has not called sync; "
            "all metrics are as they were"
        )

    def call(self, function: Callable[[], T], doing: str) -> T:
        """Call what may hang for ever in a thread, which is left behind then.

        Raises
        ------
        SyncTimeoutError
            It has not returned in time.
        """
        done, thread = in_thread(function, doing, daemon=True)
        if not wait([done], max(self.left, 1e-3)).done:
            _left_behind.append(thread)
            raise self.error(doing)
        return done.result()


_left_behind: list[threading.Thread] = []


@atexit.register
def _last_chance() -> None:
    """Let threads end that are about to: one that comes back from C++ while Python is taken down aborts the process."""
    end = Deadline(PATIENCE)
    for thread in _left_behind:
        thread.join(end.left)
