"""Groups of a log that is sorted by group: closed as they end, in constant memory."""

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
from .closed import ClosedSums, SealedGroups, added, summed
from .scan import of_entries, scanned
from .scored import ScoredGroups

__all__ = ["SUMS", "SortedGroups"]

Ints = NDArray[np.int64]
SUMS = ("groups", "sums", "weights", "lone", "moments")


class SortedGroups(ScoredGroups, ClosedSums, tag="sorted_groups"):
    """Closed sums of all groups but those at the ends of what was seen, whose scores are kept.

    Parameters
    ----------
    scale, missing, missing_values
        As for `GroupRows`.

    Notes
    -----
    Each part (a state that was fed, and merged with others) keeps the scores of its first and its last group, which may go
    on in another part; these two are the range of its keys: ranges that overlap do not merge. So how a log was cut shows
    in the bytes, and never in the value.
    """

    begins = Flat()
    ends = Flat()

    counted = ("rows", "scores")
    counter: ClassVar[str] = "sorted_groups"

    @cached_property
    def rows_behind(self) -> Ints:
        return self.by_cell("scores")

    @cached_property
    def rows_seen(self) -> Ints:
        assert self.cells.inner is not None
        out = self.cells.flats["rows"].sum(axis=1)
        np.add.at(out, self.cells.inner[:, 0], self.rows_behind)
        return np.asarray(out, np.int64)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The first and the last group of each part, in order; parts of one group alone count once."""
        out, first = [], None
        assert self.cells.inner is not None
        columns = self.cells.inner[:, 1], self.cells.flats["begins"], self.cells.flats["ends"]
        for key, begins, ends in zip(*(c.tolist() for c in columns), strict=True):
            if first is not None and ends:
                out.append((first, key))
                first, ends = None, ends - 1
            out += [(key, key)] * min(ends, 1)
            first = key if begins > ends else first
        return out

    def alike(self, states: Sequence[Self]) -> Sequence[Self]:
        both = sorted(r for s in states for r in s.ranges)
        for a, b in itertools.pairwise(both):
            if b[0] < a[1]:
                raise IncompatibleStateError(
                    f"cannot merge parts whose keys overlap: {a[0]} to {a[1]} and {b[0]} to {b[1]}; cut the log by key"
                )
        return states

    @property
    def subtracts(self) -> bool:
        return False

    def subtract(self, other: Self) -> Self:
        raise IncompatibleStateError("rows cannot be taken away from groups that are closed")

    def close_groups(self) -> SealedGroups:
        """Return exact sums over all groups, those at the ends included."""
        made: SealedGroups | None = self.__dict__.get("closed")
        if made is None:
            cells, entries = self.cells, self.cells.tallies["scores"]
            total = summed(scanned(of_entries(entries), len(cells)))
            rows = np.zeros(2, np.int64)
            np.add.at(rows, (entries.codes & np.uint64(1)).astype(np.int64), entries.mass)
            if len(self):
                total = added(total, {n: cells.flats[n][0] for n in SUMS})
                rows += cells.flats["rows"][0]
            flats = {n: a[None] for n, a in total.items()} | {"rows": rows[None], "sealed": np.ones((1, 1), np.int64)}
            flats |= {n: a for n, a in cells.flats.items() if n == "rounded"}
            empty = SealedGroups()
            made = empty.holding(Cells((), np.zeros((1, 0), np.int64), (), None, None, flats, {}))
            self.__dict__["closed"] = made
        return made

    def facts(self) -> dict[str, Any]:
        rows = self.close_groups().rows
        return {"rows": int(rows.sum()), "positives": int(rows[1])}

    def held(self) -> dict[str, Any]:
        """What is held."""
        return {"memory": self.nbytes, "parts": int(self.cells.flats["ends"].sum())}

    def check(self) -> None:
        super().check()
        cells = self.cells
        assert cells.inner is not None
        begins, ends = cells.flats["begins"], cells.flats["ends"]
        open_ = np.cumsum(begins - ends)
        before = np.concatenate([[0], open_[:-1]]) if len(open_) else open_
        wrong = (open_ < 0) | (open_ > 1) | (ends > before + begins) | (begins + ends == 0)
        wrong |= np.maximum(begins, ends) > self.rows_behind  # each part has a row there
        last = np.diff(cells.inner[:, 0], append=-1) != 0  # of a front cell
        if wrong.any() or open_[last].any() or cells.inner[:, 2].any() or (self.axes and len(self)):
            raise StateFormatError("SortedGroups.begins and ends are not those of ranges")
