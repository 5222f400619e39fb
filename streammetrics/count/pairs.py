"""Joint histograms while rows come: exact words, or numbers that wait to be put in buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..state import tally
from ..state.declare import Tally
from ..state.pair_levels import LOOKS, PairRows, add_rows
from ..state.state import State
from ..state.tally import Entries
from ..statistics.joint import JointHistogram
from .counter import Counter
from .page_allocator import grown
from .tallies import HotExact, weights_less_one, zeros_behind

__all__ = ["PairCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
U4, U8 = np.uint32, np.uint64

WAIT = 1 << 20  # rows that wait before they are put in buckets
AHEAD = 1 << 12  # rows for which there is room at once


class WaitingPairs:
    """Buckets of pairs, and rows that wait."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.x = self.y = self.weights = np.zeros(0)
        self.cells, self.used = np.zeros(0, U4), np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.entries.nbytes + sum(a.nbytes for a in (self.x, self.y, self.cells, self.weights))

    def target(self) -> tuple[Any, ...]:
        """Return the arrays that the kernel writes: numbers that wait, their cells and weights, and how many there are."""
        return self.x, self.y, self.cells, self.weights, self.used

    def room(self, rows: int, *, weighted: bool) -> None:
        """Make room for so many rows."""
        used = int(self.used[0])
        size = used + rows
        if size > len(self.x):
            size = max(2 * size, AHEAD)
            self.x, self.y, self.cells = (grown(a, used, size) for a in (self.x, self.y, self.cells))
        if (weighted or len(self.weights)) and len(self.weights) < len(self.x):
            new = np.ones(len(self.x)) if not len(self.weights) else grown(self.weights, used, len(self.x))
            self.weights = new

    def settled(self) -> Entries:
        """Return the buckets; no rows wait."""
        return self.entries

    def rows(self) -> PairRows:
        """Return the rows that wait."""
        n = int(self.used[0])
        excess = weights_less_one(self.weights[:n]) if len(self.weights) else None
        return PairRows(self.cells[:n].astype(np.int64), self.x[:n], self.y[:n], np.ones(n, U4), excess)


def _ordered(entries: Entries) -> Entries:
    """Bring entries of rows to canonical form: by the sort that exact rows have."""
    if entries.excess is not None:
        return tally.reduce(entries)
    hot = HotExact(entries.shift, lone=False)
    hot.high, hot.low = entries.high, entries.codes  # type: ignore[assignment]
    hot.used[0] = len(entries)
    return hot.settle()


class PairCounter(Counter):
    """A joint histogram that is being counted."""

    statistic: JointHistogram

    def _take(self, name: str, part: Tally, entries: Entries, cells: int) -> None:
        if name == "rows":
            self.hot[name] = WaitingPairs(entries)
            if not self._all_folded:
                self.folded = zeros_behind(self.folded, cells)
                self.folded[entries.cells] = 1
        else:
            super()._take(name, part, entries, cells)

    def held(self, part: Any) -> tuple[Any, ...]:
        if part.name != "rows":
            return super().held(part)
        self.given[part.name] = self._arrays(part.name)
        return self.hot["rows"].target()  # type: ignore[no-any-return]

    @property
    def left(self) -> int:
        if not self.lone:
            return 0
        pairs: WaitingPairs = self.hot["rows"]
        room = len(pairs.x) - int(pairs.used[0])
        if self._folded_alone:
            return room
        exact: HotExact = self.hot["exact"]
        return min(room, exact.left(self.statistic.most) // LOOKS)

    def room(self, rows: int, *, weighted: bool) -> bool:
        changed = super().room(rows, weighted=weighted)
        if int(self.hot["rows"].used[0]) + rows > max(WAIT, len(self.hot["rows"].entries)):
            self._settle_pairs()
        self.hot["rows"].room(rows, weighted=weighted)
        if self._moved:
            self.given = {}
            return True
        return changed

    def _room_in_tallies(self, rows: int, *, weighted: bool) -> None:
        exact = self.hot["exact"]
        if self._folded_alone:
            return
        if exact.full(rows * LOOKS):
            self._settle_folding()
        if not self._folded_alone:
            exact.room(rows * LOOKS, self.statistic.most, weighted=weighted)

    def _settle_pairs(self) -> None:
        """Put the rows that wait in buckets, at the levels that all rows so far need."""
        hot: WaitingPairs = self.hot["rows"]
        if not hot.used[0]:
            return
        entries, levels = add_rows(hot.entries, self._levels, hot.rows(), self.statistic.bits, _ordered)
        self._hold(entries, levels)

    def _hold(self, entries: Entries, levels: Ints, **others: Any) -> None:
        """Go on with these buckets, at these levels; all of it or, should this be interrupted, nothing."""
        exact = others.pop("exact", self.hot["exact"])
        hot = {"exact": exact, "rows": WaitingPairs(entries)}
        self.__dict__.update(hot=hot, flats=self.flats | {"level": levels}, **others)

    @property
    def _levels(self) -> Ints:
        held = self.flats.get("level")
        cells = max(self.index.count(self.inner), 1)
        return np.zeros((cells, LOOKS), np.int64) if held is None else held

    def _fold(self, many: NDArray[np.bool_]) -> None:
        self._settle_pairs()
        old, pairs = self.hot["exact"], self.hot["rows"]
        folded = zeros_behind(self.folded, len(many)).copy()
        folded[np.flatnonzero(many)] = 1
        entries = old.settle()
        apart = folded[entries.cells] != 0
        fine = HotExact(old.shift, lone=self.lone)
        fine.take(tally.canonical(entries.where(~apart)))
        made, found = self.statistic.bucketed(entries.where(apart))
        levels = zeros_behind(self._levels, len(found)).copy()
        levels[: len(found)] = np.maximum(levels[: len(found)], found)
        self._hold(tally.add(pairs.entries, made), levels, folded=folded, exact=fine)

    def state(self) -> State:
        self._settle_folding()
        self._settle_pairs()
        return super().state()

    def _check_limit(self, rows: int, limit: int) -> None:
        self._settle_pairs()
        super()._check_limit(rows, limit)
