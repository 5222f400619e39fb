"""The counter of groups in a log that is sorted by group.

A group is complete, or closed, when the next group begins. Its rows are then added to sums, and are no longer needed.
However, the first and the last group of a part of the log may continue in other parts, so the rows of these two groups
are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..errors import InvalidInputError
from ..state.cells import Cells
from ..state.fold import fold
from ..state.state import State
from ..statistics.groups.closed_sums import Groups, add_sums, sum_groups
from ..statistics.groups.partitions import RawRows, scan_sorted
from ..statistics.groups.row_entries import entries_of
from ..statistics.groups.sorted_groups import SortedGroups
from .counter import Counter, path_of
from .index import Index

__all__ = ["SortedCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
# Adding groups to the exact sums has a large fixed cost. Closed groups are therefore added only if there are more than
# MAX_WAITING_GROUPS of them, if they come from more than MAX_WAITING_BATCHES batches, or if the state is read.
MAX_WAITING_GROUPS, MAX_WAITING_BATCHES = 1 << 17, 1 << 10
Call = Callable[[], Any]


class SortedContent(NamedTuple):
    """The content of a contiguous part of a log that is sorted by group.

    The first and the last group may continue in the neighboring parts, so their rows are kept. The groups between them
    are complete (closed) and are reduced to sums.

    Parameters
    ----------
    first, last : int
        The keys of the first and the last group.
    head, tail : tuple of dict
        The rows of the first and of the last group. `tail` is empty if there is only one group.
    wait : tuple of Groups
        Closed groups that have not been added to the sums yet.
    sums : dict, optional
        The sums over all closed groups that have been added; None if there are none.
    rows : (int, int)
        The numbers of rows with a negative and with a positive label in closed groups.
    """

    first: int
    last: int
    head: tuple[RawRows, ...]
    tail: tuple[RawRows, ...]
    wait: tuple[Groups, ...] = ()
    sums: dict[str, Ints] | None = None
    rows: tuple[int, int] = (0, 0)

    def close_groups(self, parts: tuple[RawRows, ...]) -> SortedContent:
        """Return a copy of this content with additional closed groups; `parts` has their rows, sorted by group."""
        n = sum(len(p["labels"]) for p in parts)
        if not n:
            return self
        positives = sum(int(np.count_nonzero(p["labels"])) for p in parts)
        content = self._replace(
            wait=(*self.wait, scan_sorted(parts)), rows=(self.rows[0] + n - positives, self.rows[1] + positives)
        )
        groups = sum(len(g.wins) for g in content.wait)
        too_many = groups > MAX_WAITING_GROUPS or len(content.wait) > MAX_WAITING_BATCHES
        return content.sum_waiting_groups() if too_many else content

    def sum_waiting_groups(self) -> SortedContent:
        """Return a copy of this content in which all waiting groups have been added to the sums."""
        fresh = sum_groups(Groups.concat(self.wait))
        return self._replace(wait=(), sums=fresh if self.sums is None else add_sums(self.sums, fresh))


class SortedCounter(Counter):
    """A counter of the groups of a sorted log.

    New rows form a separate part of the log. The method `state` merges this part with the parts that the initial state
    contains.

    Parameters
    ----------
    state : SortedGroups
        The initial state of the counter.
    index : Index
        The object that finds the cell of each row. This counter has a single cell, and raises an error if there are
        slices.
    """

    statistic: SortedGroups

    def __init__(self, state: SortedGroups, index: Index) -> None:
        self.statistic, self.index, self.before = state.empty_copy(), index, state
        self.copy_constants()
        self.front = self.inner = path_of(state.axes)
        self.lone = not self.front
        self.tallies, self.flats, self.folded = {}, {}, np.zeros(0, np.uint8)
        self.last_key = max((last for _, last in state.key_ranges), default=None)
        self.content: SortedContent | None = None

    @property
    def nbytes(self) -> int:
        content = self.content
        if content is None:
            return self.before.nbytes
        arrays = [a for r in (*content.head, *content.tail) for a in r.values()] + [a for g in content.wait for a in g]
        return self.before.nbytes + sum(a.nbytes for a in arrays)

    def estimate_bytes(self, rows: int) -> int:
        return self.nbytes + 33 * rows

    def reserve(self, rows: int, *, weighted: bool) -> bool:
        return False

    # -- adding rows --------------------------------------------------------------------------------------------------

    def stage_rows(self, columns: Mapping[str, Column], at: Ints, rows: int) -> list[Call]:
        """Add the rows to a copy of the content, and return the call that replaces the content with the copy.

        Raises
        ------
        InvalidInputError
            If the keys are not integers, or are not in ascending order.
        """
        if not rows:
            return []
        if not self.lone:
            raise InvalidInputError(
                'sliced group metrics do not support grouped="sorted"; leave out grouped=', column="group"
            )
        ids = columns["group"].values
        self._check_order(ids)
        fresh = {"ids": ids, "scores": columns["y_score"].values, "labels": columns["y_true"].values}
        if "sample_weight" in columns:
            fresh["weights"] = columns["sample_weight"].values
        return [partial(self.__dict__.update, {"content": self._append_rows(ids, fresh)})]

    def _append_rows(self, ids: Ints, fresh: RawRows) -> SortedContent:
        content, last = self.content, int(ids[-1])
        if content is None:
            content = SortedContent(int(ids[0]), int(ids[0]), (), ())
        # The first rows of this batch may continue the last group of the earlier batches. `open_end` is the number of
        # these rows.
        open_end = int(np.searchsorted(ids, content.last, "right"))
        if open_end:
            open_rows = copy_rows(fresh, 0, open_end)
            if content.first == content.last:
                content = content._replace(head=(*content.head, open_rows))
            else:
                content = content._replace(tail=(*content.tail, open_rows))
        if last == content.last:
            return content
        # The last group of this batch may continue in the next batch, so it stays open. `last_begin` is the index
        # of its first row.
        last_begin = int(np.searchsorted(ids, last, "left"))
        between = {n: c[open_end:last_begin] for n, c in fresh.items()}
        return content.close_groups((*content.tail, between))._replace(
            last=last, tail=(copy_rows(fresh, last_begin, len(ids)),)
        )

    def _check_order(self, ids: Ints) -> None:
        if ids.ndim != 1:
            raise InvalidInputError(
                'group: grouped="sorted" expects integer keys, whose order can be checked; leave out grouped=',
                column="group",
            )
        most = self.last_key if self.content is None else self.content.last
        before = np.concatenate([[ids[0] if most is None else most], ids[:-1]])
        bad = np.flatnonzero(ids < before)
        if len(bad):
            row = int(bad[0])
            raise InvalidInputError(
                f"group: expected ascending keys, found {ids[row]} in row {row:,} after {before[row]}; sort the log by "
                f"group, or leave out grouped=",
                column="group",
                row=row,
                count=len(bad),
            )

    # -- making a state -----------------------------------------------------------------------------------------------

    def state(self) -> State:
        content = self.content
        if content is not None and content.wait:
            content = self.content = content.sum_waiting_groups()
        statistic, dropped = self.statistic, self.flats.get("dropped")
        if content is None and (dropped is None or not dropped.any()):
            return self.before
        inner, entries = entries_of((*content.head, *content.tail) if content is not None else (), statistic.real)
        sums = sum_groups(Groups.zeros()) if content is None or content.sums is None else content.sums
        flats: dict[str, Any] = {n: a[None] for n, a in sums.items()}
        flats["rows"] = np.array([content.rows if content is not None else (0, 0)], np.int64)
        flats["begins"], flats["ends"] = np.zeros((2, len(inner)), np.int64)
        if len(inner):
            flats["begins"][0] = flats["ends"][-1] = 1
        # Add the arrays `dropped` and `rounded`, if they exist. `self.flats` contains no others.
        flats |= {n: a.copy() for n, a in self.flats.items()}
        fresh = statistic.with_cells(
            Cells((), np.zeros((1, 0), np.int64), (), inner, None, flats, {"scores": entries})
        ).canonicalize()
        return fold([self.before, fresh]) if len(self.before) else fresh


def copy_rows(rows: RawRows, first: int, end: int) -> RawRows:
    """Return a copy of the rows from `first` to `end` (exclusive), because the user may reuse the original arrays."""
    return {n: c[first:end].copy() for n, c in rows.items()}
