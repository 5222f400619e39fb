"""Dominance sums: for each cell of a table, the sum of the cells in both an earlier row and an earlier column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .array_rows import exclusive_cumsum
from .exact import Mass

__all__ = ["dominated_mass"]

Ints = NDArray[np.int64]


def dominated_mass(mass: Mass, x: Ints, y: Ints) -> Mass:
    """Return, for each cell, the total mass of the cells whose x and y are both smaller.

    Parameters
    ----------
    mass : Mass
        The number of rows, or their total weight, in each cell of a table.
    x, y : int64 arrays
        The coordinates of each cell. x must be ascending, and y must not be negative.
    """
    sums = np.stack([_dominated_sums(digits, x, y) for digits in mass.digits])
    return Mass(sums).plus(Mass(np.zeros((1, len(x)), np.int64)))


def _dominated_sums(values: Ints, x: Ints, y: Ints) -> Ints:
    """Return the dominance sums of int64 values, in one pass over the cells for each bit of y.

    The passes go from the highest bit of y to the lowest. In each pass, a group contains the cells that are equal in
    all higher bits of y, in ascending order of x. If two cells have different y, there is exactly one pass in which
    they are in the same group and differ in the current bit. In this pass, if the cell with the smaller y also has the
    smaller x, its value is added to the sum of the other cell.
    """
    n, out = len(x), np.zeros(len(x), np.int64)
    at, place = np.arange(n), np.arange(n)
    for bit in reversed(range(int(y.max(initial=0)).bit_length())):
        # For each cell whose current bit is 1, add the values of those cells in its group whose current bit is 0 and
        # whose x is smaller.
        head, up = y[at] >> (bit + 1), (y[at] >> bit & 1).astype(bool)
        run = exclusive_cumsum(np.where(up, 0, values[at]))
        group = _find_run_starts(place, head[1:] != head[:-1])
        column = np.maximum(group, _find_run_starts(place, x[at][1:] != x[at][:-1]))
        out[at] += np.where(up, run[column] - run[group], 0)
        # Form the groups of the next pass: in each group, move the cells whose current bit is 0 before those whose bit
        # is 1. Cells with equal bits keep their order.
        zeros = exclusive_cumsum((~up).astype(np.int64))
        ends = np.append(np.flatnonzero(group == place)[1:], n)
        # For each cell, `lower` is the number of cells in its group whose bit is 0, and `earlier` is the number of
        # these cells that precede it.
        lower = np.repeat(zeros[ends], np.diff(ends, prepend=0)) - zeros[group]
        earlier = zeros[:-1] - zeros[group]
        to = np.where(up, lower + place, group) + np.where(up, -earlier, earlier)
        fresh = np.empty_like(at)
        fresh[to] = at
        at = fresh
    return out


def _find_run_starts(place: Ints, fresh: NDArray[np.bool_]) -> Ints:
    """Return, for each position, the start of the run that contains it.

    `place` contains the positions 0, 1, 2, ... Element i of `fresh` says whether a new run starts at position i + 1.
    """
    first = np.zeros(len(place), np.int64)
    first[1:][fresh] = place[1:][fresh]
    return np.maximum.accumulate(first)
