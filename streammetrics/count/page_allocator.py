"""Room for arrays of millions, in pages of their own: the heap that many of them had torn would keep what they give up."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["cut", "grown", "room"]

Array = NDArray[Any]

OWN = 1 << 22  # bytes from which on an array has pages of its own: less costs more to map than to tear
PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
LARGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)  # a fault for each 2 MiB, not each 4 KiB: a fifth of the sort


def room(size: int, dtype: Any) -> Array:
    """Return an array with anything in it; pages that nobody writes to take no memory, nor do any when it is gone."""
    nbytes = int(size) * np.dtype(dtype).itemsize
    if nbytes < OWN:
        return np.empty(size, dtype)
    try:
        pages = mmap.mmap(-1, nbytes, **PRIVATE)
    except OSError as error:
        raise MemoryError(f"no room for an array of {nbytes} bytes: {error}") from error
    if LARGE is not None:
        with suppress(OSError):  # a system without them: small ones do
            pages.madvise(LARGE)
    return np.frombuffer(pages, dtype)


def grown(array: Array, used: int, size: int) -> Array:
    """Return a larger array that begins with the first `used` numbers of another."""
    new: Array = room(size, array.dtype)
    new[:used] = array[:used]
    return new


def cut(array: Array, n: int) -> Array:
    """Give back what lies behind the first `n` of an array of `room` that nobody else has seen."""
    if array.base is None:
        array.resize(n, refcheck=False)
        return array
    return array[:n]
