"""Compiled kernels on disk.

A file holds one kernel for one set of types, under a name that ends in the kernel's digest (see `_digest`). So a file is
never out of date: a changed kernel has another name. Files are read with `pickle`, which runs what it reads; a folder to
which somebody else can write is therefore not read, unless the user names it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
import stat
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
CHECKSUM = 32  # bytes of SHA-256 before the content


def named_folder() -> Path | None:
    """Return the folder that the user names in NUMBA_CACHE_DIR."""
    return Path(numba.config.CACHE_DIR) / "streammetrics" if numba.config.CACHE_DIR else None


def own_folder() -> Path | None:
    """Return the user's own folder, or None if there is none or somebody else can write to it."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # the user has no home
        return None
    folder = base / "streammetrics" / "kernels"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = folder.stat()
    except OSError:  # it can be neither made nor read
        return None
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        warnings.warn(
            f"{folder}: compiled kernels are not kept, because other users can write to this folder; "
            f"make it yours alone (chmod 700), or name another one in NUMBA_CACHE_DIR",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return folder


def folders() -> list[Path]:
    """Return the folders that are read, in this order; new files go to the first one that can be written.

    The user's own folder is not touched where a named one can be written.
    """
    named = named_folder()
    if named is None:
        own = own_folder()
        return [own] if own else []
    with suppress(OSError):
        named.mkdir(parents=True, exist_ok=True)
    if os.access(named, os.W_OK | os.X_OK):
        return [named]
    own = own_folder()
    return [named, own] if own else [named]


def writable_folder() -> Path | None:
    """Return the folder that new files go to, if there is one."""
    return next((folder for folder in folders() if os.access(folder, os.W_OK | os.X_OK)), None)


class KernelCache:
    """The files of one kernel, as numba's dispatcher asks for them.

    Parameters
    ----------
    name : str
        The module and name of the kernel.
    digest : callable
        Returns the digest for a signature.
    """

    def __init__(self, name: str, digest: Callable[[Any], str]) -> None:
        self._name = name
        self._digest = digest
        self._files: dict[Any, str] = {}

    @property
    def cache_path(self) -> str | None:
        """Return the folder that new files go to."""
        folder = writable_folder()
        return str(folder) if folder else None

    def __contains__(self, signature: Any) -> bool:
        return any(path.exists() for path in self._paths(signature))

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return what was compiled for a signature, or None."""
        # A compiled kernel refers to functions of numba, which this call registers.
        target_context.refresh()
        for path in self._paths(signature):
            content = _read(path)
            if content is not None:
                _note_use(path)
                return CompileResult._rebuild(target_context, *pickle.loads(content))
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled; where no folder can be written, every process compiles anew."""
        folder = writable_folder()
        if folder is None:
            return
        content = dumps(result._reduce())
        with suppress(OSError):  # the disk is full, or the folder has become read-only
            _write(folder / self._file(signature), hashlib.sha256(content).digest() + content)
            if folder != named_folder():
                _remove_unused(folder)

    def enable(self) -> None:
        """Do nothing: numba calls this on any cache."""

    disable = flush = enable

    def _file(self, signature: Any) -> str:
        if signature not in self._files:
            self._files[signature] = f"{self._name}-{self._digest(signature)}{SUFFIX}"
        return self._files[signature]

    def _paths(self, signature: Any) -> Iterator[Path]:
        return (folder / self._file(signature) for folder in folders())


def _read(path: Path) -> bytes | None:
    """Return the content of a file, or None if it cannot be read or is not whole."""
    try:
        data = path.read_bytes()
    except OSError:  # it is not there, or not ours to read
        return None
    content = data[CHECKSUM:]
    return content if hashlib.sha256(content).digest() == data[:CHECKSUM] else None


def _write(path: Path, data: bytes) -> None:
    """Write a file that no other process sees before it is whole."""
    temporary = path.with_name(f".{secrets.token_hex(8)}{SUFFIX}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _note_use(path: Path) -> None:
    """Set the time of a file to now, at most once a day."""
    with suppress(OSError):  # a folder that can only be read
        if path.stat().st_mtime < time.time() - DAY:
            os.utime(path)


def _remove_unused(folder: Path) -> None:
    """Delete the files that no process has used for long."""
    oldest = time.time() - UNUSED_DAYS * DAY
    for path in folder.iterdir():
        with suppress(OSError):  # another process was faster
            if path.suffix in (SUFFIX, ".lock") and path.stat().st_mtime < oldest:
                path.unlink()
