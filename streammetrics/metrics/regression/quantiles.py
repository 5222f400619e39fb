"""Quantiles of errors: absolute, signed, the median, the largest."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ...collect.interval import Estimate
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...statistics.extremes import Extremes
from ...statistics.values import ValueHistogram
from ..order import BOUND, below, quantile, value_below, woodruff
from .outputs import OutputMetric

__all__ = ["ErrorQuantile", "MaxError", "MedianAbsoluteError", "ResidualQuantile"]

NAN = float("nan")
PAIR = ("y_true", "y_pred")


class ErrorQuantile(OutputMetric[ValueHistogram], tag="error_quantile"):
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

    q: float = setting(default=0.9, low=0.0, high=1.0)
    bits: int = setting(default=7, low=1, high=14)

    signed: ClassVar[bool] = False

    formula = "q-quantile of |p - y|"
    cost = "16 bytes a bucket, of which an output has up to 8,192 at 7 bits; about 2 ns a row; 1 ms to compute"
    bound = BOUND

    @property
    def name(self) -> str:
        return f"error_quantile@{self.q:g}"

    def make_state(self) -> ValueHistogram:
        return ValueHistogram(columns=PAIR, signed=self.signed, bits=self.bits, num_outputs=self.num_outputs)

    methods = ("woodruff",)

    def of_output(self, state: ValueHistogram, output: int) -> Limits | None:
        return quantile(state, self.q, output)

    def below_of(self, whole: ValueHistogram, shards: Any, at: Any) -> Any:
        return below(whole, shards, at, self.q)

    def value_below(self, state: ValueHistogram, share: float) -> float:
        return value_below(state, share)

    def estimate_of_output(self, state: ValueHistogram, output: int, value: float, method: str) -> Estimate:
        return woodruff(state, self.q, output, value, method)

    def bounds_of(self, state: ValueHistogram) -> tuple[Any, Any]:
        found = [quantile(state, self.q, i) for i in range(state.outputs)]
        if self.multioutput == "raw_values":
            low, high = zip(*((NAN, NAN) if f is None else f.outward() for f in found), strict=True)
            return np.array(low), np.array(high)
        mean = Limits.mean(found)
        return (NAN, NAN) if mean is None else mean.outward()


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

    signed = True
    best = None

    formula = "q-quantile of p - y"

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

    q: float = setting(default=0.5, choices=(0.5,))

    formula = "median of |p - y|"

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

    instead = "an extreme has no standard error; ErrorQuantile(q=) near it has one"
    formula = "max |p - y|"
    cost = "100 bytes; about 1 ns a row"
    bound: ClassVar[str] = "exact: the error rounded once"

    def make_state(self) -> Extremes:
        return Extremes(columns=PAIR, num_outputs=self.num_outputs)

    def of_output(self, state: Extremes, output: int) -> Limits | None:
        found = state.largest(output)
        return None if math.isnan(found) else Limits.exactly(Fraction(found))

    def reason_of(self, state: Extremes) -> str | None:
        unseen = math.isnan(state.largest())
        return ("the weights are all zero" if int(state.rows) else "no rows") if unseen else None
