"""Metrics where some documents were judged by nobody: their grade is null, or NaN."""

from __future__ import annotations

from ...numerics.settings import setting
from ...reading.about import About
from .gains import ORDERS, RankingMetric
from .relevance import RelevanceMetric

__all__ = ["BPref", "InferredAP", "JudgedAtK"]


class JudgedAtK(RankingMetric, tag="judged_at_k"):
    """Judged at k: the share of the first k documents that somebody judged, a mean over queries.

    Formula: judged@k / min(k, returned).

    Parameters
    ----------
    k, ties, on_invalid
        As for CumulativeGain.
    missing : {"unjudged", "raise"}
        What a null or NaN grade is: that of a document nobody judged, or an error.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As `Judged` of ir_measures. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.JudgedAtK(2).update([1, None, 0], [3, 2, 1], query=[1, 1, 1]).compute()
    0.5
    """

    about = About(best=None, formula="mean over queries of judged@k / min(k, returned)")

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "judged"


class OneOrder(RelevanceMetric):
    """A metric of all documents whose mean over the orders of ties nobody knows in closed form."""

    k: int | None = setting(default=None, choices=(None,))
    ties: str = setting(default="pessimistic", choices=ORDERS)


class BPref(OneOrder, tag="bpref"):
    """Binary preference: how rarely a document judged irrelevant stands above a relevant one; no others count.

    Formula: (1/R) sum over relevant documents of 1 - min(n, R) / min(N, R), n the irrelevant above, N all irrelevant.

    Parameters
    ----------
    ties : {"pessimistic", "optimistic", "order", "document"}
        As for CumulativeGain; by default equal scores have the relevant documents last.
    missing : {"unjudged", "raise"}
        As for JudgedAtK.
    relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `bpref` with `ties="document"`. Undefined without queries. Source:
    Buckley and Voorhees, "Retrieval evaluation with incomplete information" (2004).

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.BPref().update([0, 1, None, 1, 0], [5, 4, 3, 2, 1], query=[1] * 5).compute()
    0.5
    """

    about = About(formula="mean over queries of (1/R) sum of 1 - min(n, R) / min(N, R)")

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "bpref"


class InferredAP(OneOrder, tag="inferred_ap"):
    """Inferred average precision: that which a sample of judgements lets expect.

    Formula: (1/R) sum over relevant places i of 1/i + ((i-1)/i) (pooled above / (i-1)) (r + e) / (r + n + 2 e), with r and
    n the relevant and irrelevant judged above, and e = 0.00001.

    Parameters
    ----------
    ties, missing, relevance_level, empty, on_invalid
        As for BPref. A null grade is that of a document in the pool that was not in the sample; where the column `pooled`
        is 0 as well, the document is outside the pool.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `infAP` with `ties="document"`, whose grade -1 is null here.
    Undefined without queries. Source: Yilmaz and Aslam, "Estimating average precision with incomplete and imperfect
    judgments" (2006).

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.InferredAP().update([1, None, 1, 0], [4, 3, 2, 1], query=[1] * 4).compute(), 4)
    1.0
    """

    about = About(formula="mean over queries of (1/R) sum of the inferred precision at relevant i")

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "inf_ap"
