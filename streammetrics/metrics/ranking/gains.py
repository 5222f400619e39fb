"""Metrics of rankings, a value per query, and those of gains, which grow with the grade of a document.

All read one `RankingSums`: each query is ranked once, for all measures and cut-offs. Undefined values are NaN with a
reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ...batch.lists import ranked_lists
from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.ranking import RankingSums, term
from .mean import Empty, QueryMean

__all__ = ["DCG", "NDCG", "CumulativeGain", "ExpectedReciprocalRank"]

ORDERS = ("order", "document", "optimistic", "pessimistic")


class RankingMetric(QueryMean[RankingSums]):
    """A metric of the order in which the documents of each query are ranked."""

    about = About(cost="about 100 bytes, 16 a read-out; 7 ns a document")

    measure: ClassVar[str] = ""
    grades: ClassVar[str] = "y_true"

    k: int | None = setting(default=None, low=1, high=float(1 << 24), kw_only=False)
    ties: str = setting(default="average", choices=("average", *ORDERS))
    missing: str = setting(default="raise", choices=("raise", "unjudged"))

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Count a batch of whole queries: a row a document, or matrices and columns of lists with a row a query.

        Parameters
        ----------
        y_true : array-like of shape (n,) or (n_queries, n_items)
            Grades: 0 for what is not relevant, more for what is. Or a mapping, data frame or Arrow table that holds the
            columns by name.
        y_score : array-like of shape (n,) or (n_queries, n_items)
            Any finite score; the highest is ranked first.
        **columns : array-like
            `query`: the key of the query or user. Its rows stand side by side, in one batch: one that returns in the
            batch, or in the next, raises; beyond that wholeness is up to the caller.
            `sample_weight`: of the query, the same in all its rows.
            `mask`: 0 where there is no document: the padding of a matrix, whose values are not looked at.
            `retrieved`: 0 for documents that were judged but not returned; they count for ideal rankings and recall.
            `relevant`: how many relevant documents the query has in all, if some of them are no rows; these have the
            lowest relevant grade.
            `position` (with `ties="order"`) and `document` (with `ties="document"`) say which of equal scores is first.
            `pooled` (with `missing="unjudged"`): 0 for documents that are outside the pool of which some were judged.

        Raises
        ------
        InvalidInputError
            A value is bad, lengths differ, a query returns, or its rows disagree; the message names column and row, and
            nothing was counted.
        """
        return super().update(y_true, y_score, **columns)

    def update_lists(
        self, ranked: Iterable[Sequence[Any]], relevant: Iterable[Any], *, sample_weight: Any = None
    ) -> Any:
        """Count ranked lists, each beside the documents that are relevant: a set, or grades by document.

        Parameters
        ----------
        ranked, relevant, sample_weight
            As for `ranked_lists`, whose rows any `update` takes.
        """
        return self.update(ranked_lists(ranked, relevant, sample_weight=sample_weight))

    def make_state(self) -> RankingSums:
        level = getattr(self, "relevance_level", None)
        terms = tuple(dict.fromkeys(term(*t) for t in self.terms))
        return RankingSums(terms=terms, ties=self.ties, relevance_level=level, missing=self.missing, grades=self.grades)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k),)


class GainMetric(RankingMetric):
    """A metric of the gains of the documents, which grow with their grades."""

    gain: str = setting(default="linear", choices=("linear", "exponential"))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure + ("_exp" if self.gain == "exponential" else ""), self.k),)


class CumulativeGain(GainMetric, tag="cumulative_gain"):
    """Cumulative gain: the sum of the gains of the first k documents, a mean over queries.

    Formula: sum over i <= k of g_i, with g the grade, or 2^grade - 1.

    Parameters
    ----------
    k : int, optional
        How many documents count; all by default.
    gain : {"linear", "exponential"}
        What a document is worth: its grade (trec_eval, scikit-learn), or 2^grade - 1 (web search, LightGBM).
    ties : {"average", "order", "document", "optimistic", "pessimistic"}
        Documents of equal score: the mean over all their orders; the order of their rows, or of the column `position`;
        by the column `document`, descending, as trec_eval does; the highest grade first, or the lowest.
    missing : {"raise", "unjudged"}
        What a null or NaN grade is: an error, or that of a document nobody judged, which is worth nothing (trec_eval).
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Exact sum over queries, one division. About 7 ns a document for all metrics of one ranking together; 700 bytes.
    Undefined without queries. Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002).

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CumulativeGain(3).update([3, 2, 3, 0, 1], [5, 4, 3, 2, 1], query=[1, 1, 1, 1, 1]).compute()
    8.0
    """

    about = About(formula="mean over queries of sum of g_i, i <= k")

    measure = "cg"
    interval_within = (0.0, math.inf)


class DCG(GainMetric, tag="dcg"):
    """Discounted cumulative gain: gains of the first k documents, each over log2(1 + place), a mean over queries.

    Formula: sum over i <= k of g_i / log2(1 + i), with g the grade, or 2^grade - 1.

    Parameters
    ----------
    k, gain, ties, missing, on_invalid
        As for CumulativeGain.

    Notes
    -----
    Cost as CumulativeGain. Definition as scikit-learn's `dcg_score`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.DCG().update([3, 2, 3, 0, 1, 2], [6, 5, 4, 3, 2, 1], query=[1] * 6).compute(), 4)
    6.8611
    """

    about = About(formula="mean over queries of sum of g_i / log2(1 + i), i <= k")

    measure = "dcg"
    interval_within = (0.0, math.inf)


class NDCG(GainMetric, tag="ndcg"):
    """Normalized discounted cumulative gain: DCG at k over that of the ideal ranking at k, a mean over queries.

    Formula: DCG@k / IDCG@k; the ideal ranks all judged documents, also those not returned, by their grades.

    Parameters
    ----------
    k, gain, ties, missing, on_invalid
        As for CumulativeGain.
    empty : {0, "skip", 1}
        What a query without a relevant document counts: 0 (scikit-learn, trec_eval, Spark); nothing (TFMA, ignite); 1
        (LightGBM, whylogs). `explain()` says how many there are.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As scikit-learn's `ndcg_score`: the defaults; trec_eval's `ndcg_cut`:
    `ties="document"`; LightGBM's `ndcg`: `gain="exponential", ties="order", empty=1`. Undefined without queries.

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
    """Expected reciprocal rank: one over the place at which a reader who is satisfied by good documents stops.

    Formula: sum over i <= k of (1/i) s_i prod over j < i of (1 - s_j), with s = (2^grade - 1) / 2^max_grade.

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain.
    max_grade : int
        The highest grade there is; a higher one raises.
    empty : {0, "skip", 1}
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes; a group of n tied documents takes n^2 steps. Undefined without queries. Source:
    Chapelle et al., "Expected reciprocal rank for graded relevance" (2009); gdeval.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ExpectedReciprocalRank(max_grade=1).update([1, 0, 1], [3, 2, 1], query=[1, 1, 1]).compute()
    0.5833333333333334
    """

    about = About(formula="mean over queries of sum of (1/i) s_i prod of (1 - s_j), j < i <= k")

    max_grade: int = setting(default=4, low=1, high=1000)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    measure = "err"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, float(self.max_grade)),)
