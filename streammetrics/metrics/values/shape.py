"""How values spread about their mean: standard deviation, skewness, kurtosis; from exact sums of powers."""

from __future__ import annotations

from fractions import Fraction

from ...numerics.exact import Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.moments import Moments
from .totals import MomentOfValues, Variance

__all__ = ["Kurtosis", "Skewness", "StandardDeviation"]

NAN = float("nan")
ALIKE = "all values are alike"


class StandardDeviation(Variance, tag="standard_deviation"):
    """Weighted standard deviation of the values.

    Formula: sqrt(sum w (v - mean)**2 / (sum w - ddof)).

    Parameters
    ----------
    ddof, on_invalid
        As for Variance.

    Notes
    -----
    From exact sums of values and squares, rounded once. About 3 ns a row, 1.1 kB; one state with Variance. Definition as
    numpy's `std`. Undefined if the weight is not above `ddof`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.StandardDeviation().update([1e9 + 2, 1e9 + 4, 1e9 + 4, 1e9 + 4, 1e9 + 5, 1e9 + 5, 1e9 + 7, 1e9 + 9]).compute()
    2.0
    """

    about = About(formula="sqrt(sum w (v - mean)^2 / (sum w - ddof))")

    def of(self, state: Moments) -> float:
        left = state.weight() - Fraction(self.ddof)
        return Limits.root(state.central(2) / left).rounded() if left > 0 else NAN


class Skewness(MomentOfValues, tag="skewness"):
    """Weighted skewness of the values: 0 where they are symmetric, above 0 where the long tail is on the right.

    Formula: m_3 / m_2**1.5 with m_k = sum w (v - mean)**k / sum w.

    Parameters
    ----------
    bias : bool
        False for the estimate that is unbiased under normality, sqrt(n (n - 1)) / (n - 2) times that, n = sum w: weights
        count as so many rows.
    on_invalid
        As for Mean.

    Notes
    -----
    From exact sums of the first three powers, rounded once: right to the last bit whatever the mean. Values are 0, or
    between 2**-200 and 2**200 in size. About 20 ns a row, 1.6 kB. Definition as scipy's `skew`; pandas' is bias=False.
    Undefined where all values are alike, and without bias for a weight of at most 2.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.Skewness().update([1, 1, 1, 5]).compute(), 6)
    1.154701
    """

    about = About(
        formula="m_3 / m_2^1.5, with m_k = sum w (v - mean)^k / sum w",
        cost="about 1.6 kB; 20 ns a row",
        # An unbiased estimate depends on the number of rows.
        extensive=About.per_instance(lambda metric: not metric.bias),
    )

    bias: bool = setting(default=True)

    terms = ("x", "xx", "xxx")

    def of(self, state: Moments) -> float:
        weight, spread = state.weight(), state.central(2)
        if not spread or (not self.bias and weight <= 2):
            return NAN
        third = state.central(3)
        square = third**2 * weight / spread**3
        if not self.bias:
            square *= weight * (weight - 1) / (weight - 2) ** 2
        found = Limits.root(square).rounded()
        return -found if third < 0 else found

    def reason(self, state: Moments) -> str | None:
        few = not self.bias and state.weight() <= 2
        return super().reason(state) or ("the weight is not above 2" if few else _alike(state))


class Kurtosis(MomentOfValues, tag="kurtosis"):
    """Weighted kurtosis of the values: how heavy their tails are, 0 for the normal distribution.

    Formula: m_4 / m_2**2 - 3 with m_k = sum w (v - mean)**k / sum w.

    Parameters
    ----------
    fisher : bool
        False for Pearson's: 3 is not taken away.
    bias : bool
        False for the estimate that is unbiased under normality, of n = sum w rows:
        (n - 1) / ((n - 2)(n - 3)) ((n + 1) m_4 / m_2**2 - 3 (n - 1)).
    on_invalid
        As for Mean.

    Notes
    -----
    From exact sums of the first four powers, rounded once. Values as for Skewness. About 40 ns a row, 2.2 kB. Definition
    as scipy's `kurtosis`; pandas' is bias=False. Undefined where all values are alike, and without bias for a weight of
    at most 3.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Kurtosis(fisher=False).update([1, 2, 3, 4, 5]).compute()
    1.7
    """

    about = About(
        formula="m_4 / m_2^2 - 3, with m_k = sum w (v - mean)^k / sum w",
        cost="about 2.2 kB; 40 ns a row",
        # An unbiased estimate depends on the number of rows.
        extensive=About.per_instance(lambda metric: not metric.bias),
    )

    fisher: bool = setting(default=True)
    bias: bool = setting(default=True)

    terms = ("x", "xx", "xxx", "xxxx")

    def of(self, state: Moments) -> float:
        n, spread = state.weight(), state.central(2)
        if not spread or (not self.bias and n <= 3):
            return NAN
        beyond = state.central(4) * n / spread**2 - 3
        if not self.bias:
            beyond = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * beyond + 6)
        return to_float(beyond if self.fisher else beyond + 3)

    def reason(self, state: Moments) -> str | None:
        few = not self.bias and state.weight() <= 3
        return super().reason(state) or ("the weight is not above 3" if few else _alike(state))


def _alike(state: Moments) -> str | None:
    return None if state.central(2) else ALIKE
