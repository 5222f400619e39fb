"""The H-measure: the loss of the best thresholds over a distribution of costs that is the same for all models."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.elementary import power
from ...numerics.exact import Limits, Mass
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...statistics.scores import ScoresByLabel
from .scored import ScoredValue
from .thresholds import occupied

__all__ = ["HMeasure"]

Floats = NDArray[np.float64]
ROUNDING = Fraction(1, 1 << 45)  # more than float64 steps can lose
TERMS = 80  # of a series whose terms halve, at least nearly


class HMeasure(ScoredValue, tag="h_measure"):
    """H-measure: by how much the best thresholds cut the loss, averaged over what errors may cost; 0 as chance, at most 1.

    Formula: 1 - sum over segments of the convex hull of the ROC curve, of a positives and c negatives, of G(a, c), over
    G(P, N); G(a, c) = c ∫_0^q t u(t) dt + a ∫_q^1 (1 - t) u(t) dt, q = a / (a + c), u the density of costs.

    Parameters
    ----------
    prior : {"beta22", "hand2014"}
        u: Beta(2, 2), as in Hand (2009); or Beta(1 + P / (P + N), 1 + N / (P + N)), as in Hand and Anagnostopoulos (2014).
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    t is the cost of a false positive, 1 - t that of a false negative. AUC is a mean over costs, too, but of a distribution
    that depends on the model (Hand 2009). Value: thresholds at the edges of buckets, which is reached. Bound: positives
    first inside each bucket, and room for the rounding of floats. About 1 us a bucket that holds rows to compute.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.HMeasure().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.5
    """

    about = About(
        formula="1 - loss of the best thresholds / loss without scores, over costs that have a distribution",
        bound="from the edges of buckets to positives first inside each",
        cost="that of AUC; about 1 us a bucket to compute",
        value_range=(0, 1),
    )

    prior: str = setting(default="beta22", choices=("beta22", "hand2014"))

    @property
    def name(self) -> str:
        return self._with_average(self.about.tag if self.prior == "beta22" else f"{self.about.tag}_{self.prior}")

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        return 16 * rounding

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        cells = occupied(state)
        a, c = (Mass(m.digits[:, cells]).floats() for m in (state.positives, state.negatives))
        P, N = math.fsum(a.tolist()), math.fsum(c.tolist())
        a, c = a / (P + N), c / (P + N)
        shares = P / (P + N), N / (P + N)
        low = high = self._gain(a, c, *shares)
        if not state.is_exact:
            none = np.zeros(len(a))
            high = self._gain(np.column_stack([a, none]).ravel(), np.column_stack([none, c]).ravel(), *shares)
        found = Limits(Fraction(low), Fraction(low), Fraction(max(low, high)))
        return found.widened(ROUNDING, *about_of(self).value_range)

    def _gain(self, a: Floats, c: Floats, share: float, rest: float) -> float:
        """The value of segments in the order of scores, from the highest down; `rest` is 1 - share, not rounded to 0."""
        a, c = hull(a, c)
        loss = math.fsum(self._losses(a, c, share).tolist())
        whole = float(self._losses(np.array([share]), np.array([rest]), share)[0])
        return min(max(1 - loss / whole, 0.0), 1.0)

    def _losses(self, a: Floats, c: Floats, share: float) -> Floats:
        """G(a, c), but for a factor."""
        q, r = a / (a + c), c / (a + c)
        if self.prior == "beta22":
            q3, r3 = q * q * q, r * r * r  # the bits of numpy's power differ between processors
            return c * q3 * (2 - 1.5 * q) + a * r3 * (2 - 1.5 * r)
        return c * beta_below(q, r, 2 + share, 2 - share) + a * beta_below(r, q, 3 - share, 1 + share)


def hull(a: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Unite neighbours, as long as a later segment has the larger share of positives: the upper convex hull."""
    tops: list[tuple[float, float]] = []
    for x, y in zip(a.tolist(), c.tolist(), strict=True):
        while tops and x * tops[-1][1] >= tops[-1][0] * y:
            last = tops.pop()
            x, y = x + last[0], y + last[1]
        if x or y:
            tops.append((x, y))
    united = np.array(tops)
    return united[:, 0], united[:, 1]


def beta_below(x: Floats, rest: Floats, a: float, b: float) -> Floats:
    """The integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x = 1 - rest."""
    half = np.array([0.5])
    whole = float((_series(half, half, a, b) + _series(half, half, b, a))[0])
    near = x <= 0.5
    part = _series(np.where(near, x, rest), np.where(near, rest, x), np.where(near, a, b), np.where(near, b, a))
    return np.where(near, part, whole - part)


def _series(x: Floats, rest: Floats, a: Any, b: Any) -> Floats:
    """The same for x up to 1/2: x^a (1 - x)^b / a (1 + sum of products of (a + b + k) x / (a + 1 + k))."""
    term, total = np.ones_like(x), np.ones_like(x)
    for k in range(TERMS):
        term = term * ((a + b + k) / (a + 1 + k) * x)
        total = total + term
    safe = np.maximum(x, 1e-300)
    out: Floats = np.where(x > 0, power(safe, a) * power(rest, b) / a * total, 0.0)
    return out
