"""The joint histogram of two numbers, for rank correlations and concordance of pairs of rows."""

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
from ..state.pair_levels import VIEWS, PairRows, add_rows
from ..state.state import State
from ..state.tally import WIDEST, Entries
from .pairs import Pairs, concat_rows, read_bucket_pairs, read_exact_pairs, read_exact_rows
from .scores import has_negative_weight
from .step import Like, Step
from .weighted_rows import check_columns

__all__ = ["JointHistogram"]


# The exact rows of at most this many cells are checked when a state is read from bytes.
MAX_CHECKED_CELLS = 256


def _rows_by_cell(exact: Entries) -> list[PairRows]:
    """Return the exact rows of each cell that has exact rows."""
    names, begins = np.unique(exact.cells, return_index=True)
    ends = [*begins[1:], len(exact)]
    return [
        read_exact_rows(exact.select(slice(a, b)), int(cell))
        for cell, a, b in zip(names.tolist(), begins, ends, strict=False)
    ]


class JointHistogram(State, tag="joint_buckets"):
    """Rows by two numbers: exact while a cell has few rows, in buckets of adaptive width beyond.

    Parameters
    ----------
    columns : tuple of str
        The roles of x and y.
    bits : int
        The relative width of a bucket of x or of y alone is at most 2**-bits, and that of a joint bucket at most
        2**(3 - bits) in either direction. There are up to 2**(bits + 6) buckets of x and of y alone, and 2**(bits + 3)
        of either in the joint table.
    limit : int
        The number of rows that a cell keeps exactly; all rows of a larger cell go to buckets.
    memory_limit : int
        The largest number of bytes for entries; more raises MemoryLimitError.

    Notes
    -----
    A tally counts each row four times, in four views. While rows are exact, the views are the 64 bits of x, the 64 bits of
    y, a pair of 32-bit hashes of x and y, and a second such pair from another hash function. The first two views have all
    values, so the hashes only tell which x belongs to which y: if two values have the same first hash, the second one
    tells them apart. For buckets see `state.pair_levels`.

    An exact row takes 64 bytes. A bucket with rows takes 16 bytes; there are at most 2**(2 bits + 6), and fewer the more x
    and y are correlated.
    """

    columns: tuple[str, ...] = setting(default=("y_true", "y_pred"))
    bits: int = setting(default=7, low=1, high=11)
    limit: int = setting(default=1 << 14, low=0, high=1 << 24)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    exact = Tally("places")
    rows = Tally("places", level="level", pairs=True)
    level = Flat(VIEWS, form="level")

    row_parts: ClassVar[tuple[str, ...]] = ("exact", "rows")
    folding: ClassVar[tuple[str, str, str] | None] = ("exact", "rows", "level")
    counter: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        check_columns(self)
        super().__post_init__()

    @property
    def counts_per_row(self) -> int:
        return VIEWS

    @property
    def exact_rows_limit(self) -> int:
        return VIEWS * self.limit

    @property
    def has_unbounded_size(self) -> bool:
        return True

    @property
    def places(self) -> int:
        """The number of places (possible codes) of all views, one view after the other."""
        return VIEWS * WIDEST

    def needs(self) -> tuple[Need, ...]:
        return (*(number(role) for role in self.columns), weight())

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert both columns to float64, the only dtype that the kernel reads."""
        ours = {role: columns[role] for role in self.columns}
        as_float64 = {role: Column(np.asarray(c.values, np.float64), c.source) for role, c in ours.items()}
        return {**columns, **as_float64}

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        return [Step("joint:buffer_pairs", *self.columns, "sample_weight", "at", own.exact, own.rows)]

    def bucket_entries(self, exact: Entries) -> tuple[Entries, Any]:
        none = Entries.empty(exact.shift, wide=True), np.zeros((int(exact.cells.max(initial=-1)) + 1, VIEWS), np.int64)
        return add_rows(*none, concat_rows(_rows_by_cell(exact)), self.bits)

    def check(self) -> None:
        if any(has_negative_weight(e) for e in self.cells.tallies.values()):
            raise StateFormatError("JointHistogram.excess makes a weight negative")
        # With more cells the check takes too long. Reading an invalid cell raises the same error later.
        if len(self.cells) <= MAX_CHECKED_CELLS:
            _rows_by_cell(self.cells.tallies["exact"])

    def facts(self) -> dict[str, Any]:
        entries: Entries = self.rows if len(self.rows) else self.exact
        total = Mass.from_rows(entries.int64_counts, entries.excess).total() // VIEWS
        weight = Fraction(total, 1 if entries.excess is None else UNIT)
        return {"rows": int(entries.int64_counts.sum()) // VIEWS, "weight": weight, "off_grid": bool(self.level.any())}

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs of rows of a state that has one cell."""
        if not len(self.rows):
            return read_exact_pairs(self.exact)
        return read_bucket_pairs(self.rows, self.read_cells_named("level")[:1], self.bits)
