"""Metrics of one column of numbers or keys, role `value`: sums, means, extremes, ratios of totals, distinct counts."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

from ...collect.metric import Metric, nothing_counted
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import KEYS, Estimate
from ...reading.reading import OwnReading, Reading
from ...statistics.distinct import DistinctKeys
from ...statistics.extremes import Extremes
from ...statistics.moments import Moments
from ...statistics.unit_sums import UnitSums
from ...statistics.weighted_rows import TAKEN
from ..standard_errors import of_moments

__all__ = ["Count", "DistinctCount", "Max", "Mean", "Min", "PerUnit", "Ratio", "Sum", "Variance"]


class MomentOfValues(Metric[Moments, float]):
    """A metric that reads exact sums of values."""

    about = About(cost="about 550 bytes; 1 ns a row")

    terms: ClassVar[tuple[str, ...]] = ("x",)

    def make_state(self) -> Moments:
        return Moments(columns=("value",), terms=self.terms)

    def reason(self, state: Moments) -> str | None:
        return nothing_counted(state)


class Mean(MomentOfValues, tag="mean"):
    """Weighted mean of the values.

    Formula: sum w v / sum w.

    Parameters
    ----------
    squares : bool
        Whether squares are kept, too, for `interval()`.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Exact sums, whatever the sizes, and one rounding. About 1 ns a row, 550 bytes; with squares 3 ns, 1.1 kB. Undefined
    without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Mean().update([1, 2, 6], sample_weight=[1, 1, 2]).compute()
    3.75
    >>> round(sm.Mean(squares=True).update([1, 2, 6]).interval().standard_error, 6)
    1.527525
    """

    about = About(formula="sum w v / sum w")

    squares: bool = setting(default=False)

    def make_state(self) -> Moments:
        return Moments(columns=("value",), terms=("x", "xx") if self.squares else ("x",))

    def of(self, state: Moments) -> float:
        return to_float(state.total("x"), state.weight())

    def gradient(self, mean: Any) -> tuple[Any, ...]:
        return (1.0,)

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        return of_moments(self, state, found.value, state.spread_of("x"), self.gradient)


class Sum(MomentOfValues, tag="sum"):
    """Weighted sum of the values: revenue, clicks, seconds.

    Formula: sum w v.

    Parameters
    ----------
    on_invalid
        As for Mean.

    Notes
    -----
    Exact, rounded once: 0.1 a million times is what a million times that float64 is. State and cost as Mean; 0 without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Sum().update([1e16, 1.0, -1e16]).compute()
    1.0
    """

    about = About(
        extensive=True,
        no_interval_reason="a total over these rows is no estimate; Mean has an interval",
        formula="sum w v",
    )

    def of(self, state: Moments) -> float:
        return to_float(state.total("x"))

    def reason(self, state: Moments) -> str | None:
        return None


class Count(MomentOfValues, tag="count"):
    """Number of rows; their total weight if they are weighted.

    Formula: sum w.

    Parameters
    ----------
    on_invalid
        As for Mean.

    Notes
    -----
    Exact, rounded once. Shares the state of Mean; 0 without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Count().update([3, 3, 4]).compute()
    3.0
    """

    about = About(
        extensive=True,
        no_interval_reason="a count of these rows is no estimate; CTR and Mean have intervals",
        formula="sum w",
        cost="about 10 bytes, 550 with weights; 1 ns a row",
    )

    terms = ()

    def of(self, state: Moments) -> float:
        return to_float(state.weight())

    def reason(self, state: Moments) -> str | None:
        return None


class Variance(MomentOfValues, tag="variance"):
    """Weighted variance of the values.

    Formula: sum w (v - mean)**2 / (sum w - ddof).

    Parameters
    ----------
    ddof : float
        0 for the variance of these rows, 1 for an unbiased estimate; weights count as so many rows.
    on_invalid
        As for Mean.

    Notes
    -----
    From exact sums of values and squares, rounded once: right to the last bit whatever the mean. About 3 ns a row, 1.1 kB.
    Definition as numpy's `var`. Undefined if the weight is not above `ddof`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Variance(ddof=1).update([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]).compute()
    30.0
    """

    about = About(
        formula="sum w (v - mean)^2 / (sum w - ddof)",
        cost="about 1.1 kB; 3 ns a row",
        # An unbiased estimate depends on the number of rows.
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
    """Ratio of the totals of two columns: clicks per impression, revenue per session.

    Formula: sum w n / sum w d.

    Parameters
    ----------
    numerator, denominator : str
        The columns.
    squares, on_invalid
        As for Mean.

    Notes
    -----
    Exact sums, one rounding: the ratio of totals, not the mean of ratios. About 2 ns a row, 1.1 kB; with squares 10 ns,
    2.7 kB. Undefined if the denominators add up to 0. Intervals by user: ``Sharded(Ratio(...), unit="user_id")``; with
    squares those of independent rows, by the delta method.

    Examples
    --------
    >>> import streammetrics as sm
    >>> ctr = sm.Ratio("clicks", "views").update(clicks=[1, 0, 2], views=[10, 20, 30])
    >>> ctr.name, ctr.compute()
    ('clicks/views', 0.05)
    """

    about = About(interval_scale="log", formula="sum w n / sum w d", cost="about 1.1 kB; 2 ns a row")

    numerator: str = setting(default="numerator", kw_only=False)
    denominator: str = setting(default="denominator", kw_only=False)
    squares: bool = setting(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({self.numerator, self.denominator, "sample_weight"}) < 3:
            raise ValueError(f"Ratio takes two different columns, not {self.numerator!r} and {self.denominator!r}")

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

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        return of_moments(self, state, found.value, state.spread_of("x", "y"), self.gradient)

    def reason(self, state: Moments) -> str | None:
        if not int(state.rows):
            return "no rows"
        return None if state.total("y") else f"{self.denominator} adds up to 0"


class PerUnit(Metric[UnitSums, float], tag="per_unit"):
    """Mean of an outcome per exposed unit: revenue per user, sessions per user, users who bought.

    Formula: sum of outcomes / number of exposures.

    Parameters
    ----------
    outcome : str
        The column of outcomes, any number of rows a unit: an amount, a count, 0 or 1.
    unit : str
        The column of units, such as users. Every batch has it.
    exposed : str
        The column that is 1 in the one row that says that a unit was exposed (in each arm that it was in), else 0.
    cap : float, optional
        A row beyond counts as this (winsorised). See the notes.
    missing, missing_values
        Whether a row without a unit raises, or is left out and counted; keys that stand for none, such as 0.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Outcomes and exposures come from two tables, in updates of their own, in any order: one has the outcomes, the other
    `exposed`; a batch with neither raises, and one with both (a table of units, or both tables one below the other) counts
    both. What a batch lacks is 0: so units without outcome count. The number of units is that of the exposure rows, never
    a distinct count of those who did something, which the treatment moves; a unit that is exposed twice in an arm counts
    twice, so make its rows one first. `explain()` has the number of exposures.

    Rows of one unit depend on one another, and this state of constant size does not tell units apart: the interval is that
    of ``Sharded(PerUnit("revenue", unit="user_id"), unit="user_id")``, and without shards there is none, with the reason.

    .. warning:: Where few units hold most of the total, as with revenue, no interval of a mean covers what it says: 95 %
       ones cover 83 % under a power law, of a difference of arms 88 to 93 %. A cap mends that, and changes the question:
       it is the mean of the capped outcome. It acts on rows, so for one on what a unit has in all, give one row a unit.
       Fix it before the experiment, the same for all arms, not as a quantile of this log.

    About 1.1 kB; 5 ns a row, and what hashing texts takes.

    Examples
    --------
    >>> import streammetrics as sm
    >>> revenue = sm.Sliced(sm.PerUnit("revenue", unit="user"), by="arm")
    >>> exposures = {"user": [1, 2, 3, 4], "arm": ["a", "a", "b", "b"], "exposed": [1, 1, 1, 1]}
    >>> orders = {"user": [1, 1, 4], "arm": ["a", "a", "b"], "revenue": [20.0, 10.0, 8.0]}
    >>> revenue.update(exposures).update(orders).compute()
    {'a': 15.0, 'b': 4.0}
    """

    about = About(formula="sum of outcomes / number of exposures", cost="about 1.1 kB; 5 ns a row")

    outcome: str = setting(default="outcome", kw_only=False)
    unit: str = setting(default="unit")
    exposed: str = setting(default="exposed")
    cap: float | None = setting(default=None, above=0.0, high=2.0**400)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = self.outcome, self.unit, self.exposed
        if len({*columns, *TAKEN}) < 3 + len(TAKEN):
            raise ValueError(f"PerUnit takes three different columns, none of {', '.join(TAKEN)}, not {columns}")

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

    def estimate(self, found: Reading, method: str) -> Estimate:
        why = f"rows of one {self.unit} are not independent, and this state does not tell them apart: "
        return Estimate(found.value, reason=f'{why}Sharded(..., unit="{self.unit}") does')

    def reason(self, state: UnitSums) -> str | None:
        if not int(state.rows):
            return "no rows"
        return None if state.exposures else f"no exposures: give the rows in which {self.exposed} is 1, too"


class Min(Metric[Extremes, float], tag="min"):
    """Least value, over rows whose weight is not 0.

    Formula: min v.

    Parameters
    ----------
    on_invalid
        As for Mean.

    Notes
    -----
    Exact. About 1 ns a row, 100 bytes; one state with Max. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Min().update([3, -1, 2]).compute()
    -1.0
    """

    about = About(
        no_interval_reason="an extreme has no standard error; Quantile(q=) near it has one",
        formula="min v",
        cost="100 bytes; about 1 ns a row",
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
    """Largest value, over rows whose weight is not 0.

    Formula: max v.

    Parameters
    ----------
    on_invalid
        As for Mean.

    Notes
    -----
    Exact. About 1 ns a row, 100 bytes; one state with Min. Undefined without rows.

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
    """Number of different keys: users, queries, items. An estimate (HyperLogLog) with a standard error.

    Formula: Ertl's improved raw estimator of the registers' harmonic mean, exact in expectation from 0 keys on.

    Parameters
    ----------
    precision : int
        log2 of the number of registers, 4 to 18. The standard error is 1.04 / sqrt(2**precision): 0.8 % at 14.
    on_invalid : {"raise", "drop"}
        Whether a row without a key raises, or is left out and counted.

    Notes
    -----
    Keys are integers of any width, strings or bytes, in the column `value`. `interval()` is the estimate and its standard
    error; `bounds()` is what is certain: no fewer keys than registers used, no more than rows. A key that comes again
    changes nothing but the count of rows, so states of overlapping logs merge to their union. The hash is fixed for ever.
    About 4 ns a row, 128 KiB at 14. Source: Flajolet et al. (2007), Ertl (2017). 0 without rows.

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
        formula="HyperLogLog (Ertl 2017)",
        cost="8 bytes a register, 128 KiB at 14; about 4 ns a row",
        bound="registers used <= value <= rows; standard error 1.04 / sqrt(2**precision)",
        interval_methods=("hyperloglog",),
        no_sharded_interval_reason=(
            "how many keys other users would bring nothing tells; of counts of users PerUnit and CTR have intervals"
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

    def estimate(self, found: Reading, method: str) -> Estimate:
        # The error is that of the sketch: how many keys were seen, not how many others would be.
        state: Any = found.state
        relative = 1.04 / math.sqrt(state.size)
        return Estimate(found.value, relative * found.value, "natural", method, KEYS, within=_certain(state))

    def reason(self, state: DistinctKeys) -> str | None:
        return None


class OfSketch(OwnReading):
    """The reading of a sketch of keys, with its certified bounds."""

    def _bounds(self) -> tuple[float, float]:
        return _certain(self.state)


def _certain(state: DistinctKeys) -> tuple[float, float]:
    """Return certified bounds of the number of keys."""
    return float(state.used), float(int(state.rows))
