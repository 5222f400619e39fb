"""JSON lines in batches: an object a line, compressed or not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as json

from streammetrics.io.pipes import opened
from streammetrics.io.readers import FileFacts, FileSpan, broken, reading
from streammetrics.io.sources import LogError, LogFile
from streammetrics.io.text_stream import TextStream

__all__ = ["JsonReader"]

_BLOCK_BYTES = 1 << 20
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ROW = re.compile(r"(.*?):? in row (\d+)\s*$", re.DOTALL)


@dataclass(frozen=True)
class JsonReader:
    """One file of JSON lines, read from its start to its end."""

    reads_paths: ClassVar[bool] = True

    source: LogFile
    types: Mapping[str, pa.DataType]
    header: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """Path of the file."""
        return self.source.file

    def facts(self) -> FileFacts:
        """Guess names and types from the first lines."""
        with reading(self.file):
            for block in self._blocks():
                if block.lstrip().startswith(b"["):
                    raise LogError(
                        f"{self.file}: a JSON array; a log is JSON lines, an object in each, which jq -c '.[]' makes of it"
                    )
                with self._located(0):
                    table = self._table(block, None)
                    return FileFacts.of(_with_times(table), None, (FileSpan(0, None, (0, 1), self.source.bytes),))
        raise LogError(f"{self.file}: empty, without a single line")

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the file block by block."""
        types = {name: self.types[name] for name in columns if name in self.types}
        plain = {n: t.value_type if pa.types.is_dictionary(t) else t for n, t in types.items()}
        bare = [name for name in columns if name not in types]  # read for its length, whatever it holds
        paths = [self._path(name) for name in plain]
        schema, row, seen = _schema_of(dict(zip(paths, plain.values(), strict=True))), 0, 0
        with reading(self.file):
            for block in self._blocks(last=True):
                with self._located(row):
                    table = self._table(block, schema)
                row, seen = row + table.num_rows, seen + len(block)
                for name in bare:
                    table = table.append_column(name, pa.nulls(table.num_rows))
                for path in (path for path in paths if len(path) > 1):
                    table = table.append_column(".".join(path), pc.struct_field(table.column(path[0]), path[1:]))
                for batch in table.select(list(columns)).combine_chunks().to_batches():
                    yield batch, min(seen, span.bytes)

    def _path(self, name: str) -> tuple[str, ...]:
        """The fields on the way to a value: one, unless it lies within objects."""
        return (name,) if name in self.header else tuple(name.split("."))

    def _blocks(self, *, last: bool = False) -> Iterator[bytes]:
        """Yield whole lines, a block at a time; `last` if nobody reads the file again."""
        with TextStream(self.source, opened(self.source, last=last)) as stream:
            rest = b""
            while more := stream.read(_BLOCK_BYTES):
                whole, newline, rest = (rest + more).rpartition(b"\n")
                if whole.strip():
                    yield whole + newline
            if rest.strip():
                yield rest

    def _table(self, block: bytes, schema: pa.Schema | None) -> pa.Table:
        options = json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        how = {"explicit_schema": schema, "unexpected_field_behavior": "ignore"} if schema is not None else {}
        return json.read_json(pa.BufferReader(block), options, json.ParseOptions(**how))

    @contextmanager
    def _located(self, first: int) -> Iterator[None]:
        """Say which row of the file Arrow could not read."""
        try:
            yield
        except pa.ArrowInvalid as error:
            found = _ROW.search(str(error))
            if found is None:
                raise broken(self.file, error) from None
            what = found[1].removeprefix("JSON parse error: ")
            raise LogError(f"{self.file}: row {first + int(found[2]):,}: {what}") from None


def _schema_of(types: Mapping[tuple[str, ...], pa.DataType]) -> pa.Schema:
    """Return a schema with values at some paths, and no others."""
    found: dict[str, dict[tuple[str, ...], pa.DataType]] = {}
    for path, kind in types.items():
        found.setdefault(path[0], {})[path[1:]] = kind
    return pa.schema(
        [(name, inner[()] if () in inner else pa.struct(list(_schema_of(inner)))) for name, inner in found.items()]
    )


def _with_times(table: pa.Table) -> pa.Schema:
    """Return the types of the first rows; Arrow takes times with fractions of a second for texts, unlike in CSV."""
    return pa.schema([(n, _timed(column)) for n, column in zip(table.schema.names, table.columns, strict=True)])


def _timed(column: pa.ChunkedArray) -> pa.DataType:
    kind = column.type
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(i).name, _timed(pc.struct_field(column, i))) for i in range(kind.num_fields)])
    return pa.timestamp("ns") if pa.types.is_string(kind) and _are_times(column) else kind


def _are_times(column: pa.ChunkedArray) -> bool:
    texts = column.drop_null()
    if not len(texts) or not _DATE.match(texts[0].as_py()):
        return False
    for zone in (None, "UTC"):  # all name their zone, or none does
        try:
            texts.cast(pa.timestamp("ns", zone))
        except pa.ArrowInvalid:  # they are of the other form, or no times
            continue
        return True
    return False
