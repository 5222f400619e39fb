"""Folds of hours and days, kept in memory as long as there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from ...collect.metric_like import nbytes
from ...collect.serialization import from_bytes
from ...errors import StateFormatError, StreamMetricsError
from ..store import Store
from ..store.parts import DAY, Outline, Settled, StoredPart
from .merge_parts import added_up

__all__ = ["ExperimentWindow", "MovedError", "Names", "Windows", "asked"]

IDLE = 4
"""Folds as they are may take this part of the room, and frames the rest: one takes a tenth, and 10 ms to read."""
Place = tuple[str, str, int]
"""Experiment, "hour" or "day", and where it begins."""
Names = frozenset[Hashable]


class WindowTotal(NamedTuple):
    """What was counted in a window, and what it is of."""

    names: Names
    made: Any


class Folds:
    """Folds by their place; those not asked for longest are packed, then forgotten.

    Parameters
    ----------
    room : int
        The most bytes that they may take, but for the last one.

    Examples
    --------
    >>> import streammetrics as sm
    >>> folds, place = Folds(1 << 20), ("checkout", "hour", 494529)
    >>> folds.hold(place, WindowTotal(frozenset([1]), sm.CTR().update([0, 1])))
    >>> folds.take(place).made.compute()
    0.5
    >>> folds.take(place) is None
    True
    """

    def __init__(self, room: int) -> None:
        self._ready, self._packed = _Kept(room // IDLE, least=1), _Kept(room - room // IDLE)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ready) + len(self._packed)

    def take(self, place: Place) -> WindowTotal | None:
        """Take a fold away, where it is kept."""
        with self._lock:
            packed, ready = self._packed.take(place), self._ready.take(place)
        return WindowTotal(packed.names, from_bytes(packed.made)) if packed and not ready else ready

    def hold(self, place: Place, fold: WindowTotal) -> None:
        """Keep a fold, in place of those not asked for longest."""
        with self._lock:
            idle = self._ready.hold(place, fold, nbytes(fold.made))
        for there, (names, made) in idle:
            packed = bytes(made.to_bytes())
            with self._lock:
                self._packed.hold(there, WindowTotal(names, packed), len(packed))


class _Kept:
    """Folds, and the bytes that they take: so many at most, unless a few take more."""

    def __init__(self, room: int, least: int = 0) -> None:
        self._room, self._least, self._size = room, least, 0
        self._folds: OrderedDict[Place, tuple[WindowTotal, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._folds)

    def take(self, place: Place) -> WindowTotal | None:
        fold, size = self._folds.pop(place, (None, 0))
        self._size -= size
        return fold

    def hold(self, place: Place, fold: WindowTotal, size: int) -> list[tuple[Place, WindowTotal]]:
        """Keep one; return those that have no room any more, the oldest first."""
        self.take(place)
        self._folds[place] = fold, size
        self._size += size
        gone = []
        while self._size > self._room and len(self._folds) > self._least:
            there, (old, freed) = self._folds.popitem(last=False)
            self._size -= freed
            gone.append((there, old))
        return gone


HOUR = 3600.0
TRIES = 5
TOGETHER = 256
"""Parts that are held at once: in bytes they take little, and while they are added up much."""
T = TypeVar("T")


class MovedError(StreamMetricsError):
    """A part was folded by somebody else between asking what there is and reading it."""


def asked(ask: Callable[[], T]) -> T:
    """Ask, and again where somebody else folds meanwhile: it may be that once, not always."""
    for _ in range(TRIES):
        with suppress(MovedError):
            return ask()
    return ask()


class ExperimentWindow(NamedTuple):
    """An hour or a day of an experiment.

    Parameters
    ----------
    names : frozenset
        What it is of: numbers of parts, and the digest of the fold of a day. The same names are the same content.
    made : callable
        Returns what was counted in it; raises MovedError where that is elsewhere now.
    """

    names: Names
    made: Callable[[], Any]

    @classmethod
    def of(cls, counted: Any) -> ExperimentWindow:
        """Return the window of metrics that are in memory already."""
        return cls(frozenset([counted.digest()]), lambda: counted)


class Windows:
    """Hours and days of experiments.

    A fold is made anew where what it is of has changed, and added to where something has come; a part never changes under
    its number.

    Parameters
    ----------
    store : Store
        Where parts are.
    room : int
        The most bytes that folds may take. Those of days as the store has them are not kept: it is one row to read.
    """

    def __init__(self, store: Store, room: int) -> None:
        self.store = store
        self._folds = Folds(room)
        self._busy: dict[str, threading.RLock] = {}

    def hours(self, experiment: str, outline: Outline) -> dict[int, ExperimentWindow]:
        """Every hour of the days that are not folded: of a day that is, late parts are no whole hour."""
        found: dict[int, list[int]] = {}
        for entry in outline.current:
            if day_of(entry) not in outline.days:
                found.setdefault(entry.key.hour, []).append(entry.number)
        return {hour: self._window((experiment, "hour", hour), frozenset(found[hour])) for hour in sorted(found)}

    def days(self, experiment: str, outline: Outline) -> dict[int, ExperimentWindow]:
        """Every day, by the hour that it begins with."""
        found: dict[int, set[Hashable]] = {day: {digest} for day, digest in outline.days.items()}
        for entry in outline.current:
            found.setdefault(day_of(entry), set()).add(entry.number)
        hours: dict[int, list[ExperimentWindow]] = {}
        for hour, window in self.hours(experiment, outline).items():
            hours.setdefault(hour // DAY * DAY, []).append(window)
        return {
            day: self._window((experiment, "day", day), frozenset(found[day]), hours.get(day, ()))
            for day in sorted(found)
        }

    def add(self, experiment: str, came: Mapping[int, tuple[Sequence[int], Any]]) -> Any:
        """Add what has come: of each hour the numbers of parts, and their sum; return the sum of it all."""
        with self._alone(experiment):
            for hour, (numbers, made) in came.items():
                self._add((experiment, "hour", hour), frozenset(numbers), made)
            days = []
            for day in sorted({hour // DAY * DAY for hour in came}):
                mine = [came[hour] for hour in came if hour // DAY * DAY == day]
                days.append(added_up([made for _, made in mine]))
                self._add((experiment, "day", day), frozenset(chain(*(numbers for numbers, _ in mine))), days[-1])
        return added_up(days)

    def _add(self, place: Place, names: Names, made: Any) -> None:
        known = self._folds.take(place)
        if known is not None and not known.names & names:
            known = WindowTotal(known.names | names, added_up([known.made, made]))
        self._folds.hold(place, known or WindowTotal(names, made))  # if it has them, somebody asked for it meanwhile

    def settled(self, experiment: str, outline: Outline, before: float) -> Iterator[Settled]:
        """Yield the folds of days that were over, of all parts of them that had been received, at a time."""
        due: dict[int, list[int]] = {}
        for entry in outline.current:
            if (day_of(entry) + DAY) * HOUR <= before and entry.received <= before:
                due.setdefault(day_of(entry), []).append(entry.number)
        for day in sorted(due):
            held = outline.days.get(day)
            made = self._made((experiment, "day", day), frozenset([*due[day], *([held] if held else [])]))
            new = Settled(day, held, due[day], made.digest(), made.to_bytes())
            if from_bytes(new.data).digest() != new.digest:  # the parts will be gone
                raise StateFormatError(f"the fold of day {day} of {experiment} does not come back as it was written")
            yield new

    def was_settled(self, experiment: str, day: int) -> None:
        """Forget the folds of a day that the store has now."""
        with self._alone(experiment):
            self._folds.take((experiment, "day", day))
            for hour in range(day, day + DAY):
                self._folds.take((experiment, "hour", hour))

    # -- folds --------------------------------------------------------------------------------------------------------

    def _window(self, place: Place, names: Names, whole: Sequence[ExperimentWindow] = ()) -> ExperimentWindow:
        return ExperimentWindow(names, partial(self._made, place, names, whole))

    def _made(self, place: Place, names: Names, whole: Sequence[ExperimentWindow] = ()) -> Any:
        """The fold that is of these; `whole` adds up to it, if it is all of it."""
        with self._alone(place[0]):
            known = self._folds.take(place)
            if known is not None and known.names == names:
                made = known.made
            elif known is not None and known.names < names:
                made = self._with(known.made, place, names - known.names)
            elif whole:
                made = added_up([window.made() for window in whole])
            else:
                made = self._with(None, place, names)
            if not all(isinstance(name, str) for name in names):
                self._folds.hold(place, WindowTotal(names, made))
        return made

    def _alone(self, experiment: str) -> threading.RLock:
        """Held while folds of an experiment are made, so that no two threads make the same."""
        return self._busy.setdefault(experiment, threading.RLock())

    def _with(self, made: Any, place: Place, names: Names) -> Any:
        """A fold, or nothing, and what there is under these names, of which some is held at a time."""
        count = 0
        for some in self._read(place, names):
            count += len(some)
            made = added_up([*([] if made is None else [made]), *some])
        if count != len(names):
            raise MovedError(f"parts of {place[0]} are not where the ledger says")
        return made

    def _read(self, place: Place, names: Names) -> Iterator[list[bytes]]:
        experiment, _, start = place
        for digest in names:
            if isinstance(digest, str) and (fold := self.store.fold(experiment, start, digest)) is not None:
                yield [fold]
        numbers = sorted(n for n in names if isinstance(n, int))
        for i in range(0, len(numbers), TOGETHER):
            if found := self.store.frames(experiment, numbers[i : i + TOGETHER]):
                yield found


def day_of(entry: StoredPart) -> int:
    """The hour with which the UTC day of a part begins."""
    return entry.key.hour // DAY * DAY
