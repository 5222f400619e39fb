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
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, dataclass_transform

import numpy as np

from ..errors import StateFormatError, StreamMetricsError, UndefinedMetricWarning
from ..numerics.exact import Limits, to_float
from ..numerics.settings import Settings, decode_setting, encode_setting, setting, union, unlike, written_settings
from ..state.state import State
from .about import About, about_of, inherit
from .binding import PLAIN
from .feed import Read
from .holder import Holder, Reader
from .interval import Estimate, Interval, check_confidence
from .reading import OwnReading, Reading, interval_of, relative_slack
from .sample import Sample, samples_of
from .scalars import Named, named_numbers
from .wide_bounds import WideValue, may_be_wide, sentence_of, warn, wide_of

__all__ = ["METRICS", "Metric", "ScoredLabels", "nothing_counted"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

UPWARD = Context(prec=1, rounding=ROUND_CEILING)
SATURATED = (
    "most scores that share a bucket are below 2**-33 or above 1 - 2**-33, where more bits= change nothing: give logits, "
    'with scale="logit"'
)

METRICS: dict[str, type[Metric[Any, Any]]] = {}
"""Every metric there is, by tag: what the laws, the catalogue and the command line go through."""


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(setting, union))
class Metric(Settings, Holder, Generic[S, T]):
    """A metric: fed by `update`, united by `merge`, read by `compute`.

    A subclass declares settings, makes an empty state (`make_state`), and computes `of(state)`. Its record `about`
    declares the formula, which values are better, the range of the value and how intervals are made (see `About`). See
    `check_metric` for the laws that every metric keeps.

    Notes
    -----
    To make a metric of your own, in any package, over a state that exists::

        class Odds(sm.Metric[sm.ScoreSums, float], tag="acme.odds"):
            '''Predicted odds of a click.'''

            about = sm.About(formula="p / (1 - p)")

            def make_state(self):
                return sm.ScoreSums(terms=("score",))

            def of(self, state):
                clicks = state.total("score")
                rest = state.weight() - clicks
                return float(clicks / rest) if rest else float("nan")
    """

    sort = "metric"
    single = True
    about: ClassVar[About] = About()
    """What the metric declares about itself, its value and its intervals (see `About`)."""

    on_invalid: str = setting(default="raise", choices=("raise", "drop"), operational=True)

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.about = inherit(cls, tag)
        if tag:
            taken = METRICS.get(tag)
            if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"the metric tag {tag!r} is already taken by {taken.__qualname__}")
            METRICS[tag] = cls

    # -- what a metric declares ---------------------------------------------------------------------------------------

    def make_state(self) -> S:
        """Make the empty state this metric reads."""
        raise NotImplementedError(f"{type(self).__name__} does not say which state it reads")

    def of(self, state: Any) -> Any:
        """Return the value from a state of one cell; pure.

        Returns
        -------
        float, Quotient, Limits, array, NamedTuple or None
            A float is exact but for its rounding. `Limits` say between which numbers the value certainly is. None stands
            for an undefined number.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")

    def reason(self, state: Any) -> str | None:
        """Return why the value is undefined; None if it is defined."""
        return "no rows" if not state.facts().get("rows", 1) else None

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        """Return how much wider the limits are if each weight was rounded by a share: as a quotient is."""
        return relative_slack(found, rounding)

    def estimate(self, found: Reading, method: str) -> Estimate | None:
        """Return the value with its standard error, of a reading of one cell or of cells side by side; None without.

        Parameters
        ----------
        found : Reading
            The reading, with the value and the state.
        method : str
            One of `about.interval_methods`.
        """
        return None

    def read(self, state: S) -> Reading:
        """Return what this metric says about a state of one cell: of two classes, of one label, of one output.

        With `about.read_cells=read_side_by_side` it also takes a state of cells side by side (`State.stacked`), whose
        counts are arrays.
        """
        return OwnReading(self, state)

    def reading(self, state: S) -> Reading:
        """Return what this metric says about a state of one cell, whatever its classes, labels and outputs."""
        return self.read(state)

    @property
    def name(self) -> str:
        """The name in collections and tables, such as "auc" or "precision@0.9"."""
        return self.about.tag

    # -- what every metric does ---------------------------------------------------------------------------------------

    def reads(self) -> tuple[Read, ...]:
        return self._reads

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        """What is read depends on settings alone, and is asked for at every door."""
        return (Read(self.make_state(), PLAIN, self.about.rank_based),)

    def by_position(self) -> tuple[str, ...]:
        columns, roles = self.columns, self.about.positional_columns
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
        if type(other) is not type(self) or other.about.tag != self.about.tag:
            return [f"it is a {type(other).__name__}"]
        mine, theirs = encode_settings(self), encode_settings(other)
        return [f"{k} is {a} here and {b} there" for k, (a, b) in unlike(mine, theirs).items()]

    def compute(self) -> T:
        """Return the value; NaN, with one UndefinedMetricWarning and a reason, where it is undefined.

        A value whose certified bounds are wider than 5 % of the metric's range, or of the value where it has no range,
        comes with one WideBoundsWarning, which says how to count more exactly.
        """
        found = self._reading
        value: T = found.value
        if isinstance(value, float) and math.isnan(value) and not self.__dict__.get("_warned"):
            self.__dict__["_warned"] = True
            reason = found.reason or "0/0"
            warnings.warn(f"{self.name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        elif may_be_wide(self, found.state):
            # `bounds()` often follows and needs the value, too, so the state keeps it. The state does not keep the
            # reading: the two would refer to each other, and only the garbage collector would free them.
            found.state.__dict__.setdefault("_found", {})[identity_of(self)] = found.found
            warn(wide_of(self, self.name, found), self.warned_wide, stacklevel=2)
        return value

    def bounds(self) -> tuple[T, T]:
        """Return certified limits of the value: a proof from the state. Equal limits: the value is exact, rounded once."""
        return self._reading.bounds

    @property
    def _reading(self) -> Reading:
        """What this metric says now."""
        state = self.state
        made = self.reading(state)
        known = state.__dict__.get("_found")
        if known is not None and (identity := identity_of(self)) in known:
            made.preset(known[identity])
        return made

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> Any:
        check_confidence(confidence)
        methods = about_of(self).interval_methods
        if method is not None and method not in methods:
            known = " or ".join(map(repr, methods))
            raise ValueError(f"{self.name} has an interval by {known}, not by {method!r}")
        state: Any = states[0]
        return interval_of(self, self.reading(state), confidence, method)

    def explain(self) -> dict[str, Any]:
        """Return the value with everything behind it: bounds, formula, rows, weight, rows dropped and why."""
        return explain(self, self._reading)

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
        found = self._reading
        value = found.value
        if not isinstance(value, float) or math.isnan(value):
            return "NaN" if isinstance(value, float) else ""
        (low, high), shown = found.bounds, f"{value:.6g}"
        wide = wide_of(self, self.name, found)
        if "off_grid" not in self.state.facts() and not wide:
            return shown  # counts and sums have nothing to certify
        if high <= math.nextafter(low, math.inf):
            return f"{shown} exact"
        half = max(high - value, value - low) + abs(value - float(shown))
        mark = f": {sentence_of(self)}" if wide else ""
        text = f"{UPWARD.create_decimal(half):f}" if math.isfinite(half) else "inf"
        return f"{shown} +- {text} proof{mark}"

    # -- of states ----------------------------------------------------------------------------------------------------

    def value(self, states: Sequence[State]) -> Any:
        return self.reading(states[0]).value  # type: ignore[arg-type]

    def value_with_wide(self, states: Sequence[State]) -> tuple[Any, list[WideValue]]:
        state: Any = states[0]
        found = self.reading(state)
        return found.value, wide_of(self, self.name, found)

    def numbers(self, value: Any) -> Named:
        return named_numbers(self.name, value)

    def limits(self, states: Sequence[State]) -> Any:
        return self.reading(states[0]).bounds  # type: ignore[arg-type]

    def explained(self, states: Sequence[State]) -> Any:
        return explain(self, self.reading(states[0]))  # type: ignore[arg-type]

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        state: Any = states[0]
        found = self.reading(state)
        return [record(self, found, None if confidence is None else interval_of(self, found, confidence))]

    def readers(self) -> dict[str, Reader]:
        return {self.name: Reader(self, 0, PLAIN)}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        return samples_of(self.name, self, states[0])

    def header(self) -> dict[str, Any]:
        return {"kind": "metric", "tag": self.about.tag, "settings": written_settings(self)}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        return make_metric(header["tag"], header["settings"], states[0])

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return 1


class ScoredLabels(Metric[S, T]):
    """A metric of a 0/1 label and a score."""

    about = About(positional_columns=("y_true", "y_score"))

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


def identity_of(metric: Metric[Any, Any]) -> tuple[Any, ...]:
    """Return the class and the settings: equal metrics have the same."""
    known: tuple[Any, ...] | None = metric.__dict__.get("_identity")
    if known is None:
        known = metric.__dict__["_identity"] = type(metric), *metric.settings.values()
    return known


def encode_settings(metric: Metric[Any, Any]) -> dict[str, Any]:
    """Settings as plain data, comparable and ready for JSON."""
    return {k: encode_setting(v) for k, v in metric.settings.items()}


def dropped_of(state: State) -> dict[str, int]:
    """Return how many rows were left out, by reason, without the zeros."""
    if state.dropped is None:
        return {}
    return {reason: int(n) for reason, n in zip(state.reasons, state.dropped.tolist(), strict=True) if n}


def explain(metric: Metric[Any, Any], found: Reading) -> dict[str, Any]:
    """Return a metric's value with everything behind it."""
    low, high = found.bounds
    return {
        "metric": metric.name,
        "value": found.value,
        "bounds": (low, high),
        "exact": _equal(low, high),
        "reason": found.reason,
        "formula": metric.about.formula,
        "settings": metric.settings,
        **{k: to_float(v) if isinstance(v, Fraction) else v for k, v in found.state.facts().items()},
        # Of metrics that read probabilities as they are, logits would be other numbers.
        **({"hint": SATURATED} if metric.about.rank_based and getattr(found.state, "saturated", False) else {}),
        **found.details,
        "dropped": dropped_of(found.state),
    }


def record(metric: Metric[Any, Any], found: Reading, interval: Interval | None) -> dict[str, Any]:
    """A row for a table, with the statistical interval that was found."""
    known, value = found.state.facts(), found.value
    low, high = found.bounds
    wide = wide_of(metric, metric.name, found)
    certain = isinstance(value, float) and ("off_grid" in known or bool(wide))
    return {
        "metric": metric.name,
        "value": value,
        # only a histogram has something to certify; counts and sums are exact as they stand
        "bound_low": low if certain else None,
        "bound_high": high if certain else None,
        **chance(value, interval),
        "unit": None,
        "rows": known.get("rows"),
        "weight": to_float(known["weight"]) if "weight" in known else None,
        "positives": known.get("positives"),
        "reason": wide[0].sentence if wide else found.reason,
        "wide": wide[0] if wide else None,
        "dropped": dropped_of(found.state),
    }


def chance(value: Any, found: Interval | None) -> dict[str, Any]:
    """The statistical interval as a table has it, and the reason where there is none."""
    if found is None or not isinstance(value, float):
        return {"interval_low": math.nan, "interval_high": math.nan, "interval_reason": None}
    return {"interval_low": found.low, "interval_high": found.high, "interval_reason": found.reason}


def _equal(low: Any, high: Any) -> bool:
    """Whether two values are equal, where a value may be several arrays."""
    if isinstance(low, tuple):
        return all(_equal(a, b) for a, b in zip(low, high, strict=True))
    return bool(np.array_equal(low, high, equal_nan=isinstance(low, np.ndarray) and low.dtype.kind == "f"))


def badness(metric: Metric[Any, Any], value: Any) -> float:
    """Return how bad a value is, to sort by; NaN if it is undefined, or nothing says which values are better."""
    best = about_of(metric).best
    if best is None or not isinstance(value, float):
        return math.nan
    if isinstance(best, str):
        return value if best == "low" else -value
    ratio = value / best
    return max(ratio, 1 / ratio) if ratio > 0 else math.nan if ratio != ratio else math.inf


def nothing_counted(state: State) -> str | None:
    """Say why a state has no weight, of those that know theirs; None if it has."""
    facts = state.facts()
    return "no rows" if not facts["rows"] else None if facts["weight"] else "the weights are all zero"


class OpaqueMetric(Metric[Any, Any]):
    """A metric whose class is not imported: it loads, merges and is written again, but cannot compute."""

    about = About(rank_based=None)

    def __init__(self, tag: str, settings: dict[str, Any], state: State) -> None:
        self.__dict__.update(on_invalid="raise", about=About(tag=tag, rank_based=None))
        self.__dict__.update(_settings=settings, _state=state.empty())

    settings = property(lambda self: self.__dict__["_settings"])

    def make_state(self) -> State:
        state: State = self.__dict__["_state"]
        return state

    def blank(self) -> Self:
        return type(self)(self.about.tag, self.settings, self.make_state())

    def recipe(self) -> None:
        return None

    def update(self, *given: Any, **columns: Any) -> NoReturn:
        raise _unknown(self.about.tag)

    def of(self, state: State) -> NoReturn:
        raise _unknown(self.about.tag)

    def __repr__(self) -> str:
        return f"OpaqueMetric({self.about.tag!r})"


def _unknown(tag: str) -> StreamMetricsError:
    return StreamMetricsError(f"{tag!r} is not known here: import the package that defines it, then load again")


def metric_of_class(cls: type[Metric[Any, Any]], settings: dict[str, Any]) -> Metric[Any, Any]:
    """Make a metric of a class that came along, which may be unknown here: of a script, say, that cannot be imported."""
    METRICS.setdefault(cls.about.tag, cls)
    return cls(**settings)


def make_metric(tag: str, settings: dict[str, Any], state: State) -> Metric[Any, Any]:
    """Make the metric that a header describes; `state` is of the kind that it reads."""
    if not isinstance(tag, str):
        raise StateFormatError("the tag of a metric is no text")
    known, decoded = METRICS.get(tag), {k: decode_setting(v) for k, v in settings.items()}
    return OpaqueMetric(tag, decoded, state) if known is None else known(**decoded)
