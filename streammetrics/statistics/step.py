"""Kernel calls of a statistic: the name of a kernel, its arguments, and what is known of the columns before counting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

__all__ = ["NOTHING", "NO_LIMITS", "NO_WEIGHTS", "ColumnType", "Like", "ShardPart", "Step"]

NOTHING = np.zeros(0, np.int64)
NO_WEIGHTS = np.zeros(0)
NO_LIMITS = np.zeros((0, 4))
for _empty in (NOTHING, NO_WEIGHTS, NO_LIMITS):
    _empty.setflags(write=False)


class ColumnType(NamedTuple):
    """The type of a column: the dtype that kernels read, and the name of the dtype that the user passed."""

    dtype: np.dtype[Any]
    source: str


class ShardPart(NamedTuple):
    """A kernel argument: a part of the statistic in the cells of shards, which the same kernel call updates."""

    part: Any


@dataclass(frozen=True)
class Like:
    """The columns and cells of the rows to count, without their values.

    Parameters
    ----------
    columns : mapping of str to ColumnType
        The columns by role, including those that the statistic derives.
    lone : bool
        Whether all rows go to one cell; the column "at" is then empty.
    dense : frozenset of str
        The tallies that keep a counter for each place. A kernel receives the flat counters (cell, place) and the excess of
        weights in place of the seven arguments of a tally (see `kernels.tally_codes`).
    present : frozenset of str
        The optional parts that the state already has.
    """

    columns: Mapping[str, ColumnType]
    lone: bool = True
    dense: frozenset[str] = field(default_factory=frozenset)
    present: frozenset[str] = field(default_factory=frozenset)

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights."""
        return "sample_weight" in self.columns

    def source(self, role: str) -> str:
        """Return the name of the dtype in which the user passed the column of a role."""
        return self.columns[role].source

    def dtype(self, role: str) -> np.dtype[Any]:
        """Return the dtype in which kernels read the column of a role."""
        return self.columns[role].dtype


class Step:
    """One kernel call: the name of a kernel and its arguments in order.

    Parameters
    ----------
    kernel : str
        Module in `streammetrics.kernels` and function, "checks:find_bad_label"; or with the full path,
        "acme.kernels:count".
    *arguments
        A string means the column of this role. "sample_weight" is empty without weights. "at", the cell of each row, is
        empty if the state has one cell. "ones" is a weight of 1 for each row, "front" the cell of each row by the axes of
        the state. A part of the statistic (``type(self).rows``) means its flat array, cells first. All other arguments are
        passed unchanged.
    checks : bool
        Whether the kernel checks label and score itself, if the state has one cell: on a bad value it then returns 1 and
        leaves every array unchanged. All other kernels return 0 and cannot fail.
    """

    __slots__ = ("arguments", "checks", "kernel")

    def __init__(self, kernel: str, *arguments: Any, checks: bool = False) -> None:
        self.kernel, self.arguments, self.checks = kernel, arguments, checks

    def __repr__(self) -> str:
        return f"Step({self.kernel!r})"
