"""Base classes for ranking metrics, and metrics based on gains, which grow with the grade of a document.

All metrics are computed from one `RankingSums` state, so each query is ranked once for all measures and cut-offs.
Undefined values are NaN, and `explain()` gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ...batch.lists import ranked_lists
from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.ranking import RankingSums, format_term
from .mean import Empty, QueryMean

__all__ = ["DCG", "NDCG", "CumulativeGain", "ExpectedReciprocalRank"]

ORDERS = ("order", "document", "optimistic", "pessimistic")


class RankingMetric(QueryMean[RankingSums]):
    """Base class for metrics of the order in which the documents of each query are ranked.

    Parameters
    ----------
    k : int, optional
        Consider only the first k documents of each ranking; by default, all documents.
    ties : {"average", "order", "document", "optimistic", "pessimistic"}
        How to rank documents with equal scores. "average": the value is the mean over all their orders. "order": in the
        order of their rows or of the `position` column. "document": by the `document` column, descending, as in
        trec_eval. "optimistic": the highest grade first. "pessimistic": the lowest grade first.
    missing : {"raise", "unjudged"}
        What a null or NaN grade means. "raise": an error. "unjudged": a document that nobody judged, which has no gain
        (as in trec_eval).
    """

    about = About(cost="about 100 bytes, plus 16 bytes per measure; 7 ns per document")

    measure: ClassVar[str] = ""
    grades: ClassVar[str] = "y_true"

    k: int | None = setting(default=None, low=1, high=float(1 << 24), kw_only=False)
    ties: str = setting(default="average", choices=("average", *ORDERS))
    missing: str = setting(default="raise", choices=("raise", "unjudged"))

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count a batch of whole queries, as columns with one row per document or matrices with one row per query.

        Parameters
        ----------
        y_true : array-like of shape (n,) or (n_queries, n_items)
            Grades: 0 for irrelevant documents, higher for relevant ones; or a mapping, data frame or Arrow table that
            contains the columns by name.
        y_score : array-like of shape (n,) or (n_queries, n_items)
            Finite scores; the document with the highest score is ranked first.
        **columns : array-like
            `query`: the key of the query or user. All rows of a query must be adjacent and in one batch. A query that
            occurs again in the same batch or in the next one raises an error; later repetitions are not detected.
            `sample_weight`: the weight of the query, the same in all its rows.
            `mask`: 0 for the padding of a matrix, where there is no document; the values there are ignored.
            `retrieved`: 0 for documents that were judged but not returned; they count toward ideal rankings and recall.
            `relevant`: the total number of relevant documents of the query, if some of them have no rows; these count
            with the lowest relevant grade.
            `position` (with `ties="order"`) and `document` (with `ties="document"`) rank documents with equal scores.
            `pooled` (with `missing="unjudged"`): 0 for documents outside the pool. Only a sample of the documents in
            the pool was judged.

        Raises
        ------
        InvalidInputError
            A value is invalid, the columns differ in length, a query occurs again, or the rows of a query contradict
            one another, for example with different weights. The message names the column and the row, and no rows are
            counted.
        """
        return super().update(y_true, y_score, **columns)

    def update_lists(
        self, ranked: Iterable[Sequence[Any]], relevant: Iterable[Any], *, sample_weight: Any = None
    ) -> Any:
        """Update the metric with ranked lists and the relevant documents of each list.

        The relevant documents are a set, or a mapping from documents to grades.

        Parameters
        ----------
        ranked, relevant, sample_weight
            The arguments of `ranked_lists`, which converts the lists to the columns of `update`.
        """
        return self.update(ranked_lists(ranked, relevant, sample_weight=sample_weight))

    def make_state(self) -> RankingSums:
        level = getattr(self, "relevance_level", None)
        terms = tuple(dict.fromkeys(format_term(*t) for t in self.terms))
        return RankingSums(terms=terms, ties=self.ties, relevance_level=level, missing=self.missing, grades=self.grades)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k),)


class GainMetric(RankingMetric):
    """Base class for metrics based on the gains of documents; a document's gain grows with its grade.

    Parameters
    ----------
    gain : {"linear", "exponential"}
        The gain of a document. "linear": its grade (as in trec_eval and scikit-learn). "exponential": 2^grade - 1 (as
        in web search and LightGBM).
    """

    gain: str = setting(default="linear", choices=("linear", "exponential"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure + ("_exp" if self.gain == "exponential" else ""), self.k),)


class CumulativeGain(GainMetric, tag="cumulative_gain"):
    """Cumulative gain: the sum of the gains of the first k documents, averaged over queries.

    Formula: sum over i <= k of g_i, where g_i is the gain of the document at rank i: its grade, or 2^grade - 1.

    Notes
    -----
    The sum over queries is exact, and the mean is rounded once. An update takes about 7 ns per document for all metrics
    of the same ranking together. The sum of a query can exceed 1, so the state uses a wider accumulator (about 1.2 kB).
    The value is undefined without queries. Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
    techniques" (2002).

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CumulativeGain(3).update([3, 2, 3, 0, 1], [5, 4, 3, 2, 1], query=[1, 1, 1, 1, 1]).compute()
    8.0
    """

    about = About(
        formula="mean over queries of the sum of g_i over i <= k, g_i the gain of the document at rank i",
        cost="about 1.2 kB; 7 ns per document",
    )

    measure = "cg"
    interval_within = (0.0, math.inf)


class DCG(GainMetric, tag="dcg"):
    """Discounted cumulative gain: the sum of gains of the first k documents, discounted by rank, averaged over queries.

    Formula: sum over i <= k of g_i / log2(1 + i), where the gain g_i is the grade of the document at rank i, or
    2^grade - 1.

    Notes
    -----
    State and time are the same as for `CumulativeGain`. The definition matches scikit-learn's `dcg_score`. The value is
    undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.DCG().update([3, 2, 3, 0, 1, 2], [6, 5, 4, 3, 2, 1], query=[1] * 6).compute(), 4)
    6.8611
    """

    about = About(
        formula="mean over queries of the sum of g_i / log2(1 + i) over i <= k, g_i the gain at rank i",
        cost="about 1.2 kB; 7 ns per document",
    )

    measure = "dcg"
    interval_within = (0.0, math.inf)


class NDCG(GainMetric, tag="ndcg"):
    """Normalized discounted cumulative gain: DCG at k divided by DCG at k of the ideal ranking, averaged over queries.

    Formula: DCG@k / IDCG@k. The ideal ranking sorts all judged documents of the query by grade, including those that
    were not returned.

    Parameters
    ----------
    empty : {0, "skip", 1}
        The value of a query without a relevant document: 0 (as in scikit-learn, trec_eval and Spark) or 1 (as in LightGBM
        and whylogs). "skip" leaves the query out (as in TFMA and ignite). `explain()` gives the number of such queries.

    Notes
    -----
    The defaults give scikit-learn's `ndcg_score`; `ties="document"` gives trec_eval's `ndcg_cut`; `gain="exponential",
    ties="order", empty=1` gives LightGBM's `ndcg`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> ndcg = sm.NDCG()
    >>> round(ndcg.update([3, 2, 3, 0, 1], [5, 4, 3, 2, 1], query=["a"] * 5).compute(), 4)
    0.9724
    >>> round(sm.NDCG(5).update([0, 1, 3, 2, 3], [5, 4, 3, 2, 1], query=["a"] * 5).compute(), 4)
    0.6567
    """

    about = About(formula="mean over queries of DCG@k / IDCG@k")

    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    measure = "ndcg"


class ExpectedReciprocalRank(RankingMetric, tag="err"):
    """Expected reciprocal rank: the expected 1 / rank of the document that satisfies a reader, averaged over queries.

    Formula: sum over i <= k of (s_i / i) * (product over j < i of (1 - s_j)), where s_i = (2^grade - 1) / 2^max_grade
    is the probability that the document at rank i satisfies the reader.

    Parameters
    ----------
    max_grade : int
        The highest possible grade; a higher grade raises an error.
    empty : {0, "skip", 1}
        The value of a query without a relevant document: 0 or 1; "skip" leaves the query out.

    Notes
    -----
    For a group of n tied documents, the computation takes n^2 steps. The value is undefined without queries. Source:
    Chapelle et al., "Expected reciprocal rank for graded relevance" (2009), and TREC's gdeval program.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ExpectedReciprocalRank(max_grade=1).update([1, 0, 1], [3, 2, 1], query=[1, 1, 1]).compute()
    0.5833333333333334
    """

    about = About(
        formula=(
            "mean over queries of sum over i <= k of (s_i / i) prod over j < i of (1 - s_j), s_i the probability that the "
            "document at rank i satisfies the reader"
        )
    )

    max_grade: int = setting(default=4, low=1, high=1000)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    measure = "err"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, float(self.max_grade)),)
