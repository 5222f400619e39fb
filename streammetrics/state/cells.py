"""The content of a state: one table of cells.

Each front cell contains the rows with one combination of keys, such as the rows of one country and hour. A statistic of
groups or classes also has an inner axis, which divides each front cell into inner cells, one for each group or class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .axes import Axis, Vocabulary
from .declare import Array
from .tally import Entries

__all__ = ["Cells"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """A table of cells in canonical form: tables with equal content have equal arrays.

    Parameters
    ----------
    axes : tuple of Axis
        The axes that separate the front cells.
    keys : int64 of shape (front cells, columns)
        The key of each front cell. For each column of each axis, it contains the rank of the value, or a negative
        number for a missing or dropped key (see the module `axes`). Keys are sorted and unique.
    vocabularies : tuple of Vocabulary
        The distinct keys of each column, sorted.
    inner_keys : int64 of shape (cells, 1 + columns), optional
        The key of each inner cell, if the statistic has an inner axis: the index of its front cell, followed by its
        group or its classes. Keys are sorted and unique.
    class_vocabulary : Vocabulary, optional
        The classes, if the statistic has an inner axis of classes.
    flats : mapping of str to array
        The arrays with a fixed number of values per cell, by name. An array has one row for each cell, or for each
        front cell if its part is declared with `front`. An optional array that adds no information is absent.
    tallies : mapping of str to Entries
        The histograms of all cells, by name, as sorted entries: one for each cell and each bucket with rows in it.
    """

    axes: tuple[Axis, ...]
    keys: Ints
    vocabularies: tuple[Vocabulary, ...]
    inner_keys: Ints | None
    class_vocabulary: Vocabulary | None
    flats: Mapping[str, Array]
    tallies: Mapping[str, Entries]

    def __len__(self) -> int:
        return len(self.keys) if self.inner_keys is None else len(self.inner_keys)

    @property
    def front_count(self) -> int:
        """The number of front cells (such as slices), each of which contains the rows with one key."""
        return len(self.keys)

    def find_cells(self, key: Sequence[Any]) -> Ints:
        """Return the ascending indices of the front cells (such as slices) whose keys begin with the values in `key`.

        The values have the form in which users pass them. If no key begins with them, the result is empty.
        """
        first, last = 0, len(self.keys)
        for i, value in enumerate(key):
            rank = self.vocabularies[i].find_rank(value)
            if rank is None:
                return np.arange(0)
            # Keys are sorted, so cells with the same values in all columns up to this one are adjacent.
            ranks = self.keys[first:last, i]
            first, last = first + int(ranks.searchsorted(rank)), first + int(ranks.searchsorted(rank, "right"))
        return np.arange(first, last)

    @property
    def nbytes(self) -> int:
        """The memory that the arrays use, in bytes, not including the vocabularies."""
        arrays = [self.keys, *self.flats.values(), *([] if self.inner_keys is None else [self.inner_keys])]
        return sum(a.nbytes for a in arrays) + sum(e.nbytes for e in self.tallies.values())

    @property
    def column_names(self) -> list[str]:
        """The names of the columns whose values make up a key, in order."""
        return [n for a in self.axes for n in a.names]
