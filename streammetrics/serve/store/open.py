"""Opening a store."""

from __future__ import annotations

import os
from typing import Self

from .database import Database
from .parts import Parts
from .postgres import PostgreSQL
from .records import Records
from .schema import create
from .sqlite import SQLite

__all__ = ["Store", "open_store"]


class Store(Parts, Records):
    """All that a dashboard keeps: parts and their folds, and what is noted of experiments.

    Calls block, for as long as a disk takes, and may come from any thread. What a call that writes has written is on disk
    when it returns, all of it or, where it raises, nothing.
    """

    def __init__(self, database: Database) -> None:
        create(database)
        self.database = database

    def close(self) -> None:
        """Let the database go."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_store(url: str | os.PathLike[str]) -> Store:
    """Open a store, and make it where there is none.

    Parameters
    ----------
    url : str or path
        A path or ``sqlite:///path`` (``sqlite:////path`` from the root) of a file on a local disk; or
        ``postgresql://user@host/database``, where any number of servers may share it.

    Raises
    ------
    StoreDownError
        It cannot be opened, or does not answer.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder, open_store(os.path.join(folder, "a.db")) as store:
    ...     store.define("checkout", "{}", by="ann", at=0.0), store.definitions()["checkout"].version
    (1, 1)
    """
    given = os.fspath(url)
    if given.startswith(("postgresql://", "postgres://")):
        return Store(Database(PostgreSQL(given)))
    scheme, found, path = given.partition(":///")
    if scheme != "sqlite" if found else "://" in given:
        raise ValueError(f"a store is a path, sqlite:///path or postgresql://..., not {given!r}")
    return Store(Database(SQLite(path if found else given)))
