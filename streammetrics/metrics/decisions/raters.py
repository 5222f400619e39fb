"""Agreement of many raters, of each of whom it is not known who they are."""

from __future__ import annotations

from fractions import Fraction

from ...collect.metric import Metric, nothing_counted
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.row_terms import RowTerms

__all__ = ["FleissKappa"]


class FleissKappa(Metric[RowTerms, float], tag="fleiss_kappa"):
    """Fleiss' kappa: agreement of many raters of the same items beyond chance, at most 1.

    Formula: (po - pe) / (1 - pe), po the share of pairs of raters of one item who chose the same class, pe the sum of the
    squared shares of the classes in all ratings.

    Parameters
    ----------
    num_classes : int
        How many classes there are. A row is an item: how many raters chose each class.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Items may have different numbers of raters: each pair counts once, and an item of one rater in pe alone. With as many
    raters of each item it is the definition of Fleiss (1971), of statsmodels' `fleiss_kappa` and of torchmetrics'
    `FleissKappa`, which adds 1e-5 to 1 - pe; both take the most raters for all items. CohenKappa is of two raters who are
    known. An item of weight w counts as w items. Exact integers, one division. 1.1 kB a class; some 50 ns a number.
    Undefined where no item has two raters, or all chose one class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FleissKappa(num_classes=3).update([[4, 0, 0], [0, 3, 1], [1, 1, 2]]).compute()
    0.3191489361702128
    """

    about = About(
        positional_columns=("ratings",),
        best="high",
        formula="(po - pe) / (1 - pe), po of pairs of raters of an item, pe of the shares of classes",
        cost="1.1 kB a class; some 50 ns a number",
        example={"num_classes": 3},
    )

    num_classes: int = setting(low=2, high=1 << 12)

    def make_state(self) -> RowTerms:
        each = tuple(f"raters@{k}" for k in range(self.num_classes))
        return RowTerms(terms=("agreeing_pairs", "rater_pairs", *each), over="ratings", width=self.num_classes)

    def of(self, state: RowTerms) -> float:
        agreeing, pairs, everyone, by_chance = self._sums(state)
        return to_float(agreeing * everyone - pairs * by_chance, pairs * (everyone - by_chance))

    def _sums(self, state: RowTerms) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """Pairs of raters of an item who agree, and all; pairs of any ratings, and those of one class."""
        agreeing, pairs, *each = map(state.total, self.make_state().terms)
        return agreeing, pairs, sum(each, Fraction(0)) ** 2, sum((n * n for n in each), Fraction(0))

    def reason(self, state: RowTerms) -> str | None:
        _, pairs, everyone, by_chance = self._sums(state)
        if not pairs:
            return nothing_counted(state) or "no item has two raters"
        return "all raters chose one class" if everyone == by_chance else None
