"""The confusion matrix of classes that are found in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import KINDS, LONGEST, FoundClasses, FoundColumn
from ..batch.kinds import Need, weight
from ..errors import InvalidInputError, MemoryLimitError, StateFormatError
from ..numerics.exact import UNIT, weights
from ..numerics.settings import setting
from ..state.axes import Axis, Vocabulary
from ..state.declare import Flat
from ..state.state import State
from .classes import PairCounts
from .step import NOTHING, Like, Step

__all__ = ["Contingency", "FoundNames", "FoundPairs", "numbered"]

Ints = NDArray[np.int64]
ROLES = ("y_true", "y_pred")
MOST = 1 << 15
"""Classes that `max_labels` may allow."""


class Contingency(NamedTuple):
    """Rows by pair of classes, sparse: Python's integers, of rows or of weight in units of 2**-60.

    Parameters
    ----------
    both : object array
        Of each pair that there is.
    true, predicted : object arrays
        Of each true and each predicted class.
    row, column : int64 arrays
        The places of each pair in these.
    unit : int
        What a row of weight 1 counts.
    slip : Fraction
        How far weights may be off, relatively.
    """

    both: NDArray[Any]
    true: NDArray[Any]
    predicted: NDArray[Any]
    row: Ints
    column: Ints
    unit: int
    slip: Fraction

    @property
    def total(self) -> int:
        """All rows."""
        return int(self.both.sum())


class FoundNames(State):
    """What is counted by classes, or groups, that are found in the log, whatever these are called.

    Parameters
    ----------
    max_labels : int
        How many different ones there may be: MemoryLimitError beyond, and nothing was counted.
    """

    max_labels: int = setting(default=1000, low=2, high=MOST, operational=True)

    what: ClassVar[str] = "classes"
    """What they are, and which setting of a metric says how many there may be."""
    most_setting: ClassVar[str] = "max_labels"

    @classmethod
    def roles(cls) -> tuple[str, ...]:
        """The columns in which they are found."""
        assert cls.behind is not None
        return cls.behind.names

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        return tuple(numbered(role, columns[role], numbers) for role in self.roles())

    def admit_classes(self, count: int) -> None:
        if count > self.max_labels:
            raise MemoryLimitError(
                f"there are {count:,} different {self.what}, {self.most_setting} is {self.max_labels:,}; "
                f"nothing was counted"
            )

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
            raise StateFormatError(
                f"{type(self).__name__} holds a class that is none: an integer, or a text that is not too long"
            )


class FoundPairs(FoundNames, PairCounts, tag="found_pairs"):
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

    ignore_class: int | str | bytes | None = setting(default=None)

    counts = Flat()
    excess = Flat(form="fixed", beside="counts")

    behind = Axis(ROLES, "class")

    def needs(self) -> tuple[Need, ...]:
        return Need(ROLES[0], FoundClasses(self.ignore_class)), Need(ROLES[1], FoundClasses()), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        excess = own.excess if like.weighted else NOTHING
        return [Step("class_counts:count_cells", "at", "sample_weight", own.counts, excess)]

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

    def contingency(self) -> Contingency:
        """The pairs that weigh anything, and the margins."""
        kept, (_, pairs) = self._weighs(), self._pairs()
        both = weights(self.counts[kept], None if self.excess is None else self.excess[kept])
        row, column = (np.unique(pairs[:, i], return_inverse=True)[1].reshape(-1).astype(np.int64) for i in (0, 1))
        true, predicted = (np.zeros(int(at.max(initial=-1)) + 1, object) for at in (row, column))
        np.add.at(true, row, both)
        np.add.at(predicted, column, both)
        return Contingency(both, true, predicted, row, column, 1 if self.excess is None else UNIT, self.slip)

    def square(self) -> tuple[Ints, Ints | None]:
        kept, (classes, pairs) = self._weighs(), self._pairs()
        n, (true, predicted) = len(classes), np.searchsorted(classes, pairs).T
        if n > MOST:
            raise MemoryLimitError(f"a matrix of {n:,} classes does not fit; max_labels is {MOST:,} at most")
        counts, excess = np.zeros((n, n), np.int64), None if self.excess is None else np.zeros((n, n, 2), np.int64)
        counts[true, predicted] = self.counts[kept]
        if excess is not None and self.excess is not None:
            excess[true, predicted] = self.excess[kept]
        return counts, excess


def numbered(role: str, column: Any, numbers: Any, called: str = "classes") -> Ints:
    """The number of the class of each row; those that no row has get none."""
    assert isinstance(column, FoundColumn)
    used = np.flatnonzero(np.bincount(column.values, minlength=len(column.keys)))
    if not len(used):
        return np.zeros(0, np.int64)
    if numbers.kind not in ("", column.source):
        raise InvalidInputError(
            f"{role}: {called} are of one kind, not {' and '.join(sorted({numbers.kind, column.source}))}; convert one "
            f"of them",
            column=role,
        )
    listed = isinstance(column.keys, list)
    keys: Any = [column.keys[i] for i in used.tolist()] if listed else column.keys[used]
    to = np.zeros(len(column.keys), np.int64)
    to[used] = numbers.learn(Vocabulary(column.source, keys))
    return to[column.values]
