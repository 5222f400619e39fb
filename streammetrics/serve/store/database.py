"""Run transactions on pooled database connections.

A driver hides the differences between SQLite and PostgreSQL.
"""

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
"""A function that runs an SQL statement and returns its rows.

The parameters follow the statement, which contains a placeholder "?" for each of them.
"""
MAX_CONNECTIONS = 8
"""The largest number of concurrent transactions. Further threads wait; a larger number would not be faster."""


class Driver(Protocol):
    """The interface of drivers, which contain everything that differs between SQLite and PostgreSQL."""

    errors: tuple[type[Exception], ...]
    """The exception classes that the database module raises."""
    identity_column: str
    """The SQL type of a column that numbers its rows automatically."""
    begin_read: str
    """The statement that begins a transaction with a consistent view of all tables."""
    begin_write: str
    clock: str
    """The SQL expression for the current time, in seconds since 1970."""
    is_shared: bool
    """Whether several servers may use the database."""

    @property
    def write_lock(self) -> AbstractContextManager[Any]:
        """A lock that allows one write transaction at a time in this process, or a no-op if no lock is needed."""
        ...

    def connect(self) -> Any:
        """Open a connection."""
        ...

    def run(self, connection: Any, sql: str, *args: Any) -> list[Any]:
        """Run an SQL statement with parameters, and return its rows."""
        ...

    def prepare(self, run: RunStatement) -> None:
        """Prepare for creating the tables.

        The driver ensures that only one process at a time creates tables. The PostgreSQL driver also creates the
        schema.
        """
        ...

    def translate_error(self, error: Exception) -> StreamMetricsError | None:
        """Convert a database exception to a store error; return None if the cause is a bug in this package."""
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
        """Return a transaction that writes either all of its changes or none.

        After the `with` block, the changes are on disk.
        """
        with self.driver.write_lock, self._transaction(self.driver.begin_write) as run:
            yield run

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[RunStatement]:
        with self._slots, self._translate_errors():
            connection = self._begin_connection(begin)
            try:
                yield partial(self.driver.run, connection)
                self.driver.run(connection, "COMMIT")
            # After any error, close the connection, which rolls back the transaction. This works even if the connection
            # is broken.
            except BaseException:
                self._close_connection(connection)
                raise
            self._idle.put(connection)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert the driver's exceptions to store errors."""
        try:
            yield
        except self.driver.errors as error:
            translated = self.driver.translate_error(error)
            if translated is None:
                raise
            raise translated from error

    def _begin_connection(self, begin: str) -> Any:
        """Begin a transaction on an idle or a new connection, and return the connection.

        If the database has restarted since an idle connection was last used, the first statement on that connection
        fails. In that case, another connection is tried. An error on a new connection is raised.
        """
        while True:
            try:
                connection, is_pooled = self._idle.get_nowait(), True
            # The queue of idle connections is empty, so open a new connection.
            except queue.Empty:
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
