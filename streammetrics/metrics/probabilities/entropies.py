"""Kin of normalized entropy: of positives alone, free of the calibration of the mean; and how far the classes are apart.

All read the `ScoreSums` of log-loss and calibration.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from ...collect.metric import ScoredLabels, nothing_counted
from ...numerics import elementary
from ...numerics.exact import BEYOND, Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading, bounds_of_some, read_side_by_side
from ...statistics.labels import LEAST
from ...statistics.row_terms import RowTerms
from ...statistics.sums import ScoreSums
from ..standard_errors import WEIGHTED
from .losses import SummedMetric, entropy

__all__ = ["CalibrationFreeNE", "NEPositive", "TjurDiscrimination"]

ONE_CLASS = "one class: there is no difference between classes"
RELATIVE = "of the ratio of both means there is none: relative=False has an interval"
TOGETHER = "the state does not say how loss and prediction vary together: Sharded(..., unit=) does"


class NEPositive(ScoredLabels[RowTerms, float], tag="ne_positive"):
    """Normalized entropy of positives: the part of it that the log-loss of positive rows makes.

    Formula: -(1/W) sum over positives of w log(p) / -(b log b + (1 - b) log(1 - b)), b as for NormalizedEntropy.

    Parameters
    ----------
    base_rate, scale, eps, on_invalid
        As for NormalizedEntropy.

    Notes
    -----
    Definition as torchrec's `NEPositiveMetric` (`eps=1e-12`): the divisor is that of NormalizedEntropy, not the part of
    positives. Rows in float64, exact sums. 2.2 kB, some 50 ns a row. Undefined without rows, and for one class unless
    `base_rate` is given.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NEPositive().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.459125
    """

    about = About(
        best="low",
        formula="log-loss of positives / W / entropy of the base rate",
        cost="2.2 kB; some 50 ns a row",
        bound="exact: rows computed in float64, summed exactly, rounded once; entropy within 4 ulp",
    )

    base_rate: float | None = setting(default=None, low=LEAST, high=0.9999999999999999)
    scale: str = setting(default="probability", choices=("probability", "logit"))
    eps: float | None = setting(default=None, above=0.0, high=0.25)

    def make_state(self) -> RowTerms:
        return RowTerms(terms=("positive_log_loss", "label"), scale=self.scale, eps=self.eps)

    def of(self, state: RowTerms) -> float:
        total, positive = state.weight(), state.total("label")
        if not total:
            return math.nan
        b = positive / total if self.base_rate is None else Fraction(self.base_rate)
        uncertainty = entropy(np.asarray(to_float(b)), np.asarray(to_float(1 - b)))
        with np.errstate(over="ignore"):  # as for NormalizedEntropy
            return float(to_float(state.total("positive_log_loss"), total) / uncertainty)

    def reason(self, state: RowTerms) -> str | None:
        if (nothing := nothing_counted(state)) is not None:
            return nothing
        fixed = self.base_rate is not None or 0 < state.total("label") < state.weight()
        return None if fixed else "one class: the base rate has no entropy; give base_rate="


class CalibrationFreeNE(SummedMetric, tag="calibration_free_ne"):
    """Normalized entropy free of calibration in the large: log-loss over that of always predicting the mean prediction.

    Formula: log-loss / -(b log m + (1 - b) log(1 - m)), b the weighted share of positives, m the mean prediction.

    Parameters
    ----------
    scale, eps, num_labels, average, soft_labels, on_invalid
        As for LogLoss.

    Notes
    -----
    A model that predicts too much everywhere is compared with a constant that does so, too; of one that is calibrated in
    the large it is NormalizedEntropy. torchrec's `CaliFreeNEMetric` means this, but divides NE by a sum over rows, so that
    its value shrinks with their number. State of LogLoss and Calibration. Undefined without rows, and where the mean
    prediction is 0 or 1.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.CalibrationFreeNE().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.666415
    """

    about = About(
        best="low", formula="log-loss / -(b log m + (1 - b) log(1 - m)), m the mean prediction", read_cells=None
    )

    eps: float | None = setting(default=None, low=0.0, high=0.25)

    terms = ("log_loss", "score")

    @property
    def _refused(self) -> str | None:
        return "it is of two classes, or of each label" if self._of_classes else super()._refused

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.total("log_loss"), self._reference(state))

    def estimate(self, found: Any, method: str) -> Estimate:
        return Estimate(found.value, reason=TOGETHER)

    def _reference(self, state: ScoreSums) -> Fraction:
        """Return what always predicting the mean prediction loses; 0 if that is 0 or 1."""
        total, positive, predicted = state.weight(), state.weight(1), state.total("score")
        if not 0 < predicted < total:
            return Fraction(0)
        pairs = (positive, predicted), (total - positive, total - predicted)
        return sum((m * Fraction(-float(elementary.log(to_float(p, total)))) for m, p in pairs), Fraction(0))

    def slack(self, state: ScoreSums, found: Limits, rounding: Fraction) -> Fraction:
        predicted, total, lost = state.total("score"), state.weight(), self._lost(state)
        least = min(predicted, total - predicted)
        off = rounding + lost / least  # relatively, of the mean prediction and of what it leaves
        if 8 * off > 1:
            return BEYOND
        return 16 * max(abs(found.high), Fraction(1)) * (off + (lost + off * total) / self._reference(state))

    def reason(self, state: ScoreSums) -> str | None:
        return super().reason(state) or (None if self._reference(state) else "the mean prediction is 0 or 1")


def _read_differences(metric: TjurDiscrimination, state: Any) -> Reading | None:
    """Return the reading of all cells as arrays, whose bounds are computed one cell after the other."""
    found = read_side_by_side(metric, state)
    if found is None:
        return None
    # A difference of means can be much smaller than the means, but its rounding error is not.
    return found.having(bounds=partial(bounds_of_some, metric, state, found.value, np.ones(len(state), bool)))


class TjurDiscrimination(SummedMetric, tag="tjur_discrimination"):
    """Tjur's coefficient of discrimination: how much higher the mean prediction is for positives than for negatives.

    Formula: mean of p over positives - mean of p over negatives, weighted; `relative=True` divides instead.

    Parameters
    ----------
    relative : bool
        The ratio of both means, TFMA's `RelativeCoefficientOfDiscrimination`.
    scale, num_classes, labels, num_labels, average, on_invalid
        As for Calibration; classes are each set against the rest.

    Notes
    -----
    A pseudo R2 of logistic regression (Tjur 2009), the discrimination slope of medicine; 1 is perfect. Exact sums, rounded
    once. State of Calibration and BrierScore, which has the squares for the interval. Undefined for one class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.TjurDiscrimination().update([0, 0, 1, 1], [0.125, 0.375, 0.25, 0.75]).compute()
    0.25
    """

    about = About(
        read_cells=_read_differences,
        best="high",
        value_range=(None, None),
        formula="mean p of positives - mean p of negatives",
    )

    relative: bool = setting(default=False)

    terms = ("score", "brier")

    @property
    def _refused(self) -> str | None:
        return "a soft label has no class" if self.soft_labels else super()._refused

    @property
    def name(self) -> str:
        return self._with_average(f"relative_{self.about.tag}" if self.relative else self.about.tag)

    def of(self, state: ScoreSums) -> Quotient:
        P, N = state.weight(1), state.weight(0)
        yes, no = state.total("score", 1) * N, state.total("score", 0) * P
        return Quotient(yes, no) if self.relative else Quotient(yes - no, P * N)

    def estimate(self, found: Any, method: str) -> Estimate:
        if self.relative or found.state.excess is not None:
            return Estimate(found.value, reason=RELATIVE if self.relative else WEIGHTED)
        return Estimate(found.value, _error(found.state), within=(-1.0, 1.0))

    def slack(self, state: ScoreSums, found: Limits, rounding: Fraction) -> Fraction:
        off = 4 * (rounding + self._lost(state) / min(state.weight(1), state.weight(0)))
        if not self.relative:
            return 4 * off
        mean = state.total("score", 0) / state.weight(0)
        return BEYOND if mean < 2 * off else 4 * off * (1 + found.high) / (mean - off)

    def reason(self, state: ScoreSums) -> str | None:
        reason = super().reason(state)
        if reason or not (state.weight(1) and state.weight(0)):
            return reason or ONE_CLASS
        return "negatives are all predicted 0" if self.relative and not state.total("score", 0) else None


def _error(state: ScoreSums) -> Any:
    """Return the standard error of the difference of both means; of cells side by side, an array."""
    variance: Any = 0.0
    for label in (0, 1):  # of p, or 1 - p, of which the squares are the Brier score
        n = np.asarray(state.weight(label), np.float64)
        own = np.asarray(state.total("score", label), np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (n - own if label else own) / n
            square = np.asarray(state.total("brier", label), np.float64) / n
            variance = variance + np.where(n > 1, np.maximum(square - mean * mean, 0.0) / (n - 1), np.nan)
    return np.sqrt(variance)
