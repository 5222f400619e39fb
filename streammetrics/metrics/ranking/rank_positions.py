"""Metrics of where relevant documents stand: places, pairs in the right order, and the best that there could be."""

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
    """Ideal discounted cumulative gain: that of all judged documents in the order of their grades, a mean over queries.

    Formula: sum over i <= k of g_i / log2(1 + i), the greatest gains first.

    Parameters
    ----------
    k, gain, ties, missing, on_invalid
        As for CumulativeGain.

    Notes
    -----
    Cost as CumulativeGain, 700 bytes. What `NDCG` divides by, query by query; DCG over IDCG of means is not NDCG.
    Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.IDCG(2).update([0, 1, 3], [3, 2, 1], query=[1] * 3).compute(), 4)
    3.6309
    """

    about = About(best=None, formula="mean over queries of sum of g_i / log2(1 + i), i <= k, greatest first")

    measure = "idcg"
    interval_within = (0.0, math.inf)


class MeanRank(MeanWithin, tag="mean_rank"):
    """Mean rank: the place of the first relevant document, a mean over the queries that returned one.

    Formula: mean of the place of the first relevant document, from 1.

    Parameters
    ----------
    ties, missing, on_invalid
        As for CumulativeGain.
    relevance_level : float, optional
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 750 bytes. As TFMA's `min_label_position`, and the mean rank of link prediction (ties
    "average" are PyKEEN's "realistic"). Undefined where no relevant document was returned; those not returned have no
    place.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MeanRank().update([0, 1, 1, 1], [3, 2, 1, 9], query=[1, 1, 1, 2]).compute()
    1.5
    """

    about = About(best="low", formula="mean over queries of the place of the first relevant")

    k: int | None = setting(default=None, choices=(None,))
    relevance_level: float | None = setting(default=None, above=0.0)

    measure = "first"
    interval_within = (1.0, math.inf)


class PooledOrWithin(MeanWithin):
    """A quotient of sums over a query: a mean over queries, or the quotient of the sums over all of them."""

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

    def estimate(self, found: Reading, method: str) -> Estimate:
        if self.average == "queries":
            return super().estimate(found, method)
        return without_products(found, "numerator and denominator", "queries")


class AverageRelevancePosition(PooledOrWithin, tag="average_relevance_position"):
    """Average relevance position: the place of a document, weighted by its grade.

    Formula: sum of g_i i / sum of g_i over the returned documents of all queries; or of each, then a mean.

    Parameters
    ----------
    ties, missing, on_invalid
        As for CumulativeGain.
    average : {"pooled", "queries"}
        Over all queries together (TF-Ranking's `ARPMetric`), or a mean over those with a grade above 0.

    Notes
    -----
    Cost as CumulativeGain, 1,300 bytes. Undefined where no returned document has a grade above 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 2, 1], y_score=[3, 2, 1, 9], query=[1, 1, 1, 2])
    >>> sm.AverageRelevancePosition().update(rows).compute()
    2.0
    >>> sm.AverageRelevancePosition(average="queries").update(rows).compute()
    1.6666666666666667
    """

    about = About(best="low", formula="sum of g_i i / sum of g_i")

    k: int | None = setting(default=None, choices=(None,))

    measure, condition, parts_of = "mean_place", "any_gain", ("places", "cg")
    undefined = "no returned document has a grade above 0"
    interval_within = (1.0, math.inf)


class OrderedPairAccuracy(PooledOrWithin, tag="ordered_pair_accuracy"):
    """Ordered pair accuracy: the share of pairs of different grade that are in the right order.

    Formula: pairs of a query with g_i > g_j and s_i > s_j, over those with g_i > g_j; a tie counts one half.

    Parameters
    ----------
    ties, missing, on_invalid
        As for CumulativeGain; "pessimistic" counts a tie as wrong (TF-Ranking).
    average : {"pooled", "queries"}
        All pairs of all queries together (TF-Ranking's `OPAMetric`), or a mean over queries with such a pair.
    unreturned : {"ignored", "below", "wrong"}
        Pairs with a document that was judged, not returned: they do not count (trec_eval's `prefs_simp_ret`); it stands
        below all that were returned (`prefs_simp_imp`); and two of them are in the wrong order (`prefs_simp`).

    Notes
    -----
    Cost as CumulativeGain, 1,300 bytes; n log n steps a query. Of two grades, the AUC inside queries (`GroupAUC` with
    `group_weight="pairs"`). `explain()` says how many pairs there are. Undefined without a pair.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.OrderedPairAccuracy().update([2, 0, 1, 0], [4, 3, 2, 2], query=[1] * 4).compute()
    0.7
    """

    about = About(formula="pairs in the right order / pairs of different grade")

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
