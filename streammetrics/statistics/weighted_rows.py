"""The exact number and weight of rows: the base of statistics of exact sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.numbers import Number
from ..numerics.exact import exact_to_fraction
from ..state.declare import Flat
from ..state.state import State
from .step import NOTHING, Like

__all__ = ["WeightedRows", "check_columns"]

# A kernel that checks rows while it sums them copies its sums first, to restore them. It is used for few sums only.
MAX_CHECKED_SUMS = 16
RESERVED_ROLES = ("sample_weight", "at", "front", "ones")


class WeightedRows(State):
    """The number of rows, and the sum of w - 1 without rounding.

    All digits of the weights are kept, because a small variance beside large means (such as 1 beside 1e8) needs them.
    """

    rows = Flat()
    excess = Flat(form="exact", excess_of="rows")

    def row_arguments(self, like: Like) -> tuple[Any, Any]:
        """Return the parts `rows` and `excess` as kernel arguments; without weights an empty array replaces `excess`."""
        own = type(self)
        return own.rows, own.excess if like.has_weights else NOTHING

    def value_limits(self, like: Like, terms: int) -> NDArray[np.float64]:
        """Return the range of each column of numbers for a kernel that checks what it sums; empty for other kernels.

        Such a kernel reads each column once. It copies the sums first, to restore them after a bad value, so there must
        be few.
        """
        kinds = [need.kind for need in self.needs() if isinstance(need.kind, Number)]
        if not like.lone or like.has_weights or not 0 < terms <= MAX_CHECKED_SUMS:
            kinds.clear()
        return np.array([(k.smallest, k.largest, k.low, k.above) for k in kinds], np.float64).reshape(-1, 4)

    def weight(self) -> Fraction:
        """Return the exact total weight: the number of rows if they have no weights."""
        extra = exact_to_fraction(self.excess) if self.excess is not None else 0
        return int(self.rows) + Fraction(extra)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows), "weight": self.weight()}


def check_columns(state: Any) -> None:
    """Raise an error unless a statistic reads one column, or two different columns."""
    columns = state.columns
    if len(columns) not in (1, 2) or len({*columns, *RESERVED_ROLES}) != len(columns) + len(RESERVED_ROLES):
        raise ValueError(f"{type(state).__name__} reads one column or two different ones, not {columns!r}")
