"""Answers: objects that compute the results of a metric, a collection or a wrapper from states, on request.

The methods of a metric, such as `compute`, `bounds`, `interval` and `explain`, return parts of an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..state.state import State
from .about import about_of
from .flatten import NamedNumbers, named_numbers, prefix_names
from .reading import Reading, interval_of
from .records import build_record, explanation_of
from .wide_bounds import WideValue, may_be_wide, wide_of

__all__ = ["Answer", "InnerAnswer", "MetricAnswer", "NamedAnswers", "identity_of", "reading_of"]


class Answer:
    """The results of a metric, collection or wrapper, computed from states that have only one cell (no slices).

    For a metric, `value`, `bounds` and `explanation` are single results. For a collection, each is a dict of results,
    keyed by name.

    Attributes
    ----------
    value : object
        The value, or a dict of values.
    bounds : object
        The certified bounds of each value.
    explanation : dict
        The result of `explain`: value, bounds, formula, settings and counts of each metric.
    wide : list of WideValue
        The values whose certified bounds are too wide.
    """

    value: Any
    bounds: Any
    explanation: Any

    @property
    def wide(self) -> list[WideValue]:
        raise NotImplementedError

    def undefined_values(self) -> Iterator[tuple[str, str]]:
        """Yield the name of every value that is NaN, with the reason, for the warnings of `compute`."""
        return iter(())

    def numbers(self) -> NamedNumbers:
        """Yield each number in the value together with its name, for loggers such as TensorBoard."""
        raise NotImplementedError

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        """Return the confidence interval of each value.

        `method` is one of the `interval_methods` of the metric, such as "wilson"; by default, the first one.
        """
        raise NotImplementedError

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        """Return the rows of a table of results, as dicts; they contain no intervals if `confidence` is None."""
        raise NotImplementedError


def identity_of(metric: Any) -> tuple[Any, ...]:
    """Return the class and settings of a metric as a tuple; metrics with equal tuples give the same results."""
    known: tuple[Any, ...] | None = metric.__dict__.get("_identity")
    if known is None:
        known = metric.__dict__["_identity"] = type(metric), *metric.settings.values()
    return known


def reading_of(metric: Any, state: State) -> Reading:
    """Return the `Reading` of a single-cell state. A value that `compute` has cached in the state is reused."""
    reading: Reading = metric.reading(state)
    known = state.__dict__.get("_raw_values")
    if known is not None and (identity := identity_of(metric)) in known:
        reading.preset(known[identity])
    return reading


class MetricAnswer(Answer):
    """The results of one metric, computed from its `Reading` of a state.

    Parameters
    ----------
    metric : Metric
        The metric.
    state : State
        The state, which has only one cell (no slices).
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
        # `may_be_wide` is a cheap check that usually avoids computing the name of the metric, which takes time.
        may_be = may_be_wide(self.metric, self.reading.state)
        return wide_of(self.metric, self.metric.name, self.reading) if may_be else []

    def undefined_values(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.value, float) and math.isnan(self.value):
            yield self.metric.name, self.reading.reason or "0/0"

    def numbers(self) -> NamedNumbers:
        return named_numbers(self.metric.name, self.value)

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        methods = about_of(self.metric).interval_methods
        if method is not None and method not in methods:
            known = " or ".join(map(repr, methods))
            raise ValueError(f"{self.metric.name}: expected {known} as method= of the interval, found {method!r}")
        return interval_of(self.metric, self.reading, confidence, method)

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        interval = None if confidence is None else interval_of(self.metric, self.reading, confidence)
        return [build_record(self.metric, self.reading, interval)]


class NamedAnswers(Answer):
    """The results of a collection: an `Answer` for each member, keyed by name.

    Parameters
    ----------
    answers : mapping of str to Answer
        The answers, keyed by name. For a metric, `numbers` yields the value under its key in this mapping. For an inner
        collection, `numbers` yields the inner numbers, with the key of that collection as a prefix.
    """

    # The value is cached without `cached_property`, which acquires a lock in Python 3.11. Acquiring the lock takes
    # longer than computing many of the values.
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
        explanations = {name: answer.explanation for name, answer in self.answers.items()}
        return {n: {**x, "metric": n} if isinstance(x, dict) and "metric" in x else x for n, x in explanations.items()}

    @property
    def wide(self) -> list[WideValue]:
        return [
            one._replace(name=name if isinstance(answer, MetricAnswer) else f"{name}/{one.name}")
            for name, answer in self.answers.items()
            for one in answer.wide
        ]

    def undefined_values(self) -> Iterator[tuple[str, str]]:
        for name, value in self.value.items():
            if isinstance(value, float) and math.isnan(value):
                yield name, self.answers[name].records(None)[0]["reason"] or "0/0"

    def numbers(self) -> NamedNumbers:
        for name, answer in self.answers.items():
            alone = isinstance(answer, MetricAnswer)
            yield from named_numbers(name, answer.value) if alone else prefix_names(name, answer.numbers())

    def intervals(self, confidence: float, method: str | None = None) -> dict[str, Any]:
        return {name: answer.intervals(confidence, method) for name, answer in self.answers.items()}

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        return [
            row | {"metric": name if isinstance(answer, MetricAnswer) else f"{name}/{row['metric']}"}
            for name, answer in self.answers.items()
            for row in answer.records(confidence)
        ]


class InnerAnswer(Answer):
    """The answer of a wrapper (such as `Sharded`): by default, the answer of the metric or collection inside it.

    Subclasses override the parts that the wrapper changes.

    Parameters
    ----------
    definition : Definition
        The wrapper.
    states : sequence of State
        The states of the wrapper.
    answer : Answer
        The answer of the metric or collection inside the wrapper.
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

    def numbers(self) -> NamedNumbers:
        return self.answer.numbers()

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        return self.answer.intervals(confidence, method)

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        return self.answer.records(confidence)
