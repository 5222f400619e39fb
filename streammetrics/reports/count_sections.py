"""Build the metric sections of a report page: values with intervals and bounds, charts, windows and slices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection, contents_of
from ..collect.metric_like import answer_of
from ..compose.axis_wrapper import AxisWrapper
from ..compose.windowed import Windowed
from ..inference.compare import compare
from ..reading.table import format_value
from ..reading.wide_bounds import MARK
from .charts import Chart
from .comparison_sections import format_badge, list_comparisons
from .curve_charts import CHARTS_NOTE, build_charts, build_top_rows
from .headline import format_confidence
from .measure_rows import format_subtitle
from .numbers import choose_decimals, end_sentence, format_bound, format_count, format_fixed, typeset
from .page_model import Fact, Headline, NamedSide, Page, PagePart, ValueCell, ValueGrid
from .per_class import build_class_grids
from .records import (
    build_records,
    describe_dropped,
    group_by_task,
    group_comparable_tasks,
    has_shards,
    is_sliced,
    remove_shards,
    split_pieces,
)
from .tables import build_slice_grid, describe_wide_bounds
from .task_charts import COLOURS, build_matrices
from .text_table import SAME_AS_ABOVE, Grid
from .window_charts import build_difference_chart, build_window_charts

__all__ = ["add_accumulators", "build_grid"]

# A table shows at most this many slices: those with the most rows, unless the caller chooses another order.
SLICES = 1000


def add_accumulators(
    page: Page, accumulators: Sequence[tuple[str, Any]], *, rows_independent: bool, first: bool, sort: str | None,
    min_rows: int, confidence: float, warnings: Sequence[str], compared: Sequence[tuple[str, Any]],
) -> None:  # fmt: skip
    """Add metric sections to a page.

    If `first` is true, the page has no scorecards or comparisons, and begins with these metrics. `compared`
    contains the comparisons on the page, as pairs of an object name and the comparisons for that object. `warnings` are
    sentences about dropped rows. The other parameters are those of `report`.
    """
    has_arms = any(part.kind == "arms" for part in page.parts)
    where: list[PagePart] = []
    later: list[PagePart] = []
    for name, thing in accumulators:
        if isinstance(thing, Windowed):
            charts = [
                *_build_difference_charts(thing, compared),
                *build_window_charts(thing, confidence if has_shards(thing) or rows_independent else None),
            ]
            later.append(PagePart("charts", f"Over time{f': {name}' if name else ''}", "", (charts, None), WINDOW_NOTE))
            continue
        for inner, piece in split_pieces(thing, name):
            level = confidence if has_shards(piece) or rows_independent else None
            if isinstance(piece, AxisWrapper):
                title = f"By {', '.join(definition_of(piece).levels)}"
                where.append(_build_grid_part(build_slice_grid(piece, SLICES, title, sort, min_rows, level)))
            else:
                intervals = _collect_intervals(piece, level)
                plain = remove_shards(piece)
                values = _build_value_grid(plain, intervals, "" if inner == "overall" else inner, confidence)
                page.badge = page.badge or values.badge
                if first and not page.parts:
                    page.headline = _build_headline(page.title, values, bool(intervals), warnings)
                part = PagePart(
                    "values",
                    "Individual values" if compared else "The whole log" if has_arms else values.caption,
                    "values" if not page.parts else "",
                    values,
                )
                (later if compared else page.parts).append(part)
                # On a page with a scorecard, leave out charts of all arms together, because the scorecard already shows
                # charts of each arm.
                if charts := [] if has_arms else build_charts(plain):
                    data = charts, build_top_rows(plain)
                    page.parts.append(PagePart("charts", "Curves", "", data, CHARTS_NOTE))
                if confusion_charts := list(build_matrices(plain)):
                    page.parts.append(PagePart("matrices", "Confusions", "", confusion_charts))
                where += map(_build_grid_part, build_class_grids(plain))
    page.parts += [*later, *where]
    if first and not page.parts:
        page.headline = Headline([(page.title, None)], "There is nothing to show.", [])
    if first and page.headline.lead == "" and page.headline.text == page.title and warnings:
        page.headline = page.headline._replace(facts=[Fact("but", "caution", "; ".join(warnings) + ".")])


NO_UNIT = ("Name the unit whose rows belong together with --unit user_id, or with Sharded(…, unit=) in Python. "
           "Rows of one user are correlated, so they do not count as independent.")  # fmt: skip
WINDOW_NOTE = (
    "Each window has one value, drawn as a point with its interval or as a line with a band. Pale: provisional."
)


def _build_difference_charts(windowed: Windowed, compared: Sequence[tuple[str, Any]]) -> list[Chart]:
    """Return the chart of a difference by time window, as a list of at most one chart.

    The chart shows the first metric. The list is empty unless exactly two models are compared, and the rows of the
    windows are split into shards of users, from which intervals are computed.
    """
    overall = [c for _, some in compared for c in list_comparisons(some) if not c.keys]
    groups = (
        group_comparable_tasks(windowed)
        if has_shards(windowed) and overall and len(definition_of(windowed).levels) == 1
        else []
    )
    if not groups or len(groups[0]) != 2:
        return []
    models = groups[0]
    by_window = list_comparisons(compare(windowed.task(models[1]), windowed.task(models[0])))
    comparisons = [c for c in by_window if c.keys and c.keys[0] is not None]
    name = comparisons[0].name if comparisons else ""
    in_order = sorted(
        (c for c in comparisons if c.name == name and not isinstance(c.keys[0], str)), key=lambda c: c.keys[0]
    )
    of_all = next((c for c in overall if c.name == name), None)
    note = f"{models[1]} − {models[0]}; dots with {format_badge(overall)} intervals; shaded: all rows."
    return [build_difference_chart(in_order, of_all, note)] if in_order else []


def _build_grid_part(grid: Grid) -> PagePart:
    rows = [[None if c is SAME_AS_ABOVE else (c.text, c.note) for c in r] for r in grid.rows if r]
    return PagePart("grid", grid.title, "", build_grid(grid.heads, rows, grid.left_columns, grid.remarks))


def build_grid(
    heads: Sequence[str],
    rows: Sequence[Sequence[tuple[str, str] | None]],
    left_columns: int,
    remarks: Sequence[str],
) -> dict[str, Any]:
    """Return a table for a page as a dict. Each cell consists of a text, a note, and a number for sorting (or None).

    The first `left_columns` columns are left-aligned and are not sorted as numbers. Each cell of the argument `rows` is
    a pair of a text and a note, such as an interval. None repeats the cell above.
    """
    table: list[list[tuple[str, str, float | None]]] = []
    for row in rows:
        cells = []
        for i, cell in enumerate(row):
            # A cell is None if it repeats the key above it. The reader of the page can sort the rows, so fill in the
            # key in every row.
            text, note = table[-1][i][:2] if cell is None else cell
            text = "–" if text == "NaN" else text
            number = _parse_number(text) if i >= left_columns else None
            cells.append((text if number is None else typeset(text), typeset(note), number))
        table.append(cells)
    return {
        "heads": list(heads),
        "left": left_columns,
        "rows": table,
        "remarks": [end_sentence(r.replace("NaN:", "–:", 1)) for r in remarks],
    }


def _parse_number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "").removesuffix(MARK))
    # The text of the cell is not a number, so the page cannot sort by it.
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _collect_intervals(thing: Any, confidence: float | None) -> dict[str, tuple[float, float]]:
    """Return the interval of each metric, keyed by metric name; an empty dict if `confidence` is None."""
    if confidence is None or is_sliced(thing):
        return {}
    return {r["metric"]: (r["interval_low"], r["interval_high"]) for r in answer_of(thing).records(confidence)
            if math.isfinite(r["interval_low"])}  # fmt: skip


def _build_value_grid(
    collection: MetricCollection, intervals: Mapping[str, tuple[float, float]], title: str, confidence: float
) -> ValueGrid:
    records_of = group_by_task(build_records(collection))
    metric_of = {name: metric for name, metric, *_ in contents_of(collection)}
    sides = [NamedSide(name or "value", i % COLOURS) for i, name in enumerate(records_of)]
    names = dict.fromkeys(
        n for records in records_of.values() for n, r in records.items() if not isinstance(r["value"], np.ndarray)
    )
    rows: list[tuple[str, str, list[ValueCell]]] = []
    reasons: dict[str, list[str]] = {}
    for name in names:
        cells_of = []
        for i, (task, records) in enumerate(records_of.items()):
            record = records.get(name)
            cells_of.append(
                ValueCell("")
                if record is None
                else _build_value_cell(record, intervals.get(record["metric"]), i % COLOURS)
            )
            if record is not None and cells_of[-1].reason:
                reasons.setdefault(cells_of[-1].reason, []).append(f"{task}/{name}" if task else name)
        metric = next(
            metric_of[r["metric"]]
            for records in records_of.values()
            if (r := records.get(name)) and r["metric"] in metric_of
        )
        rows.append((name, format_subtitle(metric), cells_of))
    notes = [f"{', '.join(who)}: {why}." for why, who in reasons.items()]
    notes += describe_wide_bounds([r for records in records_of.values() for r in records.values()])
    counts = _build_count_rows(list(records_of.values()))
    badge = format_confidence(confidence, False) if intervals else ""
    return ValueGrid(title or "Metrics", sides, rows, counts, notes, badge)


def _build_value_cell(record: Mapping[str, Any], limits: tuple[float, float] | None, number: int) -> ValueCell:
    value = record["value"]
    if not isinstance(value, float):
        return ValueCell(format_value(value), number=number)
    if math.isnan(value):
        return ValueCell("–", reason=record["reason"] or "0/0", number=number)
    half = None if limits is None else (limits[1] - limits[0]) / 2
    own_decimals = None if half is None else choose_decimals(half)
    decimals = own_decimals if own_decimals is not None else (6 if 1e-3 <= abs(value) < 1e6 or value == 0.0 else None)
    text = format_fixed(value, decimals) if decimals is not None else f"{value:.6g}".replace("-", "−")
    places = 6 if decimals is None else decimals
    between = "" if limits is None else f"{format_fixed(limits[0], places)} to {format_fixed(limits[1], places)}"
    low, high = record["bound_low"], record["bound_high"]
    certified = (
        ""
        if low is None or math.isnan(low)
        else format_bound(0.0 if high <= np.nextafter(low, np.inf) else (high - low) / 2)
    )
    return ValueCell(text + (MARK if record.get("wide") else ""), between, certified, number=number)


def _build_count_rows(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the lines that show the row counts of each model below a table of values.

    Each line has a label, such as "rows", "positives" or a reason for dropped rows, and one count for each model.
    """
    from_each = [_count_task_rows(records) for records in columns]
    names = dict.fromkeys(n for one in from_each for n in one)
    return [(n, [format_count(one[n]) if n in one else "" for one in from_each]) for n in names]


def _count_task_rows(records: Mapping[str, Any]) -> dict[str, float]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, r in records.items():
        groups.setdefault((r["rows"], r["positives"], tuple(r["dropped"].items())), []).append(name)
    lines: dict[str, float] = {}
    for (rows, positives, dropped), names in sorted(groups.items(), key=lambda g: -len(g[1])):
        of = f" of {', '.join(names)}" if lines else ""
        lines |= {f"rows{of}": rows} if rows is not None else {}
        lines |= {f"positives{of}": positives} if positives is not None else {}
        lines |= {
            f"left out: {describe_dropped(reason, records[names[0]]['columns'].get(reason))}{of}": n
            for reason, n in dropped
        }
    return lines


def _build_headline(title: str, values: ValueGrid, some: bool, warnings: Sequence[str]) -> Headline:
    """Return the headline of a page that shows only metrics: the title, and the values of the first metric below it.

    `some` says whether any value has an interval. If not, a remark says how to get intervals.
    """
    sentences = []
    if values.rows:
        name, _, cells_of = values.rows[0]
        for side, cell in zip(values.sides, cells_of, strict=True):
            who = "" if len(values.sides) == 1 else f"{side.name} "
            sentences.append(f"{who}{cell.text or '–'}{f', {values.badge} {cell.interval}' if cell.interval else ''}")
        lead = f"{name}: {'; '.join(sentences)}."
    else:
        lead = ""
    facts = []
    if not some:
        facts.append(Fact("tag", "no interval", NO_UNIT))
    if warnings:
        facts.append(Fact("but", "caution", "; ".join(warnings) + "."))
    return Headline([(title, None)], lead, facts)
