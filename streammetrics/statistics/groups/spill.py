"""Rows on disk, by partition, in a file without a name.

The file is unlinked as soon as it is open: the system takes the disk back when the last process that has it open
ends, however it ends. So nothing is left behind by a signal, and a forked child takes nothing away: it reads what its
parent wrote, and writes to a file of its own.
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
from .solve import Raw, hashes_of, partitioned

__all__ = ["Spill", "SpillFile", "SpilledRows", "joined", "kind_of_rows", "written"]

Array = NDArray[Any]
SALT = 0x5350494C4C000001  # for ever
BITS = 8  # of the hash: 256 partitions
PIECE = 1 << 26  # bytes written at a time
ROWS = 1 << 22  # rows that are put in order at a time


class SpillFile:
    """A file that rows are appended to.

    Parameters
    ----------
    folder : str
        Where it lies, without a name.
    advice : str
        What to do where it is full.
    """

    def __init__(self, folder: str, advice: str = "make room, and give the batch again") -> None:
        self.advice = advice
        self.folder, self.process, self.end, self.lock = folder, os.getpid(), 0, threading.Lock()
        with _refused(folder, advice):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.file = tempfile.TemporaryFile(prefix="streammetrics-", dir=folder, buffering=0)  # noqa: SIM115
        self.close = weakref.finalize(self, self.file.close)

    def write(self, batches: Iterable[Sequence[Array]]) -> list[list[int]]:
        """Append batches of arrays; return where each begins. If one cannot be written, the file is as it was."""
        places: list[list[int]] = []
        with self.lock, _refused(self.folder, self.advice):  # copies of an object share a file
            begun = self.end
            try:
                places.extend([self._append(bytes_of(array)) for array in batch] for batch in batches)
            except BaseException:
                self.end = begun
                with suppress(OSError):  # what is there is written over
                    self.file.truncate(begun)
                raise
        return places

    def _append(self, data: memoryview) -> int:
        at, done = self.end, 0
        while done < len(data):
            wrote = put(self.file.fileno(), data[done : done + PIECE], at + done)
            if wrote <= 0:
                raise OSError("nothing was written")
            done += wrote
        self.end = at + done
        return at

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
                try:
                    got = fetch(self.file.fileno(), min(size - done, PIECE), at + done)
                except OSError as error:
                    raise self.damaged(str(error.strerror or error)) from error
                if not got:
                    raise self.damaged(f"the file ends at {at + done:,}")
                view[done : done + len(got)] = got
                done += len(got)
        return out

    def damaged(self, how: str) -> StateFormatError:
        """The error for rows that do not come back as they were written."""
        return StateFormatError(
            f"rows that were spilled to {self.folder} are damaged: {how}; there is no result without them: look at the "
            f"disk, or spill to another folder, and count the log again"
        )


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

    def read(self, p: int) -> Raw:
        """Return the rows of a partition."""
        first, end, check, out = int(self.starts[p]), int(self.starts[p + 1]), 0, {}
        for name, dtype in self.dtypes.items():
            data = self.file.read(self.places[name] + first * dtype.itemsize, (end - first) * dtype.itemsize)
            check = zlib.crc32(data, check)
            out[name] = np.frombuffer(data, dtype)
        if check != int(self.sums[p]):
            raise self.file.damaged("a checksum differs")
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
    runs: tuple[SpilledRows, ...] = ()
    rows: int = 0
    positives: int = 0
    weight: float = 0.0

    PARTS: ClassVar[int] = 1 << BITS

    def written(self, raws: Sequence[Raw]) -> Spill:
        """Append rows of several kinds.

        Raises
        ------
        MemoryLimitError
            The disk does not take them; what was written before is as it was.
        """
        last = self.runs[-1] if self.runs else None
        mine = last is not None and last.file.process == os.getpid() and not last.file.file.closed
        file = last.file if last is not None and mine else SpillFile(self.folder)
        layouts: list[tuple[dict[str, Any], Array, Array]] = []

        def batches() -> Iterator[list[Array]]:
            for raw in raws:
                for start in range(0, len(raw["labels"]), ROWS):  # in pieces: each is copied in order
                    piece = {name: column[start : start + ROWS] for name, column in raw.items()}
                    ordered, starts = partitioned(piece, hashes_of(piece["ids"], SALT), BITS)
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

    def read(self, p: int) -> list[Raw]:
        """Return the rows of a partition, as they were written together."""
        return [run.read(p) for run in self.runs]

    def close(self) -> None:
        """Give the disk back."""
        for run in self.runs:
            run.file.close()


def written(folder: str, raws: Sequence[Raw], before: tuple[Spill, ...]) -> tuple[Spill, ...]:
    """Write rows to a folder, beside those that are on disk; or raise, and change nothing."""
    raws = [r for r in joined(raws) if len(r["labels"])]
    if not raws:
        return before
    mine = bool(before) and before[-1].folder == folder
    return (*before[:-1], before[-1].written(raws)) if mine else (*before, Spill(folder).written(raws))


def split(raw: Raw) -> Callable[[int], Raw]:
    """Return what gives the rows of a partition, of rows in memory."""
    ordered, starts = partitioned(raw, hashes_of(raw["ids"], SALT), BITS)
    return lambda p: {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}


def joined(raws: Sequence[Raw]) -> list[Raw]:
    """Rows of one kind as one."""
    alike: dict[tuple[Any, ...], list[Raw]] = {}
    for raw in raws:
        alike.setdefault(kind_of_rows(raw), []).append(raw)
    return [
        some[0] if len(some) == 1 else {n: np.concatenate([r[n] for r in some]) for n in some[0]}
        for some in alike.values()
    ]


def kind_of_rows(rows: Mapping[str, Array]) -> tuple[Any, ...]:
    """What rows must have in common to lie in one block."""
    return tuple((n, a.dtype.char, a.ndim) for n, a in rows.items())


def _checksums(columns: Sequence[Array], starts: Array) -> Array:
    """The checksum of each partition, over its columns."""
    sums = np.zeros(len(starts) - 1, np.uint32)
    for p, (first, end) in enumerate(itertools.pairwise(starts)):
        check = 0
        for column in columns:
            check = zlib.crc32(bytes_of(column[first:end]), check)
        sums[p] = check
    return sums
