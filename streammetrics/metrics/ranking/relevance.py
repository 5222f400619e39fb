"""Metrics of rankings of documents that are relevant or not: precision and recall of the first k, hits, first places.

All read the `RankingSums` that the metrics of gains read (module `ranking`).
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
    """A metric of documents that are relevant or not."""

    relevance_level: float | None = setting(default=None, above=0.0)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))


class PrecisionAtK(RelevanceMetric, tag="precision_at_k"):
    """Precision at k: the share of relevant documents among the first k, a mean over queries.

    Formula: hits@k / k, also where fewer than k were returned; without k, hits / returned.

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain.
    relevance_level : float, optional
        The lowest grade that is relevant; by default any above 0.
    empty : {0, "skip", 1}
        What a query without a relevant document counts: 0 (trec_eval, Spark, torchmetrics), nothing, or 1.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `P` and Spark's `precisionAt`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PrecisionAtK(2).update([1, 0, 1, 0], [4, 3, 2, 1], query=[7, 7, 7, 7]).compute()
    0.5
    """

    about = About(formula="mean over queries of hits@k / k")

    measure = "precision"


class RecallAtK(RelevanceMetric, tag="recall_at_k"):
    """Recall at k: the share of all relevant documents that are among the first k, a mean over queries.

    Formula: hits@k / R, with R all relevant documents: those among the rows, returned or not, or `relevant`.

    Parameters
    ----------
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `recall`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RecallAtK(2).update([1, 0, 1, 0], [4, 3, 2, 1], query=[7] * 4, relevant=[4] * 4).compute()
    0.25
    """

    about = About(formula="mean over queries of hits@k / R")

    measure = "recall"


class RPrecision(RelevanceMetric, tag="r_precision"):
    """R-precision: the share of relevant documents among the first R, a mean over queries.

    Formula: hits@R / R, with R all relevant documents of the query; at a multiple m, of m R, down from m R + 0.9.

    Parameters
    ----------
    multiple : float
        Of R: less than 1 looks at the top, more at recall.
    ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `Rprec`, and `Rprec_mult`. Undefined without queries.

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

    Formula: mean over queries of 1[hits@k > 0]; `average="pooled"`: sum of hits@k / sum of R, a recall over all users.

    Parameters
    ----------
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.
    average : {"users", "pooled"}
        The mean over users (RecBole, ranx, torchmetrics, trec_eval's `success`), or hits over relevant documents of all
        users together. They agree where every user has one relevant document.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes; 1,200 if pooled. Undefined without queries; pooled, without relevant documents.

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

    def estimate(self, found: Reading, method: str) -> Estimate:
        if self.average == "users":
            return super().estimate(found, method)
        return without_products(found, "hits and relevant documents", "users")


class MeanReciprocalRank(RelevanceMetric, tag="mrr"):
    """Mean reciprocal rank: one over the place of the first relevant document, 0 if none is among the first k.

    Formula: mean over queries of 1 / (place of the first relevant document).

    Parameters
    ----------
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `recip_rank`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MeanReciprocalRank().update([0, 1, 1, 0, 0, 1], [3, 2, 1, 1, 3, 9], query=[1, 1, 1, 2, 2, 2]).compute()
    0.75
    """

    about = About(formula="mean over queries of 1 / place of the first relevant")

    measure = "mrr"


class MeanAveragePrecision(RelevanceMetric, tag="map"):
    """Mean average precision: the precision at each relevant document of the first k, summed, a mean over queries.

    Formula: (1/D) sum of hits@i / i over relevant places i <= k; D is min(R, k), R, or hits@k; R all relevant documents.

    Parameters
    ----------
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.
    denominator : {"min", "relevant", "hits"}
        What the sum is divided by: min(R, k) (Spark's `meanAveragePrecisionAt`, RecBole, Kaggle); R (trec_eval, ranx);
        the hits among the first k (torchmetrics). Without k all but the last agree.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 1, 0, 1], y_score=[5, 4, 3, 2, 1], query=[1] * 5)
    >>> round(sm.MeanAveragePrecision(5).update(rows).compute(), 4)
    0.7556
    """

    about = About(formula="mean over queries of (1/min(R, k)) sum of hits@i / i at relevant i <= k")

    denominator: str = setting(default="min", choices=("min", "relevant", "hits"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((f"ap_{self.denominator}", self.k),)


class RankBiasedPrecision(RelevanceMetric, tag="rbp"):
    """Rank-biased precision: what a reader who goes on to the next document with probability p finds at each step.

    Formula: (1 - p) sum over i <= k of rel_i p^(i - 1).

    Parameters
    ----------
    p : float
        The persistence of the reader, in (0, 1).
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `rbp`, of binary judgements, at p = 0.9. Undefined without queries.
    Source: Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness" (2008).

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.RankBiasedPrecision(0.5).update([1, 0, 1], [3, 2, 1], query=[1, 1, 1]).compute()
    0.625
    """

    about = About(formula="mean over queries of (1 - p) sum of rel_i p^(i - 1), i <= k")

    k: int | None = setting(default=None, low=1, high=float(1 << 24))
    p: float = setting(default=0.8, above=0.0, high=0.9999999999999999, kw_only=False)

    measure = "rbp"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.p),)
