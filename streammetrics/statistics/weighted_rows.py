"""Rows and their weight, exactly: the part that statistics of exact sums have in common."""

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

__all__ = ["WeighedRows", "check_columns"]

MOST_CHECKED = 16  # as many sums as kernels keep beside
TAKEN = ("sample_weight", "at", "front", "ones")


class WeighedRows(State):
    """Rows, and the sum of w - 1 without rounding: with means of 1e8 a spread of 1 asks for all digits of the weights."""

    rows = Flat()
    excess = Flat(form="exact", beside="rows")

    def counts(self, like: Like) -> tuple[Any, Any]:
        """Rows and excess as the kernels take them."""
        own = type(self)
        return own.rows, own.excess if like.weighted else NOTHING

    def limits(self, like: Like, terms: int) -> NDArray[np.float64]:
        """The range of each column of numbers, for a kernel that checks them as it sums them; empty where it does not.

        A column is then read once. What was added is taken back by copying, so sums are few.
        """
        kinds = [need.kind for need in self.needs() if isinstance(need.kind, Number)]
        if not like.lone or like.weighted or not 0 < terms <= MOST_CHECKED:
            kinds.clear()
        return np.array([(k.smallest, k.largest, k.low, k.above) for k in kinds], np.float64).reshape(-1, 4)

    def weight(self) -> Fraction:
        """Rows, or their total weight; exact."""
        extra = exact_to_fraction(self.excess) if self.excess is not None else 0
        return int(self.rows) + Fraction(extra)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows), "weight": self.weight()}


def check_columns(state: Any) -> None:
    """Raise unless a state reads one column, or two different ones."""
    columns = state.columns
    if len(columns) not in (1, 2) or len({*columns, *TAKEN}) != len(columns) + len(TAKEN):
        raise ValueError(f"{type(state).__name__} reads one column or two different ones, not {columns!r}")
