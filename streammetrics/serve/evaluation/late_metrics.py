"""Compute the metrics that were added to an experiment after its first parts had arrived.

The total contains only the metrics that all parts contain, so it lacks a metric that was added later. Such a metric is
computed over the most recent days whose parts all contain it. Its value covers only the users and rows of these days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import StreamMetricsError
from ..part_keys import format_hour
from .arm_samples import ArmSamples, collect_arm_samples, select_phase
from .evaluation import MetricRow, WindowPoint
from .experiment import Experiment
from .window_series import WindowSeries
from .windows import ExperimentWindow

__all__ = ["LateMetrics", "collect_late_metrics"]


class LateMetrics(NamedTuple):
    """The samples of metrics that were added later, and the hour from which each metric is computed."""

    arms: ArmSamples
    first_hours: dict[str, int]

    def add_to(self, arms: ArmSamples) -> ArmSamples:
        """Return the samples in `arms` together with the samples of the added metrics."""
        return {arm: [*arms.get(arm, ()), *self.arms.get(arm, ())] for arm in dict.fromkeys([*arms, *self.arms])}

    def describe(self, row: MetricRow) -> MetricRow:
        """Return `row`; if its metric was added later, add to `reason` the hour in which its counting began."""
        first = self.first_hours.get(row.metric)
        if first is None:
            return row
        since = f"counted since {format_hour(first).replace('T', ' ')}:00 UTC, because earlier parts do not have it"
        return row._replace(reason=f"{since}; {row.reason}" if row.reason else since)


def collect_late_metrics(
    experiment: Experiment,
    phase: Any,
    arms: ArmSamples,
    points: Sequence[WindowPoint],
    series: WindowSeries,
    hours: Mapping[int, ExperimentWindow],
    days: Mapping[int, ExperimentWindow],
    before: int,
) -> LateMetrics:
    """Return the metrics that are missing from the total but present in the parts of the most recent days.

    Parameters
    ----------
    experiment : Experiment
        The definition. Its primary metric must be in all parts.
    phase : key
        The key of the last phase, or None if there are no phases.
    arms : ArmSamples
        The samples of the metrics in the total.
    points : sequence of WindowPoint
        The metric values by day, which show which metrics the parts of each day contain.
    series : WindowSeries
        The chart points of the windows, with a cache of merged windows.
    hours, days : mapping of int to ExperimentWindow
        The merged parts of each hour and of each day, keyed by their first hour.
    before : int
        Data from this hour on (in hours since 1970) is ignored, because its outcomes may be incomplete.
    """
    known = {sample.name for samples in arms.values() for sample in samples}
    missing = [name for name, role in experiment.metrics.items() if name not in known and role != "primary"]
    first_hours = _find_first_days(missing, points, days)
    late: ArmSamples = {}
    for first in sorted(set(first_hours.values())):
        merged = series.merge_final(hours, days, before, experiment.timezone, first)
        try:
            found = {} if merged is None else collect_arm_samples(select_phase(merged, experiment, phase), experiment)
        # If these windows cannot be read, their metrics remain missing.
        except StreamMetricsError:
            continue
        for arm, samples in found.items():
            late.setdefault(arm, []).extend(sample for sample in samples if first_hours.get(sample.name) == first)
    return LateMetrics(late, first_hours)


def _find_first_days(names: Iterable[str], points: Sequence[WindowPoint], days: Iterable[int]) -> dict[str, int]:
    """Return, for each metric, the earliest day from which all days up to the last one have the metric."""
    first_days: dict[str, int] = {}
    ordered = sorted(days, reverse=True)
    for name in names:
        having = {point.hour for point in points if point.metric == name}
        for day in ordered:
            if day not in having:
                break
            first_days[name] = day
    return first_days
