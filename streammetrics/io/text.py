"""Read CSV and TSV files, compressed or not, in batches, and infer their column types."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.csv as csv

from streammetrics.io.column_types import (
    KEY_TEXT,
    ColumnUses,
    TypeGuess,
    find_comparison_type,
    format_conversion_error,
    resolve_type,
)
from streammetrics.io.json_lines import JsonReader
from streammetrics.io.pipes import open_source
from streammetrics.io.quotes import NO_QUOTES_HINT, QuoteCheck
from streammetrics.io.readers import FileFacts, FileSpan, convert_errors, make_log_error
from streammetrics.io.sources import LogError, LogFile
from streammetrics.io.text_stream import SEPARATOR, TextStream

__all__ = ["DEFAULT_NULLS", "TextFormat", "TextReader", "find_comparison_types", "resolve_types"]

DEFAULT_NULLS = ("", "\\N", "NULL", "null")
"""Spellings of null in text files. "NA" is not among them, because it is the country code of Namibia."""

# The number of bytes to parse at a time. Reading takes 271 MB of resident memory with this block size, and 406 MB with
# blocks of 8 MiB.
_BLOCK_BYTES = 1 << 20
_PEEK_BYTES = 1 << 18
_ROW = re.compile(r"Row #(\d+): ")
_VALUE = re.compile(r"In CSV column #(\d+): .*?CSV conversion error to (.+?): (?:invalid value '(.*)'|(.*))", re.DOTALL)
_COUNT = re.compile(r"Expected (\d+) columns, got (\d+)")
_DETAILS = {
    "invalid UTF8 data": "expected text in UTF-8, found other bytes; convert the file, for example from Latin-1 with "
    "iconv -f ISO-8859-1 -t UTF-8"
}
_MISSING = ("NA", "N/A", "#N/A", "#NA", "<NA>", "None", "NaN", "nan", "n/a", "-", "?")


@dataclass(frozen=True)
class TextFormat:
    """Options for parsing text files (CSV and TSV).

    Parameters
    ----------
    delimiter : str, optional
        The separator of values; by default a tab for `.tsv` and a comma for `.csv`.
    nulls : tuple of str
        Values that are read as null unless they are quoted.
    quotes : bool
        Whether quotation marks enclose values.
    columns : tuple of str
        Column names for files without a header.
    """

    delimiter: str | None = None
    nulls: tuple[str, ...] = DEFAULT_NULLS
    quotes: bool = True
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextReader:
    """Reader of one CSV or TSV file, which is read from start to end and not split into ranges."""

    reads_paths: ClassVar[bool] = False

    source: LogFile
    format: TextFormat
    types: Mapping[str, pa.DataType]
    header: tuple[str, ...] = ()
    user_typed: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.source.file

    @property
    def delimiter(self) -> str:
        """The separator of values."""
        return self.format.delimiter or self.source.delimiter

    def read_facts(self) -> FileFacts:
        """Read the header, and infer types from the first rows."""
        with self._convert_errors():
            with self._open_stream() as raw:
                schema = self._open_csv(raw, _PEEK_BYTES).schema
            return FileFacts.from_schema(
                self._recognize_missing(schema), None, (FileSpan(0, None, (0, 1), self.source.bytes),)
            )

    def _recognize_missing(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with numeric types for columns that contain only numbers and markers of missing values.

        Arrow itself reads a column that contains a marker such as "N/A" as text, including its numbers. With a numeric
        type, reading the file instead raises an error that names the first row with such a marker.
        """
        if pa.string() not in schema.types:
            return schema
        with self._open_stream() as raw:
            guessed = self._open_csv(raw, _PEEK_BYTES, null_values=[*self.format.nulls, *_MISSING]).schema
        numbers = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in guessed]
        return pa.schema([g if number else f for f, g, number in zip(schema, guessed, numbers, strict=True)])

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield one batch for each block of the file, together with the number of bytes read so far."""
        # A column without a type is requested only to count rows, so its values are read as bytes and not converted.
        types = {name: self.types.get(name, pa.binary()) for name in columns}
        with self._convert_errors(), self._open_file() as file, self._open_stream(file) as raw:
            for batch in self._open_csv(raw, _BLOCK_BYTES, include_columns=list(columns), column_types=types):
                yield batch, min(file.tell(), span.bytes) if self.source.pipe is None else 0

    def _open_file(self) -> pa.NativeFile:
        return open_source(self.source, last=True)

    def _open_stream(self, file: pa.NativeFile | None = None) -> pa.NativeFile:
        delimiter = self.delimiter if len(self.delimiter.encode()) == 1 else SEPARATOR
        quotes = QuoteCheck(self.file, delimiter) if self.format.quotes else None
        return pa.PythonFile(TextStream(self.source, file, self.delimiter, quotes), "r")

    def _open_csv(self, raw: pa.NativeFile, block: int, **convert: object) -> csv.CSVStreamingReader:
        quotes, names = self.format.quotes, list(self.format.columns) or None
        return csv.open_csv(
            raw,
            # If Arrow used threads, its errors would not contain row numbers.
            read_options=csv.ReadOptions(block_size=block, use_threads=False, column_names=names),
            parse_options=csv.ParseOptions(
                delimiter=self.delimiter if len(self.delimiter.encode()) == 1 else SEPARATOR,
                quote_char='"' if quotes else False,
                newlines_in_values=quotes,
            ),
            convert_options=csv.ConvertOptions(
                **({"null_values": list(self.format.nulls)} | convert),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        with convert_errors(self.file):
            try:
                yield
            except pa.ArrowInvalid as error:
                raise (
                    self._row_error(str(error)) or self._row_length_error(error) or make_log_error(self.file, error)
                ) from None

    def _row_error(self, message: str) -> LogError | None:
        row = _ROW.search(message)
        # Arrow counts rows from 1 and includes the header. This library counts from 0 and excludes the header.
        header = 1 if self.format.columns else 2
        where = f"{self.file}: row {int(row[1]) - header:,}" if row else self.file
        value, count = _VALUE.search(message), _COUNT.search(message)
        if value:
            column = int(value[1])
            name = self.header[column] if column < len(self.header) else f"number {column}"
            if value[3] is None:
                return LogError(f"{where}: column {name!r}: {_DETAILS.get(value[4], value[4])}")
            column_type = self._find_type(value[2], name)
            return LogError(
                f"{where}: {format_conversion_error(name, value[3], *column_type, numeric=name in self.numbers)}"
            )
        if count and self.format.columns:
            return LogError(
                f"{where}: expected {count[1]} columns, as listed in names=, found {count[2]}; list all columns"
            )
        if count:
            return LogError(
                f"{where}: expected {count[1]} columns, as in the header, found {count[2]}; correct the row"
            )
        return None

    def _find_type(self, kind: str, name: str) -> tuple[pa.DataType | str, bool]:
        """Return the type of a column, and whether the user specified it."""
        return self.types.get(name, kind), name in self.user_typed

    def _row_length_error(self, error: pa.ArrowInvalid) -> LogError | None:
        if "straddling object" not in str(error):
            return None
        hint = (
            f"if a quotation mark is never closed, {NO_QUOTES_HINT}" if self.format.quotes else "check the line breaks"
        )
        return LogError(f"{self.file}: a row is too long; {hint}")


def resolve_types(
    readers: Sequence[TextReader | JsonReader],
    facts: Sequence[FileFacts],
    columns: Sequence[str],
    uses: ColumnUses,
    folders: Mapping[str, pa.DataType],
) -> list[TextReader | JsonReader]:
    """Return readers that read each column with the same type in all files.

    Parameters
    ----------
    readers : sequence of TextReader or JsonReader
        The readers of the files. Their types are those that the user specified.
    facts : sequence of FileFacts
        The column names and inferred types of each file.
    columns : sequence of str
        The columns to read.
    uses : ColumnUses
        How the columns are used, which determines their types.
    folders : mapping of str to pyarrow.DataType
        The types of columns that some files do not store but have as partition keys in their paths.
    """
    typed = isinstance(readers[0], JsonReader)
    user_types = dict(readers[0].types)
    types = {
        name: resolve_type(name, _collect_guesses(name, readers, facts, folders), typed, uses)
        for name in columns
        if name not in user_types
    }
    typed_readers = []
    for reader, one in zip(readers, facts, strict=True):
        # Arrow can read JSON numbers only as numbers. JSON columns are therefore first read with the type inferred from
        # the file, and `LogPart` converts them to the type that the user specified. Strings that look like times are
        # read as text, so that they keep their spelling.
        stored = {n: pa.string() if pa.types.is_timestamp(t) else t for n, t in one.types.items()}
        named_types = {
            n: stored[n] if typed and n in stored else _as_key_type(t, n in uses.keys) for n, t in user_types.items()
        }
        named_types = {n: user_types[n] if pa.types.is_null(t) else t for n, t in named_types.items()}
        if isinstance(reader, TextReader):
            reader = replace(reader, numbers=frozenset(uses.numbers))
        typed_readers.append(
            replace(reader, types=types | named_types, user_typed=frozenset(user_types), header=one.names)
        )
    return typed_readers


def find_comparison_types(
    readers: Sequence[TextReader | JsonReader], facts: Sequence[FileFacts], names: Sequence[str], uses: ColumnUses
) -> dict[str, pa.DataType]:
    """Return, for each column read as text only to keep values as written, the type in which filters compare it.

    A column is left out if its inferred type is text or differs between files.
    """
    typed = isinstance(readers[0], JsonReader)
    guesses = {n: _collect_guesses(n, readers, facts, {}) for n in names if n not in readers[0].types}
    types = {n: find_comparison_type(n, guess, typed, uses) for n, guess in guesses.items()}
    return {name: kind for name, kind in types.items() if kind is not None}


def _collect_guesses(
    name: str,
    readers: Sequence[TextReader | JsonReader],
    facts: Sequence[FileFacts],
    folders: Mapping[str, pa.DataType],
) -> list[TypeGuess]:
    """Return the type of a column in each file, and the path of the file.

    The type is inferred from the file. If the file does not store the column, it is the type of the partition key.
    """
    pairs = zip(readers, facts, strict=True)
    return [(one.types.get(name, folders.get(name, pa.null())), reader.file) for reader, one in pairs]


def _as_key_type(dtype: pa.DataType, is_key: bool) -> pa.DataType:
    return KEY_TEXT if is_key and dtype == pa.string() else dtype
