"""Read files, and write them atomically. All errors name the file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["atomic_write", "read"]


def atomic_write(path: str | os.PathLike[str], write: Callable[[BinaryIO], Any]) -> None:
    """Write a file atomically: it replaces an existing file only once all its bytes are on disk.

    If anything fails, the old file remains. If the path is a symbolic link, the link remains, and its target is
    replaced. A path that is not a regular file, such as a pipe, is written directly.

    This is a function with a callback rather than a context manager, because a Ctrl-C on entering or leaving a context
    manager could leave the temporary file behind.

    Parameters
    ----------
    path : path
        The file to write.
    write : callable
        Writes the content to the open file.

    Raises
    ------
    OSError
        The operating system refuses the write; the error names the path.
    """
    destination = Path(path)
    if destination.exists() and not destination.is_file():
        with destination.open("wb") as file:
            write(file)
        return
    target = Path(os.path.realpath(destination))
    # The temporary name does not include the name of the target, which may already have the maximum length.
    temporary = target.with_name(f".streammetrics-{secrets.token_hex(8)}")
    try:
        with _add_path_to_errors(path):
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def file_identity(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return a pair of numbers (device, inode) that identifies a file.

    All paths to a file, such as a symbolic link and its target, yield the same pair. Resolving the paths instead would
    take 50 times as long.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino


def read(path: str | os.PathLike[str]) -> bytes:
    """Read a file.

    Raises
    ------
    OSError
        The operating system refuses to read the file; the error names the path.
    """
    with _add_path_to_errors(path), open(path, "rb") as file:
        return file.read()


@contextmanager
def _add_path_to_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Set the path of every OSError from the `with` block to `path`, if the error has an error number.

    Without this change, an error in a read or write would name no path, and most other errors in `atomic_write` would
    name the temporary file.
    """
    try:
        yield
    except OSError as error:
        if not error.errno:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _sync_folder(folder: Path) -> None:
    """Flush a folder's directory entries to disk if possible, so that a renamed file survives a crash."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
