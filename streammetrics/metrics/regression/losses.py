"""Less common losses of predicted numbers: log-cosh, Minkowski distance, and the critical success index at a threshold."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ...numerics import elementary
from ...numerics.exact import Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient
from ...statistics.regression import RegressionSums
from ..standard_errors import share
from .errors import SummedLoss
from .outputs import root

__all__ = ["CriticalSuccessIndex", "LogCosh", "MinkowskiDistance"]


class LogCosh(SummedLoss, tag="log_cosh"):
    """Log-cosh loss: about error^2 / 2 for a small error, and about |error| - log(2) for a large error.

    Formula: sum(w * log(cosh(p - y))) / sum(w), for weights w, predictions p and targets y.

    Notes
    -----
    The term of each row is accurate to a few ulp, even for small errors, and the sum of the terms is exact. Processing
    a row takes about 10 ns; the state is the same as for `MAE`. The definition matches `LogCoshError` in torchmetrics
    and Keras. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.LogCosh().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.168502
    """

    about = About(formula="mean of log(cosh(p - y))", cost="550 bytes per output; about 10 ns per row")

    @property
    def terms(self) -> tuple[str, ...]:
        return ("log_cosh",)


class MinkowskiDistance(SummedLoss, tag="minkowski_distance"):
    """Minkowski distance between the columns of predictions and targets: Euclidean at p = 2, Manhattan at p = 1.

    Formula: (sum(w * |y_pred - y_true|**p))**(1 / p), for weights w. This is a sum over all rows, not a mean.

    Parameters
    ----------
    p : float
        The power, from 1 to 16. Targets and predictions must be 0, or between 2**-(900/p - 2) and 2**(900/p - 2) in
        absolute value.

    Notes
    -----
    Powers are accurate to a few ulp, and their sum is exact. The root is accurate to a few ulp; at p = 1 and 2, the
    value is rounded once. Processing a row takes about 20 ns; the state is the same as for `MAE`. The definition
    matches torchmetrics' `MinkowskiDistance`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MinkowskiDistance(p=2).update([1, 2, 3], [4, 6, 3]).compute()
    5.0
    """

    about = About(
        extensive=True,
        formula="(sum(w |y_pred - y_true|^p))^(1/p), p the power",
        cost="550 bytes per output; about 20 ns per row",
        bound="the sum of the rounded terms is exact; the root of the sum has an error of a few ulp",
        no_interval_reason="a distance grows with the number of rows; MAE and RMSE have intervals",
    )

    p: float = setting(default=2.0, low=1.0, high=16.0)
    squares: bool = setting(default=False, choices=(False,))

    @property
    def name(self) -> str:
        return f"minkowski_distance@{self.p:g}"

    @property
    def terms(self) -> tuple[str, ...]:
        return (f"minkowski@{self.p!r}",)

    def of(self, state: RegressionSums, output: int = 0) -> Limits | Quotient | float | None:
        total = state.total(self.terms[0], output)
        if not state.weight():
            return None
        # The result is exact if the sum is 0 or the power is 1 or 2. Other roots use a logarithm, which is undefined
        # at 0.
        if not total or self.p in (1.0, 2.0):
            return root(total, Fraction(1)) if self.p == 2.0 else Quotient(total, 1)
        return float(elementary.power(np.float64(to_float(total)), np.float64(1.0 / self.p)))


class CriticalSuccessIndex(SummedLoss, tag="critical_success_index"):
    """Critical success index (threat score): hits / (hits + misses + false alarms); values >= `threshold` are events.

    Formula: (weight of rows with y >= t and p >= t) / (weight of rows with y >= t or p >= t), for targets y,
    predictions p and the threshold t.

    Parameters
    ----------
    threshold : float
        The threshold t. It is rounded to the dtype of the columns passed to `update`, or to the narrower dtype if the
        two columns differ.

    Notes
    -----
    The value is an exact quotient, rounded once. The definition matches torchmetrics' `CriticalSuccessIndex`, except
    that the value is undefined if no number reaches the threshold, whereas torchmetrics returns 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CriticalSuccessIndex(threshold=0.5).update([0.2, 0.7, 0.9, 0.4], [0.4, 0.9, 0.2, 0.6]).compute()
    0.3333333333333333
    """

    about = About(
        best="high",
        interval_methods=("wilson", "delta"),
        interval_scale="logit",
        formula="sum(w [y >= t and p >= t]) / sum(w [y >= t or p >= t]), t the threshold",
    )

    threshold: float = setting(default=0.5)
    squares: bool = setting(default=False, choices=(False,))

    @property
    def name(self) -> str:
        return f"critical_success_index@{self.threshold:g}"

    @property
    def terms(self) -> tuple[str, ...]:
        return f"hit@{self.threshold!r}", f"either@{self.threshold!r}"

    def of(self, state: RegressionSums, output: int = 0) -> Quotient:
        return Quotient(*(state.total(term, output) for term in self.terms))

    def estimate(self, reading: Any, method: str) -> Estimate:
        some = reading.state.total(self.terms[1], reading.output)
        if not some:
            return Estimate(reading.value)
        if reading.state.excess is not None:
            return Estimate(
                reading.value,
                reason=(
                    "the rows have weights, and the state does not contain their squares; Sharded(..., unit=) has an "
                    "interval"
                ),
            )
        # The value is a share of the rows in which the target or the prediction reaches the threshold, so it has the
        # standard error of a binomial proportion.
        return share(int(some), reading.value, method)

    def reason(self, state: RegressionSums) -> str | None:
        reached = any(state.total(self.terms[1], i) for i in range(state.outputs))
        return super().reason(state) or (None if reached else "nothing reaches the threshold")
