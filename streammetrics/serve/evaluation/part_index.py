"""Index the posted parts of each source: their hours, delays, conflicts and rows.

New parts are added to an existing index. A part "counts" if the total includes its rows. Parts in the states
"conflict", "refused" and "late" do not count; `StoredPart` explains these states.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, Self

import numpy as np

from ..part_keys import HOUR, PartKey, RowCounts

__all__ = ["IndexedPart", "PartIndex", "SourceIndex"]

COUNTED = ("current", "folded", "forgotten")


class IndexedPart(Protocol):
    """An entry in the list of all received parts (the ledger); see `StoredPart`."""

    @property
    def key(self) -> PartKey:
        """The key of the part."""

    @property
    def received_at(self) -> float:
        """The time at which the part was received, in seconds since 1970."""

    @property
    def state(self) -> str:
        """The state of the part, such as "current"; `StoredPart` explains the states."""

    @property
    def row_counts(self) -> RowCounts:
        """The number of counted rows and the number of dropped rows."""


class HourSet:
    """A set of hours, stored as sorted intervals of consecutive hours."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, hour: int) -> None:
        """Add an hour, and join intervals that now touch."""
        i = bisect_right(self._begins, hour)
        if i and hour < self._ends[i - 1]:
            return
        # `behind` is true if the hour directly follows an interval, and `before` if it directly precedes one.
        behind, before = i > 0 and self._ends[i - 1] == hour, self._begins[i : i + 1] == [hour + 1]
        if behind and before:
            self._ends[i - 1] = self._ends.pop(i)
            del self._begins[i]
        elif behind:
            self._ends[i - 1] = hour + 1
        elif before:
            self._begins[i] = hour
        else:
            self._begins.insert(i, hour)
            self._ends.insert(i, hour + 1)

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last hour, or None if the set is empty."""
        return (self._begins[0], self._ends[-1] - 1) if self._begins else None

    def find_missing(self, first: int, end: int) -> Iterator[int]:
        """Yield the hours from `first` up to `end` (exclusive) that are not in the set, latest first."""
        i = bisect_left(self._begins, end)
        while end > first:
            reached = max(first, self._ends[i - 1]) if i else first
            yield from range(end - 1, reached - 1, -1)
            end, i = (self._begins[i - 1], i - 1) if i else (first, 0)


class SourceIndex:
    """The hours and delays of one source's parts, and the numbers of its conflicts, rows and dropped rows."""

    def __init__(self) -> None:
        self.hours = HourSet()
        self.conflicts = self.rows = 0
        self.dropped: dict[str, int] = {}
        self.first_received_at = math.inf
        self._delays = array("d")  # for each part, the hours between the end of its hour and its arrival

    @property
    def parts(self) -> int:
        """The number of counted parts, including those whose data was deleted later."""
        return len(self._delays)

    def count_late(self, delay: float) -> int:
        """Return how many counted parts arrived more than `delay` hours after the end of their hour."""
        return int((np.frombuffer(self._delays) > delay).sum()) if self._delays else 0

    def add(self, entry: IndexedPart) -> None:
        """Add an entry of the ledger (the list of all received parts); it must belong to this source."""
        if entry.state in COUNTED:
            self.hours.add(entry.key.hour)
            self.first_received_at = min(self.first_received_at, entry.received_at)
            self._delays.append(entry.received_at / HOUR - entry.key.hour - 1)
            self.rows += entry.row_counts.rows
            for reason, count in json.loads(entry.row_counts.dropped).items():
                self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.conflicts += entry.state == "conflict"


class PartIndex:
    """The posted parts of an experiment, grouped by source.

    Examples
    --------
    >>> from streammetrics.serve.store import StoredPart
    >>> key = PartKey("checkout", "eu", 494529)
    >>> parts = StoredPart(1, key, "", 494530.5 * HOUR, "current"), StoredPart(2, key, "", 0.0, "conflict")
    >>> index = PartIndex().add(parts)
    >>> index.parts, index.span, index.sources["eu"].conflicts, index.sources["eu"].count_late(0.25)
    (1, (494529, 494529), 1, 1)
    """

    def __init__(self) -> None:
        self.sources: dict[str, SourceIndex] = {}

    def add(self, entries: Iterable[IndexedPart]) -> Self:
        """Add entries of the ledger (the list of all received parts), from any sources; return this object."""
        for entry in entries:
            self.sources.setdefault(entry.key.source, SourceIndex()).add(entry)
        return self

    def find_missing(self, ends: Mapping[str, int], first: int, end: int) -> set[int]:
        """Return the hours from `first` up to `end` (exclusive) for which at least one source in `ends` has no part.

        `ends` maps the name of each expected source to the hour from which it is no longer expected to post. If no
        source is expected, the result contains the hours that have no part at all.
        """
        if ends:
            sources = [(self.sources.get(name, SourceIndex()), min(end, own_end)) for name, own_end in ends.items()]
            return set[int]().union(*(index.hours.find_missing(first, own_end) for index, own_end in sources))
        return set(range(first, end)).intersection(
            *(index.hours.find_missing(first, end) for index in self.sources.values())
        )

    @property
    def parts(self) -> int:
        """The number of counted parts, including those whose data was deleted later."""
        return sum(source.parts for source in self.sources.values())

    @property
    def first_received_at(self) -> float:
        """The time, in seconds since 1970, at which the first counted part arrived; infinity if there is none."""
        return min((source.first_received_at for source in self.sources.values()), default=math.inf)

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last hour of the counted parts, or None if there are none."""
        spans = [span for source in self.sources.values() if (span := source.hours.span) is not None]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
