"""The base class for statistics that keep the row count and the exact total weight along with other exact sums."""

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

# A kernel checks values while it sums them only if the state has at most this many sums. Such a kernel first copies all
# sums, so that it can restore them if it finds an invalid value. The limit keeps this copy cheap.
MAX_CHECKED_SUMS = 16
RESERVED_ROLES = ("sample_weight", "at", "front", "ones")


class WeightedRows(State):
    """The base class for states that keep the number of rows and the exact sum of (weight - 1).

    The sum of weights is not rounded. Subclasses compute a variance as a difference between two numbers. If the
    standard deviation is much smaller than the mean (for example, 1 and 1e8), the two numbers are nearly equal, and a
    rounded sum of weights would make the difference wrong.
    """

    rows = Flat()
    excess = Flat(form="exact", excess_of="rows")

    def row_arguments(self, like: Like) -> tuple[Any, Any]:
        """Return the arrays of row counts and of sums of (weight - 1) as kernel arguments.

        If rows have no weights, the second array is empty.
        """
        own = type(self)
        return own.rows, own.excess if like.has_weights else NOTHING

    def value_limits(self, like: Like, terms: int) -> NDArray[np.float64]:
        """Return the valid range of each column of numbers, for a kernel that both checks and sums the numbers.

        Such a kernel is faster than two separate ones, because it reads each column only once. A row of the result has
        four elements: the smallest and the largest valid absolute value of a nonzero number; the lower bound of all
        numbers; and whether this bound is exclusive. The result is empty if a separate kernel must check the columns.
        This is the case if the state has several cells (slices), if rows have weights, or if `terms`, the number of
        sums, is too large.
        """
        kinds = [need.kind for need in self.needs() if isinstance(need.kind, Number)]
        if not like.lone or like.has_weights or not 0 < terms <= MAX_CHECKED_SUMS:
            kinds.clear()
        return np.array([(k.smallest, k.largest, k.low, k.above) for k in kinds], np.float64).reshape(-1, 4)

    def weight(self) -> Fraction:
        """Return the exact total weight, which is the number of rows if rows have no weights."""
        extra = exact_to_fraction(self.excess) if self.excess is not None else 0
        return int(self.rows) + Fraction(extra)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows), "weight": self.weight()}


def check_columns(state: Any) -> None:
    """Raise ValueError unless the setting `columns` of a state is one or two different names, none of them reserved."""
    columns = state.columns
    if len(columns) not in (1, 2) or len({*columns, *RESERVED_ROLES}) != len(columns) + len(RESERVED_ROLES):
        raise ValueError(f"{type(state).__name__}: expected one column or two different columns, found {columns!r}")
