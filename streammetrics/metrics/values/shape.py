"""The shape of a distribution: standard deviation, skewness and kurtosis, computed from exact sums of powers."""

from __future__ import annotations

from fractions import Fraction

from ...numerics.exact import Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.moments import Moments
from .totals import MomentOfValues, Variance

__all__ = ["Kurtosis", "Skewness", "StandardDeviation"]

NAN = float("nan")
ALIKE = "all values are equal"


class StandardDeviation(Variance, tag="standard_deviation"):
    """Standard deviation: the square root of the weighted variance, in the unit of the values.

    Formula: sqrt(sum(w * (v - mean)**2) / (sum(w) - ddof)), for weights w and values v.

    Notes
    -----
    The value is computed from exact sums of values and squares, and rounded once. The state is the same as for
    `Variance`, and takes 1.1 kB; an update takes about 3 ns per row. The definition matches numpy's `std`. The value is
    undefined if the total weight does not exceed `ddof`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.StandardDeviation().update([1e9 + 2, 1e9 + 4, 1e9 + 4, 1e9 + 4, 1e9 + 5, 1e9 + 5, 1e9 + 7, 1e9 + 9]).compute()
    2.0
    """

    about = About(formula="sqrt(sum(w (v - mean)^2) / (sum(w) - ddof))")

    def of(self, state: Moments) -> float:
        left = state.weight() - Fraction(self.ddof)
        return Limits.root(state.central_moment(2) / left).to_float() if left > 0 else NAN


class Skewness(MomentOfValues, tag="skewness"):
    """Skewness: the weighted skewness of the values; 0 for a symmetric distribution, positive if the right tail is longer.

    Formula: m_3 / m_2**1.5 with m_k = sum(w * (v - mean)**k) / sum(w), for weights w and values v.

    Parameters
    ----------
    bias : bool
        If False, the value is multiplied by sqrt(n * (n - 1)) / (n - 2), where n = sum(w). It is then unbiased for
        normal data. A row of weight k counts as k rows.

    Notes
    -----
    The value is computed from exact sums of the first three powers, and rounded once: it is correct to the last bit,
    whatever the mean is. Each value must be 0, or between 2**-200 and 2**200 in absolute value. The definition matches
    scipy's `skew`, and with bias=False it matches pandas. The value is undefined if all values are equal, and with
    bias=False also if the total weight is at most 2.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.Skewness().update([1, 1, 1, 5]).compute(), 6)
    1.154701
    """

    about = About(
        formula="m_3 / m_2^1.5, with m_k = sum(w (v - mean)^k) / sum(w)",
        cost="about 1.6 kB; 20 ns per row",
        # With bias=False, the value changes if all rows are counted twice.
        extensive=About.per_instance(lambda metric: not metric.bias),
    )

    bias: bool = setting(default=True)

    terms = ("x", "xx", "xxx")

    def of(self, state: Moments) -> float:
        weight, spread = state.weight(), state.central_moment(2)
        if not spread or (not self.bias and weight <= 2):
            return NAN
        # Compute the square of the skewness as an exact fraction, so that only its root is rounded.
        third = state.central_moment(3)
        square = third**2 * weight / spread**3
        if not self.bias:
            square *= weight * (weight - 1) / (weight - 2) ** 2
        found = Limits.root(square).to_float()
        return -found if third < 0 else found

    def reason(self, state: Moments) -> str | None:
        few = not self.bias and state.weight() <= 2
        return super().reason(state) or ("the total weight is not above 2" if few else _reason_if_alike(state))


class Kurtosis(MomentOfValues, tag="kurtosis"):
    """Kurtosis: the weighted excess kurtosis of the values, a measure of heavy tails; 0 for the normal distribution.

    Formula: m_4 / m_2**2 - 3 with m_k = sum(w * (v - mean)**k) / sum(w), for weights w and values v.

    Parameters
    ----------
    fisher : bool
        Whether 3 is subtracted. False gives Pearson's kurtosis, which is 3 for the normal distribution.
    bias : bool
        False gives the estimate that is unbiased for normal data: (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * m_4 /
        m_2**2 - 3 * (n - 1)), where n = sum(w). A row of weight k counts as k rows.

    Notes
    -----
    The value is computed from exact sums of the first four powers, and rounded once. Each value must be 0, or between
    2**-200 and 2**200 in absolute value. The definition matches scipy's `kurtosis`, and with bias=False it matches
    pandas. The value is undefined if all values are equal, and with bias=False also if the total weight is at most 3.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Kurtosis(fisher=False).update([1, 2, 3, 4, 5]).compute()
    1.7
    """

    about = About(
        formula="m_4 / m_2^2 - 3, with m_k = sum(w (v - mean)^k) / sum(w)",
        cost="about 2.2 kB; 40 ns per row",
        # With bias=False, the value changes if all rows are counted twice.
        extensive=About.per_instance(lambda metric: not metric.bias),
    )

    fisher: bool = setting(default=True)
    bias: bool = setting(default=True)

    terms = ("x", "xx", "xxx", "xxxx")

    def of(self, state: Moments) -> float:
        n, spread = state.weight(), state.central_moment(2)
        if not spread or (not self.bias and n <= 3):
            return NAN
        beyond = state.central_moment(4) * n / spread**2 - 3
        if not self.bias:
            beyond = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * beyond + 6)
        return to_float(beyond if self.fisher else beyond + 3)

    def reason(self, state: Moments) -> str | None:
        few = not self.bias and state.weight() <= 3
        return super().reason(state) or ("the total weight is not above 3" if few else _reason_if_alike(state))


def _reason_if_alike(state: Moments) -> str | None:
    return None if state.central_moment(2) else ALIKE
