"""CSV and TSV files in batches, compressed or not; what type their columns have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.csv as csv

from streammetrics.io.column_types import KEY_TEXT, Guess, Uses, compared_type, conversion_error, settled_type
from streammetrics.io.json_lines import JsonReader
from streammetrics.io.pipes import opened
from streammetrics.io.quotes import CURE, QuoteCheck
from streammetrics.io.readers import FileFacts, FileSpan, broken, reading
from streammetrics.io.sources import LogError, LogFile
from streammetrics.io.text_stream import SEPARATOR, TextStream

__all__ = ["DEFAULT_NULLS", "TextFormat", "TextReader", "compared_types", "settle_types"]

DEFAULT_NULLS = ("", "\\N", "NULL", "null")
"""Spellings of null in text files. "NA" is not one of them: it is the code of Namibia."""

_BLOCK_BYTES = 1 << 20  # 271 MB resident where 8 MiB took 406 (notes/ecosystem.md, 2.2)
_PEEK_BYTES = 1 << 18
_ROW = re.compile(r"Row #(\d+): ")
_VALUE = re.compile(r"In CSV column #(\d+): .*?CSV conversion error to (.+?): (?:invalid value '(.*)'|(.*))", re.DOTALL)
_COUNT = re.compile(r"Expected (\d+) columns, got (\d+)")
_MISSING = ("NA", "N/A", "#N/A", "#NA", "<NA>", "None", "NaN", "nan", "n/a", "-", "?")


@dataclass(frozen=True)
class TextFormat:
    """How text files are written.

    Parameters
    ----------
    delimiter : str, optional
        What separates values; by default a tab for `.tsv` and a comma for `.csv`.
    nulls : tuple of str
        Spellings of null, where they are not quoted.
    quotes : bool
        Whether quotation marks enclose values.
    columns : tuple of str
        Names of the columns of files without a header.
    """

    delimiter: str | None = None
    nulls: tuple[str, ...] = DEFAULT_NULLS
    quotes: bool = True
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextReader:
    """One CSV or TSV file, read from its start to its end."""

    reads_paths: ClassVar[bool] = False

    source: LogFile
    format: TextFormat
    types: Mapping[str, pa.DataType]
    header: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.source.file

    @property
    def delimiter(self) -> str:
        """What separates values."""
        return self.format.delimiter or self.source.delimiter

    def facts(self) -> FileFacts:
        """Read the header and guess types from the first rows."""
        with self._reading():
            with self._raw() as raw:
                schema = self._open(raw, _PEEK_BYTES).schema
            return FileFacts.of(self._with_missing(schema), None, (FileSpan(0, None, (0, 1), self.source.bytes),))

    def _with_missing(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema, where columns of numbers and usual spellings of missing values are numbers.

        Reading them names the first row with such a spelling; the guess alone would make texts of all numbers.
        """
        if pa.string() not in schema.types:
            return schema
        with self._raw() as raw:
            guessed = self._open(raw, _PEEK_BYTES, null_values=[*self.format.nulls, *_MISSING]).schema
        numbers = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in guessed]
        return pa.schema([g if number else f for f, g, number in zip(schema, guessed, numbers, strict=True)])

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the file block by block."""
        types = {name: self.types.get(name, pa.binary()) for name in columns}  # one read for its length is anything
        with self._reading(), self._plain() as plain, self._raw(plain) as raw:
            for batch in self._open(raw, _BLOCK_BYTES, include_columns=list(columns), column_types=types):
                yield batch, min(plain.tell(), span.bytes) if self.source.pipe is None else 0

    def _plain(self) -> pa.NativeFile:
        return opened(self.source, last=True)

    def _raw(self, plain: pa.NativeFile | None = None) -> pa.NativeFile:
        delimiter = self.delimiter if len(self.delimiter.encode()) == 1 else SEPARATOR
        quotes = QuoteCheck(self.file, delimiter) if self.format.quotes else None
        return pa.PythonFile(TextStream(self.source, plain, self.delimiter, quotes), "r")

    def _open(self, raw: pa.NativeFile, block: int, **convert: object) -> csv.CSVStreamingReader:
        quotes, names = self.format.quotes, list(self.format.columns) or None
        return csv.open_csv(
            raw,
            # with threads no row numbers
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
    def _reading(self) -> Iterator[None]:
        with reading(self.file):
            try:
                yield
            except pa.ArrowInvalid as error:
                raise self._row_error(str(error)) or self._too_long(error) or broken(self.file, error) from None

    def _row_error(self, message: str) -> LogError | None:
        row = _ROW.search(message)
        header = 1 if self.format.columns else 2  # Arrow counts from 1, the header included
        where = f"{self.file}: row {int(row[1]) - header}" if row else self.file
        value, count = _VALUE.search(message), _COUNT.search(message)
        if value:
            column = int(value[1])
            name = self.header[column] if column < len(self.header) else f"number {column}"
            if value[3] is None:
                return LogError(f"{where}: column {name!r}: {value[4]}")
            said = self._asked_or(value[2], name)
            return LogError(f"{where}: {conversion_error(name, value[3], *said, number=name in self.numbers)}")
        if count and self.format.columns:
            return LogError(
                f"{where}: expected {count[1]} columns, as names= lists, found {count[2]}; name all columns"
            )
        if count:
            return LogError(f"{where}: {count[2]} columns where the header has {count[1]}")
        return None

    def _asked_or(self, kind: str, name: str) -> tuple[pa.DataType | str, bool]:
        """Return the type of a column, and whether the user named it."""
        return self.types.get(name, kind), name in self.asked

    def _too_long(self, error: pa.ArrowInvalid) -> LogError | None:
        if "straddling object" not in str(error):
            return None
        cure = f" (is a quote left open? {CURE})" if self.format.quotes else ""
        return LogError(f"{self.file}: a row is too long{cure}")


def settle_types(
    readers: Sequence[TextReader | JsonReader],
    facts: Sequence[FileFacts],
    columns: Sequence[str],
    uses: Uses,
    folders: Mapping[str, pa.DataType],
) -> list[TextReader | JsonReader]:
    """Give each column one type in all files.

    Parameters
    ----------
    readers : sequence of TextReader or JsonReader
        The files; their types are those that the user named.
    facts : sequence of Facts
        What each file seems to hold.
    columns : sequence of str
        The columns that are read.
    uses : Uses
        What they are read for.
    folders : mapping of str to pyarrow.DataType
        Types of columns that some files have from the folder that they lie in.
    """
    typed = isinstance(readers[0], JsonReader)
    asked = dict(readers[0].types)
    types = {
        name: settled_type(name, _guesses(name, readers, facts, folders), typed, uses)
        for name in columns
        if name not in asked
    }
    found = []
    for reader, one in zip(readers, facts, strict=True):
        # Arrow reads numbers of JSON only as numbers: the part converts them. It keeps the spelling of texts that look
        # like times only if it reads them as texts.
        stored = {n: pa.string() if pa.types.is_timestamp(t) else t for n, t in one.types.items()}
        own = {n: stored[n] if typed and n in stored else _named(t, n in uses.keys) for n, t in asked.items()}
        own = {n: asked[n] if pa.types.is_null(t) else t for n, t in own.items()}
        if isinstance(reader, TextReader):
            reader = replace(reader, numbers=frozenset(uses.numbers))
        found.append(replace(reader, types=types | own, asked=frozenset(asked), header=one.names))
    return found


def compared_types(
    readers: Sequence[TextReader | JsonReader], facts: Sequence[FileFacts], names: Sequence[str], uses: Uses
) -> dict[str, pa.DataType]:
    """Return what the columns that are read as text hold, where all files agree that this is no text."""
    typed = isinstance(readers[0], JsonReader)
    guesses = {n: _guesses(n, readers, facts, {}) for n in names if n not in readers[0].types}
    found = {n: compared_type(n, guess, typed, uses) for n, guess in guesses.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def _guesses(
    name: str,
    readers: Sequence[TextReader | JsonReader],
    facts: Sequence[FileFacts],
    folders: Mapping[str, pa.DataType],
) -> list[Guess]:
    """Return what a column seems to hold, by file."""
    both = zip(readers, facts, strict=True)
    return [(one.types.get(name, folders.get(name, pa.null())), reader.file) for reader, one in both]


def _named(dtype: pa.DataType, is_key: bool) -> pa.DataType:
    return KEY_TEXT if is_key and dtype == pa.string() else dtype
