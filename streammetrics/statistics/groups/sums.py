"""Exact sums for every group, such as the log loss of every user.

Memory use grows with the number of groups, but not with the number of rows.
"""

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
from ..terms import find_term

__all__ = ["GroupSums"]


class GroupSums(KeyKinds, TermSums, tag="group_sums"):
    """The sums of `ScoreSums`, such as the sum of the log loss, for every group.

    Parameters
    ----------
    missing, missing_values
        How rows with missing group IDs are treated, and which values count as missing; see `sm.extend.group`.
    memory_limit : int
        The maximum memory for the groups, in bytes. A batch that needs more raises MemoryLimitError and is not counted.

    Notes
    -----
    A group takes 40 bytes plus 56 bytes per term (a summed quantity, such as the log loss). If rows have weights, a
    group takes another 64 bytes plus 32 bytes per term.
    """

    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    key_role = "group"
    inner_axis = Axis(("group",), "group")

    def needs(self) -> tuple[Need, ...]:
        label, *others = super().needs()
        return label, *others[:-1], group("group", self.missing, self.missing_values), others[-1]

    def steps(self, like: Like) -> Iterable[Step]:
        return [*super().steps(like), self.kind_step(like)]

    def merge(self, *others: Self) -> Self:
        state = super().merge(*others)
        if state.nbytes > self.memory_limit:
            raise MemoryLimitError(
                f"the sums of all groups would need {state.nbytes:,} bytes, more than the memory_limit of "
                f"{self.memory_limit:,}; raise memory_limit"
            )
        return state

    # -- reading ------------------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows.sum()), "positives": int(self.rows[:, 1].sum()), "groups": len(self.rows)}

    def weights(self) -> NDArray[np.float64]:
        """Return the total weight of the negatives and of the positives of every group."""
        if self.excess is None:
            return np.asarray(self.rows, np.float64)
        whole = self.excess.copy()
        # The total weight is the row count plus `excess`, the sum of (weight - 1). Both are added as integers, because a
        # float would lose the digits of a tiny weight.
        whole[..., 0] += self.rows << 20
        return np.asarray(_floats(whole))

    def totals(self, term: str) -> NDArray[np.float64]:
        """Return the weighted sum of a term for every group."""
        i = find_term(self, term)
        both = self.sums[:, i].sum(axis=1)
        carry_fixed(both)
        found = _floats(both)
        if self.large is not None:
            for k in np.flatnonzero(self.large[:, i].any(axis=-1)).tolist():
                small = Fraction((int(both[k, 0]) << 40) + int(both[k, 1]), 1 << 60)
                found[k] = to_float(exact_to_fraction(self.large[k, i]) + small)
        return found


def _floats(fixed: NDArray[np.int64]) -> NDArray[np.float64]:
    """Convert fixed-point numbers high * 2**-20 + low * 2**-60 to float64.

    Each of the two terms is exact in float64, so only their sum is rounded.
    """
    return np.asarray(np.ldexp(fixed[..., 0].astype(np.float64), -20) + np.ldexp(fixed[..., 1].astype(np.float64), -60))
