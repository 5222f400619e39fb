"""The value of the labels of a row, and its mean over rows: `average="samples"`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

from ...collect.interval import Estimate
from ...collect.reading import NAN, Reading
from ...numerics.exact import to_float
from ...statistics.row_means import LabelRows
from ..chance import delta
from .scored import ScoredValue

__all__ = ["BY_ROWS", "ByRows"]

BY_ROWS = "samples"


class ByRows(ScoredValue):
    """A metric of two classes that rows of several labels have, too."""

    _row_terms: ClassVar[tuple[str, str]]
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
        return LabelRows(terms=self._row_terms, num_labels=self.num_labels)

    def reading(self, state: Any) -> Reading:
        return mean_over_rows(self, state) if isinstance(state, LabelRows) else super().reading(state)


def mean_over_rows(metric: ByRows, state: LabelRows) -> Reading:
    """Return what a metric of the labels of a row says about all rows."""
    total, weight = _sums(metric, state)
    value = to_float(total, weight)

    def reason() -> str | None:
        if not state.facts()["rows"]:
            return "no rows"
        return None if weight else "undefined for every row"

    return Reading(state, value, reason=reason, estimate=lambda method: _estimate(metric, state, value))


def _sums(metric: ByRows, state: LabelRows) -> tuple[Fraction, Fraction]:
    """The sum over rows, and what the rows weigh that it is of."""
    found, known = (state.total(term) for term in metric._row_terms)
    if math.isnan(metric.undefined):
        return found, known
    whole = Fraction(state.weight())
    return found + Fraction(metric.undefined) * (whole - known), whole


def _estimate(metric: ByRows, state: LabelRows, value: float) -> Estimate:
    """Return the mean over rows with its standard error."""

    def gradient(mean: Any, known: Any) -> tuple[Any, Any]:
        """Return how the value changes with the mean of the term, and the share of rows that are defined."""
        if math.isnan(metric.undefined):
            return 1 / known, -mean / known**2
        return 1.0, -metric.undefined

    return delta(value, state.spread_of_parts(*metric._row_terms), gradient, "logit", "delta", (0, 1))
