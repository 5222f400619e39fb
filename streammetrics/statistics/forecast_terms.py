"""Terms of forecasts of a row: intervals, quantiles, ensembles, errors beside those of a naive forecast.

Vectors are read column by column, so that every machine adds them in one order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["covered", "crps", "energy", "interval", "naive", "prediction", "width"]

Floats = NDArray[np.float64]


def prediction(rows: Any) -> Floats:
    """The absolute error of the prediction."""
    return np.asarray(np.abs(rows["y_pred"] - rows["y_true"]))


def naive(rows: Any) -> Floats:
    """The absolute error of an earlier value, as a forecast."""
    return np.asarray(np.abs(rows["lag"] - rows["y_true"]))


def covered(rows: Any) -> Floats:
    """Whether the target is within the interval, its ends among it."""
    y = rows["y_true"]
    return np.asarray((rows["lower"] <= y) & (y <= rows["upper"]), np.float64)


def width(rows: Any) -> Floats:
    """How wide the interval is; below 0 if its ends are crossed."""
    return np.asarray(rows["upper"] - rows["lower"])


def interval(rows: Any, alpha: float) -> Floats:
    """The width, and 2 / alpha times how far the target is outside."""
    y = rows["y_true"]
    beyond = np.maximum(rows["lower"] - y, 0.0) + np.maximum(y - rows["upper"], 0.0)
    return np.asarray(width(rows) + (2.0 / alpha) * beyond)


def crps(rows: Any, *quantiles: float) -> Floats:
    """Twice the mean pinball loss over quantiles."""
    y, total = rows["y_true"], np.zeros(len(rows["y_true"]))
    for alpha, q in zip(quantiles, rows["y_pred"].T, strict=True):
        d = y - q
        total += np.where(d >= 0, alpha * d, (alpha - 1.0) * d)
    return 2.0 * total / len(quantiles)


def energy(rows: Any, fair: float) -> Floats:
    """The mean distance of the members from the target, less half of their mean distance from one another.

    The distance over all pairs, or (fair) over pairs of two. Summed gap by gap between members, of parts none of which is
    below 0: with k of M members below it a gap has (k / M)^2 of what lies below the target, and k (k - 1) / (M (M - 1)) if
    fair. The difference of both distances would round to less than nothing where it is small.
    """
    members = np.sort(rows["y_pred"], axis=1).T
    m, y, less = len(members), rows["y_true"], int(fair)
    total, under, over = np.zeros(len(y)), np.minimum(members[0], y), np.maximum(members[0], y)
    beyond = over - y
    for k in range(1, m):
        below, above = under, over
        under, over = np.minimum(members[k], y), np.maximum(members[k], y)
        np.subtract(under, below, out=below)  # in place: allocating takes longer than adding
        np.subtract(over, above, out=above)
        below *= k * (k - less)
        above *= (m - k) * (m - k - less)
        total += below
        total += above
    return np.asarray(beyond + (y - under) + total / max(m * (m - less), 1))
