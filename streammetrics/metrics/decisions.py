"""What metrics of decisions have in common: of two classes at a threshold, of several classes, of several labels.

Each reads counts of rows by true label and decision, as exact integers, and rounds once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

from ..numerics.exact import to_float
from ..numerics.settings import setting
from ..state.state import State
from ..statistics.classes import ClassCounts, Margins, PairCounts, Table
from ..statistics.found_classes import FoundPairs
from ..statistics.labels import DecisionCounts
from .averages import OfClasses, Several, T

__all__ = ["HARD", "DecisionMetric", "DecisionRatio", "WholeMatrix"]

NAN = float("nan")
HARD = 0.5  # hard predictions, 0 or 1, are read as scores at this threshold


class DecisionMetric(OfClasses[State, T]):
    """A metric that reads rows by true label and decision."""

    threshold: float | None = setting(default=0.5)
    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    max_labels: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    best: ClassVar[str | None] = "high"
    cost = "64 bytes a threshold, 32 a label, 8 a pair of classes; under 1 ns a row"
    bound = "exact: counts, rounded once"

    _discovers = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._of_classes and self.threshold not in (HARD, None):
            raise ValueError(
                f"{type(self).__name__}: of several classes the one with the highest score is predicted, whatever the "
                f"threshold; threshold=None reads predicted classes from y_pred"
            )

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), or (n, num_labels)
            0 or 1; or a class. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_score : array-like of shape (n,), (n, classes) or (n, num_labels)
            Any finite score, positive where `score >= threshold`; of classes a score of each, the highest is predicted.
            Predictions themselves, named `y_pred`, if `threshold=None` or `labels="discover"`.
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
            return FoundPairs(max_labels=self.max_labels)
        if self._of_classes:
            return ClassCounts(column=self._column, **self.which)
        return self.spread(DecisionCounts(thresholds=(self._cut,), column=self._column))

    @property
    def _column(self) -> str:
        return "y_pred" if self.threshold is None or self.labels == "discover" else "y_score"

    @property
    def _of_classes(self) -> bool:
        return bool(self.which) and self.num_labels is None

    @property
    def _cut(self) -> float:
        return HARD if self.threshold is None else self.threshold

    @property
    def name(self) -> str:
        return self.tag if self._cut == HARD else f"{self.tag}@{self.threshold:g}"


class AveragedDecision(Several[State], DecisionMetric[Any]):
    """A number read from decisions, which labels have each, and their average."""

    @property
    def name(self) -> str:
        return self.suffixed(super().name)


class DecisionRatio(AveragedDecision):
    """A quotient of the cells of one class against the rest."""

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))

    def of_binary(self, state: DecisionCounts | Table) -> float:
        numerator, denominator = self.quotient(*state.cells_at(self._cut))
        return to_float(numerator, denominator) if denominator else self.zero_division

    def quotient(self, tn: int, fp: int, fn: int, tp: int) -> tuple[int | Fraction, int | Fraction]:
        """Numerator and denominator of the value."""
        raise NotImplementedError

    def reason_of_binary(self, state: Any) -> str | None:
        undefined = self.of_binary(state) != self.of_binary(state)
        return super().reason_of_binary(state) or ("0/0: no such rows" if undefined else None)


class WholeMatrix(AveragedDecision):
    """A number read from a whole confusion matrix: of all classes together, or of each label."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._of_classes and self.average != "macro":
            raise ValueError(
                f"{type(self).__name__}: classes have one value together; average= is for num_labels=, and for metrics of "
                f"a class such as Recall"
            )

    def of_margins(self, margins: Margins) -> float:
        """Compute the value from the margins of a confusion matrix."""
        raise NotImplementedError

    def reason_of_margins(self, margins: Margins) -> str:
        """Say why it is undefined."""
        return "0/0: no such rows"

    def of(self, state: Any) -> Any:
        return self.of_margins(state.margins()) if isinstance(state, PairCounts) else super().of(state)

    def bounds_of(self, state: Any) -> tuple[Any, Any]:
        return (self.of(state), self.of(state)) if isinstance(state, PairCounts) else super().bounds_of(state)

    def reason_of(self, state: Any) -> str | None:
        return self._why(state, state.margins()) if isinstance(state, PairCounts) else super().reason_of(state)

    def details(self, state: Any) -> dict[str, Any]:
        return {} if isinstance(state, PairCounts) else super().details(state)

    def of_binary(self, state: Any) -> float:
        return self.of_margins(Table(*state.cells_at(self._cut)).margins())

    def reason_of_binary(self, state: Any) -> str | None:
        return self._why(state, Table(*state.cells_at(self._cut)).margins())

    def _why(self, state: Any, margins: Margins) -> str | None:
        if not state.facts()["rows"]:
            return "no rows"
        return self.reason_of_margins(margins) if math.isnan(self.of_margins(margins)) else None
