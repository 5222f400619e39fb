"""Which cell each row belongs to: once for each combination of axes, however many statistics share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.cells import locate, locate_group, locate_small, shard_cells
from ..state.axes import Axis, Vocabulary
from ..statistics.step import NOTHING
from .key_codes import KeyNumbers, longer

__all__ = ["Index"]

Ints = NDArray[np.int64]
Codes = Callable[[str, Axis], Ints]

MOST = 1 << 23  # places of a table of all codes that there could be
Path = tuple[tuple[str, Axis], ...]  # columns, outermost first, each with the axis it belongs to


class Level:
    """The cells by the columns so far: each has a cell of the level above, and a code.

    While the table is written to it is in doubt: should an interrupt come then, it is made again, of the cells that count.
    """

    def __init__(self, words: int = 1) -> None:
        self.words, self.count, self.doubt = words, 0, False
        self.parents, self.codes = np.empty(64, np.int64), np.empty(64 * words, np.int64)
        self.low, self.extent = 0, 1 if words == 1 else 0  # of codes, while a table of all is small
        self.table = np.full(256, -1, np.int32)
        self.shards: tuple[Any, Ints] = None, self.codes[:0]  # of shards, the cell of each while the table is this one

    def locate(self, above: Ints, parents: int, codes: Ints) -> Ints:
        """Return the cell of each row; `above` is empty where there is one cell above."""
        out = np.empty(len(codes), np.int64)
        if not len(codes):
            return out
        if self.doubt:
            own = self.codes[: self.count] if self.words == 1 and self.count else np.zeros(1, np.int64)
            self._span(int(own.min()), int(own.max()) + 1, parents)
        self.doubt = True
        count = self._locate(above, parents, codes, out)
        self.count, self.doubt = count, False
        return out

    def _locate(self, above: Ints, parents: int, codes: Ints, out: Ints) -> int:
        if self.words == 2:
            return self._by_group(above, codes, out)
        if self.extent:
            self._widen(int(codes.min()), int(codes.max()), parents)
        if self.extent:
            self._reserve(min(self.count + len(codes), len(self.table)))
            found: int = locate_small(
                above, codes, self.low, self.extent, self.table, self.parents, self.codes, self.count, out
            )
            return found
        while (found := locate(above, codes, self.table, self.parents, self.codes, self.count, out)) < 0:
            self.count = -1 - found
            self._rebuild(4 * len(self.table))
        return found

    def _by_group(self, above: Ints, ids: Ints, out: Ints) -> int:
        found: int
        left, right = (ids, NOTHING) if ids.ndim == 1 else (np.ascontiguousarray(ids[:, i]) for i in range(2))
        while (found := locate_group(above, left, right, self.table, self.parents, self.codes, self.count, out)) < 0:
            self.count = -1 - found
            self._rebuild(4 * len(self.table))
        return found

    def _widen(self, low: int, high: int, parents: int) -> None:
        """Make the table of all codes span these, or give it up for one of hashes."""
        first = low if not self.count else self.low
        low, high = min(low, first), max(high + 1, first + self.extent)
        if low == self.low and high == low + self.extent and parents * self.extent <= len(self.table):
            return
        if high - low > self.extent:  # with room to spare
            high += (high - low) // 2
        self._span(low, high, parents + parents // 2)

    def _span(self, low: int, high: int, parents: int) -> None:
        """Number the cells in a table of all codes from one to another, or, were that too large, of hashes."""
        self.low, self.extent = low, high - low
        if self.words == 2 or parents * self.extent > MOST:
            self.extent = 0
        self._rebuild(parents * self.extent or 1 << (4 * self.count + 256).bit_length())

    def _reserve(self, cells: int) -> None:
        self.parents = longer(self.parents, cells, self.count)
        self.codes = longer(self.codes, self.words * cells, self.words * self.count)

    def _rebuild(self, size: int) -> None:
        """Number the same cells in a new table."""
        self._reserve(min(size, 2 * self.count + 64) if self.extent else size // 2)
        n = self.count
        parents, codes = self.parents[:n].copy(), self.codes[: self.words * n].copy()
        self.table, out = np.full(max(size, 1), -1, np.int32), np.empty(n, np.int64)
        if not n:
            return
        if self.words == 2:
            left, right = np.ascontiguousarray(codes[::2]), np.ascontiguousarray(codes[1::2])
            locate_group(parents, left, right, self.table, self.parents, self.codes, 0, out)
        elif self.extent:
            locate_small(parents, codes, self.low, self.extent, self.table, self.parents, self.codes, 0, out)
        else:
            locate(parents, codes, self.table, self.parents, self.codes, 0, out)

    def truncate(self, count: int) -> None:
        """Forget the newest cells."""
        if count < self.count:
            self.doubt = True
            self.count = count

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.table.nbytes + self.parents.nbytes + self.codes.nbytes


class Index:
    """The cells of all rows. A path of columns, outermost first, leads to a cell; the empty one to the only one."""

    def __init__(self) -> None:
        self.levels: dict[Any, Level] = {}
        self.keys: dict[Any, KeyNumbers] = {}
        self._cells = np.empty(0, np.int64)

    def numbers(self, name: str, kind: str = "key") -> KeyNumbers:
        """The numbers of the keys of a column, on an axis of a kind."""
        if (kind, name) not in self.keys:
            self.keys[kind, name] = KeyNumbers(name)
        return self.keys[kind, name]

    def count(self, path: Any) -> int:
        """How many cells there are."""
        if not path:
            return 1
        return self.levels[path].count if path in self.levels else 0

    def locate(self, path: Any, codes: Callable[[Any], Ints], made: dict[Any, Ints]) -> Ints:
        """Return the cell of each row; `codes` gives the numbers of a column, `made` keeps what was found for a batch."""
        if not path:
            return NOTHING
        if path not in made:
            above = self.locate(path[:-1], codes, made)
            if path not in self.levels:
                self.levels[path] = Level(2 if path[-1][1].kind == "group" else 1)
            made[path] = self.levels[path].locate(above, max(self.count(path[:-1]), 1), codes(path[-1]))
        return made[path]

    def shards(self, path: Any, units: Ints, salt: Any) -> Ints | None:
        """The cell of each unit, where shards are the only axis; None if one is new, or might be: locate them.

        What is returned is good until the next call.
        """
        level = self.levels.get(path)
        if level is None or level.doubt:
            return None
        held, cells = level.shards
        if held is not level.table or len(cells) != path[0][1].size or cells.max() + 1 != level.count:
            cells = np.full(path[0][1].size, -1, np.int64)
            cells[level.codes[: level.count]] = np.arange(level.count)
            level.shards = level.table, cells
        if len(self._cells) < len(units):
            self._cells = np.empty(len(units), np.int64)
        out = self._cells[: len(units)]
        return None if shard_cells(units, salt, cells, out) else out

    def codes(self, path: Any) -> Ints:
        """The codes that lead to each cell, a column for each column of the path."""
        if not path:
            return np.zeros((1, 0), np.int64)
        level = self.levels.get(path)
        if level is None:
            return np.zeros((0, sum(2 if a.kind == "group" else 1 for _, a in path)), np.int64)
        own = level.codes[: level.words * level.count].reshape(level.count, level.words)
        return np.column_stack([self.codes(path[:-1])[level.parents[: level.count]], own])

    def parents(self, path: Any) -> Ints:
        """The cell above each cell."""
        level = self.levels.get(path)
        return np.zeros(0, np.int64) if level is None else level.parents[: level.count]

    def mark(self) -> Any:
        """What to come back to with `restore`."""
        return {p: level.count for p, level in self.levels.items()}, {n: k.kind for n, k in self.keys.items()}

    def restore(self, mark: Any) -> None:
        """Forget the cells, and kinds of keys, that were met since."""
        counts, kinds = mark
        for path, level in self.levels.items():
            level.truncate(counts.get(path, 0))
        for name, keys in self.keys.items():
            keys.kind = kinds.get(name, "")

    def ranked(self, names: list[str], codes: Ints) -> tuple[tuple[Vocabulary, ...], Ints]:
        """Return the vocabulary of each column, and keys as ranks in them."""
        out, words = np.empty_like(codes), []
        for i, name in enumerate(names):
            vocabulary, out[:, i] = self.numbers(name).ranked(codes[:, i])
            words.append(vocabulary)
        return tuple(words), out

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(level.nbytes for level in self.levels.values())
