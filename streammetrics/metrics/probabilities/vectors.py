"""Metrics that compare two vectors in each row, such as class probabilities or embeddings."""

from __future__ import annotations

from typing import ClassVar

from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.decision_counts import MIN_EPS
from ...statistics.row_terms import RowTerms
from .row_losses import RowMean

__all__ = ["CosineSimilarity", "JensenShannonDivergence", "KLDivergence"]


class VectorMetric(RowMean[float]):
    """Base class for metrics that are the mean over rows of a function of two vectors, such as their cosine.

    Parameters
    ----------
    width : int
        The length of the vectors. Both inputs are matrices with `width` columns.
    """

    about = About(positional_columns=("y_true", "y_pred"), cost="1.1 kB; about 20 ns per number", example={"width": 3})

    width: int | None = setting(default=None, low=1, high=1 << 16)

    over: ClassVar[str] = "distributions"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is None:
            raise ValueError(
                f"{type(self).__name__}: width= is required; pass the length of the vectors, such as width=3"
            )

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over=self.over, eps=getattr(self, "eps", None), width=self.width)


class KLDivergence(VectorMetric, tag="kl_divergence"):
    """Kullback-Leibler divergence: mean relative entropy of true distributions p to predicted distributions q, in nats.

    Formula: the mean over rows, weighted by `sample_weight`, of the sum over classes c of p_c * log(p_c / q_c), with p
    from `y_true` and q from `y_pred`, both normalized to a sum of 1. A term with p_c = 0 is 0.

    Parameters
    ----------
    width : int
        The number of classes. Both inputs are matrices with one column per class; the probabilities in a row sum to 1.
    eps : float, optional
        Every q below this number is replaced by it, so that the logarithm is finite. The default is the machine epsilon of
        the column: 2**-23 for float32 and half precision, 2**-52 for float64. Keras uses 1e-7.

    Notes
    -----
    The metric compares two distributions in each row. To compare the score distributions of two data sets, use `drift`.
    The value of each row is computed in float64, and the sum is exact. The definition matches torchmetrics'
    `KLDivergence`, where q = 0 gives infinity, and Keras' `KLDivergence`, which also clips p. The value is undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.KLDivergence(width=3).update([[0.36, 0.48, 0.16]], [[1 / 3, 1 / 3, 1 / 3]]).compute(), 6)
    0.0853
    """

    about = About(best="low", formula="weighted mean over rows of the sum over classes c of p_c log(p_c / q_c)")

    eps: float | None = setting(default=None, low=MIN_EPS, high=0.25)

    term = "kl"


class JensenShannonDivergence(VectorMetric, tag="jensen_shannon_divergence"):
    """Jensen-Shannon divergence: the mean Kullback-Leibler divergence KL of distributions p and q from their average m.

    Formula: the weighted mean over rows of (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2, in nats: from 0 to log(2).

    Notes
    -----
    The divergence is symmetric and finite even if some probabilities are 0. The definition matches torchmetrics'
    `JensenShannonDivergence`; scipy's `jensenshannon` is its square root. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.JensenShannonDivergence(width=3).update([[0.36, 0.48, 0.16]], [[1 / 3, 1 / 3, 1 / 3]]).compute(), 6)
    0.02246
    """

    about = About(best="low", formula="weighted mean over rows of (KL(p, m) + KL(q, m)) / 2, where m = (p + q) / 2")

    term = "js"


class CosineSimilarity(VectorMetric, tag="cosine_similarity"):
    """Cosine similarity: the mean cosine of the angle between the vectors a and b of each row.

    Formula: the weighted mean over rows of (a . b) / (|a| * |b|). The cosine of a vector of zeros is 0, as in Keras.

    Notes
    -----
    Elements must be 0 or have an absolute value between 2**-200 and 2**200. The definition matches torchmetrics'
    `CosineSimilarity(reduction="mean")` and Keras' `CosineSimilarity`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CosineSimilarity(width=2).update([[3, 4], [0, 1]], [[3, 4], [1, 0]]).compute()
    0.5
    """

    about = About(best="high", formula="weighted mean over rows of (a . b) / (|a| |b|)")

    over = "vectors"
    term = "cosine"
