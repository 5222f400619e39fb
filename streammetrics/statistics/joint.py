"""The joint histogram of two numbers of each row, for rank correlations and counts of concordant pairs of rows."""

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
from .score_entries import has_negative_weight
from .step import Like, Step
from .weighted_rows import check_columns

__all__ = ["JointHistogram"]


# If a state that is read from bytes has at most this many cells (such as slices), the pairs (x, y) of all its cells are
# checked.
MAX_CHECKED_CELLS = 256


def _rows_by_cell(exact: Entries) -> list[PairRows]:
    """Return the exact pairs (x, y) and their row counts for each cell (such as a slice) that keeps exact pairs."""
    names, begins = np.unique(exact.cells, return_index=True)
    ends = [*begins[1:], len(exact)]
    return [
        read_exact_rows(exact.select(slice(a, b)), int(cell))
        for cell, a, b in zip(names.tolist(), begins, ends, strict=False)
    ]


class JointHistogram(State, tag="joint_buckets"):
    """Row counts by pair (x, y): exact pairs in cells (such as slices) with few rows, else buckets of adaptive width.

    Parameters
    ----------
    columns : tuple of str
        The names of the columns x and y.
    bits : int
        The number that determines the width of the buckets. The width of a bucket of x alone, or of y alone, is at most
        2**-bits times the values in it. There are up to 2**(bits + 6) buckets of x, and as many of y. Buckets of pairs
        are wider: their sides are at most 2**(3 - bits) times the values in them. The sides divide the range of x, and
        that of y, into up to 2**(bits + 3) intervals.
    limit : int
        A cell (such as a slice) with at most this many rows keeps exact pairs (x, y). All rows of a larger cell are
        counted in buckets.
    memory_limit : int
        The maximum memory of a state, in bytes. A state that needs more raises MemoryLimitError.

    Notes
    -----
    Rows are counted by 64-bit codes, but two float64 numbers have 128 bits. Each row is therefore counted four times,
    by four codes called views. In a cell with exact pairs, the first view is x, and the second view is y. The fourth
    view combines 32-bit hashes of x and y, and shows which x belongs to which y. The third view combines hashes from
    another hash function. It is needed for values that have the same hash in the fourth view. The module
    `state.pair_levels` describes the views of cells with buckets.

    A row in a cell with exact pairs takes 64 bytes. A bucket that contains rows takes 16 bytes. There are at most
    2**(2 * bits + 6) such buckets of pairs, and fewer if x and y are correlated.
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
        """The number of possible codes of a row, summed over the four views (see the class notes)."""
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
        return add_rows(*none, self.decode_rows(exact), self.bits)

    def decode_rows(self, exact: Entries) -> PairRows:
        """Decode the entries of cells that keep exact pairs (x, y), and return these pairs with their row counts."""
        return concat_rows(_rows_by_cell(exact))

    def check(self) -> None:
        if any(has_negative_weight(e) for e in self.cells.tallies.values()):
            raise StateFormatError("the state is corrupt: JointHistogram.excess makes a weight negative")
        # Checking more cells (such as slices) would take too long. In a larger state, invalid rows raise the same error
        # when their cell is evaluated.
        if len(self.cells) <= MAX_CHECKED_CELLS:
            _rows_by_cell(self.cells.tallies["exact"])

    def facts(self) -> dict[str, Any]:
        entries: Entries = self.rows if len(self.rows) else self.exact
        total = Mass.from_rows(entries.int64_counts, entries.excess).total() // VIEWS
        weight = Fraction(total, 1 if entries.excess is None else UNIT)
        return {"rows": int(entries.int64_counts.sum()) // VIEWS, "weight": weight, "off_grid": bool(self.level.any())}

    @cached_property
    def pairs(self) -> Pairs:
        """The counts of concordant, discordant and tied pairs of rows; the state must have only one cell (slice)."""
        if not len(self.rows):
            return read_exact_pairs(self.exact)
        return read_bucket_pairs(self.rows, self.read_cells_named("level")[:1], self.bits)
