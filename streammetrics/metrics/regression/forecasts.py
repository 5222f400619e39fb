"""Forecasts of more than a number: quantiles, intervals, ensembles; and errors beside those of a naive forecast."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from ...collect.metric import Metric, nothing_counted
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
    """Coverage of a quantile forecast: the share of targets that it does not fall short of.

    Formula: sum w [y <= p] / sum w. A forecast of the 0.9-quantile should have 0.9.

    Parameters
    ----------
    num_outputs, multioutput, on_invalid
        As for MAE; an output for each of several quantiles, of which targets are repeated.

    Notes
    -----
    Exact, rounded once. About 1 ns a row; state as MAE. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.QuantileCoverage().update([1, 2, 3, 4], [2, 2, 2, 5]).compute()
    0.75
    """

    about = About(
        best=None, interval_methods=("wilson", "delta"), interval_scale="logit", formula="sum w [y <= p] / sum w"
    )

    squares: bool = setting(default=False, choices=(False,))

    @property
    def terms(self) -> tuple[str, ...]:
        return ("below",)

    def estimate(self, found: Any, method: str) -> Estimate:
        if found.state.excess is not None:
            why = "rows are weighted, and their squares not kept: Sharded(..., unit=) has them"
            return Estimate(found.value, reason=why)
        return share(int(found.state.rows), found.value, method)


class IntervalMetric(RowMean[float]):
    """The mean of a term of targets and intervals."""

    about = About(positional_columns=("y_true", "lower"), cost="1.1 kB; about 20 ns a row")

    over: ClassVar[str] = "intervals"
    interval_within = (-math.inf, math.inf)

    def update(self, y_true: Any = None, lower: Any = None, upper: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Targets. Or a mapping, data frame or Arrow table that holds the columns by name.
        lower, upper : array-like of shape (n,)
            The ends of the intervals.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. All others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is not finite, or other than 0 and not between 2**-400 and 2**400 in size, or lengths differ; the
            message names column, row and count, and nothing was counted.
        """
        more = {} if upper is None else {"upper": upper}
        return super().update(y_true, lower, **more, **columns)

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over=self.over, scale="real")


class IntervalScore(IntervalMetric, tag="interval_score"):
    """Interval score of Winkler: how wide intervals are, and how far outside targets lie, at a level that makes both fair.

    Formula: mean of (u - l) + 2/alpha max(l - y, 0) + 2/alpha max(y - u, 0), weighted.

    Parameters
    ----------
    alpha : float
        What the intervals are to leave out: 0.1 for those from the 0.05- to the 0.95-quantile.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Columns `y_true`, `lower`, `upper`, as they are: crossed ends have a width below 0. Rows in float64, their sum is
    exact. About 20 ns a row. Source: Winkler (1972); Gneiting and Raftery (2007), eq. 43. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.IntervalScore(alpha=0.5).update([1, 5], [0, 0], [2, 4]).compute()
    5.0
    """

    about = About(best="low", formula="mean of (u - l) + 2/alpha max(l - y, 0) + 2/alpha max(y - u, 0)")

    alpha: float = setting(default=0.1, low=1e-6, high=1.0)

    @property
    def name(self) -> str:
        return f"interval_score@{self.alpha:g}"

    @property
    def term(self) -> str:
        return f"interval@{self.alpha!r}"


class IntervalCoverage(IntervalMetric, tag="interval_coverage"):
    """Coverage of intervals: the share of targets within theirs, ends included.

    Formula: sum w [l <= y <= u] / sum w.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    State and cost as IntervalScore. Also called PICP. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.IntervalCoverage().update([1, 5], [0, 0], [2, 4]).compute()
    0.5
    """

    about = About(best=None, formula="sum w [l <= y <= u] / sum w")

    interval_within = (0.0, 1.0)
    term = "covered"


class IntervalWidth(IntervalMetric, tag="interval_width"):
    """Mean width of intervals: of two forecasts that cover alike the narrower is better.

    Formula: sum w (u - l) / sum w.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    State and cost as IntervalScore. Also called MPIW. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.IntervalWidth().update([1, 5], [0, 0], [2, 4]).compute()
    3.0
    """

    about = About(best="low", formula="sum w (u - l) / sum w")

    term = "width"


class ForecastMetric(RowMean[float]):
    """The mean of a term of targets and rows of forecasts."""

    about = About(best="low", positional_columns=("y_true", "y_pred"), cost="1.1 kB; some 10 ns a number")

    interval_within = (0.0, math.inf)

    @property
    def width(self) -> int:
        """How many forecasts a row has."""
        raise NotImplementedError

    def make_state(self) -> RowTerms:
        return RowTerms(terms=(self.term,), over="forecasts", scale="real", width=self.width)


class CRPSQuantiles(ForecastMetric, tag="crps_quantiles"):
    """Continuous ranked probability score of forecasts of quantiles: twice their mean pinball loss.

    Formula: mean over rows of (2/Q) sum_q pinball_q(y, p_q), weighted.

    Parameters
    ----------
    quantiles : tuple of float
        What the columns of `y_pred`, rows x quantiles, forecast.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Approaches the score of the whole distribution as quantiles become dense; crossed ones are taken as they are. Rows in
    float64, their sum is exact. Some 10 ns a number. Definition as scoringrules' `crps_quantile`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CRPSQuantiles(quantiles=(0.25, 0.75)).update([1, 5], [[0, 2], [0, 4]]).compute()
    1.25
    """

    about = About(formula="mean of 2 mean over q of pinball_q(y, p_q)")

    quantiles: tuple[float, ...] = setting(default=(0.1, 0.25, 0.5, 0.75, 0.9))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.quantiles or not all(0 < q < 1 for q in self.quantiles):
            raise ValueError(f"CRPSQuantiles: quantiles are numbers between 0 and 1, not {self.quantiles!r}")

    @property
    def width(self) -> int:
        return len(self.quantiles)

    @property
    def term(self) -> str:
        return "crps@" + ":".join(map(repr, self.quantiles))


class CRPSEnsemble(ForecastMetric, tag="crps_ensemble"):
    """Continuous ranked probability score of ensembles: the error of their members, less half of how far these are apart.

    Formula: mean over rows of (1/M) sum_i |x_i - y| - 1/(2 M**2) sum_ij |x_i - x_j|; `estimator="fair"` divides by
    2 M (M - 1), which does not reward small ensembles for being narrow.

    Parameters
    ----------
    members : int
        M: the columns of `y_pred`, rows x members, in any order.
    estimator : {"energy", "fair"}
        As above: all pairs of members, or those of two.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Members are sorted, so their order changes nothing. Rows in float64, their sum is exact. Some 20 ns a number.
    Definition as properscoring's `crps_ensemble`, and scoringrules' with "nrg" and "fair". Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.CRPSEnsemble(members=2).update([1, 5], [[0, 2], [0, 4]]).compute()
    1.25
    """

    about = About(formula="mean of E|x - y| - E|x - x'| / 2", example={"members": 3})

    members: int | None = setting(default=None, low=1, high=1 << 16)
    estimator: str = setting(default="energy", choices=("energy", "fair"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members is None or (self.members == 1 and self.estimator == "fair"):
            raise ValueError('CRPSEnsemble: say how many members an ensemble has, members=; "fair" needs two')

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
    """Mean absolute scaled error: that of the predictions over that of a naive forecast; below 1 they are better.

    Formula: sum w |p - y| / sum w |lag - y|.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Columns `y_true`, `y_pred`, and `lag`: what the naive forecast of the row is, such as the value before, or a season
    before. Both means are over the same rows; Hyndman and Koehler (2006) scale by those of the training period. Rows in
    float64, sums are exact, their quotient is rounded once. About 30 ns a row, 2.2 kB. Undefined without rows, and if the
    naive forecast is without error.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MASE().update([2, 4, 3], [2, 3, 3], lag=[1, 2, 4]).compute()
    0.25
    """

    about = About(
        best="low",
        formula="sum w |p - y| / sum w |lag - y|",
        cost="2.2 kB; about 30 ns a row",
        bound="exact: errors rounded once, summed exactly, their quotient rounded once",
        no_interval_reason="no products of both errors are kept: Sharded(..., unit=) has an interval",
    )

    def make_state(self) -> RowTerms:
        return RowTerms(terms=("prediction", "naive"), over="lags", scale="real")

    def of(self, state: RowTerms) -> float:
        return to_float(state.total("prediction"), state.total("naive"))

    def reason(self, state: RowTerms) -> str | None:
        if (nothing := nothing_counted(state)) is not None:
            return nothing
        return None if state.total("naive") else "the naive forecast is without error"
