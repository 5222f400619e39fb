"""Parts that are dropped into a folder as files: experiment/hour/source-seq.smet, for jobs that do not speak HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...errors import InvalidInputError, StateFormatError, StreamMetricsError
from ..api.ingest import Ingest, NoRoomError
from ..evaluation.definitions import Definitions
from ..settings import ServerSettings
from . import StoreDownError, StoreFullError
from .part_keys import PartKey, key_of

__all__ = ["Watch", "key_of_path"]

log = logging.getLogger(__name__)
SUFFIX = ".smet"
DEPTH = 3


class DroppedFile(NamedTuple):
    """A file: its path within the folder, its size, and what is other when it is written again."""

    path: str
    size: int
    stamp: str


class Folder(Protocol):
    """Where files are dropped. Calls block."""

    def files(self) -> Iterator[DroppedFile]:
        """List those that are three deep, and no links."""
        ...

    def read(self, file: DroppedFile) -> bytes:
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

    def files(self) -> Iterator[DroppedFile]:
        yield from _within(self.path, "", DEPTH)

    def read(self, file: DroppedFile) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # it may have become a link, or a pipe, since it was listed
        handle = os.open(os.path.join(self.path, file.path), flags)
        with open(handle, "rb") as opened:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidInputError("it is no plain file")
            return opened.read(file.size + 1)


def _within(folder: str, above: str, depth: int) -> Iterator[DroppedFile]:
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
                yield DroppedFile(name, found.st_size, f"{found.st_mtime_ns} {found.st_ino}")


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

    def files(self) -> Iterator[DroppedFile]:
        self.system.invalidate_cache()
        for name, info in sorted(self.system.find(self.path, maxdepth=DEPTH, detail=True).items()):
            path = name.removeprefix(self.path).lstrip("/")
            if path.endswith(SUFFIX) and path.count("/") == DEPTH - 1 and not info.get("islink"):
                stamps = (
                    f"{k}={info[k]}"
                    for k in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created")
                    if k in info
                )
                yield DroppedFile(path, int(info.get("size") or 0), next(stamps, ""))

    def read(self, file: DroppedFile) -> bytes:
        with self.system.open(f"{self.path}/{file.path}", "rb") as opened:
            found: bytes = opened.read(file.size + 1)
        return found


log = logging.getLogger(__name__)
LATER = (NoRoomError, StoreDownError, StoreFullError)
"""What passes by itself: then the file is taken at the next look."""


@dataclass
class FileStatus:
    """What is known of a file: as it was at the last look, whether nothing is left to do, and what is wrong with it."""

    file: DroppedFile
    done: bool = False
    wrong: str = ""


def key_of_path(path: str) -> PartKey:
    """Return the key of a file within the folder.

    Examples
    --------
    >>> key_of_path("new-rank/2026-06-01T09/job-7-0.smet")
    PartKey(experiment='new-rank', source='job-7', hour=494529, seq=0)
    """
    experiment, hour, name = path.split("/")
    source, dash, seq = name.removesuffix(SUFFIX).rpartition("-")
    if not dash:
        raise InvalidInputError(f"{path}: a file is named source-seq.smet, such as spark-0.smet")
    return key_of(experiment, source, hour, seq)


class Watch:
    """Look at a folder again and again, and take what is new.

    Parameters
    ----------
    url : str
        A folder, or a URL that fsspec opens.
    ingest : Ingest
        Where parts go: as posted ones.
    definitions : Definitions
        Experiments; files of others wait until there is one.
    store : Store
        Whose audit says what was refused.
    settings : Settings
        How often, and how large a file may be.

    Notes
    -----
    A file that does not decode may be half written: it is tried again until its size and time rest from one look to the
    next, and then it is refused, once, in the audit of its experiment. One that is written again is taken again, and is
    then the same or a conflict, as a post is. Files are never changed or removed. After a restart all are read again,
    which changes nothing.
    """

    def __init__(
        self, url: str, ingest: Ingest, definitions: Definitions, store: Any, settings: ServerSettings
    ) -> None:
        self.folder = open_folder(url)
        self.url, self.ingest, self.definitions, self.store, self.settings = url, ingest, definitions, store, settings
        self.seen: dict[str, FileStatus] = {}

    async def run(self) -> None:
        """Look until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # of a network, of which there are many kinds: the next look may find it well again
                log.exception("%s could not be looked at", self.url)
            await asyncio.sleep(self.settings.watch_seconds)

    async def look(self) -> None:
        """Look once."""
        files = await asyncio.to_thread(lambda: list(self.folder.files()))
        here = {file.path for file in files}
        self.seen = {path: seen for path, seen in self.seen.items() if path in here}
        for file in files:
            seen = self.seen.get(file.path)
            if seen is None or seen.file != file:
                self.seen[file.path] = seen = FileStatus(file)
                rests = False
            else:
                rests = True
            if not seen.done:
                await self._take(seen, rests)

    async def _take(self, seen: FileStatus, rests: bool) -> None:
        """Take a file; leave it for the next look where that may help."""
        try:
            key = key_of_path(seen.file.path)
        except InvalidInputError as error:  # it is logged, once
            self._refuse_quietly(seen, str(error))
            return
        try:
            experiment = await asyncio.to_thread(self.definitions.get, key.experiment)
            if experiment is None:
                self._warn(seen, f"there is no experiment {key.experiment!r}")
                return
            experiment.check_hour(key.hour, self.settings.clock())
            data = await asyncio.to_thread(self._read, seen.file)
            word = await self.ingest.take(key, data, experiment)
        except LATER as error:  # it passes: the next look takes it
            self._warn(seen, str(error))
        except (StateFormatError, OSError) as error:  # it may be half written: at rest it is refused
            if rests:
                await self._refuse(seen, key, error)
        except StreamMetricsError as error:  # it is whole, and does not fit: said in the audit
            await self._refuse(seen, key, error)
        else:
            seen.done = True
            if word == "conflict":
                log.warning("%s was there before with other content; it is kept aside", seen.file.path)

    def _read(self, file: DroppedFile) -> bytes:
        most = self.settings.max_bytes
        if file.size > most:
            raise InvalidInputError(
                f"the file has {file.size:,} bytes, more than {most:,}, the most that is taken here"
            )
        data = self.folder.read(file)
        if len(data) != file.size:
            raise StateFormatError(
                f"the file has {len(data):,} bytes or more, and had {file.size:,} when it was listed"
            )
        return data

    async def _refuse(self, seen: FileStatus, key: PartKey, error: Exception) -> None:
        """Say it where people look, once."""
        self._refuse_quietly(seen, str(error))
        what = f"refused the file {key.text}{SUFFIX}: {error}"
        await asyncio.to_thread(self.store.audit, key.experiment, what, by="watch", at=self.settings.clock())

    def _refuse_quietly(self, seen: FileStatus, wrong: str) -> None:
        self._warn(seen, wrong)
        seen.done = True

    def _warn(self, seen: FileStatus, wrong: str) -> None:
        if seen.wrong != wrong:
            log.warning("%s: %s", seen.file.path, wrong)
        seen.wrong = wrong
