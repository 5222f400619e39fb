"""Metrics of what lists expose: how much of a catalogue is among their first k, how evenly, how unlike lists are."""

from __future__ import annotations

import math
from fractions import Fraction

from ...collect.metric import Metric
from ...numerics.elementary import log
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import OwnReading, Reading
from ...statistics.listed_keys import ListedKeys

__all__ = ["CatalogueCoverage", "ExposureEntropy", "ExposureGini", "Personalisation", "TailShare"]


class ExposureMetric(Metric[ListedKeys, float]):
    """A metric of how often each item is among the first k of a list."""

    about = About(
        positional_columns=("item", "y_score"),
        best="high",
        cost="100 bytes an item that is shown, and the item once; about 0.2 us a row",
        rank_based=True,
    )

    k: int = setting(default=10, low=1, high=1 << 24, kw_only=False)
    limit: int = setting(default=1 << 20, low=1, high=1 << 28, operational=True)

    def make_state(self) -> ListedKeys:
        return ListedKeys(k=self.k, limit=self.limit)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{self.k}"

    def reason(self, state: ListedKeys) -> str | None:
        shown, known = len(state.masses), getattr(self, "n_items", None)
        if not shown:
            return "no list has an item of any weight" if int(state.rows_seen.sum()) else "no lists"
        return f"lists show {shown:,} items, n_items is {known:,}" if known and shown > known else None

    def read(self, state: ListedKeys) -> Reading:
        return OfLists(self, state)


class OfLists(OwnReading):
    """The reading of recommended lists; lists that show nothing have no value."""

    def _found(self) -> float | None:
        value: float | None = None if self._reason() else self.metric.of(self.state)
        return value


class CatalogueCoverage(ExposureMetric, tag="catalogue_coverage"):
    """Catalogue coverage: the share of all items that are among the first k of any list.

    Formula: different items among the first k / n_items.

    Parameters
    ----------
    k : int
        How many of each list count, by falling score; of equal scores the first in the ascending order of the items.
    n_items : int
        How many items there are.
    limit : int
        How many different items there may be, in all slices together: MemoryLimitError beyond, nothing was counted.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Columns `item`, `y_score`, `query`, and those of `PrecisionAtK.update`. 100 bytes an item that is shown. As RecBole's
    `ItemCoverage`. Undefined without lists, and with more than `n_items`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "c", "a", "d"], y_score=[3, 2, 1, 2, 1], query=[1, 1, 1, 2, 2])
    >>> sm.CatalogueCoverage(1, n_items=4).update(rows).compute()
    0.25
    """

    about = About(
        example={"n_items": 100},
        formula="different items among the first k / items",
        no_interval_reason=(
            "another sample of lists shows other items, which these do not tell; report it beside its number of lists"
        ),
    )

    n_items: int = setting(low=1, high=1 << 53)

    def of(self, state: ListedKeys) -> float:
        return to_float(len(state.masses), self.n_items)


class ExposureGini(ExposureMetric, tag="exposure_gini"):
    """Gini index of exposure: 0 where all items are shown equally often, close to 1 where few take it all.

    Formula: sum (2 i - n - 1) x_i / (n sum x), of x_1 <= ... <= x_n, how often an item is among the first k.

    Parameters
    ----------
    k, limit, on_invalid
        As for CatalogueCoverage.
    n_items : int, optional
        How many items there are, those that no list shows among them; by default those that are shown.

    Notes
    -----
    Exact, rounded once; state and cost as CatalogueCoverage. As RecBole's `GiniIndex` with all its items. Undefined
    without lists, and with more than `n_items`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.ExposureGini(1, n_items=2).update(rows).compute()
    0.5
    """

    about = About(best="low", formula="sum (2 i - n - 1) x_i / (n sum x), x_1 <= ... <= x_n")

    n_items: int | None = setting(default=None, low=1, high=1 << 53)

    def of(self, state: ListedKeys) -> float:
        return state.gini(self.n_items)

    def read(self, state: ListedKeys) -> Reading:
        return OfDifferences(self, state)


class OfDifferences(OfLists):
    """The same of a sum of differences of weights, each of which was rounded, over their sum."""

    def _bounds(self) -> tuple[float, float]:
        value, off = self.value, float(4 * self.state.slip)
        return (max(value - off, 0.0), min(value + off, 1.0)) if off else (value, value)


class ExposureEntropy(ExposureMetric, tag="exposure_entropy"):
    """Shannon entropy of exposure: how evenly the places of lists are spread over items.

    Formula: - sum p log p, with p the share of an item among the first k of all lists.

    Parameters
    ----------
    k, limit, on_invalid
        As for CatalogueCoverage.
    base : int, optional
        Of the logarithm: 2 for bits; by default natural, nats.

    Notes
    -----
    From exact counts; state and cost as CatalogueCoverage. RecBole's `ShannonEntropy` is this over the number of items
    shown, which has no meaning of its own; over its logarithm it would be the evenness. Undefined without lists.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.ExposureEntropy(2, base=2).update(rows).compute()
    1.5
    """

    about = About(bound="rounded a few times: within 8 ulp", formula="- sum p log p")

    base: int | None = setting(default=None, low=2, high=1 << 16)

    def of(self, state: ListedKeys) -> float:
        return state.entropy() / (1.0 if self.base is None else float(log(float(self.base))))


class TailShare(ExposureMetric, tag="tail_share"):
    """Tail share: the share of exposure that goes to items other than the most exposed ones.

    Formula: sum of x_i over all but the ceil(head n) items that are shown most / sum of x_i.

    Parameters
    ----------
    k, limit, on_invalid
        As for CatalogueCoverage.
    head : float
        The share of the items that are no tail.
    n_items : int, optional
        As for ExposureGini.

    Notes
    -----
    Exact, rounded once; state and cost as CatalogueCoverage. RecBole's `TailPercentage` counts items of a tail that the
    training log defines: that is `PrecisionAtK` of a column that says which they are. Undefined without lists, and with
    more than `n_items`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.TailShare(2, head=0.3).update(rows).compute()
    0.5
    """

    about = About(formula="exposure of all but the ceil(head n) items shown most / exposure")

    head: float = setting(default=0.2, low=0.0, high=1.0)
    n_items: int | None = setting(default=None, low=1, high=1 << 53)

    def of(self, state: ListedKeys) -> float:
        n = self.n_items or len(state.masses)
        return state.tail_share(math.ceil(Fraction(str(self.head)) * n))


class Personalisation(ExposureMetric, tag="personalisation"):
    """Personalisation: how little the first k items of two lists have in common.

    Formula: 1 - sum of x_i (x_i - 1) / (k L (L - 1)), with L lists, x_i of which show item i among their first k.

    Parameters
    ----------
    k, limit, on_invalid
        As for CatalogueCoverage.

    Notes
    -----
    The mean of 1 - overlap / k over all pairs of lists, from counts alone; where lists have k items, 1 less the mean
    cosine (recmetrics' `personalization`). A list of weight w counts as w such lists. State and cost as CatalogueCoverage.
    Undefined for weights of 1 or less in all.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.Personalisation(2).update(rows).compute()
    0.5
    """

    about = About(extensive=True, formula="1 - sum x_i (x_i - 1) / (k L (L - 1))")

    def of(self, state: ListedKeys) -> float:
        lists, unit = state.lists, state.unit
        shared = sum(max(mass * (mass - unit), 0) for mass in state.masses)
        return to_float(1 - Fraction(shared, unit * unit) / (self.k * lists * (lists - 1)))

    def reason(self, state: ListedKeys) -> str | None:
        return super().reason(state) or ("fewer than two lists" if state.lists <= 1 else None)
