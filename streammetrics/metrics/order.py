"""The interval of a quantile."""

from __future__ import annotations

import math

from ..reading.interval import Estimate, reach
from ..statistics.value_order import value_at
from ..statistics.values import ValueHistogram
from .standard_errors import WEIGHTED

__all__ = ["BOUND", "woodruff"]

FEWEST_BEYOND = 5  # rows beyond a quantile, for its interval
BOUND = "the edges of the bucket; exact for up to 32 different numbers, up to 8,192 integers, and the extremes"
USUAL = 0.95  # the limits that show how dense values are near a quantile


def woodruff(state: ValueHistogram, q: float, output: int, value: float, method: str) -> Estimate:
    """Return a quantile with its error: the values at the shares that q rows of n may be, by chance (Woodruff 1952).

    For differences the error is told, from the limits at 95 %. The m rows between these show the density with a relative
    error of m**-1/2, which is that of an error of m / 2 degrees of freedom: if it were taken as known, 95 % intervals of
    the difference of two 0.95-quantiles, of 1,000 and 5,000 rows, would cover 93 %.
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
    error = (high - low) / (2.0 * reach(USUAL, math.inf))
    return Estimate(value, error, method=method, degrees=(most - least) * n / 2.0, ends=ends)
