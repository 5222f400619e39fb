"""The confidence interval of a quantile."""

from __future__ import annotations

import math

from ..reading.interval import Estimate, critical_value
from ..statistics.value_order import value_at
from ..statistics.values import ValueHistogram
from .standard_errors import WEIGHTED

__all__ = ["BOUND", "woodruff"]

# An interval needs at least this expected number of rows beyond the quantile.
FEWEST_BEYOND = 5
BOUND = "the edges of the bucket; exact for up to 32 different numbers, up to 8,192 integers, and the extremes"
# The confidence level of the interval from which the standard error is derived.
USUAL = 0.95


def woodruff(state: ValueHistogram, q: float, output: int, value: float, method: str) -> Estimate:
    """Return a quantile with its standard error, from the interval of Woodruff (1952).

    The Wilson interval of the share q of n rows gives two shares; the values at these shares are the interval. Differences
    need a standard error, which is derived from the 95 % interval. The m rows inside this interval estimate the density
    with a relative error of m**-1/2, so the standard error has m / 2 degrees of freedom. Without this correction 95 %
    intervals of the difference of two 0.95-quantiles, of 1,000 and 5,000 rows, would cover 93 %.
    """
    mass = state.mass(output)
    if state.rows.excess is not None:
        return Estimate(value, reason=WEIGHTED)
    n = mass.total()
    if not 0 < q < 1:
        return Estimate(value, reason="an extreme has no standard error; a quantile near it has one")
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
