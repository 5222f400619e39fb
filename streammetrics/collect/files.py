"""Files that are written whole or not at all; what the system refuses names the file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["atomic_write", "read"]


def atomic_write(path: str | os.PathLike[str], put: Callable[[BinaryIO], Any]) -> None:
    """Write a file, which takes the place of the one of that name when all of it is on the disk.

    Until then, and for ever if anything fails, the old one is there. A link stays a link: what it leads to is replaced.
    What is no plain file, such as a pipe, is written to as it is. Not a context manager of Python: between its
    instructions a Ctrl-C would leave what was written by then.

    Parameters
    ----------
    path : path
        Where.
    put : callable
        What writes to the open file.

    Raises
    ------
    OSError
        The system refuses; the error names the path.
    """
    given = Path(path)
    if given.exists() and not given.is_file():
        with given.open("wb") as file:
            put(file)
        return
    target = Path(os.path.realpath(given))
    temporary = target.with_name(f".streammetrics-{secrets.token_hex(8)}")  # names of any length leave no room for more
    try:
        with _named(path):
            with open(temporary, "xb") as file:
                put(file)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync(target.parent)


def identity(path: str | os.PathLike[str]) -> tuple[int, int]:
    """What is the same for all names of a file; of 10,000 in 20 ms, where their real paths take a second."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def read(path: str | os.PathLike[str]) -> bytes:
    """Read a file.

    Raises
    ------
    OSError
        The system refuses; the error names the path.
    """
    with _named(path), open(path, "rb") as file:
        return file.read()


@contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the system name the path: those of reading and writing name nothing, others a name of our own."""
    try:
        yield
    except OSError as error:
        if not error.errno:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _sync(folder: Path) -> None:
    """Bring names to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
