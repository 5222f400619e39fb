"""Terms of rows of a class and a score of each class that no kernel has: whole columns at a time, class after class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics import elementary
from ..numerics.rows import across
from .pair_terms import TINY

__all__ = ["TERMS", "ClassScores"]

Floats = NDArray[np.float64]


class ClassScores:
    """Rows of a true class, by its number, and a score of each class.

    Parameters
    ----------
    true : int array of shape (rows,)
        The true classes.
    scores : float array of shape (rows, classes)
        Probabilities, or logits.
    logit : bool
        Which of both.
    eps : float
        What probabilities are kept away from 0 and 1.
    """

    def __init__(self, true: NDArray[Any], scores: NDArray[Any], logit: bool, eps: float) -> None:
        self.true, self.logit, self.eps = true, logit, eps
        self.scores = np.asarray(scores, np.float64)
        self.width = self.scores.shape[1]

    def at_true(self, values: Floats) -> Floats:
        """The value of the true class of each row."""
        return np.asarray(values[np.arange(len(values)), self.true])

    def losses(self) -> Floats:
        """-log of the probability of each class, rows x classes."""
        if not self.logit:
            return np.asarray(-elementary.log(np.clip(self.scores, self.eps, 1.0 - self.eps)))
        below = self.scores - self.scores.max(axis=1, keepdims=True)
        total = across([np.asarray(elementary.exp(column)) for column in below.T])
        return np.asarray(elementary.log(total)[:, None] - below)

    def margins(self) -> Floats:
        """1 - s for the true class, 1 + s for each other, not below 0."""
        own = np.arange(self.width) == self.true[:, None]
        return np.asarray(np.maximum(1.0 - np.where(own, self.scores, -self.scores), 0.0))

    def hinge(self) -> Floats:
        """1 + the highest score of another class - that of the true one, not below 0 (Crammer and Singer 2001)."""
        others = np.where(np.arange(self.width) == self.true[:, None], -np.inf, self.scores)
        return np.asarray(np.maximum(1.0 + (others.max(axis=1) - self.at_true(self.scores)), 0.0))


def smoothed(rows: ClassScores, smoothing: float) -> Floats:
    """Log-loss of a label that is 1 - smoothing the true class, and the rest spread over all classes alike."""
    losses = rows.losses()
    return np.asarray((1.0 - smoothing) * rows.at_true(losses) + smoothing * (across(list(losses.T)) / rows.width))


def focal(rows: ClassScores, gamma: float) -> Floats:
    """-(1 - q)^gamma log(q), q the probability of the true class."""
    losses = rows.losses()
    loss = rows.at_true(losses)
    if rows.logit:  # of all others together: 1 - q loses its digits where q is near 1
        shares = np.asarray(elementary.exp(-losses))
        shares[np.arange(len(shares)), rows.true] = 0.0
        wrong = across(list(shares.T))
    else:
        wrong = 1.0 - np.clip(rows.at_true(rows.scores), rows.eps, 1.0 - rows.eps)
    return np.asarray(elementary.power(np.clip(wrong, TINY, 1.0), np.float64(gamma)) * loss)


def is_class(rows: ClassScores, which: float) -> Floats:
    """Whether the true class is this one."""
    return np.asarray(rows.true == int(which), np.float64)


TERMS: dict[str, Callable[..., Floats]] = {
    "smoothed": smoothed,
    "focal": focal,
    "hinge": lambda rows: rows.hinge(),
    "squared_hinge": lambda rows: np.square(rows.hinge()),
    "margin": lambda rows, which: rows.margins()[:, int(which)],
    "squared_margin": lambda rows, which: np.square(rows.margins()[:, int(which)]),
    "class": is_class,
}
"""Each by its name, and the number behind its "@"."""
