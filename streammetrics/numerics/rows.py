"""Rows of arrays, moved as one item each (an index into an array of several axes takes ten times as long), and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["across", "put", "row_sums"]

Array = NDArray[Any]


def put(array: Array, at: NDArray[Any], rows: Array) -> None:
    """Write rows at their places along the first axis of a contiguous array; none comes twice.

    Parameters
    ----------
    array : ndarray of shape (n, ...)
        What is written to.
    at : ints of shape (m,)
        Where; to read, `array.take(at, axis=0)` is the quick way.
    rows : ndarray of shape (m, ...)
        Of the same dtype.
    """
    if len(at) and array.size and array.ndim > 1:
        item = np.dtype((np.void, array[0].nbytes))
        whole = np.ascontiguousarray(rows, array.dtype).reshape(len(at), -1)
        array.reshape(len(array), -1).view(item)[:, 0][at] = whole.view(item)[:, 0]
    else:
        array[at] = rows


def row_sums(values: Array) -> Array:
    """The sum of each row, over all other axes."""
    return np.asarray(values.sum(axis=tuple(range(1, values.ndim))))


def across(columns: Sequence[Array]) -> Array:
    """The sum of columns, one after the other: in their order on every machine."""
    return np.asarray(sum(columns[1:], columns[0]))
