"""Transactions on connections that are used again; a driver knows the rest of a database."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

from ...errors import StreamMetricsError

__all__ = ["Database", "Driver", "Run"]

Run = Callable[..., list[Any]]
"""Runs a statement, whose parameters are written as ?, and returns its rows."""
CONNECTIONS = 8
"""More threads wait for one: disks and servers do not get faster by being asked by all at once."""


class Driver(Protocol):
    """One kind of database."""

    errors: tuple[type[Exception], ...]
    """What it raises."""
    numbered: str
    """The type of a column that numbers the rows by itself."""
    read: str
    """Begins a transaction that sees one state of all tables."""
    write: str

    @property
    def alone(self) -> AbstractContextManager[Any]:
        """What is held while writing."""
        ...

    def connect(self) -> Any:
        """Open a connection."""
        ...

    def run(self, connection: Any, sql: str, *given: Any) -> list[Any]:
        """Run a statement."""
        ...

    def prepare(self, run: Run) -> None:
        """See to it that only one process makes tables, and where they go."""
        ...

    def said(self, error: Exception) -> StreamMetricsError | None:
        """What an error means; None if it is a mistake of ours."""
        ...


class Database:
    """Transactions of a driver, for any number of threads."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        self._room = threading.BoundedSemaphore(CONNECTIONS)

    def reading(self) -> AbstractContextManager[Run]:
        """Read one state of all tables."""
        return self._transaction(self.driver.read)

    @contextmanager
    def writing(self) -> Iterator[Run]:
        """Write all or nothing, on disk when it is left."""
        with self.driver.alone, self._transaction(self.driver.write) as run:
            yield run

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Run]:
        with self._room, self._said():
            connection = self._begun(begin)
            try:
                yield partial(self.driver.run, connection)
                self.driver.run(connection, "COMMIT")
            except BaseException:
                self._drop(connection)  # which takes back what it has begun
                raise
            self._idle.put(connection)

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Say what a driver raises in words of the store."""
        try:
            yield
        except self.driver.errors as error:
            said = self.driver.said(error)
            if said is None:
                raise
            raise said from error

    def _begun(self, begin: str) -> Any:
        """A connection in a transaction; one that has been idle may be of a server that is gone."""
        while True:
            try:
                connection, used = self._idle.get_nowait(), True
            except queue.Empty:  # none is idle
                connection, used = self.driver.connect(), False
            try:
                self.driver.run(connection, begin)
            except self.driver.errors as error:
                self._drop(connection)
                if not used or self.driver.said(error) is None:
                    raise
            else:
                return connection

    def _drop(self, connection: Any) -> None:
        with suppress(*self.driver.errors):
            connection.close()

    def close(self) -> None:
        """Close what is idle."""
        with suppress(queue.Empty):
            while True:
                self._drop(self._idle.get_nowait())
