"""The joint histogram of two numbers: enough for every correlation of ranks, and for the order of pairs of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..batch.columns import Column
from ..batch.kinds import Need, weight
from ..batch.numbers import number
from ..errors import StateFormatError
from ..numerics.exact import UNIT, Mass
from ..numerics.settings import setting
from ..state.declare import Flat, Tally
from ..state.pair_levels import LOOKS, PairRows, add_rows
from ..state.state import State
from ..state.tally import WIDEST, Entries
from .pairs import Pairs, bucketed_pairs, exact_pairs, exact_rows, joined_rows
from .scores import negative_weight
from .step import Like, Step
from .weighted_rows import check_columns

__all__ = ["JointHistogram"]


MOST_CHECKED = 256  # cells of which all exact rows are put together when a state is read from bytes


def _rows_by_cell(exact: Entries) -> list[PairRows]:
    """Return the exact rows of each cell that has some."""
    names, begins = np.unique(exact.cells, return_index=True)
    ends = [*begins[1:], len(exact)]
    return [
        exact_rows(exact.where(slice(a, b)), int(cell))
        for cell, a, b in zip(names.tolist(), begins, ends, strict=False)
    ]


class JointHistogram(State, tag="joint_buckets"):
    """Rows by two numbers: exactly, while a cell has few of them; beyond in buckets that fit them.

    Parameters
    ----------
    columns : tuple of str
        The roles of x and y.
    bits : int
        A bucket of x or of y is at most 2**-bits of its numbers wide, one of both at most 2**(3 - bits) wide and high;
        there are up to 2**(bits + 6) buckets of either, 2**(bits + 3) of them where both are counted together.
    limit : int
        Rows that a cell keeps exactly; those of a cell with more all go to buckets.
    memory_limit : int
        Bytes that entries may take; MemoryLimitError beyond.

    Notes
    -----
    A row is counted by four looks. Exactly: by the 64 bits of x, by those of y, and twice by hashes of 32 bits of each.
    Since all different x and y are known by themselves, hashes say which of them came together: where two have one hash,
    the other hash tells them apart. In buckets: see `state.pair_levels`. 64 bytes a row while it is exact; beyond 16 bytes
    a bucket that holds rows, of which there are at most 2**(2 bits + 6), and fewer the closer x and y follow each other.
    """

    columns: tuple[str, ...] = setting(default=("y_true", "y_pred"))
    bits: int = setting(default=7, low=1, high=11)
    limit: int = setting(default=1 << 14, low=0, high=1 << 24)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    exact = Tally("places")
    rows = Tally("places", level="level", pairs=True)
    level = Flat(LOOKS, form="level")

    counted: ClassVar[tuple[str, ...]] = ("exact", "rows")
    folds: ClassVar[tuple[str, str, str] | None] = ("exact", "rows", "level")
    counter: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        check_columns(self)
        super().__post_init__()

    @property
    def times(self) -> int:
        return LOOKS

    @property
    def most(self) -> int:
        return LOOKS * self.limit

    @property
    def open_ended(self) -> bool:
        return True

    @property
    def places(self) -> int:
        """Those of one look behind those of another."""
        return LOOKS * WIDEST

    def needs(self) -> tuple[Need, ...]:
        return (*(number(role) for role in self.columns), weight())

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Numbers of one dtype, for which there is one kernel."""
        ours = {role: columns[role] for role in self.columns}
        made = {role: Column(np.asarray(c.values, np.float64), c.source) for role, c in ours.items()}
        return {**columns, **made}

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        return [Step("joint:count_pairs", *self.columns, "sample_weight", "at", own.exact, own.rows)]

    def bucketed(self, exact: Entries) -> tuple[Entries, Any]:
        none = Entries.none(exact.shift, wide=True), np.zeros((int(exact.cells.max(initial=-1)) + 1, LOOKS), np.int64)
        return add_rows(*none, joined_rows(_rows_by_cell(exact)), self.bits)

    def check(self) -> None:
        if any(negative_weight(e) for e in self.cells.tallies.values()):
            raise StateFormatError("JointHistogram.excess makes a weight negative")
        if len(self.cells) <= MOST_CHECKED:  # of more it takes too long, and reading a cell raises the same error
            _rows_by_cell(self.cells.tallies["exact"])

    def facts(self) -> dict[str, Any]:
        held: Entries = self.rows if len(self.rows) else self.exact
        total = Mass.of(held.mass, held.excess).total() // LOOKS
        weight = Fraction(total, 1 if held.excess is None else UNIT)
        return {"rows": int(held.mass.sum()) // LOOKS, "weight": weight, "off_grid": bool(self.level.any())}

    @cached_property
    def pairs(self) -> Pairs:
        """What is read from a state of one cell."""
        if not len(self.rows):
            return exact_pairs(self.exact)
        return bucketed_pairs(self.rows, self.flat("level")[:1], self.bits)
