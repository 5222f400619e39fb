"""Merge the parts of every experiment.

All parts of an experiment are merged into its total. The parts of each hour and of each day are also merged into time
windows.
"""

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
from ..part_keys import HOUR, PostedPart
from ..store import Store, StoreDownError, StoreFullError
from .merge_parts import merge_parts, merge_parts_by_group
from .windows import ExperimentWindow, MovedError, Windows, retry_when_moved

__all__ = ["SAVE_INTERVAL", "SAVE_RATIO", "Totals"]

MAX_BYTES = 1 << 28
SAVE_INTERVAL, SAVE_RATIO = 60.0, 100
"""How often totals are saved, so that a restart needs to read only later parts.

The pause between two saves is at least SAVE_INTERVAL seconds, and at least SAVE_RATIO times the duration of a save.
"""


class _CachedTotal:
    """The total of one experiment in memory.

    `position` contains the number of the last part in the total, and the epoch, which increases when older parts
    change.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.position: tuple[int, int] | None = None
        self.metrics: Any = None
        self.size = 0
        self.digest: str | None = None
        self.saved_position: tuple[int, int] | None = None
        self.next_save = float("-inf")

    @property
    def part_number(self) -> int:
        """The number of the last part in the total."""
        return 0 if self.position is None else self.position[0]

    def replace(self, position: tuple[int, int], metrics: Any) -> None:
        self.position, self.metrics, self.digest = position, metrics, None
        self.size = 0 if metrics is None else nbytes(metrics)


class Totals:
    """The totals (merged parts) of experiments, cached in memory.

    The returned objects are shared, so callers must not change them. Every call first adds the parts that have arrived
    since the last call, at this server or another one. Each part is read only once and merged into the total, its hour
    and its day.

    Parameters
    ----------
    store : Store
        The store of the parts.
    max_bytes : int
        The memory limit for all totals together, in bytes. Merged hours and days may take up the same amount again.
    clock : callable
        Returns seconds from a monotonic clock.

    Examples
    --------
    >>> import os, tempfile
    >>> import streammetrics as sm
    >>> from streammetrics.serve.part_keys import PostedPart, parse_key
    >>> from streammetrics.serve.store import open_store
    >>> frame = sm.CTR().update([0, 1])
    >>> with tempfile.TemporaryDirectory() as folder, open_store(os.path.join(folder, "a.db")) as store:
    ...     put = store.put([PostedPart(parse_key("checkout", "eu", 494529), frame.to_bytes(), frame.digest(), 0.0)])
    ...     Totals(store).total("checkout").compute()
    0.5
    """

    def __init__(
        self, store: Store, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store, self.max_bytes, self._clock = store, max_bytes, clock
        self._windows = Windows(store, max_bytes)
        self._totals: OrderedDict[str, _CachedTotal] = OrderedDict()

    def set_time_zone(self, experiment: str, time_zone: str) -> None:
        """Set the time zone that defines the days of an experiment; the default is UTC."""
        self._windows.set_time_zone(experiment, time_zone)

    # -- reading ------------------------------------------------------------------------------------------------------

    def total(self, experiment: str) -> Any:
        """Return the total (the merged metrics of all parts that count), or None if there are no parts."""
        entry = self._find_entry(experiment)
        with entry.lock:
            self._refresh(experiment, entry)
        self._evict()
        return entry.metrics

    def digest(self, experiment: str) -> str:
        """Return the digest of the total, or an empty string if there are no parts."""
        entry = self._find_entry(experiment)
        with entry.lock:
            self._refresh(experiment, entry)
            if entry.digest is None and entry.metrics is not None:
                entry.digest = entry.metrics.digest()
            return entry.digest or ""

    def load_snapshot(self, experiment: str) -> tuple[Any, dict[int, ExperimentWindow], dict[int, ExperimentWindow]]:
        """Return the total of an experiment and its hourly and daily windows, all computed from the same parts.

        Raises
        ------
        MovedError
            A part that the total includes was replaced during the call. The caller should try again.
        """
        entry = self._find_entry(experiment)
        with entry.lock:
            self._refresh(experiment, entry)
            position, metrics = entry.position, entry.metrics
        self._evict()
        outline = self.store.outline(experiment)
        # The epoch (`position[1]`) increases when an older part changes. If the total and the outline have the same
        # epoch, they can differ only in newer parts at the end of the outline, which `limit_to` leaves out.
        if position is None or outline.position[1] != position[1]:
            raise MovedError(f"the parts of {experiment} were changed while they were read")
        outline = outline.limit_to(position[0])
        return metrics, self._windows.hours(experiment, outline), self._windows.days(experiment, outline)

    def windows(self, experiment: str) -> tuple[dict[int, ExperimentWindow], dict[int, ExperimentWindow]]:
        """Return the hourly and the daily windows, keyed by their first hour.

        If the store has already merged the parts of a day, the hours of that day are left out.
        """
        outline = self.store.outline(experiment)
        return self._windows.hours(experiment, outline), self._windows.days(experiment, outline)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def compact(self, experiment: str, *, now: float, correct_within_days: float = 3.0) -> int:
        """Merge parts by day once they can no longer be corrected; return the number of merged parts.

        Merging saves space without changing a single bit of the total or the days.

        Parameters
        ----------
        experiment : str
            The ID of the experiment.
        now : float
            The time, in seconds since 1970.
        correct_within_days : float
            A part is merged only after this number of days has passed, both since the end of its day and since it was
            received.
        """

        def merge_days() -> int:
            count, outline = 0, self.store.outline(experiment)
            for new in self._windows.merge_days(experiment, outline, now - correct_within_days * 24 * HOUR):
                if self.store.replace_parts(experiment, outline.position[1], new):
                    self._windows.forget_day(experiment, new.day, new.end)
                    count += len(new.part_numbers)
            return count

        # An earlier call may have been interrupted after it merged parts but before it deleted their frames.
        self.store.delete_obsolete_frames(experiment)
        return retry_when_moved(merge_days)

    def save(self, experiment: str) -> None:
        """Save the total of an experiment, so that a restart does not need to merge all parts again."""
        entry = self._find_entry(experiment)
        with entry.lock:
            self._save_entry(experiment, entry)

    def close(self) -> None:
        """Save all totals."""
        for experiment in list(self._totals):
            self.save(experiment)

    # -- cache --------------------------------------------------------------------------------------------------------

    def _find_entry(self, experiment: str) -> _CachedTotal:
        entry = self._totals.setdefault(experiment, _CachedTotal())
        self._totals.move_to_end(experiment)
        return entry

    def _evict(self) -> None:
        """Save and remove the least recently used totals until the rest fits in `max_bytes`; always keep one total."""
        while len(self._totals) > 1 and sum(entry.size for entry in list(self._totals.values())) > self.max_bytes:
            experiment, entry = self._totals.popitem(last=False)
            with entry.lock, suppress(StoreFullError, StoreDownError):
                self._save_entry(experiment, entry)

    def _refresh(self, experiment: str, entry: _CachedTotal) -> None:
        """Add new parts to the total; if an older part was replaced, recompute the total from the merged days."""
        if entry.position is None:
            saved = self.store.total(experiment)
            entry.replace(*((0, 0), None) if saved is None else (saved[0], from_bytes(saved[1])))
            entry.saved_position = None if saved is None else saved[0]
        # Stop at the part that is currently the last. Otherwise, the loop might never end if new parts keep arriving.
        last = self._add_page(experiment, entry)
        while entry.part_number < last:
            self._add_page(experiment, entry)
        if self._clock() >= entry.next_save:
            # Errors are ignored, because a saved total only makes a restart faster. The next call tries again.
            with suppress(StoreFullError, StoreDownError):
                self._save_entry(experiment, entry)

    def _add_page(self, experiment: str, entry: _CachedTotal) -> int:
        """Add the next new parts (at most 256) to the total, and return the number of the last part in the store."""
        (last, epoch), parts, is_complete = self.store.load_parts_since(experiment, entry.part_number)
        # If the epoch has changed, a part in the total may have been replaced or deleted. If frames are missing, the
        # store has merged new parts into their day before this server read them. Either way, recompute the total from
        # the days.
        if entry.position is None or epoch != entry.position[1] or not is_complete:
            entry.replace(*retry_when_moved(partial(self._rebuild, experiment)))
        elif parts:
            entry.replace((parts[-1][0], epoch), self._add_parts(experiment, entry.metrics, parts))
        else:
            entry.position = last, epoch
        return last

    def _add_parts(self, experiment: str, metrics: Any, parts: Sequence[tuple[int, PostedPart]]) -> Any:
        """Merge new parts into the total and into the windows of their hours and days; return the new total.

        `metrics` is the old total. Each item of `parts` consists of the number under which the store keeps a part, and
        the part itself.
        """
        by_hour = merge_parts_by_group([part.key.hour for _, part in parts], [part.data for _, part in parts])
        numbers: dict[int, list[int]] = {hour: [] for hour in by_hour}
        for number, part in parts:
            numbers[part.key.hour].append(number)
        added = self._windows.add_parts(experiment, {hour: (numbers[hour], one) for hour, one in by_hour.items()})
        return added if metrics is None else merge_parts([metrics, added])

    def _rebuild(self, experiment: str) -> tuple[tuple[int, int], Any]:
        outline = self.store.outline(experiment)
        days = self._windows.days(experiment, outline)
        return outline.position, merge_parts(day.load() for day in days.values()) if days else None

    def _save_entry(self, experiment: str, entry: _CachedTotal) -> None:
        if entry.position is None or entry.metrics is None or entry.position == entry.saved_position:
            return
        began = self._clock()
        try:
            self.store.save_total(experiment, entry.position, entry.metrics.to_bytes())
            entry.saved_position = entry.position
        finally:
            now = self._clock()
            entry.next_save = now + max(SAVE_INTERVAL, SAVE_RATIO * (now - began))
