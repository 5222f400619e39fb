"""Columns of keys that are kept as they are: of any kind, and as many as a limit allows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.keys import KINDS, raw
from .classes import NONE, FoundClasses, FoundColumn, spread_integers
from .columns import Batch, Column, Mask
from .ids import Ids
from .kinds import Need
from .slice_keys import read_slice_keys

__all__ = ["FoundKeys", "found_key"]


class FoundKeys(FoundClasses):
    """A key of any kind: unlike those of groups they can be named again, so they are held in full.

    Parameters
    ----------
    missing, missing_values
        As for `Ids`.
    """

    expected = Ids.expected

    def __init__(self, missing: str = "raise", missing_values: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.missing, self.missing_values = missing, missing_values
        self.skips = missing == "skip"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FoundKeys) and (self.missing, self.missing_values) == (
            other.missing,
            other.missing_values,
        )

    def __hash__(self) -> int:
        return hash((FoundKeys, self.missing, self.missing_values))

    def _read(self, given: Any, name: str) -> FoundColumn:
        kind, made = read_slice_keys(given, name)
        if not kind:
            return FoundColumn(np.full(int(made), NONE), "")
        keys: Any
        if KINDS[kind]:
            (data, ends), codes, gone = made
            keys = [data[a:b].tobytes() for a, b in pairwise(ends.tolist())]
        else:
            values, gone = made
            keys, codes = _distinct(values)
        none = [i for i, key in enumerate(keys) if key in self._stand_ins(kind)] if self.missing_values else []
        absent = np.isin(codes, none) if gone is None else np.isin(codes, none) | gone
        return FoundColumn(np.where(absent, NONE, codes.astype(np.int64)), kind, keys)  # which may be unsigned

    def _stand_ins(self, kind: str) -> set[Any]:
        found = [raw(value) for value in self.missing_values]
        return {held[1] for held in found if held is not None and held[0] == kind}

    def found(self, batch: Batch, name: str, row: int) -> str:
        return f"none in row {batch.origin(row):,}"

    def skipped(self, column: Column) -> Mask | None:
        return self.bad(column) if self.skips else None


def _distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Integers that include all of some, of any width, and the place of each among them."""
    if values.dtype != object and not (values.dtype == np.uint64 and len(values) and values.max() >= 1 << 63):
        return spread_integers(np.ascontiguousarray(values, np.int64))
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct, codes.reshape(-1)


def found_key(role: str = "value", missing: str = "raise", missing_values: tuple[Any, ...] = ()) -> Need:
    """Declare the need for a column of keys that are kept."""
    return Need(role, FoundKeys(missing, missing_values))
