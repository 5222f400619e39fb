"""Compute the chart points for each hour and day of an experiment, and merge the hours with complete outcomes.

Both results are cached. The chart points and the merged whole days can be saved, so that a restarted server does not
need to read all parts again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

from ... import __version__
from ...collect.metric_like import MetricLike
from ...collect.serialization import from_bytes
from ...compose.concat_slices import concat_slices
from ...errors import StreamMetricsError
from ...inference.compare import collect_samples
from ...inference.differences import compute_differences
from ...inference.estimates import split_intervals
from ...inference.interpretation import ComparisonSettings, interpret
from ...inference.pairs import pair_samples
from ..calendar_days import find_day, find_next_day
from .arm_samples import ArmSamples, roll_up, select_phase, split_by_arm
from .evaluation import WindowPoint
from .experiment import Experiment
from .merge_parts import merge_parts
from .treatment_comparison import confidence_of_one, finite_or_none
from .windows import ExperimentWindow, PartIds

__all__ = ["WindowSeries"]

BATCH = 8
"""The number of windows (hours or days) that are read together. Larger batches are not faster and need more memory."""
RelativeChange = tuple[float | None, float | None, float | None]


class CachedPoints(NamedTuple):
    """The cached chart points of a window, and the IDs of the parts that they were computed from."""

    part_ids: PartIds
    points: list[WindowPoint]


class WindowSeries:
    """The chart points of all windows (hours and days) of one experiment. Windows without new parts are not read again.

    A caller that evaluates an experiment repeatedly should pass the same object to `evaluate`. The object is not
    thread-safe.
    """

    def __init__(self) -> None:
        self._cache_key = ""
        self.is_saved = True
        self._cached_points: dict[tuple[str, int], CachedPoints] = {}
        # Each key is the first hour of a merged range. Its value is a pair: a merge of the whole days, and a merge that
        # also includes the hours of the last, incomplete day.
        self._merges: dict[int, tuple[GrowingMerge, GrowingMerge]] = {0: (GrowingMerge(), GrowingMerge())}

    def serialize(self) -> tuple[str, bytes | None]:
        """Return the chart points as JSON, and the serialized merge of whole days (None if there are no whole days)."""
        points = [[*window, sort_ids(one.part_ids), one.points] for window, one in self._cached_points.items()]
        merged_days, _ = self._merges[0]
        days = [sort_ids(part_ids) for part_ids in merged_days.part_ids]
        text = json.dumps({"key": self._cache_key, "points": points, "days": days}, separators=(",", ":"))
        return text, None if merged_days.total is None else bytes(merged_days.total.to_bytes())

    @classmethod
    def from_saved(cls, text: str, days: bytes | None) -> Self:
        """Restore a series from the JSON and the serialized days that `serialize` returned."""
        series, saved = cls(), json.loads(text)
        series._cache_key = saved["key"]
        for kind, hour, part_ids, points in saved["points"]:
            found = CachedPoints(frozenset(part_ids), [WindowPoint(*point) for point in points])
            series._cached_points[kind, hour] = found
        if days is not None:
            merged_days, _ = series._merges[0]
            merged_days.part_ids, merged_days.total = list(map(frozenset, saved["days"])), from_bytes(days)
        return series

    def build_points(
        self, experiment: Experiment, phase: Any, kind: str, windows: Mapping[int, ExperimentWindow], final_before: int
    ) -> list[WindowPoint]:
        """Return the points of all windows, in chronological order.

        Parameters
        ----------
        experiment : Experiment
            The definition of the experiment.
        phase : key
            The key of the last phase, if there are phases.
        kind : {"hour", "day"}
            The length of the windows.
        windows : mapping
            The windows, keyed by their first hour.
        final_before : int
            Windows that end after the start of this hour are marked as provisional, because outcomes may still arrive.
        """
        # The points of a window depend only on the definition, the phase and the window's parts. If the definition or
        # the phase has changed, clear the cache. If the part IDs of a window have changed, read the window again.
        if self._cache_key != (cache_key := hash_definition(experiment, phase)):
            self._cache_key, self._cached_points = cache_key, {}
        for hour in [h for k, h in self._cached_points if k == kind and h not in windows]:
            del self._cached_points[kind, hour]
        stale = {
            hour: window
            for hour, window in sorted(windows.items())
            if (kind, hour) not in self._cached_points or self._cached_points[kind, hour].part_ids != window.part_ids
        }
        for some in split_batches(stale):
            counted = {hour: stale[hour].load() for hour in some}
            for hour, points in compute_points(experiment, phase, counted).items():
                self._cached_points[kind, hour] = CachedPoints(stale[hour].part_ids, points)
                self.is_saved = False
        final_points = []
        for hour in sorted(windows):
            end = hour + 1 if kind == "hour" else find_next_day(hour, experiment.timezone)
            points = self._cached_points[kind, hour].points
            final_points += [point._replace(provisional=end > final_before) for point in points]
        return final_points

    def merge_final(
        self,
        hours: Mapping[int, ExperimentWindow],
        days: Mapping[int, ExperimentWindow],
        before: int,
        time_zone: str,
        first: int = 0,
    ) -> Any:
        """Return the merged metrics of the hours from `first` up to `before` (exclusive); None if there are no windows.

        `hours` and `days` contain the windows, keyed by their first hour. The whole days that begin at `first` or later
        are merged before the individual hours of the last, incomplete day. `time_zone` defines the days.
        """
        day = find_day(before, time_zone)
        of_days, of_hours = self._merges.setdefault(first, (GrowingMerge(), GrowingMerge()))
        whole_days = of_days.merge_windows([days[h] for h in sorted(days) if first <= h < day])
        last_hours = [hours[h] for h in sorted(hours) if max(day, first) <= h < before]
        merged = of_hours.merge_windows(([] if whole_days is None else [whole_days]) + last_hours)
        return None if merged is None else merged.load()


class GrowingMerge:
    """A cached merge of consecutive windows. As long as windows are only appended, only the new ones are read."""

    def __init__(self) -> None:
        self.part_ids: list[PartIds] = []
        self.total: Any = None

    def merge_windows(self, windows: Sequence[ExperimentWindow]) -> ExperimentWindow | None:
        """Merge windows, which must be in chronological order, and return the result; None if there are no windows."""
        # The cached merge is still valid if the part IDs of its windows have not changed.
        if self.part_ids != [window.part_ids for window in windows[: len(self.part_ids)]]:
            self.part_ids, self.total = [], None
        for window in windows[len(self.part_ids) :]:
            self.total = window.load() if self.total is None else merge_parts([self.total, window.load()])
            self.part_ids.append(window.part_ids)
        total = self.total
        return ExperimentWindow(frozenset(self.part_ids), lambda: total) if self.part_ids else None


def hash_definition(experiment: Experiment, phase: Any) -> str:
    """Return a hash of everything that the points of a window depend on, except the window's parts."""
    text = json.dumps([experiment.to_dict(), repr(phase), __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sort_ids(part_ids: PartIds) -> list[Any]:
    """Return the IDs of parts (numbers and digests) in an order that is the same in every process."""
    return sorted(part_ids, key=lambda one: (isinstance(one, str), one))


def split_batches(hours: Iterable[int]) -> Iterator[list[int]]:
    """Split hours into batches of at most `BATCH` hours."""
    rest = iter(hours)
    while some := list(islice(rest, BATCH)):
        yield some


def compute_points(
    experiment: Experiment, phase: Any, windows: Mapping[int, MetricLike]
) -> dict[int, list[WindowPoint]]:
    """Return the chart points of each window, keyed by first hour. Their intervals are valid only for a single look.

    A window that cannot be read has no points.
    """
    points: dict[int, list[WindowPoint]] = {hour: [] for hour in windows}
    for arms in _group_by_metrics(experiment, phase, windows):
        for arm in experiment.arms:
            changes = {} if arm == experiment.control else compute_changes(experiment, arms, arm)
            for sample in arms.get(arm, ()):
                if sample.name in experiment.metrics:
                    cells = zip(sample.keys, sample.values.tolist(), sample.rows.tolist(), strict=True)
                    for (hour,), value, rows in cells:
                        change, low, high = changes.get((sample.name, hour), (None, None, None))
                        points[hour].append(
                            WindowPoint(hour, sample.name, arm, finite_or_none(value), rows, change, low, high)
                        )
    return points


def _group_by_metrics(experiment: Experiment, phase: Any, windows: Mapping[int, MetricLike]) -> Iterator[ArmSamples]:
    """Yield the samples (metric values) of each arm, with one value for each window.

    Metrics can be added during an experiment, so windows may differ in their metrics. Windows with the same metrics are
    yielded together.
    """
    groups: dict[tuple[str, ...], dict[int, Any]] = {}
    for hour, counted in windows.items():
        try:
            one = roll_up(select_phase(counted, experiment, phase), experiment)
        # This error means that some parts of the window were posted before a slice column was added to the definition.
        except StreamMetricsError:
            continue
        names = sorted(n for n in one.names if any(m == n or m.startswith(f"{n}/") for m in experiment.metrics))
        if names:
            groups.setdefault(tuple(names), {})[hour] = one if one.names == names else one.ordered(names)
    for some in groups.values():
        yield split_by_arm(collect_samples(concat_slices(some, "window")))


def compute_changes(experiment: Experiment, arms: ArmSamples, treatment: str) -> dict[tuple[str, int], RelativeChange]:
    """Return the relative difference between a treatment and the control, for each metric in each window.

    The result maps (metric, hour) to the estimated difference and the limits of its interval for a single look.
    """
    pairs, _ = pair_samples(*(arms.get(arm, []) for arm in (treatment, experiment.control)))
    settings = ComparisonSettings(confidence_of_one(experiment), relative=True)
    changes: dict[tuple[str, int], RelativeChange] = {}
    for pair in pairs:
        if pair.name in experiment.metrics:
            try:
                intervals = split_intervals(interpret(compute_differences(pair), settings).relative)
            # This error means that the metric has no interval, because its users were not split into shards.
            except StreamMetricsError:
                continue
            for (hour,), one in zip(pair.keys, intervals, strict=True):
                changes[pair.name, hour] = (
                    finite_or_none(one.estimate),
                    finite_or_none(one.low),
                    finite_or_none(one.high),
                )
    return changes
