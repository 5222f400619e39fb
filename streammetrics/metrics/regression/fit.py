"""How well predictions follow targets: bias, explained variance, R2, correlation.

All read one `Moments`: sums of the columns, their squares and product without any rounding. So the value is right to the
last bits at any mean, however small the spread beside it.
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
    """A metric that reads exact moments of target (x) and prediction (y)."""

    about = About(best="high", cost="2.7 kB an output; about 10 ns a row", bound="exact: rounded once")

    terms: ClassVar[tuple[str, ...]] = PAIR

    def make_state(self) -> Moments:
        return Moments(columns=("y_true", "y_pred"), terms=self.terms, num_outputs=self.num_outputs)


class MeanError(MomentMetric, tag="mean_error"):
    """Mean error, or bias: above 0 the model predicts too much.

    Formula: sum w (p - y) / sum w.

    Parameters
    ----------
    squares : bool
        Whether squares and products are kept, too, for `interval()`: the state of R2.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Both sums are exact; their difference is rounded once. About 2 ns a row, 1.6 kB an output. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MeanError().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.25
    """

    about = About(best=None, formula="sum w (p - y) / sum w", cost="1.6 kB an output; about 2 ns a row")

    squares: bool = setting(default=False)

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return PAIR if self.squares else ("x", "y")

    def of(self, state: Moments, output: int = 0) -> Quotient:
        return Quotient(state.total("y", output) - state.total("x", output), state.weight())

    def gradient(self, *means: Any) -> tuple[Any, ...]:
        """Return how the value changes with the means of targets and predictions."""
        return -1.0, 1.0

    def estimate(self, found: Any, method: str) -> Estimate:
        spread = found.state.spread_of("x", "y", output=found.output)
        return of_moments(self, found.state, found.value, spread, self.gradient)


class R2(MomentMetric, tag="r2"):
    """Coefficient of determination: the share of the targets' variance that the predictions leave nothing of.

    Formula: 1 - sum w (y - p)**2 / sum w (y - mean y)**2.

    Parameters
    ----------
    multioutput : {"uniform_average", "raw_values", "variance_weighted"}
        The mean over outputs, an array of one value each, or the mean weighted by the variance of the targets.
    force_finite : bool
        Targets that are all alike have 1.0 if predictions are without error, else 0.0, as in scikit-learn by default.
    num_outputs, on_invalid
        As for MAE.

    Notes
    -----
    From exact sums of products, rounded once: right to the last bit. About 10 ns a row, 2.7 kB an output. Definition as
    scikit-learn's `r2_score`, but undefined (NaN, with a reason) if the targets are all alike, and averages leave such
    outputs out, unless `force_finite=True`; there scikit-learn has NaN and -inf with `force_finite=False`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.R2().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.948608
    """

    about = About(formula="1 - sum w (y - p)^2 / sum w (y - mean y)^2")

    multioutput: str = setting(
        default="uniform_average", choices=("uniform_average", "raw_values", "variance_weighted")
    )
    force_finite: bool = setting(default=False)

    def of(self, state: Moments, output: int = 0) -> Quotient:
        return _explained(self, state, squared_error(state, output), output)

    def reading(self, state: Moments) -> Reading:
        by_variance = self.multioutput == "variance_weighted" and self._has_several
        return WeightedByVariance(self, state) if by_variance else super().reading(state)

    def reason(self, state: Moments) -> str | None:
        alike = None if self.force_finite else _no_spread(state, "x", "the targets are all alike")
        return super().reason(state) or alike


class WeightedByVariance(Outputs):
    """The reading of several outputs: the mean of their values, weighted by the variance of the targets."""

    @cached_property
    def limits(self) -> Limits | None:
        state: Any = self.state
        spreads = [state.covariance("x", "x", i) for i in range(state.outputs)]
        return Limits.mean(self.parts, spreads if any(spreads) else None)


def squared_error(state: Moments, output: int) -> Fraction:
    """Return the sum of w (p - y)**2."""
    xx, xy, yy = (state.total(term, output) for term in ("xx", "xy", "yy"))
    return xx - 2 * xy + yy


def _explained(metric: R2, state: Moments, left: Fraction, output: int) -> Quotient:
    """Return the share of the spread of the targets that is explained if this sum of squares is left."""
    spread = state.covariance("x", "x", output)
    if metric.force_finite and not spread and state.weight():
        return Quotient(0 if left else 1, 1)
    return Quotient(spread - left, spread)


class ExplainedVariance(R2, tag="explained_variance"):
    """Explained variance: R2 without the penalty for a constant bias.

    Formula: 1 - Var(y - p) / Var(y), weighted.

    Parameters
    ----------
    multioutput : {"uniform_average", "raw_values", "variance_weighted"}
        As for R2.
    force_finite : bool
        Targets that are all alike have 1.0 if all errors are alike, too, else 0.0, as in scikit-learn by default.
    num_outputs, on_invalid
        As for MAE.

    Notes
    -----
    State, cost and exactness as R2. Definition as scikit-learn's `explained_variance_score`, but undefined if the targets
    are all alike, as R2, unless `force_finite=True`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ExplainedVariance().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.957173
    """

    about = About(formula="1 - Var(y - p) / Var(y)")

    def of(self, state: Moments, output: int = 0) -> Quotient:
        xx, xy, yy = (state.covariance(a, b, output) for a, b in ("xx", "xy", "yy"))
        return _explained(self, state, xx - 2 * xy + yy, output)


class PearsonCorrelation(MomentMetric, tag="pearson_correlation"):
    """Pearson's correlation of targets and predictions.

    Formula: Cov(y, p) / sqrt(Var(y) Var(p)), weighted.

    Parameters
    ----------
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    The square is an exact fraction, and its root rounded once. State and cost as R2. Definition as scipy's `pearsonr`;
    undefined if the targets or the predictions are all alike.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.PearsonCorrelation().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.98487
    """

    about = About(formula="Cov(y, p) / sqrt(Var(y) Var(p))")

    def of(self, state: Moments, output: int = 0) -> Limits | None:
        xx, xy, yy = (state.covariance(a, b, output) for a, b in ("xx", "xy", "yy"))
        found = root(xy * xy, xx * yy)
        return -found if found is not None and xy < 0 else found

    def reason(self, state: Moments) -> str | None:
        alike = _no_spread(state, "x", "the targets are all alike") or _no_spread(
            state, "y", "the predictions are all alike"
        )
        return super().reason(state) or alike


class ConcordanceCorrelation(MomentMetric, tag="concordance_correlation"):
    """Lin's concordance correlation: Pearson's, less for predictions that are off by a shift or a scale.

    Formula: 2 Cov(y, p) / (Var(y) + Var(p) + (mean y - mean p)**2), weighted.

    Parameters
    ----------
    ddof : float
        What is taken from the rows that divide variances and covariance: 0 (Lin), or 1 (torchmetrics).
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    An exact fraction, rounded once. State and cost as R2. Source: Lin (1989). Undefined without rows, if targets and
    predictions are all one number, and if the rows weigh no more than `ddof`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ConcordanceCorrelation().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute(), 6)
    0.976789
    """

    about = About(
        formula="2 Cov(y, p) / (Var(y) + Var(p) + (mean y - mean p)^2)",
        # An unbiased variance depends on the number of rows.
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
        return f"the rows weigh no more than ddof={self.ddof:g}" if few else "all numbers are one"


def _no_spread(state: Moments, column: str, reason: str) -> str | None:
    return None if any(state.covariance(column, column, i) for i in range(state.outputs)) else reason
