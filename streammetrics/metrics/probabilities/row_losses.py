"""Losses that are means over rows: focal, hinge and Poisson loss.

The state (`RowTerms`, or `ClassRows` for several classes) contains the exact sum of the losses of all rows. Only the
result is rounded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ...collect.metric import Metric, T, no_weight_reason
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate, stack_estimates
from ...reading.reading import Quotient
from ...statistics.row_means import ClassRows, RowMeans
from ...statistics.row_terms import RowTerms
from ..averages import OfClasses
from ..standard_errors import mean

__all__ = ["FocalLoss", "HingeLoss", "PoissonLogLoss", "SquaredHingeLoss"]

DEPENDENT = (
    "losses of the same rows are not independent; average=None has an interval for each class, and Sharded(..., unit=) "
    "has an interval for the average"
)

TWO_TERMS = "the two terms of a row are correlated; full=False has an interval"


class RowMean(Metric[Any, T]):
    """Base class for metrics that are the mean over rows of a quantity (a term), such as the hinge loss of a row."""

    about = About(
        cost="1.1 kB; about 50 ns per row",
        bound=(
            "exact except for rounding: the value of each row is computed in float64, the sum is exact, and the result "
            "is rounded once"
        ),
    )

    @property
    def term(self) -> str:
        """The name of the term that is averaged, such as "hinge"."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `term`; override `term` to return the name of the averaged term"
        )

    interval_within: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    def of(self, state: RowMeans) -> Any:
        return Quotient(state.total(self.term), state.weight())

    def estimate(self, reading: Any, method: str) -> Estimate:
        spread = reading.state.estimate_means(self.term)
        return mean(reading.value, spread, about_of(self).interval_scale, method, self.interval_within)

    def reason(self, state: RowMeans) -> str | None:
        return no_weight_reason(state)


class FocalLoss(RowMean[float], OfClasses[Any, float], tag="focal_loss"):
    """Focal loss: log-loss in which a row gets less weight if the model gives its label a high probability.

    Formula: -sum(w * a * (1 - q)**gamma * log(q)) / sum(w), for weights w, where q is the probability of the label. The
    factor a is `alpha` for positives and 1 - `alpha` for negatives; with several classes, it is `alpha` for each class;
    without `alpha`, it is 1.

    Parameters
    ----------
    gamma : float
        The exponent of 1 - q; 0 gives log-loss.
    alpha : float, optional
        The factor for positives. Keras (with `apply_class_balancing=True`) and torchvision use 0.25.
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits. From logits, the loss is computed with log(1 + e^-z), without
        clipping.
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`).

    Notes
    -----
    The definition matches Keras' `BinaryFocalCrossentropy` and `CategoricalFocalCrossentropy` with `eps=1e-7`. The loss
    of each row has an error of a few ulp, and the sum is exact. Source: Lin et al. (2017). The value is undefined without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.FocalLoss().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 6)
    0.133815
    """

    about = About(
        best="low",
        formula=(
            "weighted mean over rows of -a (1 - q)^gamma log(q), for probability q of the label and factor a of its "
            "class"
        ),
        cost="1.1 kB; about 150 ns per row",
    )

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

    def estimate(self, reading: Any, method: str) -> Estimate:
        estimate, times = super().estimate(reading, method), self._times
        # With alpha=0, the standard error is 0. It is not computed as a product, because `estimate.error` can be
        # infinite, and 0 times infinity is NaN.
        return estimate._replace(error=estimate.error * times if times else 0.0)


class HingeLoss(RowMean[Any], OfClasses[Any, Any], tag="hinge_loss"):
    """Hinge loss: the mean amount by which scores fall short of the margin of a support vector machine.

    Formula: sum(w * max(0, 1 - t * s)) / sum(w), for weights w and scores s, where t is 1 for positives and -1 for
    negatives. For several classes, the loss of a row is max(0, 1 + m - s). Here s is the score of the true class, and m
    is the highest score of the other classes (Crammer and Singer). With `multiclass="one-vs-rest"`, the loss for two
    classes is computed for each class against the rest.

    Parameters
    ----------
    squared : bool
        Whether each loss is squared.
    multiclass : {"crammer-singer", "one-vs-rest"}
        How to treat several classes. "crammer-singer": each row has one loss. "one-vs-rest": each row has a loss for
        each class against the rest.
    average : {"macro", None}
        With "one-vs-rest": whether the value is the mean over classes ("macro") or an array with one value for each class
        (None).

    Notes
    -----
    Scores are any numbers up to 2**100 (decision values of a support vector machine, logits or probabilities), and are
    used unchanged; torchmetrics applies the sigmoid (or softmax) to any batch that contains a score outside [0, 1]. The
    loss of each row is rounded once or twice, and the sum is exact.

    The definitions match scikit-learn's `hinge_loss`, torchmetrics' `HingeLoss` and Keras' `Hinge`. Keras'
    `CategoricalHinge` differs: if the highest score of the other classes is negative, it uses 0 instead. The value is
    undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.HingeLoss().update([0, 1, 1], [-2.0, 0.5, -0.25]).compute()
    0.5833333333333334
    >>> sm.HingeLoss(num_classes=3).update([0, 2], [[1.5, 0, 0.25], [0.5, -1, 0.25]]).compute()
    0.625
    """

    about = About(
        best="low",
        formula=(
            "weighted mean over rows of max(0, 1 - t s), where s is the score, and t is 1 for positives and -1 for "
            "negatives"
        ),
        cost='1.1 kB, for each class with "one-vs-rest"; about 10 ns per score',
    )

    squared: bool = setting(default=False)
    multiclass: str = setting(default="crammer-singer", choices=("crammer-singer", "one-vs-rest"))
    average: str | None = setting(default="macro", choices=("macro", None))

    interval_within = (0.0, math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._class_settings and self.multiclass == "one-vs-rest":
            raise ValueError(f'{type(self).__name__}: multiclass="one-vs-rest" needs num_classes= or labels=')
        if self.average is None and self.multiclass != "one-vs-rest":
            raise ValueError(
                f'{type(self).__name__}: average=None needs multiclass="one-vs-rest", which has a value for each class'
            )

    @property
    def term(self) -> str:
        return "squared_hinge" if self.squared else "hinge"

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the terms that the state sums: a single one, or one for each class with "one-vs-rest"."""
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

    def estimate(self, reading: Any, method: str) -> Estimate:
        if self.average is None:
            each = zip(reading.value.tolist(), map(reading.state.estimate_means, self.terms), strict=True)
            return stack_estimates(
                [mean(value, spread, about_of(self).interval_scale, method) for value, spread in each]
            )
        return Estimate(reading.value, reason=DEPENDENT) if len(self.terms) > 1 else super().estimate(reading, method)


class SquaredHingeLoss(HingeLoss, tag="squared_hinge_loss"):
    """Squared hinge loss: the mean of squared hinge losses, which gives large errors more weight.

    Formula: sum(w * max(0, 1 - t * s)**2) / sum(w), for weights w and scores s, where t is 1 for positives and -1 for
    negatives. For several classes, the loss of each row is the square of its HingeLoss.

    Notes
    -----
    The metric is `HingeLoss(squared=True)` under its Keras name. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SquaredHingeLoss().update([0, 1, 1], [-2.0, 0.5, -0.25]).compute()
    0.6041666666666666
    """

    about = About(
        formula=(
            "weighted mean over rows of max(0, 1 - t s)^2, where s is the score, and t is 1 for positives and -1 for "
            "negatives"
        )
    )

    squared: bool = setting(default=True)


class PoissonLogLoss(RowMean[float], tag="poisson_log_loss"):
    """Poisson log-loss: the mean negative log-likelihood of counts under Poisson distributions with the predicted rates.

    Formula: sum(w * (p - y * log(p + eps))) / sum(w), for weights w, predicted rates p and counts y. With
    `log_input=True`, a prediction x is the logarithm of the rate, p = e**x. With `full=True`, Stirling's formula for
    log(y!), which is y * log(y) - y + log(2 * pi * y) / 2, is added for y > 1.

    Parameters
    ----------
    log_input : bool
        Whether predictions are logarithms of rates, which is PyTorch's default. These logarithms must lie between -256 and
        256.
    full : bool
        Whether to add the term that depends only on the target.
    eps : float
        The number that is added to a rate, so that the logarithm of 0 is defined: 1e-8 in PyTorch, 1e-7 in Keras.

    Notes
    -----
    The definition matches PyTorch's `PoissonNLLLoss` and Keras' `Poisson`. PoissonDeviance is twice this loss, minus
    twice the loss of perfect predictions, so its best value is 0. Targets must be at least 0. The value of each row is
    computed in float64, and the sum is exact. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.PoissonLogLoss().update([2, 0, 1, 4], [0.5, 0.5, 2.0, 2.0]).compute(), 6)
    0.73014
    >>> round(sm.PoissonLogLoss(log_input=True, full=True).update([2, 0], [0.5, -1.0]).compute(), 6)
    0.834204
    """

    about = About(
        best="low",
        positional_columns=("y_true", "y_pred"),
        formula=("weighted mean over rows of p - y log(p + eps), for predicted rate p, count y and a small eps"),
    )

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

    def estimate(self, reading: Any, method: str) -> Estimate:
        return Estimate(reading.value, reason=TWO_TERMS) if self.full else super().estimate(reading, method)
