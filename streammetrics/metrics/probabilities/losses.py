"""Metrics of the probabilities themselves: log-loss, normalized entropy, Brier score, calibration and click rates.

All of them can be computed from one state (`ScoreSums`), which contains exact sums over rows. Only the result is rounded.
Undefined values are NaN, and `explain()` gives the reason.
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

# Row terms (such as the log-loss of a row) are rounded to multiples of 2**-60. The rounding error can exceed 2 ulp of a
# term only if the term is below `SMALL`.
SMALL = 2.0**-8
LABEL = "label"
"""The name of a term whose mean is the share of positives. It is not summed separately, because states count positives."""


def _read_sums_side_by_side(metric: SummedMetric, state: Any) -> Reading | None:
    """Return one `Reading` with the values of all cells (such as slices), or None if they must be computed one by one.

    Only the bounds of cells with small values are computed one by one.
    """
    found = read_side_by_side(metric, state)
    return None if found is None else found.having(bounds=partial(metric._bounds_of_cells, state, found))


class SummedMetric(Several[ScoreSums]):
    """Base class for metrics that are computed from exact sums of row terms, such as the log-loss of each row.

    A term is a function of the score and the label.

    Parameters
    ----------
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits. The log-loss of logits is computed directly from the logits,
        which are neither converted to probabilities nor clipped.
    soft_labels : bool
        Whether targets are numbers in [0, 1] rather than 0 or 1, such as the probability predicted by a teacher model, a
        share of clicks or a smoothed label. A row has one target, or `num_labels` targets.
    """

    about = About(
        read_cells=_read_sums_side_by_side,
        cost="about 100 bytes per label; 1 ns per row, label and term",
        bound=(
            "exact except for rounding: the error of each summed term is at most 2 ulp (2**-60 for terms below 0.001), "
            "the sum is exact, and the result is rounded once"
        ),
    )

    terms: ClassVar[tuple[str, ...]] = ()
    """The names of the terms (such as "log_loss") from whose means over rows the value is computed."""

    scale: str = setting(default="probability", choices=("probability", "logit"))
    soft_labels: bool = setting(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        conflict = (
            "soft_labels=True does not support num_classes= and labels=; for a distribution over classes, use "
            "KLDivergence(width=) instead; for 0/1 labels, pass num_labels="
        )
        soft = conflict if self.soft_labels and self._of_classes else None
        if reason := soft or self._setting_conflict:
            raise ValueError(f"{type(self).__name__}: {reason}")

    @property
    def _setting_conflict(self) -> str | None:
        """An error message if settings contradict each other, or None if they do not."""
        logits = self.scale == "logit" and self._of_classes
        conflict = (
            'scale="logit" does not support num_classes= and labels=; pass probabilities (the softmax of the logits)'
        )
        return f"{conflict}, and leave scale= out" if logits else None

    @property
    def _of_classes(self) -> bool:
        return bool(self._class_settings) and self.num_labels is None

    def make_state(self) -> Any:
        how: dict[str, Any] = {"scale": self.scale, "eps": getattr(self, "eps", None)}
        kind = SoftSums if self.soft_labels else ScoreSums
        return self.spread(kind(terms=self._summed_terms, **how))

    @property
    def _summed_terms(self) -> tuple[str, ...]:
        """The names of the terms that the state sums.

        These are all `terms` except `LABEL`. If labels are soft, the targets are summed as well.
        """
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
        """Return the derivatives of the value with respect to the mean of each term, for the delta method.

        The parameters are the means of `terms`, which are arrays if there are several cells (such as slices).
        """
        return (1.0,)

    def _slack_over(self, divisor: Fraction, state: ScoreSums, limits: Limits, rounding: Fraction) -> Fraction:
        """Return an upper bound on the rounding error of the value, which is a sum of terms divided by `divisor`.

        `limits` is the value with its bounds, and `rounding` is the largest relative error of a weight.
        """
        most, lost = max(abs(limits.low), abs(limits.high)), self._rounding_loss(state) / divisor
        # With soft labels, the divisor can be a sum of rounded targets. An error in the divisor changes the quotient by up
        # to `most` times as much as the same error in the numerator.
        return 8 * (most * rounding + (lost * (1 + most) if self.soft_labels else lost))

    def _rounding_loss(self, state: ScoreSums) -> Fraction:
        """Return the largest error of a sum of products (weight * term) that are rounded to multiples of 2**-60."""
        return Fraction(int(state.rows.sum()) if self._summed_terms else 0, UNIT)

    def _bounds_of_cells(self, state: ScoreSums, reading: Reading) -> tuple[Any, Any]:
        """Return the bounds of all cells (such as slices), as two arrays.

        The values of most cells are exact. If a cell's values are so small that rounding terms to multiples of 2**-60
        matters, the bounds of that cell are computed separately.
        """
        side: Any = reading.state
        sizes = [to_float(side.total(term), side.weight()) for term in self._summed_terms]
        # If the state sums no terms (as for CTR), nothing was rounded to a multiple of 2**-60, so every value is exact.
        some = np.logical_or.reduce([size < SMALL for size in (np.abs(reading.value), *sizes)]) & bool(sizes)
        return bounds_of_some(self, state, reading.value, some)

    def estimate(self, reading: Any, method: str) -> Estimate:
        spread = reading.state.estimate_means(*self.terms)
        return delta(reading.value, spread, self.gradient, about_of(self).interval_scale, method, self.interval_within)


class OfSums(OwnNumber):
    """The reading (value and bounds) of a `SummedMetric`; even without weights, the bounds allow for rounded terms."""

    def _quantization(self, limits: Limits) -> Fraction:
        """Return an upper bound on the error from rounding terms to multiples of 2**-60, or 0 if it is negligible.

        An error of at most 4 ulp of the value is negligible: the terms have errors of 2 ulp before this rounding.
        """
        off, value = self._slack(limits, Fraction(0)) / 8, limits.to_float()
        return off if off and math.isfinite(value) and off > 4 * Fraction(math.ulp(value)) else Fraction(0)


class RowLoss(SummedMetric):
    """Base class for metrics whose value is the mean loss over rows.

    For several classes, the loss of a row depends on all class scores, and the value is one number, not an average over
    classes.
    """

    @property
    def _setting_conflict(self) -> str | None:
        many = self._of_classes and self.average != "macro"
        conflict = (
            f"average={self.average!r} needs num_labels=; for classes, the metric has a single value: "
            f"leave average= out"
        )
        return conflict if many else None

    def make_state(self) -> Any:
        if not self._of_classes:
            return super().make_state()
        return ClassRows(terms=self.terms, scale=self.scale, eps=getattr(self, "eps", None), **self._class_settings)

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.total(self.terms[0]), state.weight())


class LogLoss(RowLoss, tag="log_loss"):
    """Log-loss, or cross-entropy: the mean negative log-likelihood of the labels.

    Formula: -sum(w * log(q)) / sum(w), for weights w, where q is p for positives and 1 - p for negatives, clipped to
    [eps, 1 - eps]. For several classes, q is the probability of the true class, and the mean is over rows (it is not
    divided by the number of classes). For soft labels y, it is -sum(w * (y * log(p) + (1 - y) * log(1 - p))) / sum(w).

    Parameters
    ----------
    scale : {"probability", "logit"}
        With "logit", the loss is computed from the logit z itself, as log(1 + e^z) - y * z, without a sigmoid and
        without clipping. For several classes, the loss is the logarithm of the sum of e^z over all classes, minus the
        logit z of the true class.
    average : {"macro", "micro", "weighted", None}
        How to combine the values of several labels. "macro": their mean. "micro": one value for all labels together.
        "weighted": their mean, weighted by the number of positives of each label. None: an array with one value for
        each label. For several classes, there is a single value, and only "macro" is allowed.
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`). With the smallest eps, 2**-1022, the
        largest loss of a row is 708.4; an eps of 0 has the same effect. `explain()` counts the clipped rows.
    label_smoothing : float
        The share s of each label that is spread equally over all classes, as in Keras and PyTorch. A 0/1 label y
        becomes (1 - s) * y + s / 2. With C classes, the true class gets the target 1 - s + s / C, and each other class
        gets s / C.

    Notes
    -----
    The loss of each row is computed with an error of at most 2 ulp (4 ulp with soft labels), and then rounded to a
    multiple of 2**-60. Sums are exact, and the mean is rounded once. Soft labels of 0 and 1 give the same value as hard
    labels, bit for bit. The state takes 100 bytes. An update takes 0.7 ns per row for probabilities and 4 ns for logits;
    with soft labels, it takes two to four times as long. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.LogLoss().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.472288
    >>> round(sm.LogLoss(soft_labels=True).update([0.2, 0.9], [0.3, 0.8]).compute(), 6)
    0.443954
    """

    about = About(
        best="low", formula="weighted mean over rows of -log(q), where q is the predicted probability of the true label"
    )

    eps: float | None = setting(default=None, low=0.0, high=0.25)
    label_smoothing: float = setting(default=0.0, low=0.0, high=1.0)

    @property
    def _setting_conflict(self) -> str | None:
        if self.label_smoothing and self.num_labels and self.average == "weighted":
            return (
                'average="weighted" needs the positives of each label, which are unknown with label_smoothing=; choose '
                "another average=, or leave label_smoothing= out"
            )
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
    """Normalized entropy: log-loss divided by the entropy of the base rate; below 1, the model beats the base rate.

    Formula: log-loss / -(b * log(b) + (1 - b) * log(1 - b)), where b is the weighted share of positives in the data, or
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
        Whether targets are numbers in [0, 1] rather than 0 or 1; the base rate is then their mean.

    Notes
    -----
    State, memory and time are the same as for LogLoss. The value is undefined without rows. It is also undefined if
    all rows are of one class, unless `base_rate` is given.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NormalizedEntropy().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.681367
    """

    about = About(
        best="low",
        interval_scale="log",
        formula=("log-loss / -(b log(b) + (1 - b) log(1 - b)), where b is the base rate (the share of positives)"),
    )

    eps: float | None = setting(default=None, low=0.0, high=0.25)
    base_rate: float | None = setting(default=None, low=MIN_EPS, high=0.9999999999999999)

    terms = ("log_loss", LABEL)

    @property
    def _setting_conflict(self) -> str | None:
        return (
            "num_classes= and labels= are not supported, because the entropy of the base rate needs two classes; pass "
            "num_labels= for several 0/1 labels"
            if self._class_settings and not self.num_labels
            else None
        )

    def of(self, state: ScoreSums) -> Any:
        # The loss of logits has no upper bound, and the entropy of a rare class is tiny. The quotient can therefore
        # overflow to infinity, and numpy need not warn about that.
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
    """Return the entropy of a binary variable with probability `b`, in nats, or NaN if `b` is 0 or 1.

    `rest` is 1 - `b`. It is a separate parameter so that no digits are lost if `b` is close to 1. Both can be arrays.
    """
    some = (b > 0) & (rest > 0)
    # The logarithm accepts neither 0 nor NaN. Such elements are therefore replaced by 1/2 first, and by NaN in the
    # result.
    b, rest = np.where(some, b, 0.5), np.where(some, rest, 0.5)
    return np.where(some, -(b * elementary.log(b) + rest * elementary.log(rest)), float("nan"))


class BrierScore(RowLoss, tag="brier_score"):
    """Brier score: the mean squared difference between the predicted probability p and the label y.

    Formula: sum(w * (p - y)**2) / sum(w), for weights w, as in scikit-learn's `brier_score_loss`. Labels can be soft.
    For several classes, the squares are summed over all classes, so the value lies between 0 and 2 (Brier 1950;
    scikit-learn's `scale_by_half=False`).

    Notes
    -----
    Each term is rounded to a multiple of 2**-60, and the sum is exact. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.BrierScore().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.158125
    """

    about = About(best="low", formula="weighted mean over rows of (p - y)^2")

    terms = ("brier",)


class Calibration(SummedMetric, tag="calibration"):
    """Calibration ratio: the predicted number of positives over the observed number; above 1 means over-prediction.

    Formula: sum(w * p) / sum(w * y), for weights w, predicted probabilities p and labels y. With `inverse=True`, it is
    sum(w * y) / sum(w * p), which is called COPC (clicks over predicted clicks).

    Parameters
    ----------
    inverse : bool
        Whether to divide the observed number of positives by the predicted number.

    Notes
    -----
    Sums are exact, and their quotient is rounded once. The value is undefined without positives, or, with
    `inverse=True`, if all predictions are 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Calibration().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.75]).compute()
    0.8
    """

    about = About(
        best=1.0,
        interval_scale="log",
        formula=("(sum of w p) / (sum of w y), for weight w, predicted probability p and label y"),
    )

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
        # The denominator is a sum of rounded terms, so its relative error `off` also changes the quotient. With soft
        # labels, the numerator is also a sum of rounded terms.
        off = lost / predicted
        return 8 * (limits.high * (rounding + off) + (off if self.soft_labels else 0))

    def reason(self, state: ScoreSums) -> str | None:
        missing = "the predictions are all zero" if self.inverse else "no positives"
        return super().reason(state) or (None if self.of(state).denominator else missing)


class CTR(SummedMetric, tag="ctr"):
    """Click-through rate, or prevalence: the weighted share of positives.

    Formula: sum(w * y) / sum(w), for weights w and labels y. Scores are not needed.

    Parameters
    ----------
    soft_labels : bool
        Whether targets are numbers in [0, 1] rather than 0 or 1; the value is then their mean.

    Notes
    -----
    Counts (or sums of soft labels) are exact, and their quotient is rounded once. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CTR().update(y_true=[0, 0, 1, 0]).compute()
    0.25
    """

    about = About(
        formula="(sum of w y) / (sum of w), for weight w and label y",
        bound="exact: the value is computed from counts and rounded once",
        value_range=(0, 1),
        interval_scale="logit",
        interval_methods=("wilson", "delta"),
    )

    terms = (LABEL,)

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.weight(1), state.weight())


class PredictedCTR(SummedMetric, tag="predicted_ctr"):
    """Predicted click-through rate: the weighted mean of the predicted probabilities.

    Formula: sum(w * p) / sum(w), for weights w and predicted probabilities p.

    Notes
    -----
    The sum is exact, and the mean is rounded once. Calibration has the same state, so computing both takes no more
    memory or time than computing only one of them. With two classes, the metric needs no labels; rows without a label
    are counted as negatives. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.PredictedCTR().update(y_score=[0.1, 0.4, 0.35, 0.75]).compute()
    0.4
    """

    about = About(interval_scale="logit", formula="(sum of w p) / (sum of w), for weight w and predicted probability p")

    terms = ("score",)

    def make_state(self) -> Any:
        if self._class_settings or self.soft_labels:
            return super().make_state()
        return ScoreSums(terms=self.terms, scale=self.scale, unlabelled=True)

    def of(self, state: ScoreSums) -> Quotient:
        return Quotient(state.total("score"), state.weight())
