"""The counter of states that keep the rows of small cells exactly, and count the rows of large cells in buckets.

A cell with more exact rows than the limit is folded: from then on, its rows are counted in the buckets of a histogram.
A single cell is folded in one step. If there are several cells, a cell is first marked as folded, so that the kernel
counts its new rows in buckets. Its earlier rows are moved to buckets later, together with those of other cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import tally_codes
from ..numerics.signal_safety import run_without_interrupt
from ..state import tally
from ..state.fold import align_vocabularies, unite_rows
from ..state.state import State
from ..state.tally import Entries
from .cell_rows import LiveCellRows, gather_runs
from .counter import Counter
from .tallies import LiveExactRows, LiveTally, pad_zeros

__all__ = ["FoldingCounter"]

Ints = NDArray[np.int64]

# At most this many rows of a batch are examined to decide whether the batch makes a cell (such as a slice) too large.
SAMPLE = 1 << 13
# Folded cells may still have exact rows. These are moved to buckets if they exceed 1 / STALE_SHARE of all exact rows.
STALE_SHARE = 2
# The sizes of the cells are not checked for each batch: between two checks, at least FEWEST_ROWS rows are added, and at
# least one row for every CELLS_PER_ROW cells.
FEWEST_ROWS, CELLS_PER_ROW = 1 << 12, 8
NO_CELLS = np.zeros(0, np.int64)


class FoldingCounter(Counter):
    """A counter that folds cells (such as slices) with too many exact rows: their later rows are counted in buckets."""

    next_check = 0
    """Cells are examined again when this many exact rows have been added in total."""
    cells_ahead: Ints = NO_CELLS
    """The cells that were folded because of the batch that is being counted."""
    rows_at_check: Ints = NO_CELLS
    """For each cell, the number of its exact rows when the statistic last decided to keep the cell exact."""

    def _build_exact_rows(self, name: str, shift: int) -> LiveExactRows | LiveCellRows:
        if self.lone or self.folding is None or name != self.folding[0]:
            return super()._build_exact_rows(name, shift)
        return LiveCellRows(shift)

    @property
    def free_rows(self) -> int:
        if self.lone or self._is_never_exact or self._are_all_cells_folded:
            return super().free_rows
        # If a cell may keep any number of exact rows, `reserve` must check the memory limit before each batch.
        if self.exact_rows_limit is None:
            return 0
        rows_until_check: int = max(self.next_check - self._exact.rows_added, 0) // self._counts_per_cell
        return min(super().free_rows, rows_until_check)

    def needs_preparation(self, rows: int) -> bool:
        """Return whether adding `rows` rows may give a cell too many rows to stay exact.

        If so, the batch takes the general path (`BatchUpdater.count_batch`), which decides whether to fold cells.
        """
        if self._is_never_exact or self.exact_rows_allowed is None or self._is_bucketed:
            return False
        if not self.lone:
            if self._are_all_cells_folded:
                return False
            added = rows * self._counts_per_cell
            return self._must_check or (self.folds_by_rows and added > self.exact_rows_allowed)
        more = rows * self.counts_per_row
        return any(
            isinstance(h, LiveExactRows) and h.rows + more > self.exact_rows_allowed for h in self.tallies.values()
        )

    def fold_ahead(self, at: Ints, rows: int, columns: Mapping[str, Any]) -> None:
        """Fold the cells that the rows of a batch would make too large, before the batch is counted.

        The cells then count these rows in buckets rather than storing them exactly and converting them later. `at` is
        the cell of each row; it is empty if there is only one cell.
        """
        if self._is_never_exact or self.exact_rows_limit is None:
            return
        if self.lone:
            if self.needs_preparation(rows) and self._must_fold(rows, columns):
                self._fold()
            return
        if self._are_all_cells_folded:
            return
        added = max(rows, len(at)) * self._counts_per_cell
        if self._must_check:
            stale = self._mark_large_cells(is_read=False)
            if stale * STALE_SHARE > self._exact.count_rows().sum():
                self._bucket_folded_rows()
        # If `folds_by_rows` is False, the number of rows of a cell does not suffice to decide whether to fold it: the
        # number of distinct rows also matters. It is known only after the batch has been counted, so decide then.
        if self.folds_by_rows and added > self.exact_rows_limit:
            self._mark_cells_ahead(at)

    @property
    def _exact(self) -> Any:
        """The exact rows of all cells."""
        assert self.folding is not None
        return self.tallies[self.folding[0]]

    @property
    def _are_all_cells_folded(self) -> bool:
        """Whether all existing cells are folded, and all of their exact rows have been moved to buckets.

        Even then, cells that are added later may keep exact rows.
        """
        count = max(self.index.count(self.inner), 1)
        all_folded = len(self.folded) >= count and self.folded[:count].all()
        return bool(all_folded) and not self._exact.count_rows().any()

    def fold_large_cells(self) -> None:
        if self._is_never_exact or self.exact_rows_limit is None:
            return
        if not self.lone:
            if self._mark_large_cells(is_read=True):
                self._bucket_folded_rows()
        elif self._exact.rows > self.exact_rows_limit and self._must_fold():
            self._fold()

    def fold_jointly(self, others: Sequence[Counter]) -> None:
        if self.lone or self._is_never_exact or self.exact_rows_limit is None:
            return
        # Leave it to `merge` to fold the cells if there are inner cells, such as classes, or if the number of distinct
        # rows decides which cells are folded. Distinct rows can be counted only after sorting.
        if self.inner is not self.front or not self.folds_by_rows:
            return
        counters: list[Any] = [self, *others]
        table, places = unite_rows(align_vocabularies([one._build_key_table() for one in counters])[1])
        rows, folded = np.zeros(len(table), np.int64), np.zeros(len(table), bool)
        for one, at in zip(counters, places, strict=True):
            rows[at] += pad_zeros(one._exact.count_rows(), len(at))[: len(at)]
            folded[at] |= pad_zeros(one.folded, len(at))[: len(at)] != 0
        folded |= rows > self.exact_rows_limit
        for one, at in zip(counters, places, strict=True):
            cells = np.flatnonzero(folded[at])
            if len(cells):
                one._mark_folded(cells)
                one._bucket_folded_rows()

    def _build_key_table(self) -> State:
        """Return a state that contains the keys of the cells, but no rows."""
        vocabularies, keys = self._rank_keys()
        return self.statistic.with_cells(replace(self.statistic.cells, keys=keys, vocabularies=vocabularies))

    # -- a single cell ------------------------------------------------------------------------------------------------

    def _must_fold(self, rows: int = 0, columns: Mapping[str, Any] | None = None) -> bool:
        """Return whether the single cell must be folded before `rows` more rows are added.

        If it need not be folded, raise the limit on exact rows, so that the next batches need no check. `columns`
        contains the columns of the additional rows.
        """
        statistic, live = self.statistic, self._exact
        if self.folds_by_rows:
            return True
        more = None if columns is None else statistic.sample_entries(columns, SAMPLE)
        known = live.consolidate() if more is None else tally.sum_entries([live.consolidate(), more])
        if statistic.select_folded_cells(known, np.ones(1, bool)).any():
            return True
        self.exact_rows_allowed = 2 * (live.rows + rows)
        return False

    def _reserve_in_tallies(self, rows: int, *, weighted: bool) -> None:
        if self.lone and not self._is_bucketed and self._exact.is_full(rows * self._counts_per_cell):
            self.fold_large_cells()
        super()._reserve_in_tallies(rows, weighted=weighted)

    def _fold(self) -> None:
        """Move the exact rows of the single cell to histogram buckets."""
        assert self.folding is not None
        exact, rows, flag = self.folding
        old, coarse, off_grid = self.tallies[exact], self.tallies[rows], self.flats[flag].copy()
        bucketed, off = self.statistic.bucket_entries(old.collect_rows())
        off_grid[off] = 1
        new = LiveTally(coarse.shift, coarse.places, lone=True)
        new.set_entries(tally.add_entries(coarse.consolidate(), bucketed), 1)
        update = {
            "folded": np.ones(max(len(self.folded), 1), np.uint8),
            "flats": self.flats | {flag: off_grid},
            "tallies": self.tallies | {rows: new, exact: LiveExactRows(old.shift, lone=True)},
        }
        # Assign all attributes in one call into C, so that an interrupt cannot leave a cell that is only partly folded.
        self.__dict__.update(update)

    # -- several cells ------------------------------------------------------------------------------------------------

    @property
    def _must_check(self) -> bool:
        """Whether the next check of the cells is due, because enough rows have been added since the last check."""
        return self._exact.rows_added >= self.next_check  # type: ignore[no-any-return]

    def _mark_large_cells(self, *, is_read: bool) -> int:
        """Mark cells with too many exact rows as folded; return how many rows of folded cells are still exact.

        If `folds_by_rows` is False, the statistic examines the rows of a large cell to decide whether to fold it. It
        does so whenever the number of rows of the cell has doubled, and before a state is read (`is_read`).
        """
        limit, rows = self.exact_rows_limit, self._exact.count_rows()
        assert limit is not None
        folded = pad_zeros(self.folded, len(rows))[: len(rows)] != 0
        large, most = (rows > limit) & ~folded, limit
        if not self.folds_by_rows and large.any():
            known_rows = pad_zeros(self.rows_at_check, len(rows)).copy()
            large &= rows != known_rows[: len(rows)] if is_read else rows > 2 * known_rows[: len(rows)]
            cells = np.flatnonzero(large)
            if len(cells):
                large = self.statistic.select_folded_cells(self._exact.read_cells(cells), large)
            known_rows[cells] = rows[cells]
            most = np.maximum(limit, 2 * known_rows[: len(rows)])
        else:
            known_rows = self.rows_at_check
        if large.any():
            self._mark_folded(np.flatnonzero(large))
        folded |= large
        room = int(np.min(most - rows, where=~folded, initial=limit))
        room = max(room, FEWEST_ROWS, len(rows) // CELLS_PER_ROW)
        self.__dict__.update(rows_at_check=known_rows, next_check=self._exact.rows_added + room)
        return int(rows.sum(where=folded))

    def _mark_cells_ahead(self, at: Ints) -> None:
        """Mark as folded the cells that the next batch makes too large; `at` is the cell of each row of this batch."""
        cells = at if self.cells_per_row == 1 else at // self.cells_per_row
        known = self._exact.count_rows()
        rows = pad_zeros(np.bincount(cells) * self._counts_per_cell, len(known))
        rows[: len(known)] += known
        many = np.flatnonzero((rows > self.exact_rows_limit) & (pad_zeros(self.folded, len(rows))[: len(rows)] == 0))
        if len(many):
            # If an error prevents the batch from being counted, `restore` unmarks these cells.
            self.cells_ahead, self.next_check = many, 0
            self._mark_folded(many)

    def _mark_folded(self, cells: Ints) -> None:
        """Mark cells as folded, so that their new rows are counted in buckets."""
        assert self.folding is not None
        rows, count = self.folding[1], max(self.index.count(self.inner), 1)
        coarse = self.tallies[rows]
        if isinstance(coarse, LiveTally) and not coarse.is_active:
            active = LiveTally(coarse.shift, coarse.places, lone=False)
            active.set_entries(Entries.empty(coarse.shift), count)
            self.tallies = self.tallies | {rows: active}
        if int(cells[-1]) >= len(self.folded):
            self.folded = pad_zeros(self.folded, 2 * count)
        self.folded[cells] = 1

    def mark(self) -> Any:
        self.cells_ahead = NO_CELLS
        return super().mark()

    def restore(self, mark: Any) -> None:
        if self.lone:
            super().restore(mark)
        else:
            # The rows of the cells in `cells_ahead` have not been moved to buckets yet, so it is enough to unmark the
            # cells.
            self.folded[self.cells_ahead[self.cells_ahead < len(self.folded)]] = 0

    @property
    def _folded_cells(self) -> Ints:
        """The cells that are marked as folded and may still have exact rows."""
        return np.flatnonzero(self.folded[: len(self._exact.count_rows())])

    def _bucket_folded_rows(self) -> None:
        """Move the exact rows of all folded cells to buckets."""
        assert self.folding is not None
        exact, (_, rows, flag) = self._exact, self.folding
        exact.group_buffer()
        count, words = max(self.index.count(self.inner), 1), exact.find_words(self._folded_cells)
        entries, rest = exact.take_entries(words)
        if len(entries):
            coarse, (bucketed, lost) = self.tallies[rows], self.statistic.bucket_entries(entries)
            new = LiveTally(coarse.shift, coarse.places, lone=False)
            new.set_entries(tally.add_entries(coarse.consolidate(), bucketed), count)
            self.flats[flag][lost] = 1
            swap = partial(self.__dict__.__setitem__, "tallies", self.tallies | {rows: new})
            run_without_interrupt([swap, partial(exact.__dict__.update, rest)])
        for k in range(len(exact.chunks)):
            self._bucket_chunk(k, words, count)
        exact.row_counts[words] = 0
        exact.merge_chunks()

    def _bucket_chunk(self, k: int, words: Ints, count: int) -> None:
        """Move the rows whose code has a high word in `words` from chunk k to buckets; there are `count` cells."""
        assert self.folding is not None
        exact, coarse, off_grid = self._exact, self.tallies[self.folding[1]], self.flats[self.folding[2]]
        chunk = exact.chunks[k]
        n = int(chunk.count_rows(words).sum())
        if not n:
            return
        taken, rest = chunk, chunk.drop(words)
        # If all rows of the chunk are moved, which is often the case, do not copy them first. This requires the runs
        # (rows with the same high word) to be ordered by high word, which may not be the case after an interrupted call
        # to `consolidate`.
        if n == len(chunk.low) and (chunk.first[1:] >= chunk.first[:-1]).all():
            words = np.arange(len(chunk.first))
        else:
            taken = gather_runs([chunk], words)
        lengths = taken.last - taken.first
        entries = exact.build_entries(taken, words)
        places, lost = self.statistic.bucket_codes(entries)
        if len(taken.weights):
            # A row of weight 0 has no effect on any metric, so it does not matter if its value is rounded to a bucket.
            lost &= taken.weights != 0
        coarse.reserve(count, n, weighted=len(taken.weights) > 0)
        # If any row of a run lost precision, set the flag of its cell in `off_grid`. All rows of a run share
        # one flag, so the index of the flag is found from the first row of the run.
        firsts = taken.first[lengths > 0]
        off_grid[self.statistic.find_flags(entries.select(firsts[np.logical_or.reduceat(lost, firsts)]))] = 1
        cells = np.repeat(words >> exact.place_bits, lengths)
        arguments = places, cells, taken.weights, *coarse.collect_arguments()
        add = partial(tally_codes.add_places.find_entry_point(*arguments), *arguments)
        # Run the two calls together: an interrupt between them would leave the rows both in the chunk and in buckets.
        run_without_interrupt([add, partial(exact.chunks.__setitem__, k, rest)])
