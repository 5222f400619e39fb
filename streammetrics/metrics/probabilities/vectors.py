"""Means over rows of how alike two vectors are: two distributions over the same classes, two embeddings."""

from __future__ import annotations

from typing import ClassVar

from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.labels import LEAST
from ...statistics.row_terms import RowTerms
from .row_losses import RowMean

__all__ = ["CosineSimilarity", "JensenShannonDivergence", "KLDivergence"]


class VectorMetric(RowMean[float]):
    """The mean over rows of a function of two vectors."""

    about = About(positional_columns=("y_true", "y_pred"), cost="1.1 kB; some 20 ns a number", example={"width": 3})

    width: int | None = setting(default=None, low=1, high=1 << 16)

    over: ClassVar[str] = "distributions"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is None:
            raise ValueError(f"{type(self).__name__}: say how long the vectors are, width=")

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over=self.over, eps=getattr(self, "eps", None), width=self.width)


class KLDivergence(VectorMetric, tag="kl_divergence"):
    """Kullback-Leibler divergence: how many nats more it takes to say where a row is by the predicted distribution.

    Formula: (1/W) sum w sum_c p_c log(p_c / q_c), p of `y_true`, q of `y_pred`, 0 where p is; both brought to a sum of 1.

    Parameters
    ----------
    width : int
        How many classes; both columns are rows x classes of probabilities that sum to 1.
    eps : float, optional
        The least that q counts as: by default as the `eps` of LogLoss. Keras has 1e-7.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Of two distributions in each row; of the scores of two logs see `drift`. Rows in float64, their sum is exact.
    Definition as torchmetrics' `KLDivergence`, where a q of 0 is infinite, and Keras', which keeps p from 0, too.
    Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.KLDivergence(width=3).update([[0.36, 0.48, 0.16]], [[1 / 3, 1 / 3, 1 / 3]]).compute(), 6)
    0.0853
    """

    about = About(best="low", formula="mean over rows of sum_c p_c log(p_c / q_c)")

    eps: float | None = setting(default=None, low=LEAST, high=0.25)

    term = "kl"


class JensenShannonDivergence(VectorMetric, tag="jensen_shannon_divergence"):
    """Jensen-Shannon divergence: the mean divergence of two distributions from their middle.

    Formula: (1/W) sum w (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2, in nats: from 0 to log 2.

    Parameters
    ----------
    width, on_invalid
        As for KLDivergence.

    Notes
    -----
    Symmetric, and finite whatever is 0. As torchmetrics' `JensenShannonDivergence`; scipy's `jensenshannon` is its root.
    Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.JensenShannonDivergence(width=3).update([[0.36, 0.48, 0.16]], [[1 / 3, 1 / 3, 1 / 3]]).compute(), 6)
    0.02246
    """

    about = About(best="low", formula="mean over rows of (KL(p, m) + KL(q, m)) / 2, m = (p + q) / 2")

    term = "js"


class CosineSimilarity(VectorMetric, tag="cosine_similarity"):
    """Cosine similarity: the mean cosine of the angle between two vectors.

    Formula: (1/W) sum w (a . b) / (|a| |b|); 0 of a vector of zeros, as in Keras.

    Parameters
    ----------
    width : int
        How long the vectors are.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Numbers are 0, or from 2**-200 to 2**200 in size. Definition as torchmetrics' `CosineSimilarity(reduction="mean")` and
    Keras'. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CosineSimilarity(width=2).update([[3, 4], [0, 1]], [[3, 4], [1, 0]]).compute()
    0.5
    """

    about = About(best="high", formula="mean over rows of (a . b) / (|a| |b|)")

    over = "vectors"
    term = "cosine"
