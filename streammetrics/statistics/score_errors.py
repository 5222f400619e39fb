"""Standard errors of what is read from rows by score: integers until the last division while a cell has few rows.

So they are the same for a cell alone and for all cells at once. Of many rows the terms are floats, whose sum is rounded
once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.exact import to_float
from .score_readouts import Entered, entered, heavy_cells, one_cell
from .scores import FEW as MANY
from .scores import ScoreHistogram, ScoresByLabel

__all__ = ["area_error", "area_errors", "average_precision_error", "average_precision_errors"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEW = 1 << 20  # rows, whose sums of squared ranks fit an int64
BLOCK = 1 << 18  # scores that are read at a time
NAN = float("nan")


def area_error(state: ScoresByLabel) -> float:
    """DeLong's standard error of the area under the ROC curve (1988), ties one half; NaN with less than two of a class."""
    if state.weighted:
        return NAN
    negatives, positives = state.counts[:, state.counts.any(axis=0)]
    N, P = int(negatives.sum()), int(positives.sum())
    if P < 2 or N < 2:
        return NAN
    below = 2 * np.cumsum(negatives) - negatives  # twice the rank of a positive among the negatives
    above = 2 * P - 2 * np.cumsum(positives) + positives
    if P + N <= FEW:
        sums = (positives * below, positives * below * below, negatives * above * above)
        return math.sqrt(_variance(N, P, *(int(x.sum()) for x in sums)))
    area = math.fsum(positives * (below / (2 * N))) / P
    of_positives = math.fsum(positives * (below / (2 * N) - area) ** 2) / (P - 1) / P
    return math.sqrt(of_positives + math.fsum(negatives * (above / (2 * P) - area) ** 2) / (N - 1) / N)


def _variance(N: Any, P: Any, wins: Any, below: Any, above: Any) -> Any:
    """The variance from twice the pairs won, and the sums of squares of twice the ranks: integers, or arrays of them."""
    spread = (P * below - wins * wins) * (N - 1) + (N * above - wins * wins) * (P - 1)
    return to_float(spread, 4 * N * N * P * P * (P - 1) * (N - 1))


def area_errors(state: ScoreHistogram) -> Floats:
    """DeLong's standard error of every cell."""
    out = np.full(len(state), NAN)
    for name in state.counted:
        e, starts = state.cells.tallies[name], state.starts(name)
        if len(e):
            found, held = _of_cells(entered(e, starts)), np.diff(starts) > 0
            out[held] = found[held]
    out[heavy_cells(state)] = NAN
    for cell in np.flatnonzero(state.rows_seen > FEW):
        out[cell] = area_error(one_cell(state, cell))
    return out


def _of_cells(at: Entered) -> Floats:
    N, P = at.sums(at.negatives), at.sums(at.positives)
    below = 2 * at.upto(at.negatives) - at.ties()
    same = np.append(np.where(at.ties()[1:] > 0, at.positives[1:], 0), 0)  # as negatives come first of a score
    above = 2 * np.repeat(P, at.each) - 2 * at.upto(at.positives) - same
    sums = (at.positives * below, at.positives * below * below, at.negatives * above * above)
    some = (P > 1) & (N > 1)
    integers = [x[some].astype(object) for x in (N, P, *map(at.sums, sums))]
    out = np.full(len(P), NAN)
    out[some] = np.sqrt(np.maximum(_variance(*integers), 0.0))  # which sums of too many rows may wrap around to be
    return out


def average_precision_error(state: ScoresByLabel) -> float:
    """The standard error of average precision by the infinitesimal jackknife; NaN with less than two of a class.

    A positive more among rows of score s changes the precision at all scores up to s, and so does a negative: what each
    adds is a sum from below, one pass for all.
    """
    if state.weighted:
        return NAN
    counts = state.counts[:, state.counts.any(axis=0)][:, None, ::-1]
    return float(_precision_errors(counts[1], counts[0])[0])


def average_precision_errors(state: ScoreHistogram) -> Floats:
    """The standard error of average precision of every cell."""
    out = np.full(len(state), NAN)
    for name in state.counted:
        e, starts = state.cells.tallies[name], state.starts(name)
        if len(e):
            held = np.diff(starts) > 0
            out[held] = _by_length(entered(e, starts))[held]
    out[heavy_cells(state)] = NAN
    for cell in np.flatnonzero(state.rows_seen >= MANY):
        out[cell] = average_precision_error(one_cell(state, cell))
    return out


def _by_length(at: Entered) -> Floats:
    """Cells with about as many scores side by side, the highest score first; what is missing are scores without rows."""
    scores = at.codes >> at.codes.dtype.type(1)
    first = np.ones(len(scores), bool)
    first[1:] = scores[1:] != scores[:-1]
    first[at.starts[:-1][at.each > 0]] = True
    rung = np.cumsum(first) - 1
    counts = np.zeros((2, int(rung[-1]) + 1))
    for rows, mine in zip(counts, (at.negatives, at.positives), strict=True):
        rows[rung[mine > 0]] = mine[mine > 0]
    ends = np.concatenate([[0], np.cumsum(first)])[at.starts]
    lengths, out = np.diff(ends), np.full(len(at.each), NAN)
    order = np.argsort(lengths, kind="stable")
    begin = int(np.count_nonzero(lengths == 0))
    while begin < len(order):
        widest = lengths[order[begin]] * 5 // 4 + 8
        many = min(int(np.searchsorted(lengths[order], widest, side="right")), begin + max(1, BLOCK // int(widest)))
        cells = order[begin:many]
        places = ends[cells + 1][:, None] - 1 - np.arange(lengths[cells].max())
        there = places >= ends[cells][:, None]
        negatives, positives = np.where(there, counts[:, np.maximum(places, 0)], 0.0)
        out[cells] = _precision_errors(positives, negatives)
        begin = many
    return out


def _precision_errors(positives: Any, negatives: Any) -> Floats:
    """The standard errors of some cells from rows by score, the highest first."""
    out = np.full(len(positives), NAN)
    if not positives.size:
        return out
    tp, fp = np.cumsum(positives, axis=1, dtype=np.float64), np.cumsum(negatives, axis=1, dtype=np.float64)
    some = np.flatnonzero((tp[:, -1] > 1) & (fp[:, -1] > 1))
    positives, negatives, tp, fp = (x[some] for x in (positives, negatives, tp, fp))
    rows = tp + fp
    precision = tp / rows
    P, N = tp[:, -1:], fp[:, -1:]
    value = _sums(positives * precision) / P
    gains = np.cumsum((positives * (fp / rows / rows))[:, ::-1], axis=1)[:, ::-1]
    losses = np.cumsum((positives * (precision / rows))[:, ::-1], axis=1)[:, ::-1]
    squares = _sums(positives * (precision - value + gains) ** 2) + _sums(negatives * losses**2)
    out[some] = (np.sqrt(squares * ((P + N) / (P + N - 1))) / P)[:, 0]
    return out


def _sums(terms: Floats) -> Floats:
    """The sum of each row, rounded once: whatever is beside it."""
    return np.array([math.fsum(row) for row in terms.tolist()])[:, None]
