"""One column of keys, such as campaigns or countries: the most frequent, their entropy, how many are unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...collect.metric import Metric, nothing_counted
from ...numerics.elementary import log
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import OwnReading, Reading, widened
from ...statistics.key_counts import KeyCounts, surprise
from ..standard_errors import WEIGHTED, from_counts

__all__ = ["Entropy", "HeavyHitters", "UniqueShare"]

Hitters = dict[Any, float]


class CountedKeys(Metric[KeyCounts, Any]):
    """A metric that reads the weight of every key."""

    about = About(cost="40 bytes a key, and the key once; about 30 ns a row")

    limit: int = setting(default=1 << 20, low=1, high=1 << 28, operational=True)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    def make_state(self) -> KeyCounts:
        return KeyCounts(limit=self.limit, missing=self.missing, missing_values=self.missing_values)

    def reason(self, state: KeyCounts) -> str | None:
        return nothing_counted(state)


class HeavyHitters(CountedKeys, tag="heavy_hitters"):
    """Most frequent keys, and what the rows of each weigh; the first of them is the mode.

    Formula: the k keys of largest sum w, of equal ones the first in ascending order.

    Parameters
    ----------
    k : int
        How many.
    limit : int
        How many different keys there may be, in all slices together: MemoryLimitError beyond, and nothing was counted.
    missing, missing_values
        Whether a row without a key raises, or is left out and counted; keys that stand for none, such as 0.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    The value is a dict of weights by key, the largest first: exact, as every key up to the limit is counted. (Sketches of
    so many candidates, as space-saving, depend on the order of rows.) Of a key that is known by name `KeyFrequency` needs
    constant memory, whatever the number of keys. 40 bytes a key, and the key once; about 30 ns a row. Empty without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HeavyHitters(2).update(["de", "fr", "de", "us", "us", "de"]).compute()
    {'de': 3.0, 'us': 2.0}
    """

    about = About(
        extensive=True,
        no_interval_reason="counts of these rows are no estimate; Mean of a 0/1 column has an interval",
        formula="the k keys of largest sum w",
    )

    k: int = setting(default=10, low=1, high=1 << 20, kw_only=False)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{self.k}"

    def of(self, state: KeyCounts) -> Hitters:
        return {key: to_float(mass, state.unit) for key, mass in state.heaviest(self.k)}

    def read(self, state: KeyCounts) -> Reading:
        return OfHeaviest(self, state)


class OfHeaviest(OwnReading):
    """The reading of the most frequent keys, whose details have their share of all rows."""

    def _bounds(self) -> tuple[Hitters, Hitters]:
        slip = float(8 * self.state.slip)
        low, high = ({key: mass * (1 + side * slip) for key, mass in self.value.items()} for side in (-1, 1))
        return low, high

    def _details(self) -> dict[str, float]:
        state: Any = self.state
        return {"share": to_float(sum(mass for _, mass in state.heaviest(self.metric.k)), state.total)}


class Entropy(CountedKeys, tag="entropy"):
    """Entropy of a categorical column: 0 where all rows have one key, log(keys) where all are equally frequent.

    Formula: - sum p log p, with p the share of each key.

    Parameters
    ----------
    base : int, optional
        Of the logarithm: 2 for bits, 10; by default natural, nats.
    limit, missing, missing_values, on_invalid
        As for HeavyHitters.

    Notes
    -----
    From exact weights, within a few ulp, where one key has nearly all rows, too. Definition as scipy's `entropy`. The
    estimate from few rows is low by (keys - 1) / (2 rows), which neither the value nor `interval()` corrects. State and
    cost as HeavyHitters. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Entropy(base=2).update(["a", "b", "c", "c"]).compute()
    1.5
    """

    about = About(interval_scale="natural", formula="- sum p log p", bound="rounded a few times: within 8 ulp")

    base: int | None = setting(default=None, low=2, high=1 << 16)

    def of(self, state: KeyCounts) -> float:
        return state.entropy() / self._unit()

    def _unit(self) -> float:
        return 1.0 if self.base is None else float(log(float(self.base)))

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        value = found.value
        if state.excess is not None:
            return Estimate(value, reason=WEIGHTED)
        counts, each = np.unique(np.array(state.masses, np.int64), return_counts=True)
        terms = [surprise(mass, state.total) * state.total / mass / self._unit() for mass in counts.tolist()]
        influence = np.repeat(np.array(terms) - value, each)
        return from_counts(value, np.repeat(counts, each), influence, about_of(self).interval_scale)


class UniqueShare(CountedKeys, tag="unique_share"):
    """Share of rows whose key no other row has: 1 for a column that identifies rows.

    Formula: keys of weight 1 / sum w.

    Parameters
    ----------
    limit, missing, missing_values, on_invalid
        As for HeavyHitters.

    Notes
    -----
    Exact, rounded once; a row of weight 2 counts as two, which are not unique. Deequ's Uniqueness; its Distinctness is
    `DistinctCount` over rows. State and cost as HeavyHitters. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.UniqueShare().update([7, 8, 8, 9]).compute()
    0.5
    """

    about = About(
        extensive=True,
        no_interval_reason="which rows are unique depends on all others; Mean of a 0/1 column has an interval",
        formula="keys of weight 1 / sum w",
    )

    def of(self, state: KeyCounts) -> float:
        return to_float(state.masses.count(state.unit) * state.unit, state.total)

    def read(self, state: KeyCounts) -> Reading:
        return OfUnique(self, state)


class OfUnique(OwnReading):
    """The reading of a share of unique keys."""

    def _bounds(self) -> tuple[float, float]:
        state: Any = self.state
        off = 4 * state.slip
        if not off or not state.total:
            low, high = widened(self.value, state)
            return low, high
        # Keys whose weight was rounded to about 1 may have weighed 1, or not.
        near = sum(abs(mass - state.unit) <= off * state.unit for mass in state.masses)
        return 0.0, min(to_float(near * state.unit, state.total) * (1 + 4 * float(off)), 1.0)
