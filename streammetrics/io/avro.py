"""Avro files in batches, read by fastavro, a block at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa

from streammetrics.errors import StreamMetricsError
from streammetrics.io.readers import FileFacts, FileSpan, broken, reading
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
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}


@dataclass(frozen=True)
class AvroReader:
    """One Avro file, read from its start to its end."""

    reads_paths: ClassVar[bool] = False

    file: str

    def facts(self) -> FileFacts:
        """Read the header, which says nothing of the number of rows."""
        with self._blocks() as (blocks, raw):
            types = _column_types(blocks.writer_schema)
            schema = pa.schema([(name, pa.null() if kind is None else kind) for name, kind in types.items()])
            return FileFacts.of(schema, None, (FileSpan(0, None, (0, 1), raw.size()),))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the file block by block."""
        with self._blocks() as (blocks, raw):
            types = _column_types(blocks.writer_schema)
            if strange := [name for name in columns if types[name] is None]:
                raise LogError(f"{self.file}: column {strange[0]!r}: a map, or a union of several types, is not read")
            has_uuids = "'uuid'" in str(blocks.writer_schema)
            for block in blocks:
                records = [_spell_uuids(record) for record in block] if has_uuids else list(block)
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


def _spell_uuids(value: Any) -> Any:
    """Return a value of fastavro with UUIDs as text, which Arrow does not make of them by itself."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: _spell_uuids(inner) for name, inner in value.items()}
    return [_spell_uuids(inner) for inner in value] if isinstance(value, list) else value


def _column_types(written: Any) -> dict[str, pa.DataType | None]:
    """Return the types of the columns of a file of records; None for a column that is not read."""
    if not isinstance(written, dict) or written.get("type") != "record":
        raise ValueError("an Avro file of something else than records")
    known: dict[str, pa.DataType | None] = {}
    return {field["name"]: _type(field["type"], known) for field in written["fields"]}


def _type(written: Any, known: dict[str, pa.DataType | None]) -> pa.DataType | None:
    """Return the type of Arrow for one of Avro; None for maps and unions of several types."""
    if isinstance(written, list):
        others = [one for one in written if one != "null"]
        return _type(others[0], known) if len(others) == 1 else None
    if isinstance(written, str):
        return _PLAIN[written] if written in _PLAIN else known.get(written)
    kind, logical = written["type"], written.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(min(written["precision"], 38), written.get("scale", 0))
    found: pa.DataType | None
    if kind == "record":
        fields = [(field["name"], _type(field["type"], known)) for field in written["fields"]]
        readable = [(name, inner) for name, inner in fields if inner is not None]
        found = pa.struct(readable) if readable else None
    elif kind == "array":
        items = _type(written["items"], known)
        return None if items is None else pa.list_(items)
    elif kind == "map":
        return None
    else:
        found = _type(kind, known)
    if "name" in written:
        known[written["name"]] = found
    return found
