"""How a statistic says what counts its rows: a kernel by name, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

__all__ = ["NOTHING", "NO_LIMITS", "NO_WEIGHTS", "Beside", "Like", "Step", "Typed"]

NOTHING = np.zeros(0, np.int64)
NO_WEIGHTS = np.zeros(0)
NO_LIMITS = np.zeros((0, 4))
for _empty in (NOTHING, NO_WEIGHTS, NO_LIMITS):
    _empty.setflags(write=False)


class Typed(NamedTuple):
    """What is known of a column before its values: the dtype as kernels read it, and the name of the given one."""

    dtype: np.dtype[Any]
    source: str


class Beside(NamedTuple):
    """A part of the statistic that is counted by the same step in cells of shards, among the arguments of this step."""

    part: Any


@dataclass(frozen=True)
class Like:
    """What is known of the rows to count before their values.

    Parameters
    ----------
    columns : mapping of str to Typed
        The columns that there are, by role; those that a statistic derives among them.
    lone : bool
        Whether all rows go to one cell: then the column "at" is empty.
    dense : frozenset of str
        The tallies that have a counter for each place: a kernel is given these, flat (cell, place), and the excess of
        weights, in place of the seven arguments of a tally (see `kernels.reduce`).
    present : frozenset of str
        Optional parts that are there already.
    """

    columns: Mapping[str, Typed]
    lone: bool = True
    dense: frozenset[str] = field(default_factory=frozenset)
    present: frozenset[str] = field(default_factory=frozenset)

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return "sample_weight" in self.columns

    def source(self, role: str) -> str:
        """The name of the dtype that was given."""
        return self.columns[role].source

    def dtype(self, role: str) -> np.dtype[Any]:
        """The dtype as kernels read it."""
        return self.columns[role].dtype


class Step:
    """A kernel and its arguments, in their order.

    Parameters
    ----------
    kernel : str
        Its module in `streammetrics.kernels` and its function, "checks:labels"; or in full, "acme.kernels:count".
    *arguments
        A string is a column by its role: "sample_weight" is empty without weights, "at" (the cell of each row) in a lone
        state, "ones" a weight of 1 for each row, "front" the front cell of each row. A part of the statistic
        (``type(self).rows``) is its array, flat, cells first; all else is what it is.
    checks : bool
        Whether the kernel, of a lone state, checks label and score itself: then it returns 1, with everything as it was,
        on a bad value. All others return 0, and cannot fail.
    """

    __slots__ = ("arguments", "checks", "kernel")

    def __init__(self, kernel: str, *arguments: Any, checks: bool = False) -> None:
        self.kernel, self.arguments, self.checks = kernel, arguments, checks

    def __repr__(self) -> str:
        return f"Step({self.kernel!r})"
