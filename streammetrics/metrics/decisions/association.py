"""Measures of association between two columns of classes, based on the chi-squared statistic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import Reading
from ...statistics.discovered_classes import Contingency, DiscoveredPairs
from .pairs import Labeling, OfLabelings

__all__ = ["ContingencyCoefficient", "CramersV", "TschuprowsT"]

# For up to this many quotients (one for each pair of classes that occurs), phi^2 is computed with exact fractions.
FEW = 16
# For more than FEW quotients, the common denominator would be huge, so they are summed as fixed-point numbers with this
# many fractional bits.
EXTRA = 256


class Dependence(NamedTuple):
    """The numbers from which all measures of association in this module are computed.

    Parameters
    ----------
    phi : Fraction
        phi^2: the chi-squared statistic divided by the number of rows.
    rows, columns : int
        The numbers of true and predicted classes: the shape of the contingency table.
    total : Fraction
        The number of rows of data, or their total weight.
    """

    phi: Fraction
    rows: int
    columns: int
    total: Fraction


class Association(Labeling):
    """Base class for metrics that are the square root of a function of phi^2, the chi-squared statistic per row.

    In a subclass, `of` returns the square of the value as an exact fraction. This class computes the root.
    """

    def read(self, state: DiscoveredPairs) -> Reading:
        return OfLabelings(self, state, self._root)

    def _root(self, contingency: Contingency) -> Limits | None:
        """Return the value with its bounds. The value is the square root of the result of `of`."""
        sizes = len(contingency.true), len(contingency.predicted), Fraction(contingency.total, contingency.unit)
        # The square of the value never falls as phi^2 grows, so the bounds on phi^2 give the bounds on the value.
        square, wider = (self.of(Dependence(phi, *sizes)) for phi in _phi(contingency))
        if square is None or wider is None:
            return None
        first, last = Limits.root(min(square, Fraction(1))), Limits.root(min(wider, Fraction(1)))
        return Limits(first.low, first.value, last.high).widen(16 * contingency.weight_rounding, 0, 1)

    def reason(self, contingency: Any) -> str:
        return "all rows have the same class in one of the labelings"


def _phi(contingency: Contingency) -> tuple[Fraction, Fraction]:
    """Return a lower and an upper bound on phi^2, which is the sum of n_jk^2 / (n_j * n_k), minus 1.

    n_j rows have class j in the first column, n_k rows have class k in the second, and n_jk rows have both.

    The two bounds are equal if there are at most `FEW` quotients, because the sum is then exact.
    """
    tops, bottoms = (
        contingency.joint * contingency.joint,
        contingency.true[contingency.row] * contingency.predicted[contingency.column],
    )
    if len(tops) <= FEW:
        whole = sum((Fraction(a, b) for a, b in zip(tops, bottoms, strict=True)), Fraction(-1))
        return whole, whole
    # Each quotient becomes a fixed-point number, rounded down by less than one unit in the last place. In these units,
    # the true sum is therefore between `low` and `low` plus the number of quotients.
    low = sum(((tops << EXTRA) // bottoms).tolist())
    return tuple(max(Fraction(x, 1 << EXTRA) - 1, Fraction(0)) for x in (low, low + len(tops)))  # type: ignore[return-value]


class CramersV(Association, tag="cramers_v"):
    """Cramer's V: the association between two columns of classes, from 0 to 1.

    Formula: sqrt(phi^2 / min(r - 1, c - 1)), where phi^2 = sum(n_jk^2 / (n_j * n_k)) - 1 is chi-squared over the number
    of rows. The two columns have r and c classes. n_j rows have class j in the first column, n_k rows have class k in
    the second, and n_jk rows have both.

    Parameters
    ----------
    bias_correction : bool
        Whether to correct for the association that arises by chance in n rows (Bergsma 2013). The correction subtracts
        (r - 1) * (c - 1) / (n - 1) from phi^2 (negative results become 0), (r - 1)^2 / (n - 1) from r, and (c - 1)^2 /
        (n - 1) from c. This correction is the default in torchmetrics.

    Notes
    -----
    The value is computed from exact integer counts; only the square root is rounded. The value is undefined if one of
    the columns has a single class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CramersV().update([0, 0, 1, 1], [7, 7, 9, 9]).compute()
    1.0
    """

    about = About(
        formula=(
            "sqrt(phi^2 / min(r - 1, c - 1)) for r and c classes, where phi^2 is chi-squared divided by the number of "
            "rows"
        ),
        # With the bias correction, the value depends on the number of rows, so it changes if every row is repeated.
        extensive=About.per_instance(lambda metric: metric.bias_correction),
    )

    bias_correction: bool = setting(default=False)

    def of(self, dependence: Dependence) -> Fraction | None:
        phi, total = dependence.phi, dependence.total
        r, c = Fraction(dependence.rows), Fraction(dependence.columns)
        if self.bias_correction and total > 1:
            phi = max(phi - (r - 1) * (c - 1) / (total - 1), Fraction(0))
            r, c = (x - (x - 1) ** 2 / (total - 1) for x in (r, c))
        return phi / (min(r, c) - 1) if min(r, c) > 1 else None


class TschuprowsT(Association, tag="tschuprows_t"):
    """Tschuprow's T: the association between two class columns, from 0 to 1; below 1 if the numbers of classes differ.

    Formula: sqrt(phi^2 / sqrt((r - 1) * (c - 1))), where phi^2 = sum(n_jk^2 / (n_j * n_k)) - 1. The two columns have r
    and c classes. n_j rows have class j in the first column, n_k rows have class k in the second, and n_jk rows have
    both.

    Notes
    -----
    The value is computed from exact integer counts; only two square roots are rounded. The value is undefined if one of
    the columns has a single class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.TschuprowsT().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.840896
    """

    about = About(
        formula=(
            "sqrt(phi^2 / sqrt((r - 1)(c - 1))) for r and c classes, where phi^2 is chi-squared divided by the number "
            "of rows"
        )
    )

    def of(self, dependence: Dependence) -> Fraction | None:
        both = (dependence.rows - 1) * (dependence.columns - 1)
        return dependence.phi / Limits.root(Fraction(both)).value if both else None


class ContingencyCoefficient(Association, tag="contingency_coefficient"):
    """Pearson's contingency coefficient: the association between two columns of classes, from 0 to below 1.

    Formula: sqrt(phi^2 / (1 + phi^2)), where phi^2 = sum(n_jk^2 / (n_j * n_k)) - 1. n_j rows have class j in the first
    column, n_k rows have class k in the second, and n_jk rows have both.

    Notes
    -----
    The value is computed from exact integer counts; only the square root is rounded.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ContingencyCoefficient().update([0, 0, 1, 1], [7, 7, 9, 9]).compute(), 6)
    0.707107
    """

    about = About(formula="sqrt(phi^2 / (1 + phi^2)), where phi^2 is chi-squared divided by the number of rows")

    def of(self, dependence: Dependence) -> Fraction:
        return dependence.phi / (1 + dependence.phi)
