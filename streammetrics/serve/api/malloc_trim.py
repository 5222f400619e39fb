"""Return freed memory to the operating system; glibc keeps it as long as a page around it is in use."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

__all__ = ["TRIM_INTERVAL", "MallocTrimmer"]

TRIM_INTERVAL = 10.0  # seconds; a call takes milliseconds, and so does getting the pages back


class MallocTrimmer:
    """Calls malloc_trim, at most once in some seconds; without glibc it does nothing.

    Otherwise, the memory of a process that merges days and drops them grows to more than 1.5 times what it needs.

    Parameters
    ----------
    interval : float
        The seconds between two calls.
    clock : callable
        Returns seconds from a monotonic clock.
    """

    def __init__(self, interval: float = TRIM_INTERVAL, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock, self._last = interval, clock, clock()
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def trim(self) -> bool:
        """Release free memory, unless the last call was less than `interval` ago; return whether any was released."""
        if self._trim is None or self._clock() - self._last < self._every:
            return False
        self._last = self._clock()
        return bool(self._trim(0))
