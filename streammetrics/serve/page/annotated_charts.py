"""Draw annotations, such as releases, on the charts over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...reports.charts import Chart, Rule
from ..calendar_days import count_days
from .history import ShownAnnotation

__all__ = ["annotate_looks", "annotate_windows"]


def annotate_looks(chart: Chart, annotations: Sequence[ShownAnnotation]) -> Chart:
    """Return a chart of looks with a line added for each annotation. The x-axis must be in hours since 1970."""
    return _add_lines(chart, [(float(one.hour), one) for one in annotations])


def annotate_windows(
    chart: Chart, first_hour: int, by: str, time_zone: str, annotations: Sequence[ShownAnnotation]
) -> Chart:
    """Return a chart of windows (hours or days) with a line added for each annotation.

    `first_hour` is the first hour of the first window, in hours since 1970, and `by` is "hour" or "day". `time_zone`
    defines the days.
    """
    # The window with index i covers the axis from i - 0.5 to i + 0.5.
    positions = [
        count_days(first_hour, one.hour, time_zone) if by == "day" else float(one.hour - first_hour)
        for one in annotations
    ]
    return _add_lines(chart, [(x - 0.5, one) for x, one in zip(positions, annotations, strict=True)])


def _add_lines(chart: Chart, positions: Sequence[tuple[float, ShownAnnotation]]) -> Chart:
    visible = [(x, one) for x, one in positions if chart.x.low <= x <= chart.x.high]
    if not visible:
        return chart
    lines = [Rule((x, x), (chart.y.low, chart.y.high), f"{one.time}: {one.text}") for x, one in visible]
    remarks = "; ".join(f"{one.time}: {one.text}" for _, one in visible)
    return replace(chart, layers=[*lines, *chart.layers], note=f"{chart.note} Dotted upright: annotations.".strip(),
                   summary=f"{chart.summary} {remarks}.")  # fmt: skip
