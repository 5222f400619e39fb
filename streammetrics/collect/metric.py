"""Metric: the base class of all metrics. A metric has settings, a formula, and a pure function of a state."""

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
from ..numerics.settings import (
    Settings,
    decode_setting,
    encode_changed_settings,
    encode_setting,
    find_differing_settings,
    setting,
)
from ..reading.about import About, inherit
from ..reading.answers import MetricAnswer, identity_of, reading_of
from ..reading.interval import Estimate
from ..reading.reading import OwnReading, Reading, relative_slack
from ..reading.records import explanation_of
from ..reading.replicates import Sample, samples_of
from ..reading.wide_bounds import may_be_wide, sentence_of, warn_of_wide_values, wide_of
from ..state.state import State
from .accumulator import Accumulator, accumulate
from .definition import Definition, MetricRead, definition_of_header
from .metric_like import MetricLike
from .parameter_docs import inherit_parameter_docs

__all__ = ["METRICS", "Metric", "ScoredLabels", "no_weight_reason"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

ROUND_UP = Context(prec=1, rounding=ROUND_CEILING)
METRICS: dict[str, type[Metric[Any, Any]]] = {}
"""All metrics by tag. The laws, the catalogue and the command line iterate over it."""


class Metric(Settings, MetricLike, Generic[S, T]):
    """The base class of metrics: `update` counts rows, `merge` adds states, `compute` returns the value.

    A subclass declares settings, builds an empty state (`make_state`), and computes the value (`of`). Its record `about`
    declares the formula, which values are better, the range of the value, and the interval methods (see `About`).
    `check_metric` tests a metric against the laws that every metric must satisfy.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}
        Whether an invalid row raises an error, or is left out and counted.

    Notes
    -----
    To define a metric in your own package over an existing state::

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
        inherit_parameter_docs(cls)
        if tag:
            taken = METRICS.get(tag)
            if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"the metric tag {tag!r} is already taken by {taken.__qualname__}")
            METRICS[tag] = cls

    # -- what a metric declares ---------------------------------------------------------------------------------------

    def make_state(self) -> S:
        """Return the empty state that this metric reads."""
        raise NotImplementedError(f"{type(self).__name__} does not implement make_state()")

    def of(self, state: Any) -> Any:
        """Return the value from a state with one cell. The method must be a pure function of settings and state.

        Returns
        -------
        float, Quotient, Limits, array, NamedTuple or None
            A float is exact except for its rounding. `Limits` contain certified limits of the value. None means that the
            value is undefined.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement of()")

    def reason(self, state: Any) -> str | None:
        """Return why the value is undefined; None if it is defined."""
        return "no rows" if not state.facts().get("rows", 1) else None

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        """Return by how much to widen `limits` if the relative rounding error of each weight is at most `rounding`."""
        return relative_slack(limits, rounding)

    def estimate(self, reading: Reading, method: str) -> Estimate | None:
        """Return the value with its standard error; None if the metric has none.

        Parameters
        ----------
        reading : Reading
            The reading of one cell, or of stacked cells whose numbers are arrays.
        method : str
            One of `about.interval_methods`.
        """
        return None

    def read(self, state: S) -> Reading:
        """Return the reading of a state with one cell, for two classes, one label or one output.

        With `about.read_cells=read_side_by_side` this method also takes a vectorized state of many cells
        (`State.vectorize`), whose counts are arrays.
        """
        return OwnReading(self, state)

    def reading(self, state: S) -> Reading:
        """Return the reading of a state with one cell, with any number of classes, labels and outputs."""
        return self.read(state)

    @property
    def name(self) -> str:
        """The name in collections and tables, such as "auc" or "precision@0.9"."""
        return self.about.tag

    # -- methods of every metric ---------------------------------------------------------------------------------------

    @cached_property
    def _accumulator(self) -> Accumulator:  # type: ignore[override]
        return accumulate(MetricDefinition(self))  # type: ignore[no-any-return]

    @property
    def state(self) -> S:
        """The current state."""
        state: Any = self._accumulator.states[0]
        return state  # type: ignore[no-any-return]

    def compute(self) -> T:
        """Return the value. If it is undefined, return NaN and issue one UndefinedMetricWarning with the reason.

        If the certified bounds are wider than 5 % of the metric's range (or of the value, if the metric has no range), one
        WideBoundsWarning tells how to get narrower bounds.
        """
        accumulator = self._accumulator
        reading = reading_of(self, accumulator.states[0])
        value: T = reading.value
        if isinstance(value, float) and math.isnan(value) and self.name not in accumulator.warned:
            accumulator.warned.add(self.name)
            reason = reading.reason or "0/0"
            warnings.warn(f"{self.name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        elif may_be_wide(self, reading.state):
            # A call of `bounds()` often follows and needs the value, too, so the state caches the value. It does not cache
            # the reading: state and reading would refer to each other, and only the garbage collector would free them.
            reading.state.__dict__.setdefault("_raw_values", {})[identity_of(self)] = reading.raw_value
            warn_of_wide_values(wide_of(self, self.name, reading), accumulator.warned_wide, stacklevel=2)
        return value

    def bounds(self) -> tuple[T, T]:
        """Return certified bounds of the value. If both are equal, the value is exact except for one rounding."""
        return reading_of(self, self._accumulator.states[0]).bounds

    def explain(self) -> dict[str, Any]:
        """Return a dict with the value, bounds, formula, settings, rows, weight and dropped rows by reason."""
        return explanation_of(self, reading_of(self, self._accumulator.states[0]))

    def __repr__(self) -> str:
        """Return the settings, and the value with its bounds: AUC(0.784112 +- 0.00003 proof, 90 rows).

        Most values take a millisecond or two. Values of groups can take minutes, so they are not computed here.
        """
        settings = super().__repr__()
        accumulator = self.__dict__.get("_accumulator")
        rows = accumulator.states[0].facts().get("rows") if accumulator is not None else None
        if not rows:
            return settings
        value = "" if self.state.inner_axis is not None else format_value(self)
        settings_text = settings.partition("(")[2][:-1]
        count = f"{rows:,} row{'s' if rows > 1 else ''}"
        return f"{type(self).__name__}({', '.join(text for text in (settings_text, value, count) if text)})"


class ScoredLabels(Metric[S, T]):
    """A metric of a 0/1 label and a score."""

    about = About(positional_columns=("y_true", "y_score"))

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            The labels, 0 or 1; or a mapping, data frame or Arrow table that contains the columns by name.
        y_score : array-like of shape (n,)
            The scores: probabilities, or scores on the scale that the setting `scale` names.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. `y_true` and `y_score` may be passed by name, too.

        Raises
        ------
        InvalidInputError
            A value is invalid, or lengths differ; no row was counted. The message names the column, the row and the count.
        CounterOverflowError
            There would be more than 2**62 rows, or a total weight above 2**42.
        """
        self._accumulator.update(y_true, y_score, columns)
        return self


def format_value(metric: Metric[Any, Any]) -> str:
    """Return the value and its bound as text, for `repr`."""
    reading = reading_of(metric, metric.state)
    value = reading.value
    if not isinstance(value, float) or math.isnan(value):
        return "NaN" if isinstance(value, float) else ""
    (low, high), shown = reading.bounds, f"{value:.6g}"
    wide = wide_of(metric, metric.name, reading)
    # Counts and sums are exact, so there is no bound to show.
    if "off_grid" not in metric.state.facts() and not wide:
        return shown
    if high <= math.nextafter(low, math.inf):
        return f"{shown} exact"
    half = max(high - value, value - low) + abs(value - float(shown))
    mark = f": {sentence_of(metric)}" if wide else ""
    text = f"{ROUND_UP.create_decimal(half):f}" if math.isfinite(half) else "inf"
    return f"{shown} +- {text} proof{mark}"


def no_weight_reason(state: State) -> str | None:
    """Return why a state has no weight; None if it has one."""
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
        # A metric of another package may cache values in its `__dict__`. Objects that `wrap` builds must not share them.
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
        metric = object.__new__(type(self.metric))
        metric.__dict__.update(self._settings, _accumulator=accumulator)
        return metric

    def with_on_invalid(self, on_invalid: str) -> Self:
        copy = super().with_on_invalid(on_invalid)
        if copy is not self:
            copy.metric = _bare_copy(self.metric)
            copy.metric.__dict__["on_invalid"] = on_invalid
            copy._settings = self._settings | {"on_invalid": on_invalid}
        return copy

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return (Read(self.metric.make_state(), PLAIN, self.metric.about.rank_based),)

    def positional_columns(self) -> tuple[str, ...]:
        columns = self.columns
        roles: tuple[str, ...] | None = self.metric.about.positional_columns
        must = [name for name, needed in columns.items() if needed]
        # With some settings a metric reads other columns than its class declares, such as predictions for scores.
        if roles is None or (set(roles) - set(columns) and set(must) - set(roles)):
            roles = tuple(must[:2])
        return roles

    def header(self) -> dict[str, Any]:
        return {"kind": "metric", "tag": self.metric.about.tag, "settings": encode_changed_settings(self.metric)}

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
        return [f"{k} is {a} here and {b} there" for k, (a, b) in find_differing_settings(mine, others).items()]

    def read(self, states: Sequence[State]) -> MetricAnswer:
        return MetricAnswer(self.metric, states[0])

    def metric_reads(self) -> dict[str, MetricRead]:
        return {self.name: MetricRead(self.metric, 0, PLAIN)}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        return samples_of(self.name, self.metric, states[0])

    def seal(self, parts: int | None = None) -> Definition:
        # Only metrics of groups have this method.
        sealed_metric = getattr(self.metric, "sealed_metric", None)
        return self if sealed_metric is None else MetricDefinition(sealed_metric(parts))

    @cached_property
    def can_coarsen(self) -> bool:  # type: ignore[override]
        """Whether the setting `bits` belongs to a histogram. A sketch has such a setting, too, but cannot be coarsened."""
        state = self.metric.make_state()
        return "bits" in self.metric.settings and (hasattr(state, "coarsen") or "bits" not in state.settings)

    def coarsen(self, bits: int) -> Definition:
        if not self.can_coarsen:
            raise TypeError(f"{self.name} has no histogram to coarsen")
        state: Any = self.metric.make_state()
        # Bins of equal width have no bits, and a mean over rows has no limit.
        fewer = state.coarsen(bits) if "bits" in state.settings else state
        has_limit = "limit" in self.metric.settings and hasattr(fewer, "limit")
        # The number of rows that are kept exactly depends on the bits by default, so it is passed explicitly.
        limit = {"limit": fewer.limit} if has_limit else {}
        return MetricDefinition(type(self.metric)(**(_constructor_arguments(self.metric) | {"bits": bits} | limit)))

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        return super().coarsen_states(new, states, bits) if self.can_coarsen else list(states)

    def __reduce__(self) -> Any:
        cls = type(self.metric)
        importable: Any = sys.modules.get(cls.__module__)
        for name in cls.__qualname__.split("."):
            importable = getattr(importable, name, None)
        # Pickle finds classes by name. A metric whose class has no importable name is pickled as bytes.
        if importable is cls and cls is not OpaqueMetric:
            return definition_of_class, (cls, _constructor_arguments(self.metric))
        return _unpickle_definition, (frame.write_frame([r.state for r in self.reads], self.header()),)


def _bare_copy(metric: Metric[Any, Any]) -> Any:
    """Return a metric with the same settings and without an accumulator."""
    copy = object.__new__(type(metric))
    copy.__dict__.update(metric.__dict__)
    copy.__dict__.pop("_accumulator", None)
    return copy


def _constructor_arguments(metric: Metric[Any, Any]) -> dict[str, Any]:
    """Return the arguments of the constructor, including operational settings."""
    return {f.name: getattr(metric, f.name) for f in fields(metric) if f.init}


def _unpickle_definition(data: bytes) -> Definition:
    """Return the definition from bytes, for a metric whose class cannot be imported by name."""
    opened = frame.Frame(data)
    return definition_of_header(opened.about, opened.read_states())  # type: ignore[no-any-return]


class OpaqueMetric(Metric[Any, Any]):
    """A metric whose class is not imported here: it can be loaded, merged and saved, but not computed."""

    about = About(rank_based=None)

    def __init__(self, tag: str, settings: dict[str, Any], state: State) -> None:
        self.__dict__.update(on_invalid="raise", about=About(tag=tag, rank_based=None))
        self.__dict__.update(_settings=settings, _state=state.empty_copy())

    settings = property(lambda self: self.__dict__["_settings"])

    def make_state(self) -> State:
        state: State = self.__dict__["_state"]
        return state

    def update(self, *columns_by_position: Any, **columns: Any) -> NoReturn:
        raise _unknown_metric_error(self.about.tag)

    def of(self, state: State) -> NoReturn:
        raise _unknown_metric_error(self.about.tag)

    def __repr__(self) -> str:
        return f"OpaqueMetric({self.about.tag!r})"


def _unknown_metric_error(tag: str) -> StreamMetricsError:
    return StreamMetricsError(f"{tag!r} is not known here: import the package that defines it, then load again")


def definition_of_class(cls: type[Metric[Any, Any]], settings: dict[str, Any]) -> MetricDefinition:
    """Return the definition of a metric. Register its class: this process may not know a class that a script defines."""
    METRICS.setdefault(cls.about.tag, cls)
    return MetricDefinition(cls(**settings))


def make_metric(tag: str, settings: dict[str, Any], state: State) -> Metric[Any, Any]:
    """Build the metric that a header describes; `state` is an example of the state that it reads."""
    if not isinstance(tag, str):
        raise StateFormatError("the tag of a metric is not a string")
    known, decoded = METRICS.get(tag), {k: decode_setting(v) for k, v in settings.items()}
    return OpaqueMetric(tag, decoded, state) if known is None else known(**decoded)
