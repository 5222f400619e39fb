"""Rows that belong together: the queries of a batch, each in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..state.state import State
from .column_binding import Binding
from .columns import Batch, Column
from .ids import IdColumn
from .kinds import Need
from .lists import ListedRows, listed
from .prepared_batch import Rows, Times, prepare

__all__ = ["changed", "check_slices", "whole_blocks"]

Ints = NDArray[np.int64]


def whole_blocks(
    batch: Batch,
    state: State,
    binding: Binding,
    needs: Sequence[Need],
    on_invalid: str,
    recent: Ints | None,
    times: Times = (),
) -> Rows:
    """Return the rows of a batch whose state wants blocks in one piece, with one row a block of what all its rows share.

    Raises
    ------
    InvalidInputError
        A block returns after another began, or after the last batch; or rows contradict one another.
    """
    documents = listed(batch, binding.column)
    rows = prepare(documents, binding, needs, on_invalid, times=times)
    role = state.together or ""
    keys = rows.columns[role]
    assert isinstance(keys, IdColumn)
    starts = keys.starts
    ids = keys.values[starts].reshape(len(starts), keys.values.size // max(len(keys.values), 1))

    def refuse(of: str, row: int, why: str) -> None:
        name, at = binding.column(of), documents.origin(rows.row(row))
        raise InvalidInputError(
            f"{name}: row {at:,}: {why}; rows of one {role} stand side by side, in one batch, and agree",
            column=str(name),
            row=at,
        )

    if (block := returned(ids, recent)) is not None:
        refuse(role, int(starts[block]), f"a {role} that was met before, in this batch or the last, returns")
    once = {n.role: rows.columns[n.role] for n in needs if n.once and n.role in rows.columns}
    for name, column in once.items():
        if row := changed(column.values, starts):
            refuse(name, row, f"it differs from the row before, of the same {role}")
    if found := state.contradiction(rows.columns):
        refuse(*found)
    columns: dict[str, Column] = rows.columns | {n: replace(c, values=c.values[starts]) for n, c in once.items()}
    numbered = isinstance(documents, ListedRows) and documents.numbered
    rows = replace(rows, columns=columns, ids=None if numbered else ids)
    if documents is batch:
        return rows
    of_batch = documents.index
    return replace(
        rows,
        index=of_batch if rows.index is None else of_batch[rows.index],
        left_out=[(reason, of_batch[gone]) for reason, gone in rows.left_out],
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


def check_slices(rows: Rows, role: str, at: Ints) -> None:
    """Check that no slice cuts a block: `at` is the slice of each row.

    Raises
    ------
    InvalidInputError
        Rows of a block are in two slices.
    """
    if row := changed(at, rows.columns[role].starts) if rows.n else 0:  # type: ignore[attr-defined]
        raise InvalidInputError(
            f"row {rows.row(row):,} is in another slice than the row before, of the same {role}; slices take "
            f"a {role} whole: slice by what all its rows have in common",
            row=rows.row(row),
        )


def changed(values: NDArray[Any], starts: Ints) -> int:
    """Return the first row that differs from the row before it in the same block; 0 if there is none."""
    differs = values[1:] != values[:-1]
    differs[starts[1:] - 1] = False
    return int(differs.argmax()) + 1 if differs.any() else 0
