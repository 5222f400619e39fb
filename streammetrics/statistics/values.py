"""A histogram of numbers in buckets of adaptive width, with certified bounds on every quantile."""

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
from ..state.consistency import read_row_weight
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

LOSS_PARTS = ("sums", "skipped", "lossy", "lossy_excess")
"""The names of the arrays that a state has only if its setting `losses` is not empty."""


class ValueHistogram(State, tag="value_buckets"):
    """A histogram of the values of a column, or of the differences between two columns, with the minimum and maximum.

    The buckets adapt to the values of a cell (such as a slice). An integer, the level, determines their width: level 0
    has the narrowest buckets, and each further level doubles their width. The level depends only on the set of values
    (see `state.levels`).

    Parameters
    ----------
    columns : tuple of str
        The name of the column of values, or two names. With two names, the histogram counts the differences between the
        columns, second minus first.
    signed : bool
        Whether the difference keeps its sign. By default, its absolute value is counted.
    bits : int
        The width of a bucket is at most 2**-bits times the values in it. If the values of a cell would occupy more than
        2**(bits + 6) buckets, its buckets become wider.
    num_outputs : int, optional
        The number of values per row in each column.
    losses : tuple of str
        Terms of `RegressionSums`, such as "absolute", whose exact sums the state also keeps. The histogram then counts
        the targets, so `columns` must be ("y_true",).

    Notes
    -----
    Only buckets that contain rows are kept; each takes 16 bytes. At level 0, every bucket contains one value, and
    quantiles are exact. Rows of weight 0 do not affect the smallest and the largest value. The level does not decrease
    when rows are subtracted.
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
    lossy_excess = Flat(form="exact", excess_of="lossy")

    def __post_init__(self) -> None:
        check_columns(self)
        if self.losses and self.columns != ("y_true",):
            raise ValueError('ValueHistogram: losses= needs a histogram of the targets; pass columns=("y_true",)')
        super().__post_init__()

    def parts(self) -> Mapping[str, Any]:
        return (
            self.declared_parts
            if self.losses
            else {n: p for n, p in self.declared_parts.items() if n not in LOSS_PARTS}
        )

    @property
    def loss_statistic(self) -> RegressionSums:
        """The statistic that provides the columns and the kernel call that this state uses to sum losses."""
        return RegressionSums(terms=self.losses, num_outputs=self.num_outputs)

    @property
    def outputs(self) -> int:
        """The number of values per row in each column."""
        return self.num_outputs or 1

    @property
    def counts_per_row(self) -> int:
        return self.outputs

    @property
    def places(self) -> int:
        """The number of possible buckets of all outputs together."""
        return 2 * levels.ZERO if self.outputs == 1 else self.outputs * tally.WIDEST

    def needs(self) -> tuple[Need, ...]:
        if self.losses:
            return self.loss_statistic.needs()
        columns = [number(role) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def steps(self, like: Like) -> Iterable[Step]:
        own, pair = type(self), len(self.columns) == 2
        columns = self.columns[0], self.columns[-1], "sample_weight", "at"
        top = max(own.rows.shift(self) - 64, 0)
        how = self.outputs, pair, self.signed, self.bits, top, own.level
        calls = [Step("value_histogram:count_values", *columns, *how, own.least, own.largest, own.rows)]
        if self.losses:
            counts = own.lossy, own.lossy_excess if like.has_weights else NOTHING
            calls.append(self.loss_statistic.loss_step(like, NO_LIMITS, *counts, own.sums, own.skipped))
        return calls

    def check(self) -> None:
        check_range(self, "least", "largest")
        if self.losses:
            check_losses(self, self.losses, read_row_weight(self, "lossy")[..., None])

    def loss(self, term: str, output: int = 0) -> Fraction:
        """Return the weighted sum of a loss for one output (target). Each row's loss is rounded, but not the sum."""
        return exact_to_fraction(self.sums[self.losses.index(term), output])

    @property
    def unit(self) -> int:
        """The integer that represents a weight of 1 in `mass`: 1, or 2**60 if rows have weights."""
        return 1 if self.rows.excess is None else UNIT

    def facts(self) -> dict[str, Any]:
        rows, weight = int(self._output_entries(0).int64_counts.sum()), Fraction(self.mass(0).total(), self.unit)
        return {"rows": rows, "weight": weight, "off_grid": bool(self.level.any())}

    @cached_property
    def output_starts(self) -> Ints:
        """The index in `rows` of the first entry of each output, followed by the number of entries."""
        return levels.find_group_starts(self.rows, self.outputs, self.outputs)

    def _output_entries(self, output: int) -> Entries:
        begin, end = self.output_starts[output : output + 2].tolist()
        return self.rows.select(slice(begin, end))

    def occupied_buckets(self, output: int = 0) -> Buckets:
        """Return the occupied buckets of one output (position within a row), in ascending order of value."""
        return self._output_entries(output).codes

    def mass(self, output: int) -> Mass:
        """Return the weight, in units of 1 / `unit`, of each occupied bucket of one output, in ascending order."""
        entries = self._output_entries(output)
        return Mass.from_rows(entries.int64_counts, entries.excess)

    def rows_per_bucket(self, output: int = 0) -> Ints:
        """Return the number of rows in each occupied bucket of one output (position within a row)."""
        return self._output_entries(output).int64_counts

    def value_bounds(self, output: int = 0) -> tuple[Floats, Floats]:
        """Return lower and upper bounds on the values in each occupied bucket of one output (position within a row)."""
        near, far = levels.compute_edges(self.occupied_buckets(output), int(self.level[output]), self.bits)
        low, high = np.minimum(near, far), np.maximum(near, far)
        least, largest = self.extremes(output)
        if math.isnan(least):
            return low, high
        # No value is outside the extremes, so they tighten the bounds of the first and the last bucket. In a state from
        # forged bytes, an extreme can lie outside all buckets. Even so, the outer minimum and maximum below ensure that
        # low <= high.
        low = np.minimum(np.maximum(low, least), high)
        return low, np.maximum(np.minimum(high, largest), low)

    def extremes(self, output: int = 0) -> tuple[float, float]:
        """Return the smallest and the largest value of one output (position within a row).

        Both are NaN if there are no rows. An extreme is infinite if it is unknown because rows were subtracted.
        """
        return value_of(self.least[output], "least"), value_of(self.largest[output], "largest")

    def sample_entries(self, columns: Mapping[str, Column], rows: int) -> Entries:
        """Return the values in the first `rows` rows of a batch as entries at level 0 (one value per bucket).

        Rows of weight 0 are left out.
        """
        weights = columns["sample_weight"].values[:rows] if "sample_weight" in columns else np.ones(1)
        some = slice(None) if weights.all() else weights != 0
        values = [np.asarray(columns[role].values)[:rows][some].astype(np.float64) for role in self.columns]
        number = values[0] if len(values) == 1 else values[1] - values[0]
        number = number if self.signed or len(values) == 1 else np.abs(number)
        buckets = levels.find_buckets(number, 0, self.bits).reshape(-1, self.outputs)
        high = np.broadcast_to(np.arange(self.outputs, dtype=np.uint32) << np.uint32(1), buckets.shape)
        counts = np.ones(buckets.size, np.uint32)
        shift = type(self).rows.shift(self)
        return tally.sort_entries(
            Entries(shift, buckets.reshape(-1), counts, None, np.ascontiguousarray(high).reshape(-1))
        )

    def coarsen(self, bits: int) -> Self:
        """Return exactly the histogram that the same rows would produce with a lower value of `bits`."""
        if bits > self.bits:
            raise InvalidInputError(
                f"coarsen(): expected at most {self.bits} bits, the resolution of this histogram, found {bits}"
            )
        if bits == self.bits:
            return self
        # For each bucket, find the wider bucket that contains its edge nearer to 0. This edge belongs to the old
        # bucket, so the wider bucket contains all of the old one. `canonicalize` raises the level of a cell if its
        # values occupy too many buckets.
        new, entries = self.with_settings(bits=bits), self.cells.tallies["rows"]
        level = self.read_cells_named("level").reshape(-1)[levels.number_groups(entries, self.outputs)]
        buckets = levels.find_buckets(levels.compute_near_edges(entries.codes, level, self.bits), level, bits)
        coarse = tally.sort_entries(replace(entries, codes=buckets))
        return new.with_cells(replace(self.cells, tallies={"rows": coarse})).canonicalize()
