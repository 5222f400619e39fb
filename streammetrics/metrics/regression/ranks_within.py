"""Ranks of rows of which only the bucket is known: their covariance, their variance, and by how much these can be off.

Ranks are doubled, and counted from the middle: of n rows of different values -(n - 1), -(n - 3), ..., n - 1. Rows of one
bucket share its ranks, whose mean is that of the bucket; so what is unknown is how they lie within it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...statistics.pairs import Pairs

__all__ = ["covariance", "variance"]

Array = NDArray[Any]


def ranks(masses: Array) -> Array:
    """The middle of the ranks of each of some values in ascending order: Python's integers."""
    through = np.cumsum(masses)
    return 2 * through - masses - (through[-1] if len(through) else 0)


def variance(pairs: Pairs, side: int) -> tuple[int, int, int]:
    """The sum of the squares of the ranks of x (0), or y (1): at least, by the table, and at most."""
    fine, table = pairs.fine[side], (pairs.by_x, pairs.by_y)[side]
    masses = fine.totals(np.arange(fine.digits.shape[1] + 1))
    least = _total(masses * ranks(masses) ** 2)
    return (
        least,
        _total(table * ranks(table) ** 2),
        least + (0 if pairs.sharp[side] else _total(_within(pairs, masses))),
    )


def _within(pairs: Pairs, masses: Array) -> Array:
    """What the ranks of each bucket have at most beyond its middle: n (n**2 - 1) / 3, for rows of different values."""
    cubes = masses**3 - (0 if pairs.weighted else masses)
    return -(-cubes // 3)


def covariance(pairs: Pairs) -> tuple[int, int]:
    """The sum of the products of ranks, by the table, and how far it can be off."""
    cells = pairs.mass.totals(np.arange(len(pairs.x) + 1))
    a, b = ranks(pairs.by_x), ranks(pairs.by_y)
    found = _total(cells * a[pairs.x] * b[pairs.y])
    off, spread = 0, [0, 0]
    for side, (own, other, near) in enumerate(((pairs.x, pairs.y, b), (pairs.y, pairs.x, a))):
        if not pairs.sure[side]:
            off += _sorted_within(own, other, cells, near)
            spread[side] = _total(_within(pairs, (pairs.by_x, pairs.by_y)[side]))
    return found, off + (math.isqrt(spread[0] * spread[1]) + 1 if all(spread) else 0)


def _sorted_within(own: Array, other: Array, cells: Array, near: Array) -> int:
    """The sum of products of ranks within buckets and ranks of the others, if these give the order within a bucket."""
    order = np.lexsort((other, own))
    mass, value, at = cells[order], near[other[order]], own[order]
    first = np.flatnonzero(np.append(True, at[1:] != at[:-1])[: len(at)])
    through = np.cumsum(mass)
    begin = (through - mass)[first]
    size = np.add.reduceat(mass, first) if len(first) else mass
    each = np.diff(np.append(first, len(at)))
    within = 2 * (through - np.repeat(begin, each)) - mass - np.repeat(size, each)
    return _total(mass * within * value)


def _total(numbers: Array) -> int:
    return int(sum(numbers.tolist()))
