"""The confusion matrix of classes that are discovered in the data, without a declared list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import KINDS, LONGEST, DiscoveredClasses, DiscoveredColumn
from ..batch.kinds import Need, weight
from ..errors import InvalidInputError, MemoryLimitError, StateFormatError
from ..numerics.exact import UNIT, weights_in_units
from ..numerics.settings import setting
from ..state.axes import Axis, Vocabulary
from ..state.declare import Flat
from ..state.state import State
from .classes import PairCounts
from .step import NOTHING, Like, Step

__all__ = ["Contingency", "DiscoveredNames", "DiscoveredPairs", "number_classes"]

Ints = NDArray[np.int64]
ROLES = ("y_true", "y_pred")
MOST = 1 << 15
"""The largest allowed value of `max_labels`."""


class Contingency(NamedTuple):
    """A sparse contingency table of true and predicted classes.

    All weights are Python integers in units of 1 / `unit`. They are row counts if rows have no weights.

    Parameters
    ----------
    joint : object array
        The weight of each pair (true class, predicted class) that occurs.
    true, predicted : object arrays
        The weight of each true class, and of each predicted class.
    row, column : int64 arrays
        For each pair, the index of its true class in `true`, and the index of its predicted class in `predicted`.
    unit : int
        The integer that represents a weight of 1.
    weight_rounding : Fraction
        The largest relative error of a weight, caused by rounding the weight to a multiple of 2**-60.
    """

    joint: NDArray[Any]
    true: NDArray[Any]
    predicted: NDArray[Any]
    row: Ints
    column: Ints
    unit: int
    weight_rounding: Fraction

    @property
    def total(self) -> int:
        """The total weight, in units of 1 / `unit`."""
        return int(self.joint.sum())


class DiscoveredNames(State):
    """The base class for states whose classes (or groups) are discovered in the data rather than declared.

    Parameters
    ----------
    max_labels : int
        The maximum number of distinct classes. A batch that exceeds it raises MemoryLimitError and is not counted.
    """

    max_labels: int = setting(default=1000, low=2, high=MOST, operational=True)

    item_noun: ClassVar[str] = "classes"
    """The word for the classes in error messages, such as "groups"."""
    limit_setting: ClassVar[str] = "max_labels"
    """The name of the metric setting that limits the number of classes, for error messages."""

    @classmethod
    def roles(cls) -> tuple[str, ...]:
        """Return the names of the columns that contain the classes."""
        assert cls.inner_axis is not None
        return cls.inner_axis.names

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        return tuple(number_classes(role, columns[role], numbers) for role in self.roles())

    def check_class_count(self, count: int) -> None:
        if count > self.max_labels:
            raise MemoryLimitError(
                f"there are {count:,} different {self.item_noun}, but {self.limit_setting} is {self.max_labels:,}; "
                f"nothing was counted; pass a larger {self.limit_setting}="
            )

    def merge(self, *others: Self) -> Self:
        state = super().merge(*others)
        state.check_class_count(len(state.cells.class_vocabulary or ()))
        return state

    def check(self) -> None:
        super().check()
        classes = self.cells.class_vocabulary or Vocabulary()
        if classes.is_text:
            good = max(map(len, classes.values)) <= LONGEST
        else:
            good = not len(classes) or classes.values.dtype != object
        if classes.kind not in ("", *KINDS) or not good:
            raise StateFormatError(
                f"the state is corrupt: {type(self).__name__} contains an invalid class: classes are integers, or strings "
                f"of at most {LONGEST} bytes"
            )


class DiscoveredPairs(DiscoveredNames, PairCounts, tag="found_pairs"):
    """Row counts by pair of true and predicted class, with classes that are discovered in the data.

    Parameters
    ----------
    max_labels : int
        The maximum number of distinct classes. A batch that exceeds it raises MemoryLimitError and is not counted.
    ignore_class : int or str, optional
        Rows of this true class are dropped, and the number of dropped rows is recorded.

    Notes
    -----
    Each pair that occurs takes a cell of 40 bytes, or 56 bytes with weights. Each class is stored once.
    """

    ignore_class: int | str | bytes | None = setting(default=None)

    counts = Flat()
    excess = Flat(form="fixed", excess_of="counts")

    inner_axis = Axis(ROLES, "class")

    def needs(self) -> tuple[Need, ...]:
        return Need(ROLES[0], DiscoveredClasses(self.ignore_class)), Need(ROLES[1], DiscoveredClasses()), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        excess = own.excess if like.has_weights else NOTHING
        return [Step("class_counts:count_cells", "at", "sample_weight", own.counts, excess)]

    def _mask_weighty_pairs(self) -> NDArray[np.bool_]:
        """Return a mask of the pairs with positive weight.

        A class whose rows all have weight 0 does not appear in results.
        """
        if self.excess is None:
            return np.ones(len(self.counts), bool)
        return np.asarray((self.excess[:, 0] != -(self.counts << 20)) | (self.excess[:, 1] != 0))

    def _class_ranks(self) -> tuple[Ints, Ints]:
        """Return the ranks of the classes that occur, and the ranks of the true and the predicted class of each pair.

        The rank of a class is its position among all classes in ascending order. The second array has a row of two
        ranks for each pair. Pairs of weight 0 are left out.
        """
        inner = self.cells.inner_keys
        assert inner is not None
        pairs = inner[self._mask_weighty_pairs(), 1:]
        return np.unique(pairs), pairs

    def class_names(self) -> list[Any]:
        classes = self.cells.class_vocabulary or Vocabulary()
        return [classes.read_key(rank) for rank in self._class_ranks()[0].tolist()]

    def contingency(self) -> Contingency:
        """Return the sparse contingency table of the pairs with positive weight."""
        kept, (_, pairs) = self._mask_weighty_pairs(), self._class_ranks()
        joint = weights_in_units(self.counts[kept], None if self.excess is None else self.excess[kept])
        row, column = (np.unique(pairs[:, i], return_inverse=True)[1].reshape(-1).astype(np.int64) for i in (0, 1))
        true, predicted = (np.zeros(int(at.max(initial=-1)) + 1, object) for at in (row, column))
        np.add.at(true, row, joint)
        np.add.at(predicted, column, joint)
        return Contingency(
            joint, true, predicted, row, column, 1 if self.excess is None else UNIT, self.weight_rounding
        )

    def confusion_matrix(self) -> tuple[Ints, Ints | None]:
        kept, (classes, pairs) = self._mask_weighty_pairs(), self._class_ranks()
        n, (true, predicted) = len(classes), np.searchsorted(classes, pairs).T
        if n > MOST:
            raise MemoryLimitError(f"a confusion matrix can have at most {MOST:,} classes, found {n:,} classes")
        counts, excess = np.zeros((n, n), np.int64), None if self.excess is None else np.zeros((n, n, 2), np.int64)
        counts[true, predicted] = self.counts[kept]
        if excess is not None and self.excess is not None:
            excess[true, predicted] = self.excess[kept]
        return counts, excess


def number_classes(role: str, column: Any, numbers: Any, noun: str = "classes") -> Ints:
    """Return the class number of each row, and add new classes to the vocabulary.

    Parameters
    ----------
    role : str
        The name of the column, for error messages.
    column : DiscoveredColumn
        The classes of the rows.
    numbers : object
        The vocabulary that assigns an integer to each class.
    noun : str
        The word for the classes in error messages.
    """
    assert isinstance(column, DiscoveredColumn)
    # A categorical column can list categories that occur in no row of the batch. Do not count them as classes.
    used = np.flatnonzero(np.bincount(column.values, minlength=len(column.keys)))
    if not len(used):
        return np.zeros(0, np.int64)
    if numbers.kind not in ("", column.source):
        raise InvalidInputError(
            f"{role}: expected {noun} of one kind, found {' and '.join(sorted({numbers.kind, column.source}))}; convert "
            f"one of the columns",
            column=role,
        )
    listed = isinstance(column.keys, list)
    keys: Any = [column.keys[i] for i in used.tolist()] if listed else column.keys[used]
    to = np.zeros(len(column.keys), np.int64)
    to[used] = numbers.add_vocabulary(Vocabulary(column.source, keys))
    return to[column.values]
