"""The number of shards in a comparison: with few units (such as users), fewer shards than are stored in the metrics.

With few units, most shards of an arm are empty, so a comparison over 64 shards would have no interval. Pairs of shards
are therefore merged (folded) until 32 or 16 shards are left. The result is the same as if the units had been counted
with this number of shards. The metrics themselves keep all their shards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..numerics.elementary import log1p
from ..reading.replicates import Sample

__all__ = ["fold_shards"]

# The number of shards is halved until there are at least this many units per shard, counting both arms together. Then
# each of two equal arms has one unit per shard, so about 63 % of its shards have rows, more than the half that an
# interval needs.
UNITS_PER_SHARD = 2.0
# The smallest number of shards after halving. With half as many, Student's t would have 7 degrees of freedom instead
# of 15, and intervals would be 11 % wider.
FEWEST_SHARDS = 16


def fold_shards(sides: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
    """Return the samples of all sides of a comparison, with fewer shards if there are few units.

    The number of units is estimated from the shards that have rows in any metric or cell (such as a slice) of any side.
    This estimate alone decides how many shards remain, so the number is the same for all samples with the same units.

    Parameters
    ----------
    sides : sequence of sequences of Sample
        All samples of the comparison: the samples of each arm and of the covariates.
    """
    occupied: dict[tuple[str, int], NDArray[np.bool_]] = {}
    for shards in (s.shards for side in sides for s in side if s.shards is not None):
        unit, count, _ = shards.plan
        known = occupied.setdefault((unit, count), np.zeros(count, bool))
        # Once every shard is known to have rows, the remaining samples need no check. In most comparisons, the first
        # sample already has rows in every shard.
        if not known.all():
            known |= (shards.weights > 0.0).any(axis=1)
    units = [unit for unit, _ in occupied]
    # Sides with different numbers of shards cannot be compared, and folding must not hide this by making the numbers
    # equal. Therefore, fold the samples with a given unit (such as user) only if all have the same number of shards.
    counts = {plan: choose_count(known) for plan, known in occupied.items() if units.count(plan[0]) == 1}
    return [[_fold_sample(s, counts) for s in side] for side in sides]


def choose_count(occupied: NDArray[np.bool_]) -> int:
    """Return the number of shards to use, given a mask of the shards that have rows.

    Examples
    --------
    >>> choose_count(np.arange(64) < 64), choose_count(np.arange(64) < 50), choose_count(np.arange(64) < 35)
    (64, 32, 16)
    """
    count, units = len(occupied), estimate_units(occupied)
    while count % 2 == 0 and count >= 2 * FEWEST_SHARDS and units < UNITS_PER_SHARD * count:
        count //= 2
    return count


def estimate_units(occupied: NDArray[np.bool_]) -> float:
    """Estimate the number of units as -K * ln(E / K), where E of the K shards are empty (linear counting)."""
    if occupied.all():
        return math.inf
    return float(-len(occupied) * log1p(-np.count_nonzero(occupied) / len(occupied)))


def _fold_sample(sample: Sample, counts: dict[tuple[str, int], int]) -> Sample:
    shards = sample.shards
    if shards is None or (count := counts.get(shards.plan[:2], shards.plan[1])) == shards.plan[1]:
        return sample
    return replace(sample, shards=shards.fold(count))
