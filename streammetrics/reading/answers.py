"""Answers: what a metric or a collection says about its states. Every part is computed when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..state.state import State
from .about import about_of
from .flatten import Named, named_numbers, prefixed
from .reading import Reading, interval_of
from .records import explanation_of, record
from .wide_bounds import WideValue, may_be_wide, wide_of

__all__ = ["Answer", "InnerAnswer", "MetricAnswer", "NamedAnswers", "identity_of", "reading_of"]


class Answer:
    """What a definition says about states of one cell; each part is laid out as `value` is.

    Attributes
    ----------
    value : object
        The value, or a dict of values.
    bounds : object
        The certified bounds of every value.
    explanation : dict
        Every value with everything behind it.
    wide : list of WideValue
        The values whose certified bounds are too wide.
    """

    value: Any
    bounds: Any
    explanation: Any

    @property
    def wide(self) -> list[WideValue]:
        raise NotImplementedError

    def undefined(self) -> Iterator[tuple[str, str]]:
        """Yield the name of every value that is NaN, and the reason, where `compute` warns of it."""
        return iter(())

    def numbers(self) -> Named:
        """Yield every number of the value by name."""
        raise NotImplementedError

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        """Return the statistical interval of every value."""
        raise NotImplementedError

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        """Return rows for a table; without intervals if `confidence` is None."""
        raise NotImplementedError


def identity_of(metric: Any) -> tuple[Any, ...]:
    """Return the class and the settings: equal metrics have the same."""
    known: tuple[Any, ...] | None = metric.__dict__.get("_identity")
    if known is None:
        known = metric.__dict__["_identity"] = type(metric), *metric.settings.values()
    return known


def reading_of(metric: Any, state: State) -> Reading:
    """Return the reading of a state of one cell; it takes the value from the state where `compute` left it."""
    made: Reading = metric.reading(state)
    known = state.__dict__.get("_found")
    if known is not None and (identity := identity_of(metric)) in known:
        made.preset(known[identity])
    return made


class MetricAnswer(Answer):
    """What one metric says about its state.

    Parameters
    ----------
    metric : Metric
        The metric.
    state : State
        Its state, of one cell.
    """

    def __init__(self, metric: Any, state: State) -> None:
        self.metric, self.reading = metric, reading_of(metric, state)

    @property
    def value(self) -> Any:
        return self.reading.value

    @property
    def bounds(self) -> Any:
        return self.reading.bounds

    @property
    def explanation(self) -> dict[str, Any]:
        return explanation_of(self.metric, self.reading)

    @property
    def wide(self) -> list[WideValue]:
        # The name is computed only where it is needed.
        may_be = may_be_wide(self.metric, self.reading.state)
        return wide_of(self.metric, self.metric.name, self.reading) if may_be else []

    def undefined(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.value, float) and math.isnan(self.value):
            yield self.metric.name, self.reading.reason or "0/0"

    def numbers(self) -> Named:
        return named_numbers(self.metric.name, self.value)

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        methods = about_of(self.metric).interval_methods
        if method is not None and method not in methods:
            known = " or ".join(map(repr, methods))
            raise ValueError(f"{self.metric.name} has an interval by {known}, not by {method!r}")
        return interval_of(self.metric, self.reading, confidence, method)

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        interval = None if confidence is None else interval_of(self.metric, self.reading, confidence)
        return [record(self.metric, self.reading, interval)]


class NamedAnswers(Answer):
    """Several answers by name, such as those of a collection.

    Parameters
    ----------
    answers : mapping of str to Answer
        The answers. The values of a single metric are called by the name alone, others by the name before theirs.
    """

    # Not a `cached_property`, whose lock costs more than many of the values in Python 3.11.
    _value: dict[str, Any] | None = None

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers

    @property
    def value(self) -> dict[str, Any]:
        if self._value is None:
            self._value = {name: answer.value for name, answer in self.answers.items()}
        return self._value

    @property
    def bounds(self) -> dict[str, Any]:
        return {name: answer.bounds for name, answer in self.answers.items()}

    @property
    def explanation(self) -> dict[str, Any]:
        found = {name: answer.explanation for name, answer in self.answers.items()}
        return {n: {**x, "metric": n} if isinstance(x, dict) and "metric" in x else x for n, x in found.items()}

    @property
    def wide(self) -> list[WideValue]:
        return [
            one._replace(name=name if isinstance(answer, MetricAnswer) else f"{name}/{one.name}")
            for name, answer in self.answers.items()
            for one in answer.wide
        ]

    def undefined(self) -> Iterator[tuple[str, str]]:
        for name, value in self.value.items():
            if isinstance(value, float) and math.isnan(value):
                yield name, self.answers[name].records(None)[0]["reason"] or "0/0"

    def numbers(self) -> Named:
        for name, answer in self.answers.items():
            alone = isinstance(answer, MetricAnswer)
            yield from named_numbers(name, answer.value) if alone else prefixed(name, answer.numbers())

    def intervals(self, confidence: float, method: str | None = None) -> dict[str, Any]:
        return {name: answer.intervals(confidence, method) for name, answer in self.answers.items()}

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        return [
            row | {"metric": name if isinstance(answer, MetricAnswer) else f"{name}/{row['metric']}"}
            for name, answer in self.answers.items()
            for row in answer.records(confidence)
        ]


class InnerAnswer(Answer):
    """The answer of what is inside a wrapper; subclasses change the parts that the wrapper adds to.

    Parameters
    ----------
    definition : Definition
        The definition of the wrapper.
    states : sequence of State
        The states of the wrapper.
    answer : Answer
        The answer of what is inside.
    """

    def __init__(self, definition: Any, states: Sequence[State], answer: Answer) -> None:
        self.definition, self.states, self.answer = definition, states, answer

    @property
    def value(self) -> Any:
        return self.answer.value

    @property
    def bounds(self) -> Any:
        return self.answer.bounds

    @property
    def explanation(self) -> Any:
        return self.answer.explanation

    @property
    def wide(self) -> list[WideValue]:
        return self.answer.wide

    def numbers(self) -> Named:
        return self.answer.numbers()

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        return self.answer.intervals(confidence, method)

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        return self.answer.records(confidence)
