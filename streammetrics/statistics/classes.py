"""Counts of rows by true and predicted class: the confusion matrix of classes that are known, or found in the log."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import ScoresOrClasses, class_of
from ..batch.kinds import Need, weight
from ..numerics.exact import UNIT, weights
from ..numerics.settings import setting
from ..state.declare import Flat
from ..state.state import State
from .known_classes import KnownClasses
from .step import NOTHING, Like, Step

__all__ = ["ClassCounts", "ClassTable", "Margins", "PairCounts"]

Ints = NDArray[np.int64]


class Margins(NamedTuple):
    """What the metrics of a whole confusion matrix read: rows, or weight in units of 2**-60."""

    right: list[int]
    true: list[int]
    predicted: list[int]

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.true)


class ClassTable(NamedTuple):
    """True and false, positives and negatives, of one class against the rest: rows, or weight in units of 2**-60."""

    tn: int
    fp: int
    fn: int
    tp: int

    def cells_at(self, threshold: float) -> ClassTable:
        """The table itself: decisions are made."""
        return self

    def support(self) -> int:
        """The weight of the class."""
        return self.fn + self.tp

    def margins(self) -> Margins:
        """Margins of the 2 x 2 matrix."""
        return Margins(
            [self.tn, self.tp], [self.tn + self.fp, self.fn + self.tp], [self.tn + self.fn, self.fp + self.tp]
        )

    def facts(self) -> dict[str, Any]:
        """What `State.facts` has."""
        return {"rows": sum(self)}


class PairCounts(State):
    """Rows by true and predicted class, and the excess of their weights."""

    counted = ("counts",)

    def square(self) -> tuple[Ints, Ints | None]:
        """Rows by true and predicted class, and the excess of their weights."""
        raise NotImplementedError

    def names(self) -> list[Any]:
        """The classes in the order of the matrix."""
        raise NotImplementedError

    @property
    def unit(self) -> int:
        """What a row of weight 1 counts."""
        return 1 if self.square()[1] is None else UNIT

    def margins(self) -> Margins:
        """Rows (or weight) that are right, by class, and of each true and each predicted class."""
        rows, excess = self.square()
        every = np.arange(len(rows))
        return Margins(
            weights(rows[every, every], None if excess is None else excess[every, every]).tolist(),
            weights(rows.sum(axis=1), None if excess is None else excess.sum(axis=1)).tolist(),
            weights(rows.sum(axis=0), None if excess is None else excess.sum(axis=0)).tolist(),
        )

    def each(self) -> list[ClassTable]:
        """Each class against the rest."""
        right, true, predicted = self.margins()
        total = sum(true)
        return [ClassTable(total - t - p + r, p - r, t - r, r) for r, t, p in zip(right, true, predicted, strict=True)]

    def pooled(self) -> ClassTable:
        """The tables of all classes added up."""
        return ClassTable(*(sum(part[i] for part in self.each()) for i in range(4)))

    def facts(self) -> dict[str, Any]:
        classes, rows = len(self.names()), int(self.rows_seen.sum())
        return {"rows": rows, "classes": classes, "weight": Fraction(self.margins().total, self.unit)}


class ClassCounts(KnownClasses, PairCounts, tag="class_counts"):
    """The confusion matrix of known classes.

    Parameters
    ----------
    num_classes, labels
        As for `KnownClasses`.
    column : {"y_score", "y_pred"}
        `y_score` takes a score of each class, and predicts the first of the highest, or the predicted class; `y_pred`
        takes the predicted class.
    """

    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    counts = Flat("width", "width")
    excess = Flat("width", "width", form="fixed", beside="counts")

    def needs(self) -> tuple[Need, ...]:
        scores = Need("y_score", ScoresOrClasses(self.known))
        return self.true_class, class_of(self.known, "y_pred") if self.column == "y_pred" else scores, weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        into = self.width, own.counts, own.excess if like.weighted else NOTHING
        decided = like.dtype(self.column) == np.int64
        name = "class_counts:count_pairs" if decided else "class_counts:count_highest"
        return [Step(name, "y_true", self.column, "sample_weight", "at", *into, checks=True)]

    def names(self) -> list[Any]:
        return list(self.labels or range(self.width))

    def square(self) -> tuple[Ints, Ints | None]:
        return self.counts, self.excess
