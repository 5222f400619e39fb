"""The confusion matrix of classes that are found in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..columns.classes import KINDS, LONGEST, FoundClasses, FoundColumn
from ..columns.columns import Need, weight
from ..errors import InvalidInputError, MemoryLimitError, StateFormatError
from ..numerics.settings import setting
from ..state.axes import Axis, Vocabulary
from ..state.declare import Flat
from .classes import PairCounts
from .step import NOTHING, Like, Step

__all__ = ["FoundPairs"]

Ints = NDArray[np.int64]
ROLES = ("y_true", "y_pred")


class FoundPairs(PairCounts, tag="found_pairs"):
    """Rows by pair of true and predicted class, whatever these are called.

    Parameters
    ----------
    max_labels : int
        How many different classes there may be: MemoryLimitError beyond, and nothing was counted.
    ignore_class : int or str, optional
        A row of this true class is left out and counted.

    Notes
    -----
    A pair that occurs is a cell: 40 bytes, 56 with weights; and each class once.
    """

    max_labels: int = setting(default=1000, low=2, high=1 << 15, operational=True)
    ignore_class: int | str | bytes | None = setting(default=None)

    counts = Flat()
    excess = Flat(form="fixed", beside="counts")

    behind = Axis(ROLES, "class")

    def needs(self) -> tuple[Need, ...]:
        return Need(ROLES[0], FoundClasses(self.ignore_class)), Need(ROLES[1], FoundClasses()), weight()

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        return tuple(_numbered(role, columns[role], numbers) for role in ROLES)

    def admit_classes(self, count: int) -> None:
        if count > self.max_labels:
            raise MemoryLimitError(
                f"there are {count:,} different classes, max_labels is {self.max_labels:,}; nothing was counted"
            )

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        excess = own.excess if like.weighted else NOTHING
        return [Step("class_counts:count_cells", "at", "sample_weight", own.counts, excess)]

    def merge(self, *others: Self) -> Self:
        made = super().merge(*others)
        made.admit_classes(len(made.cells.behind or ()))
        return made

    def check(self) -> None:
        super().check()
        classes = self.cells.behind or Vocabulary()
        if classes.texts:
            good = max(map(len, classes.values)) <= LONGEST
        else:
            good = not len(classes) or classes.values.dtype != object
        if classes.kind not in ("", *KINDS) or not good:
            raise StateFormatError("FoundPairs holds a class that is none: an integer, or a text that is not too long")

    def _weighs(self) -> NDArray[np.bool_]:
        """Which pairs hold more than rows of weight 0, which are worth nothing: not even a class."""
        if self.excess is None:
            return np.ones(len(self.counts), bool)
        return np.asarray((self.excess[:, 0] != -(self.counts << 20)) | (self.excess[:, 1] != 0))

    def _pairs(self) -> tuple[Ints, Ints]:
        """The ranks of the classes that weigh anything, and of each pair that does."""
        inner = self.cells.inner
        assert inner is not None
        pairs = inner[self._weighs(), 1:]
        return np.unique(pairs), pairs

    def names(self) -> list[Any]:
        classes = self.cells.behind or Vocabulary()
        return [classes.key(rank) for rank in self._pairs()[0].tolist()]

    def square(self) -> tuple[Ints, Ints | None]:
        kept, (classes, pairs) = self._weighs(), self._pairs()
        n, (true, predicted) = len(classes), np.searchsorted(classes, pairs).T
        counts, excess = np.zeros((n, n), np.int64), None if self.excess is None else np.zeros((n, n, 2), np.int64)
        counts[true, predicted] = self.counts[kept]
        if excess is not None and self.excess is not None:
            excess[true, predicted] = self.excess[kept]
        return counts, excess


def _numbered(role: str, column: Any, numbers: Any) -> Ints:
    """The number of the class of each row; those that no row has get none."""
    assert isinstance(column, FoundColumn)
    used = np.flatnonzero(np.bincount(column.values, minlength=len(column.keys)))
    if not len(used):
        return np.zeros(0, np.int64)
    if numbers.kind not in ("", column.source):
        raise InvalidInputError(
            f"{role}: classes are of one kind, not {' and '.join(sorted({numbers.kind, column.source}))}; convert one "
            f"of them",
            column=role,
        )
    keys: Any = column.keys[used] if column.source == "integer" else [column.keys[i] for i in used.tolist()]
    to = np.zeros(len(column.keys), np.int64)
    to[used] = numbers.learn(Vocabulary(column.source, keys))
    return to[column.values]
