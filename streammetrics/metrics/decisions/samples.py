"""The mean over rows of a ratio that each row of labels has: `average="samples"`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...collect.about import about_of
from ...collect.interval import Estimate
from ...collect.reading import Reading
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...statistics.row_means import LabelRows, cut_term
from ...statistics.spread import spread
from ..averages import AVERAGES
from ..chance import delta
from .counted import DecisionRatio

__all__ = ["SampledRatio"]


class SampledRatio(DecisionRatio):
    """A ratio that each row of labels has, too: of the labels decided and the true ones."""

    average: str | None = setting(default="macro", choices=(*AVERAGES, "samples"))

    row_term: ClassVar[str] = "row_f"
    """The term of `LabelRows`."""
    row_beta: ClassVar[float] = 1.0
    """The beta of F that the ratio is, or by which a row is without a value; a setting of that name goes before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "samples" and self.num_labels is None:
            raise ValueError(f'{type(self).__name__}: average="samples" is of rows of labels: give num_labels=')

    def make_state(self) -> Any:
        if self.average != "samples":
            return super().make_state()
        assert self.num_labels is not None
        terms = tuple(term for one in self.at_each or [self] for term in one._row_terms)
        return LabelRows(terms=terms, num_labels=self.num_labels, column=self._column)

    @property
    def _row_terms(self) -> tuple[str, str]:
        """The term of a row, and whether it has none."""
        cut = cut_term(self._cut, self.top_k, above=self._cuts_top)
        beta = float(getattr(self, "beta", self.row_beta))
        first = f"row_f@{beta!r}" if self.row_term == "row_f" else self.row_term
        return f"{first}@{cut}", f"lack_f@{beta!r}@{cut}"

    def reading(self, state: Any) -> Reading:
        by_rows = isinstance(state, LabelRows) and not self.at_each
        return mean_over_rows(self, state) if by_rows else super().reading(state)


def mean_over_rows(metric: SampledRatio, state: LabelRows) -> Reading:
    """Return what a ratio of the labels of a row says about all rows."""
    total, weight = _sums(metric, state)
    value = to_float(total, weight)

    def reason() -> str | None:
        return None if weight else "no rows" if not state.rows else "0/0 in every row"

    return Reading(
        state,
        value,
        reason=reason,
        estimate=lambda method: _estimate(metric, state, value),
        details=lambda: {"undefined": to_float(state.total(metric._row_terms[1]))},
    )


def _sums(metric: SampledRatio, state: LabelRows) -> tuple[Any, Any]:
    """Return the sum over rows, and the weight that it is over; rows without a value count `zero_division`, or nothing."""
    total, lacking = (state.total(term) for term in metric._row_terms)
    if math.isnan(metric.zero_division):
        return total, state.weight() - lacking
    return total + int(metric.zero_division) * lacking, state.weight()


def _estimate(metric: SampledRatio, state: LabelRows, value: float) -> Estimate:
    """Return the mean over rows with its standard error, from the squares of what each row adds."""
    terms = metric._row_terms
    products = {(-1, -1): state.weight_squared(), (0, 1): 0}  # a row without a value counts 0 for it
    for i, term in enumerate(terms):
        products |= {(-1, i): state.weight_squared(term), (i, i): state.square(term)}
    found = spread(state.weight(), [state.total(term) for term in terms], products)

    def gradient(ratio: Any, lacking: Any) -> tuple[Any, Any]:
        """Return how the value changes with the mean of the term, and the share of rows that lack one."""
        if math.isnan(metric.zero_division):
            return 1 / (1 - lacking), ratio / (1 - lacking) / (1 - lacking)
        return 1.0, metric.zero_division

    return delta(value, found, gradient, about_of(metric).interval_scale, "delta")
