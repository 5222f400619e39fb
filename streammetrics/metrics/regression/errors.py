"""Losses of predicted numbers: absolute, squared, asymmetric and robust errors.

All are computed from the exact sums of one `RegressionSums` state, and rounded once. With `num_outputs=`, targets and
predictions are matrices with one column per output.
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
from ...statistics.regression import RegressionSums, squared_term
from ..standard_errors import of_moments
from .outputs import OutputMetric, root

__all__ = ["MAE", "MSE", "RMSE", "WMAE", "HuberLoss", "PinballLoss"]


class SummedLoss(OutputMetric[RegressionSums]):
    """Base class for metrics that are computed from exact sums of row losses.

    Parameters
    ----------
    squares : bool
        Whether the squares of the losses are also summed; `interval()` needs them. The absolute values of the losses must
        then be 0 or lie between 2**-240 and 2**240.
    """

    about = About(
        cost="550 bytes per term and output; about 1 ns per row and term",
        bound=(
            "exact except for rounding: the terms of rows are computed in float64 and summed exactly, and the result is "
            "rounded once"
        ),
    )

    squares: bool = setting(default=False)

    domain = "real"
    interval_within: ClassVar[tuple[float, float]] = (0.0, math.inf)

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the losses that the state sums over rows, such as "absolute" for absolute errors."""
        return ("absolute",)

    def make_state(self) -> RegressionSums:
        terms = (*self.terms, squared_term(self.terms[0])) if self.squares else self.terms
        return RegressionSums(terms=terms, domain=self.domain, num_outputs=self.num_outputs)

    def of(self, state: RegressionSums, output: int = 0) -> Limits | Quotient | float | None:
        return Quotient(state.total(self.terms[0], output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        """Return the derivatives of the value with respect to the means of its terms, for the delta method.

        `means` contains the mean of the numerator. If the denominator is a second term rather than the weight, it also
        contains the mean of the denominator.
        """
        return (1.0,)

    def estimate(self, reading: Any, method: str) -> Estimate:
        state, terms = reading.state, self.terms
        spread = state.estimate_means(terms[0], reading.output, per=terms[1] if len(terms) > 1 else None)
        return of_moments(self, state, reading.value, spread, self.gradient, self.interval_within)


class MAE(SummedLoss, tag="mae"):
    """Mean absolute error: the mean distance between predictions and targets.

    Formula: sum(w * |p - y|) / sum(w), for weights w, predictions p and targets y.

    Notes
    -----
    The difference d = p - y is computed in float64 and rounded once. The sum is exact for numbers of any size, and the
    mean is rounded once. Processing a row takes about 1 ns, and each output takes 550 bytes; in a collection, MAE
    shares one state with MSE, RMSE and others. The definition matches scikit-learn's `mean_absolute_error`. The value
    is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MAE().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.5
    >>> sm.MAE(num_outputs=2, multioutput="raw_values").update([[0.5, 1], [-1, 1]], [[0, 2], [-1, 2]]).compute()
    array([0.25, 1.  ])
    """

    about = About(formula="sum(w |p - y|) / sum(w)")


class MSE(SummedLoss, tag="mse"):
    """Mean squared error: the mean square of the differences between predictions and targets.

    Formula: sum(w * (p - y)**2) / sum(w), for weights w, predictions p and targets y.

    Notes
    -----
    The difference d = p - y and its square d**2 are rounded once each; the sum of squares is exact, and the mean is
    rounded once. State and cost are the same as for `MAE`. The definition matches scikit-learn's
    `mean_squared_error`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MSE().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.375
    """

    about = About(formula="sum(w (p - y)^2) / sum(w)")

    @property
    def terms(self) -> tuple[str, ...]:
        return ("squared",)


class RMSE(MSE, tag="rmse"):
    """Root mean squared error: the square root of MSE, in the unit of the targets.

    Formula: sqrt(sum(w * (p - y)**2) / sum(w)), for weights w, predictions p and targets y. For several outputs, the
    root is taken for each output before outputs are averaged.

    Notes
    -----
    The root of the exact mean squared error is rounded once. For several outputs, each root is computed to 120 bits,
    and the mean of the roots is rounded once. State and cost are the same as for `MAE`. The definition matches
    scikit-learn's `root_mean_squared_error`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.RMSE().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.612372
    """

    about = About(formula="sqrt(sum(w (p - y)^2) / sum(w))")

    def of(self, state: RegressionSums, output: int = 0) -> Limits | None:
        return root(state.total(self.terms[0], output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        return (0.5 / np.sqrt(means[0]),)


class WMAE(SummedLoss, tag="wmae"):
    """Weighted mean absolute error: MAE with sample weights, as in forecasting competitions.

    Formula: sum(w * |p - y|) / sum(w), for weights w, predictions p and targets y; `divisor="rows"` gives sum(w * |p -
    y|) / n.

    Parameters
    ----------
    divisor : {"weights", "rows"}
        The divisor of the sum: the total weight (as in scikit-learn, Keras and Kaggle) or the number of rows n.

    Notes
    -----
    State and cost are the same as for `MAE`. The value equals MAE unless `divisor="rows"`. It is undefined without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.WMAE().update([1, 2, 3], [1, 3, 1], sample_weight=[1, 5, 2]).compute()
    1.125
    >>> sm.WMAE(divisor="rows").update([1, 2, 3], [1, 3, 1], sample_weight=[1, 5, 2]).compute()
    3.0
    """

    about = About(
        formula="sum(w |p - y|) / sum(w), or sum(w |p - y|) / rows",
        # A row of weight k is not the same as k rows if the divisor is the number of rows.
        weights_are_counts=About.per_instance(lambda metric: metric.divisor == "weights"),
    )

    divisor: str = setting(default="weights", choices=("weights", "rows"))

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        divisor = state.weight() if self.divisor == "weights" else int(state.rows)
        return Quotient(state.total("absolute", output), divisor)

    def reason(self, state: RegressionSums) -> str | None:
        return None if self.divisor == "rows" and int(state.rows) else super().reason(state)


class PinballLoss(SummedLoss, tag="pinball_loss"):
    """Pinball loss: the loss of a quantile forecast; the true alpha-quantile minimizes its expectation.

    Formula: sum(w * (alpha * max(y - p, 0) + (1 - alpha) * max(p - y, 0))) / sum(w), for weights w, targets y and
    forecasts p.

    Parameters
    ----------
    alpha : float
        The level of the forecast quantile, in [0, 1].

    Notes
    -----
    State and cost are the same as for `MAE`. The definition matches scikit-learn's `mean_pinball_loss`. The value is
    undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.PinballLoss(alpha=0.1).update([1, 2, 3], [0, 2, 3]).compute(), 6)
    0.033333
    """

    about = About(formula="sum(w (alpha max(y - p, 0) + (1 - alpha) max(p - y, 0))) / sum(w)")

    alpha: float = setting(default=0.5, low=0.0, high=1.0)

    @property
    def name(self) -> str:
        return f"pinball_loss@{self.alpha:g}"

    @property
    def terms(self) -> tuple[str, ...]:
        return (f"pinball@{self.alpha!r}",)


class HuberLoss(SummedLoss, tag="huber_loss"):
    """Huber loss: quadratic for small errors, linear for large ones.

    Formula: sum(w * h(p - y)) / sum(w), for weights w, predictions p and targets y, with h(d) = d**2 / 2 for |d| <=
    delta, and delta * (|d| - delta / 2) for larger |d|.

    Parameters
    ----------
    delta : float
        The size of the error at which the loss changes from quadratic to linear.

    Notes
    -----
    State and cost are the same as for `MAE`. The definition matches the Huber loss of PyTorch and Keras. Source:
    Huber (1964). The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HuberLoss().update([0, 0], [0.5, 3.0]).compute()
    1.3125
    """

    about = About(formula="mean of d^2 / 2 if |d| <= delta, and otherwise of delta (|d| - delta / 2), with d = p - y")

    delta: float = setting(default=1.0, low=2.0**-400, high=2.0**400)

    @property
    def name(self) -> str:
        return "huber_loss" if self.delta == 1.0 else f"huber_loss@{self.delta:g}"

    @property
    def terms(self) -> tuple[str, ...]:
        return (f"huber@{self.delta!r}",)
