"""Rarer losses of predicted numbers: distances of any power, log-cosh, and hits of what passes a threshold."""

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
    """Log-cosh loss: half the square of small errors, and the size of large ones less log 2.

    Formula: sum w log(cosh(p - y)) / sum w.

    Parameters
    ----------
    num_outputs, multioutput, squares, on_invalid
        As for MAE.

    Notes
    -----
    Terms within a few ulp, also where the error is small; the sum is exact. About 10 ns a row; state as MAE. Definition as
    torchmetrics' `LogCoshError` and Keras' `LogCoshError`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.LogCosh().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.168502
    """

    about = About(formula="mean of log(cosh(p - y))", cost="550 bytes an output; about 10 ns a row")

    @property
    def terms(self) -> tuple[str, ...]:
        return ("log_cosh",)


class MinkowskiDistance(SummedLoss, tag="minkowski_distance"):
    """Minkowski distance of the column of predictions from that of targets: at p = 2 Euclid's, at p = 1 Manhattan's.

    Formula: (sum w |y_pred - y_true|**p)**(1/p): a sum over all rows, no mean.

    Parameters
    ----------
    p : float
        The power, 1 to 16; numbers are 0 or between 2**-(900/p - 2) and 2**(900/p - 2) in size.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Powers within a few ulp, their sum is exact, and so is the root within a few ulp; at p = 1 and 2 it is rounded once.
    About 20 ns a row; state as MAE. Definition as torchmetrics' `MinkowskiDistance`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MinkowskiDistance(p=2).update([1, 2, 3], [4, 6, 3]).compute()
    5.0
    """

    about = About(
        extensive=True,
        formula="(sum w |y_pred - y_true|^p)^(1/p)",
        cost="550 bytes an output; about 20 ns a row",
        bound="exact sum of rounded terms; its root within a few ulp",
        no_interval_reason="a distance grows with the rows: MAE, RMSE have an interval",
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
        if not total or self.p in (1.0, 2.0):  # 0 has no logarithm, of which other powers are made
            return root(total, Fraction(1)) if self.p == 2.0 else Quotient(total, 1)
        return float(elementary.power(np.float64(to_float(total)), np.float64(1.0 / self.p)))


class CriticalSuccessIndex(SummedLoss, tag="critical_success_index"):
    """Critical success index, or threat score: hits over hits, misses and false alarms of what reaches a threshold.

    Formula: sum w [y >= t and p >= t] / sum w [y >= t or p >= t].

    Parameters
    ----------
    threshold : float
        t, rounded to the dtype of the columns as they were given, of two to the narrower.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    An exact quotient, rounded once. About 2 ns a row, 1.1 kB an output. Definition as torchmetrics'
    `CriticalSuccessIndex`, which has 0 where nothing reaches the threshold; here that is undefined.

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
        formula="sum w [y >= t and p >= t] / sum w [y >= t or p >= t]",
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

    def estimate(self, found: Any, method: str) -> Estimate:
        some = found.state.total(self.terms[1], found.output)
        if not some:
            return Estimate(found.value)
        if found.state.excess is not None:
            return Estimate(found.value, reason="rows are weighted: Sharded(..., unit=) has an interval")
        return share(int(some), found.value, method)

    def reason(self, state: RegressionSums) -> str | None:
        seen = any(state.total(self.terms[1], i) for i in range(state.outputs))
        return super().reason(state) or (None if seen else "nothing reaches the threshold")
