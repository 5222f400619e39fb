"""Standard errors that metrics have in common: of functions of means over units, and of shares of counted rows."""

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
from ..statistics.covariance import Spread

__all__ = ["WEIGHTED", "delta", "from_counts", "from_shares", "mean", "of_moments", "share"]

NAN = float("nan")
Floats = NDArray[np.float64]

WEIGHTED = "rows are weighted, and counts do not say what their squared weights are: Sharded(..., unit=) does"


def mean(
    value: Any,
    spread: Spread,
    scale: str,
    method: str,
    within: tuple[float, float] = (-math.inf, math.inf),
    assumption: str = ROWS,
) -> Estimate:
    """Return the estimate of a lone mean; otherwise as `delta`."""
    return delta(value, spread, lambda _: (1.0,), scale, method, within, assumption)


def delta(
    value: Any,
    spread: Spread,
    gradient: Callable[..., Sequence[Any]],
    scale: str,
    method: str,
    within: tuple[float, float] = (-math.inf, math.inf),
    assumption: str = ROWS,
) -> Estimate:
    """Return the estimate of a smooth function of means over units: its variance is that of its tangent.

    Parameters
    ----------
    value : float
        The function at the means; of cells side by side, an array.
    spread : Spread
        The means and their covariances.
    gradient : function
        Of the means: how the value changes with each.
    scale, within, assumption
        As in `Estimate`.
    method : {"delta", "wilson"}
        "wilson" takes the value as a share, of as many units as would have its variance.
    """
    size = np.asarray(spread.size, np.float64)
    with np.errstate(all="ignore"):  # what is not finite has no interval
        variance = spread.variance(gradient(*(np.asarray(m, np.float64) for m in spread.means)))
        if method != "wilson":
            return Estimate(value, np.sqrt(variance), scale, method, assumption, size - 1, within=within)
        plain = variance * (1 - 1 / size)  # of a share it is p (1 - p) / n, without a correction for small n
        held = np.where(plain > 0, value * (1 - value) / plain, size)
        return Estimate(value, np.sqrt(plain), "wilson", method, assumption, size=np.where(held > 0, held, size))


def share(denominator: Any, value: Any, method: str) -> Estimate:
    """Return the estimate of a share of so many counted rows."""
    n, p = np.asarray(denominator, np.float64), np.asarray(value, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(n > 0, np.sqrt(p * (1 - p) / n), NAN)
    return Estimate(value, error, "wilson" if method == "wilson" else "logit", method, size=n)


def from_shares(value: Any, cells: Sequence[Any], each: Sequence[tuple[Any, Any]], scale: str) -> Estimate:
    """Return the estimate of a quotient of sums of counts of rows.

    Parameters
    ----------
    value : float
        The quotient.
    cells : sequence of int
        Rows of each cell; of states side by side, arrays of them.
    each : sequence of pairs
        What a row of each cell adds to numerator and denominator.
    scale : str
        As in `Estimate`.
    """
    rows = [np.asarray(n, np.float64) for n in cells]
    all_rows = sum(rows[1:], rows[0])
    whole, squares = np.zeros_like(all_rows), np.zeros_like(all_rows)
    most = Fraction(max(bottom for _, bottom in each))  # beta squared may be as large as floats go
    for n, pair in zip(rows, each, strict=True):
        top, bottom = (float(x / most) for x in pair)
        whole = whole + bottom * n
        squares = squares + n * (top - value * bottom) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where((all_rows > 1) & (whole > 0), np.sqrt(squares * (all_rows / (all_rows - 1))) / whole, NAN)
    return Estimate(value, error, scale)


def from_counts(value: float, counts: Any, influence: Any, scale: str) -> Estimate:
    """Return the estimate of a function of counts of rows.

    Parameters
    ----------
    value : float
        The function.
    counts : int64 array
        Rows of each cell.
    influence : float64 array of the same shape
        What a row of each cell adds to the value, times all rows: its mean over rows is 0.
    scale : str
        As in `Estimate`.
    """
    n, held = int(counts.sum()), counts > 0
    terms = counts[held] * influence[held] ** 2
    known = n > 1 and bool(np.isfinite(terms).all())
    return Estimate(value, math.sqrt(math.fsum(terms) / n / (n - 1)) if known else NAN, scale)


def of_moments(
    metric: Metric[Any, Any],
    state: Any,
    value: float,
    spread: Spread | None,
    gradient: Callable[..., Any],
    within: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """Return the estimate of a function of means of columns, if squares were asked for: in company as alone."""
    if spread is None or not metric.settings["squares"]:
        why = f"{metric.name} keeps no squares: give squares=True, or Sharded(..., unit=)"
        return Estimate(value, reason=why if state.excess is None else WEIGHTED)
    scale = about_of(metric).interval_scale
    if scale == "log" and not value > 0:  # a ratio of a total of either sign
        scale = "natural"
    return delta(value, spread, gradient, scale, about_of(metric).interval_methods[0], within)
