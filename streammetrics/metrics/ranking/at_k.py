"""More metrics of the first k documents: how many are relevant, of those that could be, and how many are not."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading
from ...statistics.ranking import RankingSums
from .gains import RankingMetric
from .mean import Empty, mean_estimate
from .relevance import RelevanceMetric

__all__ = ["FBetaAtK", "FallOutAtK", "HitsAtK", "RelativePrecision", "SetAveragePrecision"]


class HitsAtK(RankingMetric, tag="hits_at_k"):
    """Hits at k: how many of the first k documents are relevant, a mean over queries.

    Formula: hits@k.

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain.
    relevance_level : float, optional
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 700 bytes. As ranx's `hits`; trec_eval's `num_rel_ret` is this times the queries. The share of
    queries with a hit, which others call hits@k, is `HitRate`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HitsAtK(3).update([1, 0, 1, 0], [4, 3, 2, 1], query=[7, 7, 7, 7]).compute()
    2.0
    """

    about = About(formula="mean over queries of hits@k")

    relevance_level: float | None = setting(default=None, above=0.0)

    measure = "hits"
    interval_within = (0.0, math.inf)


class RelativePrecision(RelevanceMetric, tag="relative_precision"):
    """Relative precision: the share of relevant documents among the first k, of as many as there could be.

    Formula: hits@k / min(k, R), with R all relevant documents; without k, hits / min(returned, R).

    Parameters
    ----------
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `relative_P`, and `set_relative_P` without k; also called capped
    recall. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RelativePrecision(3).update([1, 0, 1, 0, 0], [5, 4, 3, 2, 1], query=[7] * 5).compute()
    1.0
    """

    about = About(formula="mean over queries of hits@k / min(k, R)")

    measure = "relative_precision"


class FBetaAtK(RelevanceMetric, tag="fbeta_at_k"):
    """F-beta at k: the harmonic mean of precision and recall of the first k documents, a mean over queries.

    Formula: (1 + b^2) hits@k / (b^2 R + k), with R all relevant documents; without k, the returned in its place.

    Parameters
    ----------
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.
    beta : float
        How many times as much recall counts as precision; 1 for F1.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As ranx's `f1`; trec_eval's `set_F` without k (its x is beta^2). Undefined without
    queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FBetaAtK(3).update([1, 0, 1, 0, 1], [5, 4, 3, 2, 1], query=[7] * 5).compute()
    0.6666666666666666
    """

    about = About(formula="mean over queries of (1 + b^2) hits@k / (b^2 R + k)")

    beta: float = setting(default=1.0, low=0.0, high=1e6)

    measure = "fbeta"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.beta * self.beta),)


class SetAveragePrecision(RelevanceMetric, tag="set_average_precision"):
    """Average precision of a set: precision times recall of all that was returned, a mean over queries.

    Formula: hits / returned * hits / R, with R all relevant documents.

    Parameters
    ----------
    ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `set_map`; what a ranking is worth whose relevant documents are
    spread evenly. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SetAveragePrecision().update([1, 0, 1, 0], [4, 3, 2, 1], query=[7] * 4, relevant=[4] * 4).compute()
    0.25
    """

    about = About(formula="mean over queries of (hits / returned) (hits / R)")

    k: int | None = setting(default=None, choices=(None,))

    measure = "set_ap"


class MeanWithin(RankingMetric):
    """A mean over the queries in which a measure says something: those in which another one, `condition`, is 1."""

    about = About(read_cells=None)

    condition: ClassVar[str] = "hit"
    undefined = "no query has a relevant document that was returned"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return *super().terms, (self.condition,)

    @property
    def _others(self) -> float | None:
        """What the other queries count; None if they are left out, the default here."""
        what = getattr(self, "empty", "skip")
        return None if what == "skip" else float(what)

    def of(self, state: RankingSums) -> Quotient:
        of, which = self.terms
        total, inside, others = state.total(*of), state.total(*which), self._others
        if others is None:
            return Quotient(total, inside)
        queries = state.weight() + state.weight(empty=True)
        return Quotient(total + int(others) * (queries - inside), queries)

    def reason(self, state: RankingSums) -> str | None:
        nothing = self._others is None and not state.total(*self.terms[1])
        return super().reason(state) or (self.undefined if nothing else None)

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        of, which = self.terms
        return mean_estimate(self, found, state.spread_within(self._others, which, of), method)


class FallOutAtK(MeanWithin, tag="fall_out_at_k"):
    """Fall-out at k: the share of all irrelevant documents that are among the first k, a mean over queries.

    Formula: (min(k, returned) - hits@k) / irrelevant documents.

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain.
    relevance_level : float, optional
        As for PrecisionAtK.
    empty : {"skip", 0, 1}
        What a query without an irrelevant document counts: nothing, 0, or 1 (torchmetrics' default, "pos").

    Notes
    -----
    Cost as CumulativeGain, 150 bytes. As torchmetrics' `RetrievalFallOut`. Undefined without such a query.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FallOutAtK(2).update([1, 0, 0, 0, 0], [5, 4, 3, 2, 1], query=[7] * 5).compute()
    0.25
    """

    about = About(best="low", formula="mean over queries of irrelevant@k / irrelevant")

    relevance_level: float | None = setting(default=None, above=0.0)
    empty: Empty = setting(default="skip", choices=("skip", 0.0, 1.0))

    measure, condition = "fall_out", "irrelevant"
    undefined = "no query has an irrelevant document"
