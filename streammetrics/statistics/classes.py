"""Counts of rows by true and predicted class: the confusion matrix of declared classes or of classes from the data."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import ScoresOrClasses, class_label
from ..batch.kinds import Need, weight
from ..numerics.exact import UNIT, weights_in_units
from ..numerics.settings import setting
from ..state.declare import Flat
from ..state.state import State
from .known_classes import KnownClasses
from .step import NOTHING, Like, Step

__all__ = ["ClassCounts", "ClassTable", "Margins", "PairCounts"]

Ints = NDArray[np.int64]


class Margins(NamedTuple):
    """The diagonal and the marginal sums of a confusion matrix: numbers of rows, or weights in units of 2**-60."""

    correct: list[int]
    true: list[int]
    predicted: list[int]

    @property
    def total(self) -> int:
        """The sum of the whole matrix."""
        return sum(self.true)


class ClassTable(NamedTuple):
    """True and false positives and negatives of one class against the rest: rows, or weights in units of 2**-60."""

    tn: int
    fp: int
    fn: int
    tp: int

    def cells_at(self, threshold: float) -> ClassTable:
        """Return the table itself, because the decisions do not depend on a threshold."""
        return self

    def support(self) -> int:
        """Return the weight of the rows whose true class is this one."""
        return self.fn + self.tp

    def margins(self) -> Margins:
        """Return the margins of the 2 x 2 matrix."""
        return Margins(
            [self.tn, self.tp], [self.tn + self.fp, self.fn + self.tp], [self.tn + self.fn, self.fp + self.tp]
        )

    def facts(self) -> dict[str, Any]:
        """Return the facts, as `State.facts` does."""
        return {"rows": sum(self)}


class PairCounts(State):
    """A state of rows by true and predicted class, and of their excess weights (weight minus 1)."""

    row_parts = ("counts",)

    def confusion_matrix(self) -> tuple[Ints, Ints | None]:
        """Return the number of rows by true and predicted class, and their excess weights (weight minus 1)."""
        raise NotImplementedError

    def class_names(self) -> list[Any]:
        """Return the classes in the order of the matrix."""
        raise NotImplementedError

    @property
    def unit(self) -> int:
        """The integer that stands for a weight of 1: 1, or 2**60 if rows have weights."""
        return 1 if self.confusion_matrix()[1] is None else UNIT

    def margins(self) -> Margins:
        """Return by class the weight of correct rows, of rows of the true class, and of rows of the predicted class."""
        rows, excess = self.confusion_matrix()
        every = np.arange(len(rows))
        return Margins(
            weights_in_units(rows[every, every], None if excess is None else excess[every, every]).tolist(),
            weights_in_units(rows.sum(axis=1), None if excess is None else excess.sum(axis=1)).tolist(),
            weights_in_units(rows.sum(axis=0), None if excess is None else excess.sum(axis=0)).tolist(),
        )

    def split_classes(self) -> list[ClassTable]:
        """Return the table of each class against the rest."""
        right, true, predicted = self.margins()
        total = sum(true)
        return [ClassTable(total - t - p + r, p - r, t - r, r) for r, t, p in zip(right, true, predicted, strict=True)]

    def pool_classes(self) -> ClassTable:
        """Return the sum of the tables of all classes, for micro averages."""
        return ClassTable(*(sum(part[i] for part in self.split_classes()) for i in range(4)))

    def facts(self) -> dict[str, Any]:
        classes, rows = len(self.class_names()), int(self.row_counts.sum())
        return {"rows": rows, "classes": classes, "weight": Fraction(self.margins().total, self.unit)}


class ClassCounts(KnownClasses, PairCounts, tag="class_counts"):
    """The confusion matrix of declared classes.

    Parameters
    ----------
    num_classes, labels
        As for `KnownClasses`.
    column : {"y_score", "y_pred"}
        `y_score` takes the predicted class, or a score of each class; the class with the highest score (the first of equal
        ones) is then the prediction. `y_pred` takes the predicted class.
    """

    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    counts = Flat("width", "width")
    excess = Flat("width", "width", form="fixed", excess_of="counts")

    def needs(self) -> tuple[Need, ...]:
        scores = Need("y_score", ScoresOrClasses(self.declared_classes))
        return (
            self.true_class,
            class_label(self.declared_classes, "y_pred") if self.column == "y_pred" else scores,
            weight(),
        )

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        into = self.width, own.counts, own.excess if like.has_weights else NOTHING
        decided = like.dtype(self.column) == np.int64
        name = "class_counts:count_class_pairs" if decided else "class_counts:count_top_classes"
        return [Step(name, "y_true", self.column, "sample_weight", "at", *into, checks=True)]

    def class_names(self) -> list[Any]:
        return list(self.labels or range(self.width))

    def confusion_matrix(self) -> tuple[Ints, Ints | None]:
        return self.counts, self.excess
