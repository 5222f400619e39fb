"""Mutual information of two labelings of the same rows, and scores derived from it, such as homogeneity."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import Reading
from ...statistics.discovered_classes import Contingency, DiscoveredPairs
from .entropies import MOST_ROWS, Entropies, average_entropies, divide_by_positive, expect_mutual_information, less
from .pairs import Labeling, OfLabelings

__all__ = [
    "AdjustedMutualInformation",
    "Completeness",
    "ExpectedMutualInformation",
    "Homogeneity",
    "MutualInformation",
    "NormalizedMutualInformation",
    "VMeasure",
]

METHODS = ("arithmetic", "geometric", "min", "max")
TOO_MANY = "more than 2**32 rows: computing the value expected by chance would take too long"


class InformationMetric(Labeling):
    """Base class for metrics of the information that two labelings share. The bounds allow for rounding errors."""

    about = About(bound="within about 2**-50 of the value, because logarithms are rounded")


class SharedInformation(InformationMetric):
    """Base class for scores of at most 1 that are computed from entropies.

    In a subclass, `of` computes the score from `Entropies`. The score is exactly 1 for labelings that differ only in
    class names.
    """

    def read(self, state: DiscoveredPairs) -> Reading:
        return OfLabelings(self, state, self._of_entropies)

    def _of_entropies(self, table: Contingency) -> Limits | None:
        """Return the score with its bounds; `table` is the contingency table of the two labelings."""
        return Limits.exactly(1) if _is_one(table) else _at_most_one(self.of(Entropies.of(table)))


def _is_one(table: Contingency) -> bool:
    """Return whether two labelings differ only in class names; `table` is their contingency table."""
    return len(table.joint) == len(table.true) == len(table.predicted)


def _at_most_one(score: Limits | None) -> Limits | None:
    """Return the value and bounds of a score, each capped at 1."""
    return None if score is None else Limits(*(min(x, Fraction(1)) for x in score))


class ChanceMetric(InformationMetric):
    """Base class for metrics that need the mean mutual information over all permutations of one labeling.

    The value is undefined if weights are not whole numbers or there are more than MOST_ROWS rows.
    """

    about = About(
        bound=(
            "the bounds allow for rounding errors, which grow with the number of rows: about 2**-44 for 100 rows, "
            "and 2**-36 for 2 million rows"
        )
    )

    def read(self, state: DiscoveredPairs) -> Reading:
        return OfLabelings(self, state, self._of_rows)

    def _of_rows(self, table: Contingency) -> Limits | None:
        """Return the value for a contingency table if all class sizes are whole numbers of rows, or None otherwise."""
        if any(n % table.unit for n in (*table.true, *table.predicted)):
            return None
        limits: Limits | None = self.of(table)
        return limits

    def reason(self, table: Any) -> str:
        return TOO_MANY if table.total // table.unit > MOST_ROWS else super().reason(table)


class WithMean(InformationMetric):
    """Base class for metrics that normalize mutual information by a mean of the entropies of the two labelings.

    Parameters
    ----------
    average_method : {"arithmetic", "geometric", "min", "max"}
        The kind of mean of the two entropies to use as the denominator.
    """

    average_method: str = setting(default="arithmetic", choices=METHODS)

    @property
    def name(self) -> str:
        return self.about.tag + ("" if self.average_method == "arithmetic" else f"_{self.average_method}")


class MutualInformation(InformationMetric, tag="mutual_information"):
    """Mutual information of two labelings: the information that one labeling gives about the other, in nats.

    Formula: sum over pairs of classes of p_jk * log(p_jk / (p_j * p_k)). Here p_jk, p_j and p_k are the shares of all
    rows that are in both classes j and k, in class j, and in class k.

    Notes
    -----
    The definition matches scikit-learn's `mutual_info_score`. Terms are rounded, and their sum is exact; `bounds()`
    gives certified bounds, which are within about 2**-50 of the value.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MutualInformation().update([0, 0, 1, 1], [7, 7, 9, 9]).compute()
    0.6931471805599453
    """

    about = About(
        formula="sum of p_jk log(p_jk / (p_j p_k)) over pairs of classes j and k, for shares of rows p_jk, p_j and p_k"
    )

    def of(self, table: Contingency) -> Limits:
        return Entropies.of(table).mutual


class ExpectedMutualInformation(ChanceMetric, tag="expected_mutual_information"):
    """Expected mutual information, in nats: the mean over random labelings with the same class sizes.

    Formula: the mean of MutualInformation over all permutations of one of the labelings.

    Notes
    -----
    The definition matches scikit-learn's `expected_mutual_information`. AdjustedMutualInformation uses this value to
    correct for chance. A row of weight k counts as k rows. `bounds()` allows for rounding errors. The state takes about
    100 bytes per pair of classes that occurs. The time for `compute()` grows with the number of pairs of distinct class
    sizes, one from each labeling. The time for each pair is at most proportional to the square root of the number of
    rows. The value is undefined if weights are not whole numbers or there are more than 2**32 rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ExpectedMutualInformation().update([0, 0, 1, 1], [0, 1, 1, 1]).compute(), 6)
    0.215762
    """

    about = About(best=None, formula="mean of the mutual information over all permutations of one labeling")

    def of(self, table: Contingency) -> Limits | None:
        if len(table.true) == 1 or len(table.predicted) == 1:
            return Limits.exactly(0)
        return expect_mutual_information(table)


class NormalizedMutualInformation(WithMean, SharedInformation, tag="normalized_mutual_information"):
    """Normalized mutual information: mutual information divided by the mean entropy of both labelings, from 0 to 1.

    Formula: I / mean(H_true, H_pred), with mutual information I and entropies H_true and H_pred.

    Notes
    -----
    The definition matches scikit-learn's `normalized_mutual_info_score`. The value is 1 for labelings that differ only
    in class names, and 0 if one labeling has a single class. Exactness, memory and time are the same as for
    MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NormalizedMutualInformation().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.8
    """

    about = About(formula="I / mean(H_true, H_pred), with mutual information I and entropies H_true and H_pred")

    def of(self, entropies: Entropies) -> Limits | None:
        if not entropies.mutual.high:
            return Limits.exactly(0)
        return divide_by_positive(
            entropies.mutual, average_entropies(entropies.true, entropies.predicted, self.average_method)
        )


class AdjustedMutualInformation(WithMean, ChanceMetric, tag="adjusted_mutual_information"):
    """Adjusted mutual information: mutual information corrected for chance, at most 1, and about 0 for random labelings.

    Formula: (I - E) / (mean(H_true, H_pred) - E), with mutual information I, its value E expected by chance
    (ExpectedMutualInformation), and entropies H_true and H_pred.

    Notes
    -----
    The definition matches scikit-learn's `adjusted_mutual_info_score`. The value is 1 for labelings that differ only in
    class names, and 0 if one labeling has a single class. If in one labeling each row has its own class, I equals E, so
    the value is 0. In this case, `average_method="min"` gives 0/0, so the value is undefined, whereas scikit-learn
    returns 1 or -1. Weights, exactness, memory and time are the same as for ExpectedMutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.AdjustedMutualInformation().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.571429
    """

    about = About(
        formula="(I - E) / (mean(H_true, H_pred) - E), with mutual information I, its mean by chance E, and entropies H"
    )

    def of(self, table: Contingency) -> Limits | None:
        sides = table.true, table.predicted
        if _is_one(table):
            return Limits.exactly(1)
        if any(len(side) == 1 for side in sides):
            return Limits.exactly(0)
        if any((side == table.unit).all() for side in sides):
            return None if self.average_method == "min" else Limits.exactly(0)
        known, chance = Entropies.of(table), expect_mutual_information(table)
        if chance is None:
            return None
        most = average_entropies(known.true, known.predicted, self.average_method)
        return _at_most_one(divide_by_positive(less(known.mutual, chance), less(most, chance)))


class Homogeneity(SharedInformation, tag="homogeneity"):
    """Homogeneity: the degree to which each predicted class (cluster) contains rows of only one true class; from 0 to 1.

    Formula: I / H_true, with mutual information I and entropy H_true of the true classes, or 1 if there is only one
    true class.

    Notes
    -----
    The definition matches scikit-learn's `homogeneity_score`. Exactness, memory and time are the same as for
    MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Homogeneity().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    1.0
    """

    about = About(formula="I / H_true, with mutual information I and entropy H_true of the true classes")

    def of(self, entropies: Entropies) -> Limits | None:
        return divide_by_positive(entropies.mutual, entropies.true) if entropies.true.high else Limits.exactly(1)


class Completeness(SharedInformation, tag="completeness"):
    """Completeness: the degree to which the rows of each true class are in one predicted class (cluster); from 0 to 1.

    Formula: I / H_pred, with mutual information I and entropy H_pred of the predicted classes, or 1 if there is only
    one predicted class.

    Notes
    -----
    The definition matches scikit-learn's `completeness_score`. Exactness, memory and time are the same as for
    MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.Completeness().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.666667
    """

    about = About(formula="I / H_pred, with mutual information I and entropy H_pred of the predicted classes")

    def of(self, entropies: Entropies) -> Limits | None:
        return (
            divide_by_positive(entropies.mutual, entropies.predicted) if entropies.predicted.high else Limits.exactly(1)
        )


class VMeasure(SharedInformation, tag="v_measure"):
    """V-measure: the weighted harmonic mean of homogeneity (weight 1) and completeness (weight beta).

    Formula: (1 + beta) * h * c / (beta * h + c), with homogeneity h and completeness c. It equals (1 + beta) * I /
    (beta * H_pred + H_true), with mutual information I and entropies H_pred and H_true.

    Parameters
    ----------
    beta : float
        The weight of completeness relative to homogeneity.

    Notes
    -----
    The definition matches scikit-learn's `v_measure_score`. With beta = 1, the value equals NormalizedMutualInformation.
    Exactness, memory and time are the same as for MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.VMeasure().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.8
    """

    about = About(formula="(1 + beta) h c / (beta h + c), with homogeneity h and completeness c")

    beta: float = setting(default=1.0, low=0.0, high=1e100)

    @property
    def name(self) -> str:
        return self.about.tag if self.beta == 1 else f"v{self.beta:g}_measure"

    def of(self, entropies: Entropies) -> Limits | None:
        beta = Fraction(self.beta)
        both = Limits(*(beta * p + t for p, t in zip(entropies.predicted, entropies.true, strict=True)))
        mutual = Limits(*((1 + beta) * x for x in entropies.mutual))
        return divide_by_positive(mutual, both) if both.high else Limits.exactly(1)
