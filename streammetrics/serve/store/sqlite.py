"""The SQLite driver of the store. Only one server at a time may use the file."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import StreamMetricsError
from .database import RunStatement
from .failures import StoreDownError, StoreFullError

__all__ = ["SQLite"]

QUEUE, BUSY = 8.0, 5.0
"""The longest time, in seconds, to wait for the other writers of this process, and then for another process.

A part may have to wait twice: for the parts before it, and for its own transaction. `push` waits for 30 seconds, which
is longer than both waits together.
"""
SETTINGS = (
    # With a write-ahead log (WAL), committed data survives a power failure only if this setting is FULL.
    "PRAGMA synchronous = FULL",
    "PRAGMA journal_size_limit = 67108864",
)
AWAY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


class WriteLock:
    """A lock that makes the write transactions of a process wait for each other.

    Without this lock, concurrent transactions would have to retry. If another process locks the database, each writer
    waits for the database while it holds this lock. The wait for this lock is therefore limited. Otherwise, the last
    writer would wait as long as all writers before it combined.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=QUEUE):
            raise StoreDownError(f"{self._path}: other writers have held the store for {QUEUE:g} s")

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


class SQLite:
    """The driver of an SQLite file. While the file is open, SQLite keeps two more files next to it (-wal and -shm)."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    identity_column = "INTEGER PRIMARY KEY AUTOINCREMENT"
    begin_read, begin_write = "BEGIN", "BEGIN IMMEDIATE"
    clock, is_shared = "(julianday('now') - 2440587.5) * 86400.0", False

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.write_lock = WriteLock(self.path)

    def connect(self) -> sqlite3.Connection:
        # Create the file with permissions that keep other users of this machine from reading it, because it contains
        # private data. SQLite gives its two other files the same permissions.
        if not self.path.exists():
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreDownError(
                    f"{self.path}: SQLite cannot keep a write-ahead log in this folder (mode {mode}); use a local disk"
                )
            for setting in SETTINGS:
                connection.execute(setting).fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def run(self, connection: Any, sql: str, *args: Any) -> list[Any]:
        rows: list[Any] = connection.execute(sql, args).fetchall()
        return rows

    def prepare(self, run: RunStatement) -> None:
        """Do nothing, because SQLite itself never allows more than one write transaction at a time."""

    def translate_error(self, error: Exception) -> StreamMetricsError | None:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
            return StoreFullError(f"{self.path}: the disk is full; nothing was written")
        return StoreDownError(f"{self.path}: {error}") if code & 0xFF in AWAY else None
