"""Relatives of NDCG and of average precision: read where relevant documents stand, or discounted in another way.

All are trec_eval's, whose values they have with `ties="document"`; as there, documents with a gain are the relevant ones.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ...numerics.settings import setting
from ...reading.about import About
from .gains import ORDERS, RankingMetric
from .judged import OneOrder
from .mean import Empty

__all__ = ["BinaryGain", "NDCGAtLevels", "NDCGAtRelevant", "NormalizedGain", "OriginalNDCG", "SmoothedAP"]


class OriginalNDCG(RankingMetric, tag="original_ndcg"):
    """NDCG as it was first defined: the second document counts as much as the first, and so on one place later.

    Formula: DCG@k / IDCG@k with DCG = sum over i <= k of g_i / max(1, log2(i)).

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain.
    empty : {0, "skip", 1}
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `ndcg_p`. Undefined without queries. Source: Järvelin and
    Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002), with b = 2.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.OriginalNDCG().update([0, 1, 0, 1], [4, 3, 2, 1], query=[1] * 4).compute()
    0.75
    """

    about = About(formula="mean over queries of DCG@k / IDCG@k, discounts max(1, log2(i))")

    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    measure = "late_ndcg"


class BesideIdeal(RankingMetric):
    """A measure of one order of all documents beside the ideal one."""

    k: int | None = setting(default=None, choices=(None,))
    ties: str = setting(default="pessimistic", choices=ORDERS)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))


class NDCGAtRelevant(BesideIdeal, tag="ndcg_at_relevant"):
    """NDCG read at the place of every document with a gain, and averaged; at the end for those not returned.

    Formula: mean over documents with g > 0 of DCG@i / IDCG@i, i its place.

    Parameters
    ----------
    ties : {"pessimistic", "optimistic", "order", "document"}
        As for BPref.
    missing, on_invalid
        As for CumulativeGain.
    empty : {0, "skip", 1}
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `ndcg_rel`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NDCGAtRelevant().update([1, 0, 0], [3, 2, 1], query=[1] * 3).compute()
    1.0
    """

    about = About(formula="mean over queries of the mean NDCG at the places of documents with a gain")

    measure = "ndcg_of_hits"


class NDCGAtLevels(BesideIdeal, tag="ndcg_at_levels"):
    """NDCG read where the ideal ranking comes to a lower grade, and averaged.

    Formula: mean of DCG@i / IDCG@i over the i at which a grade above 0 ends in the ideal ranking; and over i, all that
    were returned, where these are more than one beyond.

    Parameters
    ----------
    ties, missing, empty, on_invalid
        As for NDCGAtRelevant.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `Rndcg`, its one place beyond included. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NDCGAtLevels().update([2, 1, 1], [3, 2, 1], query=[1] * 3).compute()
    1.0
    """

    about = About(formula="mean over queries of the mean NDCG where grades end in the ideal ranking")

    measure = "ndcg_of_levels"


class NormalizedGain(BesideIdeal, tag="normalized_gain"):
    """Normalized gain: each gain discounted by what the places so far could have gained more, not by its place.

    Formula: sum of g_i / log2(2 + C_i - G_i) over the sum of all gains; G_i is the gain so far, C_i the ideal one, each of
    whose places counts no less than 1.

    Parameters
    ----------
    ties, missing, empty, on_invalid
        As for NDCGAtRelevant.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `G`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.NormalizedGain().update([0, 0, 1], [3, 2, 1], query=[1] * 3).compute()
    0.5
    """

    about = About(formula="mean over queries of sum of g_i / log2(2 + C_i - G_i) / sum of g")

    measure = "gain_over_cost"


class BinaryGain(OneOrder, tag="binary_gain"):
    """Binary gain: each relevant document discounted by how many irrelevant ones stand above it.

    Formula: (1/R) sum over relevant documents of 1 / log2(2 + irrelevant above).

    Parameters
    ----------
    ties, missing, relevance_level, empty, on_invalid
        As for InterpolatedPrecision.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `binG`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.BinaryGain().update([1, 0, 0, 1], [4, 3, 2, 1], query=[1] * 4).compute()
    0.75
    """

    about = About(formula="mean over queries of (1/R) sum of 1 / log2(2 + irrelevant above)")

    measure = "hits_by_misses"


class SmoothedAP(OneOrder, tag="smoothed_ap"):
    """Smoothed average precision: log odds in place of a share, so that no query counts more for being easy.

    Formula: log((1 + S) / (1 + R - S)), with S the sum of hits@i / i at relevant i, so S / R is average precision.

    Parameters
    ----------
    ties, missing, relevance_level, on_invalid
        As for InterpolatedPrecision.
    empty : {0, "skip"}
        What a query without a relevant document counts: log(1) = 0, or nothing.

    Notes
    -----
    Cost as CumulativeGain, 700 bytes. As trec_eval's `yaap`. Undefined without queries. Source: Robertson, "On smoothing
    average precision" (2012).

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.SmoothedAP().update([1, 0, 0], [3, 2, 1], query=[1] * 3).compute(), 4)
    0.6931
    """

    about = About(formula="mean over queries of log((1 + S) / (1 + R - S)), S the sum of hits@i / i at relevant i")

    empty: Empty = setting(default=0.0, choices=(0.0, "skip"))

    measure = "smoothed_ap"
    interval_within: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
