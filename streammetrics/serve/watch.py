"""Parts that are dropped into a folder as files: experiment/hour/source-seq.smet, for jobs that do not speak HTTP."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInputError, StateFormatError, StreamMetricsError
from .definitions import Definitions
from .dropped import SUFFIX, File, open_folder
from .ingest import BusyError, Ingest
from .keys import Key, key_of
from .settings import Settings
from .store import StoreDownError, StoreFullError

__all__ = ["Watch", "key_of_path"]

log = logging.getLogger(__name__)
LATER = (BusyError, StoreDownError, StoreFullError)
"""What passes by itself: then the file is taken at the next look."""


@dataclass
class Seen:
    """What is known of a file: as it was at the last look, whether nothing is left to do, and what is wrong with it."""

    file: File
    done: bool = False
    wrong: str = ""


def key_of_path(path: str) -> Key:
    """Return the key of a file within the folder.

    Examples
    --------
    >>> key_of_path("new-rank/2026-06-01T09/job-7-0.smet")
    Key(experiment='new-rank', source='job-7', hour=494529, seq=0)
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

    def __init__(self, url: str, ingest: Ingest, definitions: Definitions, store: Any, settings: Settings) -> None:
        self.folder = open_folder(url)
        self.url, self.ingest, self.definitions, self.store, self.settings = url, ingest, definitions, store, settings
        self.seen: dict[str, Seen] = {}

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
                self.seen[file.path] = seen = Seen(file)
                rests = False
            else:
                rests = True
            if not seen.done:
                await self._take(seen, rests)

    async def _take(self, seen: Seen, rests: bool) -> None:
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

    def _read(self, file: File) -> bytes:
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

    async def _refuse(self, seen: Seen, key: Key, error: Exception) -> None:
        """Say it where people look, once."""
        self._refuse_quietly(seen, str(error))
        what = f"refused the file {key.text}{SUFFIX}: {error}"
        await asyncio.to_thread(self.store.audit, key.experiment, what, by="watch", at=self.settings.clock())

    def _refuse_quietly(self, seen: Seen, wrong: str) -> None:
        self._warn(seen, wrong)
        seen.done = True

    def _warn(self, seen: Seen, wrong: str) -> None:
        if seen.wrong != wrong:
            log.warning("%s: %s", seen.file.path, wrong)
        seen.wrong = wrong
