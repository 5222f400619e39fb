"""What verdicts read of an experiment: who fell to which arm, how far it is, and what withholds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..inference.sample_ratio import SampleRatio
from ..inference.verdict import Progress
from .card import Side
from .cells import Samples
from .experiment import Experiment, shares_changed
from .series import DAY

__all__ = ["Seen"]


@dataclass(frozen=True)
class Seen:
    """What is read of an experiment.

    Parameters
    ----------
    experiment : Experiment
        Its definition.
    now : float
        When.
    arms : Samples
        The numbers of each arm, of all rows.
    final : Samples
        The same of the rows that count for verdicts.
    ratio : SampleRatio or None
        Whether users fell to arms as planned, of all rows.
    users : dict
        Users by arm, of the rows that count for verdicts; empty where nobody counts them.
    counted_to : int
        The hour after the last that counts for verdicts.
    over : bool
        Whether it has ended, and all rows count for verdicts.
    since : int
        The hour since which days are counted.
    """

    experiment: Experiment
    now: float
    arms: Samples
    final: Samples
    ratio: SampleRatio | None
    users: dict[str, float]
    counted_to: int
    over: bool
    since: int

    @property
    def days(self) -> float:
        """Days of data that count for verdicts."""
        return max(0.0, (self.counted_to - self.since) / DAY)

    def withheld(self, changes: Sequence[str]) -> str:
        """Return why there is no verdict on any treatment; empty if there may be one."""
        one = self.experiment
        if shares_changed(changes) and one.phase is None:
            return "planned shares were changed, and parts do not say in which phase users were first exposed"
        if self.ratio is not None and self.ratio.alarm:
            return self.ratio.sentence
        if one.users is None:
            return "the definition does not say the planned users, which intervals that hold at all looks are made for"
        if not self.users:
            return "nobody counts users, which intervals that hold at all looks need"
        if self.days < one.min_days:
            return f"{self.days:.1f} of at least {one.min_days:g} days are counted"
        return ""

    def progress(self, treatment: str) -> Progress | None:
        """Return how far a treatment and the control are; None where nobody knows."""
        one = self.experiment
        both = treatment, one.control
        if one.users is None or any(arm not in self.users for arm in both):
            return None
        users = math.fsum(self.users[arm] for arm in both)
        planned = one.users * math.fsum(one.arms[arm] for arm in both)
        return Progress(users, planned, self.per_day(users), True, self.over)

    def per_day(self, users: float) -> float | None:
        """Return new users a day, on average since the start."""
        return users / self.days if self.days else None

    def sides(self) -> list[Side]:
        """Return each treatment beside the control."""
        return [
            Side(self.experiment, arm, self.final, self.progress(arm), self.ratio) for arm in self.experiment.treatments
        ]
