"""Pictures over time: the band of looks, each window alone, the level of each arm, and the sample ratio."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from ...inference.sample_ratio import ALARM, sample_ratio_mismatch
from ...reports.charts import Band, Chart, ChartAxis, ChartLine, ColourKey, Rule, Whiskers, linear, stations
from ...reports.numbers import count, decimals_of, fixed, share, signed
from ...reports.page_model import NamedSide
from ...reports.series import DOTS, names_of, unit_of
from ..evaluation.evaluation import ShownLook, WindowPoint
from ..store.part_keys import HOUR
from .rows import Arms
from .times import moment, when
from .view import View

__all__ = ["band_of", "by_arm", "by_window", "ratio_of"]

MOST = 240  # looks that are drawn
READ = 120  # looks and windows that a cursor reads
DAY = 24
LETTERS = 28  # of a name over a picture


def band_of(looks: Sequence[ShownLook], metric: str, view: View) -> Chart | None:
    """Return the picture of what was shown at every look: the difference of all rows, with its interval."""
    seen = [one for one in looks if one.change is not None and view.holds(int(one.at // HOUR))]
    if len(seen) < 2:
        return None
    some = _thinned(seen, MOST)
    x = [one.at / HOUR for one in some]
    value, low, high = ([_known(getattr(one, name)) for one in some] for name in ("change", "low", "high"))
    reach = [v for v in [*low[len(low) // 3 :], *high[len(high) // 3 :]] if math.isfinite(v)] or value
    room = (max(*reach, 0.0) - min(*reach, 0.0)) * 0.15 or 0.01
    y = linear(min(*reach, 0.0) - room, max(*reach, 0.0) + room, percent=True, sign=True)
    ends = x[0], x[-1]
    layers: list[Any] = [Band(x, low, high), Rule(ends, (0.0, 0.0), "no difference", solid=True), ChartLine(x, value)]
    readings = [(one.at / HOUR, f"{moment(one.at)}: {_between(one)}") for one in _thinned(some, READ)]
    says = f"{count(len(seen))} looks so far. The band is right at all of them together."
    last = [v for v in (value[-1], low[-1], high[-1]) if math.isfinite(v) and y.low <= v <= y.high]
    right = tuple((v, signed(v, 1, True)) for v in _apart(last, (y.high - y.low) / 14))
    return Chart(f"{metric} at every look", "", says, _days(*ends), y, "", f"difference in {_cut(metric)}, with its band",
                 layers, right=right, readings=readings)  # fmt: skip


def by_window(
    points: Sequence[WindowPoint], whole: float | None, metric: str, side: NamedSide, by: str
) -> Chart | None:
    """Return the picture of the difference in each window alone."""
    mine = {p.hour: p for p in points if p.arm == side.name and p.change is not None}
    if not mine:
        return None
    hours, names, unit = _windows(mine, by)
    rows = [mine.get(h) for h in hours]
    x = [float(i) for i in range(len(hours))]
    value, low, high = ([_known(getattr(p, n, None)) for p in rows] for n in ("change", "low", "high"))
    known = [0.0, *(v for v in (*value, *low, *high) if math.isfinite(v)), *([whole] if whole is not None else [])]
    room = (max(known) - min(known)) * 0.06 or 0.01
    ends = (-0.5, len(hours) - 0.5)
    layers: list[Any] = [Rule(ends, (0.0, 0.0), "no difference", solid=True)]
    if whole is not None:
        layers.append(Rule(ends, (whole, whole), "all rows"))
    quiet = [p is not None and p.provisional for p in rows]
    drawn = (
        [Whiskers(x, value, low, high, None, quiet)] if len(x) <= DOTS else [Band(x, low, high), ChartLine(x, value)]
    )
    readings = [
        (x[i], f"{names[i]}: {_between(p)}{PROVISIONAL if p.provisional else ''}")
        for i, p in enumerate(rows)
        if p is not None and i % _every(rows) == 0
    ]
    pale = " Pale: provisional, outcomes may still come." if any(quiet) else ""
    return Chart(f"Each {by} alone", f"The interval of one look; dotted: all rows.{pale}",
                 f"A {by} alone proves little; the interval of all looks decides.", stations(names),
                 linear(min(known) - room, max(known) + room, percent=True, sign=True), unit,
                 f"difference in {_cut(metric)}", [*layers, *drawn], readings=readings)  # fmt: skip


def by_arm(points: Sequence[WindowPoint], metric: str, arms: Arms, by: str, *, percent: bool) -> Chart | None:
    """Return the picture of the level of each arm in each window."""
    mine: dict[str, dict[int, WindowPoint]] = {}
    for p in points:
        if p.arm in arms and p.value is not None:
            mine.setdefault(p.arm, {})[p.hour] = p
    if not mine:
        return None
    hours, names, unit = _windows({h for one in mine.values() for h in one}, by)
    lines = {arm: [_known(getattr(mine[arm].get(h), "value", None)) for h in hours] for arm in arms if arm in mine}
    known = [v for line in lines.values() for v in line if math.isfinite(v)]
    room = (max(known) - min(known)) * 0.12 or abs(max(known)) * 0.1 or 1.0
    decimals = decimals_of(room * (100 if percent else 1)) or 0
    x = [float(i) for i in range(len(hours))]
    marks = range(len(x)) if len(x) <= DOTS else range(len(x) // 8, len(x), max(len(x) // 4, 1))
    layers = [ChartLine(x, line, arms[arm].number, [*marks]) for arm, line in lines.items()]
    told = [
        ", ".join(f"{arm} {fixed(line[i], decimals, percent)}" for arm, line in lines.items()) for i in range(len(x))
    ]
    return Chart("By arm", "The level of each arm.", f"Lowest {fixed(min(known), decimals, percent)}, highest "
                 f"{fixed(max(known), decimals, percent)}, in {len(hours)} {by}s.", stations(names),
                 linear(min(known) - room, max(known) + room, percent=percent), unit, f"{_cut(metric)}, by {by}", layers,
                 [ColourKey(arms[arm].number, arm) for arm in lines],
                 readings=[(at, f"{names[i]}: {told[i]}") for i, at in enumerate(x) if i % _every(x) == 0])  # fmt: skip


def ratio_of(looks: Sequence[ShownLook], side: NamedSide, planned: float, arms: int) -> Chart | None:
    """Return the picture of the share of users in an arm; of two arms, also where there would be no alarm."""
    seen = [one for one in looks if one.shares and side.name in one.shares and one.users]
    if len(seen) < 2:
        return None
    some = _thinned(seen, READ)
    x, value = [one.at / HOUR for one in some], [one.shares[side.name] for one in some if one.shares]
    widths = [_quiet(one.users or 0.0, planned) if arms == 2 else math.nan for one in some]
    half = max([abs(v - planned) for v in value[-len(value) // 2 :]] + [w for w in widths[-1:] if w == w]) * 1.6 or 0.01
    ends = x[0], x[-1]
    band = [Band(x, [planned - w for w in widths], [planned + w for w in widths])] if arms == 2 else []
    layers = [*band, Rule(ends, (planned, planned), "planned", solid=True), ChartLine(x, value)]
    readings = [(at, f"{moment(at * HOUR)}: {share(v, 2)} in {side.name}") for at, v in zip(x, value, strict=True)]
    shaded = " Shaded: no alarm." if band else ""
    return Chart("Sample ratio", f"Share of users so far.{shaded}", f"An alarm needs e = {ALARM:g}, at any look.",
                 _days(*ends), linear(planned - half, planned + half, percent=True), "",
                 f"users in {_cut(side.name)}, planned {share(planned, 1)}", layers, readings=readings)  # fmt: skip


PROVISIONAL = ", provisional"


@lru_cache(4096)
def _quiet(users: float, planned: float) -> float:
    """Return how far from the planned share an arm may be without an alarm, by halving."""
    low, high = 0.0, min(planned, 1.0 - planned)
    for _ in range(20):
        middle = (low + high) / 2
        counts = {"a": users * (planned + middle), "b": users * (1.0 - planned - middle)}
        alarm = sample_ratio_mismatch(counts, {"a": planned, "b": 1.0 - planned}).alarm
        low, high = (low, middle) if alarm else (middle, high)
    return low


def _every(windows: Sequence[Any]) -> int:
    """How many windows there are to one that a cursor reads."""
    return math.ceil(len(windows) / READ)


def _windows(hours: Iterable[int], by: str) -> tuple[list[int], list[str], str]:
    """Return every window from the first to the last, those without data too, with their names."""
    known = sorted(hours)
    every = [*range(known[0], known[-1] + 1, DAY if by == "day" else 1)]
    times: list[datetime.date] = [when(h) if by == "hour" else when(h).date() for h in every]
    return every, names_of(times), unit_of(times)


def _days(first: float, last: float) -> ChartAxis:
    """Return an axis of time, in hours since 1970, with ticks at days."""
    midnights = [h for h in range(int(first // DAY) * DAY, int(last) + 1, DAY) if h >= first]
    every = max(1, math.ceil(len(midnights) / 6))
    chosen = [(float(h), when(h)) for h in midnights[::every]] or [(first, when(int(first)))]
    return ChartAxis(first, max(last, first + 1e-3), False, tuple((h, f"{t.day} {t:%b}") for h, t in chosen))


def _between(one: ShownLook | WindowPoint) -> str:
    """A difference with its interval, and what was counted."""
    if one.change is None:
        return ""
    known = one.low is not None and one.high is not None
    decimals = decimals_of((_known(one.high) - _known(one.low)) * 50) if known else None
    decimals = 1 if decimals is None else decimals
    ends = f", {signed(one.low, decimals, True)} to {signed(one.high, decimals, True)}" if known else ""
    many = f"; {count(one.users)} users" if isinstance(one, ShownLook) and one.users else ""
    many = f"; {count(one.rows)} rows" if isinstance(one, WindowPoint) else many
    return f"{signed(one.change, decimals, True)}{ends}{many}"


def _thinned(some: Sequence[ShownLook], most: int) -> list[ShownLook]:
    """Return so many of them, evenly, with the last; mostly the same when there is one more."""
    every = 1 << max(0, math.ceil(math.log2(max(len(some), 1) / most)))
    return [*some[:-1:every], some[-1]]


def _apart(values: Sequence[float], least: float) -> list[float]:
    """Return those values that are not too near to one before, so that labels do not touch."""
    kept: list[float] = []
    for v in values:
        if all(abs(v - other) >= least for other in kept):
            kept.append(v)
    return kept


def _cut(name: str) -> str:
    """A name that fits over a picture."""
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def _known(value: float | None) -> float:
    return math.nan if value is None else value
