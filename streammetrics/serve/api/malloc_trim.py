"""Memory that is free again goes back to the system: glibc keeps it in pages between what is held."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

__all__ = ["EVERY", "Spare"]

EVERY = 10.0  # seconds: it takes some milliseconds, and pages that are wanted again take as long to come


class Spare:
    """What gives back free memory, at most once in some seconds; without glibc, nothing.

    A reader that folds days and lets go of them would else hold half as much again as it needs, and ever more.

    Parameters
    ----------
    every : float
        Seconds.
    clock : callable
        Seconds, never going back.
    """

    def __init__(self, every: float = EVERY, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock, self._last = every, clock, clock()
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def give_back(self) -> bool:
        """Give free pages back, if it was not done just now; return whether there were some."""
        if self._trim is None or self._clock() - self._last < self._every:
            return False
        self._last = self._clock()
        return bool(self._trim(0))
