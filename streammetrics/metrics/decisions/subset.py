"""Metrics for rows with several decisions: whether all are right, or how many are wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...collect.metric import ScoredLabels, no_weight_reason
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading
from ...statistics.classes import Margins
from ...statistics.row_means import ClassRows, LabelRows, cut_term
from ..standard_errors import mean
from .base_decisions import HARD, default_threshold
from .multiclass import WholeMatrix

__all__ = ["HammingLoss", "SubsetAccuracy"]


class SubsetAccuracy(ScoredLabels[Any, float], tag="subset_accuracy"):
    """Subset accuracy, or exact match: the share of rows whose labels, or classes, are all predicted correctly.

    Parameters
    ----------
    num_labels : int
        The number of 0/1 labels of each row. `y_true` and `y_score` are matrices with one column per label.
    threshold : float or None
        A label is predicted if `score >= threshold`. With None, the 0/1 predictions are taken from `y_pred`.
    top_k : int
        Predict the k labels with the highest scores; among equal scores, the first ones are chosen. With a threshold,
        predict only those whose score also reaches the threshold.
    criteria : {"exact_match", "overlap", "contain", "belong"}
        When a row's prediction counts as right. "exact_match": the predicted labels are the true ones. "overlap": at
        least one predicted label is true, or there are neither predicted nor true labels. "contain": all true labels are
        predicted. "belong": all predicted labels are true. These are the criteria of torcheval's `MultilabelAccuracy`. For
        its criterion "hamming", subtract HammingLoss from 1.
    num_classes, num_outputs : int
        Use these two instead of `num_labels` if a row has several outputs, each of which is one of `num_classes` classes.
        `y_true` and `y_pred` are then matrices of classes with one column per output.

    Notes
    -----
    The definition matches scikit-learn's `accuracy_score` for label matrices. Counts are exact.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SubsetAccuracy(num_labels=2).update([[1, 0], [1, 1]], [[0.9, 0.1], [0.9, 0.1]]).compute()
    0.5
    >>> sm.SubsetAccuracy(num_classes=3, num_outputs=2).update([[0, 2], [1, 1]], [[0, 2], [1, 0]]).compute()
    0.5
    """

    about = About(
        best="high",
        interval_methods=("wilson", "delta"),
        interval_scale="logit",
        formula="(rows whose labels are all predicted correctly) / (all rows)",
        cost="552 bytes; about 1 ns per label",
        bound="exact: the value is computed from counts and rounded once",
        example={"num_labels": 3},
    )

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    threshold: float | None = setting(default=HARD, default_from=default_threshold)
    top_k: int | None = setting(default=None, low=1)
    criteria: str = setting(default="exact_match", choices=("exact_match", "overlap", "contain", "belong"))
    num_classes: int | None = setting(default=None, low=2, high=1 << 15)
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.num_labels is None) == (self.num_outputs is None) or (self.num_outputs is None) != (
            self.num_classes is None
        ):
            raise ValueError(
                "SubsetAccuracy: expected either num_labels=, or num_outputs= and num_classes=; pass num_labels= if a "
                "row has several 0/1 labels, or num_outputs= and num_classes= if a row has several classes"
            )
        if self.num_outputs is not None and (self.top_k is not None or self.criteria != "exact_match"):
            raise ValueError(
                "SubsetAccuracy: top_k= and criteria= apply only to num_labels=; leave them out if you pass num_outputs="
            )

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n, num_labels) or (n, num_outputs)
            The labels (0 or 1) or classes; or a mapping, data frame or Arrow table that contains the columns by name.
        y_score : array-like of shape (n, num_labels) or (n, num_outputs)
            Finite scores. With `threshold=None`, pass 0/1 decisions as `y_pred` instead; with `num_outputs`, pass
            classes as `y_pred`.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. `y_true` and `y_score` may also be passed by name.

        Raises
        ------
        InvalidInputError
            A value is invalid, or the columns differ in length; no rows are counted. The message names the column, the
            first invalid row, and the number of invalid rows.
        """
        return super().update(y_true, y_score, **columns)

    @property
    def _term(self) -> str:
        if self.num_outputs is not None:
            return "exact"
        cut = cut_term(HARD if self.threshold is None else self.threshold, self.top_k, above=self.threshold is not None)
        return f"{'subset' if self.criteria == 'exact_match' else self.criteria}@{cut}"

    @property
    def name(self) -> str:
        tag = self.about.tag + ("" if self.criteria == "exact_match" else f"_{self.criteria}")
        if self.top_k is not None:
            tag = f"{tag}_top_{self.top_k}"
        usual = (None,) if self.top_k is not None else (HARD, None)
        return tag if self.threshold in usual else f"{tag}@{self.threshold:g}"

    def make_state(self) -> ClassRows | LabelRows:
        if self.num_labels is None:
            return ClassRows(terms=(self._term,), num_classes=self.num_classes, num_outputs=self.num_outputs)
        column = "y_pred" if self.threshold is None and self.top_k is None else "y_score"
        return LabelRows(terms=(self._term,), num_labels=self.num_labels, column=column)

    def of(self, state: ClassRows | LabelRows) -> float:
        return to_float(state.total(self._term), state.weight())

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        return mean(reading.value, state.estimate_means(self._term), about_of(self).interval_scale, method)

    def reason(self, state: Any) -> str | None:
        return no_weight_reason(state)


class HammingLoss(WholeMatrix, tag="hamming_loss"):
    """Hamming loss: the share of wrongly predicted labels; it is the error rate if each row has one class.

    Formula: wrong predictions / (rows x labels).

    Parameters
    ----------
    average : {"macro", "micro", "weighted", None}
        How to combine the values of several labels. "macro": their mean. "micro": one value for all labels together.
        "weighted": their mean, weighted by the number of positives of each label. None: an array with one value for
        each label. All labels have the same number of rows, so "macro" and "micro" give the same value.
    num_outputs : int
        With `num_classes=`: the number of outputs per row, where each output is one of the classes. `y_true` and
        `y_pred` are matrices with one column per output.

    Notes
    -----
    The definition matches scikit-learn's `hamming_loss`. Counts are exact, and the value of each label is rounded once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HammingLoss(num_labels=2).update([[1, 0], [1, 1]], [[0.9, 0.1], [0.9, 0.1]]).compute()
    0.25
    """

    about = About(
        best="low",
        formula="wrong predictions / (rows x labels)",
        cost="32 bytes per label; about 2 ns per row and label",
        interval_methods=("wilson", "delta"),
    )

    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_outputs is not None and (self.num_classes is None or self.ignore_class is not None):
            raise ValueError(
                "HammingLoss: num_outputs= needs num_classes= and does not support ignore_class=; pass num_classes=, and "
                "leave ignore_class= out"
            )

    def make_state(self) -> Any:
        if self.num_outputs is None:
            return super().make_state()
        return ClassRows(terms=("wrong",), num_classes=self.num_classes, num_outputs=self.num_outputs)

    def of(self, margins: Margins) -> Quotient:
        return Quotient(margins.total - sum(margins.correct), margins.total)

    def reading(self, state: Any) -> Reading:
        return self._of_outputs(state) if isinstance(state, ClassRows) else super().reading(state)

    def _of_outputs(self, state: ClassRows) -> Reading:
        """Return the reading (value and standard error) for rows with several outputs."""
        assert self.num_outputs is not None
        outputs = self.num_outputs
        value = to_float(state.total("wrong"), state.weight() * outputs)

        def estimate(method: str) -> Estimate:
            found = mean(value, state.estimate_means("wrong"), about_of(self).interval_scale, "delta")
            return found._replace(error=found.error / outputs)

        return Reading(state, value, reason=partial(no_weight_reason, state), estimate=estimate)
