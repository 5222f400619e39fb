"""The histogram of numbers by their leading bits: enough for every quantile, with a certified relative error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..columns.columns import Need, matrix, weight
from ..columns.numbers import number
from ..errors import InvalidInputError
from ..numerics.exact import UNIT, Mass, exact_to_fraction
from ..numerics.settings import setting, union
from ..state import tally
from ..state.declare import Flat, Tally
from ..state.state import State
from ..state.tally import Entries
from ..state.totals import weight_of
from .regression import RegressionSums, check_losses
from .step import NO_LIMITS, NOTHING, Like, Step
from .weighed import check_columns

__all__ = ["ValueHistogram"]

Ints = NDArray[np.int64]

BESIDE = ("sums", "skipped", "lossy", "lossy_excess")
"""Parts of losses."""
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
    losses : tuple of str
        Terms of `RegressionSums`, of targets and predictions, whose exact sums are kept beside: the columns are targets.

    Notes
    -----
    862 * 2**bits buckets a sign; only those that hold rows are kept, 8 bytes each. `off_grid` is 1 if a value had bits
    that its bucket does not show; while it is 0 every bucket holds one value, and quantiles are exact.
    """

    columns: tuple[str, ...] = setting(default=("value",))
    signed: bool = setting(default=False)
    bits: int = setting(default=7, low=1, high=14)
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    losses: tuple[str, ...] = union(default=())

    rows = Tally("places")
    off_grid = Flat("outputs", form="flag")
    sums = Flat("losses", "outputs", form="exact")
    skipped = Flat("losses", "outputs")
    lossy = Flat()
    lossy_excess = Flat(form="exact", beside="lossy")

    def __post_init__(self) -> None:
        check_columns(self)
        if self.losses and self.columns != ("y_true",):
            raise ValueError("ValueHistogram: losses are of predictions beside a histogram of targets")
        super().__post_init__()

    def parts(self) -> Mapping[str, Any]:
        return self.declared if self.losses else {n: p for n, p in self.declared.items() if n not in BESIDE}

    @property
    def beside(self) -> RegressionSums:
        """The statistic whose sums are kept beside."""
        return RegressionSums(terms=self.losses, num_outputs=self.num_outputs)

    @property
    def outputs(self) -> int:
        """How many values a row has in each column."""
        return self.num_outputs or 1

    @property
    def times(self) -> int:
        return self.outputs

    @property
    def middle(self) -> int:
        """The bucket of 0."""
        return 0 if len(self.columns) == 2 and not self.signed else OCTAVES << self.bits

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return self.middle + (OCTAVES << self.bits) + 1

    @property
    def places(self) -> int:
        """The number of buckets of all outputs."""
        return self.outputs * self.buckets

    def needs(self) -> tuple[Need, ...]:
        if self.losses:
            return self.beside.needs()
        columns = [number(role) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def steps(self, like: Like) -> Iterable[Step]:
        own, pair = type(self), len(self.columns) == 2
        columns = self.columns[0], self.columns[-1], "sample_weight", "at"
        how = self.outputs, pair, self.signed, self.bits, self.middle, self.buckets
        name = "count_values" if "rows" in like.dense else "emit_values"
        made = [Step(f"value_histogram:{name}", *columns, *how, own.off_grid, own.rows)]
        if self.losses:
            counts = own.lossy, own.lossy_excess if like.weighted else NOTHING
            made.append(self.beside.step(like, NO_LIMITS, *counts, own.sums, own.skipped))
        return made

    def check(self) -> None:
        if self.losses:
            check_losses(self, self.losses, weight_of(self, "lossy")[..., None])

    def loss(self, term: str, output: int = 0) -> Fraction:
        """The weighted sum of a loss; exact over its rounded terms."""
        return exact_to_fraction(self.sums[self.losses.index(term), output])

    @property
    def unit(self) -> int:
        """What masses count: a weight of 1 is so many."""
        return 1 if self.rows.excess is None else UNIT

    def facts(self) -> dict[str, Any]:
        rows, weight = int(self._of(0).mass.sum()), Fraction(self.mass(0).total(), self.unit)
        return {"rows": rows, "weight": weight, "off_grid": bool(self.off_grid.any())}

    def _of(self, output: int) -> Entries:
        """The entries of one output."""
        held = self.rows
        ends = np.array([output, output + 1]) * self.buckets
        return held.where(np.arange(*np.searchsorted(held.places.astype(np.int64), ends).tolist()))

    def occupied(self, output: int = 0) -> Ints:
        """The buckets of one output that hold rows, in ascending order of value."""
        return self._of(output).places.astype(np.int64) - output * self.buckets

    def mass(self, output: int) -> Mass:
        """Rows (or weight) by occupied bucket of one output, in ascending order of value."""
        held = self._of(output)
        return Mass.of(held.mass, held.excess)

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
        octave, part = divmod(int(step) - 1, 1 << self.bits)
        return Fraction(2) ** (LOWEST + octave) * (1 + Fraction(part, 1 << self.bits))

    def values(self, buckets: Ints) -> NDArray[np.float64]:
        """A value inside each of some buckets: the end that is nearer to 0."""
        step = np.abs(buckets - self.middle)
        octave, part = np.divmod(np.maximum(step - 1, 0), 1 << self.bits)
        size = np.ldexp(1 + part / (1 << self.bits), LOWEST + octave)
        return np.asarray(np.where(step == 0, 0.0, np.sign(buckets - self.middle) * size))

    def ends(self, output: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Between which values the occupied buckets of one output lie, in ascending order."""
        buckets = self.occupied(output)
        near = self.values(buckets)
        far = self.values(buckets + np.sign(buckets - self.middle)) if self.off_grid[output] else near
        return np.minimum(near, far), np.maximum(near, far)

    def coarsen(self, bits: int) -> Self:
        """Return the histogram of the same rows with fewer bits: what they would have made there, to the bit."""
        drop = self.bits - bits
        if drop < 0:
            raise InvalidInputError(f"a histogram of {self.bits} bits cannot be refined to {bits}; coarsen() goes down")
        if drop == 0:
            return self
        new, held = self.with_settings(bits=bits), self.cells.tallies["rows"]
        cell, (output, bucket) = held.cells, np.divmod(held.places.astype(np.int64), self.buckets)
        step = bucket - self.middle
        size = np.abs(step) - 1  # of 0 it is -1, and its sign 0: it stays
        place = output * new.buckets + new.middle + np.sign(step) * ((size >> drop) + 1)
        shift = (new.places - 1).bit_length()
        codes = (cell.astype(np.uint64) << np.uint64(shift)) | place.astype(np.uint64)
        off_grid = self.flat("off_grid").copy()
        lost = (step != 0) & (size & ((1 << drop) - 1) != 0) & tally.weighs(held)
        off_grid[cell[lost], output[lost]] = 1
        made = tally.reduce(Entries(shift, codes, held.counts, held.excess))
        flats = dict(self.cells.flats) | {"off_grid": off_grid}
        return new.holding(replace(self.cells, flats=flats, tallies={"rows": made}))
