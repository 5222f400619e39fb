"""Avro files in batches, read by fastavro, a block at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from streammetrics.errors import StreamMetricsError
from streammetrics.io.readers import Facts, Span, broken, reading
from streammetrics.io.remote import missing, open_file
from streammetrics.io.sources import LogError

__all__ = ["AvroReader"]

_MAGIC = b"Obj\x01"
_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


@dataclass(frozen=True)
class AvroReader:
    """One Avro file, read from its start to its end."""

    reads_paths: ClassVar[bool] = False

    file: str

    def facts(self) -> Facts:
        """Read the header, which says nothing of the number of rows."""
        with self._blocks() as (blocks, raw):
            return Facts.of(_schema(blocks.writer_schema), None, (Span(0, None, (0, 1), raw.size()),))

    def read(self, span: Span, columns: Sequence[str], keys: Collection[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the file block by block."""
        with self._blocks() as (blocks, raw):
            types = {field.name: field.type for field in _schema(blocks.writer_schema)}
            if strange := [name for name in columns if pa.types.is_null(types[name])]:
                raise LogError(f"{self.file}: column {strange[0]!r}: a map, or a union of several types, is not read")
            for block in blocks:
                records = list(block)
                arrays = [pa.array([record[name] for record in records], types[name]) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns)), min(raw.tell(), span.bytes)

    @contextmanager
    def _blocks(self) -> Iterator[tuple[Any, pa.NativeFile]]:
        try:
            import fastavro
        except ModuleNotFoundError:
            raise missing(self.file, "fastavro", "avro") from None
        with reading(self.file), open_file(self.file) as raw:
            if raw.read(len(_MAGIC)) != _MAGIC:
                raise LogError(f"{self.file}: not an Avro file")
            raw.seek(0)
            try:
                yield fastavro.block_reader(raw), raw
            except (StreamMetricsError, MemoryError):
                raise
            except Exception as error:  # of a damaged file anything
                raise broken(self.file, error) from error


def _schema(written: Any) -> pa.Schema:
    """Return the columns of a file of records; of type null what is not read."""
    if not isinstance(written, dict) or written.get("type") != "record":
        raise ValueError("an Avro file of something else than records")
    known: dict[str, Any] = {}
    found = _type(written, known)
    return pa.schema(list(found))


def _type(written: Any, known: dict[str, Any]) -> pa.DataType:
    """Return the type of Arrow for one of Avro; null where there is none."""
    if isinstance(written, list):
        others = [one for one in written if one != "null"]
        return _type(others[0], known) if len(others) == 1 else pa.null()
    if isinstance(written, str):
        return _PLAIN[written] if written in _PLAIN else known.get(written, pa.null())
    kind, logical = written["type"], written.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(min(written["precision"], 38), written.get("scale", 0))
    if kind == "record":
        found = pa.struct([(field["name"], _type(field["type"], known)) for field in written["fields"]])
    elif kind == "array":
        return pa.list_(_type(written["items"], known))
    elif kind == "map" or logical == "uuid":
        return pa.null()
    else:
        found = _type(kind, known)
    if "name" in written:
        known[written["name"]] = found
    return found
