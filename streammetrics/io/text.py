"""CSV and TSV files in batches, compressed or not; what type their columns have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from streammetrics.io.json_lines import JsonReader
from streammetrics.io.pipes import opened
from streammetrics.io.readers import Facts, Span, broken, reading
from streammetrics.io.sources import LogError, Source

__all__ = ["TextReader", "Uses", "compared_types", "settle_types"]

_BLOCK_BYTES = 1 << 20  # 271 MB resident where 8 MiB took 406 (notes/ecosystem.md, 2.2)
_PEEK_BYTES = 1 << 18
_ROW = re.compile(r"Row #(\d+): ")
_VALUE = re.compile(r"In CSV column #(\d+): .*?CSV conversion error to (.+?): (?:invalid value '(.*)'|(.*))", re.DOTALL)
_COUNT = re.compile(r"Expected (\d+) columns, got (\d+)")
_KEY_TEXT = pa.dictionary(pa.int32(), pa.string())
PADDED = pa.large_string()
"""What stands for integers that begin with zeros, which no guess gives: numbers, but as keys "007" is not "7"."""


@dataclass(frozen=True)
class TextReader:
    """One CSV or TSV file, read from its start to its end."""

    source: Source
    delimiter: str
    nulls: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    header: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.source.file

    def facts(self) -> Facts:
        """Read the header and guess types from the first rows."""
        with self._reading():
            with self._raw() as raw:
                schema = self._open(raw, _PEEK_BYTES).schema
            return Facts.of(self._with_zeros(schema), None, (Span(0, None, (0, 1), self.source.bytes),))

    def _with_zeros(self, schema: pa.Schema) -> pa.Schema:
        """The schema, where integers of the first rows that begin with zeros are PADDED: as keys they are texts."""
        whole = {field.name: pa.string() for field in schema if pa.types.is_integer(field.type)}
        if not whole:  # then it is not opened again
            return schema
        with self._raw() as raw:
            first = next(iter(self._open(raw, _PEEK_BYTES, column_types=whole)), None)
        if first is None:
            return schema
        padded = [
            f.name in whole and pc.any(pc.match_substring_regex(column, r"^\s*[+-]?0\d")).as_py()
            for f, column in zip(schema, first.columns, strict=True)
        ]
        return pa.schema([pa.field(f.name, PADDED) if p else f for f, p in zip(schema, padded, strict=True)])

    def read(self, span: Span, columns: Sequence[str], keys: Collection[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the file block by block."""
        types = {name: self.types.get(name, pa.binary()) for name in columns}  # one read for its length is anything
        with self._reading(), self._plain() as plain, self._raw(plain) as raw:
            for batch in self._open(raw, _BLOCK_BYTES, include_columns=list(columns), column_types=types):
                yield batch, min(plain.tell(), span.bytes) if self.source.pipe is None else 0

    def _plain(self) -> pa.NativeFile:
        if self.source.pipe is not None:
            self.source.pipe.forget()
        return opened(self.source)

    def _raw(self, plain: pa.NativeFile | None = None) -> pa.NativeFile:
        plain = opened(self.source) if plain is None else plain
        return pa.CompressedInputStream(plain, self.source.compression) if self.source.compression else plain

    def _open(self, raw: pa.NativeFile, block: int, **convert: object) -> csv.CSVStreamingReader:
        return csv.open_csv(
            raw,
            read_options=csv.ReadOptions(block_size=block, use_threads=False),  # with threads no row numbers
            parse_options=csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                null_values=list(self.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                **convert,
            ),
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with reading(self.file):
            try:
                yield
            except pa.ArrowInvalid as error:
                raise self._row_error(str(error)) or broken(self.file, error) from None

    def _row_error(self, message: str) -> LogError | None:
        row = _ROW.search(message)
        where = f"{self.file}: row {int(row[1]) - 2}" if row else self.file  # Arrow counts from 1, header included
        value, count = _VALUE.search(message), _COUNT.search(message)
        if value:
            column = int(value[1])
            name = repr(self.header[column]) if column < len(self.header) else f"number {column}"
            what = f"{value[3][:40]!r} is not {value[2]}" if value[3] is not None else str(value[4])
            return LogError(f"{where}: column {name}: {what}")
        if count:
            return LogError(f"{where}: {count[2]} columns where the header has {count[1]}")
        return None


class Uses(NamedTuple):
    """What columns are read for, which decides what those of text files are read as.

    Parameters
    ----------
    keys : collection of str
        They slice or group: integers or text.
    values : collection of str
        Metrics read them: as keys, too, they keep true and false, and numbers that are not whole.
    whole : collection of str
        Integers that no float64 may stand for: where all of them are, they are read as such.
    exact : collection of str
        Those among them that are read as text where they are longer than 64 bits.
    """

    keys: Collection[str] = ()
    values: Collection[str] = ()
    whole: Collection[str] = ()
    exact: Collection[str] = ()


def settle_types(
    readers: Sequence[TextReader | JsonReader],
    schemas: Sequence[pa.Schema],
    columns: Sequence[str],
    uses: Uses,
    folders: Mapping[str, pa.DataType],
) -> list[TextReader | JsonReader]:
    """Give a column one type in all files, decided by all of them and by nothing else.

    Types guessed file by file would make the result depend on how the rows were split into files. Keys stay integers
    or become text ("007" beside "B12", version "1.10"); other numbers are read as float64, as a column of scores may
    well start with a thousand zeros. What a file has not is of its folder, whose type is known.
    """
    types = {
        name: _asked(readers[0].types[name], name in uses.keys)
        if name in readers[0].types
        else _settle(name, _guesses(name, readers, schemas, folders), readers[0], uses)
        for name in columns
    }
    return [
        replace(reader, types=types, header=tuple(schema.names))
        for reader, schema in zip(readers, schemas, strict=True)
    ]


def compared_types(
    readers: Sequence[TextReader | JsonReader], schemas: Sequence[pa.Schema], names: Sequence[str], uses: Uses
) -> dict[str, pa.DataType]:
    """What the columns that are read as text whatever they hold do hold, where all files agree on what is no text."""
    found: dict[str, pa.DataType] = {}
    for name in (n for n in names if n not in readers[0].types):
        guesses = _guesses(name, readers, schemas, {})
        kinds = {_type_of(guess, name, Uses(), False) for guess, _ in guesses if not pa.types.is_null(guess)}
        if _settle(name, guesses, readers[0], uses) in (_KEY_TEXT, pa.string()) and len(kinds) == 1:
            found |= dict.fromkeys([name] if pa.string() not in kinds else [], *kinds)
    return found


Guess = tuple[pa.DataType, str]


def _guesses(
    name: str,
    readers: Sequence[TextReader | JsonReader],
    schemas: Sequence[pa.Schema],
    folders: Mapping[str, pa.DataType],
) -> list[Guess]:
    """What a column seems to hold, by file."""
    both = zip(readers, schemas, strict=True)
    return [(s.field(name).type if name in s.names else folders[name], reader.file) for reader, s in both]


def _asked(dtype: pa.DataType, is_key: bool) -> pa.DataType:
    return _KEY_TEXT if is_key and dtype == pa.string() else dtype


def _settle(name: str, guesses: Sequence[Guess], reader: TextReader | JsonReader, uses: Uses) -> pa.DataType:
    typed, is_key = isinstance(reader, JsonReader), name in uses.keys
    kinds: dict[pa.DataType, str] = {}
    for guess, file in guesses:
        if not pa.types.is_null(guess):  # nothing but nulls fits any type
            kinds.setdefault(_type_of(guess, name, uses, typed), file)
    if typed and name in uses.exact and pa.float64() in kinds:
        raise LogError(
            f"{kinds[pa.float64()]}: column {name!r}: numbers of JSON that 64 bits do not hold are read as float64, which "
            f"does not tell them apart; write them as texts to compare them"
        )
    if not kinds:
        return _KEY_TEXT if is_key else pa.float64()
    if len(kinds) == 1:
        return next(iter(kinds))
    if is_key and not typed and name not in uses.values:
        return _KEY_TEXT
    if kinds.keys() <= {pa.int64(), pa.float64(), pa.string()} and name in uses.whole:
        return pa.string() if pa.string() in kinds else pa.float64()
    if all(pa.types.is_timestamp(kind) for kind in kinds) and len({kind.tz for kind in kinds}) == 1:
        return max(kinds, key=lambda kind: str(kind.unit) == "ns")
    (one, file), (other, other_file) = list(kinds.items())[:2]
    raise LogError(f"column {name!r} is {one} in {file}, but {other} in {other_file}; name its type with types=")


def _type_of(guess: pa.DataType, name: str, uses: Uses, typed: bool) -> pa.DataType:
    """What a guess is read as; JSON is typed: it says what is a text, and its numbers cannot be read as such."""
    real = pa.types.is_floating(guess) or guess == PADDED
    keeps = typed or name in uses.values
    if name in uses.keys and not (keeps and (pa.types.is_boolean(guess) or real)):
        return pa.int64() if pa.types.is_integer(guess) else _KEY_TEXT
    if pa.types.is_integer(guess) and name in uses.whole:
        return pa.int64()
    if real and name in uses.exact and not typed:
        return pa.string()
    if real or pa.types.is_integer(guess):
        return pa.float64()
    if pa.types.is_timestamp(guess) and guess.unit != "ns":
        return pa.timestamp("us", guess.tz)  # later rows may have fractions of a second
    return guess
