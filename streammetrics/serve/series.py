"""Windows of an experiment: what each hour and day says, and the sum of those that are final; kept between evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..collect.holder import Holder
from ..errors import StreamMetricsError
from ..state.state import State
from .card import Side
from .cells import by_arm, in_phase
from .evaluation import Point
from .experiment import Experiment

__all__ = ["Series"]

DAY = 24
Window = tuple[str, int]


class Kept(NamedTuple):
    """What was read of a window."""

    states: tuple[State, ...]
    digest: str
    points: list[Point]

    def of(self, holder: Holder) -> bool:
        """Whether it is of this content: of the same states, which never change, or of equal ones."""
        states = holder.states
        alike = len(states) == len(self.states) and all(a is b for a, b in zip(states, self.states, strict=True))
        return alike or holder.digest() == self.digest


class Series:
    """The windows of one experiment: those that did not change are not read again.

    Whoever evaluates an experiment again and again keeps one and gives it to `evaluate`; it has no lock.
    """

    def __init__(self) -> None:
        self._asked: Any = None
        self._kept: dict[Window, Kept] = {}
        self._days, self._hours = Sum(), Sum()

    def points(
        self, experiment: Experiment, phase: Any, kind: str, windows: Mapping[int, Holder], final: int
    ) -> list[Point]:
        """Return what windows say, in their order.

        Parameters
        ----------
        experiment : Experiment
            What is asked.
        phase : key
            Of the phase that counts, if there are phases.
        kind : {"hour", "day"}
            How long windows are.
        windows : mapping
            What was counted in each, by its first hour.
        final : int
            Windows that end after this hour are provisional.
        """
        if self._asked != (asked := (experiment, phase)):
            self._asked, self._kept = asked, {}
        for hour in [h for k, h in self._kept if k == kind and h not in windows]:
            del self._kept[kind, hour]
        found: list[Point] = []
        for hour, holder in sorted(windows.items()):
            kept = self._kept.get((kind, hour))
            if kept is None or not kept.of(holder):
                kept = Kept(holder.states, holder.digest(), points_of(experiment, phase, hour, holder))
                self._kept[kind, hour] = kept
            late = hour + (1 if kind == "hour" else DAY) > final
            found += [point._replace(provisional=late) for point in kept.points]
        return found

    def final(self, hours: Mapping[int, Holder], days: Mapping[int, Holder], before: int) -> Any:
        """Return the sum of the windows before an hour: whole days, then hours; None without any."""
        day = before - before % DAY
        whole = self._days.of([days[h] for h in sorted(days) if h + DAY <= day])
        rest = [hours[h] for h in sorted(hours) if day <= h < before]
        return self._hours.of(([] if whole is None else [whole]) + rest)


class Sum:
    """A sum of holders that mostly grows: what is added behind those that were there is added to what was their sum."""

    def __init__(self) -> None:
        self._parts: list[tuple[tuple[State, ...], str]] = []
        self._total: Any = None

    def of(self, holders: Sequence[Holder]) -> Any:
        """Return the sum; None of nothing."""
        if not self._begins(holders):
            self._parts, self._total = [], None
        for holder in holders[len(self._parts) :]:
            self._total = holder.copy() if self._total is None else self._total.copy().merge(holder)
            self._parts.append((holder.states, holder.digest()))
        return self._total

    def _begins(self, holders: Sequence[Holder]) -> bool:
        """Whether what was added is the beginning of these."""
        known = [Kept(*part, []).of(holder) for part, holder in zip(self._parts, holders, strict=False)]
        return len(known) == len(self._parts) and all(known)


def points_of(experiment: Experiment, phase: Any, hour: int, holder: Any) -> list[Point]:
    """Return what one window says, with intervals of one look; nothing where it cannot be read."""
    try:
        arms = by_arm(in_phase(holder, experiment, phase), experiment)
    except StreamMetricsError:
        return []
    found = []
    control: dict[str, Point] = {}
    for treatment in experiment.treatments:
        for row in Side(experiment, treatment, arms, None).rows():
            rows = {s.name: int(s.rows.sum()) for s in arms.get(experiment.control, ())}
            control[row.metric] = Point(
                hour, row.metric, experiment.control, row.control_value, rows.get(row.metric, 0)
            )
            mine = row.rows - rows.get(row.metric, 0)
            found.append(Point(hour, row.metric, treatment, row.value, mine, row.change, row.once_low, row.once_high))
    return [*control.values(), *found]
