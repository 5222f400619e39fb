"""Agreement between several raters of the same items, where only the number of raters who chose each class is known."""

from __future__ import annotations

from fractions import Fraction

from ...collect.metric import Metric, no_weight_reason
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.row_terms import RowTerms

__all__ = ["FleissKappa"]


class FleissKappa(Metric[RowTerms, float], tag="fleiss_kappa"):
    """Fleiss' kappa: the agreement between several raters of the same items beyond chance, at most 1.

    Formula: (po - pe) / (1 - pe), where po is the share of pairs that agree among all pairs of raters of the same item.
    The agreement expected by chance, pe, is the sum of the squared shares of the classes in all ratings.

    Parameters
    ----------
    num_classes : int
        The number of classes. Each row is an item, and each column contains the number of raters who chose one of the
        classes.

    Notes
    -----
    Items may have different numbers of raters: each pair of raters counts once, and an item with one rater counts only in
    pe. If all items have the same number of raters, the definition matches Fleiss (1971), statsmodels' `fleiss_kappa`
    and torchmetrics' `FleissKappa` (which adds 1e-5 to 1 - pe). Otherwise, both libraries use the largest number of
    raters for all items. For two raters whose individual ratings are known, use CohenKappa.

    An item of weight w counts as w items. The value is exact up to one rounding, because exact integer counts are
    divided only once. The value is undefined if no item has two or more raters or if all raters chose the same class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FleissKappa(num_classes=3).update([[4, 0, 0], [0, 3, 1], [1, 1, 2]]).compute()
    0.3191489361702128
    """

    about = About(
        positional_columns=("ratings",),
        best="high",
        formula=(
            "(po - pe) / (1 - pe), where po is the share of rater pairs that agree, and pe is the sum of squared class "
            "shares"
        ),
        cost="1.1 kB per class; about 50 ns per number",
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
        """Return four counts of rating pairs.

        The first two are the number of equal pairs and the number of all pairs among ratings of the same item. The last
        two are the number of all pairs and the number of equal pairs among the ratings of all items.
        """
        agreeing, pairs, *each = map(state.total, self.make_state().terms)
        return agreeing, pairs, sum(each, Fraction(0)) ** 2, sum((n * n for n in each), Fraction(0))

    def reason(self, state: RowTerms) -> str | None:
        _, pairs, everyone, by_chance = self._sums(state)
        if not pairs:
            return no_weight_reason(state) or "no item has two raters"
        return "all raters chose the same class" if everyone == by_chance else None
