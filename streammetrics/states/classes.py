"""Counts of rows by true and predicted class: the confusion matrix of classes that are known, or found in the log."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added
from ..classes import class_of
from ..columns import Column, Need, matrix, score, weight
from ..errors import StateFormatError
from ..exact import UNIT, fixed_to_int
from ..settings import setting
from ..state import State
from .known_classes import KnownClasses

__all__ = ["ClassCounts", "Margins", "PairCounts", "Table"]

NOTHING = np.zeros(0, np.int64)
NO_WEIGHTS = np.zeros(0)


class Margins(NamedTuple):
    """What the metrics of a whole confusion matrix read: rows, or weight in units of 2**-60."""

    right: list[int]
    true: list[int]
    predicted: list[int]

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.true)


class Table(NamedTuple):
    """True and false, positives and negatives, of one class against the rest: rows, or weight in units of 2**-60."""

    tn: int
    fp: int
    fn: int
    tp: int

    def cells(self, threshold: float) -> Table:
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
    """Rows by true and predicted class."""

    def square(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
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
            _whole(rows[every, every], None if excess is None else excess[every, every]),
            _whole(rows.sum(axis=1), None if excess is None else excess.sum(axis=1)),
            _whole(rows.sum(axis=0), None if excess is None else excess.sum(axis=0)),
        )

    def parts(self) -> list[Table]:
        """Each class against the rest."""
        right, true, predicted = self.margins()
        total = sum(true)
        return [Table(total - t - p + r, p - r, t - r, r) for r, t, p in zip(right, true, predicted, strict=True)]

    def pooled(self) -> Table:
        """The tables of all classes added up."""
        return Table(*(sum(part[i] for part in self.parts()) for i in range(4)))

    def facts(self) -> dict[str, Any]:
        classes, rows = len(self.names()), int(getattr(self, "counts").sum())  # noqa: B009 - of either kind
        return {"rows": rows, "classes": classes, "weight": Fraction(self.margins().total, self.unit)}


def _whole(rows: NDArray[np.int64], excess: NDArray[np.int64] | None) -> list[int]:
    """Rows, or weight in units of 2**-60, as Python's integers."""
    if excess is None:
        return [int(r) for r in rows]
    return [int(r) * UNIT + fixed_to_int(e) for r, e in zip(rows, excess, strict=True)]


class ClassCounts(KnownClasses, PairCounts, tag="class_counts"):
    """The confusion matrix of known classes.

    Parameters
    ----------
    num_classes, labels
        As for `KnownClasses`.
    column : {"y_score", "y_pred"}
        `y_score` takes a score of each class, and predicts the first of the highest; `y_pred` a class.
    """

    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    counts: Array = added("width", "width")
    excess: Array = added("width", "width", form="fixed", optional=True)

    checks_itself = True

    def needs(self) -> tuple[Need, ...]:
        scores = matrix(score(scale="real"), self.width, "; predicted classes are y_pred, which threshold=None reads")
        return class_of(self.known), class_of(self.known, "y_pred") if self.column == "y_pred" else scores, weight()

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        sample_weight: Column | None = None,
        **predicted: Column,
    ) -> bool:
        from ..kernels.classes import count_pairs, highest_classes

        found = predicted[self.column].values
        if self.column == "y_score":
            if at is None and not self.needs()[1].kind.ok(predicted[self.column]):
                return False
            found, scores = np.empty(len(found), np.int64), found
            highest_classes(scores, found)
        weights = sample_weight.values if sample_weight is not None else NO_WEIGHTS
        into = self.counts.reshape(-1), self.need("excess").reshape(-1) if len(weights) else NOTHING
        return bool(count_pairs(y_true.values, found, weights, NOTHING if at is None else at, self.width, *into))

    def quick(self) -> Callable[[Array, Array], bool] | None:
        from ..kernels.classes import count_pairs

        if self.column != "y_pred" or self.num_classes is None:
            return None
        counts, width = self.counts.reshape(-1), self.width

        def add(t: Array, p: Array) -> bool:
            return bool(count_pairs.dispatcher(t, p, NO_WEIGHTS, NOTHING, width, counts, NOTHING))

        return add

    def check(self) -> None:
        if self.excess is not None and ((self.excess[..., 0] >> 20) + self.counts < 0).any():
            raise StateFormatError("ClassCounts.excess makes a weight negative")

    def names(self) -> list[Any]:
        return list(self.labels or range(self.width))

    def square(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        return self.counts, self.excess
