"""Windowed: a metric for every window of event time: tumbling as counted, sliding as read, and the lifetime beside."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.convert import python_time
from ..batch.times import Latest
from ..collect.accumulator import accumulate, definition_of
from ..collect.task import Metrics
from ..count.reads import MEMORY_LIMIT, Read
from ..numerics.durations import duration_text, microseconds
from ..numerics.keys import plain as plain_time
from ..numerics.keys import raw
from ..numerics.settings import as_int, check_whole
from ..reading.interval import DEFAULT_CONFIDENCE, check_confidence
from ..reading.table import Table, values_table
from ..state.axes import EPOCHS, EXPIRED, Axis
from ..state.retention import settled
from ..state.state import State
from .axis_wrapper import AxisDefinition, AxisWrapper, object_of_cells
from .cell_answers import REST, CellAnswers, Places
from .pooled_windows import newest, starts

__all__ = ["Windowed", "WindowedDefinition"]

Ints = NDArray[np.int64]
ISO = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-\d\d([T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?(Z|\+00:00)?)?"
)  # as tables print times


class WindowAnswers(CellAnswers):
    """The answers of all windows; rows of young windows are marked as provisional.

    Parameters
    ----------
    definition, states
        As for `CellAnswers`.
    now : int, optional
        The time at which windows are mature or not; by default the end of the newest window.
    """

    def __init__(self, definition: Any, states: Sequence[State], now: int | None = None) -> None:
        super().__init__(definition, states)
        self._now = now

    def records_of(self, places: Places, confidence: float | None) -> list[dict[str, Any]]:
        definition = self.definition
        young, latest = definition.length(definition.mature_after, "mature_after="), newest(self.states)
        if not young or latest is None:
            return super().records_of(places, confidence)
        size = definition.axis.size
        # A window is mature if it begins until then.
        last = (latest + size if self._now is None else self._now) - young - size
        made = []
        for key, at in places.items():
            rows = super().records_of({key: at}, confidence)
            start = None if key == REST else definition.stamp(key[0])
            made += rows if start is None or start <= last else [self._provisional(r) for r in rows]
        return made

    def _provisional(self, record: dict[str, Any]) -> dict[str, Any]:
        given = self.definition.mature_after
        age = given if isinstance(given, (str, int)) else duration_text(self.definition.length(given, ""))
        why = f"provisional: younger than {age}"
        return record | {"provisional": True, "reason": f"{record['reason']}; {why}" if record["reason"] else why}


class WindowedDefinition(AxisDefinition):
    """The definition of windows."""

    kind = "windowed"
    rest: ClassVar[str] = "(expired)"
    noun: ClassVar[str] = "window"
    max_time: Any = None
    mature_after: Any = None

    @property
    def name(self) -> str:
        of = f" {self.axis.names[0]}" if self.axis.kind == "step" else ""
        return f"{self.inner.name} per {width_of(self.axis)}{of}"

    def in_front(self, read: Read) -> Read:
        latest = _latest(self.axis, self.max_time)
        made = super().in_front(read)
        return made if latest is None else made._replace(latest=((self.axis, latest), *made.latest))

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
        found = super().find_places(states)
        found.pop((None,), None)  # rows without a time, which were left out: they are in no window
        return found

    def place_of(self, states: Sequence[State], key: Any) -> list[Ints] | None:
        stamp = self.stamp(key)
        return None if stamp is None else super().place_of(states, plain_time(EPOCHS[self.axis.kind], stamp))

    def stamp(self, given: Any) -> int | None:
        """Return a time as columns contain it; None if it is none."""
        return _stamp(self.axis, given)

    def length(self, given: Any, what: str) -> int:
        """Return a duration in microseconds or steps."""
        if given is None:
            return 0
        if self.axis.kind == "epoch":
            return microseconds(given, what)
        if type(given) is not int or given < 1:
            raise ValueError(f"{what} takes a number of steps, not {given!r}")
        return given


class Windowed(AxisWrapper):
    """A metric, a collection, or slices, for every window of event time.

    Windows lie side by side, and begin at multiples of their width since 1970 (UTC), or since 0: the same everywhere, and
    so they merge. `last` reads the newest ones as one, `lifetime` everything ever.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, Windowed, or list or dict of metrics
        What to compute in every window.
    width : str, timedelta or int
        A duration such as "15m", "1h" or "1d", for a column of timestamps or dates; or an integer, for a column of
        integers in the same unit, such as steps.
    time : str
        The column that says when a row happened. Timestamps without a time zone are UTC. One time may stand for a whole
        batch: ``update(y, p, step=17)``. Rows without a time raise, or are left out and counted (see `on_invalid`).
    keep : int, optional
        Keep the newest windows, so many, whether or not there were rows in each. Older ones are added up, whatever the
        order in which rows come: rows that are late are not lost to `lifetime`. In slices it acts within each.
    max_time : timestamp, int or str, optional
        What is later is refused as a bad value, as the clock of a phone that is wrong would expire all windows that are
        right: a time; or a duration such as "5m", that long after the clock of this machine. No part of what it is, and
        not saved.
    mature_after : str, timedelta or int, optional
        Tables call windows provisional while some of their rows may be younger than this, as conversions come late: before
        the end of the newest window (in slices, of each), or before the `now` of `table`. Not saved.
    memory_limit : int
        Raise MemoryLimitError rather than take more bytes than this.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted, that without a time in no window.

    Raises
    ------
    MemoryLimitError
        What has the same size in every window is beyond the limit once all that are kept have rows.

    Notes
    -----
    A window costs what a slice does. Hourly ones of a year are 8,760: `keep` bounds them.

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
        _latest(axis, max_time)
        definition = WindowedDefinition.around(metric, axis, on_invalid, memory_limit)
        definition.length(mature_after, "mature_after=")
        self._accumulator = accumulate(definition.having(max_time=max_time, mature_after=mature_after))

    @property
    def time(self) -> str:
        """The column that says when a row happened."""
        name: str = definition_of(self).axis.names[0]
        return name

    @property
    def width(self) -> str | int:
        """The width of a window: a duration, or so many steps."""
        return width_of(definition_of(self).axis)

    @property
    def keep(self) -> int | None:
        """How many windows are kept; None for all."""
        keep: int | None = definition_of(self).axis.keep
        return keep

    @property
    def max_time(self) -> Any:
        """The latest time that is believed."""
        return definition_of(self).max_time

    @property
    def mature_after(self) -> Any:
        """How long the windows of a table are provisional."""
        return definition_of(self).mature_after

    def last(self, windows: int = 1, until: Any = None) -> Any:
        """Return what holds the rows of the newest windows: exactly what these alone would have made.

        Parameters
        ----------
        windows : int
            How many, whether or not there were rows in each: a window of ``windows`` times the width, that slides.
        until : timestamp, text as tables print times, or int, optional
            A time in the newest of them; by default the newest window that has rows.

        Raises
        ------
        ValueError
            They are no longer told apart: `keep` is less.
        """
        windows = check_whole("last()", windows, 1)
        definition, states = definition_of(self), self._accumulator.states
        width, latest = definition.axis.size, newest(states)
        asked = latest if until is None else definition.stamp(until)
        if until is not None and asked is None:
            raise ValueError(f"until= takes a time as {self.time} has it, not {until!r}")
        if latest is None or asked is None:
            return object_of_cells(definition, [s.empty(s.axes[1:]) for s in states])
        end = asked // width * width
        begin = end - (windows - 1) * width
        if self.keep is not None and begin < (oldest := latest - (self.keep - 1) * width):
            begins_at = plain_time(EPOCHS[definition.axis.kind], oldest)
            raise ValueError(f"keep={self.keep}: windows before {begins_at} are added up, and no longer told apart")
        chosen = []
        for state in states:
            held, begins = starts(state)
            index = held[(begins >= max(begin, -(1 << 63))) & (begins <= end)]
            chosen.append(settled(state.select(index).rollup(*state.axes[1:])))
        return object_of_cells(definition, chosen)

    def lifetime(self) -> Any:
        """Return the object of all rows, with those of windows that are not kept: what no windows would have made."""
        return self.total

    @property
    def late(self) -> int:
        """How many rows are in windows that are not kept: of several tasks, of that which has most."""
        states = self._accumulator.states
        return max(int(s.rows_seen[s.cells.keys[:, 0] == EXPIRED].sum()) for s in states)

    def table(self, *, expired: bool = True, now: Any = None, confidence: float | None = DEFAULT_CONFIDENCE) -> Table:
        """Return a row for every window and metric, the oldest first; what is not kept comes last, where there is any.

        Parameters
        ----------
        expired : bool
            Whether that is shown.
        now : timestamp, text as tables print times, or int, optional
            The time at which windows are mature, or not (see `mature_after`); by default the end of the newest window.
        confidence : float or None
            Confidence level of the intervals. If you pass one, the table prints every interval, or the reason why there is
            none. By default it prints only intervals that come from `Sharded`, because rows of one user are correlated.
            None omits intervals.
        """
        shown = self.shown(expired=expired, now=now, confidence=check_confidence(confidence))
        return values_table(definition_of(self).levels, shown, confidence)

    def shown(
        self, *, expired: bool = True, now: Any = None, top: int | None = None, confidence: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of `table`, each with the rows left out by reason ("dropped").

        Parameters
        ----------
        expired, now, confidence
            As for `table`; by default without intervals.
        top : int, optional
            Show so many windows, the newest, and what is not kept.
        """
        definition = definition_of(self)
        if now is not None and definition.stamp(now) is None:
            raise ValueError(f"now= takes a time as {self.time} has it, not {now!r}")
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
    """The width of a window: a duration, or so many steps."""
    return axis.size if axis.kind == "step" else duration_text(axis.size)


def axis_of(time: Any, width: Any, keep: Any, what: str = "width=") -> Axis:
    """The axis of some settings, which are checked."""
    if not isinstance(time, str) or not time:
        raise TypeError(f"time= takes the name of a column, not {time!r}")
    width = width if isinstance(width, np.timedelta64) else as_int(width)  # of which numpy thinks as an integer
    keep = as_int(keep)
    if keep is not None and (type(keep) is not int or keep < 1):
        raise ValueError(f"keep= takes a number of windows, not {keep!r}")
    if type(width) is int:
        if not 0 < width < 1 << 62:
            raise ValueError(f"{what} takes a number of steps, not {width!r}")
        return Axis((time,), "step", width, keep=keep)
    return Axis((time,), "epoch", microseconds(width, what), keep=keep)


def _stamp(axis: Axis, given: Any) -> int | None:
    """A time as columns of an axis hold it; None if it is none."""
    if isinstance(given, str):
        given = _printed(given) if axis.kind == "epoch" else None
    if isinstance(given, datetime.date) and given != given:  # the NaT of pandas
        return None
    if isinstance(given, np.datetime64):
        given = python_time(given)
    if isinstance(given, datetime.date) and not isinstance(given, datetime.datetime):
        given = datetime.datetime(given.year, given.month, given.day, tzinfo=datetime.UTC)
    held = None if given is None else raw(given)
    return None if held is None or held[0] != EPOCHS[axis.kind] else int(held[1])


def _printed(text: str) -> datetime.datetime | None:
    """The time of a text as tables print it; None if it is none, such as the 30th of February."""
    try:
        return datetime.datetime.fromisoformat(text) if ISO.fullmatch(text) else None
    except ValueError:  # its digits are of no day, or hour
        return None


def _latest(axis: Axis, max_time: Any) -> Latest | None:
    """The latest time that is believed."""
    if max_time is None:
        return None
    if axis.kind == "epoch" and isinstance(max_time, (str, datetime.timedelta, np.timedelta64)):
        return Latest(ahead=microseconds(max_time, "max_time="))
    at = _stamp(axis, max_time)
    if at is None:
        kinds = 'a timestamp, or how far after the clock: "5m"' if axis.kind == "epoch" else "an integer"
        raise ValueError(f"max_time= takes {kinds}, not {max_time!r}")
    return Latest(at)
