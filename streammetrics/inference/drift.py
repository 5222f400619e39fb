"""Measure the drift of a score distribution with the population stability index and other divergences."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..collect.metric_like import MetricLike, states_of
from ..errors import InvalidInputError
from ..numerics.elementary import log
from ..numerics.score_buckets import smallest_scores
from ..state.state import State
from ..statistics.scores import BITS, ScoreHistogram

__all__ = ["Drift", "Stability", "drift", "population_stability_index"]

BINS = 10
FLOOR = 1e-4
"""The smallest share of a bin in PSI and KL. Smaller shares are raised to it, because 0 has no logarithm."""
SHIFTED, MOVED = 0.1, 0.25


class Stability(NamedTuple):
    """The result of `population_stability_index`.

    Parameters
    ----------
    value : float
        The index: 0 for equal distributions; NaN if the scores or the reference have no rows.
    word : str
        The usual name for the size of the index: "stable" below 0.1, "shifted" below 0.25, otherwise "moved". Empty if the
        scores or the reference have no rows.
    edges : tuple of float
        The smallest score of every bin except the first.
    shares, reference : tuple of float
        The share of rows in every bin, for the scores and for the reference.
    """

    value: float
    word: str
    edges: tuple[float, ...]
    shares: tuple[float, ...]
    reference: tuple[float, ...]


class Drift(NamedTuple):
    """The result of `drift`. All numbers are NaN if the scores or the reference have no rows.

    Parameters
    ----------
    psi : float
        Population stability index, sum of (p - q) * log(p / q): the symmetric (Jeffreys) divergence.
    kl : float
        Kullback-Leibler divergence of the scores from the reference, sum of p * log(p / q), in nats.
    js : float
        Jensen-Shannon divergence, from 0 to log 2.
    word : str
        Name for the size of `psi`: "stable" below 0.1, "shifted" below 0.25, otherwise "moved"; empty if it is NaN.
    edges : tuple of float
        The smallest score of every bin except the first.
    shares, reference : tuple of float
        The share of rows in every bin, for the scores and for the reference.
    """

    psi: float
    kl: float
    js: float
    word: str
    edges: tuple[float, ...]
    shares: tuple[float, ...]
    reference: tuple[float, ...]


def drift(scores: MetricLike | State, reference: MetricLike | State, bins: int = BINS, floor: float = FLOOR) -> Drift:
    """Return how far a score distribution has moved from a reference, such as last month's scores.

    Let p and q be the shares of rows in a bin for the scores and the reference, and let m = (p + q) / 2. The
    divergences are sums over bins:

    - KL sums p * log(p / q);
    - PSI sums (p - q) * log(p / q);
    - JS sums (p * log(p / m) + q * log(q / m)) / 2.

    Bins are chosen to have equal weight in the reference, and their edges are edges of histogram buckets. A bucket with
    more than 1 / bins of the weight, such as the bucket of a default score, becomes a separate bin. KL and PSI replace
    a share below `floor` by `floor`. JS needs no floor.

    Parameters
    ----------
    scores, reference : metric of scores, or ScoreHistogram
        Metrics that count scores, such as `AUC` or `NormalizedEntropy`, without slices, with or without shards.
    bins : int
        Number of bins; with 10, the bins are the deciles of the reference.
    floor : float
        Smallest share of a bin in KL and PSI, so that the logarithm is defined for an empty bin.

    Returns
    -------
    Drift
        The three divergences, the bins and their shares.

    Raises
    ------
    InvalidInputError
        If an argument has no score histogram, the scales differ, `bins` < 2, or `floor` is not between 0 and 1.

    Notes
    -----
    A score with more than 1 / bins of the weight in the reference is a separate bin, so that any change of its share
    counts as drift. The result is not a statistical test: without drift, PSI is about (bins - 1) * (1/n_s + 1/n_r) for
    n_s and n_r independent rows of the scores and the reference. Weighted rows count by weight. If each row has its own
    distribution, use `KLDivergence` or `JensenShannonDivergence`.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> p = (np.arange(10_000) + 0.5) / 10_000
    >>> before, after = (sm.AUC().update(np.arange(10_000) % 2, scores) for scores in (p, p**1.5))
    >>> result = sm.drift(after, before)
    >>> round(result.psi, 3), round(result.kl, 3), round(result.js, 3), result.word
    (0.138, 0.074, 0.017, 'shifted')
    """
    if bins < 2 or not 0 < floor < 1:
        raise InvalidInputError(
            f"bins must be 2 or more, and floor between 0 and 1; found bins={bins} and floor={floor}"
        )
    a, b = _match_buckets(_find_histogram(scores), _find_histogram(reference))
    rungs, ours = _read_buckets(a)
    steps, theirs = _read_buckets(b)
    if not sum(ours) or not sum(theirs):
        return Drift(math.nan, math.nan, math.nan, "", (), (), ())
    tops = _find_bin_tops(steps, theirs, bins, b.buckets)
    p, q = _compute_shares(rungs, ours, tops), _compute_shares(steps, theirs, tops)
    # Only PSI and KL use the floor. JS divides by the mean of both shares, which is 0 only if both shares are 0.
    high, low = ([max(x, floor) for x in side] for side in (p, q))
    middle = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
    psi = math.fsum((x - y) * float(log(x / y)) for x, y in zip(high, low, strict=True))
    word = "stable" if psi < SHIFTED else "shifted" if psi < MOVED else "moved"
    js = max((_kl_divergence(p, middle) + _kl_divergence(q, middle)) / 2, 0.0)
    return Drift(psi, _kl_divergence(high, low), js, word, _compute_edges(b, tops), p, q)


def population_stability_index(scores: MetricLike | State, reference: MetricLike | State) -> Stability:
    """Return how far a score distribution has moved from a reference, such as last month's scores.

    The index is the sum over bins of (p - q) * ln(p / q), where p and q are the shares of rows in the bin for the
    scores and the reference. Bins are the deciles of the reference, with edges at the edges of histogram buckets. A
    bucket with more than a tenth of the weight, such as the bucket of a default score, becomes a separate bin. A share
    below 1e-4 counts as 1e-4.

    Parameters
    ----------
    scores, reference : metric of scores, or ScoreHistogram
        Metrics that count scores, such as `AUC` or `NormalizedEntropy`, without slices, with or without shards.

    Returns
    -------
    Stability
        The index, and the usual word for its size: "stable" below 0.1, "shifted" below 0.25, otherwise "moved".

    Raises
    ------
    InvalidInputError
        If an argument has no score histogram, or the scales differ.

    Notes
    -----
    The index equals the `psi` of `drift`, which also offers other bins, floors and divergences. It is a symmetric
    divergence (Jeffreys), not a statistical test. Without drift, it is about (bins - 1) * (1/n + 1/m) for n and m
    independent rows, which is 0.02 for 1,000 rows each. Weighted rows count by weight. Sources: Siddiqi (2006), Credit
    Risk Scorecards; Yurdakul and Naranjo (2020) for the distribution of the index.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> p = (np.arange(10_000) + 0.5) / 10_000
    >>> before, after = (sm.AUC().update(np.arange(10_000) % 2, scores) for scores in (p, p**1.5))
    >>> result = sm.population_stability_index(after, before)
    >>> round(result.value, 3), result.word
    (0.138, 'shifted')
    """
    result = drift(scores, reference)
    return Stability(result.psi, result.word, result.edges, result.shares, result.reference)


def _find_histogram(source: Any) -> ScoreHistogram:
    """Return the score histogram of a metric without slices, or `source` itself if it is a histogram without slices."""
    states: Sequence[State] = states_of(source) if isinstance(source, MetricLike) else (source,)
    for state in states:
        if isinstance(state, ScoreHistogram) and not state.axes:
            return state
    raise InvalidInputError(f"expected a metric without slices that counts scores, such as AUC(); found {source!r}")


def _match_buckets(a: ScoreHistogram, b: ScoreHistogram) -> tuple[ScoreHistogram, ScoreHistogram]:
    """Return both histograms with equal buckets, by coarsening the histogram with the finer buckets."""
    if a.scale != b.scale:
        raise InvalidInputError(
            f"the scores are on different scales, {a.scale} and {b.scale}; pass the same scale= to both metrics"
        )
    bits = min(BITS[a.scale] if s.bits is None else s.bits for s in (a, b))
    return a.coarsen(bits, limit=0), b.coarsen(bits, limit=0)


def _read_buckets(state: ScoreHistogram) -> tuple[NDArray[np.int64], list[int]]:
    """Return the indices of the nonempty buckets, in ascending order, and the weight of each of these buckets."""
    if not len(state):
        return np.zeros(0, np.int64), []
    return state.distinct_scores.values, state.masses.cells(np.arange(len(state.distinct_scores.values)))


def _find_bin_tops(rungs: NDArray[np.int64], mass: list[int], bins: int, buckets: int) -> list[int]:
    """Return the index of the last bucket of every bin except the last bin.

    The i-th bin ends at the first bucket where the cumulative weight reaches i / bins. A bucket with more than 1 / bins
    of the weight becomes a separate bin. Otherwise scores could move from it to lower buckets without leaving the bin, and
    the index would not show this drift.

    Parameters
    ----------
    rungs : int64 array
        The indices of the nonempty buckets, in ascending order.
    mass : list of int
        The weight of each of these buckets.
    bins : int
        The number of bins.
    buckets : int
        The total number of buckets.
    """
    upto = list(accumulate(mass))
    total = upto[-1]
    tops = {int(rungs[bisect_left(upto, -(-i * total // bins))]) for i in range(1, bins)}
    # To make a heavy bucket a separate bin, end one bin at the bucket before it, and another at the heavy bucket.
    heavy = [int(rung) for rung, weight in zip(rungs.tolist(), mass, strict=True) if weight * bins > total]
    tops_found = tops.union(heavy, (rung - 1 for rung in heavy if rung))
    # No bucket is above the last one, so no bin is needed after it.
    return sorted(top for top in tops_found if top + 1 < buckets)


def _compute_edges(state: ScoreHistogram, tops: list[int]) -> tuple[float, ...]:
    """Return the edges between bins: for each bucket in `tops`, the smallest score above it (inf if there is none)."""
    assert state.bits is not None
    above = np.minimum(np.array(tops, np.int64) + 1, state.buckets - 1)
    edges: list[float] = smallest_scores(above, state.real, state.bits, exact=False).tolist()
    return tuple(math.inf if top + 1 == state.buckets else edge for top, edge in zip(tops, edges, strict=True))


def _compute_shares(rungs: NDArray[np.int64], mass: list[int], tops: list[int]) -> tuple[float, ...]:
    cuts = [0, *np.searchsorted(rungs, tops, "right").tolist(), len(mass)]
    total = sum(mass)
    return tuple(sum(mass[a:b]) / total for a, b in pairwise(cuts))


def _kl_divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """Return the sum of p * log(p / q), where terms with p = 0 are 0."""
    return math.fsum(a * float(log(a / b)) for a, b in zip(p, q, strict=True) if a)
