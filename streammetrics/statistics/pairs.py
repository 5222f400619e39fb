"""Counts of concordant, discordant and tied pairs of rows, from a joint histogram of two numbers x and y.

If rows are in buckets, the order of some pairs is unknown. The counts of these pairs yield certified bounds on rank
correlations and similar results.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, StateFormatError
from ..numerics.dominance import dominated_mass
from ..numerics.exact import UNIT, Mass
from ..state import tally
from ..state.pair_levels import PAIR, SIDES, VIEWS, PairRows, find_lowest_places, rank_sides, read_views, split_sides
from ..state.tally import Entries, has_weight, sort_entries

__all__ = ["Pairs", "concat_rows", "read_bucket_pairs", "read_exact_pairs", "read_exact_rows"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
U8 = np.uint64
HALF = U8(0xFFFFFFFF)

X, Y, OTHER, HASH = range(VIEWS)
"""The four views in which an exact row is counted: by x, by y, by second hashes of both and by first hashes of both."""
SECOND = U8(0x9E3779B97F4A7C15)
"""The constant that is combined with a number before the second hash is computed. The kernel uses the same constant."""
CONTRADICTION = "the state is corrupt: the views of JointHistogram.exact do not count the same rows"


class Pairs:
    """Weighted counts of concordant, discordant and tied pairs of rows, from a table that counts rows by x and y.

    The weight of a pair is the product of the weights of its rows, an integer in units of (1 / `unit`)^2. The pairs
    (a, b) and (b, a) are counted separately.

    Parameters
    ----------
    x, y : int64 arrays
        The ranks of x and y in each table cell, starting at 0. No two cells have the same pair of ranks.
    entries : Entries
        The number of rows of each table cell, and the sum of (weight - 1).
    fine : (Mass, Mass)
        The weight of each distinct x and of each distinct y. If rows are in buckets, these are the weights of the
        buckets of x alone and of y alone, which are narrower than the cells of the table.
    sure : bools of shape (2,)
        Two flags, one for x and one for y: whether all rows of a table cell are known to have the same value.
    sharp : bools of shape (2,)
        Two flags, one for x and one for y: whether each weight in `fine` is known to belong to a single value. The
        default is `sure`.
    """

    def __init__(
        self, x: Ints, y: Ints, entries: Entries, fine: tuple[Mass, Mass], sure: Bools, sharp: Bools | None = None
    ) -> None:
        order = np.lexsort((y, x))
        self.x, self.y = x[order], y[order]
        entries = entries.select(order)
        self.weighted = entries.excess is not None
        self.rows, self.mass, self.fine = (
            entries.int64_counts,
            Mass.from_rows(entries.int64_counts, entries.excess),
            fine,
        )
        self.unit = UNIT if self.weighted else 1
        self.sure, self.sharp = sure, sure if sharp is None else sharp

    @cached_property
    def total(self) -> int:
        """The weight of all rows, in units of 1 / `unit`."""
        return self.mass.total()

    @cached_property
    def by_x(self) -> Array:
        """The weight of the rows at each rank of x, as Python integers in units of 1 / `unit`."""
        return self.mass.segment_sums(_run_bounds(self.x))

    @cached_property
    def by_y(self) -> Array:
        """The weight of the rows at each rank of y, as Python integers in units of 1 / `unit`."""
        order = np.argsort(self.y, kind="stable")
        return self.mass[order].segment_sums(_run_bounds(self.y[order]))

    @cached_property
    def tied_pairs(self) -> tuple[int, int, int]:
        """The weights of the pairs with equal x, with equal y, and with both equal.

        Pairs of a row with itself are included.
        """
        return _sum_squares(self.by_x), _sum_squares(self.by_y), self.mass.dot(self.mass)

    @cached_property
    def concordant(self) -> int:
        """The weight of the ordered pairs in which the same row has the larger x and the larger y."""
        return 2 * self.mass.dot(dominated_mass(self.mass, self.x, self.y))

    @property
    def discordant(self) -> int:
        """The weight of the pairs in which one row has the larger x and the other row has the larger y."""
        x, y, both = self.tied_pairs
        return self.total * self.total - x - y + both - self.concordant

    @property
    def self_pairs(self) -> int:
        """The weight of the pairs of a row with itself, if a row of weight w counts as w separate rows of weight 1."""
        return self.total * self.unit

    @property
    def min_self_pairs(self) -> int:
        """A lower bound on the weight of the pairs of a row with itself; 0 if rows have weights."""
        return 0 if self.weighted else self.self_pairs

    @property
    def self_pairs_bound(self) -> int:
        """A lower bound on the sum of the squared weights of all rows.

        In a table cell with n rows and total weight w, this sum is at least w^2 / n.
        """
        if not self.weighted:
            return self.self_pairs
        return sum(
            w * w // max(n, 1) for w, n in zip(_integer_weights(self.mass).tolist(), self.rows.tolist(), strict=True)
        )

    @property
    def half_tied_pairs(self) -> int:
        """The weight of the pairs whose rows are in the same bucket of x or in the same bucket of y, but not both.

        For such a pair, it is unknown which row has the larger x (or y). If every bucket of x contains only one value,
        the pairs in the same bucket of x are known to be tied and are left out. The same applies to y.
        """
        x, y, both = self.tied_pairs
        return (0 if self.sure[X] else x - both) + (0 if self.sure[Y] else y - both)

    @property
    def undetermined_pairs(self) -> int:
        """An upper bound on the weight of the pairs of unknown order.

        Both rows of such a pair are in the same bucket of x or of y, so the pair can be concordant, discordant or tied.
        """
        return self.half_tied_pairs + (0 if self.sure.any() else self.tied_pairs[2] - self.min_self_pairs)

    def differing_pairs(self, side: int) -> tuple[int, int, int]:
        """Return the weight of the pairs of rows with different x (`side` = 0) or with different y (`side` = 1).

        Returns
        -------
        low, by_rank, high : int
            A lower bound on this weight; the weight of the pairs with different ranks in the table; and an upper bound.
        """
        least = self.total * self.total - _sum_squares(_integer_weights(self.fine[side]))
        table = self.total * self.total - self.tied_pairs[side]
        return least, table, least if self.sharp[side] else self.total * self.total - self.self_pairs_bound

    @cached_property
    def differing_share(self) -> tuple[Fraction, Fraction]:
        """Estimates of the share of pairs with different x among the pairs in the same bucket of x, and likewise for y.

        Each bucket of the table consists of eight narrower buckets, whose weights are in `fine`. About 7/8 of the pairs
        of different numbers in a bucket lie in two different narrower buckets. The estimate is therefore the share of
        the pairs in different narrower buckets, times 8/7.
        """
        return self._differing_share(X), self._differing_share(Y)

    def _differing_share(self, side: int) -> Fraction:
        pairs = self.tied_pairs[side] - self.self_pairs
        if self.sure[side] or pairs <= 0:
            return Fraction(0)
        least, table, _ = self.differing_pairs(side)
        return min(max(Fraction(least - table, pairs), Fraction(0)) * Fraction(8, 7), Fraction(1))

    @cached_property
    def local_order(self) -> tuple[Fraction, Fraction]:
        """Estimates of the correlation of x and y among pairs in the same bucket of x, and in the same bucket of y.

        An estimate is the share of concordant pairs minus the share of discordant pairs. The order of rows in the same
        bucket is unknown, so the estimate is extrapolated from pairs of rows in adjacent buckets. On average, values in
        adjacent buckets are three times as far apart as values in the same bucket. The extrapolation assumes that y is
        x plus normal noise.
        """
        if self.sure.all():
            return Fraction(0), Fraction(0)
        mass = self.mass.to_floats()
        return _order_at_third(_order_of_adjacent(self.x, self.y, mass)), _order_at_third(
            _order_of_adjacent(self.y, self.x, mass)
        )

    def distinct_values(self) -> tuple[int, int]:
        """Return lower bounds on the number of distinct values of x and of y."""
        return self.fine[X].digits.shape[1], self.fine[Y].digits.shape[1]


def _order_of_adjacent(x: Ints, y: Ints, mass: NDArray[np.float64]) -> float:
    """Return (concordant - discordant) / (concordant + discordant) for pairs of rows at adjacent ranks of x."""
    order = np.lexsort((y, x))
    x, y, mass = x[order], y[order], mass[order]
    # The key x * width + y sorts rows by x, then by y. Binary searches in the sorted keys give, for each row, the weight
    # of the rows at the next rank of x that have a smaller y, and of those that have a larger y.
    width = int(y.max()) + 2
    keys, through = x * width + y, np.concatenate([[0.0], np.cumsum(mass)])
    begin, end = (through[np.searchsorted(keys, (x + k) * width)] for k in (1, 2))
    low, high = (through[np.searchsorted(keys, (x + 1) * width + y, side)] for side in ("left", "right"))
    more, less = (mass * (end - high)).sum(), (mass * (low - begin)).sum()
    return float((more - less) / (more + less)) if more + less else 0.0


def _order_at_third(order: float) -> Fraction:
    """Extrapolate `order` to pairs that are a third as far apart in x.

    `order` is the share of concordant pairs minus the share of discordant pairs.
    """
    from statistics import NormalDist  # used only here, and slow to import

    # If y is x plus normal noise, the probability of concordance is the normal CDF of distance / noise. At a third of the
    # distance, the argument of the CDF is therefore also divided by three.
    if abs(order) >= 1.0:
        return Fraction(order)
    normal = NormalDist()
    return Fraction(2.0 * normal.cdf(normal.inv_cdf((1.0 + order) / 2.0) / 3.0) - 1.0)


def _run_bounds(sorted_: Ints) -> Ints:
    """Return the index at which each run of equal numbers begins, followed by the total length."""
    return np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1], [True]])[: len(sorted_) + 1])


def _integer_weights(mass: Mass) -> Array:
    return mass.segment_sums(np.arange(mass.digits.shape[1] + 1))


def _sum_squares(numbers: Array) -> int:
    return int(sum((numbers * numbers).tolist()))


# -- in buckets -------------------------------------------------------------------------------------------------------


def read_bucket_pairs(entries: Entries, levels: Ints, bits: int) -> Pairs:
    """Return the pair counts of a cell (such as a slice) whose rows are counted in buckets.

    Parameters
    ----------
    entries : Entries
        The row counts of the cell by bucket of x, by bucket of y, and by bucket of pairs (x, y).
    levels : int64 array of shape (1, 4)
        The levels of the cell, which determine the widths of its buckets.
    bits : int
        The setting `bits` of the `JointHistogram`.
    """
    least = find_lowest_places(split_sides(entries)[0], levels, bits)
    entries = entries.select(has_weight(entries))
    views = [entries.select(read_views(entries) == view) for view in range(VIEWS)]
    x, y = rank_sides(views[PAIR].codes, least)
    sharp = levels[0, :SIDES] == 0
    sure = sharp & np.array([len(views[i]) == len(np.unique(v)) for i, v in enumerate((x, y))])
    return Pairs(x, y, views[PAIR], _fine(views), sure, sharp)


def _fine(views: list[Entries]) -> tuple[Mass, Mass]:
    x, y = (Mass.from_rows(e.int64_counts, e.excess) for e in views[:SIDES])
    return x, y


def _dense_ranks(values: Array) -> Ints:
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


# -- exact ------------------------------------------------------------------------------------------------------------


def read_exact_pairs(entries: Entries) -> Pairs:
    """Return the pair counts of a cell (such as a slice) that keeps the exact x and y of its rows."""
    views = _exact_views(entries)
    x, y, cells = _match_rows(views)
    has_positive_weight = has_weight(cells)
    fine = _fine([e.select(has_weight(e)) for e in views])
    both = np.ones(2, bool)
    return Pairs(
        _dense_ranks(x[has_positive_weight]),
        _dense_ranks(y[has_positive_weight]),
        cells.select(has_positive_weight),
        fine,
        both,
        both,
    )


def read_exact_rows(entries: Entries, cell: int) -> PairRows:
    """Return the distinct (x, y) pairs of one cell (such as a slice) and the number of rows of each pair.

    `entries` must contain only the rows of this cell. The result repeats the cell index `cell` for each pair.
    """
    views = _exact_views(entries)
    x, y, cells = _match_rows(views)
    numbers = floats_of_keys(views[X].codes[x]), floats_of_keys(views[Y].codes[y])
    return PairRows(np.full(len(cells), cell), *numbers, cells.int64_counts, cells.excess)


def concat_rows(rows: Sequence[PairRows]) -> PairRows:
    """Concatenate the (x, y) pairs of several cells (such as slices), with their row counts."""
    excess = None
    if any(r.excess is not None for r in rows):
        excess = np.concatenate([np.zeros((len(r.x), 2), np.int64) if r.excess is None else r.excess for r in rows])
    cells, x, y, counts = (np.concatenate([r[i] for r in rows]) if rows else np.zeros(0) for i in range(4))
    return PairRows(cells.astype(np.int64), x, y, counts.astype(np.int64), excess)


def floats_of_keys(keys: Array) -> NDArray[np.float64]:
    """Convert uint64 keys to the float64 numbers that they represent; the keys have the same order as the numbers."""
    return np.asarray(np.where(keys >> U8(63), keys & ~(U8(1) << U8(63)), ~keys).view(np.float64))


def _exact_views(entries: Entries) -> list[Entries]:
    view = read_views(entries)
    return [
        Entries(64, entries.codes[m], entries.counts[m], None if entries.excess is None else entries.excess[m])
        for m in (view == k for k in range(VIEWS))
    ]


def _match_rows(views: list[Entries]) -> tuple[Ints, Ints, Entries]:
    """Find the x and y of each distinct row from four views (row counts by different codes): X, Y, HASH, OTHER.

    Returns
    -------
    x, y : int64 arrays
        For each distinct row, the index of its x in the view X and of its y in the view Y.
    entries : Entries
        The number of rows with this x and this y.

    Raises
    ------
    StateFormatError
        The four views do not contain the same rows. This happens only if the bytes of the state were forged.
    """
    # The views X and Y contain all values of x and of y. The view HASH contains, for each row, the 32-bit hashes of its
    # x and its y. A hash that belongs to only one value identifies that value.
    keys = [views[side].codes for side in (X, Y)]
    link = views[HASH]
    x, y = (_find_unique(_hash32(k), name) for k, name in zip(keys, _split_halves(link.codes), strict=True))
    is_matched = (x >= 0) & (y >= 0)
    x, y, matched = x[is_matched], y[is_matched], link.select(is_matched)
    if is_matched.all():
        return x, y, matched
    # In each remaining row, the hash of x or of y is not unique. The view OTHER counts all rows by the second hashes of
    # x and y. Subtract the rows that are already matched. The second hashes are unique among the values that remain.
    second_hashes = [_hash32(k, second=True) for k in keys]
    matched_codes = (second_hashes[X][x] << U8(32)) | second_hashes[Y][y]
    try:
        rest = tally.add_entries(
            views[OTHER], sort_entries(Entries(64, matched_codes, matched.counts, matched.excess)), -1
        )
    except IncompatibleStateError as error:
        raise StateFormatError(CONTRADICTION) from error
    rest_positions = []
    for side, at, name in zip((X, Y), (x, y), _split_halves(rest.codes), strict=True):
        left = views[side].int64_counts - np.bincount(at, matched.int64_counts, len(keys[side])).astype(np.int64)
        some = np.flatnonzero(left)
        rest_positions.append(_find_unique(second_hashes[side][some], name, some))
    if any((m < 0).any() for m in rest_positions):
        raise StateFormatError(CONTRADICTION)
    return np.append(x, rest_positions[0]), np.append(y, rest_positions[1]), tally.concatenate([matched, rest])


def _find_unique(names: Array, wanted: Array, at: Ints | None = None) -> Ints:
    """Return the index in `names` of each element of `wanted`; -1 if `names` does not contain it exactly once.

    If `at` is given, the result contains `at[i]` in place of each index i.
    """
    order = np.argsort(names, kind="stable")
    names = names[order]
    first = np.searchsorted(names, wanted)
    is_unique = np.searchsorted(names, wanted, side="right") == first + 1
    positions = (order if at is None else at[order])[np.minimum(first, len(names) - 1)] if len(names) else first
    return np.where(is_unique, positions, -1)


def _split_halves(words: Array) -> tuple[Array, Array]:
    return words >> U8(32), words & HALF


def _hash32(x: Array, *, second: bool = False) -> Array:
    """Return the upper 32 bits of the first or second 64-bit hash of each number, computed as in the kernel."""
    x = x ^ SECOND if second else x
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> U8(33))) * U8(factor)
    top: Array = (x ^ (x >> U8(33))) >> U8(32)
    return top
