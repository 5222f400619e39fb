"""Recent: a metric of the last rows or updates alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..batch.columns import Batch
from ..batch.convert import as_columns, is_scalar
from ..collect.accumulator import Accumulator, accumulate, definition_of, known_columns
from ..collect.task import Metrics, agreed
from ..count.batch_updater import StateChange, change
from ..count.reads import MEMORY_LIMIT
from ..errors import IncompatibleStateError
from ..numerics.settings import as_int
from ..state.axes import Axis
from ..state.state import State
from .axis_wrapper import inner_of
from .pooled_windows import PooledDefinition, PooledWrapper, alone, newest, starts

__all__ = ["Recent", "RecentDefinition"]

KINDS = {"steps": "(update)", "rows": "(row)"}
"""What is counted, and the column that is added to batches."""
SLACK = 64  # updates or rows, at least, that are held beyond those that are read, so that few updates drop any


class RecentAccumulator(Accumulator):
    """An accumulator that numbers updates or rows, and drops those that are far behind."""

    def __init__(self, definition: Any, states: Sequence[State] | None = None) -> None:
        self._numbering = threading.Lock()
        super().__init__(definition, states)

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the updates or rows that are read."""
        return tuple(self._last(self.feed.states))

    def _last(self, states: Sequence[State]) -> list[State]:
        found: list[State] = self.definition.last(states)  # type: ignore[attr-defined]
        return found

    def hold(self, states: Sequence[State]) -> None:
        with self._numbering:
            # First, so that an interrupt behind it leaves a number that is found again.
            self._forget_number()
            super().hold(states)

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        definition: Any = self.definition
        if self._columns is None:
            names, roles = known_columns(self)
            self._columns = (*names, *definition.axis.names), roles
        table = None if first is None or type(first) is np.ndarray else as_columns(first)
        if table is None:
            rows = _rows(first, second, *columns.values())
            self._count(rows, lambda number: super(RecentAccumulator, self).update(first, second, columns | number))
            return
        if columns or second is not None:
            raise TypeError(f"{definition.type_name}.update() takes a table or columns, not both")
        read = {name: column for name, column in table.items() if name in definition.columns}  # others have any length
        self._count(_rows(*read.values()), lambda number: self.feed.count_batch(Batch({**table, **number})))

    def count_batch(self, batch: Batch) -> None:
        self.update({name: batch.given(name) for name in batch.names}, None, {})

    def _count(self, rows: int, count: Callable[[dict[str, Any]], Any]) -> None:
        """Count a batch, with the number of the update, or of each row, as a column; drop what is far behind."""
        definition: Any = self.definition
        column, by_row, size = definition.axis.names[0], definition.counted == "rows", definition.axis.keep
        with self._numbering:
            at, held = self._next(), self.__dict__
            # A call that fails, before or after the rows are counted, leaves a number that is found again.
            del held["_step"]
            count({column: np.arange(at, at + rows) if by_row else at})
            held["_step"] = at = at + (rows if by_row else min(rows, 1))
            if rows:
                oldest = held.setdefault("_oldest", at - 1)
                if at - oldest > size + max(size, SLACK):
                    change([StateChange(self.feed, self._last)])
                    held["_oldest"] = at - size

    def _next(self) -> int:
        """Return the number of the next update or row."""
        held = self.__dict__
        if "_step" not in held:
            latest = newest(self.feed.states)
            held["_step"] = 0 if latest is None else latest + 1
        return int(held["_step"])

    def _forget_number(self) -> None:
        for name in ("_step", "_oldest"):
            self.__dict__.pop(name, None)

    def merge(self, other: Any) -> None:
        ours: Any = self.definition
        both = isinstance(other, RecentAccumulator) and other is not self
        if ours.counted == "rows" and both and ours.places(self.states) and ours.places(other.states):
            raise IncompatibleStateError(
                "rows of two streams have no common order, so the last of both are not known: Recent(..., steps=) merges "
                "step by step"
            )
        with self._numbering:
            self._forget_number()
            super().merge(other)


class RecentDefinition(PooledDefinition):
    """The definition of the last updates or rows."""

    kind = "recent"
    accumulator_type = RecentAccumulator
    adds = False
    counts = False
    noun = "update"

    def __init__(
        self, inner: Any, axis: Axis, on_invalid: str = "raise", memory_limit: int | None = MEMORY_LIMIT
    ) -> None:
        super().__init__(inner, axis, on_invalid, memory_limit)
        block = next((r.state.together for r in inner.reads if r.state.together), None)
        if self.counted == "rows" and block is not None:
            raise TypeError(f"rows of one {block} come together: Recent(..., steps=) reads whole updates")

    @property
    def counted(self) -> str:
        """What is counted: "steps" or "rows"."""
        return next(counted for counted, column in KINDS.items() if column == self.axis.names[0])

    @property
    def name(self) -> str:
        return f"{self.inner.name} of the last {self.axis.keep:,} {self.counted}"

    @cached_property
    def columns(self) -> dict[str, bool]:
        return {name: must for name, must in super().columns.items() if name not in self.axis.names}

    def header(self) -> dict[str, Any]:
        return {"kind": "recent", "inner": self.inner.header(), self.counted: self.axis.keep}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        counted = next(k for k in KINDS if k in header)
        return cls(cls.inner_of_header(header, states), _axis(counted, header[counted]))

    def last(self, states: Sequence[State]) -> list[State]:
        """Return the states of the updates or rows that are read."""
        latest = newest(states)
        if latest is None:
            return [r.state for r in self.reads]
        out = []
        for state in states:
            held, at = starts(state)
            kept = held[at > latest - (self.axis.keep or 1)]
            out.append(state if len(kept) == len(state) else state.select(kept))
        return out

    def pooled(self, states: Sequence[State]) -> list[State]:
        return [alone(s, starts(s)[0]) for s in self.last(states)]


class Recent(PooledWrapper):
    """A metric, a collection, or slices, of the last updates or rows: exactly what these alone would have made.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, Sharded, or list or dict of metrics
        What to compute.
    steps : int
        So many updates, the last; empty batches are none.
    rows : int
        Or so many rows, the last, those left out among them. Not of metrics whose rows come in queries.
    memory_limit : int
        Raise MemoryLimitError rather than take more bytes than this.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Raises
    ------
    IncompatibleStateError
        From `merge`, of rows: those of two streams have no common order. Steps are added up by their number since the
        beginning: so workers that step together merge to the last steps of all, and none may be a step behind.

    Notes
    -----
    It depends on the order of updates and on where batches were cut, which no other result does; so neither collections
    nor slices hold it, it holds them. Of a stream in which every row has a time there is ``Windowed(...).last(n)``, of
    older rows that fade rather than go `Decayed`.

    There is a state for each update or row: one of up to twice as many is held, and `compute()` adds up those that are
    read. A histogram of a row costs some ten bytes, an exact sum 550. torchmetrics' Running, torcheval's Windowed metrics
    and river's Rolling keep rows, or states of updates, too.

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
            raise TypeError("Recent takes steps= or rows=, how many of the last are read")
        axis = _axis("steps", steps) if rows is None else _axis("rows", rows)
        inner = inner_of(metric, on_invalid)
        definition = RecentDefinition(inner, axis, agreed(on_invalid, [inner]), memory_limit)
        self._accumulator = accumulate(definition)

    @property
    def size(self) -> int:
        """How many of the last updates or rows are read."""
        return definition_of(self).axis.keep or 1

    def __repr__(self) -> str:
        counted, size = definition_of(self).counted, self._accumulator.nbytes / 2**20
        seen = f"{len(self):,} of the last {self.size:,} {counted}"
        return f"Recent({', '.join(self.names)}; {seen}): {size:.1f} MiB"


RecentDefinition.public = Recent


def _rows(*columns: Any) -> int:
    """Return how many rows columns have: one value may stand for all rows, and values alone are one event."""
    given = [c for c in columns if c is not None]
    return next((len(c) for c in given if hasattr(c, "__len__") and not is_scalar(c)), int(bool(given)))


def _axis(kind: str, size: Any) -> Axis:
    size = as_int(size)
    if type(size) is not int or not 1 <= size < 1 << 31:
        raise ValueError(f"{kind}= takes a number from 1 to 2**31 - 1, not {size!r}")
    return Axis((KINDS[kind],), "step", 1, keep=size)
