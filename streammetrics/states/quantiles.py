"""The histogram of numbers by their leading bits: enough for every quantile, with a certified relative error."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added, highest
from ..columns import Column, Need, matrix, weight
from ..errors import InvalidInputError
from ..exact import UNIT, Mass, carry_fixed
from ..numbers import number
from ..settings import setting
from ..state import State
from .weighed import NO_WEIGHTS, NOTHING, check_columns, same_float

__all__ = ["ValueHistogram"]

LOWEST, OCTAVES = -460, 862
"""The first octave, and how many there are: all that differences of numbers of 2**-400 to 2**400 can be."""


class ValueHistogram(State, tag="value_histogram"):
    """Rows by bucket of a value, or of the difference of two columns.

    A bucket is the sign, the exponent and the leading bits of the mantissa: 0 has its own, and the map never decreases.

    Parameters
    ----------
    columns : tuple of str
        The role of the values; or of two columns, whose difference is counted.
    signed : bool
        Whether the difference, second less first, has a sign, or is absolute.
    bits : int
        Of the mantissa: a bucket is at most 2**-bits of its value wide.
    num_outputs : int, optional
        Rows of so many values in each column.

    Notes
    -----
    862 * 2**bits buckets a sign, 0.9 MiB at 7 bits, mostly untouched. `off_grid` is 1 if a value had bits that its bucket
    does not show; while it is 0 every bucket holds one value, and quantiles are exact.
    """

    columns: tuple[str, ...] = setting(default=("value",))
    signed: bool = setting(default=False)
    bits: int = setting(default=7, low=1, high=14)
    num_outputs: int | None = setting(default=None, low=1, high=1 << 20)

    rows: Array = added("outputs", "buckets")
    excess: Array = added("outputs", "buckets", form="fixed", optional=True)
    off_grid: Array = highest("outputs", form="flag")

    def __post_init__(self) -> None:
        check_columns(self)
        super().__post_init__()

    @property
    def outputs(self) -> int:
        """How many values a row has in each column."""
        return self.num_outputs or 1

    @property
    def middle(self) -> int:
        """The bucket of 0."""
        return 0 if len(self.columns) == 2 and not self.signed else OCTAVES << self.bits

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return self.middle + (OCTAVES << self.bits) + 1

    def needs(self) -> tuple[Need, ...]:
        columns = [number(role) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def absorb(self, at: NDArray[np.int64] | None, /, sample_weight: Column | None = None, **columns: Column) -> None:
        from ..kernels.values import count_values

        first, second = same_float(columns[self.columns[0]].values, columns[self.columns[-1]].values)
        count_values(
            first,
            second if len(self.columns) == 2 else second[:0],
            NO_WEIGHTS if sample_weight is None else sample_weight.values,
            NOTHING if at is None else at,
            self.outputs,
            self.signed,
            self.bits,
            self.middle,
            self.buckets,
            self.rows.reshape(-1),
            NOTHING if sample_weight is None else self.need("excess").reshape(-1),
            self.off_grid.reshape(-1),
        )

    def facts(self) -> dict[str, Any]:
        unit = 1 if self.excess is None else UNIT
        rows, weight = int(self.rows[0].sum()), Fraction(self.mass(0).total(), unit)
        return {"rows": rows, "weight": weight, "off_grid": bool(self.off_grid.any())}

    def mass(self, output: int) -> Mass:
        """Rows (or weight) by bucket of one output, in ascending order of value."""
        return Mass.of(self.rows[output], None if self.excess is None else self.excess[output])

    def limits(self, bucket: int, output: int) -> tuple[Fraction, Fraction]:
        """Between which values a bucket lies; one value if it is known to hold no other."""
        step = abs(bucket - self.middle)
        if not step:
            return Fraction(0), Fraction(0)
        near, far = self._edge(step), self._edge(step + 1)
        if not self.off_grid[output]:
            far = near
        return (near, far) if bucket > self.middle else (-far, -near)

    def _edge(self, step: int) -> Fraction:
        """The least size in the step-th bucket from 0."""
        octave, part = divmod(step - 1, 1 << self.bits)
        return Fraction(2) ** (LOWEST + octave) * (1 + Fraction(part, 1 << self.bits))

    def values(self, buckets: NDArray[np.int64]) -> NDArray[np.float64]:
        """A value inside each of some buckets: the end that is nearer to 0."""
        step = np.abs(buckets - self.middle)
        octave, part = np.divmod(np.maximum(step - 1, 0), 1 << self.bits)
        size = np.ldexp(1 + part / (1 << self.bits), LOWEST + octave)
        return np.asarray(np.where(step == 0, 0.0, np.sign(buckets - self.middle) * size))

    def coarsen(self, bits: int) -> ValueHistogram:
        """Return the histogram of the same rows with fewer bits: what they would have made there, to the bit."""
        drop = self.bits - bits
        if drop < 0:
            raise InvalidInputError(f"a histogram of {self.bits} bits cannot be refined to {bits}; coarsen() goes down")
        if drop == 0:
            return self.copy()
        new = self._with(self.settings | {"bits": bits})
        step = np.arange(self.buckets) - self.middle
        to = np.sign(step) * (((np.abs(step) - 1) >> drop) + 1)  # 0 stays: its sign is 0
        firsts = np.flatnonzero(np.diff(to, prepend=to[0] - 1))
        arrays = {"dropped": self.dropped.copy(), "rows": np.add.reduceat(self.rows, firsts, axis=-1)}
        if self.excess is not None:
            arrays["excess"] = np.add.reduceat(self.excess, firsts, axis=-2)
            carry_fixed(arrays["excess"])
        off = (step != 0) & ((np.abs(step) - 1) & ((1 << drop) - 1) != 0)
        seen = self.rows != 0
        if self.excess is not None:  # rows of weight 0 do not count
            seen &= (self.excess[..., 0] != -(self.rows << 20)) | (self.excess[..., 1] != 0)
        arrays["off_grid"] = self.off_grid | (seen & off).any(axis=-1).astype(np.int64)
        new.__dict__["_slices"] = self.slices
        new._take(arrays)
        return new
