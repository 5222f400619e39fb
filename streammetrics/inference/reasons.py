"""Arrays of reasons why cells (slices) have no result: a text or None for each cell, where the first reason wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_reasons", "build_reasons", "has_reason", "unwrap_reasons"]

Reasons = NDArray[Any]
"""An array of texts and Nones, without axes for a single number."""


def build_reasons(reasons: Any, shape: tuple[int, ...]) -> Reasons:
    """Return a writable array of reasons; None means no reason in any cell."""
    array = np.full(shape, None, object)
    array[...] = reasons
    return array


def has_reason(reasons: Reasons) -> NDArray[np.bool_]:
    """Return a mask of the cells that have a reason."""
    return np.asarray(reasons != None, np.bool_)  # noqa: E711 - elementwise


def add_reasons(reasons: Reasons, where: Any, describe: Callable[[int], str]) -> None:
    """Set the reason of cells in `where` that have none yet; `describe` returns the text for a flat cell index."""
    flat = reasons.reshape(-1)
    for i in np.flatnonzero(np.asarray(where) & ~has_reason(reasons)).tolist():
        flat[i] = describe(i)


def unwrap_reasons(reasons: Reasons) -> Any:
    """Return reasons as fields of results: an array, or a text or None for a single number."""
    return reasons if reasons.ndim else reasons.item()
