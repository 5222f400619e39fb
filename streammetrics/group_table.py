"""Sums by group while rows come in: a table from id to number, and the sums of each number, in the order met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .columns import Column

if TYPE_CHECKING:
    from .states.sums import ScoreSums

__all__ = ["GroupTable"]

NOTHING = np.zeros(0, np.int64)
NO_WEIGHTS = np.zeros(0)
ROOM = 1 << 10
SLOTS = 8  # bytes of the table for each number: two slots of 4


class GroupTable:
    """An open table of groups.

    Parameters
    ----------
    one : ScoreSums
        An empty state of what is summed.
    """

    def __init__(self, one: ScoreSums) -> None:
        self.one, self.size, self.room = one, 0, 0
        self.slots, self.known = np.full(ROOM, -1, np.int32), np.zeros(0, np.int64)
        self.held: dict[str, Array] = {}
        self.slices = NOTHING

    def growth(self, n: int) -> int:
        """Bytes that n more groups may take."""
        more = max(0, self.size + n - self.room)
        return more * (16 + SLOTS + sum(a[:1].nbytes for a in self._empty(1).values()))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.slots.nbytes + self.known.nbytes + sum(a.nbytes for a in self.held.values())

    def count(
        self,
        ids: Array,
        y: Column,
        s: Column,
        w: Column | None,
        *,
        at: NDArray[np.int64] | None = None,
        wild: bool = False,
    ) -> None:
        """Add rows to the sums of their groups; with `at` to those of their slice and group."""
        numbers = self._numbers(ids)
        if at is not None:  # slices are few beside groups: number the pairs that occur
            pairs = at * self.size + numbers
            distinct, numbers = np.unique(pairs, return_inverse=True)
            self.slices, of = distinct // self.size, distinct % self.size
            self.known = self.known[: 2 * self.size].reshape(-1, 2)[of].reshape(-1)
            self.size, numbers = len(distinct), numbers.reshape(-1).astype(np.int64)
        self._make_room(w is not None, wild)
        self._sum(numbers, y, s, w)

    def _numbers(self, ids: Array) -> NDArray[np.int64]:
        from .kernels.groups import number_groups

        two = ids.ndim == 2
        halves = [np.ascontiguousarray(ids[:, i]) for i in range(2)] if two else [ids, NOTHING]
        most = self.size + len(ids)
        if 2 * most > len(self.known):
            known = np.zeros(max(2 * most, 2 * len(self.known)), np.int64)
            known[: 2 * self.size] = self.known[: 2 * self.size]
            self.known = known
        if 2 * most > len(self.slots):
            self.slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
            again = self.known[: 2 * self.size].reshape(-1, 2)
            left, right = (np.ascontiguousarray(again[:, i]) for i in range(2))
            number_groups(left, right, 0, 0, self.slots, self.known, np.empty(self.size, np.int32))
        numbers = np.empty(len(ids), np.int32)
        self.size = int(number_groups(*halves, 0, self.size, self.slots, self.known, numbers))
        return numbers.astype(np.int64)

    def _empty(self, room: int) -> dict[str, Array]:
        made = self.one.empty(slices=room)
        return {name: made.__dict__[name] for name in ("rows", "sums", "clipped")}

    def _make_room(self, weighted: bool, wild: bool) -> None:
        """Make room for the sums of new groups, and for what weights and large terms need."""
        if self.size > self.room or not self.held:
            self.room = max(ROOM, self.size + self.size // 2)
            fresh = self._empty(self.room)
            for optional in {"excess", "large"} & set(self.held):
                fresh[optional] = self._optional(optional)
            for name, array in self.held.items():
                fresh[name][: len(array)] = array
            self.held = fresh
        for name, wanted in (("excess", weighted), ("large", wild)):
            if wanted and name not in self.held:
                self.held[name] = self._optional(name)

    def _optional(self, name: str) -> Array:
        return self.one.empty(slices=self.room).need(name)

    def _sum(self, numbers: NDArray[np.int64], y: Column, s: Column, w: Column | None) -> None:
        from .kernels.sums import sum_slices

        one, held = self.one, self.held
        weights: Any = NO_WEIGHTS if w is None else w.values
        large = held.get("large")
        sum_slices(
            y.values,
            s.values,
            weights,
            numbers,
            self.room,
            one.numbers,
            one.scale == "logit",
            one.epsilon(s.source),
            held["rows"].reshape(-1),
            held["excess"].reshape(-1) if w is not None else NOTHING,
            held["sums"].reshape(-1),
            NOTHING if large is None else large.reshape(-1),
            held["clipped"].reshape(-1),
        )
        if large is not None:
            one.rules()["large"].carry(large)

    def arrays(self) -> dict[str, Array]:
        """The groups, their sums, and the slice of each, if there are slices."""
        found = {name: array[: self.size] for name, array in self.held.items() if name != "clipped"}
        return {"keys": self.known[: 2 * self.size].reshape(-1, 2), "slices": self.slices, **found}
