"""The confidence interval of a quantile."""

from __future__ import annotations

import math

from ..reading.interval import Estimate, critical_value
from ..statistics.value_order import value_at
from ..statistics.values import ValueHistogram
from .standard_errors import WEIGHTED

__all__ = ["BOUND", "woodruff"]

# An interval is computed only if at least this many rows are expected below the quantile, and as many above it.
FEWEST_BEYOND = 5
BOUND = (
    "the edges of the bucket that contains the quantile; exact for up to 32 distinct numbers or 8,192 integers, and "
    "for the smallest and the largest value"
)
# The standard error is derived from the interval with this confidence level.
USUAL = 0.95


def woodruff(state: ValueHistogram, q: float, output: int, value: float, method: str) -> Estimate:
    """Return a quantile with its standard error, derived from Woodruff's interval (1952).

    The ends of the interval are themselves quantiles of the data: their probabilities are the two ends of the Wilson
    interval for a proportion q of n rows.

    The interval for a difference of quantiles also needs a standard error, which is derived from the width of the 95 %
    interval. This width depends on the density of the values, which the m rows inside the interval estimate with a
    relative error of 1 / sqrt(m). The standard error therefore has m / 2 degrees of freedom. If this were ignored, 95 %
    intervals for the difference between the 0.95-quantiles of 1,000 and 5,000 rows would have a coverage of only 93 %.

    Parameters
    ----------
    state : ValueHistogram
        The histogram of the values.
    q : float
        The share of the rows below the quantile.
    output : int
        The index of the output, for data with several outputs.
    value : float
        The quantile.
    method : str
        The method name to store in the result.
    """
    mass = state.mass(output)
    if state.rows.excess is not None:
        return Estimate(value, reason=WEIGHTED)
    n = mass.total()
    if not 0 < q < 1:
        return Estimate(
            value,
            reason="a minimum or a maximum has no standard error; a quantile with q close to 0 or 1 has an interval",
        )
    if n * min(q, 1 - q) < FEWEST_BEYOND:
        why = f"fewer than {FEWEST_BEYOND} rows are expected beyond this quantile"
        return Estimate(value, reason=why if n else None)

    share = Estimate(q, 0.0, "wilson", size=n)

    def ends(confidence: float) -> tuple[float, float]:
        low, high = (value_at(state, mass, s * n, output) for s in share.limits(confidence))
        return low, high

    low, high = ends(USUAL)
    least, most = share.limits(USUAL)
    error = (high - low) / (2.0 * critical_value(USUAL, math.inf))
    return Estimate(value, error, method=method, degrees=(most - least) * n / 2.0, ends=ends)
