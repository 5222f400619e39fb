"""Metrics that measure how well predictions follow targets: bias, explained variance, R2 and correlation.

All are computed from one `Moments` state: exact sums of the columns, their squares and their product. The values are
therefore correct to the last bit, even if the variance is tiny compared with the mean.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Quotient, Reading
from ...statistics.moments import Moments
from ..standard_errors import of_moments
from .outputs import OutputMetric, Outputs, is_undefined, root

__all__ = ["R2", "ConcordanceCorrelation", "ExplainedVariance", "MeanError", "PearsonCorrelation"]

PAIR = ("x", "y", "xx", "xy", "yy")


class MomentMetric(OutputMetric[Moments]):
    """Base class for metrics that are computed from exact moments of targets (x) and predictions (y)."""

    about = About(best="high", cost="2.7 kB per output; about 10 ns per row", bound="exact: rounded once")

    terms: ClassVar[tuple[str, ...]] = PAIR

    def make_state(self) -> Moments:
        return Moments(columns=("y_true", "y_pred"), terms=self.terms, num_outputs=self.num_outputs)


class MeanError(MomentMetric, tag="mean_error"):
    """Mean error, or bias: above 0 if the model predicts too much on average.

    Formula: sum(w * (p - y)) / sum(w), for weights w, predictions p and targets y.

    Parameters
    ----------
    squares : bool
        Whether the state, like that of `R2`, also contains sums of squares and products, which `interval()` needs.

    Notes
    -----
    The sums of targets and predictions are exact, and their difference is rounded once. The value is undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MeanError().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.25
    """

    about = About(best=None, formula="sum(w (p - y)) / sum(w)", cost="1.6 kB per output; about 2 ns per row")

    squares: bool = setting(default=False)

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return PAIR if self.squares else ("x", "y")

    def of(self, state: Moments, output: int = 0) -> Quotient:
        return Quotient(state.total("y", output) - state.total("x", output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        """Return the derivatives of the value with respect to the means of targets and predictions."""
        return -1.0, 1.0

    def estimate(self, reading: Any, method: str) -> Estimate:
        spread = reading.state.estimate_means("x", "y", output=reading.output)
        return of_moments(self, reading.state, reading.value, spread, self.gradient)


class R2(MomentMetric, tag="r2"):
    """Coefficient of determination: the share of the variance of the targets that the predictions explain.

    Formula: 1 - sum(w * (y - p)**2) / sum(w * (y - mean(y))**2), for weights w, targets y and predictions p.

    Parameters
    ----------
    multioutput : {"uniform_average", "raw_values", "variance_weighted"}
        How to combine the values of several outputs. "uniform_average": their mean. "raw_values": an array with one
        value for each output. "variance_weighted": their mean, weighted by the variance of the targets.
    force_finite : bool
        Whether the value is defined if all targets are equal. With True, it is then 1.0 if the predictions have no
        error and 0.0 otherwise, as in scikit-learn by default.

    Notes
    -----
    The value is computed from exact sums of products and rounded once, so every bit of it is correct. The definition
    matches scikit-learn's `r2_score`, except for the default of `force_finite`. If all targets are equal, the value is
    undefined (NaN, with a reason), and averages leave such outputs out. With `force_finite=False`, scikit-learn returns
    NaN or -inf.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.R2().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.948608
    """

    about = About(formula="1 - sum(w (y - p)^2) / sum(w (y - mean(y))^2)")

    multioutput: str = setting(
        default="uniform_average", choices=("uniform_average", "raw_values", "variance_weighted")
    )
    force_finite: bool = setting(default=False)

    def of(self, state: Moments, output: int = 0) -> Quotient:
        return _explained_share(self, state, squared_error(state, output), output)

    def reading(self, state: Moments) -> Reading:
        by_variance = self.multioutput == "variance_weighted" and self._has_several
        return WeightedByVariance(self, state) if by_variance else super().reading(state)

    def reason(self, state: Moments) -> str | None:
        alike = None if self.force_finite else _no_spread(state, "x", "all targets are equal")
        return super().reason(state) or alike


class WeightedByVariance(Outputs):
    """The mean of the values of several outputs, weighted by the variance of their targets, with bounds."""

    @cached_property
    def limits(self) -> Limits | None:
        state: Any = self.state
        spreads = [state.covariance("x", "x", i) for i in range(state.outputs)]
        return Limits.mean(self.parts, spreads if any(spreads) else None)


def squared_error(state: Moments, output: int) -> Fraction:
    """Return the exact sum of w * (p - y)**2 for one output, for weights w, predictions p and targets y."""
    xx, xy, yy = (state.total(term, output) for term in ("xx", "xy", "yy"))
    return xx - 2 * xy + yy


def _explained_share(metric: R2, state: Moments, residual: Fraction, output: int) -> Quotient:
    """Return the share of the target variance that the predictions explain.

    `residual` is the residual sum of squares, which the predictions leave unexplained.
    """
    spread = state.covariance("x", "x", output)
    if metric.force_finite and not spread and state.weight():
        return Quotient(0 if residual else 1, 1)
    return Quotient(spread - residual, spread)


class ExplainedVariance(R2, tag="explained_variance"):
    """Explained variance: R2 without the penalty for a constant bias.

    Formula: 1 - Var(y - p) / Var(y), with weighted variances.

    Parameters
    ----------
    force_finite : bool
        Whether the value is defined if all targets are equal. With True, it is then 1.0 if all errors are also equal
        and 0.0 otherwise, as in scikit-learn by default.

    Notes
    -----
    State, cost and exactness are the same as for `R2`. The definition matches scikit-learn's
    `explained_variance_score`, except for the default of `force_finite`: by default, the value is undefined if all
    targets are equal.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ExplainedVariance().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.957173
    """

    about = About(formula="1 - Var(y - p) / Var(y)")

    def of(self, state: Moments, output: int = 0) -> Quotient:
        xx, xy, yy = (state.covariance(a, b, output) for a, b in ("xx", "xy", "yy"))
        return _explained_share(self, state, xx - 2 * xy + yy, output)


class PearsonCorrelation(MomentMetric, tag="pearson_correlation"):
    """Pearson's correlation between targets and predictions: the strength of their linear relation, in [-1, 1].

    Formula: Cov(y, p) / sqrt(Var(y) * Var(p)), with weighted covariance and variances.

    Notes
    -----
    The square of the value is an exact fraction, and its root is rounded once. State and cost are the same as for
    `R2`. The definition matches scipy's `pearsonr`. The value is undefined if all targets or all predictions are equal.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.PearsonCorrelation().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.98487
    """

    about = About(formula="Cov(y, p) / sqrt(Var(y) Var(p))", interval_scale="fisher")

    def of(self, state: Moments, output: int = 0) -> Limits | None:
        # Take the root of the exact square, so that the value is rounded only once. The sign, which the square loses, is
        # the sign of the covariance.
        xx, xy, yy = (state.covariance(a, b, output) for a, b in ("xx", "xy", "yy"))
        found = root(xy * xy, xx * yy)
        return -found if found is not None and xy < 0 else found

    def reason(self, state: Moments) -> str | None:
        alike = _no_spread(state, "x", "all targets are equal") or _no_spread(state, "y", "all predictions are equal")
        return super().reason(state) or alike


class ConcordanceCorrelation(MomentMetric, tag="concordance_correlation"):
    """Lin's concordance correlation: Pearson's correlation, reduced for predictions with a shift or a different scale.

    Formula: 2 * Cov(y, p) / (Var(y) + Var(p) + (mean(y) - mean(p))**2), with weighted covariance, variances and means.

    Parameters
    ----------
    ddof : float
        The number subtracted from the number of rows in the denominator of variances and covariance: 0 (as in Lin) or
        1 (as in torchmetrics).

    Notes
    -----
    The value is an exact fraction, rounded once. State and cost are the same as for `R2`. Source: Lin (1989). The value
    is undefined without rows, if all targets and predictions are the same number, or if the total weight is at most
    `ddof`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ConcordanceCorrelation().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.976789
    """

    about = About(
        formula="2 Cov(y, p) / (Var(y) + Var(p) + (mean(y) - mean(p))^2)",
        # With `ddof` > 0, the value changes if all rows are counted twice.
        extensive=About.per_instance(lambda metric: metric.ddof > 0),
    )

    ddof: float = setting(default=0.0, low=0.0, high=1.0)

    @property
    def name(self) -> str:
        return "concordance_correlation" + (f"@{self.ddof:g}" if self.ddof else "")

    def of(self, state: Moments, output: int = 0) -> Quotient | None:
        weight = state.weight()
        if weight <= Fraction(self.ddof):
            return None
        xx, xy, yy = (state.covariance(a, b, output) for a, b in ("xx", "xy", "yy"))
        shift = (state.total("x", output) - state.total("y", output)) / weight
        return Quotient(2 * xy, xx + yy + shift * shift * (weight - Fraction(self.ddof)))

    def reason(self, state: Moments) -> str | None:
        nothing = super().reason(state)
        if nothing is not None or not is_undefined(self, state):
            return nothing
        few = state.weight() <= Fraction(self.ddof)
        return f"the rows weigh no more than ddof={self.ddof:g}" if few else "all numbers are equal"


def _no_spread(state: Moments, column: str, reason: str) -> str | None:
    return None if any(state.covariance(column, column, i) for i in range(state.outputs)) else reason
