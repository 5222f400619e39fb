"""Groups of a log that is sorted by group: closed as they end, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, ArrayRule, rows
from ..columns import Column, Need, label, score, weight
from ..errors import IncompatibleStateError, InvalidInputError
from ..group_rows import Groups, from_records, scan_sorted, to_records
from ..growth import Growth
from ..ids import group
from ..settings import setting
from ..state import State
from .closed_groups import ClosedSums, SealedGroups

__all__ = ["SortedGroups"]

MANY = 1 << 17  # closed groups that wait for their sums


class SortedGroups(ClosedSums, tag="sorted_groups"):
    """Closed sums of all groups but those at the ends of what was seen, whose rows are kept.

    Parameters
    ----------
    scale, missing, missing_values
        As for `GroupRows`.

    Notes
    -----
    Each part (a state that was fed, and merged with others) keeps the rows of its first and its last group, which may go
    on in another part, and the range of its keys: ranges that overlap do not merge. So how a log was cut shows in the
    bytes, and never in the value.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[Any, ...] = setting(default=())

    records: Array = rows(4)
    ranges: Array = rows(2)

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), group("group", self.missing, self.missing_values), weight()

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        y_score: Column,
        group: Column,
        sample_weight: Column | None = None,
    ) -> None:
        if at is not None:
            raise InvalidInputError('slices of groups do not take grouped="sorted"', column="group")
        ids, held, ranges = group.values, self.records, self.ranges
        self._check_order(ids, ranges)
        weights = None if sample_weight is None else sample_weight.values
        fresh = {"ids": ids, "scores": y_score.values, "labels": y_true.values}
        fresh |= {} if weights is None else {"weights": weights}
        first, last = int(ids[0]), int(ids[-1])
        going = ranges[:, 1] == ranges[:, 1].max() if len(ranges) else np.zeros(0, bool)
        parts = [fresh]
        if going.any():
            first, open_ = int(ranges[going][0, 0]), held[:, 0] == ranges[:, 1].max()
            parts, held = [from_records(held[open_]), fresh], held[~open_]
        closed, records = [], [held]
        for part in parts:
            start = int(
                np.searchsorted(part["ids"], first, "right")
            )  # rows of the first group come before, of the last
            end = max(start, int(np.searchsorted(part["ids"], last, "left")))  # one after
            edges = slice(start), slice(end, None)
            records += [to_records({n: c[edge] for n, c in part.items()}) for edge in edges]
            closed.append({n: c[start:end] for n, c in part.items()})
        groups = scan_sorted(closed)
        self.rebind(
            records=_ordered(np.concatenate(records)),
            ranges=_ordered(np.concatenate([ranges[~going], [[first, last]]])),
        )
        self._close(groups, [c["labels"] for c in closed])

    def _close(self, groups: Groups, labels: list[Array]) -> None:
        """Let groups wait until there are many: making exact sums costs as much for few."""
        n, positives = sum(map(len, labels)), sum(int(np.count_nonzero(y)) for y in labels)
        waiting = self.__dict__.setdefault("_closed", [])
        waiting.append((groups, (n - positives, positives)))
        if sum(len(g.wins) for g, _ in waiting) > MANY:
            self._flush()

    def _flush(self) -> None:
        if waiting := self.__dict__.pop("_closed", None):
            rows = tuple(sum(counts[i] for _, counts in waiting) for i in range(2))
            self.take(SealedGroups.of(Groups.joined([g for g, _ in waiting]), (), (rows[0], rows[1])))

    def _held(self) -> Iterator[tuple[str, Array, ArrayRule]]:
        self._flush()
        return super()._held()

    def reset(self) -> Any:
        self.__dict__.pop("_closed", None)
        return super().reset()

    def _check_order(self, ids: Array, ranges: Array) -> None:
        if ids.ndim != 1:
            raise InvalidInputError('group: grouped="sorted" takes integers, whose order it can check', column="group")
        before = np.concatenate([[ranges[:, 1].max() if len(ranges) else ids[0]], ids[:-1]])
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

    def check_merge(self, other: State) -> Growth:
        growth = super().check_merge(other)
        both = _ordered(np.concatenate([self.ranges, getattr(other, "ranges")]))  # noqa: B009 - of a State
        crossing = np.flatnonzero(both[1:, 0] < both[:-1, 1])
        if len(crossing):
            a, b = both[crossing[0]], both[crossing[0] + 1]
            raise IncompatibleStateError(
                f"cannot merge parts whose keys overlap: {a[0]} to {a[1]} and {b[0]} to {b[1]}; cut the log by key"
            )
        return growth

    def close_groups(self) -> SealedGroups:
        """Return exact sums over all groups, those at the ends included."""
        self._flush()
        held = from_records(self.records)
        positives = int(held["labels"].sum())
        counts = len(held["labels"]) - positives, positives
        closed = SealedGroups.of(scan_sorted([held]), (), counts)
        closed.take(self)
        return closed

    def facts(self) -> dict[str, Any]:
        self._flush()
        labels = self.records[:, 3] & 1
        return {"rows": int(self.rows.sum()) + len(labels), "positives": int(self.rows[1]) + int(labels.sum())}

    def held(self) -> dict[str, Any]:
        """What is held."""
        return {"memory": self.nbytes, "parts": len(self.ranges)}


def _ordered(array: NDArray[np.int64]) -> NDArray[np.int64]:
    return array[np.lexsort(array.T[::-1])]
