"""Read parts (metrics of one source and hour) from files in a folder, for jobs that cannot send HTTP requests.

The path of each file within the folder has the form experiment/hour/source-seq.smet.
"""

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
from ..part_keys import PartKey, parse_key
from ..settings import ServerSettings
from . import StoreDownError, StoreFullError

__all__ = ["FolderWatcher", "parse_path"]

log = logging.getLogger(__name__)
SUFFIX = ".smet"
DEPTH = 3


class DroppedFile(NamedTuple):
    """A file that a job has written to the watched folder.

    `path` is its path within the folder. `stamp` changes whenever the file is rewritten.
    """

    path: str
    size: int
    stamp: str


class WatchedFolder(Protocol):
    """The interface of watched folders. The methods block while they read the disk or the network."""

    def list_files(self) -> Iterator[DroppedFile]:
        """Yield all regular files whose paths have the form experiment/hour/file.smet. Links are left out."""
        ...

    def read(self, file: DroppedFile) -> bytes:
        """Return the content of a file."""
        ...


def open_folder(url: str) -> WatchedFolder:
    """Return the folder at a local path or at an fsspec URL, such as s3://bucket/parts."""
    return RemoteFolder(url) if "://" in url else LocalFolder(url)


class LocalFolder:
    """A folder on a local disk; links, pipes and other special files are ignored."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isdir(path):
            raise InvalidInputError(f"there is no folder {path!r} to watch; create it first")

    def list_files(self) -> Iterator[DroppedFile]:
        yield from _list_files(self.path, "", DEPTH)

    def read(self, file: DroppedFile) -> bytes:
        # The file may have been replaced by a link or a pipe after the folder was listed. Opening or reading a pipe
        # could block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(os.path.join(self.path, file.path), flags)
        with open(handle, "rb") as opened:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                raise InvalidInputError("expected a regular file, found a link, a pipe or another special file")
            return opened.read(file.size + 1)


def _list_files(folder: str, above: str, depth: int) -> Iterator[DroppedFile]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            name = f"{above}{entry.name}"
            if entry.name.startswith("."):
                continue
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                try:
                    yield from _list_files(entry.path, f"{name}/", depth - 1)
                # If one folder cannot be read, the other folders are still read.
                except OSError as error:
                    log.warning("%s cannot be read: %s", entry.path, error)
            elif depth == 1 and entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                yield DroppedFile(name, info.st_size, f"{info.st_mtime_ns} {info.st_ino}")


class RemoteFolder:
    """A remote folder, such as a bucket, which is read with fsspec."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ModuleNotFoundError:
            raise InvalidInputError(f"{url}: watching it needs fsspec: pip install 'streammetrics[remote]'") from None
        self.system: Any
        self.system, path = url_to_fs(url)
        self.path = path.rstrip("/")

    def list_files(self) -> Iterator[DroppedFile]:
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
            data: bytes = opened.read(file.size + 1)
        return data


log = logging.getLogger(__name__)
TEMPORARY_ERRORS = (NoRoomError, StoreDownError, StoreFullError)
"""Errors that may disappear without any change to the file. After such an error, the next scan tries again."""


@dataclass
class FileStatus:
    """The progress of a file: whether it was stored or refused, and its last error.

    `is_done` is true once the file has been stored or refused. `problem` is the last logged error. If the next scan
    finds the same error, it is not logged again.
    """

    file: DroppedFile
    is_done: bool = False
    problem: str = ""


def parse_path(path: str) -> PartKey:
    """Return the key of the part in a file, given the path of the file within the folder.

    Examples
    --------
    >>> parse_path("new-rank/2026-06-01T09/job-7-0.smet")
    PartKey(experiment='new-rank', source='job-7', hour=494529, seq=0)
    """
    experiment, hour, name = path.split("/")
    source, dash, seq = name.removesuffix(SUFFIX).rpartition("-")
    if not dash:
        raise InvalidInputError(
            f"{path}: expected a file name of the form SOURCE-SEQ.smet, such as spark-0.smet; rename the file"
        )
    return parse_key(experiment, source, hour, seq)


class FolderWatcher:
    """A watcher that scans a folder at intervals and submits each new file as a part.

    Parameters
    ----------
    url : str
        A local folder, or an fsspec URL.
    ingest : Ingest
        The queue of posted parts.
    definitions : Definitions
        The experiments; files for an unknown experiment wait until it is defined.
    store : Store
        The store whose audit log records refused files.
    settings : ServerSettings
        The interval between scans, and the maximum size of a file.

    Notes
    -----
    A file that cannot be decoded may be only half written. It is tried again until its size and modification time are
    the same in two successive scans. The file is then refused, and the refusal is recorded in the audit log of its
    experiment. A file that is rewritten is submitted again. As with a repeated post, the same content is ignored, and
    different content is a conflict. The watcher never changes or removes files. After a restart, it submits all files
    again; parts that are already stored do not count twice.
    """

    def __init__(
        self, url: str, ingest: Ingest, definitions: Definitions, store: Any, settings: ServerSettings
    ) -> None:
        self.folder = open_folder(url)
        self.url, self.ingest, self.definitions, self.store, self.settings = url, ingest, definitions, store, settings
        self.statuses: dict[str, FileStatus] = {}

    async def run(self) -> None:
        """Scan the folder at intervals until the task is cancelled."""
        while True:
            try:
                await self.scan()
            # Network errors have many classes, so any error may be a temporary network error. Only log it, because the
            # next scan may succeed.
            except Exception:
                log.exception("%s could not be scanned", self.url)
            await asyncio.sleep(self.settings.watch_seconds)

    async def scan(self) -> None:
        """List the files in the folder and submit those that are new or have changed."""
        files = await asyncio.to_thread(lambda: list(self.folder.list_files()))
        paths = {file.path for file in files}
        self.statuses = {path: status for path, status in self.statuses.items() if path in paths}
        for file in files:
            status = self.statuses.get(file.path)
            if status is None or status.file != file:
                self.statuses[file.path] = status = FileStatus(file)
                is_stable = False
            else:
                is_stable = True
            if not status.is_done:
                await self._submit_file(status, is_stable)

    async def _submit_file(self, status: FileStatus, is_stable: bool) -> None:
        """Submit a file as a part. After a temporary error, the next scan submits the file again.

        `is_stable` is true if the file has not changed since the last scan.
        """
        try:
            key = parse_path(status.file.path)
        # The path does not contain a valid key, so the experiment is unknown. The file is refused without an entry in
        # an audit log.
        except InvalidInputError as error:
            self._refuse_file(status, str(error))
            return
        try:
            experiment = await asyncio.to_thread(self.definitions.get_for_parts, key.experiment)
            if experiment is None:
                self._warn_once(
                    status, f"there is no experiment {key.experiment!r}; define it first, or correct its ID"
                )
                return
            experiment.check_hour(key.hour, self.settings.clock())
            data = await asyncio.to_thread(self._read_file, status.file)
            outcome = await self.ingest.submit(key, data, experiment)
        # After a temporary error, such as a full queue, the next scan submits the file again.
        except TEMPORARY_ERRORS as error:
            self._warn_once(status, str(error))
        # The file cannot be read or decoded, perhaps because it is only half written. It is refused once it has
        # remained unchanged between two scans.
        except (StateFormatError, OSError) as error:
            if is_stable:
                await self._refuse_with_audit(status, key, error)
        # The file is complete, but it does not fit its experiment, so it is refused.
        except StreamMetricsError as error:
            await self._refuse_with_audit(status, key, error)
        else:
            status.is_done = True
            if outcome not in ("stored", "same"):
                log.warning("%s was posted before with different content (%s)", status.file.path, outcome)

    def _read_file(self, file: DroppedFile) -> bytes:
        max_bytes = self.settings.max_bytes
        if file.size > max_bytes:
            raise InvalidInputError(f"the file has {file.size:,} bytes, more than the limit of {max_bytes:,}")
        data = self.folder.read(file)
        if len(data) != file.size:
            raise StateFormatError(
                f"the file changed while it was read: expected {file.size:,} bytes, found {len(data):,} or more"
            )
        return data

    async def _refuse_with_audit(self, status: FileStatus, key: PartKey, error: Exception) -> None:
        """Refuse a file and record the refusal in the audit log of its experiment."""
        self._refuse_file(status, str(error))
        what = f"refused the file {key.text}{SUFFIX}: {error}"
        await asyncio.to_thread(self.store.add_audit, key.experiment, what, by="watch", at=self.settings.clock())

    def _refuse_file(self, status: FileStatus, wrong: str) -> None:
        self._warn_once(status, wrong)
        status.is_done = True

    def _warn_once(self, status: FileStatus, wrong: str) -> None:
        if status.problem != wrong:
            log.warning("%s: %s", status.file.path, wrong)
        status.problem = wrong
