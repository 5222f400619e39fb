"""What metrics of decisions have in common: of two classes at a threshold, of several classes, of several labels.

Each reads counts of rows by true label and decision, as exact integers, and rounds once.
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
from ...reading.interval import Estimate, side_by_side
from ...reading.reading import NAN, UNKNOWN, OwnReading, Quotient, Reading, estimate_of, read_side_by_side
from ...state.state import State
from ...statistics.by_label import by_label
from ...statistics.classes import ClassCounts, ClassTable
from ...statistics.found_classes import FoundPairs
from ...statistics.labels import DecisionCounts
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

HARD = 0.5  # hard predictions, 0 or 1, are read as scores at this threshold


def default_threshold(metric: Any, declared: float) -> float | None:
    """Return the default of the setting `threshold`: with `top_k` the k highest scores decide without a threshold."""
    return declared if metric.top_k is None else None


class DecisionMetric(OfClasses[State, T]):
    """A metric that reads rows by true label and decision."""

    about = About(
        best="high",
        cost="64 bytes a threshold, 32 a label, 8 a pair of classes; under 1 ns a row",
        bound="exact: counts, rounded once",
    )

    threshold: float | tuple[float, ...] | None = setting(default=HARD, default_from=default_threshold)
    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    top_k: int | None = setting(default=None, low=1)
    ignore_class: int | str | bytes | None = setting(default=None)
    max_labels: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    _discovers = True
    _by_class: ClassVar[bool] = False
    """Whether each of several classes is set against the rest, so that a row may be decided to be of several."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._of_classes and self.top_k is None and self.threshold not in (HARD, None):
            raise ValueError(
                f"{type(self).__name__}: of several classes the one with the highest score is predicted, whatever the "
                f"threshold; threshold=None reads predicted classes from y_pred"
            )
        if self.threshold == ():
            raise ValueError(f"{type(self).__name__}: threshold=() has no threshold: give one or more")
        if self.top_k is not None:
            self._check_top()
        if self.ignore_class is not None and not self._of_classes:
            raise ValueError(
                f"{type(self).__name__}: ignore_class= is a class beside those of num_classes= or labels=; of labels give "
                f"weights of 0, of two classes where= of a Task"
            )

    def _check_top(self) -> None:
        """Raise unless the highest scores of a row may decide."""
        if self.num_labels is None and not (self._of_classes and self._by_class and self.labels != "discover"):
            raise ValueError(
                f"{type(self).__name__}: top_k= needs the scores of a row: num_labels=; of num_classes= or labels= it is "
                f"for metrics of a class such as Recall, and TopKAccuracy for all together"
            )

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), or (n, num_labels)
            0 or 1; or a class. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_score : array-like of shape (n,), (n, classes) or (n, num_labels)
            Any finite score, positive where `score >= threshold`; of classes a score of each, the highest is predicted, or
            the predicted class itself: one integer or text a row. Predictions themselves, named `y_pred`, if
            `threshold=None` or `labels="discover"`.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. The others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is bad, or lengths differ; the message names column, row and count, and nothing was counted.
        """
        return super().update(y_true, y_score, **columns)

    def make_state(self) -> Any:
        if self.labels == "discover":
            return FoundPairs(max_labels=self.max_labels, ignore_class=self.ignore_class)
        if self._of_classes and self.top_k is None:
            return ClassCounts(column=self._column, ignore_class=self.ignore_class, **self._class_settings)
        state = DecisionCounts(thresholds=self._cuts, column=self._column)
        if not self._class_settings:
            return state
        top = {"top_k": self.top_k, "above": self._cuts_top}
        return by_label(state, **top, ignore_class=self.ignore_class, **self._class_settings)

    @property
    def _column(self) -> str:
        decided = self.threshold is None and self.top_k is None
        return "y_pred" if decided or self.labels == "discover" else "y_score"

    @property
    def _cuts_top(self) -> bool:
        """Whether of the k highest scores only those at the threshold or above it decide."""
        return self.top_k is not None and self.threshold is not None

    @property
    def _of_classes(self) -> bool:
        return bool(self._class_settings) and self.num_labels is None

    @property
    def _cuts(self) -> tuple[float, ...]:
        """The thresholds."""
        return self.threshold if isinstance(self.threshold, tuple) else (self._cut,)

    @property
    def _cut(self) -> float:
        """The threshold, where there is one."""
        assert not isinstance(self.threshold, tuple)
        return HARD if self.threshold is None else self.threshold

    @cached_property
    def at_each(self) -> list[Self]:
        """The metric at each of its thresholds, if it was given several; otherwise none."""
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
    """A number read from decisions, which labels have each, and their average."""

    about = About(interval_methods=("wilson", "delta"), interval_scale="logit")

    @property
    def name(self) -> str:
        return self._with_average(super().name)

    def _view(self, state: Any) -> Any:
        """Return what `of`, `reason` and `slack` are given of a state of two classes; by default the state."""
        return state

    def reason(self, state: Any) -> str | None:
        """Return why the value of some rows is undefined, where it is."""
        return "0/0: no such rows"

    def read(self, state: Any) -> Reading:
        return OfDecisions(self, state)

    def reading(self, state: Any) -> Reading:
        return AtEachThreshold(self, state) if self.at_each else super().reading(state)


def read_decisions_side_by_side(metric: AveragedDecision, state: Any) -> Reading | None:
    """Return the reading of all cells as arrays; None if the metric has several thresholds."""
    found = None if metric.at_each else read_side_by_side(metric, state)
    # Some cells can have weighted rows and others not, so each cell decides alone whether it has an interval.
    return found if found is None or "excess" not in state.cells.flats else found.having(estimate=None)


class OfDecisions(OwnReading):
    """The reading of a state of two classes through the view (`_view`) that the metric's `of` takes."""

    _kept_view: Any = UNKNOWN

    @property
    def view(self) -> Any:
        """What `of`, `reason` and `slack` of the metric are given; made once."""
        if self._kept_view is UNKNOWN:
            self._kept_view = self.metric._view(self.state)
        return self._kept_view

    def _found(self) -> Any:
        """Return the value, what stands for it where it is undefined, or None; of cells side by side an array."""
        found = self.metric.of(self.view)
        if isinstance(found, Quotient):
            if isinstance(found.numerator, np.ndarray):
                return to_float(*found, self._otherwise)
            return found if found.denominator else _instead(self._otherwise)
        return _instead(self._otherwise) if found is None else found

    @property
    def _otherwise(self) -> float:
        """What stands for 0/0; NaN if nothing does."""
        otherwise: float = getattr(self.metric, "zero_division", NAN)
        return otherwise

    def _reason(self) -> str | None:
        if not self.state.facts()["rows"]:
            return "no rows"
        reason: str | None = self.metric.reason(self.view) if self.found is None else None
        return reason

    def _slack(self, found: Limits, rounding: Fraction) -> Fraction:
        slack: Fraction = self.metric.slack(self.view, found, rounding)
        return slack

    def _estimate(self, method: str) -> Estimate | None:
        """Return the standard error that counts of rows have; of weighted rows, whose squares they do not hold, none."""
        weighted = getattr(self.state, "excess", None) is not None
        return Estimate(self.value, reason=WEIGHTED) if weighted else super()._estimate(method)


def _instead(value: float) -> Limits | None:
    """Return the value of 0/0; None for NaN."""
    return None if math.isnan(value) else Limits.exactly(Fraction(value))


class AtEachThreshold(OwnReading):
    """The reading at several thresholds: arrays with a number, or a row of labels, for each threshold."""

    def __init__(self, metric: AveragedDecision, state: Any) -> None:
        super().__init__(metric, state)
        self.each = [one.reading(state) for one in metric.at_each]

    def _found(self) -> Any:
        return np.array([one.value for one in self.each])

    def _bounds(self) -> tuple[Any, Any]:
        low, high = zip(*(one.bounds for one in self.each), strict=True)
        return np.array(low), np.array(high)

    def _reason(self) -> str | None:
        reasons = [one.reason for one in self.each]
        return None if None in reasons else reasons[0]

    def _estimate(self, method: str) -> Estimate:
        if self.metric._class_settings and self.metric.average is None:
            why = "of each label at each threshold: give one threshold, or an average"
            return Estimate(self.value, reason=why)
        return side_by_side([estimate_of(*pair, method) for pair in zip(self.metric.at_each, self.each, strict=True)])

    def _details(self) -> dict[str, Any]:
        return {"thresholds": self.metric.threshold}


class DecisionRatio(AveragedDecision):
    """A quotient of the cells of one class against the rest."""

    about = About(read_cells=read_decisions_side_by_side, value_range=(0, 1))

    _by_class = True
    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))

    def _view(self, state: Any) -> ClassTable:
        return ClassTable(*state.cells_at(self._cut))

    def estimate(self, found: Any, method: str) -> Estimate:
        if "wilson" in about_of(self).interval_methods:
            return share(self.of(found.view).denominator, found.value, method)
        each = [self.of(ClassTable(*(int(i == j) for j in range(4)))) for i in range(4)]  # both are sums over the cells
        return from_shares(found.value, found.view, each, about_of(self).interval_scale)
