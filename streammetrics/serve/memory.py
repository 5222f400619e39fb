"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["give_back"]


def give_back() -> None:
    """Give back what was freed, where the C library keeps it until all behind it is freed, too (glibc).

    A process that holds large states for hours, and drops them in another order, would grow for days.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
