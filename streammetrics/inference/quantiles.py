"""Confidence intervals for quantiles by the method of Woodruff (1952).

The jackknife is not valid for a quantile itself, because a quantile jumps when a shard is left out, whereas the share
of weight below a fixed value changes smoothly. The interval is therefore computed for this share, and its limits are
mapped to values by the quantile function of the full histogram.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..reading.interval import Interval, critical_value
from ..reading.link_functions import SCALES, unwrap_scalar
from .estimates import INDEPENDENT
from .jackknife import Contrast, Replicates, build_contrast, jackknife_variance, sum_shards
from .reasons import add_reasons, build_reasons, has_reason, unwrap_reasons

__all__ = ["compute_share", "quantile_interval", "quantile_replicates"]

NAN = float("nan")
METHOD = "woodruff"
LOGIT = SCALES["logit"]


def compute_share(below: ArrayLike, weights: ArrayLike) -> Replicates:
    """Return the share of the total weight that lies below a fixed value, with its leave-one-shard-out values.

    `below` is the weight below the value in each shard, and `weights` the total weight of each shard.
    """
    weight_below, shard_weights = (np.array(x, np.float64, order="C") for x in (below, weights))
    if weight_below.shape != shard_weights.shape or (weight_below > shard_weights).any() or (weight_below < 0.0).any():
        raise InvalidInputError(
            "the weight below the quantile must lie between 0 and the weight of the shard, in every shard"
        )
    total_weight, total_below = sum_shards(shard_weights), sum_shards(weight_below)
    remaining = total_weight - shard_weights
    # Suppress warnings about cells (slices) without weight, where the share is undefined.
    with np.errstate(invalid="ignore", divide="ignore"):
        leave_one_out = np.where(remaining > 0.0, (total_below - weight_below) / remaining, NAN)
        return Replicates(np.where(total_weight > 0.0, total_below / total_weight, NAN), leave_one_out, shard_weights)


def _compute_limits(q: float, share: Contrast, confidence: float) -> tuple[Any, Any, NDArray[Any]]:
    """Return an interval around q that is, on the logit scale, as wide as the confidence interval for `share`.

    Returns
    -------
    tuple of three
        The lower and upper limits of the share, and the reason for each cell that has no interval.
    """
    reasons = build_reasons(share.reason, share.leave_one_out.shape[1:])
    inside = 0.0 < q < 1.0
    add_reasons(
        reasons, not inside, lambda i: f"the {q:g}-quantile is an end of the data and has no interval; choose 0 < q < 1"
    )
    # The interval is centered at q. The observed share below the estimate would be a worse center, because it exceeds q
    # by up to the weight of one bucket. The error on the logit scale is the error of the share divided by q * (1 - q).
    known_reach = np.where(has_reason(reasons), NAN, critical_value(confidence, share.df))
    half = known_reach * np.sqrt(jackknife_variance(share)) / (q * (1.0 - q) if inside else NAN)
    centre = LOGIT.point(q)
    return LOGIT.value(centre - half), LOGIT.value(centre + half), reasons


def quantile_interval(
    q: float, below: ArrayLike, weights: ArrayLike, quantile: Callable[[Any], Any], confidence: float = 0.95
) -> Interval:
    """Return the interval for a quantile by the method of Woodruff (1952), with a standard error from shards of units.

    Parameters
    ----------
    q : float
        The probability of the quantile, between 0 and 1.
    below : array_like, shape (K,) or (K, n)
        The weight of the values up to the estimated quantile, in each shard (and cell, such as a slice).
    weights : array_like, of the same shape
        The weight of all values, in each shard (and cell).
    quantile : callable
        The quantile function over all shards: it takes a probability and returns the quantile. For several cells, it
        takes an array with one probability per cell.
    confidence : float
        Nominal coverage.

    Returns
    -------
    Interval
        The limits are quantile(q ± t * se). Here se is the jackknife error of the share of weight below the estimate,
        and t has K_eff - 1 degrees of freedom, where K_eff is the effective number of shards. The limits q ± t * se are
        computed on the logit scale, so that they stay between 0 and 1.

    Raises
    ------
    InvalidInputError
        If a shard has more weight below the quantile than in total.

    Examples
    --------
    >>> values = np.arange(1.0, 6401.0).reshape(64, 100, order="F")
    >>> def at(p):
    ...     return float(np.ceil(6400 * p))
    >>> result = quantile_interval(0.5, (values <= 3200).sum(axis=1), [100] * 64, at)
    >>> result.low <= result.estimate <= result.high
    True
    """
    points = build_contrast(compute_share(below, weights))
    low, high, reasons = _compute_limits(q, points, confidence)
    estimate = quantile(unwrap_scalar(np.full(reasons.shape, q)))
    ends = [quantile(unwrap_scalar(np.where(has_reason(reasons), q, share))) for share in (low, high)]
    width = (ends[1] - ends[0]) / (2.0 * critical_value(confidence, points.df))
    columns = (unwrap_scalar(np.where(has_reason(reasons), NAN, x)) for x in (*ends, width))
    lower, upper, standard_error = columns
    return Interval(lower, upper, estimate, standard_error, METHOD, INDEPENDENT, confidence, unwrap_reasons(reasons))


def quantile_replicates(q: float, below: ArrayLike, weights: ArrayLike, quantile: Callable[[Any], Any]) -> Replicates:
    """Return approximate leave-one-shard-out values of a quantile, for differences in quantiles between arms.

    Leaving out a shard changes the share of weight below the quantile by a small amount. The quantile changes by about
    this amount divided by the density, which is estimated from the width of Woodruff's 95 % interval. The parameters are
    the same as for `quantile_interval`.

    Examples
    --------
    >>> values = np.arange(1.0, 6401.0).reshape(64, 100, order="F")
    >>> one = quantile_replicates(0.5, (values <= 3200).sum(axis=1), [100] * 64, lambda p: 6400 * p)
    >>> one.value, one.leave_one_out.shape
    (3200.0, (64,))
    """
    # Estimate the slope of the quantile function from the whole interval. A local slope would depend on a single bucket.
    shares = compute_share(below, weights)
    low, high, _ = _compute_limits(q, build_contrast(shares), 0.95)
    estimate = quantile(unwrap_scalar(np.full(np.shape(shares.value), q)))
    width = np.asarray(high - low)
    ends = [quantile(unwrap_scalar(np.where(np.isnan(width), q, share))) for share in (low, high)]
    # Suppress warnings about cells (slices) where the width is 0 or NaN.
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = np.where(width > 0.0, (ends[1] - ends[0]) / width, 0.0 * width)
    return Replicates(estimate, estimate - (shares.leave_one_out - shares.value) * slope, shares.weights)
