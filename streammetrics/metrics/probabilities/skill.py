"""Skill: how much of the loss of a reference, such as predicting the average, a model saves."""

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
from ...statistics.labels import LEAST
from ...statistics.row_means import ClassRows
from ...statistics.row_terms import RowTerms
from .losses import LABEL, SummedMetric

__all__ = ["BrierSkillScore", "D2Brier", "D2LogLoss", "LogLossSkillScore"]

ONE_CLASS = "one class: predicting the average has no loss"
TOGETHER = "the state does not say how both losses vary together: Sharded(..., unit=) does"


class ShareSaved(SummedMetric):
    """1 - loss / loss of a reference: by default of the average of the data, beyond which no constant does better."""

    about = About(best="high", value_range=(None, 1), read_cells=None)

    interval_within = (-math.inf, 1.0)

    @property
    def _loss(self) -> str:
        """The term that is the loss of a row."""
        return self.terms[0]

    @property
    def _rate(self) -> float | None:
        """The rate that the reference predicts, if it is fixed."""
        return getattr(self, "base_rate", None)

    @property
    def _baseline(self) -> bool:
        """Whether the reference is a column."""
        return getattr(self, "baseline", False)

    def make_state(self) -> Any:
        if not self._of_classes:
            return super().make_state()
        classes = self.num_classes or len(self.labels or ())
        terms = (self._loss, *(f"class@{c}" for c in range(classes)))
        return ClassRows(terms=terms, eps=getattr(self, "eps", None), **self._class_settings)

    def _lost_by(self, weight: Fraction, rate: Fraction) -> Fraction:
        """Return what rows of a class lose together, if it is predicted with that rate."""
        raise NotImplementedError(f"{type(self).__name__} does not say what a constant loses")

    def _reference(self, state: Any) -> Fraction:
        """Return the total loss of the reference; 0 if there is none."""
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

    def estimate(self, found: Any, method: str) -> Estimate:
        together = self._baseline or isinstance(found.state, ClassRows)
        return Estimate(found.value, reason=TOGETHER) if together else super().estimate(found, method)

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        most = 1 + max(abs(found.low), abs(found.high))
        return 8 * most * (rounding + self._lost(state) / self._reference(state))

    def reason(self, state: Any) -> str | None:
        reason = super().reason(state)
        if reason or self._reference(state):
            return reason
        return "the reference loses nothing" if self._baseline or self._rate is not None else ONE_CLASS


def gradient_of_share(loss: Any, reference: Any, slope: Any) -> tuple[Any, Any]:
    """Return how 1 - loss / reference changes with the loss, and with the rate that the reference has that slope in."""
    return -1 / reference, loss * slope / (reference * reference)


class Referred(ShareSaved):
    """The same against a reference of the user's."""

    base_rate: float | None = setting(default=None, low=LEAST, high=0.9999999999999999)
    baseline: bool = setting(default=False)

    @property
    def _refused(self) -> str | None:
        if self.baseline and (self.base_rate is not None or self._class_settings or self.soft_labels):
            return "baseline=True is of 0/1 labels, and instead of base_rate="
        if self.baseline and getattr(self, "eps", None) == 0.0:
            return "with baseline=True probabilities are kept from 0 and 1: give eps= above 0, or none"
        if self.base_rate is not None and self._of_classes:
            return "base_rate= is of two classes, or of each label"
        return super()._refused

    def make_state(self) -> Any:
        if not self.baseline:
            return super().make_state()
        eps: Any = getattr(self, "eps", None)
        terms = (self._loss, f"baseline_{self._loss}")
        return RowTerms(terms=terms, over="baselines", scale=self.scale, eps=eps or None)


class D2LogLoss(ShareSaved, tag="d2_log_loss"):
    """D2 of log-loss: the share of the log-loss of predicting the average that the model saves; 1 is perfect.

    Formula: 1 - log-loss / -sum over classes of b_c log(b_c), b_c the weighted share of a class. Of two classes it is
    1 - NormalizedEntropy, the relative information gain.

    Parameters
    ----------
    scale, eps, num_classes, labels, num_labels, average, soft_labels, on_invalid
        As for LogLoss; classes have one value together, and cost 1.1 kB each.

    Notes
    -----
    Definition as scikit-learn's `d2_log_loss_score`. Logarithms of shares are within 1 ulp, all else is exact, rounded
    once. State of LogLoss. Below 0 the model is worse than the average. Undefined without rows, and for one class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2LogLoss().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.318633
    """

    about = About(formula="1 - log-loss / entropy of the shares of classes")

    eps: float | None = setting(default=None, low=0.0, high=0.25)

    terms = ("log_loss", LABEL)

    def _lost_by(self, weight: Fraction, rate: Fraction) -> Fraction:
        return weight * Fraction(-float(elementary.log(to_float(rate))))

    def gradient(self, loss: Any, rate: Any) -> tuple[Any, Any]:
        b = np.where((rate > 0) & (rate < 1), rate, 0.5)
        fixed = b if self._rate is None else np.float64(self._rate)
        yes, no = -elementary.log(fixed), -elementary.log(1 - fixed)
        return gradient_of_share(loss, b * yes + (1 - b) * no, yes - no)


class LogLossSkillScore(Referred, D2LogLoss, tag="log_loss_skill_score"):
    """Log-loss skill score: the share of the log-loss of a reference that the model saves; 1 is perfect.

    Formula: 1 - log-loss / log-loss of the reference: the average of the data, a fixed rate, or a column.

    Parameters
    ----------
    base_rate : float, optional
        A fixed rate that the reference predicts.
    baseline : bool
        Whether the reference is a column `baseline`: the scores of another model, on the scale of `y_score`.
    scale, eps, num_classes, labels, num_labels, average, soft_labels, on_invalid
        As for D2LogLoss.

    Notes
    -----
    Without a reference it is D2LogLoss; with a fixed rate, unlike NormalizedEntropy, it divides by what that rate would
    have lost on these rows. With a column 2.2 kB, some 100 ns a row. Undefined without rows, and where the reference loses
    nothing.

    Examples
    --------
    >>> import streammetrics as sm
    >>> skill = sm.LogLossSkillScore(baseline=True)
    >>> round(skill.update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], baseline=[0.2, 0.5, 0.4, 0.6]).compute(), 6)
    0.193844
    """

    about = About(formula="1 - log-loss / log-loss of the reference")


class D2Brier(ShareSaved, tag="d2_brier"):
    """D2 of the Brier score: the share of the squared error of predicting the average that the model saves; 1 is perfect.

    Formula: 1 - Brier score / sum over classes of b_c (1 - b_c), b_c the weighted share of a class; of two classes
    1 - Brier score / (b (1 - b)).

    Parameters
    ----------
    scale, num_classes, labels, num_labels, average, on_invalid
        As for BrierScore; classes have one value together, and cost 1.1 kB each.

    Notes
    -----
    Definition as scikit-learn's `d2_brier_score`. Exact, rounded once. State of BrierScore. Undefined without rows, and
    for one class.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2Brier().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.3675
    """

    about = About(formula="1 - Brier score / (b (1 - b))")

    terms = ("brier", LABEL)

    @property
    def _refused(self) -> str | None:
        soft = "of soft labels it is R2 of numbers, sm.R2" if self.soft_labels else None
        return soft or super()._refused

    def _lost_by(self, weight: Fraction, rate: Fraction) -> Fraction:
        rest = 1 - rate
        return weight * (rest if self._of_classes else rest * rest)  # of classes the squares of all others, too

    def gradient(self, loss: Any, rate: Any) -> tuple[Any, Any]:
        r = rate if self._rate is None else np.float64(self._rate)
        return gradient_of_share(loss, rate * (1 - r) * (1 - r) + (1 - rate) * r * r, 1 - 2 * r)


class BrierSkillScore(Referred, D2Brier, tag="brier_skill_score"):
    """Brier skill score: the share of the squared error of a reference that the model saves; 1 is perfect.

    Formula: 1 - Brier score / Brier score of the reference: the average of the data, a fixed rate, or a column.

    Parameters
    ----------
    base_rate : float, optional
        A fixed rate that the reference predicts: the climatology of forecasters.
    baseline : bool
        Whether the reference is a column `baseline`: the scores of another model, on the scale of `y_score`.
    scale, num_classes, labels, num_labels, average, on_invalid
        As for D2Brier.

    Notes
    -----
    Without a reference it is D2Brier. Exact, rounded once. With a column 2.2 kB, some 20 ns a row. Source: Murphy (1973).
    Undefined without rows, and where the reference loses nothing.

    Examples
    --------
    >>> import streammetrics as sm
    >>> skill = sm.BrierSkillScore(baseline=True)
    >>> round(skill.update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], baseline=[0.2, 0.5, 0.4, 0.6]).compute(), 6)
    0.219136
    """

    about = About(formula="1 - Brier score / Brier score of the reference")
