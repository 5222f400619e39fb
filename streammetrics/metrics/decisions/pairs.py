"""Two labelings of the same rows, such as clusters and true classes, compared by pairs of rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import ScoredLabels
from ...numerics.exact import Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN, OwnReading, Reading
from ...statistics.found_classes import Contingency, FoundPairs

__all__ = ["AdjustedRandScore", "FowlkesMallowsIndex", "PairConfusionMatrix", "RandScore"]


class Labeling(ScoredLabels[FoundPairs, Any]):
    """A number read from how often each class of one labeling meets each of another, whatever these are called."""

    about = About(
        positional_columns=("y_true", "y_pred"),
        best="high",
        cost="some 100 bytes a pair of classes that occurs; 10 ns a row",
        bound="exact: counts, rounded once",
    )

    max_labels: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    def update(self, y_true: Any = None, y_pred: Any = None, /, **columns: Any) -> Any:
        """Count a batch.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n,)
            The class of each row in both labelings: integers, or texts of up to 40 bytes, in both alike. Or a mapping,
            data frame or Arrow table that holds the columns by name.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. The others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is bad, or lengths differ; the message names column, row and count, and nothing was counted.
        MemoryLimitError
            There would be more than `max_labels` classes; nothing was counted.
        """
        return super().update(y_true, y_pred, **columns)

    def make_state(self) -> FoundPairs:
        return FoundPairs(max_labels=self.max_labels)

    def read(self, state: FoundPairs) -> Reading:
        return OfLabelings(self, state, self.of)

    def reason(self, found: Any) -> str:
        """Return why the value of some rows is undefined, given their pairs of classes."""
        return "weights are not whole numbers of rows" if not _is_whole(found) else "0/0"

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        # The limits are as wide as rounded weights make them.
        return Fraction(0)


class OfLabelings(OwnReading):
    """The reading of two labelings: a function of their pairs of classes, undefined without rows."""

    def __init__(self, metric: Labeling, state: FoundPairs, value: Callable[[Contingency], Limits | None]) -> None:
        super().__init__(metric, state)
        self._value = value

    @cached_property
    def pairs(self) -> Contingency:
        """The pairs of classes."""
        found: Contingency = self.state.contingency()
        return found

    def _found(self) -> Limits | None:
        return self._value(self.pairs) if len(self.pairs.both) else None

    def _reason(self) -> str | None:
        if not len(self.pairs.both):
            return "no rows"
        reason: str | None = self.metric.reason(self.pairs) if self.found is None else None
        return reason


def _is_whole(found: Contingency) -> bool:
    """Whether all weights are whole numbers of rows."""
    return found.unit == 1 or not any(n % found.unit for n in found.both)


class RowPairs(NamedTuple):
    """Ordered pairs of two rows: apart in both labelings, together in the second, in the first, in both."""

    tn: int
    fp: int
    fn: int
    tp: int

    @classmethod
    def of(cls, found: Contingency) -> RowPairs | None:
        """Count them; None if weights are not whole numbers of rows, which make no pairs."""
        if not _is_whole(found):
            return None
        both, true, predicted = (part // found.unit for part in (found.both, found.true, found.predicted))
        total, together = int(both.sum()), int((both * both).sum())
        first, second = int((true * true).sum()), int((predicted * predicted).sum())
        return cls(total * total - first - second + together, second - together, first - together, together - total)

    @property
    def agree(self) -> bool:
        """Whether the labelings are one but for names."""
        return self.fp == self.fn == 0


class PairMetric(Labeling):
    """A number of pairs of rows: `of` takes the pairs of labelings that differ."""

    def read(self, state: FoundPairs) -> Reading:
        return OfLabelings(self, state, self._of_pairs)

    def _of_pairs(self, found: Contingency) -> Limits | None:
        """Return the value of the pairs of rows; 1 for labelings that differ only in names."""
        pairs = RowPairs.of(found)
        if pairs is None:
            return None
        limits: Limits | None = Limits.exactly(1) if pairs.agree else self.of(pairs)
        return limits


class RandScore(PairMetric, tag="rand_score"):
    """Rand index of two labelings: the share of pairs of rows on which they agree, to be together or apart.

    Formula: (pairs together in both + pairs apart in both) / all pairs of rows.

    Parameters
    ----------
    max_labels : int
        How many classes may be found in both; MemoryLimitError beyond, and nothing was counted.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Definition as scikit-learn's `rand_score`: 1 for labelings that are one but for names, of a lone row, too. A row of
    weight k counts as k rows; undefined for other weights than whole numbers. Exact integers, one division. Some 100 bytes
    a pair of classes that occurs; 10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RandScore().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    0.8333333333333334
    """

    about = About(formula="pairs of rows on which both agree / pairs of rows")

    def of(self, pairs: RowPairs) -> Limits | None:
        return Limits.exactly(pairs.tn + pairs.tp, sum(pairs))


class AdjustedRandScore(PairMetric, tag="adjusted_rand_score"):
    """Adjusted Rand index of two labelings: the Rand index beyond what chance makes, at most 1; 0 by chance.

    Formula: 2 (tp tn - fn fp) / ((tp + fn)(fn + tn) + (tp + fp)(fp + tn)) of pairs of rows: tp together in both, tn apart
    in both, fn together in the first alone, fp in the second alone.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `adjusted_rand_score`; weights as for RandScore. Exact integers, one division. Some 100
    bytes a pair of classes that occurs; 10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.AdjustedRandScore().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    0.5714285714285714
    """

    about = About(formula="2 (tp tn - fn fp) / ((tp + fn)(fn + tn) + (tp + fp)(fp + tn)) of pairs of rows")

    def of(self, pairs: RowPairs) -> Limits | None:
        tn, fp, fn, tp = pairs
        return Limits.exactly(2 * (tp * tn - fn * fp), (tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))


class FowlkesMallowsIndex(PairMetric, tag="fowlkes_mallows_index"):
    """Fowlkes-Mallows index of two labelings: the geometric mean of precision and recall on pairs of rows.

    Formula: tp / sqrt((tp + fp)(tp + fn)) of pairs of rows, as for AdjustedRandScore.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    scikit-learn's `fowlkes_mallows_score`, but of labelings in which no two rows are together 1 (there 0): they agree. Of
    decisions it is FowlkesMallows. Weights as for RandScore. Exact integers, one square root. Some 100 bytes a pair of
    classes that occurs; 10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FowlkesMallowsIndex().update([0, 0, 0, 1], [0, 0, 1, 1]).compute()
    0.408248290463863
    """

    about = About(formula="tp / sqrt((tp + fp)(tp + fn)) of pairs of rows")

    def of(self, pairs: RowPairs) -> Limits | None:
        if not pairs.tp:
            return Limits.exactly(0)
        return Limits.root(Fraction(pairs.tp**2, (pairs.tp + pairs.fp) * (pairs.tp + pairs.fn)))


class PairConfusionMatrix(Labeling, tag="pair_confusion_matrix"):
    """Pair confusion matrix of two labelings: ordered pairs of rows by whether both are together in each.

    Formula: [[apart in both, together in the second alone], [together in the first alone, together in both]].

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as scikit-learn's `pair_confusion_matrix`: every pair counts twice. Weights as for RandScore: NaN where they
    are not whole. Exact integers, as float64. Some 100 bytes a pair of classes that occurs; 10 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PairConfusionMatrix().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    array([[8., 0.],
           [2., 2.]])
    """

    about = About(
        best=None,
        no_interval_reason="a matrix has no one standard error; Sharded(AdjustedRandScore(), unit=) has an interval",
        formula="ordered pairs of rows: [[apart in both, together in the second], [in the first, in both]]",
    )

    def read(self, state: FoundPairs) -> Reading:
        found = state.contingency()
        pairs = RowPairs.of(found)
        matrix = np.full((2, 2), NAN) if pairs is None else self.of(pairs)
        reason = self.reason(found) if pairs is None else None
        return Reading(state, matrix, bounds=lambda: (matrix, matrix), reason=lambda: reason)

    def of(self, pairs: RowPairs) -> NDArray[Any]:
        return np.array([to_float(n) for n in pairs]).reshape(2, 2)
