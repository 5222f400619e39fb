"""The H-measure, which compares the expected loss of a model at the best thresholds with the loss without scores.

Losses are averaged over a distribution of costs that is the same for all models.
"""

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
from .scored_metric import ScoredValue
from .thresholds import find_occupied_cells

__all__ = ["HMeasure"]

Floats = NDArray[np.float64]
# An upper bound on the rounding error of the value, which is computed in float64.
ROUNDING = Fraction(1, 1 << 45)
# The number of terms that `_series` adds. Each term is at most about half the previous one, so the remainder after 80
# terms is far smaller than a rounding error.
TERMS = 80


class HMeasure(ScoredValue, tag="h_measure"):
    """H-measure: the share of the expected loss, averaged over costs, that the scores avoid; 0 is chance, 1 is best.

    Formula: 1 - (sum of G(a, c) over the segments of the convex hull of the ROC curve) / G(P, N), where a segment has
    `a` positives and `c` negatives. Here G(a, c) = c ∫_0^q t u(t) dt + a ∫_q^1 (1 - t) u(t) dt, q = a / (a + c), and u
    is the density of costs.

    Parameters
    ----------
    prior : {"beta22", "hand2014"}
        The density u. "beta22": Beta(2, 2), as in Hand (2009). "hand2014": Beta(1 + P / (P + N), 1 + N / (P + N)), as
        in Hand and Anagnostopoulos (2014).

    Notes
    -----
    A false positive costs t and a false negative 1 - t. AUC is also a mean over costs, but its cost distribution
    depends on the model (Hand 2009). The value uses only thresholds at bucket edges, where the counts are known exactly.
    The upper bound assumes that the positives have the highest scores in each bucket. It also allows for float64 rounding.
    `compute()` takes about 1 us for each bucket that contains rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.HMeasure().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.5
    """

    about = About(
        formula="1 - (loss at the best thresholds) / (loss without scores), both averaged over a distribution of costs",
        bound=(
            "lower bound: the value if only edges of buckets are thresholds; upper bound: the value if positives come "
            "first in each bucket"
        ),
        cost="as for AUC; about 1 us per bucket to compute",
        value_range=(0, 1),
    )

    prior: str = setting(default="beta22", choices=("beta22", "hand2014"))

    @property
    def name(self) -> str:
        return self._with_average(self.about.tag if self.prior == "beta22" else f"{self.about.tag}_{self.prior}")

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        return 16 * rounding

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        cells = find_occupied_cells(state)
        a, c = (Mass(m.digits[:, cells]).to_floats() for m in (state.positives, state.negatives))
        P, N = math.fsum(a.tolist()), math.fsum(c.tolist())
        a, c = a / (P + N), c / (P + N)
        shares = P / (P + N), N / (P + N)
        low = high = self._gain(a, c, *shares)
        if not state.is_exact:
            none = np.zeros(len(a))
            high = self._gain(np.column_stack([a, none]).ravel(), np.column_stack([none, c]).ravel(), *shares)
        found = Limits(Fraction(low), Fraction(low), Fraction(max(low, high)))
        return found.widen(ROUNDING, *about_of(self).value_range)

    def _gain(self, a: Floats, c: Floats, share: float, rest: float) -> float:
        """Return the H-measure of a ROC curve whose segments are ordered from the highest scores down.

        `a` and `c` are the positives and negatives in each segment, as shares of all rows. `share` is the overall
        share of positives. `rest` is 1 - `share`, computed so that it does not round to 0.
        """
        a, c = hull(a, c)
        loss = math.fsum(self._losses(a, c, share).tolist())
        whole = float(self._losses(np.array([share]), np.array([rest]), share)[0])
        return min(max(1 - loss / whole, 0.0), 1.0)

    def _losses(self, a: Floats, c: Floats, share: float) -> Floats:
        """Return the expected loss of each segment of the curve, up to a constant factor.

        `a` and `c` are the positives and negatives in each segment, as shares of all rows. `share` is the overall
        share of positives.
        """
        q, r = a / (a + c), c / (a + c)
        if self.prior == "beta22":
            # Powers are computed as products, because the last bits of numpy's power function differ between processors.
            q3, r3 = q * q * q, r * r * r
            return c * q3 * (2 - 1.5 * q) + a * r3 * (2 - 1.5 * r)
        return c * beta_below(q, r, 2 + share, 2 - share) + a * beta_below(r, q, 3 - share, 1 + share)


def hull(a: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Return the positives and negatives in each segment of the upper convex hull of a ROC curve.

    `a` and `c` are the positives and negatives in each segment of the curve, from the highest scores down. Two
    neighboring segments are merged if the share of positives is at least as high in the segment with lower scores as
    in the segment with higher scores.
    """
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
    """Return the incomplete beta function: the integral of t^(a - 1) * (1 - t)^(b - 1) from 0 to x.

    `rest` is 1 - x. It is a separate parameter so that no digits are lost when x is close to 1.
    """
    half = np.array([0.5])
    whole = float((_series(half, half, a, b) + _series(half, half, b, a))[0])
    near = x <= 0.5
    part = _series(np.where(near, x, rest), np.where(near, rest, x), np.where(near, a, b), np.where(near, b, a))
    return np.where(near, part, whole - part)


def _series(x: Floats, rest: Floats, a: Any, b: Any) -> Floats:
    """Compute the incomplete beta function for x up to 1/2 by a power series.

    The result is x^a * (1 - x)^b / a * (1 + f_0 + f_0 * f_1 + ...), with the factors f_k = (a + b + k) * x / (a + 1 +
    k). `rest` is 1 - x.
    """
    term, total = np.ones_like(x), np.ones_like(x)
    for k in range(TERMS):
        term = term * ((a + b + k) / (a + 1 + k) * x)
        total = total + term
    safe = np.maximum(x, 1e-300)
    out: Floats = np.where(x > 0, power(safe, a) * power(rest, b) / a * total, 0.0)
    return out
