"""Exact sums by group: log-loss and predicted positives of every user, in memory that grows with users, not with rows."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...batch.ids import group
from ...batch.kinds import Need
from ...errors import MemoryLimitError
from ...numerics.exact import carry_fixed, exact_to_fraction, to_float
from ...numerics.settings import setting
from ...state.axes import Axis
from ..key_kinds import KeyKinds
from ..step import Like, Step
from ..sums import TermSums

__all__ = ["GroupSums"]


class GroupSums(KeyKinds, TermSums, tag="group_sums"):
    """The sums of `ScoreSums` for every group.

    Parameters
    ----------
    missing, missing_values
        As `sm.extend.group` takes them.
    memory_limit : int
        Bytes that groups may take; MemoryLimitError beyond, and nothing was counted.

    Notes
    -----
    A group takes 40 bytes, and 56 a term; with weights 64, and 32 a term, more.
    """

    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    keyed = "group"
    behind = Axis(("group",), "group")

    def needs(self) -> tuple[Need, ...]:
        label, *others = super().needs()
        return label, *others[:-1], group("group", self.missing, self.missing_values), others[-1]

    def steps(self, like: Like) -> Iterable[Step]:
        return [*super().steps(like), self.note_kind(like)]

    def merge(self, *others: Self) -> Self:
        made = super().merge(*others)
        if made.nbytes > self.memory_limit:
            raise MemoryLimitError(
                f"GroupSums would need {made.nbytes:,} bytes; its memory_limit is {self.memory_limit:,}"
            )
        return made

    # -- reading ------------------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows.sum()), "positives": int(self.rows[:, 1].sum()), "groups": len(self.rows)}

    def weights(self) -> NDArray[np.float64]:
        """The weight of negatives and positives of every group."""
        if self.excess is None:
            return np.asarray(self.rows, np.float64)
        whole = self.excess.copy()
        whole[..., 0] += self.rows << 20  # here, not as floats: beside 1 the smallest weight has few bits
        return np.asarray(_floats(whole))

    def totals(self, term: str) -> NDArray[np.float64]:
        """The weighted sum of a term, of every group."""
        i = self.terms.index(term)
        both = self.sums[:, i].sum(axis=1)
        carry_fixed(both)
        found = _floats(both)
        if self.large is not None:
            for k in np.flatnonzero(self.large[:, i].any(axis=-1)).tolist():
                small = Fraction((int(both[k, 0]) << 40) + int(both[k, 1]), 1 << 60)
                found[k] = to_float(exact_to_fraction(self.large[k, i]) + small)
        return found


def _floats(fixed: NDArray[np.int64]) -> NDArray[np.float64]:
    """Fixed numbers as floats; each of the two parts is one, and their sum is rounded once."""
    return np.asarray(np.ldexp(fixed[..., 0].astype(np.float64), -20) + np.ldexp(fixed[..., 1].astype(np.float64), -60))
