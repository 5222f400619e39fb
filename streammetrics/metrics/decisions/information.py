"""Two labelings of the same rows compared by what one tells of the other: entropies, mutual information."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import Reading
from ...statistics.found_classes import Contingency, FoundPairs
from .entropies import MOST_ROWS, Entropies, averaged, expected, less, over
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
TOO_MANY = "more than 2**32 rows: what chance makes takes too long"


class InformationMetric(Labeling):
    """A number of what two labelings tell of each other."""

    about = About(bound="certified: logarithms are rounded, which moves the value by some 2**-50")


class SharedInformation(InformationMetric):
    """A share, 1 at most, of the entropies of labelings that differ, which `of` takes; 1 if they are one but for names."""

    def read(self, state: FoundPairs) -> Reading:
        return OfLabelings(self, state, self._of_entropies)

    def _of_entropies(self, found: Contingency) -> Limits | None:
        """Return the share of the entropies of two labelings."""
        return Limits.exactly(1) if _is_one(found) else _at_most_one(self.of(Entropies.of(found)))


def _is_one(found: Contingency) -> bool:
    """Return whether two labelings differ only in the names of their classes."""
    return len(found.both) == len(found.true) == len(found.predicted)


def _at_most_one(found: Limits | None) -> Limits | None:
    """Return a share, whose limits may reach beyond 1 before."""
    return None if found is None else Limits(*(min(x, Fraction(1)) for x in found))


class ChanceMetric(InformationMetric):
    """What asks for all permutations of a labeling: of whole numbers of rows, and not too many."""

    def read(self, state: FoundPairs) -> Reading:
        return OfLabelings(self, state, self._of_rows)

    def _of_rows(self, found: Contingency) -> Limits | None:
        """Return the value of whole rows; None of others."""
        if any(n % found.unit for n in (*found.true, *found.predicted)):
            return None
        limits: Limits | None = self.of(found)
        return limits

    def reason(self, found: Any) -> str:
        return TOO_MANY if found.total // found.unit > MOST_ROWS else super().reason(found)


class WithMean(InformationMetric):
    """A number of labelings that sets what they have in common beside the mean of their entropies."""

    average_method: str = setting(default="arithmetic", choices=METHODS)

    @property
    def name(self) -> str:
        return self.about.tag + ("" if self.average_method == "arithmetic" else f"_{self.average_method}")


class MutualInformation(InformationMetric, tag="mutual_information"):
    """Mutual information of two labelings: how much one tells of the other, in nats.

    Formula: sum over pairs of classes of p_jk log(p_jk / (p_j p_k)), shares of all rows.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `mutual_info_score`. Terms are rounded, and summed exactly; `bounds()` says how far off
    that can be, some 2**-50. Some 100 bytes a pair of classes that occurs; 10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MutualInformation().update([0, 0, 1, 1], [7, 7, 9, 9]).compute()
    0.6931471805599453
    """

    about = About(formula="sum of p_jk log(p_jk / (p_j p_k))")

    def of(self, found: Contingency) -> Limits:
        return Entropies.of(found).mutual


class ExpectedMutualInformation(ChanceMetric, tag="expected_mutual_information"):
    """Expected mutual information: what labelings with as many rows in each class have by chance, in nats.

    Formula: the mean of MutualInformation over all permutations of one of the labelings.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `expected_mutual_information`; what AdjustedMutualInformation takes away. A row of weight
    k counts as k rows; undefined for other weights than whole numbers, and of more than 2**32 rows. `bounds()` says what
    rounding can do. Memory as for RandScore; to compute it takes the classes of one labeling times those of the other (of
    different sizes) times some standard deviations of what two have in common, at most the root of the rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ExpectedMutualInformation().update([0, 0, 1, 1], [0, 1, 1, 1]).compute(), 6)
    0.215762
    """

    about = About(best=None, formula="the mean of the mutual information over permutations of one labeling")

    def of(self, found: Contingency) -> Limits | None:
        if len(found.true) == 1 or len(found.predicted) == 1:
            return Limits.exactly(0)
        return expected(found)


class NormalizedMutualInformation(WithMean, SharedInformation, tag="normalized_mutual_information"):
    """Normalised mutual information of two labelings: over the mean of both entropies, from 0 to 1.

    Formula: I / mean(H_true, H_pred).

    Parameters
    ----------
    average_method : {"arithmetic", "geometric", "min", "max"}
        Which mean of the entropies.
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `normalized_mutual_info_score`: 1 for labelings that are one but for names, 0 where one
    has a single class. Exactness, cost and memory as for MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NormalizedMutualInformation().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.8
    """

    about = About(formula="I / mean(H_true, H_pred)")

    def of(self, found: Entropies) -> Limits | None:
        if not found.mutual.high:
            return Limits.exactly(0)
        return over(found.mutual, averaged(found.true, found.predicted, self.average_method))


class AdjustedMutualInformation(WithMean, ChanceMetric, tag="adjusted_mutual_information"):
    """Adjusted mutual information of two labelings: beyond what chance makes, at most 1; 0 by chance.

    Formula: (I - E) / (mean(H_true, H_pred) - E), where E is ExpectedMutualInformation.

    Parameters
    ----------
    average_method : {"arithmetic", "geometric", "min", "max"}
        Which mean of the entropies.
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `adjusted_mutual_info_score`: 1 for labelings that are one but for names, 0 where one has
    a single class. Where one has a class for each row I is E, and the value 0; with "min" it is 0/0, of which scikit-learn
    makes 1 or -1. Weights, exactness and cost as for ExpectedMutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.AdjustedMutualInformation().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.571429
    """

    about = About(formula="(I - E) / (mean(H_true, H_pred) - E)")

    def of(self, found: Contingency) -> Limits | None:
        sides = found.true, found.predicted
        if _is_one(found):
            return Limits.exactly(1)
        if any(len(side) == 1 for side in sides):
            return Limits.exactly(0)
        if any((side == found.unit).all() for side in sides):
            return None if self.average_method == "min" else Limits.exactly(0)
        known, chance = Entropies.of(found), expected(found)
        if chance is None:
            return None
        most = averaged(known.true, known.predicted, self.average_method)
        return _at_most_one(over(less(known.mutual, chance), less(most, chance)))


class Homogeneity(SharedInformation, tag="homogeneity"):
    """Homogeneity: how far each predicted class, or cluster, holds rows of one true class only; from 0 to 1.

    Formula: I / H_true; 1 if there is one true class.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `homogeneity_score`. Exactness, cost and memory as for MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Homogeneity().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    1.0
    """

    about = About(formula="I / H_true")

    def of(self, found: Entropies) -> Limits | None:
        return over(found.mutual, found.true) if found.true.high else Limits.exactly(1)


class Completeness(SharedInformation, tag="completeness"):
    """Completeness: how far the rows of each true class are in one predicted class, or cluster; from 0 to 1.

    Formula: I / H_pred; 1 if there is one predicted class.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `completeness_score`. Exactness, cost and memory as for MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.Completeness().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.666667
    """

    about = About(formula="I / H_pred")

    def of(self, found: Entropies) -> Limits | None:
        return over(found.mutual, found.predicted) if found.predicted.high else Limits.exactly(1)


class VMeasure(SharedInformation, tag="v_measure"):
    """V-measure: the harmonic mean of homogeneity and completeness, completeness counting beta times as much.

    Formula: (1 + beta) h c / (beta h + c) = (1 + beta) I / (beta H_pred + H_true).

    Parameters
    ----------
    beta : float
        The weight of completeness: above 1 it counts more, below 1 homogeneity does.
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `v_measure_score`; with beta = 1 NormalizedMutualInformation. Exactness, cost and memory
    as for MutualInformation.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.VMeasure().update([0, 0, 1, 1], [0, 0, 1, 2]).compute(), 6)
    0.8
    """

    about = About(formula="(1 + beta) I / (beta H_pred + H_true)")

    beta: float = setting(default=1.0, low=0.0, high=1e100)

    @property
    def name(self) -> str:
        return self.about.tag if self.beta == 1 else f"v{self.beta:g}_measure"

    def of(self, found: Entropies) -> Limits | None:
        beta = Fraction(self.beta)
        both = Limits(*(beta * p + t for p, t in zip(found.predicted, found.true, strict=True)))
        mutual = Limits(*((1 + beta) * x for x in found.mutual))
        return over(mutual, both) if both.high else Limits.exactly(1)
