"""Check that the arrays of a decoded state are consistent: no weight or sum may be larger than its rows allow.

The number of rows and their total weight limit the size of every sum over these rows. The checks protect against
manipulated bytes, so that every decoded state is one that counting rows could have produced. Sums are compared without
rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.exact import CHUNK_BASE, CHUNKS, LOW_BITS, carry_exact, carry_fixed, to_approximate_floats
from .cell_table import CellTable
from .declare import LIMIT, Array
from .fold import check_capacity

__all__ = ["RowWeight", "are_within", "check_totals", "read_row_weight"]

Ints = NDArray[np.int64]

MAX_ROW_WEIGHT = 1 << 31
"""The weight of a row is below this limit."""
UNIT_CHUNK = CHUNK_BASE // 32
"""The index of the chunk (32-bit digit) of a superaccumulator that counts units of 1."""
MAX_FIXED_ROWS = 1 << 42
"""Larger counts of rows are replaced with this number, because as fixed-point numbers they would not fit into an int64.
All fixed-point sums are smaller, so comparisons with sums have the same result."""
BLOCK = 1 << 9
"""The number of sums that are compared at a time, which limits the temporary memory."""
MAX_LAST_CHUNK = 1 << 32
"""If the last (highest) chunk of a superaccumulator is this large, the sum exceeds every finite limit."""


@dataclass(frozen=True)
class RowWeight:
    """Row counts and the corresponding total weights, as arrays.

    Parameters
    ----------
    rows : int64
        The numbers of rows.
    excess : int64 with one more axis, optional
        The total weight minus the number of rows, that is, the sum of w - 1. The last axis contains the integers that
        make up a fixed-point number or a superaccumulator. None if all weights are 1.
    """

    rows: Ints
    excess: Array | None = None

    def __getitem__(self, at: tuple[Any, ...]) -> RowWeight:
        """Return the elements at an index such as `[..., 0]` or `[..., None]`, which must begin with an ellipsis."""
        return RowWeight(self.rows[at], None if self.excess is None else self.excess[(*at, slice(None))])

    def sum(self, axis: int) -> RowWeight:
        """Return the sums over an axis; `axis` must be negative, that is, counted from the end."""
        if self.excess is None:
            return RowWeight(self.rows.sum(axis=axis))
        total = self.excess.sum(axis=axis - 1)
        (carry_fixed if total.shape[-1] == 2 else carry_exact)(total)
        return RowWeight(self.rows.sum(axis=axis), total)

    def equals(self, other: RowWeight) -> bool:
        """Return whether the row counts and, if neither is None, the excesses are equal; shapes are broadcast."""
        if self.excess is None or other.excess is None:
            return bool((self.rows == other.rows).all())
        return bool((self.rows == other.rows).all() and (self.excess == other.excess).all())

    def is_out_of_range(self) -> bool:
        """Return whether any total weight is negative or larger than the number of rows allows."""
        if self.excess is None:
            return False
        upper = self.rows.astype(np.float64) * MAX_ROW_WEIGHT
        if self.excess.shape[-1] == 2:
            high = self.excess[..., 0]
            lower = -(np.minimum(self.rows, MAX_FIXED_ROWS) << 20)
            return bool((high < lower).any() or (high * 2.0**-20 > upper).any())
        # A lower bound shows that most weights are positive. Only the others need the slower exact sums.
        uncertain = ~(_bound_weight(self.rows, self.excess) > 0)
        if uncertain.any() and (_to_superaccumulators(self.rows[uncertain], self.excess[uncertain])[:, -1] < 0).any():
            return True
        return _exceeds_limit(self.excess, RowWeight(self.rows), MAX_ROW_WEIGHT)

    def to_superaccumulators(self) -> Ints:
        """Return the total weights as superaccumulators, which represent sums of float64 exactly."""
        return _to_superaccumulators(self.rows, self.excess)

    def to_approximate_floats(self) -> NDArray[np.float64]:
        """Return the total weights as floats, with an error of a few ulps."""
        if self.excess is None:
            return self.rows.astype(np.float64)
        return to_approximate_floats(self.to_superaccumulators())

    def to_fixed_point(self) -> Array:
        """Return the total weights as fixed-point numbers: multiples of 2**-60, each stored as two integers."""
        rows = np.minimum(self.rows, MAX_FIXED_ROWS) << 20
        weights = np.zeros((*rows.shape, 2), np.int64) if self.excess is None else self.excess.copy()
        weights[..., 0] += rows
        return weights

    def is_exceeded_by(self, sums: Array, most: float = math.inf, *, signed: bool = False) -> bool:
        """Return whether the magnitude of any weighted sum exceeds `most` times the total weight of its rows.

        Unless `signed` is true, negative sums are invalid, and the result is also True if any sum is negative.
        """
        exact = sums.shape[-1] == CHUNKS
        negative = sums[..., -1 if exact else 0] < 0
        if negative.any():
            if not signed:
                return True
            sums = np.where(negative[..., None], -sums, sums)
            carry_exact(sums)
        return _exceeds_limit(sums, self, most) if exact else self._is_fixed_point_exceeded_by(sums, most)

    def _is_fixed_point_exceeded_by(self, sums: Array, most: float) -> bool:
        high: Any = np.minimum(self.rows, MAX_FIXED_ROWS) << 20
        low: Any = 0
        if self.excess is not None:
            high, low = high + self.excess[..., 0], self.excess[..., 1]
        top, rest = sums[..., 0], sums[..., 1]
        if most == 1:
            return bool(((top > high) | ((top == high) & (rest > low))).any())
        # If the total weight is 0, the sum must be 0. If all weights are 1, a total weight of 0 means that there are no
        # rows, so the limit below is also 0. In that case, this check is needed only if `most` is so large that the
        # limit is not computed.
        if self.excess is not None or most >= MAX_ROW_WEIGHT:
            weightless = (high == 0) & (low == 0)
            if (weightless & ((top != 0) | (rest != 0))).any():
                return True
        # All values in a fixed-point sum are smaller than MAX_ROW_WEIGHT, so the sum cannot exceed the limit.
        if most >= MAX_ROW_WEIGHT:
            return False
        # Each term was rounded to a multiple of 2**-60. Allow an error of 2**-30 per row, which also covers rounding
        # errors in the float arithmetic below.
        limit = most * (high + low * 2.0**-LOW_BITS) + self.rows * 2.0**-30
        return bool(np.asarray(top + rest * 2.0**-LOW_BITS > limit).any())


def are_within(less: Ints, more: Ints, *, rounded: bool = True) -> bool:
    """Return whether each sum in `less` is nonnegative and at most the corresponding sum in `more`.

    Both arrays contain superaccumulators. If `rounded` is true, the terms were rounded, and a small relative error is
    allowed.
    """
    difference = more - less
    if rounded:
        # Allow a relative error of 2**-29. A unit in one chunk is worth 2**32 units in the chunk below it, so add 2**3
        # times each chunk to the chunk below.
        difference[..., :-1] += np.minimum(more[..., 1:], MAX_LAST_CHUNK) << 3
    carry_exact(difference)
    return not ((less[..., -1] < 0).any() or (difference[..., -1] < 0).any())


def read_row_weight(state: CellTable, name: str) -> RowWeight:
    """Return the row counts of all cells, from the part (array) called `name`, and the corresponding total weights."""
    flats = state.cells.flats
    return RowWeight(flats[name], flats.get(state.excess_names.get(name, "")))


def _exceeds_limit(sums: Array, weight: RowWeight, most: float) -> bool:
    """Return whether any exact sum (superaccumulator) exceeds `most` times the total weight of its rows."""
    shape = sums.shape[:-1]
    # A sum of 0 cannot exceed a limit, so check only the other sums.
    flat = sums.reshape(-1, sums.shape[-1])
    some = np.flatnonzero(flat.any(axis=-1))
    rows, excess = weight.rows, weight.excess
    if rows.shape != shape:
        rows = np.broadcast_to(rows, shape)
        excess = None if excess is None else np.broadcast_to(excess, (*shape, excess.shape[-1]))
    for begin in range(0, len(some), BLOCK):
        which = some[begin : begin + BLOCK]
        block = np.unravel_index(which, shape)
        # First compare floats, with a margin. Only the few sums close to the limit need the slower exact comparison.
        weights = _bound_weight(rows[block], None if excess is None else excess[block])
        with np.errstate(over="ignore", invalid="ignore"):
            which = which[~(to_approximate_floats(flat[which]) < most * weights)]
        if not len(which):
            continue
        block = np.unravel_index(which, shape)
        left, scale = _scale_weight(rows[block], None if excess is None else excess[block], most)
        if (flat[which, -1] >= MAX_LAST_CHUNK).any() and most < math.inf:
            return True
        left -= flat[which] << scale
        carry_exact(left)
        if (left[:, -1] < 0).any():
            return True
    return False


def _bound_weight(rows: Ints, excess: Array | None) -> NDArray[np.float64]:
    """Return lower bounds on total weights: floats slightly below the exact weights."""
    weights = rows.astype(np.float64)
    if excess is None:
        return weights * (1 - 2.0**-20)
    if excess.shape[-1] == 2:
        weights += excess[..., 0] * 2.0**-20
    else:
        weights += to_approximate_floats(excess)
    # The relative error of each float is below 2**-45. If the weights are small, the sum of w - 1 almost cancels the
    # number of rows, so the total weight can be smaller than the rounding error. Therefore also subtract a margin
    # proportional to the number of rows.
    return weights * (1 - 2.0**-20) - rows * 2.0**-40


def _scale_weight(rows: Array, excess: Array | None, most: float) -> tuple[Ints, int]:
    """Return `most` times the total weights as superaccumulators, and an exponent k.

    Superaccumulators can only be multiplied by whole numbers. The result is therefore also multiplied by 2**k, and the
    factor (`most` times 2**k) is rounded up to a whole number.
    """
    out = _to_superaccumulators(rows, excess)
    # If `most` is infinite, rows with a positive total weight allow any sum, so return the largest superaccumulator for
    # them. Rows with a total weight of 0 allow only a sum of 0.
    if most == math.inf:
        has_weight = out.any(axis=-1)
        out[...] = 0
        out[..., -1] = np.where(has_weight, LIMIT, 0)
        return out, 0
    # Write the factor `most` as a power of 2**32 times a number below 2**30. To multiply by the power, move the chunks
    # to higher positions. Then multiply each chunk by the number: the product of a 32-bit and a 30-bit number fits in
    # an int64. The factor is rounded up, so the limit is never too low.
    shift = max(0, (math.frexp(most)[1] + 2) // 32)
    times = Fraction(most) / (1 << (32 * shift))
    scale = max(0, 29 - math.ceil(times).bit_length())
    if shift:
        out = np.concatenate([np.zeros((*out.shape[:-1], shift), np.int64), out[..., :-shift]], axis=-1)
    out *= math.ceil(times * (1 << scale))
    return out, scale


def _to_superaccumulators(rows: Array, excess: Array | None) -> Ints:
    out = np.zeros((*np.shape(rows), CHUNKS), np.int64)
    out[..., UNIT_CHUNK] = rows
    if excess is not None and excess.shape[-1] == 2:
        high, low = excess[..., 0], excess[..., 1]
        out[..., UNIT_CHUNK] += high >> 20
        out[..., UNIT_CHUNK - 1] += (high & 0xFFFFF) << 12
        out[..., UNIT_CHUNK - 2] += low << 4
    elif excess is not None:
        out += excess
    carry_exact(out)
    return out


def check_totals(state: CellTable) -> None:
    """Raise an error if rows or weights are out of range, or if the outputs of a cell differ in their row counts.

    A statistic may have several outputs, such as labels or thresholds. Each output counts all rows (see
    `counts_per_row`).
    """
    name = type(state).__name__
    flats = state.cells.flats
    check_capacity(state, state.approximate_rows, state.weight_excess_bound, state.approximate_dropped_rows)
    for rows, excess in state.excess_names.items():
        if excess in flats and read_row_weight(state, rows).is_out_of_range():
            raise StateFormatError(
                f"the state is corrupt: {name}.{excess} makes a weight negative, or too large for the number of rows"
            )
    if state.counts_per_row > 1 and len(state.cells) and not all(_has_equal_counts(state, n) for n in state.row_parts):
        raise StateFormatError(
            f"the state is corrupt: {name} does not have the same number of rows in each of its {state.counts_per_row} "
            f"counts"
        )


def _has_equal_counts(state: CellTable, name: str) -> bool:
    """Return whether a part has the same number of rows for each output (label) of a cell, regardless of weights."""
    cells, times = state.cells, state.counts_per_row
    if name in cells.flats:
        rows = cells.flats[name].reshape(len(cells.flats[name]), times, -1).sum(axis=-1)
        return bool((rows == rows[:, :1]).all())
    e, part = cells.tallies[name], state.parts()[name]
    nonempty = np.flatnonzero(np.diff(state.entry_starts(name))).astype(np.uint64)
    if not len(nonempty) or (e.high is not None and e.high_place_bits < 2):
        return True
    # In a cell with rows, each output must have at least one entry. If there are too few entries for that, some output
    # has no rows, so the counts differ.
    if len(nonempty) * times > len(e):
        return False
    # Find the first entry of each output in each cell. If the code of an entry has two words, the low word and the
    # lowest bit of the high word contain the bucket. The next bits of the high word contain the output. Otherwise, the
    # buckets of each output have consecutive numbers.
    share, shift = (part.place_count(state) // times, e.shift) if e.high is None else (1, e.high_place_bits - 1)
    codes = e.codes if e.high is None else e.high >> np.uint32(1)
    firsts = (nonempty << np.uint64(shift))[:, None] + np.arange(times, dtype=np.uint64) * np.uint64(share)
    begins = np.searchsorted(codes, firsts.reshape(-1))
    if (np.diff(begins, append=len(e)) == 0).any():
        return False
    rows = np.add.reduceat(e.counts, begins, dtype=np.int64).reshape(len(nonempty), times)
    return bool((rows == rows[:, :1]).all())
