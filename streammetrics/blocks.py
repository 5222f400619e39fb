"""Rows that belong together: the queries of a batch, each in one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import Column, Need
from .errors import InvalidInputError
from .ids import IdColumn
from .state import State

__all__ = ["Blocks", "changed"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """What is checked of the rows of a batch whose state wants them `together`.

    Parameters
    ----------
    state : State
        What will count them.
    needs : sequence of Need
        What it reads.
    column : callable
        The column that plays a role.
    origin : callable
        Where a row stood in the batch that the user gave.
    """

    state: State
    needs: Sequence[Need]
    column: Callable[[str], Any]
    origin: Callable[[int], int]

    def whole(self, columns: dict[str, Column]) -> tuple[dict[str, Column], Ints]:
        """Return the columns, with one row a block of those that have one value there, and the ids of the blocks.

        Raises
        ------
        InvalidInputError
            A block returns after another began, or after the last batch; or rows contradict one another.
        """
        role = self.state.together
        keys = columns[role or ""]
        assert isinstance(keys, IdColumn)
        starts = keys.starts
        ids = keys.values[starts].reshape(len(starts), keys.values.size // max(len(keys.values), 1))
        if (at := returned(ids, self.state.__dict__["_recent"])) is not None:
            self._refuse(
                str(role), int(starts[at]), f"a {role} that was met before, in this batch or the last, returns"
            )
        once = {n.role: columns[n.role] for n in self.needs if n.once and n.role in columns}
        for name, column in once.items():
            if row := changed(column.values, starts):
                self._refuse(name, row, f"it differs from the row before, of the same {role}")
        if found := self.state.contradiction(columns):
            self._refuse(*found)
        return columns | {n: replace(c, values=c.values[starts]) for n, c in once.items()}, ids

    def _refuse(self, role: str, row: int, why: str) -> None:
        name, at = self.column(role), self.origin(row)
        raise InvalidInputError(
            f"{name}: row {at:,}: {why}; rows of one {self.state.together} stand side by side, in one batch, and agree",
            column=str(name),
            row=at,
        )


def returned(ids: Ints, recent: Ints | None) -> int | None:
    """Return the first block whose id another block before it has, in this batch or among the recent ones."""
    known = recent if recent is not None and recent.shape[1] == ids.shape[1] else ids[:0]
    both = np.concatenate([known, ids])
    if not len(ids) or (both[1:, 0] > both[:-1, 0]).all():
        return None
    order = np.lexsort(both.T[::-1])
    again = (both[order[1:]] == both[order[:-1]]).all(axis=1)
    return int(order[1:][again].min()) - len(known) if again.any() else None


def changed(values: NDArray[Any], starts: Ints) -> int:
    """Return the first row that differs from the row before it in the same block; 0 if there is none."""
    differs = values[1:] != values[:-1]
    differs[starts[1:] - 1] = False
    return int(differs.argmax()) + 1 if differs.any() else 0
