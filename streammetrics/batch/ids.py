"""Ids: integers that stand for group and query keys, the same in every process and on every machine.

The ids do not change between versions of the library either, so saved states stay valid. A log may have millions of
users, and a grouped metric only needs to know which rows share a user. States therefore store group ids rather than
keys. (The keys of slices are few, so states store them in full.)

The id of an integer, a boolean, a date or a timestamp is its value; a date counts days, and a timestamp microseconds.
The id of a string, bytes, a decimal, or a key of several columns is its 128-bit MurmurHash3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.kernel_registry import find_kernel
from ..numerics.slice_keys import KINDS, mix_bits
from .columns import Array, Batch, Column, Kind, Mask, length_error
from .keys import read_keys
from .kinds import Need
from .slice_keys import read_slice_column
from .texts import Texts, read_text_blocks

__all__ = ["IdColumn", "Ids", "Names", "group", "integer_ids", "is_column_tuple", "name", "query"]

WRAP = 1 << 64


@dataclass(frozen=True)
class IdColumn(Column):
    """A column of ids, which stand for the keys of the rows.

    Parameters
    ----------
    values : int64 array
        The id of each row: an array of shape (n,) if the ids are numbers, or (n, 2) if they are 128-bit hashes.
    source : str
        The kind of the keys, such as "integer" or "string"; for a key of several columns, all kinds separated by
        commas. It is empty if no row has a key.
    missing : bool array, optional
        Mask of the rows that have no key.
    """

    missing: Mask | None = None

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The positions of row 0 and of each row whose id differs from the id of the row before."""
        if not len(self.values):
            return np.zeros(0, np.int64)
        new = self.values[1:] != self.values[:-1]
        return np.append(0, np.flatnonzero(new if new.ndim == 1 else new.any(axis=1)) + 1)

    def take(self, index: NDArray[np.int64]) -> IdColumn:
        """Return the ids of the rows at the positions in `index`."""
        return IdColumn(self.values[index], self.source, None if self.missing is None else self.missing[index])


class Ids(Kind):
    """The key of a group or a query, converted to an id.

    A key is an integer, a string, bytes, a boolean, a date, a timestamp or a decimal, or it consists of such values
    from several columns.

    Parameters
    ----------
    missing : {"raise", "skip"}
        What to do with a row without a key: raise an error, or leave the row out and record the number of such rows.
    missing_values : tuple of int or str
        Values that stand for a missing key, such as 0 or "unknown".

    Notes
    -----
    Equal integers are the same key, whatever their dtype. An integer of 2**63 or more does not fit into int64, so its
    id is a 64-bit hash.
    """

    expected = (
        'a key, such as an integer or a string (missing="skip" leaves out rows without a key and reports their number)'
    )

    def __init__(self, missing: str = "raise", missing_values: tuple[Any, ...] = ()) -> None:
        self.missing, self.missing_values = missing, missing_values
        self.skips = missing == "skip"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.missing, self.missing_values) == (
            other.missing,
            other.missing_values,
        )

    def __hash__(self) -> int:
        return hash((type(self), self.missing, self.missing_values))

    def read(self, batch: Batch, name: Any) -> IdColumn:
        if batch.parent is not None:
            whole = batch.parent.column(name, self)
            assert isinstance(whole, IdColumn)
            return whole.take(batch.index)
        column = self._read_columns(batch, name)
        batch.check_length(len(column.values), str(name))
        return column

    def _read_columns(self, batch: Batch, name: Any) -> IdColumn:
        """Return the ids of one column, or of several columns that form a key.

        Several columns are passed as a tuple of names, or as the name of a tuple of columns.
        """
        if isinstance(name, tuple):
            parts = [(batch.raw(n), n) for n in name]
        else:
            raw = batch.raw(name)
            parts = [(r, name) for r in raw] if is_column_tuple(raw) else [(raw, name)]
        read = [self._read_one(raw, n) for raw, n in parts]
        for one, (_, n) in zip(read[1:], parts[1:], strict=True):
            if len(one.values) != len(read[0].values):
                raise length_error(n, len(one.values), parts[0][1], len(read[0].values))
        return read[0] if len(read) == 1 else _combine_columns(read)

    def _read_one(self, raw: Any, name: str) -> IdColumn:
        column, blocks = read_text_blocks(raw, name)
        if blocks and (hashed := self._hash_rows(len(column), blocks)) is not None:
            return hashed
        kind, content = read_slice_column(column, name)
        if not kind:
            return IdColumn(np.zeros(int(content), np.int64), "", np.ones(int(content), bool))
        if not KINDS[kind]:
            values, nulls = content
            ids, wanted = integer_ids(values), self._stand_ins(int) if kind == "integer" else []
            is_stand_in = np.isin(ids, integer_ids(np.array(wanted, object))) if wanted else None
        else:
            texts, index, nulls = content
            hashes = _hashes(*texts)
            ids = hashes[index] if len(hashes) else np.zeros((len(index), 2), np.int64)
            is_stand_in = self._find_stand_ins(kind, hashes)
            is_stand_in = None if is_stand_in is None else is_stand_in[index]
        return _mark_missing(ids, kind, nulls, is_stand_in)

    def _hash_rows(self, n: int, blocks: Iterable[tuple[slice, Texts | None]]) -> IdColumn | None:
        """Return the ids of n strings, passed in blocks of rows; None if a block does not consist of strings."""
        ids, nulls, kind = np.empty((n, 2), np.int64), np.zeros(n, bool), ""
        for rows, texts in blocks:
            if texts is None:
                return None
            kind = texts.kind
            find_kernel("hashes:hash_texts")(texts.data, texts.starts, texts.stops, ids[rows])
            if texts.missing is not None:
                nulls[rows] = texts.missing
        return _mark_missing(ids, kind, nulls, self._find_stand_ins(kind, ids))

    def _find_stand_ins(self, kind: str, hashes: NDArray[np.int64]) -> Mask | None:
        """Return a mask of the `hashes` that belong to `missing_values`; None if none of these is of kind `kind`."""
        words = self._stand_ins({"string": str, "bytes": bytes}.get(kind, ()))
        if not words:
            return None
        wanted = _hashes(*_concat_texts([w.encode() if isinstance(w, str) else w for w in words]))
        return np.asarray(np.logical_or.reduce([(hashes == one).all(axis=1) for one in wanted]))

    def _stand_ins(self, kind: type | tuple[type, ...]) -> list[Any]:
        return [v for v in self.missing_values if isinstance(v, kind)]

    def ok(self, column: Column) -> bool:
        assert isinstance(column, IdColumn)
        return column.missing is None or not column.missing.any()

    def bad(self, column: Column) -> Mask:
        assert isinstance(column, IdColumn)
        return column.missing if column.missing is not None else np.zeros(len(column.values), bool)

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        return f"a missing value in row {batch.original_row(row):,}"

    def find_skipped(self, column: Column) -> Mask | None:
        return self.bad(column) if self.skips and not self.ok(column) else None


class Names(Ids):
    """Document names, which break ties in rankings.

    An integer keeps its value. A string is replaced by its rank, in byte order, among the strings of the batch.
    """

    expected = "the name of a document: an integer, a string or bytes"

    def _read_one(self, raw: Any, name: str) -> IdColumn:
        kind, content = read_keys(raw, name)
        if kind in ("", "integer"):
            return super()._read_one(raw, name)
        (data, offsets), index, nulls = content
        words = [data[a:b].tobytes() for a, b in pairwise(offsets.tolist())]
        rank = np.empty(len(words), np.int64)
        rank[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
        ids = rank[index]
        return IdColumn(ids, kind, nulls if nulls is not None and nulls.any() else None)


def group(role: str = "group", missing: str = "raise", missing_values: tuple[Any, ...] = ()) -> Need:
    """Declare that a metric's state reads a column of group keys, such as users or sessions."""
    return Need(role, Ids(missing, missing_values))


def name(role: str = "document") -> Need:
    """Declare that a metric's state reads a column of document names, which break ties in rankings."""
    return Need(role, Names())


def query(role: str = "query") -> Need:
    """Declare that a metric's state reads a column of query keys, which identify the query of each row."""
    return Need(role, Ids())


def is_column_tuple(raw: Any) -> bool:
    """Return whether the user passed a tuple of columns, which together form one key, rather than a single column."""
    return isinstance(raw, tuple) and len(raw) > 0 and all(map(_is_column, raw))


def _is_column(part: Any) -> bool:
    return hasattr(part, "__len__") and not isinstance(part, (str, bytes))


def integer_ids(values: Array) -> NDArray[np.int64]:
    """Return the id of each integer: the integer itself, or a 64-bit hash if it does not fit into int64."""
    if values.dtype == object:
        numbers = [int(v) for v in values]
        beyond = np.array([v >= 1 << 63 for v in numbers], bool)
        values = np.array([v % WRAP for v in numbers], np.uint64)
    elif values.dtype == np.uint64:
        beyond = values >= np.uint64(1 << 63)
    else:
        return np.ascontiguousarray(values, np.int64)
    if beyond.any():
        values = np.where(beyond, mix_bits(values), values)
    return np.ascontiguousarray(values).view(np.int64)


def _mark_missing(ids: Array, kind: str, *masks: Mask | None) -> IdColumn:
    """Return the ids as a column. A row has no key if at least one of the `masks` is true for it."""
    used = [m for m in masks if m is not None and m.any()]
    missing = np.logical_or.reduce(used) if used else None
    if missing is not None:
        ids = np.array(ids)
        ids[missing] = 0
    return IdColumn(ids, kind, missing)


def _hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.empty((len(offsets) - 1, 2), np.int64)
    find_kernel("hashes:hash_texts")(data, offsets[:-1], offsets[1:], out)
    return out


def _concat_texts(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    ends = np.cumsum([0, *(len(t) for t in texts)], dtype=np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), ends


def _combine_columns(parts: list[IdColumn]) -> IdColumn:
    """Return the ids of keys that consist of several columns: for each row, a hash of its concatenated column ids."""
    # Each id is written as 16 bytes in little-endian order, so that the hash is the same on every machine.
    n = len(parts[0].values)
    words = [p.values if p.values.ndim == 2 else p.values[:, None] for p in parts]
    side = np.column_stack([w if w.shape[1] == 2 else np.column_stack([w, np.zeros(n, np.int64)]) for w in words])
    data = np.ascontiguousarray(side, "<i8").view(np.uint8).reshape(-1)
    ids = _hashes(data, np.arange(n + 1, dtype=np.int64) * (16 * len(parts)))
    masks = [p.missing for p in parts if p.missing is not None]
    missing = np.logical_or.reduce(masks) if masks else None
    if missing is not None:
        ids[missing] = 0
    return IdColumn(ids, ",".join(p.source for p in parts), missing)
