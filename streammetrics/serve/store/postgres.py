"""PostgreSQL: many servers on one store."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ...errors import StreamMetricsError
from .database import Run
from .failures import StoreDownError, StoreFullError

__all__ = ["PostgreSQL"]

SETTINGS = (
    "SET search_path TO streammetrics",
    "SET statement_timeout TO '60s'",  # a server that hangs is one that is away
    "SET idle_in_transaction_session_timeout TO '60s'",  # and one of ours that hangs must not keep others waiting
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
LOCK = 0x736D6574
"""Of whoever makes the tables."""


class PostgreSQL:
    """A database by its URL; tables are in a schema of their own, `streammetrics`."""

    numbered = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    read, write = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN"

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise StoreDownError("PostgreSQL needs psycopg: pip install 'streammetrics[postgres]'") from None
        self.psycopg: Any = psycopg
        self.url = url
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        self.alone = nullcontext()

    def connect(self) -> Any:
        connection = self.psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        try:
            for setting in SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def run(self, connection: Any, sql: str, *given: Any) -> list[Any]:
        cursor = connection.execute(sql.replace("?", "%s"), given, binary=True)
        rows: list[Any] = cursor.fetchall() if cursor.description else []
        return rows

    def prepare(self, run: Run) -> None:
        run("SELECT pg_advisory_xact_lock(?)", LOCK)
        if run("SELECT to_regnamespace('streammetrics') IS NULL")[0][0]:
            run("CREATE SCHEMA streammetrics")

    def said(self, error: Exception) -> StreamMetricsError | None:
        errors = self.psycopg.errors
        if isinstance(error, errors.DiskFull):
            return StoreFullError("PostgreSQL: its disk is full; nothing was written")
        away = self.psycopg.OperationalError, self.psycopg.InterfaceError, errors.ReadOnlySqlTransaction
        return StoreDownError(f"PostgreSQL: {error}") if isinstance(error, away) else None
