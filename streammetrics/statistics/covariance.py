"""Means over independent units and the covariances of these means, from exact sums: the input to the delta method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..numerics.exact import to_float

__all__ = ["MeanEstimates", "estimate_means"]

Number = Any
"""An integer or a fraction; an object array of integers if several cells are computed together."""

NAN = float("nan")
ONE = "1"


class MeanEstimates(NamedTuple):
    """Estimated means of terms (quantities that are averaged over units, such as rows), and their covariance matrix.

    Parameters
    ----------
    means : list of float
        Weighted means of the terms; arrays with an element for each cell (such as a slice) if several cells are
        computed together.
    covariance : list of lists of float
        The estimated covariance of the means: NaN if there are fewer than two units or a sum of squares overflowed.
    effective_size : float
        The effective sample size, (sum w)^2 / sum w^2: the number of units of equal weight that would give the same
        precision.
    count : int, optional
        The number of units; an array if several cells are computed together.
    """

    means: list[Any]
    covariance: list[list[Any]]
    effective_size: Any
    count: Any = None

    def variance(self, slopes: Sequence[Any]) -> Any:
        """Return the variance of a smooth function of the means by the delta method, given its partial derivatives."""
        total: Any = 0.0
        for i, a in enumerate(slopes):
            for j, b in enumerate(slopes):
                total = total + a * b * self.covariance[i][j]
        # The covariances may come from sums of rounded squares, so rounding can make the total slightly negative.
        # Replace a negative total with 0; NaN stays NaN.
        return np.maximum(total, 0.0)


def estimate_means(
    weight: Number,
    sums: Sequence[Number],
    products: Mapping[tuple[int, int], Number],
    overflowed: Any = False,
    unit: int = 1,
    count: Any = None,
) -> MeanEstimates:
    """Estimate the means of terms x (one number per unit, such as a row) and the covariance of these means.

    The estimates are computed from exact sums.

    Parameters
    ----------
    weight : number
        The sum of the weights w of the units.
    sums : sequence of numbers
        The sum of w * x for each term x.
    products : mapping of pairs to numbers
        The sums of w^2 * x_i * x_j for i <= j. The index -1 represents the constant 1: (-1, -1) is the sum of w^2, and
        (-1, j) is the sum of w^2 * x_j.
    overflowed : bool
        Whether a sum of squares overflowed, in which case the covariance is NaN.
    unit : int
        The integer that represents 1 in all of these numbers: 2**60 for fixed-point numbers.
    count : int, optional
        The number of units.
    """
    # For terms i and j, the estimator is the sum over units k of w_k^2 * (x_ki - mean_i) * (x_kj - mean_j) / W^2, times
    # the small-sample correction W^2 / (W^2 - sum(w_k^2)). Here, W is sum(w_k), and mean_i is sum(w_k * x_ki) / W. With
    # the common denominator W^2 * (W^2 - sum(w_k^2)), each result needs only one division of exact numbers.
    ww = products[-1, -1]
    whole, square = weight * weight, weight * weight - unit * ww
    divisor = whole * square
    some = square > 0
    nan_where_undefined = np.where(some & np.logical_not(overflowed), 1.0, NAN)
    rows: list[list[Any]] = [[None] * len(sums) for _ in sums]
    for i, a in enumerate(sums):
        for j in range(i, len(sums)):
            b = sums[j]
            crossed = weight * (a * products[-1, j] + b * products[-1, i])
            numerator = products[i, j] * whole - crossed + a * b * ww
            rows[i][j] = rows[j][i] = _quotient(numerator * unit, divisor) * nan_where_undefined
    return MeanEstimates([_quotient(a, weight) for a in sums], rows, _quotient(whole, ww * unit), count)


def _quotient(numerator: Number, denominator: Number) -> Any:
    return to_float(numerator, denominator)
