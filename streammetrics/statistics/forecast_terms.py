"""Terms of a row with a forecast: interval scores, quantile and ensemble CRPS, errors of the naive forecast.

Sums over the members of a row go column by column, so that every machine adds in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ensemble_crps",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "naive_error",
    "prediction_error",
    "quantile_crps",
]

Floats = NDArray[np.float64]


def prediction_error(rows: Any) -> Floats:
    """Return the absolute error of the prediction."""
    return np.asarray(np.abs(rows["y_pred"] - rows["y_true"]))


def naive_error(rows: Any) -> Floats:
    """Return the absolute error of the naive forecast, an earlier value."""
    return np.asarray(np.abs(rows["lag"] - rows["y_true"]))


def interval_coverage(rows: Any) -> Floats:
    """Return 1 if the target lies in the closed interval, else 0."""
    y = rows["y_true"]
    return np.asarray((rows["lower"] <= y) & (y <= rows["upper"]), np.float64)


def interval_width(rows: Any) -> Floats:
    """Return the width of the interval; negative if the lower bound exceeds the upper bound."""
    return np.asarray(rows["upper"] - rows["lower"])


def interval_score(rows: Any, alpha: float) -> Floats:
    """Return the interval score: the width plus 2 / alpha times the distance of the target from the interval."""
    y = rows["y_true"]
    beyond = np.maximum(rows["lower"] - y, 0.0) + np.maximum(y - rows["upper"], 0.0)
    return np.asarray(interval_width(rows) + (2.0 / alpha) * beyond)


def quantile_crps(rows: Any, *quantiles: float) -> Floats:
    """Return twice the mean pinball loss over quantiles, an estimate of the CRPS."""
    y, total = rows["y_true"], np.zeros(len(rows["y_true"]))
    for alpha, q in zip(quantiles, rows["y_pred"].T, strict=True):
        d = y - q
        total += np.where(d >= 0, alpha * d, (alpha - 1.0) * d)
    return 2.0 * total / len(quantiles)


def ensemble_crps(rows: Any, fair: float) -> Floats:
    """Return the CRPS of an ensemble: the mean distance of members from the target minus half their mean distance.

    The mean distance between members is over all pairs, or (fair) over pairs of two different members.
    """
    # The difference of the two mean distances would round to a negative number where it is small. Instead the CRPS is the
    # integral of (F(x) - [x >= y])^2, summed gap by gap between sorted members, with no negative part: with k of M members
    # below it, a gap below the target counts (k / M)^2 of its length, or k (k - 1) / (M (M - 1)) if fair.
    members = np.sort(rows["y_pred"], axis=1).T
    m, y, less = len(members), rows["y_true"], int(fair)
    total, under, over = np.zeros(len(y)), np.minimum(members[0], y), np.maximum(members[0], y)
    beyond = over - y
    for k in range(1, m):
        below, above = under, over
        under, over = np.minimum(members[k], y), np.maximum(members[k], y)
        # The difference is computed in place, because allocating memory takes longer than subtracting.
        np.subtract(under, below, out=below)
        np.subtract(over, above, out=above)
        below *= k * (k - less)
        above *= (m - k) * (m - k - less)
        total += below
        total += above
    return np.asarray(beyond + (y - under) + total / max(m * (m - less), 1))
