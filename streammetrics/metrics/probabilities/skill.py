"""Skill scores: the share by which a model reduces the loss of a reference, such as a constant prediction."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ...numerics import elementary
from ...numerics.exact import Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient
from ...statistics.decision_counts import MIN_EPS
from ...statistics.row_means import ClassRows
from ...statistics.row_terms import RowTerms
from .losses import LABEL, SummedMetric

__all__ = ["BrierSkillScore", "D2Brier", "D2LogLoss", "LogLossSkillScore"]

ONE_CLASS = "one class: the base rate predicts all rows without a loss"
TOGETHER = "the state does not contain the covariance of both losses; Sharded(..., unit=) has an interval"


class SkillMetric(SummedMetric):
    """Base class for skill scores: 1 - loss / (loss of a reference).

    By default, the reference always predicts the mean label, which is the best constant.
    """

    about = About(best="high", value_range=(None, 1), read_cells=None)

    interval_within = (-math.inf, 1.0)

    @property
    def _loss(self) -> str:
        """The name of the term that is the loss of a row, such as "log_loss"."""
        return self.terms[0]

    @property
    def _rate(self) -> float | None:
        """The fixed probability that the reference predicts (`base_rate`), or None if it is not fixed."""
        return getattr(self, "base_rate", None)

    @property
    def _baseline(self) -> bool:
        """Whether the reference is a column of predictions (the `baseline` setting)."""
        return getattr(self, "baseline", False)

    def make_state(self) -> Any:
        if not self._of_classes:
            return super().make_state()
        classes = self.num_classes or len(self.labels or ())
        terms = (self._loss, *(f"class@{c}" for c in range(classes)))
        return ClassRows(terms=terms, eps=getattr(self, "eps", None), **self._class_settings)

    def _lost_by(self, weight: Fraction, rate: Fraction) -> Fraction:
        """Return the total loss over the rows of a class if `rate` is always predicted as that class's probability.

        `weight` is the total weight of these rows.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define the loss of a constant prediction")

    def _reference(self, state: Any) -> Fraction:
        """Return the total loss of the reference over all rows."""
        total = state.weight()
        if self._baseline:
            return Fraction(state.total(f"baseline_{self._loss}"))
        if isinstance(state, ClassRows):
            masses = [state.total(t) for t in state.terms if t.startswith("class@")]
        else:
            masses = [state.weight(1), total - state.weight(1)]
        rate = self._rate
        rates = [m / total for m in masses] if rate is None else [Fraction(rate), 1 - Fraction(rate)]
        return sum((self._lost_by(m, b) for m, b in zip(masses, rates, strict=True) if m), Fraction(0))

    def of(self, state: Any) -> Quotient:
        if not state.weight():
            return Quotient(0, 0)
        reference = self._reference(state)
        return Quotient(reference - state.total(self._loss), reference)

    def estimate(self, reading: Any, method: str) -> Estimate:
        together = self._baseline or isinstance(reading.state, ClassRows)
        return Estimate(reading.value, reason=TOGETHER) if together else super().estimate(reading, method)

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        most = 1 + max(abs(limits.low), abs(limits.high))
        return 8 * most * (rounding + self._rounding_loss(state) / self._reference(state))

    def reason(self, state: Any) -> str | None:
        reason = super().reason(state)
        if reason or self._reference(state):
            return reason
        return "the loss of the reference is 0" if self._baseline or self._rate is not None else ONE_CLASS


def gradient_of_share(loss: Any, reference: Any, slope: Any) -> tuple[Any, Any]:
    """Return the derivatives of a skill score, 1 - loss / reference, with respect to the loss and the mean label.

    `slope` is the derivative of the reference's loss with respect to the mean label.
    """
    return -1 / reference, loss * slope / (reference * reference)


class SkillOverReference(SkillMetric):
    """Base class for skill scores whose reference can be a rate (`base_rate=0.1`) or a column (`baseline=True`)."""

    base_rate: float | None = setting(default=None, low=MIN_EPS, high=0.9999999999999999)
    baseline: bool = setting(default=False)

    @property
    def _setting_conflict(self) -> str | None:
        if self.baseline and (self.base_rate is not None or self._class_settings or self.soft_labels):
            return (
                "baseline=True needs one 0/1 label in each row and replaces base_rate=; leave out base_rate=, "
                "soft_labels= and the number of classes or labels"
            )
        if self.baseline and getattr(self, "eps", None) == 0.0:
            return "with baseline=True, expected eps= above 0, found 0; leave eps= out, or pass a positive number"
        if self.base_rate is not None and self._of_classes:
            return (
                "base_rate= does not support num_classes= and labels=; leave them out for two classes, or pass "
                "num_labels= for several 0/1 labels"
            )
        return super()._setting_conflict

    def make_state(self) -> Any:
        if not self.baseline:
            return super().make_state()
        eps: Any = getattr(self, "eps", None)
        terms = (self._loss, f"baseline_{self._loss}")
        return RowTerms(terms=terms, over="baselines", scale=self.scale, eps=eps or None)


class D2LogLoss(SkillMetric, tag="d2_log_loss"):
    """D2 of log-loss: the share by which the model reduces the log-loss of predicting the class shares; 1 is perfect.

    Formula: 1 - log-loss / -(sum over classes c of b_c * log(b_c)), where b_c is the weighted share of class c. For two
    classes, it is 1 - NormalizedEntropy, the relative information gain.

    Parameters
    ----------
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`).
    average : {"macro", "micro", "weighted", None}
        How to combine the values of several labels. "macro": their mean. "micro": one value for all labels together.
        "weighted": their mean, weighted by the number of positives of each label. None: an array with one value for
        each label. For several classes, there is a single value, and the state takes 1.1 kB for each class.

    Notes
    -----
    The definition matches scikit-learn's `d2_log_loss_score`. Logarithms of shares have an error of at most 1 ulp. The
    rest of the computation is exact and rounded once. The state is the same as for LogLoss. A negative value means that
    the model is worse than predicting the class shares. The value is undefined without rows or if all rows are of one
    class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2LogLoss().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.318633
    """

    about = About(formula="1 - log-loss / (entropy of the class shares)")

    eps: float | None = setting(default=None, low=0.0, high=0.25)

    terms = ("log_loss", LABEL)

    def _lost_by(self, weight: Fraction, rate: Fraction) -> Fraction:
        return weight * Fraction(-float(elementary.log(to_float(rate))))

    def gradient(self, loss: Any, rate: Any) -> tuple[Any, Any]:
        b = np.where((rate > 0) & (rate < 1), rate, 0.5)
        fixed = b if self._rate is None else np.float64(self._rate)
        yes, no = -elementary.log(fixed), -elementary.log(1 - fixed)
        return gradient_of_share(loss, b * yes + (1 - b) * no, yes - no)


class LogLossSkillScore(SkillOverReference, D2LogLoss, tag="log_loss_skill_score"):
    """Log-loss skill score: the share by which the model reduces the log-loss of a reference; 1 is perfect.

    Formula: 1 - (log-loss of the model) / (log-loss of the reference). The reference either predicts a constant (the
    mean label or a fixed rate) or takes its predictions from a column of the data.

    Parameters
    ----------
    base_rate : float, optional
        A fixed rate that the reference predicts.
    baseline : bool
        Whether the reference is the column `baseline`: the scores of another model, on the scale of `y_score`.

    Notes
    -----
    Without `base_rate` and `baseline`, the value equals D2LogLoss. With `base_rate`, the denominator is the log-loss of
    that rate on these rows, whereas NormalizedEntropy divides by the entropy of the rate. With `baseline=True`, the
    state takes 2.2 kB and an update about 100 ns per row. The value is undefined without rows or if the loss of the
    reference is 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> skill = sm.LogLossSkillScore(baseline=True)
    >>> round(skill.update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], baseline=[0.2, 0.5, 0.4, 0.6]).compute(), 6)
    0.193844
    """

    about = About(formula="1 - (log-loss of the model) / (log-loss of the reference)")


class D2Brier(SkillMetric, tag="d2_brier"):
    """D2 Brier score: the share by which the model reduces the Brier score of predicting the class shares; 1 is perfect.

    Formula: 1 - Brier score / (sum over classes c of b_c * (1 - b_c)), where b_c is the weighted share of class c. For
    two classes, it is 1 - Brier score / (b * (1 - b)), where b is the share of positives.

    Parameters
    ----------
    average : {"macro", "micro", "weighted", None}
        How to combine the values of several labels. "macro": their mean. "micro": one value for all labels together.
        "weighted": their mean, weighted by the number of positives of each label. None: an array with one value for
        each label. For several classes, there is a single value, and the state takes 1.1 kB for each class.

    Notes
    -----
    The definition matches scikit-learn's `d2_brier_score`. The value is exact apart from one rounding. The state is
    the same as for BrierScore. The value is undefined without rows or if all rows are of one class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2Brier().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.3675
    """

    about = About(formula="1 - (Brier score) / (b (1 - b)), where b is the share of positives")

    terms = ("brier", LABEL)

    @property
    def _setting_conflict(self) -> str | None:
        conflict = "soft_labels=True is not supported; use sm.R2, which has the same definition"
        return conflict if self.soft_labels else super()._setting_conflict

    def _lost_by(self, weight: Fraction, rate: Fraction) -> Fraction:
        # For several classes, the squared errors of a row are summed over all classes. If the class shares b_c are
        # predicted, the mean of this sum is the sum of b_c * (1 - b_c).
        rest = 1 - rate
        return weight * (rest if self._of_classes else rest * rest)

    def gradient(self, loss: Any, rate: Any) -> tuple[Any, Any]:
        r = rate if self._rate is None else np.float64(self._rate)
        return gradient_of_share(loss, rate * (1 - r) * (1 - r) + (1 - rate) * r * r, 1 - 2 * r)


class BrierSkillScore(SkillOverReference, D2Brier, tag="brier_skill_score"):
    """Brier skill score: the share by which the model reduces the Brier score of a reference; 1 is perfect.

    Formula: 1 - (Brier score of the model) / (Brier score of the reference). The reference either predicts a constant
    (the mean label or a fixed rate) or takes its predictions from a column of the data.

    Parameters
    ----------
    base_rate : float, optional
        A fixed rate that the reference predicts; forecasters call such a reference climatology.
    baseline : bool
        Whether the reference is the column `baseline`: the scores of another model, on the scale of `y_score`.

    Notes
    -----
    Without `base_rate` and `baseline`, the value equals D2Brier. The value is exact apart from one rounding. With
    `baseline=True`, the state takes 2.2 kB and an update about 20 ns per row. Source: Murphy (1973). The value is
    undefined without rows or if the loss of the reference is 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> skill = sm.BrierSkillScore(baseline=True)
    >>> round(skill.update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], baseline=[0.2, 0.5, 0.4, 0.6]).compute(), 6)
    0.219136
    """

    about = About(formula="1 - (Brier score of the model) / (Brier score of the reference)")
