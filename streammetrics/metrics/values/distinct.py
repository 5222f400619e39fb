"""Estimates of the number of distinct keys, or of keys that two data sets share, from a sample of the keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...collect.metric import Metric
from ...numerics.settings import setting
from ...numerics.student_t import normal_quantile
from ...reading.about import About
from ...reading.interval import KEYS, Estimate, Interval, check_confidence
from ...reading.reading import OwnReading, Reading
from ...statistics.key_sample import KeySample, hashes_at_one_level

__all__ = ["DistinctSample"]


class DistinctSample(Metric[KeySample, float], tag="distinct_sample"):
    """Distinct sample: the number of distinct keys (such as users), or of keys that two arms share, from a hash sample.

    Formula: number of keys in the sample / share of all hash values that the sample keeps.

    Parameters
    ----------
    limit : int
        The largest number of keys in the sample. Whenever there are more, the share of hash values that are kept is
        halved. The relative standard error is therefore between 1 / sqrt(limit) and 1.4 / sqrt(limit): 0.4 to 0.55 % at
        65,536. Below the limit, the count is exact.
    missing : {"raise", "skip"}
        Whether a row without a key raises an error or is skipped. `explain()` shows the number of skipped rows.
    missing_values : tuple of int, str or bytes
        Values, such as 0, that stand for a missing key in addition to null values.

    Notes
    -----
    Keys can have any type, and are passed as the column `value`. In a task, name the column that contains them:
    ``Task(DistinctSample(), value="user_id")``. Which keys are kept depends only on the set of keys, through a hash
    that never changes and is independent of the choice of shards. Two samples therefore make the same choice for a key
    that occurs in both data sets, so `intersection` can estimate how many users are in both arms of an experiment.
    `DistinctCount` cannot estimate intersections, but needs a tenth of the memory for the same error.

    As for `DistinctCount`, `interval()` refers to the number of keys that occur in the counted rows, not in a
    population. `Sharded` has no interval for this metric. The state takes up to 12 bytes per key kept, and four times
    that during updates; a row takes 11 ns, plus the hashing of strings. Source: adaptive sampling, Wegman (1984),
    Flajolet (1990). The value is 0 without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.DistinctSample(), by="arm")
    >>> arms.update(["ann", "bob", "ann", "bob", "cy"], arm=["a", "a", "a", "b", "b"]).compute()
    {'a': 2.0, 'b': 2.0}
    >>> arms["a"].intersection(arms["b"]).estimate, arms.total.compute()
    (1.0, 3.0)
    """

    about = About(
        interval_methods=("sample",),
        no_sharded_interval_reason=(
            "the number of distinct keys refers only to the counted rows; without Sharded, its interval covers the "
            "error of the sample"
        ),
        formula="(keys in the sample) / (share of all hash values that the sample keeps); see Flajolet (1990)",
        cost="12 bytes per key in the sample; about 11 ns per row",
        bound=(
            "keys in the sample <= value <= rows; exact for up to `limit` keys, then a standard error of c / "
            "sqrt(limit), with c from 1 to 1.4"
        ),
    )

    limit: int = setting(default=1 << 16, low=16, high=float(1 << 24))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    def make_state(self) -> KeySample:
        return KeySample(limit=self.limit, missing=self.missing, missing_values=self.missing_values)

    def of(self, state: KeySample) -> float:
        return _clip(state.kept_keys / state.share, _certain(state))

    def reason(self, state: KeySample) -> str | None:
        return None

    def read(self, state: KeySample) -> Reading:
        return OfSample(self, state)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        # The interval is for the number of keys in the counted rows, not in a population. So the only random error is
        # that of the hash sample.
        state: Any = reading.state
        return _estimate(state.kept_keys, state.share, _certain(state))

    def intersection(self, other: DistinctSample, confidence: float = 0.95) -> Interval:
        """Estimate the number of keys that occur in both data sets. To count the keys of their union, use `merge`.

        Parameters
        ----------
        other : DistinctSample
            The metric of the other data set; its `limit` can differ.
        confidence : float
            The nominal coverage.

        Returns
        -------
        Interval
            The interval of the number of shared keys. The sample that keeps the larger share of hash values is first
            reduced to the smaller share. If both samples contain all keys, the interval has zero width.

        Raises
        ------
        TypeError
            `other` is not a DistinctSample.
        """
        check_confidence(confidence)
        if not isinstance(other, DistinctSample):
            raise TypeError(
                f"intersection(): expected an object of class DistinctSample, found {type(other).__name__}; count both "
                f"sets of keys with DistinctSample"
            )
        share, (mine, theirs) = hashes_at_one_level([self.state, other.state])
        both = len(np.intersect1d(mine, theirs, assume_unique=True))
        fewest = min(self.bounds()[1], other.bounds()[1])
        return _estimate(both, share, (float(both), fewest)).interval(confidence)


class OfSample(OwnReading):
    """The number of distinct keys, estimated from a hash sample, with certified bounds and details of the sample."""

    def _bounds(self) -> tuple[float, float]:
        return _certain(self.state)

    def _details(self) -> dict[str, Any]:
        state: Any = self.state
        return {"kept": state.kept_keys, "share": state.share}


def _certain(state: KeySample) -> tuple[float, float]:
    """Return certified bounds on the number of keys: at least the number of kept keys, at most the number of rows.

    If all keys were kept, both bounds equal the number of kept keys.
    """
    kept = float(state.kept_keys)
    return kept, kept if state.share == 1 else float(int(state.rows))


def _estimate(kept_keys: int, share: float, within: tuple[float, float]) -> Estimate:
    """Return the estimated number of keys, each of which was kept with probability `share`.

    The interval inverts a score test: it contains all numbers of keys that the test does not reject.
    """
    # The number of kept keys has a binomial distribution. The ends of the interval are the solutions n of
    # (kept_keys - share * n)**2 = z**2 * share * (1 - share) * n.
    value, left = _clip(kept_keys / share, within), 1.0 - share

    def ends(confidence: float) -> tuple[float, float]:
        z = float(normal_quantile((1.0 + confidence) / 2.0))
        middle, half = 2.0 * kept_keys + z * z * left, z * math.sqrt(left * (4.0 * kept_keys + z * z * left))
        return (middle - half) / (2.0 * share), (middle + half) / (2.0 * share)

    return Estimate(value, math.sqrt(kept_keys * left) / share, "natural", "sample", KEYS, within=within, ends=ends)


def _clip(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])
