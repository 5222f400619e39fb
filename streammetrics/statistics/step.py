"""Descriptions of the kernel calls that a statistic uses to count a batch.

A statistic returns the name and the arguments of each call. At that time, the statistic knows the types of the columns,
but not their values.
"""

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
    """The type of a column.

    Parameters
    ----------
    dtype : dtype
        The dtype in which kernels read the column.
    source : str
        The name of the dtype of the column that the user passed, such as "bfloat16".
    """

    dtype: np.dtype[Any]
    source: str


class ShardPart(NamedTuple):
    """A kernel argument that stands for an array of a second state, which counts the rows of each shard separately.

    A shard is a random subset of the users, for jackknife intervals. One kernel call can update the state of all rows
    and the state of the shards together.
    """

    part: Any


@dataclass(frozen=True)
class Like:
    """The information about a batch and a state that a statistic uses to choose its kernel calls.

    It includes the types of the columns, but not their values.

    Parameters
    ----------
    columns : mapping of str to ColumnType
        The type of each column by its role, the name under which the statistic reads it (such as "y_true"). Columns that
        the statistic derives are included.
    lone : bool
        Whether the state has only one cell (no slices), to which all rows belong. The column "at" (the cell of each
        row) is then empty.
    dense : frozenset of str
        The names of the histograms whose row counts are kept in an array with a counter for every possible code (place
        in the histogram). For such a histogram, a kernel receives this array, flattened cell by cell, and the array of
        the sums of (weight - 1).
    present : frozenset of str
        The names of the optional arrays that the state already has.
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
        """Return the name of the dtype of a column as the user passed it, such as "bfloat16"."""
        return self.columns[role].source

    def dtype(self, role: str) -> np.dtype[Any]:
        """Return the dtype in which kernels read a column."""
        return self.columns[role].dtype


class Step:
    """A kernel call: the name of the kernel and its arguments in order.

    Parameters
    ----------
    kernel : str
        The module and the function, separated by a colon. The module is relative to `streammetrics.kernels`
        ("checks:find_bad_label"), or has its full path ("acme.kernels:count").
    *arguments
        A string is a role and is replaced with the column of this role. A declared array of the statistic, such as
        ``type(self).rows``, is replaced with its values, flattened cell by cell. All other arguments are passed
        unchanged. There are four special columns:

        - "sample_weight": the weight of each row; empty if rows have no weights
        - "at": the cell of each row; empty if the state has only one cell
        - "ones": a weight of 1 for each row
        - "front": the slice of each row, not divided further by group or class; empty if the state has no slices
    checks : bool
        Whether, in a state with only one cell, the kernel itself checks labels and scores. If it finds a bad value, it
        returns 1 and leaves every array unchanged. All other kernels return 0 and cannot fail.
    """

    __slots__ = ("arguments", "checks", "kernel")

    def __init__(self, kernel: str, *arguments: Any, checks: bool = False) -> None:
        self.kernel, self.arguments, self.checks = kernel, arguments, checks

    def __repr__(self) -> str:
        return f"Step({self.kernel!r})"
