"""CellAnswers: values, bounds, intervals and tables of all cells, such as slices, keyed by cell key.

If every metric has exactly one cell for each key, all cells are computed together. This is faster than computing them
one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..collect.definition import MetricRead
from ..reading.answers import Answer
from ..reading.flatten import NamedNumbers, named_numbers, prefix_names
from ..reading.reading import CellReadings, known_reading
from ..reading.records import build_record
from ..reading.table import check_levels
from ..reading.wide_bounds import WideValue, merge_wide_values, wide_of_cells
from ..state.state import State

__all__ = ["REST", "CellAnswers", "Places", "unwrap_key"]

REST: tuple[Any, ...] = ()
"""The key of the sum of all cells that are not kept, such as slices beyond a limit. No other key is an empty tuple."""

Places = dict[Any, list[NDArray[np.int64]]]
"""For each key, a list with one array for each state: the indices of the cells in the state that have this key."""


class CellAnswers(Answer):
    """Values, bounds, intervals and tables of all cells (such as slices) of an axis, keyed by cell key.

    Parameters
    ----------
    definition : AxisDefinition
        The definition of the wrapper. It contains the axis and the definition of the object in each cell (`inner`).
    states : sequence of State
        The states of all metrics. Their first axis is the axis of the definition.
    """

    def __init__(self, definition: Any, states: Sequence[State]) -> None:
        self.definition, self.inner, self.states = definition, definition.inner, states

    # -- reading cells ------------------------------------------------------------------------------

    @cached_property
    def places(self) -> Places:
        """For each key except `REST` (the sum of cells that are not kept), the indices of its cells in every state."""
        return {k: at for k, at in self.definition.places(self.states).items() if k != REST}

    def cell_answer(self, at: Sequence[NDArray[np.int64]]) -> Answer:
        """Return the `Answer` (values, bounds etc.) for one key; `at` has the indices of its cells in each state."""
        states = [s.drop_leading_axes(p, 1) for s, p in zip(self.states, at, strict=True)]
        answer: Answer = self.inner.read(states)
        return answer

    @cached_property
    def answers_by_key(self) -> dict[Any, Answer]:
        """The answers (values, bounds etc.), keyed by cell key and computed one by one."""
        return {unwrap_key(key): self.cell_answer(at) for key, at in self.places.items()}

    @cached_property
    def metrics(self) -> dict[str, MetricRead] | None:
        """The metrics, keyed by name, if all cells can be computed together; otherwise None.

        This is possible if each key has exactly one cell in the state of each metric.
        """
        metrics: dict[str, MetricRead] | None = self.inner.metric_reads()
        if metrics is None or any(len(self.states[m.place].axes) != 1 for m in metrics.values()):
            return None
        places = {m.place for m in metrics.values()}
        every = self.definition.places(self.states).values()
        return metrics if all(len(at[p]) == 1 for at in every for p in places) else None

    @cached_property
    def readings(self) -> dict[str, CellReadings]:
        """The values and bounds of all cells for each metric; empty if the cells cannot be computed together."""
        return {n: CellReadings(m.metric, self.states[m.place]) for n, m in (self.metrics or {}).items()}

    def group_by_key(self, of_cells: dict[str, list[Any]]) -> dict[Any, Any]:
        """Regroup `of_cells` (a list for each metric, with one item for each cell) by cell key.

        If there are several metrics, the value for each key is a dict from metric names to values.
        """
        metrics = self.metrics or {}
        if self.inner.is_single:
            ((name, one),) = metrics.items()
            return {unwrap_key(k): of_cells[name][int(at[one.place][0])] for k, at in self.places.items()}
        places = {n: m.place for n, m in metrics.items()}
        return {
            unwrap_key(k): {n: of_cells[n][int(at[p][0])] for n, p in places.items()} for k, at in self.places.items()
        }

    def _read_all(self, part: str, one: Callable[[Answer], Any]) -> dict[Any, Any]:
        if self.metrics is None:
            return {key: one(answer) for key, answer in self.answers_by_key.items()}
        return self.group_by_key({n: getattr(cells, part) for n, cells in self.readings.items()})

    # -- the answers --------------------------------------------------------------------------------------------------

    @cached_property
    def value(self) -> dict[Any, Any]:
        return self._read_all("values", lambda answer: answer.value)

    @property
    def bounds(self) -> dict[Any, Any]:
        return self._read_all("bounds", lambda answer: answer.bounds)

    @property
    def explanation(self) -> dict[Any, Any]:
        return {key: answer.explanation for key, answer in self.answers_by_key.items()}

    @property
    def wide(self) -> list[WideValue]:
        if self.metrics is None:
            return merge_wide_values([one for answer in self.answers_by_key.values() for one in answer.wide])
        return [one for name, cells in self.readings.items() for one in wide_of_cells(name, cells)]

    def numbers(self) -> NamedNumbers:
        for key, value in self.value.items():
            if self.metrics is None:
                yield from prefix_names(key, self.answers_by_key[key].numbers())
            else:
                by_name = dict.fromkeys(self.metrics, value) if self.inner.is_single else value
                for name, one in by_name.items():
                    yield from prefix_names(key, named_numbers(name, one))

    def intervals(self, confidence: float, method: str | None = None) -> dict[Any, Any]:
        intervals = None
        if self.metrics is not None and method is None:
            intervals = self.inner.intervals_of_cells(self.states, confidence)
        if intervals is None:
            return {key: answer.intervals(confidence, method) for key, answer in self.answers_by_key.items()}
        return self.group_by_key(intervals)

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        return self.records_of(self.definition.places(self.states), confidence)

    def records_of(self, places: Places, confidence: float | None) -> list[dict[str, Any]]:
        """Return the table rows for the keys of `places`, as dicts, in the order of these keys."""
        check_levels(self.definition.axis.names)
        metrics, readings = self.metrics or {}, self.readings
        values, bounds = {n: c.values for n, c in readings.items()}, {n: c.bounds for n, c in readings.items()}
        intervals = {} if confidence is None or not metrics else self._intervals_of_cells(confidence)
        out = []
        for key, at in places.items():
            # A key, such as `REST`, may have no cell in the state of some metric. In that case, its table rows are
            # computed separately.
            if metrics and all(len(at[m.place]) for m in metrics.values()):
                rows = self._build_rows(metrics, values, bounds, intervals, at)
            else:
                rows = self.cell_answer(at).records(confidence)
            out += [self._key_columns(key) | row for row in rows]
        return out

    def _intervals_of_cells(self, confidence: float) -> dict[str, list[Any]]:
        intervals: dict[str, list[Any]] | None = self.inner.intervals_of_cells(self.states, confidence)
        return {n: c.intervals(confidence) for n, c in self.readings.items()} if intervals is None else intervals

    def _key_columns(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """Return the part of a table row that contains the key, as a dict from column names to values."""
        names = self.definition.axis.names
        if key == REST:
            return dict.fromkeys(names, self.definition.rest) | {"other": True}
        return dict(zip(names, key, strict=True))

    def _build_rows(
        self, metrics: dict[str, MetricRead], values: Any, bounds: Any, intervals: Any, at: Sequence[Any]
    ) -> list[dict[str, Any]]:
        """Return the table rows of one cell from the values, bounds and intervals of all cells.

        `at` contains the index of the cell in each state.
        """
        under = {p: self.states[p].drop_leading_axes(at[p], 1) for p in {m.place for m in metrics.values()}}
        out = []
        for name, (metric, place, _) in metrics.items():
            i = int(at[place][0])
            interval = intervals[name][i] if name in intervals else None
            known = known_reading(metric, under[place], values[name][i], bounds[name][i])
            out.append(build_record(metric, known, interval) | {"metric": name, "unit": self.inner.unit})
        return out


def unwrap_key(key: tuple[Any, ...]) -> Any:
    """Return the only element of a one-column key; return a key of several columns unchanged."""
    return key[0] if len(key) == 1 else key
