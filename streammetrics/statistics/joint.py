"""The joint histogram of two numbers: enough for every correlation of ranks, and for the order of pairs of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..columns.columns import Column, Need, weight
from ..columns.numbers import number
from ..errors import StateFormatError
from ..numerics.exact import UNIT, Mass
from ..numerics.settings import setting
from ..state.declare import Flat, Tally
from ..state.state import State
from ..state.tally import WIDEST, Entries, code_type, reduce, weighs
from .pairs import LOOKS, Pairs, bucketed_pairs, exact_pairs, looks_of
from .scores import negative_weight
from .step import Like, Step
from .weighed import check_columns

__all__ = ["JointHistogram"]

U4, U8 = np.uint32, np.uint64
TOP = U8(1 << 63)
MARGIN = 6
"""Bits that each number alone has more than both together; as kernels have it."""


class JointHistogram(State, tag="joint_histogram"):
    """Rows by two numbers: exactly, while a cell has few of them; by the leading bits of both beyond.

    Parameters
    ----------
    columns : tuple of str
        The roles of x and y.
    bits : int
        Of the mantissa, in buckets of both: such a bucket is at most 2**-bits of its numbers wide and high.
    limit : int
        Rows that a cell keeps exactly; those of a cell with more all go to buckets.
    memory_limit : int
        Bytes that entries may take; MemoryLimitError beyond.

    Notes
    -----
    A row is counted by four looks. Exactly: by the 64 bits of x, by those of y, by the first 32 of each, and by hashes of
    32 bits of each. Since all different x and y are known by themselves, hashes say which of them came together; where
    two have one hash, leading bits tell them apart. If neither does, which the state knows, it is read by leading bits.
    In buckets: by x and by y alone, of 6 more bits; by both; and all rows. 64 bytes a row while it is exact; beyond 12
    bytes a bucket that holds rows, so at most as many as rows, and no more than there are buckets of both.

    `off_grid` says of x and of y whether one had bits that the bucket of both does not show. While it is 0 every bucket
    holds one value, and what is read is exact.
    """

    columns: tuple[str, ...] = setting(default=("y_true", "y_pred"))
    bits: int = setting(default=7, low=1, high=11)
    limit: int = setting(default=1 << 14, low=0, high=1 << 24)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    exact = Tally("exact_places")
    rows = Tally("places")
    off_grid = Flat(2, form="flag")

    counted: ClassVar[tuple[str, ...]] = ("exact", "rows")
    folds: ClassVar[tuple[str, str, str] | None] = ("exact", "rows", "off_grid")

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
    def exact_places(self) -> int:
        """Those of one look behind those of another."""
        return LOOKS * WIDEST

    @property
    def side(self) -> int:
        """Bits of a bucket of one of both numbers: sign, exponent, and those of the mantissa."""
        return 12 + self.bits

    @property
    def places(self) -> int:
        """Those of one look behind those of another."""
        return LOOKS << 2 * self.side

    def needs(self) -> tuple[Need, ...]:
        return (*(number(role) for role in self.columns), weight())

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Numbers of one dtype, for which there is one kernel."""
        ours = {role: columns[role] for role in self.columns}
        made = {role: Column(np.asarray(c.values, np.float64), c.source) for role, c in ours.items()}
        return {**columns, **made}

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        into = own.exact, own.rows, own.off_grid
        return [Step("joint:count_pairs", *self.columns, "sample_weight", "at", self.bits, *into)]

    def bucketed(self, exact: Entries) -> tuple[Entries, Any]:
        look, word, side = looks_of(exact), exact.codes, U8(self.side)
        alone = word >> (U8(64 - MARGIN) - side)
        both = (word >> (U8(64) - side) << side) | ((word & U8(0xFFFFFFFF)) >> (U8(32) - side))
        place = np.where(look < 2, alone, np.where(look == 2, both, U8(0))) | (look.astype(U8) << (U8(2) * side))
        bits = np.where(word >> U8(63), word & ~TOP, ~word)
        lost = (look < 2) & (bits & U8((1 << 52 - self.bits) - 1) != 0) & weighs(exact)
        shift, cells = type(self).rows.shift(self), exact.cells
        kind = code_type((int(cells.max(initial=0)) + 1) << shift)
        codes = (cells.astype(kind) << kind(shift)) | place.astype(kind)
        made = reduce(Entries(shift, codes, exact.counts, exact.excess))
        return made, (cells[lost], look[lost])

    def check(self) -> None:
        if any(negative_weight(e) for e in self.cells.tallies.values()):
            raise StateFormatError("JointHistogram.excess makes a weight negative")

    def facts(self) -> dict[str, Any]:
        held: Entries = self.rows if len(self.rows) else self.exact
        total = Mass.of(held.mass, held.excess).total() // LOOKS
        weight = Fraction(total, 1 if held.excess is None else UNIT)
        return {"rows": int(held.mass.sum()) // LOOKS, "weight": weight, "off_grid": bool(self.off_grid.any())}

    @cached_property
    def pairs(self) -> Pairs:
        """What is read from a state of one cell."""
        if not len(self.rows):
            return exact_pairs(self.exact)
        return bucketed_pairs(self.rows, self.side, self.off_grid == 0)
