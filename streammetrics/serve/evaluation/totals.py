"""The total of every experiment, added to as parts arrive, and its hours and days."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ...collect.metric_like import nbytes
from ...collect.serialization import from_bytes
from ..store import Store, StoreDownError, StoreFullError
from ..store.part_keys import HOUR, PostedPart
from .merge_parts import added_up, added_up_by
from .windows import ExperimentWindow, MovedError, Windows, asked

__all__ = ["Totals"]

ROOM = 1 << 28
KEEP, OFTEN = 60.0, 100
"""A total is kept, so that a start adds up only what came after it: at most once in so many seconds, and so many times as
long apart as it takes."""


class _Total:
    """The total of one experiment, and up to where it counts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at: tuple[int, int] | None = None
        self.made: Any = None
        self.size = 0
        self.digest: str | None = None
        self.kept: tuple[int, int] | None = None
        self.next_kept = float("-inf")

    @property
    def number(self) -> int:
        """Of the last part in it."""
        return 0 if self.at is None else self.at[0]

    def take(self, at: tuple[int, int], made: Any) -> None:
        self.at, self.made, self.digest = at, made, None
        self.size = 0 if made is None else nbytes(made)


class Totals:
    """What the parts of experiments add up to, whoever put them into the store.

    What is returned is not to be changed: others read it too. Every call looks first whether something has come, whoever
    put it there: each part is read once, for the total as for its hour and its day.

    Parameters
    ----------
    store : Store
        Where parts are.
    room : int
        The most bytes that totals may take in memory, and as many for folds of hours and days.
    clock : callable
        Seconds, never going back.

    Examples
    --------
    >>> import os, tempfile
    >>> import streammetrics as sm
    >>> from streammetrics.serve.store.part_keys import PostedPart, key_of
    >>> from streammetrics.serve.store import open_store
    >>> frame = sm.CTR().update([0, 1])
    >>> with tempfile.TemporaryDirectory() as folder, open_store(os.path.join(folder, "a.db")) as store:
    ...     put = store.put([PostedPart(key_of("checkout", "eu", 494529), frame.to_bytes(), frame.digest(), 0.0)])
    ...     Totals(store).total("checkout").compute()
    0.5
    """

    def __init__(self, store: Store, *, room: int = ROOM, clock: Callable[[], float] = time.monotonic) -> None:
        self.store, self.room, self._clock = store, room, clock
        self._windows = Windows(store, room)
        self._totals: OrderedDict[str, _Total] = OrderedDict()

    # -- what is asked ------------------------------------------------------------------------------------------------

    def total(self, experiment: str) -> Any:
        """The total; None where there is nothing yet."""
        held = self._held(experiment)
        with held.lock:
            self._refresh(experiment, held)
        self._make_room()
        return held.made

    def digest(self, experiment: str) -> str:
        """The digest of the total; empty where there is nothing yet."""
        held = self._held(experiment)
        with held.lock:
            self._refresh(experiment, held)
            if held.digest is None and held.made is not None:
                held.digest = held.made.digest()
            return held.digest or ""

    def whole(self, experiment: str) -> tuple[Any, dict[int, ExperimentWindow], dict[int, ExperimentWindow]]:
        """The total, and the windows of the parts that are in it, without those that came meanwhile.

        Raises
        ------
        MovedError
            What counts was changed meanwhile.
        """
        held = self._held(experiment)
        with held.lock:
            self._refresh(experiment, held)
            at, made = held.at, held.made
        self._make_room()
        outline = self.store.outline(experiment)
        if at is None or outline.at[1] != at[1]:
            raise MovedError(f"what counts of {experiment} was changed while it was read")
        outline = outline.until(at[0])
        return made, self._windows.hours(experiment, outline), self._windows.days(experiment, outline)

    def windows(self, experiment: str) -> tuple[dict[int, ExperimentWindow], dict[int, ExperimentWindow]]:
        """What counts of each hour, of days whose parts are kept, and of each day (UTC), by its first hour."""
        outline = self.store.outline(experiment)
        return self._windows.hours(experiment, outline), self._windows.days(experiment, outline)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def compact(self, experiment: str, *, now: float, correct_within_days: float = 3.0) -> int:
        """Fold parts into days where all is older than may be corrected; return how many parts that were.

        The total and the days stay as they are, to the last bit.

        Parameters
        ----------
        experiment : str
            Which one.
        now : float
            Seconds since 1970.
        correct_within_days : float
            How long parts are kept after the end of their day, and after they were received.
        """

        def fold() -> int:
            count, outline = 0, self.store.outline(experiment)
            for new in self._windows.settled(experiment, outline, now - correct_within_days * 24 * HOUR):
                if self.store.compact(experiment, outline.at[1], new):
                    self._windows.was_settled(experiment, new.day)
                    count += len(new.numbers)
            return count

        self.store.sweep(experiment)  # where the last time was interrupted
        return asked(fold)

    def keep(self, experiment: str) -> None:
        """Keep the total as it is, so that the next start need not add it up."""
        held = self._held(experiment)
        with held.lock:
            self._keep(experiment, held)

    def close(self) -> None:
        """Keep all totals."""
        for experiment in list(self._totals):
            self.keep(experiment)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _held(self, experiment: str) -> _Total:
        held = self._totals.setdefault(experiment, _Total())
        self._totals.move_to_end(experiment)
        return held

    def _make_room(self) -> None:
        """Forget totals not asked for longest: they are kept, and what came since is added up when they are asked for."""
        while len(self._totals) > 1 and sum(held.size for held in list(self._totals.values())) > self.room:
            experiment, held = self._totals.popitem(last=False)
            with held.lock, suppress(StoreFullError, StoreDownError):
                self._keep(experiment, held)

    def _refresh(self, experiment: str, held: _Total) -> None:
        """Add what has come; add up anew where what was counted has changed."""
        if held.at is None:
            kept = self.store.total(experiment)
            held.take(*((0, 0), None) if kept is None else (kept[0], from_bytes(kept[1])))
            held.kept = None if kept is None else kept[0]
        until = self._read_on(experiment, held)
        while held.number < until:  # what comes meanwhile is for the next time: else it may go on for ever
            self._read_on(experiment, held)
        if self._clock() >= held.next_kept:
            with suppress(StoreFullError, StoreDownError):  # it is a help, no more: it is tried again
                self._keep(experiment, held)

    def _read_on(self, experiment: str, held: _Total) -> int:
        """Add some of what has come; return up to where there is something."""
        (last, epoch), parts, whole = self.store.since(experiment, held.number)
        if held.at is None or epoch != held.at[1] or not whole:
            held.take(*asked(partial(self._anew, experiment)))
        elif parts:
            held.take((parts[-1][0], epoch), self._with(experiment, held.made, parts))
        else:
            held.at = last, epoch
        return last

    def _with(self, experiment: str, made: Any, parts: Sequence[tuple[int, PostedPart]]) -> Any:
        """The total with some parts; their hours and days have them, too."""
        came = added_up_by([part.key.hour for _, part in parts], [part.data for _, part in parts])
        numbers: dict[int, list[int]] = {hour: [] for hour in came}
        for number, part in parts:
            numbers[part.key.hour].append(number)
        more = self._windows.add(experiment, {hour: (numbers[hour], one) for hour, one in came.items()})
        return more if made is None else added_up([made, more])

    def _anew(self, experiment: str) -> tuple[tuple[int, int], Any]:
        outline = self.store.outline(experiment)
        days = self._windows.days(experiment, outline)
        return outline.at, added_up(day.made() for day in days.values()) if days else None

    def _keep(self, experiment: str, held: _Total) -> None:
        if held.at is None or held.made is None or held.at == held.kept:
            return
        began = self._clock()
        try:
            self.store.keep_total(experiment, held.at, held.made.to_bytes())
            held.kept = held.at
        finally:
            now = self._clock()
            held.next_kept = now + max(KEEP, OFTEN * (now - began))
