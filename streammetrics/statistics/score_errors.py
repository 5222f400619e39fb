"""Standard errors of AUC and average precision, computed from score histograms.

In a cell (such as a slice) with few rows, sums are computed with integers. In a cell with many rows, the terms are
floats, and their sum is rounded once. The result of a cell therefore does not depend on the other cells that are
computed in the same call.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.exact import to_float
from .score_readouts import LabelledEntries, heavy_cells, one_cell, split_by_label
from .scores import FEW as MANY
from .scores import ScoreHistogram, ScoresByLabel

__all__ = ["area_error", "area_errors", "average_precision_error", "average_precision_errors"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# With at most this many rows, the sums of squared ranks that DeLong's formula needs fit in an int64.
FEW = 1 << 20
# To limit memory use, a padded table of cells (such as slices) x scores has at most this many elements, unless it
# contains only one cell.
BLOCK = 1 << 18
NAN = float("nan")


def area_error(state: ScoresByLabel) -> float:
    """Return the standard error of the AUC of a state with one cell (slice), by the method of DeLong et al. (1988).

    Ties count one half. The result is NaN if rows have weights, or if a class has fewer than two rows.
    """
    if state.has_weights:
        return NAN
    negatives, positives = state.counts[:, state.counts.any(axis=0)]
    N, P = int(negatives.sum()), int(positives.sum())
    if P < 2 or N < 2:
        return NAN
    # For each score, `below` is twice the number of negatives with a lower score, and `above` is twice the number of
    # positives with a higher score. Ties count one half, and the factor 2 avoids fractions.
    below = 2 * np.cumsum(negatives) - negatives
    above = 2 * P - 2 * np.cumsum(positives) + positives
    if P + N <= FEW:
        sums = (positives * below, positives * below * below, negatives * above * above)
        return math.sqrt(_variance(N, P, *(int(x.sum()) for x in sums)))
    area = math.fsum(positives * (below / (2 * N))) / P
    of_positives = math.fsum(positives * (below / (2 * N) - area) ** 2) / (P - 1) / P
    return math.sqrt(of_positives + math.fsum(negatives * (above / (2 * P) - area) ** 2) / (N - 1) / N)


def _variance(N: Any, P: Any, wins: Any, below: Any, above: Any) -> Any:
    """Return the variance of the AUC by DeLong's formula, computed from integers.

    Parameters
    ----------
    N, P : int
        The numbers of negatives and positives.
    wins : int
        Twice the number of concordant pairs, in which the positive has the higher score; a tie counts one half.
    below, above : int
        `below` is the sum over positives of b^2, where b is twice the number of negatives with a lower score. `above`
        is the sum over negatives of a^2, where a is twice the number of positives with a higher score.
    """
    spread = (P * below - wins * wins) * (N - 1) + (N * above - wins * wins) * (P - 1)
    return to_float(spread, 4 * N * N * P * P * (P - 1) * (N - 1))


def area_errors(state: ScoreHistogram) -> Floats:
    """Return the standard error of the AUC of every cell (such as a slice), as `area_error` does for one cell."""
    out = np.full(len(state), NAN)
    for name in state.row_parts:
        e, starts = state.cells.tallies[name], state.entry_starts(name)
        if len(e):
            found, has_entries = _area_errors_of_cells(split_by_label(e, starts)), np.diff(starts) > 0
            out[has_entries] = found[has_entries]
    out[heavy_cells(state)] = NAN
    for cell in np.flatnonzero(state.row_counts > FEW):
        out[cell] = area_error(one_cell(state, cell))
    return out


def _area_errors_of_cells(at: LabelledEntries) -> Floats:
    N, P = at.sums(at.negatives), at.sums(at.positives)
    below = 2 * at.running_sums(at.negatives) - at.tied_negatives()
    # The entry with the positives of a score follows the entry with its negatives. Therefore `same`, the number of
    # positives that are tied with the negatives of an entry, is taken from the next entry.
    same = np.append(np.where(at.tied_negatives()[1:] > 0, at.positives[1:], 0), 0)
    above = 2 * np.repeat(P, at.entry_counts) - 2 * at.running_sums(at.positives) - same
    sums = (at.positives * below, at.positives * below * below, at.negatives * above * above)
    some = (P > 1) & (N > 1)
    integers = [x[some].astype(object) for x in (N, P, *map(at.sums, sums))]
    out = np.full(len(P), NAN)
    # In a cell with more than FEW rows, the sums can overflow, so its variance can be wrong, and even negative. Replace
    # a negative variance with 0. `area_errors` later recomputes the standard errors of all cells of this size.
    out[some] = np.sqrt(np.maximum(_variance(*integers), 0.0))
    return out


def average_precision_error(state: ScoresByLabel) -> float:
    """Return the infinitesimal jackknife standard error of the average precision of a state with one cell (slice).

    The influence of a row is the rate at which the average precision changes as the weight of the row increases. More
    weight for a row with score s changes the precision at all thresholds up to s. The changes can be computed as
    cumulative sums, so one pass over the scores yields the influence of every row. The result is NaN if rows have
    weights, or if a class has fewer than two rows.
    """
    if state.has_weights:
        return NAN
    counts = state.counts[:, state.counts.any(axis=0)][:, None, ::-1]
    return float(_precision_errors(counts[1], counts[0])[0])


def average_precision_errors(state: ScoreHistogram) -> Floats:
    """Return the standard error of the average precision of every cell (such as a slice).

    The method is that of `average_precision_error`.
    """
    out = np.full(len(state), NAN)
    for name in state.row_parts:
        e, starts = state.cells.tallies[name], state.entry_starts(name)
        if len(e):
            has_entries = np.diff(starts) > 0
            out[has_entries] = _precision_errors_of_cells(split_by_label(e, starts))[has_entries]
    out[heavy_cells(state)] = NAN
    for cell in np.flatnonzero(state.row_counts >= MANY):
        out[cell] = average_precision_error(one_cell(state, cell))
    return out


def _precision_errors_of_cells(at: LabelledEntries) -> Floats:
    """Return the standard error of the average precision of each cell (such as a slice).

    Cells with similar numbers of distinct scores are computed together, in an array of shape (cells, scores). Cells with
    fewer scores are padded with counts of 0.
    """
    scores = at.codes >> at.codes.dtype.type(1)
    first = np.ones(len(scores), bool)
    first[1:] = scores[1:] != scores[:-1]
    first[at.starts[:-1][at.entry_counts > 0]] = True
    rung = np.cumsum(first) - 1
    counts = np.zeros((2, int(rung[-1]) + 1))
    for rows, mine in zip(counts, (at.negatives, at.positives), strict=True):
        rows[rung[mine > 0]] = mine[mine > 0]
    ends = np.concatenate([[0], np.cumsum(first)])[at.starts]
    lengths, out = np.diff(ends), np.full(len(at.entry_counts), NAN)
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
    """Return the standard error of the average precision of each cell (such as a slice), from row counts.

    `positives` and `negatives` are row counts of shape (cells, scores), with the highest score first.
    """
    out = np.full(len(positives), NAN)
    if not positives.size:
        return out
    tp, fp = np.cumsum(positives, axis=1, dtype=np.float64), np.cumsum(negatives, axis=1, dtype=np.float64)
    defined_cells = np.flatnonzero((tp[:, -1] > 1) & (fp[:, -1] > 1))
    positives, negatives, tp, fp = (x[defined_cells] for x in (positives, negatives, tp, fp))
    # The average precision (`value`) is the mean, over all positives, of the precision at their score. The influence of a
    # positive is its own precision minus this mean, plus its effect on the precision at its score and all lower scores
    # (`gains`). A negative affects only the precision at its score and all lower scores (`losses`).
    rows = tp + fp
    precision = tp / rows
    P, N = tp[:, -1:], fp[:, -1:]
    value = _sum_rows(positives * precision) / P
    gains = np.cumsum((positives * (fp / rows / rows))[:, ::-1], axis=1)[:, ::-1]
    losses = np.cumsum((positives * (precision / rows))[:, ::-1], axis=1)[:, ::-1]
    squares = _sum_rows(positives * (precision - value + gains) ** 2) + _sum_rows(negatives * losses**2)
    out[defined_cells] = (np.sqrt(squares * ((P + N) / (P + N - 1))) / P)[:, 0]
    return out


def _sum_rows(terms: Floats) -> Floats:
    """Return the sum of each row as a column. Each sum is rounded only once, so padding with 0 does not change it."""
    return np.array([math.fsum(row) for row in terms.tolist()])[:, None]
