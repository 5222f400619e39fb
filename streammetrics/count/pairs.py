"""The counter for joint histograms, which count pairs of numbers.

A small cell (such as a slice with few rows) keeps its pairs exactly. The pairs of a larger cell are buffered, and moved
to the buckets of the histogram from time to time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..state import tally
from ..state.declare import Tally
from ..state.pair_levels import VIEWS, PairRows, add_rows
from ..state.state import State
from ..state.tally import Entries
from ..statistics.joint import JointHistogram
from .cell_rows import LiveCellRows
from .folding import FoldingCounter
from .page_allocator import grow_copy
from .tallies import LiveExactRows, pad_zeros, weights_less_one

__all__ = ["PairCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
U4, U8 = np.uint32, np.uint64

# Buffered pairs are moved to buckets when their number would exceed both this limit and the number of bucket entries.
WAIT = 1 << 20
# The minimum capacity of a buffer, in pairs.
AHEAD = 1 << 12


class WaitingPairs:
    """The pairs of cells (such as slices) with many rows: older pairs in buckets, and newer pairs in a buffer."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.x = self.y = self.weights = np.zeros(0)
        self.cells, self.used = np.zeros(0, U4), np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        """The memory used by the buckets and the buffer, in bytes."""
        return self.entries.nbytes + sum(a.nbytes for a in (self.x, self.y, self.cells, self.weights))

    def collect_arguments(self) -> tuple[Any, ...]:
        """Return the arrays to which the kernel writes pairs.

        Four arrays contain the first number, the second number, the cell and the weight of each pair. The last array
        contains a single number, the number of pairs.
        """
        return self.x, self.y, self.cells, self.weights, self.used

    def reserve(self, rows: int, *, weighted: bool) -> None:
        """Enlarge the buffer if `rows` more rows do not fit."""
        used = int(self.used[0])
        size = used + rows
        if size > len(self.x):
            size = max(2 * size, AHEAD)
            self.x, self.y, self.cells = (grow_copy(a, used, size) for a in (self.x, self.y, self.cells))
        if (weighted or len(self.weights)) and len(self.weights) < len(self.x):
            new = np.ones(len(self.x)) if not len(self.weights) else grow_copy(self.weights, used, len(self.x))
            self.weights = new

    def consolidate(self) -> Entries:
        """Return the buckets. The caller must already have moved all buffered pairs to buckets."""
        return self.entries

    def rows(self) -> PairRows:
        """Return the buffered pairs, each with a count of 1."""
        n = int(self.used[0])
        excess = weights_less_one(self.weights[:n]) if len(self.weights) else None
        return PairRows(self.cells[:n].astype(np.int64), self.x[:n], self.y[:n], np.ones(n, U4), excess)


def _sort_entries(entries: Entries) -> Entries:
    """Sort entries by code, and merge entries with equal codes; before the call, each entry must have a count of 1."""
    if entries.excess is not None:
        return tally.sort_entries(entries)
    live = LiveExactRows(entries.shift, lone=False)
    live.high, live.low = entries.high, entries.codes  # type: ignore[assignment]
    live.used[0] = len(entries)
    return live.consolidate()


class PairCounter(FoldingCounter):
    """A counter that adds pairs of numbers, such as targets and predictions, to a joint histogram."""

    statistic: JointHistogram

    def _load_tally(self, name: str, part: Tally, entries: Entries, cells: int) -> None:
        if name == "rows":
            self.tallies[name] = WaitingPairs(entries)
            if not self._is_never_exact:
                self.folded = pad_zeros(self.folded, cells)
                self.folded[entries.cells] = 1
        else:
            super()._load_tally(name, part, entries, cells)

    def bind_part(self, part: Any) -> tuple[Any, ...]:
        if part.name != "rows":
            return super().bind_part(part)
        self.bound_arrays[part.name] = self._arrays(part.name)
        return self.tallies["rows"].collect_arguments()  # type: ignore[no-any-return]

    @property
    def free_rows(self) -> int:
        if not self.lone:
            return 0
        pairs: WaitingPairs = self.tallies["rows"]
        room = len(pairs.x) - int(pairs.used[0])
        if self._is_bucketed:
            return room
        exact: LiveExactRows = self.tallies["exact"]
        return min(room, exact.count_free_rows(self.statistic.exact_rows_limit) // VIEWS)

    def reserve(self, rows: int, *, weighted: bool) -> bool:
        changed = super().reserve(rows, weighted=weighted)
        if int(self.tallies["rows"].used[0]) + rows > max(WAIT, len(self.tallies["rows"].entries)):
            self._bucket_waiting_rows()
        self.tallies["rows"].reserve(rows, weighted=weighted)
        if self.has_moved:
            self.bound_arrays = {}
            return True
        return changed

    def _reserve_in_tallies(self, rows: int, *, weighted: bool) -> None:
        if not self.lone:
            if not self._is_never_exact:
                self._exact.reserve(max(self.index.count(self.inner), 1), rows * VIEWS, weighted=weighted)
            return
        if not self._is_bucketed and self._exact.is_full(rows * VIEWS):
            self.fold_large_cells()
        # Check again, because `fold_large_cells` may have moved the exact rows to buckets.
        if not self._is_bucketed:
            self._exact.reserve(rows * VIEWS, self.statistic.exact_rows_limit, weighted=weighted)

    def _bucket_waiting_rows(self) -> None:
        """Move the buffered pairs to buckets.

        If the new pairs of a cell (such as a slice) need wider buckets, the level of the cell, which determines the
        width of its buckets, is raised.
        """
        live: WaitingPairs = self.tallies["rows"]
        if not live.used[0]:
            return
        entries, levels = add_rows(live.entries, self._levels, live.rows(), self.statistic.bits, _sort_entries)
        self._replace_pairs(entries, levels)

    def _replace_pairs(self, entries: Entries, levels: Ints, **others: Any) -> None:
        """Replace the buckets, levels (bucket widths), and any exact rows or attributes in `others`, in one step."""
        exact = others.pop("exact", self.tallies["exact"])
        tallies = {"exact": exact, "rows": WaitingPairs(entries)}
        # Assign all attributes in one call into C, so that an interrupt cannot leave only some of them changed.
        self.__dict__.update(tallies=tallies, flats=self.flats | {"level": levels}, **others)

    @property
    def _levels(self) -> Ints:
        levels = self.flats.get("level")
        cells = max(self.index.count(self.inner), 1)
        return np.zeros((cells, VIEWS), np.int64) if levels is None else levels

    def _fold(self) -> None:
        self._bucket_waiting_rows()
        buckets, levels = self._add_to_buckets(self._exact.consolidate())
        folded = np.ones(max(len(self.folded), 1), np.uint8)
        self._replace_pairs(buckets, levels, folded=folded, exact=LiveExactRows(self._exact.shift, lone=True))

    def _bucket_folded_rows(self) -> None:
        self._bucket_waiting_rows()
        cells, exact = self._folded_cells, LiveCellRows(self._exact.shift)
        buckets, levels = self._add_to_buckets(self._exact.read_cells(cells))
        exact.__dict__.update(self._exact.__dict__ | self._exact.drop_rows(self._exact.find_words(cells)))
        exact.merge_chunks()
        self._replace_pairs(buckets, levels, exact=exact)

    def _add_to_buckets(self, exact: Entries) -> tuple[Entries, Ints]:
        """Add exact rows to the buckets; return the new entries of the buckets and the new levels (bucket widths)."""
        statistic = self.statistic
        rows = statistic.decode_rows(exact)
        return add_rows(self.tallies["rows"].entries, self._levels, rows, statistic.bits)

    def state(self) -> State:
        self._bucket_waiting_rows()
        return super().state()

    def _check_limit(self, rows: int, limit: int) -> None:
        self._bucket_waiting_rows()
        super()._check_limit(rows, limit)
