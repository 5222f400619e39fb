"""Load the windows of experiments (the merged metrics of an hour or a day) through a cache of limited size."""

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
from ..calendar_days import find_day, find_next_day
from ..store import Store
from ..store.parts import MergedDay, PartOutline
from .merge_parts import merge_parts

__all__ = ["ExperimentWindow", "MovedError", "PartIds", "Windows", "retry_when_moved"]

READY_FRACTION = 4
"""Metric objects get 1 / READY_FRACTION of the cache, and frames (serialized metric objects) get the rest.

A frame takes up a tenth of the memory of its object, but reading it takes 10 ms.
"""
WindowKey = tuple[str, str, int]
"""The key of a window: the ID of the experiment, the length of the window ("hour" or "day"), and its first hour."""
PartIds = frozenset[Hashable]


class WindowTotal(NamedTuple):
    """The merged metrics of a window (an hour or a day), and the IDs of the parts that were merged."""

    part_ids: PartIds
    metrics: Any


class MergeCache:
    """A cache of merged windows (the metrics of an hour or a day of an experiment).

    The least recently used windows are serialized to save memory, and later removed.

    Parameters
    ----------
    max_bytes : int
        The maximum size of the cache, in bytes. The window that was added last is kept even if it is larger.

    Examples
    --------
    >>> import streammetrics as sm
    >>> cache, key = MergeCache(1 << 20), ("checkout", "hour", 494529)
    >>> cache.put(key, WindowTotal(frozenset([1]), sm.CTR().update([0, 1])))
    >>> cache.pop(key).metrics.compute()
    0.5
    >>> cache.pop(key) is None
    True
    """

    def __init__(self, max_bytes: int) -> None:
        self._ready, self._packed = (
            _LruCache(max_bytes // READY_FRACTION, min_entries=1),
            _LruCache(max_bytes - max_bytes // READY_FRACTION),
        )
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ready) + len(self._packed)

    def pop(self, key: WindowKey) -> WindowTotal | None:
        """Remove and return a window; return None if it is not in the cache."""
        with self._lock:
            packed, ready = self._packed.pop(key), self._ready.pop(key)
        return WindowTotal(packed.part_ids, from_bytes(packed.metrics)) if packed and not ready else ready

    def put(self, key: WindowKey, total: WindowTotal) -> None:
        """Add a window. If the cache is full, serialize or remove the least recently used windows."""
        # Serialize without holding the lock, because serialization is slow. If another thread needs an evicted window
        # in the meantime, it does not find the window in the cache and recomputes it, which is harmless.
        with self._lock:
            evicted = self._ready.put(key, total, nbytes(total.metrics))
        for evicted_key, (part_ids, metrics) in evicted:
            packed = bytes(metrics.to_bytes())
            with self._lock:
                self._packed.put(evicted_key, WindowTotal(part_ids, packed), len(packed))


class _LruCache:
    """A size-limited cache that removes the least recently used windows first.

    Windows are removed while the total size exceeds `max_bytes`, but at least `min_entries` windows are always kept.
    """

    def __init__(self, max_bytes: int, min_entries: int = 0) -> None:
        self._max_bytes, self._min_entries, self._size = max_bytes, min_entries, 0
        self._entries: OrderedDict[WindowKey, tuple[WindowTotal, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def pop(self, key: WindowKey) -> WindowTotal | None:
        total, size = self._entries.pop(key, (None, 0))
        self._size -= size
        return total

    def put(self, key: WindowKey, total: WindowTotal, size: int) -> list[tuple[WindowKey, WindowTotal]]:
        """Add a window. Return the windows that were removed to make room, least recently used first."""
        self.pop(key)
        self._entries[key] = total, size
        self._size += size
        evicted = []
        while self._size > self._max_bytes and len(self._entries) > self._min_entries:
            old_key, (old, old_size) = self._entries.popitem(last=False)
            self._size -= old_size
            evicted.append((old_key, old))
        return evicted


HOUR = 3600.0
MAX_TRIES = 5
READ_BATCH = 256
"""The number of frames (serialized parts) that are read and merged together.

Frames are small, but merging them takes a lot of memory.
"""
T = TypeVar("T")


class MovedError(StreamMetricsError):
    """Raised if another thread or server merged or replaced a part during a read. The read should be repeated."""


def retry_when_moved(read: Callable[[], T]) -> T:
    """Call `read` and return its result. If it raises MovedError, call it again.

    Parts are rarely merged or replaced, so a few tries are enough.
    """
    for _ in range(MAX_TRIES):
        with suppress(MovedError):
            return read()
    return read()


class ExperimentWindow(NamedTuple):
    """A window of an experiment: an hour or a day, whose merged metrics are loaded on demand.

    Parameters
    ----------
    part_ids : frozenset
        The IDs of the window's parts. The ID of a part is its number; the ID of a merged day is its digest. Equal IDs
        mean equal content.
    load : callable
        Returns the merged metrics; raises MovedError if the parts are no longer stored.
    """

    part_ids: PartIds
    load: Callable[[], Any]

    @classmethod
    def from_metrics(cls, counted: Any) -> ExperimentWindow:
        """Return a window with metrics that are already in memory."""
        return cls(frozenset([counted.digest()]), lambda: counted)


class Windows:
    """The hours and days of experiments, as windows whose merged metrics are cached.

    A part never changes after it is stored, so a cached window is valid as long as its part IDs are the same. If there
    are new part IDs, only the new parts are added to the window. If a part ID has disappeared, the window is
    recomputed.

    Parameters
    ----------
    store : Store
        The store of the parts.
    max_bytes : int
        The maximum size of the cache, in bytes. Days that the store has merged completely are not cached, because they
        are fast to read.
    """

    def __init__(self, store: Store, max_bytes: int) -> None:
        self.store = store
        self._cache = MergeCache(max_bytes)
        self._locks: dict[str, threading.RLock] = {}
        self._time_zones: dict[str, str] = {}

    def set_time_zone(self, experiment: str, time_zone: str) -> None:
        """Set the time zone that defines the days of an experiment. The default is UTC.

        Windows that were cached for days in another time zone do no harm, because their part IDs differ.
        """
        self._time_zones[experiment] = time_zone

    def _find_day(self, experiment: str, hour: int) -> int:
        return find_day(hour, self._time_zones.get(experiment, "UTC"))

    def hours(self, experiment: str, outline: PartOutline) -> dict[int, ExperimentWindow]:
        """Return the hourly windows, keyed by hour, for all days whose parts the store has not merged yet.

        Merged days are left out. Their parts are no longer stored individually, so the metrics of their hours cannot be
        computed.
        """
        numbers: dict[int, list[int]] = {}
        for entry in outline.current_parts:
            if self._find_day(experiment, entry.key.hour) not in outline.day_digests:
                numbers.setdefault(entry.key.hour, []).append(entry.number)
        return {
            hour: self._build_window((experiment, "hour", hour), frozenset(numbers[hour])) for hour in sorted(numbers)
        }

    def days(self, experiment: str, outline: PartOutline) -> dict[int, ExperimentWindow]:
        """Return the daily windows, keyed by first hour, including the days that the store has already merged."""
        part_ids: dict[int, set[Hashable]] = {day: {digest} for day, digest in outline.day_digests.items()}
        for entry in outline.current_parts:
            part_ids.setdefault(self._find_day(experiment, entry.key.hour), set()).add(entry.number)
        hours: dict[int, list[ExperimentWindow]] = {}
        for hour, window in self.hours(experiment, outline).items():
            hours.setdefault(self._find_day(experiment, hour), []).append(window)
        return {
            day: self._build_window((experiment, "day", day), frozenset(part_ids[day]), hours.get(day, ()))
            for day in sorted(part_ids)
        }

    def add_parts(self, experiment: str, hour_totals: Mapping[int, tuple[Sequence[int], Any]]) -> Any:
        """Add new parts to the cached hours and days, and return the merged metrics of all new parts.

        `hour_totals` maps each hour to the numbers of its new parts and their merged metrics.
        """
        with self._lock_of(experiment):
            for hour, (numbers, metrics) in hour_totals.items():
                self._add_to_window((experiment, "hour", hour), frozenset(numbers), metrics)
            days, by_day = [], dict[int, list[tuple[Sequence[int], Any]]]()
            for hour, hour_total in hour_totals.items():
                by_day.setdefault(self._find_day(experiment, hour), []).append(hour_total)
            for day, day_totals in sorted(by_day.items()):
                days.append(merge_parts([metrics for _, metrics in day_totals]))
                self._add_to_window(
                    (experiment, "day", day), frozenset(chain(*(numbers for numbers, _ in day_totals))), days[-1]
                )
        return merge_parts(days)

    def _add_to_window(self, key: WindowKey, part_ids: PartIds, metrics: Any) -> None:
        cached = self._cache.pop(key)
        if cached is not None and not cached.part_ids & part_ids:
            cached = WindowTotal(cached.part_ids | part_ids, merge_parts([cached.metrics, metrics]))
        # If the cached window already includes these parts, another thread has added them, so do not add them twice.
        self._cache.put(key, cached or WindowTotal(part_ids, metrics))

    def merge_days(self, experiment: str, outline: PartOutline, before: float) -> Iterator[MergedDay]:
        """Yield each day that ended by the time `before`, merged from the parts received by then.

        `before` is in seconds since 1970. Days without new parts are left out. If the store has already merged a day,
        the new parts are added to it.
        """
        time_zone = self._time_zones.get(experiment, "UTC")
        due: dict[tuple[int, int], list[int]] = {}
        for entry in outline.current_parts:
            day, end = (find(entry.key.hour, time_zone) for find in (find_day, find_next_day))
            if end * HOUR <= before and entry.received_at <= before:
                due.setdefault((day, end), []).append(entry.number)
        for (day, end), numbers in sorted(due.items()):
            previous_digest = outline.day_digests.get(day)
            metrics = self._load_window(
                (experiment, "day", day), frozenset([*numbers, *([previous_digest] if previous_digest else [])])
            )
            merged = MergedDay(day, end, previous_digest, numbers, metrics.digest(), metrics.to_bytes())
            # The caller deletes the parts after the merge. Check first that the merged day can be read back unchanged.
            if from_bytes(merged.data).digest() != merged.digest:
                raise StateFormatError(
                    f"the state is corrupt: the merged day {day} of {experiment} "
                    f"changes when it is written and read back"
                )
            yield merged

    def forget_day(self, experiment: str, day: int, end: int) -> None:
        """Remove a day and its hours from the cache, as required after the store has merged the day."""
        with self._lock_of(experiment):
            self._cache.pop((experiment, "day", day))
            for hour in range(day, end):
                self._cache.pop((experiment, "hour", hour))

    # -- cache --------------------------------------------------------------------------------------------------------

    def _build_window(
        self, key: WindowKey, part_ids: PartIds, hours: Sequence[ExperimentWindow] = ()
    ) -> ExperimentWindow:
        return ExperimentWindow(part_ids, partial(self._load_window, key, part_ids, hours))

    def _load_window(self, key: WindowKey, part_ids: PartIds, hours: Sequence[ExperimentWindow] = ()) -> Any:
        """Return the merged metrics of the parts with the given IDs, from the cache if possible.

        If the window is not cached, the windows in `hours` are merged. If `hours` is empty, the parts are read from the
        store.
        """
        with self._lock_of(key[0]):
            cached = self._cache.pop(key)
            if cached is not None and cached.part_ids == part_ids:
                metrics = cached.metrics
            elif cached is not None and cached.part_ids < part_ids:
                metrics = self._add_stored_parts(cached.metrics, key, part_ids - cached.part_ids)
            elif hours:
                metrics = merge_parts([window.load() for window in hours])
            else:
                metrics = self._add_stored_parts(None, key, part_ids)
            if not all(isinstance(name, str) for name in part_ids):
                self._cache.put(key, WindowTotal(part_ids, metrics))
        return metrics

    def _lock_of(self, experiment: str) -> threading.RLock:
        """Return the lock of an experiment. It prevents two threads from computing the same window at the same time."""
        return self._locks.setdefault(experiment, threading.RLock())

    def _add_stored_parts(self, metrics: Any, key: WindowKey, part_ids: PartIds) -> Any:
        """Read the parts with the given IDs from the store in batches, and return `metrics` with these parts added.

        `metrics` is None if no parts have been merged yet. `key` identifies the window.
        """
        count = 0
        for frames in self._read_frames(key, part_ids):
            count += len(frames)
            metrics = merge_parts([*([] if metrics is None else [metrics]), *frames])
        if count != len(part_ids):
            raise MovedError(f"some parts of {key[0]} are no longer stored")
        return metrics

    def _read_frames(self, key: WindowKey, part_ids: PartIds) -> Iterator[list[bytes]]:
        experiment, _, start = key
        for digest in part_ids:
            if isinstance(digest, str) and (frame := self.store.load_merged_day(experiment, start, digest)) is not None:
                yield [frame]
        numbers = sorted(n for n in part_ids if isinstance(n, int))
        for i in range(0, len(numbers), READ_BATCH):
            if frames := self.store.frames(experiment, numbers[i : i + READ_BATCH]):
                yield frames
