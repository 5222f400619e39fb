"""Metrics of the rows with the highest scores: lift, gain, precision at k rows, enrichment, early recognition.

If only some rows of a bucket (or only some of several rows with equal scores) are among the top rows, the positives of
that bucket count in proportion. The lower bound assumes that these positives have the lowest scores in the bucket, and the
upper bound that they have the highest.
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
# An upper bound on the rounding error of BEDROC, a mean of exponentials computed in float64.
ROUNDING = Fraction(1, 1 << 47)


class TopRows(ScoredValue):
    """Base class for metrics that divide the number of positives among the top rows by a constant.

    A subclass defines `_sizes`, which returns the number of top rows and this constant.
    """

    about = About(
        cost="as for AUC", bound="the values if negatives or positives come first in the bucket at the cut-off"
    )

    def _sizes(self, P: int, N: int, one: int) -> tuple[Fraction, Fraction]:
        """Return the number of top rows and the number by which the positives among them are divided.

        `P` and `N` are the numbers of positives and negatives. Counts can be in units smaller than a row; `one` is the
        number of units in a row of weight 1.
        """
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
    """Return the weights of positives and negatives in each non-empty bucket, in descending order of score."""
    cells = find_occupied_cells(state)
    return Mass(state.positives.digits[:, cells]), Mass(state.negatives.digits[:, cells])


def _totals(state: ScoresByLabel) -> tuple[int, int, int]:
    """Return the number of positives, the number of negatives, and the number of units in a row of weight 1.

    Positives and negatives are counted in units. Without weights, the unit is a row. With weights, it is a small
    fraction of a row, so that all counts are integers.
    """
    return state.positives.total(), state.negatives.total(), UNIT if state.has_weights else 1


class Lift(TopRows, tag="lift"):
    """Lift (positive rate of the top rows / of all rows) or cumulative gain (share of all positives in the top rows).

    Formula: gain = TP / P for the `fraction` of rows (or weight) with the highest scores; lift = gain / fraction.

    Parameters
    ----------
    fraction : float
        The share of rows with the highest scores, such as 0.1 for the top decile.
    kind : {"lift", "gain"}
        Which value to compute. "lift": the lift. "gain": the share of all positives that are among the top rows.

    Notes
    -----
    If only some rows of a bucket (or only some of several rows with equal scores) are among the top rows, the positives
    of that bucket count in proportion. The lower bound assumes that they have the lowest scores in the bucket, and the
    upper bound that they have the highest. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> lift = sm.Lift(fraction=0.25).update([0, 0, 0, 1], [0.125, 0.5, 0.25, 0.75])
    >>> lift.compute()
    4.0
    """

    about = About(
        formula="lift (TP / P) / fraction, or gain TP / P, for the given fraction of rows with the highest scores",
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
    """Precision among the k highest-scoring rows of all the data, for example the k cases that a team can review.

    Formula: TP / k for the k rows (or weight k) with the highest scores; if there are fewer than k rows, the share of
    positives among all rows.

    Parameters
    ----------
    k : int
        The number of rows with the highest scores.

    Notes
    -----
    For the first k documents of each query, use PrecisionAtK instead. If the k-th row shares its score (or bucket) with
    other rows, the positives among all of these rows count in proportion. The lower bound assumes that the positives have
    the lowest scores in that bucket, and the upper bound that they have the highest. Memory and time are the same as for
    AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PrecisionAtKRows(k=2).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75]).compute()
    0.5
    """

    about = About(extensive=True, formula="TP / k for the k rows with the highest scores", value_range=(0, 1))

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
    """Enrichment factor: the share of positives among the highest-scoring rows, divided by the share among all rows.

    Formula: (TP / n) / (P / (P + N)) for the n = ceil(fraction * (P + N)) rows with the highest scores.

    Parameters
    ----------
    fraction : float
        The share of rows with the highest scores. It is treated as a decimal number: 0.1 is exactly 1/10. The number of
        these rows (or their total weight) is rounded up to a whole number.

    Notes
    -----
    The definition matches RDKit's `CalcEnrichment`, except for equal scores: RDKit ranks these by their order in the
    data, whereas this metric counts their positives in proportion. Lift, unlike this metric, does not round the number
    of rows up. The lower bound assumes that the positives have the lowest scores in the last bucket, and the upper
    bound that they have the highest. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.EnrichmentFactor(fraction=0.5).update([0, 0, 1], [0.125, 0.5, 0.75]).compute()
    1.5
    """

    about = About(
        formula="(TP / n) / (P / (P + N)) for the n = ceil(fraction (P + N)) rows with the highest scores",
        value_range=(0, None),
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
        # The number of top rows is rounded up to a whole number, so the rounding of weights can also change it by one.
        return super().slack(state, limits, rounding) + 4 * one / self._sizes(P, N, one)[1]


class BEDROC(ScoredValue, tag="bedroc"):
    """Boltzmann-enhanced discrimination of ROC: how early positives rank, with the first rows counting most; from 0 to 1.

    Formula: (S - g * e^(-alpha * (1 - R))) / (g - g * e^(-alpha * (1 - R))), where R = P / (P + N) and g = (1 -
    e^(-alpha * R)) / (alpha * R). S is the mean over positives of e^(-alpha * x), where x is the rank as a share of all
    rows. Each row covers an interval of x of length 1 / (P + N), over which e^(-alpha * x) is averaged.

    Parameters
    ----------
    alpha : float
        How strongly early rows count: with 20, the first 8 % of the rows make up 80 % of the value.

    Notes
    -----
    Source: Truchon and Bayly (2007). The value equals RDKit's `CalcBEDROC`, except for equal scores: RDKit ranks these
    by their order in the data, whereas here the rows with equal scores share their ranks. The value is undefined if all
    rows are of one class, whereas RDKit returns 0 or 1. The lower bound assumes that the positives have the lowest
    scores in each bucket, and the upper bound that they have the highest. Both allow for float64 rounding. Memory and
    time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.BEDROC().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.993352
    """

    about = About(
        formula="mean over positives of e^(-alpha x), x the rank as a share of all rows, scaled to the range from 0 to 1",
        bound="the values if positives come last or first inside each bucket",
        cost="as for AUC",
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
        # `last` is e^(-alpha * N / (P + N)). In float64, it is 1 only if negatives are extremely rare. The denominator
        # 1 - `last` would then be 0, so the value is unknown and the bounds are 0 and 1.
        if last == 1.0:
            return Limits(Fraction(0), Fraction(1, 2), Fraction(1))
        means = [self._mean(weights, *e) / most for e in ends]
        found = Limits(*(Fraction(min(max((mean - last) / (1 - last), 0.0), 1.0)) for mean in means))
        return found.widen(ROUNDING / Fraction(1 - last), *about_of(self).value_range)

    def _mean(self, weights: Floats, start: Floats, size: Floats) -> float:
        """Return the mean of e^(-alpha * x) over positives, where x is the rank as a share of all rows.

        The positives of bucket i have the total weight `weights[i]` and are spread evenly over the ranks from `start[i]`
        to `start[i] + size[i]`.
        """
        return math.fsum((weights * exp(-self.alpha * start) * _mean_exp(self.alpha * size)).tolist())


def _mean_exp(z: Floats) -> Floats:
    """Return the mean of e^-x for x from 0 to z, which is (1 - e^-z) / z."""
    near = np.ones_like(z)
    for k in range(18, 1, -1):
        near = 1 - z / k * near
    # For z below 1, cancellation in 1 - e^-z would lose digits, so the power series `near` is used instead.
    small = z < 1.0
    safe = np.where(small, 1.0, z)
    out: Floats = np.where(small, near, (1 - exp(-safe)) / safe)
    return out
