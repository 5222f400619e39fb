"""Parts of a log: ranges of rows that threads or processes read independently."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streammetrics.io.column_types import cast_column, keep_spelling
from streammetrics.io.readers import BATCH_ROWS, FileReader, FileSpan, encode_keys, is_text, reading
from streammetrics.io.sources import LogError
from streammetrics.io.where import Filter

__all__ = ["LogPart"]


@dataclass(eq=False, repr=False)
class LogPart:
    """A range of rows of one file, read on its own: the unit of work of one thread or process.

    Attributes
    ----------
    file : str
        The file it belongs to.
    first_row : int
        Row of the file that its first row is, counted from 0; the header of a text file does not count.
    rows : int or None
        Its rows, or None where they are not known before they are read (text, Arrow streams).
    bytes : int
        Its share of the bytes of the file.
    read_bytes : int
        How many of them `batches` has read so far, for a progress bar.
    """

    _reader: FileReader
    _span: FileSpan
    _columns: tuple[str, ...]
    _keys: frozenset[str]
    _constants: Mapping[str, pa.Array]  # one value for each partition key
    _stored: tuple[str, ...]  # the columns that are read for them
    _fallback: str  # a column that is read for its length where only partition keys are wanted
    _casts: Mapping[str, pa.DataType] = field(default_factory=dict)  # types that the user named
    _times: frozenset[str] = frozenset()  # columns whose texts are times
    _numbers: frozenset[str] = frozenset()  # columns whose texts are numbers
    _filters: tuple[Filter, ...] = ()
    read_bytes: int = field(default=0, init=False)

    @property
    def file(self) -> str:
        """The file it belongs to."""
        return self._reader.file

    @property
    def first_row(self) -> int:
        """Row of the file that its first row is, counted from 0."""
        return self._span.first_row

    @property
    def rows(self) -> int | None:
        """Its rows, or None where they are not known before they are read."""
        return self._span.rows

    @property
    def bytes(self) -> int:
        """Its share of the bytes of the file."""
        return self._span.bytes

    def __repr__(self) -> str:
        rows = "?" if self.rows is None else f"{self.rows:,}"
        return f"Part({self.file!r}, first_row={self.first_row}, rows={rows})"

    def with_flags(self, filters: tuple[Filter, ...]) -> LogPart:
        """Return the same with columns that say for which rows some conditions hold."""
        return replace(self, _filters=filters)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read it, at most 131,072 rows at a time, with exactly the wanted columns in the order they were named.

        Yields
        ------
        pyarrow.RecordBatch
            String columns among the keys and partition keys come dictionary-encoded.

        Raises
        ------
        LogError
            The file is broken, or a row of a text file is not what the header and the types say.
        """
        self.read_bytes = seen = 0
        for read, done in self._reader.read(self._span, self._stored or [self._fallback], self._keys):
            self.read_bytes = done
            for start in range(0, read.num_rows, BATCH_ROWS):
                batch = read.slice(start, BATCH_ROWS)
                yield self._assemble(batch, self.first_row + seen)
                seen += batch.num_rows
        self.read_bytes = self.bytes
        if self.rows is not None and seen != self.rows:
            raise LogError(f"{self.file}: {seen:,} rows where the file says it has {self.rows:,}")

    def _assemble(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        names = list(self._columns)
        with reading(self.file):
            wanted = batch
            if self._constants or batch.schema.names != names:
                wanted = pa.RecordBatch.from_arrays([self._column(batch, name) for name in names], names=names)
            wanted.validate(full=True)  # Arrow reads codes and offsets of a damaged file as they are: later, a crash
            wanted = self._converted(wanted, first_row)
            for one in self._filters:
                wanted = pa.RecordBatch.from_arrays(
                    [*wanted.columns, one.flags(wanted)], names=[*wanted.schema.names, one.name]
                )
            return encode_keys(_as_floats(wanted, self._keys), self._keys)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name in self._constants:
            return _repeat(self._constants[name], batch.num_rows)
        if name in batch.schema.names:
            return batch.column(name)
        root, *path = name.split(".")
        return pc.struct_field(batch.column(root), path)

    def _converted(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return the batch with the types that the user named, and with times in columns that windows are made of."""
        for i, field_ in enumerate(batch.schema):
            kind, cure = self._casts.get(field_.name), keep_spelling(field_.name)
            if kind is None and field_.name in self._times and is_text(field_.type):
                kind, cure = pa.timestamp("us"), "windows need dates or times such as 2025-06-02T10:00:00"
            elif kind is None and field_.name in self._numbers and is_text(field_.type):
                kind, cure = pa.float64(), "metrics need numbers here"
            if kind is not None:
                column = cast_column(batch.column(i), kind, field_.name, (self.file, first_row), cure)
                batch = batch.set_column(i, field_.name, column)
        return batch


def _as_floats(batch: pa.RecordBatch, keys: Collection[str]) -> pa.RecordBatch:
    """The batch, decimals that are no keys as the nearest float64: as if they had come as text."""
    for i, field_ in enumerate(batch.schema):
        if pa.types.is_decimal(field_.type) and field_.name not in keys:
            nearest = batch.column(i).cast(pa.string()).cast(pa.float64())
            batch = batch.set_column(i, field_.name, nearest)
    return batch


def _repeat(constant: pa.Array, rows: int) -> pa.Array:
    """Repeat an array of one value: dictionary-encoded, or null."""
    if not pa.types.is_dictionary(constant.type):
        return pa.nulls(rows, constant.type)
    indices = pa.nulls(rows, pa.int32()) if constant.null_count else pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(indices, constant.dictionary)
