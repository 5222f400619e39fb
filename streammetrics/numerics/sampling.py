"""Negative down-sampling undone: what a score that was trained on few of the negatives says of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import elementary

__all__ = ["undone"]


def undone(scores: NDArray[Any], rate: float, scale: str) -> NDArray[np.float64]:
    """Return p / (p + (1 - p) / rate), or the logit of that; in operations that round alike everywhere.

    They do round: of two scores that differ in the last bits the lower may come out above. So what ranks reads scores as
    they were given, and only what it reads of them, thresholds, goes through here.
    """
    p = np.asarray(scores, np.float64)
    if scale == "logit":
        return np.asarray(p + float(elementary.log(rate)))
    with np.errstate(invalid="ignore"):
        return np.where(p == 0, 0.0, p / (p + (1.0 - p) / rate))
