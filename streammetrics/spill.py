"""Rows on disk, by partition: one file in a folder of its own, which is removed with the object that holds it."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .group_rows import partitioned

__all__ = ["Spill"]

BITS = 8  # of the hash: 256 partitions


class Run(NamedTuple):
    """Rows that were written together: column after column, each by partition.

    Parameters
    ----------
    dtypes : dict of str to dtype
        The columns; those with a shape of their own are rows of several.
    places : dict of str to int
        Where in the file each column begins.
    starts : int64 array
        The row at which each partition begins, and where the last one ends.
    """

    dtypes: dict[str, np.dtype[np.generic]]
    places: dict[str, int]
    starts: NDArray[np.int64]


class Spill:
    """A file of rows by partition.

    Parameters
    ----------
    folder : str, optional
        Where a folder for it is made; the system's temporary one by default.
    """

    PARTS = 1 << BITS

    def __init__(self, folder: str | None) -> None:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self.root = Path(tempfile.mkdtemp(prefix="streammetrics-", dir=folder))
        self.file: IO[bytes] = (self.root / "rows").open("w+b", buffering=0)
        self.close = weakref.finalize(self, _remove, self.file, self.root)
        self.lock = threading.Lock()
        self.runs: list[Run] = []
        self.rows = self.positives = 0

    def split(self, columns: Mapping[str, Array], hashes: NDArray[np.uint64]) -> Callable[[int], dict[str, Array]]:
        """Return what gives the rows of a partition."""
        ordered, starts = partitioned(columns, hashes, BITS)
        return lambda p: {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}

    def write(self, columns: Mapping[str, Array], hashes: NDArray[np.uint64]) -> None:
        """Append rows."""
        ordered, starts = partitioned(columns, hashes, BITS)
        dtypes: dict[str, np.dtype[np.generic]] = {}
        places = {}
        for name, column in ordered.items():
            dtypes[name] = np.dtype((column.dtype, column.shape[1:]))
            places[name] = self.file.seek(0, 2)
            column.tofile(self.file)
        self.runs.append(Run(dtypes, places, starts))
        self.rows += len(hashes)
        self.positives += int(columns["labels"].sum())

    def read(self, p: int) -> list[dict[str, Array]]:
        """Return the rows of a partition, as they were written together; threads take turns."""
        with self.lock:
            return [{name: self._read(run, name, p) for name in run.dtypes} for run in self.runs]

    def _read(self, run: Run, name: str, p: int) -> Array:
        dtype, first, end = run.dtypes[name], int(run.starts[p]), int(run.starts[p + 1])
        self.file.seek(run.places[name] + first * dtype.itemsize)
        return np.fromfile(self.file, dtype, end - first)

    def take(self, other: Spill) -> None:
        """Append what another one holds."""
        shift = self.file.seek(0, 2)
        other.file.seek(0)
        shutil.copyfileobj(other.file, self.file, 1 << 20)
        self.runs += [run._replace(places={n: at + shift for n, at in run.places.items()}) for run in other.runs]
        self.rows += other.rows
        self.positives += other.positives


def _remove(file: IO[bytes], root: Path) -> None:
    file.close()
    shutil.rmtree(root, ignore_errors=True)
