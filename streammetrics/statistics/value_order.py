"""Quantiles of values from their histogram: the value with its certified limits, and the weight below it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..numerics.exact import Limits, Mass, floats_of, to_float
from ..state.levels import raised
from .values import ValueHistogram

__all__ = ["quantile_of", "value_at", "value_below", "weight_below"]

NAN = float("nan")


def quantile_of(state: ValueHistogram, q: float, output: int) -> Limits | None:
    """Return a quantile of one output, by weights as they were counted, in proportion within a bucket; None without.

    Its limits hold by the weights as they were given, too: each was rounded to 2**-60.
    """
    mass = state.mass(output)
    total = mass.total()
    if not total:
        return None
    before, (low, high), target = mass.before(), state.ends(output), Fraction(repr(q)) * total

    def neighbours(slack: int) -> tuple[int, int]:
        """Return the buckets of the two values whose mean it is; sums of weights may be off by so many units."""
        here = _first(mass, before, target - slack, reach=True)
        return here, _first(mass, before, target + slack, reach=False)

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
    """Return the weight up to the quantile in each shard: of the bucket in which it lies, the part that all shards have.

    None for several outputs.
    """
    if whole.num_outputs is not None:
        return None
    whole = whole.coarsen(shards.bits)
    cells = max(len(whole), 1)
    bucket, part = np.zeros(cells, np.uint64), np.zeros(cells)
    for i, cell in enumerate(whole.each_cell() if whole.axes else [whole]):
        mass = cell.mass(0)
        if total := mass.total():
            before, target = mass.before(), Fraction(repr(q)) * total
            k = _first(mass, before, target, reach=True)
            bucket[i] = cell.occupied()[k]
            part[i] = to_float((target - before.cell(k)) / mass.cell(k))
    old, common = shards.flat("level").reshape(-1), whole.flat("level").reshape(-1)
    held = raised(shards.cells.tallies["rows"], old, np.maximum(old, common[at]), shards.bits, 1)
    weight = held.mass + (0.0 if held.excess is None else floats_of(held.excess))
    front, place = at[held.cells], held.codes
    inside = np.where(place < bucket[front], 1.0, np.where(place == bucket[front], part[front], 0.0))
    out = np.zeros(len(shards))
    np.add.at(out, held.cells, weight * inside)
    return out


def value_below(state: ValueHistogram, share: float) -> float:
    """Return the value below which a share of the weight lies, in proportion within a bucket; NaN without weight."""
    mass = state.mass(0)
    total = mass.total()
    return value_at(state, mass, share * total, 0) if total else NAN


def value_at(state: ValueHistogram, mass: Mass, rank: float, output: int) -> float:
    """Return the value that so many rows do not pass, in proportion within a bucket."""
    before = mass.before()
    k = _first(mass, before, Fraction(rank), reach=True)
    low, high = (float(ends[k]) for ends in state.ends(output))
    return low + (high - low) * to_float((Fraction(rank) - before.cell(k)) / mass.cell(k))


def _first(mass: Mass, before: Mass, target: Fraction, *, reach: bool) -> int:
    """Return the first bucket of some weight up to which the weight reaches the target, or passes it."""
    low, high = 0, mass.digits.shape[1] - 1
    total = mass.total()
    while low < high:
        k = (low + high) // 2
        upto = before.cell(k) + mass.cell(k)
        enough = upto > 0 and (upto >= target if reach else upto > target or upto == total)
        low, high = (low, k) if enough else (k + 1, high)
    return low
