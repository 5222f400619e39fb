"""Fairness of decisions across groups: the lowest rate (such as recall) of any group divided by the highest rate."""

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
"""A function that returns the numerator and the denominator of a rate, such as recall, from the counts of a group."""

RATES: dict[str, Rate] = {
    "selection_rate": lambda t: (t.tp + t.fp, sum(t)),
    "true_positive_rate": lambda t: (t.tp, t.tp + t.fn),
    "false_positive_rate": lambda t: (t.fp, t.fp + t.tn),
}


class FairnessRatio(ScoredLabels[GroupDecisions, float]):
    """Base class for metrics that divide the lowest rate (such as recall) of any group by the highest.

    Parameters
    ----------
    threshold : float or None
        A decision is positive if `score >= threshold`. With None, the decisions are taken from `y_pred`.
    zero_division : {nan, 0.0, 1.0}
        The value if the highest rate is 0, for example because no group has a positive decision.
    max_groups : int
        The maximum number of groups. An update that would exceed it raises MemoryLimitError, and none of its rows are
        counted.
    """

    about = About(
        best="high",
        cost="about 60 bytes per group; about 20 ns per row",
        bound="exact: the value is computed from counts and rounded once",
        no_interval_reason=(
            "the value compares the smallest and the largest of several rates; Sliced(Recall(), by=) has an "
            "interval for each rate"
        ),
    )

    threshold: float | None = setting(default=0.5)
    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))
    max_groups: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    rates: ClassVar[tuple[str, ...]] = ()
    """The rates that are compared between groups, such as recall."""

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            The labels, 0 or 1; or a mapping, data frame or Arrow table that contains the columns by name.
        y_score : array-like of shape (n,)
            Any finite scores; a decision is positive if `score >= threshold`. If `threshold=None`, pass the decisions as
            `y_pred`.
        **columns : array-like of shape (n,)
            `group`: integers, or strings of up to 40 bytes. `sample_weight`: 0, or between 2**-36 and 2**31. `y_true` and
            `y_score` may also be passed by name.

        Raises
        ------
        InvalidInputError
            A value is invalid, or the columns differ in length; no rows are counted. The message names the column, the
            first invalid row, and the number of invalid rows.
        MemoryLimitError
            There would be more than `max_groups` groups; no rows are counted.
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
        """Return the rate of each group, or None for groups where it is 0/0; `rate` is a key of `RATES`."""
        pairs = {group: RATES[rate](table) for group, table in state.tables(self._cut).items()}
        return {group: Fraction(a, b) if b else None for group, (a, b) in pairs.items()}

    def _ratio(self, state: GroupDecisions, rate: str) -> Fraction | None:
        """Return the lowest rate of any group divided by the highest, or `zero_division` if the highest rate is 0.

        Return None if `zero_division` is needed but is NaN, or if the rate is 0/0 in every group.
        """
        known = [r for r in self._rates(state, rate).values() if r is not None]
        if not known or not max(known):
            return None if self.zero_division != self.zero_division or not known else Fraction(self.zero_division)
        return min(known) / max(known)

    def _ratios(self, state: GroupDecisions) -> list[Fraction]:
        """Return min / max over groups for each of the `rates`, or an empty list if any ratio is undefined."""
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
    """The reading (value, bounds and details) of a metric that divides the lowest rate of any group by the highest.

    Its details, shown by `explain()`, contain the rates of all groups and the number of undefined rates.
    """

    def _details(self) -> dict[str, Any]:
        found = {rate: self.metric._rates(self.state, rate) for rate in self.metric.rates}
        named = {
            rate: {g: NAN if r is None else to_float(r) for g, r in rates.items()} for rate, rates in found.items()
        }
        return named | {"undefined": sum(r is None for rates in found.values() for r in rates.values())}


class DemographicParityRatio(FairnessRatio, tag="demographic_parity_ratio"):
    """Demographic parity ratio: the lowest share of positive decisions in any group divided by the highest; 1 is parity.

    Formula: min_g s_g / max_g s_g, where s_g is the share of positive decisions of group g, (TP + FP) / n_g.

    Notes
    -----
    The definition matches fairlearn's `demographic_parity_ratio` and torchmetrics' `BinaryFairness`; labels do not
    matter. `explain()` shows the rate of each group. The value is computed from exact integer counts and rounded once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parity = sm.DemographicParityRatio(threshold=None)
    >>> parity.update([0, 1, 0, 1, 1, 0], [1, 1, 0, 1, 0, 0], group=["a", "a", "a", "b", "b", "b"]).compute()
    0.5
    """

    about = About(formula="min_g s_g / max_g s_g, where s_g is (TP + FP) / (TP + TN + FP + FN) in group g")

    rates = ("selection_rate",)


class EqualOpportunityRatio(FairnessRatio, tag="equal_opportunity_ratio"):
    """Equal opportunity ratio: the lowest recall of any group divided by the highest; 1 if all recalls are equal.

    Formula: min_g r_g / max_g r_g, where r_g is the recall of group g, TP / (TP + FN).

    Notes
    -----
    The definition matches fairlearn's `equal_opportunity_ratio` and torchmetrics' `BinaryFairness`, except that groups
    without positives are left out; `explain()` counts them. In these libraries, such groups have a recall of 0. The
    value is computed from exact integer counts and rounded once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> chance = sm.EqualOpportunityRatio(threshold=None)
    >>> chance.update([0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0], group=["a", "a", "a", "b", "b", "b"]).compute()
    0.5
    """

    about = About(formula="min_g r_g / max_g r_g, where r_g is the recall TP / (TP + FN) in group g")

    rates = ("true_positive_rate",)


class EqualizedOddsRatio(FairnessRatio, tag="equalized_odds_ratio"):
    """Equalized odds ratio: the smaller of (lowest TPR / highest TPR) and (lowest FPR / highest FPR) among groups.

    Formula: min(min_g TPR / max_g TPR, min_g FPR / max_g FPR). With `agg="mean"` it is the mean of the two ratios.

    Parameters
    ----------
    agg : {"worst_case", "mean"}
        Whether the value is the smaller of the two ratios or their mean.

    Notes
    -----
    The definition matches fairlearn's `equalized_odds_ratio`, except for groups without a rate. A group without
    positives is left out of the ratio of TPRs, and a group without negatives out of the ratio of FPRs; `explain()`
    counts these groups. In fairlearn, their rate is 0. The value is computed from exact integer counts and rounded once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> odds = sm.EqualizedOddsRatio(threshold=None)
    >>> odds.update([0, 0, 1, 1, 1, 0], [1, 0, 1, 1, 0, 1], group=["a", "a", "a", "b", "b", "b"]).compute()
    0.5
    """

    about = About(formula="min(min_g TPR_g / max_g TPR_g, min_g FPR_g / max_g FPR_g) for groups g")

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
