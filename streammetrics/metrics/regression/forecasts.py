"""Metrics of quantile, interval and ensemble forecasts, and of errors relative to a naive forecast."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from ...collect.metric import Metric, no_weight_reason
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...statistics.row_terms import RowTerms
from ..probabilities.row_losses import RowMean
from ..standard_errors import share
from .errors import SummedLoss

__all__ = [
    "MASE",
    "CRPSEnsemble",
    "CRPSQuantiles",
    "IntervalCoverage",
    "IntervalScore",
    "IntervalWidth",
    "QuantileCoverage",
]


class QuantileCoverage(SummedLoss, tag="quantile_coverage"):
    """Coverage of a quantile forecast: the share of targets that do not exceed the forecast.

    Formula: (sum of the weights w of rows with y <= p) / sum(w), for targets y and forecasts p. A forecast of the
    0.9-quantile should have a coverage of 0.9.

    Parameters
    ----------
    num_outputs : int, optional
        The number of columns, one for each of several quantiles; the target is then repeated in each column of
        `y_true`.

    Notes
    -----
    The value is exact and rounded once. Processing a row takes about 1 ns; the state is the same as for `MAE`. The
    value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.QuantileCoverage().update([1, 2, 3, 4], [2, 2, 2, 5]).compute()
    0.75
    """

    about = About(
        best=None, interval_methods=("wilson", "delta"), interval_scale="logit", formula="sum(w [y <= p]) / sum(w)"
    )

    squares: bool = setting(default=False, choices=(False,))

    @property
    def terms(self) -> tuple[str, ...]:
        return ("below",)

    def estimate(self, reading: Any, method: str) -> Estimate:
        if reading.state.excess is not None:
            why = (
                "the rows have weights, and the state does not contain their squares; Sharded(..., unit=) has an "
                "interval"
            )
            return Estimate(reading.value, reason=why)
        return share(int(reading.state.rows), reading.value, method)


class IntervalMetric(RowMean[float]):
    """Base class for metrics that average a number computed from each row's target and prediction interval."""

    about = About(positional_columns=("y_true", "lower"), cost="1.1 kB; about 20 ns per row")

    over: ClassVar[str] = "intervals"
    interval_within = (-math.inf, math.inf)

    def update(self, y_true: Any = None, lower: Any = None, upper: Any = None, /, **columns: Any) -> Self:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Targets; or a mapping, data frame or Arrow table that contains the columns by name.
        lower, upper : array-like of shape (n,)
            The ends of the intervals.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. The other columns can also be passed by name.

        Raises
        ------
        InvalidInputError
            A value is not finite, a nonzero value is not between 2**-400 and 2**400 in absolute value, or the columns
            differ in length. No rows are counted. The message names the column, the first invalid row and the number of
            invalid rows.
        """
        more = {} if upper is None else {"upper": upper}
        return super().update(y_true, lower, **more, **columns)

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over=self.over, scale="real")


class IntervalScore(IntervalMetric, tag="interval_score"):
    """Winkler's interval score: the mean width of intervals, plus a penalty for targets outside; lower is better.

    Formula: weighted mean of (u - l) + (2 / alpha) * (max(l - y, 0) + max(y - u, 0)), for targets y and intervals from
    l to u.

    Parameters
    ----------
    alpha : float
        The probability that a target lies outside the interval: 0.1 for intervals from the 0.05-quantile to the
        0.95-quantile.

    Notes
    -----
    The columns are `y_true`, `lower` and `upper`. Intervals with `lower` above `upper` are not corrected: their width
    is negative. The term of each row is computed in float64, and the sum of the terms is exact. Processing a row takes
    about 20 ns. Source: Winkler (1972); Gneiting and Raftery (2007), eq. 43. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.IntervalScore(alpha=0.5).update([1, 5], [0, 0], [2, 4]).compute()
    5.0
    """

    about = About(
        best="low", formula="mean of (u - l) + (2 / alpha) (max(l - y, 0) + max(y - u, 0)), for intervals from l to u"
    )

    alpha: float = setting(default=0.1, low=1e-6, high=1.0)

    @property
    def name(self) -> str:
        return f"interval_score@{self.alpha:g}"

    @property
    def term(self) -> str:
        return f"interval@{self.alpha!r}"


class IntervalCoverage(IntervalMetric, tag="interval_coverage"):
    """Coverage of intervals: the share of targets inside their intervals, including the ends.

    Formula: (sum of the weights w of rows with l <= y <= u) / sum(w), for targets y and intervals from l to u.

    Notes
    -----
    State and cost are the same as for `IntervalScore`. The measure is also called PICP. The value is undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.IntervalCoverage().update([1, 5], [0, 0], [2, 4]).compute()
    0.5
    """

    about = About(best=None, formula="sum(w [l <= y <= u]) / sum(w), for intervals from l to u")

    interval_within = (0.0, 1.0)
    term = "covered"


class IntervalWidth(IntervalMetric, tag="interval_width"):
    """Mean width of intervals: of two forecasts with the same coverage, the narrower one is better.

    Formula: sum(w * (u - l)) / sum(w), for weights w and intervals from l to u.

    Notes
    -----
    State and cost are the same as for `IntervalScore`. The measure is also called MPIW. The value is undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.IntervalWidth().update([1, 5], [0, 0], [2, 4]).compute()
    3.0
    """

    about = About(best="low", formula="sum(w (u - l)) / sum(w), for intervals from l to u")

    term = "width"


class ForecastMetric(RowMean[float]):
    """Base class for metrics that average a number computed from each row's target and several forecasts of it."""

    about = About(best="low", positional_columns=("y_true", "y_pred"), cost="1.1 kB; about 10 ns per number")

    interval_within = (0.0, math.inf)

    @property
    def width(self) -> int:
        """The number of forecasts for each row, that is, the number of columns in `y_pred`."""
        raise NotImplementedError

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over="forecasts", scale="real", width=self.width)


class CRPSQuantiles(ForecastMetric, tag="crps_quantiles"):
    """Continuous ranked probability score of quantile forecasts: twice their mean pinball loss.

    Formula: weighted mean over rows of (2 / Q) * (sum over quantiles q of pinball_q(y, p_q)), where Q is the number of
    quantiles, y the target and p_q the forecast of quantile q.

    Parameters
    ----------
    quantiles : tuple of float
        The quantile levels that `y_pred` forecasts, with one column per quantile.

    Notes
    -----
    As the quantiles become dense, the value approaches the score of the whole distribution. Quantiles that cross are
    not corrected. The term of each row is computed in float64, and the sum of the terms is exact. Processing a forecast
    (one column of one row) takes about 10 ns. The definition matches scoringrules' `crps_quantile`. The value is
    undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CRPSQuantiles(quantiles=(0.25, 0.75)).update([1, 5], [[0, 2], [0, 4]]).compute()
    1.25
    """

    about = About(formula="mean over rows of twice the mean over quantiles q of the pinball loss of the forecast of q")

    quantiles: tuple[float, ...] = setting(default=(0.1, 0.25, 0.5, 0.75, 0.9))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.quantiles or not all(0 < q < 1 for q in self.quantiles):
            raise ValueError(f"CRPSQuantiles: expected quantiles= between 0 and 1, found {self.quantiles!r}")

    @property
    def width(self) -> int:
        return len(self.quantiles)

    @property
    def term(self) -> str:
        return "crps@" + ":".join(map(repr, self.quantiles))


class CRPSEnsemble(ForecastMetric, tag="crps_ensemble"):
    """Continuous ranked probability score of ensembles: the mean error of members minus half their mean distance.

    Formula: mean over rows of sum_i(|x_i - y|) / M - sum_ij(|x_i - x_j|) / (2 * M**2), for the target y and the members
    x_1, ..., x_M; `estimator="fair"` divides by 2 * M * (M - 1) instead of 2 * M**2, so that small ensembles gain
    nothing by being narrow.

    Parameters
    ----------
    members : int
        The number of members M. `y_pred` has one column per member, in any order.
    estimator : {"energy", "fair"}
        How to average the distance between members. "energy": over all M**2 pairs. "fair": over the M * (M - 1) pairs
        of two different members.

    Notes
    -----
    Members are sorted, so the value does not depend on their order. The term of each row is computed in float64, and
    the sum of the terms is exact. The definition matches properscoring's `crps_ensemble` and scoringrules' function of
    the same name with its "nrg" and "fair" estimators. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CRPSEnsemble(members=2).update([1, 5], [[0, 2], [0, 4]]).compute()
    1.25
    """

    about = About(
        formula="mean over rows of (E|x - y| - E|x - x'| / 2), x and x' random members",
        cost="1.1 kB; about 10 ns per member of a row",
        example={"members": 3},
    )

    members: int | None = setting(default=None, low=1, high=1 << 16)
    estimator: str = setting(default="energy", choices=("energy", "fair"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members is None or (self.members == 1 and self.estimator == "fair"):
            raise ValueError(
                'CRPSEnsemble: members= is required, and estimator="fair" needs two or more; pass the number of members '
                "of an ensemble"
            )

    @property
    def name(self) -> str:
        return "crps_ensemble" + ("" if self.estimator == "energy" else "_fair")

    @property
    def width(self) -> int:
        return self.members or 1

    @property
    def term(self) -> str:
        return f"energy@{float(self.estimator == 'fair')!r}"


class MASE(Metric[RowTerms, float], tag="mase"):
    """Mean absolute scaled error: the MAE of the model over the MAE of a naive forecast; below 1, the model is better.

    Formula: sum(w * |p - y|) / sum(w * |lag - y|), for weights w, predictions p and targets y.

    Notes
    -----
    The columns are `y_true`, `y_pred` and `lag`. The `lag` of a row is its naive forecast, such as the previous value
    or the value one season earlier. Both means are over the same rows, whereas Hyndman and Koehler (2006) divide by the
    mean naive error of the training period. Errors are computed in float64, sums are exact, and their quotient is
    rounded once. The value is undefined without rows or if the naive forecast has no error.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MASE().update([2, 4, 3], [2, 3, 3], lag=[1, 2, 4]).compute()
    0.25
    """

    about = About(
        best="low",
        formula="sum(w |p - y|) / sum(w |lag - y|), lag the naive forecast",
        cost="2.2 kB; about 30 ns per row",
        bound=(
            "exact except for rounding: each error is rounded once, errors are summed exactly, and the quotient of the "
            "sums is rounded once"
        ),
        no_interval_reason=(
            "the standard error needs the products of the two errors, which the state does not contain; "
            "Sharded(..., unit=) has an interval"
        ),
    )

    def make_state(self) -> RowTerms:
        return RowTerms(terms=("prediction", "naive"), over="lags", scale="real")

    def of(self, state: RowTerms) -> float:
        return to_float(state.total("prediction"), state.total("naive"))

    def reason(self, state: RowTerms) -> str | None:
        if (nothing := no_weight_reason(state)) is not None:
            return nothing
        return None if state.total("naive") else "the error of the naive forecast is 0"
