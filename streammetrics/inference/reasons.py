"""Why cells have no answer: a text for each of those side by side, or None; the first reason that is found stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add", "as_reasons", "known", "of_cells"]

Reasons = NDArray[Any]
"""An array of texts and Nones; of one number it has no axes."""


def as_reasons(reasons: Any, shape: tuple[int, ...]) -> Reasons:
    """Return reasons as an array that may be written to; None is none for any cell."""
    found = np.full(shape, None, object)
    found[...] = reasons
    return found


def known(reasons: Reasons) -> NDArray[np.bool_]:
    """Return which cells have a reason."""
    return np.asarray(reasons != None, np.bool_)  # noqa: E711 - of each


def add(reasons: Reasons, where: Any, say: Callable[[int], str]) -> None:
    """Give a reason to the cells, of those named, that have none yet: a function of their number."""
    flat = reasons.reshape(-1)
    for i in np.flatnonzero(np.asarray(where) & ~known(reasons)).tolist():
        flat[i] = say(i)


def of_cells(reasons: Reasons) -> Any:
    """Return reasons as results have them: of one number a text or None."""
    return reasons if reasons.ndim else reasons.item()
