"""Results as tables for people: metrics by model, then slices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..collect.collection import MetricCollection
from ..collect.metric import Metric, badness
from ..collect.table import bound, show
from ..compose.sliced import Sliced
from ..numerics.keys import shown
from .grid import Cell, Grid
from .records import Record, by_slice, contents, overall, pieces, tasks_of
from .several import breakdowns

__all__ = ["BEST", "grids", "headline", "slices"]

BEST, ODD = "bold green", "yellow"
SHOWN = 40  # slices, unless --top says otherwise


def grids(thing: Any, top: int | None = SHOWN, sort: str | None = None, min_rows: int = 0) -> list[Grid]:
    """Return the tables of an object: all rows, then by slice."""
    made = []
    for name, piece in pieces(thing):
        if isinstance(piece, Sliced):
            made.append(slices(piece, top, name or f"by {', '.join(piece.by)}", sort, min_rows))
        else:
            made.append(headline(piece, "" if name == "overall" else name))
            made += breakdowns(piece)
    return made


# -- all rows --------------------------------------------------------------------------------------------------------


def headline(collection: MetricCollection, title: str = "") -> Grid:
    """Return a table of metrics by task, the bound beside the value, rows below."""
    columns = {name or "value": found for name, found in tasks_of(overall(collection)).items()}
    return compare(columns, _Rivals(collection), title)


def compare(columns: dict[str, dict[str, Record]], rivals: _Rivals | None = None, title: str = "") -> Grid:
    """Return a table of metrics (down) by column (across)."""
    known = [item for found in columns.values() for item in found.items()]
    metrics = list(dict.fromkeys(name for name, record in known if not isinstance(record["value"], np.ndarray)))
    rows: list[list[Cell] | None] = []
    for metric in metrics:
        found = [records.get(metric) for records in columns.values()]
        rows.append([Cell(metric), *_cells(found, rivals)])
    counts = [_counts(records) for records in columns.values()]
    rows.append(None)
    lines = dict.fromkeys(name for count in counts for name in count)
    rows += [[Cell(line), *(Cell(f"{c[line]:,}" if line in c else "") for c in counts)] for line in lines]
    reasons = [r for records in columns.values() for r in records.values()]
    return Grid(title, ["metric", *columns], rows, remarks=_reasons(reasons))


class _Rivals:
    """Which values of a row compete: those of one metric on the same labels and rows."""

    def __init__(self, thing: MetricCollection | Sliced) -> None:
        self._of: dict[str, tuple[Metric[Any, Any], Any]] = {}
        for name, (_, metric, _, binding) in contents(thing).items():
            rows = binding.column("y_true"), binding.where, binding.column("sample_weight"), binding.corrects
            if metric.best is not None:
                self._of[name] = metric, (metric.best, rows)

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
    return Cell(show(value), bound(record) if notes else "", ODD if odd else BEST if wins else "")


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
    return [f"NaN: {reason} ({n} value{'s' if n > 1 else ''})" for reason, n in reasons.items()]


# -- slices ----------------------------------------------------------------------------------------------------------


def slices(
    sliced: Sliced, top: int | None = SHOWN, title: str = "", sort: str | None = None, min_rows: int = 0
) -> Grid:
    """Return a table of slices (down) by metric (across); with several tasks a slice has a line for each."""
    found = by_slice(sliced, top, sort, min_rows)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in found:
        key = [shown(record.get(name, "")) for name in sliced.levels]
        groups.setdefault((record["other"], *key), []).append(record)
    tasks = list(tasks_of(found))
    several = tasks not in ([""], [])
    metrics = list(dict.fromkeys(r["metric"].rpartition("/")[2] for r in found))
    rows = [
        line
        for (_, *key), records in groups.items()
        for line in _lines(key, tasks_of(records), metrics, _Rivals(sliced), several)
    ]
    heads = [*sliced.levels, *(["task"] if several else []), "rows", "positives", *metrics]
    more = 0 if sort or min_rows or top is None else max(len(sliced) - top, 0)
    remarks = (
        [f"and {more:,} slices with fewer rows: --top {len(sliced)} shows them, --format csv has all"] if more else []
    )
    remarks += _limited(sliced)
    names = len(sliced.levels) + several
    return Grid(title, heads, rows, names, names, [*remarks, *_certified(found), *_reasons(found)])


def _limited(sliced: Sliced) -> list[str]:
    """Say which keys a limit keeps, and what share of the rows it does not."""
    limit, named = sliced.axis.limit, sliced.axis.pinned
    if limit is None:
        return []
    chosen = [f"{limit:,} of smallest hash"] if limit or not named else []
    chosen += [f"{len(named):,} of most rows (or named)"] if named else []
    return [f"kept are the keys of a limit: {' and '.join(chosen)}; (other) holds {sliced.left:.1%} of the rows"]


def _lines(
    key: Sequence[str], tasks: dict[str, dict[str, Record]], metrics: Sequence[str], rivals: _Rivals, several: bool
) -> list[list[Cell] | None]:
    columns = [_cells([records.get(m) for records in tasks.values()], rivals, notes=False) for m in metrics]
    made: list[list[Cell] | None] = []
    for i, (task, records) in enumerate(tasks.items()):
        first = next(iter(records.values()))
        seen = max(records.values(), key=lambda r: r["rows"] or 0)
        counts = [Cell(f"{seen[c]:,}" if first[c] is not None else "") for c in ("rows", "positives")]
        names = [Cell(k if i == 0 else "") for k in key] + ([Cell(task)] if several else [])
        made.append([*names, *counts, *(column[i] for column in columns)])
    return made


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
