"""Formulas for standard errors that several metrics share.

They apply to means over units (such as rows, queries or groups), to functions of such means, and to functions of row
counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..collect.metric import Metric
from ..reading.about import about_of
from ..reading.interval import ROWS, Estimate
from ..statistics.covariance import MeanEstimates

__all__ = ["WEIGHTED", "delta", "from_counts", "from_shares", "mean", "of_moments", "share"]

NAN = float("nan")
FEWEST_DEGREES = 3.0
"""The minimum degrees of freedom of a weighted proportion; with fewer, intervals would be uninformative."""
Floats = NDArray[np.float64]

WEIGHTED = "the rows have weights, and the state does not contain their squares; Sharded(..., unit=) has an interval"


def mean(
    value: Any,
    spread: MeanEstimates,
    scale: str,
    method: str,
    within: tuple[float, float] = (-math.inf, math.inf),
    assumption: str = ROWS,
) -> Estimate:
    """Return a mean over units (rows, queries or groups) with its standard error; see `delta` for the parameters."""
    return delta(value, spread, lambda _: (1.0,), scale, method, within, assumption)


def delta(
    value: Any,
    spread: MeanEstimates,
    gradient: Callable[..., Sequence[Any]],
    scale: str,
    method: str,
    within: tuple[float, float] = (-math.inf, math.inf),
    assumption: str = ROWS,
) -> Estimate:
    """Return the value of a smooth function of means over units, with its standard error by the delta method.

    Parameters
    ----------
    value : float
        The value of the function at the means; an array if there are several cells (such as slices).
    spread : MeanEstimates
        The means and their covariances.
    gradient : function
        A function that takes the means and returns the derivative of the value with respect to each of them.
    scale, within, assumption
        As in `Estimate`.
    method : {"delta", "wilson"}
        "wilson" treats the value as a binomial proportion. Its sample size is chosen so that its variance equals that of
        the delta method.
    """
    size = np.asarray(spread.effective_size, np.float64)
    # Values that are not finite get no interval, so numpy's warnings about them are not useful.
    with np.errstate(all="ignore"):
        variance = spread.variance(gradient(*(np.asarray(m, np.float64) for m in spread.means)))
        if method != "wilson":
            return Estimate(value, np.sqrt(variance), scale, method, assumption, size - 1, within=within)
        # The sample size n follows from the binomial variance p * (1 - p) / n. First remove the small-sample correction
        # size / (size - 1) from `variance`.
        plain = variance * (1 - 1 / size)
        positive = np.where(plain > 0, value * (1 - value) / plain, size)
        degrees = None if spread.count is None else _degrees_of_weights(spread.count, size)
        error, units = np.sqrt(plain), np.where(positive > 0, positive, size)
        return Estimate(value, error, "wilson", method, assumption, degrees, units)


def _degrees_of_weights(count: Any, effective_size: Floats) -> Floats:
    """Return the degrees of freedom of the variance of a weighted proportion.

    The variance is a sum of squared weights, so its precision depends on the fourth powers of the weights, which the
    state does not contain. The degrees of freedom are therefore approximated by the effective size divided by 2 * v.
    Here, v = count / effective size - 1 is the squared coefficient of variation of the weights. In simulations with
    lognormal weights (`python -m benchmarks.coverage --only small`), this gives intervals of the right width. With
    equal weights, the variance follows from the proportion, and the degrees of freedom are infinite.
    """
    size = np.asarray(effective_size, np.float64)
    # Rounding may put the difference slightly below 0.
    variation = np.maximum(np.asarray(count, np.float64) / size - 1.0, 0.0)
    degrees: Floats = np.maximum(size / (2.0 * variation), FEWEST_DEGREES)
    return degrees


def share(denominator: Any, value: Any, method: str) -> Estimate:
    """Return a share of rows with its binomial standard error.

    `denominator` is the number of rows, `value` is the share, and `method` is "wilson" or "delta". `denominator` and
    `value` can be arrays.
    """
    n, p = np.asarray(denominator, np.float64), np.asarray(value, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(n > 0, np.sqrt(p * (1 - p) / n), NAN)
    return Estimate(value, error, "wilson" if method == "wilson" else "logit", method, size=n)


def from_shares(value: Any, cells: Sequence[Any], each: Sequence[tuple[Any, Any]], scale: str) -> Estimate:
    """Return a quotient of two weighted sums of row counts, with its standard error.

    Parameters
    ----------
    value : float
        The quotient.
    cells : sequence of int
        The number of rows in each cell of the confusion matrix; one array per cell if there are several slices.
    each : sequence of pairs
        The amounts that one row of each cell adds to the numerator and to the denominator.
    scale : str
        As in `Estimate`.
    """
    rows = [np.asarray(n, np.float64) for n in cells]
    all_rows = sum(rows[1:], rows[0])
    whole, squares = np.zeros_like(all_rows), np.zeros_like(all_rows)
    # The coefficients of both sums are divided by the largest coefficient of the denominator, which does not change the
    # quotient. This avoids overflow, because beta squared in F-beta can be close to the largest float64.
    most = Fraction(max(bottom for _, bottom in each))
    for n, pair in zip(rows, each, strict=True):
        top, bottom = (float(x / most) for x in pair)
        whole = whole + bottom * n
        squares = squares + n * (top - value * bottom) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where((all_rows > 1) & (whole > 0), np.sqrt(squares * (all_rows / (all_rows - 1))) / whole, NAN)
    return Estimate(value, error, scale)


def from_counts(value: float, counts: Any, influence: Any, scale: str) -> Estimate:
    """Return the value of a function of row counts, with its standard error computed from the influence of each row.

    Parameters
    ----------
    value : float
        The value of the function.
    counts : int64 array
        The number of rows in each cell of a table, such as a confusion matrix.
    influence : float64 array of the same shape
        For each cell, the influence of one row on the value, times the total number of rows. The mean of the influence
        over rows is 0.
    scale : str
        As in `Estimate`.
    """
    n, positive = int(counts.sum()), counts > 0
    terms = counts[positive] * influence[positive] ** 2
    known = n > 1 and bool(np.isfinite(terms).all())
    return Estimate(value, math.sqrt(math.fsum(terms) / n / (n - 1)) if known else NAN, scale)


def of_moments(
    metric: Metric[Any, Any],
    state: Any,
    value: float,
    spread: MeanEstimates | None,
    gradient: Callable[..., Any],
    within: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """Return the value of a function of column means, with its standard error by the delta method.

    If the metric's `squares` setting is off, the result contains the reason why there is no standard error. See `delta`
    for the parameters.
    """
    if spread is None or not metric.settings["squares"]:
        why = f"{metric.name} keeps no squares: give squares=True, or Sharded(..., unit=)"
        return Estimate(value, reason=why if state.excess is None else WEIGHTED)
    scale = about_of(metric).interval_scale
    # On the "log" scale, the value must be positive, but a ratio of totals can be negative. In that case the interval
    # is computed for the value itself ("natural").
    if scale == "log" and not value > 0:
        scale = "natural"
    return delta(value, spread, gradient, scale, about_of(metric).interval_methods[0], within)
