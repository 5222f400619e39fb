"""Whether scores are spread as they were: divergences of two histograms of scores, and the population stability index."""

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
from ..numerics.buckets import first_of
from ..numerics.elementary import log
from ..state.state import State
from ..statistics.scores import BITS, ScoreHistogram

__all__ = ["Drift", "Stability", "drift", "population_stability_index"]

BINS = 10
FLOOR = 1e-4
"""What the share of a bin with fewer rows counts as, so that an empty one has a logarithm."""
SHIFTED, MOVED = 0.1, 0.25


class Stability(NamedTuple):
    """What `population_stability_index` found.

    Parameters
    ----------
    value : float
        0 if both are spread alike; NaN if one has no rows.
    word : str
        "stable" below 0.1, "shifted" below 0.25, else "moved"; empty if one has no rows.
    edges : tuple of float
        The smallest score of every bin but the first.
    shares, reference : tuple of float
        The share of rows in every bin, of the scores and of the reference.
    """

    value: float
    word: str
    edges: tuple[float, ...]
    shares: tuple[float, ...]
    reference: tuple[float, ...]


class Drift(NamedTuple):
    """What `drift` found; NaN if one of both has no rows.

    Parameters
    ----------
    psi : float
        Population stability index: sum of (p - q) log(p / q), the divergences of both from one another together.
    kl : float
        Kullback-Leibler divergence of the scores from the reference, sum of p log(p / q), in nats.
    js : float
        Jensen-Shannon divergence, from 0 to log 2.
    word : str
        What the index is called: "stable" below 0.1, "shifted" below 0.25, else "moved"; empty if there is none.
    edges : tuple of float
        The smallest score of every bin but the first.
    shares, reference : tuple of float
        The share of rows in every bin, of the scores and of the reference.
    """

    psi: float
    kl: float
    js: float
    word: str
    edges: tuple[float, ...]
    shares: tuple[float, ...]
    reference: tuple[float, ...]


def drift(scores: MetricLike | State, reference: MetricLike | State, bins: int = BINS, floor: float = FLOOR) -> Drift:
    """Return how far scores have moved from a reference: a treatment from its control, today from last month.

    Formula: with p and q the shares of rows in a bin, of the scores and of the reference, sums over bins of p log(p / q)
    (KL), (p - q) log(p / q) (PSI), and (p log(p / m) + q log(q / m)) / 2 with m = (p + q) / 2 (JS). Bins are those of
    equal weight of the reference, at edges of buckets; a bucket that holds more than its share, such as that of a default
    score, is a bin of its own. Of KL and PSI a share under `floor` counts as that; JS needs none.

    Parameters
    ----------
    scores, reference : metric of scores, or ScoreHistogram
        What was counted, such as `AUC` or `NormalizedEntropy`, of one cell each, with or without shards.
    bins : int
        How many bins: 10 are the deciles of the reference.
    floor : float
        What the share of an emptier bin counts as, so that it has a logarithm.

    Returns
    -------
    Drift
        The three numbers, the bins and their shares.

    Raises
    ------
    InvalidInputError
        One is no histogram of scores, their scales differ, or there are fewer than two bins or no floor.

    Notes
    -----
    A score that holds more than 1 / bins of the reference is a bin of its own, so that it counts as moved by however
    little it moves. No test: chance alone makes the index about (bins - 1) (1/n + 1/m) for n and m independent rows.
    Weighted rows count by weight. Of distributions row by row see `KLDivergence` and `JensenShannonDivergence`.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> p = (np.arange(10_000) + 0.5) / 10_000
    >>> before, after = (sm.AUC().update(np.arange(10_000) % 2, scores) for scores in (p, p**1.5))
    >>> found = sm.drift(after, before)
    >>> round(found.psi, 3), round(found.kl, 3), round(found.js, 3), found.word
    (0.138, 0.074, 0.017, 'shifted')
    """
    if bins < 2 or not 0 < floor < 1:
        raise InvalidInputError(f"two bins or more are needed, and a floor between 0 and 1, not {bins} and {floor}")
    a, b = _alike(_histogram(scores), _histogram(reference))
    rungs, ours = _mass(a)
    steps, theirs = _mass(b)
    if not sum(ours) or not sum(theirs):
        return Drift(math.nan, math.nan, math.nan, "", (), (), ())
    tops = _tops(steps, theirs, bins, b.buckets)
    p, q = _shares(rungs, ours, tops), _shares(steps, theirs, tops)
    high, low = ([max(x, floor) for x in side] for side in (p, q))
    middle = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
    psi = math.fsum((x - y) * float(log(x / y)) for x, y in zip(high, low, strict=True))
    word = "stable" if psi < SHIFTED else "shifted" if psi < MOVED else "moved"
    js = max((_divergence(p, middle) + _divergence(q, middle)) / 2, 0.0)
    return Drift(psi, _divergence(high, low), js, word, _edges(b, tops), p, q)


def population_stability_index(scores: MetricLike | State, reference: MetricLike | State) -> Stability:
    """Return how far scores have moved from a reference: a treatment from its control, today from last month.

    Formula: the sum over bins of (p - q) ln(p / q), with p and q the shares of rows in a bin, of the scores and of the
    reference. Bins are the deciles of the reference, at edges of buckets; a bucket that holds more than a tenth, such as
    that of a default score, is a bin of its own. A share under 1e-4 counts as 1e-4.

    Parameters
    ----------
    scores, reference : metric of scores, or ScoreHistogram
        What was counted, such as `AUC` or `NormalizedEntropy`, of one cell each, with or without shards.

    Returns
    -------
    Stability
        With the habitual words: below 0.1 stable, below 0.25 shifted, else moved.

    Raises
    ------
    InvalidInputError
        One is no histogram of scores, or their scales differ.

    Notes
    -----
    It is the `psi` of `drift`, which has other bins, floors and divergences, too. A symmetric divergence (Jeffreys), no
    test: chance alone makes it about (bins - 1) (1/n + 1/m) for n and m independent rows, 0.02 for 1,000 each. Weighted
    rows count by weight. Source: Siddiqi (2006), Credit Risk Scorecards; Yurdakul and Naranjo (2020) for its
    distribution.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> p = (np.arange(10_000) + 0.5) / 10_000
    >>> before, after = (sm.AUC().update(np.arange(10_000) % 2, scores) for scores in (p, p**1.5))
    >>> found = sm.population_stability_index(after, before)
    >>> round(found.value, 3), found.word
    (0.138, 'shifted')
    """
    found = drift(scores, reference)
    return Stability(found.psi, found.word, found.edges, found.shares, found.reference)


def _histogram(given: Any) -> ScoreHistogram:
    """The scores of one cell that something holds."""
    states: Sequence[State] = states_of(given) if isinstance(given, MetricLike) else (given,)
    for state in states:
        if isinstance(state, ScoreHistogram) and not state.axes:
            return state
    raise InvalidInputError(f"scores of one cell are needed, as AUC() counts them, not {given!r}")


def _alike(a: ScoreHistogram, b: ScoreHistogram) -> tuple[ScoreHistogram, ScoreHistogram]:
    """Both in the same buckets."""
    if a.scale != b.scale:
        raise InvalidInputError(f"scores of scale {a.scale} cannot be compared with scores of scale {b.scale}")
    bits = min(BITS[a.scale] if s.bits is None else s.bits for s in (a, b))
    return a.coarsen(bits, limit=0), b.coarsen(bits, limit=0)


def _mass(state: ScoreHistogram) -> tuple[NDArray[np.int64], list[int]]:
    """Buckets in ascending order, and what each weighs."""
    if not len(state):
        return np.zeros(0, np.int64), []
    return state.ladder.rungs, state.masses.cells(np.arange(len(state.ladder.rungs)))


def _tops(rungs: NDArray[np.int64], mass: list[int], bins: int, buckets: int) -> list[int]:
    """The last bucket of every bin but the last: the first up to which there are one, two ... shares.

    A bucket that holds more than a share is a bin of its own: otherwise scores that leave it for a lower one would stay in
    its bin.
    """
    upto = list(accumulate(mass))
    total = upto[-1]
    tops = {int(rungs[bisect_left(upto, -(-i * total // bins))]) for i in range(1, bins)}
    heavy = [int(rung) for rung, held in zip(rungs.tolist(), mass, strict=True) if held * bins > total]
    found = tops.union(heavy, (rung - 1 for rung in heavy if rung))
    return sorted(top for top in found if top + 1 < buckets)  # above the last bucket there is nothing


def _edges(state: ScoreHistogram, tops: list[int]) -> tuple[float, ...]:
    """The smallest score above each; of the last bucket there is none."""
    assert state.bits is not None
    above = np.minimum(np.array(tops, np.int64) + 1, state.buckets - 1)
    edges: list[float] = first_of(above, state.real, state.bits, exact=False).tolist()
    return tuple(math.inf if top + 1 == state.buckets else edge for top, edge in zip(tops, edges, strict=True))


def _shares(rungs: NDArray[np.int64], mass: list[int], tops: list[int]) -> tuple[float, ...]:
    cuts = [0, *np.searchsorted(rungs, tops, "right").tolist(), len(mass)]
    total = sum(mass)
    return tuple(sum(mass[a:b]) / total for a, b in pairwise(cuts))


def _divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """The sum of p log(p / q), 0 where p is."""
    return math.fsum(a * float(log(a / b)) for a, b in zip(p, q, strict=True) if a)
