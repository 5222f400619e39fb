"""Correction for negative down-sampling: a model trained on a sample of the negatives predicts too high probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import elementary

__all__ = ["undo_negative_sampling"]


def undo_negative_sampling(scores: NDArray[Any], rate: float, scale: str) -> NDArray[np.float64]:
    """Return p / (p + (1 - p) / rate), or its logit, with the same bits on every machine.

    Rounding may swap two scores that differ only in their last bits. Metrics that rank therefore use the original scores,
    and only apply this correction to results such as thresholds.
    """
    p = np.asarray(scores, np.float64)
    if scale == "logit":
        return np.asarray(p + float(elementary.log(rate)))
    with np.errstate(invalid="ignore"):
        return np.where(p == 0, 0.0, p / (p + (1.0 - p) / rate))
