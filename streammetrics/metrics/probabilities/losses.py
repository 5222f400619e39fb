"""Metrics of the probability itself: log-loss, normalized entropy, Brier score, calibration, click rates.

All are computed from one `ScoreSums` state: exact sums that are rounded once. Undefined values are NaN, and `explain()`
gives the reason.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...collect.metric import no_weight_reason
from ...numerics import elementary
from ...numerics.exact import BEYOND, UNIT, Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import OwnNumber, Quotient, Reading, bounds_of_some, read_side_by_side
from ...statistics.decision_counts import MIN_EPS
from ...statistics.row_means import ClassRows
from ...statistics.soft_sums import SoftSums
from ...statistics.sums import ScoreSums
from ..averages import Several
from ..standard_errors import delta

__all__ = ["CTR", "BrierScore", "Calibration", "LogLoss", "NormalizedEntropy", "PredictedCTR"]

# Rounding to 2**-60 can exceed 2 ulp only for terms below this limit.
SMALL = 2.0**-8
LABEL = "label"
"""The term for the share of positives, which every state knows without summing it."""


def _read_sums_side_by_side(metric: SummedMetric, state: Any) -> Reading | None:
    """Return one `Reading` with arrays for all cells (such as slices); small values get bounds cell by cell."""
    found = read_side_by_side(metric, state)
    return None if found is None else found.having(bounds=partial(metric._bounds_of_cells, state, found))


class SummedMetric(Several[ScoreSums]):
    """A metric that is computed from exact sums over rows of terms of the score and the label.

    Parameters
    ----------
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits. Metrics compute what they need from the logit itself, without a
        sigmoid and without clipping.
    soft_labels : bool
        Whether targets are numbers in [0, 1] instead of 0 or 1: the probability of a teacher model, a share of clicks,
        a smoothed label. A row has one target, or one for each of `num_labels`.
    """

    about = About(
        read_cells=_read_sums_side_by_side,
        cost="about 100 bytes a label; 1 ns a row, label and term",
        bound="exact: terms within 2 ulp, summed exactly, rounded once; of values below 0.001 within 2**-60",
    )

    terms: ClassVar[tuple[str, ...]] = ()
    """The names of the row terms from whose means the value is computed; `LABEL` can be one of them."""

    scale: str = setting(default="probability", choices=("probability", "logit"))
    soft_labels: bool = setting(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        soft = "soft labels are of two classes, or of num_labels=" if self.soft_labels and self._of_classes else None
        if reason := soft or self._setting_conflict:
            raise ValueError(f"{type(self).__name__}: {reason}")

    @property
    def _setting_conflict(self) -> str | None:
        """An error message if settings contradict each other; None if they do not."""
        logits = self.scale == "logit" and self._of_classes
        return 'give the probabilities of classes, the softmax of their logits, not scale="logit"' if logits else None

    @property
    def _of_classes(self) -> bool:
        return bool(self._class_settings) and self.num_labels is None

    def make_state(self) -> Any:
        how: dict[str, Any] = {"scale": self.scale, "eps": getattr(self, "eps", None)}
        kind = SoftSums if self.soft_labels else ScoreSums
        return self.spread(kind(terms=self._summed_terms, **how))

    @property
    def _summed_terms(self) -> tuple[str, ...]:
        """The names of the terms that the state sums; they include the targets if labels are soft."""
        summed = tuple(term for term in self.terms if term != LABEL)
        return (*summed, "target") if self.soft_labels else summed

    @property
    def name(self) -> str:
        return self._with_average(self.about.tag)

    interval_within: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def read(self, state: Any) -> Reading:
        return OfSums(self, state)

    def reason(self, state: ScoreSums) -> str | None:
        return no_weight_reason(state)

    def slack(self, state: ScoreSums, limits: Limits, rounding: Fraction) -> Fraction:
        return self._slack_over(Fraction(self.of(state).denominator), state, limits, rounding)

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        """Return the derivatives of the value by the mean of each of `terms`; arrays if there are several cells."""
        return (1.0,)

    def _slack_over(self, divisor: Fraction, state: ScoreSums, limits: Limits, rounding: Fraction) -> Fraction:
        """Return the largest change of a quotient (a sum of terms / `divisor`) that rounding can cause."""
        most, lost = max(abs(limits.low), abs(limits.high)), self._rounding_loss(state) / divisor
        # With soft labels the divisor can be a sum of rounded targets: its error counts `most` times.
        return 8 * (most * rounding + (lost * (1 + most) if self.soft_labels else lost))

    def _rounding_loss(self, state: ScoreSums) -> Fraction:
        """Return the largest error of a sum of products w x (weight times term), each of which was rounded to 2**-60."""
        return Fraction(int(state.rows.sum()) if self._summed_terms else 0, UNIT)

    def _bounds_of_cells(self, state: ScoreSums, reading: Reading) -> tuple[Any, Any]:
        """Return the bounds of all cells; a cell that rounding to 2**-60 can affect is computed by itself."""
        side: Any = reading.state
        sizes = [to_float(side.total(term), side.weight()) for term in self._summed_terms]
        # Without summed terms nothing was rounded to 2**-60, however small the value is.
        some = np.logical_or.reduce([size < SMALL for size in (np.abs(reading.value), *sizes)]) & bool(sizes)
        return bounds_of_some(self, state, reading.value, some)

    def estimate(self, reading: Any, method: str) -> Estimate:
        spread = reading.state.estimate_means(*self.terms)
        return delta(reading.value, spread, self.gradient, about_of(self).interval_scale, method, self.interval_within)


class OfSums(OwnNumber):
    """Value and bounds of a function of sums; the bounds allow for the rounding of terms, even without weights."""

    def _quantization(self, limits: Limits) -> Fraction:
        """Return the error bound from rounding terms to 2**-60 if it exceeds the error of 2 ulp of each term, else 0."""
        off, value = self._slack(limits, Fraction(0)) / 8, limits.to_float()
        return off if off and math.isfinite(value) and off > 4 * Fraction(math.ulp(value)) else Fraction(0)


class RowLoss(SummedMetric):
    """A loss of each row. For several classes the value is one number, not an average over classes."""

    @property
    def _setting_conflict(self) -> str | None:
        many = self._of_classes and self.average != "macro"
        return "classes have one value together; average= is for num_labels=" if many else None

    def make_state(self) -> Any:
        if not self._of_classes:
            return super().make_state()
        return ClassRows(terms=self.terms, scale=self.scale, eps=getattr(self, "eps", None), **self._class_settings)

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.total(self.terms[0]), state.weight())


class LogLoss(RowLoss, tag="log_loss"):
    """Log-loss, or cross-entropy: the mean negative log-likelihood of the labels.

    Formula: -(1/W) sum w log(q), where q is p for positives and 1 - p for negatives, clipped to [eps, 1 - eps]. For
    several classes, q is the probability of the true class, and the mean is over rows (without a factor 1/C). For soft
    labels y it is -(1/W) sum w (y log p + (1 - y) log(1 - p)).

    Parameters
    ----------
    scale : {"probability", "logit"}
        With "logit" the loss is computed from the logit itself, as log(1 + e^z) - y z, without a sigmoid and without
        clipping. For several classes, the loss is log(sum e^z) - z of the true class.
    average : {"macro", "micro", "weighted", None}
        How the values of several labels become one: their mean, the value of all labels together, their mean weighted by
        positives, or an array of one value each (None). Several classes have one value together.
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`). The least eps is 2**-1022, which is a
        loss of 708.4; 0 means the same. `explain()` counts the clipped rows.
    label_smoothing : float
        The share s of each label that is spread equally over all classes, as in Keras and PyTorch: y becomes
        (1 - s) y + s/2. With C classes the true class gets 1 - s + s/C, and the others s/C.

    Notes
    -----
    Each term is within 2 ulp (soft labels: 4) and is rounded to 2**-60; sums are exact, and the mean is rounded once. Soft
    labels of 0 and 1 give the same value as hard labels, bit for bit. The state takes 100 bytes; a row takes 0.7 ns, 4 ns
    from logits; soft labels take two to four times as long. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.LogLoss().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.472288
    >>> round(sm.LogLoss(soft_labels=True).update([0.2, 0.9], [0.3, 0.8]).compute(), 6)
    0.443954
    """

    about = About(best="low", formula="-(1/W) sum w log(p if y else 1 - p)")

    eps: float | None = setting(default=None, low=0.0, high=0.25)
    label_smoothing: float = setting(default=0.0, low=0.0, high=1.0)

    @property
    def _setting_conflict(self) -> str | None:
        if self.label_smoothing and self.num_labels and self.average == "weighted":
            return 'average="weighted" weighs labels by their positives, which smoothed ones do not tell'
        return super()._setting_conflict

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        smooth = self.label_smoothing and self._of_classes
        return (f"smoothed@{self.label_smoothing!r}",) if smooth else ("log_loss",)

    def make_state(self) -> Any:
        if not self.label_smoothing or self._of_classes:
            return super().make_state()
        how: dict[str, Any] = {"scale": self.scale, "eps": self.eps, "smoothing": self.label_smoothing}
        return self.spread(SoftSums(terms=self._summed_terms, **how))


class NormalizedEntropy(SummedMetric, tag="normalized_entropy"):
    """Normalized entropy: log-loss over the entropy of the base rate; below 1 the model beats predicting the base rate.

    Formula: log-loss / -(b log b + (1 - b) log(1 - b)), where b is the weighted share of positives of the data, or
    `base_rate`. Information gain is 1 - NE. Source: He et al., "Practical lessons from predicting clicks on ads at
    Facebook" (2014).

    Parameters
    ----------
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`).
    base_rate : float, optional
        A fixed base rate, so that the values of different days can be compared.
    soft_labels : bool
        Whether targets are numbers in [0, 1] instead of 0 or 1; the base rate is then their mean.

    Notes
    -----
    The state and the cost are those of LogLoss. The value is undefined without rows, and for rows of one class unless
    `base_rate` is given.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NormalizedEntropy().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.681367
    """

    about = About(best="low", interval_scale="log", formula="log-loss / entropy of the base rate")

    eps: float | None = setting(default=None, low=0.0, high=0.25)
    base_rate: float | None = setting(default=None, low=MIN_EPS, high=0.9999999999999999)

    terms = ("log_loss", LABEL)

    @property
    def _setting_conflict(self) -> str | None:
        return (
            "the entropy of a rate is of two classes, or of each label"
            if self._class_settings and not self.num_labels
            else None
        )

    def of(self, state: ScoreSums) -> Any:
        # The loss of logits has no upper limit, and the entropy of a rare class is tiny: the quotient can overflow.
        with np.errstate(over="ignore"):
            value = to_float(state.total("log_loss"), state.weight()) / self._uncertainty(state)
        return value if value.ndim else float(value)

    def slack(self, state: ScoreSums, limits: Limits, rounding: Fraction) -> Fraction:
        divisor = state.weight() * Fraction(float(self._uncertainty(state)))
        return self._slack_over(divisor, state, limits, rounding)

    def gradient(self, loss: Any, rate: Any) -> tuple[Any, Any]:
        fixed = self.base_rate is not None
        b = np.full(np.shape(loss), self.base_rate) if fixed else rate
        inside = (b > 0) & (b < 1)
        b = np.where(inside, b, 0.5)
        most = np.where(inside, entropy(b, 1 - b), float("nan"))
        steep = 0.0 if fixed else elementary.log(1 - b) - elementary.log(b)
        return 1 / most, -loss * steep / (most * most)

    def _uncertainty(self, state: ScoreSums) -> Any:
        """Return the entropy of the share of positives, or of `base_rate` if it is set, in nats."""
        total, positive = state.weight(), state.weight(1)
        if self.base_rate is not None:
            b, rest = self.base_rate, float(1 - Fraction(self.base_rate))
        else:
            b, rest = to_float(positive, total), to_float(total - positive, total)
        return entropy(np.asarray(b), np.asarray(rest))

    def reason(self, state: ScoreSums) -> str | None:
        if (nothing := super().reason(state)) is not None:
            return nothing
        if self.base_rate is None and state.weight(1) in (0, state.weight()):
            return "one class: the base rate has no entropy; give base_rate="
        return None


def entropy(b: Any, rest: Any) -> Any:
    """Return the entropy of rates b, where `rest` is 1 - b; NaN if either is 0."""
    some = (b > 0) & (rest > 0)
    # The logarithm accepts neither 0 nor NaN, so these elements become 1/2 first, and NaN in the result.
    b, rest = np.where(some, b, 0.5), np.where(some, rest, 0.5)
    return np.where(some, -(b * elementary.log(b) + rest * elementary.log(rest)), float("nan"))


class BrierScore(RowLoss, tag="brier_score"):
    """Brier score: the mean squared difference between the predicted probability and the label.

    Formula: (1/W) sum w (p - y)**2, also for soft labels, as in scikit-learn's `brier_score_loss`. For several classes,
    the squares are summed over all classes, from 0 to 2 (Brier 1950; scikit-learn's `scale_by_half=False`).

    Notes
    -----
    Each term is rounded to 2**-60, and the sum is exact. The state takes 100 bytes; a row takes about 1 ns. The value is
    undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.BrierScore().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.158125
    """

    about = About(best="low", formula="(1/W) sum w (p - y)^2")

    terms = ("brier",)


class Calibration(SummedMetric, tag="calibration"):
    """Calibration ratio: the predicted number of positives over the observed number; above 1 the model over-predicts.

    Formula: sum w p / sum w y. With `inverse=True` it is sum w y / sum w p, which is called COPC (clicks over predicted
    clicks).

    Parameters
    ----------
    inverse : bool
        Whether the value is observed over predicted positives.

    Notes
    -----
    Sums are exact, and are divided once. The state takes 100 bytes; a row takes under 1 ns. The value is undefined without
    positives, or, with `inverse=True`, if all predictions are 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Calibration().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.75]).compute()
    0.8
    """

    about = About(best=1.0, interval_scale="log", formula="sum w p / sum w y")

    inverse: bool = setting(default=False)

    terms = ("score", LABEL)

    @property
    def name(self) -> str:
        return self._with_average("copc" if self.inverse else "calibration")

    def of(self, state: ScoreSums) -> Quotient:
        predicted, observed = state.total("score"), state.weight(1)
        return Quotient(observed, predicted) if self.inverse else Quotient(predicted, observed)

    def gradient(self, predicted: Any, observed: Any) -> tuple[Any, Any]:
        if self.inverse:
            return -observed / predicted / predicted, 1 / predicted
        return 1 / observed, -predicted / observed / observed

    def slack(self, state: ScoreSums, limits: Limits, rounding: Fraction) -> Fraction:
        if not self.inverse:
            return super().slack(state, limits, rounding)
        predicted, lost = state.total("score"), self._rounding_loss(state)
        if predicted < 8 * lost:
            return BEYOND if limits.high or self.soft_labels else Fraction(0)
        # The divisor is a sum of rounded terms, so its relative error counts; with soft labels the numerator is one, too.
        off = lost / predicted
        return 8 * (limits.high * (rounding + off) + (off if self.soft_labels else 0))

    def reason(self, state: ScoreSums) -> str | None:
        missing = "the predictions are all zero" if self.inverse else "no positives"
        return super().reason(state) or (None if self.of(state).denominator else missing)


class CTR(SummedMetric, tag="ctr"):
    """Click-through rate, or prevalence: the weighted share of positives.

    Formula: sum w y / sum w. Only the label is read.

    Parameters
    ----------
    soft_labels : bool
        Whether targets are numbers in [0, 1] instead of 0 or 1; the value is then their mean.

    Notes
    -----
    Counts (or sums of soft labels) are exact, and are divided once. The state takes 100 bytes; a row takes under 1 ns. The
    value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CTR().update(y_true=[0, 0, 1, 0]).compute()
    0.25
    """

    about = About(
        formula="sum w y / sum w",
        bound="exact: counts, rounded once",
        value_range=(0, 1),
        interval_scale="logit",
        interval_methods=("wilson", "delta"),
    )

    terms = (LABEL,)

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.weight(1), state.weight())


class PredictedCTR(SummedMetric, tag="predicted_ctr"):
    """Predicted click-through rate: the weighted mean of the predicted probabilities.

    Formula: sum w p / sum w.

    Notes
    -----
    The sum is exact, and is divided once. The state takes 100 bytes; a row takes under 1 ns. Together with Calibration,
    which has the same state, the metric costs nothing more. With two classes it needs no labels: rows without a label are
    counted as negatives. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PredictedCTR().update(y_score=[0.1, 0.4, 0.35, 0.75]).compute()
    0.4
    """

    about = About(interval_scale="logit", formula="sum w p / sum w")

    terms = ("score",)

    def make_state(self) -> Any:
        if self._class_settings or self.soft_labels:
            return super().make_state()
        return ScoreSums(terms=self.terms, scale=self.scale, unlabelled=True)

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.total("score"), state.weight())
