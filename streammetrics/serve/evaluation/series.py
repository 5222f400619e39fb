"""Windows of an experiment: what each hour and day says, and the sum of those that are final; kept between evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ...collect.metric_like import MetricLike
from ...compose.concat_slices import stacked
from ...errors import StreamMetricsError
from ...inference.compare import samples_of
from ...inference.differences import changes_of
from ...inference.estimates import each
from ...inference.interpretation import ComparisonSettings, read
from ...inference.pairs import paired
from .card import number, share_of
from .cells import Samples, in_phase, narrowed, split
from .evaluation import WindowPoint
from .experiment import Experiment
from .merge_parts import added_up
from .windows import ExperimentWindow, Names

__all__ = ["Series"]

DAY = 24
TOGETHER = 8
"""Windows that are read side by side: more are no quicker, and need more memory."""
Found = tuple[float | None, float | None, float | None]


class KeptWindow(NamedTuple):
    """What was read of a window."""

    names: Names
    points: list[WindowPoint]


class Series:
    """The windows of one experiment: those that did not change are not read again.

    Whoever evaluates an experiment again and again keeps one and gives it to `evaluate`; it has no lock.
    """

    def __init__(self) -> None:
        self._asked: Any = None
        self._kept: dict[tuple[str, int], KeptWindow] = {}
        self._days, self._hours = GrowingSum(), GrowingSum()

    def points(
        self, experiment: Experiment, phase: Any, kind: str, windows: Mapping[int, ExperimentWindow], final: int
    ) -> list[WindowPoint]:
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
        stale = {
            hour: window
            for hour, window in sorted(windows.items())
            if (kind, hour) not in self._kept or self._kept[kind, hour].names != window.names
        }
        for some in runs(stale):
            counted = {hour: stale[hour].made() for hour in some}
            for hour, points in points_of(experiment, phase, counted).items():
                self._kept[kind, hour] = KeptWindow(stale[hour].names, points)
        length = 1 if kind == "hour" else DAY
        known = (point for hour in sorted(windows) for point in self._kept[kind, hour].points)
        return [point._replace(provisional=point.hour + length > final) for point in known]

    def final(self, hours: Mapping[int, ExperimentWindow], days: Mapping[int, ExperimentWindow], before: int) -> Any:
        """Return the sum of the windows before an hour: whole days, then hours; None without any."""
        day = before - before % DAY
        whole = self._days.of([days[h] for h in sorted(days) if h + DAY <= day])
        rest = [hours[h] for h in sorted(hours) if day <= h < before]
        found = self._hours.of(([] if whole is None else [whole]) + rest)
        return None if found is None else found.made()


class GrowingSum:
    """A sum of windows that mostly grows: what is added behind those that were there is added to what was their sum."""

    def __init__(self) -> None:
        self._parts: list[Names] = []
        self._total: Any = None

    def of(self, windows: Sequence[ExperimentWindow]) -> ExperimentWindow | None:
        """Return the sum; None of nothing."""
        if self._parts != [window.names for window in windows[: len(self._parts)]]:
            self._parts, self._total = [], None
        for window in windows[len(self._parts) :]:
            self._total = window.made() if self._total is None else added_up([self._total, window.made()])
            self._parts.append(window.names)
        total = self._total
        return ExperimentWindow(frozenset(self._parts), lambda: total) if self._parts else None


def runs(hours: Iterable[int]) -> Iterator[list[int]]:
    """Yield hours, so many at a time."""
    rest = iter(hours)
    while some := list(islice(rest, TOGETHER)):
        yield some


def points_of(experiment: Experiment, phase: Any, windows: Mapping[int, MetricLike]) -> dict[int, list[WindowPoint]]:
    """Return what windows say, with intervals of one look: all read side by side; nothing where one cannot be read."""
    found: dict[int, list[WindowPoint]] = {hour: [] for hour in windows}
    for arms in _alike(experiment, phase, windows):
        for arm in experiment.arms:
            changes = {} if arm == experiment.control else changes_in(experiment, arms, arm)
            for sample in arms.get(arm, ()):
                if sample.name in experiment.metrics:
                    cells = zip(sample.keys, sample.values.tolist(), sample.rows.tolist(), strict=True)
                    for (hour,), value, rows in cells:
                        change, low, high = changes.get((sample.name, hour), (None, None, None))
                        found[hour].append(WindowPoint(hour, sample.name, arm, number(value), rows, change, low, high))
    return found


def _alike(experiment: Experiment, phase: Any, windows: Mapping[int, MetricLike]) -> Iterator[Samples]:
    """The numbers of each arm by window, for windows of the same metrics together: one may have come later."""
    alike: dict[tuple[str, ...], dict[int, Any]] = {}
    for hour, counted in windows.items():
        try:
            one = narrowed(in_phase(counted, experiment, phase), experiment)
        except StreamMetricsError:  # parts of before the slices were asked for
            continue
        names = sorted(n for n in one.names if any(m == n or m.startswith(f"{n}/") for m in experiment.metrics))
        if names:
            alike.setdefault(tuple(names), {})[hour] = one if one.names == names else one.ordered(names)
    for some in alike.values():
        yield split(samples_of(stacked(some, "window")))


def changes_in(experiment: Experiment, arms: Samples, treatment: str) -> dict[tuple[str, int], Found]:
    """Return the relative difference of each metric in each window, with the ends of its interval of one look."""
    pairs, _ = paired(*(arms.get(arm, []) for arm in (treatment, experiment.control)))
    settings = ComparisonSettings(share_of(experiment), relative=True)
    found: dict[tuple[str, int], Found] = {}
    for pair in pairs:
        if pair.name in experiment.metrics:
            try:
                figures = each(read(changes_of(pair), settings).relative)
            except StreamMetricsError:  # of no shards
                continue
            for (hour,), one in zip(pair.keys, figures, strict=True):
                found[pair.name, hour] = number(one.estimate), number(one.low), number(one.high)
    return found
