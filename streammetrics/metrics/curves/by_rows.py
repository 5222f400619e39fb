"""The value of the labels of a row, and its mean over rows: `average="samples"`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

from ...collect.interval import Estimate
from ...collect.metric import Metric
from ...numerics.exact import to_float
from ...statistics.row_means import LabelRows
from ..chance import delta
from .scored import ScoredValue

__all__ = ["BY_ROWS", "ByRows"]

BY_ROWS = "samples"
NAN = float("nan")


class ByRows(ScoredValue):
    """A metric of two classes that rows of several labels have, too."""

    row_terms: ClassVar[tuple[str, str]]
    """The terms of `LabelRows`: the value of a row, 0 where it is undefined; and whether it is defined."""

    @property
    def undefined(self) -> float:
        """What stands for a value that is not defined; NaN if nothing does."""
        return NAN

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == BY_ROWS and self.num_labels is None:
            raise ValueError(
                f'{type(self).__name__}: average="samples" is the mean over rows of labels: give num_labels='
            )

    def make_state(self) -> Any:
        if self.average != BY_ROWS:
            return super().make_state()
        assert self.num_labels is not None
        return LabelRows(terms=self.row_terms, num_labels=self.num_labels)

    def of(self, state: Any) -> Any:
        return to_float(*self._sums(state)) if isinstance(state, LabelRows) else super().of(state)

    def _sums(self, state: LabelRows) -> tuple[Fraction, Fraction]:
        """The sum over rows, and what the rows weigh that it is of."""
        found, known = (state.total(term) for term in self.row_terms)
        if math.isnan(self.undefined):
            return found, known
        whole = Fraction(state.weight())
        return found + Fraction(self.undefined) * (whole - known), whole

    def bounds_of(self, state: Any) -> tuple[Any, Any]:
        return Metric[Any, Any].bounds_of(self, state) if isinstance(state, LabelRows) else super().bounds_of(state)

    def reason_of(self, state: Any) -> str | None:
        if not isinstance(state, LabelRows):
            return super().reason_of(state)
        if not state.facts()["rows"]:
            return "no rows"
        return None if self._sums(state)[1] else "undefined for every row"

    def details(self, state: Any) -> dict[str, Any]:
        return Metric[Any, Any].details(self, state) if isinstance(state, LabelRows) else super().details(state)

    def estimate_of(self, state: Any, method: str) -> Estimate:
        if not isinstance(state, LabelRows):
            return super().estimate_of(state, method)

        def slopes(mean: Any, known: Any) -> tuple[Any, Any]:
            if math.isnan(self.undefined):
                return 1 / known, -mean / known**2
            return 1.0, -self.undefined

        return delta(self.of(state), state.spread_of_parts(*self.row_terms), slopes, "logit", "delta", (0, 1))
