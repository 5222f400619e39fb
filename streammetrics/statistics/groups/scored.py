"""What open groups have in common, however they wait: entries of exact scores behind an axis of groups."""

from __future__ import annotations

from typing import Any, ClassVar

from ...batch.ids import group
from ...batch.kinds import label, score, weight
from ...errors import StateFormatError
from ...numerics.buckets import all_scores, exact_bits
from ...numerics.settings import setting
from ...state.axes import Axis
from ...state.declare import Tally
from ...state.state import State
from .closed import SealedGroups, SumsApart
from .scan import of_entries

__all__ = ["ScoredGroups"]

BLOCK = 1 << 16


class ScoredGroups(State):
    """The scores of open groups.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        What scores are legal.
    missing, missing_values
        As `sm.extend.group` takes them.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    scores = Tally("exact_places")

    behind = Axis(("group",), "group")
    counter: ClassVar[str] = "groups"

    def needs(self) -> tuple[Any, ...]:
        return label(), score(scale=self.scale), group("group", self.missing, self.missing_values), weight()

    def absorb(self, into: dict[str, Any], at: Any, **columns: Any) -> None:
        raise NotImplementedError("rows of groups wait as they came: see `count.group_rows`")

    def close_groups(self) -> SealedGroups:
        """Return exact sums over the groups."""
        raise NotImplementedError

    def apart(self) -> SumsApart:
        return self.close_groups().apart()

    def seal(self, partition: tuple[int, int] | None = None) -> SealedGroups:
        return self.close_groups().seal(partition)

    @property
    def real(self) -> bool:
        """Whether scores may have a sign."""
        return self.scale != "probability"

    @property
    def exact_places(self) -> int:
        """All scores, each with both labels."""
        return 1 << exact_bits(self.real)

    def check(self) -> None:
        super().check()
        held = self.cells.tallies["scores"]
        blocks = (held.where(slice(i, i + BLOCK)) for i in range(0, len(held), BLOCK))
        if not all(all_scores(of_entries(e).keys, self.real) for e in blocks):
            raise StateFormatError(f"{type(self).__name__}.scores holds a score that is none")
