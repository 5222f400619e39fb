"""What lies below and to the left: of cells of a table, the sum of all whose row and column both come before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .exact import Mass

__all__ = ["below_both"]

Ints = NDArray[np.int64]


def below_both(mass: Mass, x: Ints, y: Ints) -> Mass:
    """Return for each cell the mass of the cells whose x and y are both less.

    Parameters
    ----------
    mass : Mass
        What each cell holds.
    x, y : int64 arrays
        Where it lies, x ascending; y from 0 on.
    """
    sums = np.stack([_sums(digits, x, y) for digits in mass.digits])
    return Mass(sums).plus(Mass(np.zeros((1, len(x)), np.int64)))


def _sums(values: Ints, x: Ints, y: Ints) -> Ints:
    """The sums of integers, by the bits of y: cells of equal leading bits stand together, within them x ascends.

    Of two cells, the next bit is what first tells their y apart once; so each pair is met at one bit.
    """
    n, out = len(x), np.zeros(len(x), np.int64)
    at, place = np.arange(n), np.arange(n)
    for bit in reversed(range(int(y.max(initial=0)).bit_length())):
        head, up = y[at] >> (bit + 1), (y[at] >> bit & 1).astype(bool)
        run = _before(np.where(up, 0, values[at]))
        group = _starts(place, head[1:] != head[:-1])
        column = np.maximum(group, _starts(place, x[at][1:] != x[at][:-1]))
        out[at] += np.where(up, run[column] - run[group], 0)
        zeros = _before((~up).astype(np.int64))
        ends = np.append(np.flatnonzero(group == place)[1:], n)
        lower = np.repeat(zeros[ends], np.diff(ends, prepend=0)) - zeros[group]  # of the whole group
        earlier = zeros[:-1] - zeros[group]
        to = np.where(up, lower + place, group) + np.where(up, -earlier, earlier)
        fresh = np.empty_like(at)
        fresh[to] = at
        at = fresh
    return out


def _before(values: Ints) -> Ints:
    """What is before each, and before the end."""
    run = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=run[1:])
    return run


def _starts(place: Ints, fresh: NDArray[np.bool_]) -> Ints:
    """Where the run begins that each is in; a new one begins behind each True."""
    first = np.zeros(len(place), np.int64)
    first[1:][fresh] = place[1:][fresh]
    return np.maximum.accumulate(first)
