"""Squared errors relative to the variance, size or range of the targets.

All are computed from one `Moments` state, whose sums are exact.
"""

from __future__ import annotations

from fractions import Fraction

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import Quotient
from ...statistics.moments import Moments
from .fit import MomentMetric, squared_error
from .outputs import is_undefined, root

__all__ = ["NMSE", "NRMSE", "RelativeSquaredError"]


class NormedSquares(MomentMetric):
    """Base class for squared errors, or their roots, relative to a statistic of the targets, such as their variance."""

    about = About(
        best="low",
        no_interval_reason=("the denominator is an estimate, too; Sharded(..., unit=) has an interval"),
    )

    def reason(self, state: Moments) -> str | None:
        nothing = super().reason(state)
        return nothing or ("the denominator is 0" if is_undefined(self, state) else None)


class RelativeSquaredError(NormedSquares, tag="relative_squared_error"):
    """Relative squared error, 1 - R2: the squared error divided by that of always predicting the mean; or its root.

    Formula: sum(w * (p - y)**2) / sum(w * (y - mean(y))**2), for weights w, predictions p and targets y.

    Parameters
    ----------
    squared : bool
        Whether the value is this quotient (True) or its square root (False).

    Notes
    -----
    The value is computed from exact sums of products and rounded once. State and cost are the same as for `R2`. The
    definition matches torchmetrics' `RelativeSquaredError`. The value is undefined if all targets are equal.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.RelativeSquaredError().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.051392
    """

    about = About(formula="sum(w (p - y)^2) / sum(w (y - mean(y))^2)")

    squared: bool = setting(default=True)

    @property
    def name(self) -> str:
        return "relative_squared_error" if self.squared else "root_relative_squared_error"

    def of(self, state: Moments, output: int = 0) -> Limits | Quotient | None:
        left, spread = squared_error(state, output), state.covariance("x", "x", output)
        return Quotient(left, spread) if self.squared else root(left, spread)


class NMSE(NormedSquares, tag="nmse"):
    """Normalized mean squared error: the squared error divided by the sum of squared targets, or by another reference.

    Formula: sum(w * (p - y)**2) / sum(w * y**2), for weights w, predictions p and targets y; with
    `normalization="means"`, mean((p - y)**2) / (mean(y) * mean(p)); with "constant", sum(w * (p - y)**2) / sum(w * (c -
    y)**2).

    Parameters
    ----------
    normalization : {"power", "means", "constant"}
        The divisor of the squared error. "power": the sum of the squared targets (the power of a signal). "means": the
        product of the means of targets and predictions, for dispersion models. "constant": the squared error of a
        constant prediction (as in torchrec). RelativeSquaredError divides by the variance of the targets.
    constant : float
        The constant prediction c of `normalization="constant"`.

    Notes
    -----
    The value is computed from exact sums of products and rounded once. State and cost are the same as for `R2`. Source
    of "means": Hanna and Chang (2004). The value is undefined if the denominator is 0, that is, if all targets are 0,
    all targets equal the constant, or one of the means is 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NMSE().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.024096
    """

    about = About(formula="sum(w (p - y)^2) / sum(w y^2)")

    normalization: str = setting(default="power", choices=("power", "means", "constant"))
    constant: float = setting(default=1.0, low=-(2.0**400), high=2.0**400)

    @property
    def name(self) -> str:
        return "nmse" if self.normalization == "power" else f"nmse_{self.normalization}"

    def of(self, state: Moments, output: int = 0) -> Quotient:
        left = squared_error(state, output)
        if self.normalization == "power":
            return Quotient(left, state.total("xx", output))
        if self.normalization == "constant":
            c = Fraction(self.constant)
            return Quotient(left, state.total("xx", output) - 2 * c * state.total("x", output) + c * c * state.weight())
        return Quotient(left * state.weight(), state.total("x", output) * state.total("y", output))


class NRMSE(NormedSquares, tag="nrmse"):
    """Normalized root mean squared error: RMSE divided by the mean, range, standard deviation or norm of the targets.

    Formula: sqrt(sum(w * (p - y)**2) / sum(w)) / d, for weights w, predictions p and targets y, with d = mean(y),
    max(y) - min(y), sqrt(Var(y)) or sqrt(sum(w * y**2)).

    Parameters
    ----------
    normalization : {"mean", "range", "std", "l2"}
        The denominator d: the mean, the range, the standard deviation or the l2 norm of the targets.

    Notes
    -----
    The square of the value is an exact fraction, and its root is rounded once. With "mean", the value is negative if
    the mean of the targets is negative. State and cost are the same as for `R2`; "range" adds 16 bytes for each output.
    The definition matches torchmetrics' function `normalized_root_mean_squared_error`. The torchmetrics class
    `NormalizedRootMeanSquaredError` differs: it uses the standard deviation for "l2", and after a merge it uses the
    denominator of the last update. The value is undefined if d is 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.NRMSE(normalization="range").update([2.5, 5, 4, 8], [3, 5, 2.5, 7]).compute(), 6)
    0.170075
    """

    about = About(
        formula="sqrt(sum(w (p - y)^2) / sum(w)) / d, d the mean, range, standard deviation or norm of y",
        # The denominator "l2", the norm of the targets, grows with the number of rows; the other denominators do not.
        extensive=About.per_instance(lambda metric: metric.normalization == "l2"),
    )

    normalization: str = setting(default="mean", choices=("mean", "range", "std", "l2"))

    @property
    def name(self) -> str:
        return "nrmse" if self.normalization == "mean" else f"nrmse_{self.normalization}"

    def make_state(self) -> Moments:
        more = {"ranged": True} if self.normalization == "range" else {}
        return Moments(columns=("y_true", "y_pred"), terms=self.terms, num_outputs=self.num_outputs, **more)

    def _divisor(self, state: Moments, output: int) -> Fraction:
        """Return the square of the denominator, which is the mean, range, standard deviation or norm of the targets."""
        if self.normalization == "range":
            return (state.range(output) or Fraction(0)) ** 2
        if self.normalization == "l2":
            return state.total("xx", output)
        total = state.covariance("x", "x", output) if self.normalization == "std" else state.total("x", output)
        return total / state.weight() if self.normalization == "std" else (total / state.weight()) ** 2

    def of(self, state: Moments, output: int = 0) -> Limits | None:
        divisor = self._divisor(state, output) if state.weight() else 0
        if not divisor:
            return None
        found = Limits.root(squared_error(state, output) / state.weight() / divisor)
        return -found if self.normalization == "mean" and state.total("x", output) < 0 else found
