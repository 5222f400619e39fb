"""Metrics that a training loop can update without waiting for the device (GPU).

`update` only keeps the batch. Later, several batches are copied to host memory together and counted.

A `Carrier` copies the tensors of one framework. `hooks.torch` and `hooks.jax` each register a carrier when they are
imported. This module itself imports no framework.
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
from ..collect.accumulator import definition_of, table_and_columns_error, unknown_column
from ..collect.metric_like import MetricLike, columns_of
from ..compose.bundle import Bundle
from ..errors import InvalidInputError, MemoryLimitError, NotArrivedError, StreamMetricsError
from ..numerics.signal_safety import run_without_interrupt
from .compilation import compile_kernels

__all__ = ["CARRIERS", "Carrier", "Deferred", "Transfer"]

H = TypeVar("H", bound=MetricLike)

DEFAULT_EVERY, DEFAULT_QUEUE, DEFAULT_TIMEOUT = 50, 4, 600.0
MAX_LISTED = 10
"""The maximum number of failed steps that an error message lists; of the others, it gives only the number."""
CARRIER_MODULES = {"torch": "streammetrics.hooks.torch", "jaxlib": "streammetrics.hooks.jax"}
"""The module that registers the carrier for the tensors of each library; errors name it if it is not imported."""


class Transfer(Protocol):
    """An asynchronous copy of tensors to host memory, which may still be running."""

    def is_ready(self) -> bool:
        """Return whether the copy is finished, without waiting."""
        ...

    def to_array(self) -> Any:
        """Return the copied rows of all tensors as one array. The copy must be finished."""
        ...


class Carrier(Protocol):
    """The operations that `Deferred` needs on tensors of one framework. A column is one tensor passed to `update`."""

    def keep(self, column: Any) -> tuple[Any, Any]:
        """Return the column without its gradient graph, and a marker (such as its version) that reveals later changes."""
        ...

    def snapshot(self, column: Any) -> Any:
        """Start a private copy of the column on the same device, and return the copy without waiting."""
        ...

    def describe_change(self, column: Any, mark: Any) -> str:
        """Describe how a column has changed since `keep` returned the marker `mark`; return "" if it is unchanged."""
        ...

    def find_batch_key(self, column: Any) -> Hashable:
        """Return a key, such as (dtype, shape of a row); columns with equal keys are copied together.

        A column whose key is None is not copied: it is passed to the metrics unchanged.
        """
        ...

    def start_transfer(self, columns: Sequence[Any]) -> Transfer:
        """Start copying columns with equal batch keys to host memory; the copy runs after earlier device operations."""
        ...


CARRIERS: dict[str, Carrier] = {}
"""The registered carriers, by the name of the library whose tensors they copy."""

_CARRIER_OF_TYPE: dict[type, Carrier | None] = {}


class DeferredStep(NamedTuple):
    """The arguments of one call to `update`.

    `columns` maps names or positions (0 or 1) to columns, and `is_table` says whether the caller passed them as a
    table. `marks` contains (name, carrier, marker) for each column on a device, to detect changes.
    """

    number: int
    is_table: bool
    columns: dict[Any, Any]
    marks: tuple[tuple[Any, Carrier, Any], ...]


class StepBatch:
    """Consecutive steps that are copied to host memory together, because their columns have equal batch keys."""

    def __init__(self, steps: Sequence[DeferredStep]) -> None:
        self.steps, self.next = steps, 0
        self._transfers: dict[Any, Transfer] = {}
        for name, carrier, _ in steps[0].marks:
            if carrier.find_batch_key(steps[0].columns[name]) is not None:
                self._transfers[name] = carrier.start_transfer([s.columns[name] for s in steps])
        self._ends = {n: np.cumsum([len(s.columns[n]) for s in steps]).tolist() for n in self._transfers}

    def is_ready(self) -> bool:
        """Return whether all columns have arrived in host memory."""
        return all(f.is_ready() for f in self._transfers.values())

    def store_arrived(self) -> None:
        """Replace the device columns of each step with the rows of that step that were copied to host memory."""
        for name, flight in self._transfers.items():
            rows, ends = flight.to_array(), self._ends[name]
            for step, start, stop in zip(self.steps, [0, *ends], ends, strict=False):
                step.columns[name] = rows[start:stop]
        self._transfers = {}


class Deferred(Generic[H]):
    """Metrics that a training loop updates without waiting for the device.

    `update` only keeps references to the columns of a step (one call to `update`). The columns of `every` steps are
    copied to host memory together. Columns on a GPU are copied asynchronously, into pinned memory. When the columns of
    a step have arrived, its rows are counted. Steps are counted in order, so the state is the same as if the metrics
    were updated at every step. `compute` and `flush` wait for the remaining steps.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics to update in place, when columns have arrived in host memory.
    every : int
        The number of steps that are copied together. Until they are copied, their columns stay on the device, without
        gradient graphs.
    snapshot : bool
        Whether `update` immediately makes a private copy of every column, on the same device. This is needed if the
        training loop overwrites its tensors.
    queue : int
        The largest number of copies that run at the same time. When that many are running, further steps wait on the
        device. `update` raises MemoryLimitError if ``queue * every`` steps are waiting.
    timeout : float
        The number of seconds that `compute` and `flush` wait for a copy before they raise NotArrivedError.

    Notes
    -----
    If a torch tensor is changed in place before it is copied, its version counter shows the change. The step is then not
    counted, and `flush` and `compute` raise an error. The counter does not show changes through ``.data``, through a numpy
    array that shares the memory, or through the replay of a CUDA graph: in these cases, use ``snapshot=True``.
    Inference tensors, numpy arrays, lists and series are copied immediately.

    Torch tensors need ``import streammetrics.hooks.torch``, and JAX arrays need ``import streammetrics.hooks.jax``.

    Creating the object compiles the kernels of the metrics (see `streammetrics.hooks.compilation`), so that no step waits
    for them.

    A call to `update` takes about 3 microseconds; counting takes a few nanoseconds per row and state.

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
        every: int = DEFAULT_EVERY,
        snapshot: bool = False,
        queue: int = DEFAULT_QUEUE,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        if not isinstance(metrics, MetricLike) or isinstance(metrics, Bundle):
            raise TypeError(
                f"expected a metric, a MetricCollection or slices, found an object of class {type(metrics).__name__}"
            )
        for name, value in (("every", every), ("queue", queue)):
            if type(value) is not int or value < 1:
                what = "steps" if name == "every" else "copies"
                raise ValueError(f"{name}= takes a number of {what}, at least 1, not {value!r}")
        self.metrics, self.every, self.snapshot, self.queue = metrics, every, snapshot, queue
        self.timeout = timeout
        self._columns = columns_of(metrics)
        compile_kernels(metrics)
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._steps = 0
        self._waiting: list[DeferredStep] = []
        # The batches that are being copied, oldest first. Each item lists the batches of up to `every` steps.
        self._transferring: deque[list[StepBatch]] = deque()
        self._bad_steps: list[tuple[int, Exception]] = []
        self._unlisted = 0

    @property
    def pending(self) -> int:
        """The number of steps (calls to `update`) that have not been counted yet."""
        with self._lock:
            return len(self._waiting) + sum(len(r.steps) - r.next for runs in self._transferring for r in runs)

    # -- updating -----------------------------------------------------------------------------------------------------

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Store a batch to be counted later. The arguments are those of the metrics' own `update` method.

        Parameters
        ----------
        y_true : array-like of shape (n,), or table
            The labels; or a mapping or table that contains all columns by name.
        y_score : array-like of shape (n,)
            The scores.
        **columns : array-like of shape (n,)
            Columns passed by name.

        Raises
        ------
        TypeError
            A column has a name that the metrics do not read, or comes from a framework whose module, such as
            `streammetrics.hooks.torch`, is not imported.
        MemoryLimitError
            ``queue * every`` steps are waiting, because no copy has finished. The batch was not kept.
        """
        kind = type(y_true)
        is_column = y_true is None or kind is np.ndarray or _CARRIER_OF_TYPE.get(kind) is not None
        table = None if is_column else as_columns(y_true)
        if table is not None:
            if columns or y_score is not None:
                raise table_and_columns_error("Deferred", table)
            values: dict[Any, Any] = {name: table[name] for name in self._columns if name in table}
        else:
            if not columns.keys() <= self._columns.keys():
                unknown = next(name for name in columns if name not in self._columns)
                raise unknown_column(type(self).__name__, unknown, self._columns)
            values = {0: y_true, 1: y_score, **columns}
        marks = []
        for name, column in values.items():
            if column is None:
                continue
            kind = type(column)
            carrier = _CARRIER_OF_TYPE[kind] if kind in _CARRIER_OF_TYPE else _find_carrier(kind)
            if carrier is None:
                values[name] = _copy_column(column)
            elif self.snapshot:
                values[name] = carrier.snapshot(column)
                marks.append((name, carrier, None))
            else:
                values[name], mark = carrier.keep(column)
                marks.append((name, carrier, mark))
        with self._lock:
            if len(self._waiting) >= self.queue * self.every:
                self._check_queue()
            self._waiting.append(DeferredStep(self._steps, table is not None, values, tuple(marks)))
            self._steps += 1
            if len(self._waiting) >= self.every:
                self._advance(self.every)
        return self

    def _check_queue(self) -> None:
        self._advance(self.every)
        if len(self._waiting) >= self.queue * self.every:
            raise MemoryLimitError(
                f"{len(self._waiting):,} steps are waiting, because none of {self.queue} copies to host memory has "
                f"finished; this step was not kept. Raise queue= or every=, or find out what keeps the device busy"
            )

    # -- copying and counting -----------------------------------------------------------------------------------------

    def _advance(self, min_steps: int = 1) -> None:
        """Count the steps whose columns have arrived in host memory, and start new copies.

        Copies are started while at least `min_steps` steps are waiting and fewer than `queue` copies are running.
        """
        self._count_arrived()
        while len(self._waiting) >= min_steps and len(self._transferring) < self.queue:
            self._start_transfers()
            self._count_arrived()

    def _start_transfers(self) -> None:
        """Start copying the first `every` waiting steps; for steps with changed tensors, record an error instead."""
        good: list[DeferredStep] = []
        bad: list[tuple[DeferredStep, Exception]] = []
        for step in self._waiting[: self.every]:
            changes = [(n, change) for n, c, mark in step.marks if (change := c.describe_change(step.columns[n], mark))]
            if changes:
                name, change = self._find_column_name(changes[0][0]), changes[0][1]
                text = f"{name} {change} after update(); pass snapshot=True to Deferred"
                bad.append((step, InvalidInputError(text, column=name)))
            else:
                good.append(step)
        batches: list[StepBatch] = []
        for _, group in groupby(good, _find_step_key):
            steps = list(group)
            try:
                batches.append(StepBatch(steps))
            except RuntimeError as error:
                # The framework cannot copy these columns. Record the error, which the next `flush` raises.
                bad += [(step, error) for step in steps]
        bad_steps = self._bad_steps + [(step.number, error.with_traceback(None)) for step, error in bad]
        # These assignments move steps from the list of waiting steps to the lists of running copies and failed steps. A
        # Ctrl-C between two of the assignments would lose steps or count them twice.
        run_without_interrupt(
            [
                partial(self._transferring.append, batches),
                partial(setattr, self, "_waiting", self._waiting[self.every :]),
                partial(setattr, self, "_bad_steps", bad_steps[:MAX_LISTED]),
                partial(setattr, self, "_unlisted", self._unlisted + len(bad_steps[MAX_LISTED:])),
            ]
        )

    def _count_arrived(self) -> None:
        while self._transferring and all(batch.is_ready() for batch in self._transferring[0]):
            for batch in self._transferring[0]:
                self._count_batch(batch)
            self._transferring.popleft()

    def _count_batch(self, batch: StepBatch) -> None:
        try:
            batch.store_arrived()
        except RuntimeError as error:
            # The framework could not copy the columns, so these steps are lost. Record the error for each of them.
            for step in batch.steps[batch.next :]:
                self._note_error(step, error)
            batch.next = len(batch.steps)
        while batch.next < len(batch.steps):
            self._count_next(batch)

    def _count_next(self, batch: StepBatch) -> None:
        step = batch.steps[batch.next]
        try:
            # Move to the next step before the update: after a Ctrl-C in the update, the step must not be counted again.
            batch.next += 1
            if step.is_table:
                self.metrics.update(step.columns)
            else:
                named = dict(step.columns)
                self.metrics.update(named.pop(0, None), named.pop(1, None), **named)
        except Exception as error:  # noqa: BLE001 - the next compute reports the error of the step
            self._note_error(step, error)
        except BaseException as error:
            what = f"{type(error).__name__} interrupted the update, so the step may or may not have been counted"
            self._note_error(step, InvalidInputError(what))
            raise

    def _note_error(self, step: DeferredStep, error: Exception) -> None:
        if len(self._bad_steps) < MAX_LISTED:
            # Remove the traceback: it refers to the columns of the step, so it would keep their memory allocated.
            self._bad_steps.append((step.number, error.with_traceback(None)))
        else:
            self._unlisted += 1

    def _find_column_name(self, name: Any) -> str:
        """Return the name of a column; `name` is its name or, for a positional argument, its position (0 or 1)."""
        roles = definition_of(self.metrics).positional_columns()
        return name if isinstance(name, str) else roles[name] if name < len(roles) else f"column {name}"

    # -- results ------------------------------------------------------------------------------------------------------

    def flush(self) -> H:
        """Wait until every step is counted, and return the metrics.

        Raises
        ------
        InvalidInputError, or another error raised by the metrics' `update`
            A step (call to `update`) had invalid values, or a tensor was changed in place before it was copied. The
            message gives the number of the step, counted from 0 since the last `reset`. All other steps are counted.
            Each failed step is reported once.
        NotArrivedError
            A copy did not finish within `timeout`; the next call waits for it again.
        """
        last, pause, deadline = self._steps, 2e-5, time.monotonic() + self.timeout
        while True:
            # Hold the lock only in this block and not during the sleep below, so that other threads can call `update`.
            with self._lock:
                self._advance()
                if self._find_first_pending() >= last:
                    self._raise_noted_errors()
                    return self.metrics
                if time.monotonic() > deadline:
                    raise NotArrivedError(
                        f"{self.pending:,} steps are not counted yet: their columns were not copied to host memory within "
                        f"{self.timeout:g} s. The device is busy or stuck; call again to wait longer, or raise timeout="
                    )
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    def _find_first_pending(self) -> int:
        """Return the number of the first uncounted step or, if all steps are counted, the number of the next step."""
        flying = [r.steps[r.next].number for runs in self._transferring for r in runs if r.next < len(r.steps)]
        return min(flying) if flying else self._waiting[0].number if self._waiting else self._steps

    def _raise_noted_errors(self) -> None:
        if not self._bad_steps:
            return
        bad, unlisted = self._bad_steps, self._unlisted
        self._bad_steps, self._unlisted = [], 0
        number, error = bad[0]
        numbers = ", ".join(f"{n:,}" for n, _ in bad[1:]) + (f" and {unlisted:,} more" if unlisted else "")
        others = f"; step{'s' if len(bad) > 2 or unlisted else ''} {numbers} also failed" if numbers else ""
        text = f"step {number:,}: {error or type(error).__name__}{others}; all other steps are counted"
        if isinstance(error, InvalidInputError):
            raise InvalidInputError(text, column=error.column, row=error.row, count=error.count) from error
        if isinstance(error, StreamMetricsError) and type(error).__module__ == errors.__name__:
            raise type(error)(text) from error
        raise InvalidInputError(text) from error

    def compute(self) -> Any:
        """Wait until all steps are counted, and return the value over all steps.

        If some steps (calls to `update`) have failed, this method raises the same error as `flush`. A second call then
        returns the value over all other steps.
        """
        metrics: Any = self.flush()
        return metrics.compute()

    def to_bytes(self) -> bytes:
        """Wait until all steps are counted, and return the state as bytes that `streammetrics.from_bytes` can read.

        Raises the same errors as `flush`.
        """
        return self.flush().to_bytes()

    def digest(self) -> str:
        """Wait until all steps are counted, and return the SHA-256 digest of the state.

        Raises the same errors as `flush`.
        """
        return self.flush().digest()

    def merge(self, other: Deferred[H] | H) -> Self:
        """Merge another `Deferred` object, or metrics with the same settings, after all steps of both are counted.

        Raises the same errors as `flush`, for either object.
        """
        theirs = other.flush() if isinstance(other, Deferred) else other
        self.flush().merge(theirs)
        return self

    def copy(self) -> Self:
        """Wait until all steps are counted, and return an independent copy.

        Raises the same errors as `flush`.
        """
        new = type(self)(
            self.flush().copy(), every=self.every, snapshot=self.snapshot, queue=self.queue, timeout=self.timeout
        )
        new._steps = self._steps
        return new

    def reset(self) -> Self:
        """Reset the metrics, drop all uncounted and failed steps, and number new steps from 0."""
        with self._lock:
            self._clear()
            self.metrics.reset()
        return self

    def __reduce__(self) -> Any:
        settings = {"every": self.every, "snapshot": self.snapshot, "queue": self.queue, "timeout": self.timeout}
        return _rebuild_deferred, (type(self), self.flush(), settings)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __repr__(self) -> str:
        return f"Deferred(every={self.every}, {self.pending:,} steps pending): {self.metrics!r}"


def _rebuild_deferred(kind: type[Deferred[Any]], metrics: MetricLike, settings: Mapping[str, Any]) -> Any:
    return kind(metrics, **settings)


def _find_step_key(step: DeferredStep) -> Hashable:
    """Return a key for grouping steps: adjacent steps with equal keys are copied to host memory together."""
    return step.is_table, tuple((name, id(c), c.find_batch_key(step.columns[name])) for name, c, _ in step.marks)


def _find_carrier(kind: type) -> Carrier | None:
    """Return the `Carrier` for columns of this type, or None if such columns are in host memory and need no carrier.

    Raises
    ------
    TypeError
        The columns need a carrier, but its module has not been imported.
    """
    library = library_of(kind)
    if library not in CARRIERS and library in CARRIER_MODULES:
        raise TypeError(
            f"a column of class {kind.__name__} from {library.removesuffix('lib')} needs a module that is not "
            f"imported; add `import {CARRIER_MODULES[library]}`"
        )
    return _CARRIER_OF_TYPE.setdefault(kind, CARRIERS.get(library))


def _copy_column(column: Any) -> Any:
    """Return a copy of a column in host memory, because the caller may change the original later."""
    return column.copy() if type(column) is np.ndarray else copy.deepcopy(column)
