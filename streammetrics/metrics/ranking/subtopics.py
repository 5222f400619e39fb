"""Diversity metrics: how soon a list covers every subtopic, and how different its items are."""

from __future__ import annotations

from typing import Any

from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.query_sums import format_term
from ...statistics.subtopics import SubtopicSums
from .mean import Empty, QueryMean

__all__ = ["AlphaNDCG", "IntentAwareERR", "IntraListDiversity", "SubtopicRecall"]


class SubtopicMetric(QueryMean[SubtopicSums]):
    """Base class for metrics of the subtopics of the first k documents.

    Parameters
    ----------
    k : int
        The cut-off: only the first k documents of each ranking count. Among documents with equal scores, the one with
        the smallest `document` key comes first, as in ndeval.
    relevance_level : float, optional
        The lowest grade of a relevant document; any grade above 0 by default.
    empty : {0, "skip", 1}
        The value of a query without a relevant document: 0 or 1; "skip" leaves the query out.
    """

    about = About(
        positional_columns=("y_true", "y_score"),
        cost="about 100 bytes, plus 16 bytes per measure; 0.3 us per row, or k times as much with an ideal ranking",
    )

    k: int = setting(default=10, low=1, high=1000, kw_only=False)
    relevance_level: float | None = setting(default=None, above=0.0)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    def make_state(self) -> SubtopicSums:
        return SubtopicSums(terms=tuple(format_term(*t) for t in self.terms), relevance_level=self.relevance_level)


class AlphaNDCG(SubtopicMetric, tag="alpha_ndcg"):
    """Alpha-nDCG: NDCG in which a subtopic is worth less each time it is repeated, averaged over queries.

    Formula: sum over i <= k of G_i / log2(1 + i), divided by the same sum for an ideal ranking. The gain of the
    document at rank i is G_i = sum over its subtopics s of (1 - alpha)^n, where n is the number of documents above it
    that are about s.

    Parameters
    ----------
    alpha : float
        The share of its gain that a subtopic loses with each further document about it.
    ideal : {"greedy", "bound"}
        The ideal ranking. "greedy" always takes the judged document with the largest gain next, and among equal gains
        the largest `document` (ndeval's alpha-nDCG). It may miss the best order, which would take too long to find.
        "bound" is k documents that are each about all subtopics (ndeval's alpha-DCG).

    Notes
    -----
    Each row is a pair of a document and a subtopic, with the columns `query`, `document`, `subtopic`, `y_true` (whether
    the document is relevant for the subtopic) and `y_score`. The optional columns of `PrecisionAtK.update`, such as
    `sample_weight`, can also be passed. The definition matches that of ndeval. The value is undefined without queries.
    Source: Clarke et al., "Novelty and diversity in information retrieval evaluation" (2008).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], subtopic=["a", "a", "b"], y_true=[1, 1, 1], y_score=[3, 2, 1], query=[7] * 3)
    >>> round(sm.AlphaNDCG().update(rows).compute(), 4)
    0.9652
    """

    about = About(
        formula=(
            "mean over queries of (sum over i <= k of G_i / log2(1 + i)) / (the same sum for the ideal ranking), G_i the "
            "gain at rank i"
        )
    )

    alpha: float = setting(default=0.5, low=0.0, high=1.0)
    ideal: str = setting(default="greedy", choices=("greedy", "bound"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (("alpha_ndcg" if self.ideal == "greedy" else "alpha_dcg", self.k, self.alpha),)


class IntentAwareERR(SubtopicMetric, tag="err_ia"):
    """Intent-aware expected reciprocal rank: the expected 1 / (rank at which a reader stops), averaged over subtopics.

    Formula: sum over i <= k of G_i / i, divided by a norm. The gain of the document at rank i is G_i = sum over its
    subtopics s of (1 - alpha)^n, where n is the number of documents above it that are about s. The value is the mean
    over queries.

    Parameters
    ----------
    alpha : float
        The probability that a reader stops at a document about the subtopic.
    norm : {"bound", "ideal", "none"}
        The divisor of the sum. "bound" is the sum for k documents that are each about all subtopics (ndeval's ERR-IA).
        "ideal" is the sum for the ideal ranking, which takes the judged document with the largest gain next (ndeval's
        nERR-IA). "none" is the number of subtopics / alpha, which gives a mean of expected reciprocal ranks.

    Notes
    -----
    The rows have the same columns as for `AlphaNDCG`. The value is undefined without queries. Source: Chapelle et
    al., "Intent-based diversification of web search results" (2011).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], subtopic=["a", "a", "b"], y_true=[1, 1, 1], y_score=[3, 2, 1], query=[7] * 3)
    >>> round(sm.IntentAwareERR(norm="none").update(rows).compute(), 4)
    0.3958
    """

    about = About(
        formula="mean over queries of (sum over i <= k of G_i / i) / c, G_i the gain at rank i, c set by `norm`"
    )

    alpha: float = setting(default=0.5, above=0.0, high=1.0)
    norm: str = setting(default="bound", choices=("bound", "ideal", "none"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (({"bound": "err_ia", "ideal": "err_ia_ideal", "none": "err_ia_plain"}[self.norm], self.k, self.alpha),)


class SubtopicRecall(SubtopicMetric, tag="subtopic_recall"):
    """Subtopic recall: the share of a query's subtopics that the first k documents cover, averaged over queries.

    Formula: (number of subtopics that the first k documents are about) / (number of subtopics with a relevant
    document).

    Notes
    -----
    The rows have the same columns as for `AlphaNDCG`. The definition matches ndeval's `strec`. The value is undefined
    without queries. Source: Zhai et al., "Beyond independent relevance" (2003).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], subtopic=["a", "a", "b"], y_true=[1, 1, 1], y_score=[3, 2, 1], query=[7] * 3)
    >>> sm.SubtopicRecall(2).update(rows).compute()
    0.5
    """

    about = About(formula="mean over queries of (subtopics of the first k documents) / (subtopics of the query)")

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (("subtopic_recall", self.k),)


class IntraListDiversity(QueryMean[SubtopicSums], tag="intra_list_diversity"):
    """Intra-list diversity: the mean Jaccard distance between the categories of the first k items, averaged over lists.

    Formula: mean over pairs of items of 1 - (number of categories that both items have) / (number of categories that at
    least one of them has). If each item has one category, this is the share of pairs with different categories.

    Parameters
    ----------
    k : int
        The cut-off: only the first k items of each list count. Among items with equal scores, the one with the smallest
        `document` key comes first, as in ndeval.

    Notes
    -----
    Each row is one category of one item, with the columns `query`, `document`, `category` and `y_score`. Processing a
    list takes k^2 steps. Lists of fewer than two items are left out; the value is undefined if no list remains.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], category=["pop", "pop", "jazz"], y_score=[3, 2, 1], query=[7] * 3)
    >>> round(sm.IntraListDiversity(3).update(rows).compute(), 4)
    0.6667
    """

    about = About(
        positional_columns=("category", "y_score"),
        cost="about 100 bytes; 0.3 us per row, and k^2 steps per list",
        formula="mean over lists and pairs of items of 1 - |A n B| / |A u B|, A and B the categories of the two items",
    )

    empty = "skip"
    undefined = "no list has two items"

    k: int = setting(default=10, low=2, high=1000, kw_only=False)

    def make_state(self) -> SubtopicSums:
        return SubtopicSums(terms=(format_term("diversity", self.k),), column="category")

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (("diversity", self.k),)
