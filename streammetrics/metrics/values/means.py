"""Geometric and harmonic means of positive values."""

from __future__ import annotations

from typing import Any, ClassVar

from ...collect.metric import Metric, no_weight_reason
from ...numerics.elementary import exp
from ...numerics.exact import to_float
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Reading
from ...statistics.row_terms import RowTerms
from ..standard_errors import delta

__all__ = ["GeometricMean", "HarmonicMean"]


class MeanOfTerms(Metric[RowTerms, float]):
    """Base class for means that are computed from the mean of transformed values, such as logarithms."""

    about = About(interval_scale="log", cost="about 1.7 kB; 20 ns per row")

    term: ClassVar[str]

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over="values")

    def gradient(self, mean: Any) -> tuple[Any, ...]:
        """Return the derivative of the value with respect to the mean of the transformed values."""
        raise NotImplementedError

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        return delta(
            reading.value, state.estimate_means(self.term), self.gradient, about_of(self).interval_scale, method
        )

    def reason(self, state: RowTerms) -> str | None:
        return no_weight_reason(state)


class GeometricMean(MeanOfTerms, tag="geometric_mean"):
    """Geometric mean: the exponential of the weighted mean of the logarithms of positive values.

    Formula: exp(sum(w * log(v)) / sum(w)), for weights w and values v.

    Notes
    -----
    Each logarithm is rounded to float64, and the sum is exact: the relative error is about 2**-52 times the largest
    |log v|. A value of 0 or below raises an error. The definition matches scipy's `gmean`. The value is undefined if
    there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.GeometricMean().update([1, 10, 100]).compute(), 12)
    10.0
    """

    about = About(
        formula="exp(sum(w log(v)) / sum(w))",
        bound="relative error of about 2**-52 times the largest |log v|, because logarithms are rounded",
    )

    term = "log"

    def of(self, state: RowTerms) -> float:
        return float(exp(to_float(state.total("log"), state.weight())))

    def gradient(self, mean: Any) -> tuple[Any, ...]:
        return (exp(mean),)


class HarmonicMean(MeanOfTerms, tag="harmonic_mean"):
    """Harmonic mean: the weighted harmonic mean of positive values, such as speeds or ratios with equal numerators.

    Formula: sum(w) / sum(w / v), for weights w and values v.

    Notes
    -----
    Each 1 / v is rounded to float64, and the sum is exact: the relative error is at most 2**-52. A value of 0 or below
    raises an error. The definition matches scipy's `hmean`. The value is undefined if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HarmonicMean().update([40, 60]).compute()
    48.0
    """

    about = About(
        formula="sum(w) / sum(w / v)", bound="relative error of at most 2**-52, because each 1 / v is rounded"
    )

    term = "inverse"

    def of(self, state: RowTerms) -> float:
        return to_float(state.weight(), state.total("inverse"))

    def gradient(self, mean: Any) -> tuple[Any, ...]:
        return (-1 / mean**2,)
