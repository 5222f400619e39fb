"""Quantiles of absolute and signed errors, including the median and the maximum."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...statistics.extremes import Extremes
from ...statistics.value_order import quantile_of
from ...statistics.values import ValueHistogram
from ..quantile_interval import BOUND, woodruff
from .outputs import BoundedOutputMetric, OutputMetric

__all__ = ["ErrorQuantile", "MaxError", "MedianAbsoluteError", "ResidualQuantile"]

PAIR = ("y_true", "y_pred")


class ErrorQuantile(BoundedOutputMetric[ValueHistogram], tag="error_quantile"):
    """Error quantile: a quantile of the absolute errors, with certified bounds.

    Formula: the q-quantile of |p - y|, as defined in `Quantile`.

    Parameters
    ----------
    q : float
        The level of the quantile, in [0, 1]: at 0.9, nine absolute errors in ten do not exceed the value.
    bits : int
        The resolution: the histogram has up to 2**(bits + 6) buckets, and no bucket is wider than 2**-bits times the
        values in it.

    Notes
    -----
    The bounds, the resolution and the memory are the same as for `Quantile`. The absolute error |p - y| is rounded
    once. Processing a row takes about 2 ns for each output. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ErrorQuantile(q=0.75).update([1, 2, 3, 4], [1, 3, 5, 8]).compute()
    3.0
    """

    about = About(
        interval_methods=("woodruff",),
        formula="q-quantile of |p - y|",
        cost="16 bytes per bucket, up to 8,192 buckets per output at 7 bits; about 2 ns per row; 1 ms to compute",
        bound=BOUND,
        quantile=About.per_instance(lambda metric: metric.q),
    )

    q: float = setting(default=0.9, low=0.0, high=1.0, kw_only=False)
    bits: int = setting(default=7, low=1, high=14)

    signed: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"error_quantile@{self.q:g}"

    def make_state(self) -> ValueHistogram:
        return ValueHistogram(columns=PAIR, signed=self.signed, bits=self.bits, num_outputs=self.num_outputs)

    def of(self, state: ValueHistogram, output: int = 0) -> Limits | None:
        return quantile_of(state, self.q, output)

    def estimate(self, reading: Any, method: str) -> Estimate:
        return woodruff(reading.state, self.q, reading.output, reading.value, method)


class ResidualQuantile(ErrorQuantile, tag="residual_quantile"):
    """Residual quantile: a quantile of the signed errors, with certified bounds.

    Formula: the q-quantile of p - y, as defined in `Quantile`.

    Parameters
    ----------
    q : float
        The level of the quantile, in [0, 1]: nine errors in ten lie between the quantiles at 0.05 and 0.95.

    Notes
    -----
    The bounds and the cost are the same as for `ErrorQuantile`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ResidualQuantile(q=0.5).update([1, 2, 3], [0, 1, 8]).compute()
    -1.0
    """

    about = About(best=None, formula="q-quantile of p - y")

    signed = True

    @property
    def name(self) -> str:
        return f"residual_quantile@{self.q:g}"


class MedianAbsoluteError(ErrorQuantile, tag="median_absolute_error"):
    """Median absolute error: the median of |prediction - target|, with certified bounds.

    Formula: median of |p - y|; if two values are in the middle, their mean.

    Notes
    -----
    The bounds, the state and the cost are the same as for `ErrorQuantile`. The definition is that of scikit-learn's
    `median_absolute_error`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MedianAbsoluteError().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.5
    """

    about = About(formula="median of |p - y|")

    q: float = setting(default=0.5, choices=(0.5,))

    @property
    def name(self) -> str:
        return "median_absolute_error"


class MaxError(OutputMetric[Extremes], tag="max_error"):
    """Maximum error: the largest absolute error, over rows whose weight is not 0.

    Formula: max |p - y|.

    Notes
    -----
    The value is exact, except that |p - y| is rounded once. The definition is that of scikit-learn's `max_error`. The
    value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaxError().update([3, 2, 7, 1], [4, 2, 7, 1]).compute()
    1.0
    """

    about = About(
        no_interval_reason="a maximum has no standard error; ErrorQuantile(q=), with q close to 1, has an interval",
        formula="max |p - y|",
        cost="100 bytes; about 1 ns per row",
        bound="exact except for rounding: the error is rounded once",
    )

    def make_state(self) -> Extremes:
        return Extremes(columns=PAIR, num_outputs=self.num_outputs)

    def of(self, state: Extremes, output: int = 0) -> float:
        return state.largest(output)

    def reason(self, state: Extremes) -> str | None:
        unseen = math.isnan(state.largest())
        return ("the weights are all zero" if int(state.rows) else "no rows") if unseen else None
