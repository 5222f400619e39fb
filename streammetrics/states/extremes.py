"""The least and the largest number seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added, highest, lowest
from ..columns import Column, Need, matrix, weight
from ..errors import StateFormatError
from ..numbers import number
from ..settings import setting
from ..state import State
from .weighed import check_columns

__all__ = ["Extremes"]

NONE_HIGH, NONE_LOW = np.iinfo(np.int64).min, np.iinfo(np.int64).max
SIZE_MASK = np.int64(0x7FFFFFFFFFFFFFFF)


class Extremes(State, tag="extremes"):
    """The least and the largest value, or absolute difference of two columns, over rows whose weight is not 0.

    Parameters
    ----------
    columns : tuple of str
        The role of the values; or of two columns, whose absolute difference is taken.
    num_outputs : int, optional
        Rows of so many values in each column.

    Notes
    -----
    Held as the bits of the float64, turned so that integers are in the order of the numbers.
    """

    columns: tuple[str, ...] = setting(default=("value",))
    num_outputs: int | None = setting(default=None, low=1, high=1 << 20)

    rows: Array = added()
    low: Array = lowest("outputs")
    high: Array = highest("outputs")

    def __post_init__(self) -> None:
        check_columns(self)
        super().__post_init__()

    @property
    def outputs(self) -> int:
        """How many values a row has in each column."""
        return self.num_outputs or 1

    def needs(self) -> tuple[Need, ...]:
        columns = [number(role) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def absorb(self, at: NDArray[np.int64] | None, /, sample_weight: Column | None = None, **columns: Column) -> None:
        values = columns[self.columns[0]].values.astype(np.float64)
        if len(self.columns) == 2:
            values = np.abs(columns[self.columns[1]].values - values)
        values = values.reshape(len(values), self.outputs)
        self.rows[...] += len(values) if at is None else np.bincount(at, minlength=len(self.rows))
        if sample_weight is not None:
            kept = sample_weight.values != 0
            values, at = values[kept], None if at is None else at[kept]
        if not len(values):
            return
        if at is not None:
            keys = _turned((values + 0.0).view(np.int64))  # no zero but 0.0
            np.minimum.at(self.low, at, keys)
            np.maximum.at(self.high, at, keys)
            return
        for held, least, combine in (
            (self.low, values.min(axis=0), np.minimum),
            (self.high, values.max(axis=0), np.maximum),
        ):
            held[...] = combine(held, _turned((least + 0.0).view(np.int64)))

    def check(self) -> None:
        seen = self.high != NONE_HIGH
        far = 2.0**402
        for bits in (self.low, self.high):
            values = _turned(bits[seen]).view(np.float64)
            if not (np.abs(values) <= far).all():
                raise StateFormatError("Extremes holds a number that cannot be")
        if (seen != (self.low != NONE_LOW)).any() or (self.low[seen] > self.high[seen]).any():
            raise StateFormatError("Extremes.low is above Extremes.high")

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}

    def least(self, output: int = 0) -> float:
        """The least value; NaN if there is none."""
        return _value(self.low[output], NONE_LOW)

    def largest(self, output: int = 0) -> float:
        """The largest value; NaN if there is none."""
        return _value(self.high[output], NONE_HIGH)


def _turned(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn the bits of float64 into integers of the same order, and back."""
    return np.asarray(bits ^ ((bits >> 63) & SIZE_MASK))


def _value(held: Any, none: int) -> float:
    return float("nan") if held == none else float(_turned(np.array([held], np.int64)).view(np.float64)[0])
