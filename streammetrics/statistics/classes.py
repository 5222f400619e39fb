"""Row counts by true and predicted class: confusion matrices of declared classes or of classes found in the data."""

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
    """The diagonal, the row sums and the column sums of a confusion matrix.

    The numbers are row counts, or integers in units of 2**-60 if rows have weights.
    """

    correct: list[int]
    true: list[int]
    predicted: list[int]

    @property
    def total(self) -> int:
        """The sum of the whole matrix."""
        return sum(self.true)


class ClassTable(NamedTuple):
    """The 2 x 2 confusion matrix of one class against the rest.

    The numbers are row counts, or integers in units of 2**-60 if rows have weights.
    """

    tn: int
    fp: int
    fn: int
    tp: int

    def cells_at(self, threshold: float) -> ClassTable:
        """Return this table regardless of the threshold, because predicted classes do not depend on a threshold."""
        return self

    def support(self) -> int:
        """Return the total weight of the rows whose true class is the class of this table."""
        return self.fn + self.tp

    def margins(self) -> Margins:
        """Return the diagonal and the marginal sums of this 2 x 2 matrix; class 0 represents all other classes."""
        return Margins(
            [self.tn, self.tp], [self.tn + self.fp, self.fn + self.tp], [self.tn + self.fn, self.fp + self.tp]
        )

    def facts(self) -> dict[str, Any]:
        """Return a summary of the counted rows, as `State.facts` does. It contains only the sum of the four numbers."""
        return {"rows": sum(self)}


class PairCounts(State):
    """The base class for states that count rows by true and predicted class.

    A subclass provides the confusion matrix, from which this class derives margins and one-vs-rest tables.
    """

    row_parts = ("counts",)

    def confusion_matrix(self) -> tuple[Ints, Ints | None]:
        """Return the matrix of row counts (true x predicted class), and the matrix of sums of (weight - 1).

        The second matrix is None if rows have no weights.
        """
        raise NotImplementedError

    def class_names(self) -> list[Any]:
        """Return the classes in the order of the matrix."""
        raise NotImplementedError

    @property
    def unit(self) -> int:
        """The integer that represents a weight of 1: 1, or 2**60 if rows have weights."""
        return 1 if self.confusion_matrix()[1] is None else UNIT

    def margins(self) -> Margins:
        """Return the diagonal and the marginal sums of the confusion matrix, in units of 1 / `unit`.

        For each class, `correct` is the weight of its correct predictions, `true` that of the rows of this class, and
        `predicted` that of the rows predicted as this class.
        """
        rows, excess = self.confusion_matrix()
        every = np.arange(len(rows))
        return Margins(
            weights_in_units(rows[every, every], None if excess is None else excess[every, every]).tolist(),
            weights_in_units(rows.sum(axis=1), None if excess is None else excess.sum(axis=1)).tolist(),
            weights_in_units(rows.sum(axis=0), None if excess is None else excess.sum(axis=0)).tolist(),
        )

    def split_classes(self) -> list[ClassTable]:
        """Return, for each class, the 2 x 2 table of this class against the rest."""
        right, true, predicted = self.margins()
        total = sum(true)
        return [ClassTable(total - t - p + r, p - r, t - r, r) for r, t, p in zip(right, true, predicted, strict=True)]

    def pool_classes(self) -> ClassTable:
        """Return the sum of the one-vs-rest tables of all classes, for micro averages."""
        return ClassTable(*(sum(part[i] for part in self.split_classes()) for i in range(4)))

    def facts(self) -> dict[str, Any]:
        classes, rows = len(self.class_names()), int(self.row_counts.sum())
        return {"rows": rows, "classes": classes, "weight": Fraction(self.margins().total, self.unit)}


class ClassCounts(KnownClasses, PairCounts, tag="class_counts"):
    """The confusion matrix of declared classes.

    Parameters
    ----------
    num_classes, labels
        The number of classes, or the list of classes, as in `KnownClasses`.
    column : {"y_score", "y_pred"}
        The column of predictions. `y_pred` contains the predicted class. `y_score` contains either the predicted class
        or a score for each class. With scores, the prediction is the class with the highest score, or the first such
        class if scores tie.
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
