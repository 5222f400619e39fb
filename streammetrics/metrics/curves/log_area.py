"""The area under the ROC curve at small false positive rates, on a logarithmic FPR axis."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.elementary import log
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...statistics.scores import ScoresByLabel
from .points import ScoreSteps, from_none
from .scored_metric import ScoredValue

__all__ = ["LogAUC"]

Floats = NDArray[np.float64]
# An upper bound on the rounding error of the value, which is computed in float64. The method `of` multiplies this
# number by a factor that depends on the size of the logarithms.
ROUNDING = 2.0**-47


class LogAUC(ScoredValue, tag="log_auc"):
    """Area under the ROC curve with a logarithmic FPR axis: the mean TPR between two false positive rates.

    Formula: integral of TPR d log(FPR) from min_fpr to max_fpr, divided by log(max_fpr / min_fpr), computed with
    trapezoids between the points of the curve. TPR is interpolated at both ends.

    Parameters
    ----------
    min_fpr, max_fpr : float
        The range of false positive rates. Each factor of ten in this range has the same weight.

    Notes
    -----
    The definition matches torchmetrics' LogAUC with `fpr_range=(min_fpr, max_fpr)`. The bounds use the lowest and
    highest TPR inside each bucket, and allow for the rounding of logarithms. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> area = sm.LogAUC(min_fpr=0.25, max_fpr=1.0).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> area.compute()
    0.75
    """

    about = About(
        formula="(integral of TPR d log(FPR) from a to b) / log(b / a), a and b two values of FPR",
        bound="the areas under the lowest and the highest possible curve inside each bucket",
        cost="as for AUC",
        value_range=(0, 1),
    )

    min_fpr: float = setting(default=0.001, low=1e-300, high=1.0)
    max_fpr: float = setting(default=0.1, above=0.0, high=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.min_fpr < self.max_fpr:
            raise ValueError(f"LogAUC: min_fpr={self.min_fpr:g} must be below max_fpr={self.max_fpr:g}")

    @property
    def name(self) -> str:
        return self._with_average(f"log_auc@{self.min_fpr:g}-{self.max_fpr:g}")

    def of(self, state: ScoresByLabel) -> Limits | None:
        if self.reason(state) is not None:
            return None
        tpr, fpr = map(from_none, ScoreSteps.of(state).shares())
        rates = np.array([self.min_fpr, self.max_fpr])
        at = np.clip(np.searchsorted(fpr, rates, side="right") - 1, 0, len(fpr) - 2)
        inside = np.flatnonzero((fpr > rates[0]) & (fpr <= rates[1]))
        x = np.r_[rates[0], fpr[inside], rates[1]]
        logs: Any = log(x)
        step = np.where(fpr[at + 1] > fpr[at], fpr[at + 1] - fpr[at], 1.0)
        ends = tpr[at] + np.clip((rates - fpr[at]) / step, 0.0, 1.0) * (tpr[at + 1] - tpr[at])
        y = np.r_[ends[0], tpr[inside], ends[1]]
        widths = np.diff(logs) / (logs[-1] - logs[0])
        value = Fraction(math.fsum((widths * (y[1:] + y[:-1]) / 2).tolist()))
        found = Limits(value, value, value)
        # Inside a bucket, TPR lies between its values at the two ends of the bucket.
        if not state.is_exact:
            left, right = np.r_[tpr[at[0]], tpr[inside]], np.r_[tpr[inside], tpr[at[1] + (rates[1] > fpr[at[1]])]]
            low, high = (Fraction(math.fsum((widths * t).tolist())) for t in (left, right))
            found = Limits(min(low, value), value, max(high, value))
        return found.widen(Fraction(ROUNDING * (1 + abs(logs[0]) / (logs[-1] - logs[0]))), *about_of(self).value_range)

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        return 8 * rounding * (1 + Fraction(2 / math.log(self.max_fpr / self.min_fpr)))
