"""Dominance sums: for each cell of a table, the sum over all cells whose row and column both precede its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .exact import Mass

__all__ = ["dominated_mass"]

Ints = NDArray[np.int64]


def dominated_mass(mass: Mass, x: Ints, y: Ints) -> Mass:
    """Return for each cell the total mass of the cells whose x and y are both smaller.

    Parameters
    ----------
    mass : Mass
        The mass of each cell.
    x, y : int64 arrays
        The coordinates of each cell: x is ascending, and y is nonnegative.
    """
    sums = np.stack([_dominated_sums(digits, x, y) for digits in mass.digits])
    return Mass(sums).plus(Mass(np.zeros((1, len(x)), np.int64)))


def _dominated_sums(values: Ints, x: Ints, y: Ints) -> Ints:
    """Return the dominance sums of int64 values, in one pass over the cells for each bit of y.

    Cells are grouped by the leading bits of y; within a group x ascends. Two different y first differ at one bit, so every
    pair of cells is compared exactly once, at this bit.
    """
    n, out = len(x), np.zeros(len(x), np.int64)
    at, place = np.arange(n), np.arange(n)
    for bit in reversed(range(int(y.max(initial=0)).bit_length())):
        # A cell with this bit set takes the sum of the cells of its group that have the bit clear and a smaller x.
        head, up = y[at] >> (bit + 1), (y[at] >> bit & 1).astype(bool)
        run = _exclusive_cumsum(np.where(up, 0, values[at]))
        group = _find_run_starts(place, head[1:] != head[:-1])
        column = np.maximum(group, _find_run_starts(place, x[at][1:] != x[at][:-1]))
        out[at] += np.where(up, run[column] - run[group], 0)
        # Split the cells of each group by this bit: cells with a clear bit first, in unchanged order.
        zeros = _exclusive_cumsum((~up).astype(np.int64))
        ends = np.append(np.flatnonzero(group == place)[1:], n)
        # The number of cells with a clear bit in the whole group, and among the earlier cells of the group.
        lower = np.repeat(zeros[ends], np.diff(ends, prepend=0)) - zeros[group]
        earlier = zeros[:-1] - zeros[group]
        to = np.where(up, lower + place, group) + np.where(up, -earlier, earlier)
        fresh = np.empty_like(at)
        fresh[to] = at
        at = fresh
    return out


def _exclusive_cumsum(values: Ints) -> Ints:
    """Return for each value the sum of the values before it, followed by the total."""
    run = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=run[1:])
    return run


def _find_run_starts(place: Ints, fresh: NDArray[np.bool_]) -> Ints:
    """Return for each position the start of its run; a new run begins after each True in `fresh`."""
    first = np.zeros(len(place), np.int64)
    first[1:][fresh] = place[1:][fresh]
    return np.maximum.accumulate(first)
