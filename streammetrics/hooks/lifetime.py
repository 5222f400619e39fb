"""Metrics of the most recent updates (the window) and of the whole run (the lifetime), named as in torchrec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..batch.column_binding import PLAIN
from ..collect.accumulator import Accumulator, accumulate, accumulator_of, definition_of
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_like import MetricLike, answer_of, states_of, with_states, without_block_ends
from ..collect.serialization import merge
from ..compose.axis_wrapper import AxisWrapper
from ..compose.bundle import Bundle
from ..count.batch_updater import BatchUpdater
from ..count.reads import Read
from ..metrics.values.totals import Count
from ..reading.answers import Answer, NamedAnswers
from ..reading.flatten import logger_names
from ..state.state import State

__all__ = ["Lifetime", "LifetimeDefinition"]

# An empty state for the number of updates in the newest pane. (A pane is a part of the window.)
UPDATES = Count().make_state()


class _WindowState(NamedTuple):
    """The state of a `Lifetime`.

    `panes` contains the metrics of each part (pane) of the window, oldest first; new batches update the last pane.
    `earlier` contains the metrics of all updates before the last pane, and `updates` is the number of updates in the
    last pane.
    """

    earlier: MetricLike
    panes: tuple[MetricLike, ...]
    updates: int

    @property
    def parts(self) -> tuple[MetricLike, ...]:
        """The metrics in the order in which they are saved: `earlier`, then the panes from the newest to the oldest."""
        return self.earlier, *reversed(self.panes)

    def merge_all(self) -> MetricLike:
        """Return the metrics over all updates, as a new object."""
        # A merge normally fails if one part ends with the query that the other part begins with. Leave out the record
        # of the first and last query to skip this check, because every epoch may count the same queries again.
        return self.earlier.copy().merge(without_block_ends(self.panes[-1]))

    def add_pane(self) -> _WindowState:
        """Return a new state without the oldest pane and with a new, empty pane at the end."""
        return _WindowState(self.merge_all(), (*self.panes[1:], with_states(self.earlier, None)), 0)

    def merge(self, other: _WindowState) -> _WindowState:
        """Return the merged state of two processes, in which the n-th newest panes of both processes are merged."""
        panes = tuple(merge([one, two]) for one, two in zip(self.panes, other.panes, strict=True))
        return _WindowState(merge([self.earlier, other.earlier]), panes, self.updates + other.updates)


class LifetimeAccumulator(Accumulator):
    """The accumulator of a `Lifetime`.

    Its whole state is one tuple, which is replaced in one assignment, so that it stays consistent even after a Ctrl-C.
    """

    def __init__(self, definition: Any, states: Sequence[State] | None = None) -> None:
        super().__init__(definition)
        self.set_states([r.state for r in definition.reads] if states is None else states)

    def set_states(self, states: Sequence[State]) -> None:
        definition: Any = self.definition
        updates, *parts = definition.split_states(states)
        earlier, *panes = (definition.inner.wrap(accumulate(definition.inner, part)) for part in parts)
        self.window_state = _WindowState(earlier, tuple(reversed(panes)), int(updates[0].row_counts.sum()))

    @property
    def states(self) -> tuple[State, ...]:
        content = self.window_state
        return _build_updates_state(content.updates), *(s for part in content.parts for s in states_of(part))

    @property
    def all_states(self) -> tuple[State, ...]:
        return self.states

    @property
    def updaters(self) -> tuple[BatchUpdater, ...]:
        return tuple(u for part in self.window_state.parts for u in accumulator_of(part).updaters)

    @property
    def nbytes(self) -> int:
        return sum(accumulator_of(part).nbytes for part in self.window_state.parts)

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        content, definition = self.window_state, self.definition
        pane_updates: int | None = definition.pane_updates  # type: ignore[attr-defined]
        if pane_updates is not None and content.updates >= pane_updates:
            content = content.add_pane()
        content.panes[-1].update(first, second, **columns)
        self.window_state = content._replace(updates=content.updates + 1)

    def end_window(self) -> None:
        """Begin the next window; do nothing if a window has a maximum number of updates, because `update` moves it."""
        if self.definition.pane_updates is None:  # type: ignore[attr-defined]
            self.window_state = self.window_state.add_pane()

    def merge(self, other: Any) -> None:
        self.window_state = self.window_state.merge(self.align(other).window_state)


class LifetimeDefinition(Definition):
    """The definition of a `Lifetime`.

    Parameters
    ----------
    inner : Definition
        The definition of the metrics.
    window : int or None
        The maximum number of updates in the window, or None for a window of all updates since the last `compute`.
    panes : int
        The number of equal parts of the window, if it has a maximum number of updates.
    """

    kind = "lifetime"
    accumulator_type = LifetimeAccumulator
    adds = False
    counts = False

    def __init__(self, inner: Any, window: int | None, panes: int) -> None:
        self.inner, self.window, self.panes = inner, window, panes
        self.on_invalid, self.memory_limit = inner.on_invalid, inner.memory_limit

    @property
    def pane_updates(self) -> int | None:
        """The number of updates in a full pane; None if the window consists of all updates since the last `compute`."""
        return None if self.window is None else self.window // self.panes

    @property
    def name(self) -> str:
        return str(self.inner.name)

    @property
    def names(self) -> list[str]:
        return [_prefix_name(prefix, name) for prefix in ("window", "lifetime") for name in self.inner.names]

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        parts = 2 if self.window is None else 1 + self.panes
        return Read(UPDATES, PLAIN), *(tuple(self.inner.reads) * parts)

    @cached_property
    def columns(self) -> dict[str, bool]:
        return dict(self.inner.columns)

    def positional_columns(self) -> tuple[str, ...]:
        return tuple(self.inner.positional_columns())

    def header(self) -> dict[str, Any]:
        return {"kind": "lifetime", "inner": self.inner.header(), "window": self.window, "panes": self.panes}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> LifetimeDefinition:
        window, panes = header["window"], header["panes"]
        _check_window(window, panes)
        return cls(
            definition_of_header(header["inner"], states[1 : 1 + number_of_states(header["inner"])]), window, panes
        )

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        parts = 2 if header["window"] is None else 1 + int(header["panes"])
        return 1 + parts * number_of_states(header["inner"])

    def differences(self, other: Any) -> list[str]:
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in ("window", "panes")]
        differences = [f"{name} is {ours} here and {theirs} there" for name, ours, theirs in pairs if ours != theirs]
        if self.inner.kind != other.inner.kind:
            return [*differences, f"the metrics are {self.inner.type_name} here and {other.inner.type_name} there"]
        return [*differences, *self.inner.differences(other.inner)]

    def split_states(self, states: Sequence[State]) -> Iterator[Sequence[State]]:
        """Yield the state that stores the number of updates, then the states of each part in `_WindowState.parts`."""
        size = len(self.inner.reads)
        yield states[:1]
        for start in range(1, len(states), size):
            yield states[start : start + size]

    def check_states(self, states: Sequence[State]) -> None:
        for part in list(self.split_states(states))[1:]:
            self.inner.check_states(part)

    def read(self, states: Sequence[State]) -> NamedAnswers:
        _, earlier, *panes = self.split_states(states)
        answers: dict[str, Answer] = {}
        for prefix, parts in (("window", panes), ("lifetime", (earlier, panes[0]))):
            answer = self.inner.read([first.merge(*rest) for first, *rest in zip(*parts, strict=True)])
            named = answer.answers if isinstance(answer, NamedAnswers) else {self.inner.name: answer}
            answers |= {_prefix_name(prefix, name): one for name, one in named.items()}
        return NamedAnswers(answers)


class Lifetime(MetricLike):
    """Metrics computed twice: over the whole run (the lifetime), and over the most recent updates (the window).

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to compute. The lifetime starts with their state. They are copied, so the originals do not change.
    window : int, optional
        The maximum number of updates in the window, a multiple of `panes`. By default, the window consists of all
        updates since the last `compute`.
    panes : int
        The number of equal parts of the window. When the newest part is full, the oldest part is dropped. Once the
        window has filled up, it therefore contains more than ``window * (panes - 1) / panes`` updates. With more panes,
        its size varies less, but it needs more memory.

    Attributes
    ----------
    lifetime : Metric or MetricCollection
        A copy of the metrics over all updates, to save or to merge with the metrics of other workers.

    Notes
    -----
    A `Lifetime` is saved, merged, deferred and synced like a metric. `merge` and `sync` merge the newest updates of one
    process with the newest updates of the others, so all processes should make the same number of updates. Without
    `window`, call `compute` on each process after `sync` to begin the next window. A process that reads a saved
    `Lifetime` (with `streammetrics.from_bytes`) must import this module first.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks.lifetime import Lifetime
    >>> metrics = Lifetime(sm.CTR(), window=2, panes=2)
    >>> for label in (0, 0, 1, 1):
    ...     _ = metrics.update([label])
    >>> metrics.compute()
    {'window_ctr': 1.0, 'lifetime_ctr': 0.5}
    """

    _accumulator: LifetimeAccumulator

    def __init__(self, metrics: MetricLike, window: int | None = None, panes: int = 10) -> None:
        if not isinstance(metrics, MetricLike) or isinstance(metrics, (AxisWrapper, Bundle, Lifetime)):
            raise TypeError(
                f"expected a metric or a MetricCollection, found an object of class {type(metrics).__name__}"
            )
        _check_window(window, panes)
        self._accumulator = accumulate(LifetimeDefinition(definition_of(metrics), window, panes))
        content = self._accumulator.window_state
        self._accumulator.window_state = content._replace(earlier=metrics.copy())

    @property
    def window(self) -> int | None:
        """The maximum number of updates in the window; None for a window of all updates since the last `compute`."""
        window: int | None = definition_of(self).window
        return window

    @property
    def panes(self) -> int:
        """The number of equal parts of the window."""
        return int(definition_of(self).panes)

    @property
    def lifetime(self) -> Any:
        return self._accumulator.window_state.merge_all()

    def compute(self) -> dict[str, Any]:
        """Return the values of every metric over the window and over the lifetime, keyed by name.

        For example, the names are "window_auc" and "lifetime_auc", or "ctr/window_auc" for an AUC of the task "ctr".

        If `window` is not set, this call also begins the next window.
        """
        return self._end_window(lambda: answer_of(self).value)

    def flat(self, undefined: str = "omit") -> dict[str, float]:
        """Return the values of `compute` as plain floats for a logger (see `streammetrics.flat`).

        If `window` is not set, this call also begins the next window.
        """
        return self._end_window(lambda: logger_names(answer_of(self).numbers(), undefined))

    def _end_window(self, read: Callable[[], Any]) -> Any:
        """Return the values that `read` computes, and begin the next window if `window` was not set."""
        values = read()
        self._accumulator.end_window()
        return values

    def __repr__(self) -> str:
        window = "since the last compute" if self.window is None else f"of {self.window:,} updates"
        return f"Lifetime({', '.join(definition_of(self).inner.names)}; window {window})"


LifetimeDefinition.public = Lifetime


def _check_window(window: Any, panes: Any) -> None:
    """Raise ValueError unless `panes` is at least 2 and `window` is None or a multiple of `panes`."""
    fits = window is None or (type(window) is int and window > 0 and window % max(panes, 1) == 0)
    if type(panes) is not int or panes < 2 or not fits:
        raise ValueError(
            f"window= must be a multiple of panes=, which must be at least 2; found window={window!r} and "
            f"panes={panes!r}"
        )


def _build_updates_state(updates: int) -> State:
    """Return a state of the metric `Count` that stores the number of updates."""
    if not updates:
        return UPDATES
    parts: Any = UPDATES.parts()
    flats = {name: parts[name].empty(UPDATES, 1) for name in UPDATES.cells.flats} | {"rows": np.array([updates])}
    return UPDATES.with_cells(replace(UPDATES.cells, keys=np.zeros((1, 0), np.int64), flats=flats))


def _prefix_name(prefix: str, name: str) -> str:
    """Return a metric name with a prefix before its last part: "ctr/auc" becomes "ctr/window_auc"."""
    task, slash, last = name.rpartition("/")
    return f"{task}{slash}{prefix}_{last}"
