"""Read Delta tables, Iceberg tables and SQL queries as logs, through the packages deltalake, pyiceberg and duckdb."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from streammetrics.errors import StreamMetricsError
from streammetrics.io.readers import BATCH_ROWS, FileFacts, FileSpan
from streammetrics.io.remote import missing_package_error
from streammetrics.io.sources import LogError

__all__ = ["TABLES", "open_table", "shorten_name"]

MAX_NAME_LENGTH = 60


class _Engine(Protocol):
    """An engine that reads a table or runs a query with a third-party package. Engines can be pickled.

    A table is read at the version that was current when the engine was created.
    """

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """Return a stream of record batches that contain the columns named in `columns`.

        If `columns` is None, the schema contains all columns, but the stream may be empty. The caller then uses only
        the schema.
        """


@dataclass(frozen=True)
class TableReader:
    """Reader of a table or a query result, which is a single part of the log: one thread reads all of it."""

    reads_paths: ClassVar[bool] = False

    file: str
    engine: _Engine

    def read_facts(self) -> FileFacts:
        """Read the schema of the table. The number of rows is not known before the rows are read."""
        with _convert_errors(self.file):
            return FileFacts.from_schema(self.engine.stream(None).schema, None, (FileSpan(0, None, (0, 1), 0),))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the batches of the engine, each with 0 as the number of bytes read, which is unknown."""
        with _convert_errors(self.file):
            for batch in self.engine.stream(columns):
                yield batch.select(list(columns)), 0


@dataclass(frozen=True)
class _Delta:
    """An engine that reads a Delta table at one version."""

    uri: str
    version: int

    @classmethod
    def open(cls, name: str) -> _Delta:
        return cls(name, _import_deltalake(name).DeltaTable(name).version())

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        module = _import_deltalake(self.uri)
        table = module.DeltaTable(self.uri, version=self.version)
        statement = f"select {_format_columns(columns)} from log" + (" limit 0" if columns is None else "")
        return pa.RecordBatchReader.from_stream(module.QueryBuilder().register("log", table).execute(statement))


@dataclass(frozen=True)
class _Iceberg:
    """An engine that reads an Iceberg table at one snapshot."""

    name: str
    snapshot: int | None

    @classmethod
    def open(cls, name: str) -> _Iceberg:
        snapshot = _load_iceberg(name).current_snapshot()
        return cls(name, None if snapshot is None else snapshot.snapshot_id)

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        selection = {} if columns is None else {"selected_fields": tuple(columns)}
        return _load_iceberg(self.name).scan(snapshot_id=self.snapshot, **selection).to_arrow_batch_reader()


@dataclass(frozen=True)
class _Sql:
    """An engine that runs a query with DuckDB."""

    query: str

    @classmethod
    def open(cls, query: str) -> _Sql:
        return cls(query.strip().rstrip(";"))

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        statement = f"select {_format_columns(columns)} from ({self.query}\n) as log" + (
            " limit 0" if columns is None else ""
        )
        rows = _import_duckdb(shorten_name(f"sql:{self.query}")).connect().sql(statement)
        # Before DuckDB 1.4, the method was called `fetch_arrow_reader`.
        read = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader
        batches: pa.RecordBatchReader = read(BATCH_ROWS)
        return batches


TABLES: dict[str, Callable[[str], _Engine]] = {"delta": _Delta.open, "iceberg": _Iceberg.open, "sql": _Sql.open}
"""Prefixes of table names, as in `delta:PATH`, and functions that take the rest of the name and open the table."""


def open_table(name: str) -> TableReader:
    """Open "delta:PATH", "iceberg:CATALOG/NAMESPACE.TABLE", "iceberg:PATH.metadata.json" or "sql:QUERY".

    Raises
    ------
    LogError
        The engine is not installed, the table does not exist, or the query is invalid.
    """
    kind, _, rest = name.partition(":")
    with _convert_errors(shorten_name(name)):
        return TableReader(shorten_name(name), TABLES[kind](rest))


def shorten_name(name: str) -> str:
    """Return a one-line name for messages: the name of a table, or the first 60 characters of a query."""
    line = " ".join(name.split())
    return line if len(line) <= MAX_NAME_LENGTH or not line.startswith("sql:") else f"{line[:MAX_NAME_LENGTH]}..."


def _format_columns(columns: Sequence[str] | None) -> str:
    return "*" if columns is None else ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _import_deltalake(name: str) -> Any:
    try:
        import deltalake
    except ModuleNotFoundError:
        raise missing_package_error(f"delta:{name}", "deltalake", "delta") from None
    return deltalake


def _load_iceberg(name: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
    except ModuleNotFoundError:
        raise missing_package_error(f"iceberg:{name}", "pyiceberg", "iceberg") from None
    if name.endswith(".metadata.json"):
        return StaticTable.from_metadata(name)
    catalog, slash, table = name.rpartition("/")
    return load_catalog(catalog if slash else "default").load_table(table)


def _import_duckdb(name: str) -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise missing_package_error(name, "duckdb", "sql") from None
    return duckdb


@contextmanager
def _convert_errors(name: str) -> Iterator[None]:
    """Convert errors of any table engine to a LogError with a one-line message."""
    try:
        yield
    except (StreamMetricsError, MemoryError):
        raise
    except Exception as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise LogError(f"{name}: {line[:200]}") from error
