"""Errors of quantiles after Woodruff: how uncertain the share below q is, carried back through the full histogram.

Deleting a shard moves a quantile by jumps that say little; the share of weight below a fixed value moves smoothly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..reading.interval import Interval, reach
from ..reading.link_functions import SCALES, plain
from .estimates import INDEPENDENT
from .jackknife import Contrast, Replicates, of_one, total, variance_of
from .reasons import add, as_reasons, known, of_cells

__all__ = ["quantile_interval", "quantile_replicates"]

NAN = float("nan")
METHOD = "woodruff"
LOGIT = SCALES["logit"]


def _share(below: ArrayLike, weights: ArrayLike) -> Replicates:
    """The share of weight below a value, with each shard deleted."""
    under, weigh = (np.array(x, np.float64, order="C") for x in (below, weights))
    if under.shape != weigh.shape or (under > weigh).any() or (under < 0.0).any():
        raise InvalidInputError("every shard needs a weight, and one below the quantile that is not larger")
    whole, low = total(weigh), total(under)
    rest = whole - weigh
    with np.errstate(invalid="ignore", divide="ignore"):  # of what has no weight there is no share
        deleted = np.where(rest > 0.0, (low - under) / rest, NAN)
        return Replicates(np.where(whole > 0.0, low / whole, NAN), deleted, weigh)


def _limits(q: float, share: Contrast, confidence: float) -> tuple[Any, Any, NDArray[Any]]:
    """The shares between which the true share below the q-quantile lies, about q on the logit scale."""
    reasons = as_reasons(share.reason, share.deleted.shape[1:])
    inside = 0.0 < q < 1.0
    add(reasons, not inside, lambda i: f"the {q:g}-quantile is an end of the data: no interval; use a quantile between")
    known_reach = np.where(known(reasons), NAN, reach(confidence, share.df))
    half = known_reach * np.sqrt(variance_of(share)) / (q * (1.0 - q) if inside else NAN)
    centre = LOGIT.point(q)
    return LOGIT.value(centre - half), LOGIT.value(centre + half), reasons


def quantile_interval(
    q: float, below: ArrayLike, weights: ArrayLike, quantile: Callable[[Any], Any], confidence: float = 0.95
) -> Interval:
    """Return the interval of a quantile after Woodruff (1952), by shards of units.

    Parameters
    ----------
    q : float
        Which quantile, between 0 and 1.
    below : array_like, shape (K,) or (K, n)
        By shard, the weight of the values up to the estimated quantile; of n cells side by side, in each.
    weights : array_like, of the same shape
        By shard, the weight of all values.
    quantile : callable
        Share -> quantile of all shards, from the full histogram; of cells, an array of one share each.
    confidence : float
        Nominal coverage.

    Returns
    -------
    Interval
        quantile(q -+ t se), with se of the share below the estimate by delete-one-shard, on the logit scale about q, so
        that neither limit leaves the data; and K_eff - 1 degrees of freedom.

    Raises
    ------
    InvalidInputError
        If a shard has more weight below than in all.

    Examples
    --------
    >>> values = np.arange(1.0, 6401.0).reshape(64, 100, order="F")
    >>> def at(p):
    ...     return float(np.ceil(6400 * p))
    >>> found = quantile_interval(0.5, (values <= 3200).sum(axis=1), [100] * 64, at)
    >>> found.low <= found.estimate <= found.high
    True
    """
    points = of_one(_share(below, weights))
    low, high, reasons = _limits(q, points, confidence)
    estimate = quantile(plain(np.full(reasons.shape, q)))
    ends = [quantile(plain(np.where(known(reasons), q, share))) for share in (low, high)]
    error = (ends[1] - ends[0]) / (2.0 * reach(confidence, points.df))
    found = (plain(np.where(known(reasons), NAN, x)) for x in (*ends, error))
    below_it, above, off = found
    return Interval(below_it, above, estimate, off, METHOD, INDEPENDENT, confidence, of_cells(reasons))


def quantile_replicates(q: float, below: ArrayLike, weights: ArrayLike, quantile: Callable[[Any], Any]) -> Replicates:
    """Return the quantile with each shard deleted, along the line that Woodruff's 95 % interval shows.

    For differences between arms: a shard deleted moves the share below by a little, and the quantile by that over the
    density there. Parameters as for `quantile_interval`.

    Examples
    --------
    >>> values = np.arange(1.0, 6401.0).reshape(64, 100, order="F")
    >>> one = quantile_replicates(0.5, (values <= 3200).sum(axis=1), [100] * 64, lambda p: 6400 * p)
    >>> one.value, one.deleted.shape
    (3200.0, (64,))
    """
    shares = _share(below, weights)
    low, high, _ = _limits(q, of_one(shares), 0.95)
    estimate = quantile(plain(np.full(np.shape(shares.value), q)))
    width = np.asarray(high - low)
    ends = [quantile(plain(np.where(np.isnan(width), q, share))) for share in (low, high)]
    with np.errstate(invalid="ignore", divide="ignore"):  # no width where nothing varies, NaN where it is not known
        slope = np.where(width > 0.0, (ends[1] - ends[0]) / width, 0.0 * width)
    return Replicates(estimate, estimate - (shares.deleted - shares.value) * slope, shares.weights)
