"""Read Parquet, Arrow IPC and ORC files in batches: only the requested columns, in constant memory."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.orc as orc
import pyarrow.parquet as pq

from streammetrics.errors import StreamMetricsError
from streammetrics.io.remote import is_url, open_file
from streammetrics.io.sources import LogError

__all__ = [
    "BATCH_ROWS",
    "FileFacts",
    "FileReader",
    "FileSpan",
    "IpcReader",
    "OrcReader",
    "ParquetReader",
    "concat_tables",
    "convert_errors",
    "decode_dictionary",
    "encode_keys",
    "is_text",
    "make_log_error",
]  # fmt: skip

BATCH_ROWS = 1 << 17
# Adjacent row groups are combined into one unit of work until the unit has at least this many rows.
_SPAN_ROWS = 1 << 17

# Without a buffer, Arrow loads a whole column of a row group at once. For a row group of ten million rows, this takes
# 180 MB rather than 112 MB. It also takes twice as long, because the pages to decode are no longer in the CPU cache.
_BUFFER_BYTES = 1 << 18

_REWRITE_HINT = "rewrite the file or correct its suffix"

# Patterns that match Arrow's error messages, and the messages that users get instead.
_CAUSES = (
    (
        r"Parquet (magic bytes|file size is)",
        f"expected a Parquet file, found other or truncated content; {_REWRITE_HINT}",
    ),
    (r"ORC file|Not an ORC|postscript", f"expected an ORC file, found other or truncated content; {_REWRITE_HINT}"),
    (r"deserialize thrift|Invalid page header", "the metadata of the file is damaged; write the file again"),
    (
        r"Not an Arrow file|Invalid flatbuffers|Expected to read \d+ metadata",
        f"expected Arrow IPC, found other or damaged content; {_REWRITE_HINT}",
    ),
    (
        r"Truncated compressed stream|Compressed file ended before",
        "the compressed file is truncated; copy or write the file again",
    ),
    (r"Unexpected end of stream|Expected to be able to read", "the file is truncated; copy or write the file again"),
    (
        r"decompression failed|decompressing|gzipped|CRC check failed|Incorrect length|Corrupt|inflate|bz2|zlib",
        "the compressed data is damaged; copy or write the file again",
    ),
    (r"Empty CSV file", "expected a header, found an empty file; remove the file from the log"),
)


@dataclass(frozen=True)
class FileSpan:
    """A range of rows in a file that a thread can read independently of other ranges.

    `first_row` is the number of its first row, and `rows` its number of rows (None if unknown). `units` is the
    half-open range of its row groups or record batches, and `bytes` is its size in the file, in bytes.
    """

    first_row: int
    rows: int | None
    units: tuple[int, int]
    bytes: int


@dataclass(frozen=True)
class FileFacts:
    """Facts about a file, known before its rows are read: columns, types, number of rows, and its `FileSpan` ranges."""

    schema: pa.Schema
    # The column names. They are stored here because the schema decodes its names on every access.
    names: tuple[str, ...]
    rows: int | None
    spans: tuple[FileSpan, ...]
    # The type of each column, by name, and of each struct field, by path (such as "prediction.score").
    types: Mapping[str, pa.DataType]
    # The number of occurrences of each column name that occurs more than once.
    repeated: Mapping[str, int]

    @classmethod
    def from_schema(cls, schema: pa.Schema, rows: int | None, spans: tuple[FileSpan, ...]) -> FileFacts:
        """Build `FileFacts` from a schema, without the schema's metadata.

        Raise an error if a column name is not UTF-8.
        """
        names = tuple(schema.names)
        types = dict(_list_fields("", schema)) | dict(zip(names, schema.types, strict=True))
        repeated = {name: n for name, n in Counter(names).items() if n > 1}
        return cls(schema.remove_metadata(), names, rows, spans, types, repeated)


def _list_fields(above: str, fields: Iterable[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path, such as "prediction.score", and the type of every field. Fields of a struct follow the struct.

    `above` is the path of the struct that contains `fields`, or "" for the columns of a schema.
    """
    for one in fields:
        path = f"{above}.{one.name}" if above else one.name
        yield path, one.type
        if pa.types.is_struct(one.type):
            yield from _list_fields(path, one.type)


class FileReader(Protocol):
    """The common interface of the readers of all formats. A reader reads one file.

    `reads_paths` says whether the reader can read one field of a struct without the other fields.
    """

    reads_paths: ClassVar[bool]

    @property
    def file(self) -> str:
        """Path of the file."""

    def read_facts(self) -> FileFacts:
        """Read the metadata of the file. Read its first rows only if types have to be inferred from them."""

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield batches of any size, each with the number of bytes of the span that have been read so far.

        `columns` are the columns to read. `keys` are the columns by which rows are sliced or grouped; a reader may
        dictionary-encode the strings in these columns.
        """


@contextmanager
def convert_errors(file: str) -> Iterator[None]:
    """Convert errors that Arrow raises for a broken file to a LogError with a one-line message that names the file."""
    # Each remote file system has its own error classes. If the file is a URL, convert errors of all classes.
    expected = Exception if is_url(file) else (pa.ArrowException, OSError, ValueError, KeyError, EOFError)
    try:
        yield
    except expected as error:
        if isinstance(error, (StreamMetricsError, MemoryError)):
            raise
        raise make_log_error(file, error) from None


def make_log_error(file: str, error: Exception) -> LogError:
    """Return a LogError with a one-line message that names the file and the cause."""
    number = getattr(error, "errno", None)
    if number:
        return LogError(f"{file}: {os.strerror(number)}")
    for pattern, cause in _CAUSES:
        if re.search(pattern, str(error)):
            return LogError(f"{file}: {cause}")
    lines = str(error).splitlines() or [type(error).__name__]
    return LogError(f"{file}: cannot be read: {lines[0][:120]}")


def decode_dictionary(column: Any) -> Any:
    """Return a column without dictionary encoding."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def concat_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the tables of several files. Each column gets a type that can represent its values from all files."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        for name in tables[0].schema.names:
            kinds = list(dict.fromkeys(str(table.schema.field(name).type) for table in tables))
            if len(kinds) > 1:
                raise LogError(
                    f"column {name!r}: expected one type in all files, found {kinds[0]} in one file and {kinds[1]} in "
                    f"another; pass types={{{name!r}: 'string'}} to read the column as text"
                ) from error
        raise


def encode_keys(batch: pa.RecordBatch, keys: Collection[str]) -> pa.RecordBatch:
    """Dictionary-encode the key columns that are strings or bytes.

    A dictionary never has more entries than the maximum number of rows in a batch.
    """
    for i, field in enumerate(batch.schema):
        if field.name in keys:
            column = _encode_column(batch.column(i))
            batch = batch.set_column(i, field.name, column)
    return batch


def _encode_column(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        if len(column.dictionary) <= BATCH_ROWS:
            return column
        # The dictionary of a whole file may have millions of entries and would be converted for every batch. Keep only
        # the entries that the batch uses.
        column = column.dictionary_decode()
    # Polars writes view types, which older versions of Arrow cannot encode.
    if "view" in str(column.type):
        column = column.cast(pa.string() if "string" in str(column.type) else pa.binary())
    return column.dictionary_encode() if _can_be_encoded(column.type) else column


def _can_be_encoded(dtype: pa.DataType) -> bool:
    names = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_type(dtype) for is_type in names)


def is_text(dtype: pa.DataType) -> bool:
    """Return whether a type is a string type, dictionary-encoded or not."""
    return "string" in str(dtype.value_type if pa.types.is_dictionary(dtype) else dtype)


def _group_units(unit_rows: Sequence[int], size: int) -> tuple[FileSpan, ...]:
    """Combine adjacent row groups or record batches into ranges that are large enough to keep a thread busy.

    `unit_rows` contains the number of rows in each row group or record batch, and `size` is the file size in bytes.
    Ranges without rows are left out.
    """
    total = max(sum(unit_rows), 1)
    spans: list[FileSpan] = []
    first = start = end = 0
    for unit, rows in enumerate(unit_rows):
        end += rows
        if end - start >= _SPAN_ROWS or (unit + 1 == len(unit_rows) and end > start):
            spans.append(FileSpan(start, end - start, (first, unit + 1), size * end // total - size * start // total))
            first, start = unit + 1, end
    return tuple(spans)


@dataclass(frozen=True)
class ParquetReader:
    """Reader of a Parquet file, which is split into ranges of row groups."""

    reads_paths: ClassVar[bool] = True

    file: str
    stamp: str = ""

    def read_facts(self) -> FileFacts:
        """Read the metadata of the file from its footer."""
        with convert_errors(self.file), _open_parquet(self.file) as (parquet, size):
            metadata = parquet.metadata
            rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            return FileFacts.from_schema(parquet.schema_arrow, metadata.num_rows, _group_units(rows, size))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the batches of a range of row groups, each with the number of bytes of the range read so far."""
        groups = range(*span.units)
        with convert_errors(self.file):
            metadata = _read_footer(self.file, self.stamp if is_url(self.file) else f"{os.stat(self.file).st_mtime_ns}")
            coded = [name for name in keys if name in columns and _has_small_dictionary(metadata, groups, name)]
            with _open_parquet(self.file, metadata=metadata, read_dictionary=coded) as (parquet, _):
                done = 0
                # Arrow's own threads would read ahead of a slow consumer until memory runs out. They are not needed,
                # because every thread of this library reads its own range.
                for batch in parquet.iter_batches(BATCH_ROWS, groups, list(columns), use_threads=False):
                    done += batch.num_rows
                    yield batch, span.bytes * done // max(span.rows or 1, 1)


@contextmanager
def _open_parquet(file: str, **options: object) -> Iterator[tuple[pq.ParquetFile, int]]:
    """Open a Parquet file, and yield it with its size in bytes."""
    # With pre_buffer, Arrow reads ahead and keeps all column chunks in memory: 565 MB for a file of 478 MB if the
    # consumer is slow. With memory_map, the pages of the file count as resident memory. The file is opened here rather
    # than by Arrow, because Arrow mistakes some paths for URIs.
    with (
        open_file(file, ranges=True) as raw,
        pq.ParquetFile(
            raw,
            pre_buffer=False,
            memory_map=False,
            # With a buffer, a remote file would be read in many small requests, which take too long.
            buffer_size=0 if is_url(file) else _BUFFER_BYTES,
            page_checksum_verification=True,
            **options,
        ) as parquet,
    ):
        yield parquet, raw.size()


@lru_cache(maxsize=32)
def _read_footer(file: str, _stamp: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file. The footer is cached, and read again if `_stamp` has changed.

    The cache has few entries, because the footer of a file with many columns takes up megabytes of memory.
    """
    with _open_parquet(file) as (parquet, _):
        return parquet.metadata


def _has_small_dictionary(metadata: pq.FileMetaData, groups: range, name: str) -> bool:
    """Return whether a text column is dictionary-encoded in all pages; if so, codes are faster to read than strings.

    Arrow reads a dictionary-encoded column 14 times faster if it keeps the codes. But if a column has many distinct
    strings, such as user IDs, Parquet writers abandon the dictionary after some pages. Arrow would then build a
    dictionary for the whole row group, which takes 1100 MB for five million strings. Reading the strings and encoding
    each batch takes 150 MB and an eighth of the time. Codes take at most two bytes per row, and plain strings take at
    least four, so the size of the column chunk tells the two cases apart.
    """
    schema = metadata.schema
    positions = [i for i in range(len(schema)) if schema.column(i).path == name]
    if len(positions) != 1 or schema.column(positions[0]).physical_type != "BYTE_ARRAY":
        return False
    chunks = [metadata.row_group(group).column(positions[0]) for group in groups]
    return all(chunk.total_uncompressed_size <= 2 * chunk.num_values + _BUFFER_BYTES for chunk in chunks)


@dataclass(frozen=True)
class IpcReader:
    """Reader of an Arrow IPC file (also called Feather 2) or an IPC stream, possibly from standard input."""

    reads_paths: ClassVar[bool] = False

    file: str
    pipe: Any = None

    def read_facts(self) -> FileFacts:
        """Read the schema and, for a file, the row count of each record batch. A stream does not store row counts."""
        if self.pipe is not None:
            with convert_errors(self.file):
                schema = ipc.open_stream(pa.PythonFile(self.pipe.open_reader(), "r")).schema
                return FileFacts.from_schema(schema, None, (FileSpan(0, None, (0, 1), 0),))
        with convert_errors(self.file), open_file(self.file) as raw:
            size = raw.size()
            if not self._is_random_access():
                return FileFacts.from_schema(ipc.open_stream(raw).schema, None, (FileSpan(0, None, (0, 1), size),))
            schema = ipc.open_file(raw).schema
            reader = ipc.open_file(raw, options=_read_options([_find_narrowest(schema)]))
            rows = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            return FileFacts.from_schema(schema, sum(rows), _group_units(rows, size))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the record batches of a range of the file, each with the number of bytes read so far."""
        if self.pipe is not None:
            yield from self._read_pipe(columns)
            return
        with convert_errors(self.file), open_file(self.file) as raw:
            open_ = ipc.open_file if self._is_random_access() else ipc.open_stream
            schema = open_(raw).schema
            raw.seek(0)
            reader = open_(raw, options=_read_options([schema.get_field_index(name) for name in columns]))
            batches = map(reader.get_batch, range(*span.units)) if span.rows is not None else iter(reader)
            done = 0
            for batch in batches:
                done += batch.num_rows
                yield batch, raw.tell() if span.rows is None else span.bytes * done // max(span.rows, 1)

    def _read_pipe(self, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        with convert_errors(self.file):
            schema = ipc.open_stream(pa.PythonFile(self.pipe.open_reader(), "r")).schema
            options = _read_options([schema.get_field_index(name) for name in columns])
            for batch in ipc.open_stream(pa.PythonFile(self.pipe.open_last_reader(), "r"), options=options):
                yield batch, 0

    def _is_random_access(self) -> bool:
        with open_file(self.file) as raw:
            magic: bytes = raw.read(6)
        if magic[:4] == b"FEA1":
            raise LogError(
                f"{self.file}: expected Feather version 2, found version 1; write the file again as version 2"
            )
        return magic == b"ARROW1"


@dataclass(frozen=True)
class OrcReader:
    """Reader of an ORC file, which is read stripe by stripe."""

    reads_paths: ClassVar[bool] = False

    file: str

    def read_facts(self) -> FileFacts:
        """Read the footer. The file is one range because the footer does not store the row count of each stripe."""
        with convert_errors(self.file), open_file(self.file) as raw:
            file = orc.ORCFile(raw)
            spans = (FileSpan(0, file.nrows, (0, file.nstripes), raw.size()),) if file.nrows else ()
            return FileFacts.from_schema(file.schema, file.nrows, spans)

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield one batch for each stripe of the file, with the number of bytes read so far."""
        with convert_errors(self.file), open_file(self.file) as raw:
            file = orc.ORCFile(raw)
            for stripe in range(*span.units):
                batch = file.read_stripe(stripe, columns=list(columns))
                yield batch.select(list(columns)), span.bytes * (stripe + 1) // span.units[1]


def _read_options(indices: list[int]) -> ipc.IpcReadOptions:
    return ipc.IpcReadOptions(use_threads=False, included_fields=sorted(indices))


def _find_narrowest(schema: pa.Schema) -> int:
    """Return the index of the column with the fewest bits per value, which is the cheapest column for counting rows."""

    def width(i: int) -> int:
        try:
            return int(schema.field(i).type.bit_width)
        # Strings and lists have no fixed width.
        except ValueError:
            return 1 << 20

    return min(range(len(schema)), key=width, default=0)
