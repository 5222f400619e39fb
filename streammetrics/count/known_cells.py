"""A fast lookup of the cells (such as slices) of rows, without preparing their keys.

The lookup works only if all keys are integers or booleans that occurred in earlier rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.cells import find_known_cells
from ..statistics.step import NOTHING
from .index import Index, Level
from .key_codes import KeyCodes

__all__ = ["KnownCells"]

Ints = NDArray[np.int64]

# `find` reuses its array of cells for the next batch, unless the current batch has more rows than this.
MOST_ROWS = 1 << 16


class KnownCells:
    """A fast lookup of the cell (such as the slice) of each row from key columns of integers or booleans.

    Parameters
    ----------
    index : Index
        The tables that map keys to codes, and codes to cells. The index must already have a level for each column.
    path : sequence of (column, axis)
        The columns whose values identify a cell.
    dtypes : sequence of dtype
        The dtypes of these columns.
    """

    def __init__(self, index: Index, path: Any, dtypes: Sequence[np.dtype[Any]]) -> None:
        self._steps: list[tuple[Level, KeyCodes, str]] = [
            (index.levels[path[: i + 1]], index.key_codes(name), "bool" if dtypes[i].kind == "b" else "integer")
            for i, (name, _) in enumerate(path)
        ]
        # The cell of each row at each level; there is one level for each column. `find` returns the last row of this
        # array, and the next call overwrites it. For batches of more than MOST_ROWS rows, a temporary array is used.
        self._cells = np.empty((len(path), 0), np.int64)

    def find(self, *keys: NDArray[Any]) -> Ints | None:
        """Return the cell of each row; None if a key or a cell is new, or if earlier keys have a different type."""
        above, rows = NOTHING, len(keys[0])
        cells = self._cells if self._cells.shape[1] >= rows else np.empty((len(self._steps), rows), np.int64)
        if rows <= MOST_ROWS:
            self._cells = cells
        for i, (level, codes, kind) in enumerate(self._steps):
            values = keys[i]
            table = codes.find_integer_table(kind)
            # `KeyCodes` keeps integers of 2**63 or more in a separate table, which the kernel does not search.
            is_big = values.dtype == np.uint64 and len(values) and values.max() >= 1 << 63
            if table is None or level.is_stale or is_big:
                return None
            out = cells[i, : len(values)]
            arguments = (
                above, np.ascontiguousarray(values, np.int64), table.stored, table.slots, level.low, level.extent,
                level.table, level.parents, level.codes, out,
            )  # fmt: skip
            if find_known_cells.find_entry_point(*arguments)(*arguments):
                return None
            above = out
        return above
