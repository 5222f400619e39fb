"""The counter of histograms of values, such as targets or errors.

The level of a cell (such as a slice) determines the width of its buckets: at level 0, numbers are exact, and each
higher level has wider buckets. The level depends on the rows that have been counted. Additional rows can only raise it.

If a row has several values in each column, each of them belongs to a different output. Values are buffered as codes,
which are integers that contain the cell, the output and the bucket. From time to time the codes are sorted and become
entries (code, number of rows). If the state has only one cell, there are also windows, one for each output.

A window is an array of counters for the range of buckets in which most values of the output lie. A kernel directly
increments the counter of a value in this range, and buffers only the other values as codes. If an output has only a few
distinct numbers, its window (of the kind `KNOWN`) has a counter for each of these numbers, which the kernel finds with
a hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..kernels.value_histogram import list_counted_buckets
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

# Windows (arrays of counters for frequent values) are created after this many rows. If a batch has more rows and there
# are no windows yet, earlier rows and the first FEWEST rows of the batch determine the range of each window.
FEWEST = 1 << 10
# Without windows, levels (bucket widths) are adapted when the number of entries and buffered codes exceeds a threshold.
# The threshold grows with the number of cells (such as slices), from FEW to MANY.
FEW, MANY = 1 << 18, 1 << 22
# If the sample from which a window is created has at most this many distinct numbers, the window has a counter for each
# of them.
FEW_NUMBERS = 512
# KNOWN marks a window with a counter for each of a few numbers. The kernel, which uses the same two constants, finds
# the counter of a number by a hash of SLOT_BITS bits.
KNOWN, SLOT_BITS = 2, 12
SLOTS = 1 << SLOT_BITS
MULTIPLIERS = [(0x9E3779B97F4A7C15 * (2 * k + 1)) % (1 << 64) for k in range(8)]
NOT_A_NUMBER = np.int64(-1)
# A state uses windows only if it has at most this many outputs (values per row in each column).
WINDOWS = 64
# The first windows are replaced when more than this many values lie outside them, and therefore have no counter.
FEWEST_OUTSIDE = 1 << 13
# Windows are always replaced once the number of values without a counter exceeds both this number and twice the number
# of entries.
WAIT = 1 << 16
# If there are windows, a buffer that is full grows by at least this many values.
ROOM = 1 << 18
# The largest number of counters in a window.
MOST = 1 << 17
# The largest number of counters in all windows together.
MOST_OF_ALL = 1 << 20
NO_INTS = np.zeros(0, np.int64)


class LiveValues(LiveExactRows):
    """The rows of a histogram of values, in three forms: counters, sorted entries, and buffered codes.

    A window is an array of counters for the buckets in which most values of an output lie. Other values, and all values
    if there is no window, are buffered as codes (integers that contain the cell, the output and the bucket). Sorting
    turns codes into entries (code, number of rows).

    Parameters
    ----------
    statistic : ValueHistogram
        The statistic, which has the number of outputs and the precision as attributes (`outputs` and `bits`).
    entries : Entries
        The rows to start with.
    levels : int64 array
        The level (bucket width) of each cell and output.
    lone : bool
        Whether there is only one cell.
    """

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
        """Create a window (array of counters) for each output; it covers the buckets that contain most of a sample."""
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
        # Add to each window a counter that the kernel increments for all values outside the window.
        room = 1 + int(np.where(by_hash, SLOTS, 1 + windows[:, [3, 5]].sum(axis=1)).max())
        self.windows, self.counters = windows.reshape(-1), np.zeros(outputs * room, np.int64)
        self.known_numbers = slots.reshape(-1) if by_hash.any() else NO_INTS

    def reserve(self, rows: int, most: int | None, *, weighted: bool) -> None:
        used = int(self.used[0])
        if used + rows > len(self.low):
            # With windows, few values reach the buffer. Give it space for all values of several batches, so that memory
            # need not be reserved for each batch. Only the part to which values are written takes memory.
            size = used + max(rows, ROOM) if len(self.windows) else 2 * (used + rows)
            self.low = grow_copy(self.low, used, size)
            self.high = self.high if self.low_words_only else grow_copy(self.high, used, size)
        if (weighted or len(self.weights)) and len(self.weights) < len(self.low):
            ones = self.weights if len(self.weights) else np.ones(used)
            self.weights = grow_copy(ones, used, len(self.low))
        if (weighted or len(self.weights)) and len(self.counters) and not len(self.window_excess):
            self.window_excess = np.zeros(2 * len(self.counters), np.int64)

    def collect_arguments(self) -> tuple[Any, ...]:
        """Return the kernel arguments: the windows, their counters, and the buffer of codes.

        If rows have weights w, there is also a sum of w - 1 for each counter.
        """
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
        """Return the counted rows of one output's window as entries (bucket and number of rows), sorted by bucket."""
        own = self.windows[6 * output : 6 * output + 6]
        size = 6 * len(self.counters) // len(self.windows)
        counters = self.counters[output * size : (output + 1) * size]
        if own[1] == KNOWN:
            positions = np.flatnonzero(counters[:-1] != 0)
            numbers = self.known_numbers[output * SLOTS + positions].view(np.float64)
            order = np.argsort(numbers)
            return self._entries(output, size, positions[order], find_buckets(numbers[order], 0, self.statistic.bits))
        positions, buckets = np.empty(size, np.int64), np.empty(size, U8)
        m = list_counted_buckets(counters, own, positions, buckets)
        positions, buckets = positions[:m], buckets[:m].copy()
        if own[1]:
            near = compute_near_edges(buckets, int(own[0]), self.statistic.bits)
            buckets = find_buckets(near, self.levels[output], self.statistic.bits)
        return self._entries(output, size, positions, buckets)

    def _entries(self, output: int, size: int, positions: Ints, buckets: Array) -> Entries:
        """Return the counters at `positions` in the window of an output as entries; `buckets` contains their buckets.

        The window has `size` counters. The buckets must be in ascending order.
        """
        excess = None
        if len(self.window_excess):
            excess = self.window_excess.reshape(-1, 2)[output * size + positions]
            carry_fixed(excess)
        high = np.full(len(positions), output << 1, U4)
        return tally.canonicalize(Entries(self.shift, buckets, self.counters[output * size + positions], excess, high))


def _place_known(numbers: NDArray[np.float64], slots: Ints) -> int:
    """Write each number to the slot that its hash selects; return the multiplier of the hash function.

    The multiplier is the one with the fewest collisions among several candidates. If two numbers have the same slot,
    only one of them is written, and the rows of the other are buffered as codes.
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
    """Choose the window for an output from a sample of its rows, which are in buckets of the given level (width).

    The result is six integers: the level of the window; 1 if this level is higher than the level of the cell, otherwise
    0; the first bucket and the number of buckets for positive values; and the same two numbers for negative values. The
    window has at most `most` buckets. If the sample consists of exact numbers (level 0), the window gets the highest
    level at which each of these numbers is the edge of a bucket. Large consecutive integers, for example, then fall in
    adjacent buckets.
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
    """Return the first bucket and the number of buckets of a window that contains as many rows as possible.

    `steps` contains buckets in ascending order, and `counts` the number of rows in each. The window has at most `most`
    buckets, and those with rows are in its middle.
    """
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
    """A counter that adds rows to a histogram of values (`ValueHistogram`)."""

    statistic: ValueHistogram
    entries_after_fit = 0
    """The number of entries after levels and windows were last adapted."""
    fits = 0
    """The number of times that levels and windows have been adapted since windows were first opened."""

    def _load_tally(self, name: str, part: Tally, entries: Entries, cells: int) -> None:
        self.tallies[name] = LiveValues(self.statistic, entries, self._levels, lone=self.lone)

    def bind_part(self, part: Any) -> tuple[Any, ...]:
        arguments = super().bind_part(part)
        # The first argument says for each cell whether buckets have replaced its exact rows. Omit it, because the
        # kernel for histograms of values uses the levels instead.
        return arguments[1:] if isinstance(part, Tally) else arguments

    @property
    def _levels(self) -> Ints:
        """The level (the width of the buckets) of each cell (such as a slice) and output."""
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
        if self._needs_fit(live, placed):
            self._fit()
        self.tallies["rows"].reserve(max(placed, WAIT if self.lone else 0), None, weighted=weighted)
        if self.has_moved:
            self.bound_arrays = {}
            return True
        return changed

    def _needs_fit(self, live: LiveValues, rows: int) -> bool:
        """Return whether levels and windows must be adapted to the counted rows before `rows` more rows are added."""
        waiting = int(live.used[0])
        if not self._has_window:
            groups = max(self.index.count(self.inner), 1) * self.statistic.outputs
            most = max(FEW, min(MANY, groups << (self.statistic.bits + 8)))
            return waiting > 0 and waiting + rows + len(live.entries) > max(most, 2 * self.entries_after_fit)
        if not len(live.windows):
            return waiting >= FEWEST
        # Replacing windows takes as much time as counting several thousand values without a counter. For some
        # distributions, many values are always outside the window, so raise the threshold after each replacement.
        outside = waiting + len(live.entries) - self.entries_after_fit
        return outside > min(FEWEST_OUTSIDE << (3 * self.fits), max(WAIT, 2 * self.entries_after_fit))

    @property
    def _has_window(self) -> bool:
        return self.lone and self.statistic.outputs <= WINDOWS

    def state(self) -> State:
        """Return the counted rows as a state in canonical form: states with the same rows are byte-for-byte equal."""
        # Adapting levels replaces arrays. This is safe only if there are several cells, because each batch then begins
        # with a check for replaced arrays. The arrays of a single cell must not be replaced here: kernels write to them
        # without this check as long as the buffer has space.
        if not self.lone and self.tallies["rows"].used[0]:
            self._fit()
        return super().state()

    def needs_preparation(self, rows: int) -> bool:
        """Return whether windows must be created from a sample of the batch before its `rows` rows are counted."""
        return self._has_window and rows > FEWEST and not len(self.tallies["rows"].windows)

    def fold_ahead(self, at: Ints, rows: int, columns: Mapping[str, Column]) -> None:
        if self.needs_preparation(rows):
            self._fit(self.statistic.sample_entries(columns, FEWEST))

    def _fit(self, sample: Entries | None = None) -> None:
        """Adapt the levels (bucket widths) to earlier rows and a sample of the next batch, and choose new windows.

        A window is an array of counters for the most frequent buckets (see `LiveValues`).
        """
        statistic, old = self.statistic, self._levels
        entries = self.tallies["rows"].consolidate()
        known = entries
        if sample is not None:
            at_old_levels = raise_levels(sample, np.zeros_like(old), old, statistic.bits, statistic.outputs)
            known = tally.sum_entries([entries, at_old_levels])
        known, levels = fit_levels(known, old, statistic.bits, statistic.outputs)
        if sample is not None:
            entries = raise_levels(entries, old, levels, statistic.bits, statistic.outputs)
        fresh = LiveValues(statistic, known if sample is None else entries, levels, lone=self.lone)
        if self.lone:
            fresh.open_windows(known)
        flats = self.flats | {"level": levels.reshape(-1, statistic.outputs)}
        fits = self.fits + bool(len(self.tallies["rows"].windows))
        self.__dict__.update(tallies={"rows": fresh}, flats=flats, entries_after_fit=len(fresh.entries), fits=fits)
