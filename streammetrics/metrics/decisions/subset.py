"""Metrics of rows of several decisions, of labels or of classes: whether all are right, and how many are not."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...collect.metric import ScoredLabels, nothing_counted
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
    """Subset accuracy, or exact match: the share of rows whose labels, or classes, are all decided rightly.

    Parameters
    ----------
    num_labels : int
        How many 0/1 labels a row has; `y_true` and `y_score` are rows x labels.
    threshold : float or None
        A label is decided where `score >= threshold`. None reads 0/1 decisions from `y_pred`.
    top_k : int
        The labels of the k highest scores are decided, of equal ones the first; with a threshold only those that reach it.
    criteria : {"exact_match", "overlap", "contain", "belong"}
        What makes a row of labels right: those decided are the true ones; one of them is (or there is none of either);
        all true ones are among them; they are all true (torcheval's `MultilabelAccuracy`, whose "hamming" is
        1 - HammingLoss).
    num_classes, num_outputs : int
        In place of labels: a row has so many outputs, each one of these classes; `y_true` and `y_pred` are rows x outputs.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    What scikit-learn's `accuracy_score` returns for matrices of labels. Exact counts. 552 bytes; about 1 ns a label.

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
        formula="rows whose labels are all right / rows",
        cost="552 bytes; about 1 ns a label",
        bound="exact: counts, rounded once",
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
                "SubsetAccuracy: say how many labels a row has, num_labels=; or how many outputs of how many classes, "
                "num_outputs= and num_classes="
            )
        if self.num_outputs is not None and (self.top_k is not None or self.criteria != "exact_match"):
            raise ValueError(
                "SubsetAccuracy: top_k= and criteria= are of labels; outputs have one class each, all right"
            )

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n, num_labels) or (n, num_outputs)
            0 or 1; or a class. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_score : array-like of shape (n, num_labels) or (n, num_outputs)
            Any finite score; named `y_pred` 0/1 decisions, if `threshold=None`, or classes, of outputs.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. The others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is bad, or lengths differ; the message names column, row and count, and nothing was counted.
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

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        return mean(found.value, state.spread_of(self._term), about_of(self).interval_scale, method)

    def reason(self, state: Any) -> str | None:
        return nothing_counted(state)


class HammingLoss(WholeMatrix, tag="hamming_loss"):
    """Hamming loss: the share of labels that are decided wrongly; of classes the error rate.

    Formula: wrong decisions / (rows x labels).

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, on_invalid
        As for Accuracy; all labels weigh alike, so "macro" and "micro" are the same.
    num_outputs : int
        With `num_classes=`: a row has so many outputs, each of one of the classes; `y_true` and `y_pred` are rows x
        outputs.

    Notes
    -----
    What scikit-learn's `hamming_loss` returns. Exact counts, rounded once a label. 32 bytes and about 4 ns a label.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HammingLoss(num_labels=2).update([[1, 0], [1, 1]], [[0.9, 0.1], [0.9, 0.1]]).compute()
    0.25
    """

    about = About(best="low", formula="wrong decisions / (rows x labels)", interval_methods=("wilson", "delta"))

    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_outputs is not None and (self.num_classes is None or self.ignore_class is not None):
            raise ValueError("HammingLoss: num_outputs= needs num_classes=, and knows no ignore_class=")

    def make_state(self) -> Any:
        if self.num_outputs is None:
            return super().make_state()
        return ClassRows(terms=("wrong",), num_classes=self.num_classes, num_outputs=self.num_outputs)

    def of(self, margins: Margins) -> Quotient:
        return Quotient(margins.total - sum(margins.right), margins.total)

    def reading(self, state: Any) -> Reading:
        return self._of_outputs(state) if isinstance(state, ClassRows) else super().reading(state)

    def _of_outputs(self, state: ClassRows) -> Reading:
        """Return the reading of rows of several outputs."""
        assert self.num_outputs is not None
        outputs = self.num_outputs
        value = to_float(state.total("wrong"), state.weight() * outputs)

        def estimate(method: str) -> Estimate:
            found = mean(value, state.spread_of("wrong"), about_of(self).interval_scale, "delta")
            return found._replace(error=found.error / outputs)

        return Reading(state, value, reason=partial(nothing_counted, state), estimate=estimate)
