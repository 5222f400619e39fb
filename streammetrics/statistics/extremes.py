"""The least and the largest number seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns.columns import Need, matrix, weight
from ..columns.numbers import number
from ..errors import StateFormatError
from ..numerics.settings import setting
from ..state.declare import Flat, identity
from ..state.state import State
from .step import Like, Step
from .weighed import check_columns

__all__ = ["Extremes"]

NONE_HIGH, NONE_LOW = identity("high"), identity("low")
SIZE_MASK = np.int64(0x7FFFFFFFFFFFFFFF)
FAR = 2.0**402


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
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    rows = Flat()
    low = Flat("outputs", form="low")
    high = Flat("outputs", form="high")

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

    def steps(self, like: Like) -> Iterable[Step]:
        own, pair = type(self), len(self.columns) == 2
        columns = self.columns[0], self.columns[-1], "sample_weight", "at"
        return [Step("extremes:note_extremes", *columns, self.outputs, pair, own.rows, own.low, own.high)]

    def check(self) -> None:
        low, high = self.flat("low"), self.flat("high")
        seen = high != NONE_HIGH
        for bits in (low, high):
            if not (np.abs(_turned(bits[seen]).view(np.float64)) <= FAR).all():
                raise StateFormatError("Extremes holds a number that cannot be")
        if (seen != (low != NONE_LOW)).any() or (low[seen] > high[seen]).any():
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
