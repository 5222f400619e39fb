"""Errors of predicted numbers relative to their size: percentage errors and errors of logarithms."""

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
    "no products of errors and targets are kept: MAE and MAPE have an interval, Sharded(..., unit=) one of this"
)


class MAPE(SummedLoss, tag="mape"):
    """Mean absolute percentage error: a fraction, or percent.

    Formula: mean of |p - y| / |y|, weighted, over the rows whose target is not 0.

    Parameters
    ----------
    zero : {"skip", "epsilon"}
        Targets of 0 are left out and counted (`explain()["skipped"]`); or divide by 2**-52 there, as scikit-learn's
        `mean_absolute_percentage_error` does.
    percent : bool
        Times 100.
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    Terms are computed in float64, the sum is exact. About 2 ns a row, 1.2 kB an output. Undefined without rows, and if
    all targets are 0 and skipped.

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
        seen = self.zero == "epsilon" or any(state.total("nonzero", i) for i in range(state.outputs))
        return super().reason(state) or (None if seen else "all targets are 0")


class MeanRelativeError(SummedLoss, tag="mean_relative_error"):
    """Mean relative error with its sign, or mean percentage error: above 0 the model predicts too much for its targets.

    Formula: mean of (p - y) / |y|, weighted, over the rows whose target is not 0. Without the sign it is MAPE.

    Parameters
    ----------
    percent : bool
        Times 100.
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    Targets of 0 are left out and counted (`explain()["skipped"]`). Terms are computed in float64, the sum is exact. About
    2 ns a row, 1.2 kB an output. Undefined without rows, and if all targets are 0.

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
        seen = any(state.total("nonzero", i) for i in range(state.outputs))
        return super().reason(state) or (None if seen else "all targets are 0")


class MaxRelativeError(Metric[Extremes, float], tag="max_relative_error"):
    """Largest relative error, over rows whose target and weight are not 0.

    Formula: max |p - y| / |y|.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Exact but for the rounding of one error. About 3 ns a row, 100 bytes. Undefined without rows, and if all targets are 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaxRelativeError().update([4, 2, 0], [3, 3, 1]).compute()
    0.5
    """

    about = About(
        best="low",
        no_interval_reason="an extreme has no standard error; MAPE has one",
        formula="max |p - y| / |y|",
        cost="100 bytes; about 3 ns a row",
        bound="exact: the error rounded twice",
    )

    def make_state(self) -> Extremes:
        return Extremes(columns=("y_true", "y_pred"), relative=True)

    def of(self, state: Extremes) -> float:
        return state.largest()

    def reason(self, state: Extremes) -> str | None:
        unseen = math.isnan(state.largest())
        return ("all targets, or all weights, are 0" if int(state.rows) else "no rows") if unseen else None


class SMAPE(SummedLoss, tag="smape"):
    """Symmetric mean absolute percentage error: a fraction in [0, 2], or percent.

    Formula: mean of 2 |p - y| / (|y| + |p|), weighted; 0 where both are 0.

    Parameters
    ----------
    percent : bool
        Times 100.
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    State and cost as MAE. Convention of the M4 competition (Makridakis et al., 2020) and of torchmetrics. Undefined
    without rows.

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
    """Weighted absolute percentage error: the total error over the total of the targets.

    Formula: sum w |p - y| / sum w |y|.

    Parameters
    ----------
    percent : bool
        Times 100.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    About 2 ns a row, 1.2 kB an output. Definition as torchmetrics' `WeightedMeanAbsolutePercentageError`. Undefined
    without rows, and if all targets are 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.WMAPE().update([4, 2, 2], [3, 3, 2]).compute()
    0.25
    """

    about = About(formula="sum w |p - y| / sum w |y|")

    squares: bool = setting(default=False, choices=(False,))
    percent: bool = setting(default=False)

    @property
    def terms(self) -> tuple[str, ...]:
        return "absolute", "target"

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        return Quotient(_percent(self.percent) * state.total("absolute", output), state.total("target", output))

    def estimate(self, found: Any, method: str) -> Estimate:
        return Estimate(found.value, reason=NO_PRODUCTS)

    def reason(self, state: RegressionSums) -> str | None:
        seen = any(state.total("target", i) for i in range(state.outputs))
        return super().reason(state) or (None if seen else "all targets are 0")


class MSLE(SummedLoss, tag="msle"):
    """Mean squared logarithmic error, of numbers above -1.

    Formula: sum w (log(1 + p) - log(1 + y))**2 / sum w.

    Parameters
    ----------
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    Logarithms within 1 ulp; the sum is exact. About 5 ns a row, 600 bytes an output. Definition as scikit-learn's
    `mean_squared_log_error`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.MSLE().update([3, 5, 2.5, 7], [2.5, 5, 4, 8]).compute(), 6)
    0.03973
    """

    about = About(formula="sum w (log(1 + p) - log(1 + y))^2 / sum w")

    domain = "log1p"

    @property
    def terms(self) -> tuple[str, ...]:
        return ("log_squared",)


class RMSLE(MSLE, tag="rmsle"):
    """Root mean squared logarithmic error, of numbers above -1.

    Formula: sqrt(sum w (log(1 + p) - log(1 + y))**2 / sum w). Without the square, as some texts have it, it means nothing.

    Parameters
    ----------
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    State and cost as MSLE. Definition as scikit-learn's `root_mean_squared_log_error`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.RMSLE().update([3, 5, 2.5, 7], [2.5, 5, 4, 8]).compute(), 6)
    0.199324
    """

    about = About(formula="sqrt(sum w (log(1 + p) - log(1 + y))^2 / sum w)")

    def of(self, state: RegressionSums, output: int = 0) -> Limits | None:
        return root(state.total(self.terms[0], output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        return (0.5 / np.sqrt(means[0]),)


def _percent(percent: bool) -> int:
    return 100 if percent else 1
