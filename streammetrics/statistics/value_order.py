"""Quantiles and ranks of values, computed from their histogram, with certified bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..numerics.exact import Limits, Mass, to_float, to_floats
from ..state.levels import raise_levels
from .values import ValueHistogram

__all__ = ["BucketWeights", "bucket_weights", "quantile_of", "value_at", "value_below", "weight_below"]

NAN = float("nan")


class BucketWeights(NamedTuple):
    """The bounds on the values in each occupied bucket, in ascending order, and the weight of each bucket.

    The two bounds are equal if the bucket contains a single value.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    weights: NDArray[np.float64]


def bucket_weights(state: ValueHistogram) -> BucketWeights:
    """Return the bounds and the weight of each occupied bucket of a histogram with one output."""
    return BucketWeights(*state.value_bounds(0), state.mass(0).to_floats() / state.unit)


def quantile_of(state: ValueHistogram, q: float, output: int) -> Limits | None:
    """Return a weighted quantile of one output (position within a row) and its bounds; None if the total weight is 0.

    The value is interpolated within its bucket. Weights are rounded to multiples of 2**-60, and the certified bounds
    also hold for the unrounded weights.
    """
    mass = state.mass(output)
    total = mass.total()
    if not total:
        return None
    before, (low, high), target = mass.sums_before(), state.value_bounds(output), Fraction(repr(q)) * total

    def neighbours(slack: int) -> tuple[int, int]:
        """Return the two buckets whose values are averaged to get the quantile.

        The two buckets are the same, unless the cumulative weight up to a bucket equals the target. `slack` is an upper
        bound on the rounding errors of cumulative weights. With a positive `slack`, the quantile of the unrounded
        weights lies in one of the two buckets or between them.
        """
        here = _find_bucket(mass, before, target - slack, reach=True)
        return here, _find_bucket(mass, before, target + slack, reach=False)

    a, b = neighbours(0)
    extreme = state.extremes(output)[int(q)] if q in (0, 1) else math.inf
    if math.isfinite(extreme):
        return Limits.exactly(Fraction(extreme))
    parts = [Fraction(low[k]) + Fraction(high[k] - low[k]) * (target - before.cell(k)) / mass.cell(k) for k in (a, b)]
    value = sum(parts, Fraction(0)) / 2
    if state.rounded:
        a, b = neighbours(state.facts()["rows"])
        return Limits(Fraction(low[a]), value, Fraction(high[b]))
    return Limits((Fraction(low[a]) + Fraction(low[b])) / 2, value, (Fraction(high[a]) + Fraction(high[b])) / 2)


def weight_below(
    whole: ValueHistogram, shards: ValueHistogram, at: NDArray[np.int64], q: float
) -> NDArray[np.float64] | None:
    """Return the weight of each shard up to a quantile of its cell, and up to both edges of the quantile's bucket.

    The result is an array of shape (3, shards), or None if the histogram has several outputs. Its rows are the weight
    below the bucket that contains the quantile of the whole cell, the weight up to this quantile, and the weight up to
    the end of the bucket. A shard contains the rows of a random subset of the units (such as users) of a cell (such as
    a slice). In the bucket of the quantile, the share of weight below the quantile is assumed to be the same for every
    shard as for the whole cell.

    Parameters
    ----------
    whole : ValueHistogram
        The values of all cells.
    shards : ValueHistogram
        The values of all shards.
    at : int64 array
        The cell of each shard.
    q : float
        The quantile, from 0 to 1.
    """
    if whole.num_outputs is not None:
        return None
    whole = whole.coarsen(shards.bits)
    cells = max(len(whole), 1)
    bucket, part = np.zeros(cells, np.uint64), np.zeros(cells)
    for i, cell in enumerate(whole.iterate_cells() if whole.axes else [whole]):
        mass = cell.mass(0)
        if total := mass.total():
            before, target = mass.sums_before(), Fraction(repr(q)) * total
            k = _find_bucket(mass, before, target, reach=True)
            bucket[i] = cell.occupied_buckets()[k]
            part[i] = to_float((target - before.cell(k)) / mass.cell(k))
    # The buckets of a shard can be narrower than those of its cell. Convert them to buckets of the same width first.
    old, common = shards.read_cells_named("level").reshape(-1), whole.read_cells_named("level").reshape(-1)
    entries = raise_levels(shards.cells.tallies["rows"], old, np.maximum(old, common[at]), shards.bits, 1)
    weight = entries.int64_counts + (0.0 if entries.excess is None else to_floats(entries.excess))
    front, place = at[entries.cells], entries.codes
    out = np.zeros((3, len(shards)))
    lower, same = place < bucket[front], place == bucket[front]
    for row, inside in zip(out, (np.zeros(cells), part, np.ones(cells)), strict=True):
        np.add.at(row, entries.cells, weight * np.where(lower, 1.0, np.where(same, inside[front], 0.0)))
    return out


def value_below(state: ValueHistogram, share: float) -> float:
    """Return the value below which the fraction `share` of the total weight lies, interpolated within its bucket.

    The result is NaN if the total weight is 0.
    """
    mass = state.mass(0)
    total = mass.total()
    return value_at(state, mass, share * total, 0) if total else NAN


def value_at(state: ValueHistogram, mass: Mass, rank: float, output: int) -> float:
    """Return the value up to which the cumulative weight is `rank`, interpolated within its bucket.

    `mass` is the weight of each bucket of the output.
    """
    before = mass.sums_before()
    k = _find_bucket(mass, before, Fraction(rank), reach=True)
    low, high = (float(ends[k]) for ends in state.value_bounds(output))
    return low + (high - low) * to_float((Fraction(rank) - before.cell(k)) / mass.cell(k))


def _find_bucket(mass: Mass, before: Mass, target: Fraction, *, reach: bool) -> int:
    """Return the index of the first bucket at which the cumulative weight reaches `target`.

    Parameters
    ----------
    mass, before : Mass
        The weight of each bucket, and the weight of all lower buckets.
    target : Fraction
        The cumulative weight to look for.
    reach : bool
        Whether a cumulative weight equal to `target` is enough; if False, it must be larger.

    Notes
    -----
    A bucket of weight 0 is never returned.
    """
    low, high = 0, mass.digits.shape[1] - 1
    total = mass.total()
    # Cumulative weights are integers, so the target can be rounded to an integer. Integers are compared much faster
    # than fractions.
    least = max(math.ceil(target) if reach else min(math.floor(target) + 1, total), 1)
    while low < high:
        k = (low + high) // 2
        enough = before.cell(k) + mass.cell(k) >= least
        low, high = (low, k) if enough else (k + 1, high)
    return low
