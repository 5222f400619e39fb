"""Metrics of rankings with relevant and irrelevant documents: precision, recall, hit rate, reciprocal rank and others.

All are computed from the same `RankingSums` state as the gain metrics.
"""

from __future__ import annotations

from typing import Any

from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading
from ...statistics.ranking import RankingSums
from .gains import RankingMetric
from .mean import Empty, without_products

__all__ = [
    "HitRate",
    "MeanAveragePrecision",
    "MeanReciprocalRank",
    "PrecisionAtK",
    "RPrecision",
    "RankBiasedPrecision",
    "RecallAtK",
]


class RelevanceMetric(RankingMetric):
    """Base class for metrics that treat each document as either relevant or irrelevant.

    Parameters
    ----------
    relevance_level : float, optional
        The lowest grade of a relevant document; any grade above 0 by default.
    empty : {0, "skip", 1}
        The value of a query without a relevant document: 0 (as in trec_eval, Spark and torchmetrics) or 1. "skip" leaves
        the query out.
    """

    relevance_level: float | None = setting(default=None, above=0.0)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))


class PrecisionAtK(RelevanceMetric, tag="precision_at_k"):
    """Precision at k: the share of relevant documents among the first k, averaged over queries.

    Formula: hits@k / k, even if fewer than k documents were returned; without k, hits divided by the number of returned
    documents.

    Notes
    -----
    The definition matches trec_eval's `P` and Spark's `precisionAt`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PrecisionAtK(2).update([1, 0, 1, 0], [4, 3, 2, 1], query=[7, 7, 7, 7]).compute()
    0.5
    """

    about = About(formula="mean over queries of hits@k / k")

    measure = "precision"


class RecallAtK(RelevanceMetric, tag="recall_at_k"):
    """Recall at k: the share of all relevant documents that are among the first k, averaged over queries.

    Formula: hits@k / R, where R is the total number of relevant documents of the query: its relevant rows, whether or
    not they were returned, or the number in the `relevant` column.

    Notes
    -----
    Recall needs all relevant documents, including documents that were not returned. To compute it from ranked lists of
    documents, see `ranked_lists`. The definition matches trec_eval's `recall`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RecallAtK(2).update([1, 0, 1, 0], [4, 3, 2, 1], query=[7] * 4, relevant=[4] * 4).compute()
    0.25
    """

    about = About(formula="mean over queries of hits@k / R")

    measure = "recall"


class RPrecision(RelevanceMetric, tag="r_precision"):
    """R-precision: precision among the first R documents of a query that has R relevant documents, averaged over queries.

    Formula: hits@R / R, where R is the number of all relevant documents of the query. With a multiple m, the cut-off is
    m * R instead of R, computed as floor(m * R + 0.9).

    Parameters
    ----------
    multiple : float
        The cut-off as a multiple of R. Values below 1 emphasize the top of the ranking; values above 1 emphasize
        recall.

    Notes
    -----
    The definition matches trec_eval's `Rprec` and `Rprec_mult`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RPrecision().update([1, 0, 1, 0], [4, 3, 2, 1], query=[7] * 4).compute()
    0.5
    """

    about = About(formula="mean over queries of hits@R / R")

    k: int | None = setting(default=None, choices=(None,))

    multiple: float = setting(default=1.0, above=0.0, high=1000.0)

    measure = "r_precision"

    @property
    def name(self) -> str:
        return self.about.tag if self.multiple == 1 else f"{self.about.tag}@{self.multiple:g}r"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return super().terms if self.multiple == 1 else (("r_precision_at", None, self.multiple),)


class HitRate(RelevanceMetric, tag="hit_rate"):
    """Hit rate at k: the share of queries or users with a relevant document among the first k.

    Formula: the share of queries with hits@k > 0; with `average="pooled"`, (sum of hits@k) / (sum of R), where R is the
    number of all relevant documents of a query. This quotient is a recall over all users.

    Parameters
    ----------
    average : {"users", "pooled"}
        "users": the mean over users (as in RecBole, ranx, torchmetrics and trec_eval's `success`). "pooled": the hits of
        all users divided by all their relevant documents. The two are equal if each user has one relevant document.

    Notes
    -----
    An update takes about 7 ns per document, as for `CumulativeGain`, and the state takes 120 bytes, or 1,200 bytes if
    pooled. The value is undefined without queries or, if pooled, without relevant documents.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 1, 0, 0, 1], y_score=[3, 2, 1, 3, 2, 1], query=[1, 1, 1, 2, 2, 2])
    >>> sm.HitRate(2).update(rows).compute()
    0.5
    >>> sm.HitRate(2, average="pooled").update(rows).compute()
    0.3333333333333333
    """

    about = About(
        interval_methods=("wilson", "delta"), interval_scale="logit", formula="mean over queries of 1[hits@k > 0]"
    )

    average: str = setting(default="users", choices=("users", "pooled"))

    measure = "hit"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return super().terms if self.average == "users" else (("hits", self.k), ("relevant",))

    def of(self, state: RankingSums) -> Quotient:
        if self.average == "users":
            return super().of(state)
        hits, relevant = self.terms
        return Quotient(state.total(*hits), state.total(*relevant))

    def reason(self, state: RankingSums) -> str | None:
        none = self.average == "pooled" and not state.total("relevant")
        return super().reason(state) or ("no relevant documents" if none else None)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        if self.average == "users":
            return super().estimate(reading, method)
        return without_products(reading, "hits and relevant documents", "users")


class MeanReciprocalRank(RelevanceMetric, tag="mrr"):
    """Mean reciprocal rank: 1 / rank of the first relevant document, or 0 beyond rank k, averaged over queries.

    Formula: mean over queries of 1 / (rank of the first relevant document), or 0 if none is among the first k.

    Notes
    -----
    The definition matches trec_eval's `recip_rank`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MeanReciprocalRank().update([0, 1, 1, 0, 0, 1], [3, 2, 1, 1, 3, 9], query=[1, 1, 1, 2, 2, 2]).compute()
    0.75
    """

    about = About(formula="mean over queries of 1 / (rank of the first relevant document), or 0 beyond rank k")

    measure = "mrr"


class MeanAveragePrecision(RelevanceMetric, tag="map"):
    """Mean average precision: the mean precision at ranks of relevant documents up to rank k, averaged over queries.

    Formula: (1 / D) * (sum of hits@i / i over ranks i <= k of relevant documents), where D is min(R, k), R, or hits@k,
    and R is the number of all relevant documents of the query.

    Parameters
    ----------
    denominator : {"min", "relevant", "hits"}
        The denominator D. "min": min(R, k) (as in Spark's `meanAveragePrecisionAt`, RecBole and Kaggle). "relevant": R (as
        in trec_eval and ranx). "hits": the hits among the first k (as in torchmetrics). Without k, "min" and
        "relevant" are equal.

    Notes
    -----
    The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 1, 0, 1], y_score=[5, 4, 3, 2, 1], query=[1] * 5)
    >>> round(sm.MeanAveragePrecision(5).update(rows).compute(), 4)
    0.7556
    """

    about = About(
        formula="mean over queries of (1 / min(R, k)) sum of hits@i / i over ranks i <= k of relevant documents"
    )

    denominator: str = setting(default="min", choices=("min", "relevant", "hits"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((f"ap_{self.denominator}", self.k),)


class RankBiasedPrecision(RelevanceMetric, tag="rbp"):
    """Rank-biased precision: the precision for a reader who goes on to the next document with probability p.

    Formula: (1 - p) * (sum over i <= k of rel_i * p^(i - 1)), averaged over queries, where rel_i is 1 if the document
    at rank i is relevant, and 0 otherwise.

    Parameters
    ----------
    p : float
        The persistence of the reader, in (0, 1): the probability of going on to the next document.

    Notes
    -----
    For binary judgments and p = 0.9, the definition matches trec_eval's `rbp`. The value is undefined without
    queries. Source: Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness" (2008).

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RankBiasedPrecision(0.5).update([1, 0, 1], [3, 2, 1], query=[1, 1, 1]).compute()
    0.625
    """

    about = About(formula="mean over queries of (1 - p) (sum over ranks i <= k of relevant documents of p^(i - 1))")

    k: int | None = setting(default=None, low=1, high=float(1 << 24))
    p: float = setting(default=0.8, above=0.0, high=0.9999999999999999, kw_only=False)

    measure = "rbp"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.p),)
