"""Means over rows of functions of a positive value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns.columns import Need, weight
from ..columns.numbers import number
from ..errors import StateFormatError
from ..numerics.elementary import log
from ..state.totals import weight_of
from .row_means import RowMeans

__all__ = ["ValueRows"]

LARGEST = {"log": 278.0, "inverse": 2.0**400}  # of numbers from 2**-400 to 2**400


class ValueRows(RowMeans, tag="value_rows"):
    """Sums over rows of terms of a value above 0.

    Parameters
    ----------
    terms : tuple of str
        "log", the natural logarithm; "inverse", 1 / v.

    Notes
    -----
    Terms are rounded to float64. 1.1 kB a term.
    """

    choices = tuple(LARGEST)

    def needs(self) -> tuple[Need, ...]:
        return number("value", above=0.0), weight()

    def values_of(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        v = np.asarray(columns["value"].values, np.float64)
        return np.column_stack([np.asarray(log(v)) if term == "log" else 1.0 / v for term in self.terms])

    def check(self) -> None:
        held = weight_of(self, "rows")
        for i, term in enumerate(self.terms):
            if held.fall_short(self.flat("sums")[..., i, :], LARGEST[term], signed=term == "log"):
                raise StateFormatError(f"ValueRows.sums holds a sum of {term} that rows of this weight cannot have")
        if (self.flat("squares")[..., -1] < 0).any():
            raise StateFormatError("ValueRows.squares holds a negative sum of squares")
