"""CellAnswers: what is said about every cell of an axis, by key; read of all cells at once where that can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..collect.definition import MetricRead
from ..reading.answers import Answer
from ..reading.flatten import Named, named_numbers, prefixed
from ..reading.reading import CellReadings, known_reading
from ..reading.records import record
from ..reading.table import check_levels
from ..reading.wide_bounds import WideValue, together, wide_of_cells
from ..state.state import State

__all__ = ["REST", "CellAnswers", "Places", "plain"]

REST: tuple[Any, ...] = ()
"""The key of everything that is not kept: no other key is without columns."""

Places = dict[Any, list[NDArray[np.int64]]]
"""The front cells of each key, an array for each state."""


class CellAnswers(Answer):
    """The answers of all cells of an axis, by key.

    Parameters
    ----------
    definition : AxisDefinition
        The axis, and what is in every cell.
    states : sequence of State
        The states, with the axis in front.
    """

    def __init__(self, definition: Any, states: Sequence[State]) -> None:
        self.definition, self.inner, self.states = definition, definition.inner, states

    # -- by key, or of all cells at once ------------------------------------------------------------------------------

    @cached_property
    def places(self) -> Places:
        """The front cells of each key, without those of what is not kept."""
        return {k: at for k, at in self.definition.places(self.states).items() if k != REST}

    def under(self, at: Sequence[NDArray[np.int64]]) -> Answer:
        """Return the answer of one cell."""
        states = [s.under(p, 1) for s, p in zip(self.states, at, strict=True)]
        found: Answer = self.inner.read(states)
        return found

    @cached_property
    def each(self) -> dict[Any, Answer]:
        """The answer of every cell, by key."""
        return {plain(key): self.under(at) for key, at in self.places.items()}

    @cached_property
    def metrics(self) -> dict[str, MetricRead] | None:
        """The metrics by name, if each has one cell for each key: then all cells are read at once."""
        found: dict[str, MetricRead] | None = self.inner.metric_reads()
        if found is None or any(len(self.states[m.place].axes) != 1 for m in found.values()):
            return None
        places = {m.place for m in found.values()}
        every = self.definition.places(self.states).values()
        return found if all(len(at[p]) == 1 for at in every for p in places) else None

    @cached_property
    def readings(self) -> dict[str, CellReadings]:
        """The readings of all cells, by metric."""
        return {n: CellReadings(m.metric, self.states[m.place]) for n, m in (self.metrics or {}).items()}

    def by_key(self, of_cells: dict[str, list[Any]]) -> dict[Any, Any]:
        """Lay out what is known of all cells, by metric: by key and, of several metrics, by name."""
        metrics = self.metrics or {}
        if self.inner.is_single:
            ((name, one),) = metrics.items()
            return {plain(k): of_cells[name][int(at[one.place][0])] for k, at in self.places.items()}
        places = {n: m.place for n, m in metrics.items()}
        return {plain(k): {n: of_cells[n][int(at[p][0])] for n, p in places.items()} for k, at in self.places.items()}

    def _all(self, part: str, one: Callable[[Answer], Any]) -> dict[Any, Any]:
        if self.metrics is None:
            return {key: one(answer) for key, answer in self.each.items()}
        return self.by_key({n: getattr(cells, part) for n, cells in self.readings.items()})

    # -- the answers --------------------------------------------------------------------------------------------------

    @cached_property
    def value(self) -> dict[Any, Any]:
        return self._all("values", lambda answer: answer.value)

    @property
    def bounds(self) -> dict[Any, Any]:
        return self._all("bounds", lambda answer: answer.bounds)

    @property
    def explanation(self) -> dict[Any, Any]:
        return {key: answer.explanation for key, answer in self.each.items()}

    @property
    def wide(self) -> list[WideValue]:
        if self.metrics is None:
            return together([one for answer in self.each.values() for one in answer.wide])
        return [one for name, cells in self.readings.items() for one in wide_of_cells(name, cells)]

    def numbers(self) -> Named:
        for key, value in self.value.items():
            if self.metrics is None:
                yield from prefixed(key, self.each[key].numbers())
            else:
                by_name = dict.fromkeys(self.metrics, value) if self.inner.is_single else value
                for name, one in by_name.items():
                    yield from prefixed(key, named_numbers(name, one))

    def intervals(self, confidence: float, method: str | None = None) -> dict[Any, Any]:
        found = None
        if self.metrics is not None and method is None:
            found = self.inner.intervals_of_cells(self.states, confidence)
        if found is None:
            return {key: answer.intervals(confidence, method) for key, answer in self.each.items()}
        return self.by_key(found)

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        return self.records_of(self.definition.places(self.states), confidence)

    def records_of(self, places: Places, confidence: float | None) -> list[dict[str, Any]]:
        """Return rows for a table of the cells of these keys."""
        check_levels(self.definition.axis.names)
        metrics, readings = self.metrics or {}, self.readings
        values, bounds = {n: c.values for n, c in readings.items()}, {n: c.bounds for n, c in readings.items()}
        intervals = {} if confidence is None or not metrics else self._intervals_of_cells(confidence)
        out = []
        for key, at in places.items():
            # A limit may have left nothing over for the rest.
            if metrics and all(len(at[m.place]) for m in metrics.values()):
                rows = self._rows(metrics, values, bounds, intervals, at)
            else:
                rows = self.under(at).records(confidence)
            out += [self._columns(key) | row for row in rows]
        return out

    def _intervals_of_cells(self, confidence: float) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] | None = self.inner.intervals_of_cells(self.states, confidence)
        return {n: c.intervals(confidence) for n, c in self.readings.items()} if found is None else found

    def _columns(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """Return what the rows of a cell have in the columns of the axis."""
        names = self.definition.axis.names
        if key == REST:
            return dict.fromkeys(names, self.definition.rest) | {"other": True}
        return dict(zip(names, key, strict=True))

    def _rows(
        self, metrics: dict[str, MetricRead], values: Any, bounds: Any, intervals: Any, at: Sequence[Any]
    ) -> list[dict[str, Any]]:
        """Return the rows of one cell, whose values, bounds and intervals are known from those of all cells."""
        under = {p: self.states[p].under(at[p], 1) for p in {m.place for m in metrics.values()}}
        out = []
        for name, (metric, place, _) in metrics.items():
            i = int(at[place][0])
            interval = intervals[name][i] if name in intervals else None
            known = known_reading(metric, under[place], values[name][i], bounds[name][i])
            out.append(record(metric, known, interval) | {"metric": name, "unit": self.inner.unit})
        return out


def plain(key: tuple[Any, ...]) -> Any:
    """Return a key as users write it: of one column, not as a tuple."""
    return key[0] if len(key) == 1 else key
