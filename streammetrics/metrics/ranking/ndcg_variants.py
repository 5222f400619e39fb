"""Variants of NDCG and average precision: averaged over the ranks of relevant documents, or with another discount.

All are trec_eval metrics. With `ties="document"`, their values equal those of trec_eval. As in trec_eval, a document
with a grade above 0 is relevant.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ...numerics.settings import setting
from ...reading.about import About
from .gains import ORDERS, RankingMetric
from .judged_documents import OneOrder
from .mean import Empty

__all__ = ["BinaryGain", "NDCGAtLevels", "NDCGAtRelevant", "NormalizedGain", "OriginalNDCG", "SmoothedAP"]


class OriginalNDCG(RankingMetric, tag="original_ndcg"):
    """Original NDCG: the mean over queries of the NDCG of 2002, which does not discount the document at rank 2.

    Formula: DCG@k / IDCG@k, where DCG@k = sum over i <= k of g_i / max(1, log2(i)), and g_i is the gain at rank i.

    Parameters
    ----------
    empty : {0, "skip", 1}
        The value of a query without a relevant document: 0 or 1; "skip" leaves the query out.

    Notes
    -----
    The definition matches trec_eval's `ndcg_p`. The value is undefined without queries. Source: Järvelin and
    Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002), with b = 2 as the base of the logarithm.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.OriginalNDCG().update([0, 1, 0, 1], [4, 3, 2, 1], query=[1] * 4).compute()
    0.75
    """

    about = About(formula="mean over queries of DCG@k / IDCG@k, where the gain at rank i is divided by max(1, log2(i))")

    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    measure = "late_ndcg"


class BesideIdeal(RankingMetric):
    """Base class for metrics that compare the order of all documents of a query with their ideal order.

    Parameters
    ----------
    ties : {"pessimistic", "optimistic", "order", "document"}
        How to rank documents with equal scores. "pessimistic": the lowest grade first. "optimistic": the highest grade
        first. "order": in the order of their rows. "document": by the `document` column, descending, as in trec_eval.
    empty : {0, "skip", 1}
        The value of a query without a relevant document: 0 or 1; "skip" leaves the query out.
    """

    k: int | None = setting(default=None, choices=(None,))
    ties: str = setting(default="pessimistic", choices=ORDERS)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))


class NDCGAtRelevant(BesideIdeal, tag="ndcg_at_relevant"):
    """NDCG at relevant documents: the mean NDCG at the ranks of the relevant documents, averaged over queries.

    Formula: mean over documents with a gain above 0 of DCG@i / IDCG@i, where i is the rank of the document. For a
    document that was not returned, i is the end of the ranking.

    Notes
    -----
    The definition matches trec_eval's `ndcg_rel`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NDCGAtRelevant().update([1, 0, 0], [3, 2, 1], query=[1] * 3).compute()
    1.0
    """

    about = About(formula="mean over queries of the mean NDCG at the ranks of documents with a gain")

    measure = "ndcg_of_hits"


class NDCGAtLevels(BesideIdeal, tag="ndcg_at_levels"):
    """NDCG at levels: the mean NDCG at the ranks where the grade in the ideal ranking drops, averaged over queries.

    Formula: mean of DCG@i / IDCG@i over the ranks i of the last document of each grade above 0 in the ideal ranking.
    The end of the ranking also counts if it is more than one rank beyond the last of these ranks.

    Notes
    -----
    The definition matches trec_eval's `Rndcg`, including the condition on the end of the ranking. The value is
    undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NDCGAtLevels().update([2, 1, 1], [3, 2, 1], query=[1] * 3).compute()
    1.0
    """

    about = About(formula="mean over queries of the mean NDCG at ranks where the ideal grade drops")

    measure = "ndcg_of_levels"


class NormalizedGain(BesideIdeal, tag="normalized_gain"):
    """Normalized gain: gains discounted by the shortfall from the ideal ranking instead of by rank, averaged over queries.

    Formula: sum of g_i / log2(2 + C_i - G_i) divided by the sum of all gains, where g_i is the gain at rank i, and G_i
    is the sum of the gains up to rank i. C_i is the same sum for the ideal ranking, but each rank adds at least 1 to
    it.

    Notes
    -----
    The definition matches trec_eval's `G`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NormalizedGain().update([0, 0, 1], [3, 2, 1], query=[1] * 3).compute()
    0.5
    """

    about = About(
        formula=(
            "mean over queries of (sum of g_i / log2(2 + C_i - G_i)) / (sum of g_i), g_i the gain at rank i, G_i and "
            "C_i the sums of actual and ideal gains up to rank i"
        )
    )

    measure = "gain_over_cost"


class BinaryGain(OneOrder, tag="binary_gain"):
    """Binary gain: each relevant document is discounted by the number of irrelevant ones above it, averaged over queries.

    Formula: (1 / R) * (sum over relevant documents of 1 / log2(2 + irrelevant documents above)), where R is the number
    of relevant documents.

    Notes
    -----
    The definition matches trec_eval's `binG`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.BinaryGain().update([1, 0, 0, 1], [4, 3, 2, 1], query=[1] * 4).compute()
    0.75
    """

    about = About(formula="mean over queries of (1/R) sum of 1 / log2(2 + number of irrelevant documents above)")

    measure = "hits_by_misses"


class SmoothedAP(OneOrder, tag="smoothed_ap"):
    """Smoothed average precision: the smoothed log odds of average precision, averaged over queries.

    Formula: log((1 + S) / (1 + R - S)), where R is the number of relevant documents, and S is the sum of hits@i / i
    over the ranks i of these documents, so that S / R is average precision.

    Parameters
    ----------
    empty : {0, "skip"}
        The value of a query without a relevant document: log(1) = 0; "skip" leaves the query out.

    Notes
    -----
    On this scale, easy queries do not dominate the mean. The measure can exceed 1, so the state uses a wider
    accumulator (about 1.2 kB). The definition matches trec_eval's `yaap`. The value is undefined without queries.
    Source: Robertson, "On smoothing average precision" (2012).

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.SmoothedAP().update([1, 0, 0], [3, 2, 1], query=[1] * 3).compute(), 4)
    0.6931
    """

    about = About(
        formula=(
            "mean over queries of log((1 + S) / (1 + R - S)), S the sum of hits@i / i over ranks i of relevant documents"
        ),
        cost="about 1.2 kB; 7 ns per document",
    )

    empty: Empty = setting(default=0.0, choices=(0.0, "skip"))

    measure = "smoothed_ap"
    interval_within: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
