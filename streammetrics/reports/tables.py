"""Results as tables for people: metrics by model, then slices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..collect.accumulator import definition_of
from ..collect.metric import Metric
from ..compose.axis_wrapper import AxisWrapper
from ..compose.sliced import Sliced
from ..compose.windowed import Windowed
from ..inference.number_format import digits
from ..reading.interval import Interval
from ..reading.records import badness
from ..reading.table import bound, marked, show
from ..reading.wide_bounds import MARK
from .per_class import breakdowns
from .records import (
    Record,
    Whole,
    by_slice,
    called,
    contents,
    overall,
    pieces,
    sharded,
    tasks_of,
    unsharded,
    views,
    windows_in,
)
from .text_table import ABOVE, Cell, Grid

__all__ = ["BEST", "grids", "headline", "share", "slices", "wide_remarks"]

BEST, ODD = "bold green", "yellow"
SHOWN = 40  # slices, unless --top says otherwise
SEVERAL = 3  # reasons below a table of slices
MOST_PLAIN = 1e6  # from which on values are in powers of ten


def grids(
    thing: Any, top: int | None = SHOWN, sort: str | None = None, min_rows: int = 0, confidence: float | None = None
) -> list[Grid]:
    """Return the tables of an object: all rows, then by slice and window; with intervals if a confidence is given."""
    made = []
    for name, piece in pieces(thing):
        if not isinstance(piece, AxisWrapper):
            made.append(headline(piece, "" if name == "overall" else name, confidence))
            made += breakdowns(unsharded(piece))
            continue
        title = name or f"by {', '.join(definition_of(piece).levels)}"
        *whole, last = views(piece)
        made += [slices(one, top, title, sort, min_rows, confidence) for one in whole]
        within = windows_in(piece)
        if within is not None:
            title = f"{title} and {within.width} of {within.time}"
        if within is None or definition_of(piece).inner.kind == definition_of(within).kind:
            made.append(slices(last, top, title, sort, min_rows, confidence))
    return made


# -- all rows --------------------------------------------------------------------------------------------------------


def headline(collection: Whole, title: str = "", confidence: float | None = None) -> Grid:
    """Return a table of metrics by task, the bound beside the value, the interval behind both, rows below."""
    columns = {name or "value": found for name, found in tasks_of(overall(collection, confidence)).items()}
    made = compare(columns, _Rivals(collection), title, confidence)
    made.remarks += _resting(collection, confidence)
    return made


def compare(
    columns: dict[str, dict[str, Record]],
    rivals: _Rivals | None = None,
    title: str = "",
    confidence: float | None = None,
) -> Grid:
    """Return a table of metrics (down) by column (across)."""
    known = [item for found in columns.values() for item in found.items()]
    metrics = list(dict.fromkeys(name for name, record in known if not isinstance(record["value"], np.ndarray)))
    rows: list[list[Cell] | None] = []
    for metric in metrics:
        found = [records.get(metric) for records in columns.values()]
        rows.append([Cell(metric), *_with_intervals(_cells(found, rivals), found, confidence)])
    counts = [_counts(records) for records in columns.values()]
    rows.append(None)
    lines = dict.fromkeys(name for count in counts for name in count)
    for line in lines:
        cells = [Cell(f"{c[line]:,}" if line in c else "") for c in counts]
        rows.append([Cell(line), *_with_intervals(cells, [None] * len(cells), confidence)])
    reasons = [r for records in columns.values() for r in records.values()]
    heads = [head for name in columns for head in ([name] if confidence is None else [name, share(confidence)])]
    return Grid(title, ["metric", *heads], rows, remarks=[*_reasons(reasons), *_without(reasons)])


def _with_intervals(cells: Sequence[Cell], found: Sequence[Record | None], confidence: float | None) -> list[Cell]:
    """Return cells with that of the interval behind each, if a confidence is given: values in the digits it leaves."""
    if confidence is None:
        return list(cells)
    decimals, made = _decimals(found), []
    for cell, record in zip(cells, found, strict=True):
        said = None if record is None else _spelled(record, decimals)
        made += [cell, Cell("")] if said is None else [replace(cell, text=said[0]), Cell(said[1])]
    return made


def _known(record: Record) -> bool:
    """Whether a value has an interval."""
    limits = record["interval_low"], record["interval_high"]
    return isinstance(record["value"], float) and all(map(math.isfinite, limits))


def _decimals(found: Sequence[Record | None]) -> int:
    """How many decimals values have that stand together: as many as the narrowest of their intervals leaves."""
    limits = [(r["interval_low"], r["interval_high"]) for r in found if r is not None and _known(r)]
    each = [digits(Interval(*one, math.nan, math.nan, "", "", 0.0), False).decimals for one in limits]
    return max(each, default=0)


def _spelled(record: Record, decimals: int) -> tuple[str, str] | None:
    """A value and its interval in the digits that the interval leaves, 0.7841 and 0.7812 to 0.7869; None without one."""
    if not _known(record):
        return None
    low, high, value = (record[name] for name in ("interval_low", "interval_high", "value"))
    mark = MARK if record.get("wide") else ""
    if abs(value) >= MOST_PLAIN:
        return show(value) + mark, f"{show(low)} to {show(high)}"
    return f"{value:.{decimals}f}{mark}", f"{low:.{decimals}f} to {high:.{decimals}f}"


def share(confidence: float) -> str:
    """A confidence as the head of a column: 95 %."""
    return f"{100.0 * confidence:.4g} %"


def _resting(thing: Whole | AxisWrapper, confidence: float | None) -> list[str]:
    """Say what intervals rest on."""
    if confidence is None:
        return []
    units = sharded(thing)
    if units is not None:
        return [f"{share(confidence)}: intervals by {units.unit}, whose rows may be alike ({units.shards} shards)"]
    return [f"{share(confidence)}: intervals as if every row (query, group) were independent of all others"]


def _without(found: Sequence[Record], most: int | None = None) -> list[str]:
    """Say why there are no intervals; of slices the reasons that most have."""
    refused = [r for r in found if r["interval_reason"] and isinstance(r["value"], float) and math.isfinite(r["value"])]
    often = Counter(r["interval_reason"] for r in refused).most_common(most)
    told = []
    for reason, _ in often:
        names = dict.fromkeys(r["metric"].rpartition("/")[2] for r in refused if r["interval_reason"] == reason)
        told.append(f"no interval of {', '.join(names)}: {reason}")
    more = len({r["interval_reason"] for r in refused}) - len(often)
    return [*told, f"and {more:,} other reasons: --format json has all"] if more else told


class _Rivals:
    """Which values of a row compete: those of one metric on the same labels and rows."""

    def __init__(self, thing: Whole | AxisWrapper) -> None:
        self._of: dict[str, tuple[Metric[Any, Any], Any]] = {}
        for name, (_, metric, _, binding, _) in contents(thing).items():
            rows = binding.column("y_true"), binding.where, binding.column("sample_weight"), binding.corrects
            if metric.about.best is not None:
                self._of[name] = metric, (metric.about.best, rows)

    def winners(self, found: Sequence[Record | None]) -> set[str]:
        """Return the full names of the metrics that beat the others."""
        groups: dict[Any, list[Record]] = {}
        for r in found:
            if r is not None and r["metric"] in self._of and isinstance(r["value"], float) and r["value"] == r["value"]:
                groups.setdefault(self._of[r["metric"]][1], []).append(r)
        names = set()
        for rivals in groups.values():
            metric = self._of[rivals[0]["metric"]][0]
            faults = [badness(metric, r["value"]) for r in rivals]
            if len(set(faults)) > 1:
                names |= {r["metric"] for r, fault in zip(rivals, faults, strict=True) if fault == min(faults)}
        return names


def _cells(found: Sequence[Record | None], rivals: _Rivals | None, *, notes: bool = True) -> list[Cell]:
    """Return the cells of one metric, the best of several marked."""
    winners = rivals.winners(found) if rivals is not None else set()
    return [Cell("") if r is None else _cell(r, r["metric"] in winners, notes) for r in found]


def _cell(record: Record, wins: bool, notes: bool) -> Cell:
    value = record["value"]
    odd = isinstance(value, float) and math.isnan(value)
    odd = odd or bool(record.get("wide"))
    return Cell(marked(record), bound(record) if notes else "", ODD if odd else BEST if wins else "")


def _counts(records: dict[str, Record]) -> dict[str, int]:
    """Return rows, positives and rows left out; separately for metrics that saw other rows than most."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, r in records.items():
        groups.setdefault((r["rows"], r["positives"], tuple(r["dropped"].items())), []).append(name)
    lines: dict[str, int] = {}
    for names in sorted(groups.values(), key=len, reverse=True):
        of = f" of {', '.join(names)}" if lines else ""
        record = records[names[0]]
        if record["rows"] is not None:
            lines[f"rows{of}"] = record["rows"]
        if record["positives"] is not None:
            lines[f"positives{of}"] = record["positives"]
        for reason, n in record["dropped"].items():
            column = record["columns"][reason]
            lines[_left_out(reason, column) + of] = n
    return lines


def _left_out(reason: str, column: Any) -> str:
    """Say why rows do not count."""
    if reason != "where":
        return f"dropped: bad {column}"
    if " and " in column:
        return f"left out: not ({column})"
    return f"left out: not {column}" if any(sign in column for sign in "=<>") else f"left out: {column} is 0"


def _reasons(found: Sequence[Record]) -> list[str]:
    undefined = (r for r in found if isinstance(r["value"], float) and math.isnan(r["value"]))
    reasons = Counter(r["reason"] or "0/0" for r in undefined)
    told = [f"NaN: {reason} ({_values(n)})" for reason, n in reasons.items()]
    return [*told, *wide_remarks(found)]


def wide_remarks(found: Sequence[Record]) -> list[str]:
    """Say what the mark of wide bounds means, how many values have it, and the remedy of the first."""
    wide = [r["wide"] for r in found if r.get("wide")]
    counts = Counter(one.sentence for one in wide)
    remedies = {one.sentence: one.remedy for one in reversed(wide)}
    return [f"{MARK}: {said} ({_values(n)}). {remedies[said]}" for said, n in counts.items()]


def _values(count: int) -> str:
    return f"{count:,} value{'s' if count > 1 else ''}"


# -- slices ----------------------------------------------------------------------------------------------------------


def slices(
    sliced: AxisWrapper,
    top: int | None = SHOWN,
    title: str = "",
    sort: str | None = None,
    min_rows: int = 0,
    confidence: float | None = None,
) -> Grid:
    """Return a table of slices (down) by metric (across); with several tasks a slice has a line for each."""
    found = by_slice(sliced, top, sort, min_rows, confidence)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in found:
        key = [
            record["slice"].get(name, "") for name in definition_of(sliced).levels
        ]  # as they are: null is no text of four letters
        groups.setdefault((record["other"], *key), []).append(record)
    most = len(groups) if top is None or not isinstance(sliced.inner, AxisWrapper) else top
    first = max(len(groups) - most, 0) if isinstance(sliced, Windowed) else 0  # the newest
    told = dict(list(groups.items())[first : first + most])
    found = [record for records in told.values() for record in records]
    tasks = list(tasks_of(found))
    several = tasks not in ([""], [])
    metrics = list(dict.fromkeys(r["metric"].rpartition("/")[2] for r in found))
    decimals = None
    if confidence is not None:
        decimals = {m: _decimals([r for r in found if r["metric"].rpartition("/")[2] == m]) for m in metrics}
    rows = [
        line
        for records in told.values()
        for line in _lines(
            [called(records[0], n) for n in definition_of(sliced).levels],
            tasks_of(records),
            metrics,
            _Rivals(sliced),
            several,
            decimals,
        )
    ]
    heads = [*definition_of(sliced).levels, *(["task"] if several else []), "rows", "positives", *metrics]
    names = len(definition_of(sliced).levels) + several
    remarks = _more(sliced, top, bool(sort or min_rows), len(groups) - len(told))
    remarks += _limited(sliced)
    remarks += [*_certified(found), *_reasons(found), *_without(found, SEVERAL), *_resting(sliced, confidence)]
    return Grid(title, heads, rows, names, names, remarks)


def _more(sliced: AxisWrapper, top: int | None, chosen: bool, left: int) -> list[str]:
    """Say how many slices and windows there are that the table has not."""
    if isinstance(sliced.inner, AxisWrapper):
        return [f"and {left:,} more: --format csv has all"] if left else []
    more = 0 if chosen or top is None else max(len(sliced) - top, 0)
    which = "older windows" if isinstance(sliced, Windowed) else "slices with fewer rows"
    return [f"and {more:,} {which}: --top {len(sliced)} shows them, --format csv has all"] if more else []


def _limited(sliced: AxisWrapper) -> list[str]:
    """Say which keys a limit keeps, and what share of the rows it does not."""
    if not isinstance(sliced, Sliced):
        return []
    limit, named = definition_of(sliced).axis.limit, definition_of(sliced).axis.pinned
    if limit is None:
        return []
    chosen = [f"{limit:,} of smallest hash"] if limit or not named else []
    chosen += [f"{len(named):,} of most rows (or named)"] if named else []
    return [f"kept are the keys of a limit: {' and '.join(chosen)}; (other) holds {sliced.left:.1%} of the rows"]


def _lines(
    key: Sequence[str],
    tasks: dict[str, dict[str, Record]],
    metrics: Sequence[str],
    rivals: _Rivals,
    several: bool,
    decimals: dict[str, int] | None,
) -> list[list[Cell] | None]:
    columns = []
    for metric in metrics:
        found = [records.get(metric) for records in tasks.values()]
        cells = _cells(found, rivals, notes=False)
        columns.append(cells if decimals is None else _noted(cells, found, decimals[metric]))
    made: list[list[Cell] | None] = []
    for i, (task, records) in enumerate(tasks.items()):
        seen = {c: [r[c] for r in records.values() if r[c] is not None] for c in ("rows", "positives")}
        counts = [Cell(f"{max(known):,}" if known else "") for known in seen.values()]
        names = [Cell(k) if i == 0 else ABOVE for k in key] + ([Cell(task)] if several else [])
        made.append([*names, *counts, *(column[i] for column in columns)])
    return made


def _noted(cells: Sequence[Cell], found: Sequence[Record | None], decimals: int) -> list[Cell]:
    """Return cells with the interval beside the value."""
    said = [None if r is None else _spelled(r, decimals) for r in found]
    return [c if s is None else replace(c, text=s[0], note=s[1]) for c, s in zip(cells, said, strict=True)]


def _certified(found: Sequence[Record]) -> list[str]:
    """Say in one line how far values can be from the truth, instead of in every cell."""
    widths: dict[str, float] = {}
    for r in found:
        low, high = r["bound_low"], r["bound_high"]
        if low is not None and low == low:
            name = r["metric"].rpartition("/")[2]
            widths[name] = max(widths.get(name, 0.0), (high - low) / 2)
    parts = [f"{name} ±{w:.1e}" if w else f"{name} exact" for name, w in widths.items()]
    return [f"certified, at most: {', '.join(parts)}"] if parts else []
