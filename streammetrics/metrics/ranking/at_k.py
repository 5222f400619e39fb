"""Less common metrics of the first k documents: the number of hits, F-beta, fall-out and others."""

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
    """Hits at k: the number of relevant documents among the first k, averaged over queries.

    Formula: hits@k, the number of relevant documents among the first k.

    Parameters
    ----------
    relevance_level : float, optional
        The lowest grade of a relevant document; any grade above 0 by default.

    Notes
    -----
    The number of hits can exceed 1, so the state uses a wider accumulator (about 1.2 kB). The definition matches ranx's
    `hits`. trec_eval's `num_rel_ret` is the sum over queries, that is, this mean times the number of queries. The share
    of queries with at least one hit, which some libraries also call hits@k, is `HitRate`. The value is undefined
    without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HitsAtK(3).update([1, 0, 1, 0], [4, 3, 2, 1], query=[7, 7, 7, 7]).compute()
    2.0
    """

    about = About(formula="mean over queries of hits@k", cost="about 1.2 kB; 7 ns per document")

    relevance_level: float | None = setting(default=None, above=0.0)

    measure = "hits"
    interval_within = (0.0, math.inf)


class RelativePrecision(RelevanceMetric, tag="relative_precision"):
    """Relative precision: hits among the first k documents divided by the most hits possible, averaged over queries.

    Formula: hits@k / min(k, R), where R is the number of all relevant documents of the query; without k, hits /
    min(returned, R), where returned is the number of returned documents.

    Notes
    -----
    The definition matches trec_eval's `relative_P` or, without k, its `set_relative_P`. The measure is also called
    capped recall. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RelativePrecision(3).update([1, 0, 1, 0, 0], [5, 4, 3, 2, 1], query=[7] * 5).compute()
    1.0
    """

    about = About(formula="mean over queries of hits@k / min(k, R)")

    measure = "relative_precision"


class FBetaAtK(RelevanceMetric, tag="fbeta_at_k"):
    """F-beta at k: the weighted harmonic mean of precision and recall of the first k documents, averaged over queries.

    Formula: (1 + b^2) * hits@k / (b^2 * R + k), where b is beta and R is the number of all relevant documents of the
    query. Without k, the number of returned documents replaces k.

    Parameters
    ----------
    beta : float
        The weight of recall relative to precision; 1 gives F1.

    Notes
    -----
    The definition matches ranx's `f1` or, without k, trec_eval's `set_F` (whose parameter x is beta^2). The value is
    undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FBetaAtK(3).update([1, 0, 1, 0, 1], [5, 4, 3, 2, 1], query=[7] * 5).compute()
    0.6666666666666666
    """

    about = About(formula="mean over queries of (1 + beta^2) hits@k / (beta^2 R + k)")

    beta: float = setting(default=1.0, low=0.0, high=1e6)

    measure = "fbeta"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.beta * self.beta),)


class SetAveragePrecision(RelevanceMetric, tag="set_average_precision"):
    """Set average precision: precision times recall of all returned documents, averaged over queries.

    Formula: (hits / returned) * (hits / R), where hits is the number of relevant documents among the returned ones, and
    R is the number of all relevant documents of the query.

    Notes
    -----
    The definition matches trec_eval's `set_map`. The order of the documents does not matter. The value is close to
    the average precision of a ranking in which the relevant documents are spread evenly. It is undefined without
    queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SetAveragePrecision().update([1, 0, 1, 0], [4, 3, 2, 1], query=[7] * 4, relevant=[4] * 4).compute()
    0.25
    """

    about = About(
        formula="mean over queries of (hits / n) (hits / R), for hits relevant documents among the n returned ones"
    )

    k: int | None = setting(default=None, choices=(None,))

    measure = "set_ap"


class MeanWithin(RankingMetric):
    """Base class for metrics that average a measure over the queries that meet a condition, such as queries with a hit.

    `condition` is the name of a measure that is 1 for these queries and 0 for all others.
    """

    about = About(read_cells=None)

    condition: ClassVar[str] = "hit"
    undefined = "no query has a relevant document that was returned"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return *super().terms, (self.condition,)

    @property
    def _others(self) -> float | None:
        """The value of the queries that do not meet the condition; None, the default, leaves them out."""
        what = getattr(self, "empty", "skip")
        return None if what == "skip" else float(what)

    def of(self, state: RankingSums) -> Quotient:
        of, which = self.terms
        total, inside, others = state.total(*of), state.total(*which), self._others
        if others is None:
            return Quotient(total, inside)
        # The state adds 0 to `total` for a query that does not meet the condition. Replace this 0 with the value `empty`
        # (0 or 1).
        queries = state.weight() + state.weight(empty=True)
        return Quotient(total + int(others) * (queries - inside), queries)

    def reason(self, state: RankingSums) -> str | None:
        nothing = self._others is None and not state.total(*self.terms[1])
        return super().reason(state) or (self.undefined if nothing else None)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        of, which = self.terms
        return mean_estimate(self, reading, state.estimate_means_within(self._others, which, of), method)


class FallOutAtK(MeanWithin, tag="fall_out_at_k"):
    """Fall-out at k: the share of irrelevant documents that are among the first k, averaged over queries.

    Formula: (min(k, returned) - hits@k) / irrelevant, where hits@k is the number of relevant documents among the first
    k. "returned" and "irrelevant" are the numbers of returned and irrelevant documents of the query.

    Parameters
    ----------
    relevance_level : float, optional
        The lowest grade of a relevant document; any grade above 0 by default.
    empty : {"skip", 0, 1}
        The value of a query without an irrelevant document: 0 or 1; 1 is the default of torchmetrics, which calls it
        "pos". "skip" leaves the query out.

    Notes
    -----
    The definition matches torchmetrics' `RetrievalFallOut`. The value is undefined if all queries are left out.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FallOutAtK(2).update([1, 0, 0, 0, 0], [5, 4, 3, 2, 1], query=[7] * 5).compute()
    0.25
    """

    about = About(
        best="low", formula="mean over queries of (irrelevant documents among the first k) / (all irrelevant documents)"
    )

    relevance_level: float | None = setting(default=None, above=0.0)
    empty: Empty = setting(default="skip", choices=("skip", 0.0, 1.0))

    measure, condition = "fall_out", "irrelevant"
    undefined = "no query has an irrelevant document"
