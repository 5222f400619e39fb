"""Metrics that compare two models on the same rows: how much their scores differ, and how often their decisions do."""

from __future__ import annotations

from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.row_terms import RowTerms
from .row_losses import RowMean

__all__ = ["FlipRate", "PredictionDifference"]


class PredictionDifference(RowMean[float], tag="prediction_difference"):
    """Prediction difference: the mean distance between the scores of two models, row by row.

    Formula: sum(w * d) / sum(w), for weights w, where d is a - b, |a - b|, or 2 * |a - b| / (|a| + |b|), for the score
    a and the baseline score b.

    Parameters
    ----------
    kind : {"absolute", "signed", "symmetric"}
        The distance d. "absolute": |a - b|. "signed": a - b, so that the value is the change in the mean score.
        "symmetric": |a - b| divided by the mean of |a| and |b|. This quotient lies between 0 and 2; 0/0 counts as 0.
    scale : {"probability", "real"}
        Whether both scores are probabilities or any numbers up to 2**100 ("real").

    Notes
    -----
    The columns are `y_score` and `baseline`; labels are not needed. Each difference is rounded once, and their sum is
    exact. "symmetric" is TFMA's `SymmetricPredictionDifference`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PredictionDifference().update(y_score=[0.25, 0.5, 0.75], baseline=[0.5, 0.5, 0.25]).compute()
    0.25
    >>> sm.PredictionDifference(kind="symmetric").update(y_score=[0.25, 0.5], baseline=[0.75, 0.5]).compute()
    0.5
    """

    about = About(
        formula=("weighted mean over rows of |a - b|, for the scores a and b of the two models"),
        cost="1.1 kB; about 6 ns per row",
        positional_columns=("y_score", "baseline"),
    )

    kind: str = setting(default="absolute", choices=("absolute", "signed", "symmetric"))
    scale: str = setting(default="probability", choices=("probability", "real"))

    @property
    def name(self) -> str:
        return self.about.tag if self.kind == "absolute" else f"{self.about.tag}_{self.kind}"

    @property
    def term(self) -> str:
        return "difference" if self.kind == "signed" else self.kind

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over="models", scale=self.scale)


class FlipRate(RowMean[float], tag="flip_rate"):
    """Flip rate: the share of rows for which two models make different decisions at a threshold.

    Formula: (sum of the weights w of rows with (a >= t) != (b >= t)) / sum(w), for the score a, the baseline score b
    and the threshold t. `direction` selects which rows the numerator counts.

    Parameters
    ----------
    threshold : float
        A decision is positive if `score >= threshold`. The threshold is rounded to the dtype of the scores.
    direction : {"any", "up", "down", "both", "neither"}
        Which rows the numerator counts. "any": rows with different decisions. "up": rows that only the new model
        predicts to be positive. "down": rows that only the baseline predicts to be positive. "both" and "neither": rows
        that both models, or neither of them, predict to be positive.
    scale : {"probability", "real"}
        Whether both scores are probabilities or any numbers up to 2**100 ("real").

    Notes
    -----
    The columns are `y_score` and `baseline`; labels are not needed. Counts are exact. TFMA's `BooleanFlipRates` are the
    same shares of all rows, except that TFMA treats a score equal to the threshold as a negative decision. The value is
    undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FlipRate().update(y_score=[0.25, 0.5, 0.75, 0.9], baseline=[0.5, 0.5, 0.25, 0.8]).compute()
    0.5
    """

    about = About(
        formula=(
            "weighted share of rows with (a >= t) != (b >= t), for the scores a and b of the models and threshold t"
        ),
        cost="1.1 kB; about 12 ns per row",
        bound="exact: the value is computed from counts and rounded once",
        positional_columns=("y_score", "baseline"),
        interval_scale="logit",
        interval_methods=("wilson", "delta"),
    )

    threshold: float = setting(default=0.5)
    direction: str = setting(default="any", choices=("any", "up", "down", "both", "neither"))
    scale: str = setting(default="probability", choices=("probability", "real"))

    @property
    def name(self) -> str:
        way = "" if self.direction == "any" else f"_{self.direction}"
        return f"{self.about.tag}{way}" + ("" if self.threshold == 0.5 else f"@{self.threshold:g}")

    @property
    def term(self) -> str:
        return f"{self.direction}@{self.threshold!r}"

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over="models", scale=self.scale)
