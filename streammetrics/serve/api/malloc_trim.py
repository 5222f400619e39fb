"""Return freed memory to the operating system. By default, glibc keeps much of it for later allocations."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

__all__ = ["TRIM_INTERVAL", "MallocTrimmer"]

TRIM_INTERVAL = 10.0  # seconds between two calls of malloc_trim, each of which takes milliseconds


class MallocTrimmer:
    """A helper that periodically calls glibc's malloc_trim to return freed memory to the operating system.

    Without these calls, a process that repeatedly merges metrics and frees them would use more than 1.5 times the
    memory that it needs. With other C libraries, this class does nothing.

    Parameters
    ----------
    interval : float
        The minimum number of seconds between two calls.
    clock : callable
        Returns seconds from a monotonic clock.
    """

    def __init__(self, interval: float = TRIM_INTERVAL, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock, self._last = interval, clock, clock()
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def trim(self) -> bool:
        """Release free memory, at most once per `interval` seconds; return whether any was released."""
        if self._trim is None or self._clock() - self._last < self._every:
            return False
        self._last = self._clock()
        return bool(self._trim(0))
