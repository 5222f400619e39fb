"""Metrics of a column of keys (such as campaigns): the most frequent keys, the entropy, and the share of unique rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...collect.metric import Metric, no_weight_reason
from ...numerics.elementary import log
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import OwnReading, Reading, widen_for_rounding
from ...statistics.key_counts import KeyCounts, entropy_term
from ..standard_errors import WEIGHTED, from_counts

__all__ = ["Entropy", "HeavyHitters", "UniqueShare"]

Hitters = dict[Any, float]


class CountedKeys(Metric[KeyCounts, Any]):
    """Base class for metrics that are computed from the total weight of each key.

    Parameters
    ----------
    limit : int
        The maximum number of distinct keys across all slices. An update that would exceed it raises MemoryLimitError
        and counts nothing.
    missing : {"raise", "skip"}
        Whether a row without a key raises an error or is skipped. `explain()` shows the number of skipped rows.
    missing_values : tuple of int, str or bytes
        Values, such as 0, that stand for a missing key in addition to null values.
    """

    about = About(cost="40 bytes per key, plus the key itself; about 30 ns per row")

    limit: int = setting(default=1 << 20, low=1, high=1 << 28, operational=True)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    def make_state(self) -> KeyCounts:
        return KeyCounts(limit=self.limit, missing=self.missing, missing_values=self.missing_values)

    def reason(self, state: KeyCounts) -> str | None:
        return no_weight_reason(state)


class HeavyHitters(CountedKeys, tag="heavy_hitters"):
    """Heavy hitters: the most frequent keys and the total weight of each; the first key is the mode.

    Formula: the k keys with the largest sums of weights w. Among keys with equal sums, those that come first in
    ascending order are chosen.

    Parameters
    ----------
    k : int
        The number of keys to return.

    Notes
    -----
    The value is a dict from key to weight, in descending order of weight. It is exact, because the state counts every
    key: an update that exceeds `limit` keys raises an error. (Sketches with a fixed number of candidates, such as
    space-saving, depend on the order of rows.) For a key that is known in advance, `KeyFrequency` takes constant
    memory, however many keys there are. The value is empty if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HeavyHitters(2).update(["de", "fr", "de", "us", "us", "de"]).compute()
    {'de': 3.0, 'us': 2.0}
    """

    about = About(
        extensive=True,
        no_interval_reason="the numbers of counted rows are not estimates; Mean of a 0/1 column has an interval",
        formula="the k keys with the largest sum(w)",
    )

    k: int = setting(default=10, low=1, high=1 << 20, kw_only=False)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{self.k}"

    def of(self, state: KeyCounts) -> Hitters:
        return {key: to_float(mass, state.unit) for key, mass in state.heaviest_keys(self.k)}

    def read(self, state: KeyCounts) -> Reading:
        return OfHeaviest(self, state)


class OfHeaviest(OwnReading):
    """Value, bounds and details of the most frequent keys; the details contain their share of the total weight."""

    def _bounds(self) -> tuple[Hitters, Hitters]:
        slip = float(8 * self.state.weight_rounding)
        low, high = ({key: mass * (1 + side * slip) for key, mass in self.value.items()} for side in (-1, 1))
        return low, high

    def _details(self) -> dict[str, float]:
        state: Any = self.state
        return {"share": to_float(sum(mass for _, mass in state.heaviest_keys(self.metric.k)), state.total)}


class Entropy(CountedKeys, tag="entropy"):
    """Entropy of a categorical column: 0 if all rows have the same key, log(n) for n equally frequent keys.

    Formula: -sum(p * log(p)) over keys, where p is the share of a key.

    Parameters
    ----------
    base : int, optional
        The base of the logarithm, such as 2 (bits) or 10. The default is the natural logarithm (nats).

    Notes
    -----
    The value is computed from exact weights, and is accurate to a few ulp even if nearly all rows have the same key.
    The definition matches scipy's `entropy`. The entropy of a sample underestimates the entropy of the distribution by
    about (keys - 1) / (2 * rows); neither the value nor `interval()` corrects this bias. The state and the cost are the
    same as for `HeavyHitters`. The value is undefined if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Entropy(base=2).update(["a", "b", "c", "c"]).compute()
    1.5
    """

    about = About(
        interval_scale="natural",
        formula="- sum over keys of p log(p), p the share of the key",
        bound="error of at most 8 ulp, because the value is rounded a few times",
    )

    base: int | None = setting(default=None, low=2, high=1 << 16)

    def of(self, state: KeyCounts) -> float:
        return state.entropy() / self._unit()

    def _unit(self) -> float:
        return 1.0 if self.base is None else float(log(float(self.base)))

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        value = reading.value
        if state.excess is not None:
            return Estimate(value, reason=WEIGHTED)
        # The influence of a row on the entropy is -log(p) minus the entropy, where p is the share of its key. Keys with
        # the same weight have the same influence, so compute it once for each distinct weight.
        counts, each = np.unique(np.array(state.masses, np.int64), return_counts=True)
        terms = [entropy_term(mass, state.total) * state.total / mass / self._unit() for mass in counts.tolist()]
        influence = np.repeat(np.array(terms) - value, each)
        return from_counts(value, np.repeat(counts, each), influence, about_of(self).interval_scale)


class UniqueShare(CountedKeys, tag="unique_share"):
    """Unique share: the share of rows whose key occurs in no other row; 1 if each row has its own key.

    Formula: (number of keys with weight 1) / sum(w), for row weights w.

    Notes
    -----
    The value is exact and rounded once. A row of weight 2 counts as two rows, which are not unique. Deequ calls this
    metric Uniqueness. For Deequ's Distinctness, divide `DistinctCount` by the number of rows. The state and the cost
    are the same as for `HeavyHitters`. The value is undefined if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.UniqueShare().update([7, 8, 8, 9]).compute()
    0.5
    """

    about = About(
        extensive=True,
        no_interval_reason="whether a key is unique depends on all other rows; Mean of a 0/1 column has an interval",
        formula="(number of keys with weight 1) / sum(w)",
    )

    def of(self, state: KeyCounts) -> float:
        return to_float(state.masses.count(state.unit) * state.unit, state.total)

    def read(self, state: KeyCounts) -> Reading:
        return OfUnique(self, state)


class OfUnique(OwnReading):
    """Value and bounds of the share of rows with a unique key."""

    def _bounds(self) -> tuple[float, float]:
        state: Any = self.state
        off = 4 * state.weight_rounding
        if not off or not state.total:
            low, high = widen_for_rounding(self.value, state)
            return low, high
        # A key is unique if its weight is 1. Weights are rounded, so a key whose weight is close to 1 may or may not be
        # unique.
        near = sum(abs(mass - state.unit) <= off * state.unit for mass in state.masses)
        return 0.0, min(to_float(near * state.unit, state.total) * (1 + 4 * float(off)), 1.0)
