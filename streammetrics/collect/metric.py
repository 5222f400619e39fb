"""Metric: what a user looks up. Settings, a formula, and one pure function of a state."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from functools import cached_property, partial
from types import FunctionType
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, dataclass_transform

import numpy as np

from ..errors import StateFormatError, StreamMetricsError, UndefinedMetricWarning
from ..numerics.exact import to_float
from ..numerics.settings import Settings, decode_setting, encode_setting, setting, union, unlike
from ..state.state import State
from .binding import PLAIN
from .feed import Read
from .holder import Holder, Reader
from .interval import Estimate, Interval, check_confidence
from .sample import Sample, samples_of
from .scalars import Named, named_numbers
from .wide_bounds import (
    WideValue,
    exactness_part,
    is_off_grid,
    kept,
    range_length_of,
    sentence_of,
    together,
    warn,
    wide_values,
)

__all__ = ["METRICS", "Metric", "ScoredLabels", "nothing_counted"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

UPWARD = Context(prec=1, rounding=ROUND_CEILING)
NARROW_BITS = 5  # a bucket is then at most 3 % of its value wide

METRICS: dict[str, type[Metric[Any, Any]]] = {}
"""Every metric there is, by tag: what the laws, the catalogue and the command line go through."""


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(setting, union))
class Metric(Settings, Holder, Generic[S, T]):
    """A metric: fed by `update`, united by `merge`, read by `compute`.

    A subclass declares settings, makes an empty state (`make_state`), and computes `of(state)`; see `check_metric` for
    the laws that every metric keeps.

    Notes
    -----
    To make a metric of your own, in any package, over a state that exists::

        class Odds(sm.Metric[sm.ScoreSums, float], tag="acme.odds"):
            '''Predicted odds of a click.'''

            def make_state(self):
                return sm.ScoreSums(terms=("score",))

            def of(self, state):
                clicks = state.total("score")
                rest = state.weight() - clicks
                return float(clicks / rest) if rest else float("nan")
    """

    sort = "metric"
    single = True
    tag: ClassVar[str] = ""
    best: ClassVar[str | float | None] = None
    """Whether "high" or "low" is better; the value that is best, on a scale of ratios; or None."""
    formula: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    bound: ClassVar[str] = "exact: rounded once"
    example: ClassVar[dict[str, Any]] = {}
    """Values for settings that have no default: what catalogue, warm-up and laws try the metric with."""

    grows: ClassVar[bool] = False
    """Whether the value is another one if all rows come twice, as of counts, sums and unbiased estimates."""

    repeats: ClassVar[bool] = True
    """Whether a row of weight k is worth k rows, and one of weight 0 none; a mean over rows as they come says no."""

    value_range: ClassVar[tuple[float, float] | None] = None
    """The smallest and the largest value, where `within` and the scale of intervals do not say them."""

    ranks: ClassVar[bool | None] = False
    """Whether only the order of the scores matters: then it reads them as they were given, whatever a task corrects."""

    on_invalid: str = setting(default="raise", choices=("raise", "drop"), operational=True)

    read_outs: ClassVar[tuple[str, ...]] = ("of_output", "within")
    """The methods, each a function of a state, that both the value and its bounds are read from: see `kept`."""

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in cls.read_outs:
            if isinstance(read := vars(cls).get(name), FunctionType):
                setattr(cls, name, kept(read))
        if tag:
            taken = METRICS.get(tag)
            if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"the metric tag {tag!r} is already taken by {taken.__qualname__}")
            cls.tag = tag
            METRICS[tag] = cls

    # -- what a metric declares ---------------------------------------------------------------------------------------

    def make_state(self) -> S:
        """Make the empty state this metric reads."""
        raise NotImplementedError(f"{type(self).__name__} does not say which state it reads")

    def of(self, state: S) -> T:
        """Compute the value from a state; pure."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")

    def bounds_of(self, state: S) -> tuple[T, T]:
        """Return certified limits of the value, from a state. Equal limits: the value is exact, rounded once."""
        value, slip = self.of(state), 8 * state.slip
        least = slip if state.fixed_terms else Fraction(0)  # each w x was rounded, too: of a mean no more than that
        return (spread(value, -slip, -least), spread(value, slip, least)) if slip else (value, value)

    interval_scale: ClassVar[str] = "natural"
    """On which scale chance moves the value symmetrically (`SCALES`): what intervals of any kind are made on."""

    methods: ClassVar[tuple[str, ...]] = ("delta",)
    """How `interval` can be made from this state; the first if it is not asked otherwise."""

    instead: ClassVar[str] = ""
    """What to use for an interval where this metric has none of any kind, and why: extremes, and what is never negative
    where the truth is 0."""

    no_shards: ClassVar[str] = ""
    """Why there is no interval by shards of units, and what to use, where rows as units have one."""

    def estimate_of(self, state: S, method: str) -> Estimate:
        """Return the value with its standard error if the units that the state counts are independent; pure."""
        why = self.instead or f"this state does not say how {self.name} varies; Sharded(..., unit=) does"
        return Estimate(self.of(state), reason=why)

    def interval_of(self, state: S, confidence: float = 0.95, method: str | None = None) -> Interval:
        """Return the statistical interval of the value, from a state."""
        return self.estimate_of(state, self.methods[0] if method is None else method).interval(confidence)

    def estimate_of_stacked(self, state: S) -> Estimate | None:
        """Return the estimates of cells side by side (see `stacks`), to the bit those of each; None if it takes each."""
        return None

    def below_of(self, whole: S, shards: State, at: Any) -> Any:
        """Of a quantile, the weight of the values up to it in each cell of `shards`; None of anything else.

        Parameters
        ----------
        whole : State
            All shards, at full resolution.
        shards : State
            The same by the axes of `whole` and, last, by shard.
        at : int64 array
            To which cell of `whole` each cell of `shards` belongs.
        """
        return None

    def without_of(self, shards: State, at: Any, cells: int) -> tuple[Any, Any] | None:
        """Return the values of cells, and of these without each of their shards, to the bit what `of` says; or None.

        For what is found more quickly than by taking one shard after the other away.

        Parameters
        ----------
        shards : State
            By any axes and, last, by shard.
        at : int64 array
            To which of so many cells each shard belongs.
        """
        return None

    def value_below(self, state: S, share: float) -> float:
        """Of a quantile: the value below which a share of the weight lies, in a state of one cell."""
        raise NotImplementedError(f"{self.name} is no quantile")

    def intervals_of_cells(self, state: S, confidence: float) -> list[Interval]:
        """Return the interval of every front cell."""
        found = self.estimate_of_stacked(state) if len(state) > 1 else None
        if found is None:
            return [self.interval_of(cell, confidence) for cell in state.each_cell()]
        low, high = found.limits(confidence)
        columns = (x.tolist() for x in (low, high, found.value, np.broadcast_to(found.error, low.shape)))
        how = found.method, found.assumption, confidence
        each = zip(*columns, strict=True)
        return [Interval(low, high, value, error, *how) for low, high, value, error in each]

    def details(self, state: S) -> dict[str, Any]:
        """What `explain` says besides, from a state: the threshold of a best value, and the like."""
        return {}

    stacks: ClassVar[bool] = False
    """Whether `of` also takes a state of cells side by side (`State.stacked`), and returns an array: for tables."""

    @property
    def certain(self) -> bool:
        """Whether the limits are the value, if no weight was rounded."""
        return type(self).bounds_of is Metric.bounds_of

    def of_stacked(self, state: S) -> Any:
        """Compute the values of cells side by side."""
        return self.of(state)

    def of_cells(self, state: S) -> list[T]:
        """Compute the value of every front cell."""
        if self.stacks and state.stacks:
            return self.of_stacked(state.stacked()).tolist()  # type: ignore[no-any-return]
        return [self.of(cell) for cell in state.each_cell()]

    def limits_of_cells(self, state: S) -> list[tuple[T, T]]:
        """Return the certified limits of the value of every front cell."""
        if self.certain and "rounded" not in state.cells.flats:
            return [(value, value) for value in self.of_cells(state)]
        return [self.bounds_of(cell) for cell in state.each_cell()]

    def may_be_wide(self, state: State) -> bool:
        """Return whether the bounds of a value, or of one cell, may be wide: a cheap check, before bounds are computed.

        Bounds are narrow where every bucket holds one number. Those of a quantile are the edges of a bucket, which are at
        most 2**-bits of the value apart. Bounds that hold the rounding of weights alone are narrow, too.
        """
        if not exactness_part(state):
            return bool(getattr(state, "when_wide", "")) and not self.certain
        if not is_off_grid(state):
            return False
        return not (self._is_quantile and getattr(state, "bits", 0) >= NARROW_BITS)

    @cached_property
    def _watches(self) -> bool:
        """Whether there are states whose value may have wide bounds: the first check, which costs next to nothing."""
        state = self.reads()[0].state
        return bool(exactness_part(state)) or hasattr(state, "when_wide")

    @cached_property
    def _is_quantile(self) -> bool:
        return type(self).below_of is not Metric.below_of

    def wide_of(self, name: str, state: S, value: T) -> list[WideValue]:
        """Return what is wide of the value of one cell, under a name."""
        if not (self._watches and self.may_be_wide(state)):
            return []
        found = self._wide_of(state, value if isinstance(value, float) else None)
        return [one._replace(name=name) for one in found]

    @kept
    def _wide_of(self, state: S, number: float | None) -> list[WideValue]:
        """Return what is wide of the value: a number, or, given None, what is read from the state once more."""
        value: Any = self.of(state) if number is None else number
        return wide_values(self, self.name, state, value, self.bounds_of(state))

    @cached_property
    def range_length(self) -> float | None:
        """The length of the range of the values; None if a limit is not known."""
        return range_length_of(self)

    def wide_of_cells(self, name: str, state: S) -> tuple[list[T], list[WideValue]]:
        """Return the values of all front cells, and what is wide of them."""
        if not self.may_be_wide(state):
            return self.of_cells(state), []
        values: list[T] = []
        found: list[WideValue] = []
        for cell in state.each_cell():
            values.append(self.of(cell))
            found += self.wide_of(name, cell, values[-1])
        return values, together(found)

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """The class and the settings: equal metrics have the same."""
        return type(self), *self.settings.values()

    def reason_of(self, state: S) -> str | None:
        """Say why the value is undefined; None if it is defined."""
        return "no rows" if not state.facts().get("rows", 1) else None

    @property
    def name(self) -> str:
        """The name in collections and tables, such as "auc" or "precision@0.9"."""
        return self.tag

    # -- what every metric does ---------------------------------------------------------------------------------------

    def reads(self) -> tuple[Read, ...]:
        return self._reads

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        """What is read depends on settings alone, and is asked for at every door."""
        return (Read(self.make_state(), PLAIN, self.ranks),)

    positional: ClassVar[tuple[str, ...] | None] = None
    """The roles of the first two columns of `update`, if not the first two that must be there."""

    def by_position(self) -> tuple[str, ...]:
        columns, roles = self.columns, self.positional
        must = [name for name, needed in columns.items() if needed]
        if roles is None or (set(roles) - set(columns) and set(must) - set(roles)):  # predictions in place of scores
            roles = tuple(must[:2])
        return roles

    @property
    def state(self) -> S:
        """The state: what was seen so far."""
        state: Any = self.feed.states[0]
        return state  # type: ignore[no-any-return]

    def blank(self) -> Self:
        return type(self)(**self._given())

    def _given(self) -> dict[str, Any]:
        """What the constructor was given, operational settings included."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]

    def recipe(self) -> Callable[[], Holder] | None:
        cls = type(self)
        found: Any = sys.modules.get(cls.__module__)
        for name in cls.__qualname__.split("."):
            found = getattr(found, name, None)
        return partial(metric_of_class, cls, self._given()) if found is cls else None  # pickle finds classes by name

    def differences(self, other: Any) -> list[str]:
        if type(other) is not type(self) or other.tag != self.tag:
            return [f"it is a {type(other).__name__}"]
        mine, theirs = encode_settings(self), encode_settings(other)
        return [f"{k} is {a} here and {b} there" for k, (a, b) in unlike(mine, theirs).items()]

    def compute(self) -> T:
        """Return the value; NaN, with one UndefinedMetricWarning and a reason, where it is undefined.

        A value whose certified bounds are wider than 5 % of the metric's range, or of the value where it has no range,
        comes with one WideBoundsWarning, which says how to count more exactly.
        """
        state = self.state
        value = self.of(state)
        if isinstance(value, float) and math.isnan(value) and not self.__dict__.get("_warned"):
            self.__dict__["_warned"] = True
            reason = self.reason_of(state) or "0/0"
            warnings.warn(f"{self.name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        elif self._watches and self.may_be_wide(state):
            warn(self.wide_of(self.name, state, value), self.warned_wide, stacklevel=2)
        return value

    def bounds(self) -> tuple[T, T]:
        """Return certified limits of the value: a proof from the state. Equal limits: the value is exact, rounded once."""
        return self.bounds_of(self.state)

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> Any:
        check_confidence(confidence)
        if method is not None and method not in self.methods:
            known = " or ".join(map(repr, self.methods))
            raise ValueError(f"{self.name} has an interval by {known}, not by {method!r}")
        return self.interval_of(states[0], confidence, method)  # type: ignore[arg-type]

    def explain(self) -> dict[str, Any]:
        """Return the value with everything behind it: bounds, formula, rows, weight, rows dropped and why."""
        return explain(self, self.state)

    @property
    def coarsens(self) -> bool:
        """Whether its bits are those of a histogram, which come down; those of a sketch do not."""
        state = self.make_state()
        return "bits" in self.settings and (hasattr(state, "coarsen") or "bits" not in state.settings)

    def coarser(self, bits: int) -> Self:
        if not self.coarsens:
            raise TypeError(f"{self.name} has no histogram to coarsen")
        state: Any = self.make_state()
        fewer = state.coarsen(bits) if "bits" in state.settings else state  # bins of equal width have none
        kept = "limit" in self.settings and hasattr(fewer, "limit")  # a mean over rows has no buckets
        limit = {"limit": fewer.limit} if kept else {}  # rows that a cell then keeps exactly
        return type(self)(**(self._given() | {"bits": bits} | limit))

    def coarser_within(self, bits: int) -> Self:
        return self.coarser(bits) if self.coarsens else self

    def brought_down(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        return super().brought_down(new, states, bits) if self.coarsens else list(states)

    def __repr__(self) -> str:
        """The settings; and of a metric that has seen rows what it says of them: AUC(0.784112 +- 0.00003 proof, 90 rows).

        A value takes at most a millisecond or two, so it is worked out; that of groups can take minutes, and is not.
        """
        settings = super().__repr__()
        held = self.__dict__.get("_feed")
        rows = held.states[0].facts().get("rows") if held is not None else None
        if not rows:
            return settings
        said = ["" if self.state.behind is not None else self._said(), f"{rows:,} row{'s' if rows > 1 else ''}"]
        given = settings.partition("(")[2][:-1]
        return f"{type(self).__name__}({', '.join(text for text in (given, *said) if text)})"

    def _said(self) -> str:
        """The value with its bound, in the digits that the bound leaves."""
        value = self.of(self.state)
        if not isinstance(value, float) or math.isnan(value):
            return "NaN" if isinstance(value, float) else ""
        limits: Any = self.bounds_of(self.state)
        (low, high), shown = limits, f"{value:.6g}"
        if "off_grid" not in self.state.facts() and not self.wide_of(self.name, self.state, value):
            return shown  # counts and sums have nothing to certify
        if high <= math.nextafter(low, math.inf):
            return f"{shown} exact"
        half = max(high - value, value - low) + abs(value - float(shown))
        mark = f": {sentence_of(self)}" if self.wide_of(self.name, self.state, value) else ""
        text = f"{UPWARD.create_decimal(half):f}" if math.isfinite(half) else "inf"
        return f"{shown} +- {text} proof{mark}"

    # -- of states ----------------------------------------------------------------------------------------------------

    def value(self, states: Sequence[State]) -> Any:
        return self.of(states[0])  # type: ignore[arg-type]

    def value_with_wide(self, states: Sequence[State]) -> tuple[Any, list[WideValue]]:
        state: Any = states[0]
        value = self.of(state)
        return value, self.wide_of(self.name, state, value)

    def numbers(self, value: Any) -> Named:
        return named_numbers(self.name, value)

    def limits(self, states: Sequence[State]) -> Any:
        return self.bounds_of(states[0])  # type: ignore[arg-type]

    def explained(self, states: Sequence[State]) -> Any:
        return explain(self, states[0])

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        state: Any = states[0]
        found = None if confidence is None else self.interval_of(state, confidence)
        return [record(self, state, self.of(state), self.bounds_of(state), found)]

    def readers(self) -> dict[str, Reader]:
        return {self.name: Reader(self, 0, PLAIN)}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        return samples_of(self.name, self, states[0])

    def header(self) -> dict[str, Any]:
        return {"kind": "metric", "tag": self.tag, "settings": self.written}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        return make_metric(header["tag"], header["settings"], states[0])

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return 1


class ScoredLabels(Metric[S, T]):
    """A metric of a 0/1 label and a score."""

    positional = ("y_true", "y_score")

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            0 or 1. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_score : array-like of shape (n,)
            Probabilities, or what `scale=` says.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. Both others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is bad, or lengths differ; the message names column, row and count, and nothing was counted.
        CounterOverflowError
            2**62 rows, or a total weight of 2**42, would be passed.
        """
        return self.take(y_true, y_score, columns)


def encode_settings(metric: Metric[Any, Any]) -> dict[str, Any]:
    """Settings as plain data, comparable and ready for JSON."""
    return {k: encode_setting(v) for k, v in metric.settings.items()}


def dropped_of(state: State) -> dict[str, int]:
    """Return how many rows were left out, by reason, without the zeros."""
    if state.dropped is None:
        return {}
    return {reason: int(n) for reason, n in zip(state.reasons, state.dropped.tolist(), strict=True) if n}


def explain(metric: Metric[Any, Any], state: State) -> dict[str, Any]:
    """Return a metric's value on a state with everything behind it."""
    value = metric.of(state)
    low, high = metric.bounds_of(state)
    return {
        "metric": metric.name,
        "value": value,
        "bounds": (low, high),
        "exact": _equal(low, high),
        "reason": metric.reason_of(state),
        "formula": metric.formula,
        "settings": metric.settings,
        **{k: to_float(v) if isinstance(v, Fraction) else v for k, v in state.facts().items()},
        **metric.details(state),
        "dropped": dropped_of(state),
    }


def record(metric: Metric[Any, Any], state: State, value: Any, bounds: Any, found: Interval | None) -> dict[str, Any]:
    """A row for a table, with the statistical interval that was found."""
    known = state.facts()
    low, high = bounds
    wide = wide_values(metric, metric.name, state, value, bounds) if metric.may_be_wide(state) else []
    certain = isinstance(value, float) and ("off_grid" in known or bool(wide))
    return {
        "metric": metric.name,
        "value": value,
        # only a histogram has something to certify; counts and sums are exact as they stand
        "bound_low": low if certain else None,
        "bound_high": high if certain else None,
        **chance(value, found),
        "unit": None,
        "rows": known.get("rows"),
        "weight": to_float(known["weight"]) if "weight" in known else None,
        "positives": known.get("positives"),
        "reason": wide[0].sentence if wide else metric.reason_of(state),
        "wide": wide[0] if wide else None,
        "dropped": dropped_of(state),
    }


def chance(value: Any, found: Interval | None) -> dict[str, Any]:
    """The statistical interval as a table has it, and the reason where there is none."""
    if found is None or not isinstance(value, float):
        return {"interval_low": math.nan, "interval_high": math.nan, "interval_reason": None}
    return {"interval_low": found.low, "interval_high": found.high, "interval_reason": found.reason}


def spread(value: Any, slip: Fraction, least: Fraction = Fraction(0)) -> Any:
    """Return a value that is larger by a share, and at least so much, rounded outward; of arrays and tuples each number.

    Infinity stays, and 0 without a least.
    """
    if isinstance(value, tuple):
        return type(value)(*(spread(v, slip, least) for v in value))
    with np.errstate(invalid="ignore", over="ignore"):
        made = np.asarray(value, np.float64)
        wider = np.nextafter(made + (np.abs(made) * float(slip) + float(least)), math.copysign(math.inf, slip))
        made = np.where(((made == 0) & (not least)) | np.isinf(made), made, wider)
    return made if isinstance(value, np.ndarray) else float(made)


def _equal(low: Any, high: Any) -> bool:
    """Whether two values are equal, where a value may be several arrays."""
    if isinstance(low, tuple):
        return all(_equal(a, b) for a, b in zip(low, high, strict=True))
    return bool(np.array_equal(low, high, equal_nan=isinstance(low, np.ndarray) and low.dtype.kind == "f"))


def badness(metric: Metric[Any, Any], value: Any) -> float:
    """Return how bad a value is, to sort by; NaN if it is undefined, or nothing says which values are better."""
    if metric.best is None or not isinstance(value, float):
        return math.nan
    if isinstance(metric.best, str):
        return value if metric.best == "low" else -value
    ratio = value / metric.best
    return max(ratio, 1 / ratio) if ratio > 0 else math.nan if ratio != ratio else math.inf


def nothing_counted(state: State) -> str | None:
    """Say why a state has no weight, of those that know theirs; None if it has."""
    facts = state.facts()
    return "no rows" if not facts["rows"] else None if facts["weight"] else "the weights are all zero"


class OpaqueMetric(Metric[Any, Any]):
    """A metric whose class is not imported: it loads, merges and is written again, but cannot compute."""

    ranks = None

    def __init__(self, tag: str, settings: dict[str, Any], state: State) -> None:
        self.__dict__.update(on_invalid="raise", _tag=tag, _settings=settings, _state=state.empty())

    tag = property(lambda self: self.__dict__["_tag"])
    settings = property(lambda self: self.__dict__["_settings"])

    @property
    def written(self) -> dict[str, Any]:
        return {name: encode_setting(value) for name, value in self.settings.items()}

    def make_state(self) -> State:
        state: State = self.__dict__["_state"]
        return state

    def blank(self) -> Self:
        return type(self)(self.tag, self.settings, self.make_state())

    def recipe(self) -> None:
        return None

    def update(self, *given: Any, **columns: Any) -> NoReturn:
        raise _unknown(self.tag)

    def of(self, state: State) -> NoReturn:
        raise _unknown(self.tag)

    def __repr__(self) -> str:
        return f"OpaqueMetric({self.tag!r})"


def _unknown(tag: str) -> StreamMetricsError:
    return StreamMetricsError(f"{tag!r} is not known here: import the package that defines it, then load again")


def metric_of_class(cls: type[Metric[Any, Any]], settings: dict[str, Any]) -> Metric[Any, Any]:
    """Make a metric of a class that came along, which may be unknown here: of a script, say, that cannot be imported."""
    METRICS.setdefault(cls.tag, cls)
    return cls(**settings)


def make_metric(tag: str, settings: dict[str, Any], state: State) -> Metric[Any, Any]:
    """Make the metric that a header describes; `state` is of the kind that it reads."""
    if not isinstance(tag, str):
        raise StateFormatError("the tag of a metric is no text")
    known, decoded = METRICS.get(tag), {k: decode_setting(v) for k, v in settings.items()}
    return OpaqueMetric(tag, decoded, state) if known is None else known(**decoded)
