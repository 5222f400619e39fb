"""Build charts of metrics over time windows, with an interval for each window."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..collect.accumulator import definition_of
from ..compose.windowed import Windowed
from ..inference.comparison import Comparison
from ..numerics.slice_keys import format_atom
from .charts import Band, Chart, ChartAxis, ChartLine, ColourKey, Rule, Whiskers, category_axis, linear_axis
from .measure_rows import build_measure_row
from .numbers import choose_decimals, format_count, format_fixed
from .task_charts import COLOURS

__all__ = ["DOTS", "build_difference_chart", "build_window_charts", "format_time_unit", "format_times"]

DOTS = 32  # up to this many windows are drawn as dots; more are drawn as a line with a band
PROVISIONAL = "provisional"
Points = dict[Any, Mapping[str, Any]]
Lines = list[tuple[str, Points]]  # a list, not a dict, because two keys can have the same name: None and "null"


def build_window_charts(windowed: Windowed, confidence: float | None) -> list[Chart]:
    """Return a chart of each metric over the windows, with a line for each model or slice.

    If `confidence` is not None, each window has an interval of this level.
    """
    records = list(windowed.table(expired=False, confidence=confidence))
    others = [name for name in definition_of(windowed).levels if name != windowed.time]
    lines_of: dict[str, dict[tuple[Any, ...], Points]] = {}
    for record in records:
        task, _, metric = record["metric"].rpartition("/")
        if isinstance(record["value"], float):
            who = *(record[n] for n in others), task
            lines_of.setdefault(metric, {}).setdefault(who, {})[record[windowed.time]] = record
    times = list(dict.fromkeys(r[windowed.time] for r in records))
    return [
        _build_chart(m, [(_format_line_name(who), p) for who, p in lines.items()], times, windowed)
        for m, lines in lines_of.items()
    ]


def _format_line_name(who: tuple[Any, ...]) -> str:
    *keys, task = who
    return " · ".join([*map(format_atom, keys), *([task] if task else [])])


def _build_chart(metric: str, lines: Lines, times: Sequence[Any], windowed: Windowed) -> Chart:
    shown = lines[:COLOURS]
    more = len(lines) - len(shown)
    names = format_times(times)
    known = [v for _, points in shown for r in points.values() for v in _read_extent(r) if math.isfinite(v)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    layers: list[Any] = []
    every: list[tuple[int, list[float], list[float], list[float], list[bool]]] = []
    for i, (_, points) in enumerate(shown):
        rows = [points.get(t) for t in times]
        value, a, b = ([_read_number(r, c) for r in rows] for c in ("value", "interval_low", "interval_high"))
        quiet = [r is not None and PROVISIONAL in str(r["reason"] or "") for r in rows]
        every.append((i if len(shown) > 1 else 0, value, a, b, quiet))
    # The dots of several models are shifted sideways, so that their intervals do not overlap.
    draw_dots = len(times) <= DOTS
    for number, value, a, b, quiet in every:
        colour = number
        shift = (number - (len(every) - 1) / 2) * 0.12 if len(every) > 1 else 0.0
        x = [j + shift for j in range(len(times))]
        if draw_dots:
            layers += [ChartLine(x, value, colour), Whiskers(x, value, a, b, colour, quiet)]
        else:
            layers += [Band(x, a, b, colour), ChartLine(x, value, colour)]
    readings = [(float(j), _format_reading(str(t), names[j], shown, t)) for j, t in enumerate(times)]
    summary = _describe_range(every, names)
    note = f"By {windowed.time}, {windowed.width} each." + (f" {more} more lines are in the table." if more else "")
    scale: ChartAxis = linear_axis(low - room, high + room)
    keys = [ColourKey(i, name) for i, (name, _) in enumerate(shown) if name]
    return Chart(
        metric,
        note,
        summary,
        category_axis(names),
        scale,
        format_time_unit(times),
        metric,
        layers,
        keys,
        readings=readings,
    )


def build_difference_chart(comparisons: Sequence[Comparison], overall: Comparison | None, note: str) -> Chart:
    """Return a chart that shows the difference in one metric for each window.

    A band shows the difference over all rows (`overall`), if it is known.
    """
    times = [c.keys[0] for c in comparisons]
    names = format_times(times)
    x = [float(i) for i in range(len(comparisons))]
    value, low, high = ([getattr(c.difference, n) for c in comparisons] for n in ("estimate", "low", "high"))
    nothing = math.nan, math.nan, math.nan
    of_all = (
        nothing if overall is None else (overall.difference.low, overall.difference.estimate, overall.difference.high)
    )
    known = [0.0, *(v for v in (*value, *low, *high, *of_all) if math.isfinite(v))]
    room = (max(known) - min(known)) * 0.06 or 1.0
    ends = (-0.5, len(comparisons) - 0.5)
    layers: list[Any] = [Rule(ends, (0.0, 0.0), "no difference", solid=True)]
    if math.isfinite(of_all[0]):
        layers += [Band(ends, [of_all[0]] * 2, [of_all[2]] * 2), Rule(ends, [of_all[1]] * 2, "all rows")]
    layers += [Whiskers(x, value, low, high)] if len(comparisons) <= DOTS else [Band(x, low, high), ChartLine(x, value)]
    rows = [build_measure_row(c) for c in comparisons]
    readings = [(i, f"{names[int(i)]}: {r.change} {r.half}; {r.b} → {r.a}") for i, r in zip(x, rows, strict=True)]
    outside = [
        n
        for n, c in zip(names, comparisons, strict=True)
        if c.difference.low > of_all[1] or c.difference.high < of_all[1]
    ]
    summary = (
        "The interval of every window covers the difference of all rows: no drift visible."
        if not outside
        else f"{len(outside)} of {len(comparisons)} windows exclude the difference of all rows: {', '.join(outside[:5])}."
    )
    title = f"{comparisons[0].name} difference"
    return Chart(title, note, summary if math.isfinite(of_all[0]) else "", category_axis(names),
                 linear_axis(min(known) - room, max(known) + room, sign=True), format_time_unit(times), title, layers,
                 readings=readings)  # fmt: skip


def _read_extent(record: Mapping[str, Any]) -> list[float]:
    return [_read_number(record, c) for c in ("value", "interval_low", "interval_high")]


def _read_number(record: Mapping[str, Any] | None, column: str) -> float:
    value = math.nan if record is None else record[column]
    return math.nan if value is None else float(value)


def format_times(times: Sequence[Any]) -> list[str]:
    """Return short labels of times: days if all are at midnight, times of day if all are on one day, otherwise both."""
    days = [t for t in times if isinstance(t, datetime.date)]
    if len(days) != len(times) or not days:
        return [format_atom(t) for t in times]
    are_days = all(not isinstance(t, datetime.datetime) or (t.hour, t.minute) == (0, 0) for t in days)
    if are_days:
        return [f"{t:%a} {t.day}" if len(days) <= 14 else f"{t.day} {t:%b}" for t in days]
    one = len({d.isoformat()[:10] for d in days}) == 1
    return [f"{t:%H:%M}" if one else f"{t.day} {t:%b} {t:%H}h" for t in days]


def format_time_unit(times: Sequence[Any]) -> str:
    """Return the label of a time axis, such as "June 2026, UTC"."""
    some = [t for t in times if isinstance(t, datetime.date)]
    return f"{some[0]:%B %Y}{', UTC' if isinstance(some[0], datetime.datetime) else ''}" if some else "window"


def _format_reading(time: str, name: str, lines: Lines, at: Any) -> str:
    parts = []
    for who, points in lines:
        record = points.get(at)
        if record is None:
            continue
        low, high = _read_number(record, "interval_low"), _read_number(record, "interval_high")
        half = (high - low) / 2
        decimals = choose_decimals(half)
        decimals = 4 if decimals is None else decimals
        between = f", {format_fixed(low, decimals)} to {format_fixed(high, decimals)}" if math.isfinite(half) else ""
        rows = f", {format_count(record['rows'])} rows" if record["rows"] is not None else ""
        parts.append(
            f"{f'{who} ' if who else ''}{format_fixed(_read_number(record, 'value'), decimals)}{between}{rows}"
        )
    return f"{name}: {'; '.join(parts)}"


def _describe_range(every: Sequence[Any], names: Sequence[str]) -> str:
    """Return a sentence with the lowest and highest values of the first line in the chart."""
    sentences = []
    for _, value, *_ in every[:1]:
        some = [(v, names[i]) for i, v in enumerate(value) if math.isfinite(v)]
        if some:
            low, high = min(some), max(some)
            ends = f"Lowest {format_fixed(low[0], 4)} ({low[1]}), highest {format_fixed(high[0], 4)} ({high[1]})"
            sentences.append(f"{ends}, {len(some)} windows.")
    return " ".join(sentences) or "No window has a value."
