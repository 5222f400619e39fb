"""The confusion matrix of classes that are found in the log."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added, keyed
from ..classes import WORDS, FoundClasses, FoundColumn, kinds_of, name_of
from ..columns import Column, Need, weight
from ..errors import IncompatibleStateError, InvalidInputError, MemoryLimitError, StateFormatError
from ..growth import Growth
from ..settings import setting
from ..state import State
from .classes import NOTHING, PairCounts

__all__ = ["FoundPairs"]


class FoundPairs(PairCounts, tag="found_pairs"):
    """Rows by pair of true and predicted class, whatever these are called.

    Parameters
    ----------
    max_labels : int
        How many different classes there may be: MemoryLimitError beyond, and nothing was counted.

    Notes
    -----
    A class is held as its kind, its length and up to 40 bytes of text, or an integer. 100 bytes a pair that occurs.
    """

    max_labels: int = setting(default=1000, low=2, high=1 << 15, operational=True)

    pairs: Array = keyed(2 * WORDS)
    counts: Array = added(per="pairs")
    excess: Array = added(per="pairs", form="fixed", optional=True)

    def needs(self) -> tuple[Need, ...]:
        return Need("y_true", FoundClasses()), Need("y_pred", FoundClasses()), weight()

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        y_pred: Column,
        sample_weight: Column | None = None,
    ) -> None:
        from ..kernels.classes import count_pairs

        assert isinstance(y_true, FoundColumn)
        assert isinstance(y_pred, FoundColumn)
        self._check_kinds(y_true, y_pred)
        wide = len(y_pred.names)
        code = y_true.values * wide + y_pred.values
        code = code if at is None else code + at * (len(y_true.names) * wide)
        distinct, place = np.unique(code, return_inverse=True)
        counts = np.bincount(place, minlength=len(distinct)).astype(np.int64)
        both, slices = distinct % (len(y_true.names) * wide), distinct // (len(y_true.names) * wide)
        rows = {"pairs": np.column_stack([y_true.names[both // wide], y_pred.names[both % wide]]), "counts": counts}
        if sample_weight is not None:
            rows["excess"] = np.zeros((len(distinct), 2), np.int64)
            none, every = np.zeros(len(code), np.int64), np.zeros(len(distinct), np.int64)
            into = every, rows["excess"].reshape(-1)
            count_pairs(none, none, sample_weight.values, place.reshape(-1).astype(np.int64), 1, *into)
            self.need("excess")
        self.grow(None if at is None else slices, **rows)

    def _check_kinds(self, *columns: FoundColumn) -> None:
        """Raise unless classes are of the kind of those before."""
        known = set(kinds_of(self._classes(self.pairs)))
        for role, column in zip(("y_true", "y_pred"), columns, strict=True):
            used = column.names[np.unique(column.values)]
            known |= set(kinds_of(used))
            if len(known) > 1:
                raise InvalidInputError(
                    f"{role}: classes are of one kind, not {' and '.join(sorted(known))}; convert one of them",
                    column=role,
                )

    def _classes(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The different classes in some pairs."""
        rows = pairs[:, int(self.slices is not None) :].reshape(-1, WORDS)
        return np.unique(rows, axis=0) if len(rows) else rows

    def _fit(self, rows: dict[str, Array]) -> Growth:
        if len(rows.get("pairs", NOTHING)):
            found = len(np.unique(np.concatenate([self._classes(p) for p in (self.pairs, rows["pairs"])]), axis=0))
            if found > self.max_labels:
                raise MemoryLimitError(
                    f"there are {found:,} different classes, max_labels is {self.max_labels:,}; nothing was counted"
                )
        return super()._fit(rows)

    def check_merge(self, other: State) -> Growth:
        growth = super().check_merge(other)
        kinds = [set(kinds_of(self._classes(getattr(s, "pairs")))) for s in (self, other)]  # noqa: B009 - of a State
        if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
            a, b = (k.pop() for k in kinds)
            raise IncompatibleStateError(f"cannot merge classes of kind {a} with classes of kind {b}")
        return growth

    def check(self) -> None:
        classes = self._classes(self.pairs)
        try:
            for row in classes:
                name_of(row)
        except ValueError as error:
            raise StateFormatError(f"FoundPairs.pairs holds no class: {error}") from error
        if len(set(kinds_of(classes))) > 1:
            raise StateFormatError("FoundPairs.pairs holds classes of several kinds")
        if self.excess is not None and ((self.excess[..., 0] >> 20) + self.counts < 0).any():
            raise StateFormatError("FoundPairs.excess makes a weight negative")

    def _weighs(self) -> NDArray[np.bool_]:
        """Which pairs hold more than rows of weight 0, which are worth nothing: not even a class."""
        if self.excess is None:
            return np.ones(len(self.counts), bool)
        return np.asarray((self.excess[:, 0] != -(self.counts << 20)) | (self.excess[:, 1] != 0))

    def names(self) -> list[Any]:
        return sorted(map(name_of, self._classes(self.pairs[self._weighs()])))

    def square(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        kept, place = self._weighs(), {name: i for i, name in enumerate(self.names())}
        n = len(place)
        counts, excess = np.zeros((n, n), np.int64), None if self.excess is None else np.zeros((n, n, 2), np.int64)
        rows = [place[name_of(row)] for row in self.pairs[kept].reshape(-1, WORDS)]
        true, predicted = rows[::2], rows[1::2]
        counts[true, predicted] = self.counts[kept]
        if excess is not None and self.excess is not None:
            excess[true, predicted] = self.excess[kept]
        return counts, excess
