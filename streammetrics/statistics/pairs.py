"""What a joint histogram says of pairs of rows: which are in the same order by both numbers, and which cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, StateFormatError
from ..numerics.dominance import below_both
from ..numerics.exact import UNIT, Mass
from ..state import tally
from ..state.pair_levels import LOOKS, PAIR, SIDES, PairRows, least_places, looks_of, side_ranks, sides_of
from ..state.tally import Entries, reduce, weighs

__all__ = ["Pairs", "bucketed_pairs", "exact_pairs", "exact_rows", "joined_rows"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
U8 = np.uint64
HALF = U8(0xFFFFFFFF)
NORMAL = NormalDist()

X, Y, OTHER, HASH = range(LOOKS)
"""By which places an exact row is counted: x, y, both by a second hash, both by a hash."""
SECOND = U8(0x9E3779B97F4A7C15)
"""What changes keys for the second hash; as the kernel has it."""
CONTRADICTION = "JointHistogram.exact does not count the same rows by each of its looks"


class Pairs:
    """Rows in cells of a table, of which x and y ascend; sums of pairs, each twice, in units of `unit` squared.

    Parameters
    ----------
    x, y : int64 arrays
        Where each cell lies, x first, from 0 on; no cell comes twice.
    mass : Mass
        What it weighs.
    fine : (Mass, Mass)
        What the different x weigh, and the different y: as fine as is known.
    sure : bools of shape (2,)
        Whether all rows of a cell are known to have one x, and one y.
    sharp : bools of shape (2,)
        Whether `fine` is of single values.
    weighted : bool
        Whether a weight was not 1.
    """

    def __init__(
        self, x: Ints, y: Ints, held: Entries, fine: tuple[Mass, Mass], sure: Bools, sharp: Bools | None = None
    ) -> None:
        order = np.lexsort((y, x))
        self.x, self.y = x[order], y[order]
        held = held.where(order)
        self.weighted = held.excess is not None
        self.rows, self.mass, self.fine = held.mass, Mass.of(held.mass, held.excess), fine
        self.unit = UNIT if self.weighted else 1
        self.sure, self.sharp = sure, sure if sharp is None else sharp

    @cached_property
    def total(self) -> int:
        """The weight of all rows."""
        return self.mass.total()

    @cached_property
    def by_x(self) -> Array:
        """What the rows of each x weigh: Python's integers."""
        return self.mass.totals(_cuts(self.x))

    @cached_property
    def by_y(self) -> Array:
        """What the rows of each y weigh."""
        order = np.argsort(self.y, kind="stable")
        return self.mass[order].totals(_cuts(self.y[order]))

    @cached_property
    def same(self) -> tuple[int, int, int]:
        """Pairs of one x, of one y, of one cell; each row with itself among them."""
        return _squares(self.by_x), _squares(self.by_y), self.mass.dot(self.mass)

    @cached_property
    def concordant(self) -> int:
        """Pairs of which one row has the larger x, and the larger y."""
        return 2 * self.mass.dot(below_both(self.mass, self.x, self.y))

    @property
    def discordant(self) -> int:
        """Pairs of which one row has the larger x, and the other the larger y."""
        x, y, both = self.same
        return self.total * self.total - x - y + both - self.concordant

    @property
    def twins(self) -> int:
        """Each row with itself, if a weight counts as so many equal rows."""
        return self.total * self.unit

    @property
    def alone(self) -> int:
        """Each row with itself: at least, of rows with weights."""
        return 0 if self.weighted else self.twins

    @property
    def alike(self) -> int:
        """Each row with itself: at least, as n rows that weigh w together have squares of w^2 / n."""
        if not self.weighted:
            return self.twins
        return sum(w * w // max(n, 1) for w, n in zip(_ints(self.mass).tolist(), self.rows.tolist(), strict=True))

    @property
    def beside(self) -> int:
        """Pairs of one x and different y, or of one y and different x, which may be in either order."""
        x, y, both = self.same
        return (0 if self.sure[X] else x - both) + (0 if self.sure[Y] else y - both)

    @property
    def unknown(self) -> int:
        """Pairs that may be in the one order, in the other, or equal: at most."""
        return self.beside + (0 if self.sure.any() else self.same[2] - self.alone)

    def apart(self, side: int) -> tuple[int, int, int]:
        """Pairs of different x (0), or different y (1): at least, by the table, and at most."""
        least = self.total * self.total - _squares(_ints(self.fine[side]))
        table = self.total * self.total - self.same[side]
        return least, table, least if self.sharp[side] else self.total * self.total - self.alike

    @cached_property
    def differing_share(self) -> tuple[Fraction, Fraction]:
        """The share of pairs of one x of the table that have different x, and of one y: estimated.

        Of numbers that are all different it is 7/8 by the finer buckets, of which there are eight.
        """
        return self._differing_share(X), self._differing_share(Y)

    def _differing_share(self, side: int) -> Fraction:
        pairs = self.same[side] - self.twins
        if self.sure[side] or pairs <= 0:
            return Fraction(0)
        least, table, _ = self.apart(side)
        return min(max(Fraction(least - table, pairs), Fraction(0)) * Fraction(8, 7), Fraction(1))

    @cached_property
    def local_order(self) -> tuple[Fraction, Fraction]:
        """How much likelier rows of one x of the table are in the same order than in the other, and of one y: estimated.

        Rows of adjacent x show it. They are three times as far apart, so it is less, as if y were x and normal noise.
        """
        if self.sure.all():
            return Fraction(0), Fraction(0)
        mass = self.mass.floats()
        return _order_at_third(_order_of_adjacent(self.x, self.y, mass)), _order_at_third(
            _order_of_adjacent(self.y, self.x, mass)
        )

    def values(self) -> tuple[int, int]:
        """How many different x and y there are: at least."""
        return self.fine[X].digits.shape[1], self.fine[Y].digits.shape[1]


def _order_of_adjacent(x: Ints, y: Ints, mass: NDArray[np.float64]) -> float:
    """Of pairs of rows of adjacent x and different y: the share that is in one order, less that in the other."""
    order = np.lexsort((y, x))
    x, y, mass = x[order], y[order], mass[order]
    width = int(y.max()) + 2
    keys, through = x * width + y, np.concatenate([[0.0], np.cumsum(mass)])
    begin, end = (through[np.searchsorted(keys, (x + k) * width)] for k in (1, 2))
    low, high = (through[np.searchsorted(keys, (x + 1) * width + y, side)] for side in ("left", "right"))
    more, less = (mass * (end - high)).sum(), (mass * (low - begin)).sum()
    return float((more - less) / (more + less)) if more + less else 0.0


def _order_at_third(order: float) -> Fraction:
    """Return the order of rows at a third of the distance."""
    if abs(order) >= 1.0:
        return Fraction(order)
    return Fraction(2.0 * NORMAL.cdf(NORMAL.inv_cdf((1.0 + order) / 2.0) / 3.0) - 1.0)


def _cuts(sorted_: Ints) -> Ints:
    """Where the runs of equal ones begin, and the end."""
    return np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1], [True]])[: len(sorted_) + 1])


def _ints(mass: Mass) -> Array:
    return mass.totals(np.arange(mass.digits.shape[1] + 1))


def _squares(numbers: Array) -> int:
    return int(sum((numbers * numbers).tolist()))


# -- in buckets -------------------------------------------------------------------------------------------------------


def bucketed_pairs(held: Entries, levels: Ints, bits: int) -> Pairs:
    """Read the buckets of a cell, given its levels (1 x 4)."""
    least = least_places(sides_of(held)[0], levels, bits)
    held = held.where(weighs(held))
    looks = [held.where(looks_of(held) == look) for look in range(LOOKS)]
    x, y = side_ranks(looks[PAIR].codes, least)
    sharp = levels[0, :SIDES] == 0
    sure = sharp & np.array([len(looks[i]) == len(np.unique(v)) for i, v in enumerate((x, y))])
    return Pairs(x, y, looks[PAIR], _fine(looks), sure, sharp)


def _fine(looks: list[Entries]) -> tuple[Mass, Mass]:
    x, y = (Mass.of(e.mass, e.excess) for e in looks[:SIDES])
    return x, y


def _ranked(values: Array) -> Ints:
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


# -- exact ------------------------------------------------------------------------------------------------------------


def exact_pairs(held: Entries) -> Pairs:
    """Read the exact rows of a cell."""
    looks = _exact_looks(held)
    x, y, cells = _match_rows(looks)
    some = weighs(cells)
    fine = _fine([e.where(weighs(e)) for e in looks])
    both = np.ones(2, bool)
    return Pairs(_ranked(x[some]), _ranked(y[some]), cells.where(some), fine, both, both)


def exact_rows(held: Entries, cell: int) -> PairRows:
    """Return the exact rows of one cell."""
    looks = _exact_looks(held)
    x, y, cells = _match_rows(looks)
    numbers = numbers_of(looks[X].codes[x]), numbers_of(looks[Y].codes[y])
    return PairRows(np.full(len(cells), cell), *numbers, cells.mass, cells.excess)


def joined_rows(rows: Sequence[PairRows]) -> PairRows:
    """Put rows together."""
    excess = None
    if any(r.excess is not None for r in rows):
        excess = np.concatenate([np.zeros((len(r.x), 2), np.int64) if r.excess is None else r.excess for r in rows])
    cells, x, y, counts = (np.concatenate([r[i] for r in rows]) if rows else np.zeros(0) for i in range(4))
    return PairRows(cells.astype(np.int64), x, y, counts.astype(np.int64), excess)


def numbers_of(keys: Array) -> NDArray[np.float64]:
    """Return the numbers of keys that are in their order."""
    return np.asarray(np.where(keys >> U8(63), keys & ~(U8(1) << U8(63)), ~keys).view(np.float64))


def _exact_looks(held: Entries) -> list[Entries]:
    look = looks_of(held)
    return [
        Entries(64, held.codes[m], held.counts[m], None if held.excess is None else held.excess[m])
        for m in (look == k for k in range(LOOKS))
    ]


def _match_rows(looks: list[Entries]) -> tuple[Ints, Ints, Entries]:
    """Which x and which y came together: by their hashes, and where these are not enough by the second ones.

    Raises
    ------
    StateFormatError
        The looks are not of the same rows, as in bytes that no rows made.
    """
    keys = [looks[side].codes for side in (X, Y)]
    link = looks[HASH]
    x, y = (_place(_hash(k), name) for k, name in zip(keys, _halves(link.codes), strict=True))
    good = (x >= 0) & (y >= 0)
    x, y, sure = x[good], y[good], link.where(good)
    if good.all():
        return x, y, sure
    other = [_hash(k, second=True) for k in keys]
    known = (other[X][x] << U8(32)) | other[Y][y]
    try:
        rest = tally.add(looks[OTHER], reduce(Entries(64, known, sure.counts, sure.excess)), -1)
    except IncompatibleStateError as error:
        raise StateFormatError(CONTRADICTION) from error
    more = []
    for side, at, name in zip((X, Y), (x, y), _halves(rest.codes), strict=True):
        left = looks[side].mass - np.bincount(at, sure.mass, len(keys[side])).astype(np.int64)
        some = np.flatnonzero(left)
        more.append(_place(other[side][some], name, some))
    if any((m < 0).any() for m in more):
        raise StateFormatError(CONTRADICTION)
    return np.append(x, more[0]), np.append(y, more[1]), tally.joined([sure, rest])


def _place(names: Array, asked: Array, at: Ints | None = None) -> Ints:
    """Where the name is that is asked for; -1 if several have it, or none."""
    order = np.argsort(names, kind="stable")
    names = names[order]
    first = np.searchsorted(names, asked)
    alone = np.searchsorted(names, asked, side="right") == first + 1
    found = (order if at is None else at[order])[np.minimum(first, len(names) - 1)] if len(names) else first
    return np.where(alone, found, -1)


def _halves(words: Array) -> tuple[Array, Array]:
    return words >> U8(32), words & HALF


def _hash(x: Array, *, second: bool = False) -> Array:
    """The first 32 bits of what the kernel makes of 64."""
    x = x ^ SECOND if second else x
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> U8(33))) * U8(factor)
    top: Array = (x ^ (x >> U8(33))) >> U8(32)
    return top
