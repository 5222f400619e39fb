"""Anything that holds states, of the last rows or updates alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from ..collect.feed import MEMORY_LIMIT, Change, change
from ..collect.task import Metrics
from ..columns.columns import Batch
from ..columns.convert import as_columns, is_scalar
from ..errors import IncompatibleStateError
from ..numerics.settings import as_int
from ..state.axes import Axis
from ..state.state import State
from .pooled import Pooled, newest, starts

__all__ = ["Recent"]

KINDS = {"steps": "(update)", "rows": "(row)"}
"""What is counted, and the column that is added to batches."""
SLACK = 64  # updates or rows, at least, that are held beyond those that are read, so that few updates drop any


class Recent(Pooled):
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

    sort = "recent"
    adds = False
    counts = False
    noun = "update"

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
        inner, how = self._holding(metric, on_invalid)
        self._take(inner, axis, memory_limit=memory_limit, on_invalid=how)
        self._check()

    def _check(self) -> None:
        together = next((r.state.together for r in self.inner.reads() if r.state.together), None)
        if self.kind == "rows" and together is not None:
            raise TypeError(f"rows of one {together} come together: Recent(..., steps=) reads whole updates")

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """What is counted: steps or rows."""
        return next(kind for kind, column in KINDS.items() if column == self.axis.names[0])

    @property
    def size(self) -> int:
        """How many of the last are read."""
        return self.axis.keep or 1

    @property
    def name(self) -> str:
        """The name in a bundle."""
        return f"{self.inner.name} of the last {self.size:,} {self.kind}"

    @property
    def columns(self) -> dict[str, bool]:
        return {name: must for name, must in super().columns.items() if name not in self.axis.names}

    def header(self) -> dict[str, Any]:
        return {"kind": "recent", "inner": self.inner.header(), self.kind: self.size}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        kind = next(k for k in KINDS if k in header)
        new = cls._of(cls._inner_of(header, states), _axis(kind, header[kind]))
        new._check()
        return new

    # -- rows in ------------------------------------------------------------------------------------------------------

    def take(self, first: Any, second: Any, columns: dict[str, Any]) -> Self:
        table = None if first is None or type(first) is np.ndarray else as_columns(first)
        if table is None:
            rows = _rows(first, second, *columns.values())
            return self._counted(rows, lambda number: super(Recent, self).take(first, second, columns | number))
        if columns or second is not None:
            raise TypeError(f"{type(self).__name__}.update() takes a table or columns, not both")
        read = {name: column for name, column in table.items() if name in self.columns}  # others have any length
        return self._counted(_rows(*read.values()), lambda number: self.feed.count_batch(Batch({**table, **number})))

    @property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if "_known" not in self.__dict__:
            names, roles = super()._names
            self.__dict__["_known"] = (*names, *self.axis.names), roles
        return super()._names

    def absorb(self, batch: Batch) -> Self:
        """Count a batch whose columns other collections may share."""
        given = {name: batch.given(name) for name in batch.names}
        return self.take(given, None, {})

    def _counted(self, rows: int, count: Callable[[dict[str, Any]], Any]) -> Self:
        """Count a batch, with the number of the update, or of each row, as a column; drop what is far behind."""
        column, by_row = self.axis.names[0], self.kind == "rows"
        with self._stepping:
            at, held = self._next(), self.__dict__
            del held["_step"]  # what fails, before or after they are counted, leaves a number that is found again
            count({column: np.arange(at, at + rows) if by_row else at})
            held["_step"] = at = at + (rows if by_row else min(rows, 1))
            if rows:
                oldest = held.setdefault("_oldest", at - 1)
                if at - oldest > self.size + max(self.size, SLACK):
                    change([Change(self.feed, self._last)])
                    held["_oldest"] = at - self.size
        return self

    def _next(self) -> int:
        """The number of the next update or row."""
        held = self.__dict__
        if "_step" not in held:
            latest = newest(self.feed.states)
            held["_step"] = 0 if latest is None else latest + 1
        return int(held["_step"])

    @property
    def _stepping(self) -> threading.Lock:
        """Held while steps are numbered."""
        lock: threading.Lock = self.__dict__.setdefault("_lock", threading.Lock())
        return lock

    def take_states(self, states: Sequence[State]) -> None:
        with self._stepping:
            self._forget()  # first: an interrupt behind it leaves a number that is found again
            super().take_states(states)

    def reset(self) -> Self:
        """Forget every row."""
        with self._stepping:
            self._forget()
            return super().reset()

    def merge(self, other: Self) -> Self:
        """Add the steps of another one, each to the step of its number; rows of two streams are refused.

        Raises
        ------
        IncompatibleStateError
            As of any merge; or both have seen rows, and these are what is counted.
        """
        if self.kind == "rows" and isinstance(other, Recent) and other is not self and len(self) and len(other):
            raise IncompatibleStateError(
                "rows of two streams have no common order, so the last of both are not known: Recent(..., steps=) merges "
                "step by step"
            )
        with self._stepping:
            self._forget()
            super().merge(other)
        return self

    def _forget(self) -> None:
        for name in ("_step", "_oldest"):
            self.__dict__.pop(name, None)

    # -- results of states --------------------------------------------------------------------------------------------

    @property
    def states(self) -> tuple[State, ...]:
        """What was seen of the updates or rows that are read."""
        return tuple(self._last(self.feed.states))

    def _last(self, states: Sequence[State]) -> list[State]:
        latest = newest(states)
        if latest is None:
            return [r.state for r in self.reads()]
        out = []
        for state in states:
            held, at = starts(state)
            kept = held[at > latest - self.size]
            out.append(state if len(kept) == len(state) else state.select(kept))
        return out

    def pooled(self, states: Sequence[State]) -> list[State]:
        return [self._alone(s, starts(s)[0]) for s in self._last(states)]

    def __repr__(self) -> str:
        seen = f"{len(self):,} of the last {self.size:,} {self.kind}"
        return f"Recent({', '.join(self.names)}; {seen}): {self.nbytes / 2**20:.1f} MiB"


def _rows(*columns: Any) -> int:
    """Return how many rows columns have: one value may stand for all rows, and values alone are one event."""
    given = [c for c in columns if c is not None]
    return next((len(c) for c in given if hasattr(c, "__len__") and not is_scalar(c)), int(bool(given)))


def _axis(kind: str, size: Any) -> Axis:
    size = as_int(size)
    if type(size) is not int or not 1 <= size < 1 << 31:
        raise ValueError(f"{kind}= takes a number from 1 to 2**31 - 1, not {size!r}")
    return Axis((KINDS[kind],), "step", 1, keep=size)
