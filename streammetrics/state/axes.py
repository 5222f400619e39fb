"""Axes (the columns that divide a state into cells, such as slices) and vocabularies (each column's distinct keys).

The table of cells stores a key as its rank, that is, its position in the sorted vocabulary of the column. A negative
rank marks rows without a key, or keys that are no longer kept because of a limit or an expiry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError
from ..numerics.slice_keys import KINDS, from_stored_key, to_stored_key

__all__ = ["EPOCHS", "EXPIRED", "KINDS", "MARKS", "NULL", "OTHER", "Axis", "Vocabulary", "merge_vocabularies"]

Ints = NDArray[np.int64]

NULL, OTHER, EXPIRED = -1, -2, -3
"""The marks that replace a rank: NULL if the row has no key, OTHER if its key is not kept because of the limit of the
axis, and EXPIRED if its epoch is too old to be kept."""
EPOCHS = {"epoch": "timestamp", "step": "integer"}
"""The kinds of axes whose keys are epochs (ranges of time or of integers), with the type of these keys.

A key is the start of its epoch, which is a multiple of the width of the epochs.
"""
MARKS = {NULL: None, OTHER: "(other)", EXPIRED: "(expired)"}


class Axis(NamedTuple):
    """One or more columns whose keys divide the rows of a state into cells, such as slices.

    Parameters
    ----------
    names : tuple of str
        The columns. If there are several, each combination of their values is a key.
    kind : {"key", "epoch", "step", "shard", "group", "class"}
        The meaning of a key: a value of each column ("key"); the start of a range of event time ("epoch") or of
        integers ("step"); or the number of the shard to which a hash assigns a unit, such as a user ("shard"). Only the
        inner axis of a statistic can have groups, which are identified by a 128-bit hash ("group"), or classes, whose
        columns share one vocabulary ("class").
    size : int
        The width of a range: in microseconds for "epoch", as a number of integers for "step". For "shard", the number
        of shards.
    limit : int, optional
        The maximum number of keys, not counting pinned ones, within each cell of the axes before this one. The keys
        with the smallest hashes are kept.
    pinned : tuple of tuple
        Keys that are always kept and do not count toward the limit. A key is a tuple with one value per column.
    keep : int, optional
        The number of epochs to keep within each cell of the axes before this one: the cell's newest epoch and those
        just before it, including epochs without rows.
    """

    names: tuple[str, ...]
    kind: str = "key"
    size: int = 0
    limit: int | None = None
    pinned: tuple[tuple[Any, ...], ...] = ()
    keep: int | None = None

    @property
    def key_width(self) -> int:
        """The number of integers that make up a key."""
        return 2 if self.kind == "group" else len(self.names)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The distinct keys of a column, sorted.

    Parameters
    ----------
    kind : str
        The type of the keys, such as "integer" or "timestamp" (see `KINDS`). For shard numbers, it also names the
        type of the IDs that were hashed, as in "shard of integer". A vocabulary without keys has the kind "", so that
        states with equal content are equal.
    values : array of integers, or tuple of bytes
        The keys: strings as UTF-8 bytes, dates as days since 1970, and timestamps as microseconds since 1970.
    """

    kind: str = ""
    values: Any = ()

    @classmethod
    def from_values(cls, kind: str, values: Any) -> Vocabulary:
        """Return the vocabulary of the given values, which may be unsorted and contain duplicates."""
        if not len(values):
            return cls()
        if KINDS.get(kind):
            return cls(kind, tuple(sorted(set(values))))
        # Sort instead of calling `np.unique`, which hashes integers and takes five times as long.
        ordered = np.sort(as_integers(values))
        return cls(kind, ordered[np.append(True, ordered[1:] != ordered[:-1])])

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_text(self) -> bool:
        """Whether the keys are strings (stored as bytes) rather than integers."""
        return KINDS.get(self.kind, False)

    @cached_property
    def rank_by_value(self) -> dict[Any, int]:
        """A mapping from the stored value of each key to its rank (position in sorted order)."""
        return (
            dict(zip(self.values if self.is_text else self.values.tolist(), range(len(self)), strict=True))
            if len(self)
            else {}
        )

    def find_ranks(self, values: Any) -> Ints:
        """Return the rank of each value; all of them must be in the vocabulary."""
        if self.is_text:
            return np.fromiter(map(self.rank_by_value.__getitem__, values), np.int64, len(values))
        return np.searchsorted(self.values, values).astype(np.int64) if len(values) else np.zeros(0, np.int64)

    def find_rank(self, key: Any) -> int | None:
        """Return the rank of a key, passed as a plain Python value; None if the vocabulary does not contain it."""
        if key is None:
            return NULL
        stored = to_stored_key(key)
        if stored is None or stored[0] != self.kind:
            return None
        # Search the sorted values by bisection, because building a dict of all values would take too long.
        value, values = stored[1], self.values
        rank = bisect_left(values, value) if self.is_text else int(values.searchsorted(value))
        return rank if rank < len(values) and values[rank] == value else None

    def read_key(self, rank: int) -> Any:
        """Return the key with this rank as a plain Python value, such as a str or a date (None for a missing key)."""
        return MARKS[rank] if rank < 0 else from_stored_key(self.kind, self.values[rank])

    def select(self, used: Ints) -> Vocabulary:
        """Return a vocabulary that contains only the keys with these ranks, which must be ascending."""
        if not len(used):
            return Vocabulary()
        if self.is_text:
            return Vocabulary(self.kind, tuple(self.values[i] for i in used.tolist()))
        return Vocabulary(self.kind, as_integers(self.values[used]))

    def equals(self, other: Vocabulary) -> bool:
        """Return whether both vocabularies contain the same keys."""
        if self is other:
            return True
        if len(self) != len(other):
            return False
        if not len(self):
            return True
        return self.kind == other.kind and (
            self.values == other.values if self.is_text else bool(np.array_equal(self.values, other.values))
        )


def as_integers(values: Any) -> NDArray[Any]:
    """Convert integers to an int64 array, or to an array of Python integers (dtype object) if any does not fit."""
    array = np.asarray(values)
    # numpy converts a list of integers to floats, which lose digits, if only some of them exceed the int64 range.
    if array.dtype.kind == "f":
        array = np.array(list(values), object)
    if array.dtype == object or (array.dtype == np.uint64 and array.size and int(array.max()) >= 1 << 63):
        exact = np.array([int(v) for v in array.tolist()], object)
        fits = all(-(1 << 63) <= v < 1 << 63 for v in exact)
        return exact.astype(np.int64) if fits else exact
    return array.astype(np.int64, copy=False)


def merge_vocabularies(name: str, vocabularies: Sequence[Vocabulary]) -> tuple[Vocabulary, list[Ints | None]]:
    """Return the union of a column's vocabularies, and for each vocabulary, the ranks of its keys in the union.

    Instead of ranks, the list contains None for a vocabulary whose ranks do not change.

    Raises
    ------
    IncompatibleStateError
        The vocabularies contain keys of different types, such as integers and strings.
    """
    kinds = list(dict.fromkeys(w.kind for w in vocabularies if w.kind))
    if len(kinds) > 1:
        here, there = (kind.removeprefix("shard of ") for kind in kinds[:2])
        raise IncompatibleStateError(
            f"keys of {name} are of kind {here} here and {there} there; convert the keys of one side"
        )
    some = [w for w in vocabularies if len(w)]
    if not some or all(w.equals(some[0]) for w in vocabularies):
        return (some[0] if some else Vocabulary()), [None] * len(vocabularies)
    if some[0].is_text:
        # Concatenate and sort the vocabularies rather than building a set. Python sorts a list that consists of a few
        # sorted runs in linear time.
        union = Vocabulary(kinds[0], tuple(dict.fromkeys(sorted(chain.from_iterable(w.values for w in some)))))
    else:
        union = Vocabulary.from_values(kinds[0], np.concatenate([w.values for w in some]))
    return union, [None if w.equals(union) else union.find_ranks(w.values) for w in vocabularies]
