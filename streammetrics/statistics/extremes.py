"""The smallest and the largest value of a column, or of the absolute difference of two columns."""

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
from ..state.declare import UNKNOWN_EXTREME, Flat, identity
from ..state.state import State
from .step import Like, Step
from .weighted_rows import check_columns

__all__ = ["Extremes", "check_range", "value_of"]

NONE_HIGH, NONE_LOW = identity("high"), identity("low")
SIZE_MASK = np.int64(0x7FFFFFFFFFFFFFFF)
FAR = 2.0**402


class Extremes(State, tag="extremes"):
    """The smallest and the largest value of a column, or of the absolute difference of two columns.

    Parameters
    ----------
    columns : tuple of str
        The name of the column of values, or two names. With two names, the absolute difference of the two columns is used.
    num_outputs : int, optional
        The number of values per row in each column.
    relative : bool
        Whether the difference is divided by the absolute value of the first column. Rows in which the first column is 0
        are left out.

    Notes
    -----
    Rows with weight 0 are left out. An extreme is stored as an int64: the bits of the float64, converted so that the
    integers have the same order as the float64 numbers.
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
            raise ValueError("Extremes: relative=True needs two columns of numbers, and does not support num_outputs=")
        super().__post_init__()

    @property
    def outputs(self) -> int:
        """The number of values per row in each column."""
        return self.num_outputs or 1

    def needs(self) -> tuple[Need, ...]:
        columns = [number(role) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace the two columns with their relative difference if `relative` is set.

        If the first column is 0, the relative difference is undefined, and the row gets weight 0.
        """
        if not self.relative:
            return columns
        first, second = (np.asarray(columns[role].values, np.float64) for role in self.columns)
        some = first != 0
        ratio = np.abs(second - first) / np.where(some, np.abs(first), 1.0)
        old_weights = columns.get("sample_weight")
        weights = some.astype(np.float64) if old_weights is None else np.where(some, old_weights.values, 0.0)
        return {"values": Column(ratio, "float64"), "sample_weight": Column(weights, "float64")}

    def steps(self, like: Like) -> Iterable[Step]:
        own, pair = type(self), len(self.columns) == 2
        if self.relative:
            into = 1, False, own.rows, own.low, own.high
            return [Step("extremes:update_extremes", "values", "values", "sample_weight", "at", *into)]
        columns = self.columns[0], self.columns[-1], "sample_weight", "at"
        return [Step("extremes:update_extremes", *columns, self.outputs, pair, own.rows, own.low, own.high)]

    def check(self) -> None:
        check_range(self, max_size=FAR * FAR if self.relative else FAR)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}

    def least(self, output: int = 0) -> float:
        """Return the smallest value of an output (each row has a value for each output); NaN if there are no rows."""
        return value_of(self.low[output], "low")

    def largest(self, output: int = 0) -> float:
        """Return the largest value of an output (each row has a value for each output); NaN if there are no rows."""
        return value_of(self.high[output], "high")


def check_range(state: State, least: str = "low", largest: str = "high", max_size: float = FAR) -> None:
    """Raise StateFormatError if a state read from bytes has impossible extremes.

    Parameters
    ----------
    state : State
        The state to check.
    least, largest : str
        The names of the arrays with the smallest and the largest values.
    max_size : float
        The largest valid absolute value of an extreme.
    """
    low, high = state.read_cells_named(least), state.read_cells_named(largest)
    # A cell without values has the extremes NONE_LOW and NONE_HIGH. In a cell with values, an extreme is
    # UNKNOWN_EXTREME after a subtraction that may have removed the row with this extreme.
    has_values = high != NONE_HIGH
    for bits, form in ((low, least), (high, largest)):
        stored = bits[has_values & (bits != UNKNOWN_EXTREME.get(form, NONE_LOW))]
        if not (np.abs(_reorder_bits(stored).view(np.float64)) <= max_size).all():
            raise StateFormatError(f"the state is corrupt: {type(state).__name__} contains a number out of range")
    if (has_values != (low != NONE_LOW)).any() or (low[has_values] > high[has_values]).any():
        raise StateFormatError(
            f"the state is corrupt: {type(state).__name__}.{least} is above {type(state).__name__}.{largest}"
        )


def _reorder_bits(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert the bits of float64 numbers to integers in the same order as the numbers, or convert such integers back.

    For a negative number, all bits except the sign are flipped. Flipping them again restores the original bits.
    """
    return np.asarray(bits ^ ((bits >> 63) & SIZE_MASK))


def value_of(bits: Any, form: str) -> float:
    """Convert a stored extreme to a float.

    Parameters
    ----------
    bits : int
        The stored integer.
    form : str
        The form of the stored array: "low" or "least" for smallest values, "high" or "largest" for largest values.

    Returns
    -------
    float
        NaN if there are no rows; minus or plus infinity if a subtraction has made the extreme unknown.
    """
    if bits == UNKNOWN_EXTREME.get(form):
        return -math.inf if form == "least" else math.inf
    return (
        float("nan") if bits == identity(form) else float(_reorder_bits(np.array([bits], np.int64)).view(np.float64)[0])
    )
