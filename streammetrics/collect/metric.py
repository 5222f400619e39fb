"""Metric: the base class of all metrics. A metric has settings and a function that computes its value from a state."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from copy import deepcopy
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
from .definition import Definition, MetricRead, definition_of_header, registries
from .metric_like import MetricLike
from .parameter_docs import inherit_parameter_docs

__all__ = ["METRICS", "Metric", "ScoredLabels", "no_weight_reason"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

ROUND_UP = Context(prec=1, rounding=ROUND_CEILING)
METRICS: dict[str, type[Metric[Any, Any]]] = {}
"""All metric classes by tag. The command line and the tests of all metrics iterate over this dict."""

registries.append(METRICS)


class Metric(Settings, MetricLike, Generic[S, T]):
    """The base class of metrics: `update` counts rows, `merge` adds states, `compute` returns the value.

    A subclass declares settings, builds an empty state (`make_state`), and computes the value (`of`). Its record `about`
    declares the formula, which values are better, the range of the value, and the interval methods (see `About`).
    `check_metric` tests a metric against the laws that every metric must satisfy.

    Parameters
    ----------
    on_invalid : {"raise", "drop"}
        What to do with an invalid row: raise an error, or leave the row out and report how many were left out.

    Notes
    -----
    To define a metric in your own package that computes its value from an existing state::

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
    """What the metric declares about its formula, its value and its intervals (see `About`)."""

    on_invalid: str = setting(default="raise", choices=("raise", "drop"), operational=True)

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        """Register a metric class under its tag, which saved states contain."""
        super().__init_subclass__(**keywords)
        cls.about = inherit(cls, tag)
        inherit_parameter_docs(cls)
        if tag:
            taken = METRICS.get(tag)
            if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"the metric tag {tag!r} already belongs to {taken.__qualname__}; choose another tag")
            METRICS[tag] = cls

    # -- what a metric declares ---------------------------------------------------------------------------------------

    def make_state(self) -> S:
        """Return the empty state that this metric reads."""
        raise NotImplementedError(f"{type(self).__name__} does not implement make_state()")

    def of(self, state: Any) -> Any:
        """Compute the value of a state with one cell (without slices), using only the settings and the state.

        Return a float or a `Quotient` if the value is exact except for one rounding, `Limits` for a value with
        certified bounds, an array or a NamedTuple for several values, and None if the value is undefined.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement of()")

    def reason(self, state: Any) -> str | None:
        """Return the reason why the value is undefined, such as "no rows"; None if it is defined."""
        return "no rows" if not state.facts().get("rows", 1) else None

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        """Return how much to widen the bounds in `limits` on each side to allow for rounded weights.

        Each weight has a relative rounding error of at most `rounding`.
        """
        return relative_slack(limits, rounding)

    def estimate(self, reading: Reading, method: str) -> Estimate | None:
        """Return the value with its standard error, computed by `method`; None if the metric has no standard error.

        `reading` belongs to one cell or, if its values are arrays, to many cells (such as slices). `method` is one of
        `about.interval_methods`.
        """
        return None

    def read(self, state: S) -> Reading:
        """Return a `Reading` (value, bounds and standard error) of a state with one cell (without slices).

        The state is for two classes, one label or one output; metrics with several classes, labels or outputs override
        the method `reading`. If ``about.read_cells`` is `read_side_by_side`, the state may also have many cells (such
        as slices). Its counts are then arrays (see `State.vectorize`).
        """
        return OwnReading(self, state)

    def reading(self, state: S) -> Reading:
        """Return a `Reading` (value, bounds and standard error) of a state with one cell (without slices).

        Metrics with several classes, labels or outputs override this method; by default, it calls `read`.
        """
        return self.read(state)

    @property
    def name(self) -> str:
        """The name of the metric in collections and tables, such as "auc" or "precision@0.9"."""
        return self.about.tag

    # -- methods of every metric ---------------------------------------------------------------------------------------

    @cached_property
    def _accumulator(self) -> Accumulator:  # type: ignore[override]
        return accumulate(MetricDefinition(self))  # type: ignore[no-any-return]

    @property
    def state(self) -> S:
        """The current state, with all rows counted so far."""
        state: Any = self._accumulator.states[0]
        return state  # type: ignore[no-any-return]

    def compute(self) -> T:
        """Return the value. If it is undefined, return NaN and issue one UndefinedMetricWarning with the reason.

        If the certified bounds are wider than 5 % of the metric's range (or of the value, if the metric has no range),
        a WideBoundsWarning says how to get narrower bounds.
        """
        accumulator = self._accumulator
        reading = reading_of(self, accumulator.states[0])
        value: T = reading.value
        if isinstance(value, float) and math.isnan(value) and self.name not in accumulator.warned:
            accumulator.warned.add(self.name)
            reason = reading.reason or "0/0"
            warnings.warn(f"{self.name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        elif may_be_wide(self, reading.state):
            # The state caches the value, because a call to `bounds()`, which needs it again, often follows. The state
            # does not cache the whole reading: the two would refer to each other, and only the garbage collector could
            # free them.
            reading.state.__dict__.setdefault("_raw_values", {})[identity_of(self)] = reading.raw_value
            warn_of_wide_values(wide_of(self, self.name, reading), accumulator.warned_wide, stacklevel=2)
        return value

    def bounds(self) -> tuple[T, T]:
        """Return certified bounds (low, high). If the bounds are equal, the value is exact up to one rounding."""
        return reading_of(self, self._accumulator.states[0]).bounds

    def explain(self) -> dict[str, Any]:
        """Return a dict with the value, bounds, formula, settings, rows, weight and count of dropped rows by reason."""
        return explanation_of(self, reading_of(self, self._accumulator.states[0]))

    def __repr__(self) -> str:
        """Return a string with the settings and usually the value: ``AUC(0.784112 +- 0.00003 proof, 90 rows)``.

        "proof" marks a certified bound. Values of grouped metrics are omitted, because computing them can take minutes.
        """
        settings = super().__repr__()
        accumulator = self.__dict__.get("_accumulator")
        rows = accumulator.states[0].facts().get("rows") if accumulator is not None else None
        if not rows:
            return settings
        try:
            value = "" if self.state.inner_axis is not None else format_value(self)
        # If the value cannot be computed, show the error instead: a debugger must be able to show a new metric whose
        # formula is still wrong.
        except Exception as error:  # noqa: BLE001
            value = f"no value: {type(error).__name__}: {error}"
        settings_text = settings.partition("(")[2][:-1]
        count = f"{rows:,} row{'s' if rows > 1 else ''}"
        return f"{type(self).__name__}({', '.join(text for text in (settings_text, value, count) if text)})"


class ScoredLabels(Metric[S, T]):
    """A metric computed from 0/1 labels and scores."""

    about = About(positional_columns=("y_true", "y_score"))

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            The labels, 0 or 1; or a mapping, data frame or Arrow table that contains all columns, keyed by name.
        y_score : array-like of shape (n,)
            The scores: probabilities, or scores on the scale given by the setting `scale`.
        **columns : array-like of shape (n,)
            `sample_weight`: the weight of each row, 0 or between 2**-36 and 2**31. `y_true` and `y_score` may also be
            passed by name.

        Raises
        ------
        InvalidInputError
            A value is invalid, or the columns have different lengths. No row is counted. The message names the column,
            the first invalid row and the number of invalid rows.
        CounterOverflowError
            There would be more than 2**62 rows, or a total weight above 2**42.
        """
        self._accumulator.update(y_true, y_score, columns)
        return self


def format_value(metric: Metric[Any, Any]) -> str:
    """Format the value of a metric, with the half-width of its bounds, for `repr`."""
    reading = reading_of(metric, metric.state)
    value = reading.value
    if not isinstance(value, float) or math.isnan(value):
        return "NaN" if isinstance(value, float) else ""
    (low, high), shown = reading.bounds, f"{value:.6g}"
    wide = wide_of(metric, metric.name, reading)
    # If `facts` has no entry "off_grid", the state has no buckets to which it could round numbers. It contains only
    # exact counts and sums, so its values need no bounds.
    if "off_grid" not in metric.state.facts() and not wide:
        return shown
    if high <= math.nextafter(low, math.inf):
        return f"{shown} exact"
    half = max(high - value, value - low) + abs(value - float(shown))
    mark = f": {sentence_of(metric)}" if wide else ""
    text = f"{ROUND_UP.create_decimal(half):f}" if math.isfinite(half) else "inf"
    return f"{shown} +- {text} proof{mark}"


def no_weight_reason(state: State) -> str | None:
    """Return the reason why the total weight of a state is zero; None if it is positive."""
    facts = state.facts()
    return "no rows" if not facts["rows"] else None if facts["weight"] else "the weights are all zero"


class MetricDefinition(Definition):
    """The definition of a single metric: its settings, and how to compute its value.

    Parameters
    ----------
    metric : Metric
        The metric. The definition makes a copy of it. If the definition and the metric referred to each other, only the
        garbage collector could free the states of the metric.
    """

    kind = "metric"
    is_single = True

    def __init__(self, metric: Metric[Any, Any]) -> None:
        self.metric = _bare_copy(metric)
        # `wrap` copies these settings into new metrics. A metric of another package may later cache values in the
        # `__dict__` of `self.metric`, which new metrics must not share.
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
        # The class declares the usual columns, but with some settings a metric reads different columns, such as
        # predictions rather than scores. In that case, use the first two required columns.
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
            return [f"the other metric is {type(theirs).__name__}"]
        mine, others = ({k: encode_setting(v) for k, v in m.settings.items()} for m in (ours, theirs))
        return [f"{k} is {a} here and {b} there" for k, (a, b) in find_differing_settings(mine, others).items()]

    def read(self, states: Sequence[State]) -> MetricAnswer:
        return MetricAnswer(self.metric, states[0])

    def metric_reads(self) -> dict[str, MetricRead]:
        return {self.name: MetricRead(self.metric, 0, PLAIN)}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        return samples_of(self.name, self.metric, states[0])

    def seal(self, parts: int | None = None) -> Definition:
        # Only grouped metrics have the method `sealed_metric`. All other metrics are unchanged.
        sealed_metric = getattr(self.metric, "sealed_metric", None)
        return self if sealed_metric is None else MetricDefinition(sealed_metric(parts))

    @cached_property
    def can_coarsen(self) -> bool:  # type: ignore[override]
        """Whether the setting `bits` belongs to a histogram, which can be coarsened, not to a sketch, which cannot."""
        state = self.metric.make_state()
        return "bits" in self.metric.settings and (hasattr(state, "coarsen") or "bits" not in state.settings)

    def coarsen(self, bits: int) -> Definition:
        if not self.can_coarsen:
            raise TypeError(f"cannot coarsen {self.name}, because this metric has no histogram")
        state: Any = self.metric.make_state()
        # Not every state has the settings `bits` and `limit`: a histogram with bins of equal width has no `bits`, and a
        # mean over rows has no `limit`.
        fewer = state.coarsen(bits) if "bits" in state.settings else state
        has_limit = "limit" in self.metric.settings and hasattr(fewer, "limit")
        # `limit` is the maximum number of rows that a cell stores exactly, without buckets. Its default depends on
        # `bits`, so the value of the coarser state is passed explicitly.
        limit = {"limit": fewer.limit} if has_limit else {}
        return MetricDefinition(type(self.metric)(**(_constructor_arguments(self.metric) | {"bits": bits} | limit)))

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        return super().coarsen_states(new, states, bits) if self.can_coarsen else list(states)

    def __reduce__(self) -> Any:
        cls = type(self.metric)
        importable: Any = sys.modules.get(cls.__module__)
        for name in cls.__qualname__.split("."):
            importable = getattr(importable, name, None)
        # Pickle finds a class by its module and name. If this class cannot be found in that way, pickle stores the
        # definition in the library's file format.
        if importable is cls and cls is not OpaqueMetric:
            return definition_of_class, (cls, _constructor_arguments(self.metric))
        return _unpickle_definition, (frame.write_frame([r.state for r in self.reads], self.header()),)


def _bare_copy(metric: Metric[Any, Any]) -> Any:
    """Return a copy of a metric that has the same settings but no states."""
    copy = object.__new__(type(metric))
    copy.__dict__.update(metric.__dict__)
    copy.__dict__.pop("_accumulator", None)
    return copy


def _constructor_arguments(metric: Metric[Any, Any]) -> dict[str, Any]:
    """Return the settings as arguments of the constructor, including settings that do not affect values."""
    return {f.name: getattr(metric, f.name) for f in fields(metric) if f.init}


def _unpickle_definition(data: bytes) -> Definition:
    """Return a definition from bytes in the library's file format, for a class that pickle cannot find by name."""
    opened = frame.Frame(data)
    return definition_of_header(opened.about, opened.read_states())  # type: ignore[no-any-return]


class OpaqueMetric(Metric[Any, Any]):
    """A saved metric whose class is unknown because the package that defines it is not imported.

    It can be loaded, merged and saved, but its value cannot be computed.
    """

    about = About(rank_based=None)

    def __init__(self, tag: str, settings: dict[str, Any], state: State) -> None:
        self.__dict__.update(on_invalid="raise", about=About(tag=tag, rank_based=None))
        self.__dict__.update(_settings=settings, _state=state.empty_copy())

    # Return a copy, because a caller may change the dict, and loaded metrics share their definition.
    settings = property(lambda self: deepcopy(self.__dict__["_settings"]))

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
    return StreamMetricsError(
        f"the metric {tag!r} is unknown; import the package that defines the metric, then load the state again"
    )


def definition_of_class(cls: type[Metric[Any, Any]], settings: dict[str, Any]) -> MetricDefinition:
    """Return the definition of a metric with these settings, and register its class.

    The class may be unknown in this process, for example if a script defines it and another process unpickles the
    metric.
    """
    METRICS.setdefault(cls.about.tag, cls)
    return MetricDefinition(cls(**settings))


def make_metric(tag: str, settings: dict[str, Any], state: State) -> Metric[Any, Any]:
    """Build a metric from its tag and settings.

    `state` must have the same settings as the state that the metric reads; its rows are ignored.
    """
    if not isinstance(tag, str):
        raise StateFormatError("the state is corrupt: the tag of a metric is not a string")
    known, decoded = METRICS.get(tag), {k: decode_setting(v) for k, v in settings.items()}
    return OpaqueMetric(tag, decoded, state) if known is None else known(**decoded)
