"""Read-outs of score histograms for all cells at once: pure functions of a state, integers until the last division.

A code is a score, or a bucket, and in its last bit the label; so equal scores are neighbours, and every read-out is one
pass over entries, whichever the form of a cell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..numerics import compiled, elementary
from ..numerics.exact import Mass, enclose, to_float
from ..state.tally import Entries
from .scores import FEW, ScoreHistogram

__all__ = ["Bounded", "areas", "average_precisions", "gaps"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SURE = 1 << 53  # integers up to here are floats
NAN = float("nan")
ROUNDING = 2.0**-45  # more than the float64 steps of a bound can lose, relatively


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
    inexact = (state.flat("off_grid") != 0) & (both > 0)
    made = Bounded(
        value,
        np.where(inexact, _outward(low, both, twice - ties, -1), value),
        np.where(inexact, _outward(high, both, twice + ties, 1), value),
    )
    for cell in np.flatnonzero((both >= SURE) | _heavy(state)):
        for array, number in zip(made, _area(_alone(state, cell)), strict=True):
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
            at = _entered(e, starts)
            ties = at.ties()
            below = 2 * at.upto(at.negatives) - ties
            parts = at.negatives, at.positives, at.positives * below, at.positives * ties
            out += np.stack([at.sums(p) for p in parts], axis=1)
    return out


def _outward(quotient: Floats, divisor: Floats, dividend: Ints, way: int) -> Floats:
    """The float below or above a quotient of integers, or the quotient, if it is one. Without error (Dekker 1971)."""
    product = quotient * divisor
    a, b = (_halves(x) for x in (quotient, divisor))
    rest = ((a[0] * b[0] - product) + a[0] * b[1] + a[1] * b[0]) + a[1] * b[1]
    off = ((product - dividend) + rest) * way  # below 0 if the float does not reach the quotient
    return np.where(off < 0, np.nextafter(quotient, way * np.inf), quotient)


def _halves(x: Floats) -> tuple[Floats, Floats]:
    """A float as two of half its bits."""
    large = x * 134217729.0
    high = large - (large - x)
    return high, x - high


def _heavy(state: ScoreHistogram) -> NDArray[np.bool_]:
    """Which cells have weights, or more rows than whose pairs fit an int64."""
    heavy = np.asarray(state.rows_seen >= FEW)
    for name in state.counted:
        e = state.cells.tallies[name]
        if e.excess is not None:
            heavy[np.unique(e.cells[e.excess.any(axis=1)])] = True
    return heavy


def _alone(state: ScoreHistogram, cell: Any) -> ScoreHistogram:
    return state.cell(int(cell)) if state.axes else state


def _area(state: ScoreHistogram) -> tuple[float, float, float]:
    """One cell by wide integers."""
    N, P, twice, ties = state.pairs()
    value = to_float(twice, 2 * P * N)
    if state.is_exact or not P or not N:
        return value, value, value
    return value, *enclose(Fraction(twice - ties, 2 * P * N), Fraction(twice + ties, 2 * P * N))


def _entered(e: Entries, starts: Ints) -> Entered:
    positive = (e.codes & e.codes.dtype.type(1)).astype(np.bool_)
    return Entered(starts, e.places, np.where(positive, 0, e.mass), np.where(positive, e.mass, 0))


def average_precisions(state: ScoreHistogram) -> Bounded:
    """The average precision of every cell, equal scores (or those of one bucket) as one tie."""
    return _of_both(state, _precision, _lone_precision)


def gaps(state: ScoreHistogram) -> Bounded:
    """The largest gap between the score distributions of the classes (KS) of every cell."""
    return _of_both(state, _gap, _lone_gap)


def _of_both(
    state: ScoreHistogram,
    read: Callable[[Entered, Any], tuple[Floats, Floats, Floats]],
    alone: Callable[[ScoreHistogram], tuple[float, float, float]],
) -> Bounded:
    """Read cells of both forms by their own entries, and those with weights one by one."""
    made = Bounded(*(np.full(len(state), np.nan) for _ in range(3)))
    inexact = state.flat("off_grid") != 0
    for name in state.counted:
        e, starts = state.cells.tallies[name], state.starts(name)
        held = np.diff(starts) > 0
        if held.any():
            for array, numbers in zip(made, read(_entered(e, starts), inexact), strict=True):
                array[held] = numbers[held]
    for cell in np.flatnonzero(_heavy(state)):
        for array, number in zip(made, alone(_alone(state, cell)), strict=True):
            array[cell] = number
    return made


def _fsums(terms: Floats, starts: Ints) -> Floats:
    """Sums over each cell, each rounded once."""
    ends = starts.tolist()
    return np.array([math.fsum(terms[a:b]) for a, b in itertools.pairwise(ends)])


def _precision(at: Entered, inexact: Any) -> tuple[Floats, Floats, Floats]:
    P, N = at.sums(at.positives), at.sums(at.negatives)
    ties, some = at.ties(), at.positives > 0
    tp = np.repeat(P, at.each) - at.upto(at.positives)  # above the score
    fp = np.repeat(N, at.each) - at.upto(at.negatives)
    starts = np.concatenate([[0], np.cumsum(some)])[at.starts]
    all_p = np.repeat(P, at.each)[some]
    a, c, above, below = (x[some].astype(np.float64) for x in (at.positives, ties, tp, fp))
    value = np.where(P > 0, _fsums(a / all_p * ((above + a) / (above + below + a + c)), starts), np.nan)
    low, high = value.copy(), value.copy()
    wide = np.repeat(inexact, np.diff(starts))
    if wide.any():
        lower, upper = _precision_terms(a, c, above, below, all_p, step=0.5)
        off = inexact & (P > 0)
        low[off] = np.maximum(0.0, _fsums(lower, starts)[off] * (1 - ROUNDING))
        high[off] = np.minimum(1.0, _fsums(upper, starts)[off] * (1 + ROUNDING))
    return value, low, high


def _precision_terms(a: Floats, c: Floats, tp: Floats, fp: Floats, P: Any, *, step: float) -> tuple[Floats, Floats]:
    """At least, below the worst order within a bucket, and at most, positives first.

    Rows of weight 1 come in steps, so the integral may start half a step later; a lone positive is known exactly.
    """
    S = tp + fp + c
    sure = (a == 1) if step else (S == 0)
    base = np.where(sure, 1.0, S + step)
    worst = a * ((tp + step) / base) + (fp + c) * elementary.x_minus_log1p(a / base)
    return np.where(sure, a * ((tp + a) / (S + a)), worst) / P, a / P * ((tp + a) / (tp + fp + a))


def _lone_precision(state: ScoreHistogram) -> tuple[float, float, float]:
    """One cell by wide integers."""
    a_, c_ = (Mass(m.digits[:, ::-1]) for m in (state.positives, state.negatives))
    held, P = a_.digits.any(axis=0), float(a_.total())
    if not P:
        return NAN, NAN, NAN
    a, c, tp, fp = (m.floats()[held] for m in (a_, c_, a_.before(), c_.before()))
    value = math.fsum(a / P * ((tp + a) / (tp + fp + a + c)))
    if state.is_exact:
        return value, value, value
    lower, upper = _precision_terms(a, c, tp, fp, P, step=0.0 if state.weighted else 0.5)
    low, high = math.fsum(lower) * (1 - ROUNDING), math.fsum(upper) * (1 + ROUNDING)
    return value, max(0.0, low), min(1.0, high)


def _gap(at: Entered, inexact: Any) -> tuple[Floats, Floats, Floats]:
    P, N = at.sums(at.positives), at.sums(at.negatives)
    all_p, all_n = (np.repeat(x, at.each).astype(np.float64) for x in (P, N))
    tp, fp = at.upto(at.positives) - at.positives, at.upto(at.negatives) - at.negatives - at.ties()
    held, begins = at.each > 0, at.starts[:-1][at.each > 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        below = tp / all_p - fp / all_n
        own = np.where(at.positives > 0, at.positives / all_p, -at.negatives / all_n)
    value, high = np.full(len(held), np.nan), np.full(len(held), np.nan)
    value[held] = np.maximum.reduceat(np.abs(below), begins)
    high[held] = np.maximum(value[held], np.maximum.reduceat(np.abs(below + own), begins))
    both = (P > 0) & (N > 0)
    value, high = np.where(both, value, np.nan), np.where(both, high, np.nan)
    low = np.where(inexact, np.maximum(0.0, value - ROUNDING), value)
    return value, low, np.where(inexact, np.minimum(1.0, high + ROUNDING), value)


def _lone_gap(state: ScoreHistogram) -> tuple[float, float, float]:
    """One cell by wide integers."""
    pos, neg = state.positives, state.negatives
    P, N = float(pos.total()), float(neg.total())
    if not P or not N:
        return NAN, NAN, NAN
    a, c = pos.floats() / P, neg.floats() / N
    below = pos.before().floats() / P - neg.before().floats() / N
    value = float(np.abs(below).max())
    if state.is_exact:
        return value, value, value
    high = float(max(value, np.abs(below + a).max(), np.abs(below - c).max()))
    return value, max(0.0, value - ROUNDING), min(1.0, high + ROUNDING)
