"""How far two columns of classes go together, from chi-squared."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import Reading
from ...statistics.found_classes import Contingency, FoundPairs
from .pairs import Labeling, OfLabelings

__all__ = ["ContingencyCoefficient", "CramersV", "TschuprowsT"]

FEW = 16  # quotients with a common denominator of some length
EXTRA = 256  # bits behind the point, where there are more


class Dependence(NamedTuple):
    """The dependence of two columns of classes: phi^2, how many true and predicted classes there are, and the rows."""

    phi: Fraction
    rows: int
    columns: int
    total: Fraction


class Association(Labeling):
    """A root of chi-squared over the rows, phi^2: `of` returns the square of the value."""

    def read(self, state: FoundPairs) -> Reading:
        return OfLabelings(self, state, self._root)

    def _root(self, found: Contingency) -> Limits | None:
        """Return the root of the square of the value."""
        sizes = len(found.true), len(found.predicted), Fraction(found.total, found.unit)
        square, wider = (self.of(Dependence(phi, *sizes)) for phi in _phi(found))
        if square is None or wider is None:
            return None
        first, last = Limits.root(min(square, Fraction(1))), Limits.root(min(wider, Fraction(1)))
        return Limits(first.low, first.value, last.high).widened(16 * found.slip, 0, 1)

    def reason(self, found: Any) -> str:
        return "one class in one of the labelings"


def _phi(found: Contingency) -> tuple[Fraction, Fraction]:
    """The sum of n_jk^2 / (n_j n_k), less 1, and what it is below."""
    tops, bottoms = found.both * found.both, found.true[found.row] * found.predicted[found.column]
    if len(tops) <= FEW:
        whole = sum((Fraction(a, b) for a, b in zip(tops, bottoms, strict=True)), Fraction(-1))
        return whole, whole
    low = sum(((tops << EXTRA) // bottoms).tolist())
    return tuple(max(Fraction(x, 1 << EXTRA) - 1, Fraction(0)) for x in (low, low + len(tops)))  # type: ignore[return-value]


class CramersV(Association, tag="cramers_v"):
    """Cramer's V of two columns of classes: how far they go together, from 0 to 1.

    Formula: sqrt(phi^2 / min(r - 1, c - 1)), with phi^2 = sum n_jk^2 / (n_j n_k) - 1 (chi-squared over the rows) of r and
    c classes.

    Parameters
    ----------
    bias_correction : bool
        Less what chance makes of n rows (Bergsma 2013): phi^2 - (r - 1)(c - 1) / (n - 1), not below 0, and r and c less
        (r - 1)^2 / (n - 1) and (c - 1)^2 / (n - 1). torchmetrics does so by default.
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Undefined where one of them has a single class. Exact integers, one root. Some 100 bytes a pair of classes that occurs;
    10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CramersV().update([0, 0, 1, 1], [7, 7, 9, 9]).compute()
    1.0
    """

    about = About(
        formula="sqrt(phi^2 / min(r - 1, c - 1)), phi^2 = sum of n_jk^2 / (n_j n_k) - 1",
        # The bias correction depends on the number of rows.
        extensive=About.per_instance(lambda metric: metric.bias_correction),
    )

    bias_correction: bool = setting(default=False)

    def of(self, found: Dependence) -> Fraction | None:
        phi, total = found.phi, found.total
        r, c = Fraction(found.rows), Fraction(found.columns)
        if self.bias_correction and total > 1:
            phi = max(phi - (r - 1) * (c - 1) / (total - 1), Fraction(0))
            r, c = (x - (x - 1) ** 2 / (total - 1) for x in (r, c))
        return phi / (min(r, c) - 1) if min(r, c) > 1 else None


class TschuprowsT(Association, tag="tschuprows_t"):
    """Tschuprow's T of two columns of classes: how far they go together, from 0 to 1; 1 only with as many classes in both.

    Formula: sqrt(phi^2 / sqrt((r - 1)(c - 1))), as for CramersV.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Undefined where one of them has a single class. Exact integers, two roots. Some 100 bytes a pair of classes that
    occurs; 10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.TschuprowsT().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.840896
    """

    about = About(formula="sqrt(phi^2 / sqrt((r - 1)(c - 1)))")

    def of(self, found: Dependence) -> Fraction | None:
        both = (found.rows - 1) * (found.columns - 1)
        return found.phi / Limits.root(Fraction(both)).value if both else None


class ContingencyCoefficient(Association, tag="contingency_coefficient"):
    """Pearson's contingency coefficient of two columns of classes: how far they go together, from 0, below 1.

    Formula: sqrt(phi^2 / (1 + phi^2)), as for CramersV.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Exact integers, one root. Some 100 bytes a pair of classes that occurs; 10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ContingencyCoefficient().update([0, 0, 1, 1], [7, 7, 9, 9]).compute(), 6)
    0.707107
    """

    about = About(formula="sqrt(phi^2 / (1 + phi^2))")

    def of(self, found: Dependence) -> Fraction:
        return found.phi / (1 + found.phi)
