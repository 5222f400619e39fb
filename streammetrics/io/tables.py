"""Tables and queries as logs: Delta, Iceberg, SQL; batches as their engines give them, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from streammetrics.errors import StreamMetricsError
from streammetrics.io.readers import BATCH_ROWS, FileFacts, FileSpan
from streammetrics.io.remote import missing
from streammetrics.io.sources import LogError

__all__ = ["TABLES", "open_table", "shown"]

LISTED = 60


class _Engine(Protocol):
    """What gives the rows of a table as it was when it was opened; it pickles."""

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """Rows with some columns; with all, and perhaps without rows, where none are named."""


@dataclass(frozen=True)
class TableReader:
    """A table, or the result of a query, as one part."""

    reads_paths: ClassVar[bool] = False

    file: str
    engine: _Engine

    def facts(self) -> FileFacts:
        """Ask for the columns."""
        with _asking(self.file):
            return FileFacts.of(self.engine.stream(None).schema, None, (FileSpan(0, None, (0, 1), 0),))

    def read(
        self, span: FileSpan, columns: Sequence[str], keys: Collection[str]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows as they come."""
        with _asking(self.file):
            for batch in self.engine.stream(columns):
                yield batch.select(list(columns)), 0


@dataclass(frozen=True)
class _Delta:
    """A version of a Delta table."""

    uri: str
    version: int

    @classmethod
    def open(cls, name: str) -> _Delta:
        return cls(name, _deltalake(name).DeltaTable(name).version())

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        module = _deltalake(self.uri)
        table = module.DeltaTable(self.uri, version=self.version)
        asked = f"select {_spelled(columns)} from log" + (" limit 0" if columns is None else "")
        return pa.RecordBatchReader.from_stream(module.QueryBuilder().register("log", table).execute(asked))


@dataclass(frozen=True)
class _Iceberg:
    """A snapshot of an Iceberg table."""

    name: str
    snapshot: int | None

    @classmethod
    def open(cls, name: str) -> _Iceberg:
        found = _iceberg(name).current_snapshot()
        return cls(name, None if found is None else found.snapshot_id)

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        chosen = {} if columns is None else {"selected_fields": tuple(columns)}
        return _iceberg(self.name).scan(snapshot_id=self.snapshot, **chosen).to_arrow_batch_reader()


@dataclass(frozen=True)
class _Sql:
    """The result of a query."""

    query: str

    @classmethod
    def open(cls, query: str) -> _Sql:
        return cls(query.strip().rstrip(";"))

    def stream(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        asked = f"select {_spelled(columns)} from ({self.query}\n) as log" + (" limit 0" if columns is None else "")
        rows = _duckdb(shown(f"sql:{self.query}")).connect().sql(asked)
        read = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader  # as it was called before 1.4
        made: pa.RecordBatchReader = read(BATCH_ROWS)
        return made


TABLES: dict[str, Callable[[str], _Engine]] = {"delta": _Delta.open, "iceberg": _Iceberg.open, "sql": _Sql.open}
"""What stands before the colon of a table, and what opens what stands behind."""


def open_table(name: str) -> TableReader:
    """Open "delta:PATH", "iceberg:CATALOG/NAMESPACE.TABLE", "iceberg:PATH.metadata.json" or "sql:QUERY".

    Raises
    ------
    LogError
        The engine is not installed, or finds no such table, or does not understand the query.
    """
    kind, _, rest = name.partition(":")
    with _asking(shown(name)):
        return TableReader(shown(name), TABLES[kind](rest))


def shown(name: str) -> str:
    """A table, or the beginning of a query, on one line."""
    line = " ".join(name.split())
    return line if len(line) <= LISTED or not line.startswith("sql:") else f"{line[:LISTED]}..."


def _spelled(columns: Sequence[str] | None) -> str:
    return "*" if columns is None else ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _deltalake(name: str) -> Any:
    try:
        import deltalake
    except ModuleNotFoundError:
        raise missing(f"delta:{name}", "deltalake", "delta") from None
    return deltalake


def _iceberg(name: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
    except ModuleNotFoundError:
        raise missing(f"iceberg:{name}", "pyiceberg", "iceberg") from None
    if name.endswith(".metadata.json"):
        return StaticTable.from_metadata(name)
    catalog, slash, table = name.rpartition("/")
    return load_catalog(catalog if slash else "default").load_table(table)


def _duckdb(name: str) -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise missing(name, "duckdb", "sql") from None
    return duckdb


@contextmanager
def _asking(name: str) -> Iterator[None]:
    """Say in one line what an engine, each of which has errors of its own, has against it."""
    try:
        yield
    except (StreamMetricsError, MemoryError):
        raise
    except Exception as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise LogError(f"{name}: {line[:200]}") from error
