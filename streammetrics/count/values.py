"""Histograms of values while rows come: in a window of counters of a lone cell, or waiting to be sorted.

While rows come, levels follow from the rows so far, so they are never higher than in the finished state.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..numerics.exact import carry_fixed
from ..state import tally
from ..state.declare import Tally
from ..state.levels import ZERO, bucket_of, fitted, grid_level, near_edges, raised, starts_of
from ..state.state import State
from ..state.tally import Entries
from ..statistics.values import ValueHistogram
from .counter import Counter
from .page_allocator import grown
from .tallies import HotExact

__all__ = ["ValueCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
U4, U8 = np.uint32, np.uint64

FEWEST = 1 << 10  # rows after which there is a window, and rows of a batch that are looked at for it
FEW, MANY = 1 << 18, 1 << 22  # entries of all cells, beyond which their levels are found while rows come
FEW_NUMBERS = 512  # different numbers of an exact cell, which have a counter each
KNOWN, SLOT_BITS = 2, 12  # as kernels have it
SLOTS = 1 << SLOT_BITS
MULTIPLIERS = [(0x9E3779B97F4A7C15 * (2 * k + 1)) % (1 << 64) for k in range(8)]
NOT_A_NUMBER = np.int64(-1)
WINDOWS = 64  # outputs that have windows
WAIT = 1 << 16  # rows outside the window for which there is room
MOST = 1 << 17  # counters of a window
MOST_OF_ALL = 1 << 20  # counters of the windows of all outputs
NO_INTS = np.zeros(0, np.int64)


class HotValues(HotExact):
    """A histogram of values that is being counted."""

    windows = NO_INTS
    known = NO_INTS
    counters = NO_INTS
    window_excess = NO_INTS

    def __init__(self, statistic: ValueHistogram, entries: Entries, levels: Ints, *, lone: bool) -> None:
        self.statistic, self.levels = statistic, levels
        super().__init__(type(statistic).rows.shift(statistic), lone=lone)
        self.take(entries)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.counters.nbytes + self.window_excess.nbytes

    def open_windows(self, known: Entries) -> None:
        """Make room for a counter for each bucket around these entries."""
        outputs, bits = self.statistic.outputs, self.statistic.bits
        if not len(known) or outputs > WINDOWS:
            return
        windows = np.zeros((outputs, 6), np.int64)
        known_numbers = np.full((outputs, SLOTS), NOT_A_NUMBER)
        starts = starts_of(known, outputs, outputs).tolist()
        for i, (begin, end) in enumerate(pairwise(starts)):
            entries, level = known.where(slice(begin, end)), int(self.levels[i])
            if not level and 0 < len(entries) <= FEW_NUMBERS:
                windows[i, 1:3] = KNOWN, _place_known(near_edges(entries.codes, 0, bits), known_numbers[i])
            else:
                windows[i] = _window(entries, level, bits, min(MOST, MOST_OF_ALL // outputs))
        by_hash = windows[:, 1] == KNOWN
        room = int(np.where(by_hash, SLOTS, 1 + windows[:, [3, 5]].sum(axis=1)).max())
        self.windows, self.counters = windows.reshape(-1), np.zeros(outputs * room, np.int64)
        self.known = known_numbers.reshape(-1) if by_hash.any() else NO_INTS

    def room(self, rows: int, most: int | None, *, weighted: bool) -> None:
        used = int(self.used[0])
        if used + rows > len(self.low):
            size = used + rows if len(self.windows) else 2 * (used + rows)
            self.low = grown(self.low, used, size)
            self.high = self.high if self.bare else grown(self.high, used, size)
        if (weighted or len(self.weights)) and len(self.weights) < len(self.low):
            ones = self.weights if len(self.weights) else np.ones(used)
            self.weights = grown(ones, used, len(self.low))
        if (weighted or len(self.weights)) and len(self.counters) and not len(self.window_excess):
            self.window_excess = np.zeros(2 * len(self.counters), np.int64)

    def target(self) -> tuple[Any, ...]:
        """Return the arrays that the kernel reads and writes: windows, counters, the excess of weights, and what waits."""
        return self.windows, self.known, self.counters, self.window_excess, self.high, self.low, self.weights, self.used

    def settle(self) -> Entries:
        entries = super().settle()
        counted = [e for e in (self._in_window(i) for i in range(len(self.windows) // 6)) if len(e)]
        return tally.united([entries, *counted]) if counted else entries

    def _in_window(self, output: int) -> Entries:
        """The rows that the window of an output counted."""
        level, strict, up, ups, down, _ = self.windows[6 * output : 6 * output + 6].tolist()
        size = 6 * len(self.counters) // len(self.windows)
        counters = self.counters[output * size : (output + 1) * size]
        found = np.flatnonzero(counters)
        if strict == KNOWN:
            numbers = self.known[output * SLOTS + found].view(np.float64)
            order = np.argsort(numbers)
            return self._entries(output, size, found[order], bucket_of(numbers[order], 0, self.statistic.bits))
        # Negative numbers come first, the one of the largest size before all others.
        found = np.concatenate([found[found > ups][::-1], found[found <= ups]])
        steps = np.where(found > ups, -(found - 1 - ups + down), np.where(found > 0, found - 1 + up, 0))
        buckets = (steps + ZERO).astype(U8)
        if strict:
            near = near_edges(buckets, level, self.statistic.bits)
            buckets = bucket_of(near, self.levels[output], self.statistic.bits)
        return self._entries(output, size, found, buckets)

    def _entries(self, output: int, size: int, found: Ints, buckets: Array) -> Entries:
        """Return counters of an output as entries of these buckets, which ascend."""
        excess = None
        if len(self.window_excess):
            excess = self.window_excess.reshape(-1, 2)[output * size + found]
            carry_fixed(excess)
        high = np.full(len(found), output << 1, U4)
        return tally.canonical(Entries(self.shift, buckets, self.counters[output * size + found], excess, high))


def _place_known(numbers: NDArray[np.float64], slots: Ints) -> int:
    """Put the bits of numbers in the slots of their hashes; return the multiplier that makes most of them different."""
    words = (numbers + 0.0).view(U8)
    best, most = 0, -1
    for multiplier in MULTIPLIERS:
        different = len(np.unique((words * U8(multiplier)) >> U8(64 - SLOT_BITS)))
        if different > most:
            best, most = multiplier, different
    slots[(words * U8(best)) >> U8(64 - SLOT_BITS)] = words.view(np.int64)
    return int(np.uint64(best).astype(np.int64))


def _window(entries: Entries, level: int, bits: int, most: int) -> tuple[int, ...]:
    """Return the level of a window, whether this is higher than that of its cell, and the window for each sign.

    Of exact entries it is one at which all of them begin a bucket: integers lie side by side there.
    """
    wide, buckets = level, entries.codes
    if not level:
        near = near_edges(entries.codes, level, bits)
        wide = grid_level(near)
        buckets = bucket_of(near, wide, bits)
    steps = buckets.astype(np.int64) - ZERO
    signs = [steps > 0, steps < 0]
    each = most // max(sum(map(np.any, signs)), 1)
    up, down = (
        _densest_window(np.abs(steps[s])[::d], entries.counts[s][::d], each)
        for s, d in zip(signs, (1, -1), strict=True)
    )
    return wide, int(wide > level), *up, *down


def _densest_window(steps: Ints, counts: Array, most: int) -> tuple[int, int]:
    """Return the first bucket and the size of a window that holds as many rows as possible, centred on them."""
    if not len(steps):
        return 0, 0
    span = int(steps[-1] - steps[0]) + 1
    size = min(span + span // 4 + 64, most)
    last = np.searchsorted(steps, steps + size)
    run = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    best = int(np.argmax(run[last] - run[:-1]))
    held = int(steps[last[best] - 1] - steps[best]) + 1
    return int(steps[best]) - (size - held) // 2, size


class ValueCounter(Counter):
    """A histogram of values that is being counted."""

    statistic: ValueHistogram
    entries_after_fit = 0
    """The number of entries after levels were last found."""
    room_calls = 0
    """How many times `room` was called since a window was first opened."""

    def _take(self, name: str, part: Tally, entries: Entries, cells: int) -> None:
        self.hot[name] = HotValues(self.statistic, entries, self._levels, lone=self.lone)

    def held(self, part: Any) -> tuple[Any, ...]:
        held = super().held(part)
        return held[1:] if isinstance(part, Tally) else held  # no cell is folded

    @property
    def _levels(self) -> Ints:
        """The level of each cell and output."""
        held = self.flats.get("level")
        count = max(self.index.count(self.inner), 1) * self.statistic.outputs
        return np.zeros(count, np.int64) if held is None else held.reshape(-1)

    @property
    def left(self) -> int:
        hot: HotValues = self.hot["rows"]
        if not self.lone:
            return 0
        room = (len(hot.low) - int(hot.used[0])) // self.statistic.outputs
        return room if len(hot.windows) or not self._has_window else min(room, FEWEST - int(hot.used[0]))

    def room(self, rows: int, *, weighted: bool) -> bool:
        changed = super().room(rows, weighted=weighted)
        hot, placed = self.hot["rows"], rows * self.statistic.outputs
        self.room_calls += bool(len(hot.windows))
        if self._needs_fit(hot, placed):
            self._fit()
        self.hot["rows"].room(max(placed, WAIT if self.lone else 0), None, weighted=weighted)
        if self._moved:
            self.given = {}
            return True
        return changed

    def _needs_fit(self, hot: HotValues, rows: int) -> bool:
        """Return whether levels and windows need to be found again."""
        waiting = int(hot.used[0])
        if not self._has_window:
            groups = max(self.index.count(self.inner), 1) * self.statistic.outputs
            most = max(FEW, min(MANY, groups << (self.statistic.bits + 8)))
            return waiting > 0 and waiting + rows + len(hot.entries) > max(most, 2 * self.entries_after_fit)
        if not len(hot.windows):
            return waiting >= FEWEST
        # After 4, 32, 256, ... calls: with more rows the level is higher, and the window smaller.
        calls = self.room_calls
        scheduled = calls & (calls - 1) == 0 and calls.bit_length() % 3 == 0
        return (calls > 0 and scheduled) or waiting > max(WAIT, 2 * len(hot.entries))

    @property
    def _has_window(self) -> bool:
        return self.lone and self.statistic.outputs <= WINDOWS

    def state(self) -> State:
        """Return the counted rows as a canonical state."""
        # Kernels are bound to the arrays of a lone cell while there is room; of several, arrays are looked at each time.
        if not self.lone and self.hot["rows"].used[0]:
            self._fit()
        return super().state()

    def folds_with(self, rows: int) -> bool:
        """Whether the values of a large batch are looked at for a window before it is counted."""
        return self._has_window and rows > FEWEST and not len(self.hot["rows"].windows)

    def fold_ahead(self, at: Ints, rows: int, columns: Mapping[str, Column]) -> None:
        if self.folds_with(rows):
            self._fit(self.statistic.sample(columns, FEWEST))

    def _fit(self, sample: Entries | None = None) -> None:
        """Raise levels to what the rows so far, and a sample of the next batch, need; then place the windows again."""
        statistic, old = self.statistic, self._levels
        entries = self.hot["rows"].settle()
        known = entries
        if sample is not None:
            at_old_levels = raised(sample, np.zeros_like(old), old, statistic.bits, statistic.outputs)
            known = tally.united([entries, at_old_levels])
        known, levels = fitted(known, old, statistic.bits, statistic.outputs)
        fresh = HotValues(
            statistic, raised(entries, old, levels, statistic.bits, statistic.outputs), levels, lone=self.lone
        )
        if self.lone:
            fresh.open_windows(known)
        flats = self.flats | {"level": levels.reshape(-1, statistic.outputs)}
        self.__dict__.update(hot={"rows": fresh}, flats=flats, entries_after_fit=len(fresh.entries))
