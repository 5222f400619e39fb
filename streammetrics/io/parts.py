"""Parts of a log: ranges of rows that threads or processes can read independently."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streammetrics.io.column_types import cast_column, suggest_text_type
from streammetrics.io.readers import BATCH_ROWS, FileReader, FileSpan, convert_errors, encode_keys, is_text
from streammetrics.io.row_filter import Filter
from streammetrics.io.sources import LogError

__all__ = ["LogPart"]


@dataclass(eq=False, repr=False)
class LogPart:
    """A range of rows in one file: the unit of work for a thread or process.

    Attributes
    ----------
    file : str
        Path of the file that contains the part.
    first_row : int
        Number of the first row of the part within the file, counted from 0 and without the header of a text file.
    rows : int or None
        Number of rows, or None if it is unknown before the part is read (text, Arrow streams).
    bytes : int
        Size of the part in the file, in bytes.
    read_bytes : int
        Number of bytes of the part that `batches` has read so far, for a progress bar.
    """

    _reader: FileReader
    _span: FileSpan
    _columns: tuple[str, ...]
    _key_columns: frozenset[str]
    # For each partition key or missing column, its value in all rows of the file.
    _constants: Mapping[str, pa.Array]
    # The columns to read from the file.
    _stored_columns: tuple[str, ...]
    # If no stored column is needed, this column is read to count the rows.
    _length_column: str
    # The column types that the user specified.
    _types: Mapping[str, pa.DataType] = field(default_factory=dict)
    # Columns whose strings are parsed as times, because the columns define windows.
    _time_columns: frozenset[str] = frozenset()
    # Columns whose strings are parsed as numbers, because metrics need numbers.
    _number_columns: frozenset[str] = frozenset()
    _filters: tuple[Filter, ...] = ()
    read_bytes: int = field(default=0, init=False)

    @property
    def file(self) -> str:
        """Path of the file that contains the part."""
        return self._reader.file

    @property
    def first_row(self) -> int:
        """Number of the first row of the part within the file, counted from 0."""
        return self._span.first_row

    @property
    def rows(self) -> int | None:
        """Number of rows, or None if it is unknown before the part is read."""
        return self._span.rows

    @property
    def bytes(self) -> int:
        """Size of the part in the file, in bytes."""
        return self._span.bytes

    def __repr__(self) -> str:
        rows = "?" if self.rows is None else f"{self.rows:,}"
        return f"Part({self.file!r}, first_row={self.first_row}, rows={rows})"

    def with_filters(self, filters: tuple[Filter, ...]) -> LogPart:
        """Return a copy of the part whose batches have an additional 0/1 column for each filter."""
        return replace(self, _filters=filters)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the part in batches of at most 131,072 rows, with the requested columns in the requested order.

        Yields
        ------
        pyarrow.RecordBatch
            A batch of rows. Partition keys, and key columns that contain strings, are dictionary-encoded.

        Raises
        ------
        LogError
            The file is broken, or a row of a text file does not match the header or the types.
        """
        self.read_bytes = rows_read = 0
        for read, read_bytes in self._reader.read(
            self._span, self._stored_columns or [self._length_column], self._key_columns
        ):
            self.read_bytes = read_bytes
            for start in range(0, read.num_rows, BATCH_ROWS):
                batch = read.slice(start, BATCH_ROWS)
                yield self._assemble(batch, self.first_row + rows_read)
                rows_read += batch.num_rows
        self.read_bytes = self.bytes
        if self.rows is not None and rows_read != self.rows:
            raise LogError(
                f"{self.file}: expected {self.rows:,} rows according to the metadata of the file, found {rows_read:,}; "
                f"write the file again"
            )

    def _assemble(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        names = list(self._columns)
        with convert_errors(self.file):
            selected = batch
            if self._constants or batch.schema.names != names:
                selected = pa.RecordBatch.from_arrays([self._select_column(batch, name) for name in names], names=names)
            # In a damaged file, dictionary codes and offsets may be out of range. Arrow does not check them when it
            # reads the file, and would crash the process when it uses them.
            for column in selected.columns:
                _validate(column)
            selected = self._convert_types(selected, first_row)
            for one in self._filters:
                selected = pa.RecordBatch.from_arrays(
                    [*selected.columns, one.compute_flags(selected)], names=[*selected.schema.names, one.name]
                )
            return encode_keys(_round_decimals(selected, self._key_columns), self._key_columns)

    def _select_column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name in self._constants:
            return _repeat_constant(self._constants[name], batch.num_rows)
        if name in batch.schema.names:
            return batch.column(name)
        root, *path = name.split(".")
        return pc.struct_field(batch.column(root), path)

    def _convert_types(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Convert columns to the types that the user specified.

        By default, strings are parsed as times if the column defines windows, and as numbers if metrics need
        numbers. `first_row` is the row number of the batch in the file, for error messages.
        """
        for i, field_ in enumerate(batch.schema):
            kind, cure = self._types.get(field_.name), suggest_text_type(field_.name)
            if kind is None and field_.name in self._time_columns and is_text(field_.type):
                kind, cure = pa.timestamp("us"), "windows need dates or times, such as 2025-06-02T10:00:00"
            elif kind is None and field_.name in self._number_columns and is_text(field_.type):
                kind, cure = pa.float64(), "metrics need numbers in this column, or nulls for missing values"
            if kind is not None:
                column = cast_column(batch.column(i), kind, field_.name, (self.file, first_row), cure)
                batch = batch.set_column(i, field_.name, column)
        return batch


def _validate(column: pa.Array) -> None:
    """Raise ArrowInvalid if a column is damaged, for example if it has codes outside its dictionary."""
    if pa.types.is_dictionary(column.type):
        # Checking the smallest and largest codes takes a tenth of the time that Arrow takes to check all codes. If one
        # of them is out of range, the last line of this function raises the error.
        ends = pc.min_max(column.indices).as_py()
        if ends["min"] is None or 0 <= ends["min"] <= ends["max"] < len(column.dictionary):
            column.validate()
            column = column.dictionary
    column.validate(full=True)


def _round_decimals(batch: pa.RecordBatch, keys: Collection[str]) -> pa.RecordBatch:
    """Return the batch with each decimal converted to the nearest float64, as if its text were parsed.

    Key columns are left unchanged.
    """
    for i, field_ in enumerate(batch.schema):
        if pa.types.is_decimal(field_.type) and field_.name not in keys:
            nearest = batch.column(i).cast(pa.string()).cast(pa.float64())
            batch = batch.set_column(i, field_.name, nearest)
    return batch


def _repeat_constant(constant: pa.Array, rows: int) -> pa.Array:
    """Repeat a constant `rows` times without copying it; return a dictionary-encoded array or an array of nulls."""
    if not pa.types.is_dictionary(constant.type):
        return pa.nulls(rows, constant.type)
    indices = pa.nulls(rows, pa.int32()) if constant.null_count else pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(indices, constant.dictionary)
