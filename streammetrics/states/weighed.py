"""Rows and their weight, exactly: the part that states of exact sums have in common."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added
from ..columns import Column
from ..exact import exact_to_fraction
from ..state import State

__all__ = ["NOTHING", "NO_WEIGHTS", "WeighedRows", "check_columns", "same_float"]

NOTHING = np.zeros(0, np.int64)
NO_WEIGHTS = np.zeros(0)


class WeighedRows(State):
    """Rows, and the sum of w - 1 without rounding: with means of 1e8 a spread of 1 asks for all digits of the weights."""

    rows: Array = added()
    excess: Array = added(form="exact", optional=True)

    def weigh(self, n: int, at: NDArray[np.int64] | None, sample_weight: Column | None) -> NDArray[np.float64]:
        """Count n rows with their weights, and return the weights; an empty array for none."""
        if at is None:
            self.rows[...] += n
        else:
            self.rows[...] += np.bincount(at, minlength=len(self.rows))
        if sample_weight is None:
            return NO_WEIGHTS
        from ..kernels.exact_sums import sum_weights

        weights: NDArray[np.float64] = sample_weight.values
        sum_weights(weights, NOTHING if at is None else at, self.need("excess").reshape(-1))
        return weights

    def weight(self) -> Fraction:
        """Rows, or their total weight; exact."""
        extra = exact_to_fraction(self.excess) if self.excess is not None else 0
        return int(self.rows) + Fraction(extra)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows), "weight": self.weight()}


def check_columns(state: Any) -> None:
    """Raise unless a state reads one column, or two different ones."""
    columns = state.columns
    if len(columns) not in (1, 2) or len({*columns, "sample_weight"}) != len(columns) + 1:
        raise ValueError(f"{type(state).__name__} reads one column or two different ones, not {columns!r}")


def same_float(a: Array, b: Array) -> tuple[Array, Array]:
    """Two columns of numbers as flat arrays of one dtype."""
    if a.dtype != b.dtype:
        a, b = a.astype(np.float64), b.astype(np.float64)
    return a.reshape(-1), b.reshape(-1)
