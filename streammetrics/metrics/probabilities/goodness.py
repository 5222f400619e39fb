"""Goodness-of-fit tests of probabilities: Spiegelhalter's z, and the statistic of Hosmer and Lemeshow."""

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
from .calibration import Bin, Binned, CalibrationError

__all__ = ["HosmerLemeshow", "SpiegelhalterZ"]


class SpiegelhalterZ(ScoredLabels[RowTerms, float], tag="spiegelhalter_z"):
    """Spiegelhalter's z: a test of calibration, the Brier score minus its expected value, in standard deviations.

    Formula: sum w (y - p)(1 - 2 p) / sqrt(sum w (1 - 2 p)**2 p (1 - p)).

    Parameters
    ----------
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits, which are converted by the sigmoid.

    Notes
    -----
    The value is a standard normal deviate if each label is positive with its predicted probability. `explain()` has the
    two-sided p-value. A weight of 2 counts as two rows. Each row is computed in float64; sums are exact, and the value is
    rounded once. The state takes 2.2 kB; a row takes 20 ns. Source: Spiegelhalter (1986). The value is undefined without
    rows, and if all probabilities are 0, 1/2 or 1.

    Examples
    --------
    >>> import streammetrics as sm
    >>> z = sm.SpiegelhalterZ().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> round(z.compute(), 6), round(z.explain()["p_value"], 6)
    (-0.22301, 0.823528)
    """

    about = About(
        extensive=True,
        formula="sum w (y - p)(1 - 2 p) / sqrt(sum w (1 - 2 p)^2 p (1 - p))",
        cost="2.2 kB; 20 ns a row",
        bound="exact: rows computed in float64, summed exactly, rounded once",
        no_interval_reason=(
            "it is a deviate itself, with standard error 1 where probabilities are right; BrierScore has an interval"
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
    """Return the two-sided p-value of a standard normal number; NaN for NaN."""
    return 2 * normal_tail(abs(z)) if math.isfinite(z) else z


class HosmerLemeshow(CalibrationError, tag="hosmer_lemeshow"):  # noqa: N818 - an error of calibration, not an exception
    """Hosmer-Lemeshow statistic: the squared gaps between predicted and observed positives over their variance, by bin.

    Formula: sum over bins of (O - E)**2 / (E (1 - E / W_b)), where O is the number of positives of a bin, E the sum of its
    p, and W_b its number of rows.

    Parameters
    ----------
    n_bins : int
        The number of bins; the default of 10 is usual.
    strategy : {"quantile", "uniform", "log"}
        How bins are made. "quantile", the default: bins of equal weight (deciles of the scores), with edges at those of
        histogram buckets. "uniform": bins of equal width. "log": each bin is twice as wide as the one before.

    Notes
    -----
    For a fitted model the statistic is about chi-square distributed; the degrees of freedom are the number of bins that
    have rows, minus 2. `explain()` has them and the p-value. A weight of 2 counts as two rows. The value is exact with
    "uniform" and for small data; otherwise it is certified: E lies between the sums for the ends of histogram buckets.

    Rows with equal scores stay in one bin, where some programs split them. With millions of rows any gap is significant:
    use the reliability curve. The value is undefined without rows, and infinite if a bin has predictions of 0 alone but a
    positive, or of 1 alone but a negative.

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
        formula="sum over bins of (O - E)^2 / (E (1 - E / W_b))",
        no_interval_reason=(
            "it is a test statistic: explain() has its p-value; Calibration, over all rows or slices, has an interval"
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
        # The term of a bin is gap**2 w / (e (w - e)), for weight w and expected positives e. If sums are off by at most
        # `off`, the term changes by at most the change of gap**2, plus gap**2 times the relative change of the divisor.
        total = 0.0
        for b in self._filled_bins(state):
            least = min(b.low, b.weight - b.high)
            if least < 16 * rounding * b.weight:
                return BEYOND
            w, e, gap, off = map(float, (b.weight, least, b.gaps()[1], 4 * rounding * b.weight))
            total += 4 * (off * (2 * gap + off) + gap * gap * 8 * off / e) * w / (e * (w - e))
        # Terms are not negative, so float64 sums are off by far less than a thousandth.
        return Fraction(total) * Fraction(1001, 1000)

    def _test(self, state: Binned) -> dict[str, Any]:
        """Return the degrees of freedom and the p-value of the chi-squared test, for `explain()`."""
        bins = self._filled_bins(state)
        value = Limits.sum([(_part(b, b.predicted),) * 3 for b in bins]).to_float() if bins else math.nan
        df = len(bins) - 2
        return {"degrees_of_freedom": df, "p_value": chi2_tail(value, df) if df > 0 else math.nan}


def _limits(b: Bin) -> tuple[Fraction, Fraction, Fraction]:
    """Return the least, the estimated and the largest term of a bin.

    As a function of the expected positives E, the term falls until E equals the observed positives O, and then rises.
    """
    if b.is_exact:
        return (_part(b, b.predicted),) * 3
    # The least term is at the possible E that is closest to O.
    near = min(max(b.positives, b.low), b.high)
    return _part(b, near), _part(b, b.predicted), max(_part(b, b.low), _part(b, b.high))


def _part(b: Bin, expected: Fraction) -> Fraction:
    """Return W (O - E)**2 / (E (W - E)) of a bin with weight W, O observed and E expected positives."""
    exact = (b.weight, b.positives, expected)
    unit = math.lcm(*(x.denominator for x in exact))
    w, o, e = (x.numerator * (unit // x.denominator) for x in exact)
    variance, gap = e * (w - e), o - e
    return Fraction(w * gap * gap, variance * unit) if variance else BEYOND if gap else Fraction(0)
