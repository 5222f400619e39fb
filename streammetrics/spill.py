"""Rows on disk, by partition: files in a folder of their own, which is removed with the object that holds it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .arrays import Array

__all__ = ["Spill"]


class Spill:
    """Partition files in a folder of their own.

    Parameters
    ----------
    folder : str, optional
        Where the folder is made; the system's temporary one by default.
    """

    PARTS = 256

    def __init__(self, folder: str | None) -> None:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self.root = Path(tempfile.mkdtemp(prefix="streammetrics-", dir=folder))
        self.close = weakref.finalize(self, shutil.rmtree, self.root, True)
        self.prefixes: set[str] = set()
        self.rows = self.positives = 0

    def split(self, columns: Mapping[str, Array], hashes: NDArray[np.uint64]) -> Callable[[int], dict[str, Array]]:
        """Return what gives the rows of a partition."""
        from .kernels.groups import partition_rows

        order, starts = np.empty(len(hashes), np.int64), np.zeros(self.PARTS + 1, np.int64)
        partition_rows(hashes, 8, order, starts)
        ordered = {name: column[order] for name, column in columns.items()}
        return lambda p: {name: column[starts[p] : starts[p + 1]] for name, column in ordered.items()}

    def write(self, prefix: str, columns: Mapping[str, Array], hashes: NDArray[np.uint64]) -> None:
        """Append rows to the files of their partitions."""
        part = self.split(columns, hashes)
        for p in range(self.PARTS):
            for name, rows in part(p).items():
                if len(rows):
                    with self._path(prefix, p, name).open("ab") as file:
                        rows.tofile(file)
        self.prefixes.add(prefix)
        self.rows += len(hashes)
        self.positives += int(columns["labels"].sum())

    def read(self, p: int) -> list[dict[str, Array]]:
        """Return the rows of a partition, by what they are."""
        return [self._read(prefix, p) for prefix in sorted(self.prefixes) if self._path(prefix, p, "ids").exists()]

    def _read(self, prefix: str, p: int) -> dict[str, Array]:
        width, dtype, weighted = prefix.split(":")
        types = {"ids": "i8", "scores": dtype, "labels": "u1"} | ({"weights": "f8"} if weighted == "1" else {})
        found = {name: np.fromfile(self._path(prefix, p, name), kind) for name, kind in types.items()}
        if width == "2":
            found["ids"] = found["ids"].reshape(-1, 2)
        return found

    def _path(self, prefix: str, p: int, name: str) -> Path:
        return self.root / f"{p:03}-{prefix.replace(':', '_')}-{name}"

    def take(self, other: Spill) -> None:
        """Append what another one holds."""
        for file in other.root.iterdir():
            with (self.root / file.name).open("ab") as to, file.open("rb") as source:
                shutil.copyfileobj(source, to, 1 << 20)
        self.prefixes |= other.prefixes
        self.rows += other.rows
        self.positives += other.positives
