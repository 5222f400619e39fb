"""How many different keys there were, and how many two sides share, from a sample of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...collect.metric import Metric
from ...numerics.settings import setting
from ...numerics.student import normal_quantile
from ...reading.about import About
from ...reading.interval import KEYS, Estimate, Interval, check_confidence
from ...reading.reading import OwnReading, Reading
from ...statistics.key_sample import KeySample, at_one_level

__all__ = ["DistinctSample"]


class DistinctSample(Metric[KeySample, float], tag="distinct_sample"):
    """Number of different keys, such as users, and how many of them are also elsewhere: from a sample by their hash.

    Formula: keys kept / share of all hashes that is kept.

    Parameters
    ----------
    limit : int
        How many keys are kept. While there are more, the share is halved: so the relative standard error is between
        1 / sqrt(limit) and 1.4 / sqrt(limit), 0.4 to 0.55 % at 65,536, and below the limit the count is exact.
    missing, missing_values
        Whether a row without a key raises, or is left out and counted; keys that stand for none, such as 0.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Keys are of any kind, in the column `value`; a task binds it: ``Task(DistinctSample(), value="user_id")``. Which keys
    are kept depends on the set of keys alone, by a hash of its own (not that of shards), fixed for ever: so samples made
    anywhere have the same keys, and `intersection` tells how many users are in both arms of an experiment, which two
    `DistinctCount` cannot. That one needs a tenth of the memory for the same error.

    `interval()` is about the keys that were seen, as `DistinctCount`'s is; there are none by shards. Up to 12 bytes a key
    kept, four times that while rows come; 11 ns a row, and what hashing texts takes. Source: adaptive sampling, Wegman
    (1984), Flajolet (1990). 0 without rows.

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
            "a number of different keys is about the rows that were seen: without shards it has the error of its sample"
        ),
        formula="keys kept / share of hashes kept (Flajolet 1990)",
        cost="12 bytes a key kept; about 11 ns a row",
        bound="keys kept <= value <= rows; exact up to `limit` keys, then a standard error of 1 to 1.4 / sqrt(limit)",
    )

    limit: int = setting(default=1 << 16, low=16, high=float(1 << 24))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    def make_state(self) -> KeySample:
        return KeySample(limit=self.limit, missing=self.missing, missing_values=self.missing_values)

    def of(self, state: KeySample) -> float:
        return _within(state.kept / state.share, _certain(state))

    def reason(self, state: KeySample) -> str | None:
        return None

    def read(self, state: KeySample) -> Reading:
        return OfSample(self, state)

    def estimate(self, found: Reading, method: str) -> Estimate:
        # The error is that of the sample: how many keys were seen, not how many others would be.
        state: Any = found.state
        return _estimate(state.kept, state.share, _certain(state))

    def intersection(self, other: DistinctSample, confidence: float = 0.95) -> Interval:
        """Return how many keys were seen on both sides; their union is that of `merge`.

        Parameters
        ----------
        other : DistinctSample
            The other side, of any limit.
        confidence : float
            The nominal coverage.

        Returns
        -------
        Interval
            Both samples are first brought to the smaller share; exact (of no width) where both are.

        Raises
        ------
        TypeError
            The other side is something else, such as a count that keeps no keys.
        """
        check_confidence(confidence)
        if not isinstance(other, DistinctSample):
            raise TypeError(f"intersection() takes a DistinctSample, not a {type(other).__name__}")
        share, (mine, theirs) = at_one_level([self.state, other.state])
        both = len(np.intersect1d(mine, theirs, assume_unique=True))
        fewest = min(self.bounds()[1], other.bounds()[1])
        return _estimate(both, share, (float(both), fewest)).interval(confidence)


class OfSample(OwnReading):
    """The reading of a sample of keys, with its certified bounds."""

    def _bounds(self) -> tuple[float, float]:
        return _certain(self.state)

    def _details(self) -> dict[str, Any]:
        state: Any = self.state
        return {"kept": state.kept, "share": state.share}


def _certain(state: KeySample) -> tuple[float, float]:
    """Return certified bounds of the number of keys."""
    kept = float(state.kept)
    return kept, kept if state.share == 1 else float(int(state.rows))


def _estimate(kept: int, share: float, within: tuple[float, float]) -> Estimate:
    """How many there are, if each was kept with this chance: all numbers that a score test would not reject."""
    value, left = _within(kept / share, within), 1.0 - share

    def ends(confidence: float) -> tuple[float, float]:
        z = float(normal_quantile((1.0 + confidence) / 2.0))
        middle, half = 2.0 * kept + z * z * left, z * math.sqrt(left * (4.0 * kept + z * z * left))
        return (middle - half) / (2.0 * share), (middle + half) / (2.0 * share)

    return Estimate(value, math.sqrt(kept * left) / share, "natural", "sample", KEYS, within=within, ends=ends)


def _within(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])
