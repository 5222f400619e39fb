"""Open a store, given its path or URL."""

from __future__ import annotations

import os
from typing import Self

from .database import Database
from .journal import JournalStore
from .leases import LeaseStore
from .parts import PartStore
from .postgres import PostgreSQL
from .records import RecordStore
from .schema import create_tables
from .sqlite import SQLite

__all__ = ["Store", "open_store"]


class Store(PartStore, RecordStore, JournalStore, LeaseStore):
    """All data of a dashboard: parts, merged days and totals, and the records of experiments.

    Methods block during disk access and can be called from any thread. Each method that writes runs in one transaction.
    When it returns, all of its changes are on disk. If it raises an error, none of them are. After a StoreDownError,
    however, it is unknown whether the changes are on disk.
    """

    def __init__(self, database: Database) -> None:
        create_tables(database)
        self.database = database

    def close(self) -> None:
        """Close all connections to the database."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_store(url: str | os.PathLike[str]) -> Store:
    """Open a store, creating it if it does not exist.

    Parameters
    ----------
    url : str or path
        The path of a file on a local disk, or ``postgresql://user@host/database`` for a database that any number of
        servers can share. A path may have the prefix ``sqlite:///``; an absolute path then begins with
        ``sqlite:////``.

    Raises
    ------
    StoreDownError
        The store cannot be opened or does not answer.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder, open_store(os.path.join(folder, "a.db")) as store:
    ...     store.define("checkout", "{}", by="ann", at=0.0), store.definitions()["checkout"].version
    (1, 1)
    """
    text = os.fspath(url)
    if text.startswith(("postgresql://", "postgres://")):
        return Store(Database(PostgreSQL(text)))
    scheme, separator, path = text.partition(":///")
    if scheme != "sqlite" if separator else "://" in text:
        raise ValueError(f"expected a path, sqlite:///path or postgresql://... for the store, found {text!r}")
    return Store(Database(SQLite(path if separator else text)))
