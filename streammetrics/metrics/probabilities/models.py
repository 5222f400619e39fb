"""What two models say of the same rows: how far their scores are apart, and how often the decision is another one."""

from __future__ import annotations

from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.row_terms import RowTerms
from .row_losses import RowMean

__all__ = ["FlipRate", "PredictionDifference"]


class PredictionDifference(RowMean[float], tag="prediction_difference"):
    """Prediction difference: the mean distance between the scores of two models, row by row.

    Formula: (1/W) sum w d, d = a - b, |a - b|, or 2 |a - b| / (|a| + |b|), of the score a and that of the baseline b.

    Parameters
    ----------
    kind : {"absolute", "signed", "symmetric"}
        |a - b|; a - b, which is what the mean moves by; or relative to the mean of both, from 0 to 2, with 0/0 = 0.
    scale : {"probability", "real"}
        What both scores are; "real" takes any up to 2**100.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Columns `y_score` and `baseline`; no labels. Differences are rounded once each, their sum is exact. 1.1 kB, 20 ns a
    row. "symmetric" is TFMA's `SymmetricPredictionDifference`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PredictionDifference().update(y_score=[0.25, 0.5, 0.75], baseline=[0.5, 0.5, 0.25]).compute()
    0.25
    >>> sm.PredictionDifference(kind="symmetric").update(y_score=[0.25, 0.5], baseline=[0.75, 0.5]).compute()
    0.5
    """

    about = About(formula="(1/W) sum w |a - b|", positional_columns=("y_score", "baseline"))

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
    """Flip rate: the share of rows that two models decide differently at a threshold.

    Formula: sum w [(a >= t) != (b >= t)] / sum w, of the score a and that of the baseline b; or of the rows
    that `direction` names.

    Parameters
    ----------
    threshold : float
        From which score on both say yes; rounded to the dtype of the scores.
    direction : {"any", "up", "down", "both", "neither"}
        Which rows count: those that flip, or that the new model made positive, or negative; or to which both, or neither,
        say yes.
    scale : {"probability", "real"}
        As for PredictionDifference.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Columns `y_score` and `baseline`; no labels. Exact counts. 1.1 kB, 20 ns a row. TFMA's `BooleanFlipRates`, all of which
    are shares of all rows, says yes above the threshold only. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FlipRate().update(y_score=[0.25, 0.5, 0.75, 0.9], baseline=[0.5, 0.5, 0.25, 0.8]).compute()
    0.5
    """

    about = About(
        formula="sum w [(a >= t) != (b >= t)] / sum w",
        bound="exact: counts, rounded once",
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
