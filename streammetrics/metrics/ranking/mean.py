"""A mean over queries, and its standard error."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from ...collect.metric import Metric
from ...reading.about import About, about_of
from ...reading.interval import QUERIES, Estimate
from ...reading.reading import OwnReading, Quotient, Reading, read_side_by_side, widened
from ...statistics.covariance import Spread
from ...statistics.query_sums import QuerySums
from ..standard_errors import mean

__all__ = ["Empty", "QueryMean", "mean_estimate", "without_products"]

S = TypeVar("S", bound=QuerySums)
Empty = float | str


def _read_queries_side_by_side(metric: Any, state: Any) -> Reading | None:
    """Return the reading of all cells as arrays."""
    found = read_side_by_side(metric, state)
    # Without bounds of its own, the bounds are the values; a cell with rounded weights is read alone.
    return None if found is None else found.having(bounds=None)


class QueryMean(Metric[S, float]):
    """A mean over queries of a measure of each."""

    about = About(
        read_cells=_read_queries_side_by_side,
        best="high",
        bound="exact: the value of each query in float64, summed exactly, rounded once",
    )

    undefined: ClassVar[str] = "no query has a relevant document"

    interval_within: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        """The sums that this metric reads: each a measure, its cut-off, its parameter."""
        raise NotImplementedError(f"{type(self).__name__} does not say which sums it reads")

    @property
    def name(self) -> str:
        k = getattr(self, "k", None)
        return self.about.tag if k is None else f"{self.about.tag}@{k}"

    @property
    def _others(self) -> float | None:
        """What a query without a relevant document counts; None if it is left out."""
        what = getattr(self, "empty", 0.0)
        return None if what == "skip" else float(what)

    def of(self, state: S) -> Quotient:
        total, queries, others = state.total(*self.terms[0]), state.weight(), state.weight(empty=True)
        each = self._others
        if each is None:
            return Quotient(total, queries)
        return Quotient(total + others if each else total, queries + others)

    def reason(self, state: S) -> str | None:
        if not state.queries.any():
            return "no queries"
        if not state.weight() and getattr(self, "empty", 0.0) == "skip":
            return self.undefined
        return None if state.weight() + state.weight(empty=True) else "the weights are all zero"

    def read(self, state: S) -> Reading:
        return OfQueries(self, state)

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        return mean_estimate(self, found, state.spread_of(self._others, *self.terms[0]), method)


class OfQueries(OwnReading):
    """The reading of a mean over queries: only rounded weights widen the bounds."""

    def _bounds(self) -> tuple[float, float]:
        low, high = widened(self.value, self.state)
        return max(low, min(self.metric.interval_within[0], 0.0)), high  # 0 ends what is never negative


def mean_estimate(metric: QueryMean[Any], found: Reading, spread: Spread, method: str) -> Estimate:
    """Return the value with its standard error, that of a mean over independent queries."""
    return mean(found.value, spread, about_of(metric).interval_scale, method, metric.interval_within, QUERIES)


def without_products(found: Reading, parts: str, average: str) -> Estimate:
    """Return the value of a quotient of sums over all queries, whose parts no state has products of."""
    why = f'the state has no products of {parts}: average="{average}" has an interval, Sharded(..., unit=) one of this'
    return Estimate(found.value, reason=why)
