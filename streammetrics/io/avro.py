"""Read Avro files block by block with fastavro."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa

from streammetrics.errors import StreamMetricsError
from streammetrics.io.readers import FileFacts, FileSpan, convert_errors, make_log_error
from streammetrics.io.remote import missing_package_error, open_file
from streammetrics.io.sources import LogError

__all__ = ["AvroReader"]

_MAGIC = b"Obj\x01"
_PRIMITIVES = {
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
    """Reader of one Avro file, which is read from start to end and not split into ranges."""

    reads_paths: ClassVar[bool] = False

    file: str

    def read_facts(self) -> FileFacts:
        """Read the names and types of columns from the header. Avro does not store the number of rows there."""
        with self._blocks() as (blocks, raw):
            types = _find_column_types(blocks.writer_schema)
            schema = pa.schema([(name, pa.null() if kind is None else kind) for name, kind in types.items()])
            return FileFacts.from_schema(schema, None, (FileSpan(0, None, (0, 1), raw.size()),))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield one batch for each block of the file, together with the number of bytes read so far."""
        with self._blocks() as (blocks, raw):
            types = _find_column_types(blocks.writer_schema)
            if unreadable := [name for name in columns if types[name] is None]:
                raise LogError(
                    f"{self.file}: column {unreadable[0]!r}: Avro maps and unions of several types are not supported; "
                    f"store the values as a record, or in separate columns"
                )
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
            raise missing_package_error(self.file, "fastavro", "avro") from None
        with convert_errors(self.file), open_file(self.file) as raw:
            if raw.read(len(_MAGIC)) != _MAGIC:
                raise LogError(
                    f"{self.file}: expected an Avro file, found other or truncated content; rewrite the file or correct "
                    f"its suffix"
                )
            raw.seek(0)
            try:
                yield fastavro.block_reader(raw), raw
            except (StreamMetricsError, MemoryError):
                raise
            # If a file is damaged, fastavro may raise an error of any class, so convert all errors.
            except Exception as error:
                raise make_log_error(self.file, error) from error


def _spell_uuids(value: Any) -> Any:
    """Return a value with all UUIDs converted to strings, because Arrow does not convert UUID objects."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: _spell_uuids(inner) for name, inner in value.items()}
    return [_spell_uuids(inner) for inner in value] if isinstance(value, list) else value


def _find_column_types(avro_schema: Any) -> dict[str, pa.DataType | None]:
    """Return the Arrow type of each column; None for a column that cannot be read."""
    if not isinstance(avro_schema, dict) or avro_schema.get("type") != "record":
        raise ValueError("expected an Avro file of records, found another type; store each row as a record")
    # Avro defines a named type where it first occurs; later fields refer to it by name.
    named_types: dict[str, pa.DataType | None] = {}
    return {field["name"]: _convert_type(field["type"], named_types) for field in avro_schema["fields"]}


def _convert_type(avro_type: Any, named_types: dict[str, pa.DataType | None]) -> pa.DataType | None:
    """Return the Arrow type that corresponds to an Avro type; None for maps and unions of several types."""
    if isinstance(avro_type, list):
        others = [one for one in avro_type if one != "null"]
        return _convert_type(others[0], named_types) if len(others) == 1 else None
    if isinstance(avro_type, str):
        return _PRIMITIVES[avro_type] if avro_type in _PRIMITIVES else named_types.get(avro_type)
    kind, logical = avro_type["type"], avro_type.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(min(avro_type["precision"], 38), avro_type.get("scale", 0))
    arrow_type: pa.DataType | None
    if kind == "record":
        fields = [(field["name"], _convert_type(field["type"], named_types)) for field in avro_type["fields"]]
        readable = [(name, inner) for name, inner in fields if inner is not None]
        arrow_type = pa.struct(readable) if readable else None
    elif kind == "array":
        items = _convert_type(avro_type["items"], named_types)
        return None if items is None else pa.list_(items)
    elif kind == "map":
        return None
    else:
        arrow_type = _convert_type(kind, named_types)
    if "name" in avro_type:
        named_types[avro_type["name"]] = arrow_type
    return arrow_type
