"""Axes: what cells are told apart by; and vocabularies: the keys that were met on each column of an axis.

A cell holds the rank of its key among the sorted keys of its column. Ranks below zero are marks, which no key can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError
from ..numerics.keys import KINDS, plain, raw

__all__ = ["EPOCHS", "EXPIRED", "KINDS", "MARKS", "NULL", "OTHER", "Axis", "Vocabulary", "common"]

Ints = NDArray[np.int64]

NULL, OTHER, EXPIRED = -1, -2, -3
"""No key; a key that a limit does not keep; an epoch that is too old to be kept."""
EPOCHS = {"epoch": "timestamp", "step": "integer"}
"""What the starts of epochs are, by the kind of axis: an epoch begins at a multiple of its width."""
MARKS = {NULL: None, OTHER: "(other)", EXPIRED: "(expired)"}


class Axis(NamedTuple):
    """What cells are told apart by.

    Parameters
    ----------
    names : tuple of str
        The columns; several make their cross.
    kind : {"key", "epoch", "step", "shard", "group", "class"}
        Values of the columns; ranges of event time, and of integers, whose keys are their starts; hash classes of units.
        Behind the cell of a slice: groups, known by 128 bits, and classes, whose columns share one vocabulary.
    size : int
        The width of an epoch, in microseconds or steps, or the number of shards.
    limit : int, optional
        How many keys are kept within the cell above: the pinned ones, and those of smallest hash.
    pinned : tuple of keys
        Keys (a tuple of values, one a column) that are kept beyond the limit.
    keep : int, optional
        How many epochs, up to the newest within the cell above, are kept: whether or not there were rows in each.
    """

    names: tuple[str, ...]
    kind: str = "key"
    size: int = 0
    limit: int | None = None
    pinned: tuple[tuple[Any, ...], ...] = ()
    keep: int | None = None

    @property
    def width(self) -> int:
        """How many numbers a key is."""
        return 2 if self.kind == "group" else len(self.names)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The keys met on a column, sorted and unique.

    Parameters
    ----------
    kind : str
        One of KINDS, or of shards one of SHARDS; "" if there are none, so that content alone says it.
    values : array of integers, or tuple of bytes
        The keys: texts as their UTF-8, dates as days and timestamps as microseconds since 1970.
    """

    kind: str = ""
    values: Any = ()

    @classmethod
    def of(cls, kind: str, values: Any) -> Vocabulary:
        """Return the vocabulary of some values, in any order and with repetitions."""
        if not len(values):
            return cls()
        if KINDS.get(kind):
            return cls(kind, tuple(sorted(set(values))))
        ordered = np.sort(integers(values))  # np.unique hashes integers, which takes five times as long
        return cls(kind, ordered[np.append(True, ordered[1:] != ordered[:-1])])

    def __len__(self) -> int:
        return len(self.values)

    @property
    def texts(self) -> bool:
        """Whether keys are held as texts."""
        return KINDS.get(self.kind, False)

    @cached_property
    def index(self) -> dict[Any, int]:
        """The rank of each value."""
        return (
            dict(zip(self.values if self.texts else self.values.tolist(), range(len(self)), strict=True))
            if len(self)
            else {}
        )

    def ranks(self, values: Any) -> Ints:
        """The rank of each of some values, all of which there are."""
        if self.texts:
            return np.fromiter(map(self.index.__getitem__, values), np.int64, len(values))
        return np.searchsorted(self.values, values).astype(np.int64) if len(values) else np.zeros(0, np.int64)

    def rank(self, key: Any) -> int | None:
        """The rank of a key as users write it; None if it was not met."""
        if key is None:
            return NULL
        made = raw(key)
        if made is None or (self.kind and made[0] != self.kind):
            return None
        return self.index.get(made[1])

    def key(self, rank: int) -> Any:
        """The key of a rank, as users write it; None for null."""
        return MARKS[rank] if rank < 0 else plain(self.kind, self.values[rank])

    def take(self, used: Ints) -> Vocabulary:
        """Return some keys, by rank in ascending order."""
        if not len(used):
            return Vocabulary()
        if self.texts:
            return Vocabulary(self.kind, tuple(self.values[i] for i in used.tolist()))
        return Vocabulary(self.kind, integers(self.values[used]))

    def same(self, other: Vocabulary) -> bool:
        """Whether both hold the same keys."""
        if self is other:
            return True
        if len(self) != len(other):
            return False
        if not len(self):
            return True
        return self.kind == other.kind and (
            self.values == other.values if self.texts else bool(np.array_equal(self.values, other.values))
        )


def integers(values: Any) -> NDArray[Any]:
    """Integers as int64; as Python's where one does not fit."""
    array = np.asarray(values)
    if array.dtype.kind == "f":  # what numpy makes of a list of integers on both sides of int64
        array = np.array(list(values), object)
    if array.dtype == object or (array.dtype == np.uint64 and array.size and int(array.max()) >= 1 << 63):
        made = np.array([int(v) for v in array.tolist()], object)
        small = all(-(1 << 63) <= v < 1 << 63 for v in made)
        return made.astype(np.int64) if small else made
    return array.astype(np.int64, copy=False)


def common(name: str, words: Sequence[Vocabulary]) -> tuple[Vocabulary, list[Ints | None]]:
    """Return one vocabulary for all, and the new rank of each old one; None where nothing changes.

    Raises
    ------
    IncompatibleStateError
        Keys are of different kinds.
    """
    kinds = list(dict.fromkeys(w.kind for w in words if w.kind))
    if len(kinds) > 1:
        here, there = (kind.removeprefix("shard of ") for kind in kinds[:2])
        raise IncompatibleStateError(f"keys of {name} are of kind {here} here and {there} there; convert one of them")
    some = [w for w in words if len(w)]
    if not some or all(w.same(some[0]) for w in words):
        return (some[0] if some else Vocabulary()), [None] * len(words)
    if some[0].texts:
        # sorting merges what is sorted already; a set would come out in no order
        whole = Vocabulary(kinds[0], tuple(dict.fromkeys(sorted(chain.from_iterable(w.values for w in some)))))
    else:
        whole = Vocabulary.of(kinds[0], np.concatenate([w.values for w in some]))
    return whole, [None if w.same(whole) else whole.ranks(w.values) for w in words]
