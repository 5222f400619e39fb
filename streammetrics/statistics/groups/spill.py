"""Rows on disk, by partition, in an unnamed temporary file.

The file is unlinked as soon as it is open. The system therefore frees the disk space when the last process that uses the
file ends, even by a signal. A forked child reads the rows that its parent wrote, and writes to its own file.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import MemoryLimitError, StateFormatError
from .partitions import RawRows, hashes_of, partition_rows

__all__ = ["Spill", "SpillFile", "SpilledRows", "concat_by_layout", "row_layout", "spill_rows"]

Array = NDArray[Any]
# The salt of the hash that assigns groups to partitions. It must never change.
SALT = 0x5350494C4C000001
# The number of bits of the hash that select one of 256 partitions.
BITS = 8
# The number of bytes that are written at a time.
PIECE = 1 << 26
# The number of rows that are partitioned at a time, which limits the memory of the copies.
ROWS = 1 << 22


class SpillFile:
    """A temporary file to which rows are appended.

    Parameters
    ----------
    folder : str
        The folder in which the file is created; the file has no name.
    advice : str
        The advice that an error gives if the disk is full.
    """

    def __init__(self, folder: str, advice: str = "make room, and give the batch again") -> None:
        self.advice = advice
        self.folder, self.process, self.end, self.lock = folder, os.getpid(), 0, threading.Lock()
        with _SpillErrors(folder, advice):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.file = tempfile.TemporaryFile(prefix="streammetrics-", dir=folder, buffering=0)  # noqa: SIM115
        self.close = weakref.finalize(self, self.file.close)

    def write(self, batches: Iterable[Sequence[Array]]) -> list[list[int]]:
        """Append batches of arrays, and return the offset of each; after a failure the file has its earlier content."""
        places: list[list[int]] = []
        # Copies of a metric share the file, so writing needs the lock.
        with self.lock, _SpillErrors(self.folder, self.advice):
            begun = self.end
            try:
                places.extend([self._append(bytes_of(array)) for array in batch] for batch in batches)
            except BaseException:
                self.end = begun
                # If truncation fails, the next write overwrites the incomplete data.
                with suppress(OSError):
                    self.file.truncate(begun)
                raise
        return places

    def _append(self, data: memoryview) -> int:
        at, done = self.end, 0
        while done < len(data):
            wrote = write_at(self.file.fileno(), data[done : done + PIECE], at + done)
            if wrote <= 0:
                raise OSError("nothing was written")
            done += wrote
        self.end = at + done
        return at

    def read(self, at: int, size: int) -> bytearray:
        """Return `size` bytes of the file, starting at an offset.

        Raises
        ------
        StateFormatError
            The file is closed, shorter, or cannot be read.
        """
        if self.file.closed:
            raise StateFormatError("the rows that were spilled are gone: the metric was closed")
        out, done = bytearray(size), 0
        with memoryview(out) as view:
            while done < size:
                try:
                    got = read_at(self.file.fileno(), min(size - done, PIECE), at + done)
                except OSError as error:
                    raise self.damage_error(str(error.strerror or error)) from error
                if not got:
                    raise self.damage_error(f"the file ends at {at + done:,}")
                view[done : done + len(got)] = got
                done += len(got)
        return out

    def damage_error(self, how: str) -> StateFormatError:
        """Return the error for spilled rows that cannot be read as they were written."""
        return StateFormatError(
            f"rows that were spilled to {self.folder} are damaged: {how}; there is no result without them: look at the "
            f"disk, or spill to another folder, and count the log again"
        )


def bytes_of(array: Array) -> memoryview:
    """Return a view of the bytes of an array."""
    return array.reshape(-1).view(np.uint8).data


def write_at(file: int, data: memoryview, at: int) -> int:
    """Write bytes at an offset, and return the number of written bytes."""
    return os.pwrite(file, data, at)


def read_at(file: int, size: int, at: int) -> bytes:
    """Read up to `size` bytes at an offset."""
    return os.pread(file, size, at)


class _SpillErrors:
    """A context manager that turns an OSError into a MemoryLimitError with advice."""

    def __init__(self, folder: str, advice: str) -> None:
        self.folder, self.advice = folder, advice

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, OSError):
            raise MemoryLimitError(
                f"rows cannot be spilled to {self.folder}: {error.strerror or error}; nothing was counted: "
                f"{self.advice}"
            ) from error


class SpilledRows(NamedTuple):
    """The rows of one write to the file: column after column, with the rows of each column ordered by partition.

    Parameters
    ----------
    file : SpillFile
        The file.
    dtypes : dict of str to dtype
        The dtype of each column; ids of two words have a subarray dtype.
    places : dict of str to int
        The offset of each column in the file.
    starts : int64 array
        The row at which each partition begins, and the end.
    sums : uint32 array
        The checksum of each partition over all columns.
    """

    file: SpillFile
    dtypes: dict[str, Any]
    places: dict[str, int]
    starts: Array
    sums: Array

    def read(self, p: int) -> RawRows:
        """Return the rows of partition `p` and check them against the checksum."""
        first, end, check, out = int(self.starts[p]), int(self.starts[p + 1]), 0, {}
        for name, dtype in self.dtypes.items():
            data = self.file.read(self.places[name] + first * dtype.itemsize, (end - first) * dtype.itemsize)
            check = zlib.crc32(data, check)
            out[name] = np.frombuffer(data, dtype)
        if check != int(self.sums[p]):
            raise self.file.damage_error("a checksum differs")
        return out


@dataclass(frozen=True)
class Spill:
    """Rows on disk. A spill is immutable: appending returns a new one that shares the file.

    Parameters
    ----------
    folder : str
        The folder of new files.
    runs : tuple of SpilledRows
        The rows of each write.
    rows, positives : int
        The numbers of rows and of positives.
    weight : float
        The weight of the rows.
    """

    folder: str
    runs: tuple[SpilledRows, ...] = ()
    rows: int = 0
    positives: int = 0
    weight: float = 0.0

    PARTS: ClassVar[int] = 1 << BITS

    def append_rows(self, raws: Sequence[RawRows]) -> Spill:
        """Append rows of several layouts.

        Raises
        ------
        MemoryLimitError
            The rows cannot be written; earlier rows are unchanged.
        """
        last = self.runs[-1] if self.runs else None
        is_own_file = last is not None and last.file.process == os.getpid() and not last.file.file.closed
        file = last.file if last is not None and is_own_file else SpillFile(self.folder)
        layouts: list[tuple[dict[str, Any], Array, Array]] = []

        def batches() -> Iterator[list[Array]]:
            for raw in raws:
                # Rows are written in pieces, because partitioning copies them.
                for start in range(0, len(raw["labels"]), ROWS):
                    piece = {name: column[start : start + ROWS] for name, column in raw.items()}
                    ordered, starts = partition_rows(piece, hashes_of(piece["ids"], SALT), BITS)
                    dtypes = {name: np.dtype((c.dtype, c.shape[1:])) for name, c in ordered.items()}
                    layouts.append((dtypes, starts, _checksums(list(ordered.values()), starts)))
                    yield list(ordered.values())

        runs = [
            SpilledRows(file, dtypes, dict(zip(dtypes, places, strict=True)), starts, sums)
            for places, (dtypes, starts, sums) in zip(file.write(batches()), layouts, strict=True)
        ]
        return replace(
            self,
            runs=(*self.runs, *runs),
            rows=self.rows + sum(len(r["labels"]) for r in raws),
            positives=self.positives + sum(int(np.count_nonzero(r["labels"])) for r in raws),
            weight=self.weight + sum(float(r["weights"].sum()) if "weights" in r else len(r["labels"]) for r in raws),
        )

    def read(self, p: int) -> list[RawRows]:
        """Return the rows of a partition, one dict for each write."""
        return [run.read(p) for run in self.runs]

    def close(self) -> None:
        """Close the files, which frees the disk space."""
        for run in self.runs:
            run.file.close()


def spill_rows(folder: str, raws: Sequence[RawRows], before: tuple[Spill, ...]) -> tuple[Spill, ...]:
    """Write rows to a folder and return all spills; if writing fails, raise and change nothing."""
    raws = [r for r in concat_by_layout(raws) if len(r["labels"])]
    if not raws:
        return before
    same_folder = bool(before) and before[-1].folder == folder
    return (*before[:-1], before[-1].append_rows(raws)) if same_folder else (*before, Spill(folder).append_rows(raws))


def partition_reader(raw: RawRows) -> Callable[[int], RawRows]:
    """Return a function that returns the rows of a given partition, from rows in memory."""
    ordered, starts = partition_rows(raw, hashes_of(raw["ids"], SALT), BITS)
    return lambda p: {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}


def concat_by_layout(raws: Sequence[RawRows]) -> list[RawRows]:
    """Concatenate rows of equal layout."""
    alike: dict[tuple[Any, ...], list[RawRows]] = {}
    for raw in raws:
        alike.setdefault(row_layout(raw), []).append(raw)
    return [
        some[0] if len(some) == 1 else {n: np.concatenate([r[n] for r in some]) for n in some[0]}
        for some in alike.values()
    ]


def row_layout(rows: Mapping[str, Array]) -> tuple[Any, ...]:
    """Return the names, dtypes and dimensions of columns: the layout, which all rows of one block share."""
    return tuple((n, a.dtype.char, a.ndim) for n, a in rows.items())


def _checksums(columns: Sequence[Array], starts: Array) -> Array:
    """Return the checksum of each partition, computed over all columns."""
    sums = np.zeros(len(starts) - 1, np.uint32)
    for p, (first, end) in enumerate(itertools.pairwise(starts)):
        check = 0
        for column in columns:
            check = zlib.crc32(bytes_of(column[first:end]), check)
        sums[p] = check
    return sums
