"""Whether scores are spread as they were: the population stability index of two histograms of scores."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..collect.holder import Holder
from ..errors import InvalidInputError
from ..numerics.buckets import first_of
from ..numerics.elementary import log
from ..state.state import State
from ..statistics.scores import BITS, ScoreHistogram

__all__ = ["Stability", "population_stability_index"]

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


def population_stability_index(scores: Holder | State, reference: Holder | State) -> Stability:
    """Return how far scores have moved from a reference: a treatment from its control, today from last month.

    Formula: the sum over bins of (p - q) ln(p / q), with p and q the shares of rows in a bin, of the scores and of the
    reference. Bins are the deciles of the reference, at edges of buckets; where one bucket holds more than a tenth there
    are fewer. A share under 1e-4 counts as 1e-4.

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
    A symmetric divergence (Jeffreys), no test: chance alone makes it about (bins - 1) (1/n + 1/m) for n and m independent
    rows, 0.02 for 1,000 each. Weighted rows count by weight. Source: Siddiqi (2006), Credit Risk Scorecards; Yurdakul
    and Naranjo (2020) for its distribution.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> p = (np.arange(10_000) + 0.5) / 10_000
    >>> before, after = (sm.AUC().update(np.arange(10_000) % 2, scores) for scores in (p, p**1.5))
    >>> found = sm.population_stability_index(after, before)
    >>> round(found.value, 3), found.word
    (0.138, 'shifted')
    """
    a, b = _alike(_histogram(scores), _histogram(reference))
    rungs, ours = _mass(a)
    steps, theirs = _mass(b)
    if not sum(ours) or not sum(theirs):
        return Stability(math.nan, "", (), (), ())
    tops = _tops(steps, theirs)
    p, q = _shares(rungs, ours, tops), _shares(steps, theirs, tops)
    value = _divergence(p, q)
    word = "stable" if value < SHIFTED else "shifted" if value < MOVED else "moved"
    return Stability(value, word, _edges(b, tops), p, q)


def _histogram(given: Any) -> ScoreHistogram:
    """The scores of one cell that something holds."""
    states: Sequence[State] = given.states if isinstance(given, Holder) else (given,)
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


def _tops(rungs: NDArray[np.int64], mass: list[int]) -> list[int]:
    """The last bucket of every bin but the last: the first up to which there are one, two ... tenths."""
    upto = list(accumulate(mass))
    found = (bisect_left(upto, -(-i * upto[-1] // BINS)) for i in range(1, BINS))
    return [int(rungs[i]) for i in dict.fromkeys(found)]


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
    pairs = [(max(a, FLOOR), max(b, FLOOR)) for a, b in zip(p, q, strict=True)]
    return math.fsum((a - b) * float(log(a / b)) for a, b in pairs)
