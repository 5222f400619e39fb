"""Memory for large arrays, in pages of their own.

Tallies allocate and free arrays of many megabytes again and again. On the heap of C that leaves holes, which the process
keeps: its memory grows far beyond the size of its arrays. Large arrays therefore get anonymous memory maps. Their pages
return to the system when the array is freed, and take no memory before something is written to them.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["allocate", "grow_copy", "trim"]

Array = NDArray[Any]

# Smaller arrays come from the heap, because a memory map would cost more than it saves.
MIN_MAPPED_BYTES = 1 << 22
MAP_FLAGS: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
# With huge pages there is one page fault for each 2 MiB instead of each 4 KiB, which saves a fifth of the time of a sort.
HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


def allocate(size: int, dtype: Any) -> Array:
    """Return an uninitialised array. Pages that are never written to take no memory.

    Raises
    ------
    MemoryError
        The system has not enough memory.
    """
    nbytes = int(size) * np.dtype(dtype).itemsize
    if nbytes < MIN_MAPPED_BYTES:
        return np.empty(size, dtype)
    try:
        pages = mmap.mmap(-1, nbytes, **MAP_FLAGS)
    except OSError as error:
        raise MemoryError(f"not enough memory for an array of {nbytes} bytes: {error}") from error
    if HUGE_PAGES is not None:
        # The system has no huge pages.
        with suppress(OSError):
            pages.madvise(HUGE_PAGES)
    return np.frombuffer(pages, dtype)


def grow_copy(array: Array, used: int, size: int) -> Array:
    """Return a larger array that begins with the first `used` items of another."""
    new: Array = allocate(size, array.dtype)
    new[:used] = array[:used]
    return new


def trim(array: Array, n: int) -> Array:
    """Free the memory after the first `n` items of an array from `allocate`, which must have no other reference."""
    if array.base is None:
        array.resize(n, refcheck=False)
        return array
    return array[:n]
