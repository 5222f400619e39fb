"""The least and the largest number seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.kinds import Need, matrix, weight
from ..batch.numbers import number
from ..errors import StateFormatError
from ..numerics.settings import setting
from ..state.declare import UNKNOWN, Flat, identity
from ..state.state import State
from .step import Like, Step
from .weighted_rows import check_columns

__all__ = ["Extremes", "check_range", "value_of"]

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
    relative : bool
        Whether a difference is divided by the size of the first column; rows where this is 0 are left out.

    Notes
    -----
    Held as the bits of the float64, turned so that integers are in the order of the numbers.
    """

    columns: tuple[str, ...] = setting(default=("value",))
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)
    relative: bool = setting(default=False)

    rows = Flat()
    low = Flat("outputs", form="low")
    high = Flat("outputs", form="high")

    def __post_init__(self) -> None:
        check_columns(self)
        if self.relative and (len(self.columns) == 1 or self.num_outputs is not None):
            raise ValueError("Extremes: relative=True is for the difference of two columns of numbers")
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

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make relative differences, and a weight of 0 for rows that have none."""
        if not self.relative:
            return columns
        first, second = (np.asarray(columns[role].values, np.float64) for role in self.columns)
        some = first != 0
        ratio = np.abs(second - first) / np.where(some, np.abs(first), 1.0)
        given = columns.get("sample_weight")
        weights = some.astype(np.float64) if given is None else np.where(some, given.values, 0.0)
        return {"values": Column(ratio, "float64"), "sample_weight": Column(weights, "float64")}

    def steps(self, like: Like) -> Iterable[Step]:
        own, pair = type(self), len(self.columns) == 2
        if self.relative:
            into = 1, False, own.rows, own.low, own.high
            return [Step("extremes:note_extremes", "values", "values", "sample_weight", "at", *into)]
        columns = self.columns[0], self.columns[-1], "sample_weight", "at"
        return [Step("extremes:note_extremes", *columns, self.outputs, pair, own.rows, own.low, own.high)]

    def check(self) -> None:
        check_range(self, far=FAR * FAR if self.relative else FAR)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}

    def least(self, output: int = 0) -> float:
        """The least value; NaN if there is none."""
        return value_of(self.low[output], "low")

    def largest(self, output: int = 0) -> float:
        """The largest value; NaN if there is none."""
        return value_of(self.high[output], "high")


def check_range(state: State, least: str = "low", largest: str = "high", far: float = FAR) -> None:
    """Raise unless two parts of a state, of all cells, are the least and the largest of some numbers."""
    low, high = state.flat(least), state.flat(largest)
    seen = high != NONE_HIGH
    for bits, form in ((low, least), (high, largest)):
        known = bits[seen & (bits != UNKNOWN.get(form, NONE_LOW))]
        if not (np.abs(_turned(known).view(np.float64)) <= far).all():
            raise StateFormatError(f"{type(state).__name__} holds a number that cannot be")
    if (seen != (low != NONE_LOW)).any() or (low[seen] > high[seen]).any():
        raise StateFormatError(f"{type(state).__name__}.{least} is above {type(state).__name__}.{largest}")


def _turned(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn the bits of float64 into integers of the same order, and back."""
    return np.asarray(bits ^ ((bits >> 63) & SIZE_MASK))


def value_of(held: Any, form: str) -> float:
    """The number that an extreme of this form is; NaN if none was seen."""
    if held == UNKNOWN.get(form):
        return -math.inf if form == "least" else math.inf
    return float("nan") if held == identity(form) else float(_turned(np.array([held], np.int64)).view(np.float64)[0])
