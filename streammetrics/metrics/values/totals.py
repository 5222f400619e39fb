"""Metrics of a column of numbers or keys: sums, means, extremes, ratios of totals and distinct counts."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

from ...collect.metric import Metric, no_weight_reason
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import KEYS, Estimate
from ...reading.reading import OwnReading, Reading
from ...statistics.distinct import DistinctKeys
from ...statistics.extremes import Extremes
from ...statistics.moments import Moments
from ...statistics.unit_sums import UnitSums
from ...statistics.weighted_rows import RESERVED_ROLES
from ..standard_errors import of_moments

__all__ = ["Count", "DistinctCount", "Max", "Mean", "Min", "PerUnit", "Ratio", "Sum", "Variance"]


class MomentOfValues(Metric[Moments, float]):
    """Base class for metrics that are computed from exact sums of the values (and of their powers)."""

    about = About(cost="about 550 bytes; 1 ns per row")

    terms: ClassVar[tuple[str, ...]] = ("x",)

    def make_state(self) -> Moments:
        return Moments(columns=("value",), terms=self.terms)

    def reason(self, state: Moments) -> str | None:
        return no_weight_reason(state)


class Mean(MomentOfValues, tag="mean"):
    """Mean: the mean of the values, weighted if rows have weights.

    Formula: sum(w * v) / sum(w), for weights w and values v.

    Parameters
    ----------
    squares : bool
        Whether sums of squares are also kept; `interval()` needs them.

    Notes
    -----
    Sums are exact, whatever the sizes of the values, and the mean is rounded once. The state takes 550 bytes, and an
    update takes about 1 ns per row; with `squares`, the figures are 1.1 kB and 3 ns. The value is undefined if there
    are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Mean().update([1, 2, 6], sample_weight=[1, 1, 2]).compute()
    3.75
    >>> round(sm.Mean(squares=True).update([1, 2, 6]).interval().standard_error, 6)
    1.527525
    """

    about = About(formula="sum(w v) / sum(w)")

    squares: bool = setting(default=False)

    def make_state(self) -> Moments:
        return Moments(columns=("value",), terms=("x", "xx") if self.squares else ("x",))

    def of(self, state: Moments) -> float:
        return to_float(state.total("x"), state.weight())

    def gradient(self, mean: Any) -> tuple[Any, ...]:
        return (1.0,)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        return of_moments(self, state, reading.value, state.estimate_means("x"), self.gradient)


class Sum(MomentOfValues, tag="sum"):
    """Sum: the weighted sum of the values, such as revenue, clicks or seconds.

    Formula: sum(w * v), for weights w and values v.

    Notes
    -----
    The sum is exact and rounded once: adding 0.1 a million times gives a million times the float64 number 0.1. The
    state and the cost are the same as for `Mean`. The value is 0 if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Sum().update([1e16, 1.0, -1e16]).compute()
    1.0
    """

    about = About(
        extensive=True,
        no_interval_reason="the total over the counted rows is not an estimate; Mean has an interval",
        formula="sum(w v)",
    )

    def of(self, state: Moments) -> float:
        return to_float(state.total("x"))

    def reason(self, state: Moments) -> str | None:
        return None


class Count(MomentOfValues, tag="count"):
    """Count: the number of rows, or their total weight if rows are weighted.

    Formula: sum(w), for weights w.

    Notes
    -----
    The count is exact and rounded once. The state is the same as for `Mean`. The value is 0 if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Count().update([3, 3, 4]).compute()
    3.0
    """

    about = About(
        extensive=True,
        no_interval_reason="the number of counted rows is not an estimate; CTR and Mean have intervals",
        formula="sum of w",
        cost="about 10 bytes, 550 with weights; 1 ns per row",
    )

    terms = ()

    def of(self, state: Moments) -> float:
        return to_float(state.weight())

    def reason(self, state: Moments) -> str | None:
        return None


class Variance(MomentOfValues, tag="variance"):
    """Variance: the weighted mean of the squared distances between the values and their mean.

    Formula: sum(w * (v - mean)**2) / (sum(w) - ddof), for weights w and values v.

    Parameters
    ----------
    ddof : float
        The delta degrees of freedom: 0 for the variance of the counted rows, 1 for an unbiased estimate. A row of
        weight k counts as k rows.

    Notes
    -----
    The value is computed from exact sums of values and squares, and rounded once: it is correct to the last bit,
    whatever the mean is. The definition matches numpy's `var`. The value is undefined if the total weight does not
    exceed `ddof`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Variance(ddof=1).update([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]).compute()
    30.0
    """

    about = About(
        formula="sum(w (v - mean)^2) / (sum(w) - ddof)",
        cost="about 1.1 kB; 3 ns per row",
        # With ddof > 0, the value changes if all rows are counted twice.
        extensive=About.per_instance(lambda metric: metric.ddof > 0),
    )

    ddof: float = setting(default=0.0, low=0.0, high=2.0**31)

    terms = ("x", "xx")

    def of(self, state: Moments) -> float:
        left = state.weight() - Fraction(self.ddof)
        return to_float(state.covariance("x", "x"), left) if left > 0 else float("nan")

    def reason(self, state: Moments) -> str | None:
        few = state.weight() <= Fraction(self.ddof)
        return super().reason(state) or (f"the weight is not above ddof, {self.ddof:g}" if few else None)


class Ratio(Metric[Moments, float], tag="ratio"):
    """Ratio of the totals of two columns, such as clicks per impression or revenue per session.

    Formula: sum(w * n) / sum(w * d), for weights w, numerators n and denominators d.

    Parameters
    ----------
    numerator, denominator : str
        The names of the two columns.
    squares : bool
        Whether sums of squares and products are also kept; `interval()` needs them.

    Notes
    -----
    The value is the ratio of totals, not the mean of ratios. Sums are exact, and their quotient is rounded once. The
    state takes 1.1 kB, and an update takes about 2 ns per row; with `squares`, the figures are 2.7 kB and 10 ns. With
    squares, `interval()` uses the delta method and treats rows as independent. To treat users as independent
    instead, use ``Sharded(Ratio(...), unit="user_id")``. The value is undefined if the denominators sum to 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> ctr = sm.Ratio("clicks", "views").update(clicks=[1, 0, 2], views=[10, 20, 30])
    >>> ctr.name, ctr.compute()
    ('clicks/views', 0.05)
    """

    about = About(
        interval_scale="log",
        formula="sum(w n) / sum(w d), n the numerator column, d the denominator column",
        cost="about 1.1 kB; 2 ns per row",
    )

    numerator: str = setting(default="numerator", kw_only=False)
    denominator: str = setting(default="denominator", kw_only=False)
    squares: bool = setting(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({self.numerator, self.denominator, "sample_weight"}) < 3:
            raise ValueError(
                f"Ratio: expected two different columns other than sample_weight, found {self.numerator!r} and "
                f"{self.denominator!r}; pass different columns as numerator= and denominator="
            )

    @property
    def name(self) -> str:
        usual = (self.numerator, self.denominator) == ("numerator", "denominator")
        return "ratio" if usual else f"{self.numerator}/{self.denominator}"

    def make_state(self) -> Moments:
        terms = ("x", "y", "xx", "xy", "yy") if self.squares else ("x", "y")
        return Moments(columns=(self.numerator, self.denominator), terms=terms)

    def of(self, state: Moments) -> float:
        return to_float(state.total("x"), state.total("y"))

    def gradient(self, top: Any, bottom: Any) -> tuple[Any, ...]:
        return 1 / bottom, -top / bottom / bottom

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        return of_moments(self, state, reading.value, state.estimate_means("x", "y"), self.gradient)

    def reason(self, state: Moments) -> str | None:
        if not int(state.rows):
            return "no rows"
        return None if state.total("y") else f"{self.denominator} adds up to 0"


class PerUnit(Metric[UnitSums, float], tag="per_unit"):
    """Outcome per unit: the mean of an outcome per exposed unit, such as revenue, sessions or purchases per user.

    Formula: sum of outcomes / number of exposures.

    Parameters
    ----------
    outcome : str
        The column of outcomes: an amount, a count, or 0/1. A unit can have any number of rows.
    unit : str
        The column of units, such as users. Every batch must contain this column.
    exposed : str
        The column that is 1 in the row that records the exposure of a unit to an arm, and 0 in other rows. There is one
        such row for each unit and arm.
    cap : float, optional
        The largest outcome of a row: larger outcomes are replaced with this number (winsorizing; see the notes). To cap
        the total of each unit, or to use a percentile such as "99%" as the cap, use `winsorize`.
    missing : {"raise", "skip"}
        Whether a row without a unit raises an error or is skipped. `explain()` shows the number of skipped rows.
    missing_values : tuple of int, str or bytes
        Keys, such as 0, that stand for a missing unit in addition to null values.

    Notes
    -----
    Outcomes and exposures usually come from two tables, and are passed in separate updates in any order. A batch
    contains the column of outcomes, the column `exposed`, or both (a table of units, or the two tables concatenated); a
    batch with neither raises an error. A column that is missing from a batch counts as 0, so units without an outcome
    are included in the mean.

    The number of units is the number of exposure rows, not a distinct count of active units, which the treatment would
    change. A unit with two exposure rows in an arm counts twice, so remove duplicates first. `explain()` gives the number
    of exposures.

    Rows of one unit are correlated, and the constant-size state does not identify units. For an interval, use
    ``Sharded(PerUnit("revenue", unit="user_id"), unit="user_id")``; without shards there is no interval, and the result
    gives the reason.

    .. warning:: If a few units make up most of the total, as with revenue, intervals of a mean do not reach their nominal
       coverage: 95 % intervals contain the true value in 83 % of cases under a power law, and in 88 to 93 % of cases
       for a difference between arms. A cap restores the coverage, but changes the estimand to the mean of the capped
       outcome. The cap applies to rows. To limit the total of each unit to a number or to a percentile of all units,
       apply `winsorize` to the rows of all arms together, before you split them. Do not choose a cap for each arm.

    The state takes about 1.1 kB. An update takes 5 ns per row, plus the time to hash strings.

    Examples
    --------
    >>> import streammetrics as sm
    >>> revenue = sm.Sliced(sm.PerUnit("revenue", unit="user"), by="arm")
    >>> exposures = {"user": [1, 2, 3, 4], "arm": ["a", "a", "b", "b"], "exposed": [1, 1, 1, 1]}
    >>> orders = {"user": [1, 1, 4], "arm": ["a", "a", "b"], "revenue": [20.0, 10.0, 8.0]}
    >>> revenue.update(exposures).update(orders).compute()
    {'a': 15.0, 'b': 4.0}
    """

    about = About(formula="(sum of outcomes) / (number of exposures)", cost="about 1.1 kB; 5 ns per row")

    outcome: str = setting(default="outcome", kw_only=False)
    unit: str = setting(default="unit")
    exposed: str = setting(default="exposed")
    cap: float | None = setting(default=None, above=0.0, high=2.0**400)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    def __post_init__(self) -> None:
        if isinstance(self.cap, str):
            raise ValueError(
                f"PerUnit: expected a number as cap=, found {self.cap!r}; a percentile needs the total of every "
                f"{self.unit} of all arms, so limit the totals before the update: outcome = sm.winsorize(outcome, unit, "
                f"cap={self.cap!r}).outcome, and then leave out cap="
            )
        super().__post_init__()
        columns = self.outcome, self.unit, self.exposed
        if len({*columns, *RESERVED_ROLES}) < 3 + len(RESERVED_ROLES):
            raise ValueError(
                f"PerUnit: expected three different columns with names other than {', '.join(RESERVED_ROLES)}, found "
                f"{columns}; pass outcome=, unit= and exposed= with different names"
            )

    @property
    def name(self) -> str:
        named = self.about.tag if self.outcome == "outcome" else f"{self.outcome}_per_{self.unit}"
        return named if self.cap is None else f"{named}_capped"

    def make_state(self) -> UnitSums:
        return UnitSums(
            outcome=self.outcome,
            exposed=self.exposed,
            unit=self.unit,
            cap=self.cap,
            missing=self.missing,
            missing_values=self.missing_values,
        )

    def of(self, state: UnitSums) -> float:
        return to_float(state.total, state.exposures)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        why = f"rows of one {self.unit} are not independent, and this state does not record which rows belong to one "
        return Estimate(reading.value, reason=f'{why}{self.unit}; Sharded(..., unit="{self.unit}") has an interval')

    def reason(self, state: UnitSums) -> str | None:
        if not int(state.rows):
            return "no rows"
        return None if state.exposures else f"no exposures: give the rows in which {self.exposed} is 1, too"


class Min(Metric[Extremes, float], tag="min"):
    """Minimum: the smallest value, over rows with nonzero weight.

    Formula: min v.

    Notes
    -----
    The value is exact. The state is the same as for `Max`, and takes 100 bytes; an update takes about 1 ns per row. The
    value is undefined if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Min().update([3, -1, 2]).compute()
    -1.0
    """

    about = About(
        no_interval_reason=(
            "a minimum or a maximum has no standard error; Quantile(q=), with q close to 0 or 1, has an interval"
        ),
        formula="min v",
        cost="100 bytes; about 1 ns per row",
        bound="exact",
    )

    def make_state(self) -> Extremes:
        return Extremes(columns=("value",))

    def of(self, state: Extremes) -> float:
        return state.least()

    def reason(self, state: Extremes) -> str | None:
        unseen = math.isnan(state.least())
        return ("the weights are all zero" if int(state.rows) else "no rows") if unseen else None


class Max(Min, tag="max"):
    """Maximum: the largest value, over rows with nonzero weight.

    Formula: max v.

    Notes
    -----
    The value is exact. The state is the same as for `Min`, and takes 100 bytes; an update takes about 1 ns per row. The
    value is undefined if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Max().update([3, -1, 2]).compute()
    3.0
    """

    about = About(formula="max v")

    def of(self, state: Extremes) -> float:
        return state.largest()


class DistinctCount(Metric[DistinctKeys, float], tag="distinct_count"):
    """Distinct count: an estimate of the number of distinct keys (users, queries, items) by HyperLogLog.

    Formula: Ertl's improved raw estimator, based on the harmonic mean of the registers. It is unbiased for any number
    of keys.

    Parameters
    ----------
    precision : int
        The base-2 logarithm of the number of registers: 4 to 18. The relative standard error is
        1.04 / sqrt(2**precision), for example 0.8 % with `precision=14`.

    Notes
    -----
    Keys are integers of any width, strings or bytes, passed as the column `value`. The result of `interval()` contains
    the estimate and its standard error. `bounds()` returns certified bounds: there are at least as many keys as
    registers in use, and at most as many as rows. A repeated key changes only the number of rows, so merging the
    states of overlapping logs counts the keys of their union. The hash never changes. Source: Flajolet et al. (2007),
    Ertl (2017). The value is 0 if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = sm.DistinctCount().update(["ann", "bob", "ann"])
    >>> round(users.compute(), 2)
    2.0
    >>> round(users.merge(sm.DistinctCount().update(["bob", "cy"])).compute(), 2)
    3.0
    """

    about = About(
        formula="estimator of Ertl (2017) for HyperLogLog",
        cost="8 bytes per register, 128 KiB at precision 14; about 4 ns per row",
        bound="registers in use <= value <= rows; standard error 1.04 / sqrt(2**precision)",
        interval_methods=("hyperloglog",),
        no_sharded_interval_reason=(
            "the state does not say how many new keys other users would have; for counts of users, PerUnit and CTR have "
            "intervals"
        ),
    )

    precision: int = setting(default=14, low=4, high=18)

    def make_state(self) -> DistinctKeys:
        return DistinctKeys(precision=self.precision)

    def of(self, state: DistinctKeys) -> float:
        low, high = _certain(state)
        return min(max(state.estimate(), low), high)

    def read(self, state: DistinctKeys) -> Reading:
        return OfSketch(self, state)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        # The interval is for the number of keys in the counted rows, not in a population. So the only random error is
        # that of the sketch.
        state: Any = reading.state
        relative = 1.04 / math.sqrt(state.size)
        return Estimate(reading.value, relative * reading.value, "natural", method, KEYS, within=_certain(state))

    def reason(self, state: DistinctKeys) -> str | None:
        return None


class OfSketch(OwnReading):
    """Number of distinct keys, estimated from a HyperLogLog sketch, with certified bounds."""

    def _bounds(self) -> tuple[float, float]:
        return _certain(self.state)


def _certain(state: DistinctKeys) -> tuple[float, float]:
    """Return certified bounds on the number of keys: the number of registers in use and the number of rows."""
    return float(state.used_registers), float(int(state.rows))
