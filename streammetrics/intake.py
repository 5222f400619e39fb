"""From a batch to the rows that one state counts: bound, filtered, checked, corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blocks import Blocks, changed
from .columns import FLAG, SCORES, Batch, Column, Label, Mask, Need, Score
from .errors import InvalidInputError
from .kernels import elementary
from .lists import ListedRows, listed
from .state import DROPPED, State

__all__ = ["Binding", "Rows", "Unit", "prepare"]


@dataclass(frozen=True)
class Binding:
    """Which columns play the roles of a metric, which rows count, and what is corrected.

    Parameters
    ----------
    columns : tuple of (role, column)
        Roles that are not named are played by the column of the same name.
    where : str, optional
        A 0/1 column; rows with 0 are left out, and counted as such.
    labels, pos_label : optional
        What negatives and positives are called in the label column, if not 0 and 1.
    negative_rate : float, optional
        The share of negatives that was kept when the log was down-sampled.
    corrects : {"score", "rows", "both"}, optional
        What is brought back to the full log: p' = p / (p + (1 - p) / r), or the weight of negatives, 1 / r.
    scale : {"probability", "logit"}
        What the scores are, for the correction.
    """

    columns: tuple[tuple[str, Any], ...] = ()
    where: str | None = None
    labels: tuple[Any, Any] | None = None
    pos_label: Any = None
    negative_rate: float | None = None
    corrects: str | None = None
    scale: str = "probability"

    def column(self, role: str) -> Any:
        """The column that plays a role; a tuple of them where a key has several."""
        return self.bound.get(role, role)

    @cached_property
    def bound(self) -> dict[str, Any]:
        """The roles that were given a column by name, and the column."""
        return dict(self.columns)

    def header(self) -> dict[str, Any]:
        """Describe the binding as plain data."""
        given = {k: getattr(self, k) for k in ("where", "labels", "pos_label", "negative_rate", "corrects")}
        head: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        if self.scale != "probability":
            head["scale"] = self.scale
        return head | ({"columns": dict(self.columns)} if self.columns else {})

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Binding:
        """Read what `header` wrote."""
        made = dict(header)
        columns = made.pop("columns", {}).items()
        made["columns"] = tuple(sorted((r, tuple(c) if isinstance(c, list) else c) for r, c in columns))
        if "labels" in made:
            made["labels"] = tuple(made["labels"])
        return cls(**made)

    def need(self, need: Need) -> Need:
        """Return a need as this binding reads it: its labels, and its scale where scores are corrected."""
        if isinstance(need.kind, Label) and need.role == "y_true" and (self.labels or self.pos_label is not None):
            return replace(need, kind=Label(self.labels, self.pos_label))
        if isinstance(need.kind, Score) and self.corrects in ("score", "both"):
            return replace(need, kind=SCORES[self.scale])
        return need


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
        Rows that are not counted, by the number of the reason in `state.DROPPED`.
    ids : int64, optional
        The ids of the blocks, of a state whose rows belong together.
    """

    columns: dict[str, Column]
    n: int
    index: NDArray[np.int64] | None
    left_out: list[tuple[int, NDArray[np.int64]]]
    ids: NDArray[np.int64] | None = None

    def row(self, i: int) -> int:
        """The row of the batch that row i is."""
        return i if self.index is None else int(self.index[i])

    @property
    def weight(self) -> float:
        """The total weight, if there are weights; 0 otherwise."""
        column = self.columns.get("sample_weight")
        return float(column.values.sum()) if column is not None else 0.0


def prepare(batch: Batch, binding: Binding, needs: Sequence[Need], on_invalid: str, *, check: bool = True) -> Rows:
    """Select, check and correct the rows of a batch; nothing is counted yet.

    Raises
    ------
    InvalidInputError
        A column is missing or of another length, or (unless `on_invalid="drop"`) a value is bad.
    """
    left_out: list[tuple[int, NDArray[np.int64]]] = []
    index: NDArray[np.int64] | None = None
    chosen = batch
    if binding.where is not None:
        chosen = _where(batch, binding.where, on_invalid)
        index = chosen.index
        left_out.append((DROPPED.index("where"), _complement(index, len(batch.array(binding.where)))))
    bound = [(n.role, binding.column(n.role), n.kind) for n in map(binding.need, needs) if _present(n, binding, batch)]
    for role, name, kind in bound:
        if kind.skips and (gone := kind.skipped(chosen.column(name, kind))) is not None:
            rows = np.flatnonzero(gone).astype(np.int64)
            left_out.append((_reason(role), rows if index is None else index[rows]))
            kept = ~gone
            chosen = chosen.make(("skipped", name, kind), partial(chosen.select, kept))
            index = chosen.index if index is None else index[chosen.index]
    if on_invalid == "drop":
        chosen, index = _drop(chosen, index, bound, left_out)
    else:
        for role, name, kind in bound:
            if check or binding.corrects or role == "sample_weight":  # weights are summed before any is counted
                chosen.check(name, kind)
    columns = {role: chosen.column(name, kind) for role, name, kind in bound}
    if binding.corrects:
        columns = chosen.make((binding, tuple(bound)), lambda: _correct(columns, binding))
    return Rows(columns, len(columns[bound[0][0]].values), index, left_out)


def _present(need: Need, binding: Binding, batch: Batch) -> bool:
    name = binding.column(need.role)
    if not need.optional or name in batch:
        return True
    if need.role in binding.bound:  # asked for by name, so it must be there
        batch.raw(name)
    return False


def _where(batch: Batch, name: str, on_invalid: str) -> Batch:
    def select() -> Batch:
        if on_invalid != "drop":
            batch.check(name, FLAG)
        return batch.select(batch.column(name, FLAG).values == 1)

    made: Batch = batch.make((name, "where", on_invalid), select)
    return made


def _drop(
    chosen: Batch,
    index: NDArray[np.int64] | None,
    bound: list[tuple[str, str, Any]],
    left_out: list[tuple[int, NDArray[np.int64]]],
) -> tuple[Batch, NDArray[np.int64] | None]:
    """Leave out rows with a bad value; each is counted under the first role, in the order of DROPPED, that is bad."""
    ordered = sorted(bound, key=lambda b: DROPPED.index(b[0]) if b[0] in DROPPED else len(DROPPED))
    gone: Mask | None = None
    for role, name, kind in ordered:
        column = chosen.column(name, kind)
        if chosen.make((name, kind, "ok"), partial(kind.ok, column)):
            continue
        bad = kind.bad(column)
        fresh = bad if gone is None else bad & ~gone
        rows = np.flatnonzero(fresh).astype(np.int64)
        left_out.append((_reason(role), rows if index is None else index[rows]))
        gone = bad if gone is None else gone | bad
    if gone is None:
        return chosen, index
    kept = gone
    made: Batch = chosen.make(("kept", tuple((n, k) for _, n, k in bound)), lambda: chosen.select(~kept))
    return made, made.index if index is None else index[made.index]


def _reason(role: str) -> int:
    return DROPPED.index(role if role in DROPPED else "value")


def _complement(index: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    out = np.ones(n, bool)
    out[index] = False
    return np.flatnonzero(out).astype(np.int64)


def _correct(columns: dict[str, Column], binding: Binding) -> dict[str, Column]:
    """Undo negative down-sampling, in operations that round alike everywhere."""
    rate, out = binding.negative_rate, dict(columns)
    assert rate is not None
    if binding.corrects in ("score", "both") and "y_score" in out:
        given = out["y_score"]
        p = given.values.astype(np.float64)
        with np.errstate(invalid="ignore"):
            corrected = p + float(elementary.log(rate)) if binding.scale == "logit" else p / (p + (1.0 - p) / rate)
        out["y_score"] = Column(
            np.where(p == 0, 0.0, corrected) if binding.scale != "logit" else corrected, given.source
        )
    if binding.corrects in ("rows", "both"):
        weights = out["sample_weight"].values if "sample_weight" in out else 1.0
        corrected = np.where(out["y_true"].values == 1, weights, weights / rate)
        if corrected.size and (corrected.max() >= 2.0**31):
            raise InvalidInputError("sample_weight / negative_rate leaves [2**-36, 2**31)", column="sample_weight")
        out["sample_weight"] = Column(corrected, "float64")
    return out


class Unit:
    """One state, and the columns it is fed from."""

    __slots__ = ("binding", "needs", "state")

    def __init__(self, state: State, binding: Binding) -> None:
        self.state, self.binding, self.needs = state, binding, state.needs()

    def prepare(self, batch: Batch, on_invalid: str, *, check: bool = True) -> Rows:
        """Return the rows this state will count."""
        if self.state.together is None:
            return prepare(batch, self.binding, self.needs, on_invalid, check=check)
        documents = listed(batch, self.binding.column)
        rows = prepare(documents, self.binding, self.needs, on_invalid)
        blocks = Blocks(self.state, self.needs, self.binding.column, lambda row: documents.origin(rows.row(row)))
        columns, ids = blocks.whole(rows.columns)
        if documents is not batch:
            of = documents.index
            rows = replace(
                rows,
                index=of if rows.index is None else of[rows.index],
                left_out=[(reason, of[gone]) for reason, gone in rows.left_out],
            )
        numbered = isinstance(documents, ListedRows) and documents.numbered
        return replace(rows, columns=columns, ids=None if numbered else ids)

    def count(self, rows: Rows) -> bool:
        """Admit and absorb rows of a lone state; if that fails the state's range is as it was, too."""
        held, counted = self.state.__dict__, False
        load = held["_load"]
        try:
            self.state.admit(rows.n, rows.weight)
            counted = self.absorb(rows)
        finally:
            if not counted:
                held["_load"] = load
        return counted

    def admit(self, rows: Rows, at: NDArray[np.int64] | None) -> None:
        """Make sure that rows can be counted, before any is: that they stay in range, and that no slice cuts a block."""
        self.state.admit(rows.n, rows.weight)
        if rows.ids is not None and at is not None and rows.n:
            keys, role = rows.columns[self.state.together or ""], self.state.together
            here = at if rows.index is None else at[rows.index]
            if row := changed(here, keys.starts):  # type: ignore[attr-defined]
                raise InvalidInputError(
                    f"row {rows.row(row):,} is in another slice than the row before, of the same {role}; slices take "
                    f"a {role} whole: slice by what all its rows have in common",
                    row=rows.row(row),
                )

    def absorb(self, rows: Rows, at: NDArray[np.int64] | None = None) -> bool:
        """Count checked rows, and those left out; False if a state that checks itself found a bad value."""
        here = at if at is None or rows.index is None else at[rows.index]
        if rows.n and self.state.absorb(here, **rows.columns) is False:
            return False
        if rows.n and rows.ids is not None:
            self.state.__dict__["_recent"] = rows.ids
        for reason, gone in rows.left_out:
            if at is None:
                self.state.dropped[reason] += len(gone)
            else:
                self.state.dropped[:, reason] += np.bincount(at[gone], minlength=len(self.state.dropped))
        return True
