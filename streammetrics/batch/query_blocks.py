"""Blocks: groups of rows in a batch that belong together, such as the documents of a query.

The rows of a block must be adjacent and in the same batch.
"""

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
from .lists import ListedRows, split_into_documents
from .prepared_batch import PreparedRows, Times, prepare

__all__ = ["check_slices", "prepare_blocks"]

Ints = NDArray[np.int64]


def prepare_blocks(
    batch: Batch,
    state: State,
    binding: Binding,
    needs: Sequence[Need],
    on_invalid: str,
    recent: Ints | None,
    times: Times = (),
) -> PreparedRows:
    """Prepare the rows of a batch for a metric whose state counts blocks, such as queries.

    A column that is constant within each block, such as the weight of a query, is reduced to one value for each block.
    `recent` contains the ids of the blocks in the previous batch; None if there was none. `state.block_column` is the
    role of the column that identifies the blocks. The other parameters are the same as for `prepare`.

    Raises
    ------
    InvalidInputError
        The rows of a block are not adjacent, a block continues a block of the previous batch, or rows of a block have
        different values in a column that must be constant.
    """
    documents = split_into_documents(batch, binding.column)
    rows = prepare(documents, binding, needs, on_invalid, times=times)
    role = state.block_column or ""
    keys = rows.columns[role]
    assert isinstance(keys, IdColumn)
    starts = keys.starts
    ids = keys.values[starts].reshape(len(starts), keys.values.size // max(len(keys.values), 1))

    def refuse(of: str, row: int, why: str) -> None:
        name, at = binding.column(of), documents.original_row(rows.row(row))
        raise InvalidInputError(
            f"{name}: row {at:,}: {why}",
            column=str(name),
            row=at,
        )

    if (block := find_returning_block(ids, recent)) is not None:
        why = f"this {role} already occurred, in this batch or in the previous batch; all rows of the same {role} must "
        refuse(role, int(starts[block]), f"{why}be adjacent and in one batch")
    once = {n.role: rows.columns[n.role] for n in needs if n.once and n.role in rows.columns}
    for name, column in once.items():
        if row := find_change(column.values, starts):
            why = (
                f"the value differs from the value in the previous row of the same {role}; all rows of the same {role} "
            )
            refuse(name, row, f"{why}must have the same value")
    if contradiction := state.find_contradiction(rows.columns):
        refuse(*contradiction)
    columns: dict[str, Column] = rows.columns | {n: replace(c, values=c.values[starts]) for n, c in once.items()}
    numbered = isinstance(documents, ListedRows) and documents.rows_are_queries
    rows = replace(rows, columns=columns, ids=None if numbered else ids)
    if documents is batch:
        return rows
    of_batch = documents.index
    return replace(
        rows,
        index=of_batch if rows.index is None else of_batch[rows.index],
        left_out=[(reason, of_batch[dropped]) for reason, dropped in rows.left_out],
    )


def find_returning_block(ids: Ints, recent: Ints | None) -> int | None:
    """Return the position of the first block whose id has occurred before, in this batch or among the recent blocks.

    Returns None if there is no such block.
    """
    known = recent if recent is not None and recent.shape[1] == ids.shape[1] else ids[:0]
    all_ids = np.concatenate([known, ids])
    # Strictly ascending ids are distinct. This case is common, and testing for it is much faster than the sort below.
    if not len(ids) or (all_ids[1:, 0] > all_ids[:-1, 0]).all():
        return None
    order = np.lexsort(all_ids.T[::-1])
    repeats = (all_ids[order[1:]] == all_ids[order[:-1]]).all(axis=1)
    return int(order[1:][repeats].min()) - len(known) if repeats.any() else None


def check_slices(rows: PreparedRows, role: str, at: Ints) -> None:
    """Check that all rows of a block are in the same slice.

    `role` is the role, such as "query", of the column whose ids define the blocks, and `at` is the slice of each row.

    Raises
    ------
    InvalidInputError
        The rows of a block are in different slices.
    """
    if row := find_change(at, rows.columns[role].starts) if rows.n else 0:  # type: ignore[attr-defined]
        raise InvalidInputError(
            f"row {rows.row(row):,} is in a different slice from the previous row of the same {role}; slice by a column "
            f"that has the same value in all rows of the {role}",
            row=rows.row(row),
        )


def find_change(values: NDArray[Any], starts: Ints) -> int:
    """Return the position of the first row whose value differs from that of the previous row in its block.

    Row 0 has no row before it, so a result of 0 means that no row differs. `starts` contains the position of the first
    row of each block.
    """
    differs = values[1:] != values[:-1]
    differs[starts[1:] - 1] = False
    return int(differs.argmax()) + 1 if differs.any() else 0
