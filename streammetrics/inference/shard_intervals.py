"""The interval of a number by shards of units, in many cells at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..reading.about import about_of
from ..reading.interval import Interval
from ..reading.replicates import Sample
from .differences import at_shares, replicates, why_none
from .estimates import Measured, interval
from .jackknife import jackknife
from .quantiles import quantile_interval
from .reasons import as_reasons

__all__ = ["intervals_of"]


def intervals_of(sample: Sample, confidence: float) -> Interval:
    """Return the interval of each cell of a sample that has shards; arrays, as of cells side by side.

    Parameters
    ----------
    sample : Sample
        With shards.
    confidence : float
        Nominal coverage.
    """
    shards, metric = sample.shards, sample.metric
    assert shards is not None
    if why := why_none(metric):
        none = np.full(sample.values.shape, np.nan)
        reasons = as_reasons(why, none.shape)
        return interval(Measured(sample.values, none, none, none, reason=reasons), confidence)._replace(
            method="", assumption=""
        )
    if shards.below is not None:
        return _around(
            sample.values, quantile_interval(metric.q, shards.below, shards.weights, at_shares(sample), confidence)
        )
    scale = about_of(metric).interval_scale
    return _around(sample.values, interval(jackknife(replicates(sample), scale=scale), confidence))


def _around(values: NDArray[np.float64], found: Interval) -> Interval:
    """An interval about the values, to the bit: of a quantile the middle of a bucket, whose limits are in proportion."""
    return found._replace(estimate=values, low=np.minimum(found.low, values), high=np.maximum(found.high, values))
