"""Counter of histograms of values: one cell counts in windows of counters; several cells buffer codes, then sort them.

The level of a cell says how coarse its buckets are. While rows are counted, levels follow from the rows so far, so they
are never higher than in the finished state, which can only raise them.

A window is an array of counters, one for each bucket in the range where most values of an output lie. A kernel
increments the counter of such a value at once; all other values are buffered as codes. A window at `KNOWN` instead has a
counter for each of a few known numbers, which the kernel finds by a hash.
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
from ..state.levels import (
    ZERO,
    compute_near_edges,
    find_buckets,
    find_grid_level,
    find_group_starts,
    fit_levels,
    raise_levels,
)
from ..state.state import State
from ..state.tally import Entries
from ..statistics.values import ValueHistogram
from .counter import Counter
from .page_allocator import grow_copy
from .tallies import LiveExactRows

__all__ = ["ValueCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
U4, U8 = np.uint32, np.uint64

# A window is opened after this many rows. At most this many rows of a large batch are sampled to place it.
FEWEST = 1 << 10
# The number of entries and buffered codes of all cells, between these two limits, above which levels are fitted again.
FEW, MANY = 1 << 18, 1 << 22
# An exact cell with at most this many distinct numbers has a counter for each number.
FEW_NUMBERS = 512
# The kernel uses the same constants.
KNOWN, SLOT_BITS = 2, 12
SLOTS = 1 << SLOT_BITS
MULTIPLIERS = [(0x9E3779B97F4A7C15 * (2 * k + 1)) % (1 << 64) for k in range(8)]
NOT_A_NUMBER = np.int64(-1)
# Statistics with more outputs than this have no windows.
WINDOWS = 64
# The buffer has room for this many values outside of windows.
WAIT = 1 << 16
# The number of counters of a window.
MOST = 1 << 17
# The number of counters of the windows of all outputs together.
MOST_OF_ALL = 1 << 20
NO_INTS = np.zeros(0, np.int64)


class LiveValues(LiveExactRows):
    """The counted rows of a histogram of values: in windows, as entries, and as buffered codes."""

    windows = NO_INTS
    known_numbers = NO_INTS
    counters = NO_INTS
    window_excess = NO_INTS

    def __init__(self, statistic: ValueHistogram, entries: Entries, levels: Ints, *, lone: bool) -> None:
        self.statistic, self.levels = statistic, levels
        super().__init__(type(statistic).rows.shift(statistic), lone=lone)
        self.set_entries(entries)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.counters.nbytes + self.window_excess.nbytes

    def open_windows(self, sample: Entries) -> None:
        """Open a window of counters for each output, placed by a sample of rows."""
        outputs, bits = self.statistic.outputs, self.statistic.bits
        if not len(sample) or outputs > WINDOWS:
            return
        windows = np.zeros((outputs, 6), np.int64)
        slots = np.full((outputs, SLOTS), NOT_A_NUMBER)
        starts = find_group_starts(sample, outputs, outputs).tolist()
        for i, (begin, end) in enumerate(pairwise(starts)):
            entries, level = sample.select(slice(begin, end)), int(self.levels[i])
            if not level and 0 < len(entries) <= FEW_NUMBERS:
                windows[i, 1:3] = KNOWN, _place_known(compute_near_edges(entries.codes, 0, bits), slots[i])
            else:
                windows[i] = _window(entries, level, bits, min(MOST, MOST_OF_ALL // outputs))
        by_hash = windows[:, 1] == KNOWN
        room = int(np.where(by_hash, SLOTS, 1 + windows[:, [3, 5]].sum(axis=1)).max())
        self.windows, self.counters = windows.reshape(-1), np.zeros(outputs * room, np.int64)
        self.known_numbers = slots.reshape(-1) if by_hash.any() else NO_INTS

    def reserve(self, rows: int, most: int | None, *, weighted: bool) -> None:
        used = int(self.used[0])
        if used + rows > len(self.low):
            size = used + rows if len(self.windows) else 2 * (used + rows)
            self.low = grow_copy(self.low, used, size)
            self.high = self.high if self.low_words_only else grow_copy(self.high, used, size)
        if (weighted or len(self.weights)) and len(self.weights) < len(self.low):
            ones = self.weights if len(self.weights) else np.ones(used)
            self.weights = grow_copy(ones, used, len(self.low))
        if (weighted or len(self.weights)) and len(self.counters) and not len(self.window_excess):
            self.window_excess = np.zeros(2 * len(self.counters), np.int64)

    def collect_arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the kernel: windows, counters, the excess of weights, and the buffered codes."""
        return (
            self.windows,
            self.known_numbers,
            self.counters,
            self.window_excess,
            self.high,
            self.low,
            self.weights,
            self.used,
        )

    def consolidate(self) -> Entries:
        entries = super().consolidate()
        counted = [e for e in (self._collect_window_entries(i) for i in range(len(self.windows) // 6)) if len(e)]
        return tally.sum_entries([entries, *counted]) if counted else entries

    def _collect_window_entries(self, output: int) -> Entries:
        """Return the rows counted in the window of an output as entries."""
        level, strict, up, ups, down, _ = self.windows[6 * output : 6 * output + 6].tolist()
        size = 6 * len(self.counters) // len(self.windows)
        counters = self.counters[output * size : (output + 1) * size]
        positions = np.flatnonzero(counters)
        if strict == KNOWN:
            numbers = self.known_numbers[output * SLOTS + positions].view(np.float64)
            order = np.argsort(numbers)
            return self._entries(output, size, positions[order], find_buckets(numbers[order], 0, self.statistic.bits))
        # Counter 0 is the value 0, then come the buckets of positive values, then those of negative ones by size. Entries
        # ascend, so negative values come first, from the largest size to the smallest.
        positions = np.concatenate([positions[positions > ups][::-1], positions[positions <= ups]])
        steps = np.where(positions > ups, -(positions - 1 - ups + down), np.where(positions > 0, positions - 1 + up, 0))
        buckets = (steps + ZERO).astype(U8)
        if strict:
            near = compute_near_edges(buckets, level, self.statistic.bits)
            buckets = find_buckets(near, self.levels[output], self.statistic.bits)
        return self._entries(output, size, positions, buckets)

    def _entries(self, output: int, size: int, positions: Ints, buckets: Array) -> Entries:
        """Return some counters of an output as entries of these buckets, which are in ascending order."""
        excess = None
        if len(self.window_excess):
            excess = self.window_excess.reshape(-1, 2)[output * size + positions]
            carry_fixed(excess)
        high = np.full(len(positions), output << 1, U4)
        return tally.canonicalize(Entries(self.shift, buckets, self.counters[output * size + positions], excess, high))


def _place_known(numbers: NDArray[np.float64], slots: Ints) -> int:
    """Put the bits of numbers in the slots of their hashes; return the multiplier of the hash.

    Of several multipliers, the one with the fewest collisions is used. Numbers without a slot are buffered as codes.
    """
    words = (numbers + 0.0).view(U8)
    best, most = 0, -1
    for multiplier in MULTIPLIERS:
        different = len(np.unique((words * U8(multiplier)) >> U8(64 - SLOT_BITS)))
        if different > most:
            best, most = multiplier, different
    slots[(words * U8(best)) >> U8(64 - SLOT_BITS)] = words.view(np.int64)
    return int(np.uint64(best).astype(np.int64))


def _window(entries: Entries, level: int, bits: int, most: int) -> tuple[int, ...]:
    """Return the level of a window, whether it is higher than the level of its cell, and the range for each sign.

    For exact entries it is a level at which each entry begins a bucket, so that integers occupy adjacent buckets.
    """
    wide, buckets = level, entries.codes
    if not level:
        near = compute_near_edges(entries.codes, level, bits)
        wide = find_grid_level(near)
        buckets = find_buckets(near, wide, bits)
    steps = buckets.astype(np.int64) - ZERO
    signs = [steps > 0, steps < 0]
    each = most // max(sum(map(np.any, signs)), 1)
    up, down = (
        _densest_window(np.abs(steps[s])[::d], entries.counts[s][::d], each)
        for s, d in zip(signs, (1, -1), strict=True)
    )
    return wide, int(wide > level), *up, *down


def _densest_window(steps: Ints, counts: Array, most: int) -> tuple[int, int]:
    """Return the first bucket and the size of a window that contains as many rows as possible, centred on them."""
    if not len(steps):
        return 0, 0
    span = int(steps[-1] - steps[0]) + 1
    size = min(span + span // 4 + 64, most)
    last = np.searchsorted(steps, steps + size)
    run = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    best = int(np.argmax(run[last] - run[:-1]))
    extent = int(steps[last[best] - 1] - steps[best]) + 1
    return int(steps[best]) - (size - extent) // 2, size


class ValueCounter(Counter):
    """Counts rows into histograms of values (`ValueHistogram`)."""

    statistic: ValueHistogram
    entries_after_fit = 0
    """The number of entries after the last fit of levels and windows."""
    room_calls = 0
    """How many times `reserve` was called since the first window was opened."""

    def _load_tally(self, name: str, part: Tally, entries: Entries, cells: int) -> None:
        self.tallies[name] = LiveValues(self.statistic, entries, self._levels, lone=self.lone)

    def bind_part(self, part: Any) -> tuple[Any, ...]:
        arguments = super().bind_part(part)
        # The argument `folded` is left out: this statistic has levels instead of cells that go from exact rows to
        # buckets.
        return arguments[1:] if isinstance(part, Tally) else arguments

    @property
    def _levels(self) -> Ints:
        """The level (bucket width) of each cell and output."""
        levels = self.flats.get("level")
        count = max(self.index.count(self.inner), 1) * self.statistic.outputs
        return np.zeros(count, np.int64) if levels is None else levels.reshape(-1)

    @property
    def free_rows(self) -> int:
        live: LiveValues = self.tallies["rows"]
        if not self.lone:
            return 0
        room = (len(live.low) - int(live.used[0])) // self.statistic.outputs
        return room if len(live.windows) or not self._has_window else min(room, FEWEST - int(live.used[0]))

    def reserve(self, rows: int, *, weighted: bool) -> bool:
        changed = super().reserve(rows, weighted=weighted)
        live, placed = self.tallies["rows"], rows * self.statistic.outputs
        self.room_calls += bool(len(live.windows))
        if self._needs_fit(live, placed):
            self._fit()
        self.tallies["rows"].reserve(max(placed, WAIT if self.lone else 0), None, weighted=weighted)
        if self._has_moved:
            self.bound_arrays = {}
            return True
        return changed

    def _needs_fit(self, live: LiveValues, rows: int) -> bool:
        """Whether levels and windows have to be fitted to the rows again."""
        waiting = int(live.used[0])
        if not self._has_window:
            groups = max(self.index.count(self.inner), 1) * self.statistic.outputs
            most = max(FEW, min(MANY, groups << (self.statistic.bits + 8)))
            return waiting > 0 and waiting + rows + len(live.entries) > max(most, 2 * self.entries_after_fit)
        if not len(live.windows):
            return waiting >= FEWEST
        # Levels and windows are fitted again after 4, 32, 256, ... calls: more rows may raise the level and narrow the
        # window.
        calls = self.room_calls
        scheduled = calls & (calls - 1) == 0 and calls.bit_length() % 3 == 0
        return (calls > 0 and scheduled) or waiting > max(WAIT, 2 * len(live.entries))

    @property
    def _has_window(self) -> bool:
        return self.lone and self.statistic.outputs <= WINDOWS

    def state(self) -> State:
        """Return the counted rows as a canonical state."""
        # Fitting replaces arrays. A single cell is not fitted here, because kernels keep writing to its arrays while there
        # is room. With several cells the arrays are compared before each batch.
        if not self.lone and self.tallies["rows"].used[0]:
            self._fit()
        return super().state()

    def would_fold(self, rows: int) -> bool:
        """Return whether a batch is so large that its values are sampled for a window before it is counted."""
        return self._has_window and rows > FEWEST and not len(self.tallies["rows"].windows)

    def fold_ahead(self, at: Ints, rows: int, columns: Mapping[str, Column]) -> None:
        if self.would_fold(rows):
            self._fit(self.statistic.sample_entries(columns, FEWEST))

    def _fit(self, sample: Entries | None = None) -> None:
        """Raise levels as the rows so far, and a sample of the next batch, require; then open windows again."""
        statistic, old = self.statistic, self._levels
        entries = self.tallies["rows"].consolidate()
        known = entries
        if sample is not None:
            at_old_levels = raise_levels(sample, np.zeros_like(old), old, statistic.bits, statistic.outputs)
            known = tally.sum_entries([entries, at_old_levels])
        known, levels = fit_levels(known, old, statistic.bits, statistic.outputs)
        fresh = LiveValues(
            statistic, raise_levels(entries, old, levels, statistic.bits, statistic.outputs), levels, lone=self.lone
        )
        if self.lone:
            fresh.open_windows(known)
        flats = self.flats | {"level": levels.reshape(-1, statistic.outputs)}
        self.__dict__.update(tallies={"rows": fresh}, flats=flats, entries_after_fit=len(fresh.entries))
