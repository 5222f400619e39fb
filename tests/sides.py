"""Sides of comparisons by hand: what an object would say of cells and shards, from sums of rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from streammetrics.collect.accumulator import Accumulator, accumulate
from streammetrics.collect.definition import Definition
from streammetrics.collect.metric_like import MetricLike
from streammetrics.reading.replicates import Sample, Shards

PLAN = ("user_id", 16, "")


def ratio(name, metric, top, bottom, *, events=None, keys=None, bound=0.0, plan=PLAN):
    """sum top / sum bottom of each cell, both by shard, (K, n)."""
    top, bottom = np.asarray(top, float), np.asarray(bottom, float)
    value = top.sum(0) / bottom.sum(0)
    deleted = (top.sum(0) - top) / (bottom.sum(0) - bottom)
    shards = Shards(plan, lambda _: deleted, bottom, bottom if events is None else events)
    keys = [()] if keys is None else keys
    rows = bottom.sum(0).astype(np.int64)
    return Sample(name, metric, keys, value, value - bound, value + bound, rows, list, shards)


def some(rng, name, metric, rate=0.1, cells=1, rows=400, **more):
    """The same of shares of rows drawn at random."""
    n = rng.poisson(rows, (PLAN[1], cells))
    return ratio(name, metric, rng.binomial(n, rate), n, **more)


class SideAccumulator(Accumulator):
    """The accumulator of an object that has counted nothing."""

    states = ()


class SideDefinition(Definition):
    """The definition of an object that has counted nothing, and has these samples.

    Parameters
    ----------
    samples : sequence of Sample
        What `samples` returns.
    by : tuple of str
        The columns of its slices.
    """

    accumulator_type = SideAccumulator

    def __init__(self, samples, by):
        self.given, self.by = samples, by

    def samples(self, states):
        return list(self.given)

    @property
    def reads(self):
        """Return one state, which is sliced by these columns."""
        named = [SimpleNamespace(kind="key", names=self.by)] if self.by else []
        return (SimpleNamespace(state=SimpleNamespace(axes=named)),)


class Side(MetricLike):
    """An object that has these samples."""

    def __init__(self, *samples, by=()):
        self.given = samples
        self._accumulator = accumulate(SideDefinition(samples, by))
