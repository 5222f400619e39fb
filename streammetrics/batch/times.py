"""When rows happened: timestamps, dates or integers, each once per batch as the start of the window it lies in."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.keys import RANGES, plain, shown
from ..numerics.keys import raw as held
from .columns import Batch, Column, Kind, Mask
from .convert import python_time
from .slice_keys import read_slice_keys

__all__ = ["EventTime", "Latest", "TimeColumn", "clock"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

DAY = 86_400_000_000
"""Microseconds."""


def clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Latest(NamedTuple):
    """The latest time that is believed: `at`, or so much `ahead` of the clock, in microseconds or steps."""

    at: int = 0
    ahead: int | None = None

    def now(self) -> int:
        """What it is at this moment."""
        return self.at if self.ahead is None else clock() + self.ahead


@dataclass(frozen=True)
class TimeColumn(Column):
    """The starts of windows.

    Parameters
    ----------
    values : int64 array
        Where the window of each row begins; 0 for a bad one.
    source : str
        "timestamp" or "integer".
    stamps : int64 array
        When each row happened.
    missing : bool array, optional
        Which rows do not say it.
    beyond : bool array, optional
        Which rows say one that cannot be.
    wrong : bool array, optional
        Which rows are bad, these among them; found once, as the clock goes on.
    latest : int, optional
        What time was too late.
    """

    stamps: Ints
    missing: Mask | None
    beyond: Mask | None
    wrong: Mask | None
    latest: int | None = None

    def take(self, index: Ints) -> TimeColumn:
        """Return some of the rows."""
        missing, beyond, wrong = (None if m is None else m[index] for m in (self.missing, self.beyond, self.wrong))
        return TimeColumn(self.values[index], self.source, self.stamps[index], missing, beyond, wrong, self.latest)


class EventTime(Kind):
    """When a row happened; kept as the start of the window that it lies in.

    Parameters
    ----------
    source : {"timestamp", "integer"}
        What it is: timestamps and dates, in UTC unless they say otherwise; or integers, such as steps.
    width : int
        The width of windows, in microseconds or steps.
    latest : Latest, optional
        What is later is bad.
    """

    def __init__(self, source: str, width: int, latest: Latest | None = None) -> None:
        self.source, self.width, self.latest = source, width, latest
        what = (
            "a timestamp or date of the years 1 to 9999"
            if source == "timestamp"
            else "a time below 2**63, an integer of 64 bits"
        )
        self.expected = what if latest is None else f"{what}, not later than max_time"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventTime) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def _said(self) -> tuple[Any, ...]:
        return EventTime, self.source, self.width, self.latest

    def read(self, batch: Batch, name: str) -> TimeColumn:
        if batch.parent is not None:
            whole = batch.parent.column(name, self)
            assert isinstance(whole, TimeColumn)
            return whole.take(batch.index)
        stamps, missing, beyond = batch.make(("times", name, self.source), lambda: self._stamps(batch, name))
        starts = stamps // self.width * self.width
        least = RANGES["timestamp"][0] if self.source == "timestamp" else np.iinfo(np.int64).min
        wrong = (starts > stamps) | (starts < least)  # a start below all integers comes out above
        for bad in (missing, beyond):
            if bad is not None:
                wrong |= bad
        last = None if self.latest is None else self.latest.now()
        if last is not None:
            wrong |= stamps > last
        if not wrong.any():
            return TimeColumn(starts, self.source, stamps, None, None, None)
        return TimeColumn(np.where(wrong, 0, starts), self.source, stamps, missing, beyond, wrong, last)

    def bad(self, column: Column) -> Mask:
        assert isinstance(column, TimeColumn)
        return np.zeros(len(column.values), bool) if column.wrong is None else column.wrong

    def found(self, batch: Batch, name: str, row: int) -> str:
        column = batch.column(name, self)
        assert isinstance(column, TimeColumn)
        where = f"in row {batch.origin(row):,}"
        if column.missing is not None and column.missing[row]:
            return f"no time {where}"
        if column.beyond is not None and column.beyond[row]:
            return super().found(batch, name, row)
        late = column.latest is not None and column.stamps[row] > column.latest
        beyond = f", later than {shown(plain(self.source, column.latest))}" if late else ""
        return f"{shown(plain(self.source, column.stamps[row]))} {where}{beyond}"

    # -- what users pass ----------------------------------------------------------------------------------------------

    def _stamps(self, batch: Batch, name: str) -> tuple[Ints, Mask | None, Mask | None]:
        raw = batch.given(name)
        one = raw.item() if isinstance(raw, np.ndarray) and not raw.ndim and raw.dtype.kind != "M" else raw
        if isinstance(one, (int, np.integer, datetime.date, np.datetime64)) or getattr(raw, "ndim", 1) == 0:
            return self._of_all(batch, name, one), None, None
        kind, found = self._read(raw, name)
        if not kind:
            batch.same_length(int(found), name)
            return np.zeros(int(found), np.int64), np.ones(int(found), bool), None
        self._check_kind(kind, name)
        values, missing = found
        batch.same_length(len(values), name)
        beyond = _beyond(values, kind)
        stamps = np.ascontiguousarray(values if beyond is None else np.where(beyond, 0, values), np.int64)
        return (stamps * DAY if kind == "date" else stamps), missing, beyond

    def _of_all(self, batch: Batch, name: str, one: Any) -> Ints:
        """One time for all rows of the batch, such as the step of a training loop."""
        found = held(python_time(one) if isinstance(one, (np.datetime64, np.ndarray)) else one)
        if found is None or batch.rows is None:
            why = (
                "it is no time" if found is None else "the batch has no other column that says how many rows it is for"
            )
            raise InvalidInputError(f"{name}: {one!r} stands for all rows, but {why}", column=name)
        kind, value = found
        self._check_kind(kind, name)
        stamp = value * DAY if kind == "date" else value
        if not -(1 << 63) <= stamp < 1 << 63:
            raise InvalidInputError(f"{name}: event time is an integer of 64 bits, not {one!r}", column=name)
        return np.full(batch.rows, stamp, np.int64)

    def _read(self, raw: Any, name: str) -> tuple[str, Any]:
        if hasattr(raw, "__len__") and not len(raw):  # of any dtype: what holds nothing is often of floats
            return "", 0
        kind = str(getattr(raw, "dtype", getattr(raw, "type", "")))
        if (
            "float" in kind
            or kind == "double"
            or (isinstance(raw, (list, tuple)) and any(isinstance(v, float) for v in raw))
        ):
            self._refuse("floats", name)
        if hasattr(getattr(raw, "dtype", None), "tz") and hasattr(raw, "dt"):  # pandas, with or without Arrow
            raw = raw.dt.tz_convert(None).to_numpy()
        return read_slice_keys(raw, name, exact=False)

    def _check_kind(self, kind: str, name: str) -> None:
        if kind not in (("integer",) if self.source == "integer" else ("timestamp", "date")):
            self._refuse(f"keys of kind {kind}", name)

    def _refuse(self, kind: str, name: str) -> None:
        wanted, cure = (
            ("integers", 'a width such as "1h" takes timestamps')
            if self.source == "integer"
            else ("timestamps or dates", "a width that is an integer takes integers, such as steps or seconds")
        )
        raise InvalidInputError(f"{name}: these windows are of {wanted}, not of {kind}; {cure}", column=name)


def _beyond(values: Array, kind: str) -> Mask | None:
    """Which of the numbers that were read are none of event times; None for none."""
    low, high = (np.iinfo(np.int64).min, np.iinfo(np.int64).max) if kind == "integer" else RANGES[kind]
    if not len(values) or (low <= int(values.min()) and int(values.max()) <= high):
        return None
    return np.asarray((values < low) | (values > high), bool)
