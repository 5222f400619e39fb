"""Build text tables of results: metrics by model, and metrics by slice and window."""

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
from ..inference.number_format import choose_format
from ..reading.interval import Interval
from ..reading.records import badness
from ..reading.table import format_bound, format_marked_value, format_value
from ..reading.wide_bounds import MARK
from .per_class import build_breakdowns
from .records import (
    Record,
    TotalMetrics,
    build_records,
    build_slice_records,
    build_views,
    collect_entries,
    find_sharded,
    find_windows,
    format_slice_key,
    group_by_task,
    name_task_column,
    remove_shards,
    split_pieces,
)
from .text_table import SAME_AS_ABOVE, Cell, Grid

__all__ = ["BEST", "build_grids", "build_slice_grid", "build_task_grid", "describe_wide_bounds", "format_confidence"]

BEST, ODD = "bold green", "yellow"
MAX_SLICES = 40  # the number of slices in a table, unless --top sets another number
MAX_REASONS = 3  # the largest number of reasons for missing intervals below a table of slices
MAX_PLAIN_VALUE = 1e6  # values of at least this size are written with an exponent


def build_grids(
    thing: Any,
    top: int | None = MAX_SLICES,
    sort: str | None = None,
    min_rows: int = 0,
    confidence: float | None = None,
) -> list[Grid]:
    """Return the tables of an object: the table over all rows, followed by the tables by slice and window.

    If `confidence` (such as 0.95) is not None, intervals of this level are added. The other parameters are those of
    `Sliced.table`.
    """
    grids = []
    for name, piece in split_pieces(thing):
        if not isinstance(piece, AxisWrapper):
            grids.append(build_task_grid(piece, "" if name == "overall" else name, confidence))
            grids += build_breakdowns(remove_shards(piece))
            continue
        title = name or f"by {', '.join(definition_of(piece).levels)}"
        *earlier, last = build_views(piece)
        grids += [build_slice_grid(one, top, title, sort, min_rows, confidence) for one in earlier]
        within = find_windows(piece)
        if within is not None:
            title = f"{title} and {within.width} of {within.time}"
        if within is None or definition_of(piece).inner.kind == definition_of(within).kind:
            grids.append(build_slice_grid(last, top, title, sort, min_rows, confidence))
    return grids


# -- all rows --------------------------------------------------------------------------------------------------------


def build_task_grid(collection: TotalMetrics, title: str = "", confidence: float | None = None) -> Grid:
    """Return a table of metrics (rows) by tasks (columns), with certified bounds and row counts.

    If `confidence` is not None, intervals of this level are added.
    """
    columns = {
        name or "value": records for name, records in group_by_task(build_records(collection, confidence)).items()
    }
    grid = build_metric_grid(columns, _WinnerFinder(collection), title, confidence)
    grid.remarks += _describe_interval_basis(collection, confidence)
    return grid


def build_metric_grid(
    columns: dict[str, dict[str, Record]],
    rivals: _WinnerFinder | None = None,
    title: str = "",
    confidence: float | None = None,
) -> Grid:
    """Return a table of metrics (rows) by tasks or models (columns).

    `columns` contains the records of each task, keyed by metric. `rivals` decides which values are highlighted as the
    best. If `confidence` is not None, intervals of this level are added.
    """
    items = [item for row_records in columns.values() for item in row_records.items()]
    metrics = list(dict.fromkeys(name for name, record in items if not isinstance(record["value"], np.ndarray)))
    rows: list[list[Cell] | None] = []
    for metric in metrics:
        row_records = [records.get(metric) for records in columns.values()]
        rows.append([Cell(metric), *_add_interval_cells(_build_cells(row_records, rivals), row_records, confidence)])
    counts = [_count_rows(records) for records in columns.values()]
    rows.append(None)
    lines = dict.fromkeys(name for count in counts for name in count)
    for line in lines:
        cells = [Cell(f"{c[line]:,}" if line in c else "") for c in counts]
        rows.append([Cell(line), *_add_interval_cells(cells, [None] * len(cells), confidence)])
    reasons = [r for records in columns.values() for r in records.values()]
    heads = [
        head for name in columns for head in ([name] if confidence is None else [name, format_confidence(confidence)])
    ]
    return Grid(
        title, ["metric", *heads], rows, remarks=[*_describe_undefined(reasons), *_describe_missing_intervals(reasons)]
    )


def _add_interval_cells(
    cells: Sequence[Cell], records: Sequence[Record | None], confidence: float | None
) -> list[Cell]:
    """Return each cell followed by a cell with its interval; if `confidence` is None, return the cells unchanged.

    The narrowest interval determines the number of decimals.
    """
    if confidence is None:
        return list(cells)
    decimals, with_intervals = _choose_decimals(records), []
    for cell, record in zip(cells, records, strict=True):
        texts = None if record is None else _format_interval(record, decimals)
        with_intervals += [cell, Cell("")] if texts is None else [replace(cell, text=texts[0]), Cell(texts[1])]
    return with_intervals


def _has_interval(record: Record) -> bool:
    """Return whether a value has a finite interval."""
    limits = record["interval_low"], record["interval_high"]
    return isinstance(record["value"], float) and all(map(math.isfinite, limits))


def _choose_decimals(records: Sequence[Record | None]) -> int:
    """Return the number of decimals for several values: as many as the narrowest of their intervals justifies."""
    limits = [(r["interval_low"], r["interval_high"]) for r in records if r is not None and _has_interval(r)]
    each = [choose_format(Interval(*one, math.nan, math.nan, "", "", 0.0), False).decimals for one in limits]
    return max(each, default=0)


def _format_interval(record: Record, decimals: int) -> tuple[str, str] | None:
    """Return a value and its interval as strings, such as "0.7841" and "0.7812 to 0.7869"; None without an interval."""
    if not _has_interval(record):
        return None
    low, high, value = (record[name] for name in ("interval_low", "interval_high", "value"))
    mark = MARK if record.get("wide") else ""
    if abs(value) >= MAX_PLAIN_VALUE:
        return format_value(value) + mark, f"{format_value(low)} to {format_value(high)}"
    return f"{value:.{decimals}f}{mark}", f"{low:.{decimals}f} to {high:.{decimals}f}"


def format_confidence(confidence: float) -> str:
    """Return a confidence level as text, such as "95 %"."""
    return f"{100.0 * confidence:.4g} %"


def _describe_interval_basis(thing: TotalMetrics | AxisWrapper, confidence: float | None) -> list[str]:
    """Return a remark that says whether intervals allow for correlation within users or assume independent rows."""
    if confidence is None:
        return []
    units = find_sharded(thing)
    if units is not None:
        return [
            f"{format_confidence(confidence)}: confidence intervals, for rows that are correlated within each {units.unit}"
        ]
    return [f"{format_confidence(confidence)}: intervals as if all rows (queries, groups) were independent"]


def _describe_missing_intervals(records: Sequence[Record], limit: int | None = None) -> list[str]:
    """Return one remark for each reason why intervals are missing, with the names of the metrics.

    The most frequent reason comes first. `limit` is the largest number of reasons.
    """
    refused = [
        r for r in records if r["interval_reason"] and isinstance(r["value"], float) and math.isfinite(r["value"])
    ]
    most_common = Counter(r["interval_reason"] for r in refused).most_common(limit)
    sentences = []
    for reason, _ in most_common:
        names = dict.fromkeys(r["metric"].rpartition("/")[2] for r in refused if r["interval_reason"] == reason)
        sentences.append(f"no interval for {', '.join(names)}: {reason}")
    more = len({r["interval_reason"] for r in refused}) - len(most_common)
    return [*sentences, f"and {more:,} other reasons: --format json lists all"] if more else sentences


class _WinnerFinder:
    """A helper that finds the best among values of the same metric on the same labels and rows."""

    def __init__(self, thing: TotalMetrics | AxisWrapper) -> None:
        self._of: dict[str, tuple[Metric[Any, Any], Any]] = {}
        for name, (_, metric, _, binding, _) in collect_entries(thing).items():
            rows = binding.column("y_true"), binding.where, binding.column("sample_weight"), binding.corrects
            if metric.about.best is not None:
                self._of[name] = metric, (metric.about.best, rows)

    def find_winners(self, records: Sequence[Record | None]) -> set[str]:
        """Return the full names (task and metric) of the records with the best value.

        If all comparable values are equal, there is no winner.
        """
        groups: dict[Any, list[Record]] = {}
        for r in records:
            if r is not None and r["metric"] in self._of and isinstance(r["value"], float) and r["value"] == r["value"]:
                groups.setdefault(self._of[r["metric"]][1], []).append(r)
        names = set()
        for rivals in groups.values():
            metric = self._of[rivals[0]["metric"]][0]
            faults = [badness(metric, r["value"]) for r in rivals]
            if len(set(faults)) > 1:
                names |= {r["metric"] for r, fault in zip(rivals, faults, strict=True) if fault == min(faults)}
        return names


def _build_cells(records: Sequence[Record | None], rivals: _WinnerFinder | None, *, notes: bool = True) -> list[Cell]:
    """Return the cells of one metric, with the best value highlighted.

    If `notes` is true, each cell also shows the certified bound.
    """
    winners = rivals.find_winners(records) if rivals is not None else set()
    return [Cell("") if r is None else _build_cell(r, r["metric"] in winners, notes) for r in records]


def _build_cell(record: Record, wins: bool, notes: bool) -> Cell:
    value = record["value"]
    odd = isinstance(value, float) and math.isnan(value)
    odd = odd or bool(record.get("wide"))
    return Cell(
        format_marked_value(record), format_bound(record) if notes else "", ODD if odd else BEST if wins else ""
    )


def _count_rows(records: dict[str, Record]) -> dict[str, int]:
    """Return the row counts to print below a table, as a dict from the label of each line to its count.

    There are lines for rows, positives and dropped rows. Metrics whose counts differ from those of most other metrics
    get their own lines, such as "rows of ndcg".
    """
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
            lines[_describe_dropped(reason, column) + of] = n
    return lines


def _describe_dropped(reason: str, column: Any) -> str:
    """Return the reason for dropped rows as text, such as "dropped: bad score" for invalid values of `score`."""
    if reason != "where":
        return f"dropped: bad {column}"
    if " and " in column:
        return f"left out: not ({column})"
    return f"left out: not {column}" if any(sign in column for sign in "=<>") else f"left out: {column} is 0"


def _describe_undefined(records: Sequence[Record]) -> list[str]:
    undefined = (r for r in records if isinstance(r["value"], float) and math.isnan(r["value"]))
    reasons = Counter(r["reason"] or "0/0" for r in undefined)
    sentences = [f"NaN: {reason} ({_format_value_count(n)})" for reason, n in reasons.items()]
    return [*sentences, *describe_wide_bounds(records)]


def describe_wide_bounds(records: Sequence[Record]) -> list[str]:
    """Return remarks about values with wide certified bounds, one for each reason why bounds count as wide.

    Each remark says what the marker beside the values means, how many values have it, and how to get narrower bounds.
    """
    wide = [r["wide"] for r in records if r.get("wide")]
    counts = Counter(one.sentence for one in wide)
    remedies = {one.sentence: one.remedy for one in reversed(wide)}
    return [f"{MARK}: {sentence} ({_format_value_count(n)}). {remedies[sentence]}" for sentence, n in counts.items()]


def _format_value_count(count: int) -> str:
    return f"{count:,} value{'s' if count > 1 else ''}"


# -- slices ----------------------------------------------------------------------------------------------------------


def build_slice_grid(
    sliced: AxisWrapper,
    top: int | None = MAX_SLICES,
    title: str = "",
    sort: str | None = None,
    min_rows: int = 0,
    confidence: float | None = None,
) -> Grid:
    """Return a table of slices (rows) by metrics (columns). Each slice has one row for each task.

    The parameters are those of `build_grids`.
    """
    slice_records = build_slice_records(sliced, top, sort, min_rows, confidence)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in slice_records:
        # Keys are compared as values, not as text. Otherwise, null and the string "null" would be the same slice.
        key = [record["slice"].get(name, "") for name in definition_of(sliced).levels]
        groups.setdefault((record["other"], *key), []).append(record)
    count = len(groups) if top is None or not isinstance(sliced.inner, AxisWrapper) else top
    # If there are too many windows, the newest ones are shown.
    first = max(len(groups) - count, 0) if isinstance(sliced, Windowed) else 0
    shown = dict(list(groups.items())[first : first + count])
    slice_records = [record for records in shown.values() for record in records]
    tasks = list(group_by_task(slice_records))
    several = tasks not in ([""], [])
    metrics = list(dict.fromkeys(r["metric"].rpartition("/")[2] for r in slice_records))
    counts = ["rows", *(["positives"] if any(r["positives"] is not None for r in slice_records) else [])]
    decimals = None
    if confidence is not None:
        decimals = {
            m: _choose_decimals([r for r in slice_records if r["metric"].rpartition("/")[2] == m]) for m in metrics
        }
    rows = [
        line
        for records in shown.values()
        for line in _build_lines(
            [format_slice_key(records[0], n) for n in definition_of(sliced).levels],
            group_by_task(records),
            metrics,
            _WinnerFinder(sliced),
            several,
            decimals,
            counts,
        )
    ]
    heads = [*definition_of(sliced).levels, *([name_task_column(sliced)] if several else []), *counts, *metrics]
    names = len(definition_of(sliced).levels) + several
    remarks = _describe_hidden(sliced, top, bool(sort or min_rows), len(groups) - len(shown))
    remarks += _describe_key_limit(sliced)
    remarks += [
        *_describe_bounds(slice_records),
        *_describe_undefined(slice_records),
        *_describe_missing_intervals(slice_records, MAX_REASONS),
        *_describe_interval_basis(sliced, confidence),
    ]
    return Grid(title, heads, rows, names, names, remarks)


def _describe_hidden(sliced: AxisWrapper, top: int | None, filtered: bool, hidden: int) -> list[str]:
    """Return a remark that counts the slices or windows that are not shown, and says how to see them.

    If slices contain windows or other slices, the number is `hidden`. Otherwise, it is the number of slices or windows
    beyond the first `top`. In that case, there is no remark if `filtered` is true, that is, if the user chose the order
    of the table or a minimum number of rows.
    """
    if isinstance(sliced.inner, AxisWrapper):
        return [f"and {hidden:,} more: --format csv lists all"] if hidden else []
    more = 0 if filtered or top is None else max(len(sliced) - top, 0)
    end = "" if more == 1 else "s"
    which = f"older window{end}" if isinstance(sliced, Windowed) else f"slice{end} with fewer rows"
    them = "it" if more == 1 else "them"
    return [f"and {more:,} {which}: --top {len(sliced)} shows {them}, --format csv lists all"] if more else []


def _describe_key_limit(sliced: AxisWrapper) -> list[str]:
    """Return a remark about the limit on the number of keys.

    The remark says which keys are kept, and what share of the rows has other keys.
    """
    if not isinstance(sliced, Sliced):
        return []
    limit, named = definition_of(sliced).axis.limit, definition_of(sliced).axis.pinned
    if limit is None:
        return []
    chosen = [f"{limit:,} with the smallest hash"] if limit or not named else []
    chosen += [f"{len(named):,} with the most rows (or pinned)"] if named else []
    return [f"the limit keeps these keys: {' and '.join(chosen)}; (other) has {sliced.left:.1%} of the rows"]


def _build_lines(
    key: Sequence[str],
    tasks: dict[str, dict[str, Record]],
    metrics: Sequence[str],
    rivals: _WinnerFinder,
    several: bool,
    decimals: dict[str, int] | None,
    counts: Sequence[str],
) -> list[list[Cell] | None]:
    columns = []
    for metric in metrics:
        metric_records = [records.get(metric) for records in tasks.values()]
        cells = _build_cells(metric_records, rivals, notes=False)
        columns.append(cells if decimals is None else _add_interval_notes(cells, metric_records, decimals[metric]))
    lines: list[list[Cell] | None] = []
    for i, (task, records) in enumerate(tasks.items()):
        counts_of = {c: [r[c] for r in records.values() if r[c] is not None] for c in counts}
        count_cells = [Cell(f"{max(known):,}" if known else "") for known in counts_of.values()]
        names = [Cell(k) if i == 0 else SAME_AS_ABOVE for k in key] + ([Cell(task)] if several else [])
        lines.append([*names, *count_cells, *(column[i] for column in columns)])
    return lines


def _add_interval_notes(cells: Sequence[Cell], records: Sequence[Record | None], decimals: int) -> list[Cell]:
    """Return the cells with the interval of each value as a small note beside it."""
    texts = [None if r is None else _format_interval(r, decimals) for r in records]
    return [c if s is None else replace(c, text=s[0], note=s[1]) for c, s in zip(cells, texts, strict=True)]


def _describe_bounds(records: Sequence[Record]) -> list[str]:
    """Return a remark with the largest certified bound of each metric, because the cells do not show bounds."""
    widths: dict[str, float] = {}
    for r in records:
        low, high = r["bound_low"], r["bound_high"]
        if low is not None and low == low:
            name = r["metric"].rpartition("/")[2]
            widths[name] = max(widths.get(name, 0.0), (high - low) / 2)
    parts = [f"{name} ±{w:.1e}" if w else f"{name} exact" for name, w in widths.items()]
    return [f"certified bounds on the rounding of scores, at most: {', '.join(parts)}"] if parts else []
