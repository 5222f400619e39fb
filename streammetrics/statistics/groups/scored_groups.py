"""The base class for states with open groups, which keep the scores of all rows because more rows may still arrive."""

from __future__ import annotations

from typing import Any, ClassVar

from ...batch.ids import group
from ...batch.kinds import label, score, weight
from ...errors import StateFormatError
from ...numerics.score_buckets import are_score_keys, count_exact_bits
from ...numerics.settings import setting
from ...state.axes import Axis
from ...state.declare import Tally
from ...state.state import State
from .closed_sums import SealedGroups, SubtractableSums
from .scan import sorted_entries

__all__ = ["ScoredGroups"]

BLOCK = 1 << 16


class ScoredGroups(State):
    """The base class for states that keep the scores of all open groups (groups that may still get more rows).

    The method `close_groups` turns the scores into sums over groups.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        The scale of the scores.
    missing, missing_values
        How rows with missing group IDs are treated, and which values count as missing; see `sm.extend.group`.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    scores = Tally("exact_places")

    inner_axis = Axis(("group",), "group")
    counter: ClassVar[str] = "groups"

    def needs(self) -> tuple[Any, ...]:
        return label(), score(scale=self.scale), group("group", self.missing, self.missing_values), weight()

    def absorb(self, into: dict[str, Any], at: Any, **columns: Any) -> None:
        raise NotImplementedError("absorb() does not apply: the module `count.group_rows` counts rows by group")

    def close_groups(self) -> SealedGroups:
        """Close all groups: return a state that contains only exact sums over the groups."""
        raise NotImplementedError

    def to_subtractable(self) -> SubtractableSums:
        return self.close_groups().to_subtractable()

    def seal(self, partition: tuple[int, int] | None = None) -> SealedGroups:
        return self.close_groups().seal(partition)

    @property
    def real(self) -> bool:
        """Whether scores may be negative."""
        return self.scale != "probability"

    @property
    def exact_places(self) -> int:
        """The number of possible codes of a row within its group; a code combines a score and a label."""
        return 1 << count_exact_bits(self.real)

    def check(self) -> None:
        super().check()
        entries = self.cells.tallies["scores"]
        blocks = (entries.select(slice(i, i + BLOCK)) for i in range(0, len(entries), BLOCK))
        if not all(are_score_keys(sorted_entries(e).keys, self.real) for e in blocks):
            raise StateFormatError(f"the state is corrupt: {type(self).__name__}.scores contains an invalid score")
