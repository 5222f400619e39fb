"""Exposure metrics: how much of the catalogue the lists show, how evenly they show items, and how much they differ."""

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
    """Base class for metrics of how often each item is among the first k items of a list.

    Parameters
    ----------
    k : int
        The number of items in each list that count: those with the highest scores. Among items with equal scores, the
        one with the smallest key comes first.
    limit : int
        The maximum number of distinct items over all slices. An update that would exceed it raises MemoryLimitError,
        and none of its rows are counted.
    """

    about = About(
        positional_columns=("item", "y_score"),
        best="high",
        cost="100 bytes per item that is shown, plus the item itself; about 0.2 us per row",
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
            return "all items have weight 0" if int(state.row_counts.sum()) else "no lists"
        return f"lists show {shown:,} items, n_items is {known:,}" if known and shown > known else None

    def read(self, state: ListedKeys) -> Reading:
        return OfLists(self, state)


class OfLists(OwnReading):
    """The value and bounds of an `ExposureMetric`, which are undefined if the metric's `reason` returns a string."""

    def _raw_value(self) -> float | None:
        value: float | None = None if self._reason() else self.metric.of(self.state)
        return value


class CatalogueCoverage(ExposureMetric, tag="catalogue_coverage"):
    """Catalogue coverage: the share of all items that are among the first k of at least one list.

    Formula: (number of distinct items among the first k of any list) / n_items.

    Parameters
    ----------
    n_items : int
        The number of items in the catalogue.

    Notes
    -----
    The columns are `item`, `y_score` and `query`. The optional columns of `PrecisionAtK.update`, such as
    `sample_weight`, can also be passed. The state takes 100 bytes for each item that is shown. The definition matches
    RecBole's `ItemCoverage`. The value is undefined without lists or if the lists show more than `n_items` items.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "c", "a", "d"], y_score=[3, 2, 1, 2, 1], query=[1, 1, 1, 2, 2])
    >>> sm.CatalogueCoverage(1, n_items=4).update(rows).compute()
    0.25
    """

    about = About(
        example={"n_items": 100},
        formula="(different items among the first k of any list) / (all items)",
        no_interval_reason=(
            "other lists would show other items, about which the state contains nothing; report the value with "
            "its number of lists"
        ),
    )

    n_items: int = setting(low=1, high=1 << 53)

    def of(self, state: ListedKeys) -> float:
        return to_float(len(state.masses), self.n_items)


class ExposureGini(ExposureMetric, tag="exposure_gini"):
    """Gini index of exposure: 0 if all items are shown equally often, close to 1 if a few items get nearly all exposure.

    Formula: sum((2 * i - n - 1) * x_i) / (n * sum(x_i)), where x_i is the number of times that item i is among the
    first k of a list, and the n items are sorted so that x_1 <= ... <= x_n.

    Parameters
    ----------
    n_items : int, optional
        The number of items in the catalogue, including those that no list shows; by default, the number of items shown.

    Notes
    -----
    The value is exact up to one rounding. State and cost are the same as for `CatalogueCoverage`. If `n_items` is the
    size of the catalogue, the definition matches RecBole's `GiniIndex`. The value is undefined without lists or if the
    lists show more than `n_items` items.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.ExposureGini(1, n_items=2).update(rows).compute()
    0.5
    """

    about = About(
        best="low",
        formula="(sum of (2 i - n - 1) x_i) / (n sum of x_i), x_i the exposures of the n items in ascending order",
    )

    n_items: int | None = setting(default=None, low=1, high=1 << 53)

    def of(self, state: ListedKeys) -> float:
        return state.gini(self.n_items)

    def read(self, state: ListedKeys) -> Reading:
        return OfDifferences(self, state)


class OfDifferences(OfLists):
    """The value and bounds of the Gini index: a sum of weight differences, divided by the sum of the weights."""

    def _bounds(self) -> tuple[float, float]:
        # The relative error of the value has no bound, because rounded weights can cancel in the differences. The
        # absolute error is at most 4 times the largest relative rounding error of a weight.
        value, off = self.value, float(4 * self.state.weight_rounding)
        return (max(value - off, 0.0), min(value + off, 1.0)) if off else (value, value)


class ExposureEntropy(ExposureMetric, tag="exposure_entropy"):
    """Shannon entropy of exposure: how evenly the first k ranks of all lists are distributed over items.

    Formula: -sum(p * log(p)) over items, where p is the share of an item in the first k ranks of all lists.

    Parameters
    ----------
    base : int, optional
        The base of the logarithm: 2 gives bits. By default, the logarithm is natural and the unit is nats.

    Notes
    -----
    The value is computed from exact counts. State and cost are the same as for `CatalogueCoverage`. RecBole's
    `ShannonEntropy` divides this entropy by the number of items shown, a quotient without a standard meaning. (The
    entropy divided by the logarithm of that number is known as evenness.) The value is undefined without lists.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.ExposureEntropy(2, base=2).update(rows).compute()
    1.5
    """

    about = About(
        bound="error of at most 8 ulp, because the value is rounded a few times",
        formula="- sum over items of p log(p), p the share of the item in the exposure",
    )

    base: int | None = setting(default=None, low=2, high=1 << 16)

    def of(self, state: ListedKeys) -> float:
        return state.entropy() / (1.0 if self.base is None else float(log(float(self.base))))


class TailShare(ExposureMetric, tag="tail_share"):
    """Tail share: the share of exposure that goes to items other than the most exposed ones.

    Formula: (sum of x_i over all items except the ceil(head * n) most exposed ones) / (sum of x_i over all items),
    where x_i is the number of times that item i is among the first k, and n is the number of items.

    Parameters
    ----------
    head : float
        The share of items that form the head, that is, the most exposed items.
    n_items : int, optional
        The number of items in the catalogue, including those that no list shows; by default, the number of items shown.

    Notes
    -----
    The value is exact up to one rounding. State and cost are the same as for `CatalogueCoverage`. RecBole's
    `TailPercentage` defines the tail from the training log. To compute it, mark the tail items in a column and use
    `PrecisionAtK` with that column as `y_true`. The value is undefined without lists or if the lists show more than
    `n_items` items.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.TailShare(2, head=0.3).update(rows).compute()
    0.5
    """

    about = About(formula="(exposure of all but the ceil(head n) items shown most) / (exposure of all n items)")

    head: float = setting(default=0.2, low=0.0, high=1.0)
    n_items: int | None = setting(default=None, low=1, high=1 << 53)

    def of(self, state: ListedKeys) -> float:
        n = self.n_items or len(state.masses)
        return state.tail_share(math.ceil(Fraction(str(self.head)) * n))


class Personalisation(ExposureMetric, tag="personalisation"):
    """Personalisation: 1 minus the mean share of the first k items that two lists have in common.

    Formula: 1 - sum(x_i * (x_i - 1)) / (k * L * (L - 1)), where L is the number of lists, and x_i is the number of
    lists that show item i among their first k.

    Notes
    -----
    This is the mean of 1 - overlap / k over all pairs of lists, computed from counts. If each list has k items, it
    equals 1 minus the mean cosine similarity (recmetrics' `personalization`). A list of weight w counts as w identical
    lists. State and cost are the same as for `CatalogueCoverage`. The value is undefined if the total weight is 1 or
    less.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(item=["a", "b", "a", "c"], y_score=[2, 1, 2, 1], query=[1, 1, 2, 2])
    >>> sm.Personalisation(2).update(rows).compute()
    0.5
    """

    about = About(
        extensive=True, formula="1 - (sum of x_i (x_i - 1)) / (k L (L - 1)), where x_i of the L lists show item i"
    )

    def of(self, state: ListedKeys) -> float:
        lists, unit = state.list_weight, state.unit
        # The state stores x_i as an integer `mass` in units of 1 / `unit`. An item with x_i < 1 has no pairs of lists, so
        # it adds 0.
        shared = sum(max(mass * (mass - unit), 0) for mass in state.masses)
        return to_float(1 - Fraction(shared, unit * unit) / (self.k * lists * (lists - 1)))

    def reason(self, state: ListedKeys) -> str | None:
        return super().reason(state) or ("fewer than two lists" if state.list_weight <= 1 else None)
