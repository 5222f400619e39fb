"""Build the charts over time: differences at each look and in each window, values of the arms, and the sample ratio."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from ...inference.sample_ratio import ALARM, sample_ratio_mismatch
from ...reports.charts import Band, Chart, ChartAxis, ChartLine, ColourKey, Rule, Whiskers, category_axis, linear_axis
from ...reports.numbers import choose_decimals, format_count, format_fixed, format_share, format_signed
from ...reports.page_model import NamedSide
from ...reports.window_charts import DOTS, format_time_unit, format_times
from ..calendar_days import find_next_day, to_datetime
from ..evaluation.evaluation import ShownLook, WindowPoint, is_too_wide
from ..part_keys import HOUR
from .table_rows import Arms
from .time_format import format_time
from .view import View

__all__ = ["build_arm_chart", "build_look_chart", "build_ratio_chart", "build_window_chart"]

MAX_LOOKS = 240  # the largest number of looks in a chart
MAX_READINGS = 120  # the largest number of points with a tooltip in a chart
MAX_LETTERS = 28  # the longest name above a chart, in characters


def build_look_chart(looks: Sequence[ShownLook], metric: str, view: View) -> Chart | None:
    """Return a chart of the difference between two arms over all rows, as estimated at each look.

    Early looks with an interval too wide to be informative are left out, because they would stretch the axis. Return
    None if fewer than two looks remain.
    """
    in_range = [one for one in looks if one.change is not None and view.contains(int(one.at // HOUR))]
    visible = [one for one in in_range if not is_too_wide(one.low, one.high)]
    if len(visible) < 2:
        return None
    drawn_looks = _thin_looks(visible, MAX_LOOKS)
    x = [one.at / HOUR for one in drawn_looks]
    value, low, high = ([_nan_if_none(getattr(one, name)) for one in drawn_looks] for name in ("change", "low", "high"))
    extremes = [v for v in [*low[len(low) // 3 :], *high[len(high) // 3 :]] if math.isfinite(v)] or value
    room = (max(*extremes, 0.0) - min(*extremes, 0.0)) * 0.15 or 0.01
    y = linear_axis(min(*extremes, 0.0) - room, max(*extremes, 0.0) + room, percent=True, sign=True)
    ends = x[0], x[-1]
    layers: list[Any] = [Band(x, low, high), Rule(ends, (0.0, 0.0), "no difference", solid=True), ChartLine(x, value)]
    readings = [
        (one.at / HOUR, f"{format_time(one.at)}: {_describe_difference(one)}")
        for one in _thin_looks(drawn_looks, MAX_READINGS)
    ]
    early = len(in_range) - len(visible)
    left_out = f" {format_count(early)} of them came too early to say anything, and are left out." if early else ""
    says = f"{format_count(len(in_range))} looks so far.{left_out} The band is jointly valid at all looks."
    last = [v for v in (value[-1], low[-1], high[-1]) if math.isfinite(v) and y.low <= v <= y.high]
    right = tuple((v, format_signed(v, 1, True)) for v in _drop_close_values(last, (y.high - y.low) / 14))
    return Chart(f"{metric} at every look", "", says, _build_time_axis(*ends, view.timezone), y, "",
                 f"difference in {_shorten(metric)}, with its band", layers, right=right, readings=readings)  # fmt: skip


def build_window_chart(
    points: Sequence[WindowPoint], total_change: float | None, metric: str, side: NamedSide, view: View
) -> Chart | None:
    """Return a chart of the difference in each window (hour or day), with intervals that are valid for a single look.

    `side` is the treatment, and `total_change` is its difference from the control over all rows. Windows with an
    interval too wide to be informative are left out. Return None if there is no data.
    """
    points_by_hour = {
        p.hour: p for p in points if p.arm == side.name and p.change is not None and not is_too_wide(p.low, p.high)
    }
    if not points_by_hour:
        return None
    by = view.by
    hours, names, unit = _fill_windows(points_by_hour, view)
    rows = [points_by_hour.get(h) for h in hours]
    x = [float(i) for i in range(len(hours))]
    value, low, high = ([_nan_if_none(getattr(p, n, None)) for p in rows] for n in ("change", "low", "high"))
    finite = [
        0.0,
        *(v for v in (*value, *low, *high) if math.isfinite(v)),
        *([total_change] if total_change is not None else []),
    ]
    room = (max(finite) - min(finite)) * 0.06 or 0.01
    ends = (-0.5, len(hours) - 0.5)
    layers: list[Any] = [Rule(ends, (0.0, 0.0), "no difference", solid=True)]
    if total_change is not None:
        layers.append(Rule(ends, (total_change, total_change), "all rows"))
    provisional = [p is not None and p.provisional for p in rows]
    data_layers = (
        [Whiskers(x, value, low, high, None, provisional)]
        if len(x) <= DOTS
        else [Band(x, low, high), ChartLine(x, value)]
    )
    readings = [
        (x[i], f"{names[i]}: {_describe_difference(p)}{PROVISIONAL if p.provisional else ''}")
        for i, p in enumerate(rows)
        if p is not None and i % _reading_step(rows) == 0
    ]
    pale_note = " Pale: provisional, because outcomes may still arrive." if any(provisional) else ""
    return Chart(f"Each {by} separately", f"Intervals are for a single look. Dotted: all rows.{pale_note}",
                 f"A single {by} proves little; the always-valid interval decides.", category_axis(names),
                 linear_axis(min(finite) - room, max(finite) + room, percent=True, sign=True), unit,
                 f"difference in {_shorten(metric)}", [*layers, *data_layers], readings=readings)  # fmt: skip


def build_arm_chart(
    points: Sequence[WindowPoint], metric: str, arms: Arms, view: View, *, percent: bool
) -> Chart | None:
    """Return a chart of a metric's value in each hour or day, with a line for each arm; None if there is no data."""
    points_by_arm: dict[str, dict[int, WindowPoint]] = {}
    for p in points:
        if p.arm in arms and p.value is not None:
            points_by_arm.setdefault(p.arm, {})[p.hour] = p
    if not points_by_arm:
        return None
    by = view.by
    hours, names, unit = _fill_windows({h for one in points_by_arm.values() for h in one}, view)
    lines = {
        arm: [_nan_if_none(getattr(points_by_arm[arm].get(h), "value", None)) for h in hours]
        for arm in arms
        if arm in points_by_arm
    }
    finite = [v for line in lines.values() for v in line if math.isfinite(v)]
    room = (max(finite) - min(finite)) * 0.12 or abs(max(finite)) * 0.1 or 1.0
    decimals = choose_decimals(room * (100 if percent else 1)) or 0
    x = [float(i) for i in range(len(hours))]
    marks = range(len(x)) if len(x) <= DOTS else range(len(x) // 8, len(x), max(len(x) // 4, 1))
    layers = [ChartLine(x, line, arms[arm].number, [*marks]) for arm, line in lines.items()]
    values = [
        ", ".join(f"{arm} {format_fixed(line[i], decimals, percent)}" for arm, line in lines.items())
        for i in range(len(x))
    ]
    return Chart("By arm", "The value in each arm.", f"Lowest {format_fixed(min(finite), decimals, percent)}, highest "
                 f"{format_fixed(max(finite), decimals, percent)}, in {len(hours)} {by}s.", category_axis(names),
                 linear_axis(min(finite) - room, max(finite) + room, percent=percent), unit,
                 f"{_shorten(metric)}, by {by}", layers, [ColourKey(arms[arm].number, arm) for arm in lines],
                 readings=[(x[i], f"{names[i]}: {values[i]}") for i in range(0, len(x), _reading_step(x))])  # fmt: skip


def build_ratio_chart(
    looks: Sequence[ShownLook], side: NamedSide, planned: float, arms: int, view: View
) -> Chart | None:
    """Return a chart of the share of users in an arm, or None if there are fewer than two looks.

    `planned` is the planned share, and `arms` is the number of arms. With two arms, a band shows the shares that are
    too close to the planned share to raise an alarm.
    """
    visible = [one for one in looks if one.shares and side.name in one.shares and one.users]
    if len(visible) < 2:
        return None
    drawn_looks = _thin_looks(visible, MAX_READINGS)
    x, value = [one.at / HOUR for one in drawn_looks], [one.shares[side.name] for one in drawn_looks if one.shares]
    widths = [_find_alarm_distance(one.users or 0.0, planned) if arms == 2 else math.nan for one in drawn_looks]
    half = max([abs(v - planned) for v in value[-len(value) // 2 :]] + [w for w in widths[-1:] if w == w]) * 1.6 or 0.01
    ends = x[0], x[-1]
    band = [Band(x, [planned - w for w in widths], [planned + w for w in widths])] if arms == 2 else []
    layers = [*band, Rule(ends, (planned, planned), "planned", solid=True), ChartLine(x, value)]
    readings = [
        (at, f"{format_time(at * HOUR)}: {format_share(v, 2)} in {side.name}") for at, v in zip(x, value, strict=True)
    ]
    shaded = " Shaded: no alarm." if band else ""
    return Chart("Sample ratio", f"Share of users so far.{shaded}", f"Alarm if the e-value reaches {ALARM:g}.",
                 _build_time_axis(*ends, view.timezone), linear_axis(planned - half, planned + half, percent=True), "",
                 f"users in {_shorten(side.name)}, planned {format_share(planned, 1)}", layers,
                 readings=readings)  # fmt: skip


PROVISIONAL = ", provisional"


@lru_cache(4096)
def _find_alarm_distance(users: float, planned: float) -> float:
    """Return how far a share of users may be from the planned share before the sample ratio check raises an alarm."""
    low, high = 0.0, min(planned, 1.0 - planned)
    for _ in range(20):
        middle = (low + high) / 2
        counts = {"a": users * (planned + middle), "b": users * (1.0 - planned - middle)}
        alarm = sample_ratio_mismatch(counts, {"a": planned, "b": 1.0 - planned}).alarm
        low, high = (low, middle) if alarm else (middle, high)
    return low


def _reading_step(windows: Sequence[Any]) -> int:
    """Return the smallest n for which a tooltip at every n-th point gives at most `MAX_READINGS` tooltips."""
    return math.ceil(len(windows) / MAX_READINGS)


def _fill_windows(hours: Collection[int], view: View) -> tuple[list[int], list[str], str]:
    """Return the first hours of all windows, their names, and the label of the time axis.

    `hours` contains the first hours of the windows with data. The result also includes the windows between them.
    """
    first, last = min(hours), max(hours)
    if view.by == "hour":
        every, times = [*range(first, last + 1)], [to_datetime(h) for h in range(first, last + 1)]
        return every, format_times(times), format_time_unit(times)
    every = _list_days(first, last, view.timezone)
    dates = [to_datetime(h, view.timezone).date() for h in every]
    return every, format_times(dates), f"{format_time_unit(dates)}, {view.timezone}"


def _list_days(first: int, last: int, time_zone: str) -> list[int]:
    """Return the hour `first` and the first hours of the days after it, up to the hour `last`."""
    days = [first]
    while (day := find_next_day(days[-1], time_zone)) <= last:
        days.append(day)
    return days


def _build_time_axis(first: float, last: float, time_zone: str) -> ChartAxis:
    """Return a time axis, in hours since 1970, with ticks at the start of days."""
    first_midnight = find_next_day(math.ceil(first) - 1, time_zone)
    midnights = [h for h in _list_days(first_midnight, math.floor(last), time_zone) if h <= last]
    every = max(1, math.ceil(len(midnights) / 6))
    ticks = [(float(h), to_datetime(h, time_zone)) for h in midnights[::every]]
    chosen = ticks or [(first, to_datetime(int(first), time_zone))]
    return ChartAxis(first, max(last, first + 1e-3), False, tuple((h, f"{t.day} {t:%b}") for h, t in chosen))


def _describe_difference(point: ShownLook | WindowPoint) -> str:
    """Return a difference, with its interval and the number of users or rows, as text; "" if there is no difference."""
    if point.change is None:
        return ""
    has_interval = point.low is not None and point.high is not None
    decimals = choose_decimals((_nan_if_none(point.high) - _nan_if_none(point.low)) * 50) if has_interval else None
    decimals = 1 if decimals is None else decimals
    ends = (
        f", {format_signed(point.low, decimals, True)} to {format_signed(point.high, decimals, True)}"
        if has_interval
        else ""
    )
    many = f"; {format_count(point.users)} users" if isinstance(point, ShownLook) and point.users else ""
    many = f"; {format_count(point.rows)} rows" if isinstance(point, WindowPoint) else many
    return f"{format_signed(point.change, decimals, True)}{ends}{many}"


def _thin_looks(looks: Sequence[ShownLook], max_looks: int) -> list[ShownLook]:
    """Return at most `max_looks` evenly spaced looks, plus the last look.

    The step between looks is a power of two, so that the selected looks rarely change when a look is added.
    """
    every = 1 << max(0, math.ceil(math.log2(max(len(looks), 1) / max_looks)))
    return [*looks[:-1:every], looks[-1]]


def _drop_close_values(values: Sequence[float], min_distance: float) -> list[float]:
    """Drop each value that is too close to an earlier remaining value, so that labels do not overlap."""
    distant: list[float] = []
    for v in values:
        if all(abs(v - other) >= min_distance for other in distant):
            distant.append(v)
    return distant


def _shorten(name: str) -> str:
    """Return a name, shortened if it is too long to fit above a chart."""
    return name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…"


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else value
