"""The index, which finds the cell (such as a slice) of each row.

The cells are found once for each combination of axes, even if many states use it.

A path such as (country, device) is a chain of levels. Each level maps the pair (cell of the level above, code of the
key) to a cell. Cells are numbered in order of first appearance. While few pairs are possible, a level is a plain table
with an element for each possible pair. Otherwise it is a hash table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.cells import find_cells, find_cells_by_id, find_cells_in_range, find_shard_cells
from ..state.axes import Axis, Vocabulary
from ..statistics.step import NOTHING
from .key_codes import DictionaryCodes, KeyCodes, ensure_capacity

__all__ = ["Index", "encode_keys", "locate_keys", "rank_keys"]

Ints = NDArray[np.int64]
Codes = Callable[[str, Axis], Ints]

# The maximum number of elements in a plain table. A level with more possible pairs (parent cell, code) uses a hash
# table.
MAX_TABLE_SIZE = 1 << 23
# The columns that identify a cell (such as a slice), outermost first, each with its axis.
Path = tuple[tuple[str, Axis], ...]


class Level:
    """The cells (such as slices) at one level of a path, which is a sequence of columns.

    For each cell, the level stores its parent (the cell of the level above) and the code of its key. A table maps these
    two numbers to the cell. `count`, the number of valid cells, is updated after the table. `is_stale` is True while
    the table is being written. If an interrupt leaves it True, the next call rebuilds the table from the first `count`
    cells.

    Parameters
    ----------
    words : int
        The number of int64 values in a code: 1, or 2 for group IDs.
    """

    def __init__(self, words: int = 1) -> None:
        self.words, self.count, self.is_stale = words, 0, False
        self.parents, self.codes = np.empty(64, np.int64), np.empty(64 * words, np.int64)
        # A plain table has an element for each parent and each code from `low` to `low + extent - 1`. If `extent` is 0,
        # the table is a hash table.
        self.low, self.extent = 0, 1 if words == 1 else 0
        self.table = np.full(256, -1, np.int32)
        # A cache that is used only for shards. The second item is the cell of each shard, and the first item is the
        # `table` from which these cells were computed.
        self.shards: tuple[Any, Ints] = None, self.codes[:0]

    def locate(self, above: Ints, parents: int, codes: Ints | DictionaryCodes) -> Ints:
        """Return the cell of each row.

        Parameters
        ----------
        above : int64 array
            The cell of each row at the level above; an empty array if that level has only one cell.
        parents : int
            The number of cells at the level above.
        codes : int64 array or DictionaryCodes
            The code of the key of each row.
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

    def _locate(self, above: Ints, parents: int, codes: Ints | DictionaryCodes, out: Ints) -> int:
        if self.words == 2:
            # Group columns have no dictionary, so the codes are an array.
            return self._locate_groups(above, codes, out)  # type: ignore[arg-type]
        distinct, indices = (codes.codes, codes.indices) if isinstance(codes, DictionaryCodes) else (codes, None)
        if self.extent:
            self._widen(int(distinct.min()), int(distinct.max()), parents)
        if self.extent:
            self._reserve(min(self.count + len(codes), len(self.table)))
            how = self.low, self.extent, self.table, self.parents, self.codes, self.count, out
            cells: int = find_cells_in_range(
                above, *((codes, NOTHING) if indices is None else (indices, distinct)), *how
            )
            return cells
        codes = distinct if indices is None else distinct[indices]
        # A negative result, which is -1 minus the number of cells so far, means that the table is full. Enlarge the
        # table and try again.
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
        """Extend the plain table so that it covers these codes and parents, or replace it with a hash table."""
        first = low if not self.count else self.low
        low, high = min(low, first), max(high + 1, first + self.extent)
        if low == self.low and high == low + self.extent and parents * self.extent <= len(self.table):
            return
        # Extend the table by more codes than necessary, so that it need not be rebuilt for each new code.
        if high - low > self.extent:
            high += (high - low) // 2
        self._span(low, high, parents + parents // 2)

    def _span(self, low: int, high: int, parents: int) -> None:
        """Build a plain table for the codes from `low` to `high` (exclusive), or a hash table if it would be too large."""
        self.low, self.extent = low, high - low
        if self.words == 2 or parents * self.extent > MAX_TABLE_SIZE:
            self.extent = 0
        self._rebuild(parents * self.extent or 1 << (4 * self.count + 256).bit_length())

    def _reserve(self, cells: int) -> None:
        self.parents = ensure_capacity(self.parents, cells, self.count)
        self.codes = ensure_capacity(self.codes, self.words * cells, self.words * self.count)

    def _rebuild(self, size: int) -> None:
        """Insert the cells into a new table of the given size. The cells keep their numbers."""
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
            how = self.low, self.extent, self.table, self.parents, self.codes
            find_cells_in_range(parents, codes, NOTHING, *how, 0, out)
        else:
            find_cells(parents, codes, self.table, self.parents, self.codes, 0, out)

    def truncate(self, count: int) -> None:
        """Remove the newest cells, so that only the first `count` cells remain."""
        if count < self.count:
            self.is_stale = True
            self.count = count

    @property
    def nbytes(self) -> int:
        """The memory used by the level, in bytes."""
        return self.table.nbytes + self.parents.nbytes + self.codes.nbytes


class Index:
    """The cells (such as slices) of all paths (sequences of columns).

    A state without axes has the empty path, with a single cell.
    """

    def __init__(self) -> None:
        self.levels: dict[Any, Level] = {}
        self.keys: dict[Any, KeyCodes] = {}
        self._cells = np.empty(0, np.int64)

    def key_codes(self, name: str, kind: str = "key") -> KeyCodes:
        """Return the object that maps the keys of a column to codes, for an axis of the given kind."""
        if (kind, name) not in self.keys:
            self.keys[kind, name] = KeyCodes(name)
        return self.keys[kind, name]

    def count(self, path: Any) -> int:
        """Return the number of cells at the last level of a path."""
        if not path:
            return 1
        return self.levels[path].count if path in self.levels else 0

    def locate(self, path: Any, codes: Callable[[Any], Ints], cache: dict[Any, Ints]) -> Ints:
        """Return the cell of each row.

        Parameters
        ----------
        path : Path
            The columns whose values identify a cell.
        codes : callable
            A function that takes an item of the path (a column and its axis), and returns the code of each row.
        cache : dict
            The cells already found for this batch, keyed by path. Paths with a common prefix share them.
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
        """Return the cell of each unit (such as a user) on a path with only one axis, the shard axis.

        Shards are groups of units. Returns None if a unit may need a new cell; in that case, call `locate`, which
        creates the cell. The result is a buffer that the next call overwrites.
        """
        level = self.levels.get(path)
        if level is None or level.is_stale:
            return None
        # `cells` contains the cell of each shard. Compute it again if the table or the number of cells has changed.
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
        """Return the codes that identify each cell: a matrix with a row for each cell.

        The matrix has one column for each level of the path, or two if the level consists of groups.
        """
        if not path:
            return np.zeros((1, 0), np.int64)
        level = self.levels.get(path)
        if level is None:
            return np.zeros((0, sum(2 if a.kind == "group" else 1 for _, a in path)), np.int64)
        own = level.codes[: level.words * level.count].reshape(level.count, level.words)
        return np.column_stack([self.codes(path[:-1])[level.parents[: level.count]], own])

    def parents(self, path: Any) -> Ints:
        """Return the parent (the cell at the level above) of each cell."""
        level = self.levels.get(path)
        return np.zeros(0, np.int64) if level is None else level.parents[: level.count]

    @property
    def total_cells(self) -> int:
        """The total number of cells in all paths."""
        return sum(level.count for level in self.levels.values())

    def mark(self) -> Any:
        """Return the data that `restore` needs: the number of cells in each path, and the key type of each column."""
        return {p: level.count for p, level in self.levels.items()}, {n: k.kind for n, k in self.keys.items()}

    def restore(self, mark: Any) -> None:
        """Remove all cells that have been added since the call to `mark`, and restore the key types."""
        counts, kinds = mark
        for path, level in self.levels.items():
            level.truncate(counts.get(path, 0))
        for name, keys in self.keys.items():
            keys.kind = kinds.get(name, "")

    @property
    def nbytes(self) -> int:
        """The memory used by all levels, in bytes."""
        return sum(level.nbytes for level in self.levels.values())


def encode_keys(index: Index, name: str, axis: Axis, words: Vocabulary, ranks: Ints) -> Ints:
    """Return the codes of keys that a state stores as ranks in a vocabulary.

    A negative rank stands for a special key, such as a missing one, and is returned unchanged.
    """
    # The code of a shard is its number.
    if axis.kind == "shard":
        codes = np.asarray(words.values, np.int64)
        if len(codes):
            index.key_codes(name, axis.kind).kind = words.kind
    else:
        codes = index.key_codes(name, axis.kind).add_vocabulary(words)
    return np.where(ranks < 0, ranks, codes[np.maximum(ranks, 0)]) if len(codes) else ranks


def locate_keys(index: Index, path: Any, codes: Ints, above: Ints, first: int = 0) -> Ints:
    """Return the cell (such as a slice) of each key on a path.

    Column i of `codes` contains the codes for level `first + i` of the path. `above` is the cell of each key at the
    level before `first`. If `first` is 0, `above` is used only if the path is empty.
    """
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
    """Convert the codes of cells to ranks among the sorted keys of each column; return these keys, and the ranks."""
    out, words = np.empty_like(codes), []
    for i, (name, axis) in enumerate(path):
        if axis.kind != "shard":
            vocabulary, out[:, i] = index.key_codes(name, axis.kind).rank_codes(codes[:, i])
        else:
            vocabulary = Vocabulary.from_values(index.key_codes(name, axis.kind).kind, codes[:, i][codes[:, i] >= 0])
            out[:, i] = np.where(codes[:, i] < 0, codes[:, i], vocabulary.find_ranks(np.maximum(codes[:, i], 0)))
        words.append(vocabulary)
    return tuple(words), out
