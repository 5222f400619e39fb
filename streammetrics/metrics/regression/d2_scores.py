"""D2 scores: the share by which predictions reduce the loss of the best constant prediction."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric, no_weight_reason
from ...numerics.elementary import log
from ...numerics.elementary import power as raised
from ...numerics.exact import BEYOND, Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN, OwnReading, Reading, widen_for_rounding
from ...statistics.row_terms import RowTerms
from ...statistics.values import ValueHistogram
from .outputs import BoundedOutputMetric, is_undefined

__all__ = ["D2AbsoluteError", "D2Pinball", "D2Tweedie"]

LARGEST_LOG = 35.0
"""An upper bound on |log(v)| for numbers v from 2**-50 to 2**50. The rounding error of a sum of logarithms is proportional
to it."""
# The property `SavedDeviance.is_certain` is true if the relative rounding error of the null deviance (the deviance of
# always predicting the mean) is at most this large.
NEGLIGIBLE = 1e-6


class D2Pinball(BoundedOutputMetric[ValueHistogram], tag="d2_pinball"):
    """D2 of the pinball loss: the share by which the predictions reduce the loss of the best constant forecast.

    Formula: 1 - sum(w * pinball(y, p)) / (min over q of sum(w * pinball(y, q))), for weights w, targets y and
    predictions p. The best constant q is the alpha-quantile of the targets.

    Parameters
    ----------
    alpha : float
        The level of the forecast quantile, in [0, 1].
    bits : int
        The resolution of the histogram of targets: it has up to 2**(bits + 6) buckets, and no bucket is wider than
        2**-bits times the values in it.

    Notes
    -----
    The loss of the predictions is an exact sum. The loss of the best constant is computed from a histogram of targets
    (see `Quantile`), and its error is at most the width of a bucket. This error changes the score by about 0.001 at 7
    bits, wherever the targets lie. The loss of the best constant is exact for up to 32 distinct targets and for up to
    8,192 distinct integers. Each output takes at most 2 MiB during updates, and processing a row takes about 5 ns. The
    definition matches scikit-learn's `d2_pinball_score`. The value is undefined without rows or if the loss of the best
    constant is 0 (scikit-learn then returns 1.0 or 0.0).

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.D2Pinball().update([1, 2, 3], [1, 3, 3]).compute()
    0.5
    """

    about = About(
        best="high",
        nominal_range=(0.0, 1.0),
        no_interval_reason=("the loss of the best constant is an estimate, too; Sharded(..., unit=) has an interval"),
        formula="1 - sum(w pinball(y, p)) / (min over constants c of sum(w pinball(y, c)))",
        cost="16 bytes per bucket, up to 8,192 buckets per output at 7 bits; about 5 ns per row",
        bound=(
            "the loss of the best constant forecast is known within the width of a bucket; exact for up to 32 distinct "
            "targets or 8,192 integers"
        ),
    )

    alpha: float = setting(default=0.5, low=0.0, high=1.0)
    bits: int = setting(default=7, low=1, high=14)

    @property
    def name(self) -> str:
        return f"d2_pinball@{self.alpha:g}"

    @property
    def term(self) -> str:
        """The name under which the state sums the pinball loss of the predictions."""
        return f"pinball@{self.alpha!r}"

    def make_state(self) -> ValueHistogram:
        return ValueHistogram(columns=("y_true",), bits=self.bits, num_outputs=self.num_outputs, losses=(self.term,))

    def of(self, state: ValueHistogram, output: int = 0) -> Limits | None:
        least = self._least(state, output)
        if least is None or not least.value:
            return None
        loss = state.loss(self.term, output)
        low, high = (1 - loss / v if v > 0 else -BEYOND for v in (least.low, least.high))
        return Limits(low, 1 - loss / least.value, high)

    def _least(self, state: ValueHistogram, output: int) -> Limits | None:
        """Return the total loss of the best constant, with bounds that hold wherever targets lie in their buckets."""
        mass, alpha = state.mass(output), Fraction(repr(self.alpha))
        if not mass.total():
            return None
        (low, high), scale = to_whole_numbers(*state.value_bounds(output))
        weights = mass.segment_sums(np.arange(len(low) + 1))
        # The middle of a bucket is (low + high) / 2. To avoid fractions, losses are computed for low + high, and then
        # multiplied by `unit`, which contains the factor 1/2.
        unit = Fraction(2, 1) ** scale / (2 * state.unit)
        middle = best_loss(low + high, weights, alpha) * unit
        # If a target changes by d, the loss of any constant changes by at most d * max(alpha, 1 - alpha). A target
        # differs from the middle of its bucket by at most (high - low) / 2.
        slack = int(((high - low) * weights).sum()) * unit * max(alpha, 1 - alpha)
        found = Limits(middle, middle, middle).widen(slack, least=0)
        return found.widen(state.weight_rounding * 4 * found.high, least=0)

    def reason(self, state: ValueHistogram) -> str | None:
        if (nothing := no_weight_reason(state)) is not None:
            return nothing
        return "the loss of the best constant is 0" if is_undefined(self, state) else None


class D2AbsoluteError(D2Pinball, tag="d2_absolute_error"):
    """D2 of the absolute error: the share by which the model reduces the error of predicting the median; 1 is perfect.

    Formula: 1 - sum(w * |p - y|) / sum(w * |median(y) - y|), for weights w, predictions p and targets y.

    Notes
    -----
    This is `D2Pinball` at alpha = 0.5, with the same bounds, state and cost. The definition matches scikit-learn's
    `d2_absolute_error_score`. The value is undefined without rows or if all targets are equal.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2AbsoluteError().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.764706
    """

    about = About(formula="1 - sum(w |p - y|) / sum(w |median(y) - y|)")

    alpha: float = setting(default=0.5, choices=(0.5,))

    @property
    def name(self) -> str:
        return "d2_absolute_error"


class D2Tweedie(Metric[RowTerms, float], tag="d2_tweedie"):
    """D2 of a Tweedie deviance: the share by which the model reduces the deviance of predicting the mean; 1 is perfect.

    Formula: 1 - (mean deviance of predictions) / (mean deviance of always predicting the weighted mean of the targets).

    Parameters
    ----------
    power : float
        The power of the deviance: 1 is Poisson, 2 is gamma, and a power between them is compound Poisson-gamma. For power
        0, use `R2`. Targets must be at least 0, or positive if the power is at least 2. Predictions must be positive.

    Notes
    -----
    The definition matches scikit-learn's `d2_tweedie_score`. Sums are exact. The null deviance is the deviance of
    always predicting the mean. It is computed as a difference of powers, which loses digits if the targets lie far from
    0 and close together. `bounds()` allows for this error, which is 1e-12 if the spread of the targets is 3 % of their
    mean, and 0.7 if the spread is 1e-7 of their mean. Numbers must lie between 2**-50 and 2**50. The value is undefined
    without rows or if all targets are equal.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2Tweedie(power=1.5).update([2, 0, 1, 4], [1.5, 0.5, 1.0, 3.0]).compute(), 6)
    0.556663
    """

    about = About(
        best="high",
        positional_columns=("y_true", "y_pred"),
        nominal_range=(0.0, 1.0),
        formula="1 - (mean deviance of the predictions) / (mean deviance of the mean target)",
        cost="3.3 kB; about 100 ns per row",
        bound=(
            "the bounds include the rounding of the null deviance (of the mean target), but not the rounding of each "
            "row, which is about 2**-45 of its deviance"
        ),
    )

    power: float = setting(default=1.0, low=1.0, high=10.0)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{self.power:g}"

    def make_state(self) -> RowTerms:
        k = self.power
        over = "positive" if k >= 2 else "amounts"
        return RowTerms(terms=("target", f"unit@{k!r}", f"deviance@{k!r}"), over=over)

    def read(self, state: RowTerms) -> Reading:
        return SavedDeviance(self, state)


def null_deviance(state: RowTerms, power: float) -> tuple[float, float]:
    """Return the null deviance (the mean deviance of always predicting the mean) and its largest rounding error.

    The null deviance is 0 if all targets are equal. Its rounding errors come from logarithms or powers of the targets
    and the mean.
    """
    weight = state.weight()
    mean, unit = np.float64(to_float(state.total("target"), weight)), to_float(state.total(f"unit@{power!r}"), weight)
    if not mean > 0:
        return 0.0, 0.0
    if power == 2.0:
        return 2.0 * (float(log(mean)) - unit), 2.0**-50 * LARGEST_LOG
    if power == 1.0:
        return 2.0 * (unit - float(mean * log(mean))), 2.0**-50 * LARGEST_LOG * float(mean)
    scale = (1.0 - power) * (2.0 - power)
    return 2.0 * (unit - float(raised(mean, np.float64(2.0 - power)))) / scale, 2.0**-45 * unit / abs(scale)


class SavedDeviance(OwnReading):
    """The value and bounds of a D2 score; the null deviance (that of always predicting the mean) is computed once."""

    @cached_property
    def null(self) -> tuple[float, float]:
        """The null deviance (the deviance of always predicting the mean) and its largest rounding error."""
        return null_deviance(self.state, self.metric.power)

    def _raw_value(self) -> float:
        return self._share_saved(self.null[0])

    def _bounds(self) -> tuple[float, float]:
        # The bounds first allow for rounded weights. They are then widened by the largest change of the value that the
        # rounding error of the null deviance (of always predicting the mean) can cause. If the null deviance can be 0,
        # there is no lower bound.
        value, (low, high) = self.value, widen_for_rounding(self.value, self.state)
        if math.isnan(value):
            return low, high
        null, off = self.null
        least = self._share_saved(null - off) if null > off else -math.inf
        return low - (value - least), high + (self._share_saved(null + off) - value)

    @property
    def is_certain(self) -> bool:
        null, off = self.null
        return not off > NEGLIGIBLE * null

    def _reason(self) -> str | None:
        if (nothing := no_weight_reason(self.state)) is not None:
            return nothing
        return None if self.null[0] > 0 else "all targets are equal up to the rounding of float64"

    def _share_saved(self, null: float) -> float:
        """Return D2 for a given null deviance: 1 - (deviance of the predictions) / (null deviance)."""
        total = Fraction(self.state.total(f"deviance@{self.metric.power!r}"))
        return 1.0 - to_float(total, self.state.weight()) / null if null > 0 else NAN


def to_whole_numbers(*numbers: NDArray[np.float64]) -> tuple[list[NDArray[Any]], int]:
    """Convert arrays of float64 numbers to Python integers in a common unit 2**e; return the integers and e."""
    # A float64 is m * 2**e with a mantissa m of 53 bits. All numbers are scaled to the smallest exponent, so they stay
    # exact.
    parts = [np.frexp(v) for v in numbers]
    least = min(int(e.min(initial=0)) for _, e in parts) - 53
    return [np.ldexp(m, 53).astype(np.int64).astype(object) << (e - 53 - least).astype(object) for m, e in parts], least


def best_loss(values: NDArray[Any], weights: NDArray[Any], alpha: Fraction) -> Fraction:
    """Return the total pinball loss of the best constant, which is the weighted alpha-quantile of `values`.

    `values` must be in ascending order.
    """
    # The quantile is the first value at which the cumulative weight reaches the share alpha of the total. The
    # comparison uses only integers, so it is exact.
    through = np.cumsum(weights)
    at = values[np.flatnonzero((through * alpha.denominator >= alpha.numerator * through[-1]) & (weights > 0))[0]]
    losses = (values - at) * weights
    over = sum(losses[values > at].tolist())
    under = -sum(losses[values < at].tolist())
    return alpha * Fraction(over) + (1 - alpha) * Fraction(under)
