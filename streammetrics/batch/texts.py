"""Read columns of strings row by row.

`keys.read_keys` first assigns a number to each distinct string of a column. That step costs more time than it saves if
the caller needs only a hash of each string, for example to find the slice of each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..numerics.kernel_registry import find_kernel
from .columns import Mask
from .convert import arrow_values
from .keys import key_column

__all__ = ["Texts", "read_text_blocks"]

BLOCK = 1 << 14
"""The number of rows that are read at a time. Python can reuse the memory for the strings of so few rows in the next
block, whereas the operating system would have to provide new memory for the strings of a large column."""
INLINE_BYTES = 12
"""A view (an element of an Arrow array of type string_view) contains its string if it has at most this many bytes;
otherwise the view refers to a buffer that contains the string."""
VIEW_BYTES, PREFIX_BYTES = 16, 4
"""The number of bytes of a view, and of the integer at its beginning, which is the length of the string."""
KINDS = {
    "string": ("string", np.int32),
    "large_string": ("string", np.int64),
    "binary": ("bytes", np.int32),
    "large_binary": ("bytes", np.int64),
}
"""For each Arrow type, by name: the kind of its keys, and the dtype of its offsets (positions where strings begin)."""


class Texts(NamedTuple):
    """The strings of some rows: for row i, ``data[starts[i]:stops[i]]``, which is empty if the row has no string.

    Parameters
    ----------
    kind : str
        "string" or "bytes".
    data : uint8 array
        The bytes of all strings.
    starts, stops : int64 array
        The positions where the string of each row begins and ends.
    missing : bool array, optional
        Mask of the rows without a string; None if all rows have one.
    """

    kind: str
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    missing: Mask | None


def read_text_blocks(raw: Any, name: str) -> tuple[Any, Iterable[tuple[slice, Texts | None]]]:
    """Return a key column as `key_column` converts it, and the strings of each block of rows.

    There are no blocks if `read_slice_column` must read the column instead. This is the case if the column is empty, is
    a numpy array other than an object array, or stores each distinct string only once. It is also the case if the first
    block contains an item that this module cannot read, such as an integer or, in a list, None. If only a later block
    contains such an item, the iterable yields None for that block.
    """
    column = _convert_column(raw, name)
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column, ()
    blocks = _iterate_blocks(column)
    first = next(blocks, (None, None))
    return column, () if first[1] is None else chain([first], blocks)


def _convert_column(raw: Any, name: str) -> Any:
    """Convert a key column as `key_column` does, but without copying the short strings of a polars series."""
    is_text = type(raw).__module__.startswith("polars.") and str(getattr(raw, "dtype", "")) == "String"
    # If polars is installed without pyarrow, or is too old to export string views, `key_column` converts the series.
    if is_text and find_spec("pyarrow") is not None and hasattr(polars := import_module("polars"), "CompatLevel"):
        views = raw.to_arrow(compat_level=polars.CompatLevel.newest())
        has_values = str(views.type) == "string_view" and views.null_count < len(views)
        if has_values and _view_words(views)[:, 0].max() <= INLINE_BYTES:
            return views
    return key_column(raw, name)


def _iterate_blocks(column: Any) -> Iterator[tuple[slice, Texts | None]]:
    # An array that is not one-dimensional yields no blocks, so that `read_slice_column` reads it and raises an error.
    count = len(column) if getattr(column, "ndim", 1) == 1 else 0
    for first in range(0, count, BLOCK):
        rows = slice(first, first + BLOCK)
        yield rows, _read_block(column[rows])


def _read_block(column: Any) -> Texts | None:
    if isinstance(column, np.ndarray):
        return _read_objects(column.tolist())
    if isinstance(column, (list, tuple)):
        return _read_objects(column)
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    return _read_views(column) if str(column.type) == "string_view" else _read_offsets(column)


def _read_offsets(column: Any) -> Texts | None:
    """Return the strings of an Arrow array whose type is one of `KINDS`; None if it has another type or is empty."""
    kind, offset_dtype = KINDS.get(str(column.type), ("", None))
    if not kind or not len(column):
        return None
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, offset_dtype, column.offset + len(column) + 1)[column.offset :]
    positions = ends.astype(np.int64, copy=False)
    return _build_texts(column, kind, data, positions[:-1], positions[1:])


def _read_views(column: Any) -> Texts | None:
    """Return the strings of an Arrow string_view array; None if a string is too long to be stored inside its view."""
    views, (starts, stops) = _view_words(column), np.empty((2, len(column)), np.int64)
    first = VIEW_BYTES * column.offset + PREFIX_BYTES
    longest = find_kernel("keys:find_view_bounds")(views, first, VIEW_BYTES, starts, stops)
    return _build_texts(column, "string", column.buffers()[1], starts, stops) if longest <= INLINE_BYTES else None


def _view_words(column: Any) -> NDArray[np.int32]:
    """Return the views of an Arrow string_view array as rows of four integers, the first being the byte length."""
    views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, VIEW_BYTES // 4)
    return views[column.offset : column.offset + len(column)]


def _build_texts(column: Any, kind: str, data: Any, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Texts:
    values = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    if not column.null_count:
        return Texts(kind, values, starts, stops, None)
    missing = arrow_values(column.is_null())
    return Texts(kind, values, starts, np.where(missing, starts, stops), missing)


def _read_objects(values: Sequence[Any]) -> Texts | None:
    """Return the strings in a list; None if the list is empty, or if an item is not a string or contains NUL."""
    if not len(values) or not isinstance(values[0], str):
        return None
    # Joining the strings, encoding the result and finding the separators is faster than a Python loop over the strings.
    try:
        data = np.frombuffer("\0".join(values).encode(), np.uint8)
    # An object is not a string, or a string cannot be encoded. The caller then uses `read_slice_column`, whose error
    # names the object.
    except (TypeError, UnicodeEncodeError):
        return None
    starts, stops = np.empty((2, len(values)), np.int64)
    count = find_kernel("keys:find_joined_texts")(data, starts, stops)
    return Texts("string", data, starts, stops, None) if count == len(values) else None
