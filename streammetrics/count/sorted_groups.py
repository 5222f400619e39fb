"""Groups of a sorted log while rows come: closed as they end; the first and the last one wait."""

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
from ..statistics.groups.closed import Groups, added, summed
from ..statistics.groups.rows import entries_of
from ..statistics.groups.solve import Raw, scan_sorted
from ..statistics.groups.sorted import SortedGroups
from .counter import Counter, path_of
from .index import Index

__all__ = ["SortedCounter"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
MANY, OFTEN = (
    1 << 17,
    1 << 10,
)  # closed groups that wait for their sums, which cost as much for few; and batches of them
Call = Callable[[], Any]


class SortedContent(NamedTuple):
    """What was seen.

    Parameters
    ----------
    first, last : int
        The groups at the ends.
    head, tail : tuple of dict
        Their rows; there is no tail while there is one group.
    wait : tuple of Groups
        Groups that are closed, but not summed yet.
    sums : dict, optional
        Sums of all others.
    rows : (int, int)
        Negatives and positives of closed groups.
    """

    first: int
    last: int
    head: tuple[Raw, ...]
    tail: tuple[Raw, ...]
    wait: tuple[Groups, ...] = ()
    sums: dict[str, Ints] | None = None
    rows: tuple[int, int] = (0, 0)

    def closing(self, parts: tuple[Raw, ...]) -> SortedContent:
        """Close the groups of these rows, which are sorted by group."""
        n = sum(len(p["labels"]) for p in parts)
        if not n:
            return self
        positives = sum(int(np.count_nonzero(p["labels"])) for p in parts)
        made = self._replace(
            wait=(*self.wait, scan_sorted(parts)), rows=(self.rows[0] + n - positives, self.rows[1] + positives)
        )
        return made.summed() if sum(len(g.wins) for g in made.wait) > MANY or len(made.wait) > OFTEN else made

    def summed(self) -> SortedContent:
        """Let no group wait."""
        fresh = summed(Groups.joined(self.wait))
        return self._replace(wait=(), sums=fresh if self.sums is None else added(self.sums, fresh))


class SortedCounter(Counter):
    """Groups of a sorted log that are being counted: a part of its own, beside those there were.

    Parameters
    ----------
    state : SortedGroups
        What was seen before.
    index : Index
        Where cells are numbered.
    """

    statistic: SortedGroups

    def __init__(self, state: SortedGroups, index: Index) -> None:
        self.statistic, self.index, self.before = state.empty(), index, state
        self.read_facts()
        self.front = self.inner = path_of(state.axes)
        self.lone = not self.front
        self.hot, self.flats, self.folded = {}, {}, np.zeros(0, np.uint8)
        self.most = max((last for _, last in state.ranges), default=None)
        self.content: SortedContent | None = None

    @property
    def fixed(self) -> bool:
        return False

    @property
    def nbytes(self) -> int:
        held = self.content
        if held is None:
            return self.before.nbytes
        arrays = [a for r in (*held.head, *held.tail) for a in r.values()] + [a for g in held.wait for a in g]
        return self.before.nbytes + sum(a.nbytes for a in arrays)

    def need(self, rows: int) -> int:
        return self.nbytes + 33 * rows

    def room(self, rows: int, *, weighted: bool) -> bool:
        return False

    # -- rows in ------------------------------------------------------------------------------------------------------

    def absorbed(self, columns: Mapping[str, Column], at: Ints, rows: int) -> list[Call]:
        """Close groups aside; return the call that puts the result in place.

        Raises
        ------
        InvalidInputError
            Keys are no integers, or do not ascend.
        """
        if not rows:
            return []
        if not self.lone:
            raise InvalidInputError('slices of groups do not take grouped="sorted"', column="group")
        ids = columns["group"].values
        self._check_order(ids)
        fresh = {"ids": ids, "scores": columns["y_score"].values, "labels": columns["y_true"].values}
        if "sample_weight" in columns:
            fresh["weights"] = columns["sample_weight"].values
        return [partial(self.__dict__.update, {"content": self._going_on(ids, fresh)})]

    def _going_on(self, ids: Ints, fresh: Raw) -> SortedContent:
        held, last = self.content, int(ids[-1])
        if held is None:
            held = SortedContent(int(ids[0]), int(ids[0]), (), ())
        begun = int(np.searchsorted(ids, held.last, "right"))  # rows of the group that was open come before
        if begun:
            mine = cut(fresh, 0, begun)
            if held.first == held.last:
                held = held._replace(head=(*held.head, mine))
            else:
                held = held._replace(tail=(*held.tail, mine))
        if last == held.last:
            return held
        end = int(np.searchsorted(ids, last, "left"))  # those of the one that is open now, after
        between = {n: c[begun:end] for n, c in fresh.items()}
        return held.closing((*held.tail, between))._replace(last=last, tail=(cut(fresh, end, len(ids)),))

    def _check_order(self, ids: Ints) -> None:
        if ids.ndim != 1:
            raise InvalidInputError('group: grouped="sorted" takes integers, whose order it can check', column="group")
        most = self.most if self.content is None else self.content.last
        before = np.concatenate([[ids[0] if most is None else most], ids[:-1]])
        bad = np.flatnonzero(ids < before)
        if len(bad):
            row = int(bad[0])
            raise InvalidInputError(
                f"group: expected ascending keys, found {ids[row]} after {before[row]} in row {row:,}; sort the log by "
                f"group, or leave out grouped=",
                column="group",
                row=row,
                count=len(bad),
            )

    # -- to a state ---------------------------------------------------------------------------------------------------

    def state(self) -> State:
        held = self.content
        if held is not None and held.wait:
            held = self.content = held.summed()
        statistic, dropped = self.statistic, self.flats.get("dropped")
        if held is None and (dropped is None or not dropped.any()):
            return self.before
        inner, entries = entries_of((*held.head, *held.tail) if held is not None else (), statistic.real)
        sums = summed(Groups.none()) if held is None or held.sums is None else held.sums
        flats: dict[str, Any] = {n: a[None] for n, a in sums.items()}
        flats["rows"] = np.array([held.rows if held is not None else (0, 0)], np.int64)
        flats["begins"], flats["ends"] = np.zeros((2, len(inner)), np.int64)
        if len(inner):
            flats["begins"][0] = flats["ends"][-1] = 1
        flats |= {n: a.copy() for n, a in self.flats.items()}  # rows left out, weights rounded
        made = statistic.holding(
            Cells((), np.zeros((1, 0), np.int64), (), inner, None, flats, {"scores": entries})
        ).present()
        return fold([self.before, made]) if len(self.before) else made

    def reset(self) -> Counter:
        return SortedCounter(self.statistic.empty(), Index())


def cut(rows: Raw, first: int, end: int) -> Raw:
    """Some rows, as a copy: the batch belongs to whoever gave it."""
    return {n: c[first:end].copy() for n, c in rows.items()}
