"""What was counted, on a page: values with their intervals and bounds, curves, windows, and tables of slices."""

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
from ..reading.table import show
from ..reading.wide_bounds import MARK
from .charts import Chart
from .comparison_sections import badge_of, each_of
from .families import COLOURS, matrices
from .figures import under
from .headline import interval_name
from .numbers import count, decimals_of, fixed, proof
from .page_model import Fact, Headline, NamedSide, Page, PagePart, Value, ValueGrid
from .per_class import each_class
from .pictures import best_rows, pictures
from .records import by_unit, is_sliced, overall, pieces, rivals, tasks_of, unsharded, why_left_out
from .series import differences_of, windows_of
from .tables import slices, wide_remarks
from .text_table import ABOVE, Grid

__all__ = ["add_held", "grid_of"]

SLICES = 1000  # in a table of values: those with most rows


def add_held(
    page: Page, held: Sequence[tuple[str, Any]], *, rows_independent: bool, first: bool, sort: str | None, min_rows: int,
    worries: Sequence[str], compared: Sequence[tuple[str, Any]],
) -> None:  # fmt: skip
    """Put what was counted on a page; it begins with its values, if nothing is compared."""
    where: list[PagePart] = []
    later: list[PagePart] = []
    for name, thing in held:
        if isinstance(thing, Windowed):
            charts = [*_drifts(thing, compared), *windows_of(thing, by_unit(thing) or rows_independent)]
            later.append(PagePart("charts", f"Over time{f': {name}' if name else ''}", "", (charts, None), WINDOW_NOTE))
            continue
        for inner, piece in pieces(thing, name):
            if isinstance(piece, AxisWrapper):
                grid = slices(piece, SLICES, f"By {', '.join(definition_of(piece).levels)}", sort, min_rows)
                where.append(_grid_part(grid))
            else:
                intervals = _intervals(piece, rows_independent)
                plain = unsharded(piece)
                values = _values(plain, intervals, "" if inner == "overall" else inner)
                if first and not page.parts:
                    page.words = _value_words(page.title, values, bool(intervals), worries)
                part = PagePart(
                    "values",
                    "Each by itself" if compared else values.caption,
                    "values" if not page.parts else "",
                    values,
                )
                (later if compared else page.parts).append(part)
                if charts := pictures(plain):
                    data = charts, best_rows(plain)
                    page.parts.append(PagePart("charts", "Why" if page.sides else "Curves", "", data, CHARTS_NOTE))
                if found := list(matrices(plain)):
                    page.parts.append(PagePart("matrices", "Confusions", "", found))
                where += map(_grid_part, each_class(plain))
    page.parts += [*later, *where]
    if first and not page.parts:
        page.words = Headline([(page.title, None)], "There is nothing to show.", [])
    if first and page.words.lead == "" and page.words.text == page.title and worries:
        page.words = page.words._replace(facts=[Fact("but", "but", "; ".join(worries) + ".")])


CHARTS_NOTE = "Point at a picture, or focus it and use the arrow keys, to read it."
NO_UNIT = ("Say whose rows belong together: --unit user_id, or Sharded(…, unit=) in Python. "
           "Rows of one user are alike, and few users can look like many rows.")  # fmt: skip
WINDOW_NOTE = "Every window on its own; dots with their intervals, or a line with its band. Pale: provisional."


def _drifts(windowed: Windowed, compared: Sequence[tuple[str, Any]]) -> list[Chart]:
    """The difference that decides, window by window, of two models that are compared."""
    whole = [c for _, some in compared for c in each_of(some) if not c.keys]
    groups = rivals(windowed) if by_unit(windowed) and whole and len(definition_of(windowed).levels) == 1 else []
    if not groups or len(groups[0]) != 2:
        return []
    models = groups[0]
    by_window = each_of(compare(windowed.task(models[1]), windowed.task(models[0])))
    found = [c for c in by_window if c.keys and c.keys[0] is not None]
    name = found[0].name if found else ""
    mine = sorted((c for c in found if c.name == name and not isinstance(c.keys[0], str)), key=lambda c: c.keys[0])
    of_all = next((c for c in whole if c.name == name), None)
    note = f"{models[1]} − {models[0]}; dots with {badge_of(whole)} intervals; shaded: all rows."
    return [differences_of(mine, of_all, note)] if mine else []


def _grid_part(grid: Grid) -> PagePart:
    rows = [[None if c is ABOVE else c.text for c in r] for r in grid.rows if r]
    return PagePart("grid", grid.title, "", grid_of(grid.heads, rows, grid.left, grid.remarks))


def grid_of(
    heads: Sequence[str], rows: Sequence[Sequence[str | None]], left: int, remarks: Sequence[str]
) -> dict[str, Any]:
    """A table with the numbers that its columns are sorted by."""
    made: list[list[tuple[str, float | None]]] = []
    for row in rows:
        cells = []
        for i, given in enumerate(row):
            text = made[-1][i][0] if given is None else given  # named once in print: here every row, to be sorted
            text = "–" if text == "NaN" else text
            cells.append((text, _number(text) if i >= left else None))
        made.append(cells)
    return {"heads": list(heads), "left": left, "rows": made, "remarks": [r.replace("NaN:", "–:", 1) for r in remarks]}


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "").removesuffix(MARK))
    except ValueError:  # a text, which has no order
        return None
    return value if math.isfinite(value) else None


def _intervals(thing: Any, rows_independent: bool) -> dict[str, tuple[float, float]]:
    """The intervals of a collection, by name: by unit, or of independent rows if that was said."""
    if not (by_unit(thing) or rows_independent) or is_sliced(thing):
        return {}
    return {r["metric"]: (r["interval_low"], r["interval_high"]) for r in answer_of(thing).records(0.95)
            if math.isfinite(r["interval_low"])}  # fmt: skip


def _values(collection: MetricCollection, intervals: Mapping[str, tuple[float, float]], title: str) -> ValueGrid:
    found = tasks_of(overall(collection))
    known = {name: metric for name, metric, *_ in contents_of(collection)}
    sides = [NamedSide(name or "value", i % COLOURS) for i, name in enumerate(found)]
    names = dict.fromkeys(
        n for records in found.values() for n, r in records.items() if not isinstance(r["value"], np.ndarray)
    )
    rows: list[tuple[str, str, list[Value]]] = []
    reasons: dict[str, list[str]] = {}
    for name in names:
        cells_of = []
        for i, (task, records) in enumerate(found.items()):
            record = records.get(name)
            cells_of.append(
                Value("") if record is None else _value(record, intervals.get(record["metric"]), i % COLOURS)
            )
            if record is not None and cells_of[-1].reason:
                reasons.setdefault(cells_of[-1].reason, []).append(f"{task}/{name}" if task else name)
        metric = next(
            known[r["metric"]] for records in found.values() if (r := records.get(name)) and r["metric"] in known
        )
        rows.append((name, under(metric), cells_of))
    notes = [f"{', '.join(who)}: {why}." for why, who in reasons.items()]
    notes += wide_remarks([r for records in found.values() for r in records.values()])
    counts = _counts(list(found.values()))
    badge = interval_name(0.95, False) if intervals else ""
    return ValueGrid(title or "Measures", sides, rows, counts, notes, badge)


def _value(record: Mapping[str, Any], limits: tuple[float, float] | None, number: int) -> Value:
    value = record["value"]
    if not isinstance(value, float):
        return Value(show(value), number=number)
    if math.isnan(value):
        return Value("–", reason=record["reason"] or "0/0", number=number)
    half = None if limits is None else (limits[1] - limits[0]) / 2
    found = None if half is None else decimals_of(half)
    decimals = found if found is not None else (6 if 1e-3 <= abs(value) < 1e6 or value == 0.0 else None)
    text = fixed(value, decimals) if decimals is not None else f"{value:.6g}".replace("-", "−")
    places = 6 if decimals is None else decimals
    between = "" if limits is None else f"{fixed(limits[0], places)} to {fixed(limits[1], places)}"
    low, high = record["bound_low"], record["bound_high"]
    certified = (
        "" if low is None or math.isnan(low) else proof(0.0 if high <= np.nextafter(low, np.inf) else (high - low) / 2)
    )
    return Value(text + (MARK if record.get("wide") else ""), between, certified, number=number)


def _counts(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Rows, positives, and rows left out by reason; of each model."""
    from_each = [_counted(records) for records in columns]
    names = dict.fromkeys(n for one in from_each for n in one)
    return [(n, [count(one[n]) if n in one else "" for one in from_each]) for n in names]


def _counted(records: Mapping[str, Any]) -> dict[str, float]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, r in records.items():
        groups.setdefault((r["rows"], r["positives"], tuple(r["dropped"].items())), []).append(name)
    found: dict[str, float] = {}
    for (rows, positives, dropped), names in sorted(groups.items(), key=lambda g: -len(g[1])):
        of = f" of {', '.join(names)}" if found else ""
        found |= {f"rows{of}": rows} if rows is not None else {}
        found |= {f"positives{of}": positives} if positives is not None else {}
        found |= {
            f"left out: {why_left_out(reason, records[names[0]]['columns'].get(reason))}{of}": n
            for reason, n in dropped
        }
    return found


def _value_words(title: str, values: ValueGrid, some: bool, worries: Sequence[str]) -> Headline:
    """What is said first where nothing is compared."""
    told = []
    if values.rows:
        name, _, cells_of = values.rows[0]
        for side, cell in zip(values.sides, cells_of, strict=True):
            who = "" if len(values.sides) == 1 else f"{side.name} "
            told.append(f"{who}{cell.text or '–'}{f', {values.badge} {cell.interval}' if cell.interval else ''}")
        lead = f"{name}: {'; '.join(told)}."
    else:
        lead = ""
    facts = []
    if not some:
        facts.append(Fact("tag", "no interval", NO_UNIT))
    if worries:
        facts.append(Fact("but", "but", "; ".join(worries) + "."))
    return Headline([(title, None)], lead, facts)
