"""Exact sums of terms: values, such as a loss, that are computed for each row from one or more columns.

The module `pair_terms` defines the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import Distribution, Logit
from ..batch.kinds import COUNT, Need, label, matrix, score, weight
from ..batch.numbers import Exponent, number
from ..numerics.settings import setting
from .pair_terms import POWERS, TERMS, TermRows, parse_term
from .row_means import RowMeans

__all__ = ["RowTerms"]

OCTAVES = 200
"""Numbers of some columns must lie between 2**-OCTAVES and 2**OCTAVES.

The square of a sum of products of such numbers then does not overflow float64.
"""
WIDER = {"baselines": ("labels", "baselines"), "logs": ("logs", "rates"), "positive": ("amounts",)}
"""Maps a value of the setting `over` to the kinds of rows whose terms are available.

For example, for rows with a label, a score and a baseline ("baselines"), the terms of rows with a label and a score
("labels") are also available. A value of `over` that is missing here has only its own terms.
"""


OVER = ("labels", "baselines", "models", "rates", "logs", "amounts", "positive", "values", "lags", "intervals")
WIDE = ("distributions", "vectors", "forecasts", "ratings")


class RowTerms(RowMeans, tag="row_terms"):
    """Exact sums of terms: values, such as a loss, that are computed for each row from one or more columns.

    Parameters
    ----------
    terms : tuple of str
        The terms whose weighted sums are kept, such as "brier" or "focal@2.0:0.25" (with two parameters). The dict
        `pair_terms.TERMS` lists all terms.
    over : str
        The kind of rows, that is, the columns from which all terms are computed:

        - "labels": a 0/1 label and a score
        - "baselines": a 0/1 label, a score, and the score of a baseline
        - "models": the score of a model, and the score of a baseline
        - "rates": a target and a prediction, both at least 0
        - "logs": a target of at least 0, and the logarithm of the prediction
        - "amounts": a target of at least 0, and a prediction above 0
        - "positive": a target and a prediction, both above 0
        - "values": one number above 0
        - "lags": a target, a prediction, and an earlier value of the target
        - "intervals": a target, and the lower and the upper bound of its prediction
        - "distributions": two vectors of probabilities
        - "vectors": two vectors of numbers
        - "forecasts": a target and a vector of predictions
        - "ratings": the number of raters who chose each class
    scale : {"probability", "logit", "real"}
        The scale of the scores.
    eps : float, optional
        Predicted probabilities are clipped to [eps, 1 - eps]. In a predicted distribution, probabilities below eps are
        replaced with eps. The default is the machine epsilon of float32 for float32 and half-precision columns, and
        that of float64 for others, as in `ScoreSums`.
    width : int, optional
        The length of the vectors, if rows have vectors.

    Notes
    -----
    Terms are computed in float64 with numpy. A term takes 1.1 kB.
    """

    over: str = setting(default="labels", choices=OVER + WIDE)
    scale: str = setting(default="probability", choices=("probability", "logit", "real"))
    eps: float | None = setting(default=None, above=0.0, high=0.25)
    width: int | None = setting(default=None, low=1, high=1 << 16)

    choices = tuple(TERMS)

    when_wide: ClassVar[str] = (
        "The targets are so close together that rounding hides their differences: use R2, whose sums are exact and "
        "whose value is nearly equal for such targets."
    )
    """The advice that a metric gives if rounding of the terms makes its certified bounds wide."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = WIDER.get(self.over, (self.over,))
        if strange := [t for t in self.terms if TERMS[t.partition("@")[0]].row_kind not in known]:
            raise ValueError(f"{type(self).__name__}: the term {strange[0]!r} is not available with over={self.over!r}")
        if (self.over in WIDE) != (self.width is not None):
            raise ValueError(
                f"{type(self).__name__}: width= is required if over= is one of {', '.join(WIDE)}, and not allowed "
                f"otherwise; found over={self.over!r} and width={self.width!r}"
            )

    def needs(self) -> tuple[Need, ...]:
        def score_need(role: str) -> Need:
            return score(role) if self.scale == "probability" else Need(role, Logit())

        def pair(need: Callable[[str], Need]) -> tuple[Need, ...]:
            return need("y_true"), need("y_pred")

        width = self.width or 1
        each: dict[str, Callable[[], tuple[Need, ...]]] = {
            "labels": lambda: (label(), score_need("y_score")),
            "baselines": lambda: (label(), score_need("y_score"), score_need("baseline")),
            "models": lambda: (score_need("y_score"), score_need("baseline")),
            "rates": lambda: pair(lambda role: number(role, low=0.0, octaves=OCTAVES)),
            "logs": lambda: (number("y_true", low=0.0, octaves=OCTAVES), Need("y_pred", Exponent())),
            "amounts": lambda: (number("y_true", low=0.0, octaves=POWERS), number("y_pred", above=0.0, octaves=POWERS)),
            "positive": lambda: pair(lambda role: number(role, above=0.0, octaves=POWERS)),
            "values": lambda: (number("value", above=0.0),),
            "lags": lambda: tuple(number(role) for role in ("y_true", "y_pred", "lag")),
            "intervals": lambda: tuple(number(role) for role in ("y_true", "lower", "upper")),
            "forecasts": lambda: (number("y_true"), matrix(number("y_pred"), width)),
            "ratings": lambda: (matrix(Need("ratings", COUNT), width),),
            "distributions": lambda: pair(lambda role: Need(role, Distribution(width))),
            "vectors": lambda: pair(lambda role: matrix(number(role, octaves=OCTAVES), width)),
        }
        return (*each[self.over](), weight())

    def compute_terms(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        rows, parts = TermRows(columns, self.scale, self.eps), [parse_term(term) for term in self.terms]
        return np.column_stack([TERMS[name].compute(rows, *numbers) for name, numbers in parts])

    def max_term(self, term: str) -> float:
        return TERMS[parse_term(term)[0]].max_value

    def is_signed(self, term: str) -> bool:
        return TERMS[parse_term(term)[0]].signed
