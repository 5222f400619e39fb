"""Metric: what a user looks up. Settings, a formula, and one pure function of a state."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import fields
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar

from ..batch.column_binding import PLAIN
from ..count.reads import MEMORY_LIMIT, Read
from ..errors import StateFormatError, StreamMetricsError, UndefinedMetricWarning
from ..format import frame
from ..numerics.exact import Limits
from ..numerics.settings import Settings, decode_setting, encode_setting, setting, unlike, written_settings
from ..reading.about import About, inherit
from ..reading.answers import MetricAnswer, identity_of, reading_of
from ..reading.interval import Estimate
from ..reading.reading import OwnReading, Reading, relative_slack
from ..reading.records import explanation_of
from ..reading.replicates import Sample, samples_of
from ..reading.wide_bounds import may_be_wide, sentence_of, warn, wide_of
from ..state.state import State
from .accumulator import Accumulator, accumulate
from .definition import Definition, MetricRead, definition_of_header
from .metric_like import MetricLike

__all__ = ["METRICS", "Metric", "ScoredLabels", "nothing_counted"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

UPWARD = Context(prec=1, rounding=ROUND_CEILING)
METRICS: dict[str, type[Metric[Any, Any]]] = {}
"""Every metric there is, by tag: what the laws, the catalogue and the command line go through."""


class Metric(Settings, MetricLike, Generic[S, T]):
    """A metric: fed by `update`, united by `merge`, read by `compute`.

    A subclass declares settings, makes an empty state (`make_state`), and computes `of(state)`. Its record `about`
    declares the formula, which values are better, the range of the value and how intervals are made (see `About`). See
    `check_metric` for the laws that every metric keeps.

    Notes
    -----
    To make a metric of your own, in any package, over a state that exists::

        from streammetrics.extend import About, Metric, ScoreSums

        class Odds(Metric[ScoreSums, float], tag="acme.odds"):
            '''Predicted odds of a click.'''

            about = About(formula="p / (1 - p)")

            def make_state(self):
                return ScoreSums(terms=("score",))

            def of(self, state):
                clicks = state.total("score")
                rest = state.weight() - clicks
                return float(clicks / rest) if rest else float("nan")
    """

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

    @cached_property
    def _accumulator(self) -> Accumulator:  # type: ignore[override]
        return accumulate(MetricDefinition(self))  # type: ignore[no-any-return]

    @property
    def state(self) -> S:
        """The state: what was counted so far."""
        state: Any = self._accumulator.states[0]
        return state  # type: ignore[no-any-return]

    def compute(self) -> T:
        """Return the value; NaN, with one UndefinedMetricWarning and a reason, where it is undefined.

        A value whose certified bounds are wider than 5 % of the metric's range, or of the value where it has no range,
        comes with one WideBoundsWarning, which says how to count more exactly.
        """
        accumulator = self._accumulator
        found = reading_of(self, accumulator.states[0])
        value: T = found.value
        if isinstance(value, float) and math.isnan(value) and self.name not in accumulator.warned:
            accumulator.warned.add(self.name)
            reason = found.reason or "0/0"
            warnings.warn(f"{self.name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        elif may_be_wide(self, found.state):
            # `bounds()` often follows and needs the value, too, so the state keeps it. The state does not keep the
            # reading: the two would refer to each other, and only the garbage collector would free them.
            found.state.__dict__.setdefault("_found", {})[identity_of(self)] = found.found
            warn(wide_of(self, self.name, found), accumulator.warned_wide, stacklevel=2)
        return value

    def bounds(self) -> tuple[T, T]:
        """Return certified limits of the value: a proof from the state. Equal limits: the value is exact, rounded once."""
        return reading_of(self, self._accumulator.states[0]).bounds

    def explain(self) -> dict[str, Any]:
        """Return the value with everything behind it: bounds, formula, rows, weight, rows dropped and why."""
        return explanation_of(self, reading_of(self, self._accumulator.states[0]))

    def __repr__(self) -> str:
        """Return the settings, and the value with its bounds: AUC(0.784112 +- 0.00003 proof, 90 rows).

        A value takes at most a millisecond or two, so it is computed; that of groups can take minutes, and is not.
        """
        settings = super().__repr__()
        accumulator = self.__dict__.get("_accumulator")
        rows = accumulator.states[0].facts().get("rows") if accumulator is not None else None
        if not rows:
            return settings
        value = "" if self.state.behind is not None else value_text(self)
        given = settings.partition("(")[2][:-1]
        count = f"{rows:,} row{'s' if rows > 1 else ''}"
        return f"{type(self).__name__}({', '.join(text for text in (given, value, count) if text)})"


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
        self._accumulator.update(y_true, y_score, columns)
        return self


def value_text(metric: Metric[Any, Any]) -> str:
    """Return the value with its bound, in the digits that the bound leaves."""
    found = reading_of(metric, metric.state)
    value = found.value
    if not isinstance(value, float) or math.isnan(value):
        return "NaN" if isinstance(value, float) else ""
    (low, high), shown = found.bounds, f"{value:.6g}"
    wide = wide_of(metric, metric.name, found)
    if "off_grid" not in metric.state.facts() and not wide:
        return shown  # counts and sums have nothing to certify
    if high <= math.nextafter(low, math.inf):
        return f"{shown} exact"
    half = max(high - value, value - low) + abs(value - float(shown))
    mark = f": {sentence_of(metric)}" if wide else ""
    text = f"{UPWARD.create_decimal(half):f}" if math.isfinite(half) else "inf"
    return f"{shown} +- {text} proof{mark}"


def nothing_counted(state: State) -> str | None:
    """Say why a state has no weight, of those that know theirs; None if it has."""
    facts = state.facts()
    return "no rows" if not facts["rows"] else None if facts["weight"] else "the weights are all zero"


class MetricDefinition(Definition):
    """The definition of one metric.

    Parameters
    ----------
    metric : Metric
        The metric. The definition has a copy of its settings: if the two referred to each other, only the garbage
        collector would free the states.
    """

    kind = "metric"
    is_single = True

    def __init__(self, metric: Metric[Any, Any]) -> None:
        self.metric = _bare_copy(metric)
        # The metric of another package may keep values in its `__dict__`. No other object may have them.
        self._settings = dict(self.metric.__dict__)
        self.on_invalid = metric.on_invalid
        self.memory_limit = getattr(metric, "memory_limit", MEMORY_LIMIT)
        self.unit = getattr(metric, "unit", None)

    @property
    def name(self) -> str:
        name: str = self.metric.name
        return name

    @property
    def type_name(self) -> str:
        return type(self.metric).__name__

    def wrap(self, accumulator: Any) -> Any:
        made = object.__new__(type(self.metric))
        made.__dict__.update(self._settings, _accumulator=accumulator)
        return made

    def with_on_invalid(self, on_invalid: str) -> Self:
        made = super().with_on_invalid(on_invalid)
        if made is not self:
            made.metric = _bare_copy(self.metric)
            made.metric.__dict__["on_invalid"] = on_invalid
            made._settings = self._settings | {"on_invalid": on_invalid}
        return made

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return (Read(self.metric.make_state(), PLAIN, self.metric.about.rank_based),)

    def positional_columns(self) -> tuple[str, ...]:
        columns = self.columns
        roles: tuple[str, ...] | None = self.metric.about.positional_columns
        must = [name for name, needed in columns.items() if needed]
        # Some metrics are given predictions in place of scores.
        if roles is None or (set(roles) - set(columns) and set(must) - set(roles)):
            roles = tuple(must[:2])
        return roles

    def header(self) -> dict[str, Any]:
        return {"kind": "metric", "tag": self.metric.about.tag, "settings": written_settings(self.metric)}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Definition:
        return cls(make_metric(header["tag"], header["settings"], states[0]))

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return 1

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self.metric, other.metric
        if type(theirs) is not type(ours) or theirs.about.tag != ours.about.tag:
            return [f"it is a {type(theirs).__name__}"]
        mine, others = ({k: encode_setting(v) for k, v in m.settings.items()} for m in (ours, theirs))
        return [f"{k} is {a} here and {b} there" for k, (a, b) in unlike(mine, others).items()]

    def read(self, states: Sequence[State]) -> MetricAnswer:
        return MetricAnswer(self.metric, states[0])

    def metric_reads(self) -> dict[str, MetricRead]:
        return {self.name: MetricRead(self.metric, 0, PLAIN)}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        return samples_of(self.name, self.metric, states[0])

    def sealed(self, parts: int | None = None) -> Definition:
        sealed_metric = getattr(self.metric, "sealed_metric", None)  # of groups alone
        return self if sealed_metric is None else MetricDefinition(sealed_metric(parts))

    @cached_property
    def can_coarsen(self) -> bool:  # type: ignore[override]
        """Whether its bits are those of a histogram, which can be made coarser; those of a sketch cannot."""
        state = self.metric.make_state()
        return "bits" in self.metric.settings and (hasattr(state, "coarsen") or "bits" not in state.settings)

    def coarser(self, bits: int) -> Definition:
        if not self.can_coarsen:
            raise TypeError(f"{self.name} has no histogram to coarsen")
        state: Any = self.metric.make_state()
        fewer = state.coarsen(bits) if "bits" in state.settings else state  # bins of equal width have none
        kept = "limit" in self.metric.settings and hasattr(fewer, "limit")  # a mean over rows has no buckets
        limit = {"limit": fewer.limit} if kept else {}  # rows that a cell then keeps exactly
        return MetricDefinition(type(self.metric)(**(_given(self.metric) | {"bits": bits} | limit)))

    def coarsened(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        return super().coarsened(new, states, bits) if self.can_coarsen else list(states)

    def __reduce__(self) -> Any:
        cls = type(self.metric)
        found: Any = sys.modules.get(cls.__module__)
        for name in cls.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is cls and cls is not OpaqueMetric:  # pickle finds classes by name
            return definition_of_class, (cls, _given(self.metric))
        return _unpickled, (frame.write([r.state for r in self.reads], self.header()),)


def _bare_copy(metric: Metric[Any, Any]) -> Any:
    """Return a metric of the same settings without its accumulator."""
    made = object.__new__(type(metric))
    made.__dict__.update(metric.__dict__)
    made.__dict__.pop("_accumulator", None)
    return made


def _given(metric: Metric[Any, Any]) -> dict[str, Any]:
    """Return what the constructor was given, operational settings included."""
    return {f.name: getattr(metric, f.name) for f in fields(metric) if f.init}


def _unpickled(data: bytes) -> Definition:
    """Return the definition of a metric whose class cannot be imported by name."""
    opened = frame.Frame(data)
    return definition_of_header(opened.about, opened.states())  # type: ignore[no-any-return]


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

    def update(self, *given: Any, **columns: Any) -> NoReturn:
        raise _unknown(self.about.tag)

    def of(self, state: State) -> NoReturn:
        raise _unknown(self.about.tag)

    def __repr__(self) -> str:
        return f"OpaqueMetric({self.about.tag!r})"


def _unknown(tag: str) -> StreamMetricsError:
    return StreamMetricsError(f"{tag!r} is not known here: import the package that defines it, then load again")


def definition_of_class(cls: type[Metric[Any, Any]], settings: dict[str, Any]) -> MetricDefinition:
    """Return the definition of a metric whose class came with it, and may be unknown here, such as one of a script."""
    METRICS.setdefault(cls.about.tag, cls)
    return MetricDefinition(cls(**settings))


def make_metric(tag: str, settings: dict[str, Any], state: State) -> Metric[Any, Any]:
    """Make the metric that a header describes; `state` is of the kind that it reads."""
    if not isinstance(tag, str):
        raise StateFormatError("the tag of a metric is no text")
    known, decoded = METRICS.get(tag), {k: decode_setting(v) for k, v in settings.items()}
    return OpaqueMetric(tag, decoded, state) if known is None else known(**decoded)
