"""Recent: a metric computed from only the last rows or updates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..batch.columns import Batch
from ..batch.convert import as_columns, is_scalar
from ..collect.accumulator import (
    Accumulator,
    accumulate,
    definition_of,
    input_columns,
    table_and_columns_error,
)
from ..collect.task import Metrics, resolve_on_invalid
from ..count.reads import MEMORY_LIMIT
from ..count.state_changes import StateChange, apply_changes
from ..errors import IncompatibleStateError
from ..numerics.settings import to_python_int
from ..state.axes import Axis
from ..state.state import State
from .axis_wrapper import inner_of
from .pooled_windows import PooledDefinition, PooledWrapper, cell_starts, newest_start, sum_cells

__all__ = ["Recent", "RecentDefinition"]

KINDS = {"steps": "(update)", "rows": "(row)"}
"""What `Recent` can count (updates, called "steps", or rows), and the name of the column with their numbers."""
SLACK = 64
"""Old updates or rows are dropped only when at least this many have accumulated, because dropping takes time."""


class RecentAccumulator(Accumulator):
    """An accumulator that numbers its updates or rows consecutively, and drops the oldest ones from time to time."""

    def __init__(self, definition: Any, states: Sequence[State] | None = None) -> None:
        self._numbering = threading.Lock()
        super().__init__(definition, states)

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the last updates or rows, without older ones that have not been dropped yet."""
        return tuple(self._last_states(self.all_states))

    def _last_states(self, states: Sequence[State]) -> list[State]:
        states_read: list[State] = self.definition.last(states)  # type: ignore[attr-defined]
        return states_read

    def set_states(self, states: Sequence[State]) -> None:
        with self._numbering:
            # Delete the number of the next update before the states change. The number is then computed again from the
            # states, even if an interrupt follows the change.
            self._forget_number()
            super().set_states(states)

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        definition: Any = self.definition
        if self._columns is None:
            names, roles = input_columns(self)
            self._columns = (*names, *definition.axis.names), roles
        table = None if first is None or type(first) is np.ndarray else as_columns(first)
        if table is None:
            rows = _count_rows(first, second, *columns.values())
            self._count(rows, lambda number: super(RecentAccumulator, self).update(first, second, columns | number))
            return
        if columns or second is not None:
            raise table_and_columns_error(definition.type_name, table)
        # Take the number of rows from the columns that a metric reads, because other columns may have any length.
        read = {name: column for name, column in table.items() if name in definition.columns}
        names = self._columns[0]
        self._count(_count_rows(*read.values()), lambda number: self.updater.count_table({**table, **number}, names))

    def count_batch(self, batch: Batch) -> None:
        self.update({name: batch.read_original(name) for name in batch.names}, None, {})

    def _count(self, rows: int, count: Callable[[dict[str, Any]], Any]) -> None:
        """Count a batch of `rows` rows, and drop old updates or rows from time to time.

        `count` is a function that counts the batch. It takes a dict with one additional column: the number of the
        update, or the numbers of the rows.
        """
        definition: Any = self.definition
        column, by_row, size = definition.axis.names[0], definition.count_unit == "rows", definition.axis.keep
        with self._numbering:
            at, attributes = self._next_number(), self.__dict__
            # Delete the next number before the batch is counted. If the call fails, whether or not it has counted the
            # batch, the number is then computed again from the states.
            del attributes["_step"]
            count({column: np.arange(at, at + rows) if by_row else at})
            attributes["_step"] = at = at + (rows if by_row else min(rows, 1))
            if rows:
                oldest = attributes.setdefault("_oldest", at - 1)
                if at - oldest > size + max(size, SLACK):
                    apply_changes([StateChange(self.updater, self._last_states)])
                    attributes["_oldest"] = at - size

    def _next_number(self) -> int:
        """Return the number of the next update or row."""
        attributes = self.__dict__
        if "_step" not in attributes:
            latest = newest_start(self.all_states)
            attributes["_step"] = 0 if latest is None else latest + 1
        return int(attributes["_step"])

    def _forget_number(self) -> None:
        for name in ("_step", "_oldest"):
            self.__dict__.pop(name, None)

    def merge(self, other: Any) -> None:
        ours: Any = self.definition
        both = isinstance(other, RecentAccumulator) and other is not self
        if ours.count_unit == "rows" and both and ours.places(self.states) and ours.places(other.states):
            raise IncompatibleStateError(
                "two Recent(..., rows=) objects cannot be merged: rows of two streams have no common order, so it is "
                "unknown which of them are the last; use Recent(..., steps=), which merges the first update of one "
                "stream with the first of the other, the second with the second, and so on"
            )
        with self._numbering:
            self._forget_number()
            super().merge(other)


class RecentDefinition(PooledDefinition):
    """The definition of a metric over the last updates or rows; see `Recent`."""

    kind = "recent"
    accumulator_type = RecentAccumulator
    adds = False
    counts = False
    noun = "update"

    def __init__(
        self, inner: Any, axis: Axis, on_invalid: str = "raise", memory_limit: int | None = MEMORY_LIMIT
    ) -> None:
        super().__init__(inner, axis, on_invalid, memory_limit)
        block = next((r.state.block_column for r in inner.reads if r.state.block_column), None)
        if self.count_unit == "rows" and block is not None:
            raise TypeError(
                f"rows= cannot be used, because a metric reads all rows of the same {block} together; use "
                f"Recent(..., steps=), which reads whole updates"
            )

    @property
    def count_unit(self) -> str:
        """The unit of the window length: "steps" (updates) or "rows"."""
        return next(counted for counted, column in KINDS.items() if column == self.axis.names[0])

    @property
    def name(self) -> str:
        return f"{self.inner.name} of the last {self.axis.keep:,} {self.count_unit}"

    @cached_property
    def columns(self) -> dict[str, bool]:
        return {name: must for name, must in super().columns.items() if name not in self.axis.names}

    def header(self) -> dict[str, Any]:
        return {"kind": "recent", "inner": self.inner.header(), self.count_unit: self.axis.keep}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        counted = next(k for k in KINDS if k in header)
        return cls(cls.inner_of_header(header, states), _number_axis(counted, header[counted]))

    def last(self, states: Sequence[State]) -> list[State]:
        """Return the states reduced to the last `axis.keep` updates or rows."""
        latest = newest_start(states)
        if latest is None:
            return [r.state for r in self.reads]
        out = []
        for state in states:
            cells, at = cell_starts(state)
            recent = cells[at > latest - (self.axis.keep or 1)]
            out.append(state if len(recent) == len(state) else state.select(recent))
        return out

    def pool_states(self, states: Sequence[State]) -> list[State]:
        return [sum_cells(s, cell_starts(s)[0]) for s in self.last(states)]


class Recent(PooledWrapper):
    """A metric, a collection, or slices of the last updates or rows.

    The value is bit-for-bit equal to that of a metric that counted only these updates or rows.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, Sharded, or list or dict of metrics
        The metrics to compute.
    steps : int
        The number of most recent updates to compute the value from. Updates without rows do not count.
    rows : int
        An alternative to `steps`: the number of most recent rows, including invalid rows that were left out. Metrics
        computed by query, such as NDCG, support only `steps`.
    memory_limit : int
        The maximum total size of the states in bytes; exceeding it raises MemoryLimitError.
    on_invalid : {"raise", "drop"}
        Whether an invalid row raises an error, or is left out and reported.

    Raises
    ------
    IncompatibleStateError
        With `rows`, `merge` raises this error, because rows of two streams have no common order.

    Notes
    -----
    With `steps`, `merge` combines the first updates of all workers, then the second updates, and so on. All workers
    must therefore have made the same number of updates. Otherwise, the updates of a worker that is behind count as
    older than they are.

    Unlike most other results, that of a `Recent` depends on the order of updates and on how rows were split into
    batches. Collections and slices therefore cannot contain a `Recent`, but a `Recent` can contain them. If every row
    has a time, use ``Windowed(...).last(n)``; for gradual decay of old rows, use `Decayed`.

    Each update or row has its own state. `compute()` adds up the states of the last updates or rows. Older states are
    dropped from time to time: at most about `steps` or `rows` of them are kept (or 64, if that is more). The histogram
    of one row takes about ten bytes, and an exact sum takes 550 bytes. torchmetrics' Running, torcheval's Windowed
    metrics and river's Rolling also keep rows or per-update states.

    Examples
    --------
    >>> import streammetrics as sm
    >>> recent = sm.Recent([sm.CTR(), sm.LogLoss()], steps=100)
    >>> for step in range(1000):  # a training loop
    ...     _ = recent.update([0, 1], [0.25, 0.75 if step >= 900 else 0.25])
    >>> recent.compute()
    {'ctr': 0.5, 'log_loss': 0.2876820724517809}
    >>> sm.Recent(sm.Mean(), rows=3).update([1, 2, 3, 4, 5]).compute()
    4.0
    """

    def __init__(
        self,
        metric: Metrics,
        *,
        steps: int | None = None,
        rows: int | None = None,
        memory_limit: int = MEMORY_LIMIT,
        on_invalid: str | None = None,
    ) -> None:
        if (steps is None) == (rows is None):
            raise TypeError(
                f"Recent: expected steps= (how many of the last updates to keep) or rows= (how many of the last rows), "
                f"found {'neither' if rows is None else 'both'}"
            )
        axis = _number_axis("steps", steps) if rows is None else _number_axis("rows", rows)
        inner = inner_of(metric, on_invalid)
        definition = RecentDefinition(inner, axis, resolve_on_invalid(on_invalid, [inner]), memory_limit)
        self._accumulator = accumulate(definition)

    @property
    def size(self) -> int:
        """The number of most recent updates or rows from which the value is computed."""
        return definition_of(self).axis.keep or 1

    def __repr__(self) -> str:
        counted, size = definition_of(self).count_unit, self._accumulator.nbytes / 2**20
        size_text = f"{len(self):,} of the last {self.size:,} {counted}"
        return f"Recent({', '.join(self.names)}; {size_text}): {size:.1f} MiB"


RecentDefinition.public = Recent


def _count_rows(*columns: Any) -> int:
    """Return the number of rows: the length of the first column that is not a scalar.

    Columns that are None are ignored. If all columns are scalars, return 1. If there are no columns, return 0.
    """
    columns_passed = [c for c in columns if c is not None]
    return next(
        (len(c) for c in columns_passed if hasattr(c, "__len__") and not is_scalar(c)), int(bool(columns_passed))
    )


def _number_axis(kind: str, size: Any) -> Axis:
    size = to_python_int(size)
    if type(size) is not int or not 1 <= size < 1 << 31:
        raise ValueError(f"{kind}= must be a whole number from 1 to 2**31 - 1, not {size!r}")
    return Axis((KINDS[kind],), "step", 1, keep=size)
