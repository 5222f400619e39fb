"""Quantiles of values from their histogram: the value, its certified limits, its interval."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..collect.interval import Estimate, reach
from ..numerics.exact import Limits, Mass, floats_of, to_float
from ..state.levels import raised
from ..statistics.values import ValueHistogram
from .chance import WEIGHTED

__all__ = ["BOUND", "below", "quantile", "value_below", "woodruff"]

NAN = float("nan")
FEWEST_BEYOND = 5  # rows beyond a quantile, for its interval
BOUND = "the edges of the bucket; exact for up to 32 different numbers, up to 8,192 integers, and the extremes"


def quantile(state: ValueHistogram, q: float, output: int) -> Limits | None:
    """Return a quantile of one output, by weights as they were counted, in proportion within a bucket; None without.

    Its limits hold by the weights as they were given, too: each was rounded to 2**-60.
    """
    mass = state.mass(output)
    total = mass.total()
    if not total:
        return None
    before, (low, high), target = mass.before(), state.ends(output), Fraction(repr(q)) * total

    def neighbours(slack: int) -> tuple[int, int]:
        """The buckets of the two values whose mean it is; sums of weights may be off by so many units."""
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


USUAL = 0.95  # the limits that show how dense values are near a quantile


def woodruff(state: ValueHistogram, q: float, output: int, value: float, method: str) -> Estimate:
    """Return a quantile with its error: the values at the shares that q rows of n may be, by chance (Woodruff 1952).

    For differences the error is told, from the limits at 95 %. The m rows between these show the density with a relative
    error of m**-1/2, which is that of an error of m / 2 degrees of freedom: if it were taken as known, 95 % intervals of
    the difference of two 0.95-quantiles, of 1,000 and 5,000 rows, would cover 93 %.
    """
    mass = state.mass(output)
    if state.rows.excess is not None:
        return Estimate(value, reason=WEIGHTED)
    n = mass.total()
    if not 0 < q < 1:
        return Estimate(value, reason="an extreme has no standard error; a quantile near it has one")
    if n * min(q, 1 - q) < FEWEST_BEYOND:
        why = f"fewer than {FEWEST_BEYOND} rows are expected beyond this quantile"
        return Estimate(value, reason=why if n else None)

    share = Estimate(q, 0.0, "wilson", size=n)

    def ends(confidence: float) -> tuple[float, float]:
        low, high = (_value_at(state, mass, s * n, output) for s in share.limits(confidence))
        return low, high

    low, high = ends(USUAL)
    least, most = share.limits(USUAL)
    error = (high - low) / (2.0 * reach(USUAL, math.inf))
    return Estimate(value, error, method=method, degrees=(most - least) * n / 2.0, ends=ends)


def below(whole: ValueHistogram, shards: ValueHistogram, at: NDArray[np.int64], q: float) -> NDArray[np.float64] | None:
    """The weight up to the quantile in each shard: of the bucket in which it lies the part that all shards have there."""
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
    """The value below which a share of the weight lies, in proportion within a bucket; NaN without weight."""
    mass = state.mass(0)
    total = mass.total()
    return _value_at(state, mass, share * total, 0) if total else NAN


def _value_at(state: ValueHistogram, mass: Mass, rank: float, output: int) -> float:
    """The value that so many rows do not pass, in proportion within a bucket."""
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
