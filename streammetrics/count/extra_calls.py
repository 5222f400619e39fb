"""Kernel calls that a batch of prepared rows needs in addition to the calls that count its rows.

These calls flag the slices in which a sum rounds a weight, and count the rows that were left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..batch.ids import IdColumn
from ..batch.prepared_batch import PreparedRows
from ..state.state import State
from ..statistics.step import NOTHING
from .drafts import load_engine

if TYPE_CHECKING:
    from .counter import Counter

__all__ = ["build_drop_calls", "build_kernel_call", "build_rounding_calls"]

Array = NDArray[Any]
Ints = NDArray[np.int64]


def build_kernel_call(name: str, *arguments: Any) -> Callable[[], Any]:
    """Return a function that calls the machine code of a kernel with these arguments.

    The call runs no Python code, so no signal handler (such as the one for Ctrl-C) can interrupt it.
    """
    return partial(load_engine().specialize_kernel(name, arguments, ()), *arguments)


def build_rounding_calls(counter: Counter, rows: PreparedRows, fronts: Ints, mass: Array) -> list[Callable[[], Any]]:
    """Return the calls that flag the slices in which a sum must round a weight to a multiple of 2**-60.

    Slices in which the product of a weight and a value is rounded are flagged as well. The list is empty if the rows
    have no weights, or if the state does not round weights.

    Parameters
    ----------
    counter : Counter
        The counter of the state.
    rows : PreparedRows
        The rows to count.
    fronts : int64 array
        The slice of each row; empty if there is only one slice.
    mass : float64 array
        The total weight, and a flag that says whether sums may round a weight (`LiveCounters.mass`).
    """
    column = rows.columns.get("sample_weight")
    if column is None or not len(column.values) or not counter.has_fixed_point_weights:
        return []
    at = fronts
    # A block of rows, such as a query, has a single weight, so only the slice of its first row is needed.
    if len(at) and len(at) != len(column.values):
        keys = rows.columns[counter.block_column or ""]
        assert isinstance(keys, IdColumn)
        at = np.ascontiguousarray(at[keys.starts])
    values = np.ascontiguousarray(column.values).reshape(-1)
    # A row can have several weights, one for each label. Repeat the slice of the row for each of them.
    if len(at) and len(values) != len(at):
        at = np.repeat(at, len(values) // len(at))
    rounded = counter.bind_part(State.rounded)[0]
    return [build_kernel_call("checks:mark_rounded_weights", values, at, counter.has_fixed_point_terms, mass, rounded)]


def build_drop_calls(counter: Counter, rows: PreparedRows, front: Ints) -> list[Callable[[], Any]]:
    """Return the calls that count the rows that were left out, by slice and reason.

    `front` is the slice of each row of the batch; it is empty if there is only one slice.
    """
    out: list[Callable[[], Any]] = []
    statistic = counter.statistic
    for reason, excluded in rows.left_out:
        if len(excluded):
            at = front[excluded] if len(front) else NOTHING
            dropped, numbers = counter.bind_part(type(statistic).dropped)[0], statistic.reason_numbers
            out.append(
                build_kernel_call("cells:count_dropped_rows", dropped, at, len(numbers), numbers[reason], len(excluded))
            )
    return out
