"""Woodruff's intervals of quantiles, against the formula and by simulation."""

import math

import numpy as np
import pytest
import scipy.stats

from streammetrics.errors import InvalidInputError
from streammetrics.inference.estimates import interval
from streammetrics.inference.jackknife import jackknife, subtract_replicates
from streammetrics.inference.quantiles import quantile_interval, quantile_replicates


def shards(rng, users=600, q=0.9):
    """Values of users of 5 rows each, in 64 shards: below the quantile, all, and how to read a quantile."""
    user = rng.integers(0, 64, users)
    values = np.exp(rng.normal(size=(users, 1)) * 0.5 + rng.normal(size=(users, 5)))
    ordered = np.sort(values, axis=None)

    def at(p):
        return float(ordered[min(max(math.ceil(p * ordered.size) - 1, 0), ordered.size - 1)])

    below = np.bincount(user, (values <= at(q)).sum(1), 64)
    return below, np.bincount(user, minlength=64) * 5.0, at


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_formula(q):
    below, weights, at = shards(np.random.default_rng(1), q=q)
    found = quantile_interval(q, below, weights, at)
    total = weights.sum()
    s = (below.sum() - below) / (total - weights)
    error = math.sqrt(63 / 64 * ((s - s.mean()) ** 2).sum()) / (q * (1 - q))
    reach = scipy.stats.t.ppf(0.975, total**2 / (weights**2).sum() - 1) * error
    low, high = scipy.special.expit(scipy.special.logit(q) + np.array([-reach, reach]))
    assert (found.low, found.high, found.estimate) == (at(low), at(high), at(q))
    one = quantile_replicates(q, below, weights, at)
    slope = (at(high) - at(low)) / (high - low)
    np.testing.assert_allclose(one.leave_one_out, at(q) - (s - below.sum() / total) * slope, rtol=1e-12)


@pytest.mark.slow
def test_coverage_alone_and_of_arms():
    """Nominal 95 %; the full form is that of the benchmark."""
    rng = np.random.default_rng(2)
    truth = np.quantile(np.exp(0.5 * rng.normal(size=4_000_000) + rng.normal(size=4_000_000)), 0.9)
    alone = arms = 0
    for _ in range(300):
        one, two = shards(rng), shards(rng)
        found = quantile_interval(0.9, *one)
        alone += found.low <= truth <= found.high
        difference = interval(jackknife(subtract_replicates(*[quantile_replicates(0.9, *side) for side in (one, two)])))
        arms += difference.low <= 0.0 <= difference.high
    assert 0.91 <= alone / 300 <= 0.985
    assert 0.91 <= arms / 300 <= 0.985


def test_refused():
    below, weights, at = shards(np.random.default_rng(3))
    assert "end of the data" in quantile_interval(1.0, below, weights, at).reason
    assert "effective number of shards" in quantile_interval(0.9, below[:5], weights[:5], at).reason
    assert math.isnan(jackknife(quantile_replicates(0.9, below[:5], weights[:5], at)).standard_error)
    with pytest.raises(InvalidInputError, match="must lie between 0 and"):
        quantile_interval(0.9, weights + 1, weights, at)


def test_a_constant_is_known():
    found = quantile_interval(0.5, np.full(20, 10.0), np.full(20, 10.0), lambda p: 7.0)
    assert found[:3] == (7.0, 7.0, 7.0)
