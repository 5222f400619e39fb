"""Metrics of rows of several 0/1 labels that look at all labels of a row together.

Values of each label, and their averages, are those of two classes: `AUC(num_labels=...)`, `F1(num_labels=...)`. NDCG of
the labels of a row is `NDCG`, to which a matrix is a query a row.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...collect.metric import ScoredLabels, nothing_counted
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Reading
from ...statistics.row_means import LabelRows
from ..standard_errors import mean

__all__ = [
    "CoverageError",
    "LabelRankingAveragePrecision",
    "LabelRankingLoss",
]


class LabelRowMetric(ScoredLabels[LabelRows, float]):
    """The mean over rows of a number that a row of labels and scores has."""

    about = About(
        cost="552 bytes; about 10 ns a label, to sort them",
        bound="exact: rows rounded once, summed exactly, rounded once",
        example={"num_labels": 3},
    )

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)

    term: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_labels is None:
            raise ValueError(f"{type(self).__name__}: say how many labels a row has, num_labels=")

    def make_state(self) -> LabelRows:
        assert self.num_labels is not None
        return LabelRows(terms=(self.term,), num_labels=self.num_labels)

    def of(self, state: LabelRows) -> float:
        return to_float(state.total(self.term), state.weight())

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        return mean(found.value, state.spread_of(self.term), about_of(self).interval_scale, method)

    def reason(self, state: Any) -> str | None:
        return nothing_counted(state)


class CoverageError(LabelRowMetric, tag="coverage_error"):
    """Coverage error: how far down the ranking of labels one must go to meet all that are true.

    Formula: mean over rows of the number of labels whose score is at least the lowest of a true one; 0 for a row without.

    Parameters
    ----------
    num_labels : int
        How many 0/1 labels a row has; `y_true` and `y_score` are rows x labels.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Definition as scikit-learn's `coverage_error`, ties and weights included: the best value is the mean number of true
    labels. Exact. 552 bytes; about 10 ns a label.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CoverageError(num_labels=3).update([[1, 0, 0], [0, 0, 1]], [[0.75, 0.5, 1], [1, 0.2, 0.1]]).compute()
    2.5
    """

    about = About(best="low", formula="mean number of labels that score at least as high as the lowest true one")

    term = "coverage"


class LabelRankingAveragePrecision(LabelRowMetric, tag="label_ranking_average_precision"):
    """Label ranking average precision: of the labels ranked at or above each true one, the mean share that is true.

    Formula: mean over rows of the mean over true labels of (true labels that score at least as high) / (labels that do).

    Parameters
    ----------
    num_labels, on_invalid
        As for CoverageError.

    Notes
    -----
    Definition as scikit-learn's `label_ranking_average_precision_score`, ties and weights included; a row without true
    labels, or without others, counts 1. Exact but for the rounding of each row. 552 bytes; about 10 ns a label.

    Examples
    --------
    >>> import streammetrics as sm
    >>> lrap = sm.LabelRankingAveragePrecision(num_labels=3)
    >>> round(lrap.update([[1, 0, 0], [0, 0, 1]], [[0.75, 0.5, 1], [1, 0.2, 0.1]]).compute(), 4)
    0.4167
    """

    about = About(
        best="high",
        interval_scale="logit",
        formula="mean over rows and true labels of (true labels scored as high) / (labels scored as high)",
    )

    term = "precision"


class LabelRankingLoss(LabelRowMetric, tag="label_ranking_loss"):
    """Label ranking loss: the share of pairs of a true and another label that are not in order.

    Formula: mean over rows of [pairs whose true label does not score higher] / pairs; 0 for a row without pairs.

    Parameters
    ----------
    num_labels, on_invalid
        As for CoverageError.

    Notes
    -----
    Definition as scikit-learn's `label_ranking_loss`, ties (which count as wrong) and weights included. Exact but for the
    rounding of each row. 552 bytes; about 10 ns a label.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.LabelRankingLoss(num_labels=3).update([[1, 0, 0], [0, 0, 1]], [[0.75, 0.5, 1], [1, 0.2, 0.1]]).compute()
    0.75
    """

    about = About(
        best="low",
        interval_scale="logit",
        formula="mean over rows of pairs of a true and another label in the wrong order / pairs",
    )

    term = "ranking_loss"
