"""Losses of predicted numbers: absolute and squared errors, and their asymmetric and robust kin.

All read one `RegressionSums`: exact sums, rounded once. With `num_outputs=` targets are matrices, rows x outputs.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient
from ...statistics.regression import RegressionSums, square_of
from ..standard_errors import of_moments
from .outputs import OutputMetric, root

__all__ = ["MAE", "MSE", "RMSE", "WMAE", "HuberLoss", "PinballLoss"]


class SummedLoss(OutputMetric[RegressionSums]):
    """A metric that reads exact sums of losses."""

    about = About(
        cost="550 bytes a term and output; about 1 ns a row and term",
        bound="exact: terms computed in float64, summed exactly, rounded once",
    )

    squares: bool = setting(default=False)

    domain = "real"
    interval_within: ClassVar[tuple[float, float]] = (0.0, math.inf)

    @property
    def terms(self) -> tuple[str, ...]:
        """The sums that the metric reads."""
        return ("absolute",)

    def make_state(self) -> RegressionSums:
        terms = (*self.terms, square_of(self.terms[0])) if self.squares else self.terms
        return RegressionSums(terms=terms, domain=self.domain, num_outputs=self.num_outputs)

    def of(self, state: RegressionSums, output: int = 0) -> Limits | Quotient | float | None:
        return Quotient(state.total(self.terms[0], output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        """Return how the value changes with the mean of the first term, and that of the second, which it is divided by."""
        return (1.0,)

    def estimate(self, found: Any, method: str) -> Estimate:
        state, terms = found.state, self.terms
        spread = state.spread_of(terms[0], found.output, per=terms[1] if len(terms) > 1 else None)
        return of_moments(self, state, found.value, spread, self.gradient, self.interval_within)


class MAE(SummedLoss, tag="mae"):
    """Mean absolute error.

    Formula: sum w |p - y| / sum w.

    Parameters
    ----------
    num_outputs : int, optional
        The width of matrices of targets and predictions; by default both are columns.
    multioutput : {"uniform_average", "raw_values"}
        The mean over outputs, of which none is rounded before, or an array of one value each.
    squares : bool
        Whether squares of the losses are kept, too, for `interval()`; then numbers are within 2**-240 and 2**240.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    d = p - y is computed in float64, rounded once; the sum is exact, whatever the sizes, and the mean rounded once.
    About 1 ns a row, 600 bytes an output; in a collection with MSE, RMSE and others one state. Definition as
    scikit-learn's `mean_absolute_error`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MAE().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.5
    >>> sm.MAE(num_outputs=2, multioutput="raw_values").update([[0.5, 1], [-1, 1]], [[0, 2], [-1, 2]]).compute()
    array([0.25, 1.  ])
    """

    about = About(formula="sum w |p - y| / sum w")


class MSE(SummedLoss, tag="mse"):
    """Mean squared error.

    Formula: sum w (p - y)**2 / sum w.

    Parameters
    ----------
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    d = p - y and d**2 are rounded once each, their sum is exact, the mean rounded once. State and cost as MAE.
    Definition as scikit-learn's `mean_squared_error`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MSE().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.375
    """

    about = About(formula="sum w (p - y)^2 / sum w")

    @property
    def terms(self) -> tuple[str, ...]:
        return ("squared",)


class RMSE(MSE, tag="rmse"):
    """Root mean squared error.

    Formula: sqrt(sum w (p - y)**2 / sum w), of each output before outputs are averaged.

    Parameters
    ----------
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    The root of what MSE is, rounded once; of several outputs the mean of their roots to 120 bits is. State and cost as
    MAE. Definition as scikit-learn's `root_mean_squared_error`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.RMSE().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.612372
    """

    about = About(formula="sqrt(sum w (p - y)^2 / sum w)")

    def of(self, state: RegressionSums, output: int = 0) -> Limits | None:
        return root(state.total(self.terms[0], output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        return (0.5 / np.sqrt(means[0]),)


class WMAE(SummedLoss, tag="wmae"):
    """Weighted mean absolute error, as in forecasting competitions.

    Formula: sum w |p - y| / sum w; `divisor="rows"` gives sum w |p - y| / n.

    Parameters
    ----------
    divisor : {"weights", "rows"}
        The total weight (scikit-learn, Keras, Kaggle), or the number of rows.
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    State and cost as MAE, which it equals unless the divisor is the rows. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.WMAE().update([1, 2, 3], [1, 3, 1], sample_weight=[1, 5, 2]).compute()
    1.125
    >>> sm.WMAE(divisor="rows").update([1, 2, 3], [1, 3, 1], sample_weight=[1, 5, 2]).compute()
    3.0
    """

    about = About(
        formula="sum w |p - y| / sum w, or / rows",
        # If rows are the divisor, a row of weight k is one row.
        weights_are_counts=About.per_instance(lambda metric: metric.divisor == "weights"),
    )

    divisor: str = setting(default="weights", choices=("weights", "rows"))

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        divisor = state.weight() if self.divisor == "weights" else int(state.rows)
        return Quotient(state.total("absolute", output), divisor)

    def reason(self, state: RegressionSums) -> str | None:
        return None if self.divisor == "rows" and int(state.rows) else super().reason(state)


class PinballLoss(SummedLoss, tag="pinball_loss"):
    """Pinball loss: what a quantile forecast is judged by; the true alpha-quantile makes it smallest.

    Formula: sum w (alpha max(y - p, 0) + (1 - alpha) max(p - y, 0)) / sum w.

    Parameters
    ----------
    alpha : float
        The quantile that is forecast, in [0, 1].
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    State and cost as MAE. Definition as scikit-learn's `mean_pinball_loss`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.PinballLoss(alpha=0.1).update([1, 2, 3], [0, 2, 3]).compute(), 6)
    0.033333
    """

    about = About(formula="sum w (a max(y - p, 0) + (1 - a) max(p - y, 0)) / sum w")

    alpha: float = setting(default=0.5, low=0.0, high=1.0)

    @property
    def name(self) -> str:
        return f"pinball_loss@{self.alpha:g}"

    @property
    def terms(self) -> tuple[str, ...]:
        return (f"pinball@{self.alpha!r}",)


class HuberLoss(SummedLoss, tag="huber_loss"):
    """Huber loss: squared near zero, absolute far from it.

    Formula: sum w h(p - y) / sum w, with h(d) = d**2 / 2 for |d| <= delta, and delta (|d| - delta / 2) beyond.

    Parameters
    ----------
    delta : float
        Where the loss turns from squared to absolute.
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    State and cost as MAE. Definition as torch's and Keras' Huber loss; source: Huber (1964). Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HuberLoss().update([0, 0], [0.5, 3.0]).compute()
    1.3125
    """

    about = About(formula="mean of d^2 / 2 for |d| <= delta, delta (|d| - delta / 2) beyond")

    delta: float = setting(default=1.0, low=2.0**-400, high=2.0**400)

    @property
    def name(self) -> str:
        return "huber_loss" if self.delta == 1.0 else f"huber_loss@{self.delta:g}"

    @property
    def terms(self) -> tuple[str, ...]:
        return (f"huber@{self.delta!r}",)
