"""What the highest-scored rows hold: lift, gain, precision at k rows, enrichment; and how early positives come.

Equal scores, and those of one bucket, at a cut count with the share of them that is within. A bound is what either order
inside buckets would make of it: positives last, or first.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import nothing_counted
from ...numerics.elementary import exp
from ...numerics.exact import UNIT, Limits, Mass
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...statistics.scores import ScoresByLabel
from .scored import ScoredValue, no_positives
from .thresholds import occupied

__all__ = ["BEDROC", "EnrichmentFactor", "Lift", "PrecisionAtKRows"]

Floats = NDArray[np.float64]
ROUNDING = Fraction(1, 1 << 47)  # more than the float64 steps of a mean of exponentials can lose


class TopRows(ScoredValue):
    """Positives among the rows (or weight) with the highest scores, by a number of them."""

    about = About(cost="that of AUC", bound="negatives first, positives first, in the bucket of the cut")

    def _sizes(self, P: int, N: int, one: int) -> tuple[Fraction, Fraction]:
        """Return how much is looked at, and what the positives in it are divided by; a row weighs `one`."""
        raise NotImplementedError

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        P, N, one = _totals(state)
        return 8 * rounding * (P + N) / self._sizes(P, N, one)[1]

    def reason(self, state: ScoresByLabel) -> str | None:
        return no_positives(state)

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        a, c = _falling(state)
        cut, unit = self._sizes(*_totals(state))
        above_a, above_c = a.before(), c.before()
        k = int(np.searchsorted(above_a.floats() + above_c.floats(), float(cut), side="right")) - 1
        while k > 0 and above_a.cell(k) + above_c.cell(k) > cut:
            k -= 1
        while k + 1 < a.digits.shape[1] and above_a.cell(k + 1) + above_c.cell(k + 1) <= cut:
            k += 1
        found, held, others = above_a.cell(k), a.cell(k), c.cell(k)
        inside = min(cut - found - above_c.cell(k), Fraction(held + others))
        middle = found + inside * Fraction(held, held + others)
        if state.is_exact:
            return Limits.exactly(middle, unit)
        least, most = max(inside - others, Fraction(0)), min(inside, Fraction(held))
        return Limits((found + least) / unit, middle / unit, (found + most) / unit)


def _falling(state: ScoresByLabel) -> tuple[Mass, Mass]:
    """Positives and negatives of each score that has any, from the highest down."""
    cells = occupied(state)
    return Mass(state.positives.digits[:, cells]), Mass(state.negatives.digits[:, cells])


def _totals(state: ScoresByLabel) -> tuple[int, int, int]:
    """Positives, negatives, and what one row of weight 1 is."""
    return state.positives.total(), state.negatives.total(), UNIT if state.weighted else 1


class Lift(TopRows, tag="lift"):
    """Lift or cumulative gain among the highest scores: how many more positives than in as many rows at random.

    Formula: gain = TP / P of the `fraction` of rows (or weight) with the highest scores; lift = gain / fraction.

    Parameters
    ----------
    fraction : float
        Share of rows looked at, such as 0.1 for the top decile.
    kind : {"lift", "gain"}
        Lift, or the share of positives found.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    Equal scores (and those of one bucket) at the cut count with the share of them that is within. Bound: negatives first,
    and positives first, in the bucket that the cut goes through. Cost as AUC.

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
    """Precision among the k rows with the highest scores, of all rows: what a team that works through a list sees.

    Formula: TP / k of the k rows (or weight k) with the highest scores; of all of them, if there are fewer.

    Parameters
    ----------
    k : int
        How many rows are looked at.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    Not by query: that is PrecisionAtK. Equal scores at the cut count with the share of them that is within. Bound:
    negatives first, and positives first, in the bucket of the cut. Cost as AUC.

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
        return nothing_counted(state)


class EnrichmentFactor(TopRows, tag="enrichment_factor"):
    """Enrichment factor: the share of positives among the highest scores, over that among all rows.

    Formula: (TP / n) / (P / (P + N)) of the n = ceil(fraction (P + N)) rows with the highest scores.

    Parameters
    ----------
    fraction : float
        Share of rows looked at, rounded up to whole rows (or weight).
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    As RDKit's `CalcEnrichment`, where equal scores are in the order of the rows; here they count with the share of them
    that is within. 0.1 is one tenth, not the float a little above it. Lift does not round the cut up. Bound: negatives
    first, and positives first, in the bucket of the cut. Cost as AUC.

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

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        P, N, one = _totals(state)
        return super().slack(state, found, rounding) + 4 * one / self._sizes(P, N, one)[1]  # or the cut is one row off


class BEDROC(ScoredValue, tag="bedroc"):
    """Boltzmann-enhanced discrimination of ROC: how early positives come, the first rows counting most; from 0 to 1.

    Formula: (S - g e^(-alpha (1 - R))) / (g - g e^(-alpha (1 - R))), S the mean over positives of e^(-alpha x), x the
    share of rows above, averaged over the place that a row takes; R = P / (P + N), g = (1 - e^(-alpha R)) / (alpha R).

    Parameters
    ----------
    alpha : float
        How early: with 20 the first 8 % of the rows make 80 % of the value.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    Truchon and Bayly (2007); equal to RDKit's `CalcBEDROC`, where equal scores are in the order of the rows; here these
    share their places. Undefined for one class, where RDKit has 0 or 1. Bound: positives last, positives first, inside
    each bucket, and room for the rounding of floats. Cost as AUC.

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
        first, here, own, other = (m.floats() / whole for m in (rows.before(), rows, a, c))
        ends = [(first, here)] * 3 if state.is_exact else [(first + other, own), (first, here), (first, own)]
        weights = a.floats() / float(P)
        most = float(_mean_exp(np.array([self.alpha * P / (P + N)]))[0])
        last = float(exp(-self.alpha * N / (P + N)))
        if last == 1.0:  # so few negatives that floats do not tell the best order from the worst
            return Limits(Fraction(0), Fraction(1, 2), Fraction(1))
        means = [self._mean(weights, *e) / most for e in ends]
        found = Limits(*(Fraction(min(max((mean - last) / (1 - last), 0.0), 1.0)) for mean in means))
        return found.widened(ROUNDING / Fraction(1 - last), *about_of(self).value_range)

    def _mean(self, weights: Floats, start: Floats, size: Floats) -> float:
        """The mean of e^(-alpha x) over positives, x in places that start here and have these sizes, as shares of rows."""
        return math.fsum((weights * exp(-self.alpha * start) * _mean_exp(self.alpha * size)).tolist())


def _mean_exp(z: Floats) -> Floats:
    """The mean of e^-x over [0, z]: (1 - e^-z) / z, by its series near 0."""
    near = np.ones_like(z)
    for k in range(18, 1, -1):
        near = 1 - z / k * near
    small = z < 1.0  # where 1 - e^-z would cancel
    safe = np.where(small, 1.0, z)
    out: Floats = np.where(small, near, (1 - exp(-safe)) / safe)
    return out
