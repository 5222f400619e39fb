"""Confusion matrices by group, for fairness metrics that compare groups of people, such as women and men.

The number of groups is expected to be small, and results contain the name of every group.
"""

from __future__ import annotations

from typing import Any

from ..batch.classes import DiscoveredClasses
from ..batch.kinds import Need
from ..numerics.exact import weights_in_units
from ..state.axes import Axis, Vocabulary
from .classes import ClassTable
from .decision_counts import DecisionCounts
from .discovered_classes import DiscoveredNames

__all__ = ["GroupDecisions"]


class GroupDecisions(DiscoveredNames, DecisionCounts, tag="group_decisions"):
    """The confusion matrices of `DecisionCounts` for every group.

    Parameters
    ----------
    max_labels : int
        The maximum number of distinct groups. A batch that exceeds it raises MemoryLimitError and is not counted.

    Notes
    -----
    A group takes about 60 bytes per threshold, or 120 bytes with weights.
    """

    inner_axis = Axis(("group",), "class")

    item_noun, limit_setting = "groups", "max_groups"

    @property
    def can_vectorize(self) -> bool:
        # A vectorized computation treats every cell, here each group of a slice, separately. A fairness metric needs
        # all groups of a slice together.
        return False

    def needs(self) -> tuple[Need, ...]:
        *others, weighed = super().needs()
        return *others, Need("group", DiscoveredClasses()), weighed

    def tables(self, threshold: float) -> dict[Any, ClassTable]:
        """Return a dict that maps the name of each group to its confusion matrix, sorted by name.

        Groups of weight 0 are left out.
        """
        i, inner, words = (
            self.thresholds.index(threshold),
            self.cells.inner_keys,
            self.cells.class_vocabulary or Vocabulary(),
        )
        assert inner is not None
        cells = weights_in_units(self.counts[:, i], None if self.excess is None else self.excess[:, i]).reshape(-1, 4)
        found = dict(zip(inner[:, 1].tolist(), cells.tolist(), strict=True))
        return {words.read_key(rank): ClassTable(*found[rank]) for rank in sorted(found) if any(found[rank])}

    def facts(self) -> dict[str, Any]:
        rows = self.counts[:, 0].sum(axis=0)
        return {
            "rows": int(rows.sum()),
            "positives": int(rows[1].sum()),
            "groups": len(self.tables(self.thresholds[0])),
        }
