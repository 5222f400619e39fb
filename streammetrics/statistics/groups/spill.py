"""Storage of rows in an unnamed temporary file, in blocks sorted by partition (selected by a hash of the group).

The file is unlinked as soon as it has been opened. The system therefore frees the disk space when the last process that
uses the file ends, even if a signal kills it. A forked child reads the rows that its parent wrote, and writes to its
own file.
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
# The salt of the hash that assigns groups to partitions. All rows on disk must be partitioned in the same way.
SALT = 0x5350494C4C000001
# The number of hash bits that select one of the 256 partitions.
BITS = 8
# The maximum number of bytes that one system call writes or reads.
PIECE = 1 << 26
# Rows are partitioned in pieces of this many rows, to limit the memory for copies.
ROWS = 1 << 22


class SpillFile:
    """A temporary file to which rows are appended.

    Parameters
    ----------
    folder : str
        The folder in which the file is created; the file has no name.
    advice : str
        The advice in the error message if the file cannot be created or written.
    """

    def __init__(self, folder: str, advice: str = "free disk space, and pass the batch again") -> None:
        self.advice = advice
        self.folder, self.process, self.end, self.lock = folder, os.getpid(), 0, threading.Lock()
        with _SpillErrors(folder, advice):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.file = tempfile.TemporaryFile(prefix="streammetrics-", dir=folder, buffering=0)  # noqa: SIM115
        self.close = weakref.finalize(self, self.file.close)

    def write(self, batches: Iterable[Sequence[Array]]) -> list[list[int]]:
        """Append batches of arrays, and return for each batch the file offsets of its arrays.

        If writing fails, the file keeps its earlier content.
        """
        places: list[list[int]] = []
        # Copies of a metric share the file, so writing needs the lock.
        with self.lock, _SpillErrors(self.folder, self.advice):
            begun = self.end
            try:
                places.extend([self._append(bytes_of(array)) for array in batch] for batch in batches)
            except BaseException:
                self.end = begun
                # Free the disk space of the incomplete data. If this fails too, the next write overwrites the data.
                with suppress(OSError):
                    self.file.truncate(begun)
                raise
        return places

    def _append(self, data: memoryview) -> int:
        at, done = self.end, 0
        while done < len(data):
            wrote = write_at(self.file.fileno(), data[done : done + PIECE], at + done)
            if wrote <= 0:
                raise OSError("the system wrote no bytes")
            done += wrote
        self.end = at + done
        return at

    def read(self, at: int, size: int) -> bytearray:
        """Return `size` bytes of the file, starting at the offset `at`.

        Raises
        ------
        StateFormatError
            The file is closed, is too short, or cannot be read.
        """
        if self.file.closed:
            raise StateFormatError("the rows that were spilled to disk are gone, because the metric was closed")
        out, done = bytearray(size), 0
        with memoryview(out) as view:
            while done < size:
                try:
                    got = read_at(self.file.fileno(), min(size - done, PIECE), at + done)
                except OSError as error:
                    raise self.damage_error(str(error.strerror or error)) from error
                if not got:
                    raise self.damage_error(f"the file ends at byte {at + done:,}")
                view[done : done + len(got)] = got
                done += len(got)
        return out

    def damage_error(self, how: str) -> StateFormatError:
        """Return an error that reports damaged rows on disk and gives the reason `how`."""
        return StateFormatError(
            f"rows that were spilled to {self.folder} are damaged: {how}; the result cannot be computed without these "
            f"rows: check the disk, or choose another folder, and count the log again"
        )


def bytes_of(array: Array) -> memoryview:
    """Return a view of the memory of an array as bytes, without copying the array."""
    return array.reshape(-1).view(np.uint8).data


def write_at(file: int, data: memoryview, at: int) -> int:
    """Write `data` to a file descriptor at the offset `at`, and return the number of bytes written."""
    return os.pwrite(file, data, at)


def read_at(file: int, size: int, at: int) -> bytes:
    """Read up to `size` bytes from a file descriptor at the offset `at`."""
    return os.pread(file, size, at)


class _SpillErrors:
    """A context manager that converts an OSError to a MemoryLimitError, whose message contains advice."""

    def __init__(self, folder: str, advice: str) -> None:
        self.folder, self.advice = folder, advice

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, OSError):
            raise MemoryLimitError(
                f"rows cannot be spilled to {self.folder}: {error.strerror or error}; nothing was counted; "
                f"{self.advice}"
            ) from error


class SpilledRows(NamedTuple):
    """The location of rows in a file, and the checksums to verify them.

    The rows are stored column by column. In each column, they are sorted by partition; a hash of the group selects the
    partition of a row.

    Parameters
    ----------
    file : SpillFile
        The file that contains the rows.
    dtypes : dict of str to dtype
        The dtype of each column; group IDs of two 64-bit words have a subarray dtype.
    places : dict of str to int
        The offset of each column in the file.
    starts : int64 array
        The index of the first row of each partition, followed by the number of rows.
    sums : uint32 array
        The checksum of each partition, computed over all columns.
    """

    file: SpillFile
    dtypes: dict[str, Any]
    places: dict[str, int]
    starts: Array
    sums: Array

    def read(self, p: int) -> RawRows:
        """Return the rows of partition `p`; raise StateFormatError if they do not match their checksum."""
        first, end, check, out = int(self.starts[p]), int(self.starts[p + 1]), 0, {}
        for name, dtype in self.dtypes.items():
            data = self.file.read(self.places[name] + first * dtype.itemsize, (end - first) * dtype.itemsize)
            check = zlib.crc32(data, check)
            out[name] = np.frombuffer(data, dtype)
        if check != int(self.sums[p]):
            raise self.file.damage_error("a checksum is wrong")
        return out


@dataclass(frozen=True)
class Spill:
    """The rows that exceed the memory limit and are therefore on disk.

    A spill is immutable: `append_rows` returns a new spill that also contains the new rows, in the same file if
    possible.

    Parameters
    ----------
    folder : str
        The folder in which files are created.
    runs : tuple of SpilledRows
        The locations of the rows in files, one object for each block of rows that was written.
    rows, positives : int
        The numbers of rows and positives.
    weight : float
        The total weight of the rows.
    """

    folder: str
    runs: tuple[SpilledRows, ...] = ()
    rows: int = 0
    positives: int = 0
    weight: float = 0.0

    PARTS: ClassVar[int] = 1 << BITS

    def append_rows(self, raws: Sequence[RawRows]) -> Spill:
        """Write rows to a file, and return a spill with the rows of this spill and the new rows.

        Raises
        ------
        MemoryLimitError
            The rows cannot be written, for example because the disk is full. Rows that are already on disk are
            unchanged.
        """
        last = self.runs[-1] if self.runs else None
        is_own_file = last is not None and last.file.process == os.getpid() and not last.file.file.closed
        file = last.file if last is not None and is_own_file else SpillFile(self.folder)
        layouts: list[tuple[dict[str, Any], Array, Array]] = []

        def batches() -> Iterator[list[Array]]:
            for raw in raws:
                # Partitioning copies rows, so partition only ROWS rows at a time.
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
        """Return the rows of partition `p`, as one dict of columns for each block that was written."""
        return [run.read(p) for run in self.runs]

    def close(self) -> None:
        """Close the files and free their disk space."""
        for run in self.runs:
            run.file.close()


def spill_rows(folder: str, raws: Sequence[RawRows], before: tuple[Spill, ...]) -> tuple[Spill, ...]:
    """Write rows to a file in a folder, and return `before`, the existing spills, with these rows added.

    If writing fails, raise an error and change nothing.
    """
    raws = [r for r in concat_by_layout(raws) if len(r["labels"])]
    if not raws:
        return before
    same_folder = bool(before) and before[-1].folder == folder
    return (*before[:-1], before[-1].append_rows(raws)) if same_folder else (*before, Spill(folder).append_rows(raws))


def partition_reader(raw: RawRows) -> Callable[[int], RawRows]:
    """Partition rows in memory, and return a function that maps the index of a partition to its rows."""
    ordered, starts = partition_rows(raw, hashes_of(raw["ids"], SALT), BITS)
    return lambda p: {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}


def concat_by_layout(raws: Sequence[RawRows]) -> list[RawRows]:
    """Concatenate all blocks of rows that have the same layout (see `row_layout`)."""
    alike: dict[tuple[Any, ...], list[RawRows]] = {}
    for raw in raws:
        alike.setdefault(row_layout(raw), []).append(raw)
    return [
        some[0] if len(some) == 1 else {n: np.concatenate([r[n] for r in some]) for n in some[0]}
        for some in alike.values()
    ]


def row_layout(rows: Mapping[str, Array]) -> tuple[Any, ...]:
    """Return the name, dtype and number of dimensions of each column. Rows can be concatenated only if these agree."""
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
