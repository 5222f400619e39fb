"""Arrays with one element per cell (slice): a string that says why the cell has no result, or None if it has one.

If several reasons are added for a cell, the first one is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_reasons", "build_reasons", "has_reason", "unwrap_reasons"]

Reasons = NDArray[Any]
"""An array whose elements are str or None. For the result of a single number, it is zero-dimensional."""


def build_reasons(reasons: Any, shape: tuple[int, ...]) -> Reasons:
    """Return a new array of reasons with the given shape; `add_reasons` can add further reasons to it.

    `reasons` are the initial reasons: an array, a string for all cells, or None if no cell has a reason yet.
    """
    array = np.full(shape, None, object)
    array[...] = reasons
    return array


def has_reason(reasons: Reasons) -> NDArray[np.bool_]:
    """Return a mask of the cells (slices) that have a reason."""
    return np.asarray(reasons != None, np.bool_)  # noqa: E711 - elementwise


def add_reasons(reasons: Reasons, where: Any, describe: Callable[[int], str]) -> None:
    """Set the reason of each cell (slice) where the mask `where` is true, unless the cell already has a reason.

    `describe` takes the flat index of a cell and returns the reason.
    """
    flat = reasons.reshape(-1)
    for i in np.flatnonzero(np.asarray(where) & ~has_reason(reasons)).tolist():
        flat[i] = describe(i)


def unwrap_reasons(reasons: Reasons) -> Any:
    """Return the reasons in the form that results store: a string or None for a single number, otherwise the array."""
    return reasons if reasons.ndim else reasons.item()
