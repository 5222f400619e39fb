"""From a batch to the rows that one state counts: bound, filtered, checked, corrected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.sampling import undone
from .column_binding import Binding
from .columns import CORRECTED, Batch, Column, Mask
from .kinds import FLAG, Need
from .times import EventTime

__all__ = ["Rows", "check_either", "prepare"]


@dataclass(frozen=True)
class Rows:
    """The rows of a batch that one state counts.

    Parameters
    ----------
    columns : dict
        A checked column for each role.
    n : int
        How many rows.
    index : int64, optional
        Which rows of the batch they are; None for all.
    left_out : list of (reason, rows of the batch)
        Rows that are not counted, by the reason: "where", or the role of what is bad.
    ids : int64, optional
        The ids of the blocks, of a state whose rows belong together.
    """

    columns: dict[str, Column]
    n: int
    index: NDArray[np.int64] | None
    left_out: list[tuple[str, NDArray[np.int64]]]
    ids: NDArray[np.int64] | None = None

    def row(self, i: int) -> int:
        """The row of the batch that row i is."""
        return i if self.index is None else int(self.index[i])

    @property
    def weight(self) -> float:
        """The total weight, if there are weights; 0 otherwise."""
        column = self.columns.get("sample_weight")
        return float(column.values.sum()) if column is not None else 0.0


Times = Sequence[tuple[str, EventTime]]


def prepare(batch: Batch, binding: Binding, needs: Sequence[Need], on_invalid: str, *, times: Times = ()) -> Rows:
    """Select, check and correct the rows of a batch; nothing is counted yet. `needs` are as the binding reads them.

    `times` are the columns that say in which window a row is, which nothing else reads; they come last, as one time may
    stand for all rows.

    Raises
    ------
    InvalidInputError
        A column is missing or of another length, or (unless `on_invalid="drop"`) a value is bad.
    """
    left_out: list[tuple[str, NDArray[np.int64]]] = []
    index: NDArray[np.int64] | None = None
    chosen = batch
    if binding.where is not None:
        chosen, others = _where(batch, binding.where, on_invalid)
        index = chosen.index
        left_out.append(("where", others))
    named = [(n.role, binding.column(n.role), n.kind) for n in needs if _present(n, binding, batch)]
    bound = [(role, name, kind.variant(batch, name)) for role, name, kind in named]
    beside: list[tuple[str, Any, Any]] = [] if binding.unit is None else [("unit", *binding.unit)]
    beside += [("time", name, kind) for name, kind in times]
    bound += beside
    if _without(needs, binding, batch):
        none = np.zeros(len(chosen.column(*bound[0][1:]).values), bool)
        chosen = chosen.make("no rows", partial(chosen.select, none))
        index = chosen.index if index is None else index[chosen.index]
    for role, name, kind in bound:
        if kind.skips and (gone := kind.skipped(chosen.column(name, kind))) is not None:
            rows = np.flatnonzero(gone).astype(np.int64)
            left_out.append((role, rows if index is None else index[rows]))
            kept = ~gone
            chosen = chosen.make(("skipped", name, kind), partial(chosen.select, kept))
            index = chosen.index if index is None else index[chosen.index]
    if on_invalid == "drop":
        chosen, index = _drop(chosen, index, bound, left_out)
    else:
        for _, name, kind in bound:
            chosen.check(name, kind, bound)
    bound = bound[: len(bound) - len(beside)]
    columns = {role: chosen.column(name, kind) for role, name, kind in bound}
    if binding.corrects in ("rows", "both") and (far := _too_heavy(columns, binding)) is not None:
        rows = np.flatnonzero(far).astype(np.int64)
        rows = rows if index is None else index[rows]
        if on_invalid != "drop":
            raise InvalidInputError(
                f"sample_weight: over a negative_rate of {binding.negative_rate:g} weights are below 2**31, not at row "
                f"{rows[0]:,} ({len(rows):,} such rows)",
                column="sample_weight",
                row=int(rows[0]),
                count=len(rows),
            )
        left_out.append(("sample_weight", rows))
        chosen = chosen.select(~far)
        index = chosen.index if index is None else index[chosen.index]
        columns = {role: chosen.column(name, kind) for role, name, kind in bound}
    if binding.corrects:
        columns = chosen.make((binding, tuple(bound)), lambda: _correct(columns, binding))
    return Rows(columns, len(columns[bound[0][0]].values), index, left_out)


def check_either(asked: Iterable[tuple[Binding, Sequence[Need]]], batch: Batch) -> None:
    """Raise unless a batch has one of the columns, of all that count it together, of which one must be there."""
    names = list(dict.fromkeys(binding.column(n.role) for binding, needs in asked for n in needs if n.either))
    if names and not any(name in batch for name in names):
        raise InvalidInputError(
            f"there is none of {', '.join(map(repr, names))}, of which a batch has at least one; this one has "
            f"{', '.join(map(repr, batch.names)) or 'no columns'}",
            column=names[0],
        )


def _without(needs: Sequence[Need], binding: Binding, batch: Batch) -> bool:
    """Whether a batch, which is for others, has none of the columns of which one must be there."""
    names = [binding.column(n.role) for n in needs if n.either]
    return bool(names) and not any(name in batch for name in names)


def _present(need: Need, binding: Binding, batch: Batch) -> bool:
    name = binding.column(need.role)
    if not need.optional or name in batch:
        return True
    asked = need.role == "y_true" and binding.corrects in ("rows", "both")  # by labels rows are weighed
    if asked or need.role in binding.bound:  # asked for by name, so it must be there
        batch.raw(name)
    return False


def _where(batch: Batch, name: str, on_invalid: str) -> tuple[Batch, NDArray[np.int64]]:
    """The rows that a flag selects, and the others."""

    def select() -> tuple[Batch, NDArray[np.int64]]:
        if on_invalid != "drop":
            batch.check(name, FLAG)
        return batch.split(batch.column(name, FLAG).values)

    made: tuple[Batch, NDArray[np.int64]] = batch.make((name, "where", on_invalid), select)
    return made


def _drop(
    chosen: Batch,
    index: NDArray[np.int64] | None,
    bound: list[tuple[str, str, Any]],
    left_out: list[tuple[str, NDArray[np.int64]]],
) -> tuple[Batch, NDArray[np.int64] | None]:
    """Leave out rows with a bad value; each is counted under the first role that is bad."""
    gone: Mask | None = None
    for role, name, kind in bound:
        column = chosen.column(name, kind)
        if chosen.make((name, kind, "ok"), partial(kind.ok, column)):
            continue
        bad = kind.bad(column)
        fresh = bad if gone is None else bad & ~gone
        rows = np.flatnonzero(fresh).astype(np.int64)
        left_out.append((role, rows if index is None else index[rows]))
        gone = bad if gone is None else gone | bad
    if gone is None:
        return chosen, index
    kept = gone
    made: Batch = chosen.make(("kept", tuple((n, k) for _, n, k in bound)), lambda: chosen.select(~kept))
    return made, made.index if index is None else index[made.index]


def _correct(columns: dict[str, Column], binding: Binding) -> dict[str, Column]:
    """Undo negative down-sampling; scores that are ranked stay as they are."""
    rate, out = binding.negative_rate, dict(columns)
    assert rate is not None
    if binding.corrects_scores and not binding.ranks and "y_score" in out:
        given = out["y_score"]
        out["y_score"] = Column(undone(given.values, rate, binding.scale), CORRECTED + given.source)
    if binding.corrects in ("rows", "both"):
        out["sample_weight"] = Column(_corrected(columns, rate), "float64")
    return out


def _corrected(columns: dict[str, Column], rate: float) -> NDArray[np.float64]:
    """The weights of rows on the full log."""
    weights = columns["sample_weight"].values if "sample_weight" in columns else 1.0
    return np.where(columns["y_true"].values == 1, weights, weights / rate)


def _too_heavy(columns: dict[str, Column], binding: Binding) -> Mask | None:
    """Which rows would weigh more than weights can; None if none does."""
    rate = binding.negative_rate
    assert rate is not None
    if "sample_weight" not in columns or columns["sample_weight"].values.max(initial=0.0) / rate < 2.0**31:
        return None
    far = _corrected(columns, rate) >= 2.0**31
    return far if far.any() else None
