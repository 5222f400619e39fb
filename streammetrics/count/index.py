"""The cell of each row, found once for each combination of axes, however many statistics share it.

A path such as (country, device) is a chain of levels. A level maps (cell of the level above, code of the key) to a cell
number; cells are numbered in order of first appearance. While few combinations are possible, the map is a plain table
with a place for each; otherwise it is a hash table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.cells import find_cells, find_cells_by_id, find_cells_in_range, find_shard_cells
from ..state.axes import Axis, Vocabulary
from ..statistics.step import NOTHING
from .key_codes import KeyCodes, ensure_capacity

__all__ = ["Index", "encode_keys", "locate_keys", "rank_keys"]

Ints = NDArray[np.int64]
Codes = Callable[[str, Axis], Ints]

# The largest plain table, in places. Levels with more possible cells use a hash table.
MAX_TABLE_SIZE = 1 << 23
# The columns that identify a cell, outermost first, each with its axis.
Path = tuple[tuple[str, Axis], ...]


class Level:
    """The cells of one level: for each, the cell above and its code, and a table that maps these two to the cell.

    `count` is the number of valid cells; it is set last. `is_stale` is True while the table is written. After an interrupt
    during that time, the next call builds the table again from the first `count` cells.

    Parameters
    ----------
    words : int
        The number of int64 words of a code: 1, or 2 for ids of groups.
    """

    def __init__(self, words: int = 1) -> None:
        self.words, self.count, self.is_stale = words, 0, False
        self.parents, self.codes = np.empty(64, np.int64), np.empty(64 * words, np.int64)
        # A plain table has a place for each parent and each code from `low` to `low + extent`; an extent of 0 means a
        # hash table.
        self.low, self.extent = 0, 1 if words == 1 else 0
        self.table = np.full(256, -1, np.int32)
        # This serves levels of shards: the cell of each shard, and the table from which it was computed.
        self.shards: tuple[Any, Ints] = None, self.codes[:0]

    def locate(self, above: Ints, parents: int, codes: Ints) -> Ints:
        """Return the cell of each row.

        Parameters
        ----------
        above : int64 array
            The cell of each row on the level above; empty if that level has one cell.
        parents : int
            The number of cells on the level above.
        codes : int64 array
            The code of each row.
        """
        out = np.empty(len(codes), np.int64)
        if not len(codes):
            return out
        if self.is_stale:
            own = self.codes[: self.count] if self.words == 1 and self.count else np.zeros(1, np.int64)
            self._span(int(own.min()), int(own.max()) + 1, parents)
        self.is_stale = True
        count = self._locate(above, parents, codes, out)
        self.count, self.is_stale = count, False
        return out

    def _locate(self, above: Ints, parents: int, codes: Ints, out: Ints) -> int:
        if self.words == 2:
            return self._locate_groups(above, codes, out)
        if self.extent:
            self._widen(int(codes.min()), int(codes.max()), parents)
        if self.extent:
            self._reserve(min(self.count + len(codes), len(self.table)))
            cells: int = find_cells_in_range(
                above, codes, self.low, self.extent, self.table, self.parents, self.codes, self.count, out
            )
            return cells
        # A negative result means that the table is full: -1 minus the number of cells so far.
        while (cells := find_cells(above, codes, self.table, self.parents, self.codes, self.count, out)) < 0:
            self.count = -1 - cells
            self._rebuild(4 * len(self.table))
        return cells

    def _locate_groups(self, above: Ints, ids: Ints, out: Ints) -> int:
        cells: int
        left, right = (ids, NOTHING) if ids.ndim == 1 else (np.ascontiguousarray(ids[:, i]) for i in range(2))
        while (
            cells := find_cells_by_id(above, left, right, self.table, self.parents, self.codes, self.count, out)
        ) < 0:
            self.count = -1 - cells
            self._rebuild(4 * len(self.table))
        return cells

    def _widen(self, low: int, high: int, parents: int) -> None:
        """Extend the plain table to these codes, or replace it by a hash table."""
        first = low if not self.count else self.low
        low, high = min(low, first), max(high + 1, first + self.extent)
        if low == self.low and high == low + self.extent and parents * self.extent <= len(self.table):
            return
        # Some spare room avoids a rebuild for the next new code.
        if high - low > self.extent:
            high += (high - low) // 2
        self._span(low, high, parents + parents // 2)

    def _span(self, low: int, high: int, parents: int) -> None:
        """Build a plain table for the codes from `low` to `high`, or a hash table if that is too large."""
        self.low, self.extent = low, high - low
        if self.words == 2 or parents * self.extent > MAX_TABLE_SIZE:
            self.extent = 0
        self._rebuild(parents * self.extent or 1 << (4 * self.count + 256).bit_length())

    def _reserve(self, cells: int) -> None:
        self.parents = ensure_capacity(self.parents, cells, self.count)
        self.codes = ensure_capacity(self.codes, self.words * cells, self.words * self.count)

    def _rebuild(self, size: int) -> None:
        """Insert the same cells in a new table, where they keep their numbers."""
        self._reserve(min(size, 2 * self.count + 64) if self.extent else size // 2)
        n = self.count
        parents, codes = self.parents[:n].copy(), self.codes[: self.words * n].copy()
        self.table, out = np.full(max(size, 1), -1, np.int32), np.empty(n, np.int64)
        if not n:
            return
        if self.words == 2:
            left, right = np.ascontiguousarray(codes[::2]), np.ascontiguousarray(codes[1::2])
            find_cells_by_id(parents, left, right, self.table, self.parents, self.codes, 0, out)
        elif self.extent:
            find_cells_in_range(parents, codes, self.low, self.extent, self.table, self.parents, self.codes, 0, out)
        else:
            find_cells(parents, codes, self.table, self.parents, self.codes, 0, out)

    def truncate(self, count: int) -> None:
        """Remove the newest cells, so that `count` cells remain."""
        if count < self.count:
            self.is_stale = True
            self.count = count

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.table.nbytes + self.parents.nbytes + self.codes.nbytes


class Index:
    """The cells of all paths of columns; the empty path has a single cell."""

    def __init__(self) -> None:
        self.levels: dict[Any, Level] = {}
        self.keys: dict[Any, KeyCodes] = {}
        self._cells = np.empty(0, np.int64)

    def key_codes(self, name: str, kind: str = "key") -> KeyCodes:
        """Return the codes of the keys of a column on an axis of this kind."""
        if (kind, name) not in self.keys:
            self.keys[kind, name] = KeyCodes(name)
        return self.keys[kind, name]

    def count(self, path: Any) -> int:
        """Return the number of cells of a path."""
        if not path:
            return 1
        return self.levels[path].count if path in self.levels else 0

    def locate(self, path: Any, codes: Callable[[Any], Ints], cache: dict[Any, Ints]) -> Ints:
        """Return the cell of each row.

        Parameters
        ----------
        path : Path
            The columns that lead to the cells.
        codes : callable
            Returns the code of each row for a (column, axis) of the path.
        cache : dict
            The cells of each path in this batch, which paths with a common beginning share.
        """
        if not path:
            return NOTHING
        if path not in cache:
            above = self.locate(path[:-1], codes, cache)
            if path not in self.levels:
                self.levels[path] = Level(2 if path[-1][1].kind == "group" else 1)
            cache[path] = self.levels[path].locate(above, max(self.count(path[:-1]), 1), codes(path[-1]))
        return cache[path]

    def shards(self, path: Any, units: Ints, salt: Any) -> Ints | None:
        """Return the cell of each unit if shards are the only axis; None if a cell may be new.

        The result is valid until the next call, which overwrites it. After None, use `locate`.
        """
        level = self.levels.get(path)
        if level is None or level.is_stale:
            return None
        # The cells of shards are looked up in an array, which is made again after the table or the cells have changed.
        table, cells = level.shards
        if table is not level.table or len(cells) != path[0][1].size or cells.max() + 1 != level.count:
            cells = np.full(path[0][1].size, -1, np.int64)
            cells[level.codes[: level.count]] = np.arange(level.count)
            level.shards = level.table, cells
        if len(self._cells) < len(units):
            self._cells = np.empty(len(units), np.int64)
        out = self._cells[: len(units)]
        return None if find_shard_cells(units, salt, cells, out) else out

    def codes(self, path: Any) -> Ints:
        """Return the codes that identify each cell: a matrix with a row per cell and a column per level of the path."""
        if not path:
            return np.zeros((1, 0), np.int64)
        level = self.levels.get(path)
        if level is None:
            return np.zeros((0, sum(2 if a.kind == "group" else 1 for _, a in path)), np.int64)
        own = level.codes[: level.words * level.count].reshape(level.count, level.words)
        return np.column_stack([self.codes(path[:-1])[level.parents[: level.count]], own])

    def parents(self, path: Any) -> Ints:
        """Return the parent of each cell on the level above."""
        level = self.levels.get(path)
        return np.zeros(0, np.int64) if level is None else level.parents[: level.count]

    def mark(self) -> Any:
        """Return the numbers of cells and the kinds of keys, for `restore`."""
        return {p: level.count for p, level in self.levels.items()}, {n: k.kind for n, k in self.keys.items()}

    def restore(self, mark: Any) -> None:
        """Remove the cells and kinds of keys that were added after `mark`."""
        counts, kinds = mark
        for path, level in self.levels.items():
            level.truncate(counts.get(path, 0))
        for name, keys in self.keys.items():
            keys.kind = kinds.get(name, "")

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(level.nbytes for level in self.levels.values())


def encode_keys(index: Index, name: str, axis: Axis, words: Vocabulary, ranks: Ints) -> Ints:
    """Return the codes of the keys of a finished state; negative marks such as NULL stay."""
    # A shard is its own code.
    if axis.kind == "shard":
        codes = np.asarray(words.values, np.int64)
        if len(codes):
            index.key_codes(name, axis.kind).kind = words.kind
    else:
        codes = index.key_codes(name, axis.kind).add_vocabulary(words)
    return np.where(ranks < 0, ranks, codes[np.maximum(ranks, 0)]) if len(codes) else ranks


def locate_keys(index: Index, path: Any, codes: Ints, above: Ints, first: int = 0) -> Ints:
    """Return the cell of each key; each column of `codes` is one level of the path, starting at level `first`."""
    if len(path) <= first:
        return above
    at = above if first else above[:0]
    step = first
    while step < len(path):
        column = step - first
        name_axis = path[step]
        wide = name_axis[1].kind == "group"
        column_codes = codes if wide else np.ascontiguousarray(codes[:, column])
        cache: dict[Any, Ints] = {path[:step]: at} if step else {}
        at = index.locate(path[: step + 1], _constant(column_codes), cache)
        step += 1
    return at


def _constant(codes: Ints) -> Callable[[Any], Ints]:
    return lambda _: codes


def rank_keys(index: Index, path: Any, codes: Ints) -> tuple[tuple[Vocabulary, ...], Ints]:
    """Return the vocabulary of each column, and the keys as ranks in these vocabularies."""
    out, words = np.empty_like(codes), []
    for i, (name, axis) in enumerate(path):
        if axis.kind != "shard":
            vocabulary, out[:, i] = index.key_codes(name, axis.kind).rank_codes(codes[:, i])
        else:
            vocabulary = Vocabulary.from_values(index.key_codes(name, axis.kind).kind, codes[:, i][codes[:, i] >= 0])
            out[:, i] = np.where(codes[:, i] < 0, codes[:, i], vocabulary.find_ranks(np.maximum(codes[:, i], 0)))
        words.append(vocabulary)
    return tuple(words), out
