"""D2: the share of a loss, or a deviance, that predictions take away from that of the best constant."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric, nothing_counted
from ...numerics.elementary import log
from ...numerics.elementary import power as raised
from ...numerics.exact import BEYOND, Limits, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN, OwnReading, Reading, widened
from ...statistics.row_terms import RowTerms
from ...statistics.values import ValueHistogram
from .outputs import BoundedOutputMetric, is_undefined

__all__ = ["D2AbsoluteError", "D2Pinball", "D2Tweedie"]

LARGEST_LOG = 35.0
"""Of numbers from 2**-50 to 2**50."""
NEGLIGIBLE = 1e-6  # of a deviance


class D2Pinball(BoundedOutputMetric[ValueHistogram], tag="d2_pinball"):
    """D2 of the pinball loss: how much less it is than that of the best constant, a quantile of the targets.

    Formula: 1 - sum w pinball(y, p) / min over q of sum w pinball(y, q).

    Parameters
    ----------
    alpha : float
        The quantile that is forecast, in [0, 1].
    bits : int
        As for Quantile: the resolution of the histogram of targets.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    The loss of predictions is an exact sum. Bound: the loss of the best constant is read from a histogram of targets (see
    Quantile), and is off by at most the width of the buckets: some 0.001 at 7 bits, wherever the targets lie; exact for
    up to 32 different targets, and up to 8,192 integers. At most 2 MiB an output while rows come; some 5 ns a row.
    Definition as scikit-learn's `d2_pinball_score`. Undefined without rows, and if the best constant is without error,
    where scikit-learn has 1.0 or 0.0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.D2Pinball().update([1, 2, 3], [1, 3, 3]).compute()
    0.5
    """

    about = About(
        best="high",
        nominal_range=(0.0, 1.0),
        no_interval_reason=(
            "the loss of the best constant is an estimate, too: Sharded(..., unit=) has the error of both together"
        ),
        formula="1 - sum w pinball(y, p) / min over q of sum w pinball(y, q)",
        cost="16 bytes a bucket, of which an output has up to 8,192 at 7 bits; some 5 ns a row",
        bound=(
            "the loss of the best constant within the width of the buckets; "
            "exact for up to 32 different targets, and up to 8,192 integers"
        ),
    )

    alpha: float = setting(default=0.5, low=0.0, high=1.0)
    bits: int = setting(default=7, low=1, high=14)

    @property
    def name(self) -> str:
        return f"d2_pinball@{self.alpha:g}"

    @property
    def term(self) -> str:
        """The loss of the predictions."""
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
        """Return the loss of the best constant: of the quantile of each end of the buckets, and of their middles."""
        mass, alpha = state.mass(output), Fraction(repr(self.alpha))
        if not mass.total():
            return None
        (low, high), scale = whole(*state.ends(output))
        weights = mass.totals(np.arange(len(low) + 1))
        unit = Fraction(2, 1) ** scale / (2 * state.unit)  # middles are sums of both ends
        middle = best_loss(low + high, weights, alpha) * unit
        # moving a target by so much changes what any constant loses by so much
        slack = int(((high - low) * weights).sum()) * unit * max(alpha, 1 - alpha)
        found = Limits(middle, middle, middle).widened(slack, least=0)
        return found.widened(state.slip * 4 * found.high, least=0)

    def reason(self, state: ValueHistogram) -> str | None:
        if (nothing := nothing_counted(state)) is not None:
            return nothing
        return "the best constant is without error" if is_undefined(self, state) else None


class D2AbsoluteError(D2Pinball, tag="d2_absolute_error"):
    """D2 of the absolute error: how much less it is than that of the median of the targets.

    Formula: 1 - sum w |p - y| / sum w |median - y|.

    Parameters
    ----------
    bits : int
        As for D2Pinball.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    D2Pinball at alpha = 0.5, with its bound, state and cost. Definition as scikit-learn's `d2_absolute_error_score`.
    Undefined without rows, and if all targets are alike.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2AbsoluteError().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.764706
    """

    about = About(formula="1 - sum w |p - y| / sum w |median - y|")

    alpha: float = setting(default=0.5, choices=(0.5,))

    @property
    def name(self) -> str:
        return "d2_absolute_error"


class D2Tweedie(Metric[RowTerms, float], tag="d2_tweedie"):
    """D2 of a Tweedie deviance: the share of the deviance of predicting the mean that the model saves; 1 is perfect.

    Formula: 1 - mean deviance of predictions / mean deviance of always predicting the weighted mean of the targets.

    Parameters
    ----------
    power : float
        1 is Poisson, 2 gamma, in between compound Poisson-gamma; of power 0 it is `R2`. Targets are at least 0, from
        power 2 on positive; predictions are positive.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Definition as scikit-learn's `d2_tweedie_score`. Sums are exact; the null deviance is a difference of powers,
    which rounding spoils where targets lie far from 0 and close together: `bounds()` says by how much, 1e-12 for a spread
    of 3 % of the mean, 0.7 for 1e-7. Numbers are within 2**-50 and 2**50. 3.3 kB, some 100 ns a row. Undefined without
    rows, and where all targets are the same.

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
        formula="1 - deviance / deviance of the mean",
        cost="3.3 kB; some 100 ns a row",
        bound="certified for the rounding of the null deviance; that of each row, some 2**-45 of it, is not included",
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
    """Return the mean deviance of always predicting the mean, and by how much rounding can move it.

    It is 0 if all targets are the same. A logarithm or power of each target, and of the mean, is rounded.
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
    """The reading of D2, which computes the null deviance once for value, bounds and reason."""

    @cached_property
    def null(self) -> tuple[float, float]:
        """The null deviance, and by how much rounding can move it."""
        return null_deviance(self.state, self.metric.power)

    def _found(self) -> float:
        return self._saved(self.null[0])

    def _bounds(self) -> tuple[float, float]:
        value, (low, high) = self.value, widened(self.value, self.state)
        if math.isnan(value):
            return low, high
        null, off = self.null
        least = self._saved(null - off) if null > off else -math.inf
        return low - (value - least), high + (self._saved(null + off) - value)

    @property
    def is_certain(self) -> bool:
        null, off = self.null
        return not off > NEGLIGIBLE * null

    def _reason(self) -> str | None:
        if (nothing := nothing_counted(self.state)) is not None:
            return nothing
        return None if self.null[0] > 0 else "all targets are the same, as far as float64 tells"

    def _saved(self, null: float) -> float:
        """Return the share of a null deviance that the predictions save."""
        total = Fraction(self.state.total(f"deviance@{self.metric.power!r}"))
        return 1.0 - to_float(total, self.state.weight()) / null if null > 0 else NAN


def whole(*numbers: NDArray[np.float64]) -> tuple[list[NDArray[Any]], int]:
    """Numbers as Python's integers, and of which power of two they are multiples."""
    parts = [np.frexp(v) for v in numbers]
    least = min(int(e.min(initial=0)) for _, e in parts) - 53
    return [np.ldexp(m, 53).astype(np.int64).astype(object) << (e - 53 - least).astype(object) for m, e in parts], least


def best_loss(values: NDArray[Any], weights: NDArray[Any], alpha: Fraction) -> Fraction:
    """The pinball loss of the best constant for values in ascending order: that of their quantile."""
    through = np.cumsum(weights)
    at = values[np.flatnonzero((through * alpha.denominator >= alpha.numerator * through[-1]) & (weights > 0))[0]]
    losses = (values - at) * weights
    over = sum(losses[values > at].tolist())
    under = -sum(losses[values < at].tolist())
    return alpha * Fraction(over) + (1 - alpha) * Fraction(under)
