"""Means over independent units and the covariances of these means: what the delta method takes from exact sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..numerics.exact import to_float

__all__ = ["Spread", "spread"]

Number = Any
"""An int or a fraction; of cells side by side, an array of Python's integers."""

NAN = float("nan")
ONE = "1"


class Spread(NamedTuple):
    """Means of some terms over units, such as rows, and how far these means may be off by chance.

    Parameters
    ----------
    means : list of float
        Weighted means of the terms; of cells side by side, arrays.
    covariance : list of lists of float
        Of these means, estimated: NaN if there are fewer than two units, or a sum of squares was lost.
    size : float
        How many units of equal weight would say as much: (sum w)^2 / sum w^2.
    """

    means: list[Any]
    covariance: list[list[Any]]
    size: Any

    def variance(self, slopes: Sequence[Any]) -> Any:
        """The variance of a smooth function of the means, from its slopes."""
        total: Any = 0.0
        for i, a in enumerate(slopes):
            for j, b in enumerate(slopes):
                total = total + a * b * self.covariance[i][j]
        return np.maximum(total, 0.0)  # which rounded squares may pass by a little; NaN stays


def spread(
    weight: Number, sums: Sequence[Number], products: Mapping[tuple[int, int], Number], lost: Any = False, unit: int = 1
) -> Spread:
    """Return the spread of terms x from exact sums.

    Parameters
    ----------
    weight : number
        The sum of w.
    sums : sequence of numbers
        The sums of w x.
    products : mapping of pairs to numbers
        The sums of w^2 x_i x_j, i <= j; x_-1 is 1, so that (-1, -1) is the sum of w^2, and (-1, j) that of w^2 x_j.
    lost : bool
        Where sums of squares do not say what they should.
    unit : int
        What 1 is in all of these numbers: 2**60 of fixed numbers.
    """
    ww = products[-1, -1]
    whole, square = weight * weight, weight * weight - unit * ww
    divisor = whole * square
    some = square > 0
    blank = np.where(some & np.logical_not(lost), 1.0, NAN)
    rows: list[list[Any]] = [[None] * len(sums) for _ in sums]
    for i, a in enumerate(sums):
        for j in range(i, len(sums)):
            b = sums[j]
            crossed = weight * (a * products[-1, j] + b * products[-1, i])
            numerator = products[i, j] * whole - crossed + a * b * ww
            rows[i][j] = rows[j][i] = _quotient(numerator * unit, divisor) * blank
    return Spread([_quotient(a, weight) for a in sums], rows, _quotient(whole, ww * unit))


def _quotient(numerator: Number, denominator: Number) -> Any:
    return to_float(numerator, denominator)
