"""A mean over queries, and its standard error."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from ...collect.interval import QUERIES, Estimate
from ...collect.metric import Metric
from ...numerics.exact import to_float
from ...statistics.query_sums import QuerySums
from ..chance import mean

__all__ = ["Empty", "QueryMean"]

S = TypeVar("S", bound=QuerySums)
Empty = float | str


class QueryMean(Metric[S, float]):
    """A mean over queries of a measure of each."""

    stacks = True
    undefined: ClassVar[str] = "no query has a relevant document"

    best: ClassVar[str | None] = "high"
    bound = "exact: the value of each query in float64, summed exactly, rounded once"

    def _terms(self) -> tuple[tuple[Any, ...], ...]:
        """The sums this metric reads: each a measure, its cut-off, its parameter."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        k = getattr(self, "k", None)
        return self.tag if k is None else f"{self.tag}@{k}"

    def of(self, state: S) -> float:
        empty = state.weight(empty=True)
        total, queries = state.total(*self._terms()[0]), state.weight() + empty
        what = getattr(self, "empty", 0.0)
        if what == "skip":
            return to_float(total, queries - empty)
        return to_float(total + (empty if what == 1.0 else 0), queries)

    interval_within: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def estimate_of(self, state: S, method: str) -> Estimate:
        return self._estimated(state, self.of(state), method)

    def estimate_of_stacked(self, state: S) -> Estimate | None:
        if not (self.stacks and state.stacks):
            return None
        side = state.stacked()
        return self._estimated(side, self.of_stacked(side), self.methods[0])

    def _estimated(self, state: S, value: Any, method: str) -> Estimate:
        what = getattr(self, "empty", 0.0)
        spread = state.spread_of(None if what == "skip" else float(what), *self._terms()[0])
        return mean(value, spread, self.interval_scale, method, self.interval_within, QUERIES)

    def bounds_of(self, state: S) -> tuple[float, float]:
        low, high = super().bounds_of(state)
        return max(low, min(self.interval_within[0], 0.0)), high

    @property
    def certain(self) -> bool:
        return True

    def reason_of(self, state: S) -> str | None:
        if not state.queries.any():
            return "no queries"
        if not state.weight() and getattr(self, "empty", 0.0) == "skip":
            return self.undefined
        return None if state.weight() + state.weight(empty=True) else "the weights are all zero"
