"""Metrics of diversity: how soon a list shows something of every subtopic, and how unlike its items are."""

from __future__ import annotations

from typing import Any

from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.query_sums import term
from ...statistics.subtopics import SubtopicSums
from .mean import Empty, QueryMean

__all__ = ["AlphaNDCG", "IntentAwareERR", "IntraListDiversity", "SubtopicRecall"]


class SubtopicMetric(QueryMean[SubtopicSums]):
    """A metric of the subtopics that the first k documents are about."""

    about = About(
        positional_columns=("y_true", "y_score"),
        cost="about 100 bytes, 16 a read-out; 0.3 us a row, of an ideal k times as much",
    )

    k: int = setting(default=10, low=1, high=1000, kw_only=False)
    relevance_level: float | None = setting(default=None, above=0.0)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    def make_state(self) -> SubtopicSums:
        return SubtopicSums(terms=tuple(term(*t) for t in self.terms), relevance_level=self.relevance_level)


class AlphaNDCG(SubtopicMetric, tag="alpha_ndcg"):
    """Alpha-nDCG: discounted gain where each subtopic is worth less every time it comes again, over that of an ideal.

    Formula: sum over i <= k of G_i / log2(1 + i) over that of the ideal; G_i = sum over subtopics s of document i of
    (1 - alpha)^(documents above that are about s).

    Parameters
    ----------
    k : int
        How many documents count; of equal scores the least `document` first, as in ndeval.
    alpha : float
        How much less a subtopic is worth every time.
    ideal : {"greedy", "bound"}
        The worthiest judged document next, of several the greatest (ndeval's alpha-nDCG; the best order of all is hard to
        find); or k documents about all subtopics (ndeval's alpha-DCG).
    relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    A row for each pair of document and subtopic: columns `query`, `document`, `subtopic`, `y_true` (whether the document
    is relevant for the subtopic), `y_score`, and those of `PrecisionAtK.update`. As ndeval. Undefined without queries.
    Source: Clarke et al., "Novelty and diversity in information retrieval evaluation" (2008).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], subtopic=["a", "a", "b"], y_true=[1, 1, 1], y_score=[3, 2, 1], query=[7] * 3)
    >>> round(sm.AlphaNDCG().update(rows).compute(), 4)
    0.9652
    """

    about = About(formula="mean over queries of sum of G_i / log2(1 + i) over that of the ideal, i <= k")

    alpha: float = setting(default=0.5, low=0.0, high=1.0)
    ideal: str = setting(default="greedy", choices=("greedy", "bound"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (("alpha_ndcg" if self.ideal == "greedy" else "alpha_dcg", self.k, self.alpha),)


class IntentAwareERR(SubtopicMetric, tag="err_ia"):
    """Intent-aware expected reciprocal rank: one over the place at which a reader stops, a mean over subtopics.

    Formula: sum over i <= k of G_i / i over a norm, with G_i as for AlphaNDCG.

    Parameters
    ----------
    k, relevance_level, empty, on_invalid
        As for AlphaNDCG.
    alpha : float
        The probability that a reader stops at a document about the subtopic.
    norm : {"bound", "ideal", "none"}
        That of k documents about all subtopics (ndeval's ERR-IA); of the worthiest document next (its nERR-IA); or
        subtopics / alpha, a mean of expected reciprocal ranks.

    Notes
    -----
    Rows as for AlphaNDCG. Undefined without queries. Source: Chapelle et al., "Intent-based diversification of web search
    results" (2011).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], subtopic=["a", "a", "b"], y_true=[1, 1, 1], y_score=[3, 2, 1], query=[7] * 3)
    >>> round(sm.IntentAwareERR(norm="none").update(rows).compute(), 4)
    0.3958
    """

    about = About(formula="mean over queries of sum of G_i / i over a norm, i <= k")

    alpha: float = setting(default=0.5, above=0.0, high=1.0)
    norm: str = setting(default="bound", choices=("bound", "ideal", "none"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (({"bound": "err_ia", "ideal": "err_ia_ideal", "none": "err_ia_plain"}[self.norm], self.k, self.alpha),)


class SubtopicRecall(SubtopicMetric, tag="subtopic_recall"):
    """Subtopic recall: the share of a query's subtopics that one of the first k documents is about.

    Formula: subtopics of the first k / subtopics with a relevant document.

    Parameters
    ----------
    k, relevance_level, empty, on_invalid
        As for AlphaNDCG.

    Notes
    -----
    Rows as for AlphaNDCG. As ndeval's `strec`. Undefined without queries. Source: Zhai et al., "Beyond independent
    relevance" (2003).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], subtopic=["a", "a", "b"], y_true=[1, 1, 1], y_score=[3, 2, 1], query=[7] * 3)
    >>> sm.SubtopicRecall(2).update(rows).compute()
    0.5
    """

    about = About(formula="mean over queries of subtopics@k / subtopics")

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (("subtopic_recall", self.k),)


class IntraListDiversity(QueryMean[SubtopicSums], tag="intra_list_diversity"):
    """Intra-list diversity: how unlike two of the first k items are, a mean over pairs, then over lists.

    Formula: mean over pairs of 1 - |A n B| / |A u B|, with A and B the categories of two items; of one category each, the
    share of pairs of different ones.

    Parameters
    ----------
    k : int
        How many items count; of equal scores the least `document` first, as in ndeval.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    A row for each category of an item: columns `query`, `document`, `category`, `y_score`. k^2 steps a list. Lists of
    fewer than two items are left out. Undefined without others.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(document=[1, 2, 3], category=["pop", "pop", "jazz"], y_score=[3, 2, 1], query=[7] * 3)
    >>> round(sm.IntraListDiversity(3).update(rows).compute(), 4)
    0.6667
    """

    about = About(
        positional_columns=("category", "y_score"),
        cost="about 100 bytes; 0.3 us a row, and k^2 steps a list",
        formula="mean over lists of the mean over pairs of 1 - |A n B| / |A u B|",
    )

    empty = "skip"
    undefined = "no list has two items"

    k: int = setting(default=10, low=2, high=1000, kw_only=False)

    def make_state(self) -> SubtopicSums:
        return SubtopicSums(terms=(term("diversity", self.k),), column="category")

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return (("diversity", self.k),)
