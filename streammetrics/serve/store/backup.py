"""Copy an SQLite store to a file while servers use it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from .failures import StoreDownError

__all__ = ["back_up_sqlite"]

PAGES_PER_STEP = 1024
"""The number of pages that are copied at a time. Between two steps, servers can write."""


def back_up_sqlite(source: str | Path, target: str | Path) -> None:
    """Copy an SQLite store to a new file. The copy is a complete and consistent store.

    Raises
    ------
    FileExistsError
        The file `target` already exists.
    StoreDownError
        The store cannot be read.
    """
    # Create a file that only the current user may read, because the copy contains the hashes of tokens.
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{Path(source).resolve().as_uri()}?mode=ro", uri=True)) as reading,
            closing(sqlite3.connect(target)) as writing,
        ):
            reading.backup(writing, pages=PAGES_PER_STEP, sleep=0.01)
    except sqlite3.Error as error:
        os.unlink(target)
        raise StoreDownError(f"{source}: {error}") from error
