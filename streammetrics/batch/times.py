"""Columns of event time, which assign rows to time windows: timestamps, dates, or integers such as training steps."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.slice_keys import RANGES, format_atom, from_stored_key
from ..numerics.slice_keys import to_stored_key as parse_key
from .columns import Batch, Column, Kind, Mask
from .convert import to_python_time
from .slice_keys import read_slice_keys

__all__ = ["EventTime", "Latest", "TimeColumn", "clock"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

DAY = 86_400_000_000
"""The number of microseconds in a day."""


def clock() -> int:
    """Return the current time in microseconds since 1970."""
    return time.time_ns() // 1000


class Latest(NamedTuple):
    """The latest event time that a batch may contain, in microseconds or steps.

    This is the current time plus `ahead` or, if `ahead` is None, the fixed time `at`.
    """

    at: int = 0
    ahead: int | None = None

    def now(self) -> int:
        """Return the latest event time that a batch may contain at this moment."""
        return self.at if self.ahead is None else clock() + self.ahead


@dataclass(frozen=True)
class TimeColumn(Column):
    """The event time of each row, and the start of the time window that contains it.

    Parameters
    ----------
    values : int64 array
        The start of the window of each row; 0 for an invalid row.
    source : str
        "timestamp" or "integer".
    stamps : int64 array
        The event time of each row.
    missing : bool array, optional
        Mask of the rows that have no time.
    out_of_range : bool array, optional
        Mask of the rows whose time lies outside the range of keys: the years 1 to 9999 or, for integers, int64.
    wrong : bool array, optional
        Mask of all invalid rows: those without a time, out of range, or later than `latest`. The mask is kept because
        a second comparison with the clock could give a different result.
    latest : int, optional
        The latest time allowed when the column was read.
    """

    stamps: Ints
    missing: Mask | None
    out_of_range: Mask | None
    wrong: Mask | None
    latest: int | None = None

    def take(self, index: Ints) -> TimeColumn:
        """Return the times of the rows at the positions in `index`."""
        missing, out_of_range, wrong = (
            None if m is None else m[index] for m in (self.missing, self.out_of_range, self.wrong)
        )
        return TimeColumn(
            self.values[index], self.source, self.stamps[index], missing, out_of_range, wrong, self.latest
        )


class EventTime(Kind):
    """The event time of a row, converted to the start of its time window.

    Parameters
    ----------
    source : {"timestamp", "integer"}
        What the column contains: timestamps or dates (in UTC unless they have a time zone), or integers, such as steps.
    width : int
        The width of a window, in microseconds or steps.
    latest : Latest, optional
        The latest valid time.
    """

    def __init__(self, source: str, width: int, latest: Latest | None = None) -> None:
        self.source, self.width, self.latest = source, width, latest
        what = (
            "a timestamp or date in the years 1 to 9999"
            if source == "timestamp"
            else "an integer time below 2**63 (in a window that starts at -2**63 or later)"
        )
        self.expected = what if latest is None else f"{what}, not later than max_time"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventTime) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return EventTime, self.source, self.width, self.latest

    def read(self, batch: Batch, name: str) -> TimeColumn:
        if batch.parent is not None:
            whole = batch.parent.column(name, self)
            assert isinstance(whole, TimeColumn)
            return whole.take(batch.index)
        stamps, missing, out_of_range = batch.memoize(("times", name, self.source), lambda: self._stamps(batch, name))
        starts = stamps // self.width * self.width
        least = RANGES["timestamp"][0] if self.source == "timestamp" else np.iinfo(np.int64).min
        # Near the smallest int64, the multiplication above may overflow. The start of the window is then later than the
        # time itself, which shows that the row is invalid.
        wrong = (starts > stamps) | (starts < least)
        for bad in (missing, out_of_range):
            if bad is not None:
                wrong |= bad
        last = None if self.latest is None else self.latest.now()
        if last is not None:
            wrong |= stamps > last
        if not wrong.any():
            return TimeColumn(starts, self.source, stamps, None, None, None)
        return TimeColumn(np.where(wrong, 0, starts), self.source, stamps, missing, out_of_range, wrong, last)

    def bad(self, column: Column) -> Mask:
        assert isinstance(column, TimeColumn)
        return np.zeros(len(column.values), bool) if column.wrong is None else column.wrong

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        column = batch.column(name, self)
        assert isinstance(column, TimeColumn)
        where = f"in row {batch.original_row(row):,}"
        if column.missing is not None and column.missing[row]:
            return f"no time {where}"
        if column.out_of_range is not None and column.out_of_range[row]:
            return super().describe_row(batch, name, row)
        late = column.latest is not None and column.stamps[row] > column.latest
        too_late = f", later than {format_atom(from_stored_key(self.source, column.latest))}" if late else ""
        return f"{format_atom(from_stored_key(self.source, column.stamps[row]))} {where}{too_late}"

    # -- conversion ---------------------------------------------------------------------------------------------------

    def _stamps(self, batch: Batch, name: str) -> tuple[Ints, Mask | None, Mask | None]:
        raw = batch.read_original(name)
        one = raw.item() if isinstance(raw, np.ndarray) and not raw.ndim and raw.dtype.kind != "M" else raw
        # If the batch is a single event whose time is a string or float, raise the same error as for a column of
        # strings or floats.
        if isinstance(one, (str, float)):
            self._refuse("floats" if isinstance(one, float) else "values of kind string", name)
        if isinstance(one, (int, np.integer, datetime.date, np.datetime64)) or getattr(raw, "ndim", 1) == 0:
            return self._repeat_time(batch, name, one), None, None
        kind, content = self._read(raw, name)
        if not kind:
            batch.check_length(int(content), name)
            return np.zeros(int(content), np.int64), np.ones(int(content), bool), None
        self._check_kind(kind, name)
        values, missing = content
        batch.check_length(len(values), name)
        out_of_range = _find_out_of_range(values, kind)
        stamps = np.ascontiguousarray(values if out_of_range is None else np.where(out_of_range, 0, values), np.int64)
        return (stamps * DAY if kind == "date" else stamps), missing, out_of_range

    def _repeat_time(self, batch: Batch, name: str, one: Any) -> Ints:
        """Return an array that repeats one time, such as a training step, for all rows of the batch."""
        parsed = parse_key(to_python_time(one) if isinstance(one, (np.datetime64, np.ndarray)) else one)
        if parsed is None or batch.rows is None:
            why = (
                f"expected a time, or a column of times, found {one!r}"
                if parsed is None
                else f"cannot use the single time {one!r} for all rows, because no other column gives the number of rows; "
                f"pass a column of times"
            )
            raise InvalidInputError(f"{name}: {why}", column=name)
        kind, value = parsed
        self._check_kind(kind, name)
        stamp = value * DAY if kind == "date" else value
        if not -(1 << 63) <= stamp < 1 << 63:
            raise InvalidInputError(
                f"{name}: expected a time that fits into a 64-bit integer, found {one!r}", column=name
            )
        return np.full(batch.rows, stamp, np.int64)

    def _read(self, raw: Any, name: str) -> tuple[str, Any]:
        # An empty column often has dtype float, which the check below would reject.
        if hasattr(raw, "__len__") and not len(raw):
            return "", 0
        kind = str(getattr(raw, "dtype", getattr(raw, "type", "")))
        if (
            "float" in kind
            or kind == "double"
            or (isinstance(raw, (list, tuple)) and any(isinstance(v, float) for v in raw))
        ):
            self._refuse("floats", name)
        # Only a pandas series has both attributes. `tz_convert(None)` converts its times to UTC and removes the time
        # zone.
        if hasattr(getattr(raw, "dtype", None), "tz") and hasattr(raw, "dt"):
            raw = raw.dt.tz_convert(None).to_numpy()
        return read_slice_keys(raw, name, exact=False)

    def _check_kind(self, kind: str, name: str) -> None:
        if kind not in (("integer",) if self.source == "integer" else ("timestamp", "date")):
            self._refuse(f"values of kind {kind}", name)

    def _refuse(self, kind: str, name: str) -> None:
        wanted, cure = (
            ("integers", 'for timestamps, pass a width such as "1h"')
            if self.source == "integer"
            else ("timestamps or dates", "for integers, such as steps or seconds, pass an integer as the width")
        )
        if kind == "values of kind string" and self.source != "integer":
            cure = f"convert the strings to timestamps first, such as pandas.to_datetime(df[{name!r}])"
        if kind == "floats" and self.source != "integer":
            cure += f'; for seconds since 1970, convert them first, such as pandas.to_datetime(df[{name!r}], unit="s")'
        raise InvalidInputError(
            f"{name}: expected {wanted} for windows of this width, found {kind}; {cure}", column=name
        )


def _find_out_of_range(values: Array, kind: str) -> Mask | None:
    """Return a mask of the times outside the range of keys of kind `kind`; None if there are none."""
    low, high = (np.iinfo(np.int64).min, np.iinfo(np.int64).max) if kind == "integer" else RANGES[kind]
    if not len(values) or (low <= int(values.min()) and int(values.max()) <= high):
        return None
    return np.asarray((values < low) | (values > high), bool)
