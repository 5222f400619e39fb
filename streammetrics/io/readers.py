"""Parquet and Arrow IPC files in batches: only the wanted columns, in flat memory."""

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
    "broken",
    "decoded",
    "encode_keys",
    "is_text",
    "one_table",
    "reading",
]  # fmt: skip

BATCH_ROWS = 1 << 17
_SPAN_ROWS = 1 << 17  # row groups smaller than this are read together

# Without a buffer Arrow loads a whole column of a row group at once: 180 MB instead of 112 for a row group of ten
# million rows, and half as fast, as every page is then touched in memory that is new to the processor.
_BUFFER_BYTES = 1 << 18

# What Arrow says, and what it means to somebody who only wants a metric.
_CAUSES = (
    (r"Parquet (magic bytes|file size is)", "not a Parquet file, or cut short"),
    (r"ORC file|Not an ORC|postscript", "not an ORC file, or cut short"),
    (r"deserialize thrift|Invalid page header", "damaged metadata"),
    (r"Not an Arrow file|Invalid flatbuffers|Expected to read \d+ metadata", "not an Arrow IPC file, or damaged"),
    (r"Truncated compressed stream", "the compressed data end early"),
    (r"Compressed file ended before", "the compressed data end early"),
    (r"Unexpected end of stream|Expected to be able to read", "the data end early"),
    (
        r"decompression failed|decompressing|gzipped|CRC check failed|Incorrect length|Corrupt|inflate|bz2|zlib",
        "the compressed data are damaged",
    ),
    (r"Empty CSV file", "empty, without even a header"),
)


@dataclass(frozen=True)
class FileSpan:
    """A range of a file that is read on its own."""

    first_row: int
    rows: int | None
    units: tuple[int, int]  # row groups or record batches, first and one past the last
    bytes: int


@dataclass(frozen=True)
class FileFacts:
    """What a file says of itself before its rows are read."""

    schema: pa.Schema
    names: tuple[str, ...]  # of the schema, which decodes them anew every time it is asked
    rows: int | None
    spans: tuple[FileSpan, ...]
    types: Mapping[str, pa.DataType]  # of columns, and of the fields of structs by their path, such as prediction.score
    repeated: Mapping[str, int]  # how often names occur that occur more than once

    @classmethod
    def of(cls, schema: pa.Schema, rows: int | None, spans: tuple[FileSpan, ...]) -> FileFacts:
        """Facts without the remarks that writers leave in schemas; raises on names that are not text."""
        names = tuple(schema.names)
        types = dict(_fields_within("", schema)) | dict(zip(names, schema.types, strict=True))
        repeated = {name: n for name, n in Counter(names).items() if n > 1}
        return cls(schema.remove_metadata(), names, rows, spans, types, repeated)


def _fields_within(above: str, fields: Iterable[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path and the type of every field, those within structs behind the struct."""
    for one in fields:
        path = f"{above}.{one.name}" if above else one.name
        yield path, one.type
        if pa.types.is_struct(one.type):
            yield from _fields_within(path, one.type)


class FileReader(Protocol):
    """One file of one format; with `reads_paths` it reads a field of a struct without the others."""

    reads_paths: ClassVar[bool]

    @property
    def file(self) -> str:
        """Path of the file."""

    def facts(self) -> FileFacts:
        """Read what the file says of itself."""

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield batches of any size with the bytes of the span that have been read by then."""


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what Arrow raises on a broken file, which is any of these, into one line that names it."""
    known = Exception if is_url(file) else (pa.ArrowException, OSError, ValueError, KeyError, EOFError)
    try:
        yield
    except known as error:  # of another side, that has errors of its own, any
        if isinstance(error, (StreamMetricsError, MemoryError)):
            raise
        raise broken(file, error) from None


def broken(file: str, error: Exception) -> LogError:
    """One line that names the file and the cause."""
    number = getattr(error, "errno", None)
    if number:
        return LogError(f"{file}: {os.strerror(number)}")
    for pattern, cause in _CAUSES:
        if re.search(pattern, str(error)):
            return LogError(f"{file}: {cause}")
    lines = str(error).splitlines() or [type(error).__name__]
    return LogError(f"{file}: cannot be read: {lines[0][:120]}")


def decoded(column: Any) -> Any:
    """The values of a column, whether or not it comes as a dictionary of them."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def one_table(tables: Sequence[pa.Table]) -> pa.Table:
    """Return rows of several files as one table, of the types that hold what is in all of them."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        for name in tables[0].schema.names:
            kinds = list(dict.fromkeys(str(table.schema.field(name).type) for table in tables))
            if len(kinds) > 1:
                raise LogError(
                    f"column {name!r} is {kinds[0]} in one file, but {kinds[1]} in another; write it as one type"
                ) from error
        raise


def encode_keys(batch: pa.RecordBatch, keys: Collection[str]) -> pa.RecordBatch:
    """Give string and bytes columns among the keys a dictionary of at most the size of a batch."""
    for i, field in enumerate(batch.schema):
        if field.name in keys:
            column = _encode(batch.column(i))
            batch = batch.set_column(i, field.name, column)
    return batch


def _encode(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        if len(column.dictionary) <= BATCH_ROWS:
            return column
        # A file-wide dictionary of millions would be converted again for every batch: keep what the batch uses.
        column = column.dictionary_decode()
    if "view" in str(column.type):  # polars writes these; older Arrow cannot encode them
        column = column.cast(pa.string() if "string" in str(column.type) else pa.binary())
    return column.dictionary_encode() if _is_coded(column.type) else column


def _is_coded(dtype: pa.DataType) -> bool:
    names = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_type(dtype) for is_type in names)


def is_text(dtype: pa.DataType) -> bool:
    """Whether a column holds texts, dictionary-encoded or not."""
    return "string" in str(dtype.value_type if pa.types.is_dictionary(dtype) else dtype)


def _spans(unit_rows: Sequence[int], size: int) -> tuple[FileSpan, ...]:
    """Group neighbouring units until each span is worth a task; empty ones disappear."""
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
    """A Parquet file, one range of row groups at a time."""

    reads_paths: ClassVar[bool] = True

    file: str
    stamp: str = ""

    def facts(self) -> FileFacts:
        """Read the footer."""
        with reading(self.file), _open_parquet(self.file) as (parquet, size):
            metadata = parquet.metadata
            rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            return FileFacts.of(parquet.schema_arrow, metadata.num_rows, _spans(rows, size))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the batches of some row groups."""
        groups = range(*span.units)
        with reading(self.file):
            metadata = _footer(self.file, self.stamp if is_url(self.file) else f"{os.stat(self.file).st_mtime_ns}")
            coded = [name for name in keys if name in columns and _has_small_dictionary(metadata, groups, name)]
            with _open_parquet(self.file, metadata=metadata, read_dictionary=coded) as (parquet, _):
                done = 0
                # Arrow's own threads would read ahead of a slow consumer; ours each run a span.
                for batch in parquet.iter_batches(BATCH_ROWS, groups, list(columns), use_threads=False):
                    done += batch.num_rows
                    yield batch, span.bytes * done // max(span.rows or 1, 1)


@contextmanager
def _open_parquet(file: str, **options: object) -> Iterator[tuple[pq.ParquetFile, int]]:
    """Open a file; give its size, too."""
    # pre_buffer keeps every column chunk that it read ahead (565 MB of a 478 MB file under a slow consumer), and
    # mapped pages count as resident. An opened file, because Arrow takes some plain paths for URIs.
    with (
        open_file(file, ranges=True) as raw,
        pq.ParquetFile(
            raw,
            pre_buffer=False,
            memory_map=False,
            buffer_size=0 if is_url(file) else _BUFFER_BYTES,  # elsewhere requests cost more than memory
            page_checksum_verification=True,
            **options,
        ) as parquet,
    ):
        yield parquet, raw.size()


@lru_cache(maxsize=32)
def _footer(file: str, _stamp: str) -> pq.FileMetaData:
    """Footer of a file: parsed once for its many spans, but kept for few files, as wide ones take megabytes."""
    with _open_parquet(file) as (parquet, _):
        return parquet.metadata


def _has_small_dictionary(metadata: pq.FileMetaData, groups: range, name: str) -> bool:
    """Whether a text column is stored as codes throughout.

    Arrow decodes codes to codes 14 times faster than through strings. But where the writer gave up its dictionary
    (user identifiers), Arrow rebuilds it for the row group: 1100 MB for five million strings, where encoding each
    batch takes 150 and an eighth of the time. Codes take at most two bytes a row, plain strings at least four.
    """
    schema = metadata.schema
    found = [i for i in range(len(schema)) if schema.column(i).path == name]
    if len(found) != 1 or schema.column(found[0]).physical_type != "BYTE_ARRAY":
        return False
    chunks = [metadata.row_group(group).column(found[0]) for group in groups]
    return all(chunk.total_uncompressed_size <= 2 * chunk.num_values + _BUFFER_BYTES for chunk in chunks)


@dataclass(frozen=True)
class IpcReader:
    """An Arrow IPC file (also called Feather 2), or an IPC stream, which may come through a pipe."""

    reads_paths: ClassVar[bool] = False

    file: str
    pipe: Any = None

    def facts(self) -> FileFacts:
        """Read schema and, of a file, the rows of every record batch; a stream tells neither before its end."""
        if self.pipe is not None:
            with reading(self.file):
                schema = ipc.open_stream(pa.PythonFile(self.pipe.reader(), "r")).schema
                return FileFacts.of(schema, None, (FileSpan(0, None, (0, 1), 0),))
        with reading(self.file), open_file(self.file) as raw:
            size = raw.size()
            if not self._is_random_access():
                return FileFacts.of(ipc.open_stream(raw).schema, None, (FileSpan(0, None, (0, 1), size),))
            schema = ipc.open_file(raw).schema
            reader = ipc.open_file(raw, options=_fields([_narrowest(schema)]))
            rows = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            return FileFacts.of(schema, sum(rows), _spans(rows, size))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield some record batches."""
        if self.pipe is not None:
            yield from self._piped(columns)
            return
        with reading(self.file), open_file(self.file) as raw:
            open_ = ipc.open_file if self._is_random_access() else ipc.open_stream
            schema = open_(raw).schema
            raw.seek(0)
            reader = open_(raw, options=_fields([schema.get_field_index(name) for name in columns]))
            batches = map(reader.get_batch, range(*span.units)) if span.rows is not None else iter(reader)
            done = 0
            for batch in batches:
                done += batch.num_rows
                yield batch, raw.tell() if span.rows is None else span.bytes * done // max(span.rows, 1)

    def _piped(self, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        with reading(self.file):
            schema = ipc.open_stream(pa.PythonFile(self.pipe.reader(), "r")).schema
            chosen = _fields([schema.get_field_index(name) for name in columns])
            for batch in ipc.open_stream(pa.PythonFile(self.pipe.last_reader(), "r"), options=chosen):
                yield batch, 0

    def _is_random_access(self) -> bool:
        with open_file(self.file) as raw:
            magic: bytes = raw.read(6)
        if magic[:4] == b"FEA1":
            raise LogError(f"{self.file}: Feather version 1, which Arrow no longer reads; write it as version 2")
        return magic == b"ARROW1"


@dataclass(frozen=True)
class OrcReader:
    """An ORC file, a stripe at a time."""

    reads_paths: ClassVar[bool] = False

    file: str

    def facts(self) -> FileFacts:
        """Read the footer, which does not say how many rows each stripe has."""
        with reading(self.file), open_file(self.file) as raw:
            found = orc.ORCFile(raw)
            spans = (FileSpan(0, found.nrows, (0, found.nstripes), raw.size()),) if found.nrows else ()
            return FileFacts.of(found.schema, found.nrows, spans)

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the stripes."""
        with reading(self.file), open_file(self.file) as raw:
            found = orc.ORCFile(raw)
            for stripe in range(*span.units):
                batch = found.read_stripe(stripe, columns=list(columns))
                yield batch.select(list(columns)), span.bytes * (stripe + 1) // span.units[1]


def _fields(indices: list[int]) -> ipc.IpcReadOptions:
    return ipc.IpcReadOptions(use_threads=False, included_fields=sorted(indices))


def _narrowest(schema: pa.Schema) -> int:
    """Column that costs least to read where only the number of rows is wanted."""

    def width(i: int) -> int:
        try:
            return int(schema.field(i).type.bit_width)
        except ValueError:  # strings and lists have none
            return 1 << 20

    return min(range(len(schema)), key=width, default=0)
