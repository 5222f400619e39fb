"""Quantiles of errors: absolute, signed, the median, the largest."""

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
from ..order import BOUND, woodruff
from .outputs import BoundedOutputMetric, OutputMetric

__all__ = ["ErrorQuantile", "MaxError", "MedianAbsoluteError", "ResidualQuantile"]

PAIR = ("y_true", "y_pred")


class ErrorQuantile(BoundedOutputMetric[ValueHistogram], tag="error_quantile"):
    """Quantile of the absolute errors, with certified bounds.

    Formula: the q-quantile of |p - y|, as for Quantile.

    Parameters
    ----------
    q : float
        Which quantile, in [0, 1]: 0.9 is the error that nine rows in ten do not pass.
    bits : int
        As for Quantile.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Bound, resolution and memory as Quantile. |p - y| is rounded once. About 2 ns a row and output. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ErrorQuantile(q=0.75).update([1, 2, 3, 4], [1, 3, 5, 8]).compute()
    3.0
    """

    about = About(
        interval_methods=("woodruff",),
        formula="q-quantile of |p - y|",
        cost="16 bytes a bucket, of which an output has up to 8,192 at 7 bits; about 2 ns a row; 1 ms to compute",
        bound=BOUND,
        quantile=About.per_instance(lambda metric: metric.q),
    )

    q: float = setting(default=0.9, low=0.0, high=1.0)
    bits: int = setting(default=7, low=1, high=14)

    signed: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"error_quantile@{self.q:g}"

    def make_state(self) -> ValueHistogram:
        return ValueHistogram(columns=PAIR, signed=self.signed, bits=self.bits, num_outputs=self.num_outputs)

    def of(self, state: ValueHistogram, output: int = 0) -> Limits | None:
        return quantile_of(state, self.q, output)

    def estimate(self, found: Any, method: str) -> Estimate:
        return woodruff(found.state, self.q, found.output, found.value, method)


class ResidualQuantile(ErrorQuantile, tag="residual_quantile"):
    """Quantile of the errors with their sign, with certified bounds: how far predictions are off, and in which direction.

    Formula: the q-quantile of p - y, as for Quantile.

    Parameters
    ----------
    q : float
        Which quantile, in [0, 1]: between 0.05 and 0.95 lie nine rows in ten.
    bits, num_outputs, multioutput, on_invalid
        As for ErrorQuantile.

    Notes
    -----
    Bound and cost as ErrorQuantile. Undefined without rows.

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
    """Median absolute error, with certified bounds.

    Formula: median of |p - y|; the mean of the two in the middle if they are two.

    Parameters
    ----------
    bits : int
        As for Quantile.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Bound, state and cost as ErrorQuantile. Definition as scikit-learn's `median_absolute_error`. Undefined without rows.

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
    """Largest absolute error, over rows whose weight is not 0.

    Formula: max |p - y|.

    Parameters
    ----------
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Exact: |p - y| rounded once. About 1 ns a row, 100 bytes. Definition as scikit-learn's `max_error`. Undefined without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaxError().update([3, 2, 7, 1], [4, 2, 7, 1]).compute()
    1.0
    """

    about = About(
        no_interval_reason="an extreme has no standard error; ErrorQuantile(q=) near it has one",
        formula="max |p - y|",
        cost="100 bytes; about 1 ns a row",
        bound="exact: the error rounded once",
    )

    def make_state(self) -> Extremes:
        return Extremes(columns=PAIR, num_outputs=self.num_outputs)

    def of(self, state: Extremes, output: int = 0) -> float:
        return state.largest(output)

    def reason(self, state: Extremes) -> str | None:
        unseen = math.isnan(state.largest())
        return ("the weights are all zero" if int(state.rows) else "no rows") if unseen else None
