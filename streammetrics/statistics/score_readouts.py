"""Read-outs of score histograms for all cells at once: pure functions of a state, integers until the last division.

A code is a score, or a bucket, and in its last bit the label; so equal scores are neighbours, and every read-out is one
pass over entries, whichever the form of a cell.
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

from ..numerics import elementary
from ..numerics import kernel_registry as compiled
from ..numerics.double_double import Twofold, product
from ..numerics.exact import Limits, Mass
from ..state.tally import Entries
from .scores import FEW, ScoreHistogram, ScoresByLabel

__all__ = [
    "Bounded",
    "Entered",
    "area",
    "areas",
    "average_precision",
    "average_precisions",
    "entered",
    "gap",
    "gaps",
    "heavy_cells",
    "one_cell",
    "pairs_without",
    "quotients",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SURE = 1 << 53  # integers up to here are floats
NAN = float("nan")
ROUNDING = 2.0**-45  # more than the float64 steps of a bound can lose, relatively
OFF = 2.0**-92  # and those of 106 bits
MANY_PLACES = 1 << 20
DENSE = 16  # places of all cells for each entry of their shards that may be gone through
NEAR = 2.0**-48  # more than the difference of two shares can be off
FEW_TERMS = 300  # whose sum is formed with one denominator, should 106 bits not say how it rounds


Read = Callable[[ScoresByLabel], Limits | None]


def once(read: Read) -> Read:
    """Keep what is read from a state, which never changes: value and bounds are asked for one after the other."""

    @functools.wraps(read)
    def of(state: ScoresByLabel) -> Limits | None:
        held = state.__dict__.setdefault("_readouts", {})
        if of not in held:
            held[of] = read(state)
        found: Limits | None = held[of]
        return found

    return of


class Bounded(NamedTuple):
    """A number for each cell, NaN where it is not defined, and limits between which it certainly lies."""

    value: Floats
    low: Floats
    high: Floats


class Entered(NamedTuple):
    """The entries of the cells in one form: where each cell begins, and of every entry the rows of each label."""

    starts: Ints
    codes: NDArray[np.uint64]
    negatives: Ints
    positives: Ints

    @property
    def each(self) -> Ints:
        """Entries of each cell."""
        return np.diff(self.starts)

    def sums(self, values: Ints) -> Ints:
        """The sum over each cell."""
        out = np.zeros(len(self.each), values.dtype)
        held = self.each > 0
        if held.any():
            out[held] = np.add.reduceat(values, self.starts[:-1][held])
        return out

    def upto(self, values: Ints) -> Ints:
        """The sum up to and with each entry, within its cell."""
        run: Ints = np.cumsum(values)
        upto: Ints = run - np.repeat(np.concatenate([[0], run])[self.starts[:-1]], self.each)
        return upto

    def ties(self) -> Ints:
        """Negatives of the same score as the positives of each entry: those of the entry before, or none."""
        found = np.zeros(len(self.codes), np.int64)
        one = self.codes.dtype.type(1)
        same = (self.codes[1:] == self.codes[:-1] + one) & (self.codes[1:] & one == one)
        found[1:] = np.where(same, self.negatives[:-1], 0)
        found[self.starts[:-1][self.each > 0]] = 0  # the entry before is another cell's
        return found


def areas(state: ScoreHistogram) -> Bounded:
    """The area under the ROC curve of every cell, ties one half; integers, rounded once."""
    N, P, twice, ties = _pairs(state).T
    both = 2.0 * (N.astype(np.float64) * P)
    with np.errstate(invalid="ignore", divide="ignore"):
        value, low, high = (n / both for n in (twice, twice - ties, twice + ties))
    inexact = (state.flat("off_grid") != 0) & (low < high)
    made = Bounded(
        value,
        np.where(inexact, _outward(low, both, twice - ties, -1), value),
        np.where(inexact, _outward(high, both, twice + ties, 1), value),
    )
    for cell in np.flatnonzero((both >= SURE) | heavy_cells(state)):
        for array, number in zip(made, _numbers(area(one_cell(state, cell))), strict=True):
            array[cell] = number
    return made


def _pairs(state: ScoreHistogram) -> Ints:
    """Negatives, positives, twice the pairs that positives win (ties half) and ties of every cell."""
    out = np.zeros((len(state), 4), np.int64)
    for name in state.counted:
        e, starts = state.cells.tallies[name], state.starts(name)
        if not len(e):
            continue
        if compiled.loaded():
            found = np.zeros(4 * len(out), np.int64)
            compiled.kernel("exact_rows:pairs")(e.places, starts, e.counts, found)
            out += found.reshape(-1, 4)
        else:
            at = entered(e, starts)
            ties = at.ties()
            below = 2 * at.upto(at.negatives) - ties
            parts = at.negatives, at.positives, at.positives * below, at.positives * ties
            out += np.stack([at.sums(p) for p in parts], axis=1)
    return out


def pairs_without(shards: ScoreHistogram, at: Ints, cells: int) -> tuple[Ints, Ints] | None:
    """Negatives, positives and twice the pairs that positives win, of cells, and of each without each of its shards.

    Parameters
    ----------
    shards : ScoreHistogram
        The shards, those of a cell side by side.
    at : int64 array
        To which of so many cells each shard belongs, ascending.

    Returns
    -------
    total : int64, shape (cells, 3)
    rest : int64, shape (shards, 3)
        None, instead of both, if there are weights, exact scores, or more rows than whose pairs fit an int64.
    """
    e, starts = shards.cells.tallies["rows"], shards.starts("rows")
    rows = np.bincount(at, shards.rows_seen, cells)  # floats: exact as far as it matters
    if shards.most != 0 or e.excess is not None or (rows >= FEW).any():
        return None
    total, rest = np.zeros((cells, 3), np.int64), np.zeros((len(shards), 3), np.int64)
    firsts = np.searchsorted(at, np.arange(cells + 1))
    if compiled.loaded() and cells * shards.places <= max(MANY_PLACES, DENSE * len(e)):
        out = np.zeros(shards.places, np.int64), total.reshape(-1), rest.reshape(-1)
        held = e.places.astype(np.uint32, copy=False), starts, e.counts.astype(np.uint32, copy=False)
        compiled.kernel("exact_rows:pairs_without")(*held, firsts, *out)
        return total, rest
    own, places = entered(e, starts), e.places.astype(np.int64)
    codes, to = np.unique(np.repeat(at, own.each) * shards.places + places, return_inverse=True)
    all_rows = np.bincount(to, e.mass, len(codes)).astype(np.int64)
    positive = (codes & 1) == 1
    ends = np.searchsorted(codes, np.arange(cells + 1) * shards.places)
    both = Entered(ends, codes.view(np.uint64), np.where(positive, 0, all_rows), np.where(positive, all_rows, 0))
    total[:, 0], total[:, 1] = both.sums(both.negatives), both.sums(both.positives)
    wins = 2 * both.upto(both.negatives) - both.ties()  # of a positive here
    total[:, 2] = both.sums(both.positives * wins)
    beside = np.zeros(len(codes), np.int64)  # positives of the same score as negatives
    beside[:-1] = np.where((codes[1:] == codes[:-1] + 1) & positive[1:], both.positives[1:], 0)
    above = 2 * (np.repeat(total[:, 1], both.each) - both.upto(both.positives)) - beside
    won = own.sums(e.mass * np.where(positive, wins, above)[to])
    ties = own.ties()
    alone = own.sums(own.positives * (2 * own.upto(own.negatives) - ties))
    mine = np.stack([own.sums(own.negatives), own.sums(own.positives), won - alone], axis=1)
    rest[:] = total[at] - mine
    return total, rest


def quotients(above: Ints, below: Ints) -> Floats:
    """Quotients of integers, rounded once; NaN for 0/0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        out: Floats = above.astype(np.float64) / below
    for i in np.flatnonzero(below >= SURE):
        out[i] = int(above[i]) / int(below[i])
    return out


def _outward(quotient: Floats, divisor: Floats, dividend: Ints, way: int) -> Floats:
    """The float below or above a quotient of integers, or the quotient, if it is one. Without error (Dekker 1971)."""
    whole, rest = product(quotient, divisor)
    off = ((whole - dividend) + rest) * way  # below 0 if the float does not reach the quotient
    return np.where(off < 0, np.nextafter(quotient, way * np.inf), quotient)


def heavy_cells(state: ScoreHistogram) -> NDArray[np.bool_]:
    """Which cells have weights, or more rows than whose pairs fit an int64."""
    heavy = np.asarray(state.rows_seen >= FEW)
    for name in state.counted:
        e = state.cells.tallies[name]
        if e.excess is not None:
            heavy[e.cells_with((e.excess != 0).any(axis=1))] = True
    return heavy


def one_cell(state: ScoreHistogram, cell: Any) -> ScoreHistogram:
    """One cell as a state of its own."""
    return state.cell(int(cell)) if state.axes else state


def _numbers(found: Limits | None) -> tuple[float, float, float]:
    """A number and its limits, rounded."""
    return (NAN, NAN, NAN) if found is None else (found.rounded(), *found.outward())


@once
def area(state: ScoresByLabel) -> Limits | None:
    """The area under the ROC curve of a state of one cell, by wide integers; None without one class."""
    N, P, twice, ties = state.pairs()
    if not P or not N:
        return None
    both, slack = 2 * P * N, 0 if state.is_exact else ties
    return Limits(*(Fraction(n, both) for n in (twice - slack, twice, twice + slack)))


def entered(e: Entries, starts: Ints) -> Entered:
    """The entries of the cells in one form, by label."""
    positive = (e.codes & e.codes.dtype.type(1)).astype(np.bool_)
    return Entered(starts, e.places, np.where(positive, 0, e.mass), np.where(positive, e.mass, 0))


def average_precisions(state: ScoreHistogram) -> Bounded:
    """The average precision of every cell, equal scores (or those of one bucket) as one tie."""
    return _of_both(state, _precision, average_precision)


def gaps(state: ScoreHistogram) -> Bounded:
    """The largest gap between the score distributions of the classes (KS) of every cell."""
    return _of_both(state, _gap, gap)


def _of_both(
    state: ScoreHistogram,
    read: Callable[[Entered, Any], tuple[Floats, Floats, Floats]],
    alone: Read,
) -> Bounded:
    """Read cells of both forms by their own entries, and those with weights one by one."""
    made = Bounded(*(np.full(len(state), np.nan) for _ in range(3)))
    inexact = state.flat("off_grid") != 0
    for name in state.counted:
        e, starts = state.cells.tallies[name], state.starts(name)
        held = np.diff(starts) > 0
        if held.any():
            for array, numbers in zip(made, read(entered(e, starts), inexact), strict=True):
                array[held] = numbers[held]
    for cell in np.flatnonzero(heavy_cells(state)):
        for array, number in zip(made, _numbers(alone(one_cell(state, cell))), strict=True):
            array[cell] = number
    return made


class PositiveScores(NamedTuple):
    """What average precision is read from: the scores that positives have, of every cell.

    Parameters
    ----------
    a, c, tp, fp : Twofold
        Positives and negatives of a score, and those above it.
    starts : int64
        Where each cell begins, and the end.
    P : Twofold
        The positives of each cell.
    step : float
        How much later the integral below a bucket may start: half a row, if rows are not weighted.
    """

    a: Twofold
    c: Twofold
    tp: Twofold
    fp: Twofold
    starts: Ints
    P: Twofold
    step: float

    def quotients(self) -> Twofold:
        """Sum a (TP + a) / (S P), S all that is not below, of each cell; within `OFF`."""
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
            return Twofold(*np.array(sums).reshape(-1, 2).T) / self.P

    def limits(self) -> tuple[Floats, Floats]:
        """At least, below the worst order within a bucket, and at most, positives first; rounded outward.

        Rows of weight 1 come in steps, so the integral may start half a step later; a lone positive is known exactly.
        """
        a, c, tp, fp = (x.high for x in self[:4])
        P = np.repeat(self.P.high, np.diff(self.starts))
        S = tp + fp + c
        sure = (a == 1) if self.step else (S == 0)
        base = np.where(sure, 1.0, S + self.step)
        worst = a * ((tp + self.step) / base) + (fp + c) * elementary.x_minus_log1p(a / base)
        low = self._sums(np.where(sure, a * ((tp + a) / (S + a)), worst) / P) * (1 - ROUNDING)
        high = self._sums(a / P * ((tp + a) / (tp + fp + a))) * (1 + ROUNDING)
        return np.maximum(0.0, low), np.minimum(1.0, high)

    def _sums(self, terms: Floats) -> Floats:
        return np.array([math.fsum(terms[i:j]) for i, j in itertools.pairwise(self.starts.tolist())])

    def exactly(self) -> Fraction:
        """The one cell's, whatever that takes."""
        sums = zip(*(map(_whole, zip(x.high, x.low, strict=True)) for x in self[:4]), strict=True)
        total = sum((Fraction(a * (tp + a), a + c + tp + fp) for a, c, tp, fp in sums), Fraction(0))
        return total / _whole((self.P.high[0], self.P.low[0]))


def _whole(parts: tuple[float, float]) -> int:
    return int(parts[0]) + int(parts[1])


def _precision(at: Entered, inexact: Any) -> tuple[Floats, Floats, Floats]:
    P, N = at.sums(at.positives), at.sums(at.negatives)
    some = at.positives > 0
    above_p = np.repeat(P, at.each) - at.upto(at.positives)
    above_n = np.repeat(N, at.each) - at.upto(at.negatives)
    starts = np.concatenate([[0], np.cumsum(some)])[at.starts]
    a, c, tp, fp = (Twofold.of(x[some]) for x in (at.positives, at.ties(), above_p, above_n))
    terms = PositiveScores(a, c, tp, fp, starts, Twofold.of(P), 0.5)
    value, sure = terms.quotients().nearest(OFF)
    low, high = value.copy(), value.copy()
    off = inexact & (P > 0)
    if off.any():
        for array, found in zip((low, high), terms.limits(), strict=True):
            array[off] = found[off]
    for i in np.flatnonzero(~sure & (P > 0)):  # hardly ever
        part = slice(starts[i], starts[i + 1])
        a, c, tp, fp = (x.take(part) for x in terms[:4])
        one = PositiveScores(a, c, tp, fp, starts[i : i + 2] - starts[i], terms.P.take([i]), 0.5)
        value[i], low[i], high[i] = _numbers(_of_terms(one, bool(off[i])))
    return value, low, high


def _of_terms(terms: PositiveScores, inexact: bool) -> Limits:
    """What the terms of one cell make."""
    high, low = (Fraction(float(x[0])) for x in terms.quotients())
    value = high + low
    if inexact:
        least, most = (Fraction(float(x[0])) for x in terms.limits())
        return Limits(min(least, value), value, max(most, value))
    found = Limits(value * (1 - Fraction(OFF)), value, value * (1 + Fraction(OFF)))
    if found.low != found.high and len(set(found.outward())) > 1 and len(terms.a.high) <= FEW_TERMS:
        exact = terms.exactly()
        return Limits(exact, exact, exact)
    return found


@once
def average_precision(state: ScoresByLabel) -> Limits | None:
    """The average precision of a state of one cell; None without positives."""
    a_, c_ = (Mass(m.digits[:, ::-1]) for m in (state.positives, state.negatives))
    held, P = a_.digits.any(axis=0), Mass.one(a_.total())
    if not a_.total():
        return None
    a, c, tp, fp = (m[held].twofold() for m in (a_, c_, a_.before(), c_.before()))
    starts = np.array([0, len(a.high)])
    terms = PositiveScores(a, c, tp, fp, starts, P.twofold(), 0.0 if state.weighted else 0.5)
    return _of_terms(terms, not state.is_exact)


def _gap(at: Entered, inexact: Any) -> tuple[Floats, Floats, Floats]:
    P, N = at.sums(at.positives), at.sums(at.negatives)
    all_p, all_n = (np.repeat(x, at.each) for x in (P, N))
    tp, fp = at.upto(at.positives) - at.positives, at.upto(at.negatives) - at.negatives - at.ties()
    held, begins = at.each > 0, at.starts[:-1][at.each > 0]
    below = tp * all_n - fp * all_p
    own = np.where(at.positives > 0, at.positives * all_n, -at.negatives * all_p)
    edges, corners = np.zeros(len(held), np.int64), np.zeros(len(held), np.int64)
    edges[held] = np.maximum.reduceat(np.abs(below), begins)
    corners[held] = np.maximum(edges[held], np.maximum.reduceat(np.abs(below + own), begins))
    made = np.full((3, len(held)), NAN)
    for i in np.flatnonzero((P > 0) & (N > 0)):
        both, edge = int(P[i]) * int(N[i]), int(edges[i])
        value = edge / both
        made[:, i] = value
        if inexact[i] and edge != corners[i]:
            found = Limits(Fraction(edge, both), Fraction(edge, both), Fraction(int(corners[i]), both))
            made[1:, i] = found.outward()
    return made[0], made[1], made[2]


@once
def gap(state: ScoresByLabel) -> Limits | None:
    """The largest gap between the score distributions of the classes, of a state of one cell; None without one class."""
    a, c = state.positives, state.negatives
    P, N = a.total(), c.total()
    if not P or not N:
        return None
    tp, fp = a.before(), c.before()
    corners = [(tp, fp)] if state.is_exact else [(tp, fp), (a.through(), fp), (tp, c.through())]
    tops = [_largest(*corner, P, N) for corner in corners]
    return Limits(tops[0], tops[0], max(tops))


def _largest(tp: Mass, fp: Mass, P: int, N: int) -> Fraction:
    """The largest |TP / P - FP / N|: of those that floats cannot tell apart by integers."""
    rough = np.abs(tp.floats() / float(P) - fp.floats() / float(N))
    near = np.flatnonzero(rough >= rough.max() - NEAR)
    pairs = set(zip(tp.cells(near), fp.cells(near), strict=True))
    return Fraction(max(abs(a * N - c * P) for a, c in pairs), P * N)
