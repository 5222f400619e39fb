"""Numbers with their sampling errors, and what follows from these alone: intervals and p-values.

Of one number, or of the numbers of many cells side by side: then fields are arrays, and each has the bits that it would
have alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.student import t_tail
from ..reading.interval import Interval, alpha_of, reach
from ..reading.link_functions import plain, scale_of
from .reasons import Reasons, add, as_reasons, known, of_cells

__all__ = ["Measured", "around", "each", "interval", "measured", "p_value", "settled", "statistic", "welch"]

NAN, INF = float("nan"), float("inf")
INDEPENDENT = "units are independent"
Floats = NDArray[np.float64]


class Measured(NamedTuple):
    """A number with its sampling error: (estimate - truth) / error is about t-distributed on the scale.

    Parameters
    ----------
    value : float or float64 array, shape (n,)
        As users read it; for the scale "relative" v_a / v_b - 1.
    point : float or array
        The same on the scale.
    standard_error : float or array
        On the scale; NaN where there is a reason, 0 only for a difference of two that never differ.
    df : float or array
        Degrees of freedom; inf where the error is taken as known.
    scale : str
        See `SCALES`.
    method, assumption : str
        How the error was found, and what that takes for granted.
    reason : str or None, or array of these
        Why there is no error.
    reduction : float or array
        By which share covariates made the variance smaller.
    """

    value: Any
    point: Any
    standard_error: Any
    df: Any
    scale: str = "natural"
    method: str = ""
    assumption: str = INDEPENDENT
    reason: Any = None
    reduction: Any = 0.0

    def cells(self) -> Iterator[Measured]:
        """Return each of the numbers alone."""
        shape = np.shape(self.value)
        fields: tuple[Any, ...] = (*self[:4], self.reason, self.reduction)
        found = (np.broadcast_to(np.asarray(f), shape).reshape(-1).tolist() for f in fields)
        for value, point, error, df, reason, reduction in zip(*found, strict=True):
            yield self._replace(
                value=value, point=point, standard_error=error, df=df, reason=reason, reduction=reduction
            )


def each(found: Interval) -> Iterator[Interval]:
    """Return the interval of each of several numbers alone."""
    shape = np.shape(found.estimate)
    arrays = (np.broadcast_to(np.asarray(f), shape).reshape(-1).tolist() for f in (*found[:4], found.reason))
    for low, high, estimate, error, reason in zip(*arrays, strict=True):
        yield found._replace(low=low, high=high, estimate=estimate, standard_error=error, reason=reason)


def settled(
    value: Any,
    point: Any,
    error: Any,
    df: Any,
    scale: str,
    method: str,
    assumption: str = INDEPENDENT,
    *,
    reasons: Reasons,
    reduction: Any = 0.0,
) -> Measured:
    """Return numbers with their errors; NaN for the errors of those that have a reason."""
    none = known(reasons)
    error, df, reduction = (plain(np.where(none, blank, x)) for x, blank in ((error, NAN), (df, NAN), (reduction, 0.0)))
    return Measured(plain(value), plain(point), error, df, scale, method, assumption, of_cells(reasons), reduction)


def measured(
    value: Any,
    error: Any,
    scale: str = "natural",
    *,
    df: Any = INF,
    method: str = "",
    assumption: str = INDEPENDENT,
    reason: Any = None,
) -> Measured:
    """Return a number whose standard error is known on its own scale, such as DeLong's of an area; or many.

    Parameters
    ----------
    value, error : float or array
        The number, and its standard error in its own units.
    scale : str
        On which the error is to be taken as t-distributed: see `SCALES`.
    df : float or array
        Degrees of freedom; by default the error is taken as known.
    method, assumption : str
        As in `Measured`.
    reason : str or None, or array of these
        Why there is no error, where that is known.

    Examples
    --------
    >>> measured(0.75, 0.01, "logit").standard_error
    0.05333333333333334
    """
    on = scale_of(scale)
    given, off = np.asarray(value, np.float64), np.asarray(error, np.float64)
    reasons = as_reasons(reason, given.shape)
    add(reasons, ~on.holds(given), lambda i: f"{given.reshape(-1)[i]:g} is not on the {scale} scale")
    add(reasons, ~(off > 0.0), lambda i: "it has no standard error")
    with np.errstate(all="ignore"):  # what is not on the scale has a reason
        found = off / on.slope(given)
    return settled(given, on.points(given), found, df, scale, method, assumption, reasons=reasons)


def around(estimate: Measured, width: Any, confidence: float, method: str) -> Interval:
    """Return the interval of so many standard errors to both sides, carried back to the natural scale."""
    scale = scale_of(estimate.scale)
    reasons = as_reasons(estimate.reason, np.shape(estimate.value))
    error = np.asarray(estimate.standard_error)
    half = np.where(error > 0.0, width * np.where(error > 0.0, error, 0.0), error)  # of no error, and of NaN, itself
    with np.errstate(all="ignore"):  # of NaN
        low, high = (np.where(known(reasons), NAN, estimate.point + side) for side in (-half, half))
        natural = np.where(known(reasons), NAN, error * scale.slope(estimate.value))
    low, high, why = scale.value(low), scale.value(high), of_cells(reasons)
    return Interval(low, high, estimate.value, plain(natural), method, estimate.assumption, confidence, why)


def interval(estimate: Measured, confidence: float = 0.95) -> Interval:
    """Return the interval that covers at one look: point +- t(df) standard errors, back on the natural scale.

    Parameters
    ----------
    estimate : Measured
        A number with its error, or many.
    confidence : float
        Nominal coverage.

    Returns
    -------
    Interval
        Of NaN, with the reason, if the error is unknown. Looked at again and again it misses ever more often: see
        `always_valid`.

    Examples
    --------
    >>> low, high, *_ = interval(Measured(0.1, 0.1, 0.01, df=63))
    >>> round(low, 4), round(high, 4)
    (0.08, 0.12)
    """
    alpha_of(confidence)
    return around(estimate, reach(confidence, estimate.df), confidence, estimate.method)


def statistic(estimate: Measured, null: float = 0.0) -> Any:
    """Return (point - null) / error, the null given as a value; 0 / 0 is 0, NaN without an error."""
    with np.errstate(all="ignore"):  # of an error of 0, and of two infinities
        distance = np.asarray(estimate.point - scale_of(estimate.scale).point(null))
        return plain(
            np.where(distance == 0.0, 0.0 * np.asarray(estimate.standard_error), distance / estimate.standard_error)
        )


def p_value(estimate: Measured, null: float = 0.0) -> Any:
    """Return P(|T| > |t|) where the truth is the null, two-sided, of one look; NaN without an error.

    Examples
    --------
    >>> round(p_value(Measured(0.1, 0.1, 0.05, df=63)), 4)
    0.0498
    """
    t = np.abs(statistic(estimate, null))
    usual = np.isfinite(t)
    tail = t_tail(np.where(usual, t, 0.0), np.where(usual, estimate.df, 1.0))
    return plain(np.where(usual, 2.0 * tail, np.where(np.isinf(t), 0.0, NAN)))


def welch(a: Measured, b: Measured) -> Measured:
    """Return a - b for two estimates that the caller knows to be independent; on logarithms, a / b - 1.

    Parameters
    ----------
    a, b : Measured
        Both on the scale "natural", or both on "log" for a relative difference.

    Returns
    -------
    Measured
        Variance v_a + v_b, with (v_a + v_b)^2 / (v_a^2 / df_a + v_b^2 / df_b) degrees of freedom (Welch 1947). Two
        models of one log are not independent: so compared, an interval of theirs is twice as wide as it should be.

    Raises
    ------
    InvalidInputError
        If the scales are not those.

    Examples
    --------
    >>> d = welch(Measured(0.5, 0.5, 0.03, df=20), Measured(0.4, 0.4, 0.04, df=30))
    >>> round(d.standard_error, 4), round(d.df, 1)
    (0.05, 49.7)
    """
    if a.scale != b.scale or a.scale not in ("natural", "log"):
        raise InvalidInputError(f"a difference needs two estimates on 'natural' or on 'log', not {a.scale}, {b.scale}")
    scale = "natural" if a.scale == "natural" else "relative"
    point = np.asarray(a.point) - b.point
    reasons = as_reasons(a.reason, point.shape)
    theirs = as_reasons(b.reason, point.shape).reshape(-1)
    add(reasons, known(theirs).reshape(point.shape), lambda i: str(theirs[i]))
    va, vb = (np.asarray(side.standard_error) * side.standard_error for side in (a, b))
    add(reasons, va + vb == 0.0, lambda i: "nothing varies on either side")
    df, error = satterthwaite(va, a.df, vb, b.df), np.sqrt(va + vb)
    value = scale_of(scale).value(point)
    return settled(value, point, error, df, scale, "welch", "the two sides are independent", reasons=reasons)


def satterthwaite(va: Any, df_a: Any, vb: Any, df_b: Any) -> Any:
    """Return the degrees of freedom of a sum of two variances; inf if both are known."""
    whole = va + vb
    with np.errstate(all="ignore"):  # of no variance, and of NaN
        part = np.where(whole == 0.0, 0.5, va / whole)  # parts, as squares of variances leave the floats sooner
        spread = part * part / df_a + (1.0 - part) * (1.0 - part) / df_b
        return np.where(spread == 0.0, INF, 1.0 / spread)
