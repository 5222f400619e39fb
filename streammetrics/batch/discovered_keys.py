"""Columns of keys, such as product names, that a metric's state stores in full, so that the results can show them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.slice_keys import KINDS, to_stored_key
from .classes import NONE, DiscoveredClasses, DiscoveredColumn, factorize_integers
from .columns import Batch, Column, Mask
from .ids import Ids
from .kinds import Need
from .slice_keys import read_slice_keys

__all__ = ["DiscoveredKeys", "discovered_key"]


class DiscoveredKeys(DiscoveredClasses):
    """A key of any kind, such as a string or a date, that a metric's state stores in full.

    `Ids`, in contrast, converts the keys of groups to 64-bit numbers or hashes, from which the keys cannot be
    recovered.

    Parameters
    ----------
    missing, missing_values
        The same parameters as for `Ids`.
    """

    expected = Ids.expected

    def __init__(self, missing: str = "raise", missing_values: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.missing, self.missing_values = missing, missing_values
        self.skips = missing == "skip"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiscoveredKeys) and (self.missing, self.missing_values) == (
            other.missing,
            other.missing_values,
        )

    def __hash__(self) -> int:
        return hash((DiscoveredKeys, self.missing, self.missing_values))

    def _read(self, raw: Any, name: str) -> DiscoveredColumn:
        kind, content = read_slice_keys(raw, name)
        if not kind:
            return DiscoveredColumn(np.full(int(content), NONE), "")
        keys: Any
        if KINDS[kind]:
            (data, ends), codes, null = content
            keys = [data[a:b].tobytes() for a, b in pairwise(ends.tolist())]
        else:
            values, null = content
            keys, codes = _distinct(values)
        stand_ins = [i for i, key in enumerate(keys) if key in self._stand_ins(kind)] if self.missing_values else []
        absent = np.isin(codes, stand_ins) if null is None else np.isin(codes, stand_ins) | null
        # Convert the codes to int64: they may be unsigned, but `NONE` is negative.
        return DiscoveredColumn(np.where(absent, NONE, codes.astype(np.int64)), kind, keys)

    def _stand_ins(self, kind: str) -> set[Any]:
        parsed = [to_stored_key(value) for value in self.missing_values]
        return {parsed_key[1] for parsed_key in parsed if parsed_key is not None and parsed_key[0] == kind}

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        return f"a missing value in row {batch.original_row(row):,}"

    def find_skipped(self, column: Column) -> Mask | None:
        return self.bad(column) if self.skips else None


def _distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return an ascending array of integers that contains all values, and the position of each value in it."""
    if values.dtype != object and not (values.dtype == np.uint64 and len(values) and values.max() >= 1 << 63):
        return factorize_integers(np.ascontiguousarray(values, np.int64))
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct, codes.reshape(-1)


def discovered_key(role: str = "value", missing: str = "raise", missing_values: tuple[Any, ...] = ()) -> Need:
    """Declare that a metric's state reads a column of keys and stores each distinct key itself, not its hash."""
    return Need(role, DiscoveredKeys(missing, missing_values))
