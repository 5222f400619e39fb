"""Metrics of multilabel data that are computed from all 0/1 labels of a row together, such as the label ranking loss.

To get a separate value for each label, or their average, use a two-class metric with `num_labels`, such as
`AUC(num_labels=...)` or `F1(num_labels=...)`. `NDCG` also accepts a matrix and treats each row as a query.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...collect.metric import ScoredLabels, no_weight_reason
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
    """Base class for metrics that are the mean over rows of a number computed from the row's labels and scores.

    Parameters
    ----------
    num_labels : int
        The number of 0/1 labels of each row. `y_true` and `y_score` are matrices with one column per label.
    """

    about = About(
        cost="552 bytes; about 10 ns per label, for sorting",
        bound=(
            "exact except for rounding: the value of each row is rounded once, the sum is exact, and the result is "
            "rounded once"
        ),
        example={"num_labels": 3},
    )

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)

    term: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_labels is None:
            raise ValueError(
                f"{type(self).__name__}: num_labels= is required; pass the number of labels of a row, such as num_labels=3"
            )

    def make_state(self) -> LabelRows:
        assert self.num_labels is not None
        return LabelRows(terms=(self.term,), num_labels=self.num_labels)

    def of(self, state: LabelRows) -> float:
        return to_float(state.total(self.term), state.weight())

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        return mean(reading.value, state.estimate_means(self.term), about_of(self).interval_scale, method)

    def reason(self, state: Any) -> str | None:
        return no_weight_reason(state)


class CoverageError(LabelRowMetric, tag="coverage_error"):
    """Coverage error: the mean number of highest-scoring labels needed to include all true labels of a row.

    Formula: mean over rows of the number of labels whose score is at least the lowest score of a true label, or 0 for a
    row without true labels.

    Notes
    -----
    The definition matches scikit-learn's `coverage_error`, including ties and weights; the best value is the mean
    number of true labels. The value is exact.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CoverageError(num_labels=3).update([[1, 0, 0], [0, 0, 1]], [[0.75, 0.5, 1], [1, 0.2, 0.1]]).compute()
    2.5
    """

    about = About(
        best="low",
        formula=("mean over rows of the number of labels whose score is at least the lowest score of a true label"),
    )

    term = "coverage"


class LabelRankingAveragePrecision(LabelRowMetric, tag="label_ranking_average_precision"):
    """Label ranking average precision: the mean share of true labels among the labels ranked at or above each true label.

    Formula: mean over rows of the mean over true labels of (true labels that score at least as high) / (labels that score
    at least as high).

    Notes
    -----
    The definition matches scikit-learn's `label_ranking_average_precision_score`, including ties and weights. A row
    whose labels are all true or all false counts as 1. The value of each row is rounded once, and the sum of these
    values is exact.

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
        formula=(
            "mean over rows of the mean over true labels j of (true labels with s >= s_j) / (labels with s >= s_j), "
            "for scores s"
        ),
    )

    term = "precision"


class LabelRankingLoss(LabelRowMetric, tag="label_ranking_loss"):
    """Label ranking loss: the mean share of pairs of a true and a false label that are in the wrong order.

    Formula: mean over rows of (pairs whose true label does not score higher) / (all pairs of a true and a false label),
    or 0 for a row without such pairs.

    Notes
    -----
    The definition matches scikit-learn's `label_ranking_loss`, including weights and ties, which count as wrong. The
    value of each row is rounded once, and the sum of these values is exact.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.LabelRankingLoss(num_labels=3).update([[1, 0, 0], [0, 0, 1]], [[0.75, 0.5, 1], [1, 0.2, 0.1]]).compute()
    0.75
    """

    about = About(
        best="low",
        interval_scale="logit",
        formula="mean over rows of (pairs in the wrong order) / (all pairs), where a pair is a true and a false label",
    )

    term = "ranking_loss"
