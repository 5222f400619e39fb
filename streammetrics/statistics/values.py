"""The histogram of numbers in buckets that fit them: enough for every quantile, with certified bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.kinds import Need, matrix, weight
from ..batch.numbers import number
from ..errors import InvalidInputError
from ..numerics.exact import UNIT, Mass, exact_to_fraction
from ..numerics.settings import setting, union
from ..state import levels, tally
from ..state.consistency import weight_of
from ..state.declare import Flat, Tally
from ..state.state import State
from ..state.tally import Entries
from .extremes import check_range, value_of
from .regression import RegressionSums, check_losses
from .step import NO_LIMITS, NOTHING, Like, Step
from .weighted_rows import check_columns

__all__ = ["ValueHistogram"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Buckets = NDArray[np.uint64]

BESIDE = ("sums", "skipped", "lossy", "lossy_excess")
"""Parts of losses."""


class ValueHistogram(State, tag="value_buckets"):
    """Rows by bucket of a value, or of the difference of two columns, and the least and the largest value.

    Buckets have the level that the values of a cell need (see `state.levels`).

    Parameters
    ----------
    columns : tuple of str
        The role of the values; or of two columns, whose difference is counted.
    signed : bool
        Whether the difference, second less first, has a sign, or is absolute.
    bits : int
        A bucket is at most 2**-bits of its value wide; a cell has up to 2**(bits + 6) of them before they become wider.
    num_outputs : int, optional
        Rows of so many values in each column.
    losses : tuple of str
        Terms of `RegressionSums`, of targets and predictions, whose exact sums are kept beside: the columns are targets.

    Notes
    -----
    Only buckets that hold rows are kept, 16 bytes each. At level 0 every bucket holds one value, and quantiles are exact.
    The extremes are those of rows whose weight is not 0; when rows are taken away, they and the level stay.
    """

    columns: tuple[str, ...] = setting(default=("value",))
    signed: bool = setting(default=False)
    bits: int = setting(default=7, low=1, high=14)
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    losses: tuple[str, ...] = union(default=())

    counter: ClassVar[str] = "values"

    rows = Tally("places", level="level")
    level = Flat("outputs", form="level")
    least = Flat("outputs", form="least")
    largest = Flat("outputs", form="largest")
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
    def places(self) -> int:
        """The number of buckets of all outputs."""
        return 2 * levels.ZERO if self.outputs == 1 else self.outputs * tally.WIDEST

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
        top = max(own.rows.shift(self) - 64, 0)
        how = self.outputs, pair, self.signed, self.bits, top, own.level
        made = [Step("value_histogram:count_values", *columns, *how, own.least, own.largest, own.rows)]
        if self.losses:
            counts = own.lossy, own.lossy_excess if like.weighted else NOTHING
            made.append(self.beside.step(like, NO_LIMITS, *counts, own.sums, own.skipped))
        return made

    def check(self) -> None:
        check_range(self, "least", "largest")
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
        return {"rows": rows, "weight": weight, "off_grid": bool(self.level.any())}

    @cached_property
    def output_starts(self) -> Ints:
        """Where the entries of each output begin, and the end."""
        return levels.starts_of(self.rows, self.outputs, self.outputs)

    def _of(self, output: int) -> Entries:
        begin, end = self.output_starts[output : output + 2].tolist()
        return self.rows.where(slice(begin, end))

    def occupied(self, output: int = 0) -> Buckets:
        """The buckets of one output that hold rows, in ascending order of value."""
        return self._of(output).codes

    def mass(self, output: int) -> Mass:
        """Rows (or weight) by occupied bucket of one output, in ascending order of value."""
        held = self._of(output)
        return Mass.of(held.mass, held.excess)

    def rows_of(self, output: int = 0) -> Ints:
        """How many rows are in each occupied bucket of one output."""
        return self._of(output).mass

    def ends(self, output: int = 0) -> tuple[Floats, Floats]:
        """Between which values the rows of each occupied bucket of one output lie, in ascending order."""
        near, far = levels.edges_of(self.occupied(output), int(self.level[output]), self.bits)
        low, high = np.minimum(near, far), np.maximum(near, far)
        least, largest = self.extremes(output)
        if math.isnan(least):
            return low, high
        low = np.minimum(np.maximum(low, least), high)  # extremes lie in a bucket, but of bytes that no rows made
        return low, np.maximum(np.minimum(high, largest), low)

    def extremes(self, output: int = 0) -> tuple[float, float]:
        """The least and the largest value of one output; infinite if they may have been taken away, NaN without rows."""
        return value_of(self.least[output], "least"), value_of(self.largest[output], "largest")

    def sample(self, columns: Mapping[str, Column], rows: int) -> Entries:
        """Return the first rows of some columns at level 0, without rows of weight 0, which do not affect the level."""
        weights = columns["sample_weight"].values[:rows] if "sample_weight" in columns else np.ones(1)
        some = slice(None) if weights.all() else weights != 0
        values = [np.asarray(columns[role].values)[:rows][some].astype(np.float64) for role in self.columns]
        number = values[0] if len(values) == 1 else values[1] - values[0]
        number = number if self.signed or len(values) == 1 else np.abs(number)
        buckets = levels.bucket_of(number, 0, self.bits).reshape(-1, self.outputs)
        high = np.broadcast_to(np.arange(self.outputs, dtype=np.uint32) << np.uint32(1), buckets.shape)
        counts = np.ones(buckets.size, np.uint32)
        shift = type(self).rows.shift(self)
        return tally.reduce(Entries(shift, buckets.reshape(-1), counts, None, np.ascontiguousarray(high).reshape(-1)))

    def coarsen(self, bits: int) -> Self:
        """Return the histogram of the same rows with fewer bits: what they would have made there, to the bit."""
        if bits > self.bits:
            raise InvalidInputError(f"a histogram of {self.bits} bits cannot be refined to {bits}; coarsen() goes down")
        if bits == self.bits:
            return self
        new, held = self.with_settings(bits=bits), self.cells.tallies["rows"]
        level = self.flat("level").reshape(-1)[levels.groups_of(held, self.outputs)]
        buckets = levels.bucket_of(levels.near_edges(held.codes, level, self.bits), level, bits)
        made = tally.reduce(replace(held, codes=buckets))
        return new.holding(replace(self.cells, tallies={"rows": made})).present()
