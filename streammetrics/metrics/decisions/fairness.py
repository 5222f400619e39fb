"""Whether groups are decided on alike: the least rate of any group over the largest."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

from ...collect.metric import ScoredLabels
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN, OwnReading, Reading
from ...statistics.classes import ClassTable
from ...statistics.group_decisions import GroupDecisions
from .base_decisions import HARD

__all__ = ["DemographicParityRatio", "EqualOpportunityRatio", "EqualizedOddsRatio"]

Rate = Callable[[ClassTable], tuple[int, int]]
"""Numerator and denominator of a rate of a group."""

RATES: dict[str, Rate] = {
    "selection_rate": lambda t: (t.tp + t.fp, sum(t)),
    "true_positive_rate": lambda t: (t.tp, t.tp + t.fn),
    "false_positive_rate": lambda t: (t.fp, t.fp + t.tn),
}


class FairnessRatio(ScoredLabels[GroupDecisions, float]):
    """The least rate of any group over the largest."""

    about = About(
        best="high",
        cost="some 60 bytes a group; about 20 ns a row",
        bound="exact: counts, rounded once",
        no_interval_reason=(
            "the least and the largest of several rates: "
            "Sliced(Recall(), by=) or of SelectionRate has an interval of each"
        ),
    )

    threshold: float | None = setting(default=0.5)
    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))
    max_groups: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    rates: ClassVar[tuple[str, ...]] = ()
    """The rates that are compared."""

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            0 or 1. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_score : array-like of shape (n,)
            Any finite score, positive where `score >= threshold`; decisions, named `y_pred`, if `threshold=None`.
        **columns : array-like of shape (n,)
            `group`: an integer, or a text of up to 40 bytes. `sample_weight`: 0, or between 2**-36 and 2**31. The others
            may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is bad, or lengths differ; the message names column, row and count, and nothing was counted.
        MemoryLimitError
            There would be more than `max_groups` groups; nothing was counted.
        """
        return super().update(y_true, y_score, **columns)

    @property
    def name(self) -> str:
        return self.about.tag if self.threshold in (HARD, None) else f"{self.about.tag}@{self.threshold:g}"

    @property
    def _cut(self) -> float:
        return HARD if self.threshold is None else self.threshold

    def make_state(self) -> GroupDecisions:
        column = "y_pred" if self.threshold is None else "y_score"
        return GroupDecisions(thresholds=(self._cut,), column=column, max_labels=self.max_groups)

    def _rates(self, state: GroupDecisions, rate: str) -> dict[Any, Fraction | None]:
        """Return a rate of every group; None where it is 0/0."""
        pairs = {group: RATES[rate](table) for group, table in state.tables(self._cut).items()}
        return {group: Fraction(a, b) if b else None for group, (a, b) in pairs.items()}

    def _ratio(self, state: GroupDecisions, rate: str) -> Fraction | None:
        """Return the least over the largest; None where that is 0/0, or no group has one."""
        known = [r for r in self._rates(state, rate).values() if r is not None]
        if not known or not max(known):
            return None if self.zero_division != self.zero_division or not known else Fraction(self.zero_division)
        return min(known) / max(known)

    def _ratios(self, state: GroupDecisions) -> list[Fraction]:
        """Return the ratio of every rate; none where one is undefined."""
        ratios = [self._ratio(state, rate) for rate in self.rates]
        known = [r for r in ratios if r is not None]
        return known if len(known) == len(ratios) else []

    def of(self, state: GroupDecisions) -> float:
        ratios = self._ratios(state)
        return to_float(min(ratios)) if ratios else NAN

    def reason(self, state: GroupDecisions) -> str | None:
        if self._ratios(state):
            return None
        return super().reason(state) or "the rate is 0 in every group, or 0/0"

    def read(self, state: GroupDecisions) -> Reading:
        return OfGroups(self, state)


class OfGroups(OwnReading):
    """The reading of a ratio, whose details have the rates of every group and how many are undefined."""

    def _details(self) -> dict[str, Any]:
        found = {rate: self.metric._rates(self.state, rate) for rate in self.metric.rates}
        named = {
            rate: {g: NAN if r is None else to_float(r) for g, r in rates.items()} for rate, rates in found.items()
        }
        return named | {"undefined": sum(r is None for rates in found.values() for r in rates.values())}


class DemographicParityRatio(FairnessRatio, tag="demographic_parity_ratio"):
    """Demographic parity ratio: the least share of positive decisions on any group over the largest; 1 is parity.

    Formula: min_g (TP + FP) / n_g over max_g (TP + FP) / n_g.

    Parameters
    ----------
    threshold : float or None
        A score is a positive decision where `score >= threshold`. None reads decisions from `y_pred`.
    zero_division : {nan, 0.0, 1.0}
        The value where no group has a positive decision.
    max_groups : int
        How many groups may be found; MemoryLimitError beyond, and nothing was counted.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Definition as fairlearn's `demographic_parity_ratio` and torchmetrics' `BinaryFairness`; labels do not matter. The rate
    of each group is in `explain()`. Exact integers, rounded once. Some 60 bytes a group; about 20 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parity = sm.DemographicParityRatio(threshold=None)
    >>> parity.update([0, 1, 0, 1, 1, 0], [1, 1, 0, 1, 0, 0], group=["a", "a", "a", "b", "b", "b"]).compute()
    0.5
    """

    about = About(formula="min over groups of (TP + FP) / n over the max")

    rates = ("selection_rate",)


class EqualOpportunityRatio(FairnessRatio, tag="equal_opportunity_ratio"):
    """Equal opportunity ratio: the least recall of any group over the largest; 1 if positives of all are found alike.

    Formula: min_g TP / (TP + FN) over max_g TP / (TP + FN).

    Parameters
    ----------
    threshold, zero_division, max_groups, on_invalid
        As for DemographicParityRatio.

    Notes
    -----
    Definition as fairlearn's `equal_opportunity_ratio` and torchmetrics' `BinaryFairness`; a group without positives,
    which these give a recall of 0, is left out and counted. Exact integers, rounded once. Some 60 bytes a group; about
    20 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> chance = sm.EqualOpportunityRatio(threshold=None)
    >>> chance.update([0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0], group=["a", "a", "a", "b", "b", "b"]).compute()
    0.5
    """

    about = About(formula="min over groups of TP / (TP + FN) over the max")

    rates = ("true_positive_rate",)


class EqualizedOddsRatio(FairnessRatio, tag="equalized_odds_ratio"):
    """Equalized odds ratio: the ratio between groups of recall, or of the false positive rate, whichever is less.

    Formula: min(min_g TPR / max_g TPR, min_g FPR / max_g FPR); `agg="mean"` takes the mean of both.

    Parameters
    ----------
    agg : {"worst_case", "mean"}
        The less of the two ratios, or their mean.
    threshold, zero_division, max_groups, on_invalid
        As for DemographicParityRatio.

    Notes
    -----
    Definition as fairlearn's `equalized_odds_ratio`; a group without positives, or without negatives, whose rate fairlearn
    takes for 0, is left out there and counted. Exact integers, rounded once. Some 60 bytes a group; about 20 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> odds = sm.EqualizedOddsRatio(threshold=None)
    >>> odds.update([0, 0, 1, 1, 1, 0], [1, 0, 1, 1, 0, 1], group=["a", "a", "a", "b", "b", "b"]).compute()
    0.5
    """

    about = About(formula="min of both ratios between groups, of TPR and of FPR")

    agg: str = setting(default="worst_case", choices=("worst_case", "mean"))

    rates = ("true_positive_rate", "false_positive_rate")

    @property
    def name(self) -> str:
        return super().name + ("" if self.agg == "worst_case" else "_mean")

    def of(self, state: GroupDecisions) -> float:
        if self.agg == "worst_case":
            return super().of(state)
        ratios = self._ratios(state)
        return to_float(sum(ratios, Fraction(0)), len(ratios)) if ratios else NAN
