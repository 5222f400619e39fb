"""Tests of whether probabilities are right, given what came: Spiegelhalter's z, Hosmer and Lemeshow's statistic."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

from ...collect.metric import ScoredLabels, nothing_counted
from ...numerics.chi_square import chi2_tail
from ...numerics.exact import BEYOND, Limits
from ...numerics.settings import setting
from ...numerics.student import normal_tail
from ...reading.about import About
from ...reading.reading import Reading
from ...statistics.row_terms import RowTerms
from .calibration import Bin, Binned, CalibrationError

__all__ = ["HosmerLemeshow", "SpiegelhalterZ"]


class SpiegelhalterZ(ScoredLabels[RowTerms, float], tag="spiegelhalter_z"):
    """Spiegelhalter's z: by how many standard deviations the Brier score is off what it is if probabilities are right.

    Formula: sum w (y - p)(1 - 2 p) / sqrt(sum w (1 - 2 p)**2 p (1 - p)).

    Parameters
    ----------
    scale : {"probability", "logit"}
        A logit is turned into the probability first.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    A standard normal if every label was drawn with its probability; `explain()` has the two-sided p-value. A weight of 2
    is two rows. Rows in float64, exact sums, rounded once. 2.2 kB, 20 ns a row. Source: Spiegelhalter (1986). Undefined
    without rows, and where all probabilities are 0, 1/2 or 1.

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
        return (size if total >= 0 else -size).rounded()

    def read(self, state: RowTerms) -> Reading:
        found = super().read(state)
        return found.having(details=lambda: {"p_value": _two_sided(found.value)})

    def reason(self, state: RowTerms) -> str | None:
        if (nothing := nothing_counted(state)) is not None:
            return nothing
        return None if state.total("surprise_variance") else "all probabilities are 0, 1/2 or 1"


def _two_sided(z: float) -> float:
    """Return how likely a standard normal is as far from 0; NaN if nothing is known."""
    return 2 * normal_tail(abs(z)) if math.isfinite(z) else z


class HosmerLemeshow(CalibrationError, tag="hosmer_lemeshow"):  # noqa: N818 - an error of calibration, not an exception
    """Hosmer-Lemeshow statistic: squared gaps between predicted and true positives, by bin, over their variance.

    Formula: sum over bins of (O - E)**2 / (E (1 - E / W_b)), O the positives of a bin, E its sum of p, W_b its rows.

    Parameters
    ----------
    n_bins : int
        How many bins; 10 as is usual.
    strategy : {"quantile", "uniform", "log"}
        As for ExpectedCalibrationError; by default deciles of the scores, at edges of buckets.
    scale, num_classes, labels, num_labels, average, bits, on_invalid
        As for ExpectedCalibrationError.

    Notes
    -----
    About chi-square with (bins that have rows - 2) degrees of freedom for a fitted model; `explain()` has the p-value and
    these. A weight of 2 is two rows. Exact with "uniform" and for small data, otherwise certified from the histogram: E
    lies between the ends of the buckets. Rows of one score stay together, where some programs split them. With millions
    of rows any gap is significant: look at the reliability curve. Undefined without rows; infinite where what had
    probability 0 came.

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
        bins = self._filled(state)
        return Limits.sum([_limits(b) for b in bins]) if bins else None

    def read(self, state: Binned) -> Reading:
        found = super().read(state)
        return found if self._class_settings else found.having(details=partial(self._test, state))

    def slack(self, state: Binned, found: Limits, rounding: Fraction) -> Fraction:
        if self.moves(state, rounding):
            return BEYOND
        total = 0.0
        for b in self._filled(state):
            least = min(b.low, b.weight - b.high)
            if least < 16 * rounding * b.weight:
                return BEYOND
            w, e, gap, off = map(float, (b.weight, least, b.gaps()[1], 4 * rounding * b.weight))
            total += 4 * (off * (2 * gap + off) + gap * gap * 8 * off / e) * w / (e * (w - e))
        return Fraction(total) * Fraction(1001, 1000)  # sums of what is not negative, in floats: that is more

    def _test(self, state: Binned) -> dict[str, Any]:
        """Return the p-value and the degrees of freedom."""
        bins = self._filled(state)
        value = Limits.sum([(_part(b, b.predicted),) * 3 for b in bins]).rounded() if bins else math.nan
        df = len(bins) - 2
        return {"degrees_of_freedom": df, "p_value": chi2_tail(value, df) if df > 0 else math.nan}


def _limits(b: Bin) -> tuple[Fraction, Fraction, Fraction]:
    """The least, the usual and the largest part of a bin: it falls towards E = O and rises from there on."""
    if b.known:
        return (_part(b, b.predicted),) * 3
    near = min(max(b.positives, b.low), b.high)
    return _part(b, near), _part(b, b.predicted), max(_part(b, b.low), _part(b, b.high))


def _part(b: Bin, expected: Fraction) -> Fraction:
    """W (O - E)**2 / (E (W - E)) of a bin, in whole numbers of the least unit of all three: thousands of bins are fast."""
    exact = (b.weight, b.positives, expected)
    unit = math.lcm(*(x.denominator for x in exact))
    w, o, e = (x.numerator * (unit // x.denominator) for x in exact)
    variance, gap = e * (w - e), o - e
    return Fraction(w * gap * gap, variance * unit) if variance else BEYOND if gap else Fraction(0)
