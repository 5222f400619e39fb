"""Windowed: a metric for every tumbling window of event time, from which sliding windows and totals can be computed."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.convert import to_python_time
from ..batch.times import Latest
from ..collect.accumulator import accumulate, definition_of
from ..collect.task import Metrics
from ..count.reads import MEMORY_LIMIT, Read
from ..numerics.durations import format_duration, to_microseconds
from ..numerics.settings import check_integer, to_python_int
from ..numerics.slice_keys import from_stored_key as plain_time
from ..numerics.slice_keys import to_stored_key
from ..reading.interval import DEFAULT_CONFIDENCE, check_confidence
from ..reading.table import Table, values_table
from ..state.axes import EPOCHS, EXPIRED, Axis
from ..state.retention import apply_retention
from ..state.state import State
from .axis_wrapper import AxisDefinition, AxisWrapper, object_of_cells
from .cell_answers import REST, CellAnswers, Places
from .pooled_windows import cell_starts, newest_start

__all__ = ["Windowed", "WindowedDefinition"]

Ints = NDArray[np.int64]
ISO = re.compile(r"\d{4}-(0[1-9]|1[0-2])-\d\d([T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?(Z|\+00:00)?)?")
"""Matches a time or date in the format that tables print, such as "2024-05-01T09:00:00+00:00" or "2024-05-01"."""


class WindowAnswers(CellAnswers):
    """Values, intervals and tables of all windows. Tables mark the newest windows as provisional (see `mature_after`).

    Parameters
    ----------
    definition, states
        The same as for `CellAnswers`.
    now : int, optional
        The time from which the age of windows is measured; by default the end of the newest window.
    """

    def __init__(self, definition: Any, states: Sequence[State], now: int | None = None) -> None:
        super().__init__(definition, states)
        self._now = now

    def records_of(self, places: Places, confidence: float | None) -> list[dict[str, Any]]:
        definition = self.definition
        young, latest = definition.length(definition.mature_after, "mature_after="), newest_start(self.states)
        if not young or latest is None:
            return super().records_of(places, confidence)
        size = definition.axis.size
        # A window that starts at `last` or earlier is not provisional, because it ended at least `mature_after` ago.
        last = (latest + size if self._now is None else self._now) - young - size
        records = []
        for key, at in places.items():
            rows = super().records_of({key: at}, confidence)
            start = None if key == REST else definition.stamp(key[0])
            records += rows if start is None or start <= last else [self._provisional(r) for r in rows]
        return records

    def _provisional(self, record: dict[str, Any]) -> dict[str, Any]:
        mature_after = self.definition.mature_after
        age = (
            mature_after
            if isinstance(mature_after, (str, int))
            else format_duration(self.definition.length(mature_after, ""))
        )
        why = f"provisional: younger than {age}"
        return record | {"provisional": True, "reason": f"{record['reason']}; {why}" if record["reason"] else why}


class WindowedDefinition(AxisDefinition):
    """The definition of a metric by time window; see `Windowed`."""

    kind = "windowed"
    rest: ClassVar[str] = "(expired)"
    noun: ClassVar[str] = "window"
    max_time: Any = None
    mature_after: Any = None

    @property
    def name(self) -> str:
        of = f" {self.axis.names[0]}" if self.axis.kind == "step" else ""
        return f"{self.inner.name} per {width_of(self.axis)}{of}"

    def add_axis(self, read: Read) -> Read:
        latest = _time_limit(self.axis, self.max_time)
        with_axis = super().add_axis(read)
        return with_axis if latest is None else with_axis._replace(latest=((self.axis, latest), *with_axis.latest))

    def header(self) -> dict[str, Any]:
        axis = self.axis
        kept = {} if axis.keep is None else {"keep": axis.keep}
        about = {"time": axis.names[0], "width": width_of(axis)}
        return {"kind": "windowed", "inner": self.inner.header(), **about, **kept}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        axis = axis_of(header["time"], header["width"], header.get("keep"))
        return cls(cls.inner_of_header(header, states), axis)

    def read(self, states: Sequence[State]) -> WindowAnswers:
        return WindowAnswers(self, states)

    def find_places(self, states: Sequence[State]) -> Places:
        places = super().find_places(states)
        # Rows without a time are invalid and left out, so remove their key, (None,), which is not a window.
        places.pop((None,), None)
        return places

    def place_of(self, states: Sequence[State], key: Any) -> list[Ints] | None:
        stamp = self.stamp(key)
        return None if stamp is None else super().place_of(states, plain_time(EPOCHS[self.axis.kind], stamp))

    def stamp(self, time: Any) -> int | None:
        """Return a time as microseconds since 1970, or a step unchanged; None if the value is neither."""
        return _stamp(self.axis, time)

    def length(self, duration: Any, what: str) -> int:
        """Return a duration in microseconds or steps; 0 if it is None. `what` names the argument in error messages."""
        if duration is None:
            return 0
        if self.axis.kind == "epoch":
            return to_microseconds(duration, what)
        if type(duration) is not int or duration < 1:
            raise ValueError(f"{what} must be a positive whole number of steps, not {duration!r}")
        return duration


class Windowed(AxisWrapper):
    """A metric, a collection, or slices for every window of event time.

    Windows do not overlap. They begin at multiples of their width, counted from 1970 (UTC), or from 0 for steps. All
    machines therefore have the same windows, and the states of workers can be merged. `last` returns one object for
    the newest windows, and `lifetime` returns one for all rows.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, Windowed, or list or dict of metrics
        The metrics to compute in every window.
    width : str, timedelta or int
        A duration such as "15m", "1h" or "1d", for a column of timestamps or dates; or an integer in the unit of the
        column (such as steps), for a column of integers.
    time : str
        The column with the time of each row. Timestamps without a time zone are UTC. A scalar applies to the whole batch:
        ``update(y, p, step=17)``. A row without a time is invalid (see `on_invalid`).
    keep : int, optional
        The number of newest windows to keep, including windows without rows. Older windows expire: they are summed, and
        tables show their sum as one row. Late rows of expired windows are added to this sum, so `lifetime` includes them
        and the result does not depend on the order of rows. Inside slices, `keep` applies to each slice separately.
    max_time : timestamp, int or str, optional
        Rows with a later time are invalid. Set a limit if `keep` is set, because otherwise a single row from a clock
        that is far ahead expires all windows. Pass a time, or a duration such as "5m", which is added to the current
        time of this machine. States with different limits can be merged, and the limit is not saved.
    mature_after : str, timedelta or int, optional
        The age at which labels are complete, if labels such as conversions arrive late. Tables mark a window as
        provisional if some of its rows may be younger than this. The age is measured up to the end of the newest window
        (inside slices, of the newest window of each slice), or up to the argument `now` of `table`. This setting is not
        saved.
    memory_limit : int
        The maximum total size of all windows in bytes; exceeding it raises MemoryLimitError.
    on_invalid : {"raise", "drop"}
        Whether an invalid row raises an error, or is left out and reported. A row without a time belongs to no window.

    Raises
    ------
    MemoryLimitError
        If arrays of fixed size, such as confusion matrices, would exceed the limit once all `keep` windows contain
        rows.

    Notes
    -----
    A window takes as much memory as a slice (see `Sliced`). A year has 8,760 hourly windows; `keep` limits the number.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> hourly = sm.Windowed(sm.CTR(), width="1h", time="ts")
    >>> hours = ["2024-05-01T09:15", "2024-05-01T09:45", "2024-05-01T10:05"]
    >>> hourly.update(y_true=[0, 1, 1], ts=np.array(hours, "datetime64[s]")).table(confidence=None)
    ts                         metric     value  rows  positives
    2024-05-01T09:00:00+00:00  ctr     0.500000     2          1
    2024-05-01T10:00:00+00:00  ctr     1.000000     1          1
    >>> hourly.last(2).compute() == hourly.lifetime().compute()
    True
    >>> steps = sm.Windowed(sm.CTR(), width=100, time="step", keep=2)
    >>> for step in (7, 150, 250):
    ...     _ = steps.update([0, 1], step=step)
    >>> steps.compute(), steps.late
    ({100: 0.5, 200: 0.5}, 2)
    """

    def __init__(
        self,
        metric: Metrics,
        *,
        width: Any,
        time: str = "time",
        keep: int | None = None,
        max_time: Any = None,
        mature_after: Any = None,
        memory_limit: int = MEMORY_LIMIT,
        on_invalid: str | None = None,
    ) -> None:
        axis = axis_of(time, width, keep)
        _time_limit(axis, max_time)
        definition = WindowedDefinition.from_metrics(metric, axis, on_invalid, memory_limit)
        definition.length(mature_after, "mature_after=")
        self._accumulator = accumulate(definition.having(max_time=max_time, mature_after=mature_after))

    @property
    def time(self) -> str:
        """The column with the time of each row."""
        name: str = definition_of(self).axis.names[0]
        return name

    @property
    def width(self) -> str | int:
        """The width of a window: a duration such as "1h", or a number of steps."""
        return width_of(definition_of(self).axis)

    @property
    def keep(self) -> int | None:
        """The number of windows that are kept; None for all."""
        keep: int | None = definition_of(self).axis.keep
        return keep

    @property
    def max_time(self) -> Any:
        """The latest valid time, or the duration by which a time may exceed the current time; None for no limit."""
        return definition_of(self).max_time

    @property
    def mature_after(self) -> Any:
        """The age at which tables stop marking a window as provisional; None if they never mark windows."""
        return definition_of(self).mature_after

    def last(self, windows: int = 1, until: Any = None) -> Any:
        """Return one object for all rows of the newest windows, bit-for-bit equal to one that counted only these rows.

        Parameters
        ----------
        windows : int
            The number of windows, including windows without rows. Together they form a sliding window of ``windows``
            times the width.
        until : timestamp, str in the format of tables, or int, optional
            A time in the last window; by default a time in the newest window with rows.

        Raises
        ------
        ValueError
            Some of these windows have expired (see `keep`), so their rows can no longer be separated.
        """
        windows = check_integer("last()", windows, 1)
        definition, states = definition_of(self), self._accumulator.states
        width, latest = definition.axis.size, newest_start(states)
        stamp = latest if until is None else definition.stamp(until)
        if until is not None and stamp is None:
            raise ValueError(f"until= must be a time of the same type as the column {self.time}, not {until!r}")
        if latest is None or stamp is None:
            return object_of_cells(definition, [s.empty_copy(s.axes[1:]) for s in states])
        end = stamp // width * width
        begin = end - (windows - 1) * width
        if self.keep is not None and begin < (oldest := latest - (self.keep - 1) * width):
            begins_at = plain_time(EPOCHS[definition.axis.kind], oldest)
            raise ValueError(
                f"keep={self.keep}: windows before {begins_at} have already been summed and cannot be read one by one; "
                f"read only newer windows, or use a larger keep="
            )
        chosen = []
        for state in states:
            cells, begins = cell_starts(state)
            index = cells[(begins >= max(begin, -(1 << 63))) & (begins <= end)]
            chosen.append(apply_retention(state.select(index).rollup(*state.axes[1:])))
        return object_of_cells(definition, chosen)

    def lifetime(self) -> Any:
        """Return one object for all rows, even those in expired windows, bit-for-bit equal to one without windows."""
        return self.total

    @property
    def late(self) -> int:
        """The number of rows in expired windows (see `keep`).

        If there are several tasks, each may leave out different invalid rows. The result is then the maximum over the
        tasks.
        """
        states = self._accumulator.states
        return max(int(s.row_counts[s.cells.keys[:, 0] == EXPIRED].sum()) for s in states)

    def table(self, *, expired: bool = True, now: Any = None, confidence: float | None = DEFAULT_CONFIDENCE) -> Table:
        """Return a table with one row per window and metric, oldest first; a final row combines expired windows.

        Parameters
        ----------
        expired : bool
            Whether to include the row of expired windows.
        now : timestamp, str in the format of tables, or int, optional
            The time from which the age of windows is measured (see `mature_after`); by default the end of the newest
            window.
        confidence : float or None
            Confidence level of the intervals. If you pass one, the table prints every interval, or the reason why there is
            none. By default it prints only intervals that come from `Sharded`, because other intervals are too narrow
            if rows of one user are correlated. None omits intervals.
        """
        records = self.table_records(expired=expired, now=now, confidence=check_confidence(confidence))
        return values_table(definition_of(self).levels, records, confidence)

    def table_records(
        self, *, expired: bool = True, now: Any = None, top: int | None = None, confidence: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of `table` as dicts. The key "dropped" contains the number of invalid rows by reason.

        Parameters
        ----------
        expired, now, confidence
            The same as for `table`, but by default without intervals.
        top : int, optional
            The number of newest windows to return, in addition to the row of expired windows.
        """
        definition = definition_of(self)
        if now is not None and definition.stamp(now) is None:
            raise ValueError(f"now= must be a time of the same type as the column {self.time}, not {now!r}")
        answers = WindowAnswers(definition, self._accumulator.states, definition.stamp(now))
        places = definition.places(answers.states)
        rest = places.pop(REST, None)
        if top is not None:
            places = dict(list(places.items())[max(len(places) - top, 0) :])
        if expired and rest is not None:
            places[REST] = rest
        return answers.records_of(places, confidence)

    def __repr__(self) -> str:
        keep = f", keep={self.keep}" if self.keep is not None else ""
        return f"Windowed({', '.join(self.names)}; {self.time} by {self.width}{keep}): {self._summary('windows')}"


WindowedDefinition.public = Windowed


def width_of(axis: Axis) -> str | int:
    """Return the width of the windows of an axis: a duration such as "1h", or a number of steps."""
    return axis.size if axis.kind == "step" else format_duration(axis.size)


def axis_of(time: Any, width: Any, keep: Any, what: str = "width=") -> Axis:
    """Return the window axis with these settings; raise TypeError or ValueError if a setting is invalid.

    `what` names the argument `width` in error messages.
    """
    if not isinstance(time, str) or not time:
        raise TypeError(f"time= must be the name of a column, not {time!r}")
    # In numpy, timedelta64 is an integer type. Do not convert it to an integer, because it is a duration.
    width = width if isinstance(width, np.timedelta64) else to_python_int(width)
    keep = to_python_int(keep)
    if keep is not None and (type(keep) is not int or keep < 1):
        raise ValueError(f"keep= must be a positive whole number of windows, not {keep!r}")
    if type(width) is int:
        if not 0 < width < 1 << 62:
            raise ValueError(f"{what} must be a positive whole number of steps, not {width!r}")
        return Axis((time,), "step", width, keep=keep)
    return Axis((time,), "epoch", to_microseconds(width, what), keep=keep)


def _stamp(axis: Axis, time: Any) -> int | None:
    """Return a time as an integer: microseconds since 1970, or a step. None if the time does not fit the column."""
    if isinstance(time, str):
        time = _parse_printed_time(time) if axis.kind == "epoch" else None
    if isinstance(time, datetime.date) and time != time:  # the value is pandas.NaT, which is not equal to itself
        return None
    if isinstance(time, np.datetime64):
        time = to_python_time(time)
    if isinstance(time, datetime.date) and not isinstance(time, datetime.datetime):
        time = datetime.datetime(time.year, time.month, time.day, tzinfo=datetime.UTC)
    stored = None if time is None else to_stored_key(time)
    return None if stored is None or stored[0] != EPOCHS[axis.kind] else int(stored[1])


def _parse_printed_time(text: str) -> datetime.datetime | None:
    """Parse a time in the format of tables. Return None for other strings, and for invalid dates like February 30."""
    try:
        return datetime.datetime.fromisoformat(text) if ISO.fullmatch(text) else None
    except ValueError:
        # The string has the format of a time, but is not a valid date.
        return None


def _time_limit(axis: Axis, max_time: Any) -> Latest | None:
    """Convert `max_time` to a `Latest` object: a time, or a duration after the current time; None for no limit."""
    if max_time is None:
        return None
    if axis.kind == "epoch" and isinstance(max_time, (str, datetime.timedelta, np.timedelta64)):
        return Latest(ahead=to_microseconds(max_time, "max_time="))
    at = _stamp(axis, max_time)
    if at is None:
        kinds = (
            'a timestamp, or a duration after the current time, such as "5m"' if axis.kind == "epoch" else "an integer"
        )
        raise ValueError(f"max_time= must be {kinds}, not {max_time!r}")
    return Latest(at)
