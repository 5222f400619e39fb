"""Means over rows of what two columns, or two vectors, say of one another; `pair_terms` has the terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import Distribution, Logit
from ..batch.kinds import COUNT, Need, label, matrix, score, weight
from ..batch.numbers import Exponent, number
from ..numerics.settings import setting
from .pair_terms import POWERS, TERMS, TermRows, parsed
from .row_means import RowMeans

__all__ = ["RowTerms"]

OCTAVES = 200
"""Of numbers: squares of sums of products of any two are floats."""
WIDER = {"baselines": ("labels", "baselines"), "logs": ("logs", "rates"), "positive": ("amounts",)}
"""Whose terms these columns have, too."""


OVER = ("labels", "baselines", "models", "rates", "logs", "amounts", "positive", "values", "lags", "intervals")
WIDE = ("distributions", "vectors", "forecasts", "ratings")


class RowTerms(RowMeans, tag="row_terms"):
    """Sums over rows of terms of two columns or two vectors.

    Parameters
    ----------
    terms : tuple of str
        What is summed, weighted, as `TERMS` lists it; numbers stand behind it, "focal@2.0:0.25".
    over : str
        What a row has: "labels", a 0/1 label and a score; "baselines", and a second score, `baseline`; "models", two
        scores; "rates", a target of at least 0 and a prediction that is, or "logs", its logarithm; "amounts", a target of
        at least 0 and a prediction above, "positive", both above; "values", one number above 0; "lags", a target, a
        prediction and an earlier value, `lag`; "intervals", a target, `lower` and `upper`; "distributions", two rows of
        probabilities; "vectors", two rows of numbers; "forecasts", a target and a row of predictions; "ratings", how many
        raters chose each class.
    scale : {"probability", "logit", "real"}
        What the scores are.
    eps : float, optional
        What probabilities are kept away from 0 and 1, by default as `ScoreSums`; the least share of a distribution.
    width : int, optional
        How long vectors are.

    Notes
    -----
    Terms are computed in float64, every operation rounded once, whole columns at a time. 1.1 kB a term.
    """

    over: str = setting(default="labels", choices=OVER + WIDE)
    scale: str = setting(default="probability", choices=("probability", "logit", "real"))
    eps: float | None = setting(default=None, above=0.0, high=0.25)
    width: int | None = setting(default=None, low=1, high=1 << 16)

    choices = tuple(TERMS)

    when_wide: ClassVar[str] = (
        "The differences between the targets are lost in the rounding of their terms: use R2, whose sums are exact and "
        "which is nearly equal where targets are far from 0 and close together."
    )
    """What to use where the bounds of a metric of these terms are wide."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = WIDER.get(self.over, (self.over,))
        if strange := [t for t in self.terms if TERMS[t.partition("@")[0]].over not in known]:
            raise ValueError(f"{type(self).__name__}: {strange[0]!r} is no term over {self.over}")
        if (self.over in WIDE) != (self.width is not None):
            raise ValueError(f"{type(self).__name__}: width= is for {', '.join(WIDE)}, which need it")

    def needs(self) -> tuple[Need, ...]:
        def scored(role: str) -> Need:
            return score(role) if self.scale == "probability" else Need(role, Logit())

        def pair(need: Callable[[str], Need]) -> tuple[Need, ...]:
            return need("y_true"), need("y_pred")

        width = self.width or 1
        each: dict[str, Callable[[], tuple[Need, ...]]] = {
            "labels": lambda: (label(), scored("y_score")),
            "baselines": lambda: (label(), scored("y_score"), scored("baseline")),
            "models": lambda: (scored("y_score"), scored("baseline")),
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

    def values_of(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        rows, parts = TermRows(columns, self.scale, self.eps), [parsed(term) for term in self.terms]
        return np.column_stack([TERMS[name].of(rows, *numbers) for name, numbers in parts])

    def most_of(self, term: str) -> float:
        return TERMS[parsed(term)[0]].most

    def signed(self, term: str) -> bool:
        return TERMS[parsed(term)[0]].signed
