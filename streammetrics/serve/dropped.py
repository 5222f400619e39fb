"""Files that are dropped into a folder, on a disk or elsewhere: which there are, and what is in one."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from ..errors import InvalidInputError

__all__ = ["File", "Folder", "open_folder"]

log = logging.getLogger(__name__)
SUFFIX = ".smet"
DEPTH = 3


class File(NamedTuple):
    """A file: its path within the folder, its size, and what is other when it is written again."""

    path: str
    size: int
    stamp: str


class Folder(Protocol):
    """Where files are dropped. Calls block."""

    def files(self) -> Iterator[File]:
        """List those that are three deep, and no links."""
        ...

    def read(self, file: File) -> bytes:
        """Read one."""
        ...


def open_folder(url: str) -> Folder:
    """Return the folder of a path, or of a URL such as s3://bucket/parts, which fsspec opens."""
    return Elsewhere(url) if "://" in url else Here(url)


class Here:
    """A folder on a disk: what leads out of it, or is no plain file, is not there."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isdir(path):
            raise InvalidInputError(f"there is no folder {path!r} to be watched")

    def files(self) -> Iterator[File]:
        yield from _within(self.path, "", DEPTH)

    def read(self, file: File) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # it may have become a link, or a pipe, since it was listed
        handle = os.open(os.path.join(self.path, file.path), flags)
        with open(handle, "rb") as opened:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidInputError("it is no plain file")
            return opened.read(file.size + 1)


def _within(folder: str, above: str, depth: int) -> Iterator[File]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            name = f"{above}{entry.name}"
            if entry.name.startswith("."):
                continue
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                try:
                    yield from _within(entry.path, f"{name}/", depth - 1)
                except OSError as error:  # of one folder: the others are looked at
                    log.warning("%s cannot be looked at: %s", entry.path, error)
            elif depth == 1 and entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield File(name, found.st_size, f"{found.st_mtime_ns} {found.st_ino}")


class Elsewhere:
    """A folder that fsspec opens."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ModuleNotFoundError:
            raise InvalidInputError(f"{url}: to watch it needs fsspec: pip install 'streammetrics[remote]'") from None
        self.system: Any
        self.system, path = url_to_fs(url)
        self.path = path.rstrip("/")

    def files(self) -> Iterator[File]:
        self.system.invalidate_cache()
        for name, info in sorted(self.system.find(self.path, maxdepth=DEPTH, detail=True).items()):
            path = name.removeprefix(self.path).lstrip("/")
            if path.endswith(SUFFIX) and path.count("/") == DEPTH - 1 and not info.get("islink"):
                stamps = (
                    f"{k}={info[k]}"
                    for k in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created")
                    if k in info
                )
                yield File(path, int(info.get("size") or 0), next(stamps, ""))

    def read(self, file: File) -> bytes:
        with self.system.open(f"{self.path}/{file.path}", "rb") as opened:
            found: bytes = opened.read(file.size + 1)
        return found
