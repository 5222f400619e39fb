"""Read JSON lines in batches. A JSON lines file contains one JSON object per line, and may be compressed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as json

from streammetrics.io.pipes import open_source
from streammetrics.io.readers import FileFacts, FileSpan, convert_errors, make_log_error
from streammetrics.io.sources import LogError, LogFile
from streammetrics.io.text_stream import TextStream

__all__ = ["JsonReader"]

_BLOCK_BYTES = 1 << 20
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ROW = re.compile(r"(.*?):? in row (\d+)\s*$", re.DOTALL)


@dataclass(frozen=True)
class JsonReader:
    """Reader of one JSON lines file, which is read from start to end and not split into ranges."""

    reads_paths: ClassVar[bool] = True

    source: LogFile
    types: Mapping[str, pa.DataType]
    header: tuple[str, ...] = ()
    user_typed: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.source.file

    def read_facts(self) -> FileFacts:
        """Infer the names and types of columns from the first block of lines."""
        with convert_errors(self.file):
            for block in self._read_blocks():
                if block.lstrip().startswith(b"["):
                    raise LogError(
                        f"{self.file}: expected JSON lines, found a JSON array; convert the file with jq -c '.[]'"
                    )
                with self._locate_errors(0):
                    table = self._parse_block(block, None)
                    return FileFacts.from_schema(
                        _infer_schema(table), None, (FileSpan(0, None, (0, 1), self.source.bytes),)
                    )
        raise LogError(f"{self.file}: expected JSON lines, found an empty file; remove the file from the log")

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield one or more batches for each block of lines, each with the number of bytes read so far."""
        types = {name: self.types[name] for name in columns if name in self.types}
        stored = {n: t.value_type if pa.types.is_dictionary(t) else t for n, t in types.items()}
        # A column without a type is requested only to count rows. Its values do not matter, so they are read as nulls.
        untyped = [name for name in columns if name not in types]
        paths = [self._split_path(name) for name in stored]
        schema, row, read_bytes = _build_schema(dict(zip(paths, stored.values(), strict=True))), 0, 0
        with convert_errors(self.file):
            for block in self._read_blocks(last=True):
                with self._locate_errors(row):
                    table = self._parse_block(block, schema)
                row, read_bytes = row + table.num_rows, read_bytes + len(block)
                for name in untyped:
                    table = table.append_column(name, pa.nulls(table.num_rows))
                for path in (path for path in paths if len(path) > 1):
                    table = table.append_column(".".join(path), pc.struct_field(table.column(path[0]), path[1:]))
                for batch in table.select(list(columns)).combine_chunks().to_batches():
                    yield batch, min(read_bytes, span.bytes)

    def _split_path(self, name: str) -> tuple[str, ...]:
        """Split the name of a nested value into its parts: `user.id` becomes `("user", "id")`.

        If the file has a column with the dotted name itself, the name is not split.
        """
        return (name,) if name in self.header else tuple(name.split("."))

    def _read_blocks(self, *, last: bool = False) -> Iterator[bytes]:
        """Yield blocks of whole lines.

        `last` says whether this is the last read of the file. If so, and if the file is standard input, its bytes are
        not kept in memory.
        """
        with TextStream(self.source, open_source(self.source, last=last)) as stream:
            rest = b""
            while more := stream.read(_BLOCK_BYTES):
                lines, newline, rest = (rest + more).rpartition(b"\n")
                if lines.strip():
                    yield lines + newline
            if rest.strip():
                yield rest

    def _parse_block(self, block: bytes, schema: pa.Schema | None) -> pa.Table:
        options = json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        parse_options = {"explicit_schema": schema, "unexpected_field_behavior": "ignore"} if schema is not None else {}
        return json.read_json(pa.BufferReader(block), options, json.ParseOptions(**parse_options))

    @contextmanager
    def _locate_errors(self, first: int) -> Iterator[None]:
        """Convert Arrow errors in a block of lines to errors that give the row within the file.

        `first` is the row number of the first row of the block.
        """
        try:
            yield
        except pa.ArrowInvalid as error:
            match = _ROW.search(str(error))
            if match is None:
                raise make_log_error(self.file, error) from None
            what = match[1].removeprefix("JSON parse error: ")
            raise LogError(f"{self.file}: row {first + int(match[2]):,}: {what}") from None


def _build_schema(types: Mapping[tuple[str, ...], pa.DataType]) -> pa.Schema:
    """Return a schema that contains only the values at the paths in `types`.

    The path of a column is a single name. The path of a value in nested objects has several names: `("user", "id")`.
    """
    fields: dict[str, dict[tuple[str, ...], pa.DataType]] = {}
    for path, kind in types.items():
        fields.setdefault(path[0], {})[path[1:]] = kind
    return pa.schema(
        [(name, inner[()] if () in inner else pa.struct(list(_build_schema(inner)))) for name, inner in fields.items()]
    )


def _infer_schema(table: pa.Table) -> pa.Schema:
    """Infer a schema from the first rows. Also recognize times with fractional seconds, which Arrow reads as text."""
    return pa.schema([(n, _infer_type(column)) for n, column in zip(table.schema.names, table.columns, strict=True)])


def _infer_type(column: pa.ChunkedArray) -> pa.DataType:
    kind = column.type
    if pa.types.is_struct(kind):
        return pa.struct(
            [(kind.field(i).name, _infer_type(pc.struct_field(column, i))) for i in range(kind.num_fields)]
        )
    return pa.timestamp("ns") if pa.types.is_string(kind) and _are_times(column) else kind


def _are_times(column: pa.ChunkedArray) -> bool:
    texts = column.drop_null()
    if not len(texts) or not _DATE.match(texts[0].as_py()):
        return False
    # Arrow casts strings to times only if either all or none of them have a time zone, so try both.
    for zone in (None, "UTC"):
        try:
            texts.cast(pa.timestamp("ns", zone))
        except pa.ArrowInvalid:
            # The strings are not times of this kind (without or with a time zone). Try the next kind.
            continue
        return True
    return False
