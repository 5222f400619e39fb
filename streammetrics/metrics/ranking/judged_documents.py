"""Ranking metrics for queries with unjudged documents, whose grade is null or NaN."""

from __future__ import annotations

from ...numerics.settings import setting
from ...reading.about import About
from .gains import ORDERS, RankingMetric
from .relevance import RelevanceMetric

__all__ = ["BPref", "InferredAP", "JudgedAtK"]


class JudgedAtK(RankingMetric, tag="judged_at_k"):
    """Judged at k: the share of the first k documents that have a relevance judgment, averaged over queries.

    Formula: judged@k / min(k, returned), where judged@k is the number of judged documents among the first k, and
    returned is the number of returned documents.

    Parameters
    ----------
    missing : {"unjudged", "raise"}
        What a null or NaN grade means. "unjudged": a document that nobody judged. "raise": an error.

    Notes
    -----
    The definition matches `Judged` in ir_measures. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.JudgedAtK(2).update([1, None, 0], [3, 2, 1], query=[1, 1, 1]).compute()
    0.5
    """

    about = About(
        best=None, formula="mean over queries of (judged documents among the first k) / min(k, returned documents)"
    )

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "judged"


class OneOrder(RelevanceMetric):
    """Base class for metrics that need one order of tied documents, because no formula gives the mean over all orders.

    Parameters
    ----------
    ties : {"pessimistic", "optimistic", "order", "document"}
        How to rank documents with equal scores. "pessimistic": the lowest grade first. "optimistic": the highest grade
        first. "order": in the order of their rows. "document": by the `document` column, descending, as in trec_eval.
    """

    k: int | None = setting(default=None, choices=(None,))
    ties: str = setting(default="pessimistic", choices=ORDERS)


class BPref(OneOrder, tag="bpref"):
    """Binary preference: how rarely a document judged irrelevant is ranked above a relevant one, averaged over queries.

    Formula: (1 / R) * (sum over relevant documents of 1 - min(n, R) / min(N, R)). R is the number of relevant
    documents, N is the number of documents judged irrelevant, and n is the number of these that rank above the relevant
    document.

    Notes
    -----
    Documents without a judgment do not count. With `ties="document"`, the definition matches trec_eval's `bpref`.
    The value is undefined without queries. Source: Buckley and Voorhees, "Retrieval evaluation with incomplete
    information" (2004).

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.BPref().update([0, 1, None, 1, 0], [5, 4, 3, 2, 1], query=[1] * 5).compute()
    0.5
    """

    about = About(
        formula="mean over queries of (1/R) sum of (1 - min(n, R) / min(N, R)), n of N irrelevant documents above"
    )

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "bpref"


class InferredAP(OneOrder, tag="inferred_ap"):
    """Inferred average precision: an estimate of average precision from a sample of judgments, averaged over queries.

    Formula: (1 / R) * (sum over the ranks i of relevant documents of 1 / i + ((i - 1) / i) * (pooled above / (i - 1)) *
    (r + e) / (r + n + 2 * e)), with e = 0.00001. R is the number of relevant documents. Above rank i, "pooled above"
    documents are in the pool, r documents were judged relevant, and n were judged irrelevant.

    Parameters
    ----------
    missing : {"unjudged", "raise"}
        What a null grade means. "unjudged": a document of the pool that was not sampled or, if the `pooled` column is
        0, a document outside the pool. "raise": an error.

    Notes
    -----
    With `ties="document"`, the definition matches trec_eval's `infAP`; pass null where trec_eval expects the grade
    -1. The value is undefined without queries. Source: Yilmaz and Aslam, "Estimating average precision with incomplete
    and imperfect judgments" (2006).

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.InferredAP().update([1, None, 1, 0], [4, 3, 2, 1], query=[1] * 4).compute(), 4)
    1.0
    """

    about = About(
        formula="mean over queries of (1/R) sum over relevant documents of the estimated precision at their ranks"
    )

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "inf_ap"
