"""Metrics of document ranks: the mean rank, the share of pairs in the right order, and the DCG of the ideal ranking."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading
from ...statistics.ranking import RankingSums
from .at_k import MeanWithin
from .gains import GainMetric
from .mean import without_products

__all__ = ["IDCG", "AverageRelevancePosition", "MeanRank", "OrderedPairAccuracy"]


class IDCG(GainMetric, tag="idcg"):
    """Ideal discounted cumulative gain: the DCG of all judged documents, sorted by grade, averaged over queries.

    Formula: sum over i <= k of g_i / log2(1 + i), where g_i is the i-th largest gain.

    Notes
    -----
    `NDCG` divides by this value for each query separately, so the mean DCG divided by the mean IDCG is not NDCG. The
    measure can exceed 1, so the state uses a wider accumulator and takes about 1.2 kB. The value is undefined without
    queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.IDCG(2).update([0, 1, 3], [3, 2, 1], query=[1] * 3).compute(), 4)
    3.6309
    """

    about = About(
        best=None,
        formula="mean over queries of the sum of g_i / log2(1 + i) over i <= k, g_i the i-th largest gain",
        cost="about 1.2 kB; 7 ns per document",
    )

    measure = "idcg"
    interval_within = (0.0, math.inf)


class MeanRank(MeanWithin, tag="mean_rank"):
    """Mean rank: the rank of the first relevant document, averaged over the queries that returned one.

    Formula: mean of the rank of the first relevant document, counted from 1.

    Parameters
    ----------
    relevance_level : float, optional
        The lowest grade of a relevant document; any grade above 0 by default.

    Notes
    -----
    The definition matches TFMA's `min_label_position` and the mean rank in link prediction (`ties="average"` gives
    PyKEEN's "realistic"). Ranks can exceed 1, so the state uses a wider accumulator and takes about 2.3 kB. Documents
    that were not returned have no rank: the value is undefined if no query returned a relevant document.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MeanRank().update([0, 1, 1, 1], [3, 2, 1, 9], query=[1, 1, 1, 2]).compute()
    1.5
    """

    about = About(
        best="low",
        formula="mean over queries of the rank of the first relevant document",
        cost="about 2.3 kB; 7 ns per document",
    )

    k: int | None = setting(default=None, choices=(None,))
    relevance_level: float | None = setting(default=None, above=0.0)

    measure = "first"
    interval_within = (1.0, math.inf)


class PooledOrWithin(MeanWithin):
    """Base class for metrics that are a quotient of two sums over documents.

    With `average="pooled"`, both sums are over the documents of all queries. With "queries", the quotient is computed
    for each query, and the value is the mean over queries.
    """

    parts_of: ClassVar[tuple[str, str]] = ("", "")
    average: str = setting(default="pooled", choices=("pooled", "queries"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        by_query = self.measure, self.condition
        return tuple((part,) for part in (by_query if self.average == "queries" else self.parts_of))

    @property
    def name(self) -> str:
        return self.about.tag if self.average == "pooled" else f"{self.about.tag}_by_query"

    def of(self, state: RankingSums) -> Quotient:
        if self.average == "queries":
            return super().of(state)
        return Quotient(*(state.total(*t) for t in self.terms))

    def estimate(self, reading: Reading, method: str) -> Estimate:
        if self.average == "queries":
            return super().estimate(reading, method)
        return without_products(reading, "numerator and denominator", "queries")


class AverageRelevancePosition(PooledOrWithin, tag="average_relevance_position"):
    """Average relevance position: the mean rank of the returned documents, weighted by their grades.

    Formula: (sum of g_i * i) / (sum of g_i) over the returned documents of all queries, where g_i is the grade of the
    document at rank i; or the mean of this quotient over queries.

    Parameters
    ----------
    average : {"pooled", "queries"}
        "pooled": one quotient for all queries together (TF-Ranking's `ARPMetric`). "queries": the mean quotient over
        the queries that returned a document with a grade above 0.

    Notes
    -----
    With `average="pooled"`, both sums can exceed 1 for a query, so the state uses wider accumulators and takes about
    2.3 kB. The value is undefined if no returned document has a grade above 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 2, 1], y_score=[3, 2, 1, 9], query=[1, 1, 1, 2])
    >>> sm.AverageRelevancePosition().update(rows).compute()
    2.0
    >>> sm.AverageRelevancePosition(average="queries").update(rows).compute()
    1.6666666666666667
    """

    about = About(
        best="low",
        formula="(sum of g_i i) / (sum of g_i), g_i the grade of the document at rank i",
        cost="about 2.3 kB; 7 ns per document",
    )

    k: int | None = setting(default=None, choices=(None,))

    measure, condition, parts_of = "mean_place", "any_gain", ("places", "cg")
    undefined = "no returned document has a grade above 0"
    interval_within = (1.0, math.inf)


class OrderedPairAccuracy(PooledOrWithin, tag="ordered_pair_accuracy"):
    """Ordered pair accuracy: the share of pairs of documents with different grades that are in the right order.

    Formula: (pairs with g_i > g_j and s_i > s_j) / (pairs with g_i > g_j) over pairs of documents i and j of the same
    query, with grades g and scores s. By default, a pair with equal scores counts as one half.

    Parameters
    ----------
    ties : {"average", "order", "document", "optimistic", "pessimistic"}
        How to count pairs with equal scores. "average": as one half. "order": by the order of the rows. "document": by
        the `document` column. "optimistic": as right. "pessimistic": as wrong (as in TF-Ranking).
    average : {"pooled", "queries"}
        "pooled": one share for the pairs of all queries together (TF-Ranking's `OPAMetric`). "queries": the mean
        share over the queries that have at least one pair to count.
    unreturned : {"ignored", "below", "wrong"}
        How to count pairs with a document that was judged but not returned. "ignored": they do not count (trec_eval's
        `prefs_simp_ret`). "below": the document ranks below all that were returned (`prefs_simp_imp`). "wrong": in
        addition, pairs of two documents that were not returned count as wrong (`prefs_simp`).

    Notes
    -----
    With two grades, the value is the AUC within queries (`GroupAUC` with `group_weight="pairs"`). `explain()` gives the
    number of pairs if `average="pooled"`. The value is undefined if there is no pair to count.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.OrderedPairAccuracy().update([2, 0, 1, 0], [4, 3, 2, 2], query=[1] * 4).compute()
    0.7
    """

    about = About(
        formula="(pairs in the right order + half the pairs with equal scores) / (pairs with different grades)",
        cost="about 2.3 kB; n log n steps for n documents of a query",
    )

    k: int | None = setting(default=None, choices=(None,))

    unreturned: str = setting(default="ignored", choices=("ignored", "below", "wrong"))

    measure, condition, parts_of = "opa", "any_pair", ("right_pairs", "pairs")
    undefined = "no query has two documents of different grade"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        which = ("ignored", "below", "wrong").index(self.unreturned)
        return tuple((*t, None, float(which)) for t in super().terms) if which else super().terms

    def read(self, state: RankingSums) -> Reading:
        found = super().read(state)
        return found if self.average == "queries" else found.having(details=partial(self._details, state))

    def _details(self, state: RankingSums) -> dict[str, Any]:
        right, pairs = (to_float(state.total(*t)) for t in self.terms)
        return {"pairs": pairs, "right_pairs": right}
