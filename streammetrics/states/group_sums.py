"""Exact sums by group: log-loss and predicted positives of every user, in memory that grows with users, not with rows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added, highest, keyed
from ..columns import Column, Need, label, score, weight
from ..errors import StateFormatError
from ..exact import UNIT, exact_to_fraction, fixed_to_int
from ..group_table import GroupTable
from ..growth import Growth
from ..ids import group
from ..settings import setting, union
from ..state import State
from .groups import KINDS, check_key_kinds, kind_of_keys
from .sums import ScoreSums

__all__ = ["GroupSums"]

LARGE = 2.0**31  # a weighted loss of this size leaves fixed-point numbers
WORST = 746.0  # more than any loss of a probability


class GroupSums(State, tag="group_sums"):
    """The sums of `ScoreSums` for every group.

    Parameters
    ----------
    terms : tuple of {"score", "log_loss"}
        What is summed, weighted; a collection keeps the union of what its metrics ask for.
    scale : {"probability", "logit"}
        As for `ScoreSums`.
    eps : float, optional
        As for `ScoreSums`.
    missing, missing_values
        As `sm.group` takes them.
    memory_limit : int
        Bytes that groups may take; MemoryLimitError beyond, and nothing was counted.

    Notes
    -----
    A group takes 32 bytes and 16 a term, three times as much while rows come in. Rows are counted in a table by group, in
    the order in which groups are met; written as bytes, and compared, groups are sorted.
    """

    terms: tuple[str, ...] = union(default=())
    scale: str = setting(default="probability", choices=("probability", "logit"))
    eps: float | None = setting(default=None, above=0.0, high=0.25)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[Any, ...] = setting(default=())
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    keys: Array = keyed(2)
    rows: Array = added(2, per="keys")
    excess: Array = added(2, per="keys", form="fixed", optional=True)
    sums: Array = added("terms", per="keys", form="fixed")
    large: Array = added("terms", per="keys", form="exact", optional=True)
    kinds: Array = highest(len(KINDS), form="flag")

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), group("group", self.missing, self.missing_values), weight()

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        y_score: Column,
        group: Column,
        sample_weight: Column | None = None,
    ) -> None:
        kind, wild = kind_of_keys(self, group), self._is_wild(y_score, sample_weight)
        table = self._table()
        if at is None and not wild and self._grown_bytes() + table.growth(len(group.values)) <= self.memory_limit:
            table.count(group.values, y_true, y_score, sample_weight)
        else:  # one batch, which fits or does not
            self._flush()
            slow = GroupTable(self._one())
            slow.count(group.values, y_true, y_score, sample_weight, at=at, wild=wild)
            self._grow(slow)
        self.kinds[... if at is None else at, kind] = 1

    def _is_wild(self, y_score: Column, sample_weight: Column | None) -> bool:
        """Whether a row's weighted loss may leave the fixed-point range."""
        worst = WORST if self.scale == "probability" else float(np.abs(y_score.values).max()) + 1.0
        return worst * (float(sample_weight.values.max()) if sample_weight is not None else 1.0) >= LARGE

    def _one(self) -> ScoreSums:
        return ScoreSums(terms=self.terms, scale=self.scale, eps=self.eps)

    def _table(self) -> GroupTable:
        if self.__dict__.get("_open") is None:
            self.__dict__["_open"] = GroupTable(self._one())
        table: GroupTable = self.__dict__["_open"]
        return table

    def _flush(self) -> None:
        """Turn the open table into rows of the arrays."""
        table: GroupTable | None = self.__dict__.get("_open")
        if table is not None and table.size:
            self.__dict__["_open"] = None
            self._take_growth(Growth(self._named(table), False))  # it was within the limit when rows came

    def _grow(self, table: GroupTable) -> None:
        named = self._named(table)
        for name in ("excess", "large"):
            if name in named:
                self.need(name)
        self._take_growth(self._fit(named))

    def _named(self, table: GroupTable) -> dict[str, Array]:
        named = table.arrays()
        slices = named.pop("slices")
        if self.slices is not None:
            named["keys"] = np.column_stack([slices, named["keys"]])
        if "excess" in named:
            self.need("excess")
        return named

    # -- what else looks at arrays that grow -----------------------------------------------------------------------------

    def settle(self) -> None:
        self._flush()
        super().settle()

    def _rows(self) -> dict[str, Array]:
        self._flush()
        return super()._rows()

    def _grown_bytes(self) -> int:
        table = self.__dict__.get("_open")
        return super()._grown_bytes() + (table.nbytes if table is not None else 0)

    def reset(self) -> Any:
        self.__dict__["_open"] = None
        return super().reset()

    def _take(self, arrays: dict[str, Array]) -> None:
        self.__dict__["_open"] = None
        super()._take(arrays)

    def check_merge(self, other: State) -> Growth:
        growth = super().check_merge(other)
        check_key_kinds(self, other)
        return growth

    def check(self) -> None:
        if (self.sums[..., 0] < 0).any():
            raise StateFormatError("GroupSums.sums holds a negative sum of terms that are not negative")
        if self.excess is not None and ((self.excess[..., 0] >> 20) + self.rows < 0).any():
            raise StateFormatError("GroupSums.excess makes a weight negative")

    # -- reading ---------------------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        self.settle()
        return {"rows": int(self.rows.sum()), "positives": int(self.rows[:, 1].sum()), "groups": len(self.keys)}

    def weights(self) -> NDArray[np.float64]:
        """The weight of negatives and positives of every group."""
        self.settle()
        extra = 0.0 if self.excess is None else _floats(self.excess)
        return self.rows + extra

    def totals(self, term: str) -> NDArray[np.float64]:
        """The weighted sum of a term, of every group."""
        self.settle()
        i = self.terms.index(term)
        found = _floats(self.sums[:, i])
        if self.large is not None:
            for k in np.flatnonzero(self.large[:, i].any(axis=-1)).tolist():
                small = Fraction(fixed_to_int(self.sums[k, i]), UNIT)
                found[k] = float(exact_to_fraction(self.large[k, i]) + small)
        return found


def _floats(fixed: NDArray[np.int64]) -> NDArray[np.float64]:
    """Fixed numbers as floats; each of the two parts is one, and their sum is rounded once."""
    return np.ldexp(fixed[..., 0].astype(np.float64), -20) + np.ldexp(fixed[..., 1].astype(np.float64), -60)
