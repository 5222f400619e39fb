"""The on-disk cache of compiled kernels.

A file holds one kernel compiled for one set of types, and its name ends in the digest of the kernel (module `_digest`).
A file is therefore never out of date: a changed kernel has a different file name. Files are read with `pickle`, which
can run code from the file. Therefore, a folder that other users can write to is not read unless the user specifies it
in NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

DAY = 24 * 3600.0
UNUSED_DAYS = 60
SUFFIX = ".kernel"
# Each file begins with a SHA-256 checksum of the rest of the file.
CHECKSUM_BYTES = 32


def configured_folder() -> Path | None:
    """Return the cache folder inside the user's NUMBA_CACHE_DIR, or None if the variable is not set."""
    return Path(numba.config.CACHE_DIR) / "streammetrics" if numba.config.CACHE_DIR else None


def user_folder() -> Path | None:
    """Return the cache folder in the user's home; None if there is no home or other users can write to the folder."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # the user has no home
        return None
    folder = base / "streammetrics" / "kernels"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder if _is_private(folder) else None


def temporary_folder() -> Path | None:
    """Return the cache folder inside the system's folder for temporary files, such as /tmp.

    All processes of a user without a home directory share this folder. The result is None if the folder cannot be
    created, or if other users can write to it or replace it.
    """
    base = Path(tempfile.gettempdir())
    folder = base / f"streammetrics-kernels-{os.geteuid()}"
    try:
        mode = base.stat().st_mode
    except OSError:  # there is no folder for temporary files
        return None
    # Users who can write to the parent folder could replace the cache folder, unless the parent has the sticky bit, as
    # /tmp does.
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        return None
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    # Reject a symbolic link: another user may have created it to redirect the cache to another of this user's folders.
    return folder if not folder.is_symlink() and _is_private(folder) else None


def _is_private(folder: Path) -> bool:
    """Return whether the folder exists and only this user can write to it; warn if others can write to it."""
    try:
        status = folder.stat()
    except OSError:  # the folder can be neither created nor read
        return False
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        warnings.warn(
            f"{folder}: compiled kernels are not cached, because other users can write to this folder; "
            f"restrict it to your user (chmod 700), or set NUMBA_CACHE_DIR to another folder",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    return True


def cache_folders() -> list[Path]:
    """Return the folders to search for cached kernels, in search order.

    There are up to three: the folder in NUMBA_CACHE_DIR, the folder in the user's home, and the folder for temporary
    files. The list ends with the first writable folder, where new files are created.
    """
    folders = list[Path]()
    for find in (configured_folder, user_folder, temporary_folder):
        folder = find()
        if folder is None:
            continue
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        folders.append(folder)
        if _is_writable(folder):
            break
    return folders


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def writable_folder() -> Path | None:
    """Return the folder for new files, or None if no folder is writable."""
    return next(filter(_is_writable, cache_folders()), None)


class KernelCache:
    """The cached files of one kernel, with the interface that numba expects of a cache.

    Parameters
    ----------
    name : str
        The module and name of the kernel.
    digest : callable
        A function that takes a signature (the argument types) and returns the digest of the kernel for that signature.
    """

    def __init__(self, name: str, digest: Callable[[Any], str]) -> None:
        self._name = name
        self._digest = digest
        self._files: dict[Any, str] = {}

    @property
    def cache_path(self) -> str | None:
        """The folder for new files; None if no folder is writable."""
        folder = writable_folder()
        return str(folder) if folder else None

    def __contains__(self, signature: Any) -> bool:
        return any(path.exists() for path in self._paths(signature))

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the kernel compiled for a signature, or None if it is not cached."""
        # Register the functions of numba's runtime library, which a compiled kernel may call.
        target_context.refresh()
        for path in self._paths(signature):
            content = _read(path)
            if content is not None:
                _touch(path)
                return CompileResult._rebuild(target_context, *pickle.loads(content))
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Save the kernel compiled for a signature. Without a writable folder, nothing is saved."""
        folder = writable_folder()
        if folder is None:
            return
        content = dumps(result._reduce())
        with suppress(OSError):  # the disk is full, or the folder has become read-only
            _write(folder / self._file(signature), hashlib.sha256(content).digest() + content)
            # Remove unused files only from the user's own folder. Other users may share the folder in NUMBA_CACHE_DIR.
            if folder != configured_folder():
                _remove_unused(folder)

    def enable(self) -> None:
        """Do nothing. The method exists because numba calls it on every cache."""

    disable = flush = enable

    def _file(self, signature: Any) -> str:
        if signature not in self._files:
            self._files[signature] = f"{self._name}-{self._digest(signature)}{SUFFIX}"
        return self._files[signature]

    def _paths(self, signature: Any) -> Iterator[Path]:
        return (folder / self._file(signature) for folder in cache_folders())


def _read(path: Path) -> bytes | None:
    """Return the part of a file after its checksum; None if the file cannot be read or the checksum is wrong."""
    try:
        data = path.read_bytes()
    except OSError:  # the file does not exist, or this user may not read it
        return None
    content = data[CHECKSUM_BYTES:]
    return content if hashlib.sha256(content).digest() == data[:CHECKSUM_BYTES] else None


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically, so that other processes never see a partly written file."""
    temporary = path.with_name(f".{secrets.token_hex(8)}{SUFFIX}")
    try:
        temporary.write_bytes(data)
        # Renaming is atomic, so another process sees the old file, the new file, or none.
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _touch(path: Path) -> None:
    """Set the modification time of a file to now, at most once a day, so that `_remove_unused` keeps it."""
    with suppress(OSError):  # the folder may be read-only
        if path.stat().st_mtime < time.time() - DAY:
            os.utime(path)


def _remove_unused(folder: Path) -> None:
    """Delete cached kernels that no process has used for UNUSED_DAYS days."""
    oldest = time.time() - UNUSED_DAYS * DAY
    for path in folder.iterdir():
        with suppress(OSError):  # another process may have deleted the file
            if path.suffix in (SUFFIX, ".lock") and path.stat().st_mtime < oldest:
                path.unlink()
