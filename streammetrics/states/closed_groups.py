"""Sums over closed groups: constant size, exact, whatever the groups weigh."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added
from ..columns import Column, Need, label, score
from ..errors import IncompatibleStateError, InvalidInputError, StateFormatError
from ..exact import exact_to_fraction
from ..group_rows import GROUP_WEIGHTS, Groups
from ..growth import Growth
from ..ids import group
from ..settings import setting
from ..state import State

__all__ = ["ClosedSums", "SealedGroups", "exact_sum"]


class ClosedSums(State):
    """Exact sums over closed groups, whatever they weigh: constant memory."""

    groups: Array = added(3)
    rows: Array = added(2)
    sums: Array = added(4, form="exact")
    weights: Array = added(4, form="exact")
    lone: Array = added(4, form="exact")

    def take(self, other: ClosedSums) -> None:
        """Add the sums of other groups."""
        for name in ("groups", "rows", "sums", "weights", "lone"):
            ours = self.__dict__[name]
            self.rules()[name].carry(np.add(ours, other.__dict__[name], out=ours))

    def total(self, name: str, by: str) -> Fraction:
        """One of the sums."""
        return exact_to_fraction(self.__dict__[name][GROUP_WEIGHTS.index(by)])


class SealedGroups(ClosedSums, tag="sealed_groups"):
    """Closed groups of some partitions.

    Parameters
    ----------
    parts : int
        How many partitions there are; each is sealed once.
    """

    parts: int = setting(default=1, low=1)

    seen: Array = added("parts")

    def needs(self) -> tuple[Need, ...]:
        return label(), score(), group()

    def absorb(self, at: Any, /, **columns: Column) -> None:
        raise InvalidInputError("sealed groups are closed: rows go to the open state, before seal()", column="group")

    def check_merge(self, other: State) -> Growth:
        growth = super().check_merge(other)
        twice = np.flatnonzero(self.__dict__["seen"] + other.__dict__["seen"] > 1)
        if len(twice):
            raise IncompatibleStateError(f"partition {int(twice[0])} of {self.parts} is sealed on both sides")
        return growth

    def check(self) -> None:
        if (self.seen > 1).any():
            raise StateFormatError("SealedGroups.seen counts a partition twice")

    def close_groups(self) -> SealedGroups:
        """Return itself: it is closed."""
        return self

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows.sum()), "positives": int(self.rows[1])}

    @classmethod
    def of(cls, groups: Groups, partition: tuple[int, ...], rows: tuple[int, int]) -> SealedGroups:
        """Close groups."""
        from ..kernels.groups import close_groups

        part, parts = partition or (0, 1)
        new = cls(parts=parts)
        new.seen[part] = 1
        new.rows[...] = rows
        close_groups(*groups, new.groups, *(array.reshape(-1) for array in (new.sums, new.weights, new.lone)))
        return new


def exact_sum(values: NDArray[np.float64]) -> Fraction:
    """The sum of floats that are not negative, without rounding."""
    if values.max(initial=0.0) < 2.0**31 and np.array_equal(integers := values.astype(np.int64), values):
        return Fraction(int(integers.sum()))
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    least = int(exponents.min(initial=0))
    # by exponent, in halves of 27 bits: sums of up to 2**26 of them are exact in float64
    total = Fraction(0)
    for start in range(0, len(values), 1 << 26):
        rows_ = slice(start, start + (1 << 26))
        for half, scale in ((whole[rows_] >> 27, 1 << 27), (whole[rows_] & ((1 << 27) - 1), 1)):
            for e, part in enumerate(np.bincount(exponents[rows_] - least, half)):
                if part:
                    total += int(part) * scale * Fraction(2) ** (e + least - 53)
    return total
