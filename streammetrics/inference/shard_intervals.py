"""Jackknife intervals for a metric, computed from shards of units for all cells (slices) at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reading.about import about_of
from ..reading.interval import Interval
from ..reading.replicates import Sample
from .differences import build_quantile_function, build_replicates, find_refusal
from .estimates import ScaledEstimate, interval
from .jackknife import jackknife
from .quantiles import quantile_interval
from .reasons import build_reasons

__all__ = ["compute_shard_intervals"]


def compute_shard_intervals(sample: Sample, confidence: float) -> Interval:
    """Return the jackknife interval for each cell (slice) of a sample, as one `Interval` whose fields are arrays.

    Parameters
    ----------
    sample : Sample
        The values of one metric. Its `shards` must not be None.
    confidence : float
        Nominal coverage.
    """
    shards, metric = sample.shards, sample.metric
    assert shards is not None
    if why := find_refusal(metric):
        none = np.full(sample.values.shape, np.nan)
        reasons = build_reasons(why, none.shape)
        return interval(ScaledEstimate(sample.values, none, none, none, reason=reasons), confidence)._replace(
            method="", assumption=""
        )
    if shards.below is not None:
        return _include_values(
            sample.values,
            quantile_interval(metric.q, shards.below, shards.weights, build_quantile_function(sample), confidence),
        )
    scale = about_of(metric).interval_scale
    limits = interval(jackknife(build_replicates(sample), scale=scale), confidence)
    least, most = _find_range(metric)
    limits = limits._replace(low=np.maximum(limits.low, least), high=np.minimum(limits.high, most))
    return _include_values(sample.values, limits)


def _find_range(metric: Any) -> tuple[float, float]:
    """Return the smallest and the largest possible value of a metric; infinite where there is no limit."""
    low, high = getattr(metric, "interval_within", about_of(metric).value_range)
    return -np.inf if low is None else float(low), np.inf if high is None else float(high)


def _include_values(values: NDArray[np.float64], interval: Interval) -> Interval:
    """Replace the estimates of an interval with `values`, and widen the interval where it does not contain them.

    For example, the value of a quantile is the middle of a bucket, but the upper limit of its interval may be in the
    lower half of this bucket.
    """
    return interval._replace(
        estimate=values, low=np.minimum(interval.low, values), high=np.maximum(interval.high, values)
    )
