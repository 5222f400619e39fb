"""Base classes for decision metrics: two classes at a threshold, several classes, or several labels.

Each metric is computed from exact integer counts of the rows with each true label and decision, and rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ...numerics.exact import Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate, stack_estimates
from ...reading.reading import NAN, UNKNOWN, OwnReading, Quotient, Reading, estimate_of, read_side_by_side
from ...state.state import State
from ...statistics.by_label import make_label_statistic
from ...statistics.classes import ClassCounts, ClassTable
from ...statistics.decision_counts import DecisionCounts
from ...statistics.discovered_classes import DiscoveredPairs
from ..averages import OfClasses, Several, T
from ..standard_errors import WEIGHTED, from_shares, share

__all__ = [
    "HARD",
    "AveragedDecision",
    "DecisionMetric",
    "DecisionRatio",
    "OfDecisions",
    "default_threshold",
    "read_decisions_side_by_side",
]

# The threshold for 0/1 predictions that are passed instead of scores.
HARD = 0.5


def default_threshold(metric: Any, declared: float) -> float | None:
    """Return the default `threshold`: None if `top_k` is set (it needs no threshold), and `declared` otherwise."""
    return declared if metric.top_k is None else None


class DecisionMetric(OfClasses[State, T]):
    """Base class for metrics that are computed from the number of rows for each true label and decision.

    Parameters
    ----------
    threshold : float, tuple of float, or None
        The decision is positive if `score >= threshold`. With None, the decisions are taken from `y_pred`. With a tuple
        of thresholds, the value is an array with one value for each threshold. For several classes without `top_k`, the
        threshold is not used: the class with the highest score is predicted (the first one in case of a tie).
    num_classes : int, optional
        The number of classes 0, 1, ..., num_classes - 1.
    labels : tuple of int, str or bytes, or "discover", optional
        The classes (integers or strings), in the order of score columns and results. With "discover", the classes are
        those that occur in `y_true` and `y_pred`, in ascending order; `names_of(state)` returns them, and `explain()`
        shows them.
    num_labels : int, optional
        The number of labels, if each row has several 0/1 labels. `y_true` and the scores or predictions are then
        matrices with one column per label.
    top_k : int, optional
        Predict the k classes or labels with the highest scores in each row; among equal scores, the first ones are chosen.
        With a threshold, a score must also reach the threshold, as in Keras. Sorting takes about 50 ns per score.
    ignore_class : int or str, optional
        Rows of this true class are dropped, and `explain()` shows their number. The class need not be one of `labels`.
    max_labels : int
        The largest number of classes that may be discovered. An update that would exceed it raises MemoryLimitError, and
        none of its rows are counted.
    """

    about = About(
        best="high",
        cost="64 bytes per threshold, 32 per label, 8 per pair of classes; under 1 ns per row",
        bound="exact: the value is computed from counts and rounded once",
    )

    threshold: float | tuple[float, ...] | None = setting(default=HARD, default_from=default_threshold)
    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    top_k: int | None = setting(default=None, low=1)
    ignore_class: int | str | bytes | None = setting(default=None)
    max_labels: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    _discovers = True
    _by_class: ClassVar[bool] = False
    """Whether the metric compares each class with the rest. Only such a metric allows several classes to be predicted for
    a row, as with `top_k`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._of_classes and self.top_k is None and self.threshold not in (HARD, None):
            raise ValueError(
                f"{type(self).__name__}: expected no threshold= with num_classes= or labels=, found {self.threshold!r}: "
                f"the class with the highest score is predicted; leave threshold= out, or pass threshold=None to read "
                f"predicted classes from y_pred"
            )
        if self.threshold == ():
            raise ValueError(
                f"{type(self).__name__}: expected at least one threshold, found threshold=(); pass one number or several"
            )
        if self.top_k is not None:
            self._check_top()
        if self.ignore_class is not None and not self._of_classes:
            raise ValueError(
                f"{type(self).__name__}: ignore_class= needs num_classes= or labels=; with num_labels=, pass a "
                f"sample_weight of 0 instead, and with two classes, use where= of a Task"
            )

    def _check_top(self) -> None:
        """Raise a ValueError if the other settings do not allow `top_k`."""
        if self.num_labels is None and not (self._of_classes and self._by_class and self.labels != "discover"):
            raise ValueError(
                f"{type(self).__name__}: top_k= needs a score for each label or class in every row: pass num_labels=, "
                f"or, for metrics of each class such as Recall, num_classes= or a tuple of labels=; for the accuracy "
                f"over all classes, use TopKAccuracy"
            )

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,) or (n, num_labels)
            The labels (0 or 1) or classes; or a mapping, data frame or Arrow table that contains the columns by name.
        y_score : array-like of shape (n,), (n, classes) or (n, num_labels)
            Finite scores; a decision is positive if `score >= threshold`. For several classes, pass a score for each class
            (the class with the highest score is predicted), or the predicted class as an integer or string. If
            `threshold=None` or `labels="discover"`, pass the predictions as `y_pred`.
        **columns : array-like of shape (n,)
            `sample_weight`: weights that are 0 or between 2**-36 and 2**31. `y_true` and `y_score` may also be passed
            by name.

        Raises
        ------
        InvalidInputError
            A value is invalid, or the lengths of the columns differ; no rows are counted. The message names the column,
            the first invalid row, and the number of invalid rows.
        """
        return super().update(y_true, y_score, **columns)

    def make_state(self) -> Any:
        if self.labels == "discover":
            return DiscoveredPairs(max_labels=self.max_labels, ignore_class=self.ignore_class)
        if self._of_classes and self.top_k is None:
            return ClassCounts(column=self._column, ignore_class=self.ignore_class, **self._class_settings)
        state = DecisionCounts(thresholds=self._cuts, column=self._column)
        if not self._class_settings:
            return state
        top = {"top_k": self.top_k, "above": self._cuts_top}
        return make_label_statistic(state, **top, ignore_class=self.ignore_class, **self._class_settings)

    @property
    def _column(self) -> str:
        decided = self.threshold is None and self.top_k is None
        return "y_pred" if decided or self.labels == "discover" else "y_score"

    @property
    def _cuts_top(self) -> bool:
        """Whether a label is predicted only if its score is among the k highest and also reaches the threshold."""
        return self.top_k is not None and self.threshold is not None

    @property
    def _of_classes(self) -> bool:
        return bool(self._class_settings) and self.num_labels is None

    @property
    def _cuts(self) -> tuple[float, ...]:
        """All thresholds, as a tuple, even if there is only one."""
        return self.threshold if isinstance(self.threshold, tuple) else (self._cut,)

    @property
    def _cut(self) -> float:
        """The only threshold, or `HARD` if the metric has none because decisions are taken from `y_pred`."""
        assert not isinstance(self.threshold, tuple)
        return HARD if self.threshold is None else self.threshold

    @cached_property
    def at_each(self) -> list[Self]:
        """Copies of the metric with one threshold each, if it has several thresholds; otherwise an empty list."""
        several = isinstance(self.threshold, tuple)
        return [type(self)(**(self.settings | {"threshold": t})) for t in self._cuts] if several else []

    @property
    def name(self) -> str:
        tag = self.about.tag if self.top_k is None else f"{self.about.tag}_top_{self.top_k}"
        if isinstance(self.threshold, tuple):
            return f"{tag}@{self.threshold[0]:g}..{self.threshold[-1]:g}"
        usual = self.threshold is None or (self._cut == HARD and not self._cuts_top)
        return tag if usual else f"{tag}@{self.threshold:g}"


class AveragedDecision(Several[State], DecisionMetric[Any]):
    """Base class for metrics whose value is computed for each class or label from its decisions and then averaged."""

    about = About(interval_methods=("wilson", "delta"), interval_scale="logit")

    @property
    def name(self) -> str:
        return self._with_average(super().name)

    def _view(self, state: Any) -> Any:
        """Return the object (such as four counts) to pass to `of`, `reason` and `slack` for a two-class state.

        By default, this is the state itself.
        """
        return state

    def reason(self, state: Any) -> str | None:
        """Return the reason why the value is undefined although there are rows."""
        return "0/0: the denominator has no rows"

    def read(self, state: Any) -> Reading:
        return OfDecisions(self, state)

    def reading(self, state: Any) -> Reading:
        return AtEachThreshold(self, state) if self.at_each else super().reading(state)


def read_decisions_side_by_side(metric: AveragedDecision, state: Any) -> Reading | None:
    """Return one `Reading` with the values of all cells (such as slices), or None if there are several thresholds."""
    found = None if metric.at_each else read_side_by_side(metric, state)
    # Cells with weighted rows have no interval. A state with weights may also contain cells without weighted rows, so
    # the intervals of its cells are computed one by one.
    return found if found is None or "excess" not in state.cells.flats else found.having(estimate=None)


class OfDecisions(OwnReading):
    """The two-class reading (value, bounds and standard error) of an `AveragedDecision` metric.

    It passes its `view` attribute (counts from the state), rather than the state, to the metric's methods.
    """

    _kept_view: Any = UNKNOWN

    @property
    def view(self) -> Any:
        """The argument of the metric's `of`, `reason` and `slack` methods, such as four counts; computed only once."""
        if self._kept_view is UNKNOWN:
            self._kept_view = self.metric._view(self.state)
        return self._kept_view

    def _raw_value(self) -> Any:
        """Return the value (or the number that replaces 0/0); for several cells (such as slices), return an array."""
        found = self.metric.of(self.view)
        if isinstance(found, Quotient):
            if isinstance(found.numerator, np.ndarray):
                return to_float(*found, self._otherwise)
            return found if found.denominator else _zero_division_limits(self._otherwise)
        return _zero_division_limits(self._otherwise) if found is None else found

    @property
    def _otherwise(self) -> float:
        """The number that replaces 0/0, from the `zero_division` setting; NaN leaves the value undefined."""
        otherwise: float = getattr(self.metric, "zero_division", NAN)
        return otherwise

    def _reason(self) -> str | None:
        if not self.state.facts()["rows"]:
            return "no rows"
        reason: str | None = self.metric.reason(self.view) if self.raw_value is None else None
        return reason

    def _slack(self, limits: Limits, rounding: Fraction) -> Fraction:
        slack: Fraction = self.metric.slack(self.view, limits, rounding)
        return slack

    def _estimate(self, method: str) -> Estimate | None:
        """Return the value with its standard error, computed from the counts of rows.

        For weighted rows there is no standard error, because the state does not sum the squares of the weights.
        """
        weighted = getattr(self.state, "excess", None) is not None
        return Estimate(self.value, reason=WEIGHTED) if weighted else super()._estimate(method)


def _zero_division_limits(value: float) -> Limits | None:
    """Return `value`, the replacement for 0/0, as exact `Limits`, or None if it is NaN (0/0 then stays undefined)."""
    return None if math.isnan(value) else Limits.exactly(Fraction(value))


class AtEachThreshold(OwnReading):
    """The reading at several thresholds: arrays of values, bounds and intervals.

    The first axis has one element for each threshold. If the value at a single threshold is an array with one element
    for each class or label, this array becomes the second axis.
    """

    def __init__(self, metric: AveragedDecision, state: Any) -> None:
        super().__init__(metric, state)
        self.each = [one.reading(state) for one in metric.at_each]

    def _raw_value(self) -> Any:
        return np.array([one.value for one in self.each])

    def _bounds(self) -> tuple[Any, Any]:
        low, high = zip(*(one.bounds for one in self.each), strict=True)
        return np.array(low), np.array(high)

    def _reason(self) -> str | None:
        reasons = [one.reason for one in self.each]
        return None if None in reasons else reasons[0]

    def _estimate(self, method: str) -> Estimate:
        if self.metric._class_settings and self.metric.average is None:
            why = "there is no interval for each label at each threshold; pass a single threshold, or an average="
            return Estimate(self.value, reason=why)
        return stack_estimates(
            [estimate_of(*pair, method) for pair in zip(self.metric.at_each, self.each, strict=True)]
        )

    def _details(self) -> dict[str, Any]:
        return {"thresholds": self.metric.threshold}


class DecisionRatio(AveragedDecision):
    """Base class for metrics that are a quotient of sums of TP, FP, FN and TN of one class against the rest.

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value of a class or label for which the quotient is 0/0.
    """

    about = About(read_cells=read_decisions_side_by_side, value_range=(0, 1))

    _by_class = True
    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))

    def _view(self, state: Any) -> ClassTable:
        return ClassTable(*state.cells_at(self._cut))

    def estimate(self, reading: Any, method: str) -> Estimate:
        if "wilson" in about_of(self).interval_methods:
            return share(self.of(reading.view).denominator, reading.value, method)
        # Numerator and denominator are weighted sums of the four counts TN, FP, FN and TP. To find the two weights of a
        # count, compute both sums for a table in which that count is 1 and the others are 0.
        each = [self.of(ClassTable(*(int(i == j) for j in range(4)))) for i in range(4)]
        return from_shares(reading.value, reading.view, each, about_of(self).interval_scale)
