"""Steps of a training loop, kept as they are, copied many at a time, and counted when they have arrived.

How columns get from a device to this machine's memory is a seam, a `Carrier` for each framework: `hooks.torch` and
`hooks.jax` bring theirs when they are imported. This module knows none of them.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from .. import errors
from ..batch.convert import as_columns, library_of
from ..collect.accumulator import definition_of, unknown_column
from ..collect.metric_like import MetricLike, columns_of
from ..compose.bundle import Bundle
from ..errors import InvalidInputError, MemoryLimitError, NotArrivedError, StreamMetricsError
from ..numerics.signal_safety import at_once

__all__ = ["CARRIERS", "Carrier", "Deferred", "Flight"]

H = TypeVar("H", bound=MetricLike)

EVERY, MOST_FLYING, TIMEOUT = 50, 4, 600.0
SHOWN = 10
"""How many bad steps are named; the others are counted."""
NEEDED = {"torch": "streammetrics.hooks.torch", "jaxlib": "streammetrics.hooks.jax"}
"""The modules that bring carriers, by the library whose tensors they carry."""


class Flight(Protocol):
    """Columns on their way to this machine."""

    def ready(self) -> bool:
        """Whether they are here; asks, and does not wait."""
        ...

    def array(self) -> Any:
        """All their rows, one column after the other, as `update` takes them; asked for when they are here."""
        ...


class Carrier(Protocol):
    """How columns of one framework are kept, and brought to this machine."""

    def keep(self, column: Any) -> tuple[Any, Any]:
        """What to hold on to, without its graph, and a mark by which `changed` sees what happened to it since."""
        ...

    def snapshot(self, column: Any) -> Any:
        """A copy on the same device that nobody else holds; starts, and does not wait."""
        ...

    def changed(self, column: Any, mark: Any) -> str:
        """What happened to a column since it was kept, in words; "" if nothing did."""
        ...

    def alike(self, column: Any) -> Hashable:
        """What columns that travel together have in common; None if this one is not carried but left to `update`."""
        ...

    def start(self, columns: Sequence[Any]) -> Flight:
        """Send columns that are alike, as one, after all that their device was told to do before."""
        ...


CARRIERS: dict[str, Carrier] = {}
"""Carriers by the library of the tensors they carry."""

_OF_TYPE: dict[type, Carrier | None] = {}


class DeferredStep(NamedTuple):
    """What one `update` was given: columns by name, or by position (0, 1); whether as a table; and their marks."""

    number: int
    is_table: bool
    columns: dict[Any, Any]
    marks: tuple[tuple[Any, Carrier, Any], ...]


class AlikeSteps:
    """Steps in a row whose columns are alike: these travel together."""

    def __init__(self, steps: Sequence[DeferredStep]) -> None:
        self.steps, self.next = steps, 0
        self._flights: dict[Any, Flight] = {}
        for name, carrier, _ in steps[0].marks:
            if carrier.alike(steps[0].columns[name]) is not None:
                self._flights[name] = carrier.start([s.columns[name] for s in steps])
        self._ends = {n: np.cumsum([len(s.columns[n]) for s in steps]).tolist() for n in self._flights}

    def ready(self) -> bool:
        """Whether all columns are here."""
        return all(f.ready() for f in self._flights.values())

    def land(self) -> None:
        """Put what has arrived in the place of what was kept."""
        for name, flight in self._flights.items():
            rows, ends = flight.array(), self._ends[name]
            for step, start, stop in zip(self.steps, [0, *ends], ends, strict=False):
                step.columns[name] = rows[start:stop]
        self._flights = {}


class Deferred(Generic[H]):
    """Metrics that a training loop feeds without waiting: a step keeps references, and rows are counted much later.

    Every `every` steps their columns are copied to this machine as one (from a GPU without waiting for it, into pinned
    memory), and what has arrived by then is counted, step by step and in order: what comes out has the digest of
    metrics that were updated at every step. `compute` and `flush` wait for the rest.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What counts; it is the object itself, and sees rows when they have arrived.
    every : int
        How many steps are copied as one. Their columns stay on the device until then; graphs do not.
    snapshot : bool
        Copy every column at once, on its device: for loops that write into their tensors again.
    queue : int
        How many such copies may be under way. While all are, steps stay where they are; `update` raises MemoryLimitError
        at ``queue * every`` of them, rather than take more memory or wait.
    timeout : float
        Seconds that `compute` and `flush` wait for a copy before they raise NotArrivedError.

    Notes
    -----
    A torch tensor that was changed in place before it was copied is found out, by its version, and its step is not
    counted but reported. Changes that torch itself does not see, through ``.data``, a numpy array on its memory, or
    the replay of a CUDA graph, are not: use ``snapshot=True``. Inference tensors have no version, and what is not a tensor
    of torch or JAX (numpy arrays, lists, series) can change unseen: these are copied at once.

    Tensors of torch need ``import streammetrics.hooks.torch``, arrays of JAX ``import streammetrics.hooks.jax``.

    Cost: some 3 microseconds a step; every `every` steps what counting them takes, a few nanoseconds a row and state.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks.deferred import Deferred
    >>> metrics = Deferred(sm.MetricCollection(sm.AUC(), sm.CTR()), every=50)
    >>> for _ in range(120):
    ...     _ = metrics.update([0, 1, 1, 0], [0.1, 0.9, 0.4, 0.6])
    >>> metrics.compute()
    {'auc': 0.75, 'ctr': 0.5}
    """

    def __init__(
        self,
        metrics: H,
        *,
        every: int = EVERY,
        snapshot: bool = False,
        queue: int = MOST_FLYING,
        timeout: float = TIMEOUT,
    ) -> None:
        if not isinstance(metrics, MetricLike) or isinstance(metrics, Bundle):
            raise TypeError(f"metrics is a metric, a MetricCollection or slices, not a {type(metrics).__name__}")
        for name, value in (("every", every), ("queue", queue)):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is a number of {'steps' if name == 'every' else 'copies'}, not {value!r}")
        self.metrics, self.every, self.snapshot, self.queue = metrics, every, snapshot, queue
        self.timeout = timeout
        self._columns = columns_of(metrics)
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._steps = 0
        self._kept: list[DeferredStep] = []
        self._flying: deque[list[AlikeSteps]] = deque()  # copies, in the order of their steps
        self._bad: list[tuple[int, Exception]] = []
        self._more = 0

    @property
    def pending(self) -> int:
        """How many steps are not yet counted."""
        with self._lock:
            return len(self._kept) + sum(len(r.steps) - r.next for runs in self._flying for r in runs)

    # -- rows in ------------------------------------------------------------------------------------------------------

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Keep a batch, to be counted later; takes what `update` of the metrics takes.

        Parameters
        ----------
        y_true : array-like of shape (n,), or table
            Labels; or a mapping or table that holds all columns by name.
        y_score : array-like of shape (n,)
            Scores.
        **columns : array-like of shape (n,)
            Columns by name.

        Raises
        ------
        TypeError
            A column has a name that the metrics do not read, or is of a framework whose carrier is not imported.
        MemoryLimitError
            ``queue`` copies are under way, none has arrived, and ``queue * every`` steps wait; this one was not kept.
        """
        kind = type(y_true)
        plain = y_true is None or kind is np.ndarray or _OF_TYPE.get(kind) is not None
        table = None if plain else as_columns(y_true)
        if table is not None:
            if columns or y_score is not None:
                raise TypeError("Deferred.update() takes a table or columns, not both")
            given: dict[Any, Any] = {name: table[name] for name in self._columns if name in table}
        else:
            if not columns.keys() <= self._columns.keys():
                unknown = next(name for name in columns if name not in self._columns)
                raise unknown_column(type(self).__name__, unknown, self._columns)
            given = {0: y_true, 1: y_score, **columns}
        marks = []
        for name, column in given.items():
            if column is None:
                continue
            kind = type(column)
            carrier = _OF_TYPE[kind] if kind in _OF_TYPE else _carrier_of(kind)
            if carrier is None:
                given[name] = _own(column)
            elif self.snapshot:
                given[name] = carrier.snapshot(column)
                marks.append((name, carrier, None))
            else:
                given[name], mark = carrier.keep(column)
                marks.append((name, carrier, mark))
        with self._lock:
            if len(self._kept) >= self.queue * self.every:
                self._make_room()
            self._kept.append(DeferredStep(self._steps, table is not None, given, tuple(marks)))
            self._steps += 1
            if len(self._kept) >= self.every:
                self._advance(self.every)
        return self

    def _make_room(self) -> None:
        self._advance(self.every)
        if len(self._kept) >= self.queue * self.every:
            raise MemoryLimitError(
                f"{len(self._kept):,} steps wait, as none of {self.queue} copies to this machine has arrived; raise "
                f"queue= or every=, or look for what keeps the device busy. This step was not kept"
            )

    # -- what happens every so many steps -----------------------------------------------------------------------------

    def _advance(self, least: int = 1) -> None:
        """Count what is here; send steps, of which so many are left, while there is room; count what is here at once."""
        self._count_arrived()
        while len(self._kept) >= least and len(self._flying) < self.queue:
            self._start()
            self._count_arrived()

    def _start(self) -> None:
        """Send the first steps that were kept; those whose tensors were changed meanwhile are noted instead."""
        good: list[DeferredStep] = []
        bad: list[tuple[DeferredStep, Exception]] = []
        for step in self._kept[: self.every]:
            found = [(n, what) for n, c, mark in step.marks if (what := c.changed(step.columns[n], mark))]
            if found:
                name, what = self._named(found[0][0]), found[0][1]
                bad.append((step, InvalidInputError(f"{name} {what} after update()", column=name)))
            else:
                good.append(step)
        sent: list[AlikeSteps] = []
        for _, alike in groupby(good, _likeness):
            steps = list(alike)
            try:
                sent.append(AlikeSteps(steps))
            except RuntimeError as error:  # of the framework; reported by the next flush, with the steps
                bad += [(step, error) for step in steps]
        noted = self._bad + [(step.number, error.with_traceback(None)) for step, error in bad]
        at_once(  # an interrupt finds a step kept, under way, or noted
            [
                partial(self._flying.append, sent),
                partial(setattr, self, "_kept", self._kept[self.every :]),
                partial(setattr, self, "_bad", noted[:SHOWN]),
                partial(setattr, self, "_more", self._more + len(noted[SHOWN:])),
            ]
        )

    def _count_arrived(self) -> None:
        while self._flying and all(run.ready() for run in self._flying[0]):
            for run in self._flying[0]:
                self._count_run(run)
            self._flying.popleft()

    def _count_run(self, run: AlikeSteps) -> None:
        try:
            run.land()
        except RuntimeError as error:  # of the framework: what was sent is gone
            for step in run.steps[run.next :]:
                self._note(step, error)
            run.next = len(run.steps)
        while run.next < len(run.steps):
            self._count_next(run)

    def _count_next(self, run: AlikeSteps) -> None:
        step = run.steps[run.next]
        try:
            run.next += 1  # before: a step that an interrupt divides is reported, never counted twice
            if step.is_table:
                self.metrics.update(step.columns)
            else:
                named = dict(step.columns)
                self.metrics.update(named.pop(0, None), named.pop(1, None), **named)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a step is said at the next compute
            self._note(step, error)
        except BaseException as error:
            what = f"{type(error).__name__} came while it was counted, and it may or may not be"
            self._note(step, InvalidInputError(what))
            raise

    def _note(self, step: DeferredStep, error: Exception) -> None:
        if len(self._bad) < SHOWN:
            self._bad.append((step.number, error.with_traceback(None)))  # frames would hold the step's columns
        else:
            self._more += 1

    def _named(self, name: Any) -> str:
        """A column by name, also if it was given by position."""
        roles = definition_of(self.metrics).positional_columns()
        return name if isinstance(name, str) else roles[name] if name < len(roles) else f"column {name}"

    # -- results ------------------------------------------------------------------------------------------------------

    def flush(self) -> H:
        """Wait until every step is counted, and return the metrics.

        Raises
        ------
        InvalidInputError, or what else `update` of the metrics raises
            A step was bad, or a tensor was changed in place before it was copied: the message names the step, counted from
            0 since the last `reset`. All good steps are counted, and each bad one is reported once.
        NotArrivedError
            A copy did not arrive within `timeout`; it is waited for again by the next call.
        """
        until, pause, stop = self._steps, 2e-5, time.monotonic() + self.timeout
        while True:
            with self._lock:  # given back while it sleeps: other threads go on with their steps
                self._advance()
                if self._first_pending() >= until:
                    self._raise_noted()
                    return self.metrics
                if time.monotonic() > stop:
                    raise NotArrivedError(
                        f"{self.pending:,} steps are not counted: their columns did not arrive within {self.timeout:g} s. "
                        f"The device is busy or stuck; call again to go on waiting, or raise timeout="
                    )
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    def _first_pending(self) -> int:
        """The first step that is not counted; the next one if all are."""
        flying = [r.steps[r.next].number for runs in self._flying for r in runs if r.next < len(r.steps)]
        return min(flying) if flying else self._kept[0].number if self._kept else self._steps

    def _raise_noted(self) -> None:
        if not self._bad:
            return
        bad, more = self._bad, self._more
        self._bad, self._more = [], 0
        number, error = bad[0]
        listed = ", ".join(f"{n:,}" for n, _ in bad[1:]) + (f" and {more:,} more" if more else "")
        others = f"; bad, too, were steps {listed}" if listed else ""
        text = f"step {number:,}: {error or type(error).__name__}{others}; all others are counted"
        if isinstance(error, InvalidInputError):
            raise InvalidInputError(text, column=error.column, row=error.row, count=error.count) from error
        if isinstance(error, StreamMetricsError) and type(error).__module__ == errors.__name__:
            raise type(error)(text) from error
        raise InvalidInputError(text) from error

    def compute(self) -> Any:
        """Return the value of all steps; raises what `flush` does, and afterwards returns that of all good ones."""
        metrics: Any = self.flush()
        return metrics.compute()

    def to_bytes(self) -> bytes:
        """Encode what all steps have shown; raises what `flush` does."""
        return self.flush().to_bytes()

    def digest(self) -> str:
        """SHA-256 of what all steps have shown; raises what `flush` does."""
        return self.flush().digest()

    def merge(self, other: Deferred[H] | H) -> Self:
        """Add what another one, or metrics of the same settings, have seen; raises what `flush` of both does."""
        theirs = other.flush() if isinstance(other, Deferred) else other
        self.flush().merge(theirs)
        return self

    def copy(self) -> Self:
        """Return an independent copy that goes on from here; raises what `flush` does."""
        new = type(self)(
            self.flush().copy(), every=self.every, snapshot=self.snapshot, queue=self.queue, timeout=self.timeout
        )
        new._steps = self._steps
        return new

    def reset(self) -> Self:
        """Forget every step: what was counted, what is under way, and what was bad; steps count from 0 again."""
        with self._lock:
            self._forget()
            self.metrics.reset()
        return self

    def __reduce__(self) -> Any:
        settings = {"every": self.every, "snapshot": self.snapshot, "queue": self.queue, "timeout": self.timeout}
        return _unpickled, (type(self), self.flush(), settings)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __repr__(self) -> str:
        return f"Deferred(every={self.every}, {self.pending:,} steps pending): {self.metrics!r}"


def _unpickled(kind: type[Deferred[Any]], metrics: MetricLike, settings: Mapping[str, Any]) -> Any:
    return kind(metrics, **settings)


def _likeness(step: DeferredStep) -> Hashable:
    """What steps that travel together have in common."""
    return step.is_table, tuple((name, id(c), c.alike(step.columns[name])) for name, c, _ in step.marks)


def _carrier_of(kind: type) -> Carrier | None:
    """Who carries columns of a type; None for what lies in this machine's memory and is copied at once."""
    library = library_of(kind)
    if library not in CARRIERS and library in NEEDED:
        raise TypeError(
            f"a {kind.__name__} of {library.removesuffix('lib')} needs `import {NEEDED[library]}`, which copies it"
        )
    return _OF_TYPE.setdefault(kind, CARRIERS.get(library))


def _own(column: Any) -> Any:
    """A copy of what lies in this machine's memory."""
    return column.copy() if type(column) is np.ndarray else copy.deepcopy(column)
