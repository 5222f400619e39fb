"""Windows of event time as pictures: each metric over time, with the intervals of every window."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..collect.accumulator import definition_of
from ..compose.windowed import Windowed
from ..inference.comparison import Comparison
from ..numerics.keys import shown
from .charts import Band, Chart, ChartAxis, ChartLine, ColourKey, Rule, Whiskers, linear, stations
from .families import COLOURS
from .figures import figure_of
from .numbers import count, decimals_of, fixed

__all__ = ["DOTS", "differences_of", "names_of", "unit_of", "windows_of"]

DOTS = 32  # windows that are drawn one by one
PROVISIONAL = "provisional"
Points = dict[Any, Mapping[str, Any]]
Lines = list[tuple[str, Points]]  # with their names, which may be alike: None and "null" are two keys


def windows_of(windowed: Windowed, intervals: bool) -> list[Chart]:
    """Return a picture of each metric by window, a line for each model or arm; with its intervals, if they are wanted."""
    records = list(windowed.table(expired=False, confidence=0.95 if intervals else None))
    others = [name for name in definition_of(windowed).levels if name != windowed.time]
    found: dict[str, dict[tuple[Any, ...], Points]] = {}
    for record in records:
        task, _, metric = record["metric"].rpartition("/")
        if isinstance(record["value"], float):
            who = *(record[n] for n in others), task
            found.setdefault(metric, {}).setdefault(who, {})[record[windowed.time]] = record
    times = list(dict.fromkeys(r[windowed.time] for r in records))
    return [_chart(m, [(_name(who), p) for who, p in lines.items()], times, windowed) for m, lines in found.items()]


def _name(who: tuple[Any, ...]) -> str:
    *keys, task = who
    return " · ".join([*map(shown, keys), *([task] if task else [])])


def _chart(metric: str, lines: Lines, times: Sequence[Any], windowed: Windowed) -> Chart:
    chosen = lines[:COLOURS]
    more = len(lines) - len(chosen)
    names = names_of(times)
    known = [v for _, points in chosen for r in points.values() for v in _shown(r) if math.isfinite(v)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    layers: list[Any] = []
    every: list[tuple[int, list[float], list[float], list[float], list[bool]]] = []
    for i, (_, points) in enumerate(chosen):
        rows = [points.get(t) for t in times]
        value, a, b = ([_at(r, c) for r in rows] for c in ("value", "interval_low", "interval_high"))
        quiet = [r is not None and PROVISIONAL in str(r["reason"] or "") for r in rows]
        every.append((i if len(chosen) > 1 else 0, value, a, b, quiet))
    apart = len(times) <= DOTS
    for number, value, a, b, quiet in every:
        colour = number
        shift = (number - (len(every) - 1) / 2) * 0.12 if len(every) > 1 else 0.0
        x = [j + shift for j in range(len(times))]
        if apart:
            layers += [ChartLine(x, value, colour), Whiskers(x, value, a, b, colour, quiet)]
        else:
            layers += [Band(x, a, b, colour), ChartLine(x, value, colour)]
    readings = [(float(j), _told(str(t), names[j], chosen, t)) for j, t in enumerate(times)]
    says = _range(every, names)
    note = f"By {windowed.time}, {windowed.width} each." + (f" {more} more lines are in the table." if more else "")
    scale: ChartAxis = linear(low - room, high + room)
    keys = [ColourKey(i, name) for i, (name, _) in enumerate(chosen) if name]
    return Chart(metric, note, says, stations(names), scale, unit_of(times), metric, layers, keys, readings=readings)


def differences_of(found: Sequence[Comparison], whole: Comparison | None, note: str) -> Chart:
    """Return a picture of one difference by window, oldest first, with the difference of all rows as a band."""
    times = [c.keys[0] for c in found]
    names = names_of(times)
    x = [float(i) for i in range(len(found))]
    value, low, high = ([getattr(c.difference, n) for c in found] for n in ("estimate", "low", "high"))
    nothing = math.nan, math.nan, math.nan
    of_all = nothing if whole is None else (whole.difference.low, whole.difference.estimate, whole.difference.high)
    known = [0.0, *(v for v in (*value, *low, *high, *of_all) if math.isfinite(v))]
    room = (max(known) - min(known)) * 0.06 or 1.0
    ends = (-0.5, len(found) - 0.5)
    layers: list[Any] = [Rule(ends, (0.0, 0.0), "no difference", solid=True)]
    if math.isfinite(of_all[0]):
        layers += [Band(ends, [of_all[0]] * 2, [of_all[2]] * 2), Rule(ends, [of_all[1]] * 2, "all rows")]
    layers += [Whiskers(x, value, low, high)] if len(found) <= DOTS else [Band(x, low, high), ChartLine(x, value)]
    rows = [figure_of(c) for c in found]
    readings = [(i, f"{names[int(i)]}: {r.change} {r.half}; {r.b} → {r.a}") for i, r in zip(x, rows, strict=True)]
    outside = [
        n for n, c in zip(names, found, strict=True) if c.difference.low > of_all[1] or c.difference.high < of_all[1]
    ]
    says = (
        "Every window's interval covers the difference of all rows: no drift to see."
        if not outside
        else f"{len(outside)} of {len(found)} windows leave out the difference of all rows: {', '.join(outside[:5])}."
    )
    name = found[0].name
    return Chart(f"{name} difference", note, says if math.isfinite(of_all[0]) else "", stations(names),
                 linear(min(known) - room, max(known) + room, sign=True), unit_of(times), f"{name} difference", layers,
                 readings=readings)  # fmt: skip


def _shown(record: Mapping[str, Any]) -> list[float]:
    return [_at(record, c) for c in ("value", "interval_low", "interval_high")]


def _at(record: Mapping[str, Any] | None, column: str) -> float:
    value = math.nan if record is None else record[column]
    return math.nan if value is None else float(value)


def names_of(times: Sequence[Any]) -> list[str]:
    """Short names of times: the day where windows are days, else the hour too."""
    days = [t for t in times if isinstance(t, datetime.date)]
    if len(days) != len(times) or not days:
        return [shown(t) for t in times]
    whole = all(not isinstance(t, datetime.datetime) or (t.hour, t.minute) == (0, 0) for t in days)
    if whole:
        return [f"{t:%a} {t.day}" if len(days) <= 14 else f"{t.day} {t:%b}" for t in days]
    one = len({d.isoformat()[:10] for d in days}) == 1
    return [f"{t:%H:%M}" if one else f"{t.day} {t:%b} {t:%H}h" for t in days]


def unit_of(times: Sequence[Any]) -> str:
    """What an axis of times is of."""
    some = [t for t in times if isinstance(t, datetime.date)]
    return f"{some[0]:%B %Y}{', UTC' if isinstance(some[0], datetime.datetime) else ''}" if some else "window"


def _told(time: str, name: str, lines: Lines, at: Any) -> str:
    parts = []
    for who, points in lines:
        record = points.get(at)
        if record is None:
            continue
        low, high = _at(record, "interval_low"), _at(record, "interval_high")
        half = (high - low) / 2
        decimals = decimals_of(half)
        decimals = 4 if decimals is None else decimals
        between = f", {fixed(low, decimals)} to {fixed(high, decimals)}" if math.isfinite(half) else ""
        rows = f", {count(record['rows'])} rows" if record["rows"] is not None else ""
        parts.append(f"{f'{who} ' if who else ''}{fixed(_at(record, 'value'), decimals)}{between}{rows}")
    return f"{name}: {'; '.join(parts)}"


def _range(every: Sequence[Any], names: Sequence[str]) -> str:
    """From where to where values go."""
    told = []
    for _, value, *_ in every[:1]:
        some = [(v, names[i]) for i, v in enumerate(value) if math.isfinite(v)]
        if some:
            low, high = min(some), max(some)
            told.append(
                f"Lowest {fixed(low[0], 4)} ({low[1]}), highest {fixed(high[0], 4)} ({high[1]}), {len(some)} windows."
            )
    return " ".join(told) or "No window has a value."
