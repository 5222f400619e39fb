"""The tail of the chi-square distribution for integer degrees of freedom, as a finite sum of positive terms."""

from __future__ import annotations

import math

import numpy as np

from .elementary import exp, log
from .student_t import normal_tail

__all__ = ["chi2_tail"]

HALF_LOG_PI = 0.57236494292470008707


def chi2_tail(x: float, df: int) -> float:
    """Return P(X > x) for a chi-square variable X with df >= 1 degrees of freedom.

    With h = x / 2, the result is the sum of e^-h * h^k / Gamma(k + 1) over k < df / 2. For even df, k is 0, 1, 2, and
    so on. For odd df, k is 1/2, 3/2, and so on, and P(|Z| > sqrt(x)) is added, where Z is a standard normal variable.
    The relative error is below 1e-10 for results above 1e-100.
    """
    if not x > 0:
        return 1.0 if x == x else math.nan
    if x == math.inf:
        return 0.0
    h, odd = np.float64(x) / 2.0, df % 2
    # Compute the logarithm of each term by adding log(h / k) to that of the previous term, because e^-h itself may
    # underflow. For even df, the first term has k = 0. For odd df, start from the term with k = -1/2, which is not
    # itself part of the sum.
    k = np.arange(1, df // 2 + odd) - 0.5 * odd
    first = -h - (0.0 if not odd else HALF_LOG_PI + log(h) / 2.0)
    if odd:
        logs = first + np.cumsum(log(h / k)) if len(k) else np.zeros(0)
        return min(float(2.0 * normal_tail(np.sqrt(2.0 * h))) + math.fsum(exp(logs)), 1.0)
    logs = first + np.concatenate([[0.0], np.cumsum(log(h / k))])
    return min(math.fsum(exp(logs)), 1.0)
