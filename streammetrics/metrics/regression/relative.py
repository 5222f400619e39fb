"""Relative errors of numeric predictions: percentage errors and logarithmic errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...collect.metric import Metric
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient
from ...statistics.extremes import Extremes
from ...statistics.regression import RegressionSums
from .errors import SummedLoss
from .outputs import root

__all__ = ["MAPE", "MSLE", "RMSLE", "SMAPE", "WMAPE", "MaxRelativeError", "MeanRelativeError"]

NO_PRODUCTS = (
    "the state does not contain the products of errors and targets; Sharded(..., unit=) has an "
    "interval, and so have MAE and MAPE"
)


class MAPE(SummedLoss, tag="mape"):
    """Mean absolute percentage error: the mean of |error| / |target|, as a fraction or in percent.

    Formula: weighted mean of |p - y| / |y| over the rows whose target is not 0.

    Parameters
    ----------
    zero : {"skip", "epsilon"}
        How to treat targets of 0. "skip": leave them out; `explain()["skipped"]` gives their number. "epsilon": the
        denominator is 2**-52, as in scikit-learn's `mean_absolute_percentage_error`.
    percent : bool
        Whether the value is in percent: 100 times the fraction.

    Notes
    -----
    The term of each row is computed in float64, and the sum of the terms is exact. The value is undefined if there are
    no rows, or if all targets are 0 and skipped.

    Examples
    --------
    >>> import streammetrics as sm
    >>> mape = sm.MAPE().update([4, 2, 0], [3, 3, 1])
    >>> mape.compute(), mape.explain()["skipped"]
    (0.375, 1)
    >>> sm.MAPE(percent=True).update([4, 2], [3, 3]).compute()
    37.5
    """

    about = About(formula="mean of |p - y| / |y| over targets that are not 0")

    zero: str = setting(default="skip", choices=("skip", "epsilon"))
    percent: bool = setting(default=False)

    @property
    def terms(self) -> tuple[str, ...]:
        return ("relative", "nonzero") if self.zero == "skip" else ("guarded",)

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        weight = state.total("nonzero", output) if self.zero == "skip" else state.weight()
        return Quotient(_percent(self.percent) * state.total(self.terms[0], output), weight)

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        percent = _percent(self.percent)
        if self.zero == "epsilon":
            return (percent,)
        return percent / means[1], -percent * means[0] / means[1] / means[1]

    def reason(self, state: RegressionSums) -> str | None:
        any_target = self.zero == "epsilon" or any(state.total("nonzero", i) for i in range(state.outputs))
        return super().reason(state) or (None if any_target else "all targets are 0")


class MeanRelativeError(SummedLoss, tag="mean_relative_error"):
    """Signed mean relative error (mean percentage error): positive if predictions are too high on average.

    Formula: weighted mean of (p - y) / |y| over the rows whose target is not 0. Without the sign, this is MAPE.

    Parameters
    ----------
    percent : bool
        Whether the value is in percent: 100 times the fraction.

    Notes
    -----
    Targets of 0 are left out, and `explain()["skipped"]` gives their number. The term of each row is computed in
    float64, and the sum of the terms is exact. The value is undefined if there are no rows, or if all targets are 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MeanRelativeError().update([4, 2, 0], [3, 3, 1]).compute()
    0.125
    """

    about = About(best=None, formula="mean of (p - y) / |y| over targets that are not 0")

    percent: bool = setting(default=False)

    interval_within = (-math.inf, math.inf)

    @property
    def terms(self) -> tuple[str, ...]:
        return "signed_relative", "nonzero"

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        total, weight = (state.total(term, output) for term in self.terms)
        return Quotient(_percent(self.percent) * total, weight)

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        percent = _percent(self.percent)
        return percent / means[1], -percent * means[0] / means[1] / means[1]

    def reason(self, state: RegressionSums) -> str | None:
        any_target = any(state.total("nonzero", i) for i in range(state.outputs))
        return super().reason(state) or (None if any_target else "all targets are 0")


class MaxRelativeError(Metric[Extremes, float], tag="max_relative_error"):
    """Maximum relative error: the largest |error| / |target|, over rows whose target and weight are not 0.

    Formula: max |p - y| / |y|.

    Notes
    -----
    The value is exact, except that the difference p - y and the quotient are each rounded once. It is undefined if
    there are no rows, or if all targets are 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaxRelativeError().update([4, 2, 0], [3, 3, 1]).compute()
    0.5
    """

    about = About(
        best="low",
        no_interval_reason="a maximum has no standard error; MAPE has an interval",
        formula="max |p - y| / |y|",
        cost="100 bytes; about 3 ns per row",
        bound="exact except for rounding: the difference and the quotient are each rounded once",
    )

    def make_state(self) -> Extremes:
        return Extremes(columns=("y_true", "y_pred"), relative=True)

    def of(self, state: Extremes) -> float:
        return state.largest()

    def reason(self, state: Extremes) -> str | None:
        unseen = math.isnan(state.largest())
        return ("all targets, or all weights, are 0" if int(state.rows) else "no rows") if unseen else None


class SMAPE(SummedLoss, tag="smape"):
    """Symmetric mean absolute percentage error: errors relative to the mean of |y| and |p|, in [0, 2] or in percent.

    Formula: weighted mean of 2 * |p - y| / (|y| + |p|). The term of a row is 0 if y and p are both 0.

    Parameters
    ----------
    percent : bool
        Whether the value is in percent: 100 times the fraction.

    Notes
    -----
    The state and the cost are the same as for `MAE`. The definition is that of the M4 competition (Makridakis et al.,
    2020) and of torchmetrics. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SMAPE().update([3, 0, 1], [1, 0, 1]).compute()
    0.3333333333333333
    """

    about = About(formula="mean of 2 |p - y| / (|y| + |p|)")

    percent: bool = setting(default=False)

    @property
    def terms(self) -> tuple[str, ...]:
        return ("symmetric",)

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        return Quotient(_percent(self.percent) * state.total("symmetric", output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        return (_percent(self.percent),)


class WMAPE(SummedLoss, tag="wmape"):
    """Weighted absolute percentage error: the sum of absolute errors over the sum of absolute targets.

    Formula: sum(w * |p - y|) / sum(w * |y|), for weights w, predictions p and targets y.

    Parameters
    ----------
    percent : bool
        Whether the value is in percent: 100 times the fraction.

    Notes
    -----
    The definition is that of torchmetrics' `WeightedMeanAbsolutePercentageError`. The value is undefined if there are
    no rows, or if all targets are 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.WMAPE().update([4, 2, 2], [3, 3, 2]).compute()
    0.25
    """

    about = About(formula="sum(w |p - y|) / sum(w |y|)")

    squares: bool = setting(default=False, choices=(False,))
    percent: bool = setting(default=False)

    @property
    def terms(self) -> tuple[str, ...]:
        return "absolute", "target"

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        return Quotient(_percent(self.percent) * state.total("absolute", output), state.total("target", output))

    def estimate(self, reading: Any, method: str) -> Estimate:
        return Estimate(reading.value, reason=NO_PRODUCTS)

    def reason(self, state: RegressionSums) -> str | None:
        any_target = any(state.total("target", i) for i in range(state.outputs))
        return super().reason(state) or (None if any_target else "all targets are 0")


class MSLE(SummedLoss, tag="msle"):
    """Mean squared logarithmic error: the mean squared difference of log(1 + target) and log(1 + prediction).

    Formula: sum(w * (log(1 + p) - log(1 + y))**2) / sum(w), for weights w, predictions p and targets y.

    Notes
    -----
    Logarithms are accurate to 1 ulp, and the sum is exact. The definition is that of scikit-learn's
    `mean_squared_log_error`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.MSLE().update([3, 5, 2.5, 7], [2.5, 5, 4, 8]).compute(), 6)
    0.03973
    """

    about = About(
        formula="sum(w (log(1 + p) - log(1 + y))^2) / sum(w)",
        cost="550 bytes per term and output; about 5 ns per row",
    )

    domain = "log1p"

    @property
    def terms(self) -> tuple[str, ...]:
        return ("log_squared",)


class RMSLE(MSLE, tag="rmsle"):
    """Root mean squared logarithmic error: the square root of MSLE, for targets and predictions above -1.

    Formula: sqrt(sum(w * (log(1 + p) - log(1 + y))**2) / sum(w)), for weights w, predictions p and targets y. Some
    texts omit the square; that formula is meaningless.

    Notes
    -----
    The state and the cost are the same as for `MSLE`. The definition is that of scikit-learn's
    `root_mean_squared_log_error`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.RMSLE().update([3, 5, 2.5, 7], [2.5, 5, 4, 8]).compute(), 6)
    0.199324
    """

    about = About(formula="sqrt(sum(w (log(1 + p) - log(1 + y))^2) / sum(w))")

    def of(self, state: RegressionSums, output: int = 0) -> Limits | None:
        return root(state.total(self.terms[0], output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        return (0.5 / np.sqrt(means[0]),)


def _percent(percent: bool) -> int:
    return 100 if percent else 1
