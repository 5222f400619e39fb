"""Goodness-of-fit tests of probabilities: Spiegelhalter's z and the Hosmer-Lemeshow statistic."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

from ...collect.metric import ScoredLabels, no_weight_reason
from ...numerics.chi_square import chi2_tail
from ...numerics.exact import BEYOND, Limits
from ...numerics.settings import setting
from ...numerics.student_t import normal_tail
from ...reading.about import About
from ...reading.reading import Reading
from ...statistics.row_terms import RowTerms
from .calibration import CalibrationError
from .calibration_bins import Bin, Binned

__all__ = ["HosmerLemeshow", "SpiegelhalterZ"]


class SpiegelhalterZ(ScoredLabels[RowTerms, float], tag="spiegelhalter_z"):
    """Spiegelhalter's z: the Brier score minus its expected value, in standard deviations, as a test of calibration.

    Formula: sum(w * (y - p) * (1 - 2 * p)) / sqrt(sum(w * (1 - 2 * p)**2 * p * (1 - p))), for weights w, labels y and
    probabilities p.

    Parameters
    ----------
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits, which are converted by the sigmoid.

    Notes
    -----
    If each label is positive with exactly the predicted probability, the value has approximately a standard normal
    distribution. `explain()` shows the two-sided p-value. A row of weight 2 counts as two rows. The value of each row
    is computed in float64; sums are exact, and the result is rounded once. Source: Spiegelhalter (1986). The value is
    undefined without rows or if all probabilities are 0, 1/2 or 1.

    Examples
    --------
    >>> import streammetrics as sm
    >>> z = sm.SpiegelhalterZ().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> round(z.compute(), 6), round(z.explain()["p_value"], 6)
    (-0.22301, 0.823528)
    """

    about = About(
        extensive=True,
        formula=(
            "(sum of w (y - p)(1 - 2 p)) / sqrt(sum of w (1 - 2 p)^2 p (1 - p)), for weight w, label y and probability "
            "p"
        ),
        cost="2.2 kB; 20 ns per row",
        bound=(
            "exact except for rounding: the value of each row is computed in float64, the sum is exact, and the result "
            "is rounded once"
        ),
        no_interval_reason=(
            "the value is itself a number of standard errors, if the probabilities are right; BrierScore has an "
            "interval"
        ),
    )

    scale: str = setting(default="probability", choices=("probability", "logit"))

    def make_state(self) -> RowTerms:
        return RowTerms(terms=("surprise", "surprise_variance"), scale=self.scale)

    def of(self, state: RowTerms) -> float:
        total, variance = state.total("surprise"), state.total("surprise_variance")
        if not variance:
            return math.nan
        size = Limits.root(total * total / variance)
        return (size if total >= 0 else -size).to_float()

    def read(self, state: RowTerms) -> Reading:
        found = super().read(state)
        return found.having(details=lambda: {"p_value": _two_sided(found.value)})

    def reason(self, state: RowTerms) -> str | None:
        if (nothing := no_weight_reason(state)) is not None:
            return nothing
        return None if state.total("surprise_variance") else "all probabilities are 0, 1/2 or 1"


def _two_sided(z: float) -> float:
    """Return the two-sided p-value of a standard normal test statistic, or NaN if the statistic is NaN."""
    return 2 * normal_tail(abs(z)) if math.isfinite(z) else z


class HosmerLemeshow(CalibrationError, tag="hosmer_lemeshow"):  # noqa: N818 - an error of calibration, not an exception
    """Hosmer-Lemeshow statistic: the sum over bins of (observed - expected positives)**2 / variance.

    Formula: sum over bins of (O - E)**2 / (E * (1 - E / W_b)), where O is the number of positives in a bin, E is the
    sum of p over its rows, and W_b is the number of rows in the bin.

    Parameters
    ----------
    n_bins : int
        The number of bins; the default, 10, is the usual choice.
    strategy : {"quantile", "uniform", "log"}
        How to form the bins. "quantile", the default: bins of equal weight (deciles of the scores), whose edges are edges
        of histogram buckets. "uniform": bins of equal width. "log": the edges are 0, 2**-(n_bins - 1), ..., 1/2, 1.

    Notes
    -----
    For a fitted and well-calibrated model, the statistic has approximately a chi-squared distribution. Its degrees of
    freedom are the number of bins with rows, minus 2. `explain()` shows them and the p-value. A row of weight 2 counts
    as two rows. The value is exact with "uniform" and for small data. Otherwise, it has certified bounds: E lies
    between the sums that use the lower and the upper edges of the histogram buckets.

    Rows with equal scores stay in one bin, whereas some programs split them. With millions of rows, even a tiny gap is
    significant, so use a reliability curve (CalibrationCurve) instead. The value is undefined without rows. It is infinite
    if a bin contains a positive although all its predictions are 0, or a negative although all are 1.

    Examples
    --------
    >>> import streammetrics as sm
    >>> y, p = [0, 0, 1, 0, 1, 1, 0, 1], [0.125, 0.25, 0.25, 0.5, 0.5, 0.625, 0.75, 0.875]
    >>> test = sm.HosmerLemeshow(n_bins=4).update(y, p)
    >>> round(test.compute(), 6), round(test.explain()["p_value"], 6)
    (2.280386, 0.319757)
    """

    about = About(
        extensive=True,
        formula="sum over bins of (O - E)^2 / (E (1 - E / n)), for O observed and E expected positives in n rows",
        no_interval_reason=(
            "the value is a test statistic, whose p-value is in explain(); Calibration, of all rows or of "
            "slices, has an interval"
        ),
    )

    n_bins: int = setting(default=10, low=2, high=10_000)
    strategy: str = setting(default="quantile", choices=("uniform", "quantile", "log"))

    def of(self, state: Binned) -> Limits | None:
        bins = self._filled_bins(state)
        return Limits.sum([_limits(b) for b in bins]) if bins else None

    def read(self, state: Binned) -> Reading:
        found = super().read(state)
        return found if self._class_settings else found.having(details=partial(self._test, state))

    def slack(self, state: Binned, limits: Limits, rounding: Fraction) -> Fraction:
        if self.moves(state, rounding):
            return BEYOND
        # The value is a sum over bins of gap**2 * w / (e * (w - e)), for weight w and expected positives e. The errors
        # of w, e and the gap are at most `off`. They change a term by at most w / (e * (w - e)) times the sum in the
        # parentheses below: the change in gap**2, plus gap**2 times the relative change in w / (e * (w - e)).
        total = 0.0
        for b in self._filled_bins(state):
            least = min(b.low, b.weight - b.high)
            if least < 16 * rounding * b.weight:
                return BEYOND
            w, e, gap, off = map(float, (b.weight, least, b.gaps()[1], 4 * rounding * b.weight))
            total += 4 * (off * (2 * gap + off) + gap * gap * 8 * off / e) * w / (e * (w - e))
        # Adding a thousandth of the sum covers its rounding error in float64, because none of its terms are negative.
        return Fraction(total) * Fraction(1001, 1000)

    def _test(self, state: Binned) -> dict[str, Any]:
        """Return the degrees of freedom and the p-value of the chi-squared test, for `explain()`."""
        bins = self._filled_bins(state)
        value = Limits.sum([(_part(b, b.predicted),) * 3 for b in bins]).to_float() if bins else math.nan
        df = len(bins) - 2
        return {"degrees_of_freedom": df, "p_value": chi2_tail(value, df) if df > 0 else math.nan}


def _limits(b: Bin) -> tuple[Fraction, Fraction, Fraction]:
    """Return the smallest, estimated and largest contributions of a bin to the statistic.

    The expected number of positives E is known only within bounds. As a function of E, the contribution falls until E
    equals the observed number O and then rises.
    """
    if b.is_exact:
        return (_part(b, b.predicted),) * 3
    # The contribution is smallest for the possible E that is closest to O.
    near = min(max(b.positives, b.low), b.high)
    return _part(b, near), _part(b, b.predicted), max(_part(b, b.low), _part(b, b.high))


def _part(b: Bin, expected: Fraction) -> Fraction:
    """Return the contribution of a bin to the statistic, where `expected` is the expected number of positives.

    It is W * (O - E)**2 / (E * (W - E)), for weight W, observed positives O and expected positives E.
    """
    exact = (b.weight, b.positives, expected)
    unit = math.lcm(*(x.denominator for x in exact))
    w, o, e = (x.numerator * (unit // x.denominator) for x in exact)
    variance, gap = e * (w - e), o - e
    return Fraction(w * gap * gap, variance * unit) if variance else BEYOND if gap else Fraction(0)
