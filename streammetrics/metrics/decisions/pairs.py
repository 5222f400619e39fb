"""Metrics that compare two labelings of the same rows, such as clusters and true classes, by counting pairs of rows."""

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
from ...statistics.discovered_classes import Contingency, DiscoveredPairs

__all__ = ["AdjustedRandScore", "FowlkesMallowsIndex", "PairConfusionMatrix", "RandScore"]


class Labeling(ScoredLabels[DiscoveredPairs, Any]):
    """Base class for metrics that are computed from the contingency table of two labelings.

    Only the partition of the rows matters, not the class names.

    Parameters
    ----------
    max_labels : int
        The maximum number of distinct labels in both columns together. An update that would exceed it raises
        MemoryLimitError, and none of its rows are counted.
    """

    about = About(
        positional_columns=("y_true", "y_pred"),
        best="high",
        cost="about 100 bytes per pair of classes that occurs; 10 ns per row",
        bound="exact: the value is computed from counts and rounded once",
    )

    max_labels: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    def update(self, y_true: Any = None, y_pred: Any = None, /, **columns: Any) -> Any:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n,)
            The class of each row in each labeling: integers, or strings of up to 40 bytes, of the same type in both.
            Alternatively, `y_true` can be a mapping, data frame or Arrow table that contains the columns by name.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. `y_true` and `y_pred` may also be passed by name.

        Raises
        ------
        InvalidInputError
            A value is invalid, or the columns differ in length; no rows are counted. The message names the column, the
            first invalid row, and the number of invalid rows.
        MemoryLimitError
            There would be more than `max_labels` classes; no rows are counted.
        """
        return super().update(y_true, y_pred, **columns)

    def make_state(self) -> DiscoveredPairs:
        return DiscoveredPairs(max_labels=self.max_labels)

    def read(self, state: DiscoveredPairs) -> Reading:
        return OfLabelings(self, state, self.of)

    def reason(self, contingency: Any) -> str:
        """Return the reason why the value is undefined although there are rows."""
        return "weights are not whole numbers of rows" if not _is_whole(contingency) else "0/0"

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        # No slack is needed, because the bounds that `of` returns already allow for the rounding of weights.
        return Fraction(0)


class OfLabelings(OwnReading):
    """The reading (value and bounds) of a metric that is computed from the contingency table of two labelings.

    `value` is the function that computes the value and its bounds from the table. The value is undefined without rows.
    """

    def __init__(self, metric: Labeling, state: DiscoveredPairs, value: Callable[[Contingency], Limits | None]) -> None:
        super().__init__(metric, state)
        self._value = value

    @cached_property
    def pairs(self) -> Contingency:
        """The contingency table of the two labelings, computed only once."""
        found: Contingency = self.state.contingency()
        return found

    def _raw_value(self) -> Limits | None:
        return self._value(self.pairs) if len(self.pairs.joint) else None

    def _reason(self) -> str | None:
        if not len(self.pairs.joint):
            return "no rows"
        reason: str | None = self.metric.reason(self.pairs) if self.raw_value is None else None
        return reason


def _is_whole(contingency: Contingency) -> bool:
    """Return whether the total weight of each pair of classes is a whole number of rows."""
    return contingency.unit == 1 or not any(n % contingency.unit for n in contingency.joint)


class RowPairs(NamedTuple):
    """The numbers of ordered pairs of rows that are together or apart in each of two labelings.

    Two rows are together in a labeling if they have the same class, and apart otherwise.

    `tn` pairs are apart in both labelings, and `tp` pairs are together in both. `fn` pairs are together in the first
    labeling only, and `fp` pairs in the second only.
    """

    tn: int
    fp: int
    fn: int
    tp: int

    @classmethod
    def of(cls, contingency: Contingency) -> RowPairs | None:
        """Count the pairs from a contingency table.

        Return None if weights are not whole numbers, because pairs of fractions of rows are not defined.
        """
        if not _is_whole(contingency):
            return None
        both, true, predicted = (
            part // contingency.unit for part in (contingency.joint, contingency.true, contingency.predicted)
        )
        # A class of n rows has n**2 ordered pairs, of which n pair a row with itself.
        total, together = int(both.sum()), int((both * both).sum())
        first, second = int((true * true).sum()), int((predicted * predicted).sum())
        return cls(total * total - first - second + together, second - together, first - together, together - total)

    @property
    def agree(self) -> bool:
        """Whether the two labelings are equal, except possibly for the class names."""
        return self.fp == self.fn == 0


class PairMetric(Labeling):
    """Base class for metrics that are computed from counts of row pairs.

    The value is 1 for labelings that differ only in class names. For all others, `of` computes the value.
    """

    def read(self, state: DiscoveredPairs) -> Reading:
        return OfLabelings(self, state, self._of_pairs)

    def _of_pairs(self, contingency: Contingency) -> Limits | None:
        """Return the value with its bounds for a contingency table, or None if weights are not whole numbers."""
        pairs = RowPairs.of(contingency)
        if pairs is None:
            return None
        limits: Limits | None = Limits.exactly(1) if pairs.agree else self.of(pairs)
        return limits


class RandScore(PairMetric, tag="rand_score"):
    """Rand index of two labelings: the share of pairs of rows that are together in both labelings or apart in both.

    Formula: (pairs together in both + pairs apart in both) / all pairs of rows. A pair of rows is together in a labeling
    if both rows have the same class, and apart otherwise.

    Notes
    -----
    The definition matches scikit-learn's `rand_score`. The value is 1 for labelings that differ only in class names,
    even for a single row. A row of weight k counts as k rows. The value is exact up to one rounding, because exact
    integer counts are divided only once. The value is undefined if weights are not whole numbers.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RandScore().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    0.8333333333333334
    """

    about = About(formula="(pairs of rows on which both labelings agree) / (all pairs of rows)")

    def of(self, pairs: RowPairs) -> Limits | None:
        return Limits.exactly(pairs.tn + pairs.tp, sum(pairs))


class AdjustedRandScore(PairMetric, tag="adjusted_rand_score"):
    """Adjusted Rand index: the Rand index of two labelings corrected for chance, at most 1; about 0 for random labelings.

    Formula: 2 * (tp * tn - fn * fp) / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn)) for pairs of rows: tp pairs are
    together in both labelings, tn apart in both, fn together in the first one only, and fp in the second one only.

    Notes
    -----
    The definition matches scikit-learn's `adjusted_rand_score`. A row of weight k counts as k rows, and the value is
    undefined if weights are not whole numbers. The value is exact up to one rounding, because exact integer counts are
    divided only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.AdjustedRandScore().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    0.5714285714285714
    """

    about = About(
        formula=(
            "2 (tp tn - fn fp) / ((tp + fn)(fn + tn) + (tp + fp)(fp + tn)), from PairConfusionMatrix [[tn, fp], [fn, "
            "tp]]"
        )
    )

    def of(self, pairs: RowPairs) -> Limits | None:
        tn, fp, fn, tp = pairs
        return Limits.exactly(2 * (tp * tn - fn * fp), (tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))


class FowlkesMallowsIndex(PairMetric, tag="fowlkes_mallows_index"):
    """Fowlkes-Mallows index of two labelings: the geometric mean of precision and recall over pairs of rows.

    Formula: tp / sqrt((tp + fp) * (tp + fn)) for pairs of rows: tp pairs are together in both labelings, fn in the
    first one only, and fp in the second one only.

    Notes
    -----
    The definition matches scikit-learn's `fowlkes_mallows_score`, with one difference. If every class of both
    labelings has a single row, the labelings agree, so the value is 1; scikit-learn returns 0. For decisions, use
    FowlkesMallows. A row of weight k counts as k rows, and the value is undefined if weights are not whole numbers. The
    value is computed from exact integer counts; only the square root is rounded.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FowlkesMallowsIndex().update([0, 0, 0, 1], [0, 0, 1, 1]).compute()
    0.408248290463863
    """

    about = About(formula="tp / sqrt((tp + fp)(tp + fn)), from PairConfusionMatrix [[tn, fp], [fn, tp]]")

    def of(self, pairs: RowPairs) -> Limits | None:
        if not pairs.tp:
            return Limits.exactly(0)
        return Limits.root(Fraction(pairs.tp**2, (pairs.tp + pairs.fp) * (pairs.tp + pairs.fn)))


class PairConfusionMatrix(Labeling, tag="pair_confusion_matrix"):
    """Pair confusion matrix: ordered pairs of rows, counted by whether each labeling puts both rows in the same class.

    Formula: [[apart in both, together in the second only], [together in the first only, together in both]]. Two rows
    are together in a labeling if they have the same class, and apart otherwise.

    Notes
    -----
    The definition matches scikit-learn's `pair_confusion_matrix`: every pair is counted twice. A row of weight k
    counts as k rows; the matrix is NaN if weights are not whole numbers. The counts are exact integers, returned as
    float64.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PairConfusionMatrix().update([0, 0, 1, 1], [0, 0, 1, 2]).compute()
    array([[8., 0.],
           [2., 2.]])
    """

    about = About(
        best=None,
        no_interval_reason="a matrix has no single standard error; Sharded(AdjustedRandScore(), unit=) has an interval",
        formula=(
            "[[tn, fp], [fn, tp]], where tp pairs are in one class in both labelings, fn only in the first, fp only in "
            "the second, and tn in neither"
        ),
    )

    def read(self, state: DiscoveredPairs) -> Reading:
        found = state.contingency()
        pairs = RowPairs.of(found)
        matrix = np.full((2, 2), NAN) if pairs is None else self.of(pairs)
        reason = self.reason(found) if pairs is None else None
        return Reading(state, matrix, bounds=lambda: (matrix, matrix), reason=lambda: reason)

    def of(self, pairs: RowPairs) -> NDArray[Any]:
        return np.array([to_float(n) for n in pairs]).reshape(2, 2)
