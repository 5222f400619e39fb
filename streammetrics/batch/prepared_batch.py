"""Prepare a batch for a metric: find its columns, leave out rows, check the values, and correct for down-sampling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.negative_sampling import undo_negative_sampling
from .column_binding import Binding
from .columns import CORRECTED, Batch, Column, Mask, missing_column_error
from .kinds import FLAG, Need
from .times import EventTime

__all__ = ["PreparedRows", "check_either", "prepare"]


@dataclass(frozen=True)
class PreparedRows:
    """The rows of a batch that a metric's state counts, with checked and corrected columns.

    Parameters
    ----------
    columns : dict
        The checked column of each role.
    n : int
        The number of rows.
    index : int64 array, optional
        The position of each row in the batch; None if no row of the batch was left out.
    left_out : list of (reason, positions)
        The rows of the batch that are not counted. The reason is "where", or the role of the column in which the row
        has an invalid or ignored value.
    ids : int64 array, optional
        For a state that counts blocks of rows, such as queries: the id of each block.
    """

    columns: dict[str, Column]
    n: int
    index: NDArray[np.int64] | None
    left_out: list[tuple[str, NDArray[np.int64]]]
    ids: NDArray[np.int64] | None = None

    def row(self, i: int) -> int:
        """Return the position of row i in the batch."""
        return i if self.index is None else int(self.index[i])

    @property
    def weight(self) -> float:
        """The sum of the weights; 0 if the rows have no column of weights."""
        column = self.columns.get("sample_weight")
        return float(column.values.sum()) if column is not None else 0.0


Times = Sequence[tuple[str, EventTime]]


def prepare(
    batch: Batch, binding: Binding, needs: Sequence[Need], on_invalid: str, *, times: Times = ()
) -> PreparedRows:
    """Prepare the rows of a batch for a metric's state, without counting them.

    Parameters
    ----------
    batch : Batch
        The batch.
    binding : Binding
        The column of each role, and the options of the task.
    needs : sequence of Need
        The columns that the state reads, as `Binding.adapt_need` returns them (with the label values and the score
        scale of the binding).
    on_invalid : {"raise", "drop"}
        What to do with an invalid row: raise an error, or drop the row and count it as dropped.
    times : sequence of (column, kind)
        The event-time columns, which determine the window of each row. They are read last: a single time may stand for
        all rows, so only the other columns show how many rows there are.

    Raises
    ------
    InvalidInputError
        A column is missing, columns have different lengths, or a value is invalid and `on_invalid` is "raise".
    """
    left_out: list[tuple[str, NDArray[np.int64]]] = []
    index: NDArray[np.int64] | None = None
    selection = batch
    if binding.where is not None:
        selection, others = _select_rows(batch, binding.where, on_invalid)
        index = selection.index
        left_out.append(("where", others))
    named = [(n.role, binding.column(n.role), n.kind) for n in needs if _is_present(n, binding, batch)]
    bound = [(role, name, kind.variant(batch, name)) for role, name, kind in named]
    extra_columns: list[tuple[str, Any, Any]] = [] if binding.unit is None else [("unit", *binding.unit)]
    extra_columns += [("time", name, kind) for name, kind in times]
    bound += extra_columns
    # The order of the steps matters. A row is left out for the first reason that applies, and values are checked only
    # in the rows that remain. `index` maps the remaining rows to rows of the batch.
    if _lacks_required_column(needs, binding, batch):
        no_row = np.zeros(len(selection.column(*bound[0][1:]).values), bool)
        selection = selection.memoize("no rows", partial(selection.select, no_row))
        index = selection.index if index is None else index[selection.index]
    for role, name, kind in bound:
        if kind.skips and (skipped := kind.find_skipped(selection.column(name, kind))) is not None:
            rows = np.flatnonzero(skipped).astype(np.int64)
            left_out.append((role, rows if index is None else index[rows]))
            kept = ~skipped
            selection = selection.memoize(("skipped", name, kind), partial(selection.select, kept))
            index = selection.index if index is None else index[selection.index]
    if on_invalid == "drop":
        selection, index = _drop_bad_rows(selection, index, bound, left_out)
    else:
        for _, name, kind in bound:
            selection.check(name, kind, bound)
    bound = bound[: len(bound) - len(extra_columns)]
    columns = {role: selection.column(name, kind) for role, name, kind in bound}
    if binding.corrects in ("rows", "both") and (too_heavy := _find_too_heavy(columns, binding)) is not None:
        rows = np.flatnonzero(too_heavy).astype(np.int64)
        rows = rows if index is None else index[rows]
        if on_invalid != "drop":
            raise InvalidInputError(
                f"sample_weight: expected weights below 2**31 after the division by negative_rate="
                f"{binding.negative_rate:g}, found a larger weight in row {rows[0]:,} ({len(rows):,} such rows); scale "
                f"the weights down",
                column="sample_weight",
                row=int(rows[0]),
                count=len(rows),
            )
        left_out.append(("sample_weight", rows))
        selection = selection.select(~too_heavy)
        index = selection.index if index is None else index[selection.index]
        columns = {role: selection.column(name, kind) for role, name, kind in bound}
    if binding.corrects:
        columns = selection.memoize((binding, tuple(bound)), lambda: _correct(columns, binding))
    return PreparedRows(columns, len(columns[bound[0][0]].values), index, left_out)


def check_either(requests: Iterable[tuple[Binding, Sequence[Need]]], batch: Batch) -> None:
    """Raise InvalidInputError if states declare columns with `Need.either`, but the batch has none of these columns.

    `requests` contains the binding and needs of each state. The batch need not have a column for every state: a
    single one of these columns is enough.
    """
    names = list(dict.fromkeys(binding.column(n.role) for binding, needs in requests for n in needs if n.either))
    if names and not any(name in batch for name in names):
        raise InvalidInputError(
            f"expected at least one of the columns {', '.join(map(repr, names))}; the batch has "
            f"{', '.join(map(repr, batch.names)) or 'no columns'}",
            column=names[0],
        )


def _lacks_required_column(needs: Sequence[Need], binding: Binding, batch: Batch) -> bool:
    """Return whether no row can be counted, because the batch has none of the columns declared with `Need.either`."""
    names = [binding.column(n.role) for n in needs if n.either]
    return bool(names) and not any(name in batch for name in names)


def _is_present(need: Need, binding: Binding, batch: Batch) -> bool:
    name = binding.column(need.role)
    if not need.optional or name in batch:
        return True
    # Correcting the weights for down-sampling requires the label, because only the weights of negative rows change.
    required = need.role == "y_true" and binding.corrects in ("rows", "both")
    # A column that the user has assigned to a role must exist. If it is missing, `Batch.raw` raises the error.
    if required or need.role in binding.columns_by_role:
        batch.raw(name)
    return False


def _select_rows(batch: Batch, name: str, on_invalid: str) -> tuple[Batch, NDArray[np.int64]]:
    """Return a batch of the rows for which a 0/1 column is 1, and the positions of all other rows."""

    def select() -> tuple[Batch, NDArray[np.int64]]:
        if name not in batch:
            raise missing_column_error(name, batch.names, "; where= takes the name of a 0/1 column")
        if on_invalid != "drop":
            batch.check(name, FLAG)
        return batch.split(batch.column(name, FLAG).values)

    selection: tuple[Batch, NDArray[np.int64]] = batch.memoize((name, "where", on_invalid), select)
    return selection


def _drop_bad_rows(
    selection: Batch,
    index: NDArray[np.int64] | None,
    bound: list[tuple[str, str, Any]],
    left_out: list[tuple[str, NDArray[np.int64]]],
) -> tuple[Batch, NDArray[np.int64] | None]:
    """Drop the rows that have an invalid value, and append their positions in the batch to `left_out`.

    A row with several invalid values is listed once, under the first role in `bound` for which its value is invalid.
    `index` maps the rows of `selection` to rows of the batch; the result contains the new selection and its index.
    """
    dropped: Mask | None = None
    for role, name, kind in bound:
        column = selection.column(name, kind)
        if selection.memoize((name, kind, "ok"), partial(kind.ok, column)):
            continue
        bad = kind.bad(column)
        fresh = bad if dropped is None else bad & ~dropped
        rows = np.flatnonzero(fresh).astype(np.int64)
        left_out.append((role, rows if index is None else index[rows]))
        dropped = bad if dropped is None else dropped | bad
    if dropped is None:
        return selection, index
    kept = dropped
    rest: Batch = selection.memoize(("kept", tuple((n, k) for _, n, k in bound)), lambda: selection.select(~kept))
    return rest, rest.index if index is None else index[rest.index]


def _correct(columns: dict[str, Column], binding: Binding) -> dict[str, Column]:
    """Return the columns with the scores or weights corrected for down-sampled negatives.

    Scores stay uncorrected if only their order matters.
    """
    rate, out = binding.negative_rate, dict(columns)
    assert rate is not None
    if binding.corrects_scores and not binding.ranks and "y_score" in out:
        scores = out["y_score"]
        out["y_score"] = Column(undo_negative_sampling(scores.values, rate, binding.scale), CORRECTED + scores.source)
    if binding.corrects in ("rows", "both"):
        out["sample_weight"] = Column(_correct_weights(columns, rate), "float64")
    return out


def _correct_weights(columns: dict[str, Column], rate: float) -> NDArray[np.float64]:
    """Return weights that undo the down-sampling: the weight of each negative is divided by the sampling rate."""
    weights = columns["sample_weight"].values if "sample_weight" in columns else 1.0
    return np.where(columns["y_true"].values == 1, weights, weights / rate)


def _find_too_heavy(columns: dict[str, Column], binding: Binding) -> Mask | None:
    """Return a mask of the rows whose corrected weight is 2**31 or more, which is invalid; None if there are none."""
    rate = binding.negative_rate
    assert rate is not None
    if "sample_weight" not in columns or columns["sample_weight"].values.max(initial=0.0) / rate < 2.0**31:
        return None
    too_heavy = _correct_weights(columns, rate) >= 2.0**31
    return too_heavy if too_heavy.any() else None
