"""Transactions on pooled connections; a driver hides the differences between SQLite and PostgreSQL."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

from ...errors import StreamMetricsError

__all__ = ["Database", "Driver", "RunStatement"]

RunStatement = Callable[..., list[Any]]
"""Runs an SQL statement with ? as placeholder of parameters, and returns its rows."""
MAX_CONNECTIONS = 8
"""The largest number of concurrent transactions; more threads wait, as more would not be faster."""


class Driver(Protocol):
    """The differences between databases."""

    errors: tuple[type[Exception], ...]
    """The exceptions of the database module."""
    identity_column: str
    """The type of a column that numbers its rows automatically."""
    begin_read: str
    """The statement that begins a transaction with a consistent view of all tables."""
    begin_write: str

    @property
    def write_lock(self) -> AbstractContextManager[Any]:
        """The lock that is held during a write transaction."""
        ...

    def connect(self) -> Any:
        """Open a connection."""
        ...

    def run(self, connection: Any, sql: str, *args: Any) -> list[Any]:
        """Run an SQL statement with parameters, and return its rows."""
        ...

    def prepare(self, run: RunStatement) -> None:
        """Take a lock so that only one process creates tables at a time; in PostgreSQL, also select the schema."""
        ...

    def translate_error(self, error: Exception) -> StreamMetricsError | None:
        """Convert an exception of the database to an error of the store; return None if it is a bug of this package."""
        ...


class Database:
    """A pool of connections that runs transactions for any number of threads."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def read_transaction(self) -> AbstractContextManager[RunStatement]:
        """Return a transaction that reads a consistent view of all tables."""
        return self._transaction(self.driver.begin_read)

    @contextmanager
    def write_transaction(self) -> Iterator[RunStatement]:
        """Return a transaction that writes all or nothing; the data is on disk at the end of the `with` block."""
        with self.driver.write_lock, self._transaction(self.driver.begin_write) as run:
            yield run

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[RunStatement]:
        with self._slots, self._translate_errors():
            connection = self._begin_connection(begin)
            try:
                yield partial(self.driver.run, connection)
                self.driver.run(connection, "COMMIT")
            # Closing the connection rolls the transaction back, also where the connection itself is broken.
            except BaseException:
                self._close_connection(connection)
                raise
            self._idle.put(connection)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert exceptions of the driver to errors of the store."""
        try:
            yield
        except self.driver.errors as error:
            translated = self.driver.translate_error(error)
            if translated is None:
                raise
            raise translated from error

    def _begin_connection(self, begin: str) -> Any:
        """Return a connection in a new transaction.

        An idle connection may belong to a server that has restarted: then its first statement fails, and another
        connection is tried. An error on a new connection is raised.
        """
        while True:
            try:
                connection, is_pooled = self._idle.get_nowait(), True
            except queue.Empty:  # no connection is idle
                connection, is_pooled = self.driver.connect(), False
            try:
                self.driver.run(connection, begin)
            except self.driver.errors as error:
                self._close_connection(connection)
                if not is_pooled or self.driver.translate_error(error) is None:
                    raise
            else:
                return connection

    def _close_connection(self, connection: Any) -> None:
        with suppress(*self.driver.errors):
            connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        with suppress(queue.Empty):
            while True:
                self._close_connection(self._idle.get_nowait())
