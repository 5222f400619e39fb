"""Statistics of the groups in a log that is sorted by group.

When a new group begins, the previous group is complete and is added to the sums over groups. Memory use is therefore
constant.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import IncompatibleStateError, StateFormatError
from ...state.cells import Cells
from ...state.declare import Flat
from .closed_sums import ClosedSums, SealedGroups, add_sums, sum_groups
from .scan import scan_groups, sorted_entries
from .scored_groups import ScoredGroups

__all__ = ["SUMS", "SortedGroups"]

Ints = NDArray[np.int64]
SUMS = ("groups", "sums", "weights", "lone", "moments")


class SortedGroups(ScoredGroups, ClosedSums, tag="sorted_groups"):
    """Exact sums over the groups of a sorted log, and the scores of the first and last group of each range of rows.

    Parameters
    ----------
    scale, missing, missing_values
        The scale of the scores, how rows with missing group IDs are treated, and which values count as missing, as in
        `GroupRows`.

    Notes
    -----
    A range is a run of consecutive rows of the log that one accumulator counted. The first and the last group of a
    range may have more rows in other ranges. The state therefore keeps the scores of these groups and leaves them out
    of the sums. Merging raises an error if the group IDs of two ranges overlap. The way in which a log is cut into
    ranges affects the bytes of a state, but not its results.
    """

    begins = Flat()
    ends = Flat()

    row_parts = ("rows", "scores")
    counter: ClassVar[str] = "sorted_groups"

    @cached_property
    def inner_row_counts(self) -> Ints:
        return self.rows_by_cell("scores")

    @cached_property
    def row_counts(self) -> Ints:
        assert self.cells.inner_keys is not None
        out = self.cells.flats["rows"].sum(axis=1)
        np.add.at(out, self.cells.inner_keys[:, 0], self.inner_row_counts)
        return np.asarray(out, np.int64)

    @property
    def key_ranges(self) -> list[tuple[int, int]]:
        """The IDs of the first and last group of each range of consecutive rows, in ascending order.

        If several ranges consist of the same single group, the result contains this range only once.
        """
        # For each group whose scores are kept, `begins` is the number of ranges that begin with it, and `ends` is the
        # number of ranges that end with it. These groups are sorted by ID. A range extends from a group at which a
        # range begins to the next group at which a range ends, or it consists of a single group.
        out, first = [], None
        assert self.cells.inner_keys is not None
        columns = self.cells.inner_keys[:, 1], self.cells.flats["begins"], self.cells.flats["ends"]
        for key, begins, ends in zip(*(c.tolist() for c in columns), strict=True):
            if first is not None and ends:
                out.append((first, key))
                first, ends = None, ends - 1
            out += [(key, key)] * min(ends, 1)
            first = key if begins > ends else first
        return out

    def unify_parts(self, states: Sequence[Self]) -> Sequence[Self]:
        both = sorted(r for s in states for r in s.key_ranges)
        for a, b in itertools.pairwise(both):
            if b[0] < a[1]:
                raise IncompatibleStateError(
                    f"cannot merge states whose keys overlap: {a[0]} to {a[1]} and {b[0]} to {b[1]}; split the sorted log "
                    f"into consecutive parts"
                )
        return states

    @property
    def can_subtract(self) -> bool:
        return False

    def subtract(self, other: Self) -> Self:
        raise IncompatibleStateError(
            'rows cannot be subtracted with grouped="sorted", which keeps only sums over closed groups'
        )

    def close_groups(self) -> SealedGroups:
        """Close all groups: return a state of exact sums over all groups, including the first and last of each range."""
        closed: SealedGroups | None = self.__dict__.get("closed")
        if closed is None:
            cells, entries = self.cells, self.cells.tallies["scores"]
            total = sum_groups(scan_groups(sorted_entries(entries), len(cells)))
            rows = np.zeros(2, np.int64)
            np.add.at(rows, (entries.codes & np.uint64(1)).astype(np.int64), entries.int64_counts)
            if len(self):
                total = add_sums(total, {n: cells.flats[n][0] for n in SUMS})
                rows += cells.flats["rows"][0]
            flats = {n: a[None] for n, a in total.items()} | {"rows": rows[None], "sealed": np.ones((1, 1), np.int64)}
            flats |= {n: a for n, a in cells.flats.items() if n == "rounded"}
            empty = SealedGroups()
            closed = empty.with_cells(Cells((), np.zeros((1, 0), np.int64), (), None, None, flats, {}))
            self.__dict__["closed"] = closed
        return closed

    def facts(self) -> dict[str, Any]:
        rows = self.close_groups().rows
        return {"rows": int(rows.sum()), "positives": int(rows[1])}

    def describe_storage(self) -> dict[str, Any]:
        """Return the memory use and the number of ranges of rows, which `explain` reports."""
        return {"memory": self.nbytes, "parts": int(self.cells.flats["ends"].sum())}

    def check(self) -> None:
        super().check()
        cells = self.cells
        assert cells.inner_keys is not None
        begins, ends = cells.flats["begins"], cells.flats["ends"]
        # `open_` is the number of ranges that are open after each group. A range is open from its first group until its
        # last group. Ranges do not overlap, so at most one range is open.
        open_ = np.cumsum(begins - ends)
        before = np.concatenate([[0], open_[:-1]]) if len(open_) else open_
        wrong = (open_ < 0) | (open_ > 1) | (ends > before + begins) | (begins + ends == 0)
        # Each range that begins or ends with a group contains a row of this group. A group therefore has at least
        # as many rows as there are ranges that begin with it, or ranges that end with it.
        wrong |= np.maximum(begins, ends) > self.inner_row_counts
        # After the last group of each slice, every range must be closed.
        last = np.diff(cells.inner_keys[:, 0], append=-1) != 0
        if wrong.any() or open_[last].any() or cells.inner_keys[:, 2].any() or (self.axes and len(self)):
            raise StateFormatError("the state is corrupt: SortedGroups.begins and SortedGroups.ends do not form ranges")
