"""The content of a state: one table of cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .axes import Axis, Vocabulary
from .declare import Array
from .tally import Entries

__all__ = ["Cells"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells and what they hold, in canonical form.

    Parameters
    ----------
    axes : tuple of Axis
        What front cells are told apart by.
    keys : int64 of shape (front cells, columns)
        Sorted and unique: for each column of each axis the rank of its key, or a mark below zero.
    words : tuple of Vocabulary
        The keys of each column.
    inner : int64 of shape (cells, 1 + columns), optional
        Of a statistic that brings axes itself (groups, classes): the front cell, and the key behind it; sorted, unique.
    behind : Vocabulary, optional
        The classes behind front cells.
    flats : mapping of str to array
        A row for every cell (front cell, if so declared); optional parts are absent while they say nothing.
    tallies : mapping of str to Entries
        The entries of all cells.
    """

    axes: tuple[Axis, ...]
    keys: Ints
    words: tuple[Vocabulary, ...]
    inner: Ints | None
    behind: Vocabulary | None
    flats: Mapping[str, Array]
    tallies: Mapping[str, Entries]

    def __len__(self) -> int:
        return len(self.keys) if self.inner is None else len(self.inner)

    @property
    def fronts(self) -> int:
        """How many front cells there are."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, vocabularies left out."""
        held = [self.keys, *self.flats.values(), *([] if self.inner is None else [self.inner])]
        return sum(a.nbytes for a in held) + sum(e.nbytes for e in self.tallies.values())

    @property
    def columns(self) -> list[str]:
        """The column of each number of a key."""
        return [n for a in self.axes for n in a.names]
