"""Decisions by group, such as users by sex: the groups are few, and named in the result."""

from __future__ import annotations

from typing import Any

from ..batch.classes import FoundClasses
from ..batch.kinds import Need
from ..numerics.exact import weights
from ..state.axes import Axis, Vocabulary
from .classes import ClassTable
from .found_classes import FoundNames
from .labels import DecisionCounts

__all__ = ["GroupDecisions"]


class GroupDecisions(FoundNames, DecisionCounts, tag="group_decisions"):
    """The counts of `DecisionCounts` for every group.

    Parameters
    ----------
    max_labels : int
        How many different groups there may be: MemoryLimitError beyond, and nothing was counted.

    Notes
    -----
    A group takes some 60 bytes a threshold, 120 with weights.
    """

    behind = Axis(("group",), "class")

    what, most_setting = "groups", "max_groups"

    @property
    def stacks(self) -> bool:
        return False  # a formula reads all groups of a front cell

    def needs(self) -> tuple[Need, ...]:
        *others, weighed = super().needs()
        return *others, Need("group", FoundClasses()), weighed

    def tables(self, threshold: float) -> dict[Any, ClassTable]:
        """The decisions on each group that weighs anything, by its name in ascending order."""
        i, inner, words = self.thresholds.index(threshold), self.cells.inner, self.cells.behind or Vocabulary()
        assert inner is not None
        cells = weights(self.counts[:, i], None if self.excess is None else self.excess[:, i]).reshape(-1, 4)
        found = dict(zip(inner[:, 1].tolist(), cells.tolist(), strict=True))
        return {words.key(rank): ClassTable(*found[rank]) for rank in sorted(found) if any(found[rank])}

    def facts(self) -> dict[str, Any]:
        rows = self.counts[:, 0].sum(axis=0)
        return {
            "rows": int(rows.sum()),
            "positives": int(rows[1].sum()),
            "groups": len(self.tables(self.thresholds[0])),
        }
