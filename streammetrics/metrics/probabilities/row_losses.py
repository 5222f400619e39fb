"""Losses that are means over rows of a term of their own: focal, hinge, Poisson; each row is one number.

All read `RowTerms`, or `ClassRows` of several classes: exact sums, rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ...collect.metric import Metric, T, nothing_counted
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate, side_by_side
from ...reading.reading import Quotient
from ...statistics.row_means import ClassRows, RowMeans
from ...statistics.row_terms import RowTerms
from ..averages import OfClasses
from ..standard_errors import mean

__all__ = ["FocalLoss", "HingeLoss", "PoissonLogLoss", "SquaredHingeLoss"]

DEPENDENT = (
    "losses of the same rows are not independent: average=None has an interval for each, Sharded(..., unit=) one"
)

TWO_TERMS = "two terms of a row vary together: full=False has an interval"


class RowMean(Metric[Any, T]):
    """The mean over rows of a term, or a sum of terms."""

    about = About(
        cost="1.1 kB; about 50 ns a row", bound="exact: rows computed in float64, summed exactly, rounded once"
    )

    @property
    def term(self) -> str:
        """What is averaged."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it averages")

    interval_within: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    def of(self, state: RowMeans) -> Any:
        return Quotient(state.total(self.term), state.weight())

    def estimate(self, found: Any, method: str) -> Estimate:
        spread = found.state.spread_of(self.term)
        return mean(found.value, spread, about_of(self).interval_scale, method, self.interval_within)

    def reason(self, state: RowMeans) -> str | None:
        return nothing_counted(state)


class FocalLoss(RowMean[float], OfClasses[Any, float], tag="focal_loss"):
    """Focal loss: log-loss that counts a row the less, the surer the model is of its label.

    Formula: -(1/W) sum w a (1 - q)**gamma log(q), q the probability of the label; a is `alpha` for positives and 1 - alpha
    for negatives, `alpha` for every class of several, and 1 without it.

    Parameters
    ----------
    gamma : float
        How much less; 0 is log-loss.
    alpha : float, optional
        What positives weigh; Keras, with `apply_class_balancing=True`, and torchvision have 0.25.
    scale : {"probability", "logit"}
        Of a logit the loss is log(1 + e^-z), without clipping.
    num_classes, labels, eps, on_invalid
        As for LogLoss.

    Notes
    -----
    Each row is within a few ulp, their sum exact. 1.1 kB, about 100 ns a row. Definition as Keras'
    `BinaryFocalCrossentropy` and `CategoricalFocalCrossentropy` with `eps=1e-7`. Source: Lin et al. (2017). Undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.FocalLoss().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.133815
    """

    about = About(best="low", formula="-(1/W) sum w a (1 - q)^gamma log(q)")

    gamma: float = setting(default=2.0, low=0.0, high=100.0)
    alpha: float | None = setting(default=None, low=0.0, high=1.0)
    scale: str = setting(default="probability", choices=("probability", "logit"))
    eps: float | None = setting(default=None, above=0.0, high=0.25)

    interval_within = (0.0, math.inf)

    @property
    def term(self) -> str:
        balance = "" if self.alpha is None or self._class_settings else f":{self.alpha!r}"
        return f"focal@{self.gamma!r}{balance}"

    def make_state(self) -> Any:
        how: dict[str, Any] = {"terms": (self.term,), "scale": self.scale, "eps": self.eps}
        return ClassRows(**how, **self._class_settings) if self._class_settings else RowTerms(**how)

    @property
    def _times(self) -> float:
        return self.alpha if self.alpha is not None and self._class_settings else 1.0

    def of(self, state: RowMeans) -> Quotient:
        return Quotient(Fraction(self._times) * state.total(self.term), state.weight())

    def estimate(self, found: Any, method: str) -> Estimate:
        made, times = super().estimate(found, method), self._times
        return made._replace(error=made.error * times if times else 0.0)  # 0 times infinity is no number


class HingeLoss(RowMean[Any], OfClasses[Any, Any], tag="hinge_loss"):
    """Hinge loss: how far scores are from the right side of the margin of a support vector machine.

    Formula: (1/W) sum w max(0, 1 - t s), t = 1 for positives and -1 for negatives. Of several classes
    max(0, 1 + max over others of s_j - s of the true class) (Crammer and Singer), or of each class against the rest the
    loss of two classes.

    Parameters
    ----------
    squared : bool
        Whether each loss is squared.
    multiclass : {"crammer-singer", "one-vs-rest"}
        Of several classes: one loss a row, or one a class.
    average : {"macro", None}
        Of one against the rest: the mean over classes, or an array of a value each.
    num_classes, labels : int, or tuple
        As for AUC; scores are rows x classes.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Scores are any numbers up to 2**100: decisions of a machine, logits, or probabilities, and are taken as they are;
    torchmetrics takes the sigmoid (softmax) of a batch that has one outside [0, 1]. Rows are rounded once or twice, their
    sum is exact. 1.1 kB (one-vs-rest: a class); 20 ns a score. Definitions as scikit-learn's `hinge_loss`, torchmetrics'
    `HingeLoss` and Keras' `Hinge`; Keras' `CategoricalHinge` takes the best of the others for at least 0. Undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HingeLoss().update([0, 1, 1], [-2.0, 0.5, -0.25]).compute()
    0.5833333333333334
    >>> sm.HingeLoss(num_classes=3).update([0, 2], [[1.5, 0, 0.25], [0.5, -1, 0.25]]).compute()
    0.625
    """

    about = About(best="low", formula="(1/W) sum w max(0, 1 - t s), t = 1 or -1")

    squared: bool = setting(default=False)
    multiclass: str = setting(default="crammer-singer", choices=("crammer-singer", "one-vs-rest"))
    average: str | None = setting(default="macro", choices=("macro", None))

    interval_within = (0.0, math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._class_settings and self.multiclass == "one-vs-rest":
            raise ValueError(f"{type(self).__name__}: multiclass= needs num_classes= or labels=")
        if self.average is None and self.multiclass != "one-vs-rest":
            raise ValueError(f'{type(self).__name__}: average=None is for multiclass="one-vs-rest"')

    @property
    def term(self) -> str:
        return "squared_hinge" if self.squared else "hinge"

    @property
    def terms(self) -> tuple[str, ...]:
        """The sums that the value is the mean of."""
        if self.multiclass != "one-vs-rest":
            return (self.term,)
        classes = self.num_classes or len(self.labels or ())
        return tuple(f"{'squared_margin' if self.squared else 'margin'}@{c}" for c in range(classes))

    @property
    def name(self) -> str:
        name = "squared_hinge_loss" if self.squared else "hinge_loss"
        return f"{name}_each" if self.average is None else name

    def make_state(self) -> Any:
        if not self._class_settings:
            return RowTerms(terms=self.terms, scale="real")
        return ClassRows(terms=self.terms, scale="logit", **self._class_settings)

    def of(self, state: RowMeans) -> Any:
        totals, weight = [state.total(term) for term in self.terms], state.weight()
        if self.average is None:
            return np.array([to_float(total, weight) for total in totals])
        return Quotient(sum(totals, Fraction(0)), weight * len(totals))

    def estimate(self, found: Any, method: str) -> Estimate:
        if self.average is None:
            each = zip(found.value.tolist(), map(found.state.spread_of, self.terms), strict=True)
            return side_by_side([mean(value, spread, about_of(self).interval_scale, method) for value, spread in each])
        return Estimate(found.value, reason=DEPENDENT) if len(self.terms) > 1 else super().estimate(found, method)


class SquaredHingeLoss(HingeLoss, tag="squared_hinge_loss"):
    """Squared hinge loss: as the hinge loss, but far misses count more.

    Formula: (1/W) sum w max(0, 1 - t s)**2, t = 1 for positives and -1 for negatives; of several classes as HingeLoss.

    Parameters
    ----------
    multiclass, average, num_classes, labels, on_invalid
        As for HingeLoss.

    Notes
    -----
    `HingeLoss(squared=True)` by the name that Keras has. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SquaredHingeLoss().update([0, 1, 1], [-2.0, 0.5, -0.25]).compute()
    0.6041666666666666
    """

    about = About(formula="(1/W) sum w max(0, 1 - t s)^2, t = 1 or -1")

    squared: bool = setting(default=True)


class PoissonLogLoss(RowMean[float], tag="poisson_log_loss"):
    """Poisson log-loss: the mean negative log-likelihood of counts, given their predicted rates.

    Formula: (1/W) sum w (p - y log(p + eps)); with `log_input=True` p = e**x of predictions x; with `full=True` plus
    y log(y) - y + log(2 pi y) / 2 for y > 1, Stirling's formula of log(y!).

    Parameters
    ----------
    log_input : bool
        Whether predictions are logarithms of rates (PyTorch's default), within 256 of 0.
    full : bool
        Whether the term of the target alone is added.
    eps : float
        What is added to a rate, so that 0 has a logarithm: 1e-8 in PyTorch, 1e-7 in Keras.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Targets are at least 0. Rows are computed in float64, their sum is exact. 1.1 kB a term; some 50 ns a row. Definition
    as PyTorch's `PoissonNLLLoss` and Keras' `Poisson`; PoissonDeviance is 0 at best, and twice as steep. Undefined without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.PoissonLogLoss().update([2, 0, 1, 4], [0.5, 0.5, 2.0, 2.0]).compute(), 6)
    0.73014
    >>> round(sm.PoissonLogLoss(log_input=True, full=True).update([2, 0], [0.5, -1.0]).compute(), 6)
    0.834204
    """

    about = About(best="low", positional_columns=("y_true", "y_pred"), formula="(1/W) sum w (p - y log(p + eps))")

    log_input: bool = setting(default=False)
    full: bool = setting(default=False)
    eps: float = setting(default=1e-8, above=0.0, high=1.0)

    @property
    def term(self) -> str:
        return "poisson_of_log" if self.log_input else f"poisson@{self.eps!r}"

    def make_state(self) -> RowTerms:
        terms = (self.term, "stirling") if self.full else (self.term,)
        return RowTerms(terms=terms, over="logs" if self.log_input else "rates")

    def of(self, state: RowMeans) -> Quotient:
        constant = state.total("stirling") if self.full else 0
        return Quotient(state.total(self.term) + constant, state.weight())

    def estimate(self, found: Any, method: str) -> Estimate:
        return Estimate(found.value, reason=TWO_TERMS) if self.full else super().estimate(found, method)
