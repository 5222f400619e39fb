"""The mean over queries and its standard error."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from ...collect.metric import Metric
from ...reading.about import About, about_of
from ...reading.interval import QUERIES, Estimate
from ...reading.reading import OwnReading, Quotient, Reading, read_side_by_side, widen_for_rounding
from ...statistics.covariance import MeanEstimates
from ...statistics.query_sums import QuerySums
from ..standard_errors import mean

__all__ = ["Empty", "QueryMean", "mean_estimate", "without_products"]

S = TypeVar("S", bound=QuerySums)
Empty = float | str


def _read_queries_side_by_side(metric: Any, state: Any) -> Reading | None:
    """Return one `Reading` with the values of all cells (such as slices) as arrays, or None if that is not possible."""
    found = read_side_by_side(metric, state)
    # With `bounds=None`, the bounds of a cell equal its value. If a weight was rounded, the caller computes the bounds
    # cell by cell instead.
    return None if found is None else found.having(bounds=None)


class QueryMean(Metric[S, float]):
    """Base class for metrics that average a measure over queries; the measure is computed for each query."""

    about = About(
        read_cells=_read_queries_side_by_side,
        best="high",
        bound=(
            "exact except for rounding: the values of queries are computed in float64 and summed exactly, and the "
            "result is rounded once"
        ),
    )

    undefined: ClassVar[str] = "no query has a relevant document"

    interval_within: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        """The sums over queries that this metric needs, each as (measure, k, parameter), such as ("fbeta", 10, 1.0)."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `terms`; override `terms` to return the sums that the metric reads"
        )

    @property
    def name(self) -> str:
        k = getattr(self, "k", None)
        return self.about.tag if k is None else f"{self.about.tag}@{k}"

    @property
    def _others(self) -> float | None:
        """The value of a query without a relevant document; None leaves such queries out."""
        what = getattr(self, "empty", 0.0)
        return None if what == "skip" else float(what)

    def of(self, state: S) -> Quotient:
        # `others` is the total weight of the queries without a relevant document. Each of these queries has the value
        # `each`.
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

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        return mean_estimate(self, reading, state.estimate_means(self._others, *self.terms[0]), method)


class OfQueries(OwnReading):
    """The value and bounds of a mean over queries; the bounds allow only for the rounding of weights."""

    def _bounds(self) -> tuple[float, float]:
        low, high = widen_for_rounding(self.value, self.state)
        # Rounding must not push the lower bound below 0 if the measure is never negative.
        return max(low, min(self.metric.interval_within[0], 0.0)), high


def mean_estimate(metric: QueryMean[Any], reading: Reading, spread: MeanEstimates, method: str) -> Estimate:
    """Return the value of a mean over queries with its standard error, which assumes that queries are independent.

    `spread` contains the estimated mean and variance of the values of the queries, and `method` is the name of the
    interval method.
    """
    return mean(reading.value, spread, about_of(metric).interval_scale, method, metric.interval_within, QUERIES)


def without_products(reading: Reading, parts: str, average: str) -> Estimate:
    """Return an estimate of a quotient of sums over queries, with the reason why it has no standard error.

    The standard error would need sums of products of `parts` (such as "numerator and denominator"), which no state
    contains. `average` is the value of the `average=` setting for which the metric has a standard error, such as
    "queries".
    """
    why = f'the state has no products of {parts}: average="{average}" has an interval, Sharded(..., unit=) one of this'
    return Estimate(reading.value, reason=why)
