"""Metrics of the probability itself: log-loss, normalized entropy, Brier score, calibration, click rates.

All read one `ScoreSums`: exact sums, rounded once. Undefined values are NaN with a reason.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...collect.metric import nothing_counted
from ...numerics import elementary
from ...numerics.exact import BEYOND, UNIT, Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import OwnNumber, Quotient, Reading, bounds_of_some, read_side_by_side
from ...statistics.labels import LEAST
from ...statistics.row_means import ClassRows
from ...statistics.soft_sums import SoftSums
from ...statistics.sums import ScoreSums
from ..averages import Several
from ..standard_errors import delta

__all__ = ["CTR", "BrierScore", "Calibration", "LogLoss", "NormalizedEntropy", "PredictedCTR"]

SMALL = 2.0**-8  # a term of which 2**-60 may be more than 2 ulp, and more
LABEL = "label"
"""The term for the share of positives, which every state knows without summing it."""


def _read_sums_side_by_side(metric: SummedMetric, state: Any) -> Reading | None:
    """Return the reading of all cells as arrays, whose small values are read alone for their bounds."""
    found = read_side_by_side(metric, state)
    return None if found is None else found.having(bounds=partial(metric._bounds_of_cells, state, found))


class SummedMetric(Several[ScoreSums]):
    """A metric that reads exact sums over scored rows; `soft_labels` are targets in [0, 1]."""

    about = About(
        read_cells=_read_sums_side_by_side,
        cost="about 100 bytes a label; 1 ns a row, label and term",
        bound="exact: terms within 2 ulp, summed exactly, rounded once; of values below 0.001 within 2**-60",
    )

    terms: ClassVar[tuple[str, ...]] = ()
    """The terms whose means the value is a function of; `LABEL` may be one of them."""

    scale: str = setting(default="probability", choices=("probability", "logit"))
    soft_labels: bool = setting(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        soft = "soft labels are of two classes, or of num_labels=" if self.soft_labels and self._of_classes else None
        if reason := soft or self._refused:
            raise ValueError(f"{type(self).__name__}: {reason}")

    @property
    def _refused(self) -> str | None:
        """Why these settings make no sense, if they do not."""
        logits = self.scale == "logit" and self._of_classes
        return 'give the probabilities of classes, the softmax of their logits, not scale="logit"' if logits else None

    @property
    def _of_classes(self) -> bool:
        return bool(self._class_settings) and self.num_labels is None

    def make_state(self) -> Any:
        how: dict[str, Any] = {"scale": self.scale, "eps": getattr(self, "eps", None)}
        kind = SoftSums if self.soft_labels else ScoreSums
        return self.spread(kind(terms=self._summed, **how))

    @property
    def _summed(self) -> tuple[str, ...]:
        """The terms of the state: soft labels are one, too."""
        summed = tuple(term for term in self.terms if term != LABEL)
        return (*summed, "target") if self.soft_labels else summed

    @property
    def name(self) -> str:
        return self._with_average(self.about.tag)

    interval_within: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def read(self, state: Any) -> Reading:
        return OfSums(self, state)

    def reason(self, state: ScoreSums) -> str | None:
        return nothing_counted(state)

    def slack(self, state: ScoreSums, found: Limits, rounding: Fraction) -> Fraction:
        return self._slack_over(Fraction(self.of(state).denominator), state, found, rounding)

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        """Return how the value changes with the mean of each of `terms`; of cells side by side, arrays."""
        return (1.0,)

    def _slack_over(self, divisor: Fraction, state: ScoreSums, found: Limits, rounding: Fraction) -> Fraction:
        """Return the slack of a sum over a divisor."""
        most, lost = max(abs(found.low), abs(found.high)), self._lost(state) / divisor
        # Targets are summed, too.
        return 8 * (most * rounding + (lost * (1 + most) if self.soft_labels else lost))

    def _lost(self, state: ScoreSums) -> Fraction:
        """Return what sums of w x may be short of: each was rounded to 2**-60, too."""
        return Fraction(int(state.rows.sum()) if self._summed else 0, UNIT)

    def _bounds_of_cells(self, state: ScoreSums, found: Reading) -> tuple[Any, Any]:
        """Return the bounds of all cells; those whose grain may be more than nothing are read alone."""
        side: Any = found.state
        sizes = [to_float(side.total(term), side.weight()) for term in self._summed]
        # Without terms there is no grain, however small the value is.
        some = np.logical_or.reduce([size < SMALL for size in (np.abs(found.value), *sizes)]) & bool(sizes)
        return bounds_of_some(self, state, found.value, some)

    def estimate(self, found: Any, method: str) -> Estimate:
        spread = found.state.spread_of(*self.terms)
        return delta(found.value, spread, self.gradient, about_of(self).interval_scale, method, self.interval_within)


class OfSums(OwnNumber):
    """The reading of a function of sums, whose bounds hold rounded terms even without weights."""

    def _grain(self, found: Limits) -> Fraction:
        """Return half a unit of 2**-60 a row, twice, where that is more than the 2 ulp within which terms are."""
        off, value = self._slack(found, Fraction(0)) / 8, found.rounded()
        return off if off and math.isfinite(value) and off > 4 * Fraction(math.ulp(value)) else Fraction(0)


class RowLoss(SummedMetric):
    """A loss of a row: of several classes it is one number, not an average over them."""

    @property
    def _refused(self) -> str | None:
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

    Formula: -(1/W) sum w log(q), with q = p for positives and 1 - p for negatives, kept within [eps, 1 - eps]. Of several
    classes q is the probability of the true one, and the mean is over rows (no 1/C). Of soft labels y
    -(1/W) sum w (y log p + (1 - y) log(1 - p)).

    Parameters
    ----------
    scale : {"probability", "logit"}
        `logit` computes log(1 + e^z) - y z from the logit itself: no sigmoid, no clipping; of several classes
        log(sum e^z) - z of the true one.
    num_classes, labels, num_labels, average
        As for AUC; classes have one value together, labels a value each.
    eps : float, optional
        By default the machine epsilon of the scores: 2**-23 for float32 and half precision, 2**-52 for float64 (as
        scikit-learn's `log_loss`). It is never below 2**-1022, which 0 stands for: a loss of 708.4. `explain()` counts the
        rows clipped.
    soft_labels : bool
        Targets are any numbers in [0, 1]: a teacher's probability, a share of clicks, a smoothed label. Rows have one, or
        one for each of `num_labels`.
    label_smoothing : float
        The share s of each label that is taken away and spread over all classes alike, as in Keras and PyTorch: y becomes
        (1 - s) y + s / 2, and of C classes the true one 1 - s + s / C, the others s / C.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Each term is within 2 ulp (of soft labels 4) and rounded to 2**-60; sums are exact; the mean is rounded once. 0.7 ns a
    row, 4 from logits, 100 bytes; soft labels two to four times that. Soft labels of 0 and 1 have the value of hard ones,
    to the bit. Undefined without rows.

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
    def _refused(self) -> str | None:
        if self.label_smoothing and self.num_labels and self.average == "weighted":
            return 'average="weighted" weighs labels by their positives, which smoothed ones do not tell'
        return super()._refused

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        smooth = self.label_smoothing and self._of_classes
        return (f"smoothed@{self.label_smoothing!r}",) if smooth else ("log_loss",)

    def make_state(self) -> Any:
        if not self.label_smoothing or self._of_classes:
            return super().make_state()
        how: dict[str, Any] = {"scale": self.scale, "eps": self.eps, "smoothing": self.label_smoothing}
        return self.spread(SoftSums(terms=self._summed, **how))


class NormalizedEntropy(SummedMetric, tag="normalized_entropy"):
    """Normalized entropy: log-loss over the entropy of the base rate; below 1 beats predicting the average.

    Formula: log-loss / -(b log b + (1 - b) log(1 - b)), b the weighted share of positives of the data, or `base_rate`.
    Information gain is 1 - NE. Source: He et al., "Practical lessons from predicting clicks on ads at Facebook" (2014).

    Parameters
    ----------
    base_rate : float, optional
        A fixed base rate, for numbers that compare between days.
    scale, eps, num_labels, average, soft_labels, on_invalid
        As for LogLoss; the base rate of soft labels is their mean.

    Notes
    -----
    State and cost as LogLoss. Undefined without rows, and for one class unless `base_rate` is given.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NormalizedEntropy().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.681367
    """

    about = About(best="low", interval_scale="log", formula="log-loss / entropy of the base rate")

    eps: float | None = setting(default=None, low=0.0, high=0.25)
    base_rate: float | None = setting(default=None, low=LEAST, high=0.9999999999999999)

    terms = ("log_loss", LABEL)

    @property
    def _refused(self) -> str | None:
        return (
            "the entropy of a rate is of two classes, or of each label"
            if self._class_settings and not self.num_labels
            else None
        )

    def of(self, state: ScoreSums) -> Any:
        with np.errstate(over="ignore"):  # a loss of logits may be many times what the rarest positives would say
            value = to_float(state.total("log_loss"), state.weight()) / self._uncertainty(state)
        return value if value.ndim else float(value)

    def slack(self, state: ScoreSums, found: Limits, rounding: Fraction) -> Fraction:
        divisor = state.weight() * Fraction(float(self._uncertainty(state)))
        return self._slack_over(divisor, state, found, rounding)

    def gradient(self, loss: Any, rate: Any) -> tuple[Any, Any]:
        fixed = self.base_rate is not None
        b = np.full(np.shape(loss), self.base_rate) if fixed else rate
        inside = (b > 0) & (b < 1)
        b = np.where(inside, b, 0.5)
        most = np.where(inside, entropy(b, 1 - b), float("nan"))
        steep = 0.0 if fixed else elementary.log(1 - b) - elementary.log(b)
        return 1 / most, -loss * steep / (most * most)

    def _uncertainty(self, state: ScoreSums) -> Any:
        """Return the entropy of the base rate."""
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
    """The entropy of rates and what is left of 1; NaN where one of both is 0."""
    some = (b > 0) & (rest > 0)
    b, rest = np.where(some, b, 0.5), np.where(some, rest, 0.5)  # the logarithm takes neither 0 nor NaN
    return np.where(some, -(b * elementary.log(b) + rest * elementary.log(rest)), float("nan"))


class BrierScore(RowLoss, tag="brier_score"):
    """Brier score: the mean squared difference between the predicted probability and the label.

    Formula: (1/W) sum w (p - y)**2, of soft labels, too. Definition as scikit-learn's `brier_score_loss`; of several
    classes the sum of the squares over all of them, from 0 to 2 (Brier 1950; scikit-learn's `scale_by_half=False`).

    Parameters
    ----------
    scale, num_classes, labels, num_labels, average, soft_labels, on_invalid
        As for LogLoss.

    Notes
    -----
    Exact sum of terms rounded to 2**-60. About 1 ns a row, 100 bytes. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.BrierScore().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.158125
    """

    about = About(best="low", formula="(1/W) sum w (p - y)^2")

    terms = ("brier",)


class Calibration(SummedMetric, tag="calibration"):
    """Calibration ratio: predicted positives over observed ones; above 1 over-predicts.

    Formula: sum w p / sum w y; `inverse=True` gives sum w y / sum w p, called COPC (clicks over predicted clicks).

    Parameters
    ----------
    inverse : bool
        Observed over predicted.
    scale, num_classes, labels, num_labels, average, soft_labels, on_invalid
        As for LogLoss; classes are each set against the rest.

    Notes
    -----
    Exact sums, one division. Under 1 ns a row, 100 bytes. Undefined without positives (without predictions if inverse).

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

    def slack(self, state: ScoreSums, found: Limits, rounding: Fraction) -> Fraction:
        if not self.inverse:
            return super().slack(state, found, rounding)
        predicted, lost = state.total("score"), self._lost(state)
        if predicted < 8 * lost:
            return BEYOND if found.high or self.soft_labels else Fraction(0)
        off = lost / predicted  # relatively, of the divisor; soft labels are summed, too
        return 8 * (found.high * (rounding + off) + (off if self.soft_labels else 0))

    def reason(self, state: ScoreSums) -> str | None:
        missing = "the predictions are all zero" if self.inverse else "no positives"
        return super().reason(state) or (None if self.of(state).denominator else missing)


class CTR(SummedMetric, tag="ctr"):
    """Click-through rate, or prevalence: the weighted share of positives.

    Formula: sum w y / sum w. Reads the label alone.

    Parameters
    ----------
    num_classes, labels, num_labels, average, soft_labels, on_invalid
        As for Calibration; of soft labels the mean.

    Notes
    -----
    Exact counts (of soft labels sums), one division. Under 1 ns a row, 100 bytes. Undefined without rows.

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
    """Mean predicted probability.

    Formula: sum w p / sum w.

    Parameters
    ----------
    scale, num_classes, labels, num_labels, average, soft_labels, on_invalid
        As for Calibration.

    Notes
    -----
    Exact sum, one division. Under 1 ns a row, 100 bytes. Undefined without rows. It is read from the state of Calibration,
    at no further cost, which counts rows without labels as negatives: of two classes it needs none.

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
