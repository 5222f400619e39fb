"""Correction of scores for negative down-sampling.

A model that was trained on only a sample of the negatives predicts probabilities that are too high.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import elementary

__all__ = ["undo_negative_sampling"]


def undo_negative_sampling(scores: NDArray[Any], rate: float, scale: str) -> NDArray[np.float64]:
    """Return the scores that the model would predict without down-sampling, with the same bits on every machine.

    A probability p becomes p / (p + (1 - p) / rate). On the "logit" scale, the result is the logit of this value.

    Rounding may swap the order of two scores that differ only in their last bits. Metrics that rank scores therefore use
    the original scores, and apply this correction only to results such as thresholds.

    Parameters
    ----------
    scores : array
        The predictions of the model.
    rate : float
        The share of negatives that were kept for training.
    scale : str
        "logit" if the scores are logits; otherwise they are probabilities.
    """
    p = np.asarray(scores, np.float64)
    if scale == "logit":
        return np.asarray(p + float(elementary.log(rate)))
    with np.errstate(invalid="ignore"):
        return np.where(p == 0, 0.0, p / (p + (1.0 - p) / rate))
