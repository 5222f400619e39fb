"""Variants of normalized entropy, and a measure of class separation (Tjur's coefficient of discrimination)."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from ...collect.metric import ScoredLabels, no_weight_reason
from ...numerics import elementary
from ...numerics.exact import BEYOND, Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading, bounds_of_some, read_side_by_side
from ...statistics.decision_counts import MIN_EPS
from ...statistics.row_terms import RowTerms
from ...statistics.sums import ScoreSums
from ..standard_errors import WEIGHTED
from .losses import SummedMetric, entropy

__all__ = ["CalibrationFreeNE", "NEPositive", "TjurDiscrimination"]

ONE_CLASS = "one class: the difference between classes needs both"
RELATIVE = "there is no interval for the ratio of both means; relative=False has an interval"
TOGETHER = "the state does not contain the covariance of loss and prediction; Sharded(..., unit=) has an interval"


class NEPositive(ScoredLabels[RowTerms, float], tag="ne_positive"):
    """Normalized entropy of positives: the part of the normalized entropy that is due to the log-loss of positive rows.

    Formula: (sum over positives of -w * log(p)) / (W * H), where W is the total weight of all rows and
    H = -(b * log(b) + (1 - b) * log(1 - b)). Here b is the weighted share of positives, or `base_rate`.

    Parameters
    ----------
    base_rate : float, optional
        A fixed base rate, so that the values of different days can be compared.
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits.
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`).

    Notes
    -----
    The definition matches torchrec's `NEPositiveMetric` (`eps=1e-12`): the denominator is the entropy of both classes,
    as in NormalizedEntropy, although the numerator contains only positives. The value of each row is computed in
    float64, and sums are exact. The value is undefined without rows. It is also undefined if all rows are of one class,
    unless `base_rate` is given.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NEPositive().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.459125
    """

    about = About(
        best="low",
        formula="(weighted sum of the log-losses of positives) / (total weight x entropy of the base rate)",
        cost="2.2 kB; about 50 ns per row",
        bound=(
            "exact except for rounding: the value of each row is computed in float64, the sum is exact, the entropy is "
            "within 4 ulp, and the result is rounded once"
        ),
    )

    base_rate: float | None = setting(default=None, low=MIN_EPS, high=0.9999999999999999)
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
        # The entropy of a rare class is tiny, so the quotient can overflow to infinity. That is correct, so numpy should
        # not warn.
        with np.errstate(over="ignore"):
            return float(to_float(state.total("positive_log_loss"), total) / uncertainty)

    def reason(self, state: RowTerms) -> str | None:
        if (nothing := no_weight_reason(state)) is not None:
            return nothing
        fixed = self.base_rate is not None or 0 < state.total("label") < state.weight()
        return None if fixed else "one class: the base rate has no entropy; give base_rate="


class CalibrationFreeNE(SummedMetric, tag="calibration_free_ne"):
    """Calibration-free normalized entropy: log-loss divided by the log-loss of always predicting the mean prediction.

    Formula: log-loss / -(b * log(m) + (1 - b) * log(1 - m)), where b is the weighted share of positives and m is the
    mean prediction.

    Parameters
    ----------
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`).

    Notes
    -----
    The model is compared with a constant, its own mean prediction. If the predictions are too high on average, this
    constant is too high by the same amount. If the mean prediction equals the share of positives (calibration in the
    large), the value equals NormalizedEntropy. torchrec's `CaliFreeNEMetric` has the same aim but divides NE by a sum
    over rows, so its value falls as the number of rows grows.

    The state is the same as for LogLoss and Calibration. The value is undefined without rows or if the mean prediction is
    0 or 1.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.CalibrationFreeNE().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.666415
    """

    about = About(
        best="low",
        formula=("log-loss / -(b log(m) + (1 - b) log(1 - m)), for share of positives b and mean prediction m"),
        read_cells=None,
    )

    eps: float | None = setting(default=None, low=0.0, high=0.25)

    terms = ("log_loss", "score")

    @property
    def _setting_conflict(self) -> str | None:
        conflict = (
            "num_classes= and labels= are not supported; leave them out for two classes, or pass num_labels= for several "
            "0/1 labels"
        )
        return conflict if self._of_classes else super()._setting_conflict

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.total("log_loss"), self._reference(state))

    def estimate(self, reading: Any, method: str) -> Estimate:
        return Estimate(reading.value, reason=TOGETHER)

    def _reference(self, state: ScoreSums) -> Fraction:
        """Return the total log-loss of always predicting the mean prediction, or 0 if this mean is 0 or 1."""
        total, positive, predicted = state.weight(), state.weight(1), state.total("score")
        if not 0 < predicted < total:
            return Fraction(0)
        pairs = (positive, predicted), (total - positive, total - predicted)
        return sum((m * Fraction(-float(elementary.log(to_float(p, total)))) for m, p in pairs), Fraction(0))

    def slack(self, state: ScoreSums, limits: Limits, rounding: Fraction) -> Fraction:
        predicted, total, lost = state.total("score"), state.weight(), self._rounding_loss(state)
        # `off` is the largest relative error of the mean prediction m and of 1 - m. It is also, to first order, the
        # largest absolute error of their logarithms.
        least = min(predicted, total - predicted)
        off = rounding + lost / least
        if 8 * off > 1:
            return BEYOND
        return 16 * max(abs(limits.high), Fraction(1)) * (off + (lost + off * total) / self._reference(state))

    def reason(self, state: ScoreSums) -> str | None:
        return super().reason(state) or (None if self._reference(state) else "the mean prediction is 0 or 1")


def _read_differences(metric: TjurDiscrimination, state: Any) -> Reading | None:
    """Return one `Reading` with the values of all cells (such as slices) as an array.

    The bounds are computed cell by cell. Return None if the values also have to be computed cell by cell.
    """
    found = read_side_by_side(metric, state)
    if found is None:
        return None
    # The value is a difference of means, which can be much smaller than the means. In that case, its relative rounding
    # error can be large, so no cell is treated as exact.
    return found.having(bounds=partial(bounds_of_some, metric, state, found.value, np.ones(len(state), bool)))


class TjurDiscrimination(SummedMetric, tag="tjur_discrimination"):
    """Tjur's coefficient of discrimination: the mean prediction of positives minus the mean prediction of negatives.

    Formula: mean of p over positives - mean of p over negatives, weighted. With `relative=True`, it is the ratio of the
    two means.

    Parameters
    ----------
    relative : bool
        Whether the value is the ratio of the two means, as in TFMA's `RelativeCoefficientOfDiscrimination`.

    Notes
    -----
    The coefficient is a pseudo R2 of logistic regression (Tjur 2009), called the discrimination slope in medicine; 1 is
    perfect. Sums are exact, and the value is rounded once. The state sums the predictions, as for Calibration, and their
    squared errors, as for BrierScore. The squared errors are needed only for the interval. The value is undefined if all
    rows are of one class.

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
        formula="(mean prediction of positives) - (mean prediction of negatives)",
    )

    relative: bool = setting(default=False)

    terms = ("score", "brier")

    @property
    def _setting_conflict(self) -> str | None:
        conflict = "soft_labels=True is not supported, because a soft label belongs to neither class; pass 0/1 labels"
        return conflict if self.soft_labels else super()._setting_conflict

    @property
    def name(self) -> str:
        return self._with_average(f"relative_{self.about.tag}" if self.relative else self.about.tag)

    def of(self, state: ScoreSums) -> Quotient:
        P, N = state.weight(1), state.weight(0)
        yes, no = state.total("score", 1) * N, state.total("score", 0) * P
        return Quotient(yes, no) if self.relative else Quotient(yes - no, P * N)

    def estimate(self, reading: Any, method: str) -> Estimate:
        if self.relative or reading.state.excess is not None:
            return Estimate(reading.value, reason=RELATIVE if self.relative else WEIGHTED)
        return Estimate(reading.value, _error(reading.state), within=(-1.0, 1.0))

    def slack(self, state: ScoreSums, limits: Limits, rounding: Fraction) -> Fraction:
        off = 4 * (rounding + self._rounding_loss(state) / min(state.weight(1), state.weight(0)))
        if not self.relative:
            return 4 * off
        mean = state.total("score", 0) / state.weight(0)
        return BEYOND if mean < 2 * off else 4 * off * (1 + limits.high) / (mean - off)

    def reason(self, state: ScoreSums) -> str | None:
        reason = super().reason(state)
        if reason or not (state.weight(1) and state.weight(0)):
            return reason or ONE_CLASS
        return "negatives are all predicted 0" if self.relative and not state.total("score", 0) else None


def _error(state: ScoreSums) -> Any:
    """Return the standard error of the difference between the two class means, as an array for several cells (slices)."""
    variance: Any = 0.0
    # The variance of p in each class needs a sum of squares. The state sums the squared errors (p - y)**2, which are
    # p**2 for negatives and (1 - p)**2 for positives. For positives, they give the variance of 1 - p, which equals that
    # of p.
    for label in (0, 1):
        n = np.asarray(state.weight(label), np.float64)
        own = np.asarray(state.total("score", label), np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (n - own if label else own) / n
            square = np.asarray(state.total("brier", label), np.float64) / n
            variance = variance + np.where(n > 1, np.maximum(square - mean * mean, 0.0) / (n - 1), np.nan)
    return np.sqrt(variance)
