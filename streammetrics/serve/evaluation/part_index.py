"""What was posted, by source: which hours are there, how late they came, what is in conflict; added to as parts come."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol, Self

import numpy as np

from ..store.part_keys import HOUR, PartKey, RowCounts

__all__ = ["IndexedPart", "OfSource", "Posted"]

COUNTED = ("current", "folded", "forgotten")


class IndexedPart(Protocol):
    """A part as the ledger has it; its state is "current", "folded", "forgotten", "conflict" or "refused"."""

    @property
    def key(self) -> PartKey:
        """What it is called."""

    @property
    def received(self) -> float:
        """When it came."""

    @property
    def state(self) -> str:
        """What became of it."""

    @property
    def seen(self) -> RowCounts:
        """The rows in it."""


class Hours:
    """A set of hours, as the few stretches that they make."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, hour: int) -> None:
        """Add one."""
        i = bisect_right(self._begins, hour)
        if i and hour < self._ends[i - 1]:
            return
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
        """The first and the last; None without any."""
        return (self._begins[0], self._ends[-1] - 1) if self._begins else None

    def lacking(self, first: int, end: int) -> Iterator[int]:
        """Yield the hours from `first` on, before `end`, that are not there; the last first."""
        i = bisect_left(self._begins, end)
        while end > first:
            reached = max(first, self._ends[i - 1]) if i else first
            yield from range(end - 1, reached - 1, -1)
            end, i = (self._begins[i - 1], i - 1) if i else (first, 0)


class OfSource:
    """What one source has posted."""

    def __init__(self) -> None:
        self.hours = Hours()
        self.conflicts = self.rows = 0
        self.dropped: dict[str, int] = {}
        self._after = array("d")  # hours from the end of the hour of a part until it came

    @property
    def parts(self) -> int:
        """How many count."""
        return len(self._after)

    def later_than(self, delay: float) -> int:
        """How many of those that count came so many hours after the end of theirs, or later."""
        return int((np.frombuffer(self._after) > delay).sum()) if self._after else 0

    def add(self, entry: IndexedPart) -> None:
        """Add one."""
        if entry.state in COUNTED:
            self.hours.add(entry.key.hour)
            self._after.append(entry.received / HOUR - entry.key.hour - 1)
            self.rows += entry.seen.rows
            for reason, count in json.loads(entry.seen.dropped).items():
                self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.conflicts += entry.state == "conflict"


class Posted:
    """What was posted, by source.

    Examples
    --------
    >>> from streammetrics.serve.store import StoredPart
    >>> key = PartKey("checkout", "eu", 494529)
    >>> parts = StoredPart(1, key, "", 494530.5 * HOUR, "current"), StoredPart(2, key, "", 0.0, "conflict")
    >>> posted = Posted().add(parts)
    >>> posted.parts, posted.span, posted.sources["eu"].conflicts, posted.sources["eu"].later_than(0.25)
    (1, (494529, 494529), 1, 1)
    """

    def __init__(self) -> None:
        self.sources: dict[str, OfSource] = {}

    def add(self, entries: Iterable[IndexedPart]) -> Self:
        """Add what has come."""
        for entry in entries:
            self.sources.setdefault(entry.key.source, OfSource()).add(entry)
        return self

    @property
    def parts(self) -> int:
        """How many parts count."""
        return sum(source.parts for source in self.sources.values())

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last hour of the parts that count; None without parts."""
        spans = [span for source in self.sources.values() if (span := source.hours.span) is not None]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
