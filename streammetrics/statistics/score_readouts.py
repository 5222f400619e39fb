"""Functions that compute the AUC, average precision and Kolmogorov-Smirnov distance from a score histogram.

Each metric has two functions: one for a state with a single cell, and one that computes the values of all cells (such
as slices) of a state in one call. The functions count in integers and divide at the end. In a score histogram, the code
of an entry is a score (or a bucket of scores), followed by the label as the last bit. In sorted entries, the negatives
of a score are therefore directly followed by its positives, and one pass over the entries is enough for each result.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..numerics import elementary, kernel_registry
from ..numerics.double_double import DoubleDouble, two_product
from ..numerics.exact import Limits, Mass
from ..state.tally import Entries
from .scores import FEW, ScoreHistogram, ScoresByLabel

__all__ = [
    "CellBounds",
    "LabelledEntries",
    "area",
    "areas",
    "average_precision",
    "average_precisions",
    "count_pairs_without",
    "divide_integers",
    "heavy_cells",
    "ks_distance",
    "ks_distances",
    "one_cell",
    "split_by_label",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Every integer up to this value can be represented exactly in float64.
SURE = 1 << 53
NAN = float("nan")
# Upper bounds on the relative error of an average precision: ROUNDING if it is computed in float64, OFF if it is
# computed with 106 bits (pairs of float64).
ROUNDING = 2.0**-45
OFF = 2.0**-92
# `count_pairs_without` can count the rows of a cell (such as a slice) in an array with a counter for every bucket and
# label. It does so only if all cells together need at most MANY_PLACES such counters, or at most DENSE counters for
# each entry of the shards.
MANY_PLACES = 1 << 20
DENSE = 16
# An upper bound on the rounding error of a difference between two shares (numbers from 0 to 1) in float64.
NEAR = 2.0**-48
# The maximum number of terms in a sum that is computed with fractions. Fractions are used only if 106 bits do not
# suffice to round the sum correctly.
FEW_TERMS = 300


Read = Callable[[ScoresByLabel], Limits | None]


def cache_readout(read: Read) -> Read:
    """Decorate a function of a state so that the state caches the result.

    Callers need the same result twice: first the value, and later its bounds.
    """

    @functools.wraps(read)
    def read_cached(state: ScoresByLabel) -> Limits | None:
        readouts = state.__dict__.setdefault("_readouts", {})
        if read_cached not in readouts:
            readouts[read_cached] = read(state)
        limits: Limits | None = readouts[read_cached]
        return limits

    return read_cached


class CellBounds(NamedTuple):
    """The value of a metric for each cell (such as a slice), with certified bounds; NaN where it is undefined."""

    value: Floats
    low: Floats
    high: Floats


class LabelledEntries(NamedTuple):
    """The row counts of all cells (such as slices) by score and label, in sorted entries.

    Parameters
    ----------
    starts : int64 array
        The index of the first entry of each cell, followed by the number of entries.
    codes : uint64 array
        The score or bucket of each entry, with the label as the last bit.
    negatives, positives : int64 arrays
        The number of rows of each entry: in `negatives` if the label of the entry is 0, in `positives` if it is 1. The
        other array contains 0 for this entry.
    """

    starts: Ints
    codes: NDArray[np.uint64]
    negatives: Ints
    positives: Ints

    @property
    def entry_counts(self) -> Ints:
        """The number of entries of each cell."""
        return np.diff(self.starts)

    def sums(self, values: Ints) -> Ints:
        """Sum `values` (one for each entry) over the entries of each cell."""
        out = np.zeros(len(self.entry_counts), values.dtype)
        has_entries = self.entry_counts > 0
        if has_entries.any():
            out[has_entries] = np.add.reduceat(values, self.starts[:-1][has_entries])
        return out

    def running_sums(self, values: Ints) -> Ints:
        """Return, for each entry, the sum of `values` over this entry and all earlier entries of its cell."""
        run: Ints = np.cumsum(values)
        upto: Ints = run - np.repeat(np.concatenate([[0], run])[self.starts[:-1]], self.entry_counts)
        return upto

    def tied_negatives(self) -> Ints:
        """Return, for each entry of positives, the number of negatives with the same score; 0 for other entries."""
        found = np.zeros(len(self.codes), np.int64)
        one = self.codes.dtype.type(1)
        same = (self.codes[1:] == self.codes[:-1] + one) & (self.codes[1:] & one == one)
        found[1:] = np.where(same, self.negatives[:-1], 0)
        # The negatives of a score are in the entry before its positives. The first entry of a cell has no such entry,
        # because the entry before it belongs to another cell.
        found[self.starts[:-1][self.entry_counts > 0]] = 0
        return found


def areas(state: ScoreHistogram) -> CellBounds:
    """Return the area under the ROC curve of every cell (such as a slice), with certified bounds.

    Ties count one half. The value of a cell is a quotient of two integers, rounded once. The bounds assume the best and
    the worst order of the scores within each bucket.
    """
    N, P, twice, ties = _count_pairs(state).T
    both = 2.0 * (N.astype(np.float64) * P)
    with np.errstate(invalid="ignore", divide="ignore"):
        value, low, high = (n / both for n in (twice, twice - ties, twice + ties))
    inexact = (state.read_cells_named("off_grid") != 0) & (low < high)
    bounds = CellBounds(
        value,
        np.where(inexact, _round_outward(low, both, twice - ties, -1), value),
        np.where(inexact, _round_outward(high, both, twice + ties, 1), value),
    )
    for cell in np.flatnonzero((both >= SURE) | heavy_cells(state)):
        for array, number in zip(bounds, _round_limits(area(one_cell(state, cell))), strict=True):
            array[cell] = number
    return bounds


def _count_pairs(state: ScoreHistogram) -> Ints:
    """Return, for each cell (such as a slice), the numbers of negatives, positives, concordant pairs and tied pairs.

    In a concordant pair, the positive has a higher score than the negative. The third column is twice the number of
    concordant pairs, where a tied pair counts one half.
    """
    out = np.zeros((len(state), 4), np.int64)
    for name in state.row_parts:
        e, starts = state.cells.tallies[name], state.entry_starts(name)
        if not len(e):
            continue
        if kernel_registry.has_kernels():
            found = np.zeros(4 * len(out), np.int64)
            kernel_registry.find_kernel("exact_rows:count_pair_wins")(e.places, starts, e.counts, found)
            out += found.reshape(-1, 4)
        else:
            at = split_by_label(e, starts)
            ties = at.tied_negatives()
            below = 2 * at.running_sums(at.negatives) - ties
            parts = at.negatives, at.positives, at.positives * below, at.positives * ties
            out += np.stack([at.sums(p) for p in parts], axis=1)
    return out


def count_pairs_without(shards: ScoreHistogram, at: Ints, cells: int) -> tuple[Ints, Ints] | None:
    """Return the counts from which the AUC of each cell is computed, with all rows and without each shard in turn.

    A shard contains the rows of a random subset of the units (such as users) of a cell (such as a slice). The jackknife
    leaves out one shard at a time.

    Parameters
    ----------
    shards : ScoreHistogram
        The score histograms of all shards; the shards of a cell are adjacent.
    at : int64 array
        The cell of each shard, in ascending order.
    cells : int
        The number of cells.

    Returns
    -------
    total : int64 array of shape (cells, 3)
        For each cell, the numbers of negatives and positives, and twice the number of concordant pairs (ties count
        one half).
    rest : int64 array of shape (shards, 3)
        The same numbers for the cell of each shard, without the rows of that shard.

    Notes
    -----
    The result is None if rows have weights, or if shards can keep exact scores (that is, if `limit` is not 0). It is
    also None if a cell has so many rows that the number of its pairs might not fit in an int64.
    """
    e, starts = shards.cells.tallies["rows"], shards.entry_starts("rows")
    # `bincount` adds in float64. Its sums are exact in cells with fewer than FEW rows, and larger cells are rejected
    # below.
    rows = np.bincount(at, shards.row_counts, cells)
    if shards.exact_rows_limit != 0 or e.excess is not None or (rows >= FEW).any():
        return None
    total, rest = np.zeros((cells, 3), np.int64), np.zeros((len(shards), 3), np.int64)
    firsts = np.searchsorted(at, np.arange(cells + 1))
    if kernel_registry.has_kernels() and cells * shards.places <= max(MANY_PLACES, DENSE * len(e)):
        out = np.zeros(shards.places, np.int64), total.reshape(-1), rest.reshape(-1)
        counts = e.places.astype(np.uint32, copy=False), starts, e.counts.astype(np.uint32, copy=False)
        kernel_registry.find_kernel("exact_rows:count_pair_wins_without")(*counts, firsts, *out)
        return total, rest
    own, places = split_by_label(e, starts), e.places.astype(np.int64)
    codes, to = np.unique(np.repeat(at, own.entry_counts) * shards.places + places, return_inverse=True)
    all_rows = np.bincount(to, e.int64_counts, len(codes)).astype(np.int64)
    positive = (codes & 1) == 1
    ends = np.searchsorted(codes, np.arange(cells + 1) * shards.places)
    both = LabelledEntries(
        ends, codes.view(np.uint64), np.where(positive, 0, all_rows), np.where(positive, all_rows, 0)
    )
    total[:, 0], total[:, 1] = both.sums(both.negatives), both.sums(both.positives)
    # To get the number of concordant pairs without a shard, begin with the number in the whole cell. For each row of
    # the shard, subtract its pairs with all rows of the cell. Then add the pairs within the shard, which were
    # subtracted twice. For each code, `wins` is twice the number of concordant pairs of one positive, and `above` is
    # the same for one negative.
    wins = 2 * both.running_sums(both.negatives) - both.tied_negatives()
    total[:, 2] = both.sums(both.positives * wins)
    # Positives that are tied with the negatives of an entry are in the next entry.
    beside = np.zeros(len(codes), np.int64)
    beside[:-1] = np.where((codes[1:] == codes[:-1] + 1) & positive[1:], both.positives[1:], 0)
    above = 2 * (np.repeat(total[:, 1], both.entry_counts) - both.running_sums(both.positives)) - beside
    won = own.sums(e.int64_counts * np.where(positive, wins, above)[to])
    ties = own.tied_negatives()
    alone = own.sums(own.positives * (2 * own.running_sums(own.negatives) - ties))
    mine = np.stack([own.sums(own.negatives), own.sums(own.positives), won - alone], axis=1)
    rest[:] = total[at] - mine
    return total, rest


def divide_integers(above: Ints, below: Ints) -> Floats:
    """Return the quotients of two integer arrays, each rounded correctly to float64; NaN for 0/0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        out: Floats = above.astype(np.float64) / below
    for i in np.flatnonzero(below >= SURE):
        out[i] = int(above[i]) / int(below[i])
    return out


def _round_outward(quotient: Floats, divisor: Floats, dividend: Ints, way: int) -> Floats:
    """Return a bound on dividend / divisor: the float `quotient`, or the next float if `quotient` is not a bound.

    If `way` is -1, the result is a lower bound. If `way` is 1, it is an upper bound. `quotient` is dividend / divisor,
    rounded to nearest.
    """
    # `whole` + `rest` is exactly quotient * divisor (Dekker 1971). `off` is negative if `quotient` is on the wrong side
    # of the exact quotient: above it for a lower bound, or below it for an upper bound.
    whole, rest = two_product(quotient, divisor)
    off = ((whole - dividend) + rest) * way
    return np.where(off < 0, np.nextafter(quotient, way * np.inf), quotient)


def heavy_cells(state: ScoreHistogram) -> NDArray[np.bool_]:
    """Return a mask of the cells (such as slices) that need arithmetic beyond int64.

    These are the cells with weights, and the cells with so many rows that the number of pairs of a positive and a
    negative does not fit in an int64.
    """
    heavy = np.asarray(state.row_counts >= FEW)
    for name in state.row_parts:
        e = state.cells.tallies[name]
        if e.excess is not None:
            heavy[e.find_cells_with((e.excess != 0).any(axis=1))] = True
    return heavy


def one_cell(state: ScoreHistogram, cell: Any) -> ScoreHistogram:
    """Return a state that contains only the cell (such as a slice) with the index `cell`."""
    return state.read_cell(int(cell)) if state.axes else state


def _round_limits(limits: Limits | None) -> tuple[float, float, float]:
    """Return a value, rounded to nearest, and its certified bounds, rounded outward, as floats."""
    return (NAN, NAN, NAN) if limits is None else (limits.to_float(), *limits.round_outward())


@cache_readout
def area(state: ScoresByLabel) -> Limits | None:
    """Return the AUC of a state with one cell (slice), with certified bounds; None if a class has no rows.

    The function uses Python integers, so it supports weights and any number of rows.
    """
    N, P, twice, ties = state.pairs()
    if not P or not N:
        return None
    both, slack = 2 * P * N, 0 if state.is_exact else ties
    # Pairs within a bucket count one half, like ties. Their true scores may differ, so at one extreme all of them are
    # concordant, and at the other extreme all are discordant.
    return Limits(*(Fraction(n, both) for n in (twice - slack, twice, twice + slack)))


def split_by_label(e: Entries, starts: Ints) -> LabelledEntries:
    """Split the row counts of sorted entries into an array of negatives and an array of positives.

    `starts` contains the index of the first entry of each cell (such as a slice), followed by the number of entries.
    """
    positive = (e.codes & e.codes.dtype.type(1)).astype(np.bool_)
    return LabelledEntries(
        starts, e.places, np.where(positive, 0, e.int64_counts), np.where(positive, e.int64_counts, 0)
    )


def average_precisions(state: ScoreHistogram) -> CellBounds:
    """Return the average precision of every cell (such as a slice), with certified bounds.

    Each distinct score, or each bucket if rows are in buckets, is a threshold.
    """
    return _read_cells(state, _precisions_of_cells, average_precision)


def ks_distances(state: ScoreHistogram) -> CellBounds:
    """Return the Kolmogorov-Smirnov distance between the scores of the two classes in every cell (such as a slice).

    The values have certified bounds.
    """
    return _read_cells(state, _ks_distances_of_cells, ks_distance)


def _read_cells(
    state: ScoreHistogram,
    read: Callable[[LabelledEntries, Any], tuple[Floats, Floats, Floats]],
    alone: Read,
) -> CellBounds:
    """Return the value of a metric with certified bounds for every cell (such as a slice).

    Parameters
    ----------
    state : ScoreHistogram
        The score histograms of all cells.
    read : callable
        The function that computes the value and its lower and upper bounds for many cells in one call. It is called once
        for the cells with exact scores and once for the cells in buckets.
    alone : callable
        The function that computes the value and its bounds for a state with only one cell. It is used for cells that
        need arithmetic beyond int64.
    """
    bounds = CellBounds(*(np.full(len(state), np.nan) for _ in range(3)))
    inexact = state.read_cells_named("off_grid") != 0
    for name in state.row_parts:
        e, starts = state.cells.tallies[name], state.entry_starts(name)
        has_entries = np.diff(starts) > 0
        if has_entries.any():
            for array, numbers in zip(bounds, read(split_by_label(e, starts), inexact), strict=True):
                array[has_entries] = numbers[has_entries]
    for cell in np.flatnonzero(heavy_cells(state)):
        for array, number in zip(bounds, _round_limits(alone(one_cell(state, cell))), strict=True):
            array[cell] = number
    return bounds


class PositiveScores(NamedTuple):
    """The input for the average precision of each cell (slice): an entry for each distinct score of its positives.

    Parameters
    ----------
    a, c : DoubleDouble
        The weights of the positives (a) and of the negatives (c) of each score.
    tp, fp : DoubleDouble
        The weights of the positives (tp) and of the negatives (fp) with a higher score.
    starts : int64 array
        The index of the first entry of each cell, followed by the number of entries.
    P : DoubleDouble
        The weight of all positives of each cell.
    step : float
        The number of rows by which `limits` shifts the range of its integral: 0.5, or 0 if rows have weights.
    """

    a: DoubleDouble
    c: DoubleDouble
    tp: DoubleDouble
    fp: DoubleDouble
    starts: Ints
    P: DoubleDouble
    step: float

    def quotients(self) -> DoubleDouble:
        """Return the average precision of each cell, with a relative error below `OFF`.

        The average precision is the sum of (a / P) * (tp + a) / (tp + fp + a + c) over the scores of the cell. The
        weights of positives and negatives are a and c at the score, and tp and fp above it; P is that of all positives.
        """
        above = self.tp + self.a
        terms = self.a * above / (above + (self.fp + self.c))
        pairs = np.column_stack([terms.high, terms.low]).reshape(-1).tolist()
        ends = (2 * self.starts).tolist()
        sums = []
        for i, j in itertools.pairwise(ends):
            part = pairs[i:j]
            first = math.fsum(part)
            part.append(-first)
            sums.append((first, math.fsum(part)))
        with np.errstate(invalid="ignore", divide="ignore"):
            return DoubleDouble(*np.array(sums).reshape(-1, 2).T) / self.P

    def limits(self) -> tuple[Floats, Floats]:
        """Return certified lower and upper bounds on the average precision of each cell.

        The order of the rows within a bucket is unknown. The average precision is highest if the positives of every
        bucket come before its negatives, and lowest if they come after them. In the lowest case, a bucket contributes
        the sum of the precisions at its positives. The integral of the precision over the weight of these positives is
        a lower bound on this sum. If rows have weight 1, the range of the integral can be shifted up by half a row,
        which gives a tighter bound: the precision is a concave function of the number of positives, so the precision at
        a positive is at least the mean precision from half a row before to half a row after the positive. In a bucket
        with one positive, the sum has a single term, which needs no bound.
        """
        a, c, tp, fp = (x.high for x in self[:4])
        P = np.repeat(self.P.high, np.diff(self.starts))
        S = tp + fp + c
        sure = (a == 1) if self.step else (S == 0)
        base = np.where(sure, 1.0, S + self.step)
        worst = a * ((tp + self.step) / base) + (fp + c) * elementary.x_minus_log1p(a / base)
        low = self._sum_cells(np.where(sure, a * ((tp + a) / (S + a)), worst) / P) * (1 - ROUNDING)
        high = self._sum_cells(a / P * ((tp + a) / (tp + fp + a))) * (1 + ROUNDING)
        return np.maximum(0.0, low), np.minimum(1.0, high)

    def _sum_cells(self, terms: Floats) -> Floats:
        return np.array([math.fsum(terms[i:j]) for i, j in itertools.pairwise(self.starts.tolist())])

    def exact_value(self) -> Fraction:
        """Return the exact average precision of a single cell as a fraction; this is slow if there are many scores."""
        sums = zip(*(map(_to_int, zip(x.high, x.low, strict=True)) for x in self[:4]), strict=True)
        total = sum((Fraction(a * (tp + a), a + c + tp + fp) for a, c, tp, fp in sums), Fraction(0))
        return total / _to_int((self.P.high[0], self.P.low[0]))


def _to_int(parts: tuple[float, float]) -> int:
    return int(parts[0]) + int(parts[1])


def _precisions_of_cells(at: LabelledEntries, inexact: Any) -> tuple[Floats, Floats, Floats]:
    P, N = at.sums(at.positives), at.sums(at.negatives)
    some = at.positives > 0
    above_p = np.repeat(P, at.entry_counts) - at.running_sums(at.positives)
    above_n = np.repeat(N, at.entry_counts) - at.running_sums(at.negatives)
    starts = np.concatenate([[0], np.cumsum(some)])[at.starts]
    a, c, tp, fp = (DoubleDouble.from_ints(x[some]) for x in (at.positives, at.tied_negatives(), above_p, above_n))
    terms = PositiveScores(a, c, tp, fp, starts, DoubleDouble.from_ints(P), 0.5)
    value, sure = terms.quotients().nearest(OFF)
    low, high = value.copy(), value.copy()
    off = inexact & (P > 0)
    if off.any():
        for array, found in zip((low, high), terms.limits(), strict=True):
            array[off] = found[off]
    # `sure` marks the values for which 106 bits suffice for correct rounding. Almost all values are marked, so this
    # loop is short.
    for i in np.flatnonzero(~sure & (P > 0)):
        part = slice(starts[i], starts[i + 1])
        a, c, tp, fp = (x.take(part) for x in terms[:4])
        one = PositiveScores(a, c, tp, fp, starts[i : i + 2] - starts[i], terms.P.take([i]), 0.5)
        value[i], low[i], high[i] = _round_limits(_term_limits(one, bool(off[i])))
    return value, low, high


def _term_limits(terms: PositiveScores, inexact: bool) -> Limits:
    """Return the average precision of one cell (such as a slice) with its certified bounds.

    `inexact` indicates whether a bucket can contain several scores.
    """
    high, low = (Fraction(float(x[0])) for x in terms.quotients())
    value = high + low
    if inexact:
        least, most = (Fraction(float(x[0])) for x in terms.limits())
        return Limits(min(least, value), value, max(most, value))
    found = Limits(value * (1 - Fraction(OFF)), value, value * (1 + Fraction(OFF)))
    if found.low != found.high and len(set(found.round_outward())) > 1 and len(terms.a.high) <= FEW_TERMS:
        exact = terms.exact_value()
        return Limits(exact, exact, exact)
    return found


@cache_readout
def average_precision(state: ScoresByLabel) -> Limits | None:
    """Return the average precision of a state with one cell (slice), with certified bounds.

    The result is None if the total weight of the positives is 0.
    """
    a_, c_ = (Mass(m.digits[:, ::-1]) for m in (state.positives, state.negatives))
    has_positives, P = a_.digits.any(axis=0), Mass.from_int(a_.total())
    if not a_.total():
        return None
    a, c, tp, fp = (m[has_positives].to_double_double() for m in (a_, c_, a_.sums_before(), c_.sums_before()))
    starts = np.array([0, len(a.high)])
    terms = PositiveScores(a, c, tp, fp, starts, P.to_double_double(), 0.0 if state.has_weights else 0.5)
    return _term_limits(terms, not state.is_exact)


def _ks_distances_of_cells(at: LabelledEntries, inexact: Any) -> tuple[Floats, Floats, Floats]:
    P, N = at.sums(at.positives), at.sums(at.negatives)
    all_p, all_n = (np.repeat(x, at.entry_counts) for x in (P, N))
    tp, fp = (
        at.running_sums(at.positives) - at.positives,
        at.running_sums(at.negatives) - at.negatives - at.tied_negatives(),
    )
    has_entries, begins = at.entry_counts > 0, at.starts[:-1][at.entry_counts > 0]
    # Compute |TP / P - FP / N| times P * N, with integers. `edges` contains the largest of these distances at the
    # boundaries of buckets. The order of the rows within a bucket is unknown. The distance within a bucket is largest
    # if all rows of one class come before those of the other class. `corners` also includes this distance.
    below = tp * all_n - fp * all_p
    own = np.where(at.positives > 0, at.positives * all_n, -at.negatives * all_p)
    edges, corners = np.zeros(len(has_entries), np.int64), np.zeros(len(has_entries), np.int64)
    edges[has_entries] = np.maximum.reduceat(np.abs(below), begins)
    corners[has_entries] = np.maximum(edges[has_entries], np.maximum.reduceat(np.abs(below + own), begins))
    distances = np.full((3, len(has_entries)), NAN)
    for i in np.flatnonzero((P > 0) & (N > 0)):
        both, edge = int(P[i]) * int(N[i]), int(edges[i])
        value = edge / both
        distances[:, i] = value
        if inexact[i] and edge != corners[i]:
            found = Limits(Fraction(edge, both), Fraction(edge, both), Fraction(int(corners[i]), both))
            distances[1:, i] = found.round_outward()
    return distances[0], distances[1], distances[2]


@cache_readout
def ks_distance(state: ScoresByLabel) -> Limits | None:
    """Return the KS distance of a state with one cell (slice), with certified bounds; None if a class has no rows."""
    a, c = state.positives, state.negatives
    P, N = a.total(), c.total()
    if not P or not N:
        return None
    tp, fp = a.sums_before(), c.sums_before()
    corners = [(tp, fp)] if state.is_exact else [(tp, fp), (a.sums_through(), fp), (tp, c.sums_through())]
    tops = [_largest_distance(*corner, P, N) for corner in corners]
    return Limits(tops[0], tops[0], max(tops))


def _largest_distance(tp: Mass, fp: Mass, P: int, N: int) -> Fraction:
    """Return the exact maximum of |tp / P - fp / N| over all scores.

    `tp` and `fp` are cumulative weights of the positives and negatives, and `P` and `N` are the total weights of the
    positives and negatives. The differences are first computed in floats. The largest ones are then compared
    exactly: times P * N, they are integers.
    """
    rough = np.abs(tp.to_floats() / float(P) - fp.to_floats() / float(N))
    near = np.flatnonzero(rough >= rough.max() - NEAR)
    pairs = set(zip(tp.cells(near), fp.cells(near), strict=True))
    return Fraction(max(abs(a * N - c * P) for a, c in pairs), P * N)
