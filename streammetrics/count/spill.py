"""Rows on disk, by partition, in a file without a name.

The file is unlinked as soon as it is open: the system takes the disk back when the last process that has it open
ends, however it ends. So nothing is left behind by a signal, and a forked child takes nothing away: it reads what its
parent wrote, and writes to a file of its own.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import MemoryLimitError, StateFormatError
from ..statistics.groups.solve import partitioned

__all__ = ["Run", "Spill", "SpillFile"]

Array = NDArray[Any]
BITS = 8  # of the hash: 256 partitions
PIECE = 1 << 26  # bytes written at a time


class SpillFile:
    """A file that rows are appended to.

    Parameters
    ----------
    folder : str
        Where it lies, without a name.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.process, self.end, self.lock = folder, os.getpid(), 0, threading.Lock()
        with _refused(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.file = tempfile.TemporaryFile(prefix="streammetrics-", dir=folder, buffering=0)  # noqa: SIM115
        self.close = weakref.finalize(self, self.file.close)

    def write(self, pieces: list[Array], end: int) -> list[int]:
        """Write arrays from a place on; return where each begins. If one cannot be written, the file is as it was."""
        places = []
        with self.lock, _refused(self.folder):
            try:
                at = end
                for piece in pieces:
                    places.append(at)
                    at = self._write(bytes_of(piece), at)
            except BaseException:
                self.file.truncate(end)
                raise
            self.end = at
        return places

    def _write(self, data: memoryview, at: int) -> int:
        done = 0
        while done < len(data):
            wrote = put(self.file.fileno(), data[done : done + PIECE], at + done)
            if wrote <= 0:
                raise OSError("nothing was written")
            done += wrote
        return at + done

    def read(self, at: int, size: int) -> bytearray:
        """Read some bytes.

        Raises
        ------
        StateFormatError
            They are not there.
        """
        if self.file.closed:
            raise StateFormatError("the rows that were spilled are gone: the metric was closed")
        out, done = bytearray(size), 0
        with memoryview(out) as view:
            while done < size:
                got = fetch(self.file.fileno(), min(size - done, PIECE), at + done)
                if not got:
                    raise StateFormatError(
                        f"rows that were spilled to {self.folder} are damaged: the file ends at {at + done:,}"
                    )
                view[done : done + len(got)] = got
                done += len(got)
        return out


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array, as they lie."""
    return array.reshape(-1).view(np.uint8).data


def put(file: int, data: memoryview, at: int) -> int:
    """Write some bytes at a place; return how many it took."""
    return os.pwrite(file, data, at)


def fetch(file: int, size: int, at: int) -> bytes:
    """Read up to some bytes at a place."""
    return os.pread(file, size, at)


class _refused:  # noqa: N801 - a context
    """What the system refuses, as an error that says what to do."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, OSError):
            raise MemoryLimitError(
                f"rows cannot be spilled to {self.folder}: {error.strerror or error}; nothing was counted: make room, or "
                f"give another spill_dir="
            ) from error


class Run(NamedTuple):
    """Rows that were written together: column after column, each by partition.

    Parameters
    ----------
    file : SpillFile
        Where.
    dtypes : dict of str to dtype
        The columns; those with a shape of their own are rows of several.
    places : dict of str to int
        Where in the file each column begins.
    starts : int64 array
        The row at which each partition begins, and where the last one ends.
    sums : uint32 array
        The checksum of each partition, over its columns.
    """

    file: SpillFile
    dtypes: dict[str, Any]
    places: dict[str, int]
    starts: Array
    sums: Array

    def read(self, p: int) -> dict[str, Array]:
        """Return the rows of a partition."""
        first, end, check, out = int(self.starts[p]), int(self.starts[p + 1]), 0, {}
        for name, dtype in self.dtypes.items():
            data = self.file.read(self.places[name] + first * dtype.itemsize, (end - first) * dtype.itemsize)
            check = zlib.crc32(data, check)
            out[name] = np.frombuffer(data, dtype)
        if check != int(self.sums[p]):
            raise StateFormatError(f"rows that were spilled to {self.file.folder} are damaged: a checksum differs")
        return out


@dataclass(frozen=True)
class Spill:
    """Rows on disk; it never changes, appending makes another one.

    Parameters
    ----------
    folder : str
        Where new files lie.
    runs : tuple of Run
        What was written.
    rows, positives : int
        How many rows there are.
    weight : float
        What they weigh.
    """

    folder: str
    runs: tuple[Run, ...] = ()
    rows: int = 0
    positives: int = 0
    weight: float = 0.0

    PARTS: ClassVar[int] = 1 << BITS

    def split(self, raw: Mapping[str, Array], hashes: NDArray[np.uint64]) -> Callable[[int], dict[str, Array]]:
        """Return what gives the rows of a partition, of rows in memory."""
        ordered, starts = partitioned(raw, hashes, BITS)
        return lambda p: {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}

    def written(self, raw: Mapping[str, Array], hashes: NDArray[np.uint64]) -> Spill:
        """Append rows.

        Raises
        ------
        MemoryLimitError
            The disk does not take them; what was written before is as it was.
        """
        ordered, starts = partitioned(raw, hashes, BITS)
        last = self.runs[-1] if self.runs else None
        mine = last is not None and last.file.process == os.getpid() and not last.file.file.closed
        file = last.file if last is not None and mine else SpillFile(self.folder)
        sums = np.zeros(self.PARTS, np.uint32)
        for p in range(self.PARTS):
            check = 0
            for column in ordered.values():
                check = zlib.crc32(bytes_of(column[starts[p] : starts[p + 1]]), check)
            sums[p] = check
        places = dict(zip(ordered, file.write(list(ordered.values()), file.end), strict=True))
        dtypes = {name: np.dtype((column.dtype, column.shape[1:])) for name, column in ordered.items()}
        labels, weights = raw["labels"], raw.get("weights")
        return replace(
            self,
            runs=(*self.runs, Run(file, dtypes, places, starts, sums)),
            rows=self.rows + len(labels),
            positives=self.positives + int(np.count_nonzero(labels)),
            weight=self.weight + (float(weights.sum()) if weights is not None else len(labels)),
        )

    def read(self, p: int) -> list[dict[str, Array]]:
        """Return the rows of a partition, as they were written together."""
        return [run.read(p) for run in self.runs]

    def close(self) -> None:
        """Give the disk back."""
        for run in self.runs:
            run.file.close()
