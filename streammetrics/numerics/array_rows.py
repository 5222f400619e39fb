"""Functions that write and sum the rows of arrays, compute cumulative sums, and list the integers of ranges.

To write rows, the array is viewed as one-dimensional, with a whole row as each element, because indexing a matrix takes
ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["exclusive_cumsum", "expand_ranges", "put_rows", "row_sums", "sum_columns"]

Array = NDArray[Any]


def exclusive_cumsum(values: Any) -> NDArray[np.int64]:
    """Return, for each value, the sum of the values before it, followed by the sum of all values."""
    run = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=run[1:])
    return run


def put_rows(array: Array, at: NDArray[Any], rows: Array) -> None:
    """Write rows at distinct indices along the first axis of a contiguous array.

    Parameters
    ----------
    array : ndarray of shape (n, ...)
        The array to write to.
    at : ints of shape (m,)
        The indices.
    rows : ndarray of shape (m, ...)
        The rows, of the same dtype as `array`.

    Notes
    -----
    To read rows, `array.take(at, axis=0)` is fast enough.
    """
    if len(at) and array.size and array.ndim > 1:
        # View each row as a single item of a void dtype, so that indexing copies whole rows rather than single
        # elements.
        item = np.dtype((np.void, array[0].nbytes))
        whole = np.ascontiguousarray(rows, array.dtype).reshape(len(at), -1)
        array.reshape(len(array), -1).view(item)[:, 0][at] = whole.view(item)[:, 0]
    else:
        array[at] = rows


def expand_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated indices of ranges: starts 5 and 2 with lengths 2 and 3 give 5, 6, 2, 3, 4."""
    out = np.arange(int(lengths.sum()))
    out += np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return out


def row_sums(values: Array) -> Array:
    """Return the sum of each row, over all axes except the first."""
    return np.asarray(values.sum(axis=tuple(range(1, values.ndim))))


def sum_columns(columns: Sequence[Array]) -> Array:
    """Return the elementwise sum of columns, added in order so that the result is the same on every machine."""
    return np.asarray(sum(columns[1:], columns[0]))
