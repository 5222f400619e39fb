"""Ids: keys of groups and queries as integers that are the same in every process, on every machine and in every version.

Keys of slices are few, and states keep them. Keys of groups are as many as there are users, and are only compared, so
states keep ids instead. The id of an integer, a boolean, a date (its day) or a timestamp (its microsecond) is its value.
The id of a string, bytes, a decimal, or a key of several columns is its 128-bit MurmurHash3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.kernel_registry import find_kernel
from ..numerics.slice_keys import KINDS, mix_bits
from .columns import Array, Batch, Column, Kind, Mask
from .keys import read_keys
from .kinds import Need
from .slice_keys import read_slice_keys

__all__ = ["IdColumn", "Ids", "Names", "group", "integer_ids", "is_column_tuple", "name", "query"]

WRAP = 1 << 64


@dataclass(frozen=True)
class IdColumn(Column):
    """The ids of rows: int64 of shape (n,) for integers, (n, 2) for hashes.

    Parameters
    ----------
    values : int64 array
        The id of each row.
    source : str
        The kind of the keys: "integer", "string", ...; several of these for a key of several columns; empty if all rows
        have no key.
    missing : bool array, optional
        Which rows have no key.
    """

    missing: Mask | None = None

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The rows whose ID differs from the ID of the row before, and row 0."""
        if not len(self.values):
            return np.zeros(0, np.int64)
        new = self.values[1:] != self.values[:-1]
        return np.append(0, np.flatnonzero(new if new.ndim == 1 else new.any(axis=1)) + 1)

    def take(self, index: NDArray[np.int64]) -> IdColumn:
        """Return the ids of some of the rows."""
        return IdColumn(self.values[index], self.source, None if self.missing is None else self.missing[index])


class Ids(Kind):
    """An integer, a string, bytes, a boolean, a date, a timestamp, a decimal, or a key of several such columns.

    Parameters
    ----------
    missing : {"raise", "skip"}
        Whether a row without a key raises an error, or is excluded and counted.
    missing_values : tuple of int or str
        Keys that mean a missing key, such as 0 or "unknown".

    Notes
    -----
    Equal integers are one key, whatever their dtype. The ids of integers from 2**63 on, which do not fit int64, are
    64-bit hashes.
    """

    expected = 'a key, such as an integer or a string (missing="skip" leaves out rows without one, and counts them)'

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
        """Return the ids of one column, or of a key of several columns: a tuple of names, or a tuple of columns."""
        if isinstance(name, tuple):
            parts = [(batch.raw(n), n) for n in name]
        else:
            raw = batch.raw(name)
            parts = [(r, name) for r in raw] if is_column_tuple(raw) else [(raw, name)]
        read = [self._read_one(raw, n) for raw, n in parts]
        for one, (_, n) in zip(read[1:], parts[1:], strict=True):
            if len(one.values) != len(read[0].values):
                raise InvalidInputError(f"{n} has {len(one.values):,} rows, {parts[0][1]} has {len(read[0].values):,}")
        return read[0] if len(read) == 1 else _combine_columns(read)

    def _read_one(self, raw: Any, name: str) -> IdColumn:
        kind, content = read_slice_keys(raw, name)
        if not kind:
            return IdColumn(np.zeros(int(content), np.int64), "", np.ones(int(content), bool))
        if not KINDS[kind]:
            values, nulls = content
            ids, wanted = integer_ids(values), self._stand_ins(int) if kind == "integer" else []
            is_stand_in = np.isin(ids, integer_ids(np.array(wanted, object))) if wanted else None
        else:
            texts, index, nulls = content
            hashes = _hashes(*texts)
            ids, is_stand_in = hashes[index] if len(hashes) else np.zeros((len(index), 2), np.int64), None
            if words := self._stand_ins({"string": str, "bytes": bytes}.get(kind, ())):
                wanted_hashes = _hashes(*_concat_texts([w.encode() if isinstance(w, str) else w for w in words]))
                is_stand_in = (hashes[:, None] == wanted_hashes[None]).all(axis=2).any(axis=1)[index]
        masks = [m for m in (nulls, is_stand_in) if m is not None and m.any()]
        missing = np.logical_or.reduce(masks) if masks else None
        if missing is not None:
            ids = np.array(ids)
            ids[missing] = 0
        return IdColumn(ids, kind, missing)

    def _stand_ins(self, kind: type | tuple[type, ...]) -> list[Any]:
        return [v for v in self.missing_values if isinstance(v, kind)]

    def ok(self, column: Column) -> bool:
        assert isinstance(column, IdColumn)
        return column.missing is None or not column.missing.any()

    def bad(self, column: Column) -> Mask:
        assert isinstance(column, IdColumn)
        return column.missing if column.missing is not None else np.zeros(len(column.values), bool)

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        return f"none in row {batch.original_row(row):,}"

    def find_skipped(self, column: Column) -> Mask | None:
        return self.bad(column) if self.skips and not self.ok(column) else None


class Names(Ids):
    """Names of documents: integers, or texts, which become their rank in the batch by the order of their bytes."""

    expected = "a name: an integer, a string or bytes"

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
    """Declare that a state reads a column of keys of groups, such as users or sessions."""
    return Need(role, Ids(missing, missing_values))


def name(role: str = "document") -> Need:
    """Declare that a state reads a column of names of documents, whose order breaks ties."""
    return Need(role, Names())


def query(role: str = "query") -> Need:
    """Declare that a state reads a column of keys of queries."""
    return Need(role, Ids())


def is_column_tuple(raw: Any) -> bool:
    """Return whether `column` is a tuple of columns, which together are one key."""
    return isinstance(raw, tuple) and len(raw) > 0 and all(map(_is_column, raw))


def _is_column(part: Any) -> bool:
    return hasattr(part, "__len__") and not isinstance(part, (str, bytes))


def integer_ids(values: Array) -> NDArray[np.int64]:
    """Return the ids of integers: the value itself, or a hash for values that do not fit int64."""
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


def _hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.empty((len(offsets) - 1, 2), np.int64)
    find_kernel("hashes:hash_texts")(data, offsets, out)
    return out


def _concat_texts(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    ends = np.cumsum([0, *(len(t) for t in texts)], dtype=np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), ends


def _combine_columns(parts: list[IdColumn]) -> IdColumn:
    """Return the ids of keys of several columns: each is the hash of the concatenated ids of the columns."""
    # Each id becomes 16 bytes in little-endian order, so the hash is the same on every machine.
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
