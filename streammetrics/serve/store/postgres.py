"""The PostgreSQL driver of the store. Several servers can share one database."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ...errors import StreamMetricsError
from .database import RunStatement
from .failures import StoreDownError, StoreFullError

__all__ = ["PostgreSQL"]

SETTINGS = (
    "SET search_path TO streammetrics",
    # A statement that takes longer than a minute raises an error. If a dashboard hangs during a transaction, the
    # database ends the transaction after a minute, which releases its locks.
    "SET statement_timeout TO '60s'",
    "SET idle_in_transaction_session_timeout TO '60s'",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
LOCK = 0x736D6574
"""The number of the advisory lock that a process takes to create the tables."""


class PostgreSQL:
    """The driver of a PostgreSQL database. The tables are in the schema `streammetrics`."""

    identity_column = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    begin_read, begin_write = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN"
    clock, is_shared = "EXTRACT(EPOCH FROM clock_timestamp())::DOUBLE PRECISION", True

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise StoreDownError("PostgreSQL needs psycopg: pip install 'streammetrics[postgres]'") from None
        self.psycopg: Any = psycopg
        self.url = url
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        self.write_lock = nullcontext()

    def connect(self) -> Any:
        connection = self.psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        try:
            for setting in SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def run(self, connection: Any, sql: str, *args: Any) -> list[Any]:
        cursor = connection.execute(sql.replace("?", "%s"), args, binary=True)
        rows: list[Any] = cursor.fetchall() if cursor.description else []
        return rows

    def prepare(self, run: RunStatement) -> None:
        run("SELECT pg_advisory_xact_lock(?)", LOCK)
        if run("SELECT to_regnamespace('streammetrics') IS NULL")[0][0]:
            run("CREATE SCHEMA streammetrics")

    def translate_error(self, error: Exception) -> StreamMetricsError | None:
        errors = self.psycopg.errors
        if isinstance(error, errors.DiskFull):
            return StoreFullError("PostgreSQL: the disk is full; nothing was written")
        away = self.psycopg.OperationalError, self.psycopg.InterfaceError, errors.ReadOnlySqlTransaction
        return StoreDownError(f"PostgreSQL: {error}") if isinstance(error, away) else None
