"""Functions that compute a score for every row from its forecast, such as the interval score or the CRPS.

A forecast is a number, an interval, a set of quantiles or an ensemble. Sums over the quantiles or the ensemble members
of a row are computed column by column, so that every machine adds the numbers in the same order.
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
    """Return the absolute error of the prediction in each row."""
    return np.asarray(np.abs(rows["y_pred"] - rows["y_true"]))


def naive_error(rows: Any) -> Floats:
    """Return the absolute error of each row's naive forecast, which repeats an earlier value (the column `lag`)."""
    return np.asarray(np.abs(rows["lag"] - rows["y_true"]))


def interval_coverage(rows: Any) -> Floats:
    """Return 1 for each row whose target lies in the closed interval [lower, upper], and 0 for all other rows."""
    y = rows["y_true"]
    return np.asarray((rows["lower"] <= y) & (y <= rows["upper"]), np.float64)


def interval_width(rows: Any) -> Floats:
    """Return the width of each row's interval, which is negative if the lower bound exceeds the upper bound."""
    return np.asarray(rows["upper"] - rows["lower"])


def interval_score(rows: Any, alpha: float) -> Floats:
    """Return the interval score: the width plus 2 / alpha times the distance of the target from the interval."""
    y = rows["y_true"]
    beyond = np.maximum(rows["lower"] - y, 0.0) + np.maximum(y - rows["upper"], 0.0)
    return np.asarray(interval_width(rows) + (2.0 / alpha) * beyond)


def quantile_crps(rows: Any, *quantiles: float) -> Floats:
    """Return twice the mean pinball loss over the quantiles: an estimate of the continuous ranked probability score."""
    y, total = rows["y_true"], np.zeros(len(rows["y_true"]))
    for alpha, q in zip(quantiles, rows["y_pred"].T, strict=True):
        d = y - q
        total += np.where(d >= 0, alpha * d, (alpha - 1.0) * d)
    return 2.0 * total / len(quantiles)


def ensemble_crps(rows: Any, fair: float) -> Floats:
    """Return the continuous ranked probability score (CRPS) of an ensemble forecast.

    The CRPS is the mean distance between a member and the target, minus half the mean distance between two members. If
    `fair` is 1, the second mean is over pairs of different members. If `fair` is 0, pairs of a member with itself also
    count.
    """
    # Rounding could make the difference between the two means negative. The code therefore computes the CRPS as an
    # integral over x of nonnegative terms: (F(x) - [x >= y])^2. F is the distribution function of the members, y is the
    # target, and [x >= y] is 1 if x >= y, else 0. The integral is a sum over the gaps between neighboring members.
    # Suppose that k of the M members lie below a gap. The part of the gap below the target contributes its length times
    # (k / M)^2, and the part above the target its length times ((M - k) / M)^2. If `fair` is 1, these factors are
    # k * (k - 1) / (M * (M - 1)) and (M - k) * (M - k - 1) / (M * (M - 1)).
    members = np.sort(rows["y_pred"], axis=1).T
    m, y, less = len(members), rows["y_true"], int(fair)
    total, under, over = np.zeros(len(y)), np.minimum(members[0], y), np.maximum(members[0], y)
    beyond = over - y
    for k in range(1, m):
        below, above = under, over
        under, over = np.minimum(members[k], y), np.maximum(members[k], y)
        # Subtract in place, because allocating new arrays takes longer than the subtraction.
        np.subtract(under, below, out=below)
        np.subtract(over, above, out=above)
        below *= k * (k - less)
        above *= (m - k) * (m - k - less)
        total += below
        total += above
    return np.asarray(beyond + (y - under) + total / max(m * (m - less), 1))
