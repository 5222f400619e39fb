"""Metrics of the rows with the highest scores: lift, gain, precision at k rows, enrichment, early recognition.

If the last of the top rows lies among rows of equal score, or inside a bucket, these rows count in proportion. The bounds
are the values if the positives of that bucket had its lowest, or its highest, scores.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import no_weight_reason
from ...numerics.elementary import exp
from ...numerics.exact import UNIT, Limits, Mass
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...statistics.scores import ScoresByLabel
from .scored_metric import ScoredValue, no_positives
from .thresholds import find_occupied_cells

__all__ = ["BEDROC", "EnrichmentFactor", "Lift", "PrecisionAtKRows"]

Floats = NDArray[np.float64]
# An upper limit of the rounding error of a mean of exponentials in float64.
ROUNDING = Fraction(1, 1 << 47)


class TopRows(ScoredValue):
    """A metric of the number of positives among the rows with the highest scores, up to a number (or weight) of rows."""

    about = About(cost="that of AUC", bound="negatives first, positives first, in the bucket of the cut")

    def _sizes(self, P: int, N: int, one: int) -> tuple[Fraction, Fraction]:
        """Return the number of top rows, and the divisor of their positives; `one` is the unit of counts for a row."""
        raise NotImplementedError

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        P, N, one = _totals(state)
        return 8 * rounding * (P + N) / self._sizes(P, N, one)[1]

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        a, c = _falling(state)
        cut, unit = self._sizes(*_totals(state))
        above_a, above_c = a.sums_before(), c.sums_before()
        k = int(np.searchsorted(above_a.to_floats() + above_c.to_floats(), float(cut), side="right")) - 1
        while k > 0 and above_a.cell(k) + above_c.cell(k) > cut:
            k -= 1
        while k + 1 < a.digits.shape[1] and above_a.cell(k + 1) + above_c.cell(k + 1) <= cut:
            k += 1
        found, positives, others = above_a.cell(k), a.cell(k), c.cell(k)
        inside = min(cut - found - above_c.cell(k), Fraction(positives + others))
        middle = found + inside * Fraction(positives, positives + others)
        if state.is_exact:
            return Limits.exactly(middle, unit)
        least, most = max(inside - others, Fraction(0)), min(inside, Fraction(positives))
        return Limits((found + least) / unit, middle / unit, (found + most) / unit)


def _falling(state: ScoresByLabel) -> tuple[Mass, Mass]:
    """Return positives and negatives of each score that has rows, in descending order of scores."""
    cells = find_occupied_cells(state)
    return Mass(state.positives.digits[:, cells]), Mass(state.negatives.digits[:, cells])


def _totals(state: ScoresByLabel) -> tuple[int, int, int]:
    """Return the positives, the negatives, and the integer that represents a row of weight 1 in these counts."""
    return state.positives.total(), state.negatives.total(), UNIT if state.has_weights else 1


class Lift(TopRows, tag="lift"):
    """Lift or cumulative gain: how many more positives the highest scores contain than as many random rows.

    Formula: gain = TP / P of the `fraction` of rows (or weight) with the highest scores; lift = gain / fraction.

    Parameters
    ----------
    fraction : float
        The share of rows with the highest scores, such as 0.1 for the top decile.
    kind : {"lift", "gain"}
        Whether to return the lift, or the share of all positives among these rows.

    Notes
    -----
    If the last of these rows lies among rows of equal score (or inside a bucket), those rows count in proportion. The
    bounds are the values if the negatives, or the positives, came first in that bucket. The cost is that of AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> lift = sm.Lift(fraction=0.25).update([0, 0, 0, 1], [0.125, 0.5, 0.25, 0.75])
    >>> lift.compute()
    4.0
    """

    about = About(
        formula="TP / P of the highest-scored fraction of rows, over the fraction",
        value_range=About.per_instance(lambda metric: (0, None if metric.kind == "lift" else 1)),
    )

    fraction: float = setting(default=0.1, above=0.0, high=1.0)
    kind: str = setting(default="lift", choices=("lift", "gain"))

    @property
    def name(self) -> str:
        return self._with_average(f"{self.kind}@{self.fraction:g}")

    def _sizes(self, P: int, N: int, one: int) -> tuple[Fraction, Fraction]:
        share = Fraction(self.fraction)
        return share * (P + N), P * (share if self.kind == "lift" else Fraction(1))


class PrecisionAtKRows(TopRows, tag="precision_at_k_rows"):
    """Precision among the k rows with the highest scores of the whole log, as for a team that works through a list.

    Formula: TP / k of the k rows (or weight k) with the highest scores; of all rows, if there are fewer.

    Parameters
    ----------
    k : int
        The number of rows with the highest scores.

    Notes
    -----
    PrecisionAtK is the metric of the first k documents of each query. If the k-th row lies among rows of equal score,
    those rows count in proportion. The bounds are the values if the negatives, or the positives, came first in the bucket
    of the k-th row. The cost is that of AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PrecisionAtKRows(k=2).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    0.5
    """

    about = About(extensive=True, formula="TP / k of the k rows with the highest scores", value_range=(0, 1))

    k: int = setting(default=100, low=1, high=1 << 60, kw_only=False)

    @property
    def name(self) -> str:
        return self._with_average(f"precision_at_{self.k}_rows")

    def _sizes(self, P: int, N: int, one: int) -> tuple[Fraction, Fraction]:
        cut = Fraction(min(self.k * one, P + N))
        return cut, cut

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_weight_reason(state)


class EnrichmentFactor(TopRows, tag="enrichment_factor"):
    """Enrichment factor: the share of positives among the highest scores, over the share among all rows.

    Formula: (TP / n) / (P / (P + N)) of the n = ceil(fraction (P + N)) rows with the highest scores.

    Parameters
    ----------
    fraction : float
        The share of rows with the highest scores, rounded up to whole rows (or weight). 0.1 means exactly one tenth.

    Notes
    -----
    The definition is that of RDKit's `CalcEnrichment`, which takes equal scores in the order of rows; here they count in
    proportion. Lift does not round the number of rows up. The bounds are the values if the negatives, or the positives,
    came first in the last bucket. The cost is that of AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.EnrichmentFactor(fraction=0.5).update([0, 0, 1], [0.125, 0.5, 0.75]).compute()
    1.5
    """

    about = About(
        formula="(TP / n) / (P / (P + N)) of the ceil(fraction (P + N)) highest-scored rows", value_range=(0, None)
    )

    fraction: float = setting(default=0.01, above=0.0, high=1.0)

    @property
    def name(self) -> str:
        return self._with_average(f"enrichment@{self.fraction:g}")

    def _sizes(self, P: int, N: int, one: int) -> tuple[Fraction, Fraction]:
        share = Fraction(repr(self.fraction))
        cut = Fraction(min(math.ceil(share * (P + N) / one) * one, P + N))
        return cut, cut * P / (P + N)

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        P, N, one = _totals(state)
        # Rounded weights can also change the number of top rows, which is rounded up, by one row.
        return super().slack(state, limits, rounding) + 4 * one / self._sizes(P, N, one)[1]


class BEDROC(ScoredValue, tag="bedroc"):
    """Boltzmann-enhanced discrimination of ROC: how early positives come, where the first rows count most; from 0 to 1.

    Formula: (S - g e^(-alpha (1 - R))) / (g - g e^(-alpha (1 - R))). S is the mean over positives of e^(-alpha x), with
    x the share of rows above, averaged over the rank of the row; R = P / (P + N); g = (1 - e^(-alpha R)) / (alpha R).

    Parameters
    ----------
    alpha : float
        How strongly early rows count: with 20 the first 8 % of the rows make up 80 % of the value.

    Notes
    -----
    Source: Truchon and Bayly (2007). It equals RDKit's `CalcBEDROC`, which takes equal scores in the order of rows; here
    equal scores share their ranks. The value is undefined for one class, where RDKit returns 0 or 1. The bounds are the
    values if the positives came last, or first, inside each bucket; they allow for float64 rounding. The cost is that of
    AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.BEDROC().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.993352
    """

    about = About(
        formula="mean of e^(-alpha x) over positives, between its least and its most",
        bound="positives last, positives first, inside each bucket",
        cost="that of AUC",
        value_range=(0, 1),
    )

    alpha: float = setting(default=20.0, low=1e-3, high=600.0)

    @property
    def name(self) -> str:
        return self._with_average(f"bedroc@{self.alpha:g}")

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        a, c = _falling(state)
        P, N = a.total(), c.total()
        rows, whole = a.plus(c), float(P + N)
        first, here, own, other = (m.to_floats() / whole for m in (rows.sums_before(), rows, a, c))
        ends = [(first, here)] * 3 if state.is_exact else [(first + other, own), (first, here), (first, own)]
        weights = a.to_floats() / float(P)
        most = float(_mean_exp(np.array([self.alpha * P / (P + N)]))[0])
        last = float(exp(-self.alpha * N / (P + N)))
        # With so few negatives, float64 does not distinguish the best order from the worst.
        if last == 1.0:
            return Limits(Fraction(0), Fraction(1, 2), Fraction(1))
        means = [self._mean(weights, *e) / most for e in ends]
        found = Limits(*(Fraction(min(max((mean - last) / (1 - last), 0.0), 1.0)) for mean in means))
        return found.widen(ROUNDING / Fraction(1 - last), *about_of(self).value_range)

    def _mean(self, weights: Floats, start: Floats, size: Floats) -> float:
        """Return the mean of e^(-alpha x) over positives, where x is the rank as a share of the rows."""
        return math.fsum((weights * exp(-self.alpha * start) * _mean_exp(self.alpha * size)).tolist())


def _mean_exp(z: Floats) -> Floats:
    """Return the mean of e^-x over [0, z], which is (1 - e^-z) / z; a series is used below 1."""
    near = np.ones_like(z)
    for k in range(18, 1, -1):
        near = 1 - z / k * near
    # For small z the difference 1 - e^-z would lose digits by cancellation.
    small = z < 1.0
    safe = np.where(small, 1.0, z)
    out: Floats = np.where(small, near, (1 - exp(-safe)) / safe)
    return out
